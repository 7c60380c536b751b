"""What all commands share: the help, `-q`, and how a command ends that is cut off."""

import os
import re
import subprocess
import sys

import pytest
import typer

from tfxformer.cli import app

COMMAND = f"{sys.executable} -m tfxformer.cli"


def shell(line, **environment):
    """A line of bash: what it answers, what it says, how it ends."""
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | environment,
    )
    return done.stdout, done.stderr, done.returncode


def all_commands(group=None):
    for command in (group or typer.main.get_command(app)).commands.values():
        if hasattr(command, "commands"):
            yield from all_commands(command)
        else:
            yield command


# --- Help ---------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["", "plot"])
def test_summaries_are_shown_in_full(part):
    out, err, code = shell(f"{COMMAND} {part} --help", COLUMNS="80")
    assert (err, code) == ("", 0)
    assert (
        max(map(len, out.splitlines())) <= 80 and "..." not in out.split("\n\n", 2)[2]
    )
    text = " ".join(out.split())
    group = typer.main.get_command(app)
    for name, command in (group.commands[part] if part else group).commands.items():
        assert f" {name} {' '.join(command.help.split(chr(10) * 2)[0].split())}" in text


def test_commands_are_in_groups():
    out, _, _ = shell(f"{COMMAND} --help")
    groups = re.findall(r"^(\w+):\n((?:  .*\n)+)", out, re.MULTILINE)
    found = {name: re.findall(r"^  (\w+)", rows, re.MULTILINE) for name, rows in groups}
    assert [*found] == ["Options", "Start", "Train", "Translate", "Serve", "Look"]
    assert found["Start"] == ["quickstart"] and found["Look"] == ["demo", "plot"]
    assert {"train", "evaluate"} <= {*found["Train"]}
    assert found["Translate"] == ["translate", "score", "bulk"]
    assert found["Serve"] == ["export", "serve", "verify"]


def test_types_are_words():
    words = set()
    for command in all_commands():
        context = typer.Context(command)
        for parameter in command.params:
            name, _ = parameter.get_help_record(context) or ("", "")
            words |= {*re.findall("<(.*?)>", name)}
    assert words == {"text", "texts", "path", "paths", "number"}


# --- Quiet --------------------------------------------------------------------------


def test_every_command_can_be_quiet():
    for command in all_commands():
        assert any("-q" in parameter.opts for parameter in command.params), command.name


@pytest.mark.parametrize(
    "args", [["-q", "score"], ["score", "-q"], ["score", "--quiet"], ["score"]]
)
def test_quiet_stands_before_or_after_the_command(command, tmp_path, args):
    (tmp_path / "in.tsv").touch()
    _, err, code = command(*args, "--run", tmp_path / "no", "-i", tmp_path / "in.tsv")
    assert code == 1 and err.endswith("there is no such run folder\n")
    assert err.startswith("model: ") == (args == ["score"])


# --- Streams and signals ------------------------------------------------------------

# A program of one command more, which needs no model.
SPEAK = (
    f"{sys.executable} -c '"
    "import os, signal, sys\n"
    "from tfxformer import cli\n"
    "@cli.app.command()\n"
    "def speak():\n"
    '    print("a line\\n" * 100_000)\n'
    "@cli.app.command()\n"
    "def whisper():\n"
    '    print("a line")\n'
    "@cli.app.command()\n"
    "def stop():\n"
    "    os.kill(os.getpid(), signal.SIGINT)\n"
    "cli.main()'"
)


@pytest.mark.parametrize("buffered", ["", "1"])
@pytest.mark.parametrize("name", ["speak", "whisper", "--version", "--help"])
def test_a_full_disk_is_one_line(name, buffered):
    found = shell(f"{SPEAK} {name} > /dev/full", PYTHONUNBUFFERED=buffered)
    line = "tfxformer: error: standard output: No space left on device\n"
    assert found == ("", line, 1)


@pytest.mark.parametrize("buffered", ["", "1"])
def test_a_pipe_that_is_closed_early_is_no_failure(buffered):
    found = shell(f"{SPEAK} speak | head -1", PYTHONUNBUFFERED=buffered)
    assert found == ("a line\n", "", 0)


def test_ctrl_c_is_one_line():
    assert shell(f"{SPEAK} stop") == ("", "tfxformer: interrupted\n", 130)


@pytest.mark.parametrize("name", ["translate", "score"])
def test_closed_streams_are_one_line(name):
    out, err, code = shell(f"{COMMAND} {name} <&-")
    assert (out, code) == ("", 1) and len(err.splitlines()) == 1
    assert "standard input is closed" in err
    out, err, code = shell(f"{COMMAND} {name} >&-")
    assert (out, code) == ("", 1) and len(err.splitlines()) == 1
    assert "standard output is closed" in err


@pytest.mark.slow
def test_translations_meet_a_full_disk_and_a_closed_pipe(run_folder, tmp_path):
    (tmp_path / "long.txt").write_text("Bom dia.\n" * 3000)
    line = f"{COMMAND} -q translate --run {run_folder} -i {tmp_path}/long.txt"
    out, err, code = shell(f"{line} | head -1")
    assert len(out.splitlines()) == 1 and (err, code) == ("", 0)
    _, err, code = shell(f"{line} > /dev/full")
    assert code == 1 and err.endswith("standard output: No space left on device\n")
    assert len(err.splitlines()) == 1
