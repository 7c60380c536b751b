"""JSON and protocol buffers to arrays and back, by TensorFlow Serving's rules."""

import base64
import json
import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow.core.protobuf.meta_graph_pb2 import SignatureDef

from tfxformer.server import tensors
from tfxformer.server.errors import ServingError
from tfxformer.server.tensors import Limits, Signature

LIMITS = Limits(rows=100, text_bytes=50, elements=1000)


def signature(inputs, outputs=()):
    """Made of triples of name, type and shape; None for what may vary."""
    definition = SignatureDef()
    for side, specs in ((definition.inputs, inputs), (definition.outputs, outputs)):
        for name, dtype, shape in specs:
            side[name].dtype = tf.as_dtype(dtype).as_datatype_enum
            if shape is None:
                side[name].tensor_shape.unknown_rank = True
            for size in shape or ():
                side[name].tensor_shape.dim.add(size=-1 if size is None else size)
    return Signature("test", definition)


TEXT = signature([("text", "string", [None])])
NUMBERS = signature([("x", "float32", [None])])
PAIR = signature([("a", "string", [None]), ("b", "int32", [None, 2])])


def read(body, signature=TEXT):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return tensors.from_json(tensors.parse_json(body), signature, LIMITS)


def error_of(body, signature=TEXT):
    with pytest.raises(ServingError) as caught:
        read(body, signature)
    assert caught.value.code == "INVALID_ARGUMENT" and caught.value.http_status == 400
    return caught.value.message


@pytest.mark.parametrize(
    ("signature", "body", "expected", "rows"),
    [
        (TEXT, {"instances": ["a", "é"]}, {"text": [b"a", "é".encode()]}, True),
        (TEXT, {"instances": [{"text": "a"}]}, {"text": [b"a"]}, True),
        (TEXT, {"instances": [{"b64": "/w=="}]}, {"text": [b"\xff"]}, True),
        (TEXT, {"instances": [{"b64": "/w"}]}, {"text": [b"\xff"]}, True),
        (TEXT, {"instances": [{"text": {"b64": "AA=="}}]}, {"text": [b"\0"]}, True),
        (TEXT, {"inputs": ["a", {"b64": "YQ=="}]}, {"text": [b"a", b"a"]}, False),
        (TEXT, {"inputs": {"text": ["a"]}}, {"text": [b"a"]}, False),
        (TEXT, {"inputs": []}, {"text": []}, False),
        (TEXT, {"inputs": {"text": ["a"], "more": 1}}, {"text": [b"a"]}, False),
        (TEXT, b'\xef\xbb\xbf{"inputs": ["a"]}', {"text": [b"a"]}, False),
        (NUMBERS, {"instances": [1, 2.5]}, {"x": [1.0, 2.5]}, True),
        (NUMBERS, b'{"inputs": [Infinity, 1e3]}', {"x": [math.inf, 1e3]}, False),
        (
            PAIR,
            {"instances": [{"a": "x", "b": [1, 2]}, {"b": [3, 4], "a": "y"}]},
            {"a": [b"x", b"y"], "b": [[1, 2], [3, 4]]},
            True,
        ),
        (
            PAIR,
            {"inputs": {"a": ["x"], "b": [[1, 2], [3, 4]]}},
            {"a": [b"x"], "b": [[1, 2], [3, 4]]},
            False,
        ),
    ],
)
def test_what_is_taken(signature, body, expected, rows):
    inputs, in_rows = read(body, signature)
    assert in_rows is rows and inputs.keys() == expected.keys()
    for name, values in expected.items():
        spec = signature.inputs[name]
        assert inputs[name].dtype == (object if spec.dtype == tf.string else spec.dtype)
        assert inputs[name].tolist() == values


@pytest.mark.parametrize(
    ("signature", "body", "message"),
    [
        (TEXT, b"", "JSON Parse error: The document is empty"),
        (TEXT, b"{", "JSON Parse error"),
        (TEXT, b"[1]", "Is not object"),
        (TEXT, b'"text"', "Is not object"),
        (TEXT, b'{"instances": ["\xff"]}', "JSON Parse error: not UTF-8 at offset: 16"),
        (TEXT, b'{"instances": ["\\ud800"]}', "surrogate pair"),
        (TEXT, b'{"inputs": ["a"], "inputs": ["b"]}', 'key "inputs" is there twice'),
        (TEXT, b'{"instances": [{"text": "a", "text": "b"}]}', "is there twice"),
        (TEXT, b'{"instances": ' + b"[" * 10**5, "nested too deeply"),
        (TEXT, b'{"instances": ' + b"[" * 200 + b"]" * 200 + b"}", "expected shape"),
        (TEXT, b'{"instances": [' + b"9" * 5000 + b"]}", "JSON Parse error"),
        (TEXT, {}, "Missing 'inputs' or 'instances' key"),
        (TEXT, {"inputs": [], "instances": []}, "expecting only one of"),
        (TEXT, {"instances": []}, "No values in 'instances' array"),
        (TEXT, {"instances": "a"}, "Excepting 'instances' to be an list/array"),
        (TEXT, {"instances": [1]}, "Type: Number is not of expected type: string"),
        (TEXT, {"instances": [None]}, "Type: Null is not of expected type: string"),
        (TEXT, {"instances": [True]}, "Type: Boolean is not of expected type: string"),
        (TEXT, {"instances": [["a"]]}, "expected shape [?] but got [1,1]"),
        (TEXT, {"instances": ["a", ["b"]]}, "list at unexpected level: 0 expected < 0"),
        (
            TEXT,
            {"instances": ["a", {"text": "b"}]},
            "Expecting value/list but got object",
        ),
        (TEXT, {"instances": [{"text": "b"}, "a"]}, "Expecting object but got list"),
        (TEXT, {"instances": [{"tekst": "a"}]}, "must only have keys: text"),
        (TEXT, {"instances": [{"text": "a", "x": 1}]}, "must only have keys: text"),
        (TEXT, {"instances": [{"b64": "a*"}]}, "Unable to base64 decode"),
        (TEXT, {"instances": [{"b64": "é"}]}, "Unable to base64 decode"),
        (
            TEXT,
            {"instances": [{"text": {"b64": 5}}]},
            "not formatted correctly",
        ),
        (TEXT, {"instances": [{"b64": 5}]}, "must only have keys: text"),
        (TEXT, {"inputs": {"tekst": ["a"]}}, "Missing named input: text in 'inputs'"),
        (TEXT, {"inputs": "a"}, "expected shape [?] but got []"),
        (TEXT, {"inputs": ["a" * 51]}, "a string of 51 bytes"),
        (TEXT, {"inputs": ["a"] * 101}, "Task size 101 is larger than maximum"),
        (
            NUMBERS,
            {"instances": ["1"]},
            "is not of expected type: float32",
        ),
        (NUMBERS, {"instances": [1e39]}, "without loss of precision"),
        (NUMBERS, {"instances": [10**400]}, "without loss of precision"),
        (PAIR, {"instances": ["a"]}, "instances is a plain list, but expecting list"),
        (PAIR, {"inputs": ["a"]}, "inputs is a plain value/list, but expecting"),
        (PAIR, {"instances": [{"a": "x"}]}, "must only have keys: a,b"),
        (PAIR, {"inputs": {"a": ["x"], "b": [[1, 2, 3]]}}, "shape [?,2] but got [1,3]"),
        (PAIR, {"inputs": {"a": ["x"], "b": [[1, 2], [3]]}}, "unexpected size: 1"),
        (PAIR, {"inputs": {"a": ["x"], "b": [[1, 2], 3]}}, "found at incorrect level"),
        (
            PAIR,
            {"inputs": {"a": ["x"], "b": [[1.5, 2]]}},
            "expected type: int32",
        ),
        (
            PAIR,
            {"inputs": {"a": ["x"], "b": [[2**31, 2]]}},
            "expected type: int32",
        ),
        (
            PAIR,
            {"inputs": {"a": ["x"], "b": [[True, 2]]}},
            "expected type: int32",
        ),
    ],
)
def test_what_is_refused(signature, body, message):
    assert message in error_of(body, signature)


def test_a_row_that_is_wrong_is_named():
    message = error_of({"instances": ["a", "b", 3]})
    assert message.startswith("Failed to process element: 2 of 'instances' list.")


def test_messages_are_short():
    """Whatever was sent: they travel in a header of gRPC's."""
    for body in (
        {"instances": ["x" * 10**5, 1]},
        {"x" * 10**5: 1},
        {"instances": [{"x" * 10**5: 1}]},
        {"signature_name": ["x" * 10**5]},
    ):
        assert len(error_of(body)) < 1100


def test_signature_names():
    assert tensors.signature_name({}) == "serving_default"
    assert tensors.signature_name({"signature_name": ""}) == "serving_default"
    assert tensors.signature_name({"signature_name": "score"}) == "score"
    with pytest.raises(ServingError, match="must be a string value"):
        tensors.signature_name({"signature_name": 5})


def test_which_signatures_are_answered_by_row():
    def by_row(*outputs, inputs=(("text", "string", [None]),)):
        return signature(inputs, outputs).by_row

    assert by_row(("translation", "string", [None]), ("scores", "float32", [None, 4]))
    assert not by_row(("ids", "int32", [None, None]))  # padded to the longest
    assert not by_row(("x", "float32", []))
    assert not by_row(("x", "float32", None))
    assert not by_row(("x", "float32", [None]), inputs=[("n", "int32", [])])
    assert not by_row(("x", "float32", [3]))
    assert by_row(("x", "string", [None]), inputs=[("ids", "int32", [None, None])])


# --- Answers ---


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
    two = {**alone, "empty": np.zeros((0, 3), "float32")}
    assert json.loads(tensors.to_json(two, False)) == {"outputs": {"n": 5, "empty": []}}


def test_bytes_are_base64_where_the_name_says_so_and_utf_8_otherwise():
    for name, expected in (
        ("text", "\ufffd"),
        ("text_bytes", {"b64": base64.b64encode(b"\xff").decode()}),
    ):
        outputs = {name: np.array([[b"\xff"]], object)}
        text = tensors.to_json(outputs, False)
        text.encode()
        assert json.loads(text) == {"outputs": [[expected]]}


def test_types_that_json_has_not():
    with pytest.raises(ServingError, match="tensor type: complex128"):
        tensors.to_json({"x": np.array([1 + 2j])}, False)


@pytest.mark.parametrize("shapes", [[(2,), (3,)], [(0,)], [()], [(2,), ()]])
def test_what_does_not_go_in_rows(shapes):
    outputs = {f"x{i}": np.zeros(shape) for i, shape in enumerate(shapes)}
    with pytest.raises(ServingError, match="not in rows"):
        tensors.to_json(outputs, True)


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1))
def test_float32_comes_back_as_it_was(values):
    array = np.array(values, "float32")
    found = json.loads(tensors.to_json({"x": array}, False))["outputs"]
    assert np.array(found, "float32").tolist() == array.tolist()


@given(st.lists(st.binary(max_size=20), max_size=5))
def test_any_bytes_go_in_as_base64(strings):
    packed = [{"b64": base64.b64encode(x).decode()} for x in strings]
    inputs, _ = read({"inputs": {"text": packed}})
    assert inputs["text"].tolist() == strings


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["text", "a", "b", "b64", "x"]) | st.text(max_size=3), inner
        )
    ),
    max_leaves=8,
)
KEYS = st.sampled_from(["inputs", "instances", "signature_name"])


@settings(deadline=None, max_examples=150)
@given(st.sampled_from([TEXT, NUMBERS, PAIR]), st.dictionaries(KEYS, JSON) | JSON)
def test_any_json_is_an_array_or_an_error_of_the_client_s(signature, document):
    body = json.dumps(document).encode()
    try:
        document = tensors.parse_json(body)
        tensors.signature_name(document)
        inputs, _ = tensors.from_json(document, signature, LIMITS)
    except ServingError as error:
        assert error.code == "INVALID_ARGUMENT"
        assert error.message and "\n" not in error.message
    else:
        assert inputs.keys() == signature.inputs.keys()


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_json_or_an_error_of_the_client_s(body):
    try:
        assert isinstance(tensors.parse_json(body), dict)
    except ServingError as error:
        assert error.code == "INVALID_ARGUMENT"


# --- gRPC ---


def protos(**arrays):
    return {name: tf.make_tensor_proto(x) for name, x in arrays.items()}


def test_tensors_of_grpc():
    inputs = protos(a=[b"x", b"\xff"], b=np.array([[1, 2], [3, 4]], "int32"))
    found = tensors.from_proto(inputs, PAIR, LIMITS)
    assert found["a"].tolist() == [b"x", b"\xff"] and found["a"].dtype == object
    assert found["b"].tolist() == [[1, 2], [3, 4]]
    # The last value stands for the rest.
    short = TensorProto(dtype=1, float_val=[2.5])
    short.tensor_shape.dim.add(size=3)
    found = tensors.from_proto({"x": short}, NUMBERS, LIMITS)
    assert found["x"].tolist() == [2.5] * 3


def bad_proto(dtype=7, dims=(1,), **fields):
    proto = TensorProto(dtype=dtype, **fields)
    for size in dims:
        proto.tensor_shape.dim.add(size=size)
    return proto


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "input size does not match signature: 0!=1 len({}) != len({text})"),
        (protos(text=["a"], x=[1]), "Sent extra: {x}. Missing but required: {}."),
        (protos(tekst=["a"]), "alias not found in signature: tekst. Inputs expected"),
        (protos(text=[1]), "Expects arg[0] to be string but int32 is provided"),
        (protos(text=[["a"]]), "expected shape [?] but got [1,1]"),
        (protos(text=["a"] * 101), "Task size 101 is larger than maximum"),
        ({"text": bad_proto(string_val=[b"a", b"b"])}, "tensor parsing error: text"),
        ({"text": bad_proto(dims=(-1,))}, "tensor parsing error: text"),
        ({"text": bad_proto(tensor_content=b"abc")}, "tensor parsing error: text"),
        ({"text": bad_proto(dtype=0)}, "tensor parsing error: text"),
        ({"text": bad_proto(dtype=999)}, "tensor parsing error: text"),
        # One value that would become very many.
        ({"text": bad_proto(dims=(2**40,), string_val=[b"a"])}, "Task size"),
    ],
)
def test_tensors_of_grpc_that_are_refused(inputs, message):
    with pytest.raises(ServingError) as caught:
        tensors.from_proto(inputs, TEXT, LIMITS)
    assert caught.value.code == "INVALID_ARGUMENT"
    assert message in caught.value.message


def test_wide_tensors_of_grpc_are_refused_before_they_are_made():
    wide = bad_proto(dtype=3, dims=(1, 2**40), int_val=[1])
    ids = signature([("ids", "int32", [None, None])])
    with pytest.raises(ServingError, match="more than the maximum of 1000"):
        tensors.from_proto({"ids": wide}, ids, LIMITS)


@pytest.mark.parametrize("dtype", [*tensors._FIELDS])
def test_answers_are_in_the_field_of_their_type(dtype):
    """As TensorFlow Serving writes them, for clients that read no tensor_content."""
    values = [b"a", b"\xff"] if dtype == "string" else np.array([1, 0], dtype)
    array = np.array(values, object) if dtype == "string" else values
    proto = tensors.to_proto(array)
    assert not proto.tensor_content and len(getattr(proto, tensors._FIELDS[dtype])) == 2
    assert tf.make_ndarray(proto).tolist() == array.tolist()
    assert tf.make_ndarray(proto).dtype == array.dtype


def test_answers_without_such_a_field():
    array = np.array([1 + 2j])
    assert tf.make_ndarray(tensors.to_proto(array)).tolist() == [1 + 2j]
