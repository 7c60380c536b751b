"""Training runs repeat with a seed, resume where they stopped, and fail early."""

import itertools
import json
import logging
import math
import resource
import shutil
import types

import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from training_runs import (
    Killed,
    assert_same_outcome,
    die,
    eagerly,
    interrupt,
    leftovers,
    numbers,
    outcome,
    rows,
    settings,
    terminate,
    weights,
    write_pairs,
)

from tfxformer.batches import TrainingBatches
from tfxformer.errors import Stopped, UserError
from tfxformer.token_file import TokenFile
from tfxformer.tokenizer import Tokenizer
from tfxformer.training import callbacks
from tfxformer.training import run as run_module
from tfxformer.training.run import Run
from tfxformer.training.trainer import train

pytestmark = pytest.mark.usefixtures("eager")
FOUR_STEPS = {"training": {"steps": 4, "checkpoint_every": 2}}


@pytest.fixture(scope="module")
def done(corpus, tmp_path_factory):
    """A run of four steps."""
    with eagerly():
        out = tmp_path_factory.mktemp("done") / "run"
        return train(settings(corpus, FOUR_STEPS), out)


@pytest.fixture
def copy(done, tmp_path):
    """A copy of this run that a test may change."""
    return Run(shutil.copytree(done.path, tmp_path / "copy"))


def test_a_run_folder_contains_weights_checkpoints_config_tokenizer_and_metrics(
    whole, mixture
):
    assert {path.name for path in whole.path.iterdir()} == {
        ".lock",
        "best.weights.h5",
        "checkpoints",
        "config.yaml",
        "last.weights.h5",
        "metrics.jsonl",
        "tensorboard",
        "tokenizer.model",
        "tokens",
    }
    assert whole.config() == mixture and not leftovers(whole)
    tokenizer, model = whole.load("best")
    assert tokenizer.vocab_size == model.target_vocab_size
    # Neither file has the optimizer; the best one is the moving average.
    found, averaged = (weights(whole.weights_file(name)) for name in ("last", "best"))
    assert len(found) == len(averaged) == len(model.trainable_variables)
    assert any((found[name] != averaged[name]).any() for name in found)

    *_, third, sixth, trained, validated = rows(whole)
    assert (third["step"], sixth["step"], validated["step"]) == (3, 6, 7)
    assert trained["split"] == "train" and validated["split"] == "validation"
    for row in (trained, validated):
        assert row["perplexity"] == pytest.approx(math.exp(row["loss"]), rel=0.5)
        assert 0 <= row["masked_accuracy"] <= 1
    assert trained["learning_rate"] > 0 and trained["target_tokens_per_second"] > 0
    assert 0 <= trained["padding"] < 0.5 and 0 <= validated["bleu"] <= 100

    (events,) = whole.tensorboard_folder.glob("events*")
    events = [*EventFileLoader(str(events)).Load()]
    values = [value for event in events for value in event.summary.value]
    assert {"train/loss", "validation/bleu", "samples"} <= {x.tag for x in values}
    table = tf.make_ndarray(next(x for x in values if x.tag == "samples").tensor)
    source, reference, translation = table[-1]
    assert table.shape == (1 + 5, 3)
    assert source == translation != reference  # tests translate by repeating the source


def test_target_tokens_per_second_leave_out_padding(corpus, tmp_path, monkeypatch):
    seconds = itertools.count()  # the clock is read at each start and each step
    clock = types.SimpleNamespace(perf_counter=lambda: next(seconds))
    monkeypatch.setattr(callbacks, "time", clock)
    config = settings(corpus, "training.steps=1")
    run = train(config, tmp_path / "run")
    batches = TrainingBatches(
        TokenFile(run.tokens_folder), tokens_per_batch=256, max_length=24
    )
    _, target = next(batches.generate())
    assert rows(run)[0]["target_tokens_per_second"] == np.count_nonzero(target)


# --- Stopping and resuming ---


def test_a_killed_or_stopped_run_ends_with_the_outcome_of_an_undisturbed_run(
    mixture, tmp_path, at_step, expected
):
    """SIGTERM saves the current step, with dropout, accumulation and averages."""
    at_step([1, 3], die)
    at_step([5], terminate)
    for _ in range(2):
        with pytest.raises(Killed):
            train(mixture, tmp_path / "run")
    with pytest.raises(Stopped, match="step 5 is saved") as stopped:
        train(mixture, tmp_path / "run")
    assert stopped.value.code == 75
    run = train(mixture, tmp_path / "run")
    assert_same_outcome(outcome(run), expected)
    assert not leftovers(run)


def test_subword_regularisation_trains_and_resumes(corpus, tmp_path, at_step):
    config = settings(corpus, FOUR_STEPS, "training.subword_alpha=0.2")
    at_step([3], terminate)
    with pytest.raises(Stopped):
        train(config, tmp_path / "run")
    run = train(config, tmp_path / "run")
    assert outcome(run)["state"]["step"] == 4


def test_ctrl_c_saves_a_checkpoint_and_another_one_stops_at_once(
    corpus, tmp_path, at_step, monkeypatch
):
    config = settings(corpus, "training.steps=6")
    at_step([1], interrupt)
    with pytest.raises(Stopped, match="interrupted: step 1 is saved") as stopped:
        train(config, tmp_path / "run")
    assert stopped.value.code == 130
    # Now while step 2 is being saved.
    real = run_module._to_disk
    at_step([2], interrupt)
    monkeypatch.setattr(run_module, "_to_disk", lambda p: (real(p), interrupt()))
    with pytest.raises(Stopped, match="last checkpoint"):
        train(config, tmp_path / "run")
    saved = [path.name for path in (tmp_path / "run/checkpoints").iterdir()]
    assert saved == ["step-00000001"]


def test_training_a_finished_run_again_leaves_it_unchanged(corpus, copy, caplog):
    before = outcome(copy)
    with caplog.at_level(logging.INFO, "tfxformer"):
        train(settings(corpus, FOUR_STEPS), copy.path)
    assert "has already ended, in step 4" in caplog.text
    assert_same_outcome(outcome(copy), before)


def test_a_run_without_its_checkpoints_is_refused_and_not_started_again(corpus, copy):
    shutil.rmtree(copy.checkpoints_folder)
    with pytest.raises(UserError, match="no checkpoint to resume from"):
        train(settings(corpus, FOUR_STEPS), copy.path)
    assert copy.weights_file("last").exists()


# --- Bad losses, the best checkpoint, early stopping ---


def test_a_loss_that_is_not_finite_stops_the_run_before_it_is_saved(
    corpus, copy, monkeypatch
):
    real = callbacks.RunCallback.on_train_batch_end

    def spoilt(self, batch, logs=None):
        real(self, batch, {"sums": np.array(logs["sums"]) * np.nan})

    monkeypatch.setattr(callbacks.RunCallback, "on_train_batch_end", spoilt)
    with pytest.raises(UserError, match="step 5: the loss is not finite") as error:
        train(settings(corpus, FOUR_STEPS, "training.steps=8"), copy.path)
    assert "training.learning_rate" in str(error.value)
    assert copy.newest_checkpoint().step == 4


def test_training_stops_when_the_metric_no_longer_improves(
    corpus, tmp_path, at_step, monkeypatch, caplog
):
    """Patience by BLEU, across a stop; a validation with NaN is never the best."""
    real = callbacks.RunCallback._compare
    values = iter([1.0, math.nan, 3.0, 2.0, 2.5, 2.9, 9.0])
    monkeypatch.setattr(
        callbacks.RunCallback,
        "_compare",
        lambda self, found: real(self, found | {"bleu": next(values)}),
    )
    changes = {"validate_every": 1, "patience": 3, "metric": "bleu", "bleu_pairs": 3}
    config = settings(corpus, {"training": changes | {"steps": 30}})
    at_step([4], terminate)
    with pytest.raises(Stopped):
        train(config, tmp_path / "run")
    with caplog.at_level(logging.INFO, "tfxformer"):
        run = train(config, tmp_path / "run")
    assert "3 validations in a row did not improve the bleu" in caplog.text
    state = outcome(run)["state"]
    assert (state["step"], state["best_step"], state["best_score"]) == (6, 3, 3.0)
    best, last = (weights(run.weights_file(name)) for name in ("best", "last"))
    assert any((best[name] != last[name]).any() for name in best)
    # Running the command again does not train longer.
    train(config, run.path)
    assert outcome(run)["state"]["step"] == 6


# --- Resuming with other settings ---


def test_resuming_with_other_settings_is_refused_with_their_names(corpus, copy):
    before = outcome(copy)
    changed = "model.dff=64", "training.seed=1", "training.steps=8"
    with pytest.raises(UserError, match=r"model\.dff was 32 and is 64") as error:
        train(settings(corpus, FOUR_STEPS, *changed), copy.path)
    assert "training.seed was 0 and is 1" in str(error.value)
    assert "steps" not in str(error.value)
    assert_same_outcome(outcome(copy), before)


def test_resuming_logs_and_saves_the_settings_that_may_change(corpus, copy, caplog):
    changes = "training.steps=5", "training.patience=3"
    changed = settings(corpus, FOUR_STEPS, *changes)
    with caplog.at_level(logging.INFO, "tfxformer"):
        train(changed, copy.path)
    said = [line for line in caplog.messages if "another setting" in line]
    assert len(said) == 2 and "training.steps was 4 and is 5" in caplog.text
    assert copy.config() == changed and outcome(copy)["state"]["step"] == 5


@pytest.mark.parametrize("which", ["pairs", "validation", "tokenizer.model"])
def test_resuming_with_other_data_is_refused_with_the_name_of_the_file(
    which, tmp_path, done
):
    own = write_pairs(tmp_path / "own.tsv", numbers(300))
    valid = write_pairs(tmp_path / "valid.tsv", numbers(400)[300:320])
    config = settings(own, f"data.valid='{valid}'", "training.steps=1")
    run = train(config, tmp_path / "run")
    named = {"pairs": own}.get(which, which)
    if which == "pairs":
        write_pairs(own, numbers(299))
    elif which == "validation":
        write_pairs(valid, numbers(400)[300:321])
    else:
        shutil.copy(done.tokenizer_file, run.tokenizer_file)
    with pytest.raises(UserError, match="has changed since this run start") as error:
        train(config.updated(training={"steps": 2}), run.path)
    assert str(error.value).startswith(str(named))


# --- Errors ---


def test_training_that_fails_to_start_leaves_no_run_folder(corpus, tmp_path, capfd):
    small = write_pairs(tmp_path / "small.tsv", [("um", "one")])
    for out in (tmp_path / "new", tmp_path / "there"):
        with pytest.raises(UserError, match=r"too few to hold some out .*--valid"):
            train(settings(small), out)
        assert not out.exists() or out.name == "there"
        (tmp_path / "there").mkdir(exist_ok=True)
    # A kill left a file of a tokenizer, and another run its second vocabulary.
    (tmp_path / "there" / ".tokenizer.model.part").touch()
    other = Tokenizer.train(["um gato"] * 50, vocab_size=300)
    other.save(tmp_path / "there" / "tokenizer.target.model")
    run = train(settings(corpus, "training.steps=1"), tmp_path / "there")
    assert outcome(run)["state"]["step"] == 1
    assert len({*run.tokenizer().sides}) == 1
    assert "step 1 of 1, 0:00:00 left: loss " in capfd.readouterr().err


def test_train_refuses_a_folder_of_other_files_and_leaves_it_unchanged(
    corpus, tmp_path
):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match="neither a run folder nor an empty"):
        train(settings(corpus), tmp_path)
    with pytest.raises(FileExistsError, match=r"thesis\.txt"):
        train(settings(corpus), tmp_path / "thesis.txt")
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_damaged_line_of_metrics_raises_an_error_with_its_number(tmp_path):
    for line in ("{", "[]", '{"step": null}'):
        Run(tmp_path).metrics_file.write_text(f'{{"step": 1, "split": "a"}}\n{line}\n')
        with pytest.raises(UserError, match=r"metrics\.jsonl:2: damaged"):
            run_module.measurements(tmp_path)


def test_a_file_in_place_of_the_tensorboard_folder_raises_an_error(tmp_path):
    (tmp_path / "tensorboard").touch()
    with pytest.raises(UserError, match=f"^{tmp_path}/tensorboard: cannot be written"):
        callbacks.Journal(Run(tmp_path)).write(1, "train", {"loss": 1.0})


def test_a_resumed_run_overwrites_the_metrics_after_its_checkpoint(tmp_path):
    run = Run(tmp_path)
    lines = [json.dumps({"step": n, "split": "train"}) + "\n" for n in (1, 2, 3)]
    run.metrics_file.write_text("".join(lines))
    journal = callbacks.Journal(run, len(lines[0]))
    journal.write(2, "validation", {"loss": math.nan}, [("a", "b", "c")])
    assert rows(run) == [
        {"step": 1, "split": "train"},
        {"step": 2, "split": "validation", "loss": None},
    ]


def test_writing_metrics_to_a_full_disk_raises_an_error_with_their_path(tmp_path):
    run = Run(tmp_path)
    journal = callbacks.Journal(run)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        for path, loss in ((journal.folder, "loss"), (journal.file, "loss" * 20)):
            with pytest.raises(UserError, match=f"^{path}: .* too large; fix") as error:
                journal.write(1, "train", {loss: 1.0})
            assert "\n" not in str(error.value)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
