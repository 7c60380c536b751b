"""Models and versions: choosing, loading and replacing them."""

import asyncio
import shutil
from unittest.mock import Mock

import numpy as np
import pytest
from tensorflow_serving.config.model_server_config_pb2 import ModelConfig

from tfxformer.errors import UserError
from tfxformer.repository import WARM_UP_FILE, write_records
from tfxformer.server import ServingError
from tfxformer.server.configs import find_models, versions
from tfxformer.server.models import Models


@pytest.fixture
def half(toys, tmp_path):
    """A model's folder with one version."""
    shutil.copytree(toys / "half" / "1", tmp_path / "half" / "1")
    return tmp_path / "half"


def add(folder, number):
    shutil.copytree(folder / "1", folder / ".part")
    return (folder / ".part").rename(folder / str(number))


def run(scenario, folder, **more):
    """Runs a scenario with running models and configs that it can change."""
    configs = [ModelConfig(name="half", base_path=str(folder), **more)]

    async def main():
        models = Models(lambda: configs)
        await models.start()
        await scenario(models, configs)

    asyncio.run(asyncio.wait_for(main(), 60))


def states(models):
    names = {20: "LOADING", 30: "AVAILABLE", 50: "END"}
    found = models.status("half").model_version_status
    return {each.version: names[each.state] for each in found}


def answered_by(servable):
    found = servable.signature("")({"x": np.array([2.0], "float32")})
    assert found["y"].tolist() == [3.0]
    return servable.version


def test_a_new_version_takes_over_and_the_old_one_answers_its_requests(half):
    async def scenario(models, _):
        old = models.get("half")
        add(half, 2)
        (half / "2" / "link").symlink_to("nowhere")
        await models.update()
        assert states(models) == {2: "AVAILABLE", 1: "END"}
        assert answered_by(models.get("half")) == 2 and answered_by(old) == 1
        with pytest.raises(ServingError, match=r"Specific\(half, 1\)"):
            models.get("half", 1)
        shutil.rmtree(half)
        await models.update()
        assert answered_by(models.get("half")) == 2

    run(scenario, half)


@pytest.mark.parametrize("broken", ["saved_model.pb", WARM_UP_FILE])
def test_a_broken_version_does_not_replace_the_old_one_until_it_is_repaired(
    half, broken
):
    async def scenario(models, _):
        file, asked = add(half, 2) / broken, {"x": np.array(["no number"])}
        if broken == WARM_UP_FILE:
            write_records(file, "half", [("serving_default", asked, {})])
        else:
            file.write_bytes(b"\xff")
        await models.update()
        await models.update()
        assert states(models) == {2: "END", 1: "AVAILABLE"}
        (known,) = models.status("half", 2).model_version_status
        assert known.status.error_message and answered_by(models.get("half")) == 1
        file.unlink()
        shutil.copy(half / "1" / "saved_model.pb", half / "2")
        await models.update()
        assert states(models) == {2: "AVAILABLE", 1: "END"}

    run(scenario, half)


def test_the_status_of_a_version_that_cannot_be_loaded_has_an_error_code(half):
    async def scenario(models, _):
        (add(half, 2) / "saved_model.pb").write_bytes(b"\xff")
        await models.update()
        for version, failed in ((1, False), (2, True)):
            (known,) = models.status("half", version).model_version_status
            assert bool(known.status.error_code) is failed

    run(scenario, half)


def test_the_server_follows_changes_of_version_policies_labels_and_configs(half):
    add(half, 2)
    add(half, 3)

    async def scenario(models, configs):
        assert states(models) == {3: "AVAILABLE", 1: "AVAILABLE"}
        assert models.get("half").version == 3
        assert models.get("half", label="stable") is models.get("half", 1)
        for label, message in (("gone", r"Specific\(half, 9\)"), ("x", "label: x")):
            with pytest.raises(ServingError, match=message):
                models.get("half", label=label)
        configs[0].version_labels["stable"] = 3
        configs[0].model_version_policy.Clear()
        await models.update()
        assert models.get("half", label="stable").version == 3
        assert states(models) == {3: "AVAILABLE", 1: "END"}
        configs.clear()
        await models.update()
        with pytest.raises(ServingError, match="Servable not found"):
            models.get("half")

    policy = {"specific": {"versions": [1, 3]}}
    labels = {"stable": 1, "gone": 9}
    run(scenario, half, model_version_policy=policy, version_labels=labels)


def test_the_server_keeps_watching_for_new_versions_after_errors(half):
    async def scenario(models, configs):
        found = [UserError("a typing mistake"), KeyError("x"), configs]
        models._find_configs = Mock(side_effect=found)
        watching = asyncio.create_task(models.watch(0.01))
        add(half, 2)
        while states(models).get(1) != "END":
            assert not watching.done()
            await asyncio.sleep(0.01)
        assert answered_by(models.get("half")) == 2
        watching.cancel()

    run(scenario, half)


def test_the_server_refuses_to_start_without_a_version_that_loads(half, tmp_path):
    (half / "1" / "saved_model.pb").write_bytes(b"\xff")
    for folder, message in ((half, "version 1: .* in"), (tmp_path / "x", "no version")):
        with pytest.raises(UserError, match=f"model half: {message}"):
            run(None, folder)


def test_versions_finds_the_numbered_folders_that_the_policy_selects(tmp_path):
    for name in ("1", "007", "12", ".part-3", "x", "1e3", "-4", "9" * 19):
        (tmp_path / name).mkdir()
    (tmp_path / "99").touch()  # a file
    for policy, found in (
        ({}, [12]),
        ({"all": {}}, [12, 7, 1]),
        ({"latest": {"num_versions": 2}}, [12, 7]),
        ({"specific": {"versions": [1, 5]}}, [1]),
    ):
        config = ModelConfig(base_path=str(tmp_path), model_version_policy=policy)
        assert [*versions(config)] == found


def test_find_models_lists_the_folders_of_a_repository_that_have_versions(tmp_path):
    for path in ("b/1", "a/3", ".hidden/1", "no_version/x", "notes"):
        (tmp_path / path).mkdir(parents=True)
    assert [config.name for config in find_models(tmp_path)] == ["a", "b"]
    with pytest.raises(UserError, match="a: no model in NAME/VERSION; export one"):
        find_models(tmp_path / "a")


GOOD = 'config { name: "a" base_path: "a" model_platform: "tensorflow" }'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ": no model in its model_config_list"),
        ("model_config_list {\n config {\n name: 5\n", ":3: .*Expected string"),
        ("model_config_list {\n\n  konfig {}\n}", ':3: Message type .* "konfig"'),
        ('model_config_list { config { name: "a" } }', ": model 'a' needs a name, a "),
        (f"model_config_list {{ {GOOD} {GOOD} }}", ": model 'a' is listed twice"),
    ],
)
def test_a_wrong_models_config_is_refused_with_its_file_and_line(
    tmp_path, text, message
):
    (tmp_path / "models.config").write_text(text)
    with pytest.raises(UserError, match=f"models.config{message}"):
        find_models(None, tmp_path / "models.config")
