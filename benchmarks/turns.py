"""Runs workers in turns and reports them: medians, spread, the machine.

Each way that is compared is a process of its own (`workers/`), so that one's threads
are not in another's way. In each round every way does the same work once, beginning
with another one each time, so that what else the machine does falls on all.
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
# Idle threads of OpenMP spin for up to 0.2 seconds before they sleep.
PAUSE = 0.25


class Failed(Exception):
    """What a worker could not do."""


class Worker:
    """One way, in a process of its own.

    Args:
        command: the program's name in `workers/`, and its arguments.
        threads: how many threads each of its libraries may have.
        python: the Python to run it; None for this one.
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
        """The answer to a request; without one, what it says once it is ready."""
        if request is not None:
            with contextlib.suppress(OSError):  # it has ended: reading tells why
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
    """Starts a worker for each named command; those that cannot start are left out.

    Yields:
        The workers by name, and their packages' versions.
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
    """All workers answer their requests, in rounds.

    Args:
        workers: a dict of them by name.
        requests: a function from a worker's name to its requests.
        rounds: how many follow the warm-up, which traces the graphs.

    Returns:
        For each worker that could, a list of rounds, each a list of answers. The first
        round is the warm-up.
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
    """What `count` finds in the answers of each round, a second."""
    return [
        sum(map(count, answers)) / sum(answer["seconds"] for answer in answers)
        for answers in rounds
    ]


def summarise(answers, count, beside):
    """A row for each way: its speed, and how many times another one's speed that is.

    Args:
        answers: what `take_turns` returned.
        count: a function from an answer to how much was done.
        beside: the name of the way to compare with.

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
    """The rows in Markdown; `more` are further columns."""
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
    """The date, the machine and the arguments, for the file of results."""
    return {
        "date": datetime.date.today().isoformat(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": versions or {},
        # Without paths.
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
