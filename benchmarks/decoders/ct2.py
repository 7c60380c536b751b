"""CTranslate2, on a model that `tfxformer.exporting.ctranslate2` made."""

import worker

args = worker.arguments("--model", "--compute-type")

import json  # noqa: E402
from pathlib import Path  # noqa: E402

import ctranslate2  # noqa: E402

translator = ctranslate2.Translator(
    args.model,
    device="cpu",
    compute_type=args.compute_type,
    inter_threads=1,
    intra_threads=json.loads(args.config.read_text())["threads"],
)
# CTranslate2 takes and gives pieces, not ids; it adds the source's end token itself.
pieces = json.loads(Path(args.model, "shared_vocabulary.json").read_text())
ids = {piece: i for i, piece in enumerate(pieces)}


def decode(batch, beam, min_tokens, max_tokens):
    results = translator.translate_batch(
        [[pieces[token] for token in row[:-1]] for row in batch],
        beam_size=beam,
        min_decoding_length=min_tokens,
        max_decoding_length=max(max_tokens),
        return_end_token=True,
    )
    return [[ids[piece] for piece in result.hypotheses[0]] for result in results]


worker.serve(decode, "ctranslate2")
