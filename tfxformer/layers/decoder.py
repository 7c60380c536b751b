"""The decoder: writes the target, each position seeing those before it (Figure 1)."""

import keras
from keras import ops

from tfxformer.layers.attention import CausalSelfAttention, CrossAttention
from tfxformer.layers.feed_forward import FeedForward
from tfxformer.layers.masking import padding_mask
from tfxformer.layers.stack import Stack, StackLayer


@keras.saving.register_keras_serializable("tfxformer")
class DecoderLayer(StackLayer):
    """Causal self-attention, cross-attention, feed-forward.

    It takes the arguments of `StackLayer`.

    Call arguments:
        x: ``(batch, target, d_model)``.
        context: the encoder's output, ``(batch, source, d_model)``.
        x_mask: boolean padding mask ``(batch, target)``.
        context_mask: boolean padding mask ``(batch, source)``. Where a mask is not
            given, the Keras mask of its tensor is used.
        return_attention_scores: also return cross-attention's weights.

    Returns:
        ``(batch, target, d_model)``, and with ``return_attention_scores`` the
        weights ``(batch, heads, target, source)``. ``last_attn_scores`` then holds the
        cross-attention's weights (see `CrossAttention`).

    Example:
        >>> import numpy as np
        >>> layer = DecoderLayer(d_model=16, num_heads=2, dff=32)
        >>> x, context = np.ones((1, 3, 16), "float32"), np.ones((1, 5, 16), "float32")
        >>> tuple(layer(x, context).shape), tuple(layer.last_attn_scores.shape)
        ((1, 3, 16), (1, 2, 3, 5))
    """

    def make_sublayers(self, attention, feed_forward):
        self.causal_self_attention = CausalSelfAttention(
            name="self_attention", **attention
        )
        self.cross_attention = CrossAttention(name="cross_attention", **attention)
        self.ffn = FeedForward(name="ffn", **feed_forward)

    @property
    def last_attn_scores(self):
        """The last cross-attention weights, ``(batch, heads, target, source)``."""
        return self.cross_attention.last_attn_scores

    def build(self, x_shape, context_shape):
        self.causal_self_attention.build(x_shape)
        self.cross_attention.build(x_shape, context_shape)
        self.ffn.build(x_shape)
        self.built = True

    def call(
        self,
        x,
        context,
        x_mask=None,
        context_mask=None,
        return_attention_scores=False,
    ):
        x = self.causal_self_attention(x, mask=x_mask)
        x, weights = self.cross_attention(
            x, context, context_mask=context_mask, return_attention_scores=True
        )
        x = self.ffn(x)
        return (x, weights) if return_attention_scores else x

    def step(self, x, position, source, source_mask_bias, cache, buffers):
        """One more position of each hypothesis; see `Decoder.step`."""
        x, cache = self.causal_self_attention.step(x, position, cache, buffers)
        beams = cache[0].shape[1] // self.settings["num_heads"]
        x, weights = self.cross_attention.step(x, source, source_mask_bias, beams)
        return self.ffn(x), cache, weights


@keras.saving.register_keras_serializable("tfxformer")
class Decoder(Stack):
    """Embedding, positions and a stack of decoder layers: hidden states, no logits yet.

    It takes the arguments of `Stack`.

    Call arguments:
        x: token ids ``(batch, target)``.
        context: the encoder's output, ``(batch, source, d_model)``.
        x_mask: boolean padding mask ``(batch, target)``; without it the Keras mask
            of x is used, and without that, ``x != 0``.
        context_mask: boolean padding mask ``(batch, source)``; without it the Keras
            mask of context is used.
        return_attention_scores: also return all layers' cross-attention weights.

    Returns:
        ``(batch, target, d_model)``, and with ``return_attention_scores`` the
        weights ``(batch, layers, heads, target, source)``. ``last_attn_scores``
        then holds the last layer's (see `CrossAttention`).

    Example:
        >>> import numpy as np
        >>> decoder = Decoder(
        ...     num_layers=2, d_model=16, num_heads=2, dff=32, vocab_size=100
        ... )
        >>> context = np.ones((1, 5, 16), "float32")
        >>> tuple(decoder(np.array([[2, 7, 8]]), context).shape)
        (1, 3, 16)
    """

    kind_of_layer = DecoderLayer

    @property
    def dec_layers(self):
        """The stack's `DecoderLayer`s, first to last."""
        return self.stack

    @property
    def last_attn_scores(self):
        """The last layer's last weights, ``(batch, heads, target, source)``."""
        return self.stack[-1].last_attn_scores

    def build(self, x_shape, context_shape):
        self.build_stack(x_shape, context_shape)

    def call(
        self,
        x,
        context,
        x_mask=None,
        context_mask=None,
        return_attention_scores=False,
    ):
        if x_mask is None:
            x_mask = padding_mask(x)
        x = self.dropout(self.pos_embedding(x, mask=x_mask))  # (batch, target, d_model)
        attention = []
        for layer in self.stack:
            x, weights = layer(
                x,
                context,
                x_mask=x_mask,
                context_mask=context_mask,
                return_attention_scores=True,
            )
            attention.append(weights)
        x = self.finish(x)
        return (x, ops.stack(attention, axis=1)) if return_attention_scores else x

    def project_source(self, context):
        """Projects a source for each layer's cross-attention, once for all steps.

        Args:
            context: the encoder's output, ``(batch, source, d_model)``.

        Returns:
            For each layer a pair of keys and values, each
            ``(batch, heads, source, key_dim)``.
        """
        return tuple(layer.cross_attention.mha.project(context) for layer in self.stack)

    def step(self, tokens, position, source, source_mask_bias, cache, buffers):
        """One more token of each hypothesis, through the functions of a call.

        Args:
            tokens: ids ``(batch * beams,)``, all at the same position.
            position: that position, a scalar; 0 is the start token's.
            source: what `project_source` gave.
            source_mask_bias: ``(batch, 1, 1, source)``, hides the source's padding.
            cache: the KV cache: for each layer self-attention's keys and values,
                each ``(batch, beams * heads, positions, key_dim)``.
            buffers: how the cache takes one more position (`decoding.kv_cache`).

        Returns:
            Hidden states ``(batch * beams, d_model)``, the cache with this position,
            and cross-attention's weights ``(batch, beams, layers * heads, source)``.
        """
        x = self.pos_embedding.step(tokens, position)  # (batch * beams, d_model)
        caches, attention = [], []
        for layer, key_value, past in zip(self.stack, source, cache, strict=True):
            x, past, weights = layer.step(
                x, position, key_value, source_mask_bias, past, buffers
            )
            caches.append(past)
            attention.append(weights)  # (batch, heads, beams, source)
        attention = ops.transpose(ops.concatenate(attention, axis=1), (0, 2, 1, 3))
        return self.finish(x), tuple(caches), attention
