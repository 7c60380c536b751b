"""JAX in processes of its own, which find no TensorFlow."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from training_runs import TINY, arrays, numbers, settings
from training_runs import write_pairs as write

from tfxformer.run import Run, build_model, load_weights
from tfxformer.training.trainer import train

pytestmark = pytest.mark.skipif(
    not importlib.util.find_spec("jax"), reason="JAX is not installed"
)
TESTS = Path(__file__).parent
COMMAND = "import without_tensorflow; from tfxformer.cli import main; main()"
LOGITS = """
import sys
import without_tensorflow
import keras, numpy as np
from tfxformer.config import load_config
from tfxformer.run import build_model, load_weights

file, config, weights, answers = sys.argv[1:]
case = np.load(file)
model = build_model(load_config(file=config), int(case["vocab_size"]))
if weights:
    load_weights(model, weights)
else:
    model.save_weights("jax.weights.h5")
logits = model((case["source"], case["target"]))
assert "tensorflow" not in sys.modules
np.save(answers, keras.ops.convert_to_numpy(logits))
"""


def on_jax(folder, *command, code=0):
    """What a Python process on JAX says: its standard output and standard error."""
    path = [str(TESTS.parent), str(TESTS), os.environ.get("PYTHONPATH")]
    found = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={
            **os.environ,
            "KERAS_BACKEND": "jax",
            "JAX_PLATFORMS": "cpu",
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
        },
        capture_output=True,
        text=True,
    )
    assert found.returncode == code, found.stdout + found.stderr
    return found.stdout, found.stderr


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "pairs.tsv", numbers(200))
    return tmp_path


def train_on_jax(folder, out, *more):
    overrides = [word for setting in (*TINY, *more) for word in ("--set", setting)]
    command = ["train", "--preset", "tiny", "--data", "pairs.tsv", "--out", out]
    return on_jax(folder, "-c", COMMAND, *command, *overrides)


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        ("model.norm=pre", "model.tie_embeddings=false"),
        pytest.param((), marks=pytest.mark.slow),
    ],
    ids=["pre-norm, untied", "as they are"],
)
def test_weights_of_either_backend_give_the_same_logits_in_the_other(more, tmp_path):
    vocab_size, rng = 300, np.random.default_rng(0)
    config = settings("phrasebook", "model.num_layers=2", *more)
    config.save(tmp_path / "config.yaml")
    source, target = rng.integers(1, vocab_size, (2, 4, 9), "int32")
    source[1:, 5:] = target[2:, 3:] = 0
    np.savez(tmp_path / "c.npz", vocab_size=vocab_size, source=source, target=target)
    ours = build_model(config, vocab_size)
    ours.save_weights(tmp_path / "ours.weights.h5")
    arguments = ["-c", LOGITS, "c.npz", "config.yaml"]
    on_jax(tmp_path, *arguments, "ours.weights.h5", "answer.npy")
    on_jax(tmp_path, *arguments, "", "theirs.npy")
    theirs = build_model(config, vocab_size)
    load_weights(theirs, tmp_path / "jax.weights.h5")
    for model, file in ((ours, "answer.npy"), (theirs, "theirs.npy")):
        logits = np.asarray(model((source, target)))
        assert np.ptp(logits) > 1
        assert_allclose(np.load(tmp_path / file), logits, atol=1e-4)


@pytest.mark.slow
def test_a_run_begins_on_jax_and_goes_on_there_or_on_tensorflow(folder):
    """From the token cache; and what is trained is read by either backend."""
    answer, said = train_on_jax(folder, "jax", "training.steps=4")
    assert answer == "jax\n" and "jax on 1 CPU" in said
    _, said = train_on_jax(folder, "jax", "training.steps=8")
    assert "going on from step 4" in said
    train_on_jax(folder, "whole", "training.steps=8")
    run, whole = Run(folder / "jax"), Run(folder / "whole")
    weights = arrays(run.weights_file("last"))
    for name, array in arrays(whole.weights_file("last")).items():
        assert_array_equal(array, weights[name], err_msg=name)

    # Elsewhere the source's path is another, and where it is has no meaning else.
    source = str(folder / "pairs.tsv")
    text = run.config_file.read_text().replace("pairs.tsv", source)
    run.config_file.write_text(text)
    losses = [json.loads(line)["loss"] for line in run.metrics_file.open()]
    train(settings(source, "training.steps=12"), run.path)
    more = [json.loads(line)["loss"] for line in run.metrics_file.open()]
    assert more[: len(losses)] == losses and more[-1] < losses[0]


@pytest.mark.slow
def test_both_backends_train_alike(folder):
    """Without dropout, which they draw in other ways; from the same weights."""
    source = str(folder / "pairs.tsv")
    train(settings(source, "training.steps=1"), folder / "first")
    same = "model.dropout_rate=0", "training.steps=10", "training.xla=true"
    same = *same, f"training.init_from={folder / 'first'}"
    ours = train(settings(source, *same), folder / "tensorflow")
    train_on_jax(folder, "jax", *same)
    losses = [
        [json.loads(line)["loss"] for line in run.metrics_file.open()]
        for run in (ours, Run(folder / "jax"))
    ]
    assert_allclose(*losses, rtol=1e-4)


@pytest.mark.slow
def test_what_needs_tensorflow_says_so(folder):
    train_on_jax(folder, "run", "training.steps=1")
    _, said = on_jax(folder, "-c", COMMAND, "translate", "--run", "run", "um", code=1)
    assert said.count("\n") == 2 and "KERAS_BACKEND=tensorflow" in said


@pytest.mark.slow
def test_averaging_needs_no_tensorflow(folder):
    train_on_jax(folder, "run", "training.steps=8", "training.keep_last=2")
    on_jax(folder, "-c", COMMAND, "average", "--run", "run", "--last", "2")
    run = Run(folder / "run")
    found = [arrays(file) for file in run.path.glob("checkpoints/step-*/model.*")]
    assert len(found) == 2
    for name, mean in arrays(run.weights_file("averaged")).items():
        assert_allclose(mean, (found[0][name] + found[1][name]) / 2, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "file",
    [
        "layers/test_dropout.py",
        "training/test_output_loss.py",
        "training/test_step.py",
        "training/test_checkpoints.py",
        "test_averaging.py",
        "test_batches.py",
        "test_token_corpus.py",
    ],
)
def test_what_is_said_of_any_backend_is_true_of_jax(file, tmp_path):
    pytest_ = ["-m", "pytest", "-p", "without_tensorflow", "-p", "no:cacheprovider"]
    on_jax(TESTS.parent, *pytest_, "-q", "-n", "0", f"tests/{file}")
