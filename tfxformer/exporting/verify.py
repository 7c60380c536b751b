"""The proof that a SavedModel serves: ours, or a Keras model that someone else wrote.

`tf.saved_model.load` rebuilds Python objects, so what it accepts proves nothing about
TensorFlow Serving, which loads the graph into a session. `verify` does what the server
does: a fresh process, with TensorFlow and TensorFlow Text and no model code, loads the
SavedModel into a session and runs every signature. Our exports carry examples, which
must have the recorded answers; any other model runs on a small made-up input. A session
compiles with XLA without a word where the server refuses, so the same process also
looks for functions that demand XLA.
"""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tfxformer.errors import UserError
from tfxformer.exporting.repository import (
    EXAMPLES_FILE,
    find_saved_model,
    read_records,
)

TIMEOUT = 600  # seconds until the process that loads and runs a model is stopped
TOLERANCE = 1e-4  # absolute, for floats: another process may sum in another order
# Ops that XLA compiles whatever their function says; jax2tf writes the first.
XLA_OPS = {"XlaCallModule", "XlaLaunch", "XlaLaunchV2"}
# Sizes of the dimensions that a signature leaves open: the first is the batch; the
# others try one size after another, because a model may need at least so many.
BATCH, SIZES = 2, (8, 1, 16, 64)


@dataclass(frozen=True)
class Check:
    """One thing that `verify` looked at, whether it is as it must be, and a line."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True)
class Report:
    """What `verify` found.

    Attributes:
        path: the SavedModel's folder.
        checks: the `Check` of each thing that it looked at, in order.
        notes: lines worth knowing that are no failure: the signatures, for one.
        seconds: how long it took.

    Example:
        >>> report = Report("export/pt_en/1", [Check("load", True, "in time")])
        >>> print(report.describe())
        SavedModel export/pt_en/1
        ok    load: in time
        SERVES: a TensorFlow session, in a fresh process, runs it (0.0 s)
    """

    path: Path
    checks: list
    notes: tuple = ()
    seconds: float = 0.0

    @property
    def failed(self):
        """The checks that failed."""
        return [check for check in self.checks if not check.ok]

    @property
    def ok(self):
        """Whether every check passed."""
        return not self.failed

    def describe(self):
        """The report as lines of text, the verdict last."""
        checks = [
            f"{'ok  ' if check.ok else 'FAIL'}  {check.name}: {check.detail}"
            for check in self.checks
        ]
        verdict = "SERVES: a TensorFlow session, in a fresh process, runs it"
        if not self.ok:
            count = f"{len(self.failed)} of {len(checks)} checks failed"
            verdict = f"NOT PROVEN TO SERVE: {count}"
        lines = [f"SavedModel {self.path}", *self.notes, *checks]
        return "\n".join([*lines, f"{verdict} ({self.seconds:.1f} s)"])


def verify(path, *, allow_xla=False):
    """Finds out whether TensorFlow Serving will run a SavedModel.

    Args:
        path: the SavedModel's folder, or a model's folder of numbered versions, whose
            newest is taken, as the server does.
        allow_xla: let signatures demand XLA; the report then only names the flag that
            the server must be started with.

    Returns:
        The `Report`; ``report.ok`` is the answer.

    Raises:
        UserError: when there is no SavedModel to look at.

    Example:
        >>> verify("nowhere")
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: nowhere: there is no such folder
    """
    started = time.perf_counter()
    path = find_saved_model(path)
    notes, death = [], ""
    if not path.resolve().name.isdecimal():
        notes.append("a server mounts numbered versions: put this in NAME/1/")
    code = "import sys; from tfxformer.exporting.verify import child; child(*sys.argv)"
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, path, "xla" * allow_xla],
            # A trainer beside us may hold the accelerator's memory.
            env=os.environ | {"CUDA_VISIBLE_DEVICES": "-1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT,
        )
        status = done.returncode
        if status:
            name = signal.Signals(-status).name if status < 0 else f"exit {status}"
            death = f"crashed ({name})"
    except subprocess.TimeoutExpired as stopped:
        done, death = stopped, f"gave no answer within {TIMEOUT} s and was stopped"
    findings = [json.loads(line) for line in (done.stdout or b"").splitlines()]
    notes += [finding for finding in findings if isinstance(finding, str)]
    checks = [Check(*finding) for finding in findings if isinstance(finding, list)]
    if death:
        *_, last = "", *(done.stderr or b"").decode(errors="replace").splitlines()
        detail = f"it {death} while the next check ran: {_line(last)}"
        checks.append(Check("process", False, detail))
    return Report(path, checks, notes, time.perf_counter() - started)


# --- What the fresh process runs ---


def child(_, folder, allow_xla):
    """Prints what `inspect` finds, line by line, for `verify`."""
    for finding in inspect(folder, bool(allow_xla)):
        print(json.dumps(finding), flush=True)


def inspect(folder, allow_xla):
    """Yields notes, which are strings, and the values of each `Check`."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  (registers its ops)

    file = Path(folder, EXAMPLES_FILE)
    try:
        examples = read_records(file) if file.exists() else None  # not ours
    except UserError as error:
        yield "examples", False, str(error)
        return
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        try:
            meta_graph = tf.compat.v1.saved_model.load(session, ["serve"], folder)
        except Exception as error:  # whatever it is, the model does not load
            yield "load", False, _explain(error)
            return
        yield "load", True, "into a TensorFlow session, in a fresh process"
        signatures = {
            name: signature
            for name, signature in sorted(meta_graph.signature_def.items())
            if not name.startswith("__saved_model_")  # the loader's own
        }
        for name, signature in signatures.items():
            given, got = map(_describe, (signature.inputs, signature.outputs))
            yield f"  {name}({given}) -> {got}"
        yield "xla", *_check_xla(meta_graph.graph_def, allow_xla)
        if not signatures:
            yield "run", False, "the model has no signature to call"
        for name, signature in signatures.items():
            try:
                if examples is None:
                    detail = _run_made_up(session, signature)
                else:
                    detail = _run_examples(session, signature, name, examples)
                yield f"run {name}", True, detail
            except Exception as error:  # whatever it is, the signature does not run
                yield f"run {name}", False, _explain(error)


def _describe(infos):
    """A signature's tensors: name, type and shape."""
    import tensorflow as tf

    shapes = {name: tf.TensorShape(infos[name].tensor_shape) for name in sorted(infos)}
    return ", ".join(
        f"{name}: {tf.as_dtype(infos[name].dtype).name} {shape}".replace("None", "?")
        for name, shape in shapes.items()
    )


def _check_xla(graph_def, allow_xla):
    """Looks for functions and ops that XLA must compile."""
    functions = graph_def.library.function
    nodes = [*graph_def.node, *(node for f in functions for node in f.node_def)]
    found = {node.op for node in nodes if node.attr["_XlaMustCompile"].b}
    found |= {node.op for node in nodes} & XLA_OPS
    found |= {f.signature.name for f in functions if f.attr["_XlaMustCompile"].b}
    if not found:
        return True, "nothing demands XLA"
    return (
        allow_xla,
        f"XLA must compile {', '.join(sorted(found))}: a server refuses, unless it is "
        "started with --xla_cpu_compilation_enabled=true (on a GPU "
        "--xla_gpu_compilation_enabled=true; both experimental)",
    )


def _run(session, signature, inputs):
    """A signature's outputs by name."""
    feeds = {info.name: inputs[name] for name, info in signature.inputs.items()}
    fetches = {name: info.name for name, info in signature.outputs.items()}
    return session.run(fetches, feeds)


def _run_made_up(session, signature):
    """Runs a signature on small inputs, one try per size of the open dimensions."""
    first = None
    for size in SIZES:
        inputs = {name: _made_up(x, size) for name, x in signature.inputs.items()}
        try:
            outputs = _run(session, signature, inputs)
        except Exception as error:  # another size may run
            first = first or error
            continue
        given, got = (
            ", ".join(f"{name} {list(np.shape(x))}" for name, x in found.items())
            for found in (inputs, outputs)
        )
        return f"{given or 'nothing'} gave {got}"
    raise ValueError(f"not proven on made-up inputs: {_explain(first)}")


def _made_up(info, size):
    """An array for an input: the text "hello", ones, halves or False."""
    import tensorflow as tf

    shape, dtype = tf.TensorShape(info.tensor_shape), tf.as_dtype(info.dtype)
    dims = [None] if shape.rank is None else shape.as_list()
    dims = [(size if i else BATCH) if d is None else d for i, d in enumerate(dims)]
    if dtype == tf.string:
        return np.full(dims, b"hello", dtype=object)
    value = False if dtype.is_bool else 1 if dtype.is_integer else 0.5
    return np.full(dims, value).astype(dtype.as_numpy_dtype)


def _run_examples(session, signature, name, examples):
    """Runs a signature on its recorded inputs and compares the answers."""
    import tensorflow as tf

    logs = [log for log in examples if log.request.model_spec.signature_name == name]
    if not logs:
        raise ValueError("it has no recorded example")
    for number, log in enumerate(logs, start=1):
        inputs, expected = (
            {name: tf.make_ndarray(proto) for name, proto in protos.items()}
            for protos in (log.request.inputs, log.response.outputs)
        )
        outputs = _run(session, signature, inputs)
        if outputs.keys() != expected.keys():
            raise ValueError(f"example {number} answers {', '.join(sorted(expected))}")
        for output, got in outputs.items():
            try:
                _assert_same(got, expected[output])
            except AssertionError as error:
                place = f"example {number}, output {output}"
                raise ValueError(f"{place}: {error}") from None
    return f"{len(logs)} recorded example{'s' * (len(logs) > 1)} answered alike"


def _assert_same(got, expected):
    """Lets floats differ by `TOLERANCE`, and all else not at all."""
    got = np.asarray(got, expected.dtype)  # NumPy's own strings would lose NULs
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(got, expected, rtol=0, atol=TOLERANCE, strict=True)
    else:
        np.testing.assert_array_equal(got, expected, strict=True)


def _explain(error):
    """One line on an error, and what to do about those that many people meet."""
    message = getattr(error, "message", str(error))
    kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
    if "Could not find variable" in message:
        return (
            f"{kind}{_line(message, 100)} The variable was saved twice and the "
            "function captured the copy that is never restored, which is what "
            "tf.saved_model.save makes of a tf.Module around a Keras 3 model; export "
            "with model.export() or keras.export.ExportArchive"
        )
    line = f"{kind}{_line(message)}"
    if "pyfunc_" in message:
        line += " It calls Python, which the server lacks: use TensorFlow's ops instead"
    return line


def _line(text, limit=300):
    text = " ".join(str(text).replace("Graph execution error:", "").split())
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
