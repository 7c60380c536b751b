"""Versions appear whole, and never one over another."""

from pathlib import Path

import pytest

from tfxformer.errors import UserError
from tfxformer.exporting import repository


def write(part):
    part.mkdir()
    (part / "file").touch()
    return "written"


def test_versions_count_up(tmp_path):
    for number in ("1", "2"):
        path, written = repository.next_version(tmp_path, "model", write)
        assert (path, written) == (tmp_path / "model" / number, "written")
        assert (path / "file").exists()


def test_what_fails_leaves_nothing(tmp_path):
    def fail(part):
        write(part)
        raise UserError("it would not serve")

    with pytest.raises(UserError, match="would not serve"):
        repository.next_version(tmp_path, "model", fail)
    assert list((tmp_path / "model").iterdir()) == []


def test_two_exports_at_once_take_two_numbers(tmp_path, monkeypatch):
    real, paths = Path.rename, []

    def race(part, path):
        # Another export is faster, once.
        if not paths:
            paths.append(path)
            write(path)
        return real(part, path)

    monkeypatch.setattr(Path, "rename", race)
    path, _ = repository.next_version(tmp_path, "model", write)
    folder = tmp_path / "model"
    assert paths == [folder / "1"] and path == folder / "2"


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "a b", "\u00e9"])
def test_names_that_are_no_folder_are_refused(tmp_path, name):
    with pytest.raises(UserError, match="model name"):
        repository.next_version(tmp_path, name, write)


def test_a_repository_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="file"):
        repository.next_version(tmp_path / "file", "model", write)


def test_the_shipped_model_is_the_newest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "lib" / "installed" / "exporting" / "repository.py"
    monkeypatch.setattr(repository, "__file__", str(file))
    with pytest.raises(UserError, match=r"no model came.*--model"):
        repository.shipped_model()
    # A checkout that it is imported from, what is installed, the working folder.
    for place in ("lib/export", "lib/installed/export", "export"):
        for version in ("9", "10", "11", "notes"):
            folder = tmp_path / place / "pt_en" / version
            folder.mkdir(parents=True)
            if version != "11":  # which is not whole
                (folder / "saved_model.pb").touch()
        expected = tmp_path / place / "pt_en" / "10"
        assert repository.shipped_model().resolve() == expected


def test_damaged_records_are_named(tmp_path):
    assert repository.read_records(tmp_path / "warm-up") == []
    (tmp_path / "warm-up").write_bytes(b"nonsense" * 9)
    with pytest.raises(UserError, match="warm-up: damaged: "):
        repository.read_records(tmp_path / "warm-up")
