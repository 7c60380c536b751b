"""The files in serving/ match their schemas and each other."""

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


COMPOSE = load_yaml("compose.yaml")
SERVERS = [x for key, x in COMPOSE["services"].items() if key.startswith("serving")]
KSERVE = load_yaml("kserve.yaml")["spec"]["predictor"]["model"]


def test_compose_yaml_matches_the_schema_of_compose_files():
    check_jsonschema = pytest.importorskip("check_jsonschema")
    jsonschema = pytest.importorskip("jsonschema")
    folder = Path(check_jsonschema.__file__).parent / "builtin_schemas" / "vendor"
    schema = json.loads((folder / "compose-spec.json").read_text("utf-8"))
    jsonschema.validate(COMPOSE, schema)


def test_serving_configs_parse_and_name_the_shipped_model():
    config = text_format.Parse(read("config/models.config"), ModelServerConfig())
    (model,) = config.model_config_list.config
    assert model.base_path == f"/models/{model.name}"
    assert (HOME / "export" / model.name / "1").is_dir()
    assert f"--model_name={model.name}" in KSERVE["args"]
    for text in (read("README.md"), read("compose.yaml")):
        assert set(re.findall(r"/v1/models/(\w+)", text)) == {model.name}
    check_syntax(SERVING / "config/batching.config")
    check_syntax(SERVING / "config/monitoring.config")


def check_syntax(file):
    """Parses a text proto whose message is not in tensorflow-serving-api."""
    text_format.Parse(file.read_text(), empty_pb2.Empty(), allow_unknown_field=True)


def test_serving_files_agree_on_numbers_versions_and_paths():
    found = re.findall(r"^(\w+) { value: (\d+) }", read("config/batching.config"), re.M)
    local = ServerSettings()
    assert {name: int(value) for name, value in found} == {
        "max_batch_size": local.max_batch,
        "batch_timeout_micros": 1000 * local.batch_wait,
        "max_enqueued_batches": local.max_waiting // local.max_batch,
        "num_batch_threads": SERVERS[0]["cpus"],
    }
    for name in ("prometheus.yml", "../config/monitoring.config", "../kserve.yaml"):
        assert metrics.PATH in read(f"monitoring/{name}")
    project = (HOME / "pyproject.toml").read_text("utf-8")
    minor = re.search(r'"tensorflow>=(\d+\.\d+),', project)[1]
    assert KSERVE["runtimeVersion"].startswith(f"{minor}.")
    for server in SERVERS:
        assert server["image"].startswith(f"tensorflow/serving:{minor}.")
        mounted = {x["target"]: SERVING / x["source"] for x in server["volumes"]}
        files = re.findall(r"=(/\S+)/(\S+)", "\n".join(server["command"]))
        assert files and all((mounted[x] / name).is_file() for x, name in files)
        assert mounted["/models"].samefile(HOME / "export")


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
def test_make_tls_writes_private_files_and_keeps_existing_ones(tmp_path):
    command = [SERVING / "make_tls.sh", "localhost"]
    environment = {"TLS_DIR": str(tmp_path), "PATH": "/usr/bin:/bin"}
    said = subprocess.check_output(command, env=environment, text=True)
    assert re.search(r"^password: \S+$", said, re.MULTILINE)
    check_syntax(tmp_path / "ssl.config")
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    assert all(file.stat().st_mode & 0o077 == 0 for file in before)
    subprocess.check_output(command, env=environment)  # it keeps existing files
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before
