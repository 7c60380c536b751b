"""Run folders side by side: how far they are, how good, and what differs in them.

Only ``config.yaml`` and ``metrics.jsonl`` are read, so that it takes no time.
"""

import contextlib
import json
import math
import os
import statistics
from dataclasses import dataclass
from pathlib import Path

from tfxformer.config import load_config
from tfxformer.console import printable
from tfxformer.errors import UserError

# A folder with two of these is a run's, one that lost a file too.
FILES = {"config.yaml", "metrics.jsonl", "tokenizer.model"}

# What is measured of a run, and how a table calls and writes it.
SCORES = {
    "step": ("step", "{:,}"),
    "perplexity": ("perplexity", "{:.2f}"),
    "bleu": ("BLEU", "{:.2f}"),
    "accuracy": ("accuracy", "{:.3f}"),
    "tokens_per_second": ("tokens/s", "{:,.0f}"),
}

# A longer cell of a table goes on in a next line.
WIDEST = 24
BETWEEN = 3  # spaces from a column to the next

# How each order sorts: by what, and whether the highest is first.
ORDERS = {
    "name": None,
    "perplexity": False,
    "bleu": True,
    "step": True,
}


@dataclass(frozen=True)
class RunSummary:
    """What a run folder says of itself; None where it does not say.

    Attributes:
        path: the folder.
        step: the last one that something was measured at.
        perplexity: the best one in validation.
        bleu: the best one in validation.
        accuracy: the share of tokens guessed right, where the perplexity was best.
        tokens_per_second: target tokens, the median.
        settings: values by name, such as ``model.dff``; None if they cannot be read.
        problem: what is wrong with the folder.

    Example:
        >>> RunSummary(Path("runs/mine"), step=800, bleu=31.5).problem is None
        True
    """

    path: Path
    step: int | None = None
    perplexity: float | None = None
    bleu: float | None = None
    accuracy: float | None = None
    tokens_per_second: float | None = None
    settings: dict | None = None
    problem: str | None = None


def find_runs(folders, sort="name"):
    """Reads the run folders that are in folders, however deep, or are one.

    Args:
        folders: paths.
        sort: "name", "perplexity", "bleu" or "step", the best first; those where it
            is not known come last.

    Returns:
        A list of `RunSummary`.

    Raises:
        UserError: when a folder is not there, or has no run.

    Example:
        >>> find_runs(["nowhere"])
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: nowhere: there is no such folder
    """
    if sort not in ORDERS:
        raise UserError(f"--sort {sort!r}: there are {', '.join(ORDERS)}")
    found = {}
    for folder in folders:
        if not Path(folder).is_dir():
            raise UserError(f"{folder}: there is no such folder")
        paths = [*_walk(folder)]
        if not paths:
            raise UserError(f"{folder}: no run folder is in it: train one first")
        for path in paths:
            found.setdefault(path.resolve(), path)
    runs = [summarise(path) for path in found.values()]

    def order(run):
        value = None if sort == "name" else getattr(run, sort)
        known = 0 if value is None else -value if ORDERS[sort] else value
        return (value is None, known, str(run.path))

    return sorted(runs, key=order)


def _walk(folder):
    for path, folders, files in os.walk(folder):
        if len(FILES & {*files}) >= 2:
            folders.clear()  # what is in a run is the run's
            yield Path(path)
        folders[:] = [name for name in folders if not name.startswith(".")]


def summarise(path):
    """Reads a run folder; what is wrong with it is said in the summary.

    Args:
        path: the folder.

    Returns:
        A `RunSummary`.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> row = {"step": 500, "split": "validation", "perplexity": 4.5}
        >>> _ = (folder / "metrics.jsonl").write_text(json.dumps(row))
        >>> run = summarise(folder)
        >>> run.step, run.perplexity, run.problem
        (500, 4.5, 'config.yaml is missing; tokenizer.model is missing')
    """
    path = Path(path)
    problems, settings, rows = [], None, []
    for name in sorted(FILES - {"metrics.jsonl"}):  # not there before it is measured
        if not (path / name).exists():
            problems.append(f"{name} is missing")
    if (path / "config.yaml").exists():
        try:
            settings = _settings(path / "config.yaml")
        except UserError as error:
            problems.append(str(error).removeprefix(f"{path}{os.sep}"))
    if (path / "metrics.jsonl").exists():
        try:
            rows, bad = _rows(path / "metrics.jsonl")
        except OSError as error:
            problems.append(f"metrics.jsonl: {error.strerror}")
        else:
            problems += [f"metrics.jsonl, line {n}: no measurement" for n in bad[:1]]
    return RunSummary(
        path,
        **_scores(rows),
        settings=settings,
        problem="; ".join(problems) or None,
    )


def measurements(path):
    """What was measured in a run.

    Args:
        path: the run folder.

    Returns:
        A list of dicts, each with ``step``, ``split`` ("train" or "validation") and
        values by name, such as ``loss``.

    Raises:
        UserError: when the folder has none, or they cannot be read.

    Example:
        >>> measurements("nowhere")
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: nowhere/metrics.jsonl: No such file ...
    """
    file = Path(path) / "metrics.jsonl"
    try:
        return _rows(file)[0]
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}: give a run folder") from None


def _settings(file):
    if not file.stat().st_size:
        raise UserError(f"{file}: empty")
    sections = load_config(file=file).to_dict()
    return {
        # JSON has no infinity; as text, --set takes it.
        f"{section}.{name}": ".inf" if value == math.inf else value
        for section, settings in sections.items()
        for name, value in settings.items()
    }


def _rows(file):
    """What the lines hold, and the numbers of those that hold nothing of the kind."""
    *lines, half = map(_row, file.read_bytes().split(b"\n"))
    bad = [number for number, row in enumerate(lines, 1) if row is None]
    # What has no end is no fault: its writer was killed, or is just writing it.
    return [row for row in [*lines, half] if row is not None], bad


def _row(line):
    # Not JSON, not UTF-8, or of more brackets or digits than Python reads.
    with contextlib.suppress(ValueError, RecursionError):
        row = json.loads(line)
        if isinstance(row, dict) and type(row.get("step")) is int:
            return row
    return None


def _scores(rows):
    valid = [row for row in rows if row.get("split") == "validation"]
    train = [row for row in rows if row.get("split") == "train"]
    perplexities = [
        (value, _number(row, "masked_accuracy"))
        for row in valid
        if (value := _number(row, "perplexity")) is not None
    ]
    best = min(perplexities, key=lambda pair: pair[0], default=(None, None))
    bleus = [x for row in valid if (x := _number(row, "bleu")) is not None]
    speeds = [
        x
        for row in train
        if (x := _number(row, "target_tokens_per_second")) is not None
    ]
    return {
        "step": max((row["step"] for row in rows), default=None),
        "perplexity": best[0],
        "accuracy": best[1],
        "bleu": max(bleus, default=None),
        "tokens_per_second": statistics.median(speeds) if speeds else None,
    }


def _number(row, name):
    value = row.get(name)
    with contextlib.suppress(OverflowError):
        if type(value) in (int, float) and math.isfinite(value):
            return float(value)
    return None


def compare(runs):
    """Tells the settings that all runs share from those that differ.

    Args:
        runs: `RunSummary`s; those without settings do not count.

    Returns:
        The shared settings, and a list of the names of the others.

    Example:
        >>> settings = {"training.seed": 0, "model.dff": 512}
        >>> one = RunSummary(Path("one"), settings=settings)
        >>> other = RunSummary(Path("other"), settings=settings | {"training.seed": 1})
        >>> compare([one, other])
        ({'model.dff': 512}, ['training.seed'])
    """
    known = [run.settings for run in runs if run.settings is not None]
    shared, differ = {}, []
    for name, value in (known[0] if known else {}).items():
        if all(settings[name] == value for settings in known):
            shared[name] = value
        else:
            differ.append(name)
    return shared, differ


def as_json(runs):
    """All of it for machines: runs, and the names of settings that differ.

    Args:
        runs: a list of `RunSummary`.

    Returns:
        JSON, a string.

    Example:
        >>> json.loads(as_json([RunSummary(Path("one"), step=3)]))["runs"][0]["step"]
        3
    """
    _, differ = compare(runs)
    rows = [vars(run) | {"path": str(run.path)} for run in runs]
    return json.dumps({"runs": rows, "differ": differ}, indent=2)


def as_lines(runs):
    r"""A line a run, tabs between, and first a line with what stands where.

    Args:
        runs: a list of `RunSummary`.

    Yields:
        Lines without their ends.

    Example:
        >>> heading, line = as_lines([RunSummary(Path("one"), step=3, bleu=31.5)])
        >>> line.split("\t")[:4]
        ['one', '3', '', '31.5']
    """
    _, differ = compare(runs)
    yield "\t".join(["run", *SCORES, *differ, "problem"])
    for run in runs:
        scores = (getattr(run, name) for name in SCORES)
        settings = run.settings or {}
        yield "\t".join(
            [
                printable(str(run.path)),
                *("" if value is None else f"{value}" for value in scores),
                *(_show(settings[name]) if settings else "" for name in differ),
                printable(run.problem or ""),
            ]
        )


def shared_lines(runs):
    """The settings that all runs share, a line a section.

    Args:
        runs: a list of `RunSummary`.

    Yields:
        Lines without their ends.

    Example:
        >>> settings = {"training.seed": 0, "training.steps": 800}
        >>> [*shared_lines([RunSummary(Path("one"), settings=settings)])]
        ['training: seed 0, steps 800']
    """
    sections = {}
    for name, value in compare(runs)[0].items():
        section, _, setting = name.partition(".")
        sections.setdefault(section, []).append(f"{setting} {_show(value)}")
    for section, settings in sections.items():
        yield f"{section}: {', '.join(settings)}"


def show(runs, console):
    """Prints tables that fit a terminal: scores and what differs, what is shared.

    Args:
        runs: a list of `RunSummary`.
        console: a Rich console.

    Example:
        >>> from rich.console import Console
        >>> show([RunSummary(Path("one"), step=3)], Console(width=40))
        run   step
        ──────────
        one      3
        <BLANKLINE>
    """
    from rich.padding import Padding
    from rich.text import Text

    _, differ = compare(runs)
    names = [printable(str(run.path)) for run in runs]
    columns = [
        (
            heading,
            [
                "" if (x := getattr(run, name)) is None else form.format(x)
                for run in runs
            ],
        )
        for name, (heading, form) in SCORES.items()
    ]
    columns = [column for column in columns if any(column[1])]
    columns += [
        (
            name.replace(".", "\n"),
            [_show(run.settings[name]) if run.settings else "" for run in runs],
        )
        for name in differ
    ]
    width = console.width
    first = min(max(map(len, [*names, "run"])), max(width // 3, 12))
    while columns:
        # As many as fit beside the names; at least one.
        room, fitting = width - first, 0
        for heading, cells in columns:
            needed = max(map(len, [*heading.split("\n"), *cells]))
            room -= min(needed, WIDEST) + BETWEEN
            if room < 0 and fitting:
                break
            fitting += 1
        console.print(_table(names, first, columns[:fitting]))
        console.print()
        columns = columns[fitting:]
    for run, name in zip(runs, names, strict=True):
        if run.problem:
            console.print(Text(f"{name}: {printable(run.problem)}"))
    shared = [*shared_lines(runs)]
    if shared:
        console.print("The same in all:" if len(runs) > 1 else "Settings:")
    for line in shared:
        console.print(Padding(Text(line), (0, 0, 0, 2)))


def _table(names, width, columns):
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    table.add_column("run", width=width, overflow="fold")
    for heading, cells in columns:
        numbers = all(cell[-1:].isdecimal() or not cell for cell in cells)
        table.add_column(
            Text(heading),
            justify="right" if numbers else "left",
            overflow="fold",
            max_width=WIDEST,
        )
    rows = [names, *(cells for _, cells in columns)]
    for row in zip(*rows, strict=True):
        table.add_row(*map(Text, row))
    return table


def _show(value):
    """A setting's value on one line, lists with commas between."""
    if isinstance(value, list):
        return ", ".join(map(_show, value))
    if value is None or isinstance(value, bool):
        return json.dumps(value)  # as YAML writes it, and --set takes it
    return printable(str(value))
