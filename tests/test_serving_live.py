"""What serving/README.md tells people to run, run against the local server."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from local_server import LocalServer

SERVING = Path(__file__).parent.parent / "serving"
TEXTS = ["O gato preto bebeu o leite.", "Bom dia!"]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The local server, on serving's own models.config and the shipped model."""
    config = tmp_path_factory.mktemp("config") / "models.config"
    text = (SERVING / "config/models.config").read_text("utf-8")
    config.write_text(text.replace('"/models', f'"{SERVING.parent}/export'))
    with LocalServer("--config", config) as server:
        yield server
        server.stop()


@pytest.fixture(scope="module")
def translations():
    from tfxformer.translator import Translator

    answer = Translator.load(SERVING.parent / "export/pt_en/1").answers(
        "serving_default", {"text": TEXTS}
    )
    return [text.decode() for text in answer["translation"]]


def run(server, *command):
    """An example, with the server's address in place of the documented one."""
    command = [
        str(word)
        .replace("localhost:8501", server.url.removeprefix("http://"))
        .replace("localhost:8500", server.grpc)
        for word in command
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def examples(kind):
    text = (SERVING / "README.md").read_text("utf-8")
    return re.findall(rf"<!-- example: {kind} -->\n```\w+\n(.*?)```", text, re.DOTALL)


def test_curl(server, translations):
    rows, n_best, score = (
        json.loads(run(server, "bash", "-c", code).stdout) for code in examples("curl")
    )
    assert [row["translation"] for row in rows["predictions"]] == translations
    assert n_best["outputs"]["translations"][0][0]
    assert score["predictions"][0] < 0


def test_python(server, translations):
    (code,) = examples("python")
    found = run(server, sys.executable, "-c", code).stdout.splitlines()
    assert [line.rpartition(" ")[0] for line in found] == translations
    ended = run(server, sys.executable, "-c", code.replace("pt_en", "en_pt"))
    assert ended.returncode == 1 and ended.stderr.startswith("404: ")


@pytest.mark.parametrize("url", ["http://localhost:8501", "grpc://localhost:8500"])
def test_the_client(server, translations, url):
    client = [sys.executable, SERVING / "client.py", "--url", url]
    found = run(server, *client, *TEXTS * 20)  # more than a batch
    assert found.stdout.splitlines() == translations * 20, found.stderr
    refused = run(server, *client, "--model", "nope", "a")
    assert refused.returncode == 1 and "Servable not found" in refused.stderr


def test_the_health_check(server):
    compose = yaml.safe_load((SERVING / "compose.yaml").read_text("utf-8"))
    _, *command = compose["services"]["serving"]["healthcheck"]["test"]
    port = server.url.rpartition(":")[2]
    command[-1] = command[-1].replace("/8501", f"/{port}")
    assert run(server, *command).returncode == 0
    assert run(server, *command[:-1], command[-1].replace(port, "9")).returncode != 0
