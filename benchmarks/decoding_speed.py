"""Compares our decoding speed with CTranslate2's and the TensorFlow tutorial's.

    pip install -e '.[test]'
    python benchmarks/decoding_speed.py --data TED_TEST.tsv --threads 1

Every decoder has the same weights and the same sentences, in batches of similar
length. The time runs from token ids to token ids. "same" is the share of translations
that equal ours. They may differ: int8 has other weights, and each beam search has its
own rules. The tutorial's way decodes one sentence at a time, greedily.
"""

import argparse
import os
import statistics
import tempfile
from pathlib import Path

import numpy as np
from turns import HERE, about, save, started, summarise, table, take_turns

os.environ["CUDA_VISIBLE_DEVICES"] = ""

from tfxformer.console import start_tensorflow

start_tensorflow()

from tfxformer import Translator, corpora  # noqa: E402
from tfxformer.exporting.ctranslate2 import specification  # noqa: E402
from tfxformer.repository import find_model  # noqa: E402
from tfxformer.tokenizer import encode_source  # noqa: E402

OURS = "ours"
DECODERS = {
    OURS: ["decode_ours.py", "{model}"],
    "CTranslate2 float32": ["decode_ctranslate2.py", "{ct2}", "float32", "{threads}"],
    "CTranslate2 int8": ["decode_ctranslate2.py", "{ct2}", "int8", "{threads}"],
    "the tutorial's way": ["decode_tutorial.py", "{model}"],
}


def batches_of(ids, size, count):
    """Returns batches of random sentences of similar length."""
    drawn = np.random.default_rng(0).permutation(len(ids))[: max(count, size)]
    rows = sorted((ids[i] for i in drawn), key=len)
    batches = [rows[i : i + size] for i in range(0, len(rows), size)]
    return [
        [row + [0] * (max(map(len, batch)) - len(row)) for row in batch]
        for batch in batches
    ]


def same(ours, theirs):
    """Returns the share of sentences with the same tokens."""
    pairs = zip(ours, theirs, strict=True)
    rows = [zip(one["ids"], other["ids"], strict=True) for one, other in pairs]
    return round(statistics.mean(a == b for row in rows for a, b in row), 4)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="test pairs: a TSV")
    parser.add_argument("--model", help="a run or an export; default pt_en")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32, 64])
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--sentences", type=int, default=64, help="in each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="", help="comma-separated name prefixes")
    parser.add_argument("--out", type=Path, default=HERE / "decoding_speed.json")
    args = parser.parse_args()
    model = os.path.abspath(find_model(args.model))
    translator = Translator.load(model)
    pairs = corpora.load(args.data, "test", cleaned=False)[0]
    longest = translator.max_length // 2 - 10  # no limit cuts a translation off
    found = encode_source(translator.tokenizer, [pair.source for pair in pairs]).numpy()
    ids = [[int(token) for token in row if token] for row in found]
    ids = [row for row in ids if 1 < len(row) <= longest]
    cells = []
    with tempfile.TemporaryDirectory() as ct2:
        specification(translator.tokenizer, translator.transformer).save(ct2)
        values = {"model": model, "ct2": ct2, "threads": args.threads}
        commands = {
            name: [part.format(**values) for part in command]
            for name, command in DECODERS.items()
            if name.startswith(tuple(args.only.split(",")))
        }
        with started(commands, args.threads) as (workers, versions):
            for beam in args.beams:
                for size in args.batches:
                    batches = batches_of(ids, size, args.sentences)
                    requests = [{"batch": batch, "beam": beam} for batch in batches]
                    able = {
                        name: worker
                        for name, worker in workers.items()
                        if "tutorial" not in name or size == beam == 1
                    }
                    answers = take_turns(able, lambda _, r=requests: r, args.rounds)
                    rows = summarise(answers, count_tokens, OURS)
                    for name, row in rows.items():
                        if OURS in answers:
                            row["same"] = same(answers[OURS][0], answers[name][0])
                    print(f"\nbatch {size}, beam {beam}\n")
                    print(table("target tokens/s", rows, "same"))
                    cells.append({"batch": size, "beam": beam, "decoders": rows})
    save(args.out, about(args, versions) | {"cells": cells})


def count_tokens(answer):
    return sum(map(len, answer["ids"]))


if __name__ == "__main__":
    main()
