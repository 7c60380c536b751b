"""Keeps TensorFlow's start-up notes out of the program's own output."""

import contextlib
import gc
import os
import signal
import sys
import tempfile
import threading

from tfxformer.errors import UserError


@contextlib.contextmanager
def quiet_stderr():
    """Holds back what is written to standard error, from C++ too.

    It is shown after all if the body raises, unless Ctrl-C ended it.
    """
    if sys.stderr is None:  # Python found it closed
        yield
        return
    sys.stderr.flush()
    try:
        kept = os.dup(2)
    except OSError:  # standard error is closed: nothing to keep quiet
        yield
        return
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        except KeyboardInterrupt:
            raise
        except BaseException:
            os.dup2(kept, 2)
            held.seek(0)
            sys.stderr.write(held.read().decode(errors="replace"))
            raise
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)


@contextlib.contextmanager
def _interrupts_kept():
    """Raises Ctrl-C again in the end: TensorFlow's import loses one in seven."""
    if threading.current_thread() is not threading.main_thread():
        yield  # where Python handles no signals
        return
    caught = []

    def interrupt(*_):
        caught.append(True)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if caught:
        raise KeyboardInterrupt


@contextlib.contextmanager
def nothing_collected():
    """Rests the garbage collector while much is made that stays: a quarter of the time.

    Example:
        >>> with nothing_collected():
        ...     gc.isenabled()
        False
    """
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


@_interrupts_kept()
@nothing_collected()
def start_tensorflow():
    """Imports Keras on TensorFlow, without TensorFlow's start-up notes.

    Raises:
        UserError: when ``KERAS_BACKEND`` names another backend.
    """
    # What the environment says goes before what Keras's own settings file says.
    backend = os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    if backend != "tensorflow":
        raise UserError(
            f"tfxformer runs on TensorFlow: set KERAS_BACKEND=tensorflow, not {backend}"
        )
    with quiet_stderr():
        import keras  # noqa: F401
    _start_devices()
    gc.freeze()  # what has been imported stays: no need to look at it ever again


def _start_devices():
    """Lets TensorFlow find its devices, without its start-up notes.

    It notes which CPU instructions it has and which GPU libraries it misses, some
    of it before any log level is read. ``TF_CPP_MIN_LOG_LEVEL=0`` in the
    environment shows everything.
    """
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL") == "0":
        return
    with quiet_stderr():
        import tensorflow as tf

        if os.environ.get("TF_CONFIG"):  # to be met before TensorFlow begins
            return
        tf.config.list_physical_devices()
        tf.zeros(())  # starts the runtime, which has notes of its own
