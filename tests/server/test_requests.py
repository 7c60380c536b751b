"""REST and gRPC requests that the conformance tests do not cover."""

import concurrent.futures
import http.client
import socket
from urllib.parse import urlsplit

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from local_server import serving, wait_for
from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

from tfxformer.errors import UserError

P = "/v1/models/pt_en:predict"
DAWDLE = {"signature_name": "dawdle", "inputs": ["a"] * 20}


def test_a_request_reaches_the_version_or_label_in_its_path(server):
    for path in ("half", "half/versions/1", "half/versions/0002"):
        answer = server.ask(f"/v1/models/{path}:predict", {"instances": [1.0, 2.0]})
        assert answer == (200, {"predictions": [2.5, 3.0]})
    for rest in ("", "/metadata"):
        assert server.ask(f"/v1/models/pt_en/labels/stable{rest}")[0] == 200
    assert server.ask("http://any/v1/models/pt_en")[0] == 200  # in absolute form
    status, found = server.ask("/v1/models/pt_en/labels/canary:predict", {})
    assert status == 404 and "Specific(pt_en, 2)" in found["error"]


def test_metrics_count_rest_requests_by_model_and_status(server):
    def requests(model, status):
        name = ":tensorflow:serving:request_count"
        return server.metric(name, model_name=model, status=status, entrypoint="REST")

    asked = [("pt_en", "OK"), ("pt_en", "INVALID_ARGUMENT"), ("", "NOT_FOUND")]
    before = [requests(*labels) for labels in asked]
    server.ask(P, {"inputs": ["abc"]})
    server.ask(P, {"inputs": [1]})
    server.ask("/v1/models/made%20up:predict", {"inputs": [1]})
    assert [requests(*labels) for labels in asked] == [x + 1 for x in before]


def test_the_grpc_health_check_answers_serving(server):
    with grpc.insecure_channel(server.grpc) as channel:
        check = health_pb2_grpc.HealthStub(channel).Check
        found = check(health_pb2.HealthCheckRequest(), timeout=30)
    assert found.status == health_pb2.HealthCheckResponse.SERVING


def test_a_failed_assertion_in_the_model_becomes_a_400_answer_with_its_message(server):
    error = {"error": "assertion failed: [told to fail]"}
    assert server.ask(P, {"inputs": ["fail"]}) == (400, error)


def test_requests_beyond_the_size_or_row_limit_are_refused(server):
    status, found = server.ask(P, b"a" * 700_000)
    assert status == 413 and found["error"] == "a body of more than 100000 bytes"
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc)
    connection.request("POST", P, [b"[" * 10_000] * 30, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()
    request = PredictRequest(model_spec={"name": "a" * 100_001})
    stub = PredictionServiceStub(grpc.insecure_channel(server.grpc))
    with pytest.raises(grpc.RpcError, match="RESOURCE_EXHAUSTED"):
        stub.Predict(request, timeout=30)
    # Requests with more rows than one call are split, up to a limit.
    status, found = server.ask(P, {"instances": ["a"] * 33})
    assert status == 200 and len(found["predictions"]) == 33
    for name, rows in (("translate", 41), ("tokenize", 17)):
        body = {"signature_name": name, "instances": ["a"] * rows}
        status, found = server.ask(P, body)
        assert status == 400 and f"Task size {rows} is larger" in found["error"]


def test_rows_beyond_the_queue_limit_are_refused_and_earlier_rows_answered(server):
    """The server refuses rows beyond 40 and answers the earlier ones."""
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        found = [*pool.map(lambda _: server.ask(P, DAWDLE), range(6))]
    assert {status for status, _ in found} == {200, 503}
    assert all(status == 200 or "queue" in answer["error"] for status, answer in found)
    assert server.metric("tfxformer_waiting_rows") == 0


def test_a_stopping_server_answers_the_requests_it_has_received(toys):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        with serving(toys) as server:
            asked = pool.submit(server.ask, P, DAWDLE)
            wait_for(lambda: server.metric("tfxformer_waiting_rows") > 0)
        assert asked.result()[0] == 200
    with pytest.raises(OSError):
        server.ask(P)


def test_a_request_beyond_the_timeout_gets_status_504(toys):
    with serving(toys, timeout=0.01) as server:
        assert server.ask(P, DAWDLE) == (504, {"error": "Timed out"})


@pytest.mark.parametrize("option", ["rest_port", "grpc_port"])
def test_the_server_refuses_a_port_that_is_in_use(toys, option):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = rf"--{option[:4]}-port {port}: 127.0.0.1:{port}: Address already"
        with pytest.raises(UserError, match=message), serving(toys, **{option: port}):
            pass
