"""The proof that a SavedModel serves: ours, or a Keras model that someone else wrote.

`tf.saved_model.load` rebuilds Python objects, so what it accepts proves nothing about
TensorFlow Serving, which loads the graph into a session. `verify` does what the server
does: a fresh process, with TensorFlow and TensorFlow Text and no model code, loads the
SavedModel into a session and runs every signature. Our exports carry recorded answers,
in `assets.extra/tfxformer.json`, and must give them again. Any other model runs on a
small made-up input. The same process reads the graph for what TensorFlow Serving lacks:
unknown ops, Python functions, functions that need XLA.
"""

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tfxformer.errors import UserError
from tfxformer.exporting.metadata import (
    METADATA_FILE,
    decode,
    encode,
    numpy_type,
    read_metadata,
)

TOLERANCE = 1e-4  # absolute, for floats: another process may sum in another order

# Ops whose work the Python process that built the graph does.
PYTHON_OPS = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}
# Ops that XLA compiles whatever their function says; jax2tf writes the first.
XLA_OPS = {"XlaCallModule", "XlaLaunch", "XlaLaunchV2"}
XLA_FLAGS = (
    "--xla_cpu_compilation_enabled=true (on a GPU --xla_gpu_compilation_enabled=true; "
    "both experimental)"
)

# For dimensions that a signature leaves open: the first is the batch; the others
# try one size after another, because a model may need at least so many.
BATCH = 2
SIZES = (8, 1, 16, 64)
# Errors that a made-up input may have caused.
INPUT_FAULTS = ("INVALID_ARGUMENT", "OUT_OF_RANGE")


@dataclass(frozen=True)
class Tensor:
    """One input or output of a signature.

    Attributes:
        name: Its name in the signature, which a client uses.
        tensor: Its name in the graph ("" where it is not one dense tensor).
        dtype: TensorFlow's name of its type.
        shape: Its dimensions, None where open; None if even their number is open.

    Example:
        >>> print(Tensor("text", "serving_default_text:0", "string", (None,)))
        text: string [?]
    """

    name: str
    tensor: str
    dtype: str
    shape: tuple[int | None, ...] | None

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype} {_shape_text(self.shape)}"


@dataclass(frozen=True)
class Signature:
    """A function of the model that a client can call.

    Attributes:
        name: Its name, such as `serving_default`.
        inputs: What it takes, `Tensor`s.
        outputs: What it gives, `Tensor`s.

    Example:
        >>> text = Tensor("text", "text:0", "string", (None,))
        >>> print(Signature("serving_default", (text,), (text,)))
        serving_default(text: string [?]) -> text: string [?]
    """

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    def __str__(self) -> str:
        inputs = ", ".join(map(str, self.inputs))
        return f"{self.name}({inputs}) -> {', '.join(map(str, self.outputs))}"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: What was looked at.
        ok: Whether it is as it must be.
        detail: One line.

    Example:
        >>> Check("load", True, "in 0.4 s").ok
        True
    """

    name: str
    ok: bool
    detail: str


@dataclass
class Report:
    """What `verify` found.

    Attributes:
        path: The SavedModel's folder.
        checks: What was looked at, in order.
        signatures: The model's signatures.
        notes: Lines worth knowing that are no failure.
        seconds: How long it took.

    Example:
        >>> report = Report(Path("export/pt_en/1"), [Check("load", True, "0.4 s")])
        >>> print(report.describe())
        SavedModel export/pt_en/1
        ok    load: 0.4 s
        SERVES: a TensorFlow session, in a fresh process, runs it (0.0 s)
    """

    path: Path
    checks: list[Check] = field(default_factory=list)
    signatures: list[Signature] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether every check passed."""
        return all(check.ok for check in self.checks)

    def describe(self) -> str:
        """The report as lines of text, the verdict last.

        Returns:
            A string of some lines.
        """
        lines = [f"SavedModel {self.path}"]
        lines += [f"  {signature}" for signature in self.signatures]
        lines += [f"note  {note}" for note in self.notes]
        for check in self.checks:
            verdict = "ok  " if check.ok else "FAIL"
            lines.append(f"{verdict}  {check.name}: {check.detail}")
        failed = sum(not check.ok for check in self.checks)
        if failed:
            total = len(self.checks)
            verdict = f"NOT PROVEN TO SERVE: {failed} of {total} checks failed"
        else:
            verdict = "SERVES: a TensorFlow session, in a fresh process, runs it"
        return "\n".join([*lines, f"{verdict} ({self.seconds:.1f} s)"])


def verify(
    path: str | os.PathLike,
    translator: Any = None,
    *,
    allow_xla: bool = False,
    timeout: float = 600.0,
) -> Report:
    """Finds out whether TensorFlow Serving will run a SavedModel.

    Args:
        path: The SavedModel's folder, or a model's folder of numbered versions;
            `verify` takes the newest, as the server does.
        translator: For an export of ours, a live `Translator`: what its
            `answers(signature, inputs)` gives now replaces the recorded outputs.
        allow_xla: Let signatures need XLA; the report then only names the flag that
            the server must be started with.
        timeout: Seconds until the loading and running process is stopped.

    Returns:
        The report; `report.ok` is the answer.

    Raises:
        UserError: There is no SavedModel to look at.

    Example:
        >>> verify("nowhere")
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: nowhere: there is no such folder
    """
    started = time.perf_counter()
    folder, notes = find_saved_model(path)
    report = Report(folder, notes=notes)
    metadata = read_metadata(folder)
    examples = metadata and metadata["examples"]
    if translator is not None and examples is None:
        detail = f"{METADATA_FILE} is missing: there is nothing to compare"
        report.checks.append(Check("examples", False, detail))
    else:
        if translator is not None:
            examples = [_answered_anew(each, translator) for each in examples]
        _inspect_apart(report, examples, allow_xla, timeout)
    report.seconds = time.perf_counter() - started
    return report


def _answered_anew(example: dict, translator) -> dict:
    """The recorded example, with what the translator answers now."""
    try:  # the inputs of an export's signatures are texts, or ids
        inputs = {
            name: decode(value, "int32" if name == "ids" else "string")
            for name, value in example["inputs"].items()
        }
    except ValueError:  # the check of the examples names the fault
        return example
    answers = translator.answers(example["signature"], inputs)
    outputs = {name: encode(value) for name, value in answers.items()}
    return example | {"outputs": outputs}


def find_saved_model(path: str | os.PathLike) -> tuple[Path, list[str]]:
    """Finds the SavedModel that a path means.

    Args:
        path: A SavedModel's folder, or a folder of numbered versions.

    Returns:
        The SavedModel's folder, and notes on how it was chosen.

    Raises:
        UserError: The path leads to no SavedModel.

    Example:
        >>> import tempfile
        >>> version = Path(tempfile.mkdtemp(), "7")
        >>> version.mkdir()
        >>> (version / "saved_model.pb").touch()
        >>> find_saved_model(version.parent)[0].name
        '7'
    """
    path = Path(path)
    if path.is_file():
        if path.suffix in (".keras", ".h5"):
            raise UserError(
                f"{path} is a Keras file, not a SavedModel: load it and call "
                'model.export("FOLDER"), then verify that folder'
            )
        raise UserError(f"{path} is a file: give the SavedModel's folder")
    if not path.is_dir():
        raise UserError(f"{path}: there is no such folder")
    if _is_saved_model(path):
        if path.resolve().name.isdecimal():
            return path, []
        note = "the server mounts a folder of numbered versions: put this in NAME/1/"
        return path, [note]
    versions = [p for p in path.iterdir() if p.is_dir() and p.name.isdecimal()]
    if not versions:
        raise UserError(f"{path} is not a SavedModel: it holds no saved_model.pb")
    newest = max(versions, key=lambda version: int(version.name))
    if not _is_saved_model(newest):
        raise UserError(
            f"{newest}, the newest version, is not a SavedModel: it holds no "
            "saved_model.pb"
        )
    note = f"{path} holds versions: took the newest, {newest.name}, as the server does"
    return newest, [note]


def _is_saved_model(folder: Path) -> bool:
    names = ("saved_model.pb", "saved_model.pbtxt")
    return any((folder / name).is_file() for name in names)


# The process of its own. It appends what it finds to a file, one pickle after another,
# so that a crash loses nothing that was found before it.


def _inspect_apart(report: Report, examples, allow_xla: bool, timeout: float) -> None:
    """Fills the report with what `_inspect` finds in a fresh process."""
    # The proof needs no accelerator, and a trainer beside us may hold its memory.
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "-1"}
    code = "import sys; from tfxformer.exporting import verify as v; "
    code += "v._child(*sys.argv[1:])"
    with tempfile.TemporaryDirectory(prefix="tfxformer-verify-") as scratch:
        request, found, log = (Path(scratch, name) for name in ("in", "out", "log"))
        folder = report.path.resolve()
        request.write_bytes(pickle.dumps((folder, examples, allow_xla)))
        found.touch()
        with log.open("wb") as log_file:
            try:
                status = subprocess.run(
                    [sys.executable, "-c", code, request, found],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log_file,
                    stderr=subprocess.STDOUT,
                    timeout=timeout,
                ).returncode
                death = f"crashed ({_status_text(status)})"
            except subprocess.TimeoutExpired:
                death = f"gave no answer within {timeout:g} s and was stopped"
        finished = _read_findings(report, found)
        last = [line for line in log.read_text("utf-8", "replace").splitlines() if line]
    if not finished:
        _add_death(report, death, f": {_line(last[-1])}" if last else "")


def _child(request: str, found: str) -> None:
    """The other side of `_inspect_apart`."""
    folder, examples, allow_xla = pickle.loads(Path(request).read_bytes())
    with open(found, "wb") as file:
        try:
            for finding in _inspect(folder, examples, allow_xla):
                pickle.dump(finding, file)
                file.flush()
            pickle.dump("end", file)
        except UserError as error:
            pickle.dump(error, file)


def _read_findings(report: Report, found: Path) -> bool:
    """Adds the findings to the report; whether the process came to its end."""
    with found.open("rb") as file:
        while True:
            try:
                finding = pickle.load(file)
            except (EOFError, pickle.UnpicklingError):  # the end, or cut off there
                return False
            if isinstance(finding, UserError):
                raise finding
            if finding == "end":  # a crash after that is no matter
                return True
            if isinstance(finding, Check):
                report.checks.append(finding)
            else:
                report.signatures = finding


def _add_death(report: Report, death: str, last_words: str) -> None:
    """Adds what the process did not come to: the first killed it."""
    names = ["load", *(f"run {signature.name}" for signature in report.signatures)]
    done = {check.name for check in report.checks}
    detail = f"the process {death}{last_words}"
    for name in names:
        if name not in done:
            report.checks.append(Check(name, False, detail))
            detail = f"not proven: the process died before this ({death})"


def _status_text(status: int) -> str:
    return signal.Signals(-status).name if status < 0 else f"exit status {status}"


def _inspect(folder: Path, examples, allow_xla: bool) -> Iterator[list | Check]:
    """Yields the list of signatures, then every check; needs TensorFlow."""
    import tensorflow as tf

    meta_graph, tags = _read_meta_graph(folder)
    if meta_graph is None:
        detail = f"no graph is tagged 'serve', as the server expects it (tags: {tags})"
        yield Check("tags", False, detail)
        return
    graph_def = meta_graph.graph_def
    signatures = _signatures(meta_graph)
    yield signatures
    yield _check_ops(graph_def)
    reached = {each.name: _reach(graph_def, each) for each in signatures}
    yield _check_python(reached)
    yield _check_xla(reached, allow_xla)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        load = _check_load(session, folder, graph_def)
        yield load
        if not load.ok:
            return
        if not signatures:
            detail = "the model has no signature that a client can call"
            yield Check("run", False, detail)
        for signature in signatures:
            name = signature.name
            if examples is None:
                ok, detail = _run_made_up(session, signature)
            else:
                mine = [each for each in examples if each["signature"] == name]
                ok, detail = _run_recorded(session, signature, mine)
            yield Check(f"run {name}", ok, detail)
        known = {signature.name for signature in signatures}
        for name in {each["signature"] for each in examples or []} - known:
            detail = f"{METADATA_FILE}: the model has no signature {name}"
            yield Check("examples", False, detail)


# Reading the graph.


def _read_meta_graph(folder: Path):
    """The graph tagged "serve", or None; and the tags that the model has."""
    import tensorflow as tf
    from tensorflow.python.saved_model.loader_impl import parse_saved_model

    try:
        graphs = parse_saved_model(str(folder)).meta_graphs
        problem = "" if graphs else "it holds no graph"
    except (OSError, tf.errors.OpError) as error:
        problem = _line(str(error))
    if problem:
        file = folder / "saved_model.pb"
        raise UserError(f"{file} is damaged ({problem}): export it again")
    tags = [sorted(graph.meta_info_def.tags) for graph in graphs]
    found = "; ".join(", ".join(each) or "none" for each in tags)
    return (graphs[tags.index(["serve"])] if ["serve"] in tags else None), found


def _signatures(meta_graph) -> list[Signature]:
    """The signatures, `serving_default` first; not the loader's own entries."""
    import tensorflow as tf

    def tensors(infos) -> tuple[Tensor, ...]:
        result = []
        for name, info in sorted(infos.items()):
            shape = info.tensor_shape
            dims = tuple(None if dim.size < 0 else dim.size for dim in shape.dim)
            dtype = tf.dtypes.as_dtype(info.dtype).name if info.dtype else "composite"
            result.append(
                Tensor(name, info.name, dtype, None if shape.unknown_rank else dims)
            )
        return tuple(result)

    found = [
        Signature(name, tensors(signature.inputs), tensors(signature.outputs))
        for name, signature in meta_graph.signature_def.items()
        if not name.startswith("__saved_model_")
    ]
    return sorted(found, key=lambda s: (s.name != "serving_default", s.name))


@dataclass(frozen=True)
class _Step:
    """A node that a signature can reach, or (op "") a function as a whole."""

    function: str  # the function, or the one that the node is in; "" for the graph
    op: str
    xla: bool  # whether XLA must compile it

    def __str__(self) -> str:
        inside = f"function {self.function}" if self.function else ""
        return " in ".join(filter(None, (self.op, inside)))


def _reach(graph_def, signature: Signature) -> list[_Step]:
    """Everything that a signature can run: nodes of the graph, then functions.

    Control edges lead to nodes too. Any attribute can name a function that a node
    calls: PartitionedCall's `f`, While's `cond` and `body`, Case's list `branches`.
    """
    nodes = {node.name: node for node in graph_def.node}
    functions = {f.signature.name: f for f in graph_def.library.function}
    steps, called = [], []

    def visit(function: str, node) -> None:
        xla = _must_compile(node.attr) or node.op in XLA_OPS
        steps.append(_Step(function, node.op, xla))
        called.append(node.op)  # a call can also be an op with the function's name
        for attribute in node.attr.values():
            called.append(attribute.func.name)
            called.extend(each.name for each in attribute.list.func)

    waiting = [output.tensor for output in signature.outputs]
    while waiting:
        node = nodes.pop(waiting.pop().lstrip("^").partition(":")[0], None)
        if node is not None:
            waiting.extend(node.input)
            visit("", node)
    while called:
        name = called.pop()
        function = functions.pop(name, None)
        if function is not None:
            steps.append(_Step(name, "", _must_compile(function.attr)))
            for node in function.node_def:
                visit(name, node)
    return steps


def _must_compile(attributes) -> bool:
    return "_XlaMustCompile" in attributes and attributes["_XlaMustCompile"].b


def _check_ops(graph_def) -> Check:
    """Asks TensorFlow for every op, then TensorFlow Text for those that it lacks."""
    import tensorflow as tf
    from tensorflow.python.framework import op_def_registry

    functions = {f.signature.name: f for f in graph_def.library.function}
    where = {node.op: "" for node in graph_def.node}
    for name, function in functions.items():
        for node in function.node_def:
            where.setdefault(node.op, name)
    used = set(where) - set(functions)
    lacking = {op for op in used if op_def_registry.get(op) is None}
    problem = ""
    try:
        import tensorflow_text  # noqa: F401  (registers its ops)
    except Exception as error:  # without its ops, a model may still run
        problem = f"; tensorflow-text does not load: {_line(str(error))}"
    unknown = sorted(op for op in lacking if op_def_registry.get(op) is None)
    if unknown:
        found = ", ".join(str(_Step(where[op], op, False)) for op in unknown)
        detail = f"neither in TensorFlow nor in tensorflow-text: {found}{problem}"
        return Check("ops", False, detail)
    detail = f"{len(used)} kinds, all in TensorFlow {tf.__version__}"
    if lacking:
        detail += f" or tensorflow-text ({', '.join(sorted(lacking))})"
    return Check("ops", True, detail)


def _check_python(reached: dict[str, list[_Step]]) -> Check:
    for signature, steps in reached.items():
        for step in steps:
            if step.op in PYTHON_OPS:
                detail = (
                    f"{signature} calls back into Python ({step}), which the server "
                    "does not have: replace tf.py_function by TensorFlow ops"
                )
                return Check("python", False, detail)
    return Check("python", True, "no signature calls back into Python")


def _check_xla(reached: dict[str, list[_Step]], allow_xla: bool) -> Check:
    found = []
    for signature, steps in reached.items():
        marked = [step for step in steps if step.xla]
        if marked:
            # The function itself says more than the call to it.
            named = [step for step in marked if not step.op] or marked
            found.append(f"{signature} reaches {', '.join(sorted(map(str, named)))}")
    if not found:
        return Check("xla", True, "no signature needs XLA")
    detail = f"must be compiled with XLA: {'; '.join(found)}; the server refuses unless"
    detail += f" started with {XLA_FLAGS}"
    return Check("xla", allow_xla, detail)


# Loading and running.


def _check_load(session, folder: Path, graph_def) -> Check:
    import tensorflow as tf

    index = Path("variables", "variables.index")
    has_variables = any(node.op == "VarHandleOp" for node in graph_def.node)
    if has_variables and not (folder / index).is_file():
        # The loader takes it for a model without variables and restores nothing.
        detail = f"{index} is missing: copy the whole folder, variables included"
        return Check("load", False, detail)
    try:
        tf.compat.v1.saved_model.load(session, ["serve"], str(folder))
    except Exception as error:  # whatever it is, the model does not load
        return Check("load", False, _line(_error_text(error)))
    return Check("load", True, "into a TensorFlow session, in a fresh process")


def _run(session, signature: Signature, inputs: dict) -> dict[str, np.ndarray] | str:
    """Runs a signature: the outputs by name, or the error's text."""
    feeds = {tensor.tensor: inputs[tensor.name] for tensor in signature.inputs}
    try:
        values = session.run([tensor.tensor for tensor in signature.outputs], feeds)
    except Exception as error:  # whatever it is, the signature does not run
        return _error_text(error)
    return {  # numpy's own fixed-width strings would lose NULs at the end
        tensor.name: np.asarray(value, object if tensor.dtype == "string" else None)
        for tensor, value in zip(signature.outputs, values, strict=True)
    }


def _run_made_up(session, signature: Signature) -> tuple[bool, str]:
    """Runs a signature on small inputs, one try per size of the open dimensions."""
    failure = ""
    for size in SIZES:
        try:
            inputs = {each.name: _made_up(each, size) for each in signature.inputs}
        except TypeError as error:
            return False, f"not proven: {error}"
        outputs = _run(session, signature, inputs)
        made_up = _values_text(signature.inputs, inputs)
        if isinstance(outputs, dict):
            return True, f"{made_up} gave {_values_text(signature.outputs, outputs)}"
        if not failure and outputs.startswith(INPUT_FAULTS):
            failure = (
                f"not proven: {_line(outputs)} (the input was made up, {made_up}, "
                "and may be at fault)"
            )
        failure = failure or _explain(outputs)
    return False, failure


def _made_up(tensor: Tensor, size: int) -> np.ndarray:
    shape = (None,) if tensor.shape is None else tensor.shape
    sizes = [BATCH, *(size for _ in shape)]
    full = tuple(sizes[i] if dim is None else dim for i, dim in enumerate(shape))
    if tensor.dtype == "string":
        return np.full(full, b"hello", dtype=object)
    dtype = numpy_type(tensor.dtype)
    return np.full(full, {"b": 0, "i": 1, "u": 1}.get(dtype.kind, 0.5)).astype(dtype)


def _decode_all(tensors: Iterable[Tensor], recorded: dict) -> dict[str, np.ndarray]:
    names = {tensor.name for tensor in tensors}
    if names != set(recorded):
        raise ValueError(
            f"it has {', '.join(sorted(recorded)) or 'nothing'} where the model has "
            f"{', '.join(sorted(names)) or 'nothing'}"
        )
    return {
        tensor.name: decode(recorded[tensor.name], tensor.dtype) for tensor in tensors
    }


def _run_recorded(session, signature: Signature, examples: list) -> tuple[bool, str]:
    """Runs a signature on its recorded inputs and compares the answers."""
    if not examples:
        return False, f"signature {signature.name} has no recorded example"
    widest = 0.0
    for number, recorded in enumerate(examples, start=1):
        try:
            inputs = _decode_all(signature.inputs, recorded["inputs"])
            expected = _decode_all(signature.outputs, recorded["outputs"])
        except ValueError as error:
            return False, f"{METADATA_FILE}, example {number}: {error}"
        outputs = _run(session, signature, inputs)
        if isinstance(outputs, str):
            return False, f"example {number}: {_explain(outputs)}"
        for name, got in outputs.items():
            problem, difference = compare(expected[name], got)
            if problem:
                return False, f"example {number}, output {name}{problem}"
            widest = max(widest, difference)
    detail = f"{len(examples)} recorded example{'s' * (len(examples) > 1)}"
    detail += " answered alike"
    if any("float" in output.dtype for output in signature.outputs):
        detail += f", floats within {widest:.1g}"
    return True, detail


def compare(expected: np.ndarray, got: np.ndarray) -> tuple[str, float]:
    """Compares two answers: floats within `TOLERANCE`, all else exactly.

    Args:
        expected: What it should be; strings as an object array of bytes.
        got: What it is.

    Returns:
        What differs, as the rest of a line that names the output ("" if nothing
        does), and the largest difference between floats.
    """
    if expected.dtype != got.dtype:
        return f": type {got.dtype}, expected {expected.dtype}", 0.0
    if expected.shape != got.shape:
        shapes = f"{_shape_text(got.shape)}, expected {_shape_text(expected.shape)}"
        return f": shape {shapes}", 0.0
    if expected.size == 0:
        return "", 0.0
    difference = 0.0
    if expected.dtype.kind in "OSUiub":
        same = expected == got
    else:
        # bfloat16 and complex included; inf - inf is nan, and == takes care of it.
        with np.errstate(invalid="ignore"):
            gap = np.abs(got - expected).astype(np.float64)
        same = (gap <= TOLERANCE) | (expected == got)
        same |= np.isnan(expected) & np.isnan(got)
        difference = float(np.max(gap[np.isfinite(gap)], initial=0.0))
    if np.all(same):
        return "", difference
    where = tuple(int(i) for i in np.argwhere(~np.atleast_1d(same))[0])
    first = tuple(np.atleast_1d(array)[where] for array in (got, expected))
    place = f", row {where[0]}" if expected.ndim else ""
    if len(where) > 1:
        place += f", at {list(where[1:])}"
    return f"{place}: got {_text(first[0])}, expected {_text(first[1])}", difference


# Saying it in one line.


def _error_text(error: Exception) -> str:
    """An error of TensorFlow's as "CODE: message"."""
    import tensorflow as tf
    from tensorflow.core.protobuf import error_codes_pb2

    if not isinstance(error, tf.errors.OpError):
        return f"{type(error).__name__}: {error}"
    message = error.message.replace("Graph execution error:", "").strip()
    return f"{error_codes_pb2.Code.Name(error.error_code)}: {message}"


def _explain(error: str) -> str:
    if "Could not find variable" in error:
        return (
            f"{_line(error.partition('.')[0])}. The variable was saved twice and the "
            "function captured the copy that is never restored, which is what "
            "tf.saved_model.save makes of a tf.Module around a Keras 3 model; export "
            "with model.export() or keras.export.ExportArchive"
        )
    return _line(error)


def _line(text: str, limit: int = 300) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def _text(value) -> str:
    if isinstance(value, bytes):
        return _line(repr(value.decode("utf-8", "backslashreplace")), 100)
    return f"{value}"


def _shape_text(shape) -> str:
    if shape is None:
        return "[...]"
    return f"[{', '.join('?' if dim is None else str(dim) for dim in shape)}]"


def _values_text(tensors: Iterable[Tensor], values: dict[str, np.ndarray]) -> str:
    described = [
        f"{t.name} {t.dtype} {_shape_text(values[t.name].shape)}" for t in tensors
    ]
    return ", ".join(described) or "nothing"
