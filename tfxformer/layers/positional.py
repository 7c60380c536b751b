"""Token positions: embeddings plus positional encodings (section 3.5)."""

import keras
import numpy as np
from keras import ops

from tfxformer.layers.masking import padding_mask
from tfxformer.layers.sizes import ConfiguredLayer, as_size


def positional_encoding(length, depth):
    """The paper's sines and cosines, interleaved.

    ``PE(pos, 2i) = sin(pos / 10000^(2i/depth))`` and
    ``PE(pos, 2i+1) = cos(pos / 10000^(2i/depth))`` (section 3.5). For any shift k,
    ``PE(pos + k)`` is a linear function of ``PE(pos)``.

    Args:
        length: number of positions.
        depth: size of each encoding, usually ``d_model``; it may be odd.

    Returns:
        float32 tensor ``(length, depth)``.

    Example:
        >>> import numpy as np
        >>> np.asarray(positional_encoding(2, 4)).round(3)[1].astype(str).tolist()
        ['0.841', '0.54', '0.01', '1.0']
    """
    # Computing it keeps graphs small: a table would be stored once for each function.
    # Float64 keeps the angles of far positions exact; JAX has float32 by default.
    dtype = "float32" if keras.backend.backend() == "jax" else "float64"
    rate = np.power(10000.0, -np.arange(0, depth, 2) / depth)  # (ceil(depth / 2),)
    position = ops.cast(ops.arange(length), dtype)[:, None]  # (length, 1)
    angle = position * ops.convert_to_tensor(rate, dtype)
    pairs = ops.stack([ops.sin(angle), ops.cos(angle)], axis=-1)  # (length, ., 2)
    encoding = ops.reshape(pairs, (-1, 2 * len(rate)))[:, :depth]  # interleaved
    return ops.cast(encoding, "float32")


@keras.saving.register_keras_serializable("tfxformer")
class PositionalEmbedding(ConfiguredLayer):
    """Token embeddings, scaled by the square root of ``d_model``, plus positions.

    Args:
        vocab_size: number of token ids; id 0 is padding.
        d_model: size of an embedding.
        max_length: the most positions it can encode.
        learned_positions: learn a vector for each position instead of the fixed
            sines and cosines (the paper found both equally good).
        use_positions: False leaves positions out, to show their effect.
        embedding: a Keras embedding layer to share, or None for a new one.

    Call arguments:
        x: token ids ``(batch, length)``.
        mask: padding mask ``(batch, length)``; None for ``x != 0``.

    Returns:
        Tensor ``(batch, length, d_model)``, with the padding mask as its Keras mask.

    Raises:
        ValueError: x is longer than ``max_length``, and its length is known.

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
        super().__init__(**kwargs)
        self.vocab_size = as_size("vocab_size", vocab_size)
        self.d_model = as_size("d_model", d_model)
        self.max_length = as_size("max_length", max_length)
        self.learned_positions = learned_positions
        self.use_positions = use_positions
        self.embedding = embedding or keras.layers.Embedding(
            self.vocab_size,
            self.d_model,
            dtype=self.dtype_policy,
            # Tied to the output projection, these embeddings give initial logits a
            # standard deviation of 1.
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
            raise ValueError(f"{length} positions exceed max_length={self.max_length}")
        embedded = self.embed(x)  # (batch, length, d_model)
        if not self.use_positions:
            return embedded
        encodings = ops.cast(self.encodings(length), embedded.dtype)
        return embedded + encodings[None]  # (batch, length, d_model)

    def embed(self, x):
        """The scaled embeddings of ids, without positions (section 3.4)."""
        embedded = self.embedding(x)  # (..., d_model)
        return embedded * ops.cast(self.d_model**0.5, embedded.dtype)

    def encodings(self, length):
        """The fixed or learned encodings, ``(length, d_model)``, from position 0."""
        if self.positions is not None:
            return self.positions[:length]
        return positional_encoding(length, self.d_model)

    def compute_mask(self, x, previous_mask=None):
        return padding_mask(x) if previous_mask is None else previous_mask
