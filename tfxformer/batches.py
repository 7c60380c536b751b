"""Sentence pairs to a `tf.data.Dataset` of `((source, target_in), target_out)`.

Pairs are tokenised once, into a `TokenFile`. NumPy assigns pairs to batches, one block
of pairs at a time; the pipeline reads their ids from the file. So memory does not grow
with the number of pairs, and training can start at any batch.
"""

import itertools
import tempfile
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfxformer.errors import UserError
from tfxformer.special_tokens import END_ID, PAD_ID, START_ID
from tfxformer.token_file import CHUNK, EncodedPairs, write_tokens

# Pairs that are sorted by length together, enough to fill batches of equal lengths.
# With subword regularisation fewer, since each block is tokenised again.
BLOCK_PAIRS, DRAWN_BLOCK_PAIRS = 200_000, 20_000
PREFETCH = 8  # batches that wait for the training step

# The random number streams, each with its own seed.
_PAIRS, _ORDER = range(2)


def make_batches(pairs, tokenizer, *, tokens_per_batch=4096, max_length=128, seed=0):
    """Makes the dataset that `Transformer.fit` trains on.

    Each pass over the dataset shows every pair once, in a new order. Each batch has
    pairs of nearly the same lengths.

    Args:
        pairs: a sequence of `Pair`s or other (source, target) strings.
        tokenizer: a `Tokenizer`.
        tokens_per_batch: the most positions on either side of a batch, including
            padding.
        max_length: the most positions in a source or a target. Longer pairs are left
            out.
        seed: an integer that determines the order.

    Returns:
        A `tf.data.Dataset` of ``((source, target_in), target_out)``: int32 ids
        ``(batch, source)``, ``(batch, target)`` and ``(batch, target)``. Sources and
        ``target_out`` end with the end token, ``target_in`` begins with the start
        token, and 0 is padding.

    Raises:
        UserError: no pair is short enough.

    Example:
        >>> from tfxformer import Tokenizer
        >>> tokenizer = Tokenizer.train(["o gato", "the cat"] * 50, vocab_size=300)
        >>> pairs = [("o gato", "the cat"), ("gato", "cat")]
        >>> dataset = make_batches(pairs, tokenizer, max_length=32)
        >>> for (source, target_in), target_out in dataset:
        ...     print(source.shape[0], int(target_in[0, 0]), int(target_out[0, -1]))
        2 2 3

        Train on it with ``transformer.compile(optimizer, masked_loss)`` and then
        ``transformer.fit(dataset, epochs=10)``.
    """
    temporary = tempfile.TemporaryDirectory()
    tokens = write_tokens(temporary.name, [pairs], tokenizer, max_length)
    if not len(tokens):
        problem = f"no pair has at most {max_length - 1} tokens on each side"
        raise UserError(f"{problem}; raise max_length = {max_length}")
    batches = TrainingBatches(
        tokens, tokens_per_batch=tokens_per_batch, max_length=max_length, seed=seed
    )
    batches.temporary = temporary  # keep the folder as long as the dataset
    passes, size = itertools.count(), batches.batches_per_epoch()

    def one_pass():
        # Each pass starts where the last one ended: epochs differ a little in size.
        position = batches.after(None, next(passes) * size)
        return itertools.islice(batches.generate(position), size)

    return _dataset(one_pass).apply(tf.data.experimental.assert_cardinality(size))


# --- The plan of batches ---


class TrainingBatches:
    """Endless shuffled batches, each of pairs of nearly the same lengths.

    The seed and a position determine every later batch, so a run resumes in the middle
    without replaying any. Each epoch shows every pair once, in a new order. An epoch
    has blocks of pairs; each block is sorted by length and cut into batches, and the
    batches are shuffled.

    Args:
        tokens: a `TokenFile` that is not empty.
        tokens_per_batch: the most positions on either side of a batch, including
            padding. A longer pair is a batch of its own.
        max_length: the most positions in a source or a target.
        weights: how often to draw from each source, relative to the others. By
            default every pair of every source is equally likely.
        tokenizer: the `Tokenizer`, for ``alpha``.
        alpha: subword regularisation, as in `Tokenizer.encode`; 0 for none.
            SentencePiece samples without a seed, so no two runs see the same tokens.
        seed: an integer, 0 or more.
        fixed_shapes: produce only a few shapes, since XLA compiles for each: both sides
            are padded to one of a few widths, and rows of padding fill up a batch.
    """

    def __init__(
        self,
        tokens,
        *,
        tokens_per_batch,
        max_length,
        weights=None,
        tokenizer=None,
        alpha=0.0,
        seed=0,
        fixed_shapes=False,
    ):
        self._tokens, self._seed = tokens, seed
        self._tokens_per_batch, self._max_length = tokens_per_batch, max_length
        self._widths = _widths(max_length) if fixed_shapes else None
        self._tokenizer, self._alpha = tokenizer, alpha
        self._counts = {}  # the number of batches in each block planned so far
        most = DRAWN_BLOCK_PAIRS if alpha else BLOCK_PAIRS
        sizes = [source["pairs"] for source in tokens.sources]
        # The pairs in each endless stream, and how many of them a block takes.
        if weights is None:
            self._sizes = [sum(sizes)]
            # An epoch is a whole number of nearly equal blocks.
            self._rates = [Fraction(sum(sizes), -(-sum(sizes) // most))]
        else:
            self._sizes = sizes
            self._rates = _rates(sizes, weights, most, tokens_per_batch // 2)

    def batches_per_epoch(self):
        """The number of batches that show every pair of the first epoch."""
        blocks = int(-(-self._sizes[0] // self._rates[0]))
        return sum(len(self._plan(block)[1]) for block in range(blocks))

    def dataset(self, position=None):
        """The endless `tf.data.Dataset` from a position, or from the start."""
        return _dataset(lambda: self.generate(position))

    def after(self, position, count):
        """The position ``count`` batches later, after the dataset has produced them."""
        block, batch = position or (0, 0)
        batch += count
        while batch >= self._counts.get(block, batch + 1):
            batch -= self._counts[block]
            block += 1
        return [block, batch]

    def generate(self, position=None):
        """Yields the batches of `dataset` as NumPy arrays."""
        start, first = position or (0, 0)
        for block in itertools.count(start):
            pairs, batches = self._plan(block)
            for batch in batches[first:]:
                yield _pad(pairs, batch)
            first = max(first - len(batches), 0)

    def _plan(self, block):
        """The `EncodedPairs` of a block, and a list with the `_Batch`es of them."""
        rng = _rng(self._seed, _ORDER, block)
        pairs = self._tokens.pairs(self._numbers(block))
        if self._alpha:
            pairs = self._draw(pairs)
        order = _sort_by_length(pairs, self._tokens_per_batch, rng)
        batches = _cut(pairs, order, self._tokens_per_batch, self._widths)
        self._counts[block] = len(batches)
        return pairs, [batches[i] for i in rng.permutation(len(batches))]

    def _numbers(self, block):
        """The numbers of a block's pairs: a part of each source's endless stream."""
        parts, offset = [], 0
        streams = zip(self._sizes, self._rates, strict=True)
        for stream, (size, rate) in enumerate(streams):
            first, last = int(block * rate), int((block + 1) * rate)
            while first < last:  # again where a new epoch of the stream begins
                epoch, start = divmod(first, size)
                stop = min(start + last - first, size)
                order = np.arange(offset, offset + size, dtype=np.uint32)
                _rng(self._seed, _PAIRS, stream, epoch).shuffle(order)
                parts.append(order[start:stop].copy())
                first += stop - start
            offset += size
        return np.concatenate(parts)

    def _draw(self, pairs):
        """The pairs in sampled tokens; in their best where those are too long."""
        sides = []  # a source, its target, the next source
        for first in range(0, len(pairs.lengths), CHUNK):
            best = pairs.to_lists(slice(first, first + CHUNK))
            drawn = [[]] * len(best)
            for i, side in enumerate(self._tokenizer.sides):
                drawn[i::2] = side.encode(side.decode(best[i::2]), self._alpha)
            for i in range(0, len(best), 2):
                fits = max(map(len, drawn[i : i + 2])) < self._max_length
                sides += (drawn if fits else best)[i : i + 2]
        return EncodedPairs.from_lists(sides)


def evaluation_batches(rows, *, tokens_per_batch, max_length, fixed_shapes=False):
    """Batches of every pair that fits, sorted by length to save padding.

    Args:
        rows: for each pair, the ids of its source and of its target.
        tokens_per_batch: as in `TrainingBatches`.
        max_length: the most positions in a source or a target. Longer pairs are left
            out.
        fixed_shapes: as in `TrainingBatches`.

    Returns:
        A list of ``((source, target_in), target_out)``, NumPy arrays.

    Example:
        >>> rows = [([10, 11], [20]), ([12], [21, 22])]
        >>> batches = evaluation_batches(rows, tokens_per_batch=64, max_length=8)
        >>> (source, target_in), target_out = batches[0]
        >>> source.tolist()
        [[12, 3, 0], [10, 11, 3]]
    """
    rows = [row for row in rows if max(map(len, row)) < max_length]
    pairs = EncodedPairs.from_lists([side for row in rows for side in row])
    order = _sort_by_length(pairs, tokens_per_batch)
    widths = _widths(max_length) if fixed_shapes else None
    return [_pad(pairs, x) for x in _cut(pairs, order, tokens_per_batch, widths)]


class _Batch(NamedTuple):
    """Which pairs are in a batch, and its shape with padding."""

    numbers: np.ndarray  # of the pairs in their block: (pairs,)
    shape: tuple | None  # (rows, positions); None fits the longest pair


def _rates(sizes, weights, most, least):
    """The average number of pairs from each source in a block."""
    shares = np.array(weights, float) / sum(weights)
    # No source comes twice in a block, unless the block would be too small.
    epochs = [size / share for size, share in zip(sizes, shares, strict=True) if share]
    pairs = max(min(*epochs, most), least)
    return [Fraction(share * pairs) for share in shares]


def _sort_by_length(pairs, tokens_per_batch, rng=None):
    """The numbers of the pairs, the longest first, similar ones side by side.

    With ``rng``, pairs swap places at random within about a batch, so that a small
    corpus does not give the same batches in every epoch.
    """
    longest = pairs.lengths.max(axis=1, initial=0)  # (pairs,)
    slant = pairs.lengths[:, 0] - pairs.lengths[:, 1]
    if rng is None:
        return np.lexsort((slant, -longest))
    order = np.lexsort((rng.random(len(longest)), slant, -longest))
    batch_size = tokens_per_batch / (longest[order] + 1)
    places = np.arange(len(order)) + batch_size * (rng.random(len(order)) - 0.5)
    return order[np.argsort(places, kind="stable")]


def _cut(pairs, order, tokens_per_batch, widths=None):
    """Cuts pairs in order of length into full batches, a list of `_Batch`.

    With ``widths``, each batch has one of these numbers of positions.
    """
    # One position more, for the start or end token: (pairs,).
    positions = pairs.lengths[order].max(axis=1, initial=0) + 1
    if widths is not None:
        positions = widths[np.searchsorted(widths, positions)]
    batches, first = [], 0
    while first < len(order):
        count = max(tokens_per_batch // positions[first], 1)
        # A later pair may be a little longer.
        width = positions[first : first + count].max()
        count = max(tokens_per_batch // width, 1)
        shape = None if widths is None else (int(count), int(width))
        batches.append(_Batch(order[first : first + count], shape))
        first += count
    return batches


def _pad(pairs, batch):
    """The arrays of a `_Batch`: ``((source, target_in), target_out)``."""
    source, source_ends = _pad_side(pairs, batch, 0)
    target, target_ends = _pad_side(pairs, batch, 1)
    rows = np.arange(len(batch.numbers))  # any further rows are padding
    target_in = np.roll(target, 1, axis=1)  # the last column is padding
    target_in[rows, 0] = START_ID
    source[rows, source_ends] = END_ID
    target[rows, target_ends] = END_ID
    return (source, target_in), target


def _pad_side(pairs, batch, side):
    """The ids of one side, with space for one more token, and where they end."""
    lengths = pairs.lengths[batch.numbers, side]  # (pairs,)
    starts = pairs.starts[batch.numbers, side]
    shape = batch.shape or (len(lengths), int(lengths.max()) + 1)
    padded = np.full(shape, PAD_ID, np.int32)  # (rows, positions)
    columns = np.arange(shape[1])
    real = columns < lengths[:, None]  # (pairs, positions)
    places = (starts[:, None] + columns)[real]  # (tokens,)
    padded[: len(lengths)][real] = pairs.ids[places]
    return padded, lengths


def _widths(max_length):
    """A dozen widths, each about a quarter greater than the one before."""
    widths = [8]
    while widths[-1] < max_length:
        widths.append(-(-widths[-1] * 5 // 4 // 4) * 4)
    return np.minimum(widths, max_length)


def _rng(seed, *key):
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def _dataset(generator):
    """A generator function of batches as a `tf.data.Dataset` with prefetching."""
    ids = tf.TensorSpec([None, None], tf.int32)
    signature = ((ids, ids), ids)
    dataset = tf.data.Dataset.from_generator(generator, output_signature=signature)
    options = tf.data.Options()
    # With autotuning, the end of an iterator waits for a thread that sleeps for up to
    # a minute, and nothing here has a size to tune.
    options.autotune.enabled = False
    # Each of several workers takes its share of every batch's rows.
    sharding = tf.data.experimental.AutoShardPolicy.DATA
    options.experimental_distribute.auto_shard_policy = sharding
    return dataset.prefetch(PREFETCH).with_options(options)
