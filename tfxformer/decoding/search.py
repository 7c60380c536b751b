"""From source ids to target ids."""

from typing import NamedTuple

from keras import ops

from tfxformer.decoding.beam import beam_search
from tfxformer.decoding.greedy import greedy, greedy_steps
from tfxformer.decoding.history import Fixed, Growing
from tfxformer.decoding.hypotheses import Decoded  # noqa: F401
from tfxformer.decoding.options import DecodingOptions
from tfxformer.decoding.step import DecoderStep
from tfxformer.layers.kernels import ON_TENSORFLOW
from tfxformer.layers.masking import padding_mask


class Sources(NamedTuple):
    """What a search knows of its sentences; each field leads with them.

    Attributes:
        ids: int32 ``(sentences, source)``, padded.
        limit: int32 ``(sentences,)``, the most tokens that may be written.
        prefix: int32 ``(sentences, prefix)``, padded, tokens to begin with; or ().
        memory: what the decoder needs of the source, a `Memory`.
    """

    ids: object
    limit: object
    prefix: object
    memory: object

    def forced(self, position, beams):
        """The token that must come next, ``(rows,)``, 0 for any; None if all are."""
        if isinstance(self.prefix, tuple):
            return None
        padded = ops.pad(self.prefix, [[0, 0], [0, 1]])
        place = ops.minimum(position, ops.shape(self.prefix)[1])
        token = ops.take(padded, place, axis=1)
        return ops.reshape(ops.repeat(token[:, None], beams, axis=1), (-1,))


def length_limit(source, options, max_length):
    """How many tokens a translation may have.

    It depends on the sentence alone, never on its neighbours in the batch.

    Args:
        source: token ids ``(batch, source)``.
        options: `DecodingOptions`.
        max_length: the most positions that the model knows.

    Returns:
        int32 ``(batch,)``: ``options.max_length``, or twice the source's tokens and
        ten more. A source without a token but the end has limit 0: the translation
        of nothing is nothing.

    Example:
        >>> import numpy as np
        >>> source = np.array([[7, 8, 3], [3, 0, 0]])
        >>> np.asarray(length_limit(source, DecodingOptions(), 64)).tolist()
        [16, 0]
    """
    length = ops.sum(ops.cast(padding_mask(source), "int32"), axis=1)
    limit = 2 * length + 10
    if options.max_length is not None:
        limit = ops.full_like(length, options.max_length)
    return ops.where(length > 1, ops.minimum(limit, max_length), 0)


def decode(model, source, options=None, prefix=None, attention=False, xla=False):
    """Translates a batch.

    The whole search runs in the graph when it is traced, and outside it as well. It
    ends when every sentence has ended, or is as long as `length_limit` lets it be.

    Args:
        model: a `Transformer`.
        source: int32 token ids ``(batch, source)``, each with its end token, padded;
            at least one column, also where the batch is empty.
        options: `DecodingOptions`; None searches greedily.
        prefix: int32 ``(batch, prefix)``, padded: tokens that the translations begin
            with. None leaves them free.
        attention: return cross-attention's weights as well.
        xla: for functions that XLA compiles: every shape follows from the source's.
            On JAX this is always so.

    Returns:
        `Decoded`.

    Example:
        >>> import numpy as np
        >>> from tfxformer import Transformer
        >>> model = Transformer(
        ...     num_layers=1, d_model=16, num_heads=2, dff=32, max_length=8,
        ...     input_vocab_size=50, target_vocab_size=50,
        ... )
        >>> found = decode(model, np.array([[7, 8, 3]]), DecodingOptions(beam_size=2))
        >>> tuple(found.score.shape)
        (1, 1)
    """
    options = options or DecodingOptions()
    sources, step, history = _prepare(model, source, options, prefix, xla)
    search = beam_search if options.beam_size > 1 else greedy
    found = search(sources, step, options, history, attention)
    if not attention:
        return found._replace(attention=None)
    # (batch, n, layers * heads, source, target), from the loop
    weights = ops.transpose(found.attention, (0, 1, 2, 4, 3))
    batch, n, _, target, length = ops.shape(weights)
    shape = (batch, n, len(step.layers), step.heads, target, length)
    # Weights of the steps that a sentence did not need are none.
    written = ops.cast(padding_mask(found.ids), "float32")[:, :, None, None, :, None]
    return found._replace(attention=ops.reshape(weights, shape) * written)


def decode_steps(model, source, options=None):
    """Translates as `decode` does, one token after the other, to be watched.

    Outside the graph, where each step takes longer than in it; the tokens are the same.

    Args:
        model: a `Transformer`.
        source: int32 token ids ``(batch, source)``, each with its end token, padded.
        options: `DecodingOptions` without a beam; None searches greedily.

    Yields:
        int32 ``(batch, n_best, positions)`` after each token: what has been written so
        far, then padding.

    Example:
        >>> import numpy as np
        >>> from tfxformer import Transformer
        >>> model = Transformer(
        ...     num_layers=1, d_model=16, num_heads=2, dff=32, max_length=8,
        ...     input_vocab_size=50, target_vocab_size=50,
        ... )
        >>> source = np.array([[7, 8, 3]])
        >>> *_, last = decode_steps(model, source)
        >>> np.array_equal(last, decode(model, source).ids)
        True
    """
    options = options or DecodingOptions()
    sources, step, history = _prepare(model, source, options)
    yield from greedy_steps(sources, step, options, history)


def _prepare(model, source, options, prefix=None, xla=False):
    """What a search takes: `Sources`, a `DecoderStep`, a history."""
    if not model.built:
        model.build()
    source = ops.cast(source, "int32")
    limit = length_limit(source, options, model.max_length)
    if prefix is not None:
        prefix = ops.cast(prefix, "int32")
        begun = ops.sum(ops.cast(padding_mask(prefix), "int32"), axis=1)
        limit = ops.where(limit > 0, ops.maximum(limit, begun + 1), 0)
        limit = ops.minimum(limit, model.max_length)
    if xla or not ON_TENSORFLOW:
        room = _known_room(source, prefix, options, model.max_length)
        history = Fixed(room)
    else:
        # Never below 0, also where the batch is empty.
        room = ops.max(limit, initial=0)
        history = Growing(room)
    beams = options.n_best if options.sampling else options.beam_size
    step = DecoderStep(model, beams, room, history)
    prefix = () if prefix is None else prefix
    sources = Sources(source, limit, prefix, step.read(source))
    return sources, step, history


def _known_room(source, prefix, options, max_length):
    """The most positions any source of this shape may need."""
    room = 2 * ops.shape(source)[1] + 10
    if options.max_length is not None:
        room = options.max_length
    if prefix is not None:
        room = ops.maximum(room, ops.shape(prefix)[1] + 1)
    return (
        min(room, max_length)
        if isinstance(room, int)
        else ops.minimum(room, max_length)
    )
