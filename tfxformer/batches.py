"""Token corpora to padded batches of nearly equal length, without TensorFlow."""

import queue
import threading
from contextlib import closing
from fractions import Fraction
from itertools import chain
from typing import NamedTuple

import numpy as np

from tfxformer.errors import UserError
from tfxformer.token_corpus import TokenCorpus
from tfxformer.tokenizer import END_ID, PAD_ID, START_ID

# Pairs that are put in order of length together. Of so many, a batch finds enough of
# its own length; and they fit into memory.
BLOCK_PAIRS = 200_000

# What random numbers are drawn for. Each has its own, so that none repeats another's.
_SHARDS, _PAIRS, _ORDER = range(3)


class TrainingBatches:
    """Endless shuffled batches, each of pairs of nearly the same lengths.

    Where they begin and what follows is settled by the seed and a position: nothing
    is replayed to go on in the middle of a long training.

    Every epoch has all pairs once, in another order. It is cut into blocks; those of
    a block are put in order of length and cut into batches, and the batches are
    shuffled, so that lengths come as they please.

    Args:
        corpora: `TokenCorpus`es; a pair that is too long for ``max_length`` is left
            out.
        tokens_per_batch: the most positions, padding included, that a batch has on
            either side. A pair that is longer is a batch of its own.
        max_length: the most positions of a source or a target.
        weights: how often a pair is drawn from each corpus, relative to one another.
            By default all corpora are one, and each pair is as likely as any other.
        vocabulary: the `Tokenizer`, for ``alpha``.
        alpha: subword regularisation, see `Tokenizer.encode`; 0 for none.
        seed: makes the order the same from run to run.
        static_shapes: only a few shapes, for what compiles anew for each: both sides
            are padded to one of a few widths, and rows of padding fill a batch up.

    Raises:
        UserError: when a corpus is empty, or was made with another vocabulary.

    Example:
        >>> import tempfile
        >>> from tfxformer.corpora import Pair
        >>> from tfxformer.token_corpus import write_corpus
        >>> from tfxformer.tokenizer import Tokenizer
        >>> vocabulary = Tokenizer.train(["o gato", "the cat"] * 50, 300)
        >>> pairs = [Pair("o gato", "the cat"), Pair("gato", "cat")]
        >>> folder = tempfile.mkdtemp() + "/tokens"
        >>> corpus = write_corpus(folder, [pairs], vocabulary, 64, key="two pairs")
        >>> batches = TrainingBatches([corpus], tokens_per_batch=256, max_length=64)
        >>> ((source, target_in), target_out), position = next(batches())
        >>> source.shape[0], position
        (2, {'block': 1, 'batch': 0})
    """

    def __init__(
        self,
        corpora,
        *,
        tokens_per_batch,
        max_length,
        weights=None,
        vocabulary=None,
        alpha=0.0,
        seed=0,
        static_shapes=False,
    ):
        digest = vocabulary.digest if vocabulary else corpora[0].tokenizer_digest
        for corpus in corpora:
            if not corpus.pairs:
                raise UserError(f"{corpus.folder}: has no pair left to train on")
            if corpus.tokenizer_digest != digest:
                raise UserError(
                    f"{corpus.folder}: was made with another vocabulary than the "
                    "run's tokenizer.model"
                )
        self._tokens_per_batch, self._max_length = tokens_per_batch, max_length
        self._widths = _widths(max_length) if static_shapes else None
        self._vocabulary, self._alpha, self._seed = vocabulary, alpha, seed
        if weights is None:
            stream = _Stream(corpora, seed, 0)
            # An epoch is a whole number of blocks, as equal as can be.
            blocks = -(-stream.pairs // BLOCK_PAIRS)
            self._streams, self._rates = [stream], [Fraction(stream.pairs, blocks)]
        else:
            self._streams = [_Stream([c], seed, n) for n, c in enumerate(corpora)]
            self._rates = _rates(self._streams, weights, tokens_per_batch // 2)

    def __call__(self, position=None):
        """The batches from a position on.

        Args:
            position: where to begin, as it was given with the batch before; by
                default at the beginning.

        Returns:
            An endless iterator of ``((source, target_in), target_out)`` and the
            position of the batch after it, a dict of integers. The arrays are int32:
            ``(batch, source)``, ``(batch, target)``, ``(batch, target)``.

        Raises:
            UserError: while iterating, when a shard is damaged, or no pair fits into
                ``max_length``.
        """
        position = position or {"block": 0, "batch": 0}
        first = position["batch"]
        # The next block is made ready while this one is used.
        with closing(prefetch(self._blocks(position["block"]), count=1)) as blocks:
            for block, rows, cuts in blocks:
                for batch in range(first, len(cuts)):
                    last = batch + 1 == len(cuts)
                    after = {"block": block + last, "batch": 0 if last else batch + 1}
                    yield _padded(rows, *cuts[batch]), after
                first = 0

    def _blocks(self, block):
        """Blocks from one on: its number, its rows, and how batches are cut of it."""
        empty = 0
        while True:
            rng = _rng(self._seed, _ORDER, block)
            rows = self._rows(block)
            order = _by_length(rows, self._tokens_per_batch, rng)
            cuts = _cut(rows, order, self._tokens_per_batch, self._widths)
            yield block, rows, [cuts[i] for i in rng.permutation(len(cuts))]
            block += 1
            empty = 0 if cuts else empty + 1
            if empty > 2 * self._blocks_per_epoch():
                raise UserError(
                    f"no pair has at most {self._max_length - 1} pieces on either "
                    f"side; raise model.max_length = {self._max_length}"
                )

    def _blocks_per_epoch(self):
        """The blocks in which all pairs of all corpora have come."""
        return max(
            -(-stream.pairs // rate)
            for stream, rate in zip(self._streams, self._rates, strict=True)
            if rate
        )

    def _rows(self, block):
        """The rows of a block as they come, those that are too long left out."""
        parts = []
        for stream, rate in zip(self._streams, self._rates, strict=True):
            for rows in stream.rows(int(block * rate), int((block + 1) * rate)):
                rows = rows.take(np.flatnonzero(rows.fit(self._max_length)))
                if self._alpha:
                    rows = self._sampled(rows)
                parts.append(rows)
        return _Rows.join(parts)

    def _sampled(self, rows):
        """The same text in other tokens."""
        lengths = rows.lengths.ravel()
        texts = self._vocabulary.decode(np.split(rows.ids, np.cumsum(lengths)[:-1]))
        drawn = self._vocabulary.encode(texts, self._alpha)
        ids = np.fromiter(chain.from_iterable(drawn), np.int32)
        lengths = np.array([*map(len, drawn)])
        drawn = _Rows.of(lengths, ids)
        # A drawn segmentation may be too long where the best one is not.
        chosen = np.arange(len(rows.lengths))
        chosen += len(chosen) * drawn.fit(self._max_length)
        return _Rows.join([rows, drawn]).take(chosen)


def evaluation_batches(pairs, *, tokens_per_batch, max_length, static_shapes=False):
    """Every pair that fits once, in order of length so that little is padding.

    Args:
        pairs: a `TokenCorpus`, or a list of the ids of each source and target.
        tokens_per_batch: the most positions that a batch has on either side; a pair
            that is longer is a batch of its own.
        max_length: the most positions of a source or a target; longer pairs are
            left out.
        static_shapes: see `TrainingBatches`.

    Returns:
        A list of ``((source, target_in), target_out)`` like those to train on.

    Raises:
        UserError: when a shard is damaged.

    Example:
        >>> rows = [([10, 11], [20]), ([12], [])]
        >>> [batch] = evaluation_batches(rows, tokens_per_batch=64, max_length=16)
        >>> (source, target_in), target_out = batch
        >>> source.tolist(), target_in.tolist(), target_out.tolist()
        ([[10, 11, 3], [12, 3, 0]], [[2, 20], [2, 0]], [[20, 3], [3, 0]])
    """
    if isinstance(pairs, TokenCorpus):
        shards = (pairs.shard(i) for i in range(len(pairs.shard_sizes)))
        rows = _Rows.join([_Rows.of(*shard) for shard in shards])
    else:
        rows = _Rows.of_sides([side for pair in pairs for side in pair])
    order = _by_length(rows, tokens_per_batch)
    order = order[rows.fit(max_length)[order]]
    widths = _widths(max_length) if static_shapes else None
    cuts = _cut(rows, order, tokens_per_batch, widths)
    return [_padded(rows, *cut) for cut in cuts]


def prefetch(iterator, count=8):
    """Runs an iterator ahead in a thread.

    Args:
        iterator: what is run. An exception in it comes through where it would have
            come without the thread.
        count: how many items are ready or in the making.

    Yields:
        The same items. Closing the generator ends the thread.

    Example:
        >>> list(prefetch(iter("abc")))
        ['a', 'b', 'c']
    """
    # A free slot is taken before an item is made, so that no item is made in excess.
    ready, free = queue.SimpleQueue(), threading.Semaphore(count)
    closed = threading.Event()

    def fill():
        items = iter(iterator)
        try:
            while free.acquire() and not closed.is_set():
                ready.put((next(items), None))
        except BaseException as error:
            ready.put((None, error))
        finally:
            if hasattr(items, "close"):
                items.close()

    threading.Thread(target=fill, daemon=True).start()
    try:
        while True:
            item, error = ready.get()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            free.release()
            yield item
    finally:
        closed.set()
        free.release()


class _Rows(NamedTuple):
    """Pairs of ids: the lengths, and all ids in one array.

    ``lengths`` is ``(rows, 2)``, in pieces; ``starts``, of the same shape, says where
    each source and target begins in ``ids``.
    """

    lengths: np.ndarray
    starts: np.ndarray
    ids: np.ndarray

    @classmethod
    def of(cls, lengths, ids):
        """Rows whose ids lie one after the other."""
        lengths = lengths.reshape(-1, 2)
        ends = np.cumsum(lengths).reshape(-1, 2)
        return cls(lengths, ends - lengths, ids)

    @classmethod
    def of_sides(cls, sides):
        """Rows of lists of ids: a source, its target, the next source."""
        lengths = np.fromiter(map(len, sides), np.int64, len(sides))
        ids = np.fromiter(chain.from_iterable(sides), np.int32, lengths.sum())
        return cls.of(lengths, ids)

    @classmethod
    def join(cls, parts):
        """All rows of some, in turn."""
        parts = [cls.of_sides([]), *parts]  # so that there is one
        lengths = np.concatenate([part.lengths for part in parts])
        return cls.of(lengths, np.concatenate([part.ids for part in parts]))

    def take(self, rows):
        """Some rows, in the order given, and nothing of the others."""
        lengths = self.lengths[rows]
        sizes = lengths.sum(axis=1)
        # From where a row's ids are to where they go: the same for all ids of a row.
        shift = self.starts[rows, 0] - (np.cumsum(sizes) - sizes)
        places = np.arange(sizes.sum()) + np.repeat(shift, sizes)
        return self.of(lengths, self.ids[places])

    def fit(self, max_length):
        """Whether both sides of a row have room for the start or the end token."""
        return self.lengths.max(axis=1, initial=0) < max_length


class _Stream:
    """Rows of some corpora without end: all of them in each epoch, shuffled anew.

    Any stretch can be had without what comes before it.
    """

    def __init__(self, corpora, seed, number):
        self._shards = [
            (corpus, shard)
            for corpus in corpora
            for shard in range(len(corpus.shard_sizes))
        ]
        self._sizes = np.array([size for c in corpora for size in c.shard_sizes])
        self._seed, self._number = seed, number
        self.pairs = int(self._sizes.sum())

    def rows(self, first, last):
        """The rows from the first to before the last, as `_Rows` of each shard."""
        while first < last:
            epoch, start = divmod(first, self.pairs)
            stop = min(start + last - first, self.pairs)
            yield from self._epoch(epoch, start, stop)
            first += stop - start

    def _epoch(self, epoch, start, stop):
        rng = _rng(self._seed, _SHARDS, self._number, epoch)
        end = 0
        for shard in rng.permutation(len(self._shards)):
            begin, end = end, end + self._sizes[shard]
            if begin < stop and end > start:
                rng = _rng(self._seed, _PAIRS, self._number, epoch, shard)
                rows = rng.permutation(self._sizes[shard])
                rows = rows[max(start - begin, 0) : stop - begin]
                corpus, number = self._shards[shard]
                yield _Rows.of(*corpus.shard(number)).take(rows)


def _rates(streams, weights, least):
    """How many rows a block has of each stream, on average."""
    # In two steps, since the sum of very large weights is infinite.
    shares = np.array(weights, float) / max(weights)
    shares /= shares.sum()
    # No stream more than once in a block, unless that were too few for its batches.
    epochs = [
        stream.pairs / share
        for stream, share in zip(streams, shares, strict=True)
        if share
    ]
    pairs = max(min(*epochs, BLOCK_PAIRS), least)
    return [Fraction(share * pairs) for share in shares]


def _by_length(rows, tokens_per_batch, rng=None):
    """The rows' numbers, the longest first, and alike ones side by side.

    Args:
        rows: `_Rows`.
        tokens_per_batch: the most positions on either side.
        rng: lets them swap places at random within about a batch, so that a small
            corpus does not give the same batches in every epoch.

    Returns:
        An array of integers.
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
    """Cuts rows in order of length into batches, as full as can be.

    Args:
        rows: `_Rows`.
        order: the rows' numbers, about from the longest to the shortest.
        tokens_per_batch: the most positions on either side.
        widths: the widths there may be; any by default.

    Returns:
        For each batch the rows' numbers, and the shape that both sides are to have
        or None where they are as large as they must.
    """
    positions = rows.lengths[order].max(axis=1, initial=0) + 1
    if widths is not None:
        positions = widths[np.searchsorted(widths, positions)]
    cuts, first = [], 0
    while first < len(order):
        count = max(tokens_per_batch // positions[first], 1)
        # A later one may be a little longer.
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
    """The pieces of one side, with room for one token, and where they end."""
    lengths, starts = rows.lengths[chosen, side], rows.starts[chosen, side]
    shape = shape or (len(chosen), int(lengths.max()) + 1)
    padded = np.full(shape, PAD_ID, np.int32)
    real = np.arange(shape[1]) < lengths[:, None]
    places = (starts[:, None] + np.arange(shape[1]))[real]
    padded[: len(chosen)][real] = rows.ids[places]
    return padded, lengths


def _widths(max_length):
    """A dozen widths, each greater than the one before by about a quarter."""
    widths = [8]
    while widths[-1] < max_length:
        widths.append(-(-widths[-1] * 5 // 4 // 4) * 4)
    return np.minimum(widths, max_length)


def _rng(seed, *key):
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
