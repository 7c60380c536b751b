"""Averages of checkpoints, against NumPy on files made by hand."""

import logging
import subprocess
import sys

import h5py
import numpy as np
import pytest

from tfxformer.averaging import average
from tfxformer.errors import UserError
from tfxformer.run import Run
from tfxformer.training import checkpoints

NAMES = [
    "layers/encoder/layers/0/vars/0",
    "layers/encoder/layers/0/vars/1",
    "layers/decoder/vars/0",
    "scalar",
]


def weights(step, shape=(3, 4)):
    rng = np.random.default_rng(step)
    values = [shape, (5,), (2, 2, 2), ()]
    found = {
        name: rng.normal(size=size).astype("float32")
        for name, size in zip(NAMES, values, strict=True)
    }
    return found | {"optimizer/step": np.array(step, "int64")}


def save(run, step, arrays, score=None):
    """A checkpoint as training writes them."""

    def write(path):
        with h5py.File(path, "w") as file:
            for name, value in arrays.items():
                file[name] = value
            file["layers/decoder"].attrs["name"] = "kept"
            file.create_group("nothing/vars")

    writers = {"model.weights.h5": write}
    state = {"score": score, "best_step": None}
    checkpoints.save(run, step, state, writers, keep_last=99, keep_best=0)


@pytest.fixture
def run(tmp_path):
    for name in ("config.yaml", "tokenizer.model"):
        (tmp_path / name).touch()
    return Run.open(tmp_path)


def read(path):
    found = {}
    with h5py.File(path) as file:
        assert file["layers/decoder"].attrs["name"] == "kept"
        assert isinstance(file["nothing/vars"], h5py.Group)
        file.visititems(
            lambda name, it: (
                found.update({name: it[()]}) if isinstance(it, h5py.Dataset) else None
            )
        )
    return found


def mean_of(steps):
    """NumPy's, in float64, of what was saved."""
    saved = [weights(step) for step in steps]
    return {
        name: np.mean([s[name] for s in saved], axis=0, dtype="float64")
        for name in NAMES
    }


def check(path, steps):
    found = read(path)
    assert found.keys() == {*NAMES, "optimizer/step"}
    for name, expected in mean_of(steps).items():
        assert found[name].dtype == np.float32 and found[name].shape == expected.shape
        np.testing.assert_allclose(found[name], expected, rtol=1e-7, atol=1e-9)
    assert found["optimizer/step"] == max(steps)


@pytest.mark.parametrize("last", [1, 2, 5])
def test_the_mean_of_the_last(last, run):
    for step in (7, 9, 30, 200, 1000):
        save(run, step, weights(step))
    path = average(run.path, last=last)
    assert path == run.weights_file("averaged")
    check(path, [1000, 200, 30, 9, 7][:last])
    assert not [p for p in run.path.iterdir() if "part" in p.name]


def test_the_mean_of_the_best(run):
    scores = {1: -4.0, 2: -1.0, 3: -3.0, 4: None, 5: -3.0, 6: -9.0}
    for step, score in scores.items():
        save(run, step, weights(step), score)
    check(average(run.path, best=1), [2])
    check(average(run.path, best=2), [5, 2])  # of equal ones the newer
    check(average(run.path, best=3), [5, 3, 2])
    with pytest.raises(
        UserError,
        match=r"has 5 checkpoints with a score, not 6: .* training\.keep_best",
    ):
        average(run.path, best=6)


def test_sums_are_taken_in_float64(run):
    for step, value in enumerate([1e8, 1, -1e8, 3]):  # 0.75 in float32
        save(run, step, {"layers/decoder/w": np.full(3, value, "float32")})
    with h5py.File(average(run.path, last=4)) as file:
        assert (file["layers/decoder/w"][()] == 1).all()


def test_what_was_there_stays_where_no_mean_can_be_made(run):
    for step in (1, 2):
        save(run, step, weights(step))
    path = average(run.path, last=2)
    before = path.read_bytes()

    def fails(message, **options):
        with pytest.raises(UserError, match=message) as error:
            average(run.path, **options)
        assert "\n" not in str(error.value)
        assert path.read_bytes() == before
        assert not [p for p in run.path.iterdir() if "part" in p.name]

    fails(r"has 2 checkpoints, not 3: .* training\.keep_last", last=3)
    fails("--last or --best")
    fails("--last or --best", last=1, best=1)
    fails("it takes 1 at least", last=0)
    save(run, 3, weights(3, shape=(4, 3)))
    fails(r"step-00000002/model\.weights\.h5: holds other weights than .*00003", last=2)
    save(run, 4, weights(4) | {"more": np.zeros(2, "float32")})
    save(run, 5, weights(5))
    fails("other weights", last=2)
    save(run, 6, weights(6) | {NAMES[1]: np.array([0, np.nan, 0, 0, 0], "float32")})
    fails(f"{NAMES[1]} is not finite", last=1)


def test_damaged_checkpoints_are_named(run, caplog):
    logger = logging.getLogger("tfxformer")
    for step in (1, 2, 3):
        save(run, step, weights(step))
    folder = run.checkpoints_folder / "step-00000002"
    file = folder / "model.weights.h5"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(UserError, match=r"00002/model\.weights\.h5: damaged"):
        average(run.path, last=2)
    file.unlink()
    with pytest.raises(UserError, match=r"00002/model\.weights\.h5: No such file"):
        average(run.path, last=2)
    (folder / "state.json").write_text("{")
    with pytest.raises(UserError, match="2 checkpoints, and 1 that cannot be read"):
        average(run.path, last=3)
    logger.addHandler(caplog.handler)
    check(average(run.path, last=2), [3, 1])
    logger.removeHandler(caplog.handler)
    assert "1 damaged, left out" in caplog.text


def test_no_run_and_no_checkpoint(run, tmp_path):
    with pytest.raises(UserError, match="no such run folder"):
        average(tmp_path / "none", last=1)
    with pytest.raises(UserError, match="has 0 checkpoints, not 1"):
        average(run.path, last=1)


def call(*args):
    command = [sys.executable, "-m", "tfxformer.cli", *map(str, args)]
    done = subprocess.run(command, capture_output=True, timeout=300)
    return done.stdout.decode(), done.stderr.decode(), done.returncode


@pytest.mark.slow
def test_the_command_and_what_it_makes_translates(run_folder):
    found = checkpoints.list_checkpoints(Run.open(run_folder))
    steps = [checkpoint.step for checkpoint in found]
    assert len(steps) >= 2
    out, err, code = call("average", "--run", run_folder, "--last", 2)
    path = run_folder / "averaged.weights.h5"
    assert code == 0 and out == f"{path}\n", err
    assert err == f"{path}: the mean of steps {steps[0]}, {steps[1]}\n"
    out, err, code = call(
        "translate", "--run", run_folder, "--checkpoint", "averaged", "Bom dia!"
    )
    assert code == 0 and out.strip(), err
    out, err, code = call("average", "--run", run_folder, "--best", 99)
    assert code == 1 and "training.keep_best" in err and len(err.splitlines()) == 1
