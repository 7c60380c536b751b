"""One small translator, trained and exported once, for all the tests that need one."""

import contextlib
import fcntl
import sys

import pytest

from tfxformer.console import start_tensorflow

start_tensorflow()

from tfxformer.config import load_config  # noqa: E402
from tfxformer.training.trainer import train  # noqa: E402

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
def once(tmp_path_factory, worker_id):
    """Makes what the workers of one pytest share: the first to ask makes it."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "shared"
    folder.mkdir(exist_ok=True)

    @contextlib.contextmanager
    def once(name):
        with open(folder / f".{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder / name

    return once


@pytest.fixture(scope="session")
def run_folder(once):
    """A run that knows a little Portuguese: its decoding is neither empty nor mad."""
    config = load_config("tiny", overrides=[*SMALL, "training.steps=300"])
    with once("small") as out:
        return train(config, out).path  # one that is done does nothing more


@pytest.fixture(scope="session")
def translator(run_folder):
    from tfxformer.translator import Translator

    return Translator.load(run_folder)


@pytest.fixture(scope="session")
def exported(run_folder, once):
    from tfxformer.exporting.saved_model import export

    with once("export") as folder:
        if not folder.exists():
            _, report = export(run_folder, folder)
            folder.with_name("report.txt").write_text(report.describe(), "utf-8")
        return max(folder.glob("*/1"))


@pytest.fixture(scope="session")
def served(exported):
    """A translator that answers with the exported signatures themselves."""
    import tensorflow as tf

    from tfxformer.translator import Translator

    translator = Translator.load(exported)
    translator.loaded = tf.saved_model.load(str(exported))
    translator.signatures = dict(translator.loaded.signatures)
    return translator


@pytest.fixture
def command(monkeypatch, capfd):
    """Runs `tfxformer` here; gives what it answers, what it says, how it ends."""
    from tfxformer import cli

    def run(*args):
        monkeypatch.setattr(sys, "argv", ["tfxformer", *map(str, args)])
        code = 0
        try:
            cli.main()
        except SystemExit as end:
            code = end.code or 0
        return *capfd.readouterr(), code

    return run
