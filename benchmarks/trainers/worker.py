"""What the workers share: one trainer a process, asked by lines of JSON.

The driver (`training_speed.py`) starts a worker and waits for the line that says it is
ready. From then on the worker answers each line on its standard input with one on its
standard output, and does nothing else in between.

Asked: ``{"steps": 16}``: train on so many batches more.

Answered: ``{"seconds": ..., "tokens": ..., "positions": ..., "sentences": ...,
"loss": ..., "peak_mb": ...}``: how long it took, the target tokens and the target
positions (tokens and padding) of those batches, a loss to see that it learns, and how
much memory the process has had at most; or ``{"error": what}``.

The folder that a worker reads is written by the driver, for any version of Python and
NumPy: ``sizes.json`` (the model's sizes), ``batches.npz`` (batches of token ids), and
``source.txt`` and ``target.txt`` (the same sentences, for trainers that make batches
themselves: a sentence a line, its ids with spaces between, no start and no end).
"""

import argparse
import importlib.metadata
import json
import os
import resource
import sys
import time
import traceback
from pathlib import Path
from types import SimpleNamespace

import numpy as np

PAD_ID, UNK_ID, START_ID, END_ID = 0, 1, 2, 3
FIRST_PIECE = 4
OWN = "own"

# Libraries print where answers go: keep the real standard output for the answers.
_answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)


def arguments(*more):
    """The worker's arguments; `more` are flags of its own.

    Returns:
        The arguments, with `sizes`: ``num_layers``, ``d_model``, ``num_heads``,
        ``dff``, ``dropout_rate``, ``label_smoothing``, ``max_length``,
        ``tokens_per_batch``, ``vocab_size``.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--batches", required=True, help=f"a name, or {OWN!r}")
    for flag in more:
        parser.add_argument(flag, action="store_true")
    args = parser.parse_args()
    args.sizes = SimpleNamespace(**json.loads((args.folder / "sizes.json").read_text()))
    return args


class Batches:
    """Batches that the driver made, over and over.

    A batch is ``((source, target_in), target_out)``: int32 ids, padded; the source
    ends with the end token, ``target_in`` begins with the start token and is one
    step behind ``target_out``, which ends with the end token.
    """

    def __init__(self, args):
        self._batches, self._next = [], 0
        with np.load(args.folder / "batches.npz") as file:
            while f"{args.batches}/{len(self._batches)}/source" in file:
                name = f"{args.batches}/{len(self._batches)}"
                source, target_in, target_out = (
                    file[f"{name}/{side}"]
                    for side in ("source", "target_in", "target_out")
                )
                self._batches.append(((source, target_in), target_out))

    def take(self, count):
        """The next `count` batches."""
        wanted = range(self._next, self._next + count)
        self._next += count
        return [self._batches[i % len(self._batches)] for i in wanted]

    def __iter__(self):
        """Without end; each one moves on by itself."""
        while True:
            yield from self._batches


def size_of(batch):
    """(tokens, positions, sentences) of a batch's target."""
    _, target_out = batch
    return int(np.count_nonzero(target_out)), target_out.size, len(target_out)


def serve(train, parameters, *packages):
    """Answers until the input ends.

    Args:
        train: takes the number of steps; gives a list of (tokens, positions,
            sentences), one for each step, and a loss. It is what is timed.
        parameters: how many the model has.
        *packages: their versions are told to the driver.
    """
    versions = {name: importlib.metadata.version(name) for name in packages}
    versions["python"] = ".".join(map(str, sys.version_info[:3]))
    _answer({"versions": versions, "parameters": parameters})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            started = time.perf_counter()
            sizes, loss = train(request["steps"])
            loss = float(loss)  # waits for the last step
            seconds = time.perf_counter() - started
        except Exception as error:
            traceback.print_exc()
            text = " ".join(str(error).split())[:300]
            _answer({"error": f"{type(error).__name__}: {text}"})
            continue
        totals = [sum(column) for column in zip(*sizes, strict=True)]
        names = ("tokens", "positions", "sentences")
        answer = {name: int(total) for name, total in zip(names, totals, strict=True)}
        answer |= {"seconds": seconds, "loss": loss, "peak_mb": peak_memory()}
        _answer(answer)


def _answer(answer):
    _answers.write(json.dumps(answer) + "\n")
    _answers.flush()


def peak_memory():
    """The most resident memory this process has had, in MiB."""
    # Not `ru_maxrss` where it can be helped: a process that was started by a big
    # one begins with that one's peak.
    try:
        status = Path("/proc/self/status").read_text()
        return round(int(status.split("VmHWM:")[1].split()[0]) / 1024)
    except (OSError, IndexError):
        return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
