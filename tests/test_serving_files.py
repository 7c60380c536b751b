"""The files in serving/: each against its schema, and all against one another."""

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
    wrappers_pb2,
)
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

HOME = Path(__file__).parent.parent
SERVING = HOME / "serving"
README = (SERVING / "README.md").read_text("utf-8")

# The flags of TensorFlow Serving that the files use, from its model_servers/main.cc.
FLAGS = {
    "port",
    "rest_api_port",
    "rest_api_timeout_in_ms",
    "model_config_file",
    "model_config_file_poll_wait_seconds",
    "allow_version_labels_for_unavailable_models",
    "file_system_poll_wait_seconds",
    "num_load_threads",
    "enable_batching",
    "batching_parameters_file",
    "monitoring_config_file",
    "tensorflow_intra_op_parallelism",
    "tensorflow_inter_op_parallelism",
    "enable_profiler",
    "model_name",
    "xla_cpu_compilation_enabled",
    "xla_gpu_compilation_enabled",
    "ssl_config_file",
}
# Messages that tensorflow-serving-api lacks, from config/monitoring_config.proto,
# config/ssl_config.proto and servables/tensorflow/session_bundle_config.proto.
MESSAGES = {
    "PrometheusConfig": {"enable": "bool", "path": "string"},
    "MonitoringConfig": {"prometheus_config": ".reference.PrometheusConfig"},
    "SSLConfig": {
        "server_key": "string",
        "server_cert": "string",
        "custom_ca": "string",
        "client_verify": "bool",
    },
    "BatchingParameters": {
        "max_batch_size": ".google.protobuf.Int64Value",
        "batch_timeout_micros": ".google.protobuf.Int64Value",
        "max_enqueued_batches": ".google.protobuf.Int64Value",
        "num_batch_threads": ".google.protobuf.Int64Value",
        "enable_large_batch_splitting": ".google.protobuf.BoolValue",
        "pad_variable_length_inputs": "bool",
    },
}
# Metrics that TensorFlow Serving has and the local server lacks.
SERVING_ALONE = {
    ":tensorflow:serving:batching_session:wrapped_run_count",
    ":tensorflow:serving:model_warmup_latency_sum",
    ":tensorflow:serving:model_warmup_latency_count",
}


def message(name):
    """A message of a class with the fields above; text format needs no numbers."""
    file = descriptor_pb2.FileDescriptorProto(name="r.proto", package="reference")
    file.syntax = "proto3"
    file.dependency.append(wrappers_pb2.DESCRIPTOR.name)
    for kind, fields in MESSAGES.items():
        made = file.message_type.add(name=kind)
        for number, (field, of) in enumerate(fields.items(), start=1):
            added = made.field.add(name=field, number=number, label=1)
            if of.startswith("."):
                added.type, added.type_name = added.TYPE_MESSAGE, of
            else:
                added.type = getattr(added, f"TYPE_{of.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    found = pool.FindMessageTypeByName(f"reference.{name}")
    return message_factory.GetMessageClass(found)()


def parse(file, into):
    return text_format.Parse(Path(file).read_text("utf-8"), into)


def load_yaml(name):
    """A YAML file, with the defaults of its variables."""
    text = (SERVING / name).read_text("utf-8")
    return yaml.safe_load(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text))


def flags(arguments):
    return dict(argument.removeprefix("--").split("=", 1) for argument in arguments)


SERVICES = load_yaml("compose.yaml")["services"]
SERVERS = {name: x for name, x in SERVICES.items() if name.startswith("serving")}
KSERVE = load_yaml("kserve.yaml")
KSERVE_MODEL = KSERVE["spec"]["predictor"]["model"]
(SCRAPE,) = load_yaml("monitoring/prometheus.yml")["scrape_configs"]
BATCHING = parse(SERVING / "config/batching.config", message("BatchingParameters"))
(MODEL,) = parse(
    SERVING / "config/models.config", ModelServerConfig()
).model_config_list.config


def test_models_config():
    assert MODEL.model_platform == "tensorflow"
    assert MODEL.base_path == f"/models/{MODEL.name}"
    # A label can go back to the version before.
    assert MODEL.model_version_policy.latest.num_versions >= 2
    assert dict(MODEL.version_labels) == {"stable": 1, "canary": 1}
    assert (HOME / "export" / MODEL.name / "1").is_dir()
    for text in (README, (SERVING / "compose.yaml").read_text("utf-8")):
        assert set(re.findall(r"/v1/models/(\w+)", text)) == {MODEL.name}


def load_script(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_batching_config():
    from tfxformer.server.settings import ServerSettings

    most, local = BATCHING.max_batch_size.value, ServerSettings()
    assert most == local.max_batch
    assert most >= load_script(SERVING / "client.py").BATCH
    assert BATCHING.batch_timeout_micros.value == 1000 * local.batch_wait
    assert BATCHING.max_enqueued_batches.value * most == local.max_waiting
    assert BATCHING.num_batch_threads.value == SERVERS["serving"]["cpus"]
    # The file says why these stay unset.
    assert not BATCHING.enable_large_batch_splitting.value
    assert not BATCHING.pad_variable_length_inputs
    assert KSERVE["spec"]["predictor"]["scaleTarget"] <= most


def test_the_readme_has_the_measurements():
    benchmark = load_script(HOME / "benchmarks/serving_batches.py")
    measured = json.loads((HOME / "benchmarks/serving_batches.json").read_text())
    assert benchmark.table(measured["results"]) in README


def test_monitoring_config():
    config = parse(SERVING / "config/monitoring.config", message("MonitoringConfig"))
    assert config.prometheus_config.enable
    path = config.prometheus_config.path
    annotations = KSERVE["metadata"]["annotations"]
    assert annotations["prometheus.kserve.io/path"] == SCRAPE["metrics_path"] == path


def test_compose_is_a_compose_file():
    check_jsonschema = pytest.importorskip("check_jsonschema")
    jsonschema = pytest.importorskip("jsonschema")
    folder = Path(check_jsonschema.__file__).parent / "builtin_schemas" / "vendor"
    schema = json.loads((folder / "compose-spec.json").read_text("utf-8"))
    jsonschema.validate(load_yaml("compose.yaml"), schema)


@pytest.mark.parametrize("name", SERVICES)
def test_containers_may_do_little(name):
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["cpus"] and service["mem_limit"] and service["pids_limit"]
    assert re.fullmatch(r"\S+:v?\d+\.\d+\.\d+\S*", service["image"]), "no release"
    for port in service["ports"]:
        assert name == "proxy" or port.startswith("127.0.0.1:"), port
    for volume in service["volumes"]:
        if volume["type"] == "bind":
            assert volume["read_only"] and (SERVING / volume["source"]).exists()


@pytest.mark.parametrize("name", SERVERS)
def test_the_servers_flags(name):
    given, service = flags(SERVERS[name]["command"]), SERVERS[name]
    assert set(given) <= FLAGS
    assert (given["port"], given["rest_api_port"]) == ("8500", "8501")
    assert service["user"] == "65534:65534"
    mounted = {v["target"]: SERVING / v["source"] for v in service["volumes"]}
    for file in (Path(value) for value in given.values() if "/" in value):
        assert (mounted[str(file.parent)] / file.name).is_file(), file
    assert mounted["/models"].samefile(HOME / "export")
    for parallelism in ("intra", "inter"):  # the server would count the machine's
        assert given[f"tensorflow_{parallelism}_op_parallelism"] == str(service["cpus"])


def test_kserve_agrees_with_compose():
    given, composed = flags(KSERVE_MODEL["args"]), flags(SERVERS["serving"]["command"])
    assert set(given) <= FLAGS
    assert given.pop("model_name") == MODEL.name
    assert given.items() <= composed.items()
    (mount,) = (x for x in KSERVE_MODEL["volumeMounts"] if x["name"] == "config")
    assert mount["mountPath"] == str(Path(given["batching_parameters_file"]).parent)
    assert KSERVE_MODEL["resources"]["limits"]["cpu"] == str(SERVERS["serving"]["cpus"])


def test_the_image_matches_the_exporting_tensorflow():
    project = (HOME / "pyproject.toml").read_text("utf-8")
    minor = re.search(r'"tensorflow>=(\d+\.\d+),', project).group(1)
    cpu, gpu = (SERVERS[x]["image"].partition(":")[2] for x in SERVERS)
    assert cpu.startswith(f"{minor}.") and gpu == f"{cpu}-gpu"
    assert KSERVE_MODEL["runtimeVersion"] == cpu
    assert set(re.findall(r"tensorflow/serving:(\S+?)[`)]", README)) == {cpu}


def expressions():
    """What the dashboard and the alerts ask of Prometheus."""
    dashboard = json.loads((SERVING / "monitoring/dashboard.json").read_text("utf-8"))
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    (group,) = load_yaml("monitoring/alerts.yml")["groups"]
    yield from (rule["expr"] for rule in group["rules"])


def test_metrics_in_the_dashboard_and_the_alerts_exist():
    from tfxformer.server import metrics

    with metrics.request("pt_en", "predict", "REST"):
        pass
    metrics.RUNTIME.labels("pt_en", "predict", "TF").observe(1)
    metrics.BATCH_ROWS.labels("pt_en").observe(1)
    metrics.QUEUING.labels("pool").observe(1)
    metrics.LOADS.labels("/models/pt_en/1", "success").inc()
    page = metrics.page().decode()
    found = dict(re.findall(r"^(:[\w:]+)\{(.*)\} ", page, re.MULTILINE))
    for expression in expressions():
        for name, labels in re.findall(r"(:[\w:]+)(?:\{([^}]*)\})?", expression):
            assert name in found or name in SERVING_ALONE, name
            for label in re.findall(r"(\w+)\s*[=!]", labels):
                assert f'{label}="' in found.get(name, ""), (name, label)
            (kept,) = SCRAPE["metric_relabel_configs"]
            assert re.fullmatch(kept["regex"], name), f"{name} is dropped"
        assert ":tensorflow:" in expression or "up{" in expression


def test_the_proxy_passes_requests_to_the_server():
    text = (SERVING / "nginx.conf").read_text("utf-8")
    assert re.findall(r"server serving:(\d+);", text) == ["8501", "8500"]
    (port,) = re.findall(r"listen (\d+) ssl", text)
    assert SERVICES["proxy"]["ports"] == [f"{port}:{port}"]


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is missing")
def test_make_tls(tmp_path):
    def make_tls():
        environment = {"TLS_DIR": str(tmp_path), "PATH": "/usr/bin:/bin"}
        command = [SERVING / "make_tls.sh", "localhost"]
        return subprocess.check_output(command, env=environment, text=True)

    assert re.search(r"^password: \S+$", make_tls(), re.MULTILINE)
    config = parse(tmp_path / "ssl.config", message("SSLConfig"))
    assert config.server_key == (tmp_path / "server.key").read_text()
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    assert all(file.stat().st_mode & 0o077 == 0 for file in before)
    assert "password" not in make_tls()  # it keeps what is there
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_the_readme_names_files_that_exist():
    told = README + (SERVING / "compose.yaml").read_text("utf-8")
    for file in SERVING.rglob("*"):
        if file.is_file() and file.parent.name not in ("tls", "__pycache__"):
            assert file.name in told or file.name == "README.md", file
    for path in re.findall(r"(?<![\w/])(serving/[\w./]+)", README):
        if not path.startswith("serving/tls/"):  # what make_tls.sh makes
            assert (HOME / path.rstrip(".")).exists(), path
    profiles = {x for service in SERVICES.values() for x in service.get("profiles", ())}
    assert set(re.findall(r"--profile (\w+)", README)) == profiles
