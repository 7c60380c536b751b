"""The files in serving/: each against its schema, and all against one another."""

import ast
import contextlib
import http.server
import importlib.util
import inspect
import json
import re
import shlex
import shutil
import ssl
import subprocess
import sys
import threading
import types
from pathlib import Path

import pytest
import serving_reference
import yaml
from google.protobuf import text_format
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

HOME = Path(__file__).parent.parent
SERVING = HOME / "serving"
CONFIG = SERVING / "config"
PORTS = {"grpc": 8500, "rest": 8501}


def parse(file, message):
    return text_format.Parse(file.read_text("utf-8"), message)


def models_config():
    config = parse(CONFIG / "models.config", ModelServerConfig())
    (model,) = config.model_config_list.config
    return model


def compose():
    """The compose file, with the defaults of its variables."""
    text = (SERVING / "compose.yaml").read_text("utf-8")
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)
    assert "${" not in text
    return yaml.safe_load(text)


SERVICES = compose()["services"]
SERVERS = {name: s for name, s in SERVICES.items() if name.startswith("serving")}


def flags(arguments):
    return dict(argument.removeprefix("--").split("=", 1) for argument in arguments)


def kserve():
    return yaml.safe_load((SERVING / "kserve.yaml").read_text("utf-8"))


def kserve_model():
    return kserve()["spec"]["predictor"]["model"]


# --- The server's own files ---


def test_models_config():
    model = models_config()
    assert model.model_platform == "tensorflow"
    assert model.base_path == f"/models/{model.name}"
    kept = model.model_version_policy.latest.num_versions
    assert kept >= 2, "a label could not go back"
    # A repository with its first version alone has all that the labels name.
    assert dict(model.version_labels) == {"stable": 1, "canary": 1}


def batching_config():
    message = serving_reference.message("BatchingParameters")
    return parse(CONFIG / "batching.config", message())


def test_batching_config():
    from tfxformer.server import Client
    from tfxformer.server.local import Settings

    batching, local = batching_config(), Settings()
    most = batching.max_batch_size.value
    assert most >= inspect.signature(Client).parameters["batch_size"].default
    assert batching.num_batch_threads.value == SERVERS["serving"]["cpus"]
    # As on the local server, whose other half is Python's.
    assert batching.batch_timeout_micros.value == 1000 * local.batch_wait
    assert batching.max_enqueued_batches.value * most == local.max_waiting
    timeout = flags(SERVERS["serving"]["command"])["rest_api_timeout_in_ms"]
    assert int(timeout) == 1000 * local.timeout


def test_batching_config_leaves_out_what_harms():
    """It says why itself."""
    batching = batching_config()
    assert not batching.enable_large_batch_splitting.value
    assert not batching.pad_variable_length_inputs
    assert not batching.allowed_batch_sizes


def test_the_readme_has_the_measurements():
    spec = importlib.util.spec_from_file_location(
        "serving_batches", HOME / "benchmarks/serving_batches.py"
    )
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    measured = json.loads((HOME / "benchmarks/serving_batches.json").read_text())
    assert benchmark.table(measured["results"]) in readme()
    assert batching_config().max_batch_size.value in benchmark.SIZES
    assert measured["threads"] == SERVERS["serving"]["cpus"]


def test_the_messages_refuse_what_they_do_not_have(tmp_path):
    file = tmp_path / "batching.config"
    file.write_text("max_batch_sise { value: 3 }")
    with pytest.raises(text_format.ParseError, match="max_batch_sise"):
        parse(file, serving_reference.message("BatchingParameters")())


def test_monitoring_config():
    message = serving_reference.message("MonitoringConfig")
    config = parse(CONFIG / "monitoring.config", message())
    assert config.prometheus_config.enable
    (job,) = prometheus()["scrape_configs"]
    assert config.prometheus_config.path == job["metrics_path"]
    annotations = kserve()["metadata"]["annotations"]
    assert config.prometheus_config.path == annotations["prometheus.kserve.io/path"]


@pytest.mark.parametrize("name", SERVERS)
def test_flags_are_the_servers(name):
    given = flags(SERVERS[name]["command"])
    assert set(given) <= set(serving_reference.FLAGS)
    assert given["port"] == str(PORTS["grpc"])
    assert given["rest_api_port"] == str(PORTS["rest"])
    assert SERVERS[name]["entrypoint"] == ["/usr/bin/tensorflow_model_server"]


def test_threads_are_as_many_as_the_cores():
    for server in SERVERS.values():
        given = flags(server["command"])
        assert given["tensorflow_intra_op_parallelism"] == str(server["cpus"])
        assert given["tensorflow_inter_op_parallelism"] == str(server["cpus"])
    given = flags(kserve_model()["args"])
    cores = kserve_model()["resources"]["limits"]["cpu"]
    assert given["tensorflow_intra_op_parallelism"] == cores
    assert given["tensorflow_inter_op_parallelism"] == cores


# --- Compose ---


def test_compose_is_a_compose_file():
    check_jsonschema = pytest.importorskip("check_jsonschema")
    jsonschema = pytest.importorskip("jsonschema")
    folder = Path(check_jsonschema.__file__).parent / "builtin_schemas" / "vendor"
    schema = json.loads((folder / "compose-spec.json").read_text("utf-8"))
    validator = jsonschema.validators.validator_for(schema)(schema)
    validator.validate(compose())
    broken = compose()
    broken["services"]["serving"]["read_onyl"] = True
    assert not validator.is_valid(broken)


@pytest.mark.parametrize("name", SERVICES)
def test_containers_may_do_little(name):
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["cpus"] and service["mem_limit"] and service["pids_limit"]
    assert "privileged" not in service and "cap_add" not in service
    assert not str(service.get("user", "")).startswith(("0", "root"))
    for volume in service["volumes"]:
        assert volume["type"] == "volume" or volume["read_only"], volume
    for port in service["ports"]:
        assert name == "proxy" or port.startswith("127.0.0.1:"), port
    assert re.fullmatch(r"\S+:v?\d+\.\d+\.\d+\S*", service["image"]), "no release"


def test_the_servers_run_as_nobody():
    assert {server["user"] for server in SERVERS.values()} == {"65534:65534"}


def test_one_server_a_profile():
    """Two servers would want the same ports."""
    profiles = [tuple(server["profiles"]) for server in SERVERS.values()]
    assert sorted(profiles) == [("cpu",), ("gpu",)]
    (device,) = SERVERS["serving-gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert device["capabilities"] == ["gpu"]


@pytest.mark.parametrize("name", SERVICES)
def test_what_is_mounted_is_there(name):
    for volume in SERVICES[name]["volumes"]:
        if volume["type"] == "bind":
            assert (SERVING / volume["source"]).exists(), volume
        else:
            assert volume["source"] in compose()["volumes"]


@pytest.mark.parametrize("name", SERVERS)
def test_the_flags_files_are_mounted(name):
    targets = {
        volume["target"]: SERVING / volume["source"]
        for volume in SERVERS[name]["volumes"]
    }
    files = [
        value for value in flags(SERVERS[name]["command"]).values() if "/" in value
    ]
    assert len(files) == 3
    for file in map(Path, files):
        assert (targets[str(file.parent)] / file.name).is_file(), file
    assert targets[str(Path(models_config().base_path).parent)].samefile(
        HOME / "export"
    )


def test_the_image_matches_the_exporting_tensorflow():
    project = (HOME / "pyproject.toml").read_text("utf-8")
    minor = re.search(r'"tensorflow>=(\d+\.\d+),', project).group(1)
    tags = [server["image"] for server in SERVERS.values()]
    cpu, gpu = (image.removeprefix("tensorflow/serving:") for image in tags)
    assert cpu.startswith(f"{minor}.")
    assert gpu == f"{cpu}-gpu"
    assert kserve_model()["runtimeVersion"] == cpu
    readme = (SERVING / "README.md").read_text("utf-8")
    assert set(re.findall(r"tensorflow/serving:(\S+?)[`)]", readme)) == {cpu}


# --- The health check ---


class Answers(http.server.BaseHTTPRequestHandler):
    """A server that knows one model, and answers what it is told to."""

    def do_GET(self):
        status, body = self.server.answer
        if status is None:
            self.server.release.wait(20)
            return
        found = self.path == f"/v1/models/{models_config().name}"
        self.send_response(status if found else 404)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *args):
        pass


@pytest.fixture
def answering():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.release = threading.Event()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.release.set()
    server.shutdown()
    server.server_close()


def health_check(port, timeout=20):
    (program, *arguments) = SERVICES["serving"]["healthcheck"]["test"][1:]
    asked = arguments[-1].replace(f"/{PORTS['rest']}", f"/{port}")
    assert asked != arguments[-1]
    return subprocess.run(
        [program, *arguments[:-1], asked], timeout=timeout, capture_output=True
    ).returncode


def state(name):
    return {"model_version_status": [{"version": "1", "state": name, "status": {}}]}


@pytest.mark.parametrize(
    ("status", "body", "healthy"),
    [
        (200, state("AVAILABLE"), True),
        (200, state("LOADING"), False),
        (404, {"error": "Could not find any versions of model"}, False),
        (500, {}, False),
    ],
)
def test_health_check(answering, status, body, healthy):
    answering.answer = status, body
    assert (health_check(answering.server_port) == 0) == healthy


def test_health_check_of_a_server_that_is_not_there(answering):
    answering.server_close()
    assert health_check(answering.server_port) != 0


def test_health_check_of_a_server_that_hangs(answering):
    """It waits, and the engine ends it after its own time-out."""
    answering.answer = None, None
    with pytest.raises(subprocess.TimeoutExpired):
        health_check(answering.server_port, timeout=1)
    assert SERVICES["serving"]["healthcheck"]["timeout"]


# --- Prometheus and Grafana ---


def prometheus():
    return yaml.safe_load((SERVING / "monitoring/prometheus.yml").read_text("utf-8"))


def rules():
    file = SERVING / "monitoring/alerts.yml"
    (group,) = yaml.safe_load(file.read_text("utf-8"))["groups"]
    return group["rules"]


def dashboard():
    return json.loads((SERVING / "monitoring/dashboard.json").read_text("utf-8"))


def dashboard_expressions():
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            expression = target["expr"].replace("$__rate_interval", "5m")
            yield panel["title"], expression.replace("$model", ".*")


EXPRESSIONS = [*dashboard_expressions()]
EXPRESSIONS += [(rule["alert"], rule["expr"]) for rule in rules()]


def series_of(expression):
    """Each series that PromQL reads, and the labels that it asks of it."""
    for name, labels in re.findall(r"(:[\w:]+|\bup\b)(?:\{([^}]*)\})?", expression):
        yield name, set(re.findall(r"(\w+)\s*[=!]", labels))


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS)
def test_metrics_are_the_servers(where, expression):
    found = [*series_of(expression)]
    assert found
    for name, labels in found:
        if name == "up":
            continue
        known = serving_reference.SERIES[name]
        grouped = re.findall(r"by \(([\w, ]+)\)", expression)
        asked = labels | {label for group in grouped for label in group.split(", ")}
        assert asked <= known, f"{name} has no {asked - known}"
        (scrape,) = prometheus()["scrape_configs"]
        (kept,) = scrape["metric_relabel_configs"]
        assert re.fullmatch(kept["regex"], name), f"{name} is dropped"


def test_counters_are_read_as_rates():
    """A counter's value itself says nothing, but for the loads, which are few."""
    for where, expression in EXPRESSIONS:
        for name, _ in series_of(expression):
            if name == "up" or where.startswith("Versions:"):
                continue
            before = expression[: expression.index(name)]
            assert before.endswith(("rate(", "increase(")), where


def test_dashboard_panels():
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({panel["title"] for panel in panels}) == len(panels)
    taken = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, "panels lie over one another"
        taken |= cells
        assert panel["datasource"]["uid"] == datasource()["uid"]
    titles = " ".join(panel["title"].lower() for panel in panels)
    for word in ("requests", "latency", "batch size", "queue", "versions"):
        assert word in titles


def datasource():
    file = SERVING / "monitoring/grafana_datasource.yaml"
    (found,) = yaml.safe_load(file.read_text("utf-8"))["datasources"]
    return found


def test_grafana_finds_its_dashboard_and_prometheus():
    file = SERVING / "monitoring/grafana_dashboards.yaml"
    (provider,) = yaml.safe_load(file.read_text("utf-8"))["providers"]
    mounted = {volume["target"]: volume for volume in SERVICES["grafana"]["volumes"]}
    folder = Path(provider["options"]["path"])
    assert [target for target in mounted if Path(target).parent == folder]
    assert datasource()["url"] == "http://prometheus:9090"
    assert SERVICES["prometheus"]["ports"] == ["127.0.0.1:9090:9090"]


def test_prometheus_finds_the_server_and_its_rules():
    (job,) = prometheus()["scrape_configs"]
    (target,) = job["static_configs"]
    assert target["targets"] == [f"serving:{PORTS['rest']}"]
    for server in SERVERS.values():
        assert server["networks"]["inside"]["aliases"] == ["serving"]
    mounted = {volume["target"] for volume in SERVICES["prometheus"]["volumes"]}
    (file,) = prometheus()["rule_files"]
    assert f"/etc/prometheus/{file}" in mounted
    assert f'job="{job["job_name"]}"' in rules()[0]["expr"]


promtool = pytest.mark.skipif(
    not shutil.which("promtool"), reason="promtool (Debian's prometheus) is missing"
)


def run_promtool(*arguments):
    ended = subprocess.run(
        ["promtool", *map(str, arguments)], capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


@promtool
def test_promtool_takes_the_files():
    run_promtool("check", "config", SERVING / "monitoring/prometheus.yml")
    run_promtool("check", "rules", SERVING / "monitoring/alerts.yml")


@promtool
def test_promtool_takes_the_dashboards_expressions(tmp_path):
    recorded = [
        {"record": f"panel_{i}", "expr": expression}
        for i, (_, expression) in enumerate(dashboard_expressions())
    ]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": recorded}]}))
    run_promtool("check", "rules", file)


# What happens over 30 minutes, a value a minute, and the alert that it raises. "tf" is
# what the names begin with.
ALARMING = {
    "ServerDown": {'up{job="serving",instance="a"}': "0x30"},
    "RequestsFail": {
        'tf:serving:request_count{status="OK"}': "0+100x30",
        'tf:serving:request_count{status="UNAVAILABLE"}': "0+2x30",
    },
    "RequestsSlow": {
        'tf:serving:request_latency_bucket{API="predict",le="4e6"}': "0+90x30",
        'tf:serving:request_latency_bucket{API="predict",le="8e6"}': "0+99x30",
        'tf:serving:request_latency_bucket{API="predict",le="+Inf"}': "0+99x30",
        'tf:serving:request_latency_bucket{API="Predict",le="+Inf"}': "0+1x30",
    },
    "QueueLong": {
        'tf:serving:batching_session:queuing_latency_bucket{le="4e5"}': "0+50x30",
        'tf:serving:batching_session:queuing_latency_bucket{le="8e5"}': "0+60x30",
        'tf:serving:batching_session:queuing_latency_bucket{le="+Inf"}': "0+60x30",
    },
    "VersionNotLoaded": {
        'tf:cc:saved_model:load_attempt_count{model_path="/m/2",status="fail"}': (
            "_x20 1 2 3 4 5 6"
        )
    },
}
# Callers' mistakes, quick answers and versions that load raise none.
QUIET = {
    'up{job="serving",instance="a"}': "1x30",
    'tf:serving:request_count{status="OK"}': "0+100x30",
    'tf:serving:request_count{status="INVALID_ARGUMENT"}': "0+100x30",
    'tf:serving:request_latency_bucket{API="predict",le="4e6"}': "0+60x30",
    'tf:serving:request_latency_bucket{API="predict",le="+Inf"}': "0+60x30",
    'tf:serving:batching_session:queuing_latency_bucket{le="4e5"}': "0+60x30",
    'tf:serving:batching_session:queuing_latency_bucket{le="+Inf"}': "0+60x30",
    'tf:cc:saved_model:load_attempt_count{model_path="/m/2",status="success"}': "1x30",
}


@promtool
@pytest.mark.parametrize("alert", [*ALARMING, None])
def test_alerts_are_raised(tmp_path, alert):
    assert set(ALARMING) == {rule["alert"] for rule in rules()}
    asked = [
        {
            "expr": f'count(ALERTS{{alertname="{rule["alert"]}",alertstate="firing"}})',
            "eval_time": "25m",
            "exp_samples": [{"value": 1}] if rule["alert"] == alert else [],
        }
        for rule in rules()
    ]
    series = ALARMING[alert] if alert else QUIET
    file = tmp_path / "test.yml"
    file.write_text(
        yaml.safe_dump(
            {
                "rule_files": [str(SERVING / "monitoring/alerts.yml")],
                "evaluation_interval": "1m",
                "tests": [
                    {
                        "interval": "1m",
                        "input_series": [
                            {
                                "series": re.sub("^tf", ":tensorflow", name),
                                "values": values,
                            }
                            for name, values in series.items()
                        ],
                        "promql_expr_test": asked,
                    }
                ],
            }
        )
    )
    run_promtool("test", "rules", file)


# --- Keys, certificates, passwords, the proxy ---


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    made = make_tls(folder, "localhost", "127.0.0.1")
    password = re.search(r"^password: (\S+)$", made, re.MULTILINE).group(1)
    return folder, password


def make_tls(folder, *names):
    return subprocess.run(
        [SERVING / "make_tls.sh", *names],
        env={"TLS_DIR": str(folder), "PATH": "/usr/bin:/bin"},
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def test_make_tls_writes_the_servers_message(tls):
    folder, _ = tls
    config = parse(folder / "ssl.config", serving_reference.message("SSLConfig")())
    assert config.server_key == (folder / "server.key").read_text()
    assert config.server_cert == (folder / "server.crt").read_text()
    assert not config.client_verify


def test_make_tls_keeps_secrets(tls):
    folder, password = tls
    for file in folder.iterdir():
        assert file.stat().st_mode & 0o077 == 0, file
    user, stored = (folder / "passwords").read_text().strip().split(":")
    assert user == "translator"
    _, kind, salt, _ = stored.split("$")
    assert kind == "6"
    again = ["openssl", "passwd", "-6", "-salt", salt, password]
    assert subprocess.check_output(again, text=True).strip() == stored


def test_make_tls_keeps_what_is_there(tls):
    folder, _ = tls
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert "password" not in make_tls(folder, "localhost")
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_make_tls_asks_for_a_name():
    ended = subprocess.run([SERVING / "make_tls.sh"], capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "elsewhere.example"])
def test_clients_trust_the_certificate_for_its_names_alone(tls, name):
    folder, _ = tls
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "server.crt", folder / "server.key")
    client = ssl.create_default_context(cafile=folder / "ca.crt")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]

    def shake_hands():
        for _ in range(4):
            for end in ends:
                with contextlib.suppress(ssl.SSLWantReadError):
                    end.do_handshake()

    if name == "elsewhere.example":
        with pytest.raises(ssl.SSLCertVerificationError):
            shake_hands()
    else:
        shake_hands()
        assert ends[0].version() == "TLSv1.3"


def test_the_proxy_and_the_server_agree():
    text = (SERVING / "nginx.conf").read_text("utf-8")
    assert re.findall(r"server (serving:\d+);", text) == [
        f"serving:{PORTS['rest']}",
        f"serving:{PORTS['grpc']}",
    ]
    (port,) = re.findall(r"listen (\d+) ssl", text)
    assert SERVICES["proxy"]["ports"] == [f"{port}:{port}"]
    mounted = {volume["target"] for volume in SERVICES["proxy"]["volumes"]}
    for file in re.findall(
        r"(?:ssl_certificate|ssl_certificate_key|file) (/\S+);", text
    ):
        assert str(Path(file).parent) in mounted
    # Longer than the server's own time, so that its answer comes through.
    seconds = int(flags(SERVERS["serving"]["command"])["rest_api_timeout_in_ms"]) / 1000
    assert all(int(t) > seconds for t in re.findall(r"read_timeout (\d+)s", text))


# --- Kubernetes ---


def test_kserve_agrees_with_compose():
    model = kserve_model()
    given = flags(model["args"])
    assert set(given) <= set(serving_reference.FLAGS)
    assert given["model_name"] == models_config().name
    composed = flags(SERVERS["serving"]["command"])
    # The runtime gives the ports and the model's folder itself.
    same = set(given) - {"model_name"}
    assert {name: given[name] for name in same} == {
        name: composed[name] for name in same
    }
    mounts = {mount["mountPath"]: mount["name"] for mount in model["volumeMounts"]}
    volumes = {v["name"]: v for v in kserve()["spec"]["predictor"]["volumes"]}
    for value in given.values():
        if value.startswith("/"):
            folder, _, name = value.rpartition("/")
            assert "configMap" in volumes[mounts[folder]]
            assert (CONFIG / name).is_file()
    predictor = kserve()["spec"]["predictor"]
    assert predictor["scaleTarget"] <= batching_config().max_batch_size.value
    assert predictor["timeout"] == int(given["rest_api_timeout_in_ms"]) / 1000


def test_kserve_is_what_its_models_take():
    """Against the models of KServe's and Kubernetes' Python clients."""
    models = {**client_models("kubernetes", "client"), **client_models("kserve")}
    check_model(kserve(), "V1beta1InferenceService", models)
    for path, key in [(("spec", "predictor"), "minReplica"), (("spec",), "predictors")]:
        broken = kserve()
        place = broken
        for step in path:
            place = place[step]
        place[key] = 1
        with pytest.raises(AssertionError, match=key):
            check_model(broken, "V1beta1InferenceService", models)


def client_models(*names):
    """What a client's package has in `models`, without the rest of the package.

    The packages themselves want a web server and more, in versions that are not ours:
    pip install --no-deps is enough. From 36 on Kubernetes' models are of another kind.
    """
    found = importlib.util.find_spec(names[0])
    if not found:
        pytest.skip("pip install --no-deps 'kserve==0.21.0' 'kubernetes<36'")
    folder = Path(*found.submodule_search_locations)
    kept = taken_out(names[0])
    try:
        for i in range(len(names)):
            package = types.ModuleType(".".join(names[: i + 1]))
            package.__path__ = [str(folder.joinpath(*names[1 : i + 1]))]
            sys.modules[package.__name__] = package
        return vars(importlib.import_module(".".join([*names, "models"])))
    finally:
        taken_out(names[0])
        sys.modules.update(kept)


def taken_out(package):
    """Takes a package's modules out of those that are imported, and returns them."""
    names = [name for name in sys.modules if name.split(".")[0] == package]
    return {name: sys.modules.pop(name) for name in names}


SCALARS = {"str": str, "bool": bool, "int": int, "float": (int, float)}


def check_model(value, kind, models, where=""):
    """Whether a value is what an OpenAPI model says, its names and types."""
    if kind == "object" or kind in ("IntOrString", "ResourceQuantity"):
        return
    if kind in SCALARS:
        assert isinstance(value, SCALARS[kind]), f"{where}: {value!r} is no {kind}"
    elif kind.startswith("list["):
        assert isinstance(value, list), f"{where}: {value!r} is no list"
        for i, item in enumerate(value):
            check_model(item, kind[5:-1], models, f"{where}[{i}]")
    elif kind.startswith("dict("):
        inner = kind[5:-1].split(", ", 1)[1]
        for key, item in value.items():
            check_model(item, inner, models, f"{where}.{key}")
    else:
        model = models[kind]
        assert isinstance(value, dict), f"{where}: {value!r} is no {kind}"
        names = {name: attribute for attribute, name in model.attribute_map.items()}
        for key, item in value.items():
            assert key in names, f"{where}.{key}: {kind} has no such field"
            check_model(item, model.openapi_types[names[key]], models, f"{where}.{key}")


# --- The documents ---


def readme():
    return (SERVING / "README.md").read_text("utf-8")


def test_everything_is_about_one_model():
    name = models_config().name
    tree = ast.parse((HOME / "tfxformer/exporting/saved_model.py").read_text("utf-8"))
    (export,) = (
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name == "export"
    )
    names = [argument.arg for argument in export.args.args]
    defaults = dict(zip(reversed(names), reversed(export.args.defaults), strict=False))
    assert defaults["name"].value == name
    texts = [readme(), (SERVING / "compose.yaml").read_text("utf-8")]
    for text in texts:
        assert set(re.findall(r"/v1/models/(\w+)", text)) == {name}
    assert set(re.findall(r'"model_spec": \{"name": "(\w+)"', readme())) == {name}


def test_the_readme_has_the_ports():
    assert set(re.findall(r"localhost:(\d+)", readme())) == {
        str(port) for port in PORTS.values()
    }


def test_the_readme_names_files_that_are_there():
    for path in re.findall(
        r"`((?:config|monitoring)/[\w./]*|\w+\.(?:yaml|sh|conf))`", readme()
    ):
        assert (SERVING / path).exists(), path
    for path in re.findall(r"(?<![\w/])(serving/[\w./]+)", readme()):
        if not path.startswith("serving/tls/"):  # what make_tls.sh makes
            assert (HOME / path.rstrip(".")).exists(), path


def test_every_file_is_told_of():
    told = readme() + (SERVING / "compose.yaml").read_text("utf-8")
    for file in SERVING.rglob("*"):
        if file.is_file() and file.parent.name != "tls" and file.name != "README.md":
            assert file.name in told, file


def test_compose_commands_name_profiles_that_are_there():
    profiles = {profile for s in SERVICES.values() for profile in s.get("profiles", ())}
    used = set(re.findall(r"--profile (\w+)", readme()))
    assert used == profiles
    variables = set(
        re.findall(r"\$\{(\w+)", (SERVING / "compose.yaml").read_text("utf-8"))
    )
    for command in re.findall(r"^(?:export )?(\w+)=\S+", readme(), re.MULTILINE):
        assert command in variables, command
    for flag in re.findall(r"SERVING_FLAG=(\S+)", readme()):
        (name,) = flags(shlex.split(flag))
        assert name in serving_reference.FLAGS
