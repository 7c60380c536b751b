"""The examples of the README and of the first steps run as printed, in their order."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"(<!-- [^\n]+ -->\n)?```(bash|console|python)\n(.*?)```", re.DOTALL)
# What a server prints when it can be called.
READY = {"serve": "ready: ", "demo": "http://"}
# `.ci/run` installs, and runs the two commands with a marker.
INSTALLS = ("git clone ", "python3 -m venv ", "pip install ")


def examples(page):
    """The commands of a page with the output that it shows, and Python code."""
    for marker, language, text in BLOCK.findall((ROOT / page).read_text("utf-8")):
        if marker or "sphinx-build" in text:
            continue
        if language == "python":
            yield shlex.join([sys.executable, "-c", text]), ""
        elif language == "console":
            yield from re.findall(r"^\$ (.+)\n((?:[^$].*\n)*)", text, re.MULTILINE)
        else:
            commands = text.replace("\\\n", "").splitlines()
            yield from ((x, "") for x in commands if not x.startswith(INSTALLS))


def start(command, log):
    """Starts a server, and waits until it can be called."""
    ready = READY[command.split()[1]]
    with open(log, "wb") as out:
        server = subprocess.Popen(
            ["bash", "-c", f"exec {command}"], stdout=out, stderr=out
        )
    for _ in range(240):
        if ready in log.read_text("utf-8") or server.poll() is not None:
            break
        time.sleep(0.5)
    assert ready in log.read_text("utf-8")
    return server


def stop(server):
    if server:
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 130


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "commands", "made"),
    [
        ("README.md", 10, "english.txt"),
        ("docs/first_steps.md", 5, "models/first/1/saved_model.pb"),
    ],
)
def test_a_page_runs_from_top_to_bottom(page, commands, made, tmp_path, monkeypatch):
    for extra in ("matplotlib", "uvicorn"):
        pytest.importorskip(extra, reason="pip install '.[serve,plots]'")
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    server, ran = None, 0
    try:
        for command, expected in examples(page):
            if command.split()[1] in READY and "--to" not in command:
                stop(server)
                server = start(command.partition("#")[0], tmp_path / "server.log")
                continue
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", command],
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, f"{command}\n{done.stderr}"
            if command.startswith("curl"):
                answer = json.loads(done.stdout)["predictions"][0]["translation"]
                assert not expected or f'"{answer}"' in expected
            else:
                assert expected in ("", done.stdout), command
            ran += 1
    finally:
        stop(server)
    assert ran >= commands and Path(made).exists()
    if page == "README.md":
        assert Path(made).read_text("utf-8").count("\n") == 50
