"""Decodes with CTranslate2, on a model of `--format ctranslate2`."""

import json
import sys
from pathlib import Path

import ctranslate2
import worker

path, compute_type, threads = sys.argv[1:]
translator = ctranslate2.Translator(
    path, compute_type=compute_type, inter_threads=1, intra_threads=int(threads)
)
# CTranslate2 reads and writes tokens, not ids, and adds the source's end token.
tokens = json.loads(Path(path, "shared_vocabulary.json").read_text("utf-8"))
ids = {token: i for i, token in enumerate(tokens)}


def decode(batch, beam):
    rows = [[tokens[id] for id in row if id > worker.START_ID] for row in batch]
    rows = [row[:-1] for row in rows]
    results = translator.translate_batch(
        rows,
        beam_size=beam,
        max_decoding_length=2 * (len(batch[0])) + 10,
        return_end_token=True,
    )
    return [[ids[token] for token in result.hypotheses[0]] for result in results]


worker.serve(decode, ["ctranslate2"], worker.written)
