"""What the workers share: a process each, asked by lines of JSON.

The driver (`turns.py`) starts a worker and waits for the line that says it is ready.
Then the worker answers each line on its standard input with a line on its standard
output, and does nothing in between. An answer has the seconds that the work took, and
the most memory that the process has had; or the error.
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

# Libraries print where answers go: keep the real standard output for the answers.
_answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)


def serve(work, packages, finish=lambda found: found):
    """Answers until the input ends.

    Args:
        work: a function from a request's values to what it finds: this is timed.
        packages: names of packages; the driver gets their versions.
        finish: makes a dict of what was found: this is not timed.
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
    """The batches that `training_speed.py` wrote: ``((source, target_in), target)``."""
    with np.load(Path(folder, f"{name}.npz")) as file:
        sides = [file[key] for key in sorted(file, key=lambda key: int(key[4:]))]
    return [((s, t[:, :-1]), t[:, 1:]) for s, t in zip(*[iter(sides)] * 2, strict=True)]


def written(rows):
    """Each sentence's tokens, up to and with the end token."""
    ids = []
    for row in rows:
        row = [int(token) for token in row if token != PAD_ID]
        ids.append(row[: row.index(END_ID) + 1] if END_ID in row else row)
    return {"ids": ids}


def peak_memory():
    """The most resident memory that this process has had, in MiB."""
    # Not `ru_maxrss` where it can be helped: a process that was started by a big
    # one begins with that one's peak.
    try:
        status = Path("/proc/self/status").read_text()
        return round(int(status.split("VmHWM:")[1].split()[0]) / 1024)
    except (OSError, IndexError):
        return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
