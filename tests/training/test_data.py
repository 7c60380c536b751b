"""From the names of sources to training and validation pairs."""

import logging

import numpy as np
import pytest
from training_runs import numbers, settings, write_pairs

from tfxformer.errors import UserError
from tfxformer.training import data as training_data
from tfxformer.training.data import load_data, open_data
from tfxformer.training.run import Run, build_model

PAIRS = numbers(300)


@pytest.fixture
def run(tmp_path):
    run = Run(tmp_path / "run")
    run.path.mkdir()
    return run


@pytest.fixture
def corpus(tmp_path):
    return write_pairs(tmp_path / "pairs.tsv", PAIRS)


def texts(data):
    """All training pairs, as text."""
    pairs = data.tokens.pairs(np.arange(len(data.tokens)))
    sides = data.tokenizer.decode(pairs.to_lists(slice(None)))
    return {*zip(sides[::2], sides[1::2], strict=True)}


def test_validation_pairs_share_no_sentence_with_training_pairs_of_any_source(
    corpus, tmp_path, run
):
    # The second one has some of the first one's pairs, and others of their targets.
    more = PAIRS[:150] + [(f"zero {source}", target) for source, target in PAIRS[:20]]
    other = write_pairs(tmp_path / "other.tsv", more)
    data = load_data(settings([corpus, other]), run)
    assert 19 <= len(data.valid) <= 22 and len(data.valid_rows) == len(data.valid)
    found, known = texts(data), {*PAIRS, *more}
    assert found and known.issuperset(found) and known.issuperset(data.valid)
    for side in (0, 1):
        assert not {pair[side] for pair in data.valid} & {pair[side] for pair in found}
    for pair, rows in zip(data.valid, data.valid_rows, strict=True):
        assert tuple(data.tokenizer.encode([*pair])) == rows


def test_each_language_may_have_its_own_vocabulary(corpus, run):
    config = settings([corpus]).updated(tokenizer={"shared": False})
    data = load_data(config, run)
    source, target = data.tokenizer.sides
    assert source.model != target.model and run.tokenizer().digest == source.digest
    rows = data.tokens.pairs(np.arange(len(data.tokens))).to_lists(slice(None))
    pairs = zip(source.decode(rows[::2]), target.decode(rows[1::2]), strict=True)
    assert {*PAIRS} == {*pairs, *data.valid}
    model = build_model(config, data.tokenizer)
    assert model.config["tie_embeddings"] == "target"
    sizes = [model.config[f"{side}_vocab_size"] for side in ("input", "target")]
    assert sizes == [source.vocab_size, target.vocab_size]


def test_a_restarted_run_reads_its_stored_tokens_and_not_the_pairs(
    corpus, run, monkeypatch
):
    first = load_data(settings(corpus), run)
    monkeypatch.setattr(training_data, "_read_pairs", lambda _: 1 / 0)
    again = load_data(settings(corpus, "data.weights=[1]"), run)
    assert again.digests([corpus]) == first.digests([corpus])
    assert texts(again) == texts(first) and open_data(run).valid == first.valid


def test_changed_or_damaged_data_is_tokenized_again_with_the_run_s_vocabulary(
    corpus, run
):
    first = load_data(settings(corpus), run)
    # A resumed run keeps its vocabulary.
    run.save_checkpoint({"step": 1, "best_step": 0}, {"model.weights.h5": _touch}, 1)
    write_pairs(corpus, [*PAIRS[:-1], ("nove", "nine")])
    second = load_data(settings(corpus), run)
    assert second.digests([corpus]) != first.digests([corpus])
    assert second.tokenizer.digest == first.tokenizer.digest
    assert ("nove", "nine") in texts(second) | {*second.valid}
    (run.tokens_folder / "ids.bin").write_bytes(b"")
    assert texts(load_data(settings(corpus), run)) == texts(second)


def _touch(path):
    path.touch()


def test_too_long_pairs_are_logged_and_data_without_other_pairs_is_refused(
    corpus, run, caplog
):
    caplog.set_level(logging.INFO, "tfxformer")
    data = load_data(settings(corpus, "model.max_length=6"), run)
    left_out = data.tokens.sources[0]["too_long"]
    assert left_out > 0 and f"{left_out} of " in caplog.text
    write_pairs(corpus, [pair for pair in PAIRS if len(pair[0].split()) > 5])
    with pytest.raises(UserError, match=r"raise model\.max_length = 4"):
        load_data(settings(corpus, "model.max_length=4"), run)
