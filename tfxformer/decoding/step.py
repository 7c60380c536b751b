"""One step of a search: from the newest token to the logits of the next."""

from typing import NamedTuple

from keras import ops

from tfxformer.decoding.options import NEVER
from tfxformer.layers.attention import KeyValue
from tfxformer.layers.kernels import unseen
from tfxformer.layers.masking import padding_mask
from tfxformer.special_tokens import END_ID, PAD_ID


class Sources(NamedTuple):
    """The sentences of a search; they are the first axis of each field."""

    ids: object  # int32 (sentences, source), padded
    limit: object  # int32 (sentences,), the most tokens in the translation
    prefix: object  # int32 (sentences, prefix), padded, the first tokens; or ()
    encoded: object  # an EncodedSource


class DecoderStep:
    """`FoldedTransformer.step` and `next_token` for all hypotheses of a batch."""

    def __init__(self, model, beams, options, forbidden=()):
        self.model = model
        self.beams = beams
        self.options = options
        self.forbidden = forbidden  # lists of token ids

    def empty_cache(self, sentences):
        """The KV cache before the first token; see `FoldedTransformer.step`."""
        width = self.beams * self.model.num_heads
        # (sentences, beams * heads, positions, key_dim), without a position yet
        shape = (sentences, width, unseen(0), self.model.key_dim)
        empty = ops.zeros(shape, self.model.compute_dtype)
        return tuple(
            KeyValue(key=empty, value=empty) for _ in self.model.weights.decoder
        )

    def no_ids(self, sentences):
        """The ids before the first token, ``(sentences, beams, positions)``."""
        return ops.zeros((sentences, self.beams, unseen(0)), "int32")

    def __call__(self, position, sources, *, token, ids, cache):
        """Runs one step on the newest token ``(sentences, beams)``.

        Returns:
            The two results of `next_token` for ``sentences * beams`` rows, and the
            cache with this position.
        """
        x, cache = self.model.step(token, position, sources.encoded, cache)
        logits = self.model.project(x)  # (sentences * beams, vocab)
        # JAX infers no size of a tensor without positions.
        ids = ops.reshape(ids, (ops.shape(logits)[0], ops.shape(ids)[-1]))
        prefix = self._forced(position, sources.prefix)
        logits, log_total = next_token(
            logits,
            position,
            ids=ids,
            prefix=prefix,
            options=self.options,
            forbidden=self.forbidden,
        )
        return logits, log_total, cache

    def _forced(self, position, prefix):
        """The token that must come next, ``(rows,)``, 0 for any; None if unforced."""
        if isinstance(prefix, tuple):
            return None
        padded = ops.pad(prefix, [[0, 0], [0, 1]])
        place = ops.minimum(position, ops.shape(prefix)[1])
        token = ops.take(padded, place, axis=1)  # (sentences,)
        return ops.reshape(ops.repeat(token[:, None], self.beams, axis=1), (-1,))


def length_limit(source, options, max_length):
    """The most tokens in each translation, which depends on its sentence alone.

    Args:
        source: token ids ``(batch, source)``.
        options: `DecodingOptions`.
        max_length: the most positions of the model.

    Returns:
        int32 ``(batch,)``: ``options.max_length``, or twice the source's tokens plus
        ten; 0 for a source with only the end token.
    """
    length = ops.sum(ops.cast(padding_mask(source), "int32"), axis=1)
    limit = 2 * length + 10
    if options.max_length is not None:
        limit = ops.full_like(length, options.max_length)
    return ops.where(length > 1, ops.minimum(limit, max_length), 0)


def next_token(logits, position, ids, prefix, options, forbidden=()):
    """Masks the logits of tokens that must not come next.

    Scores are still the model's probabilities: the sum includes masked tokens.

    Args:
        logits: ``(rows, vocab)``.
        position: position of the token before, a scalar.
        ids: the tokens so far, ``(rows, positions)``, padded with zeros.
        prefix: the token that must come next, ``(rows,)``, 0 for any; or None.
        options: `DecodingOptions`.
        forbidden: lists of token ids that must not be written; a prefix may have them.

    Returns:
        Float32 logits, `NEVER` or less for forbidden tokens, and the log-sum-exp of
        all tokens' logits, ``(rows,)``.
    """
    logits = ops.cast(logits, "float32")
    log_total = ops.logsumexp(logits, axis=-1)  # (rows,)
    vocab = ops.arange(logits.shape[-1])
    # Padding, unknown and start are the ids below the end token.
    allowed = logits + ops.cast(vocab < END_ID, "float32") * NEVER
    if forbidden:
        completed = _completed(ids, position, forbidden, logits.shape[-1])
        allowed = allowed + completed * NEVER
    if options.no_repeat_ngram:
        repeated = _repeated(ids, position, options.no_repeat_ngram, logits.shape[-1])
        allowed = allowed + repeated * NEVER
        # If every token is forbidden, the translation ends.
        stuck = ops.max(allowed, axis=-1, keepdims=True) <= NEVER / 2
        ends = ops.logical_and(stuck, ops.equal(vocab, END_ID)[None])
        allowed = ops.where(ends, logits, allowed)
    if prefix is not None:
        forced = ops.equal(vocab[None], prefix[:, None])  # (rows, vocab)
        only = ops.where(forced, logits, NEVER)
        allowed = ops.where(ops.equal(prefix, PAD_ID)[:, None], allowed, only)
    return allowed, log_total


def _completed(ids, position, forbidden, vocab):
    """How many forbidden sequences each token would complete, ``(rows, vocab)``."""
    context = max(map(len, forbidden)) - 1
    padded = ops.pad(ids, [[0, 0], [context, 0]])
    counts = ops.zeros((ops.shape(ids)[0], vocab))
    for *begun, last in forbidden:
        written = ops.ones((ops.shape(ids)[0],), "bool")  # (rows,)
        for back, token in enumerate(reversed(begun), 1):
            newest = ops.take(padded, position + context - back, axis=1)
            written = ops.logical_and(written, ops.equal(newest, token))
        completes = ops.one_hot(last, vocab)  # (vocab,)
        counts = counts + ops.cast(written, "float32")[:, None] * completes
    return counts


def _repeated(ids, position, n, vocab):
    """How often each token would repeat an n-gram, ``(rows, vocab)``."""
    rows, room = ops.shape(ids)
    context = n - 1
    padded = ops.pad(ids, [[0, 0], [context, context]])
    # An n-gram starts at each of these places, with all its tokens written.
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
