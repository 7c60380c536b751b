"""What encoder and decoder have in common: embedding, positions, a stack of layers."""

import keras

from tfxformer.layers.base import Layer
from tfxformer.layers.kernels import LayerNorm
from tfxformer.layers.positional import PositionalEmbedding
from tfxformer.layers.residual import EPSILON


class StackLayer(Layer):
    """One layer of a stack; see `EncoderLayer` and `DecoderLayer`.

    Args:
        d_model: size of each position's vector.
        num_heads: number of attention heads; it divides ``d_model``.
        dff: size of the feed-forward network's hidden layer.
        dropout_rate: dropout of weights and sublayer outputs.
        norm: "post" (the paper's) or "pre".
        attention_dropout: dropout of the attention weights; None for
            ``dropout_rate``.
        activation_dropout: dropout of the feed-forward network's hidden layer.

    Raises:
        ValueError: when the heads do not divide ``d_model``.
    """

    def __init__(
        self,
        d_model,
        num_heads,
        dff,
        dropout_rate=0.1,
        norm="post",
        attention_dropout=None,
        activation_dropout=0.0,
        **kwargs,
    ):
        super().__init__(locals(), **kwargs)
        if d_model % num_heads:
            raise ValueError(
                f"d_model={d_model} is not a multiple of num_heads={num_heads}"
            )
        shared = {"norm": norm, "dtype": self.dtype_policy}
        attention = {
            "num_heads": num_heads,
            "key_dim": d_model // num_heads,  # section 3.2.2
            "dropout": dropout_rate,
            "attention_dropout": attention_dropout,
        }
        feed_forward = {
            "d_model": d_model,
            "dff": dff,
            "dropout_rate": dropout_rate,
            "activation_dropout": activation_dropout,
        }
        self.make_sublayers(attention | shared, feed_forward | shared)


class Stack(Layer):
    """Embedding, positions and a stack of layers; see `Encoder` and `Decoder`.

    Args:
        num_layers: number of layers.
        d_model: size of each position's vector.
        num_heads: number of attention heads; it divides ``d_model``.
        dff: size of the feed-forward network's hidden layer.
        vocab_size: number of token ids; id 0 is padding.
        dropout_rate: dropout of embeddings, weights and sublayer outputs.
        norm: "post" (the paper's) or "pre", which adds one norm after the stack.
        max_length: the most positions it can encode.
        learned_positions: learn positions instead of the fixed sines and cosines.
        use_positions: False leaves positions out.
        attention_dropout: dropout of the attention weights; None for
            ``dropout_rate``.
        activation_dropout: dropout of the feed-forward networks' hidden layers.
        embedding: a Keras embedding layer to share (tied embeddings), or None.
    """

    def __init__(
        self,
        num_layers,
        d_model,
        num_heads,
        dff,
        vocab_size,
        dropout_rate=0.1,
        norm="post",
        max_length=2048,
        learned_positions=False,
        use_positions=True,
        attention_dropout=None,
        activation_dropout=0.0,
        embedding=None,
        **kwargs,
    ):
        super().__init__(locals(), **kwargs)
        policy = self.dtype_policy
        self.pos_embedding = PositionalEmbedding(
            vocab_size,
            d_model,
            max_length,
            learned_positions,
            use_positions,
            embedding,
            name="embedding",
            dtype=policy,
        )
        self.dropout = keras.layers.Dropout(dropout_rate, dtype=policy)
        self.stack = [
            self.kind_of_layer(
                d_model,
                num_heads,
                dff,
                dropout_rate,
                norm,
                attention_dropout,
                activation_dropout,
                name=f"layer_{i}",
                dtype=policy,
            )
            for i in range(num_layers)
        ]
        self.final_norm = (
            LayerNorm(epsilon=EPSILON, name="final_norm", dtype=policy)
            if norm == "pre"
            else None
        )

    def build_stack(self, x_shape, *context_shape):
        """Makes the weights of all layers."""
        self.pos_embedding.build(x_shape)
        shape = (*x_shape, self.settings["d_model"])
        for layer in self.stack:
            layer.build(shape, *context_shape)
        if self.final_norm is not None:
            self.final_norm.build(shape)
        self.built = True

    def finish(self, x):
        """The last layer's output, normalised once more with pre-norm."""
        return x if self.final_norm is None else self.final_norm(x)
