"""Verification that TensorFlow Serving can run a SavedModel, ours or any other.

`tf.saved_model.load` rebuilds Python objects, but TensorFlow Serving loads the graph
into a session, so success with the former proves nothing. `verify` works like the
server: a fresh process, with TensorFlow, TensorFlow Text and no model code, loads the
SavedModel into a session and runs every signature. Our models run on recorded examples,
others on small made-up inputs. A session accepts functions that need XLA, which the
server refuses, so the process also looks for these.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tfxformer.repository import EXAMPLES_FILE, find_saved_model, read_records

TIMEOUT = 600  # seconds until the process that loads and runs a model is stopped
TOLERANCE = 1e-4  # absolute, for floats: another process may sum in another order
# Ops that XLA always compiles; jax2tf writes the first.
XLA_OPS = {"XlaCallModule", "XlaLaunch", "XlaLaunchV2"}
# Sizes for the open dimensions of a signature: the first is the batch; the others try
# one size after another, because a model may need a minimum.
BATCH, SIZES = 2, (8, 1, 16, 64)
# Hints for common errors, by a part of their message.
HINTS = {
    "Could not find variable": "The variable was saved twice and the function captured "
    "the copy that is never restored, as tf.saved_model.save does with a tf.Module "
    "around a Keras 3 model; export with model.export() or keras.export.ExportArchive",
    "pyfunc_": "It calls Python, which the server does not have: use TensorFlow ops",
}


class Report(NamedTuple):
    """The result of `verify`.

    Attributes:
        path: the SavedModel's folder.
        ok: whether every check passed.
        lines: a line for each check, with "ok" or "FAIL" first, and for other findings
            such as the signatures. The last line is the verdict.
    """

    path: Path
    ok: bool
    lines: list

    def describe(self):
        """The report as text."""
        return "\n".join([f"SavedModel {self.path}", *self.lines])


def verify(path):
    """Checks whether TensorFlow Serving can run a SavedModel.

    Args:
        path: the SavedModel's folder, or a model's folder of numbered versions (the
            newest counts, as in the server).

    Returns:
        The `Report`; ``report.ok`` is the answer.

    Raises:
        UserError: there is no SavedModel.
    """
    started = time.perf_counter()
    path = find_saved_model(path)
    end = ""
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__, path],
            # Another process may hold the accelerator's memory.
            env=os.environ | {"CUDA_VISIBLE_DEVICES": "-1", "PYTHONUTF8": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT,
        )
        if code := done.returncode:
            name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            end = f"crashed ({name})"
    except subprocess.TimeoutExpired as stopped:
        done, end = stopped, f"gave no answer within {TIMEOUT} s and was stopped"
    lines = (done.stdout or b"").decode(errors="replace").splitlines()
    if end:
        *_, last = "", *(done.stderr or b"").decode(errors="replace").splitlines()
        lines.append(f"FAIL  process: it {end} while the next check ran: {last}")
    failed = sum(line.startswith("FAIL") for line in lines)
    verdict = "SERVES: it runs in a TensorFlow session in a fresh process"
    if failed:
        verdict = f"NOT PROVEN TO SERVE: {failed} check{'s' * (failed > 1)} failed"
    lines.append(f"{verdict} ({time.perf_counter() - started:.1f} s)")
    return Report(path, not failed, lines)


# --- In the fresh process ---


def inspect(folder):
    """Yields the lines of the report as they become known."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  (registers its ops)

    try:
        examples = read_records(Path(folder, EXAMPLES_FILE))
        session = tf.compat.v1.Session(graph=tf.Graph())
        with session.graph.as_default():
            model = tf.compat.v1.saved_model.load(session, ["serve"], str(folder))
    except Exception as error:  # any error means that the model does not load
        yield f"FAIL  load: {_explain(error)}"
        return
    yield "ok    load: into a TensorFlow session, in a fresh process"
    yield _check_xla(model.graph_def)
    # The others are the loader's own.
    signatures = [x for x in sorted(model.signature_def) if x[:8] != "__saved_"]
    if not signatures:
        yield "FAIL  run: the model has no signature to call"
    find = session.graph.get_tensor_by_name
    for name in signatures:
        signature = model.signature_def[name]
        inputs = {key: find(x.name) for key, x in sorted(signature.inputs.items())}
        outputs = {key: find(x.name) for key, x in sorted(signature.outputs.items())}
        yield f"  {name}({_describe(inputs)}) -> {_describe(outputs)}"

        def run(given, inputs=inputs, outputs=outputs):
            return session.run(outputs, {x: given[key] for key, x in inputs.items()})

        recorded = [sides for signature, *sides in examples if signature == name]
        try:
            done = _run_examples(run, recorded) if recorded else _run_any(run, inputs)
            yield f"ok    run {name}: {done}"
        except Exception as error:  # any error means that the signature does not run
            yield f"FAIL  run {name}: {_explain(error)}"


def _describe(tensors):
    """A signature's tensors, or arrays: name, type and shape."""
    return ", ".join(f"{name}: {x.dtype.name} {x.shape}" for name, x in tensors.items())


def _check_xla(graph_def):
    """Looks for functions and ops that need XLA."""
    functions = graph_def.library.function
    nodes = [*graph_def.node, *(node for f in functions for node in f.node_def)]
    compiled = {x.op for x in nodes if x.attr["_XlaMustCompile"].b or x.op in XLA_OPS}
    compiled |= {f.signature.name for f in functions if f.attr["_XlaMustCompile"].b}
    if not compiled:
        return "ok    xla: nothing needs XLA"
    return (
        f"FAIL  xla: XLA must compile {', '.join(sorted(compiled))}: start the server "
        "with --xla_cpu_compilation_enabled=true (on a GPU "
        "--xla_gpu_compilation_enabled=true; both experimental), or it refuses"
    )


def _run_examples(run, recorded):
    """Runs a signature on its recorded inputs and compares its answers."""
    for number, (inputs, expected) in enumerate(recorded, start=1):
        got = run(inputs)
        for output, array in expected.items():
            _assert_same(got[output], array, f"example {number}, output {output}")
    return f"{len(recorded)} recorded examples gave the same answers"


def _assert_same(got, expected, place=""):
    """Compares floats within `TOLERANCE`, and everything else exactly."""
    got = np.asarray(got, expected.dtype)  # NumPy's own strings would drop NULs
    if expected.dtype.kind == "f":
        close = {"rtol": 0, "atol": TOLERANCE, "err_msg": place}
        np.testing.assert_allclose(got, expected, **close, strict=True)
    else:
        np.testing.assert_array_equal(got, expected, place, strict=True)


def _run_any(run, inputs):
    """Runs a signature on small inputs, with several sizes of open dimensions."""
    failure = None
    for size in SIZES:
        given = {name: _made_up(x.dtype, x.shape, size) for name, x in inputs.items()}
        try:
            got = {name: np.asarray(value) for name, value in run(given).items()}
            return f"({_describe(given)}) -> {_describe(got)}"
        except Exception as error:  # another size may run
            failure = failure or error
    raise ValueError(f"not proven on made-up inputs: {_explain(failure)}")


def _made_up(dtype, shape, size):
    """An array for an input: ones, or the text "hello"."""
    dims = [None] if shape.rank is None else shape.as_list()
    dims = [(size if i else BATCH) if d is None else d for i, d in enumerate(dims)]
    if dtype.name == "string":
        return np.full(dims, b"hello", dtype=object)
    return np.ones(dims, dtype.as_numpy_dtype)


def _explain(error):
    """An error in one line, with a hint for common errors."""
    message = str(getattr(error, "message", error))
    kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
    line = " ".join(message.replace("Graph execution error:", "").split())
    hints = [hint for sign, hint in HINTS.items() if sign in message]
    return " ".join([f"{kind}{line[:300]}", *hints])


if __name__ == "__main__":
    for finding in inspect(sys.argv[1]):
        print(finding, flush=True)
