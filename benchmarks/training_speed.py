"""Training speed and memory: ours, the TensorFlow tutorial's way, and KerasHub's.

    python benchmarks/training_speed.py --data PAIRS.tsv.gz --keras-hub VENV/bin/python

VENV has the packages of `requirements-keras-hub.txt`; without it the script leaves out
KerasHub. The model is preset `tutorial`. Speed is target tokens per second, from
batches to updated weights, with the end token and without padding. Kinds of batches:

- "same": ours, with the preset's number of tokens.
- "mixed": 64 sentences in random order, padded to the longest, as in the tutorial.

`--only "same, ours"` runs the ways whose names contain any of these.
"""

import argparse
import itertools
import json
import os
import tempfile
from pathlib import Path

import numpy as np
from turns import HERE, about, save, started, summarise, table, take_turns

from tfxformer import corpora
from tfxformer.batches import make_batches
from tfxformer.config import load_config
from tfxformer.console import start_tensorflow
from tfxformer.special_tokens import END_ID, START_ID
from tfxformer.tokenizer import Tokenizer

PRESET, SENTENCES = "tutorial", 64
TUTORIAL = "the tutorial's way, mixed"
# The worker of each way, its batches and its flags.
WAYS = {
    TUTORIAL: ["train_tutorial.py", "mixed"],
    "ours, mixed": ["train_ours.py", "mixed"],
    "ours, same": ["train_ours.py", "same"],
    "ours in bfloat16, same": ["train_ours.py", "same", "--bfloat16"],
    "KerasHub, mixed": ["train_keras_hub.py", "mixed"],
    "KerasHub, same": ["train_keras_hub.py", "same"],
    "KerasHub in bfloat16, same": ["train_keras_hub.py", "same", "--bfloat16"],
}


def prepare(args, folder):
    """Writes the model's sizes and the batches for the workers."""
    config = load_config(PRESET)
    pairs = corpora.load(args.data)[0][:: args.every]
    texts = [side for pair in pairs for side in pair]
    tokenizer = Tokenizer.train(texts, config.tokenizer.vocab_size)
    save_batches(
        folder / "same.npz", our_batches(pairs, tokenizer, config, args.batches)
    )
    # Half as many: they take long, and all are alike.
    mixed = mixed_batches(pairs, tokenizer, config, max(args.batches // 2, 1))
    save_batches(folder / "mixed.npz", mixed)
    sizes = config.model_dump()["model"]
    sizes |= {"preset": PRESET, "vocab_size": tokenizer.vocab_size}
    (folder / "sizes.json").write_text(json.dumps(sizes))


def our_batches(pairs, tokenizer, config, count):
    """Yields the sources and targets of the first batches, as in `tfxformer train`."""
    dataset = make_batches(
        pairs,
        tokenizer,
        tokens_per_batch=config.training.tokens_per_batch,
        max_length=config.model.max_length,
    )
    for (source, target_in), target_out in dataset.take(count).as_numpy_iterator():
        yield source, np.concatenate([target_in[:, :1], target_out], axis=1)


def mixed_batches(pairs, tokenizer, config, count):
    """Yields sources and targets of sentences in random order, 64 a batch."""
    drawn = np.random.default_rng(0).permutation(len(pairs))
    chosen = [pairs[i] for i in drawn[: 2 * count * SENTENCES]]
    sides = (tokenizer.encode([pair[side] for pair in chosen]) for side in (0, 1))
    longest = config.model.max_length
    rows = [row for row in zip(*sides, strict=True) if max(map(len, row)) < longest]
    for first in range(0, count * SENTENCES, SENTENCES):
        some = rows[first : first + SENTENCES]
        sources = padded([[*source, END_ID] for source, _ in some])
        yield sources, padded([[START_ID, *target, END_ID] for _, target in some])


def padded(rows):
    ids = np.zeros((len(rows), max(map(len, rows))), "int32")
    for row, of_row in zip(ids, rows, strict=True):
        row[: len(of_row)] = of_row
    return ids


def save_batches(file, batches):
    np.savez(file, *itertools.chain.from_iterable(batches))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="sentence pairs: a TSV")
    parser.add_argument("--every", type=int, default=4, help="use every Nth pair")
    parser.add_argument("--keras-hub", help="the Python of KerasHub's environment")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=16, help="in each round")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="for each")
    parser.add_argument("--only", default="", help="comma-separated parts of names")
    parser.add_argument("--out", type=Path, default=HERE / "training_speed.json")
    args = parser.parse_args()
    only = [part.strip() for part in args.only.split(",")]
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    start_tensorflow()
    with tempfile.TemporaryDirectory() as folder:
        prepare(args, Path(folder))
        ways = {
            name: [program, folder, *rest]
            for name, (program, *rest) in WAYS.items()
            if any(part in name for part in only)
            and (args.keras_hub or "KerasHub" not in name)
        }
        pythons = {name: args.keras_hub for name in ways if "KerasHub" in name}
        steps = {"same": args.batches, "mixed": max(args.batches // 2, 1)}
        with started(ways, args.threads, pythons) as (workers, versions):
            answers = take_turns(
                workers, lambda name: [{"steps": steps[ways[name][2]]}], args.rounds
            )
    rows = summarise(answers, lambda answer: answer["tokens"], TUTORIAL)
    for name, row in rows.items():
        last = answers[name][-1][0]
        row["padding"] = round(1 - last["tokens"] / last["positions"], 3)
    print(table("target tokens/s", rows, "padding"))
    save(args.out, about(args, versions) | {"preset": PRESET, "ways": rows})


if __name__ == "__main__":
    main()
