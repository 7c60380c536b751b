"""JSON and protocol buffers to arrays and back, beyond the conformance tests."""

import json
import math

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework.tensor_pb2 import TensorProto

from tfxformer.server import ServingError, tensors

SPECS = {
    "text": {"text": tf.TensorSpec([None], tf.string)},
    "x": {"x": tf.TensorSpec([None], tf.float32)},
    "pair": {
        "a": tf.TensorSpec([None], tf.string),
        "b": tf.TensorSpec([None, 2], tf.int32),
    },
    "flag": {"flag": tf.TensorSpec(None, tf.bool)},
}
ACCEPTED = r"""
text | {"inputs": []} | {"text": []}
text | {"inputs": {"text": [{"b64": "YQ"}, "b"]}} | {"text": ["a", "b"]}
x | {"instances": [1, 2.5]} | {"x": [1.0, 2.5]}
flag | {"inputs": [[true], [false]]} | {"flag": [[true], [false]]}
flag | {"inputs": true} | {"flag": true}
pair | {"instances": [{"b": [1, 2], "a": "x"}]} | {"a": ["x"], "b": [[1, 2]]}
"""
# Deep nesting: `tf.constant` would crash the process.
REFUSED = rf"""
text | [ | JSON Parse error
text | {"[" * 10**5} | JSON Parse error
text | {{"instances": ["a", 1]}} | text, item 1: JSON Value: 1 is not of expected type
text | {{"inputs": [null]}} | None is not of expected type: string
text | {{"inputs": ["\ud800"]}} | neither Unicode nor
text | {{"inputs": [{{"b64": 5}}]}} | nor base64
text | {{"inputs": "a"}} | expected shape (None,) but got ()
text | {{"inputs": {"[" * 500}{"]" * 500}}} | list at unexpected size
flag | {{"inputs": {"[" * 500}{"]" * 500}}} | list at unexpected size
flag | {{"inputs": [1]}} | is not of expected type: bool
x | {{"instances": [true]}} | True is not of expected type: float32
x | {{"instances": [1e39]}} | x: too large a number for float32
pair | {{"inputs": ["a"]}} | inputs is a plain value/list, but expecting
pair | {{"inputs": {{"a": ["x"], "b": [[1, 2, 3]]}}}} | (None, 2) but got (1, 3)
pair | {{"inputs": {{"a": ["x"], "b": [[1.5, 2]]}}}} | expected type: int32
pair | {{"inputs": {{"a": ["x"], "b": [[2147483648, 2]]}}}} | too large a number
"""


def rows(table):
    return [line.split(" | ") for line in table.strip().splitlines()]


@pytest.mark.parametrize(("specs", "body", "expected"), rows(ACCEPTED))
def test_from_json_reads_row_and_column_requests_into_arrays(specs, body, expected):
    arrays, _ = tensors.from_json(tensors.parse_json(body), SPECS[specs])
    for name, value in json.loads(expected).items():
        expected = tf.constant(value, SPECS[specs][name].dtype).numpy()
        np.testing.assert_array_equal(arrays[name], expected, strict=value is not True)


def test_from_json_refuses_malformed_json_wrong_types_and_wrong_shapes():
    for specs, body, message in rows(REFUSED):
        with pytest.raises(ServingError) as caught:
            tensors.from_json(tensors.parse_json(body), SPECS[specs])
        error = caught.value
        assert error.code == "INVALID_ARGUMENT" and message in str(error), body


def test_to_json_writes_outputs_as_rows_or_columns():
    outputs = {
        "scores": np.array([[0.1, -2], [np.nan, np.inf]], "float32"),
        "text": np.array([b"\xffa", "é\n".encode()], object),
    }
    found = json.loads(tensors.to_json(outputs, rows=True))["predictions"]
    assert [row["text"] for row in found] == ["\ufffda", "é\n"]
    assert found[0]["scores"] == [0.1, -2.0]  # and not 0.10000000149011612
    assert math.isnan(found[1]["scores"][0]) and found[1]["scores"][1] == math.inf
    found = tensors.to_json({"text_bytes": np.array([b"\xff"], object)}, rows=True)
    assert json.loads(found) == {"predictions": [{"b64": "/w=="}]}
    several = {"n": np.array(5, "int64"), "empty": np.zeros((0, 3), "float32")}
    found = json.loads(tensors.to_json(several, rows=False))
    assert found == {"outputs": {"n": 5, "empty": []}}
    with pytest.raises(ServingError, match="same number of rows"):
        tensors.to_json(several, rows=True)


def test_text_in_json_is_not_escaped():
    """People read it as it is, for example in the output of `curl`."""
    output = np.array(["Olá".encode()], object)
    found = tensors.to_json({"translation": output}, rows=True)
    assert found == '{"predictions": ["Olá"]}'


@pytest.mark.parametrize(
    ("dims", "values", "message"),
    [
        ([1], {"string_val": [b"a", b"b"]}, "tensor parsing error: text"),
        ([-1], {"string_val": [b"a"]}, "tensor parsing error: text"),
        ([1, 1], {"string_val": [b"a"]}, "expected shape (None,) but got (1, 1)"),
        ([2**40], {"string_val": [b"a"]}, "has shape (1099511627776,)"),  # of one
    ],
)
def test_from_proto_refuses_malformed_tensors_and_wrong_shapes(dims, values, message):
    shape = {"dim": [{"size": size} for size in dims]}
    proto = TensorProto(dtype="DT_STRING", tensor_shape=shape, **values)
    with pytest.raises(ServingError) as caught:
        tensors.from_proto({"text": proto}, SPECS["text"], max_elements=100)
    assert caught.value.code == "INVALID_ARGUMENT" and message in str(caught.value)


@pytest.mark.parametrize("dtype", [*tensors._FIELDS, tf.uint8])
def test_to_proto_writes_values_into_the_field_of_their_dtype(dtype):
    """In the field of their type, for clients that do not read tensor_content."""
    array = np.array([b"a", b"\xff"] if dtype == tf.string else [1, 0])
    made = tensors.to_proto(array.astype(dtype.as_numpy_dtype))
    assert dtype == tf.uint8 or len(getattr(made, tensors._FIELDS[dtype])) == 2
    assert tf.make_ndarray(made).tolist() == array.tolist()
