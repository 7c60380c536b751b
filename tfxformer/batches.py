"""Sentence pairs to a `tf.data.Dataset` of `((source, target_in), target_out)`.

Pairs are tokenised once, into a file of ids. NumPy assigns rows to batches, one block
of pairs at a time; the pipeline reads the rows from the memory-mapped file. So memory
does not grow with the number of pairs, and training can start at any batch.
"""

import hashlib
import itertools
import json
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfxformer.errors import UserError, write_file
from tfxformer.special_tokens import END_ID, PAD_ID, START_ID

# Pairs that are sorted by length together, enough to fill batches of equal lengths.
# With subword regularisation fewer, since each block is tokenised again.
BLOCK_PAIRS, DRAWN_BLOCK_PAIRS = 200_000, 20_000
# Pairs that are tokenised in one call, and batches that are prefetched.
CHUNK, PREFETCH = 2_000, 8

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


# --- Token ids on disk ---


class TokenFile:
    """The folder that `write_tokens` wrote, with 12 bytes a pair in memory.

    Attributes:
        sources: a dict for each source: ``pairs`` (the number kept), ``too_long`` (the
            number left out), and ``digest`` (of its text).
        about: the ``about`` of `write_tokens`.
        lengths: the tokens in each source and target, uint16 ``(pairs, 2)``.

    Raises:
        OSError: the folder has no token ids.
        UserError: the files are damaged.
    """

    def __init__(self, folder):
        self.folder = Path(folder)
        try:
            content = json.loads((self.folder / "tokens.json").read_text("utf-8"))
            self.sources, self.about = content["sources"], content["about"]
            self._dtype = np.dtype(content["dtype"])
            lengths = np.fromfile(self.folder / "lengths.bin", np.uint16)
            self.lengths = lengths.reshape(-1, 2)
            ends = self.lengths.sum(axis=1, dtype=np.int64)
            self._ends = np.cumsum(ends, out=ends)  # where each pair's ids end
            size = int(ends[-1]) * self._dtype.itemsize if len(ends) else 0
            whole = len(self) == sum(source["pairs"] for source in self.sources)
            if not whole or (self.folder / "ids.bin").stat().st_size != size:
                raise ValueError
        except (ValueError, KeyError, TypeError):
            raise UserError(f"{folder}: damaged; delete this folder") from None

    def __len__(self):
        return len(self.lengths)

    def rows(self, numbers):
        """The `_Rows` of pairs by number; their ids are read on use."""
        lengths = self.lengths[numbers].astype(np.int64)
        starts = self._ends[numbers] - lengths.sum(axis=1)
        starts = np.stack([starts, starts + lengths[:, 0]], axis=1)
        # A new map each time, so that old pages do not stay in memory.
        ids = np.memmap(self.folder / "ids.bin", self._dtype, "r")
        return _Rows(lengths, starts, ids)


def write_tokens(folder, sources, tokenizer, max_length, about=None):
    """Tokenises pairs into a folder, one chunk at a time, and returns a `TokenFile`.

    Args:
        folder: the folder; its earlier token ids are replaced.
        sources: for each source, an iterable of (source, target) strings.
        tokenizer: a `Tokenizer`.
        max_length: the most positions in a source or a target, including the start or
            end token. Longer pairs are left out and counted.
        about: any JSON value, stored beside the ids.
    """
    folder = Path(folder)
    most = max(side.vocab_size for side in tokenizer.sides)
    dtype = "uint16" if most <= 2**16 else "uint32"
    folder.mkdir(parents=True, exist_ok=True)
    # This file is written last: without it, the others do not count.
    (folder / "tokens.json").unlink(missing_ok=True)
    with (
        open(folder / "ids.bin", "wb") as ids,
        open(folder / "lengths.bin", "wb") as lengths,
    ):
        found = [
            _write_source(ids, lengths, dtype, pairs, tokenizer, max_length)
            for pairs in sources
        ]
    content = {"sources": found, "dtype": dtype, "about": about}
    write_file(folder / "tokens.json", json.dumps(content).encode())
    return TokenFile(folder)


def _write_source(ids, lengths, dtype, pairs, tokenizer, max_length):
    """Appends one source's pairs to the open files; returns its entry in `sources`."""
    kept, seen, digest, pairs = 0, 0, hashlib.sha256(), iter(pairs)
    while chunk := list(itertools.islice(pairs, CHUNK)):
        digest.update(json.dumps(chunk).encode())
        encoded = encode_pairs(chunk, tokenizer)
        rows = [row for row in encoded if max(map(len, row)) < max_length]
        flat = itertools.chain.from_iterable(itertools.chain.from_iterable(rows))
        ids.write(np.fromiter(flat, dtype).tobytes())
        lengths.write(np.array([[*map(len, row)] for row in rows], "uint16").tobytes())
        kept, seen = kept + len(rows), seen + len(chunk)
    return {"pairs": kept, "too_long": seen - kept, "digest": digest.hexdigest()}


def encode_pairs(pairs, tokenizer):
    """A list with the ids of each pair: of its source, and of its target."""
    texts = ([pair[side] for pair in pairs] for side in (0, 1))
    sides = zip(tokenizer.sides, texts, strict=True)
    return list(zip(*(side.encode(texts) for side, texts in sides), strict=True))


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
            rows, cuts = self._plan(block)
            for cut in cuts[first:]:
                yield _padded(rows, *cut)
            first = max(first - len(cuts), 0)

    def _plan(self, block):
        """The rows of a block, and the row numbers and shape of each batch."""
        rng = _rng(self._seed, _ORDER, block)
        rows = self._tokens.rows(self._numbers(block))
        if self._alpha:
            rows = self._drawn(rows)
        order = _by_length(rows, self._tokens_per_batch, rng)
        cuts = _cut(rows, order, self._tokens_per_batch, self._widths)
        self._counts[block] = len(cuts)
        return rows, [cuts[i] for i in rng.permutation(len(cuts))]

    def _numbers(self, block):
        """The numbers of a block's pairs: a part of each source's endless stream."""
        parts, offset = [], 0
        for stream, (size, rate) in enumerate(
            zip(self._sizes, self._rates, strict=True)
        ):
            first, last = int(block * rate), int((block + 1) * rate)
            while first < last:
                epoch, start = divmod(first, size)
                stop = min(start + last - first, size)
                order = np.arange(offset, offset + size, dtype=np.uint32)
                _rng(self._seed, _PAIRS, stream, epoch).shuffle(order)
                parts.append(order[start:stop].copy())
                first += stop - start
            offset += size
        return np.concatenate(parts)

    def _drawn(self, rows):
        """The rows in sampled tokens; in their best tokens where those are too long."""
        sides = []
        for first in range(0, len(rows.lengths), CHUNK):
            chosen = slice(first, first + CHUNK)
            best = rows.sides(chosen)
            drawn = [[]] * len(best)
            for i, side in enumerate(self._tokenizer.sides):
                drawn[i::2] = side.encode(side.decode(best[i::2]), self._alpha)
            for i in range(0, len(best), 2):
                fits = max(map(len, drawn[i : i + 2])) < self._max_length
                sides += (drawn if fits else best)[i : i + 2]
        return _Rows.of_sides(sides)


def evaluation_batches(rows, *, tokens_per_batch, max_length, fixed_shapes=False):
    """Batches of every pair that fits, sorted by length to save padding.

    The rows are pairs of ids: of the source, and of the target. The options are those
    of `TrainingBatches`; pairs of more than ``max_length`` positions are left out.

    Returns:
        A list of ``((source, target_in), target_out)``, NumPy arrays.
    """
    rows = [row for row in rows if max(map(len, row)) < max_length]
    rows = _Rows.of_sides([side for row in rows for side in row])
    order = _by_length(rows, tokens_per_batch)
    widths = _widths(max_length) if fixed_shapes else None
    cuts = _cut(rows, order, tokens_per_batch, widths)
    return [_padded(rows, *cut) for cut in cuts]


class _Rows(NamedTuple):
    """Pairs of ids: their lengths, and where each starts in one array of all ids."""

    lengths: np.ndarray  # (rows, 2), in tokens
    starts: np.ndarray  # (rows, 2)
    ids: np.ndarray

    @classmethod
    def of_sides(cls, sides):
        """Rows of lists of ids: a source, its target, the next source."""
        lengths = np.fromiter(map(len, sides), np.int64, len(sides))
        ids = np.fromiter(itertools.chain.from_iterable(sides), np.int32, lengths.sum())
        ends = np.cumsum(lengths)
        return cls(lengths.reshape(-1, 2), (ends - lengths).reshape(-1, 2), ids)

    def sides(self, chosen):
        """The inverse of `of_sides`, for some rows."""
        lengths, starts = self.lengths[chosen].ravel(), self.starts[chosen].ravel()
        return [
            self.ids[start : start + length].tolist()
            for start, length in zip(starts, lengths, strict=True)
        ]


def _rates(sizes, weights, most, least):
    """The average number of pairs from each source in a block."""
    shares = np.array(weights, float) / sum(weights)
    # No source comes twice in a block, unless the block would be too small.
    epochs = [size / share for size, share in zip(sizes, shares, strict=True) if share]
    pairs = max(min(*epochs, most), least)
    return [Fraction(share * pairs) for share in shares]


def _by_length(rows, tokens_per_batch, rng=None):
    """The row numbers, the longest rows first, similar ones side by side.

    With ``rng``, rows swap places at random within about a batch, so that a small
    corpus does not give the same batches in every epoch.
    """
    longest = rows.lengths.max(axis=1, initial=0)
    slant = rows.lengths[:, 0] - rows.lengths[:, 1]
    if rng is None:
        return np.lexsort((slant, -longest))
    order = np.lexsort((rng.random(len(longest)), slant, -longest))
    batch = tokens_per_batch / (longest[order] + 1)
    places = np.arange(len(order)) + batch * (rng.random(len(order)) - 0.5)
    return order[np.argsort(places, kind="stable")]


def _cut(rows, order, tokens_per_batch, widths=None):
    """Cuts rows in order of length into full batches.

    Returns the row numbers and the shape of each batch; the shape is None without
    ``widths``, the widths to choose from, and then follows from the longest row.
    """
    positions = rows.lengths[order].max(axis=1, initial=0) + 1
    if widths is not None:
        positions = widths[np.searchsorted(widths, positions)]
    cuts, first = [], 0
    while first < len(order):
        count = max(tokens_per_batch // positions[first], 1)
        # A later row may be a little longer.
        width = positions[first : first + count].max()
        count = max(tokens_per_batch // width, 1)
        shape = None if widths is None else (int(count), int(width))
        cuts.append((order[first : first + count], shape))
        first += count
    return cuts


def _padded(rows, chosen, shape):
    """One batch: ``((source, target_in), target_out)``."""
    (source, source_end), (target, target_end) = (
        _padded_side(rows, chosen, side, shape) for side in (0, 1)
    )
    target_in = np.roll(target, 1, axis=1)
    target_in[: len(chosen), 0] = START_ID
    for ids, ends in ((source, source_end), (target, target_end)):
        ids[np.arange(len(chosen)), ends] = END_ID
    return (source, target_in), target


def _padded_side(rows, chosen, side, shape):
    """The ids of one side, with space for one more token, and where they end."""
    lengths, starts = rows.lengths[chosen, side], rows.starts[chosen, side]
    shape = shape or (len(chosen), int(lengths.max()) + 1)
    padded = np.full(shape, PAD_ID, np.int32)
    real = np.arange(shape[1]) < lengths[:, None]
    places = (starts[:, None] + np.arange(shape[1]))[real]
    padded[: len(chosen)][real] = rows.ids[places]
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
    dataset = tf.data.Dataset.from_generator(
        generator, output_signature=((ids, ids), ids)
    )
    options = tf.data.Options()
    # Each of several workers takes its share of every batch's rows.
    sharding = tf.data.experimental.AutoShardPolicy.DATA
    options.experimental_distribute.auto_shard_policy = sharding
    return dataset.prefetch(PREFETCH).with_options(options)
