"""Batches hold every pair as it is, within their budget, in no order but chance."""

from collections import Counter, defaultdict
from itertools import chain, permutations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tfxformer import Tokenizer
from tfxformer.batches import (
    encode_pairs,
    encode_source,
    encode_target,
    evaluation_batches,
    fit_length,
    token_lengths,
    training_batches,
)
from tfxformer.corpora import Pair
from tfxformer.errors import UserError

WORDS = ["o", "gato", "bebe", "leite", "a", "casa", "azul", "mar", "praia", "ontem"]
WORDS += ["amigos", "pão", "maçãs", "rapaz"]
MAX_LENGTH = 64


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train([" ".join(WORDS), "0 1 2 3 4 5 6 7 8 9"] * 50, 400)


def make_pairs(count, seed=0, longest=25):
    """Distinct pairs; lengths as in real text, the two sides nearly alike."""
    rng = np.random.default_rng(seed)
    pairs = []
    for number in range(count):
        length = np.clip(rng.lognormal(2.0, 0.5), 1, longest)
        source, target = (
            " ".join(rng.choice(WORDS, int(np.clip(length * stretch, 1, longest))))
            for stretch in rng.normal(1, 0.15, 2)
        )
        pairs.append(Pair(f"{source} {number}", f"{number} {target}"))
    return pairs


@pytest.fixture(scope="module")
def pairs(tokenizer):
    fitting, _ = fit_length(make_pairs(1100), tokenizer, MAX_LENGTH)
    return fitting


@pytest.fixture(scope="module")
def taken(tokenizer, pairs):
    """The batches of six epochs, and the pairs that are in each."""
    return take_rows(batches_of([pairs], tokenizer), tokenizer, 6 * len(pairs))


def batches_of(sources, tokenizer, **options):
    options = {"tokens_per_batch": 1024, "max_length": MAX_LENGTH, **options}
    return training_batches(sources, tokenizer, **options)


def take_rows(dataset, tokenizer, count):
    """The first batches, of at least so many rows, as (batch, [pairs])."""
    taken, rows = [], 0
    for batch in dataset:
        taken.append((batch, texts(batch, tokenizer)))
        rows += len(taken[-1][1])
        if rows >= count:
            return taken
    raise AssertionError(f"the batches end after {rows} rows: they must never")


def texts(batch, tokenizer):
    (source, _), target = batch
    columns = (tokenizer.detokenize(side).numpy().tolist() for side in (source, target))
    return [
        Pair(*(side.decode() for side in row)) for row in zip(*columns, strict=True)
    ]


def check_form(batch, tokens_per_batch=None, max_length=MAX_LENGTH):
    """What the model and the loss rely on, row by row."""
    (source, target_in), target_out = batch
    for side in (source, target_in, target_out):
        assert side.dtype == tf.int32 and side.shape.rank == 2
        assert side.shape[0] == source.shape[0] > 0
    source, target_in, target_out = (
        side.numpy() for side in (source, target_in, target_out)
    )
    assert target_in.shape == target_out.shape
    for side in (source, target_in):
        lengths = (side != 0).sum(axis=1)
        # No wider than its longest row, and padding to the right of a row only.
        assert side.shape[1] == lengths.max() <= max_length
        assert ((side != 0) == (np.arange(side.shape[1]) < lengths[:, None])).all()
        if tokens_per_batch is not None and len(side) > 1:
            assert side.size <= tokens_per_batch
    for row, teacher, wanted in zip(source, target_in, target_out, strict=True):
        row, teacher, wanted = (x[x != 0].tolist() for x in (row, teacher, wanted))
        assert row[-1] == 3 and not {2, 3} & {*row[:-1]}
        assert teacher[0] == 2 and wanted[-1] == 3
        assert teacher[1:] == wanted[:-1] and not {2, 3} & {*teacher[1:]}


# --- Encoding ---


def rows(ids):
    """Padded ids as lists without their padding."""
    return [[int(i) for i in row if i] for row in ids.numpy()]


def test_the_parts_of_a_pair(tokenizer):
    pair = Pair("o gato", "a casa azul")
    source_ids, target_ids = (tokenizer.processor.encode(side) for side in pair)
    assert rows(encode_source(tokenizer, [pair.source])) == [[*source_ids, 3]]
    target_in, target_out = encode_target(tokenizer, [pair.target])
    assert rows(target_in) == [[2, *target_ids]]
    assert rows(target_out) == [[*target_ids, 3]]
    (source, teacher), wanted = encode_pairs([pair], tokenizer)
    assert source.numpy().tolist() == [[*source_ids, 3]]
    assert teacher.numpy().tolist() == [[2, *target_ids]]
    assert wanted.numpy().tolist() == [[*target_ids, 3]]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.text(max_size=15), st.text(max_size=15)), min_size=1))
def test_any_pairs_make_a_batch(tokenizer, pairs):
    pairs = [Pair(*pair) for pair in pairs]
    batch = encode_pairs(pairs, tokenizer)
    check_form(batch, max_length=1000)
    again = [
        [row.decode() for row in tokenizer.detokenize(tokenizer.tokenize(side)).numpy()]
        for side in zip(*pairs, strict=True)
    ]
    assert texts(batch, tokenizer) == list(map(Pair, *again))


@pytest.mark.parametrize("longest", [0, 1, 5, 1000])
@pytest.mark.parametrize("alpha", [0.0, 0.1])
def test_longest_leaves_out_the_pieces_beyond(tokenizer, longest, alpha):
    text = ["o gato bebe leite a casa azul", "", "mar"]
    whole = rows(encode_source(tokenizer, text))
    for _ in range(5):
        cut = rows(encode_source(tokenizer, text, alpha, longest))
        teacher, wanted = (
            rows(side) for side in encode_target(tokenizer, text, alpha, longest)
        )
        assert all(len(row) <= longest + 1 for row in [*cut, *teacher, *wanted])
        assert all(row[-1] == 3 for row in cut)
        assert all(row[0] == 2 for row in teacher)
        if not alpha:
            assert cut == [[*row[:-1][:longest], 3] for row in whole]


def test_a_draw_is_never_cut_where_the_best_segmentation_fits(tokenizer):
    text = ["o gato bebe leite a casa azul mar praia"] * 40
    best = len(tokenizer.processor.encode(text[0]))
    ids = encode_source(tokenizer, text, alpha=0.1, longest=best + 2)
    back = tokenizer.detokenize(ids).numpy().tolist()
    assert {row.decode() for row in back} == {text[0]}
    assert len({*map(tuple, rows(ids))}) > 1
    assert max(map(len, rows(ids))) <= best + 2 + 1


# --- Lengths ---


def count_tokens(tokenizer, pair):
    return tuple(len(tokenizer.processor.encode(side)) + 1 for side in pair)


def test_lengths_are_those_of_sentencepiece(tokenizer, pairs):
    some = [*pairs[:200], Pair("", "mar"), Pair("猫", "")]
    lengths = token_lengths(some, tokenizer)
    assert [*map(tuple, lengths)] == [count_tokens(tokenizer, pair) for pair in some]
    assert token_lengths([], tokenizer).shape == (0, 2)


def test_many_pairs_are_counted_in_parts(tokenizer):
    many = [Pair("o " * (n % 7), "a " * (n % 5)) for n in range(20_003)]
    lengths = token_lengths(many, tokenizer)
    assert lengths.shape == (20_003, 2)
    for number in (0, 1, 9_999, 10_000, 10_001, 20_002):
        assert tuple(lengths[number]) == count_tokens(tokenizer, many[number])


@pytest.mark.parametrize("max_length", [4, 10, 20, 21, 1000])
def test_fit_length_counts_exactly(tokenizer, max_length):
    pairs = make_pairs(300, seed=3)
    fits = [max(count_tokens(tokenizer, pair)) <= max_length for pair in pairs]
    kept, left_out = fit_length(pairs, tokenizer, max_length)
    assert kept == [pair for pair, fit in zip(pairs, fits, strict=True) if fit]
    assert left_out == fits.count(False)


def test_fit_length_of_nothing(tokenizer):
    assert fit_length([], tokenizer, 10) == ([], 0)


# --- Training ---


def test_every_batch_has_its_form_and_keeps_its_budget(taken):
    for batch, _ in taken:
        check_form(batch, tokens_per_batch=1024)


def test_nothing_is_altered_and_hardly_anything_missing(taken, pairs):
    seen = {pair for _, rows in taken for pair in rows}
    assert seen <= {*pairs}
    # After six epochs only a few of rare lengths still wait for others like them.
    assert len(seen) > 0.96 * len(pairs)


def test_hardly_any_pair_is_twice_in_a_batch(taken):
    # A batch that collects the same few pairs over several epochs teaches little.
    rows = sum(len(rows) for _, rows in taken)
    copies = sum(len(rows) - len({*rows}) for _, rows in taken)
    assert copies < 0.12 * rows


def test_batches_are_nearly_full_and_hardly_padded(taken):
    sides = [side.numpy() for (inputs, _), _ in taken for side in inputs]
    positions = sum(side.size for side in sides)
    padding = sum((side == 0).sum() for side in sides)
    assert padding / positions < 0.15
    fuller = [
        max(side.size for side in sides[i : i + 2]) for i in range(0, len(sides), 2)
    ]
    assert np.mean(fuller) > 0.75 * 1024


def test_every_pair_comes_exactly_once_an_epoch(taken, tokenizer, pairs):
    """Exact, whatever still waits for its batch to fill.

    Pairs of the same two lengths share a bucket, and leave it as they came: of those
    alone, every run of as many as there are is one epoch.
    """
    groups, arrived = defaultdict(set), defaultdict(list)
    for pair in pairs:
        groups[count_tokens(tokenizer, pair)].add(pair)
    for _, rows in taken:
        for pair in rows:
            arrived[count_tokens(tokenizer, pair)].append(pair)
    epochs = 0
    for lengths, group in groups.items():
        came = arrived[lengths]
        for first in range(0, len(came), len(group)):
            run = came[first : first + len(group)]
            assert len({*run}) == len(run) and {*run} <= group
            epochs += len(run) == len(group)
    # Most have done their rounds: little waits in buckets.
    assert epochs > 4 * len(groups)


def test_each_epoch_and_each_seed_has_its_order(tokenizer):
    # All share one bucket, so batches show the order in which the pairs come.
    candidates = [Pair(text, text) for text in map(" ".join, permutations(WORDS, 3))]
    lengths = Counter(count_tokens(tokenizer, pair) for pair in candidates)
    (common, _), *_ = lengths.most_common(1)
    alike = [pair for pair in candidates if count_tokens(tokenizer, pair) == common]
    alike = alike[:100]

    def two_epochs(seed):
        dataset = batches_of([alike], tokenizer, seed=seed, tokens_per_batch=128)
        taken = take_rows(dataset, tokenizer, 200)
        order = [alike.index(pair) for _, rows in taken for pair in rows]
        epochs = order[:100], order[100:200]
        assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(100))
        return epochs

    first, second = two_epochs(seed=1)
    other, _ = two_epochs(seed=2)
    assert first != second and first != other
    for order in (first, second, other):
        # Shuffled through and through: no trace of the order they were given in.
        assert abs(rank_correlation(order)) < 0.35


def rank_correlation(values):
    """Spearman's, of values against their positions."""
    values = np.asarray(values, float)
    ranks = np.array([(np.sum(values < x) + np.sum(values <= x)) / 2 for x in values])
    return np.corrcoef(ranks, np.arange(len(values)))[0, 1]


def as_lists(taken):
    return [
        [side.numpy().tolist() for side in (*inputs, out)] for (inputs, out), _ in taken
    ]


@pytest.mark.parametrize("weights", [None, [1.0, 2.0]])
def test_a_seed_settles_every_batch(tokenizer, pairs, weights):
    def first_batches(seed):
        sources = [pairs[:200], pairs[200:300]]
        dataset = batches_of(sources, tokenizer, weights=weights, seed=seed)
        return as_lists((batch, None) for batch in dataset.take(10))

    greatest = 2**32 - 1  # that the settings allow
    assert first_batches(greatest) == first_batches(greatest) != first_batches(0)


def test_length_is_no_curriculum(taken):
    widths = [inputs[0].shape[1] for (inputs, _), _ in taken]
    assert len(widths) > 100
    # The first buckets to fill are no sample yet: skip an epoch.
    assert abs(rank_correlation(widths[len(widths) // 6 :])) < 0.25
    # Neighbours are hardly more alike than any two.
    assert abs(np.corrcoef(widths[:-1], widths[1:])[0, 1]) < 0.4


def test_one_pair_is_enough(tokenizer):
    dataset = batches_of([[Pair("mar", "azul")]], tokenizer, tokens_per_batch=64)
    for batch in dataset.take(3):
        check_form(batch, tokens_per_batch=64)
        assert {*texts(batch, tokenizer)} == {Pair("mar", "azul")}


def test_a_budget_below_one_pair_gives_batches_of_one(tokenizer, pairs):
    for batch in batches_of([pairs], tokenizer, tokens_per_batch=4).take(5):
        check_form(batch)
        assert batch[1].shape[0] == 1


def test_pairs_that_are_too_long_are_cut_to_the_model(tokenizer):
    long = Pair("mar " * 100, "azul " * 100)
    dataset = batches_of([[long]], tokenizer, max_length=16)
    for batch in dataset.take(2):
        check_form(batch, tokens_per_batch=1024, max_length=16)
        assert batch[0][0].shape[1] == batch[1].shape[1] == 16


# --- Several corpora ---


def two_corpora(first, second):
    return [
        [Pair(f"mar {i}", f"azul {i}") for i in range(first)],
        [Pair(f"gato {i}", f"leite {i}") for i in range(second)],
    ]


def draws(tokenizer, sources, count, **options):
    """How many pairs came from each of the two corpora."""
    taken = take_rows(batches_of(sources, tokenizer, **options), tokenizer, count)
    names = Counter(pair.source.split()[0] for _, rows in taken for pair in rows)
    assert {*names} <= {"mar", "gato"}
    return names["mar"], names["gato"]


@pytest.mark.parametrize("weights", [[1, 3], [0.2, 0.6]])
def test_weights_settle_the_mixture(tokenizer, weights):
    # The lesser corpus has more weight: it is not size that counts.
    first, second = draws(tokenizer, two_corpora(300, 40), 4000, weights=weights)
    total = first + second
    # Four standard deviations of a binomial, and what waits in buckets.
    assert abs(first - total / 4) < 4 * (total * 3 / 16) ** 0.5 + 60


def test_without_weights_each_pair_is_as_likely(tokenizer):
    sources = two_corpora(300, 100)
    first, second = draws(tokenizer, sources, 2000, tokens_per_batch=128)
    assert abs(first / (first + second) - 0.75) < 0.03


def test_every_pair_of_a_mixture_comes(tokenizer):
    sources = two_corpora(30, 30)
    dataset = batches_of(sources, tokenizer, weights=[1, 1], tokens_per_batch=64)
    taken = take_rows(dataset, tokenizer, 1500)
    assert {pair for _, rows in taken for pair in rows} == {*chain(*sources)}


def test_weights_of_any_size(tokenizer):
    # Settings allow them, so their sum must not overflow.
    sources = two_corpora(50, 50)
    first, second = draws(tokenizer, sources, 400, weights=[1e308, 1e308])
    assert abs(first - second) < 150


@pytest.mark.parametrize("weights", [None, [1, 1]])
@pytest.mark.parametrize("empty", [0, 1])
def test_an_empty_corpus_is_refused(tokenizer, pairs, weights, empty):
    sources = [pairs[:5], pairs[:5]]
    sources[empty] = []
    with pytest.raises(UserError, match=f"corpus {empty + 1} "):
        batches_of(sources, tokenizer, weights=weights)


# --- Subword regularisation ---


def test_alpha_draws_anew_each_epoch_and_keeps_the_limits(tokenizer):
    text = "o gato bebe leite a casa azul mar praia ontem"
    pair = Pair(text, text)
    longest = count_tokens(tokenizer, pair)[0] + 3
    dataset = batches_of(
        [[pair]], tokenizer, alpha=0.2, max_length=longest, tokens_per_batch=256
    )
    taken = take_rows(dataset, tokenizer, 60)
    for batch, rows in taken:
        check_form(batch, tokens_per_batch=256, max_length=longest)
        assert {*rows} == {pair}  # never cut
    sources, _, targets = zip(*as_lists(taken), strict=True)
    for side in (sources, targets):
        assert len({tuple(row) for batch in side for row in batch}) > 10


def test_alpha_may_be_used_by_two_datasets(tokenizer, pairs):
    for _ in range(2):
        dataset = batches_of([pairs], tokenizer, alpha=0.35)
        for batch in dataset.take(2):
            check_form(batch, tokens_per_batch=1024)


# --- Evaluation ---


@pytest.mark.parametrize("max_length", [12, MAX_LENGTH])
@pytest.mark.parametrize("tokens_per_batch", [64, 1024])
def test_evaluation_takes_every_pair_that_fits_once(
    tokenizer, max_length, tokens_per_batch
):
    pairs = make_pairs(150, seed=4)
    batches = evaluation_batches(
        pairs, tokenizer, tokens_per_batch=tokens_per_batch, max_length=max_length
    )
    fitting, _ = fit_length(pairs, tokenizer, max_length)
    rows = [pair for batch in batches for pair in texts(batch, tokenizer)]
    assert Counter(rows) == Counter(fitting)
    longest = [max(count_tokens(tokenizer, pair)) for pair in rows]
    assert longest == sorted(longest)
    for batch in batches:
        check_form(batch, tokens_per_batch, max_length)
    # As few batches as their order allows: the next row would not have fitted.
    ends = np.cumsum([batch[1].shape[0] for batch in batches])[:-1]
    for batch, end in zip(batches, ends, strict=False):
        assert (batch[1].shape[0] + 1) * longest[end] > tokens_per_batch


def test_evaluation_keeps_what_comes_twice(tokenizer):
    pairs = [Pair("mar", "azul")] * 3
    (batch,) = evaluation_batches(pairs, tokenizer, tokens_per_batch=64, max_length=16)
    assert texts(batch, tokenizer) == pairs


def test_evaluation_of_nothing(tokenizer):
    options = {"tokens_per_batch": 64, "max_length": 4}
    assert evaluation_batches([], tokenizer, **options) == []
    long = [Pair("mar " * 50, "azul")]
    assert evaluation_batches(long, tokenizer, **options) == []
