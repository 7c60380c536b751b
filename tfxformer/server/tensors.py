"""Tensors in requests and answers: JSON and protocol buffers to NumPy and back.

The rules and the messages are those of TensorFlow Serving (`json_tensor.cc` in its
source). ``specs`` are a signature's inputs, a dict of ``tf.TensorSpec`` by name.
"""

import base64
import json
import math

import numpy as np
import tensorflow as tf
from tensorflow.core.framework.tensor_pb2 import TensorProto

from tfxformer.server import invalid

# The field of a TensorProto for values of each type, as in TensorFlow Serving.
_FIELDS = {
    tf.float32: "float_val",
    tf.float64: "double_val",
    tf.int32: "int_val",
    tf.int64: "int64_val",
    tf.bool: "bool_val",
    tf.string: "string_val",
}


def parse_json(body):
    """The JSON object in a request's body."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise invalid(f"JSON Parse error: {error}") from None
    if not isinstance(document, dict):
        raise invalid("JSON Value Is not object")
    return document


def from_json(document, specs):
    """Arrays by input name from a predict request, and whether it is in row format."""
    rows = "instances" in document
    if rows == ("inputs" in document):
        one = "expecting only one of them"
        raise invalid(f"Missing 'inputs' or 'instances' key, or both are there: {one}")
    values = _columns(document["instances"], specs) if rows else document["inputs"]
    if not _is_object(values):
        if len(specs) > 1:
            raise invalid("inputs is a plain value/list, but expecting an object")
        values = dict.fromkeys(specs, values)
    for name in specs:
        if name not in values:
            raise invalid(f"Missing named input: {name} in 'inputs' object.")
    return {x: _array(x, values[x], spec) for x, spec in specs.items()}, rows


def _columns(instances, specs):
    """Rows as columns: a list of values for each input name."""
    if not isinstance(instances, list):
        raise invalid("Excepting 'instances' to be an list/array")
    if not instances:
        raise invalid("No values in 'instances' array")
    named = _is_object(instances[0])
    if not named and len(specs) > 1:
        raise invalid("instances is a plain list, but expecting list of objects")
    for i, row in enumerate(instances):
        if _is_object(row) != named:
            found, expected = ("list", "object") if named else ("object", "value/list")
            raise invalid(f"Expecting {expected} but got {found} at item {i}")
        if named and row.keys() != specs.keys():
            message = f"Failed to process element: {i} of 'instances' list."
            raise invalid(f"{message} It must only have keys: {','.join(specs)}")
    return {x: [row[x] if named else row for row in instances] for x in specs}


def _is_object(value):
    """Whether a value is an object of named tensors; {"b64": "..."} is a string."""
    return isinstance(value, dict) and [*value] != ["b64"]


def _array(name, value, spec):
    """Nested lists as an array of the input's type and shape."""
    dtype, array = spec.dtype, np.array(value, object)
    flat = array.ravel().tolist()
    if any(isinstance(x, list) for x in flat):
        raise invalid(f"input {name}: Encountered list at unexpected size")
    _check_shape(name, array.shape, spec)
    accepted = (int, float) if dtype.is_floating else (int,)
    accepted = {tf.string: (str, dict), tf.bool: (bool,)}.get(dtype, accepted)
    for i, x in enumerate(flat):
        if type(x) not in accepted:  # isinstance would accept True as a number
            expected = f"is not of expected type: {dtype.name}"
            raise invalid(f"input {name}, item {i}: JSON Value: {x!r} {expected}")
    if dtype == tf.string:
        return np.vectorize(_to_bytes, otypes=[object])(array)
    try:
        with np.errstate(over="raise"):
            return array.astype(dtype.as_numpy_dtype)
    except (OverflowError, FloatingPointError):
        raise invalid(f"input {name}: too large a number for {dtype.name}") from None


def _check_shape(name, shape, spec):
    if not spec.shape.is_compatible_with(shape):
        raise invalid(f"input {name}: expected shape {spec.shape} but got {shape}")


def _to_bytes(value):
    """The bytes of a JSON string, plain or in base64."""
    try:
        if isinstance(value, str):
            return value.encode()
        text = value["b64"]
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (KeyError, TypeError, ValueError) as error:
        raise invalid(f"neither Unicode nor base64: {error}") from None


def to_json(outputs, rows):
    """The answer to a predict request, in row or in column format.

    A single output comes without its name. Strings are UTF-8, with U+FFFD for other
    bytes, or base64 if the output's name ends in ``_bytes``.
    """
    sizes = {array.shape[:1] for array in outputs.values()}
    if rows and (len(sizes) > 1 or sizes == {()}):
        raise invalid("the outputs do not have the same number of rows")
    answer = {name: _plain(name, array) for name, array in outputs.items()}
    if len(answer) == 1:
        (answer,) = answer.values()
    elif rows:
        columns = zip(*answer.values(), strict=True)
        answer = [dict(zip(answer, row, strict=True)) for row in columns]
    key = "predictions" if rows else "outputs"
    return json.dumps({key: answer}, ensure_ascii=False)


def _plain(name, array):
    """An array as nested lists for JSON."""
    if array.dtype == object:
        flat = [x.decode(errors="replace") for x in array.flat]
        if name.endswith("_bytes"):
            flat = [{"b64": base64.b64encode(x).decode()} for x in array.flat]
        array = np.array(flat, object).reshape(array.shape)
    elif array.dtype == np.float32:
        # The fewest digits that distinguish a number from its neighbours.
        array = array.astype(str).astype(np.float64)
    return array.tolist()


def from_proto(protos, specs, max_elements):
    """Arrays by input name from ``TensorProto``s of at most ``max_elements``."""
    if {*protos} != {*specs}:
        names = f"sent {sorted(protos)}, but required {sorted(specs)}"
        raise invalid(f"inputs do not match signature: {names}")
    arrays = {}
    for name, spec in specs.items():
        proto = protos[name]
        if proto.dtype != spec.dtype.as_datatype_enum:
            raise invalid(f"Expects input {name} to be {spec.dtype.name}")
        shape = tuple(dim.size for dim in proto.tensor_shape.dim)
        # One value may stand for all elements of a shape.
        if min(shape, default=0) < 0 or math.prod(shape) > max_elements:
            raise invalid(f"tensor parsing error: {name} has shape {shape}")
        _check_shape(name, shape, spec)
        try:
            arrays[name] = tf.make_ndarray(proto)
        except Exception:  # many types of errors, all about the bytes
            raise invalid(f"tensor parsing error: {name}") from None
    return arrays


def to_proto(array):
    """An array as a ``TensorProto``, with its values in the field of their type.

    ``tf.make_tensor_proto`` uses ``tensor_content``, which some clients cannot read.
    """
    dtype = tf.string if array.dtype == object else tf.as_dtype(array.dtype)
    if dtype not in _FIELDS:
        return tf.make_tensor_proto(array)
    shape = tf.TensorShape(array.shape).as_proto()
    values = {_FIELDS[dtype]: array.ravel().tolist()}
    return TensorProto(dtype=dtype.as_datatype_enum, tensor_shape=shape, **values)
