"""Training speed and memory: ours beside its peers, on the same sentences.

    pip install -e .
    python benchmarks/training_speed.py --data PAIRS.tsv.gz \
        --keras-hub VENV/bin/python --joeynmt VENV/bin/python --opennmt VENV/bin/python

Each peer has a virtual environment of its own (`requirements-*.txt` say what is in it)
and each way of training a process of its own (`trainers/`), which does nothing until
it is its turn. In each round every way trains once on so many batches, beginning with
another one each time, so that what else the machine does falls on all. Medians and
spread over the rounds are printed and go to training_speed.json.

The model is preset `tutorial`. What is timed: batches to updated weights. Tokens are
those of the target, the end token included, padding not. Batches:

- "same": ours of the preset's budget, handed to every trainer that takes them.
- "64": ours again, of 64 sentences on average.
- "mixed": 64 sentences as they come, padded to the longest; what the tutorial does.
- "own": the trainer makes them itself from the same sentences while it trains, to the
  same budget.

The memory is the most that the whole process had, libraries included. A peer that is
given no Python is left out, and the ratios that need it with it.
"""

import argparse
import contextlib
import datetime
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

import numpy as np

from tfxformer import corpora
from tfxformer.batches import TrainingBatches, evaluation_batches, write_tokens
from tfxformer.config import load_config
from tfxformer.tokenizer import Tokenizer

HERE = Path(__file__).parent
PRESET = "tutorial"
TUTORIAL, OURS = "the tutorial's way, mixed", "ours, same"
SENTENCES = 64
# One pair in so many: the smaller corpus is read and tokenised in less time.
EVERY = 4
# By name: whose Python, the program, its flags, and the batches.
WAYS = {
    TUTORIAL: ("ours", "tutorial_way.py", [], "mixed"),
    "ours, mixed": ("ours", "ours.py", [], "mixed"),
    "ours, 64": ("ours", "ours.py", [], "64"),
    OURS: ("ours", "ours.py", [], "same"),
    "ours in bfloat16, same": ("ours", "ours.py", ["--bfloat16"], "same"),
    "ours, own": ("ours", "ours.py", [], "own"),
    "KerasHub, mixed": ("keras_hub", "hub.py", [], "mixed"),
    "KerasHub, same": ("keras_hub", "hub.py", [], "same"),
    "KerasHub in bfloat16, same": ("keras_hub", "hub.py", ["--bfloat16"], "same"),
    "JoeyNMT, same": ("joeynmt", "joey.py", [], "same"),
    "JoeyNMT, own": ("joeynmt", "joey.py", [], "own"),
    "OpenNMT-tf, same": ("opennmt", "open_nmt.py", [], "same"),
    "OpenNMT-tf, own": ("opennmt", "open_nmt.py", [], "own"),
}
# Idle threads of OpenMP spin for up to 0.2 seconds before they sleep.
PAUSE = 0.25


class Failed(Exception):
    """What a trainer could not do."""


class Worker:
    """A trainer in a process of its own."""

    def __init__(self, python, program, options, threads):
        threads = str(threads)
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [python, str(HERE / "trainers" / program), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env=os.environ
            | {
                "CUDA_VISIBLE_DEVICES": "",
                "KERAS_BACKEND": "tensorflow",
                "TF_NUM_INTRAOP_THREADS": threads,
                "TF_NUM_INTEROP_THREADS": threads,
                "OMP_NUM_THREADS": threads,
            },
        )

    def ready(self):
        """Waits until it has loaded; what it says of itself."""
        return self._read()

    def train(self, steps):
        with contextlib.suppress(OSError):  # it has ended: reading tells why
            self.process.stdin.write(json.dumps({"steps": steps}) + "\n")
            self.process.stdin.flush()
        return self._read()

    def _read(self):
        line = self.process.stdout.readline()
        if not line:
            self.log.seek(0)
            raise Failed("it ended: " + self.log.read()[-2000:])
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def close(self):
        with contextlib.suppress(OSError):  # it has ended already
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.log.close()


# --- What is trained on ---


def prepare(args, folder):
    """Writes the folder that the workers read; `trainers/worker.py` describes it.

    Returns:
        The number of batches of each kind in a round.
    """
    config = load_config(PRESET)
    longest = config.model.max_length
    pairs, _ = corpora.load(args.data)
    pairs = pairs[::EVERY]
    tokenizer = Tokenizer.train(
        [side for pair in pairs for side in pair], config.tokenizer.vocab_size
    )
    tokens = write_tokens(folder / "tokens", [pairs], tokenizer, longest)
    rows = read_rows(tokens)
    budget = config.training.tokens_per_batch
    batches = {
        "same": our_batches(tokens, budget, longest, args.batches),
        "64": our_batches(
            tokens, budget_for_64(tokens, longest), longest, 2 * args.batches
        ),
        # They take long, and are all alike.
        "mixed": mixed_batches(rows, longest, max(args.batches // 2, 1)),
    }
    save_batches(folder / "batches.npz", batches)
    for side, name in enumerate(("source", "target")):
        lines = "".join(" ".join(map(str, row[side])) + "\n" for row in rows)
        (folder / f"{name}.txt").write_text(lines)
    sizes = config.to_dict()["model"] | {
        "preset": PRESET,
        "vocab_size": tokenizer.vocab_size,
        "tokens_per_batch": budget,
        "label_smoothing": config.training.label_smoothing,
    }
    (folder / "sizes.json").write_text(json.dumps(sizes))
    return {name: len(made) for name, made in batches.items()} | {"own": args.batches}


def read_rows(tokens):
    """The ids of each source and its target."""
    sides = tokens.rows(np.arange(len(tokens))).sides(slice(None))
    return [*zip(sides[::2], sides[1::2], strict=True)]


def our_batches(tokens, budget, longest, count):
    batches = TrainingBatches(tokens, tokens_per_batch=budget, max_length=longest)
    return [*islice(batches.generate(), count)]


def budget_for_64(tokens, longest):
    """The token budget at which a batch has 64 sentences on average."""
    low, high = 256, 8192
    while high - low > 16:
        middle = (low + high) // 2
        made = our_batches(tokens, middle, longest, 200)
        mean = statistics.mean(len(target) for _, target in made)
        low, high = (middle, high) if mean < SENTENCES else (low, middle)
    return high


def mixed_batches(rows, longest, count):
    drawn = np.random.default_rng(0).permutation(len(rows))[: count * SENTENCES]
    batches = []
    for some in drawn.reshape(count, SENTENCES):
        # Of so large a budget that all of them are one batch.
        batches += evaluation_batches(
            [rows[i] for i in some],
            tokens_per_batch=SENTENCES * longest,
            max_length=longest,
        )
    return batches


def save_batches(file, batches):
    arrays = {}
    for name, made in batches.items():
        for i, ((source, target_in), target_out) in enumerate(made):
            arrays[f"{name}/{i}/source"] = source
            arrays[f"{name}/{i}/target_in"] = target_in
            arrays[f"{name}/{i}/target_out"] = target_out
    np.savez(file, **arrays)


# --- Taking turns ---


def start_workers(args, folder):
    """The workers by name, and what each said of itself when it was ready."""
    pythons = {
        "ours": sys.executable,
        "keras_hub": args.keras_hub,
        "joeynmt": args.joeynmt,
        "opennmt": args.opennmt,
    }
    workers, about = {}, {}
    for name, (whose, program, flags, batches) in WAYS.items():
        if pythons[whose] is None:
            print(f"{name}: left out: no --{whose.replace('_', '-')}")
            continue
        if args.only and not any(only in name.lower() for only in args.only):
            continue
        options = ["--folder", str(folder), "--batches", batches, *flags]
        worker = Worker(pythons[whose], program, options, args.threads)
        try:
            about[name] = worker.ready()
            workers[name] = worker
        except Failed as failed:
            print(f"{name}: left out: {failed}")
            worker.close()
    return workers, about


def take_turns(workers, counts, args):
    """All train, in rounds; the first is the warm-up, in which graphs are traced.

    Returns:
        For each way its answers, one a round, without the warm-up.
    """
    answers = {name: [] for name in workers}
    for number in range(1 + args.rounds):
        started = time.perf_counter()
        names = [*answers]
        first = number % max(len(names), 1)
        for name in names[first:] + names[:first]:
            time.sleep(PAUSE)
            try:
                answers[name].append(workers[name].train(counts[WAYS[name][3]]))
            except Failed as failed:
                print(f"{name}: left out: {failed}")
                del answers[name]
        what = f"round {number} of {args.rounds}" if number else "warm-up"
        print(f"{what}: {time.perf_counter() - started:.0f} s", flush=True)
    return {name: given[1:] for name, given in answers.items()}


# --- Telling ---


def speeds(answers):
    return [answer["tokens"] / answer["seconds"] for answer in answers]


def ratio(answers, others):
    """How many times as fast as another: the median of the rounds' ratios."""
    pairs = zip(speeds(answers), speeds(others), strict=True)
    return round(statistics.median(one / other for one, other in pairs), 3)


def summarise(name, answers, counts):
    measured = speeds(answers[name])
    rounds = answers[name]
    total = {
        what: sum(answer[what] for answer in rounds)
        for what in ("tokens", "positions", "sentences")
    }
    batches = len(rounds) * counts[WAYS[name][3]]
    row = {
        "tokens_per_second": round(statistics.median(measured)),
        "least": round(min(measured)),
        "most": round(max(measured)),
        "peak_mb": rounds[-1]["peak_mb"],
        "target_padding": round(1 - total["tokens"] / total["positions"], 3),
        "sentences_per_batch": round(total["sentences"] / batches, 1),
        "tokens_per_batch": round(total["tokens"] / batches),
        "last_loss": round(rounds[-1]["loss"], 3),
    }
    for other, label in ((TUTORIAL, "to_tutorial"), (OURS, "to_ours_same")):
        if other in answers:
            row[label] = ratio(rounds, answers[other])
    return row


def show(rows):
    print(
        f"\n{'':28} {'tokens/s (least to most)':>26} {'to tutorial':>12} "
        f"{'to ours':>8} {'padding':>8} {'sentences':>10} {'peak MiB':>9}"
    )
    for name, row in rows.items():
        spread = "{tokens_per_second:,} ({least:,} to {most:,})".format(**row)
        print(
            f"{name:28} {spread:>26} {row.get('to_tutorial', ''):>12} "
            f"{row.get('to_ours_same', ''):>8} {row['target_padding']:>8.1%} "
            f"{row['sentences_per_batch']:>10,} {row['peak_mb']:>9,}"
        )


def machine(threads):
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": threads,
        "load_before": round(os.getloadavg()[0], 2),
    }


def processor():
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(": ")[1] for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="sentence pairs, TSV")
    for peer in ("keras-hub", "joeynmt", "opennmt"):
        parser.add_argument(f"--{peer}", help="the Python of its environment")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=16, help="in each round")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of each")
    parser.add_argument(
        "--only", nargs="+", type=str.lower, help="ways with any of these in the name"
    )
    parser.add_argument("--out", type=Path, default=HERE / "training_speed.json")
    args = parser.parse_args()

    results = {
        "date": datetime.date.today().isoformat(),
        "machine": machine(args.threads),
        "preset": PRESET,
        "data": Path(args.data).name,
        # Without the places of the data and of each peer's Python.
        "command": "python benchmarks/training_speed.py "
        f"--rounds {args.rounds} --batches {args.batches} --threads {args.threads}"
        + (f" --only {shlex.join(args.only)}" if args.only else ""),
    }
    with tempfile.TemporaryDirectory() as folder:
        counts = prepare(args, Path(folder))
        workers, about = start_workers(args, folder)
        try:
            answers = take_turns(workers, counts, args)
        finally:
            for worker in workers.values():
                worker.close()
    rows = {name: summarise(name, answers, counts) for name in answers}
    show(rows)
    results["ways"] = {
        name: {
            "program": " ".join([WAYS[name][1], *WAYS[name][2]]),
            "batches": WAYS[name][3],
            "batches_in_a_round": counts[WAYS[name][3]],
        }
        | about[name]
        | row
        for name, row in rows.items()
    }
    args.out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
