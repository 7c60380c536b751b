"""From the sources' names to what a run trains and validates on."""

import logging

import numpy as np
import pytest
from training_runs import numbers, settings, write_pairs

from tfxformer.errors import UserError
from tfxformer.run import Run
from tfxformer.training.data import check_sources, load_data, open_data

PAIRS = numbers(300)


def numbers_of_words(count):
    """Pairs of no fewer words on a side."""
    return [pair for pair in PAIRS if len(pair[0].split()) >= count]


@pytest.fixture
def run(tmp_path):
    run = Run(tmp_path / "run")
    run.path.mkdir()
    return run


@pytest.fixture
def corpus(tmp_path):
    return write_pairs(tmp_path / "pairs.tsv", PAIRS)


def texts(data, number=0):
    """The pairs of one of the corpora, as text."""
    corpus, decode = data.corpora[number], data.vocabulary.decode
    found = set()
    for number in range(len(corpus.shard_sizes)):
        lengths, ids = corpus.shard(number)
        sides = decode(np.split(ids, np.cumsum(lengths.ravel())[:-1]))
        found |= {*zip(sides[::2], sides[1::2], strict=True)}
    return found


def of(source, *more):
    return settings(source, "tokenizer.vocab_size=330", "data.valid_pairs=10", *more)


def test_what_is_held_out_is_in_no_corpus(corpus, tmp_path, run):
    # The second one has some of the first one's pairs, and others of their targets.
    more = PAIRS[:150] + [(f"zero {source}", target) for source, target in PAIRS[:20]]
    other = write_pairs(tmp_path / "other.tsv", more)
    config = of(corpus, f"data.sources=['{corpus}','{other}']")
    data = load_data(config, run)
    assert 10 <= len(data.valid) <= 12 and len(data.valid_rows) == len(data.valid)
    known = {*PAIRS, *more}
    assert known.issuperset(data.valid)
    sources, targets = ({pair[side] for pair in data.valid} for side in (0, 1))
    for number in (0, 1):
        found = texts(data, number)
        assert found and known.issuperset(found)
        assert not sources & {source for source, _ in found}
        assert not targets & {target for _, target in found}
    for pair, rows in zip(data.valid, data.valid_rows, strict=True):
        assert [data.vocabulary.encode([side])[0] for side in pair] == [*rows]


def test_only_the_first_start_tokenises(corpus, run, monkeypatch):
    first = load_data(of(corpus), run)
    monkeypatch.setattr("tfxformer.token_corpus._write", lambda *_: 1 / 0)
    again = load_data(of(corpus), run)
    assert again.keys() == first.keys() and texts(again) == texts(first)


def test_a_stale_cache_is_never_used(corpus, run):
    first = load_data(of(corpus), run)
    write_pairs(corpus, [*PAIRS[:-1], ("nove", "nine")])
    second = load_data(of(corpus), run)
    assert second.keys() != first.keys()
    assert ("nove", "nine") in texts(second) | {*second.valid}
    run.tokenizer_file.unlink()
    third = load_data(of(corpus, "tokenizer.casing=lower"), run)
    assert third.corpora[0].tokenizer_digest != second.corpora[0].tokenizer_digest
    fourth = load_data(of(corpus, "model.max_length=16"), run)
    assert fourth.corpora[0].max_length == 16


def test_another_process_opens_what_one_has_left(corpus, run):
    data = load_data(of(corpus), run)
    found = open_data(of(corpus), run, [[*pair] for pair in data.valid])
    assert found.keys() == data.keys() and texts(found) == texts(data)
    assert found.valid == data.valid and found.valid_rows == data.valid_rows


def test_what_is_too_long_is_counted_and_nothing_left_is_an_error(corpus, run, caplog):
    logger = logging.getLogger("tfxformer")
    logger.addHandler(caplog.handler)
    caplog.set_level(logging.INFO, "tfxformer")
    try:
        data = load_data(of(corpus, "model.max_length=6"), run)
    finally:
        logger.removeHandler(caplog.handler)
    left_out = data.corpora[0].counts["too_long"]
    assert left_out > 0 and f"{left_out} of " in caplog.text
    write_pairs(corpus, numbers_of_words(5))
    with pytest.raises(UserError, match=r"raise model\.max_length = 4"):
        load_data(of(corpus, "model.max_length=4"), run)


def test_a_folder_that_is_no_corpus_is_named(tmp_path, run):
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match=f"{tmp_path}/folder"):
        check_sources(of(tmp_path / "folder"))
    with pytest.raises(UserError, match=r"data\.sources is empty"):
        check_sources(of("x", "data.sources=[]"))
