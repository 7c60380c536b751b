"""Runs workers in turns, and reports medians, spread and the machine.

Each program runs in a process of its own (`workers/`), so that their threads do not
compete. In each round every worker does the same work once, and a different worker
begins, so that other load on the machine affects all of them alike.
"""

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

HERE = Path(__file__).parent
# Idle OpenMP threads spin for up to 0.2 seconds before they sleep.
PAUSE = 0.25


class Failed(Exception):
    """A worker could not answer."""


class Worker:
    """A program in a process of its own.

    Args:
        command: the name of the program in `workers/`, and its arguments.
        threads: the number of threads for each of its libraries.
        python: the Python that runs it; None for this one.
    """

    def __init__(self, command, threads, python=None):
        names = "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [python or sys.executable, HERE / "workers" / command[0], *command[1:]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env=os.environ
            | dict.fromkeys(names, str(threads))
            | {"CUDA_VISIBLE_DEVICES": "", "KERAS_BACKEND": "tensorflow"},
        )

    def ask(self, request=None):
        """Sends a request, if there is one; returns the next answer."""
        if request is not None:
            with contextlib.suppress(OSError):  # it has ended; readline finds out
                self.process.stdin.write(json.dumps(request) + "\n")
                self.process.stdin.flush()
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


@contextlib.contextmanager
def started(commands, threads, pythons=None):
    """Starts a worker for each command, and leaves out those that cannot start.

    Yields:
        The workers by name, and the versions of their packages.
    """
    workers, versions = {}, {}
    try:
        for name, command in commands.items():
            worker = Worker(command, threads, (pythons or {}).get(name))
            try:
                versions |= worker.ask()["versions"]
                workers[name] = worker
            except Failed as failed:
                print(f"{name}: left out: {failed}")
                worker.close()
        yield workers, versions
    finally:
        for worker in workers.values():
            worker.close()


def take_turns(workers, requests, rounds):
    """Sends the workers their requests, in rounds.

    Args:
        workers: a dict of workers by name.
        requests: a function from a worker's name to its requests.
        rounds: the number of rounds after the warm-up, which traces the graphs.

    Returns:
        For each worker that did not fail, a list of rounds, each a list of answers. The
        first round is the warm-up.
    """
    answers = {name: [] for name in workers}
    for number in range(1 + rounds):
        names = [*answers]
        first = number % max(len(names), 1)
        for name in names[first:] + names[:first]:
            time.sleep(PAUSE)
            try:
                each = [workers[name].ask(request) for request in requests(name)]
                answers[name].append(each)
            except Failed as failed:
                print(f"{name}: left out: {failed}")
                del answers[name]
        print(f"round {number} of {rounds}", file=sys.stderr, flush=True)
    return answers


def speeds(rounds, count):
    """Returns the sum of `count` over the answers of each round, per second."""
    return [
        sum(map(count, answers)) / sum(answer["seconds"] for answer in answers)
        for answers in rounds
    ]


def summarise(answers, count, beside):
    """Computes each worker's speed, and its ratio to another worker's.

    Args:
        answers: the result of `take_turns`.
        count: a function from an answer to the amount of work.
        beside: the name of the worker to compare with.

    Returns:
        A dict of rows by name.
    """
    found = {name: speeds(rounds[1:], count) for name, rounds in answers.items()}
    rows = {}
    for name, each in found.items():
        values = statistics.median(each), min(each), max(each)
        digits = None if values[0] >= 100 else 1
        names = ("median", "least", "most")
        rows[name] = {n: round(v, digits) for n, v in zip(names, values, strict=True)}
        if beside in found:
            ratios = [a / b for a, b in zip(each, found[beside], strict=True)]
            rows[name]["ratio"] = round(statistics.median(ratios), 3)
        last = answers[name][-1]
        rows[name]["peak_mb"] = max(answer["peak_mb"] for answer in last)
    return rows


def table(title, rows, *more):
    """Returns the rows as a Markdown table; `more` names further columns."""
    columns = [title, "median (least to most)", "ratio", *more, "peak MiB"]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for name, row in rows.items():
        spread = "{median:,} ({least:,} to {most:,})".format(**row)
        cells = [
            name,
            spread,
            row.get("ratio", ""),
            *(row.get(key, "") for key in more),
        ]
        lines.append(f"| {' | '.join(map(str, [*cells, row['peak_mb']]))} |")
    return "\n".join(lines)


def about(args, versions=None):
    """Returns the date, the machine and the arguments, for the file of results."""
    return {
        "date": datetime.date.today().isoformat(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": versions or {},
        # Not paths.
        "arguments": {
            k: v for k, v in vars(args).items() if isinstance(v, (int, list))
        },
    }


def processor():
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def save(file, results):
    Path(file).write_text(json.dumps(results, indent=1) + "\n", "utf-8")
