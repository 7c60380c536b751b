"""Weights and products in fewer bits: size, speed and quality beside float32's.

    python benchmarks/precision.py --run RUN --data TSV

Each alternative translates the same sentences. Those that an export stores are written
and loaded as SavedModels; those that compute in fewer bits run in Python, which is as
fast (`decoding_speed.py`). In each round all of them translate the same batches once,
beginning with another one each time, so that what else the machine does falls on all.
Medians, with the least and the most of the rounds, go to precision.json.

- "float32": the export as it is by default.
- "float16", "int8", "bfloat16": stored so, widened to float32 once, at loading.
- "float16, widened each call": the same without that: widened by every call.
- "bfloat16 model": all weights and all that is computed are bfloat16.
- "bfloat16 products": float32 weights, but TensorFlow rewrites the graph so that
  oneDNN multiplies in bfloat16 (the option auto_mixed_precision_onednn_bfloat16).
- "int8 products": dynamic quantisation: the decoder layers' weights are int8, and so is
  each row that is multiplied with them, by the fastest op for one row that
  TensorFlow's wheel has.

There is no float16 model: TensorFlow has no BatchMatMulV3 for it on a CPU. Then
"products" has single products alone, of a step's sizes, in microseconds.
"""

import argparse
import datetime
import json
import os
import platform
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

os.environ["CUDA_VISIBLE_DEVICES"] = ""

from tfxformer.quiet import start_tensorflow

start_tensorflow()

import keras  # noqa: E402
import tensorflow as tf  # noqa: E402

from tfxformer import corpora  # noqa: E402
from tfxformer.decoding import search, step  # noqa: E402
from tfxformer.evaluation import compare  # noqa: E402
from tfxformer.exporting import saved_model  # noqa: E402
from tfxformer.exporting.precision import NarrowWeights, round_weights  # noqa: E402
from tfxformer.model import Transformer  # noqa: E402
from tfxformer.run import Run  # noqa: E402
from tfxformer.translator import Translator  # noqa: E402

BATCHES = {1: 16, 64: 128}  # sentences a round by batch size
PRODUCTS = [(128, 512), (512, 2048), (128, 8000)]  # a step's, of tutorial and base
REPEATS = 200  # of a product, one after the other


# --- The alternatives ---


class Alternative:
    """A way to translate, and how many bytes its weights are.

    Args:
        translator: a `Translator`.
        size: bytes.
        rewrite: let TensorFlow rewrite products to bfloat16.
    """

    def __init__(self, translator, size, rewrite=False):
        self.translator = translator
        self.size = size
        self.rewrite = rewrite

    def __call__(self, texts, batch):
        """Translates texts in batches as they come; a list of strings."""
        option = "auto_mixed_precision_onednn_bfloat16"
        tf.config.optimizer.set_experimental_options({option: self.rewrite})
        translations = []
        for i in range(0, len(texts), batch):
            inputs = {"text": np.array(texts[i : i + batch], object)}
            found = self.translator.answers("translate", inputs)["translation"]
            translations += [text.decode() for text in found]
        return translations


def alternatives(run, checkpoint, folder):
    """All that are compared, by name; float32 first."""
    found = {}
    for precision in ("float32", "float16", "int8", "bfloat16"):
        path = folder / precision
        saved_model.write(Translator.load(run, checkpoint), path, precision)
        file = path / "variables" / "variables.data-00000-of-00001"
        found[precision] = Alternative(Translator.load(path), file.stat().st_size)
        print(f"{precision}: {file.stat().st_size:,} bytes")

    def made(change, size, **options):
        tokenizer, model = Run.open(run).load(checkpoint)
        translator = Translator(tokenizer, change(model))
        return Alternative(translator, size(model), **options)

    def rounded(model):
        round_weights(model, "float16")
        return model

    widened = made(rounded, lambda model: found["float16"].size)
    widened.translator.signatures["translate"] = widened_each_call(widened.translator)
    found["float16, widened each call"] = widened
    found["bfloat16 model"] = made(bfloat16_model, lambda model: sizes(model, 2))
    found["bfloat16 products"] = made(
        lambda model: model, lambda model: sizes(model, 4), rewrite=True
    )
    found["int8 products"] = made(
        lambda model: model, lambda model: sizes(model, 4, decoder=1)
    )
    # The first call traces, with the step that is there then.
    search.DecoderStep = Int8Step
    found["int8 products"](["Bom dia ."], 1)
    search.DecoderStep = step.DecoderStep
    return found


def sizes(model, each, decoder=None):
    """Bytes of a model's weights; the decoder layers' matrices may have fewer."""
    total = 0
    for weight in model.weights:
        few = decoder and "decoder/layer" in weight.path and len(weight.shape) > 1
        total += int(np.prod(weight.shape)) * (decoder if few else each)
    return total


def widened_each_call(translator):
    """The translation, which begins by widening all matrices."""
    narrow = NarrowWeights(translator.transformer, "float16")
    translate = translator.signatures["translate"].python_function

    @tf.function
    def widening(text):
        values = [tf.cast(widened.parts[0], "float32") for widened in narrow.widened]
        with keras.StatelessScope(zip(narrow.matrices, values, strict=True)):
            return translate(text)

    return widening


def bfloat16_model(model):
    """The same model with all that it has and computes in bfloat16."""
    other = Transformer(**model.config, dtype="bfloat16")
    other.build()
    for weight, value in zip(other.weights, model.weights, strict=True):
        weight.assign(value)
    return other


class Int8Step(step.DecoderStep):
    """The decoder's step with its layers' products in int8."""

    def _weights(self, layer):
        weights = super()._weights(layer)
        products = weights._asdict()
        norms = products.pop("norms")
        return type(weights)(
            norms=norms,
            **{name: (_Int8Kernel(x), bias) for name, (x, bias) in products.items()},
        )


class _Int8Kernel:
    """A matrix in int8, each column with its scale; ``ops.matmul`` asks it."""

    def __init__(self, kernel):
        self.scale = tf.reduce_max(tf.abs(kernel), axis=0) / 127
        self.values = tf.cast(tf.round(kernel / self.scale), tf.int8)


def project(x, weights):
    """What `step._project` does, in int8 where the matrix is."""
    kernel, bias = weights
    if not isinstance(kernel, _Int8Kernel):
        return PROJECT(x, weights)
    return int8_product(x, kernel.values, kernel.scale) + bias


PROJECT = step._project
step._project = project


def int8_product(x, values, scale):
    """x, quantised row by row, times an int8 matrix."""
    largest = tf.maximum(tf.reduce_max(tf.abs(x), axis=-1, keepdims=True), 1e-30)
    rows = tf.cast(tf.round(x * (127 / largest)), tf.int8)
    y = tf.raw_ops.BatchMatMulV3(x=rows, y=values, Tout=tf.int32)
    return tf.cast(y, tf.float32) * (largest / 127 * scale)


# --- What is measured ---


def measure_translating(ways, pairs, rounds):
    """Quality, then speed: a row for each alternative."""
    sources = [pair.source for pair in pairs]
    table, reference = {}, None
    for name, way in ways.items():
        result = compare(way(sources, 64), [pair.target for pair in pairs])
        reference = reference or result
        same = zip(result.translations, reference.translations, strict=True)
        table[name] = {
            "weights_bytes": way.size,
            "bleu": round(result.bleu, 2),
            "chrf": round(result.chrf, 2),
            "bleu_beside_float32": round(result.bleu - reference.bleu, 2),
            "chrf_beside_float32": round(result.chrf - reference.chrf, 2),
            "same_translations": round(float(np.mean([x == y for x, y in same])), 4),
        }
    for batch, sentences in BATCHES.items():
        texts = sources[:sentences]
        speeds = alternate(
            {name: partial(way, texts, batch) for name, way in ways.items()}, rounds
        )
        for name, seconds in speeds.items():
            table[name][f"sentences_per_second_batch_{batch}"] = spread(
                [len(texts) / second for second in seconds]
            )
            ratios = map(lambda x, y: y / x, seconds, speeds["float32"])
            table[name][f"speed_to_float32_batch_{batch}"] = round(
                statistics.median(ratios), 3
            )
    return table


def measure_products(rounds):
    """Microseconds of single products, by their sizes."""
    table = {}
    for rows in BATCHES:
        for depth, units in PRODUCTS:
            ways = products(rows, depth, units)
            times = alternate(ways, rounds)
            table[f"{rows} x {depth} x {units}"] = {
                name: spread([second / REPEATS * 1e6 for second in seconds])
                for name, seconds in times.items()
            }
    return table


def products(rows, depth, units):
    """By name, functions that do a product `REPEATS` times."""
    random = np.random.default_rng(0)
    kernel = tf.constant(random.standard_normal((depth, units)), tf.float32)
    x = tf.constant(random.standard_normal((rows, depth)), tf.float32)
    eight = _Int8Kernel(kernel)

    def product_in(dtype):
        matrix = tf.Variable(tf.cast(kernel, dtype))
        return lambda x: tf.cast(tf.matmul(tf.cast(x, dtype), matrix), tf.float32)

    values, scale = tf.Variable(eight.values), tf.Variable(eight.scale)
    ways = {name: product_in(name) for name in ("float32", "bfloat16", "float16")}
    ways["int8"] = lambda x: int8_product(x, values, scale)

    def repeated(product):
        @tf.function
        def repeat(x):
            for _ in tf.range(REPEATS):
                # Each needs the one before, so that none is left out.
                x = x + 1e-6 * product(x)[:1, :1]
            return x

        return lambda: repeat(x).numpy()

    return {name: repeated(product) for name, product in ways.items()}


def alternate(ways, rounds):
    """Seconds of each way in each round; another one begins each time."""
    names = [*ways]
    seconds = {name: [] for name in names}
    for name in names:
        ways[name]()  # traces, and warms up
    for i in range(rounds):
        for name in names[i % len(names) :] + names[: i % len(names)]:
            started = time.perf_counter()
            ways[name]()
            seconds[name].append(time.perf_counter() - started)
    return seconds


def spread(values):
    numbers = (statistics.median(values), min(values), max(values))
    names = ("median", "least", "most")
    return {name: round(x, 1) for name, x in zip(names, numbers, strict=True)}


def machine():
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    flags = next(line for line in lines if line.startswith("flags")).split()
    return {
        "processor": next(x.split(": ")[1] for x in lines if "model name" in x),
        "low_precision": [x for x in flags if x.startswith(("amx", "avx512_"))],
        "cores": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
    }


def show(result):
    for name, row in result["alternatives"].items():
        speeds = "  ".join(
            f"batch {batch}: {row[f'sentences_per_second_batch_{batch}']['median']} /s "
            f"({row[f'speed_to_float32_batch_{batch}']})"
            for batch in BATCHES
        )
        print(
            f"{name:27} {row['weights_bytes'] / 1e6:6.2f} MB  {speeds}  "
            f"BLEU {row['bleu']} ({row['bleu_beside_float32']:+})  "
            f"chrF {row['chrf']} ({row['chrf_beside_float32']:+})  "
            f"same {row['same_translations']:.1%}"
        )
    for name, row in result["products"].items():
        times = "  ".join(f"{way} {time['median']} us" for way, time in row.items())
        print(f"{name:27} {times}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", required=True, help="a trained run")
    parser.add_argument("--data", required=True, help="test pairs, TSV")
    parser.add_argument("--checkpoint", default="best")
    parser.add_argument("--sentences", type=int, help="the first so many; else all")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    args = parser.parse_args()
    pairs, _ = corpora.load(args.data, "test", cleaned=False)
    pairs = pairs[: args.sentences]
    result = {"date": datetime.date.today().isoformat(), "machine": machine()}
    result |= {"sentences": len(pairs), "rounds": args.rounds}
    with tempfile.TemporaryDirectory() as folder:
        ways = alternatives(args.run, args.checkpoint, Path(folder))
        result["alternatives"] = measure_translating(ways, pairs, args.rounds)
    result["products"] = measure_products(args.rounds)
    show(result)
    args.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
