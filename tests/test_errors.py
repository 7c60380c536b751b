"""What commands write: whole or not there, through links, into FIFOs, over no input."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tfxformer.errors import UserError, write_file


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    """A working folder with a test set, and what an earlier evaluation wrote."""
    monkeypatch.chdir(tmp_path)
    Path("t.tsv").write_text("um\tone\ndois\ttwo\n", encoding="utf-8")
    Path("t.pt").write_text("um\ndois\n", encoding="utf-8")
    Path("t.en").write_text("one\ntwo\n", encoding="utf-8")
    Path("prev.txt").write_text("hours of work\n", encoding="utf-8")


def test_a_file_is_replaced_or_left_as_it_was(monkeypatch):
    os.chmod("prev.txt", 0o640)
    write_file("prev.txt", b"new")
    assert Path("prev.txt").read_bytes() == b"new"
    assert os.stat("prev.txt").st_mode & 0o777 == 0o640

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
def test_a_link_stays_and_its_target_is_replaced(target):
    os.mkdir("folder")
    link = Path("folder/link")
    link.symlink_to(target)
    write_file(link, b"new")
    assert os.readlink(link) == target and link.read_bytes() == b"new"
    assert os.listdir("folder") == ["link"]


def test_a_fifo_and_a_device_are_written_to():
    os.mkfifo("fifo")
    found = []
    reader = threading.Thread(target=lambda: found.append(Path("fifo").read_bytes()))
    reader.start()
    write_file("fifo", b"new")
    reader.join()
    assert found == [b"new"] and Path("fifo").is_fifo()
    with pytest.raises(UserError, match=r"^/dev/full: No space left on device$"):
        write_file("/dev/full", b"new")
    assert Path("/dev/full").is_char_device()


def test_standard_output_is_not_replaced_where_it_is_a_file():
    code = "from tfxformer.errors import write_file\n"
    code += "print(1)\nwrite_file('/dev/stdout', b'2\\n')\nprint(3)"
    with open("out.txt", "w") as file:
        subprocess.run([sys.executable, "-c", code], stdout=file, check=True)
    assert Path("out.txt").read_text() == "1\n2\n3\n"


@pytest.mark.parametrize("data", ["t.tsv", "nope.tsv"], ids=["no model", "no data"])
def test_an_evaluation_that_cannot_be_loses_nothing(command, data):
    args = ["--run", "nope", "--data", data, "--output", "prev.txt"]
    _, err, code = command("evaluate", *args)
    assert code == 1 and "nope" in err.splitlines()[-1]
    assert Path("prev.txt").read_text() == "hours of work\n"


@pytest.mark.parametrize(
    ("source", "output"),
    [("t.tsv", "t.tsv"), ("t.tsv", "soft"), ("t.tsv", "hard"), ("t.pt,t.en", "t.en")],
)
def test_an_output_that_is_an_input_is_refused(command, source, output):
    os.symlink("t.tsv", "soft")
    os.link("t.tsv", "hard")
    before = Path(output).read_bytes()
    args = ["--data", "phrasebook", "--data", source, "--output", output]
    _, err, code = command("evaluate", "--run", "m", *args)
    assert code == 1 and err.splitlines() == [
        f"tfxformer: error: --output {output}: is an input, too; name another file"
    ]
    assert Path(output).read_bytes() == before
