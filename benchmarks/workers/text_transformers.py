"""Translates with a Marian model in `transformers` on PyTorch."""

import sys

import torch
import worker
from transformers import MarianMTModel, MarianTokenizer

path = sys.argv[1]
model = MarianMTModel.from_pretrained(path).eval()
names = ("source.spm", "target.spm", "vocab.json")
tokenizer = MarianTokenizer(*(f"{path}/{name}" for name in names))


def decode(texts, beam, tokens):
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.inference_mode():
        found = model.generate(
            **batch, num_beams=beam, max_new_tokens=tokens, do_sample=False
        )
    return tokenizer.batch_decode(found, skip_special_tokens=True)


def finish(found):
    return {"translations": found}


worker.serve(decode, ["transformers", "torch"], finish)
