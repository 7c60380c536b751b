"""What may go wrong while many ask: versions that come and go, clients that misbehave.

Each test counts: no request of a client that behaves may fail, and each answer is
compared with the offline translation.
"""

import contextlib
import json
import os
import shutil
import socket
import threading
import time
from urllib.parse import urlsplit

import grpc
import pytest
import tensorflow as tf
from grpc_health.v1 import health_pb2, health_pb2_grpc
from local_server import LocalServer
from serving_load import Load, answers_of
from tensorflow_serving.apis import prediction_service_pb2_grpc
from tensorflow_serving.apis.predict_pb2 import PredictRequest

pytestmark = pytest.mark.slow

PREDICT = "/v1/models/pt_en:predict"


@pytest.fixture(scope="module")
def answers(served):
    return answers_of(served, 200)


@pytest.fixture
def repository(exported, tmp_path):
    """A repository of one version, and what adds or breaks others."""
    folder = tmp_path / "export" / "pt_en"
    shutil.copytree(exported, folder / "1")
    return folder


def add(repository, number, change=None):
    """Copies version 1 as another one, which appears whole."""
    part = repository.parent / f".part-{number}"
    shutil.copytree(repository / "1", part)
    if change:
        change(part)
    part.rename(repository / str(number))


def test_new_versions_under_load_fail_no_request(repository, answers):
    with (
        LocalServer(repository.parent) as server,
        Load(server, answers, clients=16) as load,
    ):
        load.wait(requests=50)
        for number in (2, 3, 4):
            add(repository, number)
            old = number - 1
            server.wait_for(lambda n=number: server.state("pt_en").get(n))
            server.wait_for(lambda n=old: server.state("pt_en")[n][0] == "END", 120)
            assert server.state("pt_en")[number] == ("AVAILABLE", "")
            load.wait(requests=50)
        load.stop()
        load.assert_good()
        assert {*load.versions} == {1, 2, 3, 4} and load.done.total() >= 200
        assert server.metric("tfxformer_loaded_version") == 1


def truncate_variables(version):
    (data,) = version.glob("variables/variables.data*")
    os.truncate(data, data.stat().st_size // 2)


def no_variables(version):
    shutil.rmtree(version / "variables")


def no_graph(version):
    (version / "saved_model.pb").write_bytes(os.urandom(1000))


def test_broken_versions_under_load_leave_the_old_one_serving(repository, answers):
    broken = {2: truncate_variables, 3: no_variables, 4: no_graph}
    with (
        LocalServer(repository.parent) as server,
        Load(server, answers, clients=16) as load,
    ):
        load.wait(requests=50)
        for number, change in broken.items():
            add(repository, number, change)
            server.wait_for(
                lambda n=number: server.state("pt_en").get(n, ("",))[0] == "END", 120
            )
            message = server.state("pt_en")[number][1]
            assert message and str(repository) not in message
            assert server.state("pt_en")[1] == ("AVAILABLE", "")
            load.wait(requests=50)
        load.stop()
        load.assert_good()
        assert {*load.versions} == {1} and load.done.total() >= 200
        loads = ":tensorflow:cc:saved_model:load_attempt_count"
        assert server.metric(loads, status="fail") == 3


def test_the_model_s_folder_removed_under_load(repository, answers):
    with (
        LocalServer(repository.parent) as server,
        Load(server, answers, clients=16) as load,
    ):
        load.wait(requests=50)
        kept = repository.parent.parent / "kept"
        shutil.copytree(repository, kept)
        shutil.rmtree(repository)
        time.sleep(3)  # several looks at the disk
        load.wait(requests=50)
        assert server.state("pt_en") == {1: ("AVAILABLE", "")}
        repository.mkdir()  # a new version is served as ever
        kept.joinpath("1").rename(repository / "2")
        server.wait_for(lambda: server.state("pt_en").get(2) == ("AVAILABLE", ""), 120)
        load.wait(requests=50)
        load.stop()
        load.assert_good()
        assert {*load.versions} == {1, 2}


def open_files(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def test_clients_that_disconnect_halfway(repository, answers):
    """By REST and by gRPC: in the head, in the body, before the answer."""
    with (
        LocalServer(repository.parent) as server,
        Load(server, answers, clients=16) as load,
    ):
        load.wait(requests=50)
        before, gone = open_files(server), 0
        address = urlsplit(server.url)
        body = json.dumps({"instances": [*answers]}).encode()
        head = f"POST {PREDICT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n"
        whole = head.encode() + b"\r\n" + body
        for i in range(300):
            with socket.create_connection((address.hostname, address.port), 20) as sock:
                cut = (10, len(head) + 50, len(whole))[i % 3]
                sock.sendall(whole[:cut])
                if i % 2:  # a reset instead of an end
                    sock.setsockopt(
                        socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"
                    )
            gone += 1
        with grpc.insecure_channel(server.grpc) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            request = PredictRequest(
                model_spec={"name": "pt_en"},
                inputs={"text": tf.make_tensor_proto([*answers])},
            )
            for _ in range(100):
                stub.Predict.future(request).cancel()
                gone += 1
        load.wait(requests=50)
        load.stop()
        load.assert_good()
        assert gone == 400
        server.wait_for(lambda: server.metric("tfxformer_waiting_rows") == 0)
        server.wait_for(lambda: open_files(server) <= before)


def drip(server, count, first, piece, seconds):
    """Connections that send a little now and then: what came back, when they ended.

    Returns:
        Bytes and seconds for each.
    """
    address = urlsplit(server.url)
    started = time.monotonic()
    sockets = []
    for _ in range(count):
        sock = socket.create_connection((address.hostname, address.port), 20)
        sock.sendall(first)
        sock.setblocking(False)
        sockets.append(sock)
    ended = {}
    while len(ended) < count and time.monotonic() - started < seconds:
        for sock in sockets:
            if sock in ended:
                continue
            # First to read: what is sent to a closed end resets what was not read.
            try:
                ended[sock] = sock.recv(65536), time.monotonic() - started
            except BlockingIOError:
                with contextlib.suppress(OSError):
                    sock.send(piece)
            except OSError:
                ended[sock] = b"", time.monotonic() - started
        time.sleep(0.1)
    for sock in sockets:
        sock.close()
    return [*ended.values()]


def test_slow_clients_are_shown_out_and_others_served(repository, answers):
    body = f"POST {PREDICT} HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n{{"
    with (
        LocalServer(repository.parent, "--read-timeout", 2) as server,
        Load(server, answers, clients=16) as load,
    ):
        load.wait(requests=50)
        for first, piece in (
            (b"GET / HTTP/1.1\r\nx: ", b"a"),  # a head without an end
            (b"", b""),  # not a word
            (body.encode(), b" "),  # a body without an end
        ):
            found = drip(server, 100, first, piece, 30)
            assert len(found) == 100
            for answer, seconds in found:
                assert seconds >= 1.9
                assert answer == b"" or answer.startswith(b"HTTP/1.1 408 ")
                assert answer == b"" or b'{"error"' in answer
            assert sum(answer != b"" for answer, _ in found) >= 90
        load.wait(requests=50)
        load.stop()
        load.assert_good()


def test_too_many_connections_are_refused_and_others_served(repository, answers):
    with (
        LocalServer(repository.parent, "--max-connections", 40) as server,
        Load(server, answers, clients=16) as load,
    ):
        load.wait(requests=50)
        found = drip(server, 100, b"GET / HTTP/1.1\r\n", b"", 3)
        refused = [x for x, _ in found if x.startswith(b"HTTP/1.1 503 ") or not x]
        # Eight are the load's, by REST.
        assert len(refused) >= 60
        load.wait(requests=50)
        load.stop()
        load.assert_good()


def test_sigterm_under_load_loses_nothing_that_was_there(repository, answers):
    """What was asked before the signal is answered; the health service says goodbye."""
    with LocalServer(repository.parent) as server:
        load = Load(server, answers, clients=32)
        with grpc.insecure_channel(server.grpc) as channel:
            request = health_pb2.HealthCheckRequest()
            watch = health_pb2_grpc.HealthStub(channel).Watch(request, timeout=120)
            states = []

            def follow():
                with contextlib.suppress(grpc.RpcError):  # it ends so
                    for update in watch:
                        states.append(update.status)

            follower = threading.Thread(target=follow)
            follower.start()
            with load:
                load.wait(requests=200)
                told = time.monotonic()
                said, code = server.stop()
            follower.join(60)
        assert code == 0 and "Traceback" not in said, said
        lost = [
            error
            for since, error in zip(load.failed_since, load.errors, strict=True)
            if since < told
        ]
        assert not lost and not load.wrong, lost[:3]
        in_flight = [x for x in load.answered_since if x[0] < told < x[1]]
        assert len(in_flight) >= 20, len(in_flight)
        serving = health_pb2.HealthCheckResponse.ServingStatus.Value
        assert states[:2] == [serving("SERVING"), serving("NOT_SERVING")]
