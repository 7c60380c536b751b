"""Run a SavedModel through TensorFlow's C library, with no Python TensorFlow.

TensorFlow Serving is a C++ program: it loads a SavedModel with the C++ loader and
runs it in a session. Both are in the TensorFlow wheel, and its C API reaches them
through ctypes. `tf.saved_model.load` takes another road (it rebuilds Python
objects), so what it accepts proves nothing about the server.

    with SavedModelSession("export/pt_en/1") as session:
        text = np.array(["Olá.".encode()], dtype=object)
        session.run({"serving_default_text:0": text}, ["StatefulPartitionedCall:0"])

This module imports ctypes, numpy and the standard library only. `run_apart` does
the work in a fresh process, which is the proof that nothing of Python TensorFlow
had a hand in it, and which may crash or hang without taking the caller along.
"""

import contextlib
import ctypes
import functools
import importlib.util
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_void_p
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from tfxformer.errors import UserError

# TF_Code, in tsl_status.h.
CODES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED"),
    *("NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED"),
    *("FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL"),
    *("UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)

# TF_DataType, in tf_datatype.h, as numpy names it.
STRING = 7
DTYPES = {
    1: "float32",
    2: "float64",
    3: "int32",
    4: "uint8",
    5: "int16",
    6: "int8",
    8: "complex64",
    9: "int64",
    10: "bool",
    14: "bfloat16",
    17: "uint16",
    18: "complex128",
    19: "float16",
    22: "uint32",
    23: "uint64",
}

TSTRING_SIZE = 24  # sizeof(TF_TString) where pointers have 64 bits


class TensorFlowError(Exception):
    """What the C library reports: a status code's name and its message."""

    def __init__(self, code: str, message: str):
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class _Buffer(ctypes.Structure):
    _fields_ = (("data", c_void_p), ("length", c_size_t), ("deallocator", c_void_p))


class _Output(ctypes.Structure):
    _fields_ = (("operation", c_void_p), ("index", c_int))


# name: (result, arguments). Opaque pointers are c_void_p.
_FUNCTIONS = {
    "TF_Version": (c_char_p, []),
    "TF_NewStatus": (c_void_p, []),
    "TF_DeleteStatus": (None, [c_void_p]),
    "TF_GetCode": (c_int, [c_void_p]),
    "TF_Message": (c_char_p, [c_void_p]),
    "TF_GetAllOpList": (POINTER(_Buffer), []),
    "TF_DeleteBuffer": (None, [POINTER(_Buffer)]),
    "TF_LoadLibrary": (c_void_p, [c_char_p, c_void_p]),
    "TF_GetOpList": (_Buffer, [c_void_p]),
    "TF_DeleteLibraryHandle": (None, [c_void_p]),
    "TF_NewGraph": (c_void_p, []),
    "TF_DeleteGraph": (None, [c_void_p]),
    "TF_GraphOperationByName": (c_void_p, [c_void_p, c_char_p]),
    "TF_NewSessionOptions": (c_void_p, []),
    "TF_DeleteSessionOptions": (None, [c_void_p]),
    "TF_LoadSessionFromSavedModel": (
        c_void_p,  # session
        # options, run options, folder, tags, how many, graph, metagraph, status
        [
            *(c_void_p, c_void_p, c_char_p, POINTER(c_char_p), c_int),
            *(c_void_p, c_void_p, c_void_p),
        ],
    ),
    "TF_CloseSession": (None, [c_void_p, c_void_p]),
    "TF_DeleteSession": (None, [c_void_p, c_void_p]),
    "TF_SessionRun": (
        None,
        # session, run options; inputs, their tensors, how many; outputs likewise;
        # targets, how many; run metadata, status
        [
            *(c_void_p, c_void_p),
            *(POINTER(_Output), POINTER(c_void_p), c_int),
            *(POINTER(_Output), POINTER(c_void_p), c_int),
            *(c_void_p, c_int, c_void_p, c_void_p),
        ],
    ),
    "TF_AllocateTensor": (c_void_p, [c_int, POINTER(c_int64), c_int, c_size_t]),
    "TF_DeleteTensor": (None, [c_void_p]),
    "TF_TensorType": (c_int, [c_void_p]),
    "TF_NumDims": (c_int, [c_void_p]),
    "TF_Dim": (c_int64, [c_void_p, c_int]),
    "TF_TensorData": (c_void_p, [c_void_p]),
    "TF_StringInit": (None, [c_void_p]),
    "TF_StringCopy": (None, [c_void_p, c_char_p, c_size_t]),
    "TF_StringGetDataPointer": (c_void_p, [c_void_p]),
    "TF_StringGetSize": (c_size_t, [c_void_p]),
}


def _package(name: str) -> Path | None:
    """Finds an installed package's folder without importing it."""
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec and spec.origin else None


def find_libraries() -> list[Path]:
    """Finds TensorFlow's C library in the installed wheel, without importing it.

    Returns:
        The two files in the order in which they must be loaded.

    Raises:
        UserError: TensorFlow is not installed, or its wheel has no such library.
    """
    folder = _package("tensorflow")
    if folder is None:
        raise UserError("TensorFlow is not installed: pip install tensorflow")
    paths = []
    # The framework first: the other one and tensorflow-text's need its symbols.
    for stem in ("libtensorflow_framework", "libtensorflow_cc"):
        names = [f"{stem}.so.2", f"{stem}.2.dylib"]  # Linux, macOS
        found = [folder / name for name in names if (folder / name).is_file()]
        if not found:
            raise UserError(
                f"{names[0]} not found in {folder}: this TensorFlow wheel does not "
                "ship the C library (those for Linux and macOS do)"
            )
        paths.append(found[0])
    return paths


@functools.cache
def library() -> SimpleNamespace:
    """Loads TensorFlow's C library and declares the functions used here."""
    loaded = [
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL) for path in find_libraries()
    ]
    functions = SimpleNamespace()
    for name, (result, arguments) in _FUNCTIONS.items():
        # dlsym looks into a library's dependencies too, so the last one has all.
        function = getattr(loaded[-1], name)
        function.restype, function.argtypes = result, arguments
        setattr(functions, name, function)
    return functions


@contextlib.contextmanager
def _status():
    """A TF_Status; raises what it holds when the block ends."""
    lib = library()
    status = lib.TF_NewStatus()
    try:
        yield status
        code = lib.TF_GetCode(status)
        if code != 0:
            name = CODES[code] if code < len(CODES) else f"CODE_{code}"
            message = lib.TF_Message(status).decode("utf-8", "replace")
            raise TensorFlowError(name, message)
    finally:
        lib.TF_DeleteStatus(status)


def tensorflow_version() -> str:
    """The version of the C library."""
    return library().TF_Version().decode()


def registered_ops() -> set[str]:
    """Names of the ops registered so far: TensorFlow's, and what was loaded."""
    lib = library()
    buffer = lib.TF_GetAllOpList()
    try:
        return _op_names(_bytes_of(buffer.contents))
    finally:
        lib.TF_DeleteBuffer(buffer)


@functools.cache
def load_text_ops() -> frozenset[str]:
    """Loads tensorflow-text's op libraries, which TensorFlow Serving links in.

    Returns:
        The names of the ops they add; none if tensorflow-text is not installed.
    """
    folder = _package("tensorflow_text")
    if folder is None:
        return frozenset()
    lib = library()
    ops_folder = folder / "python" / "ops"
    names = set()
    for path in sorted((*ops_folder.glob("*.so"), *ops_folder.glob("*.dylib"))):
        with _status() as status:
            handle = lib.TF_LoadLibrary(os.fsencode(path), status)
        names |= _op_names(_bytes_of(lib.TF_GetOpList(handle)))
        lib.TF_DeleteLibraryHandle(handle)  # frees the handle, not the library
    return frozenset(names)


def _bytes_of(buffer: _Buffer) -> bytes:
    return ctypes.string_at(buffer.data, buffer.length) if buffer.length else b""


def _op_names(op_list: bytes) -> set[str]:
    """Names in a serialised OpList: `repeated OpDef op = 1`, `string name = 1`."""
    return {name.decode() for op in _field_1(op_list) for name in _field_1(op)}


def _field_1(message: bytes):
    """Yields the contents of each length-delimited field 1 of a protobuf message."""
    position = 0

    def varint() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = message[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    while position < len(message):
        number, wire_type = divmod(varint(), 8)
        if wire_type == 0:
            varint()
            continue
        size = {1: 8, 5: 4}.get(wire_type) or varint()
        if (number, wire_type) == (1, 2):
            yield message[position : position + size]
        position += size


def numpy_type(name: str) -> np.dtype:
    """The numpy type of a TensorFlow type's name; strings are objects (bytes).

    Raises:
        TensorFlowError: numpy has no such type (a resource, a variant).
    """
    if name == "string":
        return np.dtype(object)
    if name not in DTYPES.values():
        raise TensorFlowError("UNIMPLEMENTED", f"numpy has no type for {name} tensors")
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def _type_code(dtype: np.dtype) -> int:
    if dtype.kind in "OSU":
        return STRING
    for code, name in DTYPES.items():
        if name == dtype.name:
            return code
    raise TensorFlowError("UNIMPLEMENTED", f"TensorFlow has no type for {dtype} arrays")


def _new_tensor(array: np.ndarray) -> int:
    """Copies an array into a new TF_Tensor; TF_DeleteTensor frees it, strings too."""
    lib = library()
    code = _type_code(array.dtype)
    size = array.size * (TSTRING_SIZE if code == STRING else array.itemsize)
    shape = (c_int64 * array.ndim)(*array.shape)
    strings = []
    if code == STRING:  # encoded before the tensor exists: this may raise
        strings = [s.encode() if isinstance(s, str) else s for s in array.flat]
        for item in strings:
            if not isinstance(item, bytes):
                raise TypeError(f"a string tensor cannot hold {item!r}")
    tensor = lib.TF_AllocateTensor(code, shape, array.ndim, size)
    data = lib.TF_TensorData(tensor)
    for i, item in enumerate(strings):
        lib.TF_StringInit(data + i * TSTRING_SIZE)
        lib.TF_StringCopy(data + i * TSTRING_SIZE, item, len(item))
    if code != STRING and size:
        array = np.ascontiguousarray(array)
        ctypes.memmove(data, array.ctypes.data, size)
    return tensor


def _to_array(tensor: int) -> np.ndarray:
    """Copies a TF_Tensor out; strings become an object array of bytes."""
    lib = library()
    code = lib.TF_TensorType(tensor)
    shape = tuple(lib.TF_Dim(tensor, i) for i in range(lib.TF_NumDims(tensor)))
    data = lib.TF_TensorData(tensor)
    if code == STRING:
        array = np.empty(shape, dtype=object)
        for i in range(array.size):
            item = data + i * TSTRING_SIZE
            pointer = lib.TF_StringGetDataPointer(item)
            array.flat[i] = ctypes.string_at(pointer, lib.TF_StringGetSize(item))
        return array
    array = np.empty(shape, dtype=numpy_type(DTYPES.get(code, f"type {code}")))
    if array.nbytes:
        ctypes.memmove(array.ctypes.data, data, array.nbytes)
    return array


class SavedModelSession:
    """A SavedModel loaded and run as TensorFlow Serving does it.

    Its initialiser restores the variables and runs the model's own initialisation,
    as the server does when it mounts the model.

    Args:
        path: The folder that holds `saved_model.pb`.
        tags: Which of the SavedModel's graphs to load; the server asks for "serve".

    Raises:
        TensorFlowError: The C++ loader refuses it.
    """

    def __init__(self, path: str | os.PathLike, tags: tuple[str, ...] = ("serve",)):
        # A model that uses none of its ops runs without tensorflow-text.
        with contextlib.suppress(TensorFlowError):
            load_text_ops()
        lib = library()
        self._session = None
        self._graph = lib.TF_NewGraph()
        options = lib.TF_NewSessionOptions()
        names = (c_char_p * len(tags))(*(tag.encode() for tag in tags))
        try:
            with _status() as status:
                self._session = lib.TF_LoadSessionFromSavedModel(
                    *(options, None, os.fsencode(path), names, len(tags)),
                    *(self._graph, None, status),
                )
        except TensorFlowError:
            self.close()
            raise
        finally:
            lib.TF_DeleteSessionOptions(options)

    def run(
        self, inputs: dict[str, np.ndarray], outputs: list[str]
    ) -> list[np.ndarray]:
        """Runs the graph once.

        Args:
            inputs: Tensor names ("serving_default_text:0") and their values. Strings
                are object arrays of bytes: numpy's own fixed-width strings would
                lose NULs at the end.
            outputs: The names of the tensors to compute.

        Returns:
            Their values, in that order.

        Raises:
            TensorFlowError: A name is not in the graph, or the run fails.
        """
        if not self._session:
            raise TensorFlowError("FAILED_PRECONDITION", "the session is closed")
        lib = library()
        feeds = (_Output * len(inputs))(*map(self._tensor, inputs))
        fetches = (_Output * len(outputs))(*map(self._tensor, outputs))
        feed_values = (c_void_p * len(inputs))()
        fetch_values = (c_void_p * len(outputs))()
        with contextlib.ExitStack() as stack:
            for i, value in enumerate(inputs.values()):
                feed_values[i] = _new_tensor(np.asarray(value))
                stack.callback(lib.TF_DeleteTensor, feed_values[i])
            with _status() as status:
                lib.TF_SessionRun(
                    *(self._session, None),
                    *(feeds, feed_values, len(inputs)),
                    *(fetches, fetch_values, len(outputs)),
                    *(None, 0, None, status),
                )
            for tensor in fetch_values:
                stack.callback(lib.TF_DeleteTensor, tensor)
            return [_to_array(tensor) for tensor in fetch_values]

    def _tensor(self, name: str) -> _Output:
        """Finds "operation:index" in the graph."""
        operation, _, index = name.partition(":")
        found = library().TF_GraphOperationByName(self._graph, operation.encode())
        if not found:
            raise TensorFlowError("NOT_FOUND", f"the graph has no tensor {name!r}")
        return _Output(found, int(index or 0))

    def close(self) -> None:
        """Frees the session and the graph; a second call does nothing."""
        lib = library()
        if self._session:
            for free in (lib.TF_CloseSession, lib.TF_DeleteSession):
                with _status() as status:
                    free(self._session, status)
        if self._graph:
            lib.TF_DeleteGraph(self._graph)
        self._session = self._graph = None

    def __enter__(self) -> "SavedModelSession":
        return self

    def __exit__(self, *_) -> None:
        self.close()


# In a process of its own. The two sides speak pickle through two files: the
# answers are appended one by one, so those before a crash are kept and show where
# it happened. Nobody else writes these files.


@dataclass
class Job:
    """One run of the graph.

    Attributes:
        inputs: Tensor names and their values.
        outputs: Tensor names.
        group: Once a job of a group has succeeded, its other jobs are skipped; None
            runs always.
    """

    inputs: dict[str, np.ndarray]
    outputs: list[str]
    group: str | None = None


@dataclass
class Answers:
    """What the process said.

    Attributes:
        tensorflow: The C library's version.
        python_tensorflow: Whether Python TensorFlow was imported there (it must not).
        ops: Names of TensorFlow's own ops.
        text_ops: Names of the ops that tensorflow-text adds.
        text_error: Why tensorflow-text could not be loaded, if so.
        loaded: Whether the SavedModel loaded.
        load_error: The loader's error, if it did not.
        results: For each job that ran, by its index: the outputs, or the error.
        running: The index of the last job begun.
        finished: Whether it came to its end.
        died: One line saying how it ended, if it crashed or was stopped.
        log: What the process wrote to stdout and stderr.
    """

    tensorflow: str = ""
    python_tensorflow: bool | None = None
    ops: frozenset[str] = frozenset()
    text_ops: frozenset[str] = frozenset()
    text_error: str = ""
    loaded: bool = False
    load_error: TensorFlowError | None = None
    results: dict[int, list[np.ndarray] | TensorFlowError] = field(default_factory=dict)
    running: int | None = None
    finished: bool = False
    died: str = ""
    log: str = ""


def run_apart(
    path: str | os.PathLike, jobs: list[Job], timeout: float = 600.0
) -> Answers:
    """Loads a SavedModel and runs jobs in a new process without Python TensorFlow.

    Args:
        path: The SavedModel's folder.
        jobs: What to run, in order.
        timeout: Seconds until the process is stopped.

    Returns:
        Everything it answered, also when it crashed half way.

    Raises:
        UserError: The C library is not there.
    """
    find_libraries()
    environment = dict(os.environ)
    # The proof needs no accelerator, and a trainer beside us may hold its memory.
    environment["CUDA_VISIBLE_DEVICES"] = "-1"
    with tempfile.TemporaryDirectory(prefix="tfxformer-verify-") as folder:
        request = Path(folder, "request.pickle")
        replies = Path(folder, "answers.pickle")
        log = Path(folder, "log.txt")
        # Plain tuples: there, this module is called __main__, not tfxformer.c_api.
        plain = [(job.inputs, job.outputs, job.group) for job in jobs]
        request.write_bytes(pickle.dumps((os.path.abspath(path), plain)))
        replies.touch()
        command = [sys.executable, "-m", "tfxformer.c_api", str(request), str(replies)]
        died = ""
        with log.open("wb") as log_file:
            try:
                code = subprocess.run(
                    command,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log_file,
                    stderr=subprocess.STDOUT,
                    timeout=timeout,
                ).returncode
            except subprocess.TimeoutExpired:
                code = 0
                died = f"gave no answer within {timeout:g} s and was stopped"
        answers = _read_answers(replies)
        answers.log = log.read_text("utf-8", "replace")
    # A crash while the process takes itself apart, all work done, is no matter.
    if not died and not answers.finished:
        name = f"exit status {code}"
        if code < 0:
            with contextlib.suppress(ValueError):
                name = signal.Signals(-code).name
        died = f"crashed ({name})"
    answers.died = died
    return answers


def _read_answers(path: Path) -> Answers:
    answers = Answers()
    with path.open("rb") as file:
        while True:
            try:
                kind, value = pickle.load(file)
            except (EOFError, pickle.UnpicklingError):  # the end, or cut off there
                return answers
            if kind == "start":
                for name, item in value.items():
                    setattr(answers, name, item)
            elif kind == "load_error":
                answers.load_error = TensorFlowError(*value)
            elif kind == "loaded":
                answers.loaded = True
            elif kind == "running":
                answers.running = value
            elif kind == "outputs":
                answers.results[answers.running] = value
            elif kind == "error":
                answers.results[answers.running] = TensorFlowError(*value)
            elif kind == "end":
                answers.finished = True


def _child(request: str, replies: str) -> None:
    """The other side of `run_apart`."""
    path, jobs = pickle.loads(Path(request).read_bytes())
    with open(replies, "wb") as file:

        def say(kind: str, value=None) -> None:
            pickle.dump((kind, value), file)
            file.flush()

        ops, text_ops, text_error = frozenset(registered_ops()), frozenset(), ""
        try:
            text_ops = load_text_ops()
        except TensorFlowError as error:
            text_error = str(error)
        start = {"tensorflow": tensorflow_version(), "ops": ops, "text_ops": text_ops}
        imported = "tensorflow" in sys.modules or "tensorflow_text" in sys.modules
        say("start", start | {"text_error": text_error, "python_tensorflow": imported})
        try:
            session = SavedModelSession(path)
        except TensorFlowError as error:
            say("load_error", (error.code, error.message))
            say("end")
            return
        say("loaded")
        done = set()
        with session:
            for i, (inputs, outputs, group) in enumerate(jobs):
                if group in done:
                    continue
                say("running", i)
                try:
                    say("outputs", session.run(inputs, outputs))
                    done |= {group} - {None}
                except TensorFlowError as error:
                    say("error", (error.code, error.message))
        say("end")


if __name__ == "__main__":
    _child(*sys.argv[1:])
