"""Whether CTranslate2 translates as we do, from the same weights.

    python benchmarks/ctranslate2_agreement.py --run RUN --data ted --data-dir DIR

Exports a run for CTranslate2 and translates the first 500 sentences of a test set with
both, greedily and in float32: ours as the SavedModel does, CTranslate2 from text, by
what is in the exported folder alone. ctranslate2_agreement.json has the counts and each
difference: the sentence's number, where the two part, and how far apart the two tokens
are there in our model's logits. Beside it: by how much the log-probabilities of all
tokens differ, which is what single precision does; and how many translations are the
same in int8, which is not meant to be the same.
"""

import argparse
import json
import os
import platform
import tempfile
from pathlib import Path

from tfxformer.quiet import start_tensorflow

start_tensorflow()

import ctranslate2  # noqa: E402
import numpy as np  # noqa: E402
import sentencepiece  # noqa: E402
import tensorflow as tf  # noqa: E402

from tfxformer import corpora  # noqa: E402
from tfxformer.decoding import decode  # noqa: E402
from tfxformer.exporting.ctranslate2 import (  # noqa: E402
    TOLERANCE,
    export_ctranslate2,
    first_difference,
    log_probabilities,
    translate_pieces,
)
from tfxformer.run import Run  # noqa: E402
from tfxformer.tokenizer import END_ID, PAD_ID, encode_source  # noqa: E402
from tfxformer.translator import Translator  # noqa: E402

BATCH = 50


def our_ids(translator, texts):
    """Ids of the sources and of our translations, without start, end and padding."""
    transformer = translator.transformer
    greedy = tf.function(
        lambda source: decode(transformer, source).ids[:, 0],
        input_signature=[tf.TensorSpec([None, None], tf.int32)],
    )
    sources, translations = [], []
    for first in range(0, len(texts), BATCH):
        source = encode_source(
            translator.tokenizer,
            texts[first : first + BATCH],
            longest=translator.max_length - 1,
        )
        sources += map(words, source.numpy())
        translations += map(words, greedy(source).numpy())
    return sources, translations


def words(ids):
    return [int(i) for i in ids if i not in (PAD_ID, END_ID)]


def ctranslate2_ids(folder, texts, compute_type):
    """Ids of CTranslate2's translations, by the exported folder alone."""
    engine = ctranslate2.Translator(str(folder), compute_type=compute_type)
    tokenizer = sentencepiece.SentencePieceProcessor(
        model_file=str(folder / "tokenizer.model")
    )
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    ids = []
    for first in range(0, len(texts), BATCH):
        pieces = tokenizer.encode(texts[first : first + BATCH], out_type=str)
        pieces = translate_pieces(engine, pieces, config["max_length"])
        ids += [[tokenizer.PieceToId(piece) for piece in row] for row in pieces]
    return ids


def noise(folder, translator, sources, translations):
    """How much each token's log-probability differs, all tokens in one array."""
    engine = ctranslate2.Translator(str(folder), compute_type="float32")
    pieces = translator.tokenizer.tokens
    targets = [ids[: translator.max_length - 1] for ids in translations]
    results = engine.score_batch(
        [pieces(ids) for ids in sources],
        [pieces(ids) for ids in targets],
        max_batch_size=BATCH,
    )
    return np.concatenate(
        [
            np.abs(log_probabilities(translator.transformer, *pair) - result.log_probs)
            for *pair, result in zip(sources, targets, results, strict=True)
        ]
    )


def differences(translator, sources, ours, theirs):
    rows = []
    for number, (source, one, other) in enumerate(
        zip(sources, ours, theirs, strict=True)
    ):
        difference = first_difference(translator.transformer, source, one, other)
        if difference is not None:
            position, gap = difference
            rows.append(
                {
                    "sentence": number,
                    "source_tokens": len(source),
                    "our_tokens": len(one),
                    "their_tokens": len(other),
                    "first_difference": position,
                    "logit_gap": round(gap, 7),
                    "why": "near tie" if abs(gap) <= TOLERANCE else "unexplained",
                }
            )
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--data-dir", help="TensorFlow Datasets' folder, for ted")
    parser.add_argument("--checkpoint", default="best")
    parser.add_argument("--sentences", type=int, default=500)
    args = parser.parse_args()

    pairs, _ = corpora.load(args.data, "test", data_dir=args.data_dir, cleaned=False)
    texts = [pair.source for pair in pairs[: args.sentences]]
    translator = Translator.load(args.run, args.checkpoint)
    sources, ours = our_ids(translator, texts)
    with tempfile.TemporaryDirectory() as repository:
        folder = export_ctranslate2(args.run, repository, "model", args.checkpoint)
        theirs = ctranslate2_ids(folder, texts, "float32")
        int8 = ctranslate2_ids(folder, texts, "int8")
        off = noise(folder, translator, sources, ours)
    rows = differences(translator, sources, ours, theirs)
    state = Run.open(args.run).load_state()
    results = {
        "machine": machine(),
        "run": {
            "step": state["best_step" if args.checkpoint == "best" else "step"],
            "checkpoint": args.checkpoint,
            "model": translator.transformer.config,
        },
        "data": f"the first sentences of {Path(args.data).name}",
        "sentences": len(texts),
        "same_ids": len(texts) - len(rows),
        "tokens": sum(map(len, ours)),
        "cut_off_at_their_limit": sum(
            len(one) >= min(2 * (len(source) + 1) + 10, translator.max_length)
            for source, one in zip(sources, ours, strict=True)
        ),
        "log_probability_difference": {
            "tokens": off.size,
            "median": float(f"{np.median(off):.2g}"),
            "most": float(f"{off.max():.2g}"),
        },
        "differences": rows,
        "same_ids_int8": sum(
            one == other for one, other in zip(ours, int8, strict=True)
        ),
    }
    file = Path(__file__).with_suffix(".json")
    file.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(
        f"{results['same_ids']} of {len(texts)} translations are the same, "
        f"{results['same_ids_int8']} in int8; log-probabilities differ by "
        f"{results['log_probability_difference']['most']} at most"
    )
    for row in rows:
        print(row)


def machine():
    return {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
        "ctranslate2": ctranslate2.__version__,
    }


if __name__ == "__main__":
    main()
