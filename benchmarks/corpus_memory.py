"""What memory corpora of growing size take: to prepare them, and to train from them.

    python benchmarks/corpus_memory.py --pairs 10000 100000 1000000 10000000

For each size, seeded pairs of invented words are written to a gzipped TSV; then
`tfxformer prepare` makes a token corpus of it, and batches of it are read as training
reads them. Each runs in a process of its own, whose peak memory is added to that of
the processes it starts. The figures go to corpus_memory.json, beside those of other
sizes that are in it.
"""

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

WORDS = 40_000
# Of a hundred lines, so many are copies of earlier ones, and so many no pairs.
COPIES, MALFORMED = 2, 1
# Read of each corpus: small ones several times over.
READ_PAIRS = 1_000_000


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--pairs", type=int, nargs="+", default=[10**4, 10**5, 10**6, 10**7]
    )
    parser.add_argument("--folder", help="where to work; by default a temporary one")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    parser.add_argument("--read", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.read:
        read(args.read)
        return
    results = json.loads(args.out.read_text()) if args.out.exists() else {}
    for pairs in args.pairs:
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            results[str(pairs)] = measure(pairs, Path(folder))
        print(pairs, json.dumps(results[str(pairs)]), flush=True)
        results = {size: results[size] for size in sorted(results, key=int)}
        args.out.write_text(json.dumps(results, indent=1) + "\n")


def measure(pairs, folder):
    text, corpus = folder / "pairs.tsv.gz", folder / "corpus"
    generate(text, pairs)
    command = [sys.executable, "-m", "tfxformer.cli", "prepare"]
    prepared = run([*command, "--data", text, "--out", corpus])
    prepared["pairs_per_second"] = round(pairs / prepared["seconds"])
    prepared.pop("printed")
    content = json.loads((corpus / "corpus.json").read_text())
    reading = run([sys.executable, __file__, "--read", corpus])
    return {
        "text_gz_mib": size_mib([text]),
        "corpus_mib": size_mib(corpus.iterdir()),
        "pairs": content["pairs"],
        "shards": len(content["shards"]),
        "counts": content["counts"],
        "prepare": prepared,
        "read": reading | json.loads(reading.pop("printed")),
    }


def size_mib(files):
    return round(sum(file.stat().st_size for file in files) / 2**20, 1)


def generate(path, pairs):
    """Invented sentences of 3 to 16 words, frequent words shorter than rare ones."""
    rng = np.random.default_rng(0)
    syllables = [
        c + v for c in "bcdfglmnprstvz" for v in ("a", "e", "i", "o", "u", "ã")
    ]

    def word(rank):
        count = 1 + int(np.log10(rank + 10)) // 2 + int(rng.integers(0, 3))
        return "".join(rng.choice(syllables, count))

    source, target = ([word(rank) for rank in range(WORDS)] for _ in range(2))
    share = np.cumsum(1 / np.arange(10, WORDS + 10))
    recent = ["nada\tnothing"]
    with gzip.open(path, "wt", compresslevel=1, encoding="utf-8") as file:
        for first in range(0, pairs, 10_000):
            count = min(10_000, pairs - first)
            lengths = rng.integers(3, 17, count)
            ends = np.cumsum(lengths)
            ids = np.searchsorted(share, rng.random(ends[-1]) * share[-1]).tolist()
            kinds = rng.integers(0, 100, count).tolist()
            lines = []
            for end, length, kind in zip(
                ends.tolist(), lengths.tolist(), kinds, strict=True
            ):
                if kind < COPIES:
                    lines.append(recent[(end + kind) % len(recent)])
                    continue
                row = ids[end - length : end]
                left = " ".join([source[i] for i in row]).capitalize()
                right = " ".join([target[i] for i in reversed(row)]).capitalize()
                tab = " " if kind >= 100 - MALFORMED else "\t"
                lines.append(f"{left}.{tab}{right}.")
            recent = lines
            file.write("\n".join(lines) + "\n")


def read(folder):
    """What training does with the corpus before the model sees it."""
    from tfxformer.batches import TrainingBatches
    from tfxformer.token_corpus import TokenCorpus

    started = time.monotonic()
    batches = TrainingBatches(
        [TokenCorpus.open(folder)], tokens_per_batch=4096, max_length=128
    )
    pairs = tokens = positions = 0
    for (_, target_out), _ in batches():
        pairs += len(target_out)
        tokens += np.count_nonzero(target_out)
        positions += target_out.size
        if pairs >= READ_PAIRS:
            break
    seconds = time.monotonic() - started
    figures = {
        "pairs_per_second": round(pairs / seconds),
        "target_tokens_per_second": round(tokens / seconds),
        "padding": round(1 - tokens / positions, 4),
    }
    print(json.dumps(figures))


def run(command):
    """Runs a process; what it printed, its seconds and its peak memory."""
    started = time.monotonic()
    process = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, text=True)
    peaks = {}
    done = threading.Event()

    def watch():
        while not done.wait(0.05):
            for pid in tree(process.pid):
                peaks[pid] = max(peaks.get(pid, 0), high_water(pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    printed, _ = process.communicate()
    done.set()
    watcher.join()
    if process.returncode:
        sys.exit(f"{command} ended with {process.returncode}")
    return {
        "seconds": round(time.monotonic() - started, 1),
        "peak_mib": round(sum(peaks.values()) / 2**10),
        "printed": printed.strip(),
    }


def tree(pid):
    """A process and those it started."""
    try:
        children = [
            int(child)
            for task in os.listdir(f"/proc/{pid}/task")
            for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split()
        ]
    except OSError:  # it has just ended
        return []
    return [pid, *(deeper for child in children for deeper in tree(child))]


def high_water(pid):
    """The most KiB of memory that a process had."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(x.split()[1]) for x in lines if x.startswith("VmHWM")), 0)


if __name__ == "__main__":
    main()
