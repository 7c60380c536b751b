"""One small translator, trained and exported once, for all the tests that need one."""

import pytest

from tfxformer.quiet import start_keras

start_keras()

from tfxformer.config import load_config  # noqa: E402
from tfxformer.training.trainer import train  # noqa: E402

# What else needs TensorFlow is imported where it is used: some tests run on JAX too.

SMALL = [
    "model.num_layers=1",
    "model.d_model=64",
    "model.num_heads=4",
    "model.dff=128",
    "model.max_length=48",
    "tokenizer.vocab_size=700",
    "training.tokens_per_batch=1024",
    "training.warmup_steps=150",
    "training.validate_every=150",
    "data.sources=[phrasebook]",
]


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory):
    """A run that knows a little Portuguese: its decoding is neither empty nor mad."""
    out = tmp_path_factory.mktemp("runs") / "small"
    config = load_config("tiny", overrides=[*SMALL, "training.steps=300"])
    return train(config, out).path


@pytest.fixture(scope="session")
def translator(run_folder):
    from tfxformer.translator import Translator

    return Translator.load(run_folder)


@pytest.fixture(scope="session")
def exported(run_folder, tmp_path_factory):
    from tfxformer.saved_model import export

    path, report = export(run_folder, tmp_path_factory.mktemp("models") / "export")
    assert report.ok
    return path


@pytest.fixture(scope="session")
def served(exported):
    """The exported SavedModel as TensorFlow's Python loader gives it."""
    from tfxformer.translator import Translator

    return Translator.load(exported)
