"""What is held back is shown if need be, and standard error comes back whole."""

import os
import subprocess
import sys
import textwrap

import pytest

from tfxformer.quiet import quiet_stderr

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
    script = "import os, sys\nfrom tfxformer.quiet import *\n" + textwrap.dedent(code)
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


@pytest.fixture
def stubs(tmp_path):
    """Modules in place of Keras and TensorFlow, which take seconds to import."""

    def stubs(code):
        (tmp_path / "keras.py").write_text(textwrap.dedent(code))
        (tmp_path / "tensorflow.py").write_text("zeros = print")
        return f"sys.path.insert(0, {str(tmp_path)!r})\n"

    return stubs


def test_ctrl_c_that_an_import_loses_comes_later(stubs):
    lost = stubs("""
        import os, signal
        try:
            os.kill(os.getpid(), signal.SIGINT)
            raise SystemExit("no signal came")
        except KeyboardInterrupt:
            pass
    """)
    caught = 'try: start_tensorflow()\nexcept KeyboardInterrupt: os.write(2, b"caught")'
    assert run(lost + caught).stderr == "caught"


def test_what_is_imported_is_never_collected(stubs):
    code = stubs("import gc\ncollected = gc.isenabled()\n")
    code += "start_tensorflow()\nimport gc, keras\n"
    code += "print(keras.collected, gc.isenabled(), gc.get_freeze_count() > 0)"
    assert run(code).stdout == "()\nFalse True True\n"


@pytest.mark.slow
@pytest.mark.parametrize(("level", "quiet"), [("3", True), ("0", False)])
def test_tensorflow_starts_without_a_word_unless_it_is_asked(level, quiet):
    done = run("start_tensorflow()", TF_CPP_MIN_LOG_LEVEL=level)
    assert done.returncode == 0
    assert (done.stderr == "") == quiet
