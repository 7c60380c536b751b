"""From source ids to target ids."""

from typing import NamedTuple

import keras
from keras import ops

from tfxformer.decoding.beam import BeamSearch
from tfxformer.decoding.folded import FoldedTransformer
from tfxformer.decoding.greedy import GreedySearch
from tfxformer.decoding.loop import repeat
from tfxformer.decoding.options import DecodingOptions
from tfxformer.decoding.step import DecoderStep, Sources, length_limit
from tfxformer.layers.masking import padding_mask
from tfxformer.special_tokens import START_ID


class Decoded(NamedTuple):
    """Translations as ids, best first.

    Attributes:
        ids: int32 ``(batch, n_best, target)``: the tokens without the start token, with
            the end token if it was written, then padding.
        score: float32 ``(batch, n_best)``: the mean log-probability of these tokens,
            including the end token; 0 without tokens.
        rank: float32 ``(batch, n_best)``: the order of the translations: the score, or
            the log-probability with the length penalty.
        attention: the cross-attention weights when each token was written,
            ``(batch, n_best, layers, heads, target, source)``; or None.
    """

    ids: object
    score: object
    rank: object
    attention: object


def decode(
    model,
    source,
    options=None,
    prefix=None,
    attention=False,
    forbidden=(),
):
    """Translates a batch, in a graph or outside.

    Args:
        model: a `Transformer`, or its `FoldedTransformer` to reuse over many calls.
        source: int32 token ids ``(batch, source)``, each with its end token, padded;
            at least one column, even if the batch is empty, and at most the model's
            ``max_length``.
        options: `DecodingOptions`; None is greedy.
        prefix: int32 ``(batch, prefix)``, padded: the first tokens of translations.
        attention: also return the cross-attention weights.
        forbidden: lists of token ids; none of these sequences is written.

    Returns:
        `Decoded`.

    Example:
        >>> import numpy as np
        >>> from tfxformer import Transformer
        >>> sizes = {"num_layers": 1, "d_model": 16, "num_heads": 2, "dff": 32}
        >>> model = Transformer(input_vocab_size=50, target_vocab_size=50, **sizes)
        >>> decoded = decode(model, np.array([[7, 8, 3]]), DecodingOptions(beam_size=2))
        >>> tuple(decoded.score.shape)
        (1, 1)
    """
    if not isinstance(model, FoldedTransformer):
        if not model.built:
            model.build()
        model = FoldedTransformer(model)
    options = options or DecodingOptions()
    source = ops.cast(source, "int32")
    limit = length_limit(source, options, model.max_length)
    if prefix is None:
        prefix = ()
    else:
        prefix = ops.cast(prefix, "int32")
        begun = ops.sum(ops.cast(padding_mask(prefix), "int32"), axis=1)
        limit = ops.where(limit > 0, ops.maximum(limit, begun + 1), 0)
        limit = ops.minimum(limit, model.max_length)
    sources = Sources(source, limit, prefix, model.encode(source))
    beams = options.n_best if options.sampling else options.beam_size
    step = DecoderStep(model, beams, options, forbidden)
    search = BeamSearch if options.beam_size > 1 else GreedySearch
    ids, score, rank = repeat(search(step, options), sources)
    weights = _attention(model, sources.encoded, ids) if attention else None
    return Decoded(ids, score, rank, weights)


def _attention(model, encoded, ids):
    """The cross-attention weights, from one pass over the finished translations."""
    batch, n, length = ops.shape(ids)
    start = ops.full((batch * n, 1), START_ID, "int32")
    target = ops.concatenate([start, ops.reshape(ids, (batch * n, length))], axis=1)
    target = target[:, : ops.maximum(length, 1)]  # layers need at least one position
    encoded = keras.tree.map_structure(lambda x: ops.repeat(x, n, axis=0), encoded)
    # (batch * n, layers, heads, target, source)
    _, weights = model.forward(target, encoded)
    weights = ops.cast(weights[..., :length, :], "float32")
    weights = ops.reshape(weights, (batch, n, *ops.shape(weights)[1:]))
    # Padding has no attention.
    written = ops.cast(padding_mask(ids), "float32")[:, :, None, None, :, None]
    return weights * written
