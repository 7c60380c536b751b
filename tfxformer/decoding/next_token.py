"""From the logits to what may be written next."""

from keras import ops

from tfxformer.decoding.options import NEVER
from tfxformer.tokenizer import END_ID, PAD_ID


def next_token(logits, position, ids, prefix, options):
    """Puts what may not be written next out of reach.

    That still counts where probabilities are made, so that a translation's score is
    what the model gives it, whatever the search allowed.

    Args:
        logits: ``(rows, vocab)``.
        position: position of the token before, a scalar.
        ids: what has been written, ``(rows, positions)``; zeros where nothing has.
        prefix: the token that must come next, ``(rows,)``, 0 for any; or None.
        options: `DecodingOptions`.

    Returns:
        Logits ``(rows, vocab)``, `NEVER` or less where a token is not allowed, and
        the logarithm of the sum of all tokens' exponentials, ``(rows,)``, both
        float32.
    """
    logits = ops.cast(logits, "float32")
    log_total = ops.logsumexp(logits, axis=-1)  # (rows,)
    vocab = ops.arange(logits.shape[-1])
    # Padding, unknown and start are the ids below the end token.
    allowed = logits + ops.cast(vocab < END_ID, "float32") * NEVER
    if options.no_repeat_ngram:
        repeated = _repeated(ids, position, options.no_repeat_ngram, logits.shape[-1])
        allowed = allowed + repeated * NEVER
        # Where nothing may be written, the translation ends after all.
        stuck = ops.max(allowed, axis=-1, keepdims=True) <= NEVER / 2
        ends = ops.logical_and(stuck, ops.equal(vocab, END_ID)[None])
        allowed = ops.where(ends, logits, allowed)
    if prefix is not None:
        forced = ops.equal(vocab[None], prefix[:, None])  # (rows, vocab)
        only = ops.where(forced, logits, NEVER)
        allowed = ops.where(ops.equal(prefix, PAD_ID)[:, None], allowed, only)
    return allowed, log_total


def _repeated(ids, position, n, vocab):
    """How often each token would complete an n-gram again, ``(rows, vocab)``."""
    rows, room = ops.shape(ids)
    context = n - 1
    padded = ops.pad(ids, [[0, 0], [context, context]])
    # An n-gram starts at each of these places; all its tokens have been written.
    start = ops.arange(room)
    same = ops.broadcast_to(start + context < position, (rows, room))
    for k in range(context):
        newest = ops.take(padded, position + k, axis=1)  # (rows,)
        written = ops.take(padded, start + context + k, axis=1)  # (rows, room)
        same = ops.logical_and(same, ops.equal(written, newest[:, None]))
    last = ops.take(padded, start + 2 * context, axis=1)  # (rows, room)
    row = ops.broadcast_to(ops.arange(rows)[:, None], (rows, room))
    places = ops.stack([ops.reshape(row, (-1,)), ops.reshape(last, (-1,))], axis=1)
    same = ops.reshape(ops.cast(same, "float32"), (-1,))
    return ops.scatter(places, same, (rows, vocab))
