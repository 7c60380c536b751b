"""TensorFlow's messages are hidden."""

import os
import subprocess
import sys
import textwrap

import pytest


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


def test_output_is_held_back_unless_the_body_raises():
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


@pytest.mark.slow
@pytest.mark.parametrize(("level", "quiet"), [("3", True), ("0", False)])
def test_tensorflow_starts_without_a_word_unless_it_is_asked(level, quiet):
    done = run("start_tensorflow()", TF_CPP_MIN_LOG_LEVEL=level)
    assert done.returncode == 0
    assert (done.stderr == "") == quiet
