"""A token corpus is what its pairs say, or it is not opened."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tfxformer import token_corpus
from tfxformer.corpora import Pair
from tfxformer.errors import UserError
from tfxformer.token_corpus import (
    TokenCorpus,
    cached_corpus,
    corpus_key,
    write_corpus,
    write_shard,
)
from tfxformer.tokenizer import Tokenizer

PAIRS = [Pair(f"o gato {i}", f"the cat number {i} drinks") for i in range(50)]


@pytest.fixture(scope="module")
def vocabulary():
    return Tokenizer.train([side for pair in PAIRS for side in pair], 340)


@pytest.fixture
def small_shards(monkeypatch):
    monkeypatch.setattr(token_corpus, "PAIRS_PER_SHARD", 7)


@pytest.fixture
def corpus(tmp_path, vocabulary, small_shards):
    return write_corpus(tmp_path / "tokens", [PAIRS], vocabulary, 64, "a key")


def rows_of(corpus):
    """All pairs of ids, read with nothing but the documented layout."""
    rows = []
    for number in range(len(corpus.shard_sizes)):
        lengths, ids = corpus.shard(number)
        assert lengths.dtype == np.int64 and ids.dtype == np.int32
        ids = ids.tolist()
        for source, target in lengths.tolist():
            rows.append((ids[:source], ids[source : source + target]))
            ids = ids[source + target :]
        assert not ids
    return rows


def encoded(vocabulary, pairs):
    return [tuple(vocabulary.encode([*pair])) for pair in pairs]


# --- What is written is what is read ---


def test_pairs_come_back_in_order(corpus, vocabulary):
    assert rows_of(corpus) == encoded(vocabulary, PAIRS)
    assert corpus.shard_sizes == [7] * 7 + [1]
    assert (corpus.pairs, corpus.key, corpus.max_length) == (50, "a key", 64)
    assert corpus.tokenizer_digest == hashlib.sha256(vocabulary.model).hexdigest()
    assert corpus.vocab_size == vocabulary.vocab_size
    assert corpus.counts == {"too_long": 0}
    again = TokenCorpus.open(str(corpus.folder))
    assert rows_of(again) == rows_of(corpus) and vars(again) == vars(corpus)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.lists(st.tuples(st.text(max_size=9), st.text(max_size=9)))),
    st.integers(2, 12),
)
def test_any_pairs_in_any_chunks(tmp_path, vocabulary, small_shards, chunks, longest):
    chunks = [[Pair(*pair) for pair in chunk] for chunk in chunks]
    corpus = write_corpus(tmp_path / "any", iter(chunks), vocabulary, longest, "")
    rows = encoded(vocabulary, [pair for chunk in chunks for pair in chunk])
    fitting = [row for row in rows if max(map(len, row)) <= longest - 1]
    assert rows_of(corpus) == fitting
    assert corpus.pairs == len(fitting)
    assert corpus.counts == {"too_long": len(rows) - len(fitting)}
    assert sum(corpus.shard_sizes) == len(fitting)


def test_ids_beyond_16_bits(tmp_path):
    rows = [([0, 65_535], [1]), ([70_000], [])]
    for name, some in (("small", rows[:1]), ("large", rows)):
        entry = write_shard(tmp_path / name, some)
        assert entry["pairs"] == len(some)
        with np.load(tmp_path / name) as arrays:
            assert arrays["lengths"].dtype == np.uint16
            assert arrays["ids"].dtype == {"small": "u2", "large": "u4"}[name]
            assert arrays["ids"].tolist() == [
                id for row in some for side in row for id in side
            ]


def test_the_same_rows_give_the_same_bytes(tmp_path):
    rows = [([5, 6], [7])]
    entries = [write_shard(tmp_path / "shard.npz", rows)]
    time.sleep(1.1)  # a time stamp would show
    entries.append(write_shard(tmp_path / "shard.npz", rows))
    assert entries[0] == entries[1]


def test_only_a_shard_of_ids_is_in_memory(tmp_path, vocabulary, small_shards):
    taken = []

    def chunks():
        for _ in range(4):
            taken.append(len([*tmp_path.glob(".tokens.part-*/shard-*.npz")]))
            yield PAIRS[:14]

    write_corpus(tmp_path / "tokens", chunks(), vocabulary, 64, "")
    assert taken == [0, 2, 4, 6]


def test_a_folder_that_was_readable_by_others_is(corpus):
    assert corpus.folder.stat().st_mode & 0o777 == 0o755


# --- The cache ---


def write_times(folder):
    return {file.name: file.stat().st_mtime_ns for file in folder.iterdir()}


def cache(folder, pairs, vocabulary, max_length=64):
    key = corpus_key(pairs, vocabulary, max_length)
    return cached_corpus(folder, pairs, vocabulary, max_length, key)


def test_a_cache_is_written_once(tmp_path, vocabulary, small_shards):
    folder = tmp_path / "tokens" / "0"  # neither is there
    first = cache(folder, PAIRS, vocabulary)
    assert rows_of(first) == encoded(vocabulary, PAIRS)
    times = write_times(folder)
    assert vars(cache(folder, list(PAIRS), vocabulary)) == vars(first)
    assert write_times(folder) == times


def test_what_changes_the_ids_changes_the_cache(tmp_path, vocabulary, small_shards):
    other = Tokenizer.train([side for pair in PAIRS for side in pair], 335)
    assert other.model != vocabulary.model
    changed = [*PAIRS[:20], Pair("o rato", PAIRS[20].target), *PAIRS[21:]]
    folder, keys = tmp_path / "tokens", set()
    for pairs, some, longest in [
        (PAIRS, vocabulary, 64),
        (changed, vocabulary, 64),
        (PAIRS[::-1], vocabulary, 64),
        (PAIRS[:-1], vocabulary, 64),
        (PAIRS, other, 64),
        (PAIRS, vocabulary, 8),
    ]:
        corpus = cache(folder, pairs, some, longest)
        rows = encoded(some, pairs)
        assert rows_of(corpus) == [r for r in rows if max(map(len, r)) < longest]
        assert corpus.tokenizer_digest == some.digest
        keys.add(corpus.key)
    assert len(keys) == 6
    assert [file.name for file in tmp_path.iterdir()] == ["tokens"]


def test_a_key_does_not_vouch_for_another_vocabulary(tmp_path, vocabulary):
    other = Tokenizer.train([side for pair in PAIRS for side in pair], 335)
    cached_corpus(tmp_path / "tokens", PAIRS, vocabulary, 64, "key")
    again = cached_corpus(tmp_path / "tokens", PAIRS, other, 64, "key")
    assert rows_of(again) == encoded(other, PAIRS)
    short = cached_corpus(tmp_path / "tokens", PAIRS, other, 8, "key")
    assert short.max_length == 8 and short.pairs < 50


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3)), max_size=3),
    st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3)), max_size=3),
)
@example([("a", "bc")], [("ab", "c")])
@example([("a", "b"), ("c", "d")], [("a", "b1 1 cd")])
@example([("\ud800", "")], [("\ud801", "")])
def test_keys_are_equal_where_pairs_are(vocabulary, one, other):
    keys = [corpus_key(pairs, vocabulary, 64) for pairs in (one, other)]
    assert (keys[0] == keys[1]) == (one == other)


@pytest.mark.parametrize("damage", ["corpus.json", "shard-00003.npz"])
def test_a_cache_that_lost_a_file_is_made_again(corpus, vocabulary, damage):
    folder = corpus.folder
    key = corpus_key(PAIRS, vocabulary, 64)
    cached_corpus(folder, PAIRS, vocabulary, 64, key)
    if damage == "corpus.json":
        (folder / damage).write_text("{")
    else:
        (folder / damage).unlink()
    again = cached_corpus(folder, PAIRS, vocabulary, 64, key)
    assert rows_of(again) == encoded(vocabulary, PAIRS)


# --- Killed, and in the way ---

WRITER = """
import sys, time
from tfxformer import token_corpus
from tfxformer.corpora import Pair
from tfxformer.tokenizer import Tokenizer

token_corpus.PAIRS_PER_SHARD = 7
vocabulary = Tokenizer.load(sys.argv[1])

def chunks():
    for number in range(int(sys.argv[3])):
        yield [Pair(f"o gato {number}", "the cat drinks")] * 7
        print(number, flush=True)
        time.sleep(0.05)

token_corpus.write_corpus(sys.argv[2], chunks(), vocabulary, 64, "killed")
"""


@pytest.mark.parametrize("there", [False, True], ids=["nothing there", "another there"])
def test_a_killed_writer_leaves_no_half_corpus(tmp_path, vocabulary, there):
    vocabulary.save(tmp_path / "tokenizer.model")
    folder = tmp_path / "tokens"
    if there:
        write_corpus(folder, [PAIRS], vocabulary, 64, "old")
    for shards in (1, 3, 6):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, tmp_path / "tokenizer.model", folder, "99"],
            stdout=subprocess.PIPE,
        )
        for _ in range(shards):
            assert writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        if there:
            assert TokenCorpus.open(folder).key == "old"
        else:
            with pytest.raises(UserError, match="no token corpus"):
                TokenCorpus.open(folder)
    # What is left over is no corpus either, and goes once it is old.
    left = [*tmp_path.glob(".tokens.part-*")]
    assert len(left) == 3 and any(part.glob("shard-*") for part in left)
    for part in left:
        with pytest.raises(UserError, match="no token corpus"):
            TokenCorpus.open(part)
    for part in left[:2]:
        os.utime(part, (time.time() - 3600,) * 2)
    write_corpus(folder, [PAIRS], vocabulary, 64, "new")
    assert [*tmp_path.glob(".tokens.part-*")] == left[2:]


def test_an_error_while_writing_leaves_nothing(tmp_path, vocabulary):
    def chunks():
        yield PAIRS
        raise KeyError("from the reader")

    with pytest.raises(KeyError, match="from the reader"):
        write_corpus(tmp_path / "tokens", chunks(), vocabulary, 64, "")
    assert not [*tmp_path.iterdir()]


def test_nothing_but_a_corpus_is_replaced(tmp_path, vocabulary):
    for name in ("file", "folder"):
        (tmp_path / "folder").mkdir(exist_ok=True)
        (tmp_path / "folder" / "letter.txt").write_text("dear")
        (tmp_path / "file").write_text("dear")
        with pytest.raises(UserError, match=f"{name}: is neither"):
            write_corpus(tmp_path / name, [PAIRS], vocabulary, 64, "")
    assert (tmp_path / "folder" / "letter.txt").read_text() == "dear"
    assert (tmp_path / "file").read_text() == "dear"


def test_a_place_that_cannot_be_written(tmp_path, vocabulary):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="tokens: ") as caught:
        write_corpus(tmp_path / "file" / "tokens", [PAIRS], vocabulary, 64, "")
    assert "\n" not in str(caught.value)


# --- Damage ---


def open_error(folder):
    with pytest.raises(UserError) as caught:
        TokenCorpus.open(folder)
    message = str(caught.value)
    assert str(folder) in message and "\n" not in message
    return message


def test_no_corpus(tmp_path):
    assert "no token corpus" in open_error(tmp_path)
    assert "no token corpus" in open_error(tmp_path / "none")
    (tmp_path / "corpus.json").mkdir()
    assert "directory" in open_error(tmp_path)


def test_a_later_format(corpus):
    file = corpus.folder / "corpus.json"
    file.write_text(json.dumps({"format": 2, "anything": "else"}))
    assert "update tfxformer" in open_error(corpus.folder)


@pytest.mark.parametrize("number", [0, 7])
def test_a_missing_shard_is_named(corpus, number):
    (corpus.folder / f"shard-0000{number}.npz").unlink()
    assert f"shard-0000{number}.npz: is missing" in open_error(corpus.folder)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[: len(content) // 2],
        lambda content: content + b"x",
        lambda content: content[:100] + bytes([content[100] ^ 1]) + content[101:],
    ],
    ids=["empty", "half", "longer", "a bit"],
)
def test_a_damaged_shard_is_named(corpus, damage):
    file = corpus.folder / "shard-00002.npz"
    file.write_bytes(damage(file.read_bytes()))
    again = TokenCorpus.open(corpus.folder)
    for number in range(8):
        if number != 2:
            again.shard(number)
    with pytest.raises(UserError, match=r"shard-00002\.npz: damaged: delete "):
        again.shard(2)
    file.unlink()
    with pytest.raises(UserError, match=r"shard-00002\.npz: No such file"):
        again.shard(2)


@pytest.mark.parametrize(
    "arrays",
    [
        {"lengths": np.ones((1, 2), "u2")},
        {"lengths": np.ones((1, 2), "u2"), "ids": np.ones(3, "u2")},
        {"lengths": np.ones((2, 2), "u2"), "ids": np.ones(4, "u2")},
        {"lengths": np.ones(2, "u2"), "ids": np.ones(2, "u2")},
        {"lengths": np.array([["x", "y"]]), "ids": np.ones(2, "u2")},
        {"lengths": np.array([[1, 1]], object), "ids": np.ones(2, "u2")},
    ],
)
def test_a_shard_of_another_shape_is_damaged(tmp_path, corpus, arrays):
    file = corpus.folder / "shard-00007.npz"  # of one pair
    np.savez_compressed(file, **arrays)
    content = json.loads((corpus.folder / "corpus.json").read_text())
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    content["shards"][7]["sha256"] = digest
    (corpus.folder / "corpus.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"shard-00007\.npz: damaged"):
        TokenCorpus.open(corpus.folder).shard(7)


def good_content():
    return {
        "format": 1,
        "key": "k",
        "tokenizer": "0" * 64,
        "vocab_size": 300,
        "max_length": 64,
        "pairs": 2,
        "counts": {"too_long": 1},
        "shards": [{"file": "shard-00000.npz", "pairs": 2, "sha256": "0" * 64}],
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5) | st.sampled_from(["file"]), inner)
    ),
    max_leaves=5,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from([*good_content()]), value=JSON)
@example("shards", [{"file": "../shard-00000.npz", "pairs": 2, "sha256": "x"}])
@example("shards", [{"file": "", "pairs": 2, "sha256": "x"}])
@example("shards", [{"file": "\x00", "pairs": 2, "sha256": "x"}])
@example("shards", {"0": 1})
@example("shards", "")
@example("format", True)
@example("pairs", 3)
def test_any_corpus_json_opens_or_is_refused(tmp_path, name, value):
    (tmp_path / "shard-00000.npz").write_bytes(b"")
    content = {**good_content(), name: value}
    (tmp_path / "corpus.json").write_text(json.dumps(content))
    good = good_content()[name]
    may_be = {
        "key": isinstance(value, str),
        "tokenizer": isinstance(value, str),
        "counts": isinstance(value, dict),
        "vocab_size": type(value) is int and value >= 0,
        "max_length": type(value) is int and value >= 0,
    }
    if may_be.get(name, value == good and type(value) is type(good)):
        assert TokenCorpus.open(tmp_path).pairs == 2
    else:
        open_error(tmp_path)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=60) | JSON.map(lambda x: json.dumps(x).encode()))
@example(b"[" * 100_000)
@example(b"\xff")
@example(b"null")
def test_any_bytes_for_corpus_json_are_refused(tmp_path, content):
    (tmp_path / "corpus.json").write_bytes(content)
    open_error(tmp_path)


def test_a_corpus_json_without_one_of_its_parts(tmp_path):
    (tmp_path / "shard-00000.npz").write_bytes(b"")
    for name in good_content():
        content = good_content()
        del content[name]
        (tmp_path / "corpus.json").write_text(json.dumps(content))
        assert "damaged" in open_error(tmp_path)
    for name in ("file", "pairs", "sha256"):
        content = good_content()
        del content["shards"][0][name]
        (tmp_path / "corpus.json").write_text(json.dumps(content))
        assert "damaged" in open_error(tmp_path)
