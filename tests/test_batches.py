"""Batches hold every pair as it is, within their budget, in no order but chance."""

import json
import threading
import time
import tracemalloc
from collections import Counter, defaultdict
from itertools import chain, islice, pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tfxformer import batches
from tfxformer.batches import TrainingBatches, evaluation_batches, prefetch
from tfxformer.errors import UserError
from tfxformer.token_corpus import TokenCorpus, write_corpus, write_shard
from tfxformer.tokenizer import Tokenizer

WORDS = "o gato bebe leite a casa azul e o mar the cat drinks milk"
MAX_LENGTH = 64
SMALL = {"tokens_per_batch": 1024, "max_length": MAX_LENGTH}


def make_rows(count, seed=0, longest=MAX_LENGTH - 1):
    """Distinct pairs of ids; lengths as in real text, the two sides nearly alike."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(rng.lognormal(2.7, 0.6, count), 3, longest)
    both = np.clip(lengths[:, None] * rng.normal(1, 0.15, (count, 2)), 3, longest)
    return [
        tuple(
            [*rng.integers(10, 1000, n - 2).tolist(), 1000 + i // 1000, i % 1000 + 4]
            for n in pair
        )
        for i, pair in enumerate(both.astype(int))
    ]


def make_corpus(folder, rows, shard=None, digest="0" * 64, max_length=MAX_LENGTH):
    """A corpus of ids, written as its format says."""
    folder.mkdir(parents=True)
    size = shard or max(len(rows), 1)
    parts = [rows[i : i + size] for i in range(0, len(rows), size)]
    shards = [
        write_shard(folder / f"{number}.npz", part) for number, part in enumerate(parts)
    ]
    content = {"format": 1, "key": "", "tokenizer": digest, "vocab_size": 5000}
    content |= {"max_length": max_length, "pairs": len(rows), "counts": {}}
    (folder / "corpus.json").write_text(json.dumps({**content, "shards": shards}))
    return TokenCorpus.open(folder)


@pytest.fixture(scope="module")
def rows():
    return make_rows(3000)


@pytest.fixture(scope="module")
def corpus(rows, tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("corpora") / "3000", rows, shard=700)


@pytest.fixture(scope="module")
def epochs(corpus):
    """The batches of four epochs."""
    some = TrainingBatches([corpus], **SMALL)
    return [take_block(some, number) for number in range(4)]


def take_block(some, block):
    """The batches of one block: where it holds all pairs, of one epoch."""
    taken = []
    for batch, position in some({"block": block, "batch": 0}):
        taken.append(batch)
        if position["block"] > block:
            assert position == {"block": block + 1, "batch": 0}
            return taken
        assert position == {"block": block, "batch": len(taken)}


def read(batch):
    """The pairs of ids of a batch, after a look at every token of it."""
    (source, target_in), target_out = batch
    for side in (source, target_in, target_out):
        assert isinstance(side, np.ndarray) and side.dtype == np.int32
    assert len(source) == len(target_in) and target_in.shape == target_out.shape
    pairs = []
    for sides in zip(
        source.tolist(), target_in.tolist(), target_out.tolist(), strict=True
    ):
        ids = [[id for id in side if id] for side in sides]
        for side, real in zip(sides, ids, strict=True):  # padding is to the right
            assert side == real + [0] * (len(side) - len(real))
        if not any(ids):
            pairs.append(None)
            continue
        source_ids, teacher, wanted = ids
        assert source_ids.pop() == wanted.pop() == 3
        assert teacher.pop(0) == 2 and teacher == wanted
        pairs.append((source_ids, teacher))
    return pairs


def check_shape(batch, tokens_per_batch):
    (source, _), target = batch
    for side in (source, target):
        assert side.size <= tokens_per_batch or len(side) == 1
        # No wider than its longest row.
        assert (side != 0).any(axis=0).all()


def as_tuples(rows):
    return [None if row is None else tuple(map(tuple, row)) for row in rows]


def all_pairs(some):
    return as_tuples(chain.from_iterable(map(read, some)))


# --- The form of a batch ---


def test_the_form_of_a_batch(tmp_path):
    rows = [([10, 11], [20]), ([12], [21, 22, 23]), ([], [])]
    corpus = make_corpus(tmp_path / "three", rows)
    [((source, target_in), target_out)] = take_block(
        TrainingBatches([corpus], tokens_per_batch=64, max_length=8), 0
    )
    order = np.argsort(-source[:, 0] - 100 * (target_out[:, 0] == 20))  # 10 11, 12, 3
    assert source[order].tolist() == [[10, 11, 3], [12, 3, 0], [3, 0, 0]]
    assert target_in[order].tolist() == [[2, 20, 0, 0], [2, 21, 22, 23], [2, 0, 0, 0]]
    assert target_out[order].tolist() == [[20, 3, 0, 0], [21, 22, 23, 3], [3, 0, 0, 0]]


def test_static_shapes_fill_up_with_padding(tmp_path):
    corpus = make_corpus(tmp_path / "two", [([10, 11], [20]), ([12], [])])
    some = TrainingBatches(
        [corpus], tokens_per_batch=33, max_length=64, static_shapes=True
    )
    [((source, target_in), target_out)] = take_block(some, 0)
    assert source.shape == target_in.shape == target_out.shape == (4, 8)
    pairs = read(((source, target_in), target_out))
    assert sorted(pairs[:2]) == [([10, 11], [20]), ([12], [])]
    assert pairs[2:] == [None, None]


side = st.lists(st.integers(4, 99), max_size=12)


@settings(
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    rows=st.lists(st.tuples(side, side), min_size=1, max_size=60),
    shard=st.integers(1, 20),
    block=st.integers(1, 70),
    tokens_per_batch=st.integers(1, 100),
    static_shapes=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
@example([([4] * 12, [])] * 2, 1, 1, 1, True, 0)
def test_every_epoch_has_every_pair_once(
    tmp_path_factory, rows, shard, block, tokens_per_batch, static_shapes, seed
):
    corpus = make_corpus(tmp_path_factory.mktemp("any") / "corpus", rows, shard)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "BLOCK_PAIRS", block)
        some = TrainingBatches(
            [corpus],
            tokens_per_batch=tokens_per_batch,
            max_length=13,
            static_shapes=static_shapes,
            seed=seed,
        )
        blocks = -(-len(rows) // block)  # of an epoch
        for epoch in range(2):
            taken = []
            for number in range(epoch * blocks, (epoch + 1) * blocks):
                part = take_block(some, number)
                pairs = all_pairs(part)
                assert len([pair for pair in pairs if pair]) <= block
                taken += pairs
                for batch in part:
                    if not static_shapes:
                        check_shape(batch, tokens_per_batch)
            assert static_shapes or None not in taken
            real = [pair for pair in taken if pair]
            assert sorted(real) == sorted(as_tuples(rows))


def test_the_budget_is_kept_and_used(epochs):
    for batch in chain(*epochs):
        check_shape(batch, 1024)
    fullest = [max(inputs[0].size, out.size) for inputs, out in chain(*epochs)]
    assert np.mean(fullest) > 0.9 * 1024


def padding(some):
    sides = [side for (source, _), out in some for side in (source, out)]
    return 1 - sum(map(np.count_nonzero, sides)) / sum(side.size for side in sides)


def test_hardly_anything_is_padding(epochs, corpus, rows):
    assert padding(chain(*epochs)) < 0.13  # of a corpus as small as 3,000 pairs
    in_order = evaluation_batches(corpus, **SMALL)
    assert padding(in_order) <= padding(epochs[0])
    # As they come, it is many times as much.
    as_they_come = [
        evaluation_batches(rows[i : i + 16], tokens_per_batch=10**6, max_length=64)
        for i in range(0, 3000, 16)
    ]
    assert padding(chain(*as_they_come)) > 3 * padding(epochs[0])


def test_a_large_corpus_is_hardly_padded(tmp_path):
    corpus = make_corpus(tmp_path / "large", make_rows(40_000, seed=5))
    assert padding(take_block(TrainingBatches([corpus], **SMALL), 0)) < 0.035


def test_static_shapes_are_few(tmp_path):
    corpus = make_corpus(
        tmp_path / "long", make_rows(6000, longest=127), 700, max_length=128
    )
    some = TrainingBatches(
        [corpus], tokens_per_batch=2048, max_length=128, static_shapes=True
    )
    taken = [*take_block(some, 0), *take_block(some, 1)]
    shapes = {inputs[0].shape for inputs, _ in taken}
    assert 5 < len(shapes) <= 12
    for count, width in shapes:
        assert count == 2048 // width and width <= 128
    widths = sorted(width for _, width in shapes)
    assert all(b / a <= 1.5 for a, b in pairwise(widths))
    for (source, target_in), target_out in taken:
        assert source.shape == target_in.shape == target_out.shape
    # Only the last batch of a block may have rows to spare.
    spare = [None in read(batch) for batch in taken]
    assert sum(spare) <= 2
    assert Counter(p for p in all_pairs(taken) if p) == Counter(
        2 * as_tuples(make_rows(6000, longest=127))
    )
    assert padding(taken) < 0.25


def test_pairs_beyond_max_length_are_left_out(corpus, rows):
    fitting = [row for row in rows if max(map(len, row)) < 20]
    assert 0 < len(fitting) < len(rows)
    some = TrainingBatches([corpus], tokens_per_batch=256, max_length=20)
    assert Counter(all_pairs(take_block(some, 0))) == Counter(as_tuples(fitting))


# --- The order ---


def order_of(some, rows):
    """For each pair, in which batch it is."""
    numbers = {row: number for number, row in enumerate(as_tuples(rows))}
    order = np.full(len(rows), -1)
    for number, batch in enumerate(some):
        order[[numbers[pair] for pair in as_tuples(read(batch))]] = number
    assert (order >= 0).all()
    return order


def shared(first, second):
    """Of pairs that share a batch in one epoch, how many do so in the other."""
    both = Counter(zip(first.tolist(), second.tolist(), strict=True))
    alone = Counter(first.tolist())
    return sum(n * (n - 1) for n in both.values()) / sum(
        n * (n - 1) for n in alone.values()
    )


def test_epochs_and_seeds_differ_in_order_and_in_batches(epochs, corpus, rows):
    other = take_block(TrainingBatches([corpus], **SMALL, seed=1), 0)
    orders = [order_of(some, rows) for some in [*epochs, other]]
    for i, first in enumerate(orders):
        # No trace of the order in which they were given, nor of another epoch's.
        assert abs(np.corrcoef(first, np.arange(len(rows)))[0, 1]) < 0.1
        for second in orders[:i]:
            assert abs(np.corrcoef(first, second)[0, 1]) < 0.25
            assert shared(first, second) < 0.6
    assert shared(orders[0], orders[0]) == 1


def test_each_epoch_has_other_pairs_in_its_blocks(tmp_path, monkeypatch):
    """Or the same pairs would meet in batches for ever."""
    monkeypatch.setattr(batches, "BLOCK_PAIRS", 150)
    # Blocks of half a shard, and of ten shards.
    for name, shard in (("half", 300), ("ten", 15)):
        corpus = make_corpus(tmp_path / name, make_rows(600), shard)
        some = TrainingBatches([corpus], **SMALL)
        blocks = [{*all_pairs(take_block(some, block))} for block in range(12)]
        assert {len(block) for block in blocks} == {150}
        for first in range(0, 12, 4):
            assert len(set.union(*blocks[first : first + 4])) == 600
            for block in blocks[first : first + 4]:
                for other in blocks[:first]:
                    # A quarter of one is in another by chance.
                    assert len(block & other) < 150


def test_length_is_no_curriculum(epochs):
    for some in epochs:
        widths = np.array([inputs[0].shape[1] for inputs, _ in some])
        assert len(widths) > 50 and widths.std() > 5
        assert abs(np.corrcoef(widths, np.arange(len(widths)))[0, 1]) < 0.4
        # Neighbours are no more alike than any two.
        assert abs(np.corrcoef(widths[:-1], widths[1:])[0, 1]) < 0.4
    means = [
        np.corrcoef([inputs[0].shape[1] for inputs, _ in some], np.arange(len(some)))[
            0, 1
        ]
        for some in epochs
    ]
    assert abs(np.mean(means)) < 0.2


def test_the_seed_settles_everything(corpus):
    def first(seed):
        return as_lists(islice(TrainingBatches([corpus], **SMALL, seed=seed)(), 10))

    assert first(2**32 - 1) == first(2**32 - 1) != first(0)


def test_one_pair_is_enough(tmp_path):
    corpus = make_corpus(tmp_path / "one", [([10], [20, 21])])
    taken = [*islice(TrainingBatches([corpus], **SMALL)(), 3)]
    assert [all_pairs([batch]) for batch, _ in taken] == [[((10,), (20, 21))]] * 3
    assert [position["block"] for _, position in taken] == [1, 2, 3]


# --- Going on ---


def as_lists(taken):
    return [
        ([side.tolist() for side in (*inputs, out)], position)
        for (inputs, out), position in taken
    ]


@pytest.fixture(scope="module")
def vocabulary():
    lines = ["o gato bebe leite", "a casa azul e o mar", "the cat drinks milk"]
    return Tokenizer.train(lines * 30, 330)


@pytest.fixture(scope="module")
def spoken(vocabulary, tmp_path_factory):
    """Corpora of words that the vocabulary can cut in many ways."""
    rng = np.random.default_rng(0)
    words = WORDS.split()

    def text():
        return " ".join(rng.choice(words, rng.integers(1, 12)))

    folder = tmp_path_factory.mktemp("spoken")
    return [
        write_corpus(
            folder / str(count),
            [[(f"{text()} {i}", f"{i} {text()}") for i in range(count)]],
            vocabulary,
            MAX_LENGTH,
            "",
        )
        for count in (300, 40)
    ]


@pytest.mark.parametrize("weights", [None, [1, 2]])
@pytest.mark.parametrize("static_shapes", [False, True])
def test_going_on_gives_what_would_have_followed(
    spoken, weights, static_shapes, monkeypatch
):
    monkeypatch.setattr(batches, "BLOCK_PAIRS", 60)

    def some():
        return TrainingBatches(
            spoken,
            tokens_per_batch=160,
            max_length=MAX_LENGTH,
            weights=weights,
            static_shapes=static_shapes,
            seed=3,
        )

    first = some()
    straight = as_lists(islice(first(), 60))
    assert straight[-1][1]["block"] >= 2
    assert len({json.dumps(position) for _, position in straight}) == 60
    for stop in range(0, 55, 3):
        position = json.loads(json.dumps(straight[stop][1]))
        # The same object, which has given other batches before, or another one.
        for again in (first, some()):
            follow = as_lists(islice(again(position), 4))
            assert follow == straight[stop + 1 : stop + 5]


def test_one_object_gives_many_streams(corpus):
    some = TrainingBatches([corpus], **SMALL)
    first, second = some(), some()
    both = [(next(first), next(second)) for _ in range(80)]
    assert as_lists(a for a, _ in both) == as_lists(b for _, b in both)


def count_loads(monkeypatch):
    loads = []
    shard = TokenCorpus.shard

    def counting(corpus, number):
        loads.append(number)
        return shard(corpus, number)

    monkeypatch.setattr(TokenCorpus, "shard", counting)
    return loads


def test_nothing_is_replayed_and_little_is_read(tmp_path, monkeypatch):
    # 60 shards, of which a block needs two or three.
    corpus = make_corpus(tmp_path / "many", make_rows(3000), shard=50)
    monkeypatch.setattr(batches, "BLOCK_PAIRS", 100)
    loads = count_loads(monkeypatch)
    stream = TrainingBatches([corpus], **SMALL)({"block": 10**9, "batch": 0})
    next(stream)
    time.sleep(0.3)  # the next block is made ready, and none after it
    assert len(loads) <= 6
    stream.close()
    weighted = TrainingBatches([corpus, corpus], **SMALL, weights=[1, 3])
    loads.clear()
    stream = weighted({"block": 10**9, "batch": 0})
    next(stream)
    time.sleep(0.3)
    # A block is as large as a few batches need, and not larger.
    assert len(loads) <= 2 * (512 // 50 + 4)
    stream.close()


def test_memory_does_not_grow_with_the_corpus(tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "BLOCK_PAIRS", 1000)

    def peak(count):
        corpus = make_corpus(tmp_path / str(count), make_rows(count), shard=500)
        tracemalloc.start()
        with_positions = TrainingBatches([corpus], **SMALL)()
        for _, position in with_positions:
            if position["block"] == 6:
                break
        with_positions.close()
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    small, large = peak(2000), peak(20_000)
    assert large < 1.3 * small


# --- Several corpora ---


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """A larger and a lesser corpus, told apart by an id."""
    folder = tmp_path_factory.mktemp("two")
    return [
        make_corpus(
            folder / str(name),
            [
                ([name, *source], target)
                for source, target in make_rows(count, name, 40)
            ],
            shard=70,
        )
        for name, count in ((2001, 300), (2002, 100))
    ]


def names(some, blocks):
    counts = Counter()
    for block in range(blocks):
        counts += Counter(source[0] for source, _ in all_pairs(take_block(some, block)))
    return counts


def test_without_weights_each_pair_is_as_likely(two):
    some = TrainingBatches(two, **SMALL)
    assert names(some, 1) == {2001: 300, 2002: 100}
    # And they share batches.
    mixed = [len({source[0] for source, _ in read(b)}) for b in take_block(some, 0)]
    assert np.mean(np.array(mixed) == 2) > 0.7


@pytest.mark.parametrize("weights", [[1, 3], [0.2, 0.6], [1e308, 3e307], [1, 1]])
def test_weights_settle_the_mixture(two, weights):
    counts = names(TrainingBatches(two, **SMALL, weights=weights), 20)
    share = counts[2002] / counts.total()
    assert share == pytest.approx(1 / (1 + weights[0] / weights[1]), abs=0.002)
    assert counts.total() > 20 * 100


def test_a_weighted_corpus_has_every_pair_once_an_epoch(two):
    some = TrainingBatches(two, **SMALL, weights=[1, 3])
    came, taken = defaultdict(list), []
    for block in range(30):
        for pair in all_pairs(take_block(some, block)):
            came[pair[0][0]].append(pair)
        taken.append({name: len(pairs) for name, pairs in came.items()})
    for name, size in ((2001, 300), (2002, 100)):
        counts = Counter(came[name])
        # Blocks end within epochs, so that a pair may be one ahead of another.
        assert len(counts) == size
        assert max(counts.values()) - min(counts.values()) <= 1
        assert min(counts.values()) >= 10


def test_a_weight_of_nearly_nothing(two):
    counts = names(TrainingBatches(two, **SMALL, weights=[1e-300, 1e300]), 3)
    assert counts[2001] == 0 and counts[2002] > 100


def test_a_weighted_corpus_is_once_in_a_block_where_it_is_large_enough(
    two, monkeypatch
):
    some = TrainingBatches(two, tokens_per_batch=128, max_length=64, weights=[3, 1])
    for block in range(4):
        counts = Counter(all_pairs(take_block(some, block)))
        assert max(counts.values()) <= 2  # 2 where an epoch ends within the block
        assert counts.total() == pytest.approx(400, abs=1)


@pytest.mark.parametrize("weights", [None, [1, 1]])
def test_what_cannot_be_trained_on_is_refused(two, tmp_path, weights, vocabulary):
    empty = make_corpus(tmp_path / "empty", [])
    with pytest.raises(UserError, match="empty: has no pair left"):
        TrainingBatches([two[0], empty], **SMALL, weights=weights)
    other = make_corpus(tmp_path / "other", make_rows(5), digest="1" * 64)
    with pytest.raises(UserError, match="other: was made with another vocabulary"):
        TrainingBatches([two[0], other], **SMALL, weights=weights)
    with pytest.raises(UserError, match="2001: was made with another vocabulary"):
        TrainingBatches(two, **SMALL, weights=weights, vocabulary=vocabulary)


@pytest.mark.parametrize("weights", [None, [1, 2]])
def test_nothing_that_fits(two, weights):
    some = TrainingBatches(two, tokens_per_batch=99, max_length=3, weights=weights)
    with pytest.raises(UserError, match=r"raise model\.max_length = 3"):
        next(some())


def test_a_damaged_shard_is_named_when_its_turn_comes(tmp_path):
    corpus = make_corpus(tmp_path / "damaged", make_rows(100), shard=10)
    (corpus.folder / "3.npz").write_bytes(b"PK")
    with pytest.raises(UserError, match=r"3\.npz: damaged"):
        for _ in TrainingBatches([corpus], **SMALL)():
            pass


# --- Subword regularisation ---


def texts_of(some, vocabulary):
    pairs = [pair for batch in some for pair in read(batch) if pair]
    return Counter(tuple(vocabulary.decode(list(pair))) for pair in pairs)


def test_alpha_changes_the_pieces_and_never_the_text(spoken, vocabulary):
    plain = TrainingBatches(spoken, **SMALL)
    drawn = TrainingBatches(spoken, **SMALL, vocabulary=vocabulary, alpha=0.3)
    expected = texts_of(take_block(plain, 0), vocabulary)
    assert expected.total() == 340
    taken = [take_block(drawn, block) for block in range(3)]
    for some in taken:
        assert texts_of(some, vocabulary) == expected
        for batch in some:
            check_shape(batch, 1024)
    pairs = [{*all_pairs(some)} for some in taken]
    assert len(pairs[0] & pairs[1]) < 100 and pairs[1] != pairs[2]


def test_each_epoch_and_each_corpus_has_its_draws(tmp_path, vocabulary):
    text = "o gato bebe leite a casa azul"
    corpora = [
        write_corpus(tmp_path / name, [[(text, text)]], vocabulary, MAX_LENGTH, "")
        for name in "ab"
    ]
    some = TrainingBatches(corpora, **SMALL, vocabulary=vocabulary, alpha=0.1)
    pairs = [pair for block in range(20) for pair in all_pairs(take_block(some, block))]
    assert len(pairs) == 40
    # Of the ways to cut a side there are not many more.
    assert len({side for pair in pairs for side in pair}) > 30


def test_a_draw_that_is_too_long_is_left_as_it_was(spoken, vocabulary):
    plain = TrainingBatches(spoken, tokens_per_batch=1024, max_length=24)
    longest = 24
    drawn = TrainingBatches(
        spoken,
        tokens_per_batch=1024,
        max_length=longest,
        vocabulary=vocabulary,
        alpha=0.05,
    )
    best = {*all_pairs(take_block(plain, 0))}
    pairs = all_pairs(take_block(drawn, 0))
    assert max(len(side) for pair in pairs for side in pair) < longest
    assert texts_of(take_block(drawn, 0), vocabulary) == texts_of(
        take_block(plain, 0), vocabulary
    )
    kept = [pair for pair in pairs if pair in best]
    changed = [pair for pair in pairs if pair not in best]
    assert kept and changed
    assert np.mean([len(pair[0]) for pair in kept]) > 10


# --- Evaluation ---


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.tuples(side, side), max_size=40),
    tokens_per_batch=st.integers(1, 100),
    max_length=st.integers(1, 14),
    static_shapes=st.booleans(),
)
def test_evaluation_has_every_pair_that_fits_once(
    tmp_path_factory, rows, tokens_per_batch, max_length, static_shapes
):
    options = {
        "tokens_per_batch": tokens_per_batch,
        "max_length": max_length,
        "static_shapes": static_shapes,
    }
    some = evaluation_batches(rows, **options)
    pairs = [pair for pair in all_pairs(some) if pair]
    fitting = [row for row in as_tuples(rows) if max(map(len, row)) < max_length]
    assert sorted(pairs) == sorted(fitting)
    # The longest first.
    widths = [max(inputs[0].shape[1], out.shape[1]) for inputs, out in some]
    assert widths == sorted(widths, reverse=True)
    for batch in some:
        if static_shapes:
            count, width = batch[1].shape
            assert batch[0][0].shape == (count, width)
            assert count == max(tokens_per_batch // width, 1) and width <= max_length
        else:
            check_shape(batch, tokens_per_batch)
    corpus = make_corpus(tmp_path_factory.mktemp("any") / "corpus", rows, 7)
    again = evaluation_batches(corpus, **options)
    assert as_lists((b, 0) for b in again) == as_lists((b, 0) for b in some)


# --- Prefetching ---


def threads_beside(known):
    deadline = time.monotonic() + 5
    while {*threading.enumerate()} - known and time.monotonic() < deadline:
        time.sleep(0.01)
    return {*threading.enumerate()} - known


def test_prefetch_gives_the_same_items_and_ends():
    known = {*threading.enumerate()}
    for count in (1, 2, 8):
        assert [*prefetch(iter(range(50)), count)] == [*range(50)]
    assert [*prefetch([])] == []
    assert not threads_beside(known)


@pytest.mark.parametrize("count", [1, 3])
def test_prefetch_is_so_far_ahead_and_no_further(count):
    made = []
    items = prefetch((made.append(i) or i for i in range(100)), count)
    for taken in range(1, 6):
        assert next(items) == taken - 1
        deadline = time.monotonic() + 5
        while len(made) < taken + count and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(0.02)
        assert len(made) == taken + count
    items.close()


def test_prefetch_lets_exceptions_through_in_their_place():
    def failing():
        yield 1
        yield 2
        raise UserError("a damaged shard")

    items = prefetch(failing())
    assert [next(items), next(items)] == [1, 2]
    with pytest.raises(UserError, match="a damaged shard"):
        next(items)
    with pytest.raises(StopIteration):
        next(items)


def test_closing_ends_the_thread_and_the_iterator():
    known, closed = {*threading.enumerate()}, []

    def endless():
        try:
            while True:
                yield 1
        finally:
            closed.append(True)

    items = prefetch(endless())
    next(items)
    assert {*threading.enumerate()} - known
    items.close()
    assert not threads_beside(known) and closed == [True]
    # One that was never begun has no thread.
    prefetch(endless()).close()
    assert not threads_beside(known)


def test_a_stream_of_batches_that_is_dropped_ends_its_threads(corpus):
    known = {*threading.enumerate()}
    stream = prefetch(TrainingBatches([corpus], **SMALL)())
    next(stream)
    assert len({*threading.enumerate()} - known) == 2
    del stream
    assert not threads_beside(known)
