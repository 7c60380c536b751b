"""JSON and protocol buffers to arrays, and back."""

import json
import math

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework.tensor_pb2 import TensorProto

from tfxformer.server import ServingError, tensors


def specs(**inputs):
    return {
        name: tf.TensorSpec(shape, dtype) for name, (dtype, shape) in inputs.items()
    }


TEXT = specs(text=(tf.string, [None]))
NUMBERS = specs(x=(tf.float32, [None]))
PAIR = specs(a=(tf.string, [None]), b=(tf.int32, [None, 2]))
FLAGS = specs(flag=(tf.bool, None))


@pytest.mark.parametrize(
    ("given", "body", "expected"),
    [
        (
            TEXT,
            {"instances": ["a", {"b64": "/w=="}]},
            {"text": [b"a", b"\xff"]},
        ),
        (TEXT, {"inputs": []}, {"text": []}),
        (TEXT, {"inputs": {"text": [{"b64": "YQ"}]}}, {"text": [b"a"]}),
        (NUMBERS, {"instances": [1, 2.5]}, {"x": [1.0, 2.5]}),
        (FLAGS, {"inputs": [[True], [False]]}, {"flag": [[True], [False]]}),
        (FLAGS, {"inputs": True}, {"flag": True}),
        (
            PAIR,
            {"instances": [{"a": "x", "b": [1, 2]}, {"b": [3, 4], "a": "y"}]},
            {"a": [b"x", b"y"], "b": [[1, 2], [3, 4]]},
        ),
    ],
)
def test_json_to_arrays(given, body, expected):
    found, rows = tensors.from_json(body, given)
    assert {name: array.tolist() for name, array in found.items()} == expected
    assert rows == ("instances" in body)
    for name, array in found.items():
        assert array.dtype == given[name].dtype.as_numpy_dtype


@pytest.mark.parametrize(
    ("given", "body", "message"),
    [
        (
            TEXT,
            {"instances": ["a", 1]},
            "text[1]: JSON Value: 1 Type: Number is not of",
        ),
        (TEXT, {"inputs": None}, "Type: Null is not of expected type: string"),
        (TEXT, {"inputs": ["\ud800"]}, "surrogate pair in string is invalid"),
        (TEXT, {"inputs": [{"b64": 5}]}, "Unable to base64 decode"),
        (TEXT, {"inputs": "a"}, "expected shape [?] but got []"),
        (TEXT, {"inputs": [[["a"]]]}, "expected shape [?] but got [1,1,1]"),
        (NUMBERS, {"instances": ["a"]}, "JSON Value: 'a' Type: String is not of"),
        (
            NUMBERS,
            {"instances": [True]},
            "Type: Boolean is not of expected type",
        ),
        (NUMBERS, {"instances": [1e39]}, "without loss of precision"),
        (NUMBERS, {"instances": [10**400]}, "without loss of precision"),
        (FLAGS, {"inputs": [1]}, "is not of expected type: bool"),
        (PAIR, {"inputs": ["a"]}, "inputs is a plain value/list, but expecting"),
        (PAIR, {"instances": [{"a": "x"}]}, "must only have keys: a,b"),
        (PAIR, {"inputs": {"a": ["x"], "b": [[1, 2, 3]]}}, "[?,2] but got [1,3]"),
        (PAIR, {"inputs": {"a": ["x"], "b": [[1, 2], 3]}}, "unexpected size"),
        (PAIR, {"inputs": {"a": ["x"], "b": [[1.5, 2]]}}, "expected type: int32"),
        (PAIR, {"inputs": {"a": ["x"], "b": [[2**31, 2]]}}, "loss of precision"),
    ],
)
def test_json_that_is_refused(given, body, message):
    with pytest.raises(ServingError) as caught:
        tensors.from_json(body, given)
    assert caught.value.code == "INVALID_ARGUMENT"
    assert message in caught.value.message


@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"[", b'{"a": 1', b"\xff", b'{"x": ' + b"[" * 10**5, b"9" * 5000],
)
def test_a_body_that_is_no_object(body):
    with pytest.raises(ServingError, match="JSON") as caught:
        tensors.parse_json(body)
    assert caught.value.code == "INVALID_ARGUMENT" and len(caught.value.message) < 200


def test_deeply_nested_lists_are_refused():
    deep = json.loads("[" * 500 + "]" * 500)
    for body in ({"inputs": deep}, {"instances": deep}):
        for given in (TEXT, FLAGS):
            with pytest.raises(ServingError):
                tensors.from_json(body, given)


def test_answers_in_rows_and_columns():
    outputs = {
        "scores": np.array([[0.1, -2], [np.nan, np.inf]], "float32"),
        "text": np.array([b"a", "é\n".encode()], object),
    }
    rows = json.loads(tensors.to_json(outputs, rows=True))["predictions"]
    assert [row["text"] for row in rows] == ["a", "é\n"]
    assert rows[0]["scores"] == [0.1, -2.0]  # and not 0.10000000149011612
    assert math.isnan(rows[1]["scores"][0]) and rows[1]["scores"][1] == math.inf
    columns = json.loads(tensors.to_json(outputs, rows=False))["outputs"]
    assert columns["text"] == ["a", "é\n"] and columns["scores"][0] == [0.1, -2.0]


def test_a_single_output_has_no_name():
    score = {"score": np.array([1, 2], "int32")}
    assert json.loads(tensors.to_json(score, True)) == {"predictions": [1, 2]}
    assert json.loads(tensors.to_json(score, False)) == {"outputs": [1, 2]}
    alone = {"n": np.array(5, "int64")}
    assert json.loads(tensors.to_json(alone, False)) == {"outputs": 5}
    empty = {**alone, "empty": np.zeros((0, 3), "float32")}
    assert json.loads(tensors.to_json(empty, False))["outputs"]["empty"] == []


@pytest.mark.parametrize("shapes", [[(2,), (3,)], [()], [(2,), ()]])
def test_outputs_without_rows_in_common(shapes):
    outputs = {f"x{i}": np.zeros(shape) for i, shape in enumerate(shapes)}
    with pytest.raises(ServingError, match="same number of rows"):
        tensors.to_json(outputs, True)


def test_float32_survives():
    values = np.random.default_rng(0).normal(size=1000).astype("float32") * 1e-3
    found = json.loads(tensors.to_json({"x": values}, False))["outputs"]
    assert np.array(found, "float32").tolist() == values.tolist()


def proto(dtype=7, dims=(1,), **fields):
    made = TensorProto(dtype=dtype, **fields)
    for size in dims:
        made.tensor_shape.dim.add(size=size)
    return made


def protos(**arrays):
    return {name: tf.make_tensor_proto(x) for name, x in arrays.items()}


def test_protos_to_arrays():
    inputs = protos(a=[b"x", b"\xff"], b=np.array([[1, 2], [3, 4]], "int32"))
    found = tensors.from_proto(inputs, PAIR, 100)
    assert found["a"].tolist() == [b"x", b"\xff"]
    assert found["b"].tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "Sent extra: {}. Missing but required: {text}."),
        (protos(text=["a"], x=[1]), "Sent extra: {x}. Missing but required: {}."),
        (protos(text=[1]), "Expects input text to be string"),
        (protos(text=[["a"]]), "expected shape [?] but got [1,1]"),
        ({"text": proto(string_val=[b"a", b"b"])}, "tensor parsing error: text"),
        ({"text": proto(tensor_content=b"abc")}, "tensor parsing error: text"),
        ({"text": proto(dims=(-1,))}, "tensor parsing error: text"),
        ({"text": proto(dtype=999)}, "Expects input text to be string"),
        # One value that stands for very many.
        ({"text": proto(dims=(2**40,), string_val=[b"a"])}, "has shape"),
    ],
)
def test_protos_that_are_refused(inputs, message):
    with pytest.raises(ServingError) as caught:
        tensors.from_proto(inputs, TEXT, 100)
    assert caught.value.code == "INVALID_ARGUMENT"
    assert message in caught.value.message


@pytest.mark.parametrize("dtype", [*tensors._FIELDS, tf.uint8])
def test_answers_are_in_the_field_of_their_type(dtype):
    """As TensorFlow Serving writes them, for clients that read no tensor_content."""
    array = np.array([b"a", b"\xff"] if dtype == tf.string else [1, 0])
    array = array.astype(dtype.as_numpy_dtype)
    made = tensors.to_proto(array)
    if dtype in tensors._FIELDS:
        assert len(getattr(made, tensors._FIELDS[dtype])) == 2
    assert tf.make_ndarray(made).tolist() == array.tolist()
