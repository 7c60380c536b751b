"""Versions appear complete, never replace another, and errors name damaged files."""

import json
import shutil
from pathlib import Path

import pytest

from tfxformer import repository
from tfxformer.errors import UserError


def write(part):
    part.mkdir()
    (part / "file").touch()
    return "written"


def test_two_exports_at_once_take_two_numbers(tmp_path, monkeypatch):
    real, paths = Path.rename, []

    def race(part, path):
        # Another export takes the number first, once.
        if not paths:
            paths.append(path)
            write(path)
        return real(part, path)

    monkeypatch.setattr(Path, "rename", race)
    path, _ = repository.next_version(tmp_path, "model", write)
    folder = tmp_path / "model"
    assert paths == [folder / "1"] and path == folder / "2"


@pytest.mark.parametrize("name", ["", "a/b", "..", "a b", "\u00e9"])
def test_a_model_name_that_is_not_a_plain_folder_name_is_refused(tmp_path, name):
    with pytest.raises(UserError, match="model name"):
        repository.next_version(tmp_path, name, write)


def test_shipped_model_returns_the_newest_complete_version(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "lib" / "installed" / "repository.py"
    monkeypatch.setattr(repository, "__file__", str(file))
    with pytest.raises(UserError, match=r"no model found.*--model"):
        repository.shipped_model()
    # The checkout, then the installed package; never the working folder.
    for place, newest in (
        ("export", None),
        ("lib/export", "lib/export"),
        ("lib/installed/export", "lib/installed/export"),
    ):
        for version in ("9", "010", "11", "notes"):
            folder = tmp_path / place / "pt_en" / version
            folder.mkdir(parents=True)
            if version != "11":  # 11 is incomplete
                (folder / "saved_model.pb").touch()
        if newest:
            expected = tmp_path / newest / "pt_en" / "010"
            assert repository.shipped_model().resolve() == expected


# --- Folders that cannot be opened ---


@pytest.fixture
def copy(exported, tmp_path):
    return shutil.copytree(exported, tmp_path / "7")


def test_a_foreign_saved_model_is_refused(copy):
    (copy / repository.METADATA_FILE).unlink()
    with pytest.raises(UserError, match="tfxformer did not export"):
        repository.read_export(copy)


@pytest.mark.parametrize(
    "file", ["saved_model.pb", "variables/variables.index", "variables/variables.data"]
)
@pytest.mark.parametrize("content", [None, b"\xff\x00 nonsense" * 100])
def test_a_damaged_export_raises_a_one_line_error(copy, file, content):
    path = next(copy.glob(f"{file}*"))
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=r"^.*/7: damaged: [^\n]+$"):
        repository.read_export(copy)


@pytest.mark.parametrize("change", [{"dff": 129}, {"num_layers": 2}, {"unheard_of": 1}])
def test_weights_of_another_architecture_are_refused(copy, change):
    file = copy / repository.METADATA_FILE
    metadata = json.loads(file.read_text("utf-8"))
    metadata["model"]["architecture"] |= change
    file.write_text(json.dumps(metadata), "utf-8")
    with pytest.raises(UserError, match="damaged"):
        repository.read_export(copy)
