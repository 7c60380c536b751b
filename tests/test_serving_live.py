"""What serving/ tells people to run, run against the local server.

The examples of serving/README.md, Prometheus on its configuration, and nginx with the
proxy's. Each is skipped where its program is missing.
"""

import base64
import contextlib
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import grpc
import numpy as np
import pytest
import serving_reference
import yaml

SERVING = Path(__file__).parent.parent / "serving"
SERVE = [sys.executable, "-m", "tfxformer.cli", "serve"]
TEXTS = ["O gato preto bebeu o leite.", "Bom dia!"]

pytestmark = pytest.mark.slow


def examples(kind):
    text = (SERVING / "README.md").read_text("utf-8")
    block = rf"<!-- example: {kind} -->\n```\w+\n(.*?)```"
    found = re.findall(block, text, re.DOTALL)
    assert found, kind
    return found


@pytest.fixture(scope="module")
def server(exported, tmp_path_factory):
    """The local server on serving's own models.config, and where it listens."""
    folder = tmp_path_factory.mktemp("server")
    config = (SERVING / "config/models.config").read_text("utf-8")
    (folder / "models.config").write_text(
        config.replace("/models/pt_en", str(exported.parent))
    )
    log = folder / "log"
    command = [*SERVE, "--rest-port", "0", "--grpc-port", "0"]
    with open(log, "w") as output:
        process = subprocess.Popen(
            [*command, "--config", folder / "models.config"], stderr=output
        )
    try:
        wait_for(lambda: "ready" in log.read_text(), process, log)
        said = log.read_text()
        yield {
            "rest": re.search(r"REST: http://(\S+)", said).group(1),
            "grpc": re.search(r"gRPC: (\S+)", said).group(1),
        }
    finally:
        process.terminate()
        assert process.wait(60) == 0


def wait_for(condition, process, log, seconds=100):
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


def here(code, server):
    """An example with the server's address in place of the documented one."""
    code = code.replace("localhost:8501", server["rest"])
    return code.replace("localhost:8500", server["grpc"])


def run(command, cwd=None):
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ended = subprocess.run(
        command,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"PATH": path},
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def offline(served, signature, **inputs):
    arrays = {name: np.array(values, dtype=object) for name, values in inputs.items()}
    return served.answers(signature, arrays)


def strings(array):
    return [text.decode() for text in np.ravel(array)]


# --- The examples ---


def test_curl(server, served):
    rows, columns, scored = (
        json.loads(run(["bash", "-c", here(code, server)])) for code in examples("curl")
    )
    expected = offline(served, "serving_default", text=TEXTS)
    answers = rows["predictions"]
    assert [a["translation"] for a in answers] == strings(expected["translation"])
    assert [a["score"] for a in answers] == pytest.approx(
        expected["score"].tolist(), abs=1e-4
    )
    expected = offline(served, "translate_nbest", text=TEXTS[1:])
    (translations,) = columns["outputs"]["translations"]
    assert translations == strings(expected["translations"])
    expected = offline(served, "score", text=TEXTS[1:], translation=["Good morning!"])
    assert scored["predictions"] == pytest.approx(expected["score"].tolist(), abs=1e-4)


def test_python(server, served):
    (code,) = examples("python")
    assert re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE) == ["requests"]
    check_lines(run([sys.executable, "-c", here(code, server)]), served)


def test_python_tells_of_an_error(server):
    (code,) = examples("python")
    code = here(code, server).replace("pt_en", "en_pt")
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 1
    assert re.fullmatch(r"404: .*en_pt.*\n", ended.stderr)


@pytest.mark.skipif(not shutil.which("node"), reason="node is missing")
def test_javascript(server, served):
    (code,) = examples("javascript")
    command = ["node", "--input-type=module", "-e", here(code, server)]
    check_lines(run(command), served)


def check_lines(output, served):
    """Lines of a translation and its score, for both texts."""
    expected = offline(served, "serving_default", text=TEXTS)
    found = [line.rsplit(" ", 1) for line in output.splitlines()]
    assert [text for text, _ in found] == strings(expected["translation"])
    assert [float(score) for _, score in found] == pytest.approx(
        expected["score"].tolist(), abs=1e-4
    )


def grpcurl_request():
    (code,) = examples("grpcurl")
    return json.loads(re.search(r"-d '(.*?)'", code, re.DOTALL).group(1))


def test_grpcurls_request_is_a_predict_request(server, served):
    """Where grpcurl is missing, at least what it would send is right."""
    from google.protobuf import json_format
    from tensorflow_serving.apis.predict_pb2 import PredictRequest
    from tensorflow_serving.apis.prediction_service_pb2_grpc import (
        PredictionServiceStub,
    )

    request = json_format.ParseDict(grpcurl_request(), PredictRequest())
    assert list(request.inputs["text"].string_val) == [TEXTS[1].encode()]
    with grpc.insecure_channel(server["grpc"]) as channel:
        response = PredictionServiceStub(channel).Predict(request, timeout=60)
    expected = offline(served, "serving_default", text=TEXTS[1:])
    found = response.outputs["translation"].string_val
    assert list(found) == list(expected["translation"])


def test_protoset(tmp_path):
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool

    run(["bash", "-c", *examples("protoset")], cwd=tmp_path)
    data = (tmp_path / "serving.protoset").read_bytes()
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(data).file:
        pool.Add(file)  # in an order in which each finds what it needs
    service = pool.FindServiceByName("tensorflow.serving.PredictionService")
    assert "Predict" in service.methods_by_name
    assert pool.FindServiceByName("tensorflow.serving.ModelService")


@pytest.mark.skipif(not shutil.which("grpcurl"), reason="grpcurl is missing")
def test_grpcurl(server, served, tmp_path):
    run(["bash", "-c", *examples("protoset")], cwd=tmp_path)
    (code,) = examples("grpcurl")
    answer = json.loads(run(["bash", "-c", here(code, server)], cwd=tmp_path))
    expected = offline(served, "serving_default", text=TEXTS[1:])
    (translation,) = answer["outputs"]["translation"]["string_val"]
    assert base64.b64decode(translation) == expected["translation"][0]


# --- Metrics ---


def page(server):
    address = f"http://{server['rest']}/monitoring/prometheus/metrics"
    with urllib.request.urlopen(address, timeout=30) as response:
        return response.read().decode()


def test_the_local_servers_metrics_have_the_servers_names(server):
    ask(server)
    found = {}
    for name, labels in re.findall(
        r"^(:tensorflow:[\w:]+)(?:\{(.*)\})? ", page(server), re.MULTILINE
    ):
        found[name] = set(re.findall(r'(\w+)="', labels))
    summaries = {f"{name}_bucket" for name in serving_reference.SUMMARIES}
    assert set(found) <= set(serving_reference.SERIES) | summaries
    # It may have labels more, none less.
    for name, labels in found.items():
        assert labels >= serving_reference.SERIES.get(name, set()), name
    assert {
        ":tensorflow:serving:request_count",
        ":tensorflow:serving:request_latency_bucket",
        ":tensorflow:serving:runtime_latency_bucket",
        ":tensorflow:serving:batching_session:processed_batch_size_sum",
        ":tensorflow:cc:saved_model:load_attempt_count",
    } <= set(found)


def ask(server, model="pt_en"):
    request = urllib.request.Request(
        f"http://{server['rest']}/v1/models/{model}:predict",
        data=json.dumps({"instances": TEXTS}).encode(),
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


@pytest.mark.skipif(not shutil.which("prometheus"), reason="prometheus is missing")
def test_prometheus_reads_the_server(server, tmp_path):
    """On serving's own configuration; each panel asks something of what it read."""
    config = yaml.safe_load((SERVING / "monitoring/prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["scrape_configs"][0]["static_configs"] = [{"targets": [server["rest"]]}]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    shutil.copy(SERVING / "monitoring/alerts.yml", tmp_path)
    port, log = free_port(), tmp_path / "log"
    command = ["prometheus", f"--config.file={tmp_path}/prometheus.yml"]
    command += [f"--storage.tsdb.path={tmp_path}/data"]
    with open(log, "w") as output:
        process = subprocess.Popen(
            [*command, f"--web.listen-address=127.0.0.1:{port}"], stderr=output
        )

    def query(expression):
        asked = urllib.parse.urlencode({"query": expression})
        with contextlib.suppress(OSError):
            address = f"http://127.0.0.1:{port}/api/v1/query?{asked}"
            with urllib.request.urlopen(address, timeout=10) as response:
                return json.load(response)["data"]["result"]
        return []

    try:
        wait_for(lambda: query('up{job="serving"} == 1'), process, log)
        there = set(re.findall(r"^(:[\w:]+)", page(server), re.MULTILINE))
        expressions = []
        for panel in json.loads((SERVING / "monitoring/dashboard.json").read_text())[
            "panels"
        ]:
            for target in panel["targets"]:
                expression = target["expr"].replace("$__rate_interval", "20s")
                if set(re.findall(r":tensorflow[\w:]+", expression)) <= there:
                    expressions.append(expression.replace("$model", ".*"))
        assert len(expressions) >= 9

        def asked_and_told():
            ask(server)
            return all(query(expression) for expression in expressions)

        wait_for(asked_and_told, process, log, seconds=60)
        assert not query('ALERTS{alertstate="firing"}')
    finally:
        process.terminate()
        process.wait(30)


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


# --- The proxy ---


@pytest.fixture(scope="module")
def proxy(server, tmp_path_factory):
    """nginx on serving's configuration, with its keys: address, CA and password."""
    if not shutil.which("nginx"):
        pytest.skip("nginx is missing")
    folder = tmp_path_factory.mktemp("proxy")
    made = subprocess.check_output(
        [SERVING / "make_tls.sh", "localhost"],
        env=os.environ | {"TLS_DIR": str(folder / "tls")},
        text=True,
    )
    port = free_port()
    config = (SERVING / "nginx.conf").read_text("utf-8")
    for before, after in {
        "serving:8501": server["rest"],
        "serving:8500": server["grpc"],
        "listen 8443": f"listen 127.0.0.1:{port}",
        " /tmp/": f" {folder}/",
        " /tls/": f" {folder}/tls/",
        "/dev/stdout": f"{folder}/access",
        "/dev/stderr": f"{folder}/log",
        "client_body_timeout 10s": "client_body_timeout 2s",
        "client_header_timeout 10s": "client_header_timeout 2s",
    }.items():
        assert before in config
        config = config.replace(before, after)
    (folder / "nginx.conf").write_text(config)
    log = folder / "log"
    log.touch()
    command = ["nginx", "-c", folder / "nginx.conf", "-e", log, "-g"]
    # Started by root, its workers would be someone who may not read the keys.
    process = subprocess.Popen(
        [*command, "daemon off;" + "user root;" * (not os.getuid())]
    )

    def listens():
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return True

    try:
        wait_for(listens, process, log, seconds=20)
        yield {
            "address": f"localhost:{port}",
            "ca": folder / "tls/ca.crt",
            "password": re.search(r"^password: (\S+)$", made, re.MULTILINE).group(1),
        }
    finally:
        process.terminate()
        process.wait(30)


def basic(proxy, password=None):
    given = f"translator:{password or proxy['password']}"
    return "Basic " + base64.b64encode(given.encode()).decode()


def through(proxy, path, data=None, **headers):
    """The status and the body of an answer over HTTPS."""
    request = urllib.request.Request(
        f"https://{proxy['address']}{path}", data=data, headers=headers
    )
    trust = ssl.create_default_context(cafile=proxy["ca"])
    try:
        with urllib.request.urlopen(request, timeout=60, context=trust) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


PREDICT = "/v1/models/pt_en:predict"


def test_the_proxy_lets_predictions_through(proxy, served):
    body = json.dumps({"instances": TEXTS}).encode()
    status, answer = through(proxy, PREDICT, body, Authorization=basic(proxy))
    assert status == 200
    expected = offline(served, "serving_default", text=TEXTS)
    found = [row["translation"] for row in json.loads(answer)["predictions"]]
    assert found == strings(expected["translation"])
    status, answer = through(proxy, "/v1/models/pt_en", Authorization=basic(proxy))
    assert status == 200 and b"AVAILABLE" in answer


@pytest.mark.parametrize("path", [PREDICT, "/v1/models/pt_en"])
def test_the_proxy_asks_for_a_password(proxy, path):
    assert through(proxy, path)[0] == 401
    assert through(proxy, path, Authorization=basic(proxy, "wrong"))[0] == 401


@pytest.mark.parametrize(
    "path",
    [
        "/monitoring/prometheus/metrics",
        "/v1/models/../../monitoring/prometheus/metrics",
        "/v1/models/%2e%2e/%2e%2e/monitoring/prometheus/metrics",
        "/",
    ],
)
def test_the_proxy_keeps_the_rest_inside(proxy, path):
    assert through(proxy, path, Authorization=basic(proxy))[0] == 404


def test_the_proxy_refuses_what_is_large(proxy):
    body = json.dumps({"instances": ["a" * 2**20]}).encode()
    assert through(proxy, PREDICT, body, Authorization=basic(proxy))[0] == 413


def test_the_proxy_ends_slow_senders(proxy):
    host, port = proxy["address"].split(":")
    trust = ssl.create_default_context(cafile=proxy["ca"])
    begun = f"POST {PREDICT} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 50\r\n"
    begun += f"Authorization: {basic(proxy)}\r\n\r\n{{"
    for sent in (begun, begun[:20]):
        plain = socket.create_connection((host, int(port)), 60)
        with trust.wrap_socket(plain, server_hostname=host) as connection:
            connection.sendall(sent.encode())
            assert b"200 OK" not in connection.recv(1000)  # it ends, or says 408


def call(proxy, method, request, answer, password=None):
    """A gRPC call through the proxy."""
    trust = grpc.ssl_channel_credentials(proxy["ca"].read_bytes())
    with grpc.secure_channel(proxy["address"], trust) as channel:
        stub = channel.unary_unary(
            f"/tensorflow.serving.{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer.FromString,
        )
        metadata = [("authorization", basic(proxy, password))]
        return stub(request, timeout=60, metadata=metadata)


def refused(*arguments, **more):
    with pytest.raises(grpc.RpcError) as error:
        call(*arguments, **more)
    return error.value.code()


def test_the_proxy_passes_grpc_on(proxy, served):
    from google.protobuf import json_format
    from tensorflow_serving.apis.predict_pb2 import PredictRequest, PredictResponse

    request = json_format.ParseDict(grpcurl_request(), PredictRequest())
    predict = (proxy, "PredictionService/Predict", request, PredictResponse)
    expected = offline(served, "serving_default", text=TEXTS[1:])
    found = call(*predict).outputs["translation"].string_val
    assert list(found) == list(expected["translation"])
    assert refused(*predict, password="wrong") == grpc.StatusCode.UNAUTHENTICATED
    request.inputs["text"].string_val[0] = b"a" * 2**20
    assert refused(*predict) != grpc.StatusCode.OK


def test_the_proxy_lets_nobody_change_the_models(proxy):
    from tensorflow_serving.apis import get_model_status_pb2 as status
    from tensorflow_serving.apis import model_management_pb2 as management

    request = status.GetModelStatusRequest()
    request.model_spec.name = "pt_en"
    told = call(
        proxy, "ModelService/GetModelStatus", request, status.GetModelStatusResponse
    )
    assert told.model_version_status
    request = management.ReloadConfigRequest()
    method = "ModelService/HandleReloadConfigRequest"
    code = refused(proxy, method, request, management.ReloadConfigResponse)
    assert code == grpc.StatusCode.UNIMPLEMENTED
