"""The training run: the same from a seed, going on where it stood, refusing early."""

import json
import logging
import os
import random
import shutil
import signal

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from training_runs import (
    Killed,
    arrays,
    assert_same_outcome,
    die,
    interrupt,
    leftovers,
    numbers,
    outcome,
    rows,
    settings,
    settings_of_all,
    terminate,
    write_pairs,
)

from tfxformer.errors import Stopped, UserError
from tfxformer.run import Run
from tfxformer.training import checkpoints, trainer
from tfxformer.training.trainer import train

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(scope="module")
def whole(mixture, shared, tmp_path_factory):
    """What comes of a run with all there is that is never stopped."""
    with pytest.MonkeyPatch.context() as patch:
        shared.use(patch)
        run = train(settings_of_all(mixture), tmp_path_factory.mktemp("whole") / "run")
    return outcome(run)


def test_a_run_folder_holds_all_it_takes(corpus, tmp_path, monkeypatch):
    monkeypatch.undo()  # all of it is the trainer's
    monkeypatch.setattr(trainer, "RECORD_EVERY", 5)
    changes = "training.steps=6", "training.bleu_pairs=3"
    run = train(settings(corpus, *changes), tmp_path / "run")
    tokenizer, model = run.load("best")
    assert run.load("last")[1].count_params() == model.count_params()
    assert tokenizer.vocab_size == model.target_vocab_size
    assert run.config() == settings(corpus, *changes)
    assert {path.name for path in run.path.iterdir()} == {
        "best.weights.h5",
        "checkpoints",
        "config.yaml",
        "last.weights.h5",
        ".lock",
        "metrics.jsonl",
        "tensorboard",
        "tokenizer.model",
        "tokens",
    }
    assert not leftovers(run)

    found = rows(run)
    splits = [(row["step"], row["split"]) for row in found]
    assert splits == [
        (4, "validation"),
        (5, "train"),
        (6, "train"),
        (6, "validation"),
    ]
    for row in found:
        assert row["perplexity"] > 1 and 0 <= row["masked_accuracy"] <= 1
    assert found[1]["learning_rate"] > 0 and found[1]["gradient_norm"] > 0
    assert 0 <= found[1]["padding"] < 1
    assert 0 <= found[0]["bleu"] <= 100 and "bleu" not in found[1]
    line = json.loads(run.metrics_file.read_text().splitlines()[1])
    assert line["target_tokens_per_second"] > 0

    events = [*run.tensorboard_folder.glob("events*")]
    tags = {
        value.tag
        for event in EventFileLoader(str(events[0])).Load()
        for value in event.summary.value
    }
    assert {"train/loss", "validation/perplexity", "samples", "attention"} <= tags


@pytest.mark.slow
def test_two_runs_from_one_seed_are_the_same(corpus, tmp_path):
    one, two, other = (
        outcome(train(settings(corpus, "training.steps=8", seed), tmp_path / name))
        for name, seed in (
            ("one", "training.seed=3"),
            ("two", "training.seed=3"),
            ("other", "training.seed=4"),
        )
    )
    assert_same_outcome(two, one)
    with pytest.raises(AssertionError):
        assert_same_outcome(other, one)


# --- Stopping and going on ---


def until_done(config, out, stopped_by):
    """Trains until it is done, however often it is stopped.

    Returns:
        The `Run`, and how often it was.
    """
    for times in range(100):
        try:
            return train(config, out), times
        except stopped_by:
            pass
    raise AssertionError("it never ends")


def test_the_whole_run_uses_all_there_is(whole, mixture):
    """Or the tests below would show little."""
    assert [row["step"] for row in whole["metrics"]] == [*(4, 5, 8, 10, 12, 13, 13)]
    assert "ema.weights.h5" in whole and "last.weights.h5" in whole
    assert any(name.startswith("averages/") for name in whole["optimizer"])
    config = settings_of_all(mixture)
    assert config.training.steps % config.training.checkpoint_every
    assert config.training.validate_every % config.training.checkpoint_every


# All of them are minutes; of these the first has a checkpoint and a record.
@pytest.mark.parametrize(
    "step",
    [
        step if step == 5 else pytest.param(step, marks=pytest.mark.slow)
        for step in range(1, 13)
    ],
)
def test_a_run_that_is_told_to_stop_goes_on_as_if_it_had_not(
    step, mixture, tmp_path, at_step, whole
):
    """SIGTERM saves that very step, with dropout, averages and all."""
    config = settings_of_all(mixture)
    at_step([step], terminate)
    with pytest.raises(Stopped, match=f"step {step} is saved") as stopped:
        train(config, tmp_path / "run")
    assert stopped.value.code == 75
    assert (tmp_path / "run/checkpoints" / f"step-{step:08d}").is_dir()
    assert_same_outcome(outcome(train(config, tmp_path / "run")), whole)


@pytest.mark.slow
@pytest.mark.parametrize(
    "step", [6, *(pytest.param(step, marks=pytest.mark.slow) for step in (2, 11, 13))]
)
def test_a_run_that_dies_goes_on_from_its_last_checkpoint(
    step, mixture, tmp_path, at_step, whole
):
    config = settings_of_all(mixture)
    at_step([step], die)
    with pytest.raises(Killed):
        train(config, tmp_path / "run")
    run = train(config, tmp_path / "run")
    assert_same_outcome(outcome(run), whole)
    assert not leftovers(run)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_stopping_and_dying_many_times_changes_nothing(
    seed, mixture, tmp_path, at_step, whole
):
    rng = random.Random(seed)
    steps = rng.sample(range(1, 14), 7)
    at_step(steps, lambda: rng.choice([terminate, interrupt, die])())
    run, times = until_done(
        settings_of_all(mixture), tmp_path / "run", (Stopped, Killed)
    )
    assert times == len(steps)
    assert_same_outcome(outcome(run), whole)


@pytest.mark.slow
@pytest.mark.parametrize("happens", [terminate, die])
def test_the_tokens_of_a_finer_step_do_not_depend_on_stops(
    happens, corpus, tmp_path, at_step
):
    """Without a validation or a checkpoint in between, across an epoch's end."""
    config = settings(corpus, "training.steps=40", "training.validate_every=100")
    whole = outcome(train(config, tmp_path / "whole"))
    at_step([7, 23, 33], happens)
    run, times = until_done(config, tmp_path / "run", (Stopped, Killed))
    assert times == 3
    assert_same_outcome(outcome(run), whole)


@pytest.mark.slow
def test_ctrl_c_saves_and_a_second_one_stops_at_once(
    corpus, tmp_path, at_step, monkeypatch
):
    config = settings(corpus, "training.steps=6")
    whole = outcome(train(config, tmp_path / "whole"))
    at_step([2], interrupt)
    with pytest.raises(Stopped, match="interrupted: step 2 is saved") as stopped:
        train(config, tmp_path / "run")
    assert stopped.value.code == 130

    # Now while step 3 is being saved, after the weights are written.
    real = checkpoints._to_disk

    def interrupted(path):
        real(path)
        interrupt()

    at_step([3], interrupt)
    monkeypatch.setattr(checkpoints, "_to_disk", interrupted)
    with pytest.raises(Stopped, match="last checkpoint"):
        train(config, tmp_path / "run")
    monkeypatch.setattr(checkpoints, "_to_disk", real)
    saved = [path.name for path in (tmp_path / "run/checkpoints").iterdir()]
    assert saved == ["step-00000002"]
    assert_same_outcome(outcome(train(config, tmp_path / "run")), whole)


@pytest.mark.slow
def test_a_second_sigterm_does_not_spoil_the_saving(
    corpus, tmp_path, at_step, monkeypatch
):
    """Some schedulers send two, to the group and to the process."""
    real = checkpoints._to_disk
    monkeypatch.setattr(checkpoints, "_to_disk", lambda path: (real(path), terminate()))
    at_step([2], terminate)
    with pytest.raises(Stopped, match="step 2 is saved"):
        train(settings(corpus, "training.steps=6"), tmp_path / "run")


def test_a_signal_before_training_ends_it_with_a_message(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(trainer, "load_data", lambda *_: terminate())
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Stopped, match="stopped by SIGTERM") as stopped:
        train(settings(corpus), tmp_path / "run")
    assert stopped.value.code == 75
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.slow
def test_a_finished_run_does_nothing_more(corpus, tmp_path, caplog):
    run = train(settings(corpus, "training.steps=4"), tmp_path / "run")
    before = outcome(run)
    with caplog.at_level(logging.INFO, "tfxformer"):
        train(settings(corpus, "training.steps=4"), tmp_path / "run")
    assert "has its 4 steps already" in caplog.text
    assert_same_outcome(outcome(run), before)


@pytest.mark.slow
def test_a_start_that_died_leaves_nothing_to_the_next(corpus, tmp_path, monkeypatch):
    """Not its vocabulary either, which may be of other pairs."""
    real = trainer.build_model
    monkeypatch.setattr(trainer, "build_model", lambda *_: die())
    other = write_pairs(tmp_path / "other.tsv", [(s[::-1], t) for s, t in numbers(300)])
    with pytest.raises(Killed):
        train(settings(other, "tokenizer.vocab_size=330"), tmp_path / "run")
    (tmp_path / "run/config.yaml").unlink()
    (tmp_path / "run/tokens/.0.part-abc").mkdir()
    monkeypatch.setattr(trainer, "build_model", real)
    config = settings(corpus, "training.steps=4")
    run = train(config, tmp_path / "run")
    expected = train(config, tmp_path / "expected")
    assert run.tokenizer_file.read_bytes() == expected.tokenizer_file.read_bytes()
    assert_same_outcome(outcome(run), outcome(expected))
    assert not leftovers(run)


# --- Checkpoints that are not what they were ---


def damage(path, how):
    if how == "missing":
        path.unlink()
    elif how == "truncated":
        os.truncate(path, path.stat().st_size // 2)
    elif how == "empty":
        os.truncate(path, 0)
    else:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.unlink()  # other names of the file keep theirs
        path.write_bytes(content)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "how"),
    [
        ("model.weights.h5", "one bit"),
        pytest.param("averaged.weights.h5", "missing", marks=pytest.mark.slow),
        pytest.param("state.npz", "truncated", marks=pytest.mark.slow),
        pytest.param("state.json", "one bit", marks=pytest.mark.slow),
    ],
)
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(
    file, how, mixture, tmp_path, at_step, whole, caplog
):
    config = settings_of_all(mixture)
    at_step([11], terminate)
    with pytest.raises(Stopped):
        train(config, tmp_path / "run")
    damaged = tmp_path / "run/checkpoints/step-00000011" / file
    damage(damaged, how)
    with caplog.at_level(logging.INFO, "tfxformer"):
        run = train(config, tmp_path / "run")
    (warning,) = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert str(damaged) in warning.getMessage()
    assert "trying the checkpoint before it" in warning.getMessage()
    assert "going on from step 10" in caplog.text
    assert_same_outcome(outcome(run), whole)
    kept = sorted(path.name for path in run.checkpoints_folder.iterdir())
    assert "step-00000011" not in kept and kept[-1] == "step-00000013"


@pytest.mark.slow
def test_without_a_sound_checkpoint_nothing_is_lost_by_beginning_anew(corpus, tmp_path):
    config = settings(corpus, "training.steps=8")
    run = train(config, tmp_path / "run")
    for path in run.checkpoints_folder.iterdir():
        damage(path / "model.weights.h5", "one bit")
    before = outcome(run)
    more = settings(corpus, "training.steps=12")
    with pytest.raises(UserError, match="no checkpoint is sound") as error:
        train(more, run.path)
    assert str(run.checkpoints_folder) in str(error.value)
    assert_same_outcome(outcome(run), before)
    # And where they are gone altogether.
    shutil.rmtree(run.checkpoints_folder)
    with pytest.raises(UserError, match="has no checkpoint"):
        train(more, run.path)
    assert arrays(run.weights_file("last")).keys() == before["last.weights.h5"].keys()


@pytest.mark.slow
def test_best_is_what_it_was_at_the_checkpoint_that_is_used(
    corpus, tmp_path, scores, caplog
):
    """Not of a later one, which is damaged: its score is not known any more."""
    scores([9.0, 8.0, 7.0])
    config = settings(corpus, "training.steps=12", "training.keep_best=2")
    run = train(config, tmp_path / "run")
    best = arrays(run.checkpoints_folder / "step-00000008" / "model.weights.h5")
    damage(run.checkpoints_folder / "step-00000012" / "state.npz", "missing")
    scores([8.5])
    with caplog.at_level(logging.INFO, "tfxformer"):
        train(config, run.path)
    assert "going on from step 8" in caplog.text
    for name, array in arrays(run.weights_file("best")).items():
        np.testing.assert_array_equal(array, best[name])


# --- Disks that are full ---


@pytest.mark.slow
def test_a_full_disk_stops_with_a_message_and_the_run_goes_on_later(
    corpus, tmp_path, monkeypatch
):
    config = settings(corpus, "training.steps=12")
    whole = outcome(train(config, tmp_path / "whole"))
    real, full = os.fsync, []

    def fsync(descriptor):
        real(descriptor)
        full.append(1)
        if len(full) == 8:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(UserError, match="step 8 could not be saved: No space") as error:
        train(config, tmp_path / "run")
    assert "the same command goes on" in str(error.value)
    run = Run(tmp_path / "run")
    assert [p.name for p in run.checkpoints_folder.iterdir()] == ["step-00000004"]
    assert not leftovers(run)
    train(config, run.path)
    assert_same_outcome(outcome(run), whole)


@pytest.mark.slow
def test_a_full_disk_while_metrics_are_written(corpus, tmp_path, monkeypatch):
    config = settings(corpus, "training.steps=8")
    whole = outcome(train(config, tmp_path / "whole"))
    real = trainer.Reporter.scalars

    def scalars(self, step, split, values):
        real(self, step, split, values)
        if step == 5:
            raise UserError(f"{self.metrics_file}: No space left on device")

    monkeypatch.setattr(trainer.Reporter, "scalars", scalars)
    with pytest.raises(UserError, match=r"metrics\.jsonl: No space left"):
        train(config, tmp_path / "run")
    monkeypatch.setattr(trainer.Reporter, "scalars", real)
    assert_same_outcome(outcome(train(config, tmp_path / "run")), whole)


# --- Batches that are not sound ---


@pytest.fixture
def losses(monkeypatch, shared):
    """Makes the loss of given steps what is said, or its gradient not finite."""

    def losses(by_step):
        real = trainer._Trainer._step

        def step(self, number, batches):
            gradients = self.step.gradients

            def changed(*arguments, **options):
                totals, found = gradients(*arguments, **options)
                change = by_step.get(number, {})
                if "factor" in change:
                    change = {"loss": totals.loss * change["factor"]}
                return totals._replace(**change), found

            self.step.gradients = changed
            try:
                return real(self, number, batches)
            finally:
                del self.step.gradients

        monkeypatch.setattr(trainer._Trainer, "_step", step)

    return losses


BAD = {
    "nan": {"loss": float("nan"), "square_norm": float("nan")},
    "infinite": {"loss": float("inf")},
    "gradient": {"square_norm": float("inf")},
    "exploding": {"factor": 50.0},
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_batch_is_kept_and_stops_the_run(bad, corpus, tmp_path, losses):
    losses({7: BAD[bad]})
    config = settings(corpus, "training.steps=12", "training.accumulate=2")
    with pytest.raises(UserError) as error:
        train(config, tmp_path / "run")
    message = str(error.value)
    file = tmp_path / "run/bad_batches/step-00000007.npz"
    assert message.startswith("step 7: the loss is ") and "\n" not in message
    assert str(file) in message and "training.on_bad_batch=skip" in message
    with np.load(file) as batch:
        assert sorted(batch.files) == sorted(
            f"{name}_{i}"
            for name in ("source", "target_in", "target_out")
            for i in "01"
        )
        for i in "01":
            target_in, target_out = batch[f"target_in_{i}"], batch[f"target_out_{i}"]
            assert (target_in[:, 0] == 2).all() and target_in.dtype == np.int32
            # Each token but the last comes in where it went out.
            after = np.where(target_out == 3, 0, target_out)
            np.testing.assert_array_equal(target_in[:, 1:], after[:, :-1])
    # What came before is saved, and unharmed.
    run = Run(tmp_path / "run")
    assert checkpoints.newest(run).step == 6
    for array in arrays(run.weights_file("last")).values():
        assert np.isfinite(array).all()


@pytest.mark.slow
@pytest.mark.parametrize("bad", ["nan", "exploding"])
def test_a_bad_batch_is_skipped_and_a_stopped_run_can_go_on_so(
    bad, corpus, tmp_path, losses, caplog
):
    losses({7: BAD[bad]})
    skip = settings(corpus, "training.steps=12", "training.on_bad_batch=skip")
    with caplog.at_level(logging.WARNING, "tfxformer"):
        skipped = train(skip, tmp_path / "skipped")
    assert "step 7" in caplog.text and "skipped" in caplog.text
    with pytest.raises(UserError):
        train(settings(corpus, "training.steps=12"), tmp_path / "stopped")
    stopped = train(skip, tmp_path / "stopped")
    assert_same_outcome(outcome(stopped), outcome(skipped))
    # The weights have not moved in step 7.
    iterations = outcome(skipped)["optimizer"]["optimizer/00000"]
    assert iterations == 11


def test_a_skipped_step_is_no_part_of_what_is_recorded(corpus, tmp_path, losses):
    losses(dict.fromkeys((1, 2, 5, 10), BAD["nan"]))
    skip = settings(corpus, "training.steps=11", "training.on_bad_batch=skip")
    run = train(skip, tmp_path / "run")
    found = [row for row in rows(run) if row["split"] == "train"]
    assert [row["step"] for row in found] == [5, 10, 11]
    assert all(np.isfinite(row["loss"]) for row in found)


@pytest.mark.slow
def test_weights_that_give_nothing_but_bad_batches_end_a_run(
    corpus, tmp_path, losses, at_step
):
    losses(dict.fromkeys(range(3, 100), BAD["nan"]))
    skip = settings(corpus, "training.steps=90", "training.on_bad_batch=skip")
    at_step([9], terminate)  # a stop in between makes them no fewer
    with pytest.raises(Stopped):
        train(skip, tmp_path / "run")
    with pytest.raises(UserError, match="step 22: 20 bad batches in a row") as error:
        train(skip, tmp_path / "run")
    assert "training.learning_rate" in str(error.value)


@pytest.mark.slow
def test_float16s_overflow_lowers_the_scale_alone(corpus, tmp_path, losses, caplog):
    losses(dict.fromkeys((2, 3), BAD["gradient"]))
    config = settings(corpus, "training.steps=8", "training.precision=float16")
    with caplog.at_level(logging.WARNING, "tfxformer"):
        run = train(config, tmp_path / "run")
    state = outcome(run)["state"]
    assert state["loss_scale"] == 2.0**8 and state["scale_steps"] == 5
    assert not run.bad_batches_folder.exists() and not caplog.records
    assert outcome(run)["optimizer"]["optimizer/00000"] == 6


@pytest.mark.slow
def test_float16_runs_go_on_with_their_scale(corpus, tmp_path, losses, at_step):
    losses({2: BAD["gradient"], 5: BAD["nan"]})
    config = settings(
        corpus,
        "training.steps=8",
        "training.precision=float16",
        "training.on_bad_batch=skip",
    )
    whole = outcome(train(config, tmp_path / "whole"))
    assert whole["state"]["loss_scale"] == 2.0**9
    at_step([3, 5], terminate)
    run, times = until_done(config, tmp_path / "run", Stopped)
    assert times == 2
    assert_same_outcome(outcome(run), whole)


# --- Best, and enough ---


@pytest.fixture
def scores(monkeypatch):
    """Gives validations the perplexities, or BLEU scores, that are said."""

    def scores(values, metric="perplexity"):
        values = iter(values)

        def validate(self, step):
            value = next(values)
            with pytest.MonkeyPatch.context() as patch:
                if metric == "bleu":
                    patch.setattr(self.samples, "bleu", value)
                else:
                    totals = trainer_totals(self, value)
                    patch.setattr(self.step, "evaluate", lambda _: totals)
                return real_validate(self, step)

        monkeypatch.setattr(trainer._Trainer, "_validate", validate)

    def trainer_totals(self, perplexity):
        return self.step.evaluate(self.valid[0])._replace(
            entropy=10 * np.log(perplexity), tokens=10.0
        )

    real_validate = trainer._Trainer._validate
    return scores


@pytest.mark.slow
def test_training_stops_when_it_no_longer_helps(corpus, tmp_path, scores, caplog):
    scores([9.0, 8.0, 8.5, 8.1, 7.0])
    config = settings(corpus, "training.steps=400", "training.patience=2")
    with caplog.at_level(logging.INFO, "tfxformer"):
        run = train(config, tmp_path / "run")
    assert "2 validations in a row did not better the perplexity" in caplog.text
    state = outcome(run)["state"]
    assert state["step"] == 16 and state["best_step"] == 8
    assert state["best_perplexity"] == pytest.approx(8.0)
    # Once more is not once longer; with more patience it is.
    before = outcome(run)
    train(config, run.path)
    assert_same_outcome(outcome(run), before)
    more = settings(corpus, "training.steps=20", "training.patience=9")
    scores([7.0])
    assert outcome(train(more, run.path))["state"]["best_step"] == 20


@pytest.mark.slow
def test_patience_counts_across_stops(corpus, tmp_path, scores, at_step):
    config = settings(corpus, "training.steps=400", "training.patience=3")
    scores([9.0, 8.0, 8.5, 8.1, 8.2])
    whole = outcome(train(config, tmp_path / "whole"))
    assert whole["state"]["step"] == 20
    scores([9.0, 8.0, 8.5, 8.1, 8.2])
    at_step([10, 13, 18], terminate)
    run, times = until_done(config, tmp_path / "run", Stopped)
    assert times == 3
    assert_same_outcome(outcome(run), whole)


def test_bleu_decides_where_it_is_the_metric(corpus, tmp_path, scores, caplog):
    scores([1.0, 3.0, 2.0, 2.5], "bleu")
    config = settings(
        corpus,
        "training.steps=400",
        "training.patience=2",
        "training.metric=bleu",
        "training.bleu_pairs=3",
    )
    with caplog.at_level(logging.INFO, "tfxformer"):
        run = train(config, tmp_path / "run")
    assert "did not better the bleu" in caplog.text
    state = outcome(run)["state"]
    assert (state["step"], state["best_step"], state["best_score"]) == (16, 8, 3.0)
    best = arrays(run.checkpoints_folder / "step-00000008" / "model.weights.h5")
    for name, array in arrays(run.weights_file("best")).items():
        np.testing.assert_array_equal(array, best[name])
    bleu = [row["bleu"] for row in rows(run) if row["split"] == "validation"]
    assert bleu == [1.0, 3.0, 2.0, 2.5]


def test_best_and_last_are_two_checkpoints(corpus, tmp_path, scores):
    scores([5.0, 4.0, 6.0])
    run = train(settings(corpus, "training.steps=12"), tmp_path / "run")
    for name, step in (("best", 8), ("last", 12)):
        folder = run.checkpoints_folder / f"step-{step:08d}"
        expected = arrays(folder / "model.weights.h5")
        for key, array in arrays(run.weights_file(name)).items():
            np.testing.assert_array_equal(array, expected[key])


def test_a_validation_without_a_number_is_never_the_best(corpus, tmp_path, scores):
    scores([float("nan"), 5.0, float("nan")])
    run = train(settings(corpus, "training.steps=12"), tmp_path / "run")
    state = outcome(run)["state"]
    assert state["best_step"] == 8 and state["worse"] == 1
    found = [row["perplexity"] for row in rows(run) if row["split"] == "validation"]
    assert found == [None, pytest.approx(5.0), None]


def test_a_run_without_a_sound_validation_ends_all_the_same(corpus, tmp_path, scores):
    scores([float("nan")])
    run = train(settings(corpus, "training.steps=4"), tmp_path / "run")
    assert run.weights_file("last").exists() and not run.weights_file("best").exists()


# --- Going on with something else ---


def test_other_settings_are_refused_by_name(corpus, tmp_path):
    run = train(settings(corpus, "training.steps=4"), tmp_path / "run")
    before = outcome(run)
    changed = "model.dff=64", "training.seed=1", "training.steps=8"
    with pytest.raises(UserError, match=r"model\.dff was 32 and is 64") as error:
        train(settings(corpus, *changed), run.path)
    assert "training.seed was 0 and is 1" in str(error.value)
    assert "steps" not in str(error.value)
    assert_same_outcome(outcome(run), before)
    assert run.config() == settings(corpus, "training.steps=4")


def test_what_may_change_is_said(corpus, tmp_path, caplog):
    train(settings(corpus, "training.steps=4"), tmp_path / "run")
    changed = "training.steps=6", "training.keep_last=5", "training.patience=3"
    with caplog.at_level(logging.INFO, "tfxformer"):
        run = train(settings(corpus, *changed), tmp_path / "run")
    said = [m for m in caplog.messages if "another setting" in m]
    assert len(said) == 3
    assert "training.steps was 4 and is 6" in caplog.text
    assert run.config() == settings(corpus, *changed)
    assert outcome(run)["state"]["step"] == 6


@pytest.mark.slow
def test_a_run_of_an_older_version_goes_on(corpus, tmp_path):
    """Its settings lack what was added since; what was added is at its default."""
    import yaml

    config = settings(corpus, "training.steps=4")
    run = train(config, tmp_path / "run")
    content = yaml.safe_load(run.config_file.read_text())
    for section, name in (
        ("training", "ema_decay"),
        ("training", "loss_limit"),
        ("model", "activation_dropout"),
    ):
        del content[section][name]
    run.config_file.write_text(yaml.safe_dump(content))
    train(settings(corpus, "training.steps=8"), run.path)
    assert run.config() == settings(corpus, "training.steps=8")
    with pytest.raises(UserError, match=r"training\.ema_decay was 0\.0 and is 0\.9"):
        train(settings(corpus, "training.ema_decay=0.9"), run.path)


@pytest.mark.parametrize("which", ["pairs", "validation", "vocabulary"])
def test_other_data_is_refused_by_name(which, corpus, tmp_path):
    own = write_pairs(tmp_path / "own.tsv", numbers(300))
    valid = write_pairs(tmp_path / "valid.tsv", numbers(400)[300:320])
    changes = f"data.valid='{valid}'", "training.steps=4"
    run = train(settings(own, *changes), tmp_path / "run")
    before = outcome(run)
    if which == "pairs":
        named = write_pairs(own, numbers(299))
    elif which == "validation":
        write_pairs(valid, numbers(400)[300:321])
        named = "validation"
    else:
        other = train(settings(corpus, "training.steps=4"), tmp_path / "other")
        named = shutil.copy(other.tokenizer_file, run.tokenizer_file).name
    with pytest.raises(UserError, match="is not what it was when this run") as error:
        train(settings(own, *changes[:1], "training.steps=8"), run.path)
    assert str(error.value).startswith(str(named))
    assert_same_outcome(outcome(run), before)


@pytest.mark.slow
def test_batches_of_other_shapes_go_on_with_the_next_block(
    corpus, tmp_path, caplog, monkeypatch
):
    """XLA cuts batches in another way: a place in them would be another."""
    run = train(settings(corpus, "training.steps=4"), tmp_path / "run")
    assert outcome(run)["state"]["position"] == {"block": 0, "batch": 4}
    real = trainer.TrainingBatches.__call__
    begun = []

    def call(self, position):
        begun.append(position)
        return real(self, position)

    monkeypatch.setattr(trainer.TrainingBatches, "__call__", call)
    with caplog.at_level(logging.INFO, "tfxformer"):
        train(settings(corpus, "training.steps=5", "training.xla=true"), run.path)
    assert "going on with the next block" in caplog.text
    assert begun == [{"block": 1, "batch": 0}]


# --- Beginning with another run ---


@pytest.fixture(scope="module")
def other(corpus, shared, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        shared.use(patch)
        out = tmp_path_factory.mktemp("other") / "run"
        return train(settings(corpus, "training.steps=12"), out)


@pytest.mark.slow
def test_a_run_begins_where_another_ended(corpus, other, tmp_path, monkeypatch, caplog):
    begun = {}
    real = trainer._Trainer._step

    def step(self, number, batches):
        if number == 1:
            begun["weights"] = [v.numpy() for v in self.model.trainable_variables]
            begun["averages"] = self.step.state()["averages"]
            begun["optimizer"] = self.step.state()["optimizer"]
        return real(self, number, batches)

    monkeypatch.setattr(trainer._Trainer, "_step", step)
    # On other pairs, in other words.
    pairs = write_pairs(tmp_path / "b.tsv", [(s, f"{t} now") for s, t in numbers(200)])
    config = settings(
        pairs,
        f"training.init_from='{other.path}'",
        "training.steps=2",
        "training.ema_decay=0.9",
        "model.dropout_rate=0.3",  # no matter of weights
    )
    with caplog.at_level(logging.INFO, "tfxformer"):
        run = train(config, tmp_path / "run")
    assert f"beginning with the best weights of {other.path}" in caplog.text
    assert run.tokenizer_file.read_bytes() == other.tokenizer_file.read_bytes()
    _, model = other.load("best")
    expected = [v.numpy() for v in model.trainable_variables]
    assert len(expected) == len(begun["averages"]) == len(begun["weights"])
    for name in ("weights", "averages"):
        for array, value in zip(begun[name], expected, strict=True):
            np.testing.assert_array_equal(array, value)
    assert not any(array.any() for array in begun["optimizer"])


@pytest.mark.slow
def test_a_run_that_began_with_another_goes_on_without_it(
    corpus, other, tmp_path, at_step
):
    """The other one may be gone by then."""
    copy = shutil.copytree(other.path, tmp_path / "copy")
    more = f"training.init_from='{copy}'", "training.steps=8"
    whole = outcome(train(settings(corpus, *more), tmp_path / "whole"))
    at_step([5], die)
    with pytest.raises(Killed):
        train(settings(corpus, *more), tmp_path / "run")
    shutil.rmtree(copy)
    assert_same_outcome(
        outcome(train(settings(corpus, *more), tmp_path / "run")), whole
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("model.num_layers=2", "model.num_layers is 1, not 2"),
        ("model.num_decoder_layers=2", "model.num_decoder_layers is 1, not 2"),
        ("model.d_model=32", "model.d_model is 16, not 32"),
        ("model.dff=64", "model.dff is 32, not 64"),
        ("model.norm=post", "model.norm is 'pre', not 'post'"),
        ("model.tie_embeddings=false", "model.tie_embeddings is True, not False"),
        ("model.learned_positions=true", "model.learned_positions is False, not True"),
    ],
)
def test_another_model_is_refused_by_name(change, message, corpus, other, tmp_path):
    config = settings(corpus, f"training.init_from='{other.path}'", change)
    with pytest.raises(UserError) as error:
        train(config, tmp_path / "run")
    assert message in str(error.value) and str(other.path) in str(error.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_longer_sentences_than_the_other_runs_are_no_matter(corpus, other, tmp_path):
    longer = "model.max_length=32", "training.steps=1"
    config = settings(corpus, f"training.init_from='{other.path}'", *longer)
    assert outcome(train(config, tmp_path / "run"))["state"]["step"] == 1


@pytest.mark.slow
def test_a_depth_that_is_named_is_the_same_as_one_that_is_not(corpus, other, tmp_path):
    """A decoder is as deep as the encoder where nothing else is said."""
    named = "model.num_decoder_layers=1", "training.steps=1"
    config = settings(corpus, f"training.init_from='{other.path}'", *named)
    assert outcome(train(config, tmp_path / "run"))["state"]["step"] == 1


def test_a_run_that_is_not_there_cannot_be_begun_with(corpus, tmp_path):
    for path, message in (
        (tmp_path / "none", "training.init_from: .*there is no such run folder"),
        (tmp_path, "training.init_from: .*not a run folder"),
    ):
        config = settings(corpus, f"training.init_from='{path}'")
        with pytest.raises(UserError, match=message):
            train(config, tmp_path / "run")
        assert not (tmp_path / "run").exists()


# --- Refusals ---


@pytest.mark.slow
def test_pairs_that_are_too_long_are_counted(tmp_path, caplog):
    long = [*numbers(300), ("um " * 40 + "fim", "one " * 40 + "end")]
    path = write_pairs(tmp_path / "long.tsv", long)
    with caplog.at_level(logging.INFO, "tfxformer"):
        train(settings(path, "training.steps=1"), tmp_path / "run")
    assert "1 of " in caplog.text and "have more than 23 tokens" in caplog.text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("data.sources=[frasebook]", "did you mean 'phrasebook'"),
        ("data.sources=[]", r"data\.sources is empty"),
        ("data.valid=/nowhere/valid.tsv", "valid.tsv"),
    ],
)
def test_what_cannot_be_is_refused_before_a_folder_is_made(
    corpus, tmp_path, change, message
):
    with pytest.raises(UserError, match=message):
        train(settings(corpus, change), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def few(corpus, tmp_path, monkeypatch):
    small = write_pairs(tmp_path / "small.tsv", [("um", "one")])
    return settings(small), "too few to hold some out"


def full(corpus, tmp_path, monkeypatch):
    def refuse(*_):
        raise MemoryError("no memory")

    monkeypatch.setattr(trainer, "build_model", refuse)
    return settings(corpus), "no memory"


def spoilt(corpus, tmp_path, monkeypatch):
    def refuse(*_):
        raise UserError("damaged")

    monkeypatch.setattr(trainer._Trainer, "_begin", refuse)
    return settings(corpus), "damaged"


@pytest.mark.parametrize("fails", [few, full, spoilt])
def test_a_run_that_fails_before_its_first_step_leaves_no_folder(
    fails, corpus, tmp_path, monkeypatch
):
    config, message = fails(corpus, tmp_path, monkeypatch)
    (tmp_path / "there").mkdir()
    for out in ("there/new/run", "there"):
        with pytest.raises((UserError, MemoryError), match=message):
            train(config, tmp_path / out)
        assert (tmp_path / "there").is_dir() and not (tmp_path / "there/new").exists()


def test_a_quickstart_that_fails_at_once_leaves_no_folder(tmp_path, monkeypatch):
    from tfxformer.quickstart import quickstart

    def refuse(*_):
        raise UserError("damaged")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trainer, "load_data", refuse)
    for options in ({"seed": -1}, {}, {"out": "a/b"}):
        with pytest.raises(UserError):
            quickstart(**options)
        assert not [*tmp_path.iterdir()]


def test_folders_that_are_something_else_are_left_alone(corpus, tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match="neither a run folder nor an empty"):
        train(settings(corpus), tmp_path)
    with pytest.raises(UserError, match="is a file; name a folder"):
        train(settings(corpus), tmp_path / "thesis.txt")
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.slow
def test_a_folder_in_which_another_one_trains_is_refused(corpus, tmp_path):
    run = train(settings(corpus, "training.steps=1"), tmp_path / "run")
    with run.locked(), pytest.raises(UserError) as error:
        train(settings(corpus, "training.steps=2"), run.path)
    message = str(error.value)
    assert message.startswith(f"{run.path}: process {os.getpid()} on ")
    assert "is training in this folder" in message
    train(settings(corpus, "training.steps=2"), run.path)


def test_a_corpus_too_small_to_hold_out_of_says_what_to_do(tmp_path):
    small = write_pairs(tmp_path / "small.tsv", [("um", "one"), ("dois", "two")])
    with pytest.raises(UserError, match="--valid"):
        train(settings(small), tmp_path / "run")
    # And the folder is free for another try.
    small = write_pairs(tmp_path / "larger.tsv", numbers(200))
    train(settings(small, "training.steps=1"), tmp_path / "run")


@pytest.mark.parametrize(
    "file", [".lock", "config.yaml", "tokens", "checkpoints", "metrics.jsonl"]
)
def test_what_cannot_be_written_is_named(file, corpus, tmp_path):
    """A file in the way of a folder, or the other way round."""
    out = tmp_path / "run"
    out.mkdir()
    if file in ("tokens", "checkpoints"):
        (out / file).write_text("mine")
    else:
        (out / file / "mine").mkdir(parents=True)
    if file in ("checkpoints", "metrics.jsonl"):  # or it would be no run's
        settings(corpus, "training.steps=4").save(out / "config.yaml")
    with pytest.raises(UserError) as error:
        train(settings(corpus, "training.steps=4"), out)
    assert str(out / file) in str(error.value) and "\n" not in str(error.value)
