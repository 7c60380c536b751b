"""Versions on the disk: found, loaded, swapped, kept and unloaded."""

import asyncio
import os
import shutil

import numpy as np
import pytest

from tfxformer.errors import UserError
from tfxformer.server.configs import ModelConfig
from tfxformer.server.errors import ServingError
from tfxformer.server.metrics import Metrics
from tfxformer.server.models import Models, Servable


@pytest.fixture
def half(toys, tmp_path):
    """A model's folder of one version, and what copies it to another one."""
    folder = tmp_path / "half"

    def add(number):
        shutil.copytree(toys / "half" / "1", folder / f".part-{number}")
        (folder / f".part-{number}").rename(folder / str(number))

    add(1)
    return folder, add


def run(scenario, *configs):
    """Runs a coroutine function of `Models` that were started."""

    async def main():
        models = Models(lambda: [*configs], Metrics())
        try:
            await models.start()
            await scenario(models)
        finally:
            models.stop()

    asyncio.run(main())


async def look(models):
    await models._update(models._find_configs())


def states(models, name="half"):
    found = models.status(name).model_version_status
    names = {10: "START", 20: "LOADING", 30: "AVAILABLE", 40: "UNLOADING", 50: "END"}
    return {each.version: names[each.state] for each in found}


def answers(models, **which):
    with models.use("half", **which) as servable:
        found = servable.run("serving_default", {"x": np.array([2.0], "float32")})
        assert found["y"].tolist() == [3.0]
        return servable.version


def refusal(models, *which):
    with pytest.raises(ServingError) as caught, models.use(*which):
        pass
    return caught.value.code, caught.value.message


# --- Versions that come and go ---


def test_a_new_version_takes_over_and_the_old_one_ends_after_its_requests(half):
    folder, add = half

    async def scenario(models):
        assert answers(models) == 1
        with models.use("half") as old:
            add(2)
            await look(models)
            assert states(models) == {2: "AVAILABLE", 1: "UNLOADING"}
            assert answers(models) == 2
            assert old.version == 1 and old.run("serving_default", {"x": np.ones(1)})
        assert states(models) == {2: "AVAILABLE", 1: "END"}
        assert refusal(models, "half", 1) == (
            "NOT_FOUND",
            "Servable not found for request: Specific(half, 1)",
        )

    run(scenario, ModelConfig("half", folder))


def break_version(folder, number, how):
    path = folder / str(number)
    if how == "garbage":
        (path / "saved_model.pb").write_bytes(b"\x0a\xff garbage")
    elif how == "no graph":
        (path / "saved_model.pb").unlink()
    elif how == "truncated graph":
        os.truncate(path / "saved_model.pb", 3000)
    elif how == "empty graph":
        os.truncate(path / "saved_model.pb", 0)
    elif how == "warm-up":
        (path / "assets.extra").mkdir()
        (path / "assets.extra" / "tf_serving_warmup_requests").write_bytes(b"x" * 50)


@pytest.mark.parametrize(
    "how", ["garbage", "no graph", "truncated graph", "empty graph", "warm-up"]
)
def test_a_broken_version_leaves_the_old_one_and_is_tried_again(half, how):
    folder, add = half

    async def scenario(models):
        shutil.copytree(folder / "1", folder.parent / "part" / "2")
        break_version(folder.parent / "part", 2, how)
        (folder.parent / "part" / "2").rename(folder / "2")
        for _ in range(3):
            await look(models)
        assert states(models) == {2: "END", 1: "AVAILABLE"} and answers(models) == 1
        status = models.status("half", 2).model_version_status[0].status
        assert status.error_code != 0 and status.error_message
        assert str(folder) not in status.error_message
        assert "\n" not in status.error_message
        page = models._metrics.page().decode()
        (fails,) = [x for x in page.splitlines() if 'half/2",status="fail"' in x]
        assert fails.endswith(" 1.0")  # once, for its files are what they were

        shutil.rmtree(folder / "2")
        add(2)
        await look(models)
        assert states(models) == {2: "AVAILABLE", 1: "END"} and answers(models) == 2

    run(scenario, ModelConfig("half", folder))


def test_a_version_that_is_removed_gives_way_to_the_one_before(half):
    folder, add = half
    add(2)

    async def scenario(models):
        assert states(models) == {2: "AVAILABLE"}
        shutil.rmtree(folder / "2")
        await look(models)
        assert states(models) == {2: "END", 1: "AVAILABLE"} and answers(models) == 1

    run(scenario, ModelConfig("half", folder))


def test_a_model_whose_folder_is_gone_goes_on(half):
    folder, add = half

    async def scenario(models):
        shutil.rmtree(folder)
        for _ in range(3):
            await look(models)
        assert states(models) == {1: "AVAILABLE"} and answers(models) == 1
        folder.mkdir()
        add(2)  # and is taken up again
        await look(models)
        assert answers(models) == 2

    run(scenario, ModelConfig("half", folder))


def test_a_model_whose_last_version_is_removed_ends(half):
    """As in TensorFlow Serving, where the folder itself stays."""
    folder, _ = half

    async def scenario(models):
        shutil.rmtree(folder / "1")
        await look(models)
        assert answers(models) == 1  # it may be about to be deleted as a whole
        await look(models)
        assert states(models) == {1: "END"}
        assert refusal(models, "half")[0] == "NOT_FOUND"

    run(scenario, ModelConfig("half", folder))


def test_policies_and_labels(half):
    folder, add = half
    add(2)
    add(3)
    labels = {"stable": 1, "canary": 3, "gone": 9}

    async def scenario(models):
        assert states(models) == {3: "AVAILABLE", 1: "AVAILABLE"}
        assert answers(models) == 3
        assert answers(models, version=1) == answers(models, label="stable") == 1
        assert answers(models, label="canary") == 3
        assert refusal(models, "half", 2)[0] == "NOT_FOUND"
        assert refusal(models, "half", None, "gone")[1].endswith("Specific(half, 9)")
        assert refusal(models, "half", None, "nope") == (
            "INVALID_ARGUMENT",
            "Unrecognized servable version label: nope",
        )

    run(scenario, ModelConfig("half", folder, 1, frozenset([1, 3]), labels))


def test_a_config_that_changes_is_followed(half, toys):
    folder, add = half
    add(2)
    configs = [ModelConfig("half", folder, 1, frozenset([1]), {"stable": 1})]

    async def main():
        models = Models(lambda: [*configs], Metrics())
        await models.start()
        configs[:] = [
            ModelConfig("half", folder, 1, frozenset([1, 2]), {"stable": 2}),
            ModelConfig("echo", toys / "echo"),
        ]
        await look(models)
        assert answers(models, label="stable") == 2
        assert states(models, "echo") == {1: "AVAILABLE"}
        del configs[0]
        await look(models)
        assert states(models) == {2: "END", 1: "END"}
        assert refusal(models, "half")[0] == "NOT_FOUND"
        models.stop()

    asyncio.run(main())


def test_watching_goes_on_whatever_happens(half):
    """A config that is wrong for a while, and mistakes of ours."""
    folder, add = half
    good = [ModelConfig("half", folder)]
    happens = [good, UserError("a typing mistake"), KeyError("a mistake")]

    def configs():
        now = happens.pop(0) if happens else good
        if isinstance(now, Exception):
            raise now
        return now

    async def main():
        models = Models(configs, Metrics())
        await models.start()
        watching = asyncio.create_task(models.watch(0.01))
        add(2)
        while states(models).get(1) != "END":
            assert not watching.done()
            await asyncio.sleep(0.01)
        assert not happens and answers(models) == 2
        watching.cancel()
        models.stop()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_start_with_nothing_to_serve_is_told(half, tmp_path):
    folder, _ = half

    async def scenario(models):
        raise AssertionError("it has nothing")

    (folder / "1" / "saved_model.pb").write_bytes(b"\xff")
    with pytest.raises(UserError, match=r"model half: version 1: .*; tfxformer verify"):
        run(scenario, ModelConfig("half", folder))
    with pytest.raises(UserError, match="model other: no version to serve in"):
        run(scenario, ModelConfig("other", tmp_path / "other"))


def test_what_is_not_there_is_told_as_tensorflow_serving_does(half):
    folder, _ = half

    async def scenario(models):
        assert refusal(models, "nope") == (
            "NOT_FOUND",
            "Servable not found for request: Latest(nope)",
        )
        assert refusal(models, "")[0] == "INVALID_ARGUMENT"
        for which, message in (
            (("nope",), "Could not find any versions of model nope"),
            (("half", 7), "Could not find version 7 of model half"),
        ):
            with pytest.raises(ServingError, match=message):
                models.status(*which)

    run(scenario, ModelConfig("half", folder))


def test_the_translator_is_warmed_up_by_its_records_or_its_examples(
    exported, tmp_path, monkeypatch
):
    # Running them takes seconds, and is what the other tests' server begins with.
    asked = []
    monkeypatch.setattr(Servable, "run", lambda _, *request: asked.append(request))
    servable = Servable("pt_en", 1, exported)
    assert {name for name, _ in asked} == {*servable.signatures}
    assert {len(x["text"]) for name, x in asked if name == "serving_default"} == {1, 32}
    # Without records, each signature once.
    copy = tmp_path / "1"
    shutil.copytree(exported, copy)
    (copy / "assets.extra" / "tf_serving_warmup_requests").unlink(missing_ok=True)
    asked.clear()
    servable = Servable("pt_en", 1, copy)
    assert sorted(name for name, _ in asked) == sorted(servable.signatures)
