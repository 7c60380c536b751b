"""The Transformer: token ids to logits (Figure 1 of the paper)."""

import keras
from keras import ops

from tfxformer.layers import Decoder, Encoder, padding_mask
from tfxformer.layers.kernels import add_bias
from tfxformer.layers.sizes import as_size


@keras.saving.register_keras_serializable("tfxformer")
class Transformer(keras.Model):
    """The model of "Attention Is All You Need" (Vaswani et al. 2017), section 3.

    Args:
        num_layers: number of layers in the encoder, and in the decoder.
        num_decoder_layers: number of layers in the decoder; None for ``num_layers``.
            The encoder runs once, the decoder once for each token, so a deep encoder
            with a shallow decoder translates faster (Kasai et al. 2021).
        d_model: size of the hidden states.
        num_heads: number of attention heads; it must divide ``d_model``.
        dff: size of the feed-forward networks' hidden layer.
        input_vocab_size: number of source token ids; id 0 is padding.
        target_vocab_size: number of target token ids; id 0 is padding.
        dropout_rate: dropout of embeddings, attention weights and sublayer outputs.
        norm: "post" (the paper's) or "pre" normalization.
        max_length: the most positions in a source or a target.
        learned_positions: learn positions instead of the fixed sines and cosines.
        use_positions: False leaves positions out, to show their effect.
        attention_dropout: dropout of the attention weights; None for ``dropout_rate``.
        activation_dropout: dropout of the feed-forward networks' hidden layers.
        activation: of these hidden layers: "relu" (the paper's), or "swish", which most
            OPUS-MT models use (Ramachandran et al. 2017).
        tie_embeddings: True uses one matrix for source embedding, target embedding and
            output projection (section 3.4); both vocabularies must be the same.
            "target" uses one for the last two.
        output_bias: add a bias to the logits of tied embeddings, too. Without tied
            embeddings they always have one.

    Call arguments:
        inputs: a pair ``(source, target_in)`` of token ids, ``(batch, source)`` and
            ``(batch, target)``; the target is shifted right, with the start token
            first (teacher forcing).
        source_mask: boolean ``(batch, source)``; None for ``source != 0``.
        target_mask: boolean ``(batch, target)``; None for ``target_in != 0``.

    Returns:
        Logits ``(batch, target, target_vocab_size)``. ``decoder.last_attn_scores``
        then holds the last layer's cross-attention weights.

    Raises:
        ValueError: ``num_heads`` does not divide ``d_model``, ``norm`` is unknown, or
            ``tie_embeddings`` is True with vocabularies of two sizes.

    Example:
        >>> import numpy as np
        >>> transformer = Transformer(
        ...     num_layers=2, d_model=16, num_heads=2, dff=32,
        ...     input_vocab_size=100, target_vocab_size=90,
        ... )
        >>> source, target_in = np.array([[7, 8, 3]]), np.array([[2, 5]])
        >>> tuple(transformer((source, target_in)).shape)
        (1, 2, 90)
    """

    def __init__(
        self,
        *,
        num_layers,
        d_model,
        num_heads,
        dff,
        input_vocab_size,
        target_vocab_size,
        dropout_rate=0.1,
        norm="post",
        max_length=2048,
        learned_positions=False,
        use_positions=True,
        tie_embeddings=False,
        attention_dropout=None,
        activation_dropout=0.0,
        activation="relu",
        output_bias=False,
        num_decoder_layers=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.supports_masking = True
        if num_decoder_layers is not None:
            num_decoder_layers = as_size("num_decoder_layers", num_decoder_layers)
        self.config = {  # the arguments that make this model again, by name
            "num_layers": as_size("num_layers", num_layers),
            "d_model": as_size("d_model", d_model),
            "num_heads": as_size("num_heads", num_heads),
            "dff": as_size("dff", dff),
            "input_vocab_size": as_size("input_vocab_size", input_vocab_size),
            "target_vocab_size": as_size("target_vocab_size", target_vocab_size),
            "dropout_rate": dropout_rate,
            "norm": norm,
            "max_length": as_size("max_length", max_length),
            "learned_positions": learned_positions,
            "use_positions": use_positions,
            "tie_embeddings": tie_embeddings,
            "attention_dropout": attention_dropout,
            "activation_dropout": activation_dropout,
            "activation": activation,
            "output_bias": output_bias,
            "num_decoder_layers": num_decoder_layers,
        }
        self.d_model = self.config["d_model"]
        self.num_heads = self.config["num_heads"]
        self.target_vocab_size = self.config["target_vocab_size"]
        self.max_length = self.config["max_length"]
        self.norm = norm
        self.learned_positions = learned_positions
        self.use_positions = use_positions
        self.tie_embeddings = tie_embeddings
        self.activation = activation
        if tie_embeddings is True and input_vocab_size != target_vocab_size:
            raise ValueError(
                "tie_embeddings needs one vocabulary: input_vocab_size="
                f"{input_vocab_size}, target_vocab_size={target_vocab_size}"
            )
        stack = {
            "d_model": d_model,
            "num_heads": num_heads,
            "dff": dff,
            "dropout_rate": dropout_rate,
            "norm": norm,
            "max_length": max_length,
            "learned_positions": learned_positions,
            "use_positions": use_positions,
            "attention_dropout": attention_dropout,
            "activation_dropout": activation_dropout,
            "activation": activation,
            "dtype": self.dtype_policy,
        }
        self.encoder = Encoder(
            num_layers=num_layers, vocab_size=input_vocab_size, name="encoder", **stack
        )
        shared = (
            self.encoder.pos_embedding.embedding if tie_embeddings is True else None
        )
        self.decoder = Decoder(
            num_layers=num_layers if num_decoder_layers is None else num_decoder_layers,
            vocab_size=target_vocab_size,
            embedding=shared,
            name="decoder",
            **stack,
        )
        self.final_layer = None
        self.output_bias = None
        if not tie_embeddings:
            self.final_layer = keras.layers.Dense(
                self.target_vocab_size, name="final_layer", dtype=self.dtype_policy
            )

    def build(self, input_shape=None):
        source_shape, target_shape = input_shape or ((None, None), (None, None))
        self.encoder.build(source_shape)
        self.decoder.build(target_shape)
        if self.final_layer is not None:
            self.final_layer.build((*target_shape, self.d_model))
        elif self.config["output_bias"]:
            shape = (self.target_vocab_size,)
            self.output_bias = self.add_weight(shape, "zeros", name="output_bias")
        self.built = True

    def call(self, inputs, source_mask=None, target_mask=None, training=None):
        x = self.hidden_states(inputs, source_mask, target_mask, training)
        return self.project(x)  # (batch, target, vocab)

    def hidden_states(self, inputs, source_mask=None, target_mask=None, training=False):
        """The decoder's output before the logits, ``(batch, target, d_model)``.

        It takes the arguments of a call; ``training`` turns dropout on.
        """
        source, target_in = inputs
        if source_mask is None:
            source_mask = padding_mask(source)
        # (batch, source, d_model)
        context = self.encoder(source, mask=source_mask, training=training)
        return self.decoder(
            target_in,
            context,
            x_mask=target_mask,
            context_mask=source_mask,
            training=training,
        )

    def compute_mask(self, inputs, previous_mask=None):
        # The logits carry no mask: the loss masks by the labels.
        return None

    def project(self, x):
        """Projects hidden states to logits (section 3.4).

        With tied embeddings, a logit is the product with the token's embedding.

        Args:
            x: ``(..., d_model)``.

        Returns:
            ``(..., target_vocab_size)``.
        """
        embeddings, bias = self.output_embeddings()
        # One product over all positions. Reshaping also drops the Keras mask, which
        # the loss would otherwise apply a second time.
        *positions, depth = ops.shape(x)
        x = ops.reshape(x, (-1, depth))  # (rows, d_model)
        kernel = ops.cast(ops.transpose(embeddings), x.dtype)  # (d_model, vocab)
        logits = ops.matmul(x, kernel)  # (rows, vocab)
        if bias is not None:
            logits = add_bias(logits, ops.cast(bias, x.dtype))
        return ops.reshape(logits, (*positions, self.target_vocab_size))

    def output_embeddings(self):
        """The output projection ``(vocab, d_model)``; its bias ``(vocab,)`` or None."""
        if self.final_layer is None:
            return self.decoder.pos_embedding.embedding.embeddings, self.output_bias
        return ops.transpose(self.final_layer.kernel), self.final_layer.bias

    def get_config(self):
        return super().get_config() | self.config
