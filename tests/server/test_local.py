"""`tfxformer serve` as a command: what it serves by default, and how it ends."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from local_server import LocalServer

from tfxformer.errors import UserError
from tfxformer.server import local


def command(*arguments, cwd=None, **environment):
    """The command in a process, which is to end soon: its exit code, its last line."""
    done = subprocess.run(
        [sys.executable, "-m", "tfxformer.cli", "serve", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=cwd,
        env={**os.environ, **environment},
    )
    assert done.stdout == "" and "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stderr.splitlines()[-1]


# --- How it begins ---


def test_limits_that_do_not_go_together(tmp_path):
    few = local.Settings(max_waiting=10)
    with pytest.raises(UserError, match="--max-waiting 10: less than"):
        local.serve(tmp_path, settings=few)


def test_a_port_that_is_taken(toys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for option in ("rest_port", "grpc_port"):
            ports = {"rest_port": 0, "grpc_port": 0, option: port}
            with pytest.raises(UserError, match=rf"--{option[:4]}.port {port}: 127"):
                local.serve(toys, settings=local.Settings(**ports))


def test_a_host_that_is_none(toys):
    settings = local.Settings(host="no.such.host.invalid", rest_port=0, grpc_port=0)
    with pytest.raises(UserError, match=r"no\.such\.host\.invalid"):
        local.serve(toys, settings=settings)


@pytest.mark.slow
def test_wrong_input_ends_in_one_line(tmp_path, toys):
    code, line = command(tmp_path / "nope")
    assert code == 1 and line == f"tfxformer: error: {tmp_path}/nope: no such folder"
    (tmp_path / "models.config").write_text("model_config_list {\n  konfig {}\n}")
    code, line = command("--config", "models.config", cwd=tmp_path)
    assert code == 1 and line.startswith("tfxformer: error: models.config:2: ")
    with LocalServer(toys) as server:
        port = server.url.rpartition(":")[2]
        code, line = command(toys, "--rest-port", port, "--grpc-port", 0)
        assert code == 1 and f"--rest-port {port}: 127.0.0.1:{port}: Address" in line
        port = server.grpc.rpartition(":")[2]
        code, line = command(toys, "--rest-port", 0, "--grpc-port", port)
        assert code == 1 and f"--grpc-port {port}: 127.0.0.1:{port}: cannot" in line


@pytest.mark.slow
def test_a_package_that_is_missing_is_named(tmp_path, toys):
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util\n"
        "real = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *a: "
        "None if name == 'uvicorn' else real(name, *a)\n"
    )
    path = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    assert command(toys, PYTHONPATH=path) == (
        1,
        "tfxformer: error: uvicorn is missing: pip install 'tfxformer[serve]'",
    )


@pytest.mark.slow
def test_a_model_that_cannot_be_loaded_ends_it(tmp_path, toys):
    shutil.copytree(toys, tmp_path / "export")
    (tmp_path / "export" / "half" / "2" / "saved_model.pb").write_bytes(b"\xff")
    code, line = command(cwd=tmp_path)
    assert code == 1 and "error: model half: version 2: " in line


def test_it_listens_on_loopback_alone(server):
    """Not on the machine's other addresses, of which it has one or more."""
    assert server.url.startswith("http://127.0.0.1:")
    assert server.grpc.startswith("127.0.0.1:")
    for address in {server.url.removeprefix("http://"), server.grpc}:
        port = int(address.rpartition(":")[2])
        # The whole of 127.0.0.0/8 is this machine, and a wildcard would answer there.
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.2", port), 5).close()


# --- The end ---


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)]
)
def test_it_ends_when_requests_are_answered(toys, number, code):
    with LocalServer(toys) as server:
        found = []
        body = {"signature_name": "dawdle", "inputs": ["a"]}
        thread = threading.Thread(
            target=lambda: found.append(server.ask("/v1/models/echo:predict", body))
        )
        thread.start()
        rows = ":tensorflow:serving:batching_session:processed_batch_size_sum"
        server.wait_for(lambda: server.metric(rows, model_name="echo") > 0)
        said, ended = server.stop(number)
        thread.join()
        assert ended == code and "Traceback" not in said, said
        assert found[0][0] == 200
        with pytest.raises(OSError):
            server.ask("/v1/models/echo")


@pytest.mark.slow
def test_it_waits_no_longer_than_it_is_told(toys):
    with LocalServer(toys, "--grace", 0.2) as server:
        body = {"signature_name": "dawdle", "inputs": ["a"] * 500}

        def one():
            with pytest.raises((OSError, AssertionError)):
                server.ask("/v1/models/echo:predict", body)

        thread = threading.Thread(target=one)
        thread.start()
        server.wait_for(lambda: server.metric("tfxformer_waiting_rows") > 0)
        said, code = server.stop()
        thread.join()
        assert code == 0 and "Traceback" not in said, said


@pytest.mark.slow
def test_it_may_be_stopped_while_it_loads(exported):
    server = LocalServer(exported.parent.parent)
    with server.process:
        time.sleep(4)  # in importing TensorFlow, or in loading
        server.process.send_signal(signal.SIGTERM)
        _, err = server.process.communicate(timeout=60)
    assert server.process.returncode in (0, -signal.SIGTERM)
    assert b"Traceback" not in err, err


@pytest.mark.slow
def test_no_configuration_at_all(exported, tmp_path, translator):
    """In a folder with an export it is one command, on TensorFlow Serving's ports."""
    shutil.copytree(exported.parent.parent, tmp_path / "export")
    with LocalServer(cwd=tmp_path) as server:
        path, body = "/v1/models/pt_en:predict", {"instances": ["Bom dia!"]}
        _, found = server.ask(path, body)
        assert found["predictions"][0]["translation"] == translator("Bom dia!")
    assert (local.Settings().rest_port, local.Settings().grpc_port) == (8501, 8500)
