"""The training run: the same from a seed, going on where it stood, refusing early."""

import json
import logging

import numpy as np
import pytest
import tensorflow as tf

from tfxformer.config import load_config
from tfxformer.corpora.pair import Pair
from tfxformer.errors import UserError
from tfxformer.run import Run
from tfxformer.training import trainer
from tfxformer.training.trainer import read_pairs, train

TINY = [
    "model.num_layers=1",
    "model.d_model=16",
    "model.num_heads=2",
    "model.dff=32",
    "model.max_length=24",
    "tokenizer.vocab_size=400",
    "training.tokens_per_batch=256",
    "training.warmup_steps=20",
    "training.validate_every=4",
]


def numbers(count):
    """A corpus of its own: numbers, and what they are called here."""
    words = ["zero", "um", "dois", "três", "quatro", "cinco", "seis", "sete", "oito"]
    english = ["nought", "one", "two", "three", "four", "five", "six", "seven", "eight"]
    rng = np.random.default_rng(0)
    rows = {tuple(rng.integers(0, 9, rng.integers(2, 7))) for _ in range(2 * count)}
    return [
        (" ".join(words[i] for i in row), " ".join(english[i] for i in row))
        for row in sorted(rows)[:count]
    ]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "numbers.tsv"
    lines = [f"{source}\t{target}\n" for source, target in numbers(400)]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def settings(corpus, *more):
    return load_config("tiny", overrides=[*TINY, f"data.sources=['{corpus}']", *more])


def weights(run, name="last"):
    import h5py

    found = {}
    with h5py.File(run.weights_file(name)) as file:
        file.visititems(
            lambda name, item: (
                found.__setitem__(name, item[()]) if hasattr(item, "shape") else None
            )
        )
    return found


def test_a_run_folder_holds_all_it_takes(corpus, tmp_path):
    run = train(settings(corpus, "training.steps=6"), tmp_path / "run")
    for name in ("config.yaml", "tokenizer.model", "metrics.jsonl", "state.json"):
        assert (run.path / name).stat().st_size
    tokenizer, model = run.load("best")
    assert run.load("last")[1].count_params() == model.count_params()
    assert tokenizer.vocab_size == model.target_vocab_size
    assert run.config() == settings(corpus, "training.steps=6")

    rows = [json.loads(line) for line in run.metrics_file.read_text().splitlines()]
    splits = [(row["step"], row["split"]) for row in rows]
    assert splits == [(4, "validation"), (6, "train"), (6, "validation")]
    for row in rows:
        assert row["perplexity"] > 1 and 0 <= row["masked_accuracy"] <= 1
    assert rows[1]["target_tokens_per_second"] > 0 and rows[1]["learning_rate"] > 0

    (events,) = run.tensorboard_folder.iterdir()
    tags = {
        value.tag
        for record in tf.data.TFRecordDataset(str(events))
        for value in tf.compat.v1.Event.FromString(record.numpy()).summary.value
    }
    assert {"train/loss", "validation/perplexity", "train/learning_rate"} <= tags


def test_two_runs_from_one_seed_are_the_same(corpus, tmp_path):
    one, two, other = (
        weights(train(settings(corpus, "training.steps=8", seed), tmp_path / name))
        for name, seed in (
            ("one", "training.seed=3"),
            ("two", "training.seed=3"),
            ("other", "training.seed=4"),
        )
    )
    assert one.keys() == two.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], two[name], err_msg=name)
    assert any((one[name] != other[name]).any() for name in one)


def test_a_run_goes_on_with_the_data_and_the_optimiser_where_they_stood(
    corpus, tmp_path
):
    """Without dropout, stopping and going on changes nothing at all."""
    still = "model.dropout_rate=0"
    whole = train(settings(corpus, "training.steps=12", still), tmp_path / "whole")
    half = train(settings(corpus, "training.steps=8", still), tmp_path / "half")
    assert half.load_state()["step"] == 8
    train(settings(corpus, "training.steps=12", still), tmp_path / "half")
    assert half.load_state() == whole.load_state()
    expected, got = weights(whole), weights(half)
    for name in expected:
        np.testing.assert_array_equal(got[name], expected[name], err_msg=name)


def test_a_finished_run_does_nothing_more(corpus, tmp_path, caplog):
    run = train(settings(corpus, "training.steps=4"), tmp_path / "run")
    before = run.weights_file("last").read_bytes()
    with caplog.at_level(logging.INFO, "tfxformer"):
        train(settings(corpus, "training.steps=4"), tmp_path / "run")
    assert "has its 4 steps already" in caplog.text
    assert run.weights_file("last").read_bytes() == before


def test_other_settings_are_refused_by_name(corpus, tmp_path):
    train(settings(corpus, "training.steps=4"), tmp_path / "run")
    with pytest.raises(UserError, match=r"model\.dff was 32 and is 64") as error:
        train(settings(corpus, "model.dff=64", "training.steps=8"), tmp_path / "run")
    assert "steps" not in str(error.value)


def test_training_stops_when_it_no_longer_helps(corpus, tmp_path, monkeypatch):
    perplexities = iter([9.0, 8.0, 8.5, 8.1, 7.0])
    real = trainer.make_steps

    def with_fixed_perplexity(model):
        step, test = real(model)
        state = {}

        def fixed(batch):
            logs = test(batch)
            # One value a validation, however many batches it has.
            key = int(model.optimizer.iterations)
            if key not in state:
                state[key] = next(perplexities)
            return logs | {"perplexity": state[key]}

        return step, fixed

    monkeypatch.setattr(trainer, "make_steps", with_fixed_perplexity)
    config = settings(corpus, "training.steps=400", "training.patience=2")
    state = train(config, tmp_path / "run").load_state()
    assert state["step"] == 16 and state["best_step"] == 8
    assert state["best_perplexity"] == 8.0


def test_best_and_last_are_two_checkpoints(corpus, tmp_path, monkeypatch):
    run = Run(tmp_path / "run")
    saved = []
    monkeypatch.setattr(
        Run,
        "save_checkpoint",
        lambda self, model, state, names: saved.append((state["step"], list(names))),
    )
    values = iter([5.0, 6.0, 4.0])
    real = trainer.make_steps

    def with_fixed_perplexity(model):
        step, test = real(model)
        state = {}
        return (
            step,
            lambda batch: (
                test(batch)
                | {
                    "perplexity": state.setdefault(
                        int(model.optimizer.iterations), None
                    )
                    or state.__setitem__(int(model.optimizer.iterations), next(values))
                    or state[int(model.optimizer.iterations)]
                }
            ),
        )

    monkeypatch.setattr(trainer, "make_steps", with_fixed_perplexity)
    train(settings(corpus, "training.steps=12"), run.path)
    assert saved == [(4, ["last", "best"]), (8, ["last"]), (12, ["last", "best"])]


def test_held_out_pairs_are_in_no_training_sentence(corpus, tmp_path):
    second = tmp_path / "second.tsv"
    shared = numbers(400)[::3]
    second.write_text("".join(f"{s}\t{t}\n" for s, t in shared), encoding="utf-8")
    config = settings(corpus, "training.seed=1")
    config.data.sources.append(str(second))
    sources, valid = read_pairs(config)
    assert len(sources) == 2 and len(valid) >= 20
    for side in (0, 1):
        seen = {pair[side] for pairs in sources for pair in pairs}
        assert not seen & {pair[side] for pair in valid}


def test_validation_pairs_can_be_named(corpus, tmp_path):
    named = tmp_path / "valid.tsv"
    named.write_text("nove\tnine\n", encoding="utf-8")
    sources, valid = read_pairs(settings(corpus, f"data.valid='{named}'"))
    assert valid == [Pair("nove", "nine")] and len(sources[0]) == 400


def test_the_other_direction(corpus):
    sources, _ = read_pairs(settings(corpus, "data.reverse=true"))
    assert any("nought" in pair.source for pair in sources[0])
    assert any("zero" in pair.target for pair in sources[0])


def test_pairs_that_are_too_long_are_counted(corpus, tmp_path, caplog):
    long = tmp_path / "long.tsv"
    rows = [*numbers(300), ("um " * 40 + "fim", "one " * 40 + "end")]
    long.write_text("".join(f"{s}\t{t}\n" for s, t in rows), encoding="utf-8")
    with caplog.at_level(logging.INFO, "tfxformer"):
        train(settings(long, "training.steps=4"), tmp_path / "run")
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


def test_folders_that_are_something_else_are_left_alone(corpus, tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match="neither a run folder nor an empty"):
        train(settings(corpus), tmp_path)
    with pytest.raises(UserError, match="neither a run folder nor an empty"):
        train(settings(corpus), tmp_path / "thesis.txt")
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_corpus_too_small_to_hold_out_of_says_what_to_do(tmp_path):
    small = tmp_path / "small.tsv"
    small.write_text("um\tone\ndois\ttwo\n", encoding="utf-8")
    with pytest.raises(UserError, match="--valid"):
        train(settings(small), tmp_path / "run")
