"""What the workers share: one decoder a process, asked by lines of JSON.

The driver (`decoding_speed.py`) starts a worker and waits for the line that says it
is ready. From then on the worker answers each line on its standard input with one on
its standard output, and does nothing else in between.

Asked: ``{"batch": [[ids of a sentence, end token included], ...], "beam": 1,
"min_tokens": 0, "max_tokens": [a limit for each sentence]}``. With ``min_tokens``
above 0 every sentence gets exactly that many tokens, none of them the end token.

Answered: ``{"seconds": ..., "ids": [[...], ...], "peak_mb": ...}``: the ids up to and
with the end token, and how much memory the process has had at most; or ``{"refused":
why}`` for what a decoder cannot do, or ``{"error": what}``.

A worker that translates text gets ``{"texts": [...]}`` and answers with
``"translations"`` in place of ids.
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

PAD_ID, UNK_ID, START_ID, END_ID = 0, 1, 2, 3
# What no translation has in it. Ours never writes them, so no peer may.
NEVER = (PAD_ID, UNK_ID, START_ID)

# Libraries print where answers go: keep the real standard output for the answers.
_answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)


class Refused(Exception):
    """What a decoder cannot do; the driver leaves it out and says so."""


def arguments(*more):
    """The worker's arguments: weights and config, and the flags named in `more`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--weights", type=Path, help=".npz of arrays by name")
    parser.add_argument("--config", type=Path, help="JSON: the model's sizes")
    for flag in more:
        if flag == "--xla":
            parser.add_argument(flag, action="store_true")
        else:
            parser.add_argument(flag, required=True)
    return parser.parse_args()


def serve(decode, *packages):
    """Answers until the input ends.

    Args:
        decode: ``(batch, beam, min_tokens, max_tokens)`` to rows of ids, or
            ``(texts)`` to translations. It is what is timed: from Python lists to
            values that are there.
        *packages: their versions are told to the driver.
    """
    versions = {name: importlib.metadata.version(name) for name in packages}
    _answer({"ready": True, "versions": versions, "peak_mb": peak_memory()})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            started = time.perf_counter()
            rows = decode(**request)
            answer = {"seconds": time.perf_counter() - started}
        except Refused as refused:
            _answer({"refused": str(refused)})
            continue
        except Exception as error:
            traceback.print_exc()
            text = " ".join(str(error).split())[:300]
            _answer({"error": f"{type(error).__name__}: {text}"})
            continue
        if "batch" in request:
            answer["ids"] = [written(row) for row in rows]
        else:
            answer["translations"] = rows
        _answer(answer | {"peak_mb": peak_memory()})


def _answer(answer):
    _answers.write(json.dumps(answer) + "\n")
    _answers.flush()


def padded(batch, width=None):
    """A rectangle of ids, padded to the longest or to `width`."""
    width = width or max(map(len, batch))
    return [row + [PAD_ID] * (width - len(row)) for row in batch]


def width_for_xla(batch):
    """A power of two, so that XLA meets few shapes: it compiles each one anew."""
    longest, width = max(map(len, batch)), 16
    while width < longest:
        width *= 2
    return width


def written(row):
    """The tokens of one sentence, up to and with the end token."""
    row = [int(token) for token in row]
    if END_ID in row:
        return row[: row.index(END_ID) + 1]
    while row and row[-1] == PAD_ID:
        row.pop()
    return row


def peak_memory():
    """The most resident memory this process has had, in MiB."""
    # Not `ru_maxrss` where it can be helped: a process that was started by a big
    # one begins with that one's peak.
    try:
        status = Path("/proc/self/status").read_text()
        return round(int(status.split("VmHWM:")[1].split()[0]) / 1024)
    except (OSError, IndexError):
        return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
