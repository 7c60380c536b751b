"""Fine-tuning keeps the architecture, vocabulary and weights of another model."""

import shutil

import pytest
from numpy.testing import assert_array_equal

from tfxformer.config import ModelConfig
from tfxformer.repository import read_export, read_metadata, shipped_model
from tfxformer.training import fine_tuning, trainer
from tfxformer.training.run import Run
from tfxformer.training.step import TrainingTransformer


@pytest.fixture
def no_steps(monkeypatch):
    """Stops training before its first step."""
    monkeypatch.setattr(TrainingTransformer, "fit", lambda *_, **__: None)


@pytest.fixture
def first_weights(monkeypatch):
    """The weights at the start of each training, by name."""
    weights = {}
    real = TrainingTransformer.fit

    def fit(model, *arguments, **options):
        for weight in model.transformer.weights:
            weights.setdefault(weight.path.partition("/")[2], weight.numpy())
        return real(model, *arguments, **options)

    monkeypatch.setattr(TrainingTransformer, "fit", fit)
    return weights


def assert_begun_with(export, first_weights, run):
    tokenizer, model = read_export(export)
    assert len(first_weights) == len(model.weights)
    for weight in model.weights:
        assert_array_equal(first_weights[weight.path.partition("/")[2]], weight)
    assert run.tokenizer_file.read_bytes() == tokenizer.model
    # The shipped export is older than some settings.
    architecture = ModelConfig().model_dump() | read_metadata(export)["architecture"]
    for name, value in run.config().model_dump()["model"].items():
        assert value == architecture[name]


def test_fine_tuning_starts_with_the_weights_of_an_export_and_resumes(
    command, first_weights, exported, corpus, tmp_path, eager
):
    run = Run(tmp_path / "run")
    train = ["train", "--data", corpus, "--from", exported.parent, "--out", run.path]
    train += ["--set", "training.warmup_steps=1"]
    out, err, code = command(*train, "--steps", 1)
    assert (out, code) == (f"{run.path}\n", 0), err
    assert_begun_with(exported, first_weights, run)
    out, err, code = command(*train, "--steps", 2)
    assert code == 0 and "resuming from step 1" in err


def test_fine_tuning_from_pt_en_starts_with_the_shipped_model(
    command, no_steps, first_weights, corpus, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    train = ["train", "--data", corpus, "--from", "pt_en", "--out", "run", "--steps", 1]
    _, err, code = command(*train)
    assert code == 0, err
    assert "model.dropout_rate is 0, as in pt_en; to change it: --set model.dr" in err
    assert_begun_with(shipped_model(), first_weights, Run(tmp_path / "run"))


def test_fine_tuning_accepts_another_dropout_rate(command, monkeypatch):
    def train(config, out):
        assert config.model.dropout_rate == 0.1 and config.model.num_layers == 6
        return Run(out)

    monkeypatch.setattr(trainer, "train", train)
    train = ["train", "--data", "ted", "--from", "pt_en", "--out", "run"]
    out, err, code = command(*train, "--set", "model.dropout_rate=0.1")
    assert (out, code) == ("run\n", 0) and "dropout_rate" not in err
    assert "next: tfxformer evaluate --run run --data ted\n" in err


def test_pt_en_loads_the_shipped_model_and_a_path_loads_the_folder_pt_en(
    run_folder, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(run_folder, "pt_en", ignore=shutil.ignore_patterns("tokens"))
    assert fine_tuning._find("pt_en") == shipped_model()
    tokenizer, model = fine_tuning.load("./pt_en")
    assert tokenizer.vocab_size == model.target_vocab_size < 8000


def test_fine_tuning_refuses_a_config_file_that_contradicts_its_model(
    command, exported, corpus, tmp_path
):
    train = ["train", "--data", corpus, "--from", exported, "--out", tmp_path / "run"]
    config = tmp_path / "config.yaml"
    config.write_text("training: {init_from: pt_en}\n")
    _, err, code = command(*train, "--config", config)
    assert code == 1 and f"--from {exported}: {config} has training.init_from" in err
    config.write_text("model: {dff: 64}\n")
    _, err, code = command(*train, "--config", config)
    assert code == 1 and "its model.dff is 128, not 64" in err


def test_fine_tuning_refuses_a_setting_of_another_architecture(
    command, exported, corpus, tmp_path
):
    train = ["train", "--data", corpus, "--from", exported, "--out", tmp_path / "run"]
    _, err, code = command(*train, "--set", "model.dff=64")
    assert code == 1 and "its model.dff is 128, not 64" in err
    assert not (tmp_path / "run").exists()
