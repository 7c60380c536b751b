"""Decoding speed: ours beside its peers, the same weights and the same sentences.

    pip install -e '.[test]' -r benchmarks/requirements-decoding.txt
    python benchmarks/decoding_speed.py --run RUN --data TSV

Each decoder sits in a process of its own (`decoders/`), so that one's threads are not
in another's way, and does nothing until it is its turn. In each round all of them
decode the same batches once, beginning with another one each time, so that what else
the machine does falls on all. Medians and spread over the rounds are printed and go
to decoding_speed.json. What is timed: token ids in, token ids out, padding included,
without tokenisation. Tokens are those truly written, the end token included.

- Preset `tutorial` is the trained run; sentences end by themselves, or at our limit
  of twice the source's tokens and ten more (peers have one limit for a batch).
- Preset `base` has random weights, which know no end: every sentence gets exactly 28
  tokens.
- "same" is the share of sentences that a decoder translates exactly as "ours" does:
  near 100% in greedy decoding, where the same weights are set up rightly (int8 has
  other weights, and each beam search has its own rules).
- "to ours" is the speed in tokens beside that of "ours", the median of the rounds'
  ratios.

Then two measures of ours alone: strings to strings in Python and as SavedModel; and
128 tokens beside 32, which tells whether a token's time grows with those before it.
"""

import argparse
import contextlib
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

# In this process they would only be in the workers' way.
os.environ["CUDA_VISIBLE_DEVICES"] = ""

from tfxformer.quiet import start_tensorflow

start_tensorflow()

import keras  # noqa: E402

from tfxformer import corpora  # noqa: E402
from tfxformer.config import load_config  # noqa: E402
from tfxformer.exporting.ctranslate2 import specification  # noqa: E402
from tfxformer.exporting.saved_model import export  # noqa: E402
from tfxformer.run import Run, build_model  # noqa: E402
from tfxformer.tokenizer import encode_source  # noqa: E402

HERE = Path(__file__).parent

# Each decoder's program and its arguments; {folder} is the preset's scratch folder.
DECODERS = {
    "ours": ["ours.py"],
    "ours, XLA": ["ours.py", "--xla"],
    "tutorial's way": ["tutorial_way.py"],
    "KerasHub": ["cached_keras_hub.py"],
    "KerasHub, XLA": ["cached_keras_hub.py", "--xla"],
    "Marian": ["marian.py"],
    "CTranslate2 float32": [
        *("ct2.py", "--model", "{folder}/ct2", "--compute-type", "float32")
    ],
    "CTranslate2 int8": [
        *("ct2.py", "--model", "{folder}/ct2", "--compute-type", "int8")
    ],
}
# Ours, strings to strings; {run} is a run folder, {saved_model} its export.
TRANSLATORS = {
    "Python": ["ours_text.py", "--path", "{run}"],
    "SavedModel": ["ours_text.py", "--path", "{saved_model}"],
    "Python, XLA": ["ours_text.py", "--path", "{run}", "--xla"],
    "SavedModel, XLA": ["ours_text.py", "--path", "{saved_model_xla}"],
}
# Sentences a round by batch size. One batch is enough where it takes seconds.
SENTENCES = {
    "tutorial": {1: 16, 8: 32, 32: 96, 64: 128},
    "base": {1: 4, 8: 8, 32: 32, 64: 64},
}
# Without a cache all is computed again for each token: every fourth batch will do.
SLOW = "tutorial's way"
BASE_TOKENS = 28
SHORTEST, LONGEST = 32, 128  # tokens, for the time of a token
LEAST_ROUNDS = 3
# Idle threads of OpenMP spin for up to 0.2 seconds before they sleep.
PAUSE = 0.25


class Failed(Exception):
    """What a decoder could not do, or would not."""


class Worker:
    """A decoder in a process of its own."""

    def __init__(self, command, places, threads, python=sys.executable):
        program, *options = [part.format(**places) for part in command]
        files = [f"--{name}={places[name]}" for name in ("weights", "config") if places]
        threads = str(threads)
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [python, str(HERE / "decoders" / program), *files, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env=os.environ
            | {
                "TF_NUM_INTRAOP_THREADS": threads,
                "TF_NUM_INTEROP_THREADS": threads,
                "OMP_NUM_THREADS": threads,
                "HF_HUB_OFFLINE": "1",
            },
        )

    def ready(self):
        """Waits until it has loaded; what it says of itself."""
        return self._read()

    def ask(self, **request):
        with contextlib.suppress(OSError):  # it has ended: reading tells why
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        return self._read()

    def _read(self):
        line = self.process.stdout.readline()
        if not line:
            self.log.seek(0)
            raise Failed("it ended: " + self.log.read()[-2000:])
        answer = json.loads(line)
        for problem in ("refused", "error"):
            if problem in answer:
                raise Failed(answer[problem])
        return answer

    def close(self):
        with contextlib.suppress(OSError):  # it has ended already
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.log.close()


def start_workers(commands, places, args):
    """The workers by name, and what each said when it was ready."""
    workers, about = {}, {}
    for name, command in commands.items():
        worker = Worker(command, places, args.threads)
        try:
            about[name] = worker.ready()
            workers[name] = worker
        except Failed as failed:
            print(f"{name}: left out: {failed}")
            worker.close()
    return workers, about


# --- What is decoded ---


def prepare(preset, args, folder):
    """The model of a preset, written down in every way that a worker reads.

    Returns:
        Where it all is, by name, and the tokenizer.
    """
    run = Run.open(args.run)
    if preset == "tutorial":
        tokenizer, model = run.load()
    else:
        tokenizer = run.tokenizer()
        keras.utils.set_random_seed(0)
        tokenizer_settings = run.config().to_dict()["tokenizer"]
        config = load_config(preset, overrides=[{"tokenizer": tokenizer_settings}])
        model = build_model(config, tokenizer.vocab_size)
        run = Run(folder / "run")
        run.path.mkdir()
        config.save(run.config_file)
        tokenizer.save(run.tokenizer_file)
        model.save_weights(run.weights_file("best"))
    places = {
        "folder": folder,
        "run": run.path,
        "weights": folder / "weights.npz",
        "config": folder / "config.json",
    }
    arrays = {
        weight.path.split("/", 1)[1]: keras.ops.convert_to_numpy(weight)
        for weight in model.weights
    }
    np.savez(places["weights"], **arrays)
    sizes = run.config().to_dict()["model"]
    sizes |= {"vocab_size": tokenizer.vocab_size, "threads": args.threads}
    places["config"].write_text(json.dumps(sizes))
    (folder / "ct2").mkdir()
    specification(tokenizer, model).save(str(folder / "ct2"))
    return places, tokenizer


def read_sentences(args, tokenizer):
    """(text, ids) of the test sentences that the smallest model can read."""
    pairs, _ = corpora.load(args.data, cleaned=False)
    texts = [pair.source for pair in pairs]
    rows = encode_source(tokenizer, texts).numpy()
    ids = [[int(token) for token in row if token] for row in rows]
    return [
        (text, row)
        for text, row in zip(texts, ids, strict=True)
        if 1 < len(row) <= LONGEST
    ]


def draw_batches(sentences, count, size):
    """Sentences drawn at random, sorted by length as one would who has many."""
    order = np.random.default_rng(0).permutation(len(sentences))[:count]
    drawn = sorted((sentences[i] for i in order), key=lambda pair: len(pair[1]))
    return [drawn[i : i + size] for i in range(0, count, size)]


def request(rows, beam, forced=None):
    """What a worker is asked; `forced` tokens each, or until they end."""
    limits = [forced or min(2 * len(row) + 10, LONGEST) for row in rows]
    return {
        "batch": rows,
        "beam": beam,
        "min_tokens": forced or 0,
        "max_tokens": limits,
    }


# --- Taking turns ---


def take_turns(workers, requests, args, slow=()):
    """All workers decode the same requests, in rounds.

    Returns:
        For each worker that could, its answers: a list of rounds, each a list with
        one answer a request. The first round is the warm-up: it is not to be timed.
    """
    answers = {name: [] for name in workers}
    started = None
    for round_number in range(1 + args.rounds):
        names = [*answers]
        first = round_number % max(len(names), 1)
        for name in names[first:] + names[:first]:
            asked = some(requests) if name in slow else requests
            time.sleep(PAUSE)
            try:
                answers[name].append([workers[name].ask(**ask) for ask in asked])
            except Failed as failed:
                print(f"  {name}: left out: {failed}")
                del answers[name]
        if round_number == 0:
            started = time.perf_counter()  # the warm-up compiles
        late = time.perf_counter() - started > args.cell_seconds
        if late and round_number >= LEAST_ROUNDS:
            break
    return answers


def some(batches):
    """Every fourth batch, neither the shortest of the four nor the longest."""
    return batches[min(2, len(batches) - 1) :: 4]


def speeds_of(counts, rounds):
    """What was written a second, in each timed round."""
    return [
        sum(map(counts, answers)) / sum(answer["seconds"] for answer in answers)
        for answers in rounds
    ]


def ratio(counts, rounds, other_rounds):
    """How many times as fast as another: the median over rounds of both."""
    pairs = zip(speeds_of(counts, rounds), speeds_of(counts, other_rounds), strict=True)
    return round(statistics.median(one / other for one, other in pairs), 3)


def summarise(counts, rounds):
    """What was written a second: the median over rounds, the least and the most."""
    speeds = speeds_of(counts, rounds)
    digits = 0 if statistics.median(speeds) >= 100 else 1
    values = statistics.median(speeds), min(speeds), max(speeds)
    names = ("median", "least", "most")
    return {
        name: round(value, digits or None)
        for name, value in zip(names, values, strict=True)
    }


def measure_cell(workers, batches, beam, forced, args):
    """One preset, batch size and beam size: a row for each decoder."""
    requests = [request([ids for _, ids in batch], beam, forced) for batch in batches]
    answers = take_turns(workers, requests, args, slow=[SLOW])
    table = {}
    for name, (warm_up, *rounds) in answers.items():
        asked = some(requests) if name == SLOW else requests
        if forced and any(
            len(ids) != forced for answer in warm_up for ids in answer["ids"]
        ):
            print(f"  {name}: some sentences have not {forced} tokens")
        table[name] = {
            "tokens_per_second": summarise(count_tokens, rounds),
            "sentences_per_second": summarise(count_sentences, rounds),
            "rounds": len(rounds),
            "sentences": sum(len(ask["batch"]) for ask in asked),
            "tokens": sum(map(count_tokens, warm_up)),
            "peak_mb": max(answer["peak_mb"] for answer in rounds[-1]),
        }
        if "ours" in answers:
            ours, *our_rounds = answers["ours"]
            ours = some(ours) if name == SLOW else ours
            table[name]["same_as_ours"] = same(asked, ours, warm_up)
            table[name]["speed_to_ours"] = ratio(count_tokens, rounds, our_rounds)
    return table


def count_tokens(answer):
    return sum(map(len, answer["ids"]))


def count_sentences(answer):
    return len(answer["ids"])


def count_translations(answer):
    return len(answer["translations"])


def same(requests, ours, theirs):
    """The share of sentences with the same tokens, within the sentence's own limit."""
    equal = [
        one[:limit] == other[:limit]
        for ask, mine, their in zip(requests, ours, theirs, strict=True)
        for one, other, limit in zip(
            mine["ids"], their["ids"], ask["max_tokens"], strict=True
        )
    ]
    return round(statistics.mean(equal), 4)


# --- What is measured ---


def measure_decoders(preset, places, sentences, args):
    """The cells of a preset, and what each worker has in memory once it is loaded."""
    commands = {
        name: command
        for name, command in DECODERS.items()
        if not args.only or name.lower().startswith(args.only)
    }
    workers, about = start_workers(commands, places, args)
    forced = BASE_TOKENS if preset == "base" else None
    cells = []
    try:
        for beam in args.beams:
            for size in args.batches:
                count = size if args.quick else SENTENCES[preset].get(size, size)
                count = max(count, size, 4 if size == 1 else 0)
                batches = draw_batches(sentences, count, size)
                print(f"\n{preset}, batch {size}, beam {beam}")
                table = measure_cell(workers, batches, beam, forced, args)
                cells.append({"batch": size, "beam": beam, "decoders": table})
                print_cell(table)
        flat = {}
        if preset == "tutorial":
            print(f"\nseconds for {SHORTEST} and for {LONGEST} tokens, forced")
            flat = measure_flatness(workers, sentences, args)
    finally:
        for worker in workers.values():
            worker.close()
    return {
        "weights": "random" if forced else "the trained run's",
        "tokens_of_each_sentence": forced or "until it ends",
        "loaded_mb": {name: told["peak_mb"] for name, told in about.items()},
        "versions": {
            package: version
            for told in about.values()
            for package, version in told["versions"].items()
        },
        "cells": cells,
        "time_of_a_token": flat,
    }


def measure_flatness(workers, sentences, args):
    """A token's time among 128 beside that among 32: near 1 if it does not grow."""
    ours = {name: workers[name] for name in workers if name.startswith("ours")}
    flat = {}
    for size in (1, 64):
        if size not in args.batches:
            continue
        [batch] = draw_batches(sentences, size, size)
        rows = [ids for _, ids in batch]
        lengths = (SHORTEST, LONGEST)
        requests = [request(rows, 1, length) for length in lengths]
        for name, (warm_up, *rounds) in take_turns(ours, requests, args).items():
            if [count_tokens(answer) // size for answer in warm_up] != [*lengths]:
                print(f"  {name}: cannot be made to write so many tokens")
                continue
            few, many = (
                statistics.median(answers[i]["seconds"] for answers in rounds)
                for i in (0, 1)
            )
            ratio = many / LONGEST / (few / SHORTEST)
            flat[f"{name}, batch {size}"] = {
                "seconds_for_32": round(few, 4),
                "seconds_for_128": round(many, 4),
                "time_of_a_token_128_to_32": round(ratio, 3),
            }
            print(
                f"  {name}, batch {size}: {few:.3f}, {many:.3f}: "
                f"a token takes {ratio:.2f} times as long"
            )
    return flat


def measure_translators(preset, places, sentences, args):
    """Strings to strings, tokenisation included: in Python, and as SavedModel."""
    for name, xla in (("saved_model", False), ("saved_model_xla", True)):
        places[name], _ = export(places["run"], places["folder"] / "export", xla=xla)
    workers, _ = start_workers(TRANSLATORS, places, args)
    if preset == "base":
        # Random weights write until the limit: let it be low.
        sentences = [pair for pair in sentences if len(pair[1]) <= 10]
    cells = []
    try:
        for size in args.batches:
            count = size if args.quick else SENTENCES[preset].get(size, size)
            batches = draw_batches(sentences, count, size)
            requests = [{"texts": [text for text, _ in batch]} for batch in batches]
            print(f"\n{preset}, strings to strings, batch {size}: sentences/s")
            answers = take_turns(workers, requests, args)
            table = {}
            for name, (warm_up, *rounds) in answers.items():
                table[name] = row = {
                    "sentences_per_second": summarise(count_translations, rounds),
                    "rounds": len(rounds),
                    "sentences": count,
                }
                if "Python" in answers:
                    in_python, *python_rounds = answers["Python"]
                    row["speed_to_python"] = ratio(
                        count_translations, rounds, python_rounds
                    )
                    equal = [
                        one == other
                        for answer, python in zip(warm_up, in_python, strict=True)
                        for one, other in zip(
                            answer["translations"], python["translations"], strict=True
                        )
                    ]
                    row["same_as_python"] = round(statistics.mean(equal), 4)
                print(
                    f"  {name:20} {spread(row['sentences_per_second']):>28}, "
                    f"{row.get('speed_to_python', ''):>6} times Python's"
                )
            cells.append({"batch": size, "translators": table})
    finally:
        for worker in workers.values():
            worker.close()
    return cells


# --- Telling ---


def print_cell(table):
    print(
        f"  {'':20} {'tokens/s (least to most)':>28} {'sentences/s':>12} "
        f"{'to ours':>8} {'same':>7} {'peak MiB':>9}"
    )
    for name, row in table.items():
        same_share = row.get("same_as_ours")
        print(
            f"  {name:20} {spread(row['tokens_per_second']):>28} "
            f"{row['sentences_per_second']['median']:12,} "
            f"{row.get('speed_to_ours', ''):>8} "
            f"{'' if same_share is None else format(same_share, '.1%'):>7} "
            f"{row['peak_mb']:9,}"
        )


def spread(speed):
    return f"{speed['median']:,} ({speed['least']:,} to {speed['most']:,})"


def machine(threads):
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": threads,
        "load_before": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
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
    parser.add_argument("--run", required=True, help="trained, preset tutorial")
    parser.add_argument("--data", required=True, help="test pairs, TSV")
    parser.add_argument("--presets", default="tutorial,base")
    parser.add_argument("--batches", default="1,8,32,64")
    parser.add_argument("--beams", default="1,4")
    parser.add_argument("--rounds", type=int, default=5, help="the most")
    parser.add_argument(
        "--cell-seconds",
        type=float,
        default=25,
        help=f"no new round after so long, but {LEAST_ROUNDS} at least",
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--only", help="decoders whose names begin so: ours,marian")
    parser.add_argument("--measures", default="decoders,text")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    parser.add_argument(
        "--quick",
        action="store_true",
        help="one round of few sentences, to see that all works; writes no file",
    )
    args = parser.parse_args()
    args.presets = args.presets.split(",")
    args.batches = [int(size) for size in args.batches.split(",")]
    args.beams = [int(beam) for beam in args.beams.split(",")]
    args.only = tuple(args.only.lower().split(",")) if args.only else ()
    args.rounds = 1 if args.quick else args.rounds
    sys.stdout.reconfigure(line_buffering=True)  # progress, in a pipe as well

    results = {
        "date": datetime.date.today().isoformat(),
        "machine": machine(args.threads),
        "presets": {},
    }
    for preset in args.presets:
        with tempfile.TemporaryDirectory() as folder:
            places, tokenizer = prepare(preset, args, Path(folder))
            sentences = read_sentences(args, tokenizer)
            told = results["presets"][preset] = {}
            if "decoders" in args.measures:
                told |= measure_decoders(preset, places, sentences, args)
            if "text" in args.measures:
                told["text"] = measure_translators(preset, places, sentences, args)
        if not args.quick:
            args.out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
