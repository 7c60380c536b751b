"""Requests by REST and gRPC, where they are no matter of conformance."""

import concurrent.futures
import contextlib
import http.client
import json
import socket
from urllib.parse import urlsplit

import grpc
import pytest
import tensorflow as tf
from grpc_health.v1 import health_pb2, health_pb2_grpc
from local_server import serving, wait_for
from tensorflow_serving.apis import (
    model_management_pb2,
    model_service_pb2_grpc,
    prediction_service_pb2_grpc,
)
from tensorflow_serving.apis.predict_pb2 import PredictRequest

from tfxformer.errors import UserError

P = "/v1/models/pt_en:predict"


def good(server):
    """Whether a good request has its right answer."""
    status, found = server.ask(P, {"inputs": ["abc", ""]})
    return status == 200 and found["outputs"]["translation"] == ["ABC", ""]


def predict(server, *texts, model="pt_en", **spec):
    request = PredictRequest(
        model_spec={"name": model, **spec},
        inputs={"text": tf.make_tensor_proto([*texts], tf.string)},
    )
    with grpc.insecure_channel(server.grpc) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        return stub.Predict(request, timeout=30)


def refusal(*arguments, **more):
    with pytest.raises(grpc.RpcError) as caught:
        predict(*arguments, **more)
    return caught.value.code().name, caught.value.details()


# --- What is answered ---


def test_versions_and_labels(server):
    body = {"instances": [1.0, 2.0, 5.0]}
    for path in ("half", "half/versions/1", "half/versions/0002"):
        answer = server.ask(f"/v1/models/{path}:predict", body)
        assert answer == (200, {"predictions": [2.5, 3.0, 4.5]})
    for path in ("pt_en/labels/stable", "pt_en/versions/1", "pt_en"):
        for rest, key in (("", "model_version_status"), ("/metadata", "metadata")):
            status, found = server.ask(f"/v1/models/{path}{rest}")
            assert status == 200 and key in found
    status, found = server.ask("/v1/models/pt_en/labels/canary:predict", body)
    assert status == 404 and "Specific(pt_en, 2)" in found["error"]
    answer = predict(server, "a", version_label="stable")
    assert answer.model_spec.version.value == 1


def test_a_request_line_in_absolute_form(server):
    """RFC 9112, 3.2.2: any host may stand before the path."""
    status = server.ask("/v1/models/half")
    for origin in (server.url, "http://models.example:80", "HTTPS://[::1]"):
        assert server.ask(f"{origin}/v1/models/half") == status
        assert server.ask(f"{origin}/v1/models/half?a=http://b/c") == status
        assert server.ask(f"{origin}{P}", {"inputs": ["a"]})[0] == 200


def test_both_names_of_the_signature(server):
    body = {"instances": ["abc"]}
    answers = [server.ask(P, body)]
    for name in ("", "serving_default", "translate"):
        answers.append(server.ask(P, {"signature_name": name, **body}))
    assert answers == [answers[0]] * 4 and answers[0][0] == 200


def test_strings_that_are_not_utf_8(server):
    body = {"signature_name": "raw", "instances": [{"b64": "/wA="}, "a"]}
    found = server.ask(P, body)
    assert found == (200, {"predictions": [{"b64": "/wA="}, {"b64": "YQ=="}]})
    body = {"signature_name": "translate_nbest", "inputs": [{"b64": "/2E="}]}
    status, found = server.ask(P, body)
    assert status == 200 and found["outputs"]["translations"][0][1] == "\ufffda"


def test_padded_answers_do_not_depend_on_other_requests(server):
    def ids(text):
        _, found = server.ask(P, {"signature_name": "tokenize", "inputs": [text]})
        return found["outputs"]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        texts = ["a", "abcdefgh"] * 8
        assert [*pool.map(ids, texts)] == [[[*map(ord, text)]] for text in texts]


def test_metrics(server):
    labels = {"model_name": "pt_en", "API": "predict", "entrypoint": "REST"}

    def requests(**more):
        return server.metric(":tensorflow:serving:request_count", **more)

    before = [requests(status=x, **labels) for x in ("OK", "INVALID_ARGUMENT")]
    assert good(server)
    server.ask(P, {"inputs": [1]})
    server.ask("/v1/models/made%20up:predict", {"inputs": [1]})
    after = [requests(status=x, **labels) for x in ("OK", "INVALID_ARGUMENT")]
    assert [b - a for a, b in zip(before, after, strict=True)] == [1, 1]
    assert requests(model_name="", status="NOT_FOUND") >= 1
    assert not requests(model_name="made up")
    assert server.metric("tfxformer_waiting_rows") == 0
    rows = ":tensorflow:serving:batching_session:processed_batch_size_sum"
    assert server.metric(rows, model_name="pt_en") >= 2


def test_health(server):
    with grpc.insecure_channel(server.grpc) as channel:
        check = health_pb2_grpc.HealthStub(channel).Check
        found = check(health_pb2.HealthCheckRequest(), timeout=30)
    assert found.status == health_pb2.HealthCheckResponse.SERVING


# --- What is refused ---


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/../../etc/passwd",
        "/v1/models/../../../../etc/passwd",
        "/v1/models/..%2f..%2f..%2fetc%2fpasswd",
        "/v1/models/pt_en%2f1",
        "/v1/models/pt_en/1/saved_model.pb",
        "/v1/models/pt_en/versions/..%2f1",
        "/v1/models/pt_en/labels/..%2fstable",
        "/v1/models/%00",
        "/v1/models/pt_en/metadata/",
        "//v1/models/pt_en",
        "/v1/models/pt_en/versions/" + "9" * 5000,
        "/http://a/v1/models/half",
        "/docs",
    ],
)
def test_nothing_but_models_is_served(server, path):
    for method in ("GET", "POST", "PUT", "MADE_UP"):
        status, found = server.ask(path, b"{}", method)
        assert status in (400, 404) and {*found} == {"error"}


def test_the_errors_of_the_model(server):
    status, found = server.ask(P, {"inputs": ["fail"]})
    assert status == 400 and found["error"] == "assertion failed: [told to fail]"
    code, message = refusal(server, "fail")
    assert code == "INVALID_ARGUMENT" and "told to fail" in message


def test_requests_that_are_too_large(server):
    for size in (100_001, 700_000):
        body = json.dumps({"instances": ["a" * size]}).encode()
        assert server.ask(P, body) == (
            413,
            {"error": "a body of more than 100000 bytes"},
        )
    chunks = (b"[" * 10_000 for _ in range(30))
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc)
    with contextlib.closing(connection):
        connection.request("POST", P, chunks, encode_chunked=True)
        assert connection.getresponse().status == 413
    assert refusal(server, "a" * 100_001)[0] == "RESOURCE_EXHAUSTED"
    # More rows than a call takes are answered by several, but not any number of them.
    status, found = server.ask(P, {"instances": ["a"] * 33})
    assert status == 200 and len(found["predictions"]) == 33
    status, found = server.ask(P, {"instances": ["a"] * 41})
    assert status == 400 and "Task size 41 is larger" in found["error"]
    status, found = server.ask(P, {"signature_name": "tokenize", "inputs": ["a"] * 17})
    assert status == 400 and "Task size 17 is larger" in found["error"]


def test_more_than_may_wait(server):
    """More than 40 rows are refused; those that came before are answered."""
    body = {"signature_name": "dawdle", "inputs": ["a"] * 20}
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        found = [*pool.map(lambda _: server.ask(P, body), range(6))]
    assert {status for status, _ in found} == {200, 503}
    assert all(status == 200 or "queue" in answer["error"] for status, answer in found)
    assert server.metric("tfxformer_waiting_rows") == 0 and good(server)


def test_other_methods_of_grpc(server):
    with grpc.insecure_channel(server.grpc) as channel:
        stub = model_service_pb2_grpc.ModelServiceStub(channel)
        request = model_management_pb2.ReloadConfigRequest()
        with pytest.raises(grpc.RpcError) as caught:
            stub.HandleReloadConfigRequest(request, timeout=30)
    assert caught.value.code().name == "UNIMPLEMENTED"


def test_clients_that_disconnect_halfway(server):
    address = urlsplit(server.url)
    body = json.dumps({"instances": ["abc"] * 30})
    head = f"POST {P} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    for cut in (10, len(head) + 50, len(head + body)) * 5:
        with socket.create_connection((address.hostname, address.port)) as connection:
            connection.sendall((head + body)[:cut].encode())
    wait_for(lambda: server.metric("tfxformer_waiting_rows") == 0)
    assert good(server)


# --- Begin and end ---


def test_requests_that_have_come_are_answered_at_the_end(toys):
    body = {"signature_name": "dawdle", "inputs": ["a"]}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        with serving(toys) as server:
            asked = pool.submit(server.ask, P, body)
            wait_for(lambda: server.metric("tfxformer_waiting_rows") > 0)
        assert asked.result()[0] == 200
    with pytest.raises(OSError):
        server.ask(P)


def test_a_request_that_takes_too_long(toys):
    with serving(toys, timeout=0.01) as server:
        body = {"signature_name": "dawdle", "inputs": ["a"]}
        assert server.ask(P, body) == (504, {"error": "Timed out"})


@pytest.mark.parametrize("option", ["rest_port", "grpc_port"])
def test_a_port_that_is_taken(toys, option):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = rf"--{option[:4]}-port {port}: 127.0.0.1:{port}: Address already"
        with pytest.raises(UserError, match=message), serving(toys, **{option: port}):
            pass


def test_the_command_refuses_wrong_input_in_one_line(command, tmp_path):
    (tmp_path / "models.config").write_text("model_config_list {\n  konfig {}\n}")
    for arguments, message in (
        ([tmp_path / "nope"], f"{tmp_path}/nope: no such folder"),
        (["--config", tmp_path / "models.config"], "models.config:2: "),
        (["x", "--config", "y"], "give a repository or --config, not both"),
    ):
        out, err, code = command("serve", *arguments)
        assert (out, code) == ("", 1) and err.count("\n") == 1 and message in err
