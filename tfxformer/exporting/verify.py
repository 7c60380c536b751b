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
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tfxformer.errors import UserError
from tfxformer.exporting.metadata import EXAMPLES_FILE, read_records
from tfxformer.exporting.repository import find_saved_model

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


@dataclass
class Report:
    """What `verify` found.

    Attributes:
        path: the SavedModel's folder.
        checks: the `Check` of each thing that it looked at, in order.
        notes: lines worth knowing that are no failure: the signatures, for one.
        seconds: how long it took.

    Example:
        >>> report = Report(Path("export/pt_en/1"), [Check("load", True, "in time")])
        >>> print(report.describe())
        SavedModel export/pt_en/1
        ok    load: in time
        SERVES: a TensorFlow session, in a fresh process, runs it (0.0 s)
    """

    path: Path
    checks: list = field(default_factory=list)
    notes: list = field(default_factory=list)
    seconds: float = 0.0

    @property
    def ok(self):
        """Whether every check passed."""
        return all(check.ok for check in self.checks)

    def describe(self):
        """The report as lines of text, the verdict last."""
        checks = [
            f"{'ok  ' if check.ok else 'FAIL'}  {check.name}: {check.detail}"
            for check in self.checks
        ]
        verdict = "SERVES: a TensorFlow session, in a fresh process, runs it"
        if not self.ok:
            failed = sum(not check.ok for check in self.checks)
            verdict = f"NOT PROVEN TO SERVE: {failed} of {len(checks)} checks failed"
        lines = [f"SavedModel {self.path}", *self.notes, *checks]
        return "\n".join([*lines, f"{verdict} ({self.seconds:.1f} s)"])


def verify(path, *, allow_xla=False, timeout=600.0):
    """Finds out whether TensorFlow Serving will run a SavedModel.

    Args:
        path: the SavedModel's folder, or a model's folder of numbered versions, whose
            newest is taken, as the server does.
        allow_xla: let signatures demand XLA; the report then only names the flag that
            the server must be started with.
        timeout: seconds until the process that loads and runs it is stopped.

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
    report = Report(find_saved_model(path))
    if not report.path.resolve().name.isdecimal():
        report.notes.append("a server mounts numbered versions: put this in NAME/1/")
    _inspect_apart(report, allow_xla, timeout)
    report.seconds = time.perf_counter() - started
    return report


def _inspect_apart(report, allow_xla, timeout):
    """Adds to a report what `_inspect` finds in a fresh process, line by line."""
    code = "import sys; from tfxformer.exporting.verify import child; child(*sys.argv)"
    with tempfile.TemporaryFile("w+") as found, tempfile.TemporaryFile("w+") as log:
        try:
            status = subprocess.run(
                [sys.executable, "-c", code, report.path, "xla" * allow_xla],
                # A trainer beside us may hold the accelerator's memory.
                env=os.environ | {"CUDA_VISIBLE_DEVICES": "-1"},
                stdin=subprocess.DEVNULL,
                stdout=found,
                stderr=log,
                timeout=timeout,
            ).returncode
            name = signal.Signals(-status).name if status < 0 else f"exit {status}"
            death = status and f"crashed ({name})"
        except subprocess.TimeoutExpired:
            death = f"gave no answer within {timeout:g} s and was stopped"
        for file in (found, log):
            file.seek(0)
        for line in found:
            kind, *finding = json.loads(line)
            if kind == "check":
                report.checks.append(Check(*finding))
            else:
                report.notes.append(*finding)
        if death:
            last = [line for line in log.read().splitlines() if line][-1:]
            detail = f"it {death} while the next check ran: {_line(*last or [''])}"
            report.checks.append(Check("process", False, detail))


def child(_, folder, allow_xla):
    """What the fresh process runs; see `_inspect_apart`."""
    for finding in _inspect(folder, allow_xla):
        print(json.dumps(finding), flush=True)


def _inspect(folder, allow_xla):
    """Yields ("note", a line) and ("check", the values of a `Check`)."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  (registers its ops)

    try:
        examples = _examples(folder)
    except UserError as error:
        yield "check", "examples", False, str(error)
        return
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        try:
            meta_graph = tf.compat.v1.saved_model.load(session, ["serve"], folder)
        except Exception as error:  # whatever it is, the model does not load
            yield "check", "load", False, _explain(error)
            return
        yield "check", "load", True, "into a TensorFlow session, in a fresh process"
        signatures = {
            name: signature
            for name, signature in sorted(meta_graph.signature_def.items())
            if not name.startswith("__saved_model_")  # the loader's own
        }
        for name, signature in signatures.items():
            given, got = map(_describe, (signature.inputs, signature.outputs))
            yield "note", f"  {name}({given}) -> {got}"
        yield "check", *_check_xla(meta_graph.graph_def, bool(allow_xla))
        if not signatures:
            yield "check", "run", False, "the model has no signature to call"
        for name, signature in signatures.items():
            try:
                if examples is None:
                    detail = _run_made_up(session, signature)
                else:
                    detail = _run_examples(session, signature, examples.get(name, []))
                yield "check", f"run {name}", True, detail
            except Exception as error:  # whatever it is, the signature does not run
                yield "check", f"run {name}", False, _explain(error)


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
    found = {f.signature.name for f in functions if f.attr["_XlaMustCompile"].b}
    found |= {
        node.op
        for node in nodes
        if node.op in XLA_OPS or node.attr["_XlaMustCompile"].b
    }
    if not found:
        return "xla", True, "nothing demands XLA"
    return (
        "xla",
        allow_xla,
        f"XLA must compile {', '.join(sorted(found))}: a server refuses, unless it is "
        "started with --xla_cpu_compilation_enabled=true (on a GPU "
        "--xla_gpu_compilation_enabled=true; both experimental)",
    )


def _run(session, signature, inputs):
    """A signature's outputs by name."""
    feeds = {info.name: inputs[name] for name, info in signature.inputs.items()}
    outputs = signature.outputs
    return session.run({name: info.name for name, info in outputs.items()}, feeds)


def _run_made_up(session, signature):
    """Runs a signature on small inputs, one try per size of the open dimensions."""
    first = None
    for size in SIZES:
        inputs = {name: _made_up(x, size) for name, x in signature.inputs.items()}
        try:
            outputs = _run(session, signature, inputs)
        except Exception as error:  # whatever it is, the signature does not run
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


def _examples(folder):
    """The recorded examples by signature; None for a model that is not ours."""
    if not Path(folder, EXAMPLES_FILE).exists():
        return None
    found = {}
    for log in read_records(Path(folder, EXAMPLES_FILE)):
        found.setdefault(log.request.model_spec.signature_name, []).append(log)
    return found


def _run_examples(session, signature, examples):
    """Runs a signature on its recorded inputs and compares the answers."""
    import tensorflow as tf

    if not examples:
        raise ValueError("it has no recorded example")
    for number, log in enumerate(examples, start=1):
        inputs, expected = (
            {name: tf.make_ndarray(proto) for name, proto in protos.items()}
            for protos in (log.request.inputs, log.response.outputs)
        )
        outputs = _run(session, signature, inputs)
        if outputs.keys() != expected.keys():
            raise ValueError(f"example {number} answers {', '.join(sorted(expected))}")
        for name, got in outputs.items():
            problem = _difference(expected[name], got)
            if problem:
                raise ValueError(f"example {number}, output {name}: {problem}")
    plural = "s" * (len(examples) > 1)
    return f"{len(examples)} recorded example{plural} answered alike"


def _difference(expected, got):
    """What differs: floats by more than `TOLERANCE`, all else at all; or ""."""
    got = np.asarray(got, expected.dtype)  # NumPy's own strings would lose NULs
    if expected.shape != got.shape:
        return f"shape {list(got.shape)}, expected {list(expected.shape)}"
    same = expected == got
    if expected.dtype.kind not in "OSUiub":
        same = np.isclose(got, expected, rtol=0, atol=TOLERANCE, equal_nan=True)
    if np.all(same):
        return ""
    place = tuple(map(int, np.argwhere(~np.asarray(same, bool))[0]))
    return f"at {list(place)}: got {got[place]!r}, expected {expected[place]!r}"


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
