"""What serving/README.md tells people to run, run against the local server."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from local_server import Command
from serving_load import right_answers

SERVING = Path(__file__).parent.parent / "serving"
TEXTS = ["O gato preto bebeu o leite.", "Bom dia!"]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs a command with the addresses of a server on serving's own models.config."""
    config = tmp_path_factory.mktemp("config") / "models.config"
    text = (SERVING / "config/models.config").read_text("utf-8")
    config.write_text(text.replace('"/models', f'"{SERVING.parent}/export'))

    def run(*words):
        host, port = server.url.removeprefix("http://").split(":")
        words = [str(word).replace("localhost:8500", server.grpc) for word in words]
        words = [word.replace("localhost:8501", f"{host}:{port}") for word in words]
        words = [word.replace("127.0.0.1/8501", f"{host}/{port}") for word in words]
        return subprocess.run(words, capture_output=True, text=True, timeout=60)

    with Command("--config", config) as command:
        server = command.server
        yield run
        command.stop()


@pytest.fixture(scope="module")
def translations():
    return [*right_answers(texts=TEXTS).values()]


def examples(kind):
    text = (SERVING / "README.md").read_text("utf-8")
    return re.findall(rf"<!-- example: {kind} -->\n```\w+\n(.*?)```", text, re.DOTALL)


def test_the_examples(run, translations):
    rows, n_best, score = (
        json.loads(run("bash", "-c", code).stdout) for code in examples("curl")
    )
    assert [row["translation"] for row in rows["predictions"]] == translations
    assert n_best["outputs"]["translations"][0][0] and score["predictions"][0] < 0
    (code,) = examples("python")
    found = run(sys.executable, "-c", code).stdout.splitlines()
    assert [line.rpartition(" ")[0] for line in found] == translations


@pytest.mark.parametrize("url", ["http://localhost:8501", "grpc://localhost:8500"])
def test_the_client(run, translations, url):
    client = [sys.executable, SERVING / "client.py", "--url", url]
    found = run(*client, *TEXTS * 20)  # more than a batch
    assert found.stdout.splitlines() == translations * 20, found.stderr
    refused = run(*client, "--model", "nope", "a")
    assert refused.returncode == 1 and "Servable not found" in refused.stderr


def test_the_health_check(run):
    compose = yaml.safe_load((SERVING / "compose.yaml").read_text("utf-8"))
    _, *command = compose["services"]["serving"]["healthcheck"]["test"]
    assert run(*command).returncode == 0
    assert run(*(word.replace("pt_en", "nope") for word in command)).returncode != 0
