"""The REST API of a real server, where it is not a matter of conformance."""

import collections
import json
import re
import socket
import threading
import time
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from local_server import ask, connect

ECHO = "/v1/models/echo:predict"


def echo(server, *texts):
    """Whether the neighbours are well: a right answer to a good request."""
    status, found = server.ask(ECHO, {"inputs": {"text": [*texts]}})
    assert status == 200 and found["outputs"]["text"] == [*texts]


# --- What is answered ---


def test_translations_are_those_of_the_model(server, translator):
    texts = ["O gato preto bebeu o leite.", "", "Bom dia!"]
    expected = translator.answers("serving_default", {"text": texts})
    status, found = server.ask("/v1/models/pt_en:predict", {"instances": texts})
    assert status == 200
    rows = found["predictions"]
    assert [row["translation"].encode() for row in rows] == [*expected["translation"]]
    scores = [row["score"] for row in rows]
    assert scores == pytest.approx(expected["score"].tolist(), abs=1e-4)


def test_versions_and_labels(server):
    body = {"instances": [1.0, 2.0, 5.0]}
    for path in ("half", "half/versions/1", "half/versions/0002"):
        assert server.ask(f"/v1/models/{path}:predict", body) == (
            200,
            {"predictions": [2.5, 3.0, 4.5]},
        )
    for path in ("pt_en/labels/stable", "pt_en/versions/1", "pt_en"):
        for rest, key in (("", "model_version_status"), ("/metadata", "metadata")):
            status, found = server.ask(f"/v1/models/{path}{rest}")
            assert status == 200 and key in found
    status, found = server.ask("/v1/models/pt_en/labels/canary:predict", body)
    assert (status, found) == (
        404,
        {"error": "Servable not found for request: Specific(pt_en, 2)"},
    )


def test_a_request_line_in_absolute_form(server):
    """RFC 9112, 3.2.2: what stands before the path may be any host."""
    path = "/v1/models/half"
    status = server.ask(path)
    assert status[0] == 200
    for origin in (server.url, "http://models.example:80", "HTTPS://[::1]"):
        assert server.ask(f"{origin}{path}") == status
        assert server.ask(f"{origin}{path}?a=http://b/c") == status
        body = {"instances": [1.0]}
        assert server.ask(f"{origin}{path}:predict", body)[0] == 200
    connection = connect(server.url)
    connection.request("GET", f"{server.url}/monitoring/prometheus/metrics")
    assert b"request_count" in connection.getresponse().read()
    connection.close()
    for inside in ("/v1/models/http://a/b", "/http://a/v1/models/half", "http://a"):
        assert server.ask(inside)[0] in (400, 404)


def test_metadata_is_that_of_the_message(server):
    from google.protobuf import json_format
    from tensorflow_serving.apis.get_model_metadata_pb2 import SignatureDefMap

    _, found = server.ask("/v1/models/pt_en/metadata")
    assert found["model_spec"] == {
        "name": "pt_en",
        "signature_name": "",
        "version": "1",
    }
    signatures = json_format.ParseDict(
        found["metadata"]["signature_def"], SignatureDefMap()
    ).signature_def
    text = found["metadata"]["signature_def"]["signature_def"]["score"]["inputs"][
        "text"
    ]
    assert text["dtype"] == "DT_STRING" and text["name"]
    assert text["tensor_shape"] == {
        "dim": [{"name": "", "size": "-1"}],
        "unknown_rank": False,
    }
    assert {"serving_default", "translate_nbest", "score"} <= {*signatures}


def test_all_signatures_of_the_contract(server):
    def rows(signature, *instances):
        body = {"signature_name": signature, "instances": [*instances]}
        status, found = server.ask("/v1/models/pt_en:predict", body)
        assert status == 200, found
        return found["predictions"]

    (best,) = rows("translate_nbest", "Bom dia!")
    assert len(best["translations"]) == len(best["scores"]) == 4
    scored = rows("score", {"text": "Bom dia!", "translation": best["translations"][0]})
    assert scored == [pytest.approx(best["scores"][0], abs=1e-3)]
    (found,) = rows("attention", {"text": "Bom dia!"})
    assert {*found} == {"attention", "source_tokens", "target_tokens"}
    (ids,) = rows("tokenize", "Bom dia!")
    assert rows("detokenize", ids) == ["Bom dia!"]


def test_bytes_and_names(server):
    body = {"signature_name": "raw", "instances": [{"b64": "/wA="}, "a"]}
    status, found = server.ask(ECHO, body)
    assert (status, found["predictions"]) == (200, [{"b64": "/wA="}, {"b64": "YQ=="}])
    # Not UTF-8, and still JSON.
    status, found = server.ask(ECHO, {"inputs": [{"b64": "/2E="}]})
    assert (status, found["outputs"]["text"]) == (200, ["\ufffda"])


def test_the_model_s_own_errors(server):
    status, found = server.ask(ECHO, {"inputs": ["fail"]})
    assert status == 400 and found["error"].startswith(
        "assertion failed: [told to fail]"
    )
    body = {"inputs": {"text": ["a", "b"], "translation": ["c"]}}
    body["signature_name"] = "score"
    status, found = server.ask("/v1/models/pt_en:predict", body)
    assert status == 400 and "as many translations as texts" in found["error"]


def test_rows_of_different_numbers_in_columns_are_the_model_s_business(server):
    body = {"signature_name": "both", "inputs": {"x": [1, 2], "text": ["a"]}}
    status, found = server.ask(ECHO, body)
    assert status == 200 and found["outputs"] == {"x": [1.0, 2.0], "text": ["a"]}
    body = {"signature_name": "many", "inputs": 3}
    assert server.ask(ECHO, body) == (200, {"outputs": [0.0, 0.0, 0.0]})


def test_metrics(server):
    name = ":tensorflow:serving:request_count"
    labels = {"model_name": "echo", "API": "predict", "entrypoint": "REST"}
    before = [
        server.metric(name, status=status, **labels)
        for status in ("OK", "INVALID_ARGUMENT")
    ]
    echo(server, "a", "b", "c")
    server.ask(ECHO, {"inputs": [1]})
    server.ask("/v1/models/made%20up:predict", {"inputs": [1]})
    after = [
        server.metric(name, status=status, **labels)
        for status in ("OK", "INVALID_ARGUMENT")
    ]
    assert [b - a for a, b in zip(before, after, strict=True)] == [1, 1]
    assert server.metric(name, model_name="", status="NOT_FOUND") >= 1
    assert not server.metric(name, model_name="made up")
    assert server.metric("tfxformer_loaded_version", model_name="half") == 2
    assert server.metric("tfxformer_waiting_rows") == 0
    rows = ":tensorflow:serving:batching_session:processed_batch_size_sum"
    assert server.metric(rows, model_name="echo") >= 3


# --- What is refused ---


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/etc/passwd",
        "/../../etc/passwd",
        "/v1/models/../../../../etc/passwd",
        "/v1/models/..%2f..%2f..%2fetc%2fpasswd",
        "/v1/models/pt_en/../half",
        "/v1/models/pt_en%2f1",
        "/v1/models/pt_en/1/saved_model.pb",
        "/v1/models/pt_en/versions/..%2f1",
        "/v1/models/pt_en/versions/%31",
        "/v1/models/pt_en/labels/..%2fstable",
        "/v1/models/%00",
        "/v1/models/" + "a" * 5000,
        "/v1/models/pt_en/assets.extra/tfxformer.json",
        "/export/pt_en/1/saved_model.pb",
        "/v1/models/pt_en/metadata/",
        "//v1/models/pt_en",
        "/v1/models//etc/passwd",
        "/v1/models/pt_en/versions/" + "9" * 30,
        "/v1/models/pt_en/versions/" + "9" * 5000,
        "/docs",
        "/openapi.json",
        "/monitoring/prometheus/",
    ],
)
def test_nothing_but_models_is_to_be_had(server, path):
    for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "MADE_UP"):
        status, found = server.ask(path, b"{}", method)
        assert status in (400, 404) and {*found} == {"error"}
        assert "Traceback" not in found["error"] and "root:" not in found["error"]


def test_a_body_that_is_too_large(server):
    for size in (200_001, 1_500_000):
        body = json.dumps({"instances": ["a" * size]}).encode()
        status, found = server.ask(ECHO, body)
        assert (status, found) == (413, {"error": "a body of more than 200000 bytes"})
    # Far too large: it is not read to its end, so a client may see a reset instead.
    connection = connect(server.url)
    connection.putrequest("POST", ECHO)
    connection.putheader("content-length", str(10**12))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()
    # Of unknown size.
    chunks = (b"[" * 10_000 for _ in range(30))
    connection = connect(server.url)
    connection.request("POST", ECHO, chunks, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()
    echo(server, "a")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            {"instances": ["a" * 2001]},
            "a string of 2001 bytes is longer than the maximum",
        ),
        (
            {"instances": ["a"] * 101},
            "Task size 101 is larger than maximum input batch",
        ),
        (
            {"signature_name": "spell", "instances": ["a"] * 17},
            "Task size 17 is larger than maximum input batch size 16 of signature",
        ),
        ({"signature_name": "many", "inputs": 300_000}, "ask for fewer rows at once"),
    ],
)
def test_limits(server, body, message):
    status, found = server.ask(ECHO, body)
    assert status == 400 and message in found["error"]


def test_http_that_is_none(server):
    for request in (b"GARBAGE\r\n\r\n", b"GET / HTTP/1.1\r\nHost\r\n\r\n", b"\0" * 100):
        answer = talk(server, request)
        assert answer.startswith(b"HTTP/1.1 400 ") and b'{"error"' in answer
    long = b"GET / HTTP/1.1\r\nx: " + b"a" * 200_000 + b"\r\n\r\n"
    assert talk(server, long)[:13] in (b"HTTP/1.1 400 ", b"")
    echo(server, "a")


def talk(server, request, seconds=20):
    """What comes back for raw bytes, until the server closes."""
    address = urlsplit(server.url)
    with socket.create_connection((address.hostname, address.port), seconds) as sock:
        answer = b""
        try:
            sock.sendall(request)
            while part := sock.recv(65536):
                answer += part
        except ConnectionError:
            pass
        return answer


def test_a_connection_is_used_again(server):
    connection = connect(server.url)
    for i in range(3):
        connection.request("POST", ECHO, json.dumps({"inputs": [f"{i}"]}))
        answer = connection.getresponse()
        assert json.loads(answer.read())["outputs"]["text"] == [f"{i}"]
        # After an error, too.
        connection.request("POST", ECHO, "{")
        assert connection.getresponse().read()
    connection.close()


def test_too_many_that_wait(server):
    """More than 120 rows are refused; those that were there are answered."""
    found = []

    def one():
        body = {"signature_name": "dawdle", "inputs": ["a"] * 50}
        found.append(server.ask(ECHO, body))

    threads = [threading.Thread(target=one) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    statuses = [status for status, _ in found]
    assert {*statuses} == {200, 503}, statuses
    for status, answer in found:
        assert status == 200 or "queue" in answer["error"]
    echo(server, "a")


def test_a_client_that_goes_away_costs_nothing_more(server):
    rows = ":tensorflow:serving:batching_session:processed_batch_size_sum"
    before = server.metric(rows, model_name="echo")
    body = json.dumps({"signature_name": "dawdle", "inputs": ["a"] * 100})
    connections = []
    for _ in range(1):
        connection = connect(server.url)
        connection.request("POST", ECHO, body)
        connections.append(connection)
    server.wait_for(lambda: server.metric(rows, model_name="echo") > before)
    for connection in connections:
        connection.close()
    server.wait_for(lambda: server.metric("tfxformer_waiting_rows") == 0, seconds=5)
    echo(server, "a")
    # Of 7 calls for 100 rows, those that had not begun were not made.
    assert server.metric(rows, model_name="echo") - before < 70
    status = {"model_name": "echo", "status": "CANCELLED", "API": "predict"}
    assert server.metric(":tensorflow:serving:request_count", **status) >= 1


# --- Bad requests, made up ---

STRINGS = st.sampled_from(["a", "", "fail", "é", "\ud800", "\0", "a" * 3000, "NaN"])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | STRINGS
    | st.builds(lambda x: {"b64": x}, STRINGS | st.integers()),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.sampled_from(["text", "b64", "x", "a"]), inner, max_size=3)
    ),
    max_leaves=12,
)
DOCUMENTS = st.dictionaries(
    st.sampled_from(["instances", "inputs", "signature_name", "examples", "more"]),
    VALUES
    | st.sampled_from(["serving_default", "raw", "spell", "both", "many", "nope"]),
)


def with_key_twice(document):
    text = json.dumps(document)
    return (text[:-1] + ', "inputs": 1, "inputs": 2}').encode()


BODIES = st.one_of(
    DOCUMENTS.map(lambda x: json.dumps(x).encode()),
    DOCUMENTS.map(with_key_twice),
    DOCUMENTS.map(lambda x: json.dumps(x).encode()[:-1]),  # cut
    st.binary(max_size=200),
    st.integers(1, 3000).map(lambda n: b'{"inputs": ' + b"[" * n + b"]" * n + b"}"),
    st.integers(1, 3000).map(lambda n: b'{"inputs": ' + b'{"a":' * n),
    st.integers(1, 6000).map(lambda n: b'{"inputs": [' + b"9" * n + b"]}"),
    st.sampled_from([b'{"inputs": ["a"]}', b'{"instances": ["a", "b"]}']),
    st.sampled_from([b"", b"null", b"[]", b'"a"', b"{}", b"\xef\xbb\xbf{}", b"NaN"]),
)
PATHS = st.one_of(
    st.sampled_from(
        [
            ECHO,
            ECHO,
            ECHO,
            "/v1/models/half:predict",
            "/v1/models/echo:classify",
            "/v1/models/echo:regress",
            "/v1/models/echo/versions/1:predict",
            "/v1/models/echo/versions/9:predict",
            "/v1/models/echo/labels/x:predict",
            "/v1/models/nope:predict",
            "/v1/models/echo",
            "/v1/models/echo/metadata",
        ]
    ),
    st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=20).map(
        lambda x: "/v1/models/" + x
    ),
)
# Of a good server asked bad things; 501 where a type is none of JSON's.
DOCUMENTED = {200, 400, 404, 413, 501, 503}


AT_ONCE = 8


def bombard(server, count):
    connections = [connect(server.url) for _ in range(AT_ONCE)]
    statuses, stop, neighbours = collections.Counter(), threading.Event(), []

    def neighbour():
        while not stop.is_set():
            texts = [f"neighbour {time.monotonic()}"]
            found = ask(server.url, ECHO, {"inputs": {"text": texts}})[1]
            neighbours.append(found["outputs"]["text"] == texts)
            stop.wait(0.01)

    requests = st.tuples(st.sampled_from(["POST"] * 3 + ["GET", "PUT"]), PATHS, BODIES)

    @settings(
        max_examples=count // AT_ONCE,
        deadline=None,
        database=None,
        derandomize=count < 1000,  # the few are always the same
        suppress_health_check=[*HealthCheck],
    )
    @given(st.lists(requests, min_size=AT_ONCE, max_size=AT_ONCE))
    def bad(requests):
        for connection, request in zip(connections, requests, strict=True):
            connection.request(*request)
        for connection in connections:
            answer = connection.getresponse()
            text = answer.read().decode()
            statuses[answer.status] += 1
            assert answer.status in DOCUMENTED, (answer.status, text)
            found = json.loads(text)
            if answer.status != 200:
                assert {*found} == {"error"} and len(found["error"]) < 1100
                assert not re.search(r"Traceback|File \"|site-packages|\.py\b", text)

    thread = threading.Thread(target=neighbour)
    thread.start()
    try:
        bad()
    finally:
        stop.set()
        thread.join()
        for connection in connections:
            connection.close()
    assert neighbours and all(neighbours)
    echo(server, "a")
    return statuses


def test_half_a_surrogate_pair_is_quoted_as_it_came(server):
    body = {"signature_name": "\ud83d", "inputs": ["a"]}
    status, found = ask(server.url, ECHO, body)
    assert status == 400 and '"\ud83d" not found' in found["error"]


def test_some_bad_requests(server):
    statuses = bombard(server, 240)
    assert statuses.total() >= 240 and {400, 404} <= {*statuses}


@pytest.mark.slow
def test_10_000_bad_requests(server):
    statuses = bombard(server, 10_000)
    assert statuses.total() >= 10_000 and {200, 400, 404} <= {*statuses}
