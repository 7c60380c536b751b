"""Progress fits a terminal of 80 columns, and is plain lines elsewhere."""

import io
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

from tfxformer import console
from tfxformer.console import Progress

LONGEST = {
    "loss": 10.21,
    "learning_rate": 0.00012345,
    "target_tokens_per_second": 123456.7,
    "masked_accuracy": 0.5678,
    "perplexity": 12345.678,
    "gradient_norm": 1.5,
}


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 1000.0

    monkeypatch.setattr(console.time, "monotonic", lambda: Clock.now)
    return Clock


def started(monkeypatch, width=80, terminal=True):
    file = io.StringIO()
    shown = Console(file=file, width=width, force_terminal=terminal, highlight=False)
    monkeypatch.setattr(console, "console", shown)
    return file


def screen(file):
    """The last line that a terminal shows."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", file.getvalue())
    return re.split(r"[\r\n]", text.strip())[-1]


@pytest.mark.parametrize("total", [800, 20_000, 300_000])
def test_what_matters_fits_80_columns(monkeypatch, clock, total):
    file = started(monkeypatch)
    with Progress("training", total, done=total // 2 - 2) as progress:
        for done in (total // 2 - 1, total // 2):
            progress.update(done, **LONGEST)
            clock.now += 86_400 * 3.2 / total  # 1.6 days are left
    line = screen(file)
    assert cell_len(line) <= 80 and "\n" not in line
    shown = f"{total // 2}/{total} 1d 14:2"
    assert line.startswith("training ") and shown in line
    assert "loss 10.21 lr 1.2e-04 123,457 tokens/s" in line and "…" not in line


def test_a_narrow_terminal_leaves_out_the_last_values(monkeypatch, clock):
    file = started(monkeypatch, width=52)
    with Progress("training", 100) as progress:
        progress.update(1, **LONGEST)
    assert cell_len(screen(file)) <= 52
    assert screen(file).endswith(" 1/100 -:--:-- loss 10.21")
    file = started(monkeypatch, width=200)
    with Progress("training", 100) as progress:
        progress.update(1, **LONGEST)
    assert screen(file).endswith("accuracy 0.57 perplexity 12,346 gradient norm 1.50")


def test_elsewhere_a_line_now_and_then(monkeypatch, clock):
    file = started(monkeypatch, terminal=False)
    with Progress("training", 20_000, done=1000) as progress:
        for done in range(1001, 1101):
            progress.update(done, **LONGEST)
            clock.now += 1
    lines = file.getvalue().splitlines()
    assert len(lines) == 6  # every 15 seconds and something
    # A step a second: what was done before this session does not count.
    assert lines[0] == (
        "training 1,017/20,000, 5:16:23 left, loss 10.21, lr 1.2e-04, "
        "123,457 tokens/s, accuracy 0.57, perplexity 12,346, gradient norm 1.50"
    )


def test_text_is_one_line_and_changes_no_terminal():
    odd = "a\tb\nc\x1b[2J\u2028\u202e\udcff\x00"
    shown = console.printable(odd)
    assert shown == r"a\tb\nc\x1b[2J\u2028\u202e\udcff\x00" and shown.isprintable()
    assert console.printable("▁olá 汉字 مرحبا 😀") == "▁olá 汉字 مرحبا 😀"
