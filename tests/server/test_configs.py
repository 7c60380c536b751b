"""Which models are served, and which of their versions."""

import os
import subprocess
import sys

import pytest

from tfxformer.errors import UserError
from tfxformer.exporting.repository import shipped_model
from tfxformer.server.configs import (
    ModelConfig,
    configs_of,
    default_repository,
    find_models,
    read_config,
)


def test_versions_are_numbers(tmp_path):
    for name in ("1", "007", "12", ".part-3", "x", "٣", "1e3", "-4", str(2**63)):
        (tmp_path / name).mkdir()
    (tmp_path / "99").touch()  # a file
    assert [*ModelConfig("m", tmp_path, latest=None).versions()] == [12, 7, 1]
    assert [*ModelConfig("m", tmp_path).versions()] == [12]
    assert [*ModelConfig("m", tmp_path, latest=2).versions()] == [12, 7]
    specific = ModelConfig("m", tmp_path, specific=frozenset([1, 5]))
    assert specific.versions() == {1: tmp_path / "1"}
    assert ModelConfig("m", tmp_path / "gone").versions() is None


def test_a_repository_s_models(tmp_path):
    for path in ("b/1", "a/3", ".hidden/1", "no_version/x", "notes"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "file").touch()
    assert [config.name for config in find_models(tmp_path)] == ["a", "b"]


@pytest.mark.parametrize("made", [None, "", "m/x"])
def test_a_repository_without_a_model_is_named(tmp_path, made):
    if made is not None:
        (tmp_path / "export" / made).mkdir(parents=True)
    with pytest.raises(UserError, match="export: no "):
        find_models(tmp_path / "export")


def test_a_model_s_folder_given_for_a_repository(tmp_path):
    (tmp_path / "export" / "pt_en" / "1").mkdir(parents=True)
    (tmp_path / "export" / "pt_en" / "1" / "saved_model.pb").touch()
    for given in ("export/pt_en", "export/pt_en/1"):
        with pytest.raises(UserError, match=r"name the repository .*/export$"):
            find_models(tmp_path / given)


def write(folder, text):
    file = folder / "models.config"
    file.write_text(text)
    return file


def config_of(*models):
    return "model_config_list { " + "\n".join(f"config {{ {m} }}" for m in models) + "}"


PLATFORM = 'model_platform: "tensorflow"'


def test_a_config_as_tensorflow_serving_takes_it(tmp_path):
    policy = "model_version_policy"
    file = write(
        tmp_path,
        config_of(
            f'name: "a" base_path: "/models/a" {PLATFORM}',
            f'name: "b" base_path: "b" {PLATFORM} {policy} {{ latest {{ '
            "num_versions: 2 } }",
            f"name: 'c' base_path: 'c' {PLATFORM} {policy} {{ all {{}} }}",
            f'name: "d" base_path: "d" {PLATFORM} {policy} {{ specific {{ versions: 4 '
            'versions: 5 } } version_labels { key: "stable" value: 4 }',
        ),
    )
    a, b, c, d = read_config(file)
    assert (a.name, str(a.folder), a.latest, a.specific) == ("a", "/models/a", 1, None)
    assert (b.folder, b.latest) == (tmp_path / "b", 2)
    assert c.latest is None and c.specific is None
    assert d.specific == {4, 5} and d.labels == {"stable": 4}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ":1: no model in its model_config_list"),
        ("model_config_list {\n config {\n name: 5\n", ":3: .*Expected string"),
        ("model_config_list {\n\n  konfig {}\n}", ':3: Message type .* "konfig"'),
        ("model_config_list { config {", ":1: "),
        (config_of(f'name: "a" {PLATFORM}'), ":1: a model needs a name and a base"),
        (config_of('name: "a" base_path: "a"'), ":1: model a needs model_platform"),
        (
            config_of(*[f'name: "a" base_path: "a" {PLATFORM}'] * 2),
            ":2: model a is there twice",
        ),
    ],
)
def test_a_config_that_is_wrong_is_told_with_its_line(tmp_path, text, message):
    with pytest.raises(UserError, match=f"models.config{message}"):
        read_config(write(tmp_path, text))


def test_a_config_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match=r"x\.config: No such file"):
        read_config(tmp_path / "x.config")


def add_model(folder, when=0):
    path = folder / "pt_en" / "1"
    path.mkdir(parents=True)
    os.utime(folder, (when, when))
    return folder


def test_the_default_repository(tmp_path):
    assert default_repository(tmp_path) == shipped_model().parents[1]
    (tmp_path / "export").mkdir()  # as in a fresh clone
    (tmp_path / "tfxformer-quickstart-empty" / "export").mkdir(parents=True)
    old = add_model(tmp_path / "tfxformer-quickstart-zz" / "export", 1000)
    assert default_repository(tmp_path) == old
    new = add_model(tmp_path / "tfxformer-quickstart-aa" / "export", 2000)
    assert default_repository(tmp_path) == new
    mine = add_model(tmp_path / "export", 500)
    assert default_repository(tmp_path) == mine


def test_a_repository_and_a_config(tmp_path):
    with pytest.raises(UserError, match="not both"):
        configs_of(tmp_path, tmp_path / "models.config")


def test_a_model_stays_when_its_folder_goes_and_new_ones_are_found(tmp_path):
    add_model(tmp_path)
    find = configs_of(tmp_path)
    assert [config.name for config in find()] == ["pt_en"]
    (tmp_path / "pt_en").rename(tmp_path / ".gone")
    (tmp_path / "other" / "1").mkdir(parents=True)
    assert [config.name for config in find()] == ["pt_en", "other"]


def test_what_is_wrong_is_told_without_waiting_for_tensorflow():
    code = "import sys, tfxformer.server.configs; print('tensorflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert done.stdout == b"False\n", done.stderr
