"""The gRPC API of a real server, where it is not a matter of conformance."""

import collections
import threading
import time

import grpc
import numpy as np
import pytest
import tensorflow as tf
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    prediction_service_pb2_grpc,
    regression_pb2,
)
from tensorflow_serving.apis.predict_pb2 import PredictRequest


class Stubs:
    def __init__(self, channel):
        self.prediction = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        self.models = model_service_pb2_grpc.ModelServiceStub(channel)
        self.health = health_pb2_grpc.HealthStub(channel)


@pytest.fixture(scope="module")
def stubs(server):
    with grpc.insecure_channel(server.grpc) as channel:
        yield Stubs(channel)


def predict(stubs, model="echo", signature="", output_filter=(), timeout=30, **inputs):
    spec = {"name": model} if isinstance(model, str) else model
    request = PredictRequest(
        model_spec={**spec, "signature_name": signature},
        inputs={
            name: x if isinstance(x, TensorProto) else tf.make_tensor_proto(x)
            for name, x in inputs.items()
        },
        output_filter=output_filter,
    )
    return stubs.prediction.Predict(request, timeout=timeout)


def refusal(method, *arguments, **more):
    with pytest.raises(grpc.RpcError) as caught:
        method(*arguments, **more)
    return caught.value.code().name, caught.value.details()


def test_translations_are_those_of_the_model(stubs, translator):
    texts = ["O gato preto bebeu o leite.", "", "Bom dia!"]
    expected = translator.answers("serving_default", {"text": texts})
    answer = predict(stubs, "pt_en", text=texts)
    found = {name: tf.make_ndarray(x) for name, x in answer.outputs.items()}
    assert found["translation"].tolist() == expected["translation"].tolist()
    np.testing.assert_allclose(found["score"], expected["score"], atol=1e-4)
    # In the fields where a client of TensorFlow Serving looks for them.
    assert len(answer.outputs["translation"].string_val) == 3
    assert len(answer.outputs["score"].float_val) == 3
    spec = answer.model_spec
    assert (spec.name, spec.version.value) == ("pt_en", 1)
    assert spec.signature_name == "serving_default"


@pytest.mark.parametrize(
    ("which", "version"),
    [
        ({}, 2),
        ({"version": {"value": 1}}, 1),
        ({"version": {"value": 2}}, 2),
    ],
)
def test_versions(stubs, which, version):
    answer = predict(stubs, {"name": "half", **which}, x=[2.0])
    assert tf.make_ndarray(answer.outputs["y"]).tolist() == [3.0]
    assert answer.model_spec.version.value == version


def test_labels(stubs):
    spec = {"name": "pt_en", "version_label": "stable"}
    assert predict(stubs, spec, text=["a"]).model_spec.version.value == 1
    spec["version_label"] = "nope"
    assert refusal(predict, stubs, spec, text=["a"]) == (
        "INVALID_ARGUMENT",
        "Unrecognized servable version label: nope",
    )


def test_an_output_filter(stubs):
    assert {*predict(stubs, text=["a"]).outputs} == {"text", "rows"}
    answer = predict(stubs, output_filter=["text"], text=["a"])
    assert {*answer.outputs} == {"text"}
    for wanted, message in (
        (["nope"], "output tensor alias not found in signature: nope"),
        (["text", "text"], "duplicate output tensor alias: text"),
    ):
        code, details = refusal(predict, stubs, output_filter=wanted, text=["a"])
        assert code == "INVALID_ARGUMENT" and message in details


def test_metadata(stubs):
    request = get_model_metadata_pb2.GetModelMetadataRequest(
        model_spec={"name": "echo"}, metadata_field=["signature_def"]
    )
    answer = stubs.prediction.GetModelMetadata(request, timeout=30)
    found = get_model_metadata_pb2.SignatureDefMap()
    assert answer.metadata["signature_def"].Unpack(found)
    assert found.signature_def["serving_default"].inputs["text"].dtype == 7
    assert answer.model_spec.version.value == 1
    for fields in ([], ["other"]):
        request = get_model_metadata_pb2.GetModelMetadataRequest(
            model_spec={"name": "echo"}, metadata_field=fields
        )
        code, _ = refusal(stubs.prediction.GetModelMetadata, request, timeout=30)
        assert code == "INVALID_ARGUMENT"


def test_status(stubs):
    def status(**spec):
        request = get_model_status_pb2.GetModelStatusRequest(model_spec=spec)
        return stubs.models.GetModelStatus(request, timeout=30).model_version_status

    assert [(x.version, x.state) for x in status(name="half")] == [(2, 30), (1, 30)]
    assert [x.version for x in status(name="half", version={"value": 1})] == [1]
    code, details = refusal(status, name="nope")
    assert (code, details) == ("NOT_FOUND", "Could not find any versions of model nope")


def test_health(stubs):
    for service in ("", "tensorflow.serving.PredictionService"):
        request = health_pb2.HealthCheckRequest(service=service)
        answer = stubs.health.Check(request, timeout=30)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    request = health_pb2.HealthCheckRequest(service="nope")
    assert refusal(stubs.health.Check, request, timeout=30)[0] == "NOT_FOUND"


def test_classify_and_regress_are_refused_as_for_any_translator(stubs):
    prediction = stubs.prediction
    spec = {"name": "pt_en"}
    classify = classification_pb2.ClassificationRequest(model_spec=spec)
    regress = regression_pb2.RegressionRequest(model_spec=spec)
    for method, request in (
        (prediction.Classify, classify),
        (prediction.Regress, regress),
    ):
        code, details = refusal(method, request, timeout=30)
        assert code == "INVALID_ARGUMENT" and details
    classify.model_spec.signature_name = "nope"
    assert refusal(prediction.Classify, classify, timeout=30) == (
        "INVALID_ARGUMENT",
        "No signature was found with the name: nope",
    )
    tasks = [{"model_spec": spec, "method_name": "tensorflow/serving/classify"}]
    request = inference_pb2.MultiInferenceRequest(tasks=tasks)
    assert refusal(prediction.MultiInference, request, timeout=30)[0] == (
        "INVALID_ARGUMENT"
    )
    request.tasks[0].method_name = "tensorflow/serving/predict"
    assert refusal(prediction.MultiInference, request, timeout=30)[0] == "UNIMPLEMENTED"
    empty = inference_pb2.MultiInferenceRequest()
    assert refusal(prediction.MultiInference, empty, timeout=30)[0] == (
        "INVALID_ARGUMENT"
    )


def test_models_cannot_be_added_from_afar(stubs):
    request = model_management_pb2.ReloadConfigRequest()
    config = request.config.model_config_list.config.add()
    config.name, config.base_path = "other", "/"
    code, details = refusal(stubs.models.HandleReloadConfigRequest, request, timeout=30)
    assert code == "PERMISSION_DENIED" and "command line" in details


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        ({"model": "nope", "text": ["a"]}, "NOT_FOUND", "Latest(nope)"),
        (
            {"model": {"name": "echo", "version": {"value": 7}}, "text": ["a"]},
            "NOT_FOUND",
            "Servable not found for request: Specific(echo, 7)",
        ),
        ({"model": {}, "text": ["a"]}, "INVALID_ARGUMENT", "has no name specified"),
        (
            {"signature": "nope", "text": ["a"]},
            "FAILED_PRECONDITION",
            'Serving signature key "nope" not found.',
        ),
        ({}, "INVALID_ARGUMENT", "Missing but required: {text}"),
        ({"text": [1]}, "INVALID_ARGUMENT", "to be string but int32 is provided"),
        ({"text": ["fail"]}, "INVALID_ARGUMENT", "told to fail"),
        ({"text": ["a"] * 101}, "INVALID_ARGUMENT", "Task size 101 is larger"),
        ({"text": ["a" * 2001]}, "INVALID_ARGUMENT", "a string of 2001 bytes"),
        ({"text": ["a" * 300_000]}, "RESOURCE_EXHAUSTED", "larger than max"),
    ],
)
def test_refusals(stubs, more, code, message):
    found, details = refusal(predict, stubs, **more)
    assert found == code and message in details


def test_a_request_without_a_model(stubs):
    assert refusal(stubs.prediction.Predict, PredictRequest(), timeout=30) == (
        "INVALID_ARGUMENT",
        "Missing ModelSpec",
    )


def test_a_deadline_ends_the_work(server, stubs):
    rows = ":tensorflow:serving:batching_session:processed_batch_size_sum"
    before = server.metric(rows, model_name="echo")
    code, _ = refusal(predict, stubs, signature="dawdle", timeout=0.3, text=["a"] * 100)
    assert code == "DEADLINE_EXCEEDED"
    server.wait_for(lambda: server.metric("tfxformer_waiting_rows") == 0, seconds=10)
    assert predict(stubs, text=["a"]).outputs
    # Of 7 calls for 100 rows, those that had not begun were not made.
    assert server.metric(rows, model_name="echo") - before < 70


def test_who_cancels_is_forgotten(server, stubs):
    request = PredictRequest(
        model_spec={"name": "echo", "signature_name": "dawdle"},
        inputs={"text": tf.make_tensor_proto(["a"] * 100)},
    )
    future = stubs.prediction.Predict.future(request)
    server.wait_for(lambda: server.metric("tfxformer_waiting_rows") > 0)
    future.cancel()
    server.wait_for(lambda: server.metric("tfxformer_waiting_rows") == 0, seconds=10)
    assert predict(stubs, text=["a"]).outputs


TENSORS = st.builds(
    lambda dtype, dims, unknown, content, strings, numbers: TensorProto(
        dtype=dtype,
        tensor_shape={"dim": [{"size": x} for x in dims], "unknown_rank": unknown},
        tensor_content=content,
        string_val=strings,
        int_val=numbers,
        float_val=numbers,
    ),
    st.sampled_from([0, 1, 3, 7, 7, 7, 7, 21, 101, 999]),
    st.lists(st.sampled_from([-1, 0, 1, 1, 2, 3, 150, 2**31, 2**62]), max_size=3),
    st.booleans(),
    st.sampled_from([b"", b"abc", b"\0" * 64]),
    st.lists(st.sampled_from([b"", b"a", b"\xff", b"fail", b"a" * 3000]), max_size=4),
    st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4),
)
# What may be wrong is so now and then: else none would come further than its name.
GOOD = st.lists(st.sampled_from([b"a", b"\xff", b""]), max_size=3).map(
    lambda x: tf.make_tensor_proto(x, tf.string)
)
REQUESTS = st.builds(
    lambda spec, inputs, outputs: PredictRequest(
        model_spec=spec, inputs=inputs, output_filter=outputs
    ),
    st.builds(
        lambda name, signature, version: {
            "name": name,
            "signature_name": signature,
            "version": version and {"value": version},
        },
        st.sampled_from(["echo"] * 9 + ["half", "nope", "", "../x"]),
        st.sampled_from(["", "", "", "raw", "spell", "both", "many", "nope"]),
        st.sampled_from([None] * 9 + [1, -1, 2**60]),
    ),
    st.one_of(
        st.fixed_dictionaries({"text": st.one_of(GOOD, TENSORS, TENSORS)}),
        st.dictionaries(st.sampled_from(["text", "x", "n", "é"]), TENSORS, max_size=3),
    ),
    st.one_of(
        st.just([]),
        st.lists(st.sampled_from(["text", "y", "rows", "nope"]), max_size=2),
    ),
)
DOCUMENTED = {
    "OK",
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "FAILED_PRECONDITION",
    "RESOURCE_EXHAUSTED",
    "UNAVAILABLE",
}


AT_ONCE = 8


def bombard(server, stubs, count):
    codes, stop, neighbours = collections.Counter(), threading.Event(), []

    def neighbour():
        while not stop.is_set():
            text = f"neighbour {time.monotonic()}".encode()
            answer = predict(stubs, text=[text])
            neighbours.append(answer.outputs["text"].string_val[:] == [text])
            stop.wait(0.01)

    @settings(
        max_examples=count // AT_ONCE,
        deadline=None,
        database=None,
        derandomize=count < 1000,  # the few are always the same
        suppress_health_check=[*HealthCheck],
    )
    @given(st.lists(REQUESTS, min_size=AT_ONCE, max_size=AT_ONCE))
    def bad(requests):
        predict = stubs.prediction.Predict.future
        for future in [predict(request, timeout=30) for request in requests]:
            code, details = future.code().name, future.details()
            codes[code] += 1
            assert code in DOCUMENTED, (code, details)
            assert "Traceback" not in details and ".py" not in details

    thread = threading.Thread(target=neighbour)
    thread.start()
    try:
        bad()
    finally:
        stop.set()
        thread.join()
    assert neighbours and all(neighbours)
    assert predict(stubs, text=["a"]).outputs
    return codes


def test_some_bad_requests(server, stubs):
    codes = bombard(server, stubs, 240)
    assert codes.total() >= 240 and {"OK", "INVALID_ARGUMENT"} <= {*codes}


@pytest.mark.slow
def test_10_000_bad_requests(server, stubs):
    codes = bombard(server, stubs, 10_000)
    assert sum(codes.values()) >= 10_000 and {"OK", "INVALID_ARGUMENT"} <= {*codes}
