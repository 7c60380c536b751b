"""What is held back is shown if need be, and standard error comes back whole."""

import os
import subprocess
import sys
import textwrap

import pytest

from tfxformer.quiet import quiet_stderr


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
    done = run("""
        os.write(2, b"before ")
        with quiet_stderr():
            os.write(2, b"from C ")
            print("from Python", file=sys.stderr)
            os.system("echo from another process >&2")
        os.write(2, b"after")
    """)
    assert (done.returncode, done.stderr) == (0, "before after")


def test_python_s_own_buffer_keeps_its_side():
    # Without a line's end, text waits in a buffer: it must land where it was written.
    done = run("""
        sys.stderr.write("before ")
        with quiet_stderr():
            sys.stderr.write("inside ")
        sys.stderr.write("after")
    """)
    assert (done.returncode, done.stderr) == (0, "before after")


def test_standard_output_is_left_alone():
    done = run("""
        with quiet_stderr():
            print("out")
            os.write(1, b"put")
    """)
    assert sorted(done.stdout.split()) == ["out", "put"]


@pytest.mark.parametrize("error", ["ValueError('bad')", "SystemExit(3)"])
def test_output_is_shown_when_the_body_raises(error):
    done = run(f"""
        try:
            with quiet_stderr():
                os.write(2, b"from C \\xff\\n")
                sys.stderr.write("from Python\\n")
                raise {error}
        except BaseException as caught:
            os.write(2, type(caught).__name__.encode())
    """)
    lines = done.stderr.splitlines()
    assert sorted(lines[:2]) == ["from C \ufffd", "from Python"]
    assert lines[2:] == [error.split("(")[0]]


def test_output_stays_back_after_ctrl_c():
    done = run("""
        try:
            with quiet_stderr():
                os.write(2, b"from C ")
                raise KeyboardInterrupt
        except KeyboardInterrupt:
            os.write(2, b"caught")
    """)
    assert done.stderr == "caught"


def test_ctrl_c_that_an_import_loses_comes_later(tmp_path):
    lost = """
        import os, signal
        try:
            os.kill(os.getpid(), signal.SIGINT)
            raise SystemExit("no signal came")
        except KeyboardInterrupt:
            pass
    """
    (tmp_path / "keras.py").write_text(textwrap.dedent(lost))
    done = run(
        f"""
        sys.path.insert(0, {str(tmp_path)!r})
        try:
            start_tensorflow()
        except KeyboardInterrupt:
            os.write(2, b"caught")
    """,
        TF_CPP_MIN_LOG_LEVEL="0",
    )
    assert done.stderr == "caught"


def test_an_import_s_objects_are_not_collected(tmp_path):
    (tmp_path / "keras.py").write_text("import gc\ncollected = gc.isenabled()\n")
    done = run(
        f"""
        import gc
        sys.path.insert(0, {str(tmp_path)!r})
        start_tensorflow()
        import keras
        print(keras.collected, gc.isenabled(), gc.get_freeze_count() > 0)
    """,
        TF_CPP_MIN_LOG_LEVEL="0",
    )
    assert done.stdout == "False True True\n"


def test_an_error_that_nobody_catches_has_its_traceback():
    done = run("""
        with quiet_stderr():
            os.write(2, b"a hint from C\\n")
            raise ValueError("bad")
    """)
    assert done.returncode == 1
    assert done.stderr.startswith("a hint from C\nTraceback")
    assert done.stderr.endswith("ValueError: bad\n")


def test_nested():
    done = run("""
        with quiet_stderr():
            os.write(2, b"outer ")
            with quiet_stderr():
                os.write(2, b"inner ")
            try:
                with quiet_stderr():
                    os.write(2, b"raised ")
                    raise ValueError
            except ValueError:
                pass
            os.write(2, b"outer ")
        os.write(2, b"after")
    """)
    assert (done.returncode, done.stderr) == (0, "after")
    done = run("""
        try:
            with quiet_stderr():
                with quiet_stderr():
                    os.write(2, b"inner ")
                os.write(2, b"outer ")
                raise ValueError
        except ValueError:
            os.write(2, b"after")
    """)
    assert (done.returncode, done.stderr) == (0, "outer after")


def test_no_file_is_left_open():
    def opened():
        return len(os.listdir("/proc/self/fd"))

    before = opened()
    for _ in range(5):
        with quiet_stderr():
            os.write(2, b"nothing\n")
        with pytest.raises(ValueError), quiet_stderr():
            raise ValueError
    assert opened() == before


def test_a_lot_of_output_is_held():
    done = run("""
        with quiet_stderr():
            for _ in range(100):
                os.write(2, b"x" * 100_000)
    """)
    assert (done.returncode, done.stderr) == (0, "")


def test_standard_error_closed_by_the_program():
    done = run("""
        os.close(2)
        with quiet_stderr():
            print("inside")
        print("after")
    """)
    assert done.stdout.split() == ["inside", "after"]


def test_standard_error_closed_from_the_start():
    # Python has no sys.stderr then.
    done = run(
        """
        with quiet_stderr():
            print("inside")
        print("after")
        """,
        redirect="2>&-",
    )
    assert done.stdout.split() == ["inside", "after"] and done.returncode == 0


def test_standard_error_that_is_not_a_file():
    # As in a notebook or under a test runner that captures.
    done = run("""
        import io
        sys.stderr = io.StringIO()
        with quiet_stderr():
            sys.stderr.write("to the notebook")
            os.write(2, b"from C")
        print(sys.stderr.getvalue())
    """)
    assert (done.stdout, done.stderr) == ("to the notebook\n", "")


@pytest.mark.slow
def test_tensorflow_starts_without_a_word():
    done = run("""
        start_tensorflow()
        assert "tensorflow" in sys.modules
        import tensorflow as tf
        import tfxformer.tokenizer
        tf.random.uniform((2, 2)) @ tf.ones((2, 2))
        os.write(2, b"still here")
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "still here")


@pytest.mark.slow
def test_tensorflow_s_notes_can_be_asked_for():
    done = run(
        """
        start_tensorflow()
        import tensorflow as tf
        tf.zeros(())
        """,
        TF_CPP_MIN_LOG_LEVEL="0",
    )
    assert done.returncode == 0 and done.stderr
