"""One step of a search: from the newest token to what may come next."""

from typing import NamedTuple

import keras
from keras import ops

from tfxformer.decoding.next_token import next_token
from tfxformer.layers.masking import padding_mask


class Sources(NamedTuple):
    """What a search knows of its sentences; each field leads with them.

    Attributes:
        ids: int32 ``(sentences, source)``, padded.
        limit: int32 ``(sentences,)``, the most tokens that may be written.
        prefix: int32 ``(sentences, prefix)``, padded, tokens to begin with; or ().
        encoded: an `EncodedSource`.
    """

    ids: object
    limit: object
    prefix: object
    encoded: object


class DecoderStep:
    """`Transformer.decode_step` and `next_token`; what all steps share is made once.

    Args:
        model: a `Transformer`.
        beams: number of hypotheses of each sentence.
        buffers: `GrowingBuffers` or `FixedBuffers`, how tensors take more positions.
        options: `DecodingOptions`.
    """

    def __init__(self, model, beams, buffers, options):
        self.model = model
        self.beams = beams
        self.buffers = buffers
        self.options = options
        mha = model.decoder.dec_layers[0].causal_self_attention.mha
        self.layers, self.heads = len(model.decoder.dec_layers), mha.num_heads
        self.key_dim = mha.key_dim
        # A loop would read each variable, and cast it, in every step. Within this
        # scope the layers find tensors in their place.
        self.weights = keras.StatelessScope()
        for weight in model.weights:
            value = ops.cast(ops.convert_to_tensor(weight), model.compute_dtype)
            self.weights.add_update((weight, value))
        with self.weights:
            self.output = tuple(
                x if x is None else ops.convert_to_tensor(x)
                for x in model.output_weights()
            )

    def empty_cache(self, sentences):
        """The KV cache before the first token; see `Decoder.step`."""
        shape = (sentences, self.beams * self.heads, None, self.key_dim)

        def empty():
            return self.buffers.empty(shape, self.model.compute_dtype)

        return tuple((empty(), empty()) for _ in range(self.layers))

    def no_ids(self, sentences):
        """The ids before the first token, ``(sentences, beams, positions)``."""
        return self.buffers.empty((sentences, self.beams, None), "int32")

    def append_ids(self, ids, tokens, position):
        """The ids with those of one more position, ``(sentences, beams)``."""
        return self.buffers.append(ids, tokens[..., None], position, axis=-1)

    def __call__(self, position, sources, token, ids, cache):
        """Takes the newest token of each hypothesis.

        Args:
            position: its position, a scalar, 0 for the start token.
            sources: `Sources`.
            token: int32 ``(sentences, beams)``.
            ids: all tokens, ``(sentences, beams, positions)``.
            cache: the KV cache.

        Returns:
            What `next_token` gives, for ``sentences * beams`` rows; the cache with
            this position; and cross-attention's weights, float32
            ``(sentences, beams, layers * heads, source)``.
        """
        token = ops.reshape(token, (-1,))
        with self.weights:
            x, cache, attention = self.model.decode_step(
                ops.reshape(token, (-1,)),
                position,
                sources.encoded,
                cache,
                self.buffers,
            )
            logits = self.model.project(x, self.output)
        ids = ops.reshape(ids, (-1, ops.shape(ids)[-1]))
        prefix = self._forced(position, sources.prefix)
        logits, log_total = next_token(logits, position, ids, prefix, self.options)
        return logits, log_total, cache, ops.cast(attention, "float32")

    def _forced(self, position, prefix):
        """The token that must come next, ``(rows,)``, 0 for any; None if all are."""
        if isinstance(prefix, tuple):
            return None
        padded = ops.pad(prefix, [[0, 0], [0, 1]])
        place = ops.minimum(position, ops.shape(prefix)[1])
        token = ops.take(padded, place, axis=1)  # (sentences,)
        return ops.reshape(ops.repeat(token[:, None], self.beams, axis=1), (-1,))


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
        >>> from tfxformer.decoding import DecodingOptions
        >>> source = np.array([[7, 8, 3], [3, 0, 0]])
        >>> np.asarray(length_limit(source, DecodingOptions(), 64)).tolist()
        [16, 0]
    """
    length = ops.sum(ops.cast(padding_mask(source), "int32"), axis=1)
    limit = 2 * length + 10
    if options.max_length is not None:
        limit = ops.full_like(length, options.max_length)
    return ops.where(length > 1, ops.minimum(limit, max_length), 0)
