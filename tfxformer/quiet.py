"""Starts TensorFlow quickly, and without its notes to its own developers."""

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
    try:
        sys.stderr.flush()
        kept = os.dup(2)
    except (AttributeError, OSError):  # standard error is closed
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


def start_tensorflow():
    """Imports Keras on TensorFlow, and lets TensorFlow find its devices.

    ``TF_CPP_MIN_LOG_LEVEL=0`` in the environment shows TensorFlow's notes.

    Raises:
        UserError: when ``KERAS_BACKEND`` names another backend.
    """
    # What the environment says goes before what Keras's own settings file says.
    backend = os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    if backend != "tensorflow":
        raise UserError(
            f"tfxformer runs on TensorFlow: set KERAS_BACKEND=tensorflow, not {backend}"
        )
    wordy = os.environ.get("TF_CPP_MIN_LOG_LEVEL") == "0"
    with _interrupts_kept(), contextlib.nullcontext() if wordy else quiet_stderr():
        # Nothing made here is garbage: collecting takes a quarter of the time.
        gc.disable()
        try:
            import keras  # noqa: F401
            import tensorflow as tf

            # Workers of one cluster must meet before TensorFlow begins.
            if not os.environ.get("TF_CONFIG"):
                tf.zeros(())  # starts the runtime, which has notes of its own
        finally:
            gc.enable()
    gc.freeze()  # what has been imported stays: no need to look at it ever again
