"""Translates with CTranslate2, and SentencePiece around it."""

import os
import sys

import ctranslate2
import sentencepiece
import worker

path, compute_type = sys.argv[1:]
threads = int(os.environ["OMP_NUM_THREADS"])
translator = ctranslate2.Translator(
    path, compute_type=compute_type, inter_threads=1, intra_threads=threads
)
source = sentencepiece.SentencePieceProcessor(f"{path}/marian/source.spm")


def decode(texts, beam, tokens):
    results = translator.translate_batch(
        source.encode(texts, out_type=str), beam_size=beam, max_decoding_length=tokens
    )
    # `target.spm` does not have the tokens that only the source has.
    found = ("".join(result.hypotheses[0]) for result in results)
    return [text.replace("\u2581", " ").strip() for text in found]


def finish(found):
    return {"translations": found}


worker.serve(decode, ["ctranslate2"], finish)
