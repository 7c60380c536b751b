"""The files in serving/: each against its schema, and all against one another."""

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from google.protobuf import empty_pb2, text_format
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

from tfxformer.server import ServerSettings, metrics

HOME = Path(__file__).parent.parent
SERVING = HOME / "serving"
# The flags of TensorFlow Serving that the files use, from its model_servers/main.cc.
FLAGS = """port rest_api_port rest_api_timeout_in_ms model_config_file model_name
    model_config_file_poll_wait_seconds allow_version_labels_for_unavailable_models
    file_system_poll_wait_seconds num_load_threads enable_batching ssl_config_file
    batching_parameters_file monitoring_config_file tensorflow_intra_op_parallelism
    tensorflow_inter_op_parallelism enable_profiler"""
# Metrics that TensorFlow Serving has and the local server lacks.
SERVING_ALONE = {
    ":tensorflow:serving:batching_session:wrapped_run_count",
    ":tensorflow:serving:model_warmup_latency_sum",
    ":tensorflow:serving:model_warmup_latency_count",
}


def read(name):
    return (SERVING / name).read_text("utf-8")


def load_yaml(name):
    """A YAML file, with the defaults of its variables."""
    return yaml.safe_load(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", read(name)))


def flags(arguments):
    return dict(argument.removeprefix("--").split("=", 1) for argument in arguments)


COMPOSE = load_yaml("compose.yaml")
SERVERS = [x for key, x in COMPOSE["services"].items() if key.startswith("serving")]
KSERVE = load_yaml("kserve.yaml")
PREDICTOR = KSERVE["spec"]["predictor"]


def test_compose_is_a_compose_file():
    check_jsonschema = pytest.importorskip("check_jsonschema")
    jsonschema = pytest.importorskip("jsonschema")
    folder = Path(check_jsonschema.__file__).parent / "builtin_schemas" / "vendor"
    schema = json.loads((folder / "compose-spec.json").read_text("utf-8"))
    jsonschema.validate(COMPOSE, schema)


def test_text_protos():
    config = text_format.Parse(read("config/models.config"), ModelServerConfig())
    (model,) = config.model_config_list.config
    assert model.model_platform == "tensorflow"
    assert model.base_path == f"/models/{model.name}"
    assert (HOME / "export" / model.name / "1").is_dir()
    assert flags(PREDICTOR["model"]["args"])["model_name"] == model.name
    # A label can go back to the version before.
    assert model.model_version_policy.latest.num_versions >= 2
    for text in (read("README.md"), read("compose.yaml")):
        assert set(re.findall(r"/v1/models/(\w+)", text)) == {model.name}
    # tensorflow-serving-api lacks the messages of these: their syntax alone.
    for name in ("batching", "monitoring"):
        text = read(f"config/{name}.config")
        text_format.Parse(text, empty_pb2.Empty(), allow_unknown_field=True)


def test_numbers_agree():
    found = re.findall(r"^(\w+) { value: (\d+) }", read("config/batching.config"), re.M)
    local = ServerSettings()
    assert {name: int(value) for name, value in found} == {
        "max_batch_size": local.max_batch,
        "batch_timeout_micros": 1000 * local.batch_wait,
        "max_enqueued_batches": local.max_waiting // local.max_batch,
        "num_batch_threads": SERVERS[0]["cpus"],
    }
    (batch,) = re.findall(r"^BATCH = (\d+)", read("client.py"), re.M)
    assert local.max_batch >= max(int(batch), PREDICTOR["scaleTarget"])
    annotations = KSERVE["metadata"]["annotations"]
    assert annotations["prometheus.kserve.io/path"] == metrics.PATH
    (scrape,) = load_yaml("monitoring/prometheus.yml")["scrape_configs"]
    assert scrape["metrics_path"] == metrics.PATH
    assert f'path: "{metrics.PATH}"' in read("config/monitoring.config")
    ports = re.findall(r"server serving:(\d+);", read("nginx.conf"))
    assert ports == ["8501", "8500"]


def test_the_servers_flags_and_image():
    project = (HOME / "pyproject.toml").read_text("utf-8")
    minor = re.search(r'"tensorflow>=(\d+\.\d+),', project)[1]
    kserve = flags(PREDICTOR["model"]["args"])
    for server in SERVERS:
        given = flags(server["command"])
        assert {*given, *kserve} <= {*FLAGS.split()}
        assert (given["port"], given["rest_api_port"]) == ("8500", "8501")
        assert given["tensorflow_intra_op_parallelism"] == str(server["cpus"])
        mounted = {x["target"]: SERVING / x["source"] for x in server["volumes"]}
        for file in (Path(value) for value in given.values() if "/" in value):
            assert (mounted[str(file.parent)] / file.name).is_file(), file
        assert mounted["/models"].samefile(HOME / "export")
        assert server["image"].startswith(f"tensorflow/serving:{minor}.")
        assert kserve.items() <= {**given, "model_name": kserve["model_name"]}.items()
    version = PREDICTOR["model"]["runtimeVersion"]
    assert SERVERS[0]["image"] == f"tensorflow/serving:{version}"


def test_containers_may_do_little():
    for name, service in COMPOSE["services"].items():
        assert service["read_only"] is True and service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["cpus"] and service["mem_limit"] and service["pids_limit"]
        for port in service["ports"]:
            assert name == "proxy" or port.startswith("127.0.0.1:"), port
        for volume in service["volumes"]:
            if volume["type"] == "bind":
                assert volume["read_only"] and (SERVING / volume["source"]).exists()


def test_metrics_in_the_dashboard_and_the_alerts_exist():
    with metrics.request("pt_en", ["pt_en"], "predict", "REST"):
        pass
    metrics.RUNTIME.labels("pt_en", "predict", "TF").observe(1)
    metrics.BATCH_ROWS.labels("pt_en").observe(1)
    metrics.QUEUING.labels("pool").observe(1)
    metrics.LOADS.labels("/models/pt_en/1", "success").inc()
    found = dict(re.findall(r"^(:[\w:]+)\{(.*)\} ", metrics.page().decode(), re.M))
    panels = json.loads(read("monitoring/dashboard.json"))["panels"]
    (group,) = load_yaml("monitoring/alerts.yml")["groups"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    for expression in expressions + [rule["expr"] for rule in group["rules"]]:
        for name, labels in re.findall(r"(:[\w:]+)(?:\{([^}]*)\})?", expression):
            assert name in found or name in SERVING_ALONE, name
            for label in re.findall(r"(\w+)\s*[=!]", labels):
                assert f'{label}="' in found.get(name, ""), (name, label)


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is missing")
def test_make_tls(tmp_path):
    command = [SERVING / "make_tls.sh", "localhost"]
    environment = {"TLS_DIR": str(tmp_path), "PATH": "/usr/bin:/bin"}
    said = subprocess.check_output(command, env=environment, text=True)
    assert re.search(r"^password: \S+$", said, re.MULTILINE)
    text = (tmp_path / "ssl.config").read_text()
    text_format.Parse(text, empty_pb2.Empty(), allow_unknown_field=True)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    assert all(file.stat().st_mode & 0o077 == 0 for file in before)
    subprocess.check_output(command, env=environment)  # it keeps what is there
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_the_readme_names_files_and_measurements_that_exist():
    for path in re.findall(r"(?<![\w/])(serving/[\w./]+)", read("README.md")):
        if not path.startswith("serving/tls/"):  # what make_tls.sh makes
            assert (HOME / path.rstrip(".")).exists(), path
    path = HOME / "benchmarks/serving_batches.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    measured = json.loads(path.with_suffix(".json").read_text())
    assert benchmark.table(measured["results"]) in read("README.md")
