"""Compares answers to requests with TensorFlow Serving's documentation.

    pytest tests/server/test_conformance.py --server-url http://HOST:8501 \
        --server-grpc HOST:8500 --server-model pt_en

tests a real TensorFlow Serving that serves our export. Without these options, the tests
use the local server. The expected answers come from `api_rest.md`, the comments in the
`.proto` files, `http_rest_api_handler_test.cc` and `json_tensor_test.cc`, all in
tensorflow/serving.
"""

from types import SimpleNamespace
from unittest.mock import ANY

import grpc
import pytest
import tensorflow as tf
from serving_load import ask
from tensorflow_serving.apis import get_model_metadata_pb2 as metadata_pb2
from tensorflow_serving.apis import get_model_status_pb2 as status_pb2
from tensorflow_serving.apis.model_service_pb2_grpc import ModelServiceStub
from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub


@pytest.fixture(scope="module")
def asked(request):
    url = request.config.getoption("--server-url", None)
    address = request.config.getoption("--server-grpc", None)
    model = request.config.getoption("--server-model", "pt_en")
    if not url:
        server = request.getfixturevalue("server")
        url, address = server.url, server.grpc
    found = ask(url, f"/v1/models/{model}")[1]["model_version_status"]
    version = max(int(x["version"]) for x in found if x["state"] == "AVAILABLE")
    return SimpleNamespace(url=url, grpc=address, model=model, version=version)


# --- REST: answers ---


@pytest.fixture(scope="module")
def rest(asked):
    """Sends a request; M is the model, V its version and P its predict path."""

    def rest(path, body=None, method=None):
        home = f"/v1/models/{asked.model}"
        path = path.replace("P", f"{home}:predict").replace("M", home)
        path = path.replace("V", f"{home}/versions/{asked.version}")
        return ask(asked.url, path, body, method)

    return rest


@pytest.mark.parametrize("path", ["M", "V"])
def test_rest_status_and_metadata_describe_the_available_version(rest, asked, path):
    status, found = rest(path)
    error = {"error_code": "OK", "error_message": ""}
    state = {"version": str(asked.version), "state": "AVAILABLE", "status": error}
    assert status == 200 and state in found["model_version_status"]
    status, found = rest(f"{path}/metadata")
    spec = {"name": asked.model, "signature_name": "", "version": str(asked.version)}
    assert status == 200 and found["model_spec"] == spec
    signatures = found["metadata"]["signature_def"]["signature_def"]
    signature = signatures["serving_default"]
    assert signature["method_name"] == "tensorflow/serving/predict"
    text = signature["inputs"]["text"]
    shape = {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False}
    assert (text["dtype"], text["tensor_shape"]) == ("DT_STRING", shape)


ROW = {"translation": ANY, "score": ANY}
BYTES = {"b64": "T2zDoQ=="}
NBEST = {"translations": ANY, "scores": ANY}
PAIRS = {"text": ["a", "b"], "translation": ["c", "d"]}


@pytest.mark.parametrize(
    ("signature", "key", "value", "answer"),
    [
        # api_rest.md: row format
        ("", "instances", ["Bom dia!", ""], [ROW, ROW]),
        ("", "instances", [{"text": "Bom dia!"}], [ROW]),
        # A single output has no name.
        ("score", "instances", [{"text": "a", "translation": "b"}] * 2, [ANY] * 2),
        ("translate_nbest", "instances", ["Bom dia!"], [NBEST]),
        ("detokenize", "instances", [[65, 66]], [ANY]),
        # api_rest.md: column format
        ("", "inputs", ["a", "b"], {"translation": [ANY] * 2, "score": [ANY] * 2}),
        ("score", "inputs", PAIRS, [ANY, ANY]),
        ("detokenize", "inputs", {"ids": [[65, 66]]}, [ANY]),
        # api_rest.md: encoding binary values
        ("", "instances", [BYTES, {"b64": "/w=="}], [ROW, ROW]),
        ("", "inputs", {"text": [BYTES]}, {"translation": [ANY], "score": [ANY]}),
    ],
)
def test_rest_predict_answers_requests_in_row_and_column_format(
    rest, signature, key, value, answer
):
    body = {"signature_name": signature, key: value}
    answer = {"predictions" if key == "instances" else "outputs": answer}
    assert rest("P", body) == rest("V:predict", body) == (200, answer)


# --- REST: errors ---

# Each line: method and path, body, status, part of the message.
ERRORS = """
GET /v1/models/nope | | 404 | nope
GET /v1/models/..%2f..%2f..%2fetc%2fpasswd | | 404 |
GET /v1/models/../../etc/passwd | | 400 | Malformed request
GET M/versions/99999 | | 404 | 99999
GET /v1/models/nope/metadata | | 404 | nope
POST /v1/models/nope:predict | {"instances": ["a"]} | 404 | Servable not found for request: Latest(nope)
POST M/versions/99999:predict | {"instances": ["a"]} | 404 | Servable not found for request: Specific(
POST M/labels/no_such_label:predict | {"instances": ["a"]} | 400 | Unrecognized servable version label
GET /v1/foo | | 400 | Malformed request
GET /v1/models | | 400 | Missing model name
POST /v1/models/foo/versions/HELLO:predict | {} | 400 | Malformed request
POST /v1/models/foo/versions/18446744073709551615:predict | {} | 400 |
POST /v1/models/foo/versions/50/labels/some_label:predict | {} | 400 | Malformed request
POST P | instances = [1, 2] | 400 | JSON Parse error
POST P | [1, 2] | 400 |
POST P | {"instances": [1]} | 400 | not of expected type: string
POST P | {"signature_name": 100} | 400 | 'signature_name' key must be a string value.
POST P | {"signature_name": "nope", "instances": ["a"]} | 400 | nope
POST P | {} | 400 | Missing 'inputs' or
POST P | {"instances": ["a"], "inputs": ["a"]} | 400 | xpecting only one of
POST P | {"instances": []} | 400 | No values in 'instances'
POST P | {"instances": "a"} | 400 | list/array
POST P | {"signature_name": "score", "instances": ["a"]} | 400 | instances is a plain list, but expecting list of objects
POST P | {"instances": [{"text": "a"}, "b"]} | 400 | Expecting object but got list at item 1
POST P | {"instances": [{"tekst": "a"}]} | 400 | Failed to process element: 0
POST P | {"signature_name": "score", "inputs": {"text": ["a"]}} | 400 | Missing named input: translation
POST P | {"signature_name": "detokenize", "inputs": [[1, 2], [3]]} | 400 | list at unexpected size
POST P | {"instances": [{"b64": "*"}]} | 400 | base64
POST M:classify | {"examples": [{"text": "a"}]} | 400 |
"""  # noqa: E501


@pytest.mark.parametrize("line", ERRORS.strip().splitlines())
def test_rest_errors_have_the_status_and_message_of_tensorflow_serving(rest, line):
    request, body, status, message = (part.strip() for part in line.split("|"))
    method, path = request.split()
    body = body.encode() if method == "POST" else None
    found, answer = rest(path, body, method)
    assert found == int(status) and [*answer] == ["error"]
    assert message in answer["error"], answer


# --- gRPC ---


@pytest.fixture(scope="module")
def call(asked):
    """Calls a method; returns its answer, or the name of the error code."""
    if asked.grpc is None:
        pytest.skip("give --server-grpc HOST:8500 too")
    with grpc.insecure_channel(asked.grpc) as channel:
        predicting, status = PredictionServiceStub(channel), ModelServiceStub(channel)

        def call(method, request, **spec):
            request.model_spec.MergeFrom(type(request.model_spec)(**spec))
            stub = status if method == "GetModelStatus" else predicting
            try:
                return getattr(stub, method)(request, timeout=60)
            except grpc.RpcError as error:
                return error.code().name

        yield call


@pytest.fixture
def predict(asked, call):
    def predict(spec, inputs, outputs=()):
        inputs = {name: tf.make_tensor_proto(x) for name, x in inputs.items()}
        request = PredictRequest(inputs=inputs, output_filter=outputs)
        return call("Predict", request, **{"name": asked.model, **spec})

    return predict


def test_grpc_predict_returns_the_model_spec_and_the_requested_outputs(predict, asked):
    """predict.proto: "Effective Model Specification used to process PredictRequest"."""
    signature = {"signature_name": "serving_default"}
    for spec in ({}, signature, {"version": {"value": asked.version}}):
        answer = predict(spec, {"text": ["Bom dia!", ""]})
        # In the fields that clients read.
        assert answer.outputs["translation"].string_val[1] == b""
        assert len(answer.outputs["score"].float_val) == len(answer.outputs) == 2
        spec = answer.model_spec
        assert (spec.name, spec.version.value) == (asked.model, asked.version)
        assert spec.signature_name == "serving_default"
    # predict.proto: output_filter, "If not specified, all outputs are returned".
    assert {*predict({}, {"text": ["a"]}, ["score"]).outputs} == {"score"}
    assert predict({}, {"text": ["a"]}, ["nope"]) == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    ("code", "spec", "inputs"),
    [
        ("NOT_FOUND", {"name": "nope"}, {"text": ["a"]}),
        ("NOT_FOUND", {"version": {"value": 99999}}, {"text": ["a"]}),
        ("INVALID_ARGUMENT", {"version_label": "no_such_label"}, {"text": ["a"]}),
        ("INVALID_ARGUMENT", {"name": ""}, {"text": ["a"]}),
        ("FAILED_PRECONDITION", {"signature_name": "nope"}, {"text": ["a"]}),
        ("INVALID_ARGUMENT", {}, {}),
        ("INVALID_ARGUMENT", {}, {"tekst": ["a"]}),
        ("INVALID_ARGUMENT", {}, {"text": ["a"], "more": ["b"]}),
        ("INVALID_ARGUMENT", {}, {"text": [1]}),
        ("INVALID_ARGUMENT", {"signature_name": "score"}, {**PAIRS, "text": ["a"]}),
    ],
)
def test_grpc_predict_fails_with_the_error_code_of_tensorflow_serving(
    predict, code, spec, inputs
):
    assert predict(spec, inputs) == code


def test_grpc_metadata_and_status_describe_the_available_version(asked, call):
    """get_model_metadata.proto: "signature_def" is the one supported field."""

    def metadata(*fields):
        request = metadata_pb2.GetModelMetadataRequest(metadata_field=fields)
        return call("GetModelMetadata", request, name=asked.model)

    def status(**spec):
        return call("GetModelStatus", status_pb2.GetModelStatusRequest(), **spec)

    answer, found = metadata("signature_def"), metadata_pb2.SignatureDefMap()
    assert answer.model_spec.version.value == asked.version
    assert answer.metadata["signature_def"].Unpack(found)
    assert [*found.signature_def["serving_default"].inputs] == ["text"]
    assert metadata() == metadata("other") == "INVALID_ARGUMENT"
    for spec in ({}, {"version": {"value": asked.version}}):
        known = status(name=asked.model, **spec).model_version_status
        available = status_pb2.ModelVersionStatus.AVAILABLE
        assert {x.version: x.state for x in known}[asked.version] == available
    assert status(name="nope") == "NOT_FOUND"
    assert status(name=asked.model, version={"value": 99999}) == "NOT_FOUND"
    assert status() == "INVALID_ARGUMENT"
