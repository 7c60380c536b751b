"""Requests and the answers that TensorFlow Serving's documents promise.

    pytest tests/server/test_conformance.py --server-url http://HOST:8501 \
        --server-grpc HOST:8500 --server-model pt_en

asks a real TensorFlow Serving, which serves an export of ours; without the options the
local server is started and asked. The expectations are those of `api_rest.md`, of the
comments in the `.proto` files, and of `http_rest_api_handler_test.cc` and
`json_tensor_test.cc`, all of tensorflow/serving: of codes, shapes and keys, and of as
much of a message as they promise.
"""

import base64
import re
from dataclasses import dataclass

import grpc
import pytest
import tensorflow as tf
from local_server import ask
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    prediction_service_pb2_grpc,
)
from tensorflow_serving.apis.predict_pb2 import PredictRequest


@dataclass(frozen=True)
class Asked:
    """The server that is asked: addresses and the model's name."""

    url: str
    grpc: str | None
    model: str


@pytest.fixture(scope="module")
def asked(request):
    option = request.config.getoption
    url = option("--server-url", None)
    if url:
        return Asked(
            url.rstrip("/"),
            option("--server-grpc", None),
            option("--server-model", "pt_en"),
        )
    server = request.getfixturevalue("server")
    return Asked(server.url, server.grpc, "pt_en")


class Anything:
    """Equal to what the function says yes to."""

    def __init__(self, name, test):
        self.name, self.test = name, test

    def __eq__(self, other):
        return bool(self.test(other))

    def __hash__(self):
        return hash(self.name)

    def __repr__(self):
        return f"<{self.name}>"


TEXT = Anything("a string", lambda x: isinstance(x, str))
NUMBER = Anything("a number", lambda x: isinstance(x, float))
LIST = Anything("a list", lambda x: isinstance(x, list) and x)
ROW = {"translation": TEXT, "score": NUMBER}


def error(part=""):
    """An error's body, with these words in its message."""
    return {
        "error": Anything(f"...{part}...", lambda x: isinstance(x, str) and part in x)
    }


STATUS = {
    "model_version_status": Anything(
        "versions",
        lambda x: (
            [
                each
                == {
                    "version": Anything("digits", lambda v: re.fullmatch(r"\d+", v)),
                    "state": "AVAILABLE",
                    "status": {"error_code": "OK", "error_message": ""},
                }
                for each in x
                if each["state"] == "AVAILABLE"
            ].count(True)
            >= 1
        ),
    )
}
METADATA = {
    "model_spec": {
        "name": Anything("the model's name", lambda x: x),
        "signature_name": "",
        "version": Anything("digits", lambda x: re.fullmatch(r"\d+", x)),
    },
    "metadata": {
        "signature_def": {
            "signature_def": Anything(
                "signatures",
                lambda x: (
                    x["serving_default"]["method_name"] == "tensorflow/serving/predict"
                    and x["serving_default"]["inputs"]["text"]["dtype"] == "DT_STRING"
                    and x["serving_default"]["inputs"]["text"]["tensor_shape"]
                    == {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False}
                ),
            )
        }
    },
}
M, V = "/v1/models/{model}", "/v1/models/{model}/versions/{version}"
P = M + ":predict"
BYTES = {"b64": base64.b64encode("Olá".encode()).decode()}

# What the document says, method, path, body, status, answer.
REST = [
    # api_rest.md, Model status API
    ("status", "GET", M, None, 200, STATUS),
    ("status of a version", "GET", V, None, 200, STATUS),
    ("no such model", "GET", "/v1/models/nope", None, 404, error("nope")),
    ("no such version", "GET", M + "/versions/99999", None, 404, error("99999")),
    # api_rest.md, Model Metadata API
    ("metadata", "GET", M + "/metadata", None, 200, METADATA),
    ("metadata of a version", "GET", V + "/metadata", None, 200, METADATA),
    ("metadata of none", "GET", "/v1/models/nope/metadata", None, 404, error("nope")),
    # api_rest.md, Predict API, row format
    (
        "rows of one input are its values; of many outputs objects",
        "POST",
        P,
        {"instances": ["Bom dia!", ""]},
        200,
        {"predictions": [ROW, ROW]},
    ),
    (
        "rows of named inputs",
        "POST",
        P,
        {"instances": [{"text": "Bom dia!"}]},
        200,
        {"predictions": [ROW]},
    ),
    (
        "a version in the path",
        "POST",
        V + ":predict",
        {"instances": ["Bom dia!"]},
        200,
        {"predictions": [ROW]},
    ),
    (
        "signature_name, and many named inputs; one output has no name",
        "POST",
        P,
        {
            "signature_name": "score",
            "instances": [
                {"text": "Bom dia!", "translation": "Good day!"},
                {"translation": "The cat", "text": "O gato"},
            ],
        },
        200,
        {"predictions": [NUMBER, NUMBER]},
    ),
    (
        "an output of two dimensions",
        "POST",
        P,
        {"signature_name": "translate_nbest", "instances": ["Bom dia!"]},
        200,
        {"predictions": [{"translations": LIST, "scores": LIST}]},
    ),
    (
        "a row that is a list",
        "POST",
        P,
        {"signature_name": "detokenize", "instances": [[5, 6], [7, 8]]},
        200,
        {"predictions": [TEXT, TEXT]},
    ),
    # api_rest.md, Predict API, column format
    (
        "columns of one input",
        "POST",
        P,
        {"inputs": ["Bom dia!", "O gato"]},
        200,
        {"outputs": {"translation": [TEXT, TEXT], "score": [NUMBER, NUMBER]}},
    ),
    (
        "columns of named inputs; one output has no name",
        "POST",
        P,
        {
            "signature_name": "score",
            "inputs": {"text": ["a", "b"], "translation": ["c", "d"]},
        },
        200,
        {"outputs": [NUMBER, NUMBER]},
    ),
    (
        "columns of two dimensions",
        "POST",
        P,
        {"signature_name": "detokenize", "inputs": {"ids": [[5, 6]]}},
        200,
        {"outputs": [TEXT]},
    ),
    # api_rest.md, Encoding binary values
    (
        "base64 in rows",
        "POST",
        P,
        {"instances": [BYTES, {"b64": "/w=="}]},
        200,
        {"predictions": [ROW, ROW]},
    ),
    (
        "base64 of a named input",
        "POST",
        P,
        {"instances": [{"text": BYTES}]},
        200,
        {"predictions": [ROW]},
    ),
    (
        "base64 in columns",
        "POST",
        P,
        {"inputs": {"text": [BYTES]}},
        200,
        {"outputs": {"translation": [TEXT], "score": [NUMBER]}},
    ),
    # api_rest.md: "In case of error, all APIs will return a JSON object in the
    # response body with error as key"; its last example is a model that is not there.
    (
        "predict of no such model",
        "POST",
        "/v1/models/nope:predict",
        {"instances": ["a"]},
        404,
        error("Servable not found for request: Latest(nope)"),
    ),
    (
        "predict of no such version",
        "POST",
        M + "/versions/99999:predict",
        {"instances": ["a"]},
        404,
        error("Servable not found for request: Specific({model}, 99999)"),
    ),
    (
        "predict of no such label",
        "POST",
        M + "/labels/no_such_label:predict",
        {"instances": ["a"]},
        400,
        error("Unrecognized servable version label"),
    ),
    # http_rest_api_handler_test.cc
    ("no such API", "GET", "/v1/foo", None, 400, error("Malformed request")),
    ("no such API", "POST", "/v1/foo", {}, 400, error("Malformed request")),
    ("no model's name", "GET", "/v1/models", None, 400, error("Missing model name")),
    ("no method", "POST", "/v1/models", {}, 400, error("Malformed request")),
    ("predict by GET", "GET", P, None, 400, error("Malformed request")),
    ("metadata by POST", "POST", M + "/metadata", {}, 400, error("Malformed request")),
    (
        "no such path",
        "GET",
        "/v1/models/debug/model_name",
        None,
        400,
        error("Malformed request"),
    ),
    (
        "version for versions",
        "POST",
        "/v1/models/foo/version/50:regress",
        {},
        400,
        error("Malformed request"),
    ),
    (
        "a version that is no number",
        "POST",
        "/v1/models/foo/versions/HELLO:regress",
        {},
        400,
        error("Malformed request"),
    ),
    (
        "a version that is too large a number",
        "POST",
        "/v1/models/foo/versions/18446744073709551615:regress",
        {},
        400,
        error("Failed to convert version"),
    ),
    (
        "a version and a label",
        "POST",
        "/v1/models/foo/versions/50/labels/some_label:regress",
        {},
        400,
        error("Malformed request"),
    ),
    ("no body", "POST", P, b"", 400, error("The document is empty")),
    ("no JSON", "POST", P, b"instances = [1, 2]", 400, error("JSON Parse error")),
    ("no object", "POST", P, b"[1, 2]", 400, error()),
    (
        "a wrong type",
        "POST",
        P,
        {"instances": [1]},
        400,
        error("not of expected type: string"),
    ),
    (
        "signature_name of a wrong type",
        "POST",
        P,
        {"signature_name": 100},
        400,
        error("'signature_name' key must be a string value."),
    ),
    # json_tensor_test.cc
    (
        "no such signature",
        "POST",
        P,
        {"signature_name": "nope", "instances": ["a"]},
        400,
        error("nope"),
    ),
    ("neither rows nor columns", "POST", P, {}, 400, error("Missing 'inputs' or")),
    (
        "rows and columns",
        "POST",
        P,
        {"instances": ["a"], "inputs": ["a"]},
        400,
        error("expecting only one of"),
    ),
    ("no rows", "POST", P, {"instances": []}, 400, error("No values in 'instances'")),
    ("rows that are none", "POST", P, {"instances": "a"}, 400, error("list/array")),
    (
        "a plain list for many inputs",
        "POST",
        P,
        {"signature_name": "score", "instances": ["a"]},
        400,
        error("instances is a plain list, but expecting list of objects"),
    ),
    (
        "objects and values",
        "POST",
        P,
        {"instances": [{"text": "a"}, "b"]},
        400,
        error("Expecting object but got list at item 1"),
    ),
    (
        "a name that is none",
        "POST",
        P,
        {"instances": [{"tekst": "a"}]},
        400,
        error("Failed to process element: 0"),
    ),
    (
        "a named input is missing",
        "POST",
        P,
        {"signature_name": "score", "inputs": {"text": ["a"]}},
        400,
        error("Missing named input: translation"),
    ),
    (
        "lists of different lengths",
        "POST",
        P,
        {"signature_name": "detokenize", "inputs": [[1, 2], [3]]},
        400,
        error("list at unexpected size: 1"),
    ),
    (
        "base64 that is none",
        "POST",
        P,
        {"instances": [{"b64": "*"}]},
        400,
        error("base64"),
    ),
    # Classify and Regress API, of a model that has no such signature
    (
        "classify",
        "POST",
        M + ":classify",
        {"examples": [{"text": "a"}]},
        400,
        error(),
    ),
    ("regress", "POST", M + ":regress", {"examples": [{"text": "a"}]}, 400, error()),
    ("no examples", "POST", M + ":classify", {}, 400, error("examples")),
]


@pytest.fixture(scope="module")
def version(asked):
    _, found = ask(asked.url, f"/v1/models/{asked.model}")
    versions = found["model_version_status"]
    return max(int(x["version"]) for x in versions if x["state"] == "AVAILABLE")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "answer"),
    [row[1:] for row in REST],
    ids=[row[0] for row in REST],
)
def test_rest(asked, version, method, path, body, status, answer):
    path = path.format(model=asked.model, version=version)
    found = ask(asked.url, path, body, method)
    if status != 200:
        wanted = answer["error"].name.format(model=asked.model).strip(".")
        answer = error(wanted)
    assert found == (status, answer)


def test_a_row_s_answer_is_a_column_s(asked):
    texts = ["Bom dia!", "O gato preto."]
    path = f"/v1/models/{asked.model}:predict"
    _, rows = ask(asked.url, path, {"instances": texts})
    _, columns = ask(asked.url, path, {"inputs": texts})
    assert [row["translation"] for row in rows["predictions"]] == (
        columns["outputs"]["translation"]
    )


# --- gRPC ---


@pytest.fixture(scope="module")
def channel(asked):
    if asked.grpc is None:
        pytest.skip("give --server-grpc HOST:8500 too")
    with grpc.insecure_channel(asked.grpc) as channel:
        yield channel


@pytest.fixture
def predict(asked, channel):
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)

    def predict(spec=None, outputs=(), **inputs):
        request = PredictRequest(
            model_spec={"name": asked.model, **(spec or {})},
            inputs={name: tf.make_tensor_proto(x) for name, x in inputs.items()},
            output_filter=outputs,
        )
        return stub.Predict(request, timeout=60)

    return predict


def code_of(function, *arguments, **more):
    with pytest.raises(grpc.RpcError) as caught:
        function(*arguments, **more)
    return caught.value.code().name


def test_predict_says_what_answered(predict, asked, version):
    """predict.proto: "Effective Model Specification used to process PredictRequest"."""
    for spec in (
        {},
        {"signature_name": "serving_default"},
        {"version": {"value": version}},
    ):
        answer = predict(spec, text=["Bom dia!", ""])
        assert {*answer.outputs} == {"translation", "score"}
        translation = answer.outputs["translation"]
        assert translation.dtype == tf.string.as_datatype_enum
        assert [d.size for d in translation.tensor_shape.dim] == [2]
        assert tf.make_ndarray(translation).tolist()[1] == b""
        spec = answer.model_spec
        assert (spec.name, spec.version.value) == (asked.model, version)
        assert spec.signature_name == "serving_default"


def test_predict_gives_the_outputs_that_are_asked_for(predict):
    """predict.proto: output_filter; "If not specified, all outputs are returned"."""
    assert {*predict(outputs=["score"], text=["a"]).outputs} == {"score"}
    assert code_of(predict, outputs=["nope"], text=["a"]) == "INVALID_ARGUMENT"


def test_predict_in_other_signatures(predict):
    answer = predict({"signature_name": "score"}, text=["a"], translation=["b"])
    assert tf.make_ndarray(answer.outputs["score"]).shape == (1,)


@pytest.mark.parametrize(
    ("spec", "inputs", "code"),
    [
        ({"name": "nope"}, {"text": ["a"]}, "NOT_FOUND"),
        ({"version": {"value": 99999}}, {"text": ["a"]}, "NOT_FOUND"),
        ({"version_label": "no_such_label"}, {"text": ["a"]}, "INVALID_ARGUMENT"),
        ({"name": ""}, {"text": ["a"]}, "INVALID_ARGUMENT"),
        ({"signature_name": "nope"}, {"text": ["a"]}, "FAILED_PRECONDITION"),
        ({}, {}, "INVALID_ARGUMENT"),
        ({}, {"tekst": ["a"]}, "INVALID_ARGUMENT"),
        ({}, {"text": ["a"], "more": ["b"]}, "INVALID_ARGUMENT"),
        ({}, {"text": [1]}, "INVALID_ARGUMENT"),
        (
            {"signature_name": "score"},
            {"text": ["a", "b"], "translation": ["c"]},
            "INVALID_ARGUMENT",
        ),
    ],
)
def test_predict_refuses(predict, spec, inputs, code):
    assert code_of(predict, spec, **inputs) == code


def test_metadata(asked, channel, version):
    """get_model_metadata.proto: "signature_def" is the one supported field."""
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    request = get_model_metadata_pb2.GetModelMetadataRequest(
        model_spec={"name": asked.model}, metadata_field=["signature_def"]
    )
    answer = stub.GetModelMetadata(request, timeout=60)
    assert answer.model_spec.version.value == version
    found = get_model_metadata_pb2.SignatureDefMap()
    assert answer.metadata["signature_def"].Unpack(found)
    signature = found.signature_def["serving_default"]
    assert {*signature.inputs} == {"text"}
    assert {*signature.outputs} == {"translation", "score"}
    for fields in ([], ["other"]):
        bad = get_model_metadata_pb2.GetModelMetadataRequest(
            model_spec={"name": asked.model}, metadata_field=fields
        )
        assert code_of(stub.GetModelMetadata, bad, timeout=60) == "INVALID_ARGUMENT"


def test_status(asked, channel, version):
    """get_model_status.proto: all versions if the version is not set."""
    stub = model_service_pb2_grpc.ModelServiceStub(channel)

    def status(**spec):
        request = get_model_status_pb2.GetModelStatusRequest(model_spec=spec)
        return stub.GetModelStatus(request, timeout=60).model_version_status

    available = get_model_status_pb2.ModelVersionStatus.AVAILABLE
    for found in (
        status(name=asked.model),
        status(name=asked.model, version={"value": version}),
    ):
        assert (version, available) in [(x.version, x.state) for x in found]
    assert code_of(status, name="nope") == "NOT_FOUND"
    assert code_of(status, name=asked.model, version={"value": 99999}) == "NOT_FOUND"
    empty = get_model_status_pb2.GetModelStatusRequest()
    assert code_of(stub.GetModelStatus, empty, timeout=60) == "INVALID_ARGUMENT"
