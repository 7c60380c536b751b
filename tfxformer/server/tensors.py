"""Tensors as they travel: JSON and protocol buffers to NumPy, and back.

The rules and the messages are TensorFlow Serving's (`json_tensor.cc` in its source).
Where they leave a choice, the strict one is taken: a key that is there twice, or text
that is not UTF-8, is refused, and a string in an answer that is not UTF-8 has U+FFFD in
it, so that each answer is JSON.
"""

import base64
import binascii
import json
import math
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from tensorflow.core.framework.tensor_pb2 import TensorProto

from tfxformer.server.errors import ServingError, invalid

DEFAULT_SIGNATURE = "serving_default"
# The field of a TensorProto that holds each type's values, as the server writes them.
_FIELDS = {
    "float32": "float_val",
    "float64": "double_val",
    "int8": "int_val",
    "int16": "int_val",
    "int32": "int_val",
    "uint8": "int_val",
    "uint16": "int_val",
    "int64": "int64_val",
    "uint32": "uint32_val",
    "uint64": "uint64_val",
    "bool": "bool_val",
    "string": "string_val",
}
_TYPES = {
    type(None): "Null",
    bool: "Boolean",
    int: "Number",
    float: "Number",
    str: "String",
    list: "Array",
    dict: "Object",
}
# The most of a value that is quoted in a message.
_QUOTED = 100


@dataclass(frozen=True)
class Limits:
    """The most that one request may hold, and its answer.

    Args:
        rows: sentences, or whatever the first dimension counts.
        text_bytes: bytes of one string.
        elements: numbers or strings of one tensor.
    """

    rows: int = 1024
    text_bytes: int = 64 * 1024
    elements: int = 8 * 1024 * 1024


@dataclass(frozen=True)
class TensorSpec:
    """What a signature says of a tensor.

    Args:
        dtype: a ``tf.DType``.
        shape: sizes, None for what may vary; None where even the rank may.
    """

    dtype: tf.DType
    shape: tuple | None


class Signature:
    """What one of a model's signatures takes and gives.

    Args:
        name: its name.
        definition: a ``SignatureDef``.
    """

    def __init__(self, name, definition):
        self.name = name
        self.inputs = {key: _spec(x) for key, x in sorted(definition.inputs.items())}
        self.outputs = {key: _spec(x) for key, x in sorted(definition.outputs.items())}

    @property
    def by_row(self):
        """Whether a row's answer has the same shape in any company.

        Such rows are answered together; of others, a batch's longest would decide how
        far an answer is padded.
        """
        shapes = [x.shape for x in [*self.inputs.values(), *self.outputs.values()]]
        fixed = [x.shape[1:] for x in self.outputs.values() if x.shape]
        return all(shape and shape[0] is None for shape in shapes) and not any(
            None in sizes for sizes in fixed
        )


def _spec(info):
    unknown = info.tensor_shape.unknown_rank
    sizes = [d.size if d.size >= 0 else None for d in info.tensor_shape.dim]
    return TensorSpec(tf.as_dtype(info.dtype), None if unknown else tuple(sizes))


def _check_shape(name, shape, spec, limits):
    """Refuses a shape that a signature does not take, or that is too large."""
    if spec.shape is not None and (
        len(shape) != len(spec.shape)
        or any(b not in (None, a) for a, b in zip(shape, spec.shape, strict=True))
    ):
        expected = ",".join("?" if x is None else str(x) for x in spec.shape)
        found = ",".join(map(str, shape))
        raise invalid(f"input {name}: expected shape [{expected}] but got [{found}]")
    if shape and shape[0] > limits.rows:
        raise invalid(
            f"Task size {shape[0]} is larger than maximum input batch size "
            f"{limits.rows}"
        )
    if math.prod(shape) > limits.elements:
        raise invalid(
            f"input {name}: {math.prod(shape)} elements are more than the maximum of "
            f"{limits.elements}"
        )


# --- JSON to arrays ---


def parse_json(body):
    """Reads a request's body.

    Args:
        body: bytes.

    Returns:
        The dict in it.

    Raises:
        ServingError: INVALID_ARGUMENT, when it is not JSON, not an object, nested too
            deeply, or an object has a key twice.

    Example:
        >>> parse_json(b'{"instances": ["Bom dia!"]}')
        {'instances': ['Bom dia!']}
    """
    if not body:
        raise invalid("JSON Parse error: The document is empty")
    try:
        found = json.loads(body.decode("utf-8-sig"), object_pairs_hook=_object)
    except UnicodeDecodeError as error:
        raise invalid(f"JSON Parse error: not UTF-8 at offset: {error.start}") from None
    except json.JSONDecodeError as error:
        raise invalid(f"JSON Parse error: {error.msg} at offset: {error.pos}") from None
    except ValueError as error:  # a number of thousands of digits, a key twice
        raise invalid(f"JSON Parse error: {error}") from None
    except RecursionError:
        raise invalid("JSON Parse error: nested too deeply") from None
    if not isinstance(found, dict):
        raise invalid(f"JSON Value: {_show(found)} Is not object")
    return found


def _object(pairs):
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"key {_show(twice)} is there twice")
    return found


def _show(value):
    """A value's beginning, for a message."""
    if isinstance(value, dict):
        return "{...}" if value else "{}"
    if isinstance(value, list):
        return "[...]" if value else "[]"
    if isinstance(value, str):
        value = value[: _QUOTED + 1]
    text = json.dumps(value)
    return text if len(text) <= _QUOTED else text[:_QUOTED] + "..."


def signature_name(document):
    """The signature that a request asks for, or the default one's name."""
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        raise invalid(
            f"JSON Value: {_show(document)} not formatted correctly. 'signature_name' "
            "key must be a string value."
        )
    return name or DEFAULT_SIGNATURE


def _check_texts(name, array, limits):
    longest = max(map(len, array.flat), default=0) if array.dtype == object else 0
    if longest > limits.text_bytes:
        raise invalid(
            f"input {name}: a string of {longest} bytes is longer than the maximum of "
            f"{limits.text_bytes}"
        )
    return array


def from_json(document, signature, limits):
    """The input tensors of a predict request, in row or in column format.

    Args:
        document: what `parse_json` gave.
        signature: the `Signature` that it asks for.
        limits: `Limits`.

    Returns:
        Arrays by input name, and whether they came in rows.

    Raises:
        ServingError: INVALID_ARGUMENT, as TensorFlow Serving words it.
    """
    rows, columns = "instances" in document, "inputs" in document
    shown = f"JSON Value: {_show(document)}"
    if rows and columns:
        raise invalid(
            f"{shown} Not formatted correctly expecting only one of 'inputs' or "
            "'instances' keys to exist"
        )
    if columns:
        return _from_columns(document["inputs"], signature.inputs, limits), False
    if not rows:
        raise invalid("Missing 'inputs' or 'instances' key")
    instances = document["instances"]
    if not isinstance(instances, list):
        raise invalid(f"{shown} Excepting 'instances' to be an list/array")
    if not instances:
        raise invalid(f"{shown} No values in 'instances' array")
    return _from_rows(instances, signature.inputs, limits), True


def _from_rows(instances, specs, limits):
    named = _is_named(instances[0])
    if not named and len(specs) > 1:
        raise invalid(
            "instances is a plain list, but expecting list of objects as multiple "
            "input tensors required as per tensorinfo_map"
        )
    columns = {name: [] for name in specs}
    for i, instance in enumerate(instances):
        if _is_named(instance) != named:
            found, wanted = ("list", "object") if named else ("object", "value/list")
            raise invalid(
                f"Expecting {wanted} but got {found} at item {i} of input list"
            )
        if not named:
            columns[next(iter(specs))].append(instance)
            continue
        if instance.keys() != specs.keys():
            raise invalid(
                f"Failed to process element: {i} of 'instances' list. JSON object: "
                f"{_show(instance)} must only have keys: {','.join(specs)}"
            )
        for name, value in instance.items():
            columns[name].append(value)
    arrays = {}
    for name, values in columns.items():
        shape, flat = _shape(values[0]), []
        _check_shape(name, (len(values), *shape), specs[name], limits)
        for i, value in enumerate(values):
            try:
                _fill(flat, value, shape, 0, specs[name].dtype)
            except ServingError as error:
                key = f" key: {name}" if named else ""
                raise invalid(
                    f"Failed to process element: {i}{key} of 'instances' list. "
                    f"Error: INVALID_ARGUMENT: {error.message}"
                ) from None
        array = _array(flat, (len(values), *shape), specs[name].dtype)
        arrays[name] = _check_texts(name, array, limits)
    return arrays


def _from_columns(inputs, specs, limits):
    if not _is_named(inputs):
        if len(specs) > 1:
            raise invalid(
                "inputs is a plain value/list, but expecting an object as multiple "
                "input tensors required as per tensorinfo_map"
            )
        inputs = {next(iter(specs)): inputs}
    arrays = {}
    for name, spec in specs.items():
        if name not in inputs:
            raise invalid(f"Missing named input: {name} in 'inputs' object.")
        shape, flat = _shape(inputs[name]), []
        _check_shape(name, shape, spec, limits)
        _fill(flat, inputs[name], shape, 0, spec.dtype)
        arrays[name] = _check_texts(name, _array(flat, shape, spec.dtype), limits)
    return arrays


def _is_named(value):
    """Whether it is an object of named tensors; {"b64": "..."} is a string."""
    if not isinstance(value, dict):
        return False
    return [*value] != ["b64"] or not isinstance(value["b64"], str)


def _shape(value):
    """The shape that nested lists have if they have one: that of their first items."""
    shape = []
    while isinstance(value, list):
        shape.append(len(value))
        value = value[0] if value else None
    return tuple(shape)


def _fill(flat, value, shape, level, dtype):
    """Appends the values of nested lists, which must have the shape."""
    if not isinstance(value, list):
        if level != len(shape):
            raise invalid(
                f"JSON Value: {_show(value)} found at incorrect level: {level + 1} in "
                f"the JSON DOM. Expected at level: {len(shape)}"
            )
        flat.append(_value(value, dtype))
        return
    if level >= len(shape):
        raise invalid(
            f"Encountered list at unexpected level: {level} expected < {len(shape)}"
        )
    if len(value) != shape[level]:
        raise invalid(
            f"Encountered list at unexpected size: {len(value)} at level: {level} "
            f"expected size: {shape[level]}"
        )
    for item in value:
        _fill(flat, item, shape, level + 1, dtype)


def _value(value, dtype):
    """One value as NumPy wants it."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if dtype == tf.string:
        if isinstance(value, dict):
            return _binary(value)
        if isinstance(value, str):
            try:
                return value.encode()
            except UnicodeEncodeError:
                raise invalid(
                    "JSON Parse error: The surrogate pair in string is invalid"
                ) from None
    elif dtype == tf.bool:
        if isinstance(value, bool):
            return value
    elif dtype.is_integer:
        if number and isinstance(value, int) and dtype.min <= value <= dtype.max:
            return value
    elif dtype.is_floating:
        if number:
            most = float(dtype.max)
            finite = isinstance(value, int) or math.isfinite(value)
            if finite and not -most <= value <= most:
                raise invalid(
                    f"Cannot convert JSON value: {_show(value)} to {dtype.name} "
                    "without loss of precision."
                )
            return float(value)
    else:
        raise ServingError(
            "UNIMPLEMENTED",
            f"Conversion of JSON Value: {_show(value)} to type: {dtype.name}",
        )
    raise invalid(
        f"JSON Value: {_show(value)} Type: {_TYPES[type(value)]} is not of expected "
        f"type: {dtype.name}"
    )


def _binary(value):
    if _is_named(value):
        raise invalid(
            f"JSON Value: {_show(value)} not formatted correctly for base64 data"
        )
    try:
        text = value["b64"]
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise invalid("Unable to base64 decode") from None


def _array(flat, shape, dtype):
    dtype = object if dtype == tf.string else dtype.as_numpy_dtype
    return np.array(flat, dtype).reshape(shape)


# --- Arrays to JSON ---


def to_json(outputs, rows):
    """Writes a predict answer.

    Args:
        outputs: arrays by output name.
        rows: whether the request came in rows.

    Returns:
        JSON text. A single output comes without its name.

    Raises:
        ServingError: INVALID_ARGUMENT, when the outputs do not go in rows.

    Example:
        >>> outputs = {"score": np.array([-0.1, -2], "float32")}
        >>> to_json(outputs, rows=True)
        '{"predictions": [-0.1, -2.0]}'
        >>> outputs["translation"] = np.array([b"a cat", b""], object)
        >>> to_json(outputs, rows=False)
        '{"outputs": {"score": [-0.1, -2.0], "translation": ["a cat", ""]}}'
    """
    sizes = [len(array) if array.ndim else None for array in outputs.values()]
    if rows and (None in sizes or 0 in sizes or len({*sizes}) > 1):
        raise invalid(f"outputs of batch sizes {sizes} are not in rows")
    texts = {name: _texts(name, array) for name, array in outputs.items()}
    if rows:
        named = (
            zip(texts, row, strict=True) for row in zip(*texts.values(), strict=True)
        )
        return f'{{"predictions": [{", ".join(map(_members, named))}]}}'
    values = (
        (name, f"[{', '.join(part)}]" if outputs[name].ndim else part[0])
        for name, part in texts.items()
    )
    return f'{{"outputs": {_members(values)}}}'


def _members(named):
    """A JSON object of names and JSON texts; of a single one, the text alone."""
    named = [*named]
    if len(named) == 1:
        return named[0][1]
    return "{" + ", ".join(f"{json.dumps(name)}: {text}" for name, text in named) + "}"


def _texts(name, array):
    """The JSON text of each row, or of a single value."""
    if array.ndim == 1:
        parts = _plain(name, array)
    else:  # row by row, so that other threads may have their turn
        parts = (_plain(name, part) for part in (array if array.ndim else [array]))
    try:
        return [json.dumps(part, ensure_ascii=False) for part in parts]
    except TypeError:
        raise invalid(
            f"Failed to write JSON value for tensor type: {array.dtype}"
        ) from None


def _plain(name, array):
    """Lists and scalars that JSON can hold."""
    if array.dtype == object:
        binary = name.endswith("_bytes")
        flat = [
            {"b64": base64.b64encode(x).decode()}
            if binary
            else x.decode(errors="replace")
            for x in array.flat
        ]
        return np.array(flat, object).reshape(array.shape).tolist()
    if array.dtype in (np.float32, np.float16):
        # With the digits that tell it from its neighbours, and no noise of float64's.
        array = array.astype(str).astype(np.float64)
    return array.tolist()


# --- Protocol buffers ---


def from_proto(request_inputs, signature, limits):
    """The input tensors of a gRPC request.

    Args:
        request_inputs: ``TensorProto`` by input name.
        signature: the `Signature` that it asks for.
        limits: `Limits`.

    Returns:
        Arrays by input name.

    Raises:
        ServingError: INVALID_ARGUMENT, as TensorFlow Serving words it.
    """
    sent, wanted = {*request_inputs}, {*signature.inputs}
    names = ["{" + ",".join(sorted(x)) + "}" for x in (sent, wanted)]
    if len(sent) != len(wanted):
        extra, missing = sorted(sent - wanted), sorted(wanted - sent)
        raise invalid(
            f"input size does not match signature: {len(sent)}!={len(wanted)} "
            f"len({names[0]}) != len({names[1]}). Sent extra: {{{','.join(extra)}}}. "
            f"Missing but required: {{{','.join(missing)}}}."
        )
    for name in sorted(sent - wanted):
        raise invalid(
            f"input tensor alias not found in signature: {name}. Inputs expected to be "
            f"in the set {names[1]}."
        )
    return {
        name: _from_tensor_proto(name, i, request_inputs[name], spec, limits)
        for i, (name, spec) in enumerate(signature.inputs.items())
    }


def _from_tensor_proto(name, index, proto, spec, limits):
    parsing = invalid(f"tensor parsing error: {name}")
    shape = tuple(dim.size for dim in proto.tensor_shape.dim)
    if proto.tensor_shape.unknown_rank or any(size < 0 for size in shape):
        raise parsing
    try:
        dtype = tf.as_dtype(proto.dtype)
    except TypeError:
        raise parsing from None
    if dtype != spec.dtype:
        raise invalid(
            f"Expects arg[{index}] to be {spec.dtype.name} but {dtype.name} is provided"
        )
    # Before there is an array: one value may stand for as many as the shape says.
    _check_shape(name, shape, spec, limits)
    try:
        array = tf.make_ndarray(proto)
    except Exception:  # of many kinds, all of them about the bytes
        raise parsing from None
    if dtype == tf.string:
        array = array.astype(object)
    return _check_texts(name, array, limits)


def to_proto(array):
    """A ``TensorProto``, its values in the field of their type.

    Example:
        >>> to_proto(np.array([1.5, 2], "float32")).float_val
        [1.5, 2.0]
    """
    dtype = tf.string if array.dtype == object else tf.as_dtype(array.dtype)
    if dtype.name not in _FIELDS:
        return tf.make_tensor_proto(array)
    proto = TensorProto(dtype=dtype.as_datatype_enum)
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    getattr(proto, _FIELDS[dtype.name]).extend(array.ravel().tolist())
    return proto
