"""Where a token stands: embeddings plus positional encodings (section 3.5)."""

import keras
import numpy as np
from keras import ops

from tfxformer.layers.masking import padding_mask
from tfxformer.layers.residual import Layer


def positional_encoding(length, depth, start=0):
    """The paper's sines and cosines, interleaved.

    ``PE(pos, 2i) = sin(pos / 10000^(2i/depth))`` and
    ``PE(pos, 2i+1) = cos(pos / 10000^(2i/depth))`` (section 3.5). For any shift k,
    ``PE(pos + k)`` is a linear function of ``PE(pos)``.

    Args:
        length: number of positions.
        depth: size of each encoding, usually ``d_model``; it may be odd.
        start: the first position.

    Returns:
        float32 tensor ``(length, depth)``.

    Example:
        >>> import numpy as np
        >>> np.asarray(positional_encoding(2, 4)).round(3)[1].astype(str).tolist()
        ['0.841', '0.54', '0.01', '1.0']
    """
    # In a graph this weighs nothing, where a table would be in it once for each
    # function. In single precision far positions would be off by their angle's last
    # digits; JAX has no other by default.
    dtype = "float32" if keras.backend.backend() == "jax" else "float64"
    rate = np.power(10000.0, -np.arange(0, depth, 2) / depth)  # (ceil(depth / 2),)
    position = ops.cast(start + ops.arange(length), dtype)[:, None]  # (length, 1)
    angle = position * ops.convert_to_tensor(rate, dtype)
    pairs = ops.stack([ops.sin(angle), ops.cos(angle)], axis=-1)  # (length, ., 2)
    encoding = ops.reshape(pairs, (-1, 2 * len(rate)))[:, :depth]  # interleaved
    return ops.cast(encoding, "float32")


@keras.saving.register_keras_serializable("tfxformer")
class PositionalEmbedding(Layer):
    """Token embeddings, scaled by the root of ``d_model``, plus positions.

    Args:
        vocab_size: number of token ids; id 0 is padding.
        d_model: size of an embedding.
        max_length: the most positions it can encode.
        learned_positions: learn a vector for each position instead of the fixed
            sines and cosines (the paper found both equally good).
        use_positions: False leaves positions out, to see what is lost.
        embedding: a Keras embedding layer to share, or None for one of its own.

    Call arguments:
        x: integer tensor ``(batch, length)``.
        mask: the padding mask ``(batch, length)``, which the result carries;
            without it, ``x != 0``.

    Returns:
        Tensor ``(batch, length, d_model)``, with that mask as its Keras mask.

    Raises:
        ValueError: when x is known to be longer than ``max_length``.

    Example:
        >>> import numpy as np
        >>> layer = PositionalEmbedding(vocab_size=100, d_model=16)
        >>> tuple(layer(np.array([[7, 8, 0]])).shape)
        (1, 3, 16)
    """

    def __init__(
        self,
        vocab_size,
        d_model,
        max_length=2048,
        learned_positions=False,
        use_positions=True,
        embedding=None,
        **kwargs,
    ):
        super().__init__(locals(), **kwargs)
        self.d_model = self.settings["d_model"]
        self.max_length = self.settings["max_length"]
        self.learned_positions = learned_positions
        self.use_positions = use_positions
        self.embedding = embedding or keras.layers.Embedding(
            self.settings["vocab_size"],
            self.d_model,
            dtype=self.dtype_policy,
            # With this deviation embeddings that are also the output projection
            # (tied) start with logits of deviation 1.
            embeddings_initializer=keras.initializers.RandomNormal(
                stddev=self.d_model**-0.5
            ),
            name="pieces",  # the weight's name in exported models
        )
        self.positions = None

    def build(self, x_shape):
        if not self.embedding.built:
            self.embedding.build(x_shape)
        if self.use_positions and self.learned_positions:
            self.positions = self.add_weight(
                name="positions",
                shape=(self.max_length, self.d_model),
                initializer=keras.initializers.RandomNormal(stddev=0.02),
            )

    def call(self, x, mask=None):
        length = ops.shape(x)[1]
        if isinstance(length, int) and length > self.max_length:
            raise ValueError(
                f"{length} positions are more than max_length={self.max_length}"
            )
        embedded = self.embed(x)  # (batch, length, d_model)
        if not self.use_positions:
            return embedded
        return embedded + ops.cast(self.encodings(length), embedded.dtype)[None]

    def embed(self, x):
        """The scaled embeddings alone (section 3.4).

        Args:
            x: ids ``(batch, length)``.

        Returns:
            ``(batch, length, d_model)``.
        """
        embedded = self.embedding(x)
        return embedded * ops.cast(self.d_model**0.5, embedded.dtype)

    def encodings(self, length, start=0):
        """The encodings of some positions, fixed or learned (section 3.5).

        Args:
            length: number of positions.
            start: the first of them.

        Returns:
            ``(length, d_model)``.
        """
        if self.learned_positions:
            return ops.take(self.positions, start + ops.arange(length), axis=0)
        return positional_encoding(length, self.d_model, start)

    def step(self, tokens, position):
        """One token of each hypothesis, all at the same position.

        Args:
            tokens: ids ``(rows,)``.
            position: an int32 scalar.

        Returns:
            ``(rows, d_model)``.
        """
        embedded = self.embed(tokens)
        if not self.use_positions:
            return embedded
        return embedded + ops.cast(self.encodings(1, position), embedded.dtype)

    def compute_mask(self, x, previous_mask=None):
        return padding_mask(x) if previous_mask is None else previous_mask
