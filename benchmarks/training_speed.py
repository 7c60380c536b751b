"""Training speed: ours beside the way the TensorFlow tutorial does it.

    python benchmarks/training_speed.py --data PAIRS.tsv.gz

Target tokens a second, padding not counted, on real sentences and preset `tutorial`,
in one run on one machine. The ways take turns, so that what else the machine does
falls on all of them; medians and spread over the rounds go to training_speed.json.

- "tutorial": the tutorial's model (Keras's own attention and dense layers), batches of
  64 sentences as they come, padded to the longest, its loss over every position.
- "ours, same batches": our model and loss on those very batches.
- "ours, 64 sentences": our batches, of nearly equal lengths, 64 sentences on average.
- "ours": the preset as it is.
"""

import argparse
import json
import os
import platform
import statistics
import time
from pathlib import Path

from tfxformer.quiet import start_tensorflow

start_tensorflow()

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from tfxformer import corpora  # noqa: E402
from tfxformer.batches import (  # noqa: E402
    encode_pairs,
    fit_length,
    training_batches,
)
from tfxformer.config import load_config  # noqa: E402
from tfxformer.layers import positional_encoding  # noqa: E402
from tfxformer.run import build_model  # noqa: E402
from tfxformer.tokenizer import Tokenizer  # noqa: E402
from tfxformer.training.loss import masked_accuracy, masked_loss  # noqa: E402
from tfxformer.training.schedule import CustomSchedule  # noqa: E402
from tfxformer.training.trainer import compile_model, make_steps  # noqa: E402

SENTENCES = 64


def tutorial_model(settings, vocab_size):
    """The tutorial's architecture from Keras's stock layers, as it builds it."""
    d_model, heads = settings.d_model, settings.num_heads
    rate, dff = settings.dropout_rate, settings.dff

    def embed(ids):
        x = keras.layers.Embedding(vocab_size, d_model, mask_zero=True)(ids)
        x = x * d_model**0.5
        positions = keras.layers.Lambda(
            lambda x: x + positional_encoding(2048, d_model)[None, : tf.shape(x)[1]],
            output_shape=(None, d_model),
        )(x)
        return keras.layers.Dropout(rate)(positions)

    def attend(x, context, causal=False):
        y = keras.layers.MultiHeadAttention(heads, d_model, dropout=rate)(
            query=x, value=context, key=context, use_causal_mask=causal
        )
        return keras.layers.LayerNormalization()(keras.layers.Add()([x, y]))

    def feed_forward(x):
        y = keras.layers.Dense(dff, activation="relu")(x)
        y = keras.layers.Dropout(rate)(keras.layers.Dense(d_model)(y))
        return keras.layers.LayerNormalization()(keras.layers.Add()([x, y]))

    source = keras.Input((None,), dtype="int32")
    target = keras.Input((None,), dtype="int32")
    context = embed(source)
    for _ in range(settings.num_layers):
        context = feed_forward(attend(context, context))
    x = embed(target)
    for _ in range(settings.num_layers):
        x = feed_forward(attend(attend(x, x, causal=True), context))
    model = keras.Model((source, target), keras.layers.Dense(vocab_size)(x))
    model.compile(
        loss=masked_loss,
        optimizer=keras.optimizers.Adam(
            CustomSchedule(d_model), beta_1=0.9, beta_2=0.98, epsilon=1e-9
        ),
        metrics=[masked_accuracy],
        jit_compile=False,
    )
    return model


def mixed_batches(pairs, tokenizer, count):
    rng = np.random.default_rng(0)
    order = rng.permutation(len(pairs))[: count * SENTENCES].reshape(count, SENTENCES)
    return [encode_pairs([pairs[i] for i in rows], tokenizer) for rows in order]


def own_batches(pairs, tokenizer, config, tokens_per_batch, count):
    batches = training_batches(
        [pairs],
        tokenizer,
        tokens_per_batch=tokens_per_batch,
        max_length=config.model.max_length,
    )
    return list(batches.take(count))


def budget_for(pairs, tokenizer, config):
    """The token budget at which a batch has 64 sentences on average."""
    low, high = 256, 8192
    while high - low > 16:
        middle = (low + high) // 2
        batches = own_batches(pairs, tokenizer, config, middle, 60)
        mean = statistics.mean(int(target.shape[0]) for _, target in batches)
        low, high = (middle, high) if mean < SENTENCES else (low, middle)
    return high


def measure(step, batches):
    tokens = sum(int(tf.math.count_nonzero(target)) for _, target in batches)
    started = time.perf_counter()
    for batch in batches:
        logs = step(batch)
    float(logs["loss"])  # waits for the last step
    return tokens / (time.perf_counter() - started)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batches", type=int, default=8, help="in each round")
    args = parser.parse_args()

    keras.utils.set_random_seed(0)
    config = load_config("tutorial")
    pairs, _ = corpora.load(args.data)
    tokenizer = Tokenizer.train(
        [side for pair in pairs[::4] for side in pair], config.tokenizer.vocab_size
    )
    pairs, _ = fit_length(pairs[::4], tokenizer, config.model.max_length)

    tutorial = tutorial_model(config.model, tokenizer.vocab_size)
    ours = build_model(config, tokenizer.vocab_size)
    compile_model(ours, config)
    tutorial_step, our_step = make_steps(tutorial)[0], make_steps(ours)[0]
    count = args.batches
    mixed = mixed_batches(pairs, tokenizer, count)
    budget = budget_for(pairs, tokenizer, config)
    ways = {
        "tutorial": (tutorial_step, mixed),
        "ours, same batches": (our_step, mixed),
        "ours, 64 sentences": (
            our_step,
            own_batches(pairs, tokenizer, config, budget, 3 * count),
        ),
        "ours": (
            our_step,
            own_batches(
                pairs, tokenizer, config, config.training.tokens_per_batch, count
            ),
        ),
    }
    for step, batches in ways.values():
        measure(step, batches)  # warm-up
    speeds = {way: [] for way in ways}
    for _ in range(args.rounds):
        for way, (step, batches) in ways.items():
            speeds[way].append(measure(step, batches))

    results = {"machine": machine(), "rounds": args.rounds, "ways": {}}
    base = speeds["tutorial"]
    print(f"{'':20} {'tokens/s':>9} {'least':>7} {'most':>7} {'ratio':>6}  padding")
    for way, values in speeds.items():
        batches = ways[way][1]
        positions = sum(int(tf.size(target)) for _, target in batches)
        tokens = sum(int(tf.math.count_nonzero(target)) for _, target in batches)
        ratio = statistics.median(
            value / other for value, other in zip(values, base, strict=True)
        )
        row = {
            "tokens_per_second": round(statistics.median(values)),
            "least": round(min(values)),
            "most": round(max(values)),
            "ratio_to_tutorial": round(ratio, 2),
            "target_padding": round(1 - tokens / positions, 3),
            "sentences_per_batch": round(
                statistics.mean(int(target.shape[0]) for _, target in batches), 1
            ),
        }
        results["ways"][way] = row
        print(
            f"{way:20} {row['tokens_per_second']:9,} {row['least']:7,} "
            f"{row['most']:7,} {ratio:6.2f}  {row['target_padding']:.1%}"
        )
    file = Path(__file__).with_suffix(".json")
    file.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


def machine():
    return {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
    }


if __name__ == "__main__":
    main()
