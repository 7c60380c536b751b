"""Batches have every pair unchanged, within the token budget, in random order."""

import tracemalloc
from collections import Counter
from itertools import chain, islice, pairwise

import keras
import numpy as np
import oracle
import pytest
from id_pairs import Numbers, make_rows, write

from tfxformer import batches, masked_loss
from tfxformer.batches import TrainingBatches, evaluation_batches, make_batches
from tfxformer.errors import UserError
from tfxformer.token_file import TokenFile
from tfxformer.tokenizer import Tokenizer

SMALL = {"tokens_per_batch": 1024, "max_length": 64}


def block(some, number):
    """The batches of one block; a block with all pairs is an epoch."""
    count = len(some._plan(number)[1])
    return [*islice(some.generate([number, 0]), count)]


def read(batch):
    """The pairs of ids in a batch; checks its special tokens and padding."""
    (source, target_in), target_out = batch
    assert {side.dtype for side in (source, target_in, target_out)} == {np.dtype("i4")}
    pairs = []
    for sides in zip(source, target_in, target_out, strict=True):
        ids = [[id for id in side.tolist() if id] for side in sides]
        for side, real in zip(sides, ids, strict=True):  # padding follows the ids
            assert side.tolist() == real + [0] * (len(side) - len(real))
        if not any(ids):
            continue
        assert ids[0].pop() == ids[2].pop() == 3
        assert ids[1].pop(0) == 2 and ids[1] == ids[2]
        pairs.append((tuple(ids[0]), tuple(ids[1])))
    return pairs


def padding(some):
    sides = [side for (source, _), out in some for side in (source, out)]
    return 1 - sum(map(np.count_nonzero, sides)) / sum(side.size for side in sides)


def as_lists(some):
    return [[[x.tolist() for x in inputs], out.tolist()] for inputs, out in some]


@pytest.fixture(scope="module")
def rows():
    return make_rows(3000)


@pytest.fixture(scope="module")
def tokens(rows, tmp_path_factory):
    return write(tmp_path_factory.mktemp("tokens"), rows)


# --- The dataset for `fit` ---


def test_each_pass_of_the_dataset_has_every_pair_once_in_another_order(rows):
    pairs = [tuple(Numbers().decode(row)) for row in rows[:500]]
    dataset = make_batches(pairs, Numbers(), tokens_per_batch=512, max_length=64)
    passes = [[*dataset.as_numpy_iterator()] for _ in range(3)]
    assert [len(some) for some in passes] == [len(dataset)] * 3
    found = [Counter(chain.from_iterable(map(read, some))) for some in passes]
    assert found[0] == Counter(rows[:500])
    assert as_lists(passes[0]) != as_lists(passes[1])
    # Each pass continues where the one before ended.
    assert all(2 <= times <= 3 for times in sum(found, Counter()).values())
    with pytest.raises(UserError, match="no pair has at most 2 tokens"):
        make_batches(pairs, Numbers(), max_length=3)


def test_keras_fit_trains_on_the_dataset_of_make_batches():
    pairs = [("o gato", "the cat"), ("a casa", "the house")] * 20
    tokenizer = Tokenizer.train(chain.from_iterable(pairs), 300)
    keras.utils.set_random_seed(0)
    size = tokenizer.vocab_size
    sizes = {"input_vocab_size": size, "target_vocab_size": size}
    transformer = oracle.tiny_transformer(**sizes)
    transformer.compile(keras.optimizers.Adam(0.01), masked_loss, run_eagerly=True)
    dataset = make_batches(pairs, tokenizer, tokens_per_batch=64, max_length=16)
    found = transformer.fit(dataset, epochs=2, verbose=0).history["loss"]
    assert found[-1] < found[0]


def test_a_batch_has_end_tokens_shifted_targets_and_padding(tmp_path):
    tokens = write(tmp_path, [([10, 11], [20]), ([12], [21, 22, 23]), ([], [])])
    some = TrainingBatches(tokens, tokens_per_batch=64, max_length=8)
    [((source, target_in), target_out)] = block(some, 0)
    order = np.argsort(-source[:, 0] - 100 * (target_out[:, 0] == 20))  # 10 11, 12, 3
    assert source[order].tolist() == [[10, 11, 3], [12, 3, 0], [3, 0, 0]]
    assert target_in[order].tolist() == [[2, 20, 0, 0], [2, 21, 22, 23], [2, 0, 0, 0]]
    assert target_out[order].tolist() == [[20, 3, 0, 0], [21, 22, 23, 3], [3, 0, 0, 0]]


# --- The plan ---


@pytest.mark.parametrize("fixed_shapes", [False, True])
@pytest.mark.parametrize("most", [1, 7, 1000])
@pytest.mark.parametrize("budget", [1, 40, 700])
def test_every_epoch_has_every_pair_once_within_the_budget(
    fixed_shapes, most, budget, tmp_path, monkeypatch
):
    monkeypatch.setattr(batches, "BLOCK_PAIRS", most)
    rows = make_rows(61, longest=12)
    some = TrainingBatches(
        write(tmp_path, rows[:20], rows[20:], max_length=13),
        tokens_per_batch=budget,
        max_length=13,
        fixed_shapes=fixed_shapes,
    )
    blocks = -(-61 // most)
    for epoch in range(2):
        numbers = range(epoch * blocks, (epoch + 1) * blocks)
        taken = [*chain.from_iterable(block(some, number) for number in numbers)]
        assert sorted(chain.from_iterable(map(read, taken))) == sorted(rows)
        for (source, _), target in taken:
            for side in (source, target):
                assert side.size <= budget or len(side) == 1
                # As wide as its longest row.
                assert fixed_shapes or (side != 0).any(axis=0).all()


def test_padding_is_less_than_a_tenth_of_the_tokens_in_batches(tokens, rows):
    taken = block(TrainingBatches(tokens, **SMALL), 0)
    assert padding(taken) < 0.1
    fullest = [max(inputs[0].size, out.size) for inputs, out in taken]
    assert np.mean(fullest) > 0.9 * 1024
    in_order = evaluation_batches(rows, **SMALL)
    assert padding(in_order) < 0.1
    assert Counter(chain.from_iterable(map(read, in_order))) == Counter(rows)


def test_batches_with_fixed_shapes_have_at_most_12_shapes(tmp_path):
    tokens = write(tmp_path, make_rows(4000, longest=127), max_length=128)
    some = TrainingBatches(
        tokens, tokens_per_batch=2048, max_length=128, fixed_shapes=True
    )
    taken = block(some, 0)
    shapes = {inputs[0].shape for inputs, _ in taken}
    assert 5 < len(shapes) <= 12
    assert shapes == {out.shape for _, out in taken}
    assert all(count == 2048 // width for count, width in shapes)
    widths = sorted(width for _, width in shapes)
    assert all(b / a <= 1.5 for a, b in pairwise(widths)) and widths[-1] <= 128


def test_a_pair_that_fills_a_batch_alone_has_the_narrowest_width_that_fits(tmp_path):
    lengths = np.random.default_rng(0).integers(36, 63, 50).tolist()
    tokens = write(tmp_path, [([5] * n, [6] * n) for n in lengths])
    some = TrainingBatches(
        tokens, tokens_per_batch=64, max_length=64, fixed_shapes=True
    )
    widths = batches._widths(64)
    for (source, _), _ in islice(some.generate(), 20 * 50):
        width = np.count_nonzero(source)
        assert source.shape == (1, widths[widths >= width].min())


def test_epochs_and_seeds_order_pairs_differently_and_never_by_length(tokens, rows):
    def order(some):
        numbers = {row: i for i, row in enumerate(rows)}
        found = np.empty(len(rows))
        for number, batch in enumerate(some):
            found[[numbers[pair] for pair in read(batch)]] = number
        return found

    first = TrainingBatches(tokens, **SMALL)
    epochs = [block(first, 0), block(first, 1)]
    epochs.append(block(TrainingBatches(tokens, **SMALL, seed=1), 0))
    for i, some in enumerate(epochs):
        widths = np.array([inputs[0].shape[1] for inputs, _ in some])
        assert abs(np.corrcoef(widths[:-1], widths[1:])[0, 1]) < 0.4
        for other in epochs[:i]:
            assert abs(np.corrcoef(order(some), order(other))[0, 1]) < 0.25
    again = TrainingBatches(tokens, **SMALL)
    assert as_lists(block(again, 1)) == as_lists(epochs[1])


@pytest.mark.parametrize("weights", [None, [1.0, 3.0]])
def test_batches_resumed_at_any_position_continue_the_same_sequence(
    weights, rows, tmp_path, monkeypatch
):
    """At any batch, across blocks and epochs, without replaying earlier batches."""
    monkeypatch.setattr(batches, "BLOCK_PAIRS", 150)
    tokens = write(tmp_path, rows[:300], rows[300:400])
    whole = TrainingBatches(tokens, **SMALL, weights=weights)
    expected = as_lists(islice(whole.generate(), 60))
    planned = []
    real = TrainingBatches._plan
    monkeypatch.setattr(
        TrainingBatches, "_plan", lambda self, n: planned.append(n) or real(self, n)
    )
    for number in (1, 7, 30, 59):
        position = whole.after(None, number)
        assert whole.after(whole.after(None, 3), number - 3 if number > 3 else 0)
        planned.clear()
        resumed = TrainingBatches(tokens, **SMALL, weights=weights)
        found = as_lists(islice(resumed.generate(position), 60 - number))
        assert found == expected[number:]
        assert planned[0] == position[0]


def test_source_weights_set_the_mixture_and_pairs_come_at_most_twice_a_block(
    rows, tmp_path
):
    tokens = write(tmp_path, rows[:1000], rows[1000:1500])
    some = TrainingBatches(tokens, **SMALL, weights=[1.0, 3.0])
    first = {*rows[:1000]}
    for number in range(3):
        taken = [*chain.from_iterable(map(read, block(some, number)))]
        share = sum(pair in first for pair in taken) / len(taken)
        assert share == pytest.approx(0.25, abs=0.01)
        assert max(Counter(taken).values()) <= 2


def test_sources_smaller_than_a_batch_repeat_their_pairs_to_fill_it(tmp_path):
    one, other = ([([4 + i], [9 + i]) for i in range(5)] for _ in range(2))
    tokens = write(tmp_path, one, other, max_length=8)
    weights = {"weights": [1.0, 1.0]}
    some = TrainingBatches(tokens, tokens_per_batch=64, max_length=8, **weights)
    [((source, _), _)] = block(some, 0)
    assert source.shape == (32, 2)


def test_subword_sampling_uses_the_plain_tokens_where_a_sample_is_too_long(
    rows, tmp_path
):
    tokenizer = Numbers()
    tokens = write(tmp_path, rows[:200])
    some = TrainingBatches(tokens, **SMALL, tokenizer=tokenizer, alpha=0.1)
    expected = Counter(
        # A sample that is too long is replaced by the plain tokens.
        tuple(side * 2 for side in row) if 2 * max(map(len, row)) < 64 else row
        for row in rows[:200]
    )
    assert Counter(chain.from_iterable(map(read, block(some, 0)))) == expected


def test_memory_for_batches_grows_by_at_most_24_bytes_a_pair(tmp_path, monkeypatch):
    """Except for 24 bytes a pair."""
    monkeypatch.setattr(batches, "BLOCK_PAIRS", 1000)
    rows, peaks = make_rows(1000), []
    for times in (1, 100):
        write(tmp_path / str(times), rows * times)
        tracemalloc.start()
        tokens = TokenFile(tmp_path / str(times))
        for _ in islice(TrainingBatches(tokens, **SMALL).generate(), 200):
            pass
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] <= 24 * 99_000
