"""What an export says about itself: `assets.extra/tfxformer.json` beside the model.

The limits and settings of the model, and examples: what Python answered when the
model was exported, for `verify` to ask again.
"""

import base64
import importlib.metadata
import json
import os
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  (teaches NumPy the type bfloat16)
import numpy as np

from tfxformer import __version__
from tfxformer.errors import UserError

METADATA_FILE = Path("assets.extra", "tfxformer.json")
FORMAT = 1


def example(
    signature: str, inputs: dict[str, np.ndarray], outputs: dict[str, np.ndarray]
) -> dict:
    """Makes one recorded example.

    Args:
        signature: The signature's name.
        inputs: What goes in, by name; strings as str or bytes.
        outputs: What Python answered, by name.

    Returns:
        A dict that JSON can hold.
    """
    return {
        "signature": signature,
        "inputs": {name: encode(value) for name, value in inputs.items()},
        "outputs": {name: encode(value) for name, value in outputs.items()},
    }


def numpy_type(name: str) -> np.dtype:
    """The NumPy type for TensorFlow's name of a type; strings are objects (bytes).

    Raises:
        TypeError: NumPy has no such type (a resource, a variant).

    Example:
        >>> numpy_type("float16").itemsize
        2
    """
    return np.dtype(object if name == "string" else name)


def encode(value: Any) -> Any:
    """Turns an array into what JSON can hold: nested lists.

    Bytes that are not UTF-8 become `{"b64": ...}`, as in TensorFlow Serving's REST
    API; an array without elements becomes `{"shape": [...]}`.

    Args:
        value: An array, or what numpy can make into one.

    Returns:
        Lists, numbers, strings and those objects.
    """
    array = np.asarray(value)
    if array.size == 0:
        return {"shape": list(array.shape)}
    if array.dtype.kind in "OSU":
        return _map(_encode_string, array.tolist())
    return array.tolist()


def decode(value: Any, dtype: str) -> np.ndarray:
    """Turns `encode`'s result back into an array.

    Args:
        value: Nested lists, or `{"shape": [...]}`.
        dtype: TensorFlow's name of the type: "string", "float32", ...

    Returns:
        The array; strings are bytes in an object array.

    Raises:
        ValueError: The lists are not an array of that type.
    """
    try:
        if isinstance(value, dict) and "shape" in value:
            return np.zeros(value["shape"], dtype=numpy_type(dtype))
        if dtype != "string":
            return np.array(value, dtype=numpy_type(dtype))
        array = np.array(_map(_decode_string, value), dtype=object)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as e:
        raise ValueError(f"not an array of {dtype}: {e}") from None
    if not all(isinstance(item, bytes) for item in array.flat):
        raise ValueError("not an array of string: its rows differ in length")
    return array


def _map(function, value):
    if isinstance(value, list):
        return [_map(function, item) for item in value]
    return function(value)


def _encode_string(value: str | bytes) -> str | dict:
    if isinstance(value, str):
        return value
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode()}


def _decode_string(value: str | dict) -> bytes:
    if isinstance(value, dict):
        return base64.b64decode(value["b64"], validate=True)
    return value.encode("utf-8")


def write_metadata(
    path: str | os.PathLike, examples: list[dict], model: dict | None = None
) -> Path:
    """Writes the examples beside a SavedModel, where `verify` finds them.

    Args:
        path: The SavedModel's folder.
        examples: Results of `example`, at least one for each signature.
        model: What else is worth knowing about the model (limits, sizes).

    Returns:
        The file written.
    """
    head = {
        "format": FORMAT,
        "tfxformer": __version__,
        "tensorflow": importlib.metadata.version("tensorflow"),
        "model": model or {},
    }
    # One entry a line: indented, a small attention matrix would fill pages.
    lines = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in head.items()]
    entries = ",\n".join(json.dumps(item, ensure_ascii=False) for item in examples)
    lines.append(f'"examples": [\n{entries}\n]')
    file = Path(path) / METADATA_FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    return file


def read_architecture(path: str | os.PathLike) -> dict:
    """Reads how an exported model is built.

    Args:
        path: The SavedModel's folder.

    Returns:
        The arguments of `Transformer`.

    Raises:
        UserError: The SavedModel is another program's, or does not say so.

    Example:
        >>> read_architecture("nowhere")
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: nowhere: a SavedModel, but none that tfxformer ...
    """
    metadata = read_metadata(path)
    if metadata is None:
        raise UserError(f"{path}: a SavedModel, but none that tfxformer exported")
    if "architecture" not in metadata["model"]:
        raise UserError(
            f"{path}: an earlier tfxformer exported it, without saying how its model "
            "is built: give the run folder, or export that again"
        )
    return metadata["model"]["architecture"]


def read_metadata(path: str | os.PathLike) -> dict | None:
    """Reads what `write_metadata` wrote; arrays stay as `encode` made them.

    Args:
        path: The SavedModel's folder.

    Returns:
        The file's contents, or None where there is no such file.

    Raises:
        UserError: The file is damaged, or of a later format.
    """
    file = Path(path) / METADATA_FILE
    if not file.exists():
        return None
    try:
        metadata = json.loads(file.read_text("utf-8"))
        if metadata["format"] != FORMAT:
            raise UserError(
                f"{file} has format {metadata['format']}, but this tfxformer reads "
                f"{FORMAT}: update tfxformer, or export the model again"
            )
        for item in metadata["examples"]:
            item["signature"], dict(item["inputs"]), dict(item["outputs"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"{file} is damaged ({error!r}): export it again") from None
    return metadata
