"""The protocol of the workers: lines of JSON on standard input and output.

The driver (`turns.py`) starts a worker and waits for the line that says it is ready.
The worker then answers each line of its standard input with a line on its standard
output, and idles in between. An answer holds the seconds that the work took and the
process's peak memory, or the error.
"""

import importlib.metadata
import json
import os
import resource
import sys
import time
import traceback
from pathlib import Path

import numpy as np

PAD_ID, UNK_ID, START_ID, END_ID = 0, 1, 2, 3

# Keep standard output for answers: what libraries print goes to standard error.
_answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)


def serve(work, packages, finish=lambda found: found):
    """Answers requests until the input ends.

    Args:
        work: a function from a request's values to a result; it is timed.
        packages: the packages whose versions the driver gets.
        finish: a function from the result to a dict; it is not timed.
    """
    versions = {name: importlib.metadata.version(name) for name in packages}
    _answer({"versions": versions})
    for line in sys.stdin:
        try:
            request = json.loads(line)
            started = time.perf_counter()
            found = work(**request)
            seconds = time.perf_counter() - started
            _answer(finish(found) | {"seconds": seconds, "peak_mb": peak_memory()})
        except Exception as error:
            traceback.print_exc()
            _answer({"error": f"{type(error).__name__}: {error}"[:300]})


def _answer(answer):
    _answers.write(json.dumps(answer) + "\n")
    _answers.flush()


def read_batches(folder, name):
    """Returns `training_speed.py`'s batches, as ``((source, target_in), target)``."""
    with np.load(Path(folder, f"{name}.npz")) as file:
        sides = [file[key] for key in sorted(file, key=lambda key: int(key[4:]))]
    return [((s, t[:, :-1]), t[:, 1:]) for s, t in zip(*[iter(sides)] * 2, strict=True)]


def written(rows):
    """Returns the ids of each sentence, up to the end token, which is included."""
    ids = []
    for row in rows:
        row = [int(token) for token in row if token != PAD_ID]
        ids.append(row[: row.index(END_ID) + 1] if END_ID in row else row)
    return {"ids": ids}


def peak_memory():
    """Returns the peak resident memory of this process, in MiB."""
    # `ru_maxrss` is the second choice: a new process begins with the peak of the
    # process that started it.
    try:
        status = Path("/proc/self/status").read_text()
        return round(int(status.split("VmHWM:")[1].split()[0]) / 1024)
    except (OSError, IndexError):
        return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
