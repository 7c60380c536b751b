"""The proof that a SavedModel serves: ours, or a Keras model that someone else wrote.

`verify` reads the graph for what TensorFlow Serving lacks (unknown ops, Python
functions, functions that need XLA), then loads the model through TensorFlow's C
library in a process without Python TensorFlow (see `c_api`) and runs every
signature. Our exports carry recorded answers, in `assets.extra/tfxformer.json`, and
must give them again; any other model is run on a small made-up input.
"""

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tfxformer import c_api
from tfxformer.errors import UserError
from tfxformer.recorded import METADATA_FILE, decode, read_metadata

TOLERANCE = 1e-4  # absolute, for floats: another process may sum in another order

# Ops whose work is done by the Python process that built the graph.
PYTHON_OPS = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}
# Ops that XLA compiles whatever their function says; jax2tf writes the first.
XLA_OPS = {"XlaCallModule", "XlaLaunch", "XlaLaunchV2"}
XLA_FLAGS = (
    "--xla_cpu_compilation_enabled=true (on a GPU --xla_gpu_compilation_enabled=true; "
    "both experimental)"
)

# For dimensions that a signature leaves open: the first is the batch; the others
# try one size after another, because a model may want at least so many.
BATCH = 2
SIZES = (8, 1, 16, 64)
# Errors that a made-up input may have brought upon itself.
INPUT_FAULTS = {"INVALID_ARGUMENT", "OUT_OF_RANGE"}


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
        SERVES: TensorFlow Serving's C++ loader reads and runs it (0.0 s)
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
            verdict = "SERVES: TensorFlow Serving's C++ loader reads and runs it"
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
        path: The SavedModel's folder, or a model's folder of numbered versions, of
            which the newest is taken, as the server does.
        translator: For an export of ours, a live `Translator`: the recorded inputs
            are then compared with what its `answers(signature, inputs)` gives now,
            instead of with the recorded outputs.
        allow_xla: Let signatures need XLA; the report then only says which flag the
            server must be started with.
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
    meta_graph = _read_meta_graph(folder, report)
    if meta_graph is not None:
        report.signatures = _signatures(meta_graph)
        _check_all(report, meta_graph, translator, allow_xla, timeout)
    report.seconds = time.perf_counter() - started
    return report


def _check_all(report, meta_graph, translator, allow_xla, timeout) -> None:
    metadata = read_metadata(report.path)
    runs: list[_Run] = []
    if metadata is not None:
        runs = _recorded_runs(report, metadata["examples"], translator)
    elif translator is not None:
        detail = f"{METADATA_FILE} is missing: there is nothing to compare"
        report.checks.append(Check("examples", False, detail))
        return
    else:
        for signature in report.signatures:
            runs += _made_up_runs(signature)
    answers = c_api.run_apart(report.path, [run.job for run in runs], timeout)

    graph_def = meta_graph.graph_def
    report.checks.append(_check_ops(graph_def, answers))
    reached = {
        signature.name: _reach(graph_def, signature) for signature in report.signatures
    }
    report.checks.append(_check_python(reached))
    report.checks.append(_check_xla(reached, allow_xla))
    report.checks.append(_check_load(report.path, graph_def, answers))
    if not report.checks[-1].ok:
        return
    if not report.signatures:
        detail = "the model has no signature: there is nothing that a client can call"
        report.checks.append(Check("run", False, detail))
    check = _check_made_up if metadata is None else _check_recorded
    for signature in report.signatures:
        mine = [(i, run) for i, run in enumerate(runs) if run.signature == signature]
        ok, detail = check(signature, mine, answers)
        report.checks.append(Check(f"run {signature.name}", ok, detail))


# Finding and reading the model.


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


def _read_meta_graph(folder: Path, report: Report):
    """Reads the graph tagged "serve"; None, with a failed check, if it has none."""
    # Not at the top: most of verify's time goes into importing TensorFlow, and what
    # can be told without it is told at once.
    from google.protobuf import message, text_format
    from tensorflow.core.protobuf import saved_model_pb2

    saved_model = saved_model_pb2.SavedModel()
    file = folder / "saved_model.pb"
    try:
        if file.is_file():
            saved_model.ParseFromString(file.read_bytes())
        else:
            file = folder / "saved_model.pbtxt"
            text_format.Parse(file.read_text("utf-8"), saved_model)
    except (message.DecodeError, text_format.ParseError, UnicodeDecodeError):
        size = file.stat().st_size
        raise UserError(
            f"{file} is damaged: its {size} bytes are not a SavedModel; export it again"
        ) from None
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from None
    if not saved_model.meta_graphs:
        raise UserError(f"{file} is damaged: it holds no graph; export it again")
    tags = [set(graph.meta_info_def.tags) for graph in saved_model.meta_graphs]
    if {"serve"} in tags:
        return saved_model.meta_graphs[tags.index({"serve"})]
    found = "; ".join(", ".join(sorted(each)) or "none" for each in tags)
    detail = f"no graph is tagged 'serve', as the server wants it (tags: {found})"
    report.checks.append(Check("tags", False, detail))
    return None


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


# Reading the graph.


@dataclass(frozen=True)
class Step:
    """Something that a signature can reach: a node, or a function as a whole.

    Attributes:
        function: The function that it is, or that the node is in; "" for the graph.
        op: The node's op; "" for a function.
        xla: Whether it must be compiled with XLA.
    """

    function: str
    op: str
    xla: bool

    def __str__(self) -> str:
        inside = f" in function {self.function}" if self.function else ""
        return f"{self.op}{inside}" if self.op else f"function {self.function}"


def _reach(graph_def, signature: Signature) -> list[Step]:
    """Everything that a signature can run.

    Backwards from the outputs through the graph's edges, control edges included,
    then down through every function that a node calls, whichever attribute names it
    (PartitionedCall's `f`, While's `cond` and `body`, Case's list `branches`).
    """
    nodes = {node.name: node for node in graph_def.node}
    functions = {f.signature.name: f for f in graph_def.library.function}
    steps, called, seen = [], [], set()

    def visit(function: str, node) -> None:
        steps.append(Step(function, node.op, _xla(node.attr) or node.op in XLA_OPS))
        called.append(node.op)  # a call can also be an op with the function's name
        for attribute in node.attr.values():
            called.append(attribute.func.name)
            called.extend(each.name for each in attribute.list.func)

    waiting = [output.tensor for output in signature.outputs]
    while waiting:
        name = waiting.pop().lstrip("^").partition(":")[0]
        if name in nodes and name not in seen:
            seen.add(name)
            waiting.extend(nodes[name].input)
            visit("", nodes[name])
    seen.clear()
    while called:
        name = called.pop()
        if name in functions and name not in seen:
            seen.add(name)
            steps.append(Step(name, "", _xla(functions[name].attr)))
            for node in functions[name].node_def:
                visit(name, node)
    return steps


def _xla(attributes) -> bool:
    return "_XlaMustCompile" in attributes and attributes["_XlaMustCompile"].b


def _check_ops(graph_def, answers: c_api.Answers) -> Check:
    if not answers.ops:
        return Check("ops", False, f"not proven: the process {answers.died}")
    functions = {f.signature.name: f for f in graph_def.library.function}
    where = {node.op: "" for node in graph_def.node}
    for name, function in functions.items():
        for node in function.node_def:
            where.setdefault(node.op, name)
    used = set(where) - set(functions)
    unknown = sorted(used - answers.ops - answers.text_ops)
    if unknown:
        found = ", ".join(str(Step(where[op], op, False)) for op in unknown)
        detail = f"neither in TensorFlow nor in tensorflow-text: {found}"
        if answers.text_error:
            detail += f"; tensorflow-text does not load: {_line(answers.text_error)}"
        elif not answers.text_ops:
            detail += "; tensorflow-text is not installed here"
        return Check("ops", False, detail)
    detail = f"{len(used)} kinds, all in TensorFlow {answers.tensorflow}"
    text = sorted(used & answers.text_ops)
    if text:
        detail += f" or tensorflow-text ({', '.join(text)})"
    return Check("ops", True, detail)


def _check_python(reached: dict[str, list[Step]]) -> Check:
    for signature, steps in reached.items():
        for step in steps:
            if step.op in PYTHON_OPS:
                detail = (
                    f"{signature} calls back into Python ({step}), which the server "
                    "has not: replace tf.py_function by TensorFlow ops"
                )
                return Check("python", False, detail)
    return Check("python", True, "no signature calls back into Python")


def _check_xla(reached: dict[str, list[Step]], allow_xla: bool) -> Check:
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


def _check_load(folder: Path, graph_def, answers: c_api.Answers) -> Check:
    if answers.load_error:
        return Check("load", False, _line(str(answers.load_error)))
    if not answers.loaded:
        return Check("load", False, f"the process {_death(answers)}")
    if answers.python_tensorflow:
        detail = "not proven: Python TensorFlow was imported into the process"
        return Check("load", False, detail)
    index = Path("variables", "variables.index")
    has_variables = any(node.op == "VarHandleOp" for node in graph_def.node)
    if has_variables and not (folder / index).is_file():
        # The loader takes it for a model without variables and restores nothing.
        detail = f"{index} is missing: copy the whole folder, variables included"
        return Check("load", False, detail)
    detail = "by the C++ loader, in a process without Python TensorFlow"
    return Check("load", True, detail)


# Running the signatures.


@dataclass(frozen=True)
class _Run:
    """One run of a signature, and what should come out of it if that is known."""

    signature: Signature
    job: c_api.Job
    expected: dict[str, np.ndarray] = field(default_factory=dict)
    problem: str = ""  # why this run cannot be made


def _made_up_runs(signature: Signature) -> list[_Run]:
    """Small inputs of the right shape, one try per size of the open dimensions."""
    runs, tried = [], []
    for size in SIZES:
        shapes = [_made_up_shape(tensor.shape, size) for tensor in signature.inputs]
        if shapes in tried:
            continue
        tried.append(shapes)
        try:
            inputs = {
                tensor.tensor: _made_up_value(tensor.dtype, shape)
                for tensor, shape in zip(signature.inputs, shapes, strict=True)
            }
        except c_api.TensorFlowError as error:
            return [_Run(signature, c_api.Job({}, []), problem=error.message)]
        job = c_api.Job(inputs, _fetches(signature), group=signature.name)
        runs.append(_Run(signature, job))
    return runs


def _made_up_shape(shape, size: int) -> tuple[int, ...]:
    if shape is None:
        return (BATCH,)
    open_sizes = [BATCH] + [size] * len(shape)
    return tuple(open_sizes[i] if dim is None else dim for i, dim in enumerate(shape))


def _made_up_value(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    if dtype == "string":
        return np.full(shape, b"hello", dtype=object)
    numpy_type = c_api.numpy_type(dtype)
    one = {"b": False, "i": 1, "u": 1}.get(numpy_type.kind, 0.5)
    return np.full(shape, one).astype(numpy_type)


def _fetches(signature: Signature) -> list[str]:
    return [output.tensor for output in signature.outputs]


def _check_made_up(signature, runs, answers) -> tuple[bool, str]:
    """Judges a signature by the first of its runs that succeeded."""
    for i, run in runs:
        result = answers.results.get(i)
        if isinstance(result, list):
            inputs = zip(signature.inputs, run.job.inputs.values(), strict=True)
            outputs = zip(signature.outputs, result, strict=True)
            return True, f"{_values_text(inputs)} gave {_values_text(outputs)}"
    index, run = runs[0]
    if run.problem:
        return False, f"not proven: {run.problem}"
    error = answers.results.get(index)
    if error is None:
        return False, _not_run(index, runs, answers)
    made_up = _values_text(zip(signature.inputs, run.job.inputs.values(), strict=True))
    if error.code in INPUT_FAULTS and "No OpKernel" not in error.message:
        return False, (
            f"not proven: {_line(str(error))} (the input was made up, {made_up}, and "
            "may be at fault)"
        )
    return False, _explain(error)


def _recorded_runs(report, examples: list[dict], translator) -> list[_Run]:
    """The recorded examples as runs; those that do not fit the model fail a check."""
    signatures = {signature.name: signature for signature in report.signatures}
    runs = []
    for number, recorded in enumerate(examples, start=1):
        signature = signatures.get(recorded["signature"])
        try:
            if signature is None:
                raise ValueError(f"the model has no signature {recorded['signature']}")
            inputs = _decode_all(signature.inputs, recorded["inputs"])
            expected = _decode_all(signature.outputs, recorded["outputs"])
        except ValueError as error:
            detail = f"{METADATA_FILE}, example {number}: {error}"
            report.checks.append(Check("examples", False, detail))
            continue
        if translator is not None:
            expected = translator.answers(signature.name, inputs)
        feeds = {tensor.tensor: inputs[tensor.name] for tensor in signature.inputs}
        job = c_api.Job(feeds, _fetches(signature))
        runs.append(_Run(signature, job, expected))
    return runs


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


def _check_recorded(signature, runs, answers) -> tuple[bool, str]:
    """Judges a signature by all of its recorded examples."""
    if not runs:
        return False, f"signature {signature.name} has no recorded example"
    widest = 0.0
    for number, (i, run) in enumerate(runs, start=1):
        result = answers.results.get(i)
        if result is None:
            return False, _not_run(i, runs, answers)
        if isinstance(result, c_api.TensorFlowError):
            return False, f"example {number}: {_explain(result)}"
        for output, got in zip(signature.outputs, result, strict=True):
            expected = np.asarray(run.expected[output.name])
            problem, difference = compare(expected, got)
            if problem:
                return False, f"example {number}, output {output.name}{problem}"
            widest = max(widest, difference)
    detail = f"{len(runs)} recorded example{'s' * (len(runs) > 1)} answered alike"
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


def _explain(error: c_api.TensorFlowError) -> str:
    if "Could not find variable" in error.message:
        return (
            f"{_line(error.code + ': ' + error.message.partition('.')[0])}. The "
            "variable was saved twice and the function captured the copy that is never "
            "restored, which is what tf.saved_model.save makes of a tf.Module around a "
            "Keras 3 model; export with model.export() or keras.export.ExportArchive"
        )
    return _line(str(error))


def _not_run(index: int, runs: list, answers: c_api.Answers) -> str:
    """Why a run has no result: the process died in it, or in one before it."""
    if answers.running in [i for i, _ in runs]:
        return f"the process {_death(answers)}"
    return f"not proven: the process died before this ({answers.died})"


def _death(answers: c_api.Answers) -> str:
    """How the process died, and the last thing that it said."""
    last = [line.strip() for line in answers.log.splitlines() if line.strip()][-1:]
    return f"{answers.died}: {_line(last[0])}" if last else answers.died


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


def _values_text(pairs: Iterable[tuple[Tensor, np.ndarray]]) -> str:
    return (
        ", ".join(
            f"{tensor.name} {tensor.dtype} {_shape_text(value.shape)}"
            for tensor, value in pairs
        )
        or "nothing"
    )
