"""Compares an imported OPUS-MT model with `transformers` and CTranslate2.

    python benchmarks/opus_mt.py --data PAIRS.tsv.gz --transformers VENV/bin/python

VENV has the packages of `requirements-transformers.txt`. The model has the sizes of
OPUS-MT's base models and random weights. It cannot write the end token, so that every
program writes as many tokens. The time runs from strings to strings. "same" is the
share of translations that equal ours.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

import sentencepiece
from turns import HERE, about, save, started, summarise, table, take_turns

os.environ["CUDA_VISIBLE_DEVICES"] = ""

from tfxformer.console import start_tensorflow

start_tensorflow()

from tfxformer import DecodingOptions, corpora  # noqa: E402
from tfxformer.exporting.ctranslate2 import specification  # noqa: E402
from tfxformer.exporting.marian import import_marian  # noqa: E402
from tfxformer.exporting.saved_model import export  # noqa: E402

OURS, TRANSFORMERS = "ours, SavedModel", "transformers, PyTorch"
DECODERS = {
    OURS: ["text_ours.py", "{saved}/{beam}/1"],
    TRANSFORMERS: ["text_transformers.py", "{marian}"],
    "CTranslate2 float32": ["text_ctranslate2.py", "{folder}", "float32"],
    "CTranslate2 int8": ["text_ctranslate2.py", "{folder}", "int8"],
}
VOCABULARY = 32_000  # of each side
SIZES = {"d_model": 512, "max_position_embeddings": 512, "activation_function": "swish"}
for side in ("encoder", "decoder"):
    SIZES |= {f"{side}_layers": 6, f"{side}_attention_heads": 8}
    SIZES |= {f"{side}_ffn_dim": 2048}


def write_tokenizers(folder, pairs):
    """Writes a SentencePiece model of each side and `vocab.json`; returns its size."""
    tokens = set()
    for side in ("source", "target"):
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=(getattr(pair, side) for pair in pairs),
            model_prefix=str(folder / side),
            vocab_size=VOCABULARY,
            hard_vocab_limit=False,
            minloglevel=2,
        )
        (folder / f"{side}.model").rename(folder / f"{side}.spm")
        model = sentencepiece.SentencePieceProcessor(str(folder / f"{side}.spm"))
        tokens |= {model.IdToPiece(number) for number in range(3, len(model))}
    tokens = ["</s>", "<unk>", *sorted(tokens), "<pad>"]
    numbers = {token: number for number, token in enumerate(tokens)}
    (folder / "vocab.json").write_text(json.dumps(numbers), "utf-8")
    return len(tokens)


def same_length(folder, pairs, size):
    """The most common number of tokens, and that many sentences of it."""
    model = sentencepiece.SentencePieceProcessor(str(folder / "source.spm"))
    groups = {}
    for pair in pairs:
        groups.setdefault(len(model.encode(pair.source)) + 1, []).append(pair.source)
    longer = {length: group for length, group in groups.items() if length >= 16}
    length, group = max(longer.items(), key=lambda item: len(item[1]))
    return length, [*itertools.islice(itertools.cycle(group), size)]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="pairs: a TSV")
    parser.add_argument("--transformers", required=True, help="the Python of VENV")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--sentences", type=int, default=4, help="at batch 1, a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=HERE / "opus_mt.json")
    args = parser.parse_args()
    pairs = corpora.load(args.data, "test")[0]
    cells = []
    with tempfile.TemporaryDirectory() as folder:
        marian, saved = Path(folder, "marian"), Path(folder, "export")
        marian.mkdir()
        vocabulary = write_tokenizers(marian, pairs)
        sizes = json.dumps(SIZES | {"vocab_size": vocabulary})
        make = [args.transformers, HERE / "workers/make_marian.py", marian, sizes]
        subprocess.run(make, check=True)
        for beam in args.beams:
            options = DecodingOptions(beam_size=beam)
            translator = import_marian(marian, options=options)
            export(translator, to=saved, name=str(beam), options=options)
        specification(translator.tokenizer, translator.transformer).save(folder)
        length, texts = same_length(marian, pairs, max(args.batches))
        tokens = 2 * length + 10
        for beam in args.beams:
            values = {"saved": saved, "marian": marian, "folder": folder, "beam": beam}
            commands = {
                name: [part.format(**values) for part in command]
                for name, command in DECODERS.items()
            }
            pythons = {TRANSFORMERS: args.transformers}
            with started(commands, args.threads, pythons) as (workers, versions):
                for size in args.batches:
                    count = max(size, args.sentences)
                    batches = [texts[i : i + size] for i in range(0, count, size)]
                    cell = {"beam": beam, "batch": size, "vocabulary": vocabulary}
                    print(f"\n{cell}, {length} tokens in, {tokens} out\n")
                    cells.append(cell | measure(workers, batches, beam, tokens, args))
    save(args.out, about(args, versions) | {"cells": cells})


def measure(workers, batches, beam, tokens, args):
    """Runs the rounds of a beam size and a batch size, and prints their table."""
    requests = {
        name: [
            {"texts": batch}
            if name == OURS
            else {"texts": batch, "beam": beam, "tokens": tokens}
            for batch in batches
        ]
        for name in workers
    }
    answers = take_turns(workers, requests.get, args.rounds)
    rows = summarise(answers, lambda x: tokens * len(x["translations"]), OURS)
    found = {
        name: [text for answer in rounds[0] for text in answer["translations"]]
        for name, rounds in answers.items()
    }
    for name, row in rows.items():
        equal = [a == b for a, b in zip(found[OURS], found[name], strict=True)]
        row["same"] = round(statistics.mean(equal), 4)
    print(table("target tokens/s", rows, "same"))
    return {"tokens": tokens, "decoders": rows}


if __name__ == "__main__":
    main()
