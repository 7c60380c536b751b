"""Commands write complete files or none, follow links, and never overwrite input."""

import os
from pathlib import Path

import pytest

from tfxformer.errors import UserError, write_file


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    """A working folder with a test set and the output of an earlier evaluation."""
    monkeypatch.chdir(tmp_path)
    for name, text in (("t.tsv", "um\tone\n"), ("t.pt", "um\n"), ("t.en", "one\n")):
        Path(name).write_text(text, "utf-8")
    Path("prev.txt").write_text("hours of work\n", "utf-8")


def test_write_file_replaces_a_whole_file_or_leaves_it_unchanged(monkeypatch):
    write_file("prev.txt", b"new")
    assert Path("prev.txt").read_bytes() == b"new"

    def full(self, data):
        with open(self, "wb") as file:
            file.write(data[:1])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UserError, match=r"^prev\.txt: No space left on device$"):
        write_file("prev.txt", b"newer")
    assert Path("prev.txt").read_bytes() == b"new"
    assert not [name for name in os.listdir() if name.startswith(".")]


@pytest.mark.parametrize("target", ["../prev.txt", "../not-there-yet.txt"])
def test_write_file_keeps_a_link_and_replaces_its_target(target):
    os.mkdir("folder")
    link = Path("folder/link")
    link.symlink_to(target)
    write_file(link, b"new")
    assert os.readlink(link) == target and link.read_bytes() == b"new"
    assert os.listdir("folder") == ["link"]


def test_write_file_writes_to_a_device_without_replacing_it():
    with pytest.raises(UserError, match=r"^/dev/full: No space left on device$"):
        write_file("/dev/full", b"new")
    assert Path("/dev/full").is_char_device()


@pytest.mark.parametrize(
    ("source", "output", "wrong"),
    [
        ("t.tsv", "t.tsv", "is also an input; name another file"),
        ("t.tsv", "link", "is also an input; name another file"),
        ("t.pt,t.en", "t.en", "is also an input; name another file"),
        ("t.tsv", ".", "is a folder; name a file"),
        ("t.tsv", "no/o.txt", "cannot be written; is there a folder "),
    ],
)
def test_evaluate_refuses_an_output_that_is_an_input_or_not_writable(
    command, source, output, wrong
):
    os.symlink("t.tsv", "link")
    args = ["--data", "phrasebook", "--data", source, "--output", output]
    _, err, code = command("evaluate", "--run", "m", *args)
    assert code == 1 and len(err.splitlines()) == 1
    assert err.startswith(f"tfxformer: error: --output {output}: {wrong}")


@pytest.mark.parametrize("data", ["t.tsv", "nope.tsv"], ids=["no model", "no data"])
def test_evaluate_without_a_model_or_data_keeps_the_earlier_output(command, data):
    args = ["--run", "nope", "--data", data, "--output", "prev.txt"]
    _, err, code = command("evaluate", *args)
    assert code == 1 and "nope" in err.splitlines()[-1]
    assert Path("prev.txt").read_text() == "hours of work\n"
