"""One token through the decoder: the step that every search repeats.

The decoder sees one new position of each hypothesis. What it saw before is in the
cache: self-attention's keys and values grow by one position a step, those of
cross-attention are computed once a sentence. The mathematics and the weights are the
layers' own; what differs is that query, key and value are one product, that nothing is
masked where nothing is to hide, and that a step has as few ops as it can: they, not
the arithmetic, are what decoding one token at a time waits for.

Shapes: a sentence has ``beams`` hypotheses; ``rows = sentences * beams``.
"""

from typing import NamedTuple

from keras import ops

from tfxformer.layers import padding_mask
from tfxformer.layers.attention import MASKED
from tfxformer.layers.kernels import (
    add_bias,
    small_matmul,
    small_softmax,
    take_rows,
)
from tfxformer.layers.residual import EPSILON


class Memory(NamedTuple):
    """What decoding keeps of the sources; each field leads with the sentences.

    Attributes:
        keys: for each layer, cross-attention's ``(sentences, heads, source, key_dim)``.
        values: for each layer, the same shape.
        hidden: ``(sentences, 1, 1, source)``, 0 where the source has a token and far
            below any score where it has none.
    """

    keys: tuple
    values: tuple
    hidden: object


class Past(NamedTuple):
    """The cache of what has been written; each field leads with the sentences.

    Attributes:
        keys: for each layer, self-attention's
            ``(sentences, beams * heads, position, key_dim)``.
        values: for each layer, the same shape.
    """

    keys: tuple
    values: tuple


class _LayerWeights(NamedTuple):
    """A decoder layer's weights as its step uses them.

    Each is a kernel ``(inputs, units)`` and a bias ``(units,)``; norms are a gamma and
    a beta, ``(d_model,)``.

    Attributes:
        query_key_value: self-attention's three projections side by side.
        output: self-attention's output projection.
        cross_query: cross-attention's query projection.
        cross_output: cross-attention's output projection.
        hidden: the feed-forward network's first projection.
        narrow: its second.
        norms: of the three sublayers.
    """

    query_key_value: tuple
    output: tuple
    cross_query: tuple
    cross_output: tuple
    hidden: tuple
    narrow: tuple
    norms: tuple


class DecoderStep:
    """The decoder for one more token, made once for a batch.

    Args:
        model: a `Transformer`.
        beams: hypotheses of each sentence.
        room: the most positions to be written, a scalar.
        history: a `Growing` or a `Fixed`, which says how the cache takes more.
    """

    def __init__(self, model, beams, room, history):
        self.model = model
        self.beams = beams
        self.history = history
        decoder = model.decoder
        mha = decoder.dec_layers[0].causal_self_attention.mha
        self.heads, self.key_dim = mha.num_heads, mha.key_dim
        self.pre_norm = model.config["norm"] == "pre"
        self.dtype = model.compute_dtype
        # All that is the same in every step is made here, outside the loop.
        self.layers = [self._weights(layer) for layer in decoder.dec_layers]
        self.final_norm = decoder.final_norm and self._norm(decoder.final_norm)
        self.embeddings = self._cast(decoder.pos_embedding.embedding.embeddings)
        self.encodings = None
        if decoder.pos_embedding.use_positions:
            encodings = decoder.pos_embedding.encodings(room)
            self.encodings = self._cast(encodings)  # (room, d_model)
        kernel, bias = model.output_weights()
        self.output_kernel = self._cast(kernel)  # (d_model, vocab)
        self.output_bias = None if bias is None else self._cast(bias)

    def _weights(self, layer):
        attention, cross = layer.causal_self_attention, layer.cross_attention
        mha = attention.mha
        denses = (mha.query_dense, mha.key_dense, mha.value_dense)
        kernels, biases = zip(*map(self._dense, denses), strict=True)
        sublayers = (attention, cross, layer.ffn)
        return _LayerWeights(
            query_key_value=(ops.concatenate(kernels, 1), ops.concatenate(biases, 0)),
            output=self._dense(mha.output_dense),
            cross_query=self._dense(cross.mha.query_dense),
            cross_output=self._dense(cross.mha.output_dense),
            hidden=self._dense(layer.ffn.hidden_dense),
            narrow=self._dense(layer.ffn.output_dense),
            norms=tuple(self._norm(x.add_and_norm.layernorm) for x in sublayers),
        )

    def _dense(self, dense):
        return self._cast(dense.kernel), self._cast(dense.bias)

    def _norm(self, norm):
        return self._cast(norm.gamma), self._cast(norm.beta)

    def _cast(self, weight):
        # A tensor, not a variable, which each step would read anew.
        return ops.cast(ops.convert_to_tensor(weight), self.dtype)

    def read(self, source):
        """The encoder, and what cross-attention needs of it.

        Args:
            source: token ids ``(sentences, source)``.

        Returns:
            A `Memory`.
        """
        mask = padding_mask(source)
        context = self.model.encoder(source, mask=mask, training=False)
        layers = self.model.decoder.dec_layers
        pairs = [layer.cross_attention.mha.project(context) for layer in layers]
        keys, values = zip(*pairs, strict=True)
        seen = ops.cast(mask, self.dtype)[:, None, None, :]
        return Memory(keys, values, (1 - seen) * MASKED[self.dtype])

    def nothing_written(self, sentences):
        """The empty cache.

        Args:
            sentences: their number.

        Returns:
            A `Past`.
        """
        shape = (sentences, self.beams * self.heads, None, self.key_dim)
        empty = [self.history.empty(shape, self.dtype) for _ in self.layers]
        return Past(tuple(empty), tuple(empty))

    def reorder(self, past, parent):
        """The cache of hypotheses that continue others.

        Args:
            past: a `Past`.
            parent: int32 ``(sentences, beams)``, which hypothesis of its sentence each
                one continues.

        Returns:
            A `Past`.
        """
        if self.beams == 1:
            return past
        first = ops.arange(ops.shape(parent)[0], dtype="int32") * self.beams
        rows = ops.reshape(parent + first[:, None], (-1,))

        def take(x):
            _, width, length, key_dim = ops.shape(x)
            x = ops.reshape(x, (-1, width // self.beams, length, key_dim))
            return ops.reshape(take_rows(x, rows), (-1, width, length, key_dim))

        return Past(tuple(map(take, past.keys)), tuple(map(take, past.values)))

    def __call__(self, tokens, position, memory, past):
        """Takes one more token of each hypothesis.

        Args:
            tokens: ``(rows,)``; the start token first.
            position: their position, a scalar, 0 for the start token.
            memory: the `Memory` of the sentences.
            past: the `Past` of the hypotheses.

        Returns:
            The decoder's vectors ``(rows, d_model)``, the `Past` with this position,
            and cross-attention's weights, for each layer
            ``(sentences, beams, heads, source)``.
        """
        x = take_rows(self.embeddings, tokens)  # (rows, d_model)
        x = x * self.embeddings.shape[1] ** 0.5
        if self.encodings is not None:
            x = x + take_rows(self.encodings, position)
        unwritten = self.history.unwritten(position, self.dtype)
        keys, values, attention = [], [], []
        for i, layer in enumerate(self.layers):
            first, second, third = layer.norms
            y = self._before(x, first)
            y, key, value = self._self_attention(
                layer, y, position, past.keys[i], past.values[i], unwritten
            )
            x = self._add(x, y, first)
            y = self._before(x, second)
            y, weights = self._cross_attention(
                layer, y, memory.keys[i], memory.values[i], memory.hidden
            )
            x = self._add(x, y, second)
            y = ops.relu(_project(self._before(x, third), layer.hidden))
            x = self._add(x, _project(y, layer.narrow), third)
            keys.append(key)
            values.append(value)
            attention.append(weights)
        if self.final_norm:
            x = _normalise(x, self.final_norm)
        return x, Past(tuple(keys), tuple(values)), attention

    def logits(self, x):
        """The output projection of ``(rows, d_model)``."""
        logits = ops.matmul(x, self.output_kernel)
        return (
            logits if self.output_bias is None else add_bias(logits, self.output_bias)
        )

    def _before(self, x, norm):
        """What a sublayer reads."""
        return _normalise(x, norm) if self.pre_norm else x

    def _add(self, x, y, norm):
        """A sublayer's output on the residual connection."""
        return x + y if self.pre_norm else _normalise(x + y, norm)

    def _self_attention(self, layer, x, position, keys, values, unwritten):
        shape = (-1, self.beams * self.heads, 1, self.key_dim)
        three = ops.split(_project(x, layer.query_key_value), 3, axis=1)
        query, key, value = (ops.reshape(part, shape) for part in three)
        keys = self.history.append(keys, key, position, axis=2)
        values = self.history.append(values, value, position, axis=2)
        scores = small_matmul(query * self.key_dim**-0.5, keys, transpose_y=True)
        if unwritten is not None:
            scores = scores + unwritten
        y = small_matmul(small_softmax(scores), values)
        y = ops.reshape(y, (-1, self.heads * self.key_dim))
        return _project(y, layer.output), keys, values

    def _cross_attention(self, layer, x, keys, values, hidden):
        query = self._beside(_project(x, layer.cross_query) * self.key_dim**-0.5)
        scores = small_matmul(query, keys, transpose_y=True) + hidden
        weights = small_softmax(scores)  # (sentences, heads, beams, source)
        y = self._apart(small_matmul(weights, values))
        return _project(y, layer.cross_output), ops.transpose(weights, (0, 2, 1, 3))

    def _beside(self, x):
        """``(rows, d_model)`` to ``(sentences, heads, beams, key_dim)``."""
        if self.beams == 1:
            return ops.reshape(x, (-1, self.heads, 1, self.key_dim))
        x = ops.reshape(x, (-1, self.beams, self.heads, self.key_dim))
        return ops.transpose(x, (0, 2, 1, 3))

    def _apart(self, x):
        """The way back from `_beside`."""
        if self.beams > 1:
            x = ops.transpose(x, (0, 2, 1, 3))
        return ops.reshape(x, (-1, self.heads * self.key_dim))


def _project(x, weights):
    kernel, bias = weights
    return add_bias(ops.matmul(x, kernel), bias)


def _normalise(x, norm):
    """Layer normalisation, in as few ops as it takes."""
    gamma, beta = norm
    x = x - ops.mean(x, axis=-1, keepdims=True)
    variance = ops.mean(ops.square(x), axis=-1, keepdims=True)
    return x * ops.rsqrt(variance + EPSILON) * gamma + beta
