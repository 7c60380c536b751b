"""Serves the shipped model: the pages' examples, and new versions under load."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from local_server import wait_for
from serving_load import command, load, right_answers

from tfxformer.repository import shipped_model

SERVING = Path(__file__).parent.parent / "serving"
TEXTS = ["O gato preto bebeu o leite.", "Bom dia!"]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder of versions, served with the models.config of serving/."""
    folder = tmp_path_factory.mktemp("models")
    shutil.copytree(shipped_model(), folder / "pt_en" / "1")
    text = (SERVING / "config/models.config").read_text("utf-8")
    config = folder / "models.config"
    config.write_text(text.replace('"/models', f'"{folder}'))
    with command("--config", config) as server:
        yield folder / "pt_en", server


def examples(kind):
    text = (SERVING / "README.md").read_text("utf-8")
    return re.findall(rf"<!-- example: {kind} -->\n```\w+\n(.*?)```", text, re.DOTALL)


def test_the_serving_examples_client_and_health_check_work_on_a_live_server(models):
    rest, grpc = models[1].url.removeprefix("http://"), models[1].grpc
    places = {"localhost:8500": grpc, "localhost:8501": rest}
    places["127.0.0.1/8501"] = rest.replace(":", "/")

    def run(*words):
        words = [str(word) for word in words]
        for place, found in places.items():
            words = [word.replace(place, found) for word in words]
        return subprocess.run(words, capture_output=True, text=True, timeout=60)

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
    compose = yaml.safe_load((SERVING / "compose.yaml").read_text("utf-8"))
    _, *command = compose["services"]["serving"]["healthcheck"]["test"]
    assert run(*command).returncode == 0
    assert run(*(word.replace("pt_en", "nope") for word in command)).returncode != 0


def test_a_new_or_broken_version_under_load_fails_no_request(models):
    folder, server = models
    answers = right_answers(100)

    def more():
        until = len(seen.seconds) + 100
        wait_for(lambda: len(seen.seconds) >= until, 120)
        assert not seen.errors and not seen.wrong

    with load(server, answers, clients=16) as seen:
        more()
        shutil.copytree(folder / "1", folder / ".part")
        shutil.rmtree(folder / ".part" / "variables")
        (folder / ".part").rename(folder / "2")
        wait_for(lambda: server.state().get(2, ("",))[0] == "END")
        more()
        assert server.state()[2][1] and server.state()[1] == ("AVAILABLE", "")
        shutil.copytree(folder / "1", folder / ".part")
        (folder / ".part").rename(folder / "3")
        wait_for(lambda: server.state().get(3) == ("AVAILABLE", ""))
        more()
    assert not seen.errors and not seen.wrong and seen.versions == {1, 3}
    assert "pt_en version 2: cannot be loaded" in server.stop()
