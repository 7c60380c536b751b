"""Measures the speed of an exported model by batch size, for batching.config.

    python benchmarks/serving_batches.py --model export/pt_en/1

The script sends sentences of the phrasebook's test split, in random order, to the
SavedModel's `serving_default`: one call at a time, then two at a time
(`num_batch_threads`). TensorFlow has `--threads` threads in both cases, like the server
in compose.yaml. Every batch size has its turn in each round. The script prints a table
and writes medians, minima and maxima to serving_batches.json.
"""

import argparse
import concurrent.futures
import datetime
import itertools
import json
import os
import platform
import random
import statistics
import time
from pathlib import Path

from tfxformer import corpora
from tfxformer.console import start_tensorflow

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
AT_ONCE = (1, 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", required=True, help="an exported SavedModel")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--texts", type=int, default=256, help="in each measurement")
    parser.add_argument("--json", default=Path(__file__).with_suffix(".json"))
    args = parser.parse_args()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ["TF_NUM_INTRAOP_THREADS"] = str(args.threads)
    os.environ["TF_NUM_INTEROP_THREADS"] = str(args.threads)
    start_tensorflow()
    import tensorflow as tf
    import tensorflow_text  # noqa: F401

    model = tf.saved_model.load(args.model)  # keeps the variables alive
    translate = model.signatures["serving_default"]
    texts = draw_texts(args.texts)
    cells = list(itertools.product(SIZES, AT_ONCE))
    rounds = []
    for number in range(1 + args.rounds):  # the first is the warm-up
        order = random.Random(number).sample(cells, len(cells))
        measured = {
            (size, at_once): measure(
                translate,
                [tf.constant(batch) for batch in batches(texts, size)],
                at_once,
            )
            for size, at_once in order
        }
        if number:
            rounds.append(measured)
        print(f"round {number} of {args.rounds}", flush=True)

    results = [
        summarise([measured[cell] for measured in rounds], *cell) for cell in cells
    ]
    about = {
        "date": datetime.date.today().isoformat(),
        "machine": processor(),
        "cores": os.cpu_count(),
        "tensorflow": tf.__version__,
        "threads": args.threads,
        "texts": args.texts,
        "rounds": args.rounds,
        "model": args.model,
    }
    Path(args.json).write_text(
        json.dumps(about | {"results": results}, indent=1) + "\n", "utf-8"
    )
    print(table(results))


def draw_texts(count):
    """Returns sentences of the phrasebook's test split, in random order."""
    pairs, _ = corpora.load("phrasebook", "test", cleaned=False)
    sources = [pair.source for pair in pairs]
    random.Random(0).shuffle(sources)
    return list(itertools.islice(itertools.cycle(sources), count))


def batches(texts, size):
    return [texts[i : i + size] for i in range(0, len(texts) - size + 1, size)]


def measure(translate, batches, at_once):
    """Translates batches (tensors of strings), `at_once` calls at a time.

    Returns:
        The texts per second, and the seconds of each call.
    """

    def call(batch):
        started = time.perf_counter()
        translate(text=batch)["translation"].numpy()
        return time.perf_counter() - started

    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        started = time.perf_counter()
        seconds = list(pool.map(call, batches))
        whole = time.perf_counter() - started
    return sum(map(len, batches)) / whole, seconds


def summarise(rounds, size, at_once):
    speeds = [speed for speed, _ in rounds]
    seconds = sorted(itertools.chain.from_iterable(calls for _, calls in rounds))
    return {
        "batch": size,
        "at_once": at_once,
        "texts_per_second": {
            "median": round(statistics.median(speeds), 1),
            "least": round(min(speeds), 1),
            "most": round(max(speeds), 1),
        },
        "call_ms": {
            "median": round(1000 * statistics.median(seconds), 2),
            "p95": round(1000 * seconds[int(0.95 * (len(seconds) - 1))], 2),
        },
    }


def table(results):
    """Returns a Markdown table with a row for each batch size."""
    lines = [
        "| texts a call | one at a time: texts/s | a call takes, p95 "
        "| two at once: texts/s | a call takes, p95 |",
        "|---|---|---|---|---|",
    ]
    for size in SIZES:
        cells = [f"{size}"]
        for at_once in AT_ONCE:
            (row,) = (
                row
                for row in results
                if (row["batch"], row["at_once"]) == (size, at_once)
            )
            speed, call = row["texts_per_second"], row["call_ms"]
            cells += [
                f"{speed['median']:.0f} ({speed['least']:.0f} to {speed['most']:.0f})",
                f"{call['median']:.0f} ms, {call['p95']:.0f} ms",
            ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def processor():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


if __name__ == "__main__":
    main()
