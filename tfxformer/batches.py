"""Sentence pairs to padded batches of nearly equal length."""

import numpy as np
import tensorflow as tf

from tfxformer.errors import UserError
from tfxformer.special_ids import END_ID, PAD_ID, START_ID


def encode_source(tokenizer, text, alpha=0.0, longest=None):
    """What the encoder reads: the pieces and the end token.

    Args:
        tokenizer: a `Tokenizer`.
        text: strings ``(batch,)``.
        alpha: see `Tokenizer.tokenize`.
        longest: the most pieces; those beyond it are left out.

    Returns:
        Padded int32 ``(batch, source)``, of at least one column.
    """
    return _with_end(*_pieces(tokenizer, text, alpha, longest))


def encode_target(tokenizer, text, alpha=0.0, longest=None):
    """What the decoder reads and what it is to write: the same, shifted by one.

    Args:
        tokenizer: a `Tokenizer`.
        text: strings ``(batch,)``.
        alpha: see `Tokenizer.tokenize`.
        longest: the most pieces; those beyond it are left out.

    Returns:
        Two padded int32 ``(batch, target)``: from the start token to the last piece,
        and from the first piece to the end token.
    """
    ids, lengths = _pieces(tokenizer, text, alpha, longest)
    target_in = tf.pad(ids, [[0, 0], [1, 0]], constant_values=START_ID)
    return target_in, _with_end(ids, lengths)


def _with_end(ids, lengths):
    ids = tf.pad(ids, [[0, 0], [0, 1]])
    return ids + END_ID * tf.one_hot(lengths, tf.shape(ids)[1], dtype=tf.int32)


def _pieces(tokenizer, text, alpha, longest):
    ids = tokenizer.tokenize(text)
    if alpha:
        # A drawn segmentation may be too long where the best one is not.
        drawn = tokenizer.tokenize(text, alpha)
        if longest is not None:
            rows = ids.nrows(tf.int32)
            fits = drawn.row_lengths() <= longest
            choice = tf.range(rows) + tf.where(fits, 0, rows)
            drawn = tf.gather(tf.concat([drawn, ids], axis=0), choice)
        ids = drawn
    lengths = ids.row_lengths()
    if longest is not None:
        lengths = tf.minimum(lengths, longest)
    return ids.to_tensor()[:, :longest], lengths


def token_lengths(pairs, tokenizer):
    """How many tokens each pair has, start and end counted as the model sees them.

    Args:
        pairs: `Pair`s.
        tokenizer: a `Tokenizer`.

    Returns:
        int array ``(pairs, 2)``: source and target positions.
    """
    lengths = []
    for first in range(0, len(pairs), 10_000):
        part = pairs[first : first + 10_000]
        columns = [
            tokenizer.tokenize([pair[side] for pair in part]).row_lengths().numpy() + 1
            for side in (0, 1)
        ]
        lengths.append(np.stack(columns, axis=1))
    return np.concatenate(lengths) if lengths else np.zeros((0, 2), int)


def fit_length(pairs, tokenizer, max_length):
    """Leaves out the pairs that are too long for the model, and counts them.

    Args:
        pairs: `Pair`s.
        tokenizer: a `Tokenizer`.
        max_length: the most positions of a source or a target, in tokens.

    Returns:
        The pairs that fit, and the number of those that do not.
    """
    fits = (token_lengths(pairs, tokenizer) <= max_length).all(axis=1)
    kept = [pair for pair, fit in zip(pairs, fits, strict=True) if fit]
    return kept, len(pairs) - len(kept)


def training_batches(
    sources, tokenizer, *, tokens_per_batch, max_length, weights=None, alpha=0.0, seed=0
):
    """Endless shuffled batches, each of pairs of nearly the same lengths.

    Args:
        sources: lists of `Pair`s, one list for each corpus; pairs that are too long
            are expected to be gone (`fit_length`).
        tokenizer: a `Tokenizer`.
        tokens_per_batch: the most positions, padding included, that a batch has on
            either side.
        max_length: the most positions of a source or a target.
        weights: how often a pair is drawn from each corpus, relative to one
            another. By default each pair is as likely as any other.
        alpha: subword regularisation, see `Tokenizer.tokenize`.
        seed: makes the order the same from run to run.

    Returns:
        `tf.data.Dataset` of ``((source, target_in), target_out)``: int32
        ``(batch, source)``, ``(batch, target)``, ``(batch, target)``.

    Raises:
        UserError: when a corpus is empty.
    """
    for number, pairs in enumerate(sources, 1):
        if not pairs:
            raise UserError(f"corpus {number} has no pair left to train on")
    if weights is None:
        sources, weights = [[pair for pairs in sources for pair in pairs]], [1.0]
    streams = [
        _text(pairs).shuffle(len(pairs), seed=seed + number).repeat()
        for number, pairs in enumerate(sources)
    ]
    # In two steps, since the sum of very large weights is infinite.
    share = [weight / max(weights) for weight in weights]
    share = [weight / sum(share) for weight in share]
    text = tf.data.Dataset.sample_from_datasets(streams, share, seed=seed)
    tokens = _tokenized(text, tokenizer, alpha, max_length - 1)
    boundaries = tf.constant(_boundaries(max_length), tf.int32)

    def bucket(pair, target_out):
        # The longer side decides. With both, most buckets would be so rare that their
        # batches collect copies of the same few pairs over many epochs.
        longest = tf.maximum(*[tf.shape(side)[0] for side in pair])
        return tf.cast(tf.searchsorted(boundaries, [longest])[0], tf.int64)

    def size(bucket):
        size = tokens_per_batch // tf.gather(boundaries, bucket)
        return tf.cast(tf.maximum(size, 1), tf.int64)

    batches = tokens.group_by_window(
        key_func=bucket,
        reduce_func=lambda bucket, window: window.padded_batch(size(bucket)),
        window_size_func=size,
    )
    return batches.prefetch(8)


def evaluation_batches(pairs, tokenizer, *, tokens_per_batch, max_length):
    """Every pair that fits once, sorted by length so that little is padding.

    Args:
        pairs: `Pair`s.
        tokenizer: a `Tokenizer`.
        tokens_per_batch: the most positions that a batch has on either side.
        max_length: the most positions of a source or a target; longer pairs are
            left out (`fit_length` counts them).

    Returns:
        A list of ``((source, target_in), target_out)`` like `training_batches`.
    """
    lengths = token_lengths(pairs, tokenizer)
    longest = lengths.max(axis=1, initial=0)
    order = [i for i in np.argsort(longest, kind="stable") if longest[i] <= max_length]
    batches, rows = [], []
    for i in order:
        if rows and (len(rows) + 1) * longest[i] > tokens_per_batch:
            batches.append(rows)
            rows = []
        rows.append(pairs[i])
    batches += [rows] if rows else []
    return [encode_pairs(rows, tokenizer) for rows in batches]


def encode_pairs(pairs, tokenizer):
    """One padded batch of pairs.

    Args:
        pairs: `Pair`s.
        tokenizer: a `Tokenizer`.

    Returns:
        ``((source, target_in), target_out)`` of int32 tensors.
    """
    source, target_in, target_out = _encode(
        [pair.source for pair in pairs], [pair.target for pair in pairs], tokenizer
    )
    return (source, target_in), target_out


def _encode(source, target, tokenizer, alpha=0.0, longest=None):
    return (
        encode_source(tokenizer, source, alpha, longest),
        *encode_target(tokenizer, target, alpha, longest),
    )


def _text(pairs):
    return tf.data.Dataset.from_tensor_slices(
        ([pair[0] for pair in pairs], [pair[1] for pair in pairs])
    )


def _tokenized(text, tokenizer, alpha, longest):
    def encode(source, target):
        columns = _encode(source, target, tokenizer, alpha, longest)
        return tuple(
            tf.RaggedTensor.from_tensor(ids, padding=PAD_ID) for ids in columns
        )

    # Tokenising many lines in one call is far cheaper than one at a time.
    return (
        text.batch(512)
        .map(encode, num_parallel_calls=tf.data.AUTOTUNE)
        .unbatch()
        .map(lambda source, target_in, target_out: ((source, target_in), target_out))
    )


def _boundaries(max_length):
    """Bucket widths that grow by a tenth, at least by 2: padding stays below that."""
    widths, width = [], 4
    while width < max_length:
        widths.append(width)
        width = max(width + 2, int(width * 1.1))
    return [*widths, max_length]
