"""The Transformer in the form that decoding runs: the same function, fewer products.

Training needs each weight by itself. Decoding does not, so `fold` multiplies weights
together once:

- The query, key and value matrices of self-attention become one matrix, which also
  divides the scores by the square root of ``key_dim``.
- The key and value matrices of cross-attention become one matrix for all layers.
- With pre-norm, the gain and the bias of a layer normalization become part of the
  matrix that reads the result. Its mean becomes part of the matrices that write what it
  normalizes: they write vectors of mean 0, so only the division is left.
- The scale and the positions of the embeddings become tables.
"""

from typing import NamedTuple

import keras
from keras import ops

from tfxformer.layers.attention import KeyValue
from tfxformer.layers.kernels import (
    EPSILON,
    add_bias,
    few_rows_matmul,
    few_rows_softmax,
    take_rows,
)
from tfxformer.layers.masking import look_ahead_mask, mask_bias, padding_mask


class Product(NamedTuple):
    """The weights of ``x W + b``."""

    kernel: object  # (inputs, outputs)
    bias: object  # (outputs,)


class Sublayer(NamedTuple):
    """The weights of attention or of a feed-forward network."""

    # (d_model, 3 * d_model) for self-attention: query, key and value side by side
    inputs: Product
    output: Product  # to d_model
    norm: tuple  # gain and bias after the residual connection; () with pre-norm


class Embedding(NamedTuple):
    """What a token and its position add up to."""

    tokens: object  # (vocab, d_model)
    positions: object  # (max_length, d_model)


class Weights(NamedTuple):
    """The folded weights of a `Transformer`."""

    source: Embedding
    target: object  # an Embedding, or () for the source's
    encoder: tuple  # for each layer the Sublayers of self-attention and feed-forward
    # The keys and values of cross-attention: (d_model, 2 * layers * d_model)
    cross: Product
    # For each layer the Sublayers of self-attention, cross-attention and feed-forward
    decoder: tuple
    logits: Product  # (d_model, vocab)


class EncodedSource(NamedTuple):
    """The encoded sources in the form that decoding uses."""

    key_value: tuple  # for each decoder layer the `KeyValue` of cross-attention
    # (batch, 1, 1, source): 0 at tokens, far below any score at padding.
    mask_bias: object


def fold(transformer):
    """Folds the weights of a `Transformer`.

    Args:
        transformer: a built `Transformer`.

    Returns:
        `Weights`: tensors of the model's compute dtype.
    """
    encoder, decoder = transformer.encoder, transformer.decoder
    shared = transformer.tie_embeddings is True and not transformer.learned_positions
    cross = [layer.cross_attention.mha for layer in decoder.dec_layers]
    cross = [dense for mha in cross for dense in (mha.key_dense, mha.value_dense)]
    weights = Weights(
        source=_fold_embedding(encoder.pos_embedding, transformer.norm),
        target=(
            () if shared else _fold_embedding(decoder.pos_embedding, transformer.norm)
        ),
        encoder=tuple(
            (
                _fold_attention(layer.self_attention),
                _fold_feed_forward(layer.ffn),
            )
            for layer in encoder.enc_layers
        ),
        cross=_read(encoder.final_norm, transformer.norm, map(_product, cross)),
        decoder=tuple(
            (
                _fold_attention(layer.causal_self_attention),
                _fold_attention(layer.cross_attention, is_cross=True),
                _fold_feed_forward(layer.ffn),
            )
            for layer in decoder.dec_layers
        ),
        logits=_read(decoder.final_norm, transformer.norm, [_logits(transformer)]),
    )
    return keras.tree.map_structure(
        lambda x: ops.cast(x, transformer.compute_dtype), weights
    )


def _fold_embedding(layer, norm):
    tokens = ops.convert_to_tensor(layer.embedding.embeddings)
    positions = ops.cast(layer.encodings(layer.max_length), tokens.dtype)
    if not layer.use_positions:
        positions = ops.zeros_like(positions)
    return Embedding(
        tokens=_centre(tokens * ops.cast(layer.d_model**0.5, tokens.dtype), norm),
        positions=_centre(positions, norm),
    )


def _fold_attention(layer, is_cross=False):
    """The `Sublayer` of a `BaseAttention`; cross-attention reads only the query."""
    query = _product(layer.mha.query_dense)
    scale = ops.cast(layer.mha.key_dim**-0.5, query.kernel.dtype)  # section 3.2.1
    readers = [Product(query.kernel * scale, query.bias * scale)]
    if not is_cross:
        readers += [_product(layer.mha.key_dense), _product(layer.mha.value_dense)]
    return _sublayer(readers, layer.mha.output_dense, layer.add_and_norm)


def _fold_feed_forward(layer):
    return _sublayer(
        [_product(layer.hidden_dense)], layer.output_dense, layer.add_and_norm
    )


def _sublayer(readers, output, add_and_norm):
    norm, layernorm = add_and_norm.norm, add_and_norm.layernorm
    output = _product(output)
    return Sublayer(
        inputs=_read(layernorm, norm, readers),
        output=Product(_centre(output.kernel, norm), _centre(output.bias, norm)),
        norm=(layernorm.gamma, layernorm.beta) if norm == "post" else (),
    )


def _product(dense):
    """The `Product` of a Keras `Dense`."""
    return Product(
        ops.convert_to_tensor(dense.kernel), ops.convert_to_tensor(dense.bias)
    )


def _logits(transformer):
    """The `Product` of the output projection."""
    embeddings, bias = transformer.output_embeddings()
    kernel = ops.transpose(embeddings)
    bias = ops.zeros(kernel.shape[1:], kernel.dtype) if bias is None else bias
    return Product(kernel, ops.convert_to_tensor(bias))


def _read(layernorm, norm, products):
    """One `Product` for all that read the same x, with the pre-norm before it."""
    products = [*products]
    kernel = ops.concatenate([x.kernel for x in products], axis=1)
    bias = ops.concatenate([x.bias for x in products], axis=0)
    if norm == "post":
        return Product(kernel, bias)
    gain = ops.convert_to_tensor(layernorm.gamma)[:, None]
    return Product(gain * kernel, bias + ops.matmul(layernorm.beta, kernel))


def _centre(x, norm):
    """Takes the mean of each row away, which pre-norm would take away later."""
    return x - ops.mean(x, axis=-1, keepdims=True) if norm == "pre" else x


class FoldedTransformer:
    """A `Transformer` for decoding.

    Args:
        transformer: a built `Transformer`.
        weights: the result of `fold`; None folds now.

    Example:
        >>> import numpy as np
        >>> from tfxformer import Transformer
        >>> sizes = {"num_layers": 1, "d_model": 16, "num_heads": 2, "dff": 32}
        >>> model = Transformer(input_vocab_size=50, target_vocab_size=50, **sizes)
        >>> source, target_in = np.array([[7, 8, 3]]), np.array([[2, 5]])
        >>> logits = model((source, target_in))
        >>> folded = FoldedTransformer(model)
        >>> x, _ = folded.forward(target_in, folded.encode(source))
        >>> np.allclose(folded.project(x), logits[0], atol=1e-5)
        True
    """

    def __init__(self, transformer, weights=None):
        self.weights = fold(transformer) if weights is None else weights
        self.pre_norm = transformer.norm == "pre"
        self.num_heads = transformer.num_heads
        self.key_dim = transformer.d_model // transformer.num_heads
        self.max_length = transformer.max_length
        self.activation = keras.activations.get(transformer.activation)
        self.compute_dtype = transformer.compute_dtype

    def encode(self, source):
        """Runs the encoder, and projects its output for each decoder layer.

        Args:
            source: token ids ``(batch, source)``.

        Returns:
            `EncodedSource`.
        """
        bias = mask_bias(padding_mask(source), self.compute_dtype)
        bias = bias[:, None, None, :]  # (batch, 1, 1, source)
        x = self._embed(self.weights.source, source)  # (batch * source, d_model)
        length = ops.shape(source)[1]
        for attention, feed_forward in self.weights.encoder:
            x = self._self_attention(x, attention, length, bias)
            x = self._feed_forward(x, feed_forward)
        # (batch * source, 2 * layers * d_model)
        x = project(self._normalize(x), self.weights.cross)
        layers = len(self.weights.decoder)
        key_value = self._split(x, 2 * layers, length)
        return EncodedSource(
            key_value=tuple(
                KeyValue(key=key_value[2 * i], value=key_value[2 * i + 1])
                for i in range(layers)
            ),
            mask_bias=bias,
        )

    def forward(self, target_in, encoded):
        """Runs the decoder on whole targets (teacher forcing).

        Args:
            target_in: token ids ``(batch, target)``, with the start token first.
            encoded: the result of `encode`.

        Returns:
            Hidden states ``(batch * target, d_model)`` for `project`, and the
            cross-attention weights ``(batch, layers, heads, target, source)``.
        """
        length = ops.shape(target_in)[1]
        # Padding needs no mask: it comes last, and no token reads what comes later.
        bias = mask_bias(look_ahead_mask(length), self.compute_dtype)
        x = self._embed(self._target, target_in)  # (batch * target, d_model)
        attention = []
        layers = zip(self.weights.decoder, encoded.key_value, strict=True)
        for (self_attention, cross, feed_forward), key_value in layers:
            x = self._self_attention(x, self_attention, length, bias)
            x, weights = self._cross_attention(
                x, cross, length, key_value=key_value, bias=encoded.mask_bias
            )
            x = self._feed_forward(x, feed_forward)
            attention.append(weights)  # (batch, heads, target, source)
        return self._normalize(x), ops.stack(attention, axis=1)

    def step(self, tokens, position, encoded, cache):
        """Runs the decoder on one more token of each hypothesis.

        Args:
            tokens: ids ``(batch, beams)``; at first the start token.
            position: their position, a scalar; 0 for the start token.
            encoded: the result of `encode`.
            cache: the KV cache: for each layer the `KeyValue` of self-attention, each
                ``(batch, beams * heads, positions, key_dim)``.

        Returns:
            Hidden states ``(batch * beams, d_model)`` for `project`, and the cache with
            this position.
        """
        beams = tokens.shape[1]
        tokens = ops.reshape(tokens, (-1,))  # (batch * beams,)
        x = take_rows(self._target.tokens, tokens)  # (batch * beams, d_model)
        x = x + take_rows(self._target.positions, position)
        written = []
        layers = zip(self.weights.decoder, encoded.key_value, cache, strict=True)
        for (self_attention, cross, feed_forward), key_value, past in layers:
            x, past = self._cached_attention(x, self_attention, beams, past)
            x, _ = self._cross_attention(
                x, cross, beams, key_value=key_value, bias=encoded.mask_bias
            )
            x = self._feed_forward(x, feed_forward)
            written.append(past)
        return self._normalize(x), tuple(written)

    def project(self, x):
        """The logits ``(rows, vocab)`` of hidden states ``(rows, d_model)``."""
        return project(x, self.weights.logits)

    @property
    def _target(self):
        return self.weights.target or self.weights.source

    def _embed(self, embedding, ids):
        """The embeddings of ids ``(batch, length)``: ``(batch * length, d_model)``."""
        length = ops.shape(ids)[1]
        if isinstance(length, int) and length > self.max_length:
            raise ValueError(f"{length} positions exceed max_length={self.max_length}")
        x = take_rows(embedding.tokens, ids) + embedding.positions[:length]
        return ops.reshape(x, (-1, x.shape[-1]))

    def _normalize(self, x):
        """With pre-norm, divides each row by its deviation; its mean is 0."""
        if not self.pre_norm:
            return x
        wide = keras.backend.result_type(x.dtype, "float32")
        square = ops.square(ops.cast(x, wide))
        variance = ops.mean(square, axis=-1, keepdims=True)  # (rows, 1)
        return x * ops.cast(ops.rsqrt(variance + EPSILON), x.dtype)

    def _add(self, x, y, weights):
        """The residual connection around a sublayer, and post-norm."""
        x = x + project(y, weights.output)  # (rows, d_model)
        if self.pre_norm:
            return x
        wide = keras.backend.result_type(x.dtype, "float32")
        gain, bias = (ops.cast(weight, wide) for weight in weights.norm)
        given, x = x.dtype, ops.cast(x, wide)
        x = x - ops.mean(x, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(x), axis=-1, keepdims=True)  # (rows, 1)
        return ops.cast(x * ops.rsqrt(variance + EPSILON) * gain + bias, given)

    def _feed_forward(self, x, weights):
        hidden = self.activation(project(self._normalize(x), weights.inputs))
        return self._add(x, hidden, weights)

    def _self_attention(self, x, weights, length, bias):
        """Self-attention over sequences: ``(batch * length, d_model)`` to the same."""
        y = project(self._normalize(x), weights.inputs)  # (batch * length, 3 * d_model)
        query, key, value = self._split(y, 3, length)
        y, _ = attend(query, KeyValue(key=key, value=value), bias)
        return self._add(x, self._join(y), weights)

    def _cached_attention(self, x, weights, beams, cache):
        """Self-attention of one more position of each hypothesis, and its new cache."""
        y = project(self._normalize(x), weights.inputs)  # (batch * beams, 3 * d_model)
        # Each hypothesis attends to its own positions: beams and heads share an axis.
        shape = (-1, beams * self.num_heads, 1, self.key_dim)
        query, key, value = (ops.reshape(part, shape) for part in ops.split(y, 3, 1))
        cache = KeyValue(
            key=ops.concatenate([cache.key, key], axis=2),
            value=ops.concatenate([cache.value, value], axis=2),
        )  # (batch, beams * heads, positions, key_dim)
        y, _ = attend(query, cache)  # (batch, beams * heads, 1, key_dim)
        y = ops.reshape(y, (-1, self.num_heads * self.key_dim))
        return self._add(x, y, weights), cache

    def _cross_attention(self, x, weights, queries, *, key_value, bias):
        """Cross-attention of ``queries`` rows of x for each source."""
        y = project(self._normalize(x), weights.inputs)  # (batch * queries, d_model)
        (query,) = self._split(y, 1, queries)  # (batch, heads, queries, key_dim)
        y, attention = attend(query, key_value, bias)
        return self._add(x, self._join(y), weights), attention

    def _split(self, x, parts, length):
        """Splits rows into tensors ``(batch, heads, length, key_dim)``."""
        shape = (-1, length, parts, self.num_heads, self.key_dim)
        if isinstance(length, int) and length == parts == 1:  # nothing to transpose
            return [ops.reshape(x, (-1, self.num_heads, 1, self.key_dim))]
        # (parts, batch, heads, length, key_dim)
        x = ops.transpose(ops.reshape(x, shape), (2, 0, 3, 1, 4))
        return ops.unstack(x, parts)

    def _join(self, x):
        """The reverse of `_split`: ``(batch * length, d_model)``."""
        if x.shape[2] != 1:
            x = ops.transpose(x, (0, 2, 1, 3))  # (batch, length, heads, key_dim)
        return ops.reshape(x, (-1, self.num_heads * self.key_dim))


def project(x, product):
    """``x W + b`` for rows of x."""
    return add_bias(ops.matmul(x, product.kernel), product.bias)


def attend(query, key_value, bias=None):
    """Scaled dot-product attention, with the scale in the query already.

    Args:
        query: ``(batch, heads, target, key_dim)``.
        key_value: a `KeyValue`, each ``(batch, heads, source, key_dim)``.
        bias: hides positions: 0, or far below any score; None hides nothing.

    Returns:
        The weighted values ``(batch, heads, target, key_dim)``, and the weights
        ``(batch, heads, target, source)``.
    """
    scores = few_rows_matmul(query, key_value.key, transpose_y=True)
    if bias is not None:
        scores = scores + bias
    weights = few_rows_softmax(scores)  # (batch, heads, target, source)
    return few_rows_matmul(weights, key_value.value), weights
