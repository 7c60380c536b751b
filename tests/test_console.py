"""Progress fits a terminal or is plain lines; TensorFlow's own notes are held back."""

import io
import os
import re
import subprocess
import sys
import textwrap

import pytest
from rich.cells import cell_len
from rich.console import Console

from tfxformer import console
from tfxformer.console import Progress, quiet_stderr

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


# --- TensorFlow's notes ---

RAISE = """
    try:
        with quiet_stderr():
            os.write(2, b"from C \\xff\\n")
            raise {}
    except BaseException as caught:
        os.write(2, type(caught).__name__.encode())
"""


def run(code, redirect="", **environment):
    """Runs Python code in a process of its own, through a shell."""
    script = "import os, sys\nfrom tfxformer.console import *\n" + textwrap.dedent(code)
    kept = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    return subprocess.run(
        ["bash", "-c", f'"$0" -c "$1" {redirect}', sys.executable, script],
        capture_output=True,
        text=True,
        timeout=120,
        env={**kept, **environment},
    )


def test_output_is_held_back_and_comes_back_after():
    # Text without a line's end waits in a buffer: it must land where it was written.
    done = run("""
        sys.stderr.write("before ")
        with quiet_stderr():
            os.write(2, b"from C ")
            sys.stderr.write("from Python")
            os.system("echo from another process >&2")
            print("answer")
            with quiet_stderr():
                os.write(2, b"x" * 1_000_000)
        sys.stderr.write("after")
    """)
    assert (done.returncode, done.stderr) == (0, "before after")
    assert done.stdout == "answer\n"


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        ("ValueError('bad')", "from C \ufffd\nValueError"),
        ("SystemExit(3)", "from C \ufffd\nSystemExit"),
        ("KeyboardInterrupt", "KeyboardInterrupt"),
    ],
)
def test_output_is_shown_when_the_body_raises(error, shown):
    assert run(RAISE.format(error)).stderr == shown


@pytest.mark.parametrize("redirect", ["", "2>&-"])
def test_standard_error_that_is_closed(redirect):
    done = run(
        'os.close(2) if sys.stderr else 0\nwith quiet_stderr(): print("in")', redirect
    )
    assert (done.returncode, done.stdout) == (0, "in\n")


def test_no_file_is_left_open():
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(ValueError), quiet_stderr():
            raise ValueError
    assert len(os.listdir("/proc/self/fd")) == before


def test_ctrl_c_that_an_import_loses_comes_later(tmp_path):
    (tmp_path / "tensorflow.py").write_text("zeros = print")
    (tmp_path / "keras.py").write_text(
        "import os, signal\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    raise SystemExit('no signal came')\n"
        "except KeyboardInterrupt: pass\n"
    )
    code = f"sys.path.insert(0, {str(tmp_path)!r})\n"
    code += 'try: start_tensorflow()\nexcept KeyboardInterrupt: os.write(2, b"caught")'
    assert run(code).stderr == "caught"


@pytest.mark.slow
@pytest.mark.parametrize(("level", "quiet"), [("3", True), ("0", False)])
def test_tensorflow_starts_without_a_word_unless_it_is_asked(level, quiet):
    done = run("start_tensorflow()", TF_CPP_MIN_LOG_LEVEL=level)
    assert done.returncode == 0
    assert (done.stderr == "") == quiet
