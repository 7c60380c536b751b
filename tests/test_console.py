"""TensorFlow's messages are hidden."""

import io
import os
import subprocess
import sys
import textwrap

import pytest
from rich.console import Console

from tfxformer import console


def run(code, **environment):
    """Runs Python code in a new process."""
    script = "import os, sys\nfrom tfxformer.console import *\n" + textwrap.dedent(code)
    kept = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        env={**kept, **environment},
    )


def test_quiet_stderr_hides_output_unless_its_body_raises():
    # Text without a newline waits in a buffer, and must appear in the right place.
    done = run("""
        sys.stderr.write("before ")
        with quiet_stderr():
            os.write(2, b"from C ")
            sys.stderr.write("from Python")
            print("answer")
        sys.stderr.write("after ")
        try:
            with quiet_stderr():
                os.write(2, b"from C ")
                raise ValueError
        except ValueError:
            sys.stderr.write("caught")
    """)
    assert (done.stdout, done.stderr) == ("answer\n", "before after from C caught")


@pytest.mark.parametrize("terminal", [True, False])
def test_watched_lines_shows_its_progress_only_in_a_terminal(
    tmp_path, monkeypatch, terminal
):
    shown = io.StringIO()
    monkeypatch.setattr(
        console, "console", Console(file=shown, force_terminal=terminal)
    )
    (tmp_path / "lines.txt").write_bytes(b"um\ndois\n")
    with open(tmp_path / "lines.txt", "rb") as stream:
        assert [*console.watched_lines(stream)] == [b"um\n", b"dois\n"]
    assert ("translating" in shown.getvalue()) is terminal


@pytest.mark.slow
@pytest.mark.parametrize(("level", "quiet"), [("3", True), ("0", False)])
@pytest.mark.parametrize(
    "code", ["start_tensorflow()", "import tfxformer; tfxformer.Translator"]
)
def test_tensorflow_starts_silently_unless_tf_cpp_min_log_level_is_0(
    code, level, quiet
):
    done = run(code, TF_CPP_MIN_LOG_LEVEL=level)
    assert done.returncode == 0
    assert (done.stderr == "") == quiet
