"""The shipped model served by the command: examples, new versions, load, the end."""

import json
import re
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from local_server import Command, wait_for
from serving_load import Load, right_answers

from tfxformer.exporting.repository import shipped_model

SERVING = Path(__file__).parent.parent / "serving"
TEXTS = ["O gato preto bebeu o leite.", "Bom dia!"]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder of versions, and `tfxformer serve` on serving's own models.config."""
    folder = tmp_path_factory.mktemp("models")
    shutil.copytree(shipped_model(), folder / "pt_en" / "1")
    text = (SERVING / "config/models.config").read_text("utf-8")
    config = folder / "models.config"
    config.write_text(text.replace('"/models', f'"{folder}'))
    with Command("--config", config) as command:
        yield folder / "pt_en", command


@pytest.fixture(scope="module")
def answers():
    return right_answers(100)


@pytest.fixture
def run(models):
    """Runs a command of serving/README.md with the server's addresses."""
    server = models[1].server
    host, port = server.url.removeprefix("http://").split(":")
    places = {"localhost:8500": server.grpc, "localhost:8501": f"{host}:{port}"}
    places["127.0.0.1/8501"] = f"{host}/{port}"

    def run(*words):
        words = [str(word) for word in words]
        for place, found in places.items():
            words = [word.replace(place, found) for word in words]
        return subprocess.run(words, capture_output=True, text=True, timeout=60)

    return run


def examples(kind):
    text = (SERVING / "README.md").read_text("utf-8")
    return re.findall(rf"<!-- example: {kind} -->\n```\w+\n(.*?)```", text, re.DOTALL)


def test_the_examples_and_the_client(run):
    translations = [*right_answers(texts=TEXTS).values()]
    found = [json.loads(run("bash", "-c", code).stdout) for code in examples("curl")]
    rows, n_best, score = found
    assert [row["translation"] for row in rows["predictions"]] == translations
    assert n_best["outputs"]["translations"][0][0] and score["predictions"][0] < 0
    (code,) = examples("python")
    found = run(sys.executable, "-c", code).stdout.splitlines()
    assert [line.rpartition(" ")[0] for line in found] == translations
    for url in ("http://localhost:8501", "grpc://localhost:8500"):
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


def test_versions_under_load_fail_no_request(models, answers):
    folder, command = models
    server = command.server
    with Load(server, answers, clients=16) as load:
        load.wait(requests=100)
        shutil.copytree(folder / "1", folder / ".part")
        shutil.rmtree(folder / ".part" / "variables")
        (folder / ".part").rename(folder / "2")
        wait_for(lambda: server.state().get(2, ("",))[0] == "END")
        load.wait(requests=100)
        assert server.state()[2][1] and server.state()[1] == ("AVAILABLE", "")
        shutil.copytree(folder / "1", folder / ".part")
        (folder / ".part").rename(folder / "3")
        wait_for(lambda: server.state().get(3) == ("AVAILABLE", ""))
        load.wait(requests=100)
    assert not load.errors and not load.wrong
    assert load.versions == {1, 3}
    assert "pt_en version 2: cannot be loaded" in command.stop(signal.SIGTERM, 0)


def test_ctrl_c_loses_no_request_that_has_come(answers):
    body = {"instances": [*answers] * 3}
    with Command() as command, ThreadPoolExecutor(4) as pool:
        server = command.server
        asked = [pool.submit(server.ask, "/v1/models/pt_en:predict", body)] * 4
        wait_for(lambda: server.metric("tfxformer_waiting_rows") > 0)
        command.stop(signal.SIGINT, 130)
        for status, found in (each.result() for each in asked):
            texts = [row["translation"] for row in found["predictions"]]
            assert status == 200 and texts == [*answers.values()] * 3
