"""Each public layer can be rebuilt from its config."""

import inspect
import json

import keras
import numpy as np
import oracle
import pytest
import tensorflow as tf
from numpy.testing import assert_array_equal

from tfxformer import layers

RNG = np.random.default_rng(0)
IDS = np.array([[7, 8, 3, 0], [9, 4, 5, 3]])
X, Y = RNG.normal(size=(2, 2, 4, 16)).astype("float32")

# No option has its default, so a config that lacks one fails.
ATTENTION = {"num_heads": 3, "key_dim": 5, "dropout": 0.3}
KIND = {**ATTENTION, "norm": "pre", "attention_dropout": 0.2}
RESIDUAL = {"dropout_rate": 0.3, "norm": "pre"}
HIDDEN = {"activation_dropout": 0.4}
LAYER = {"d_model": 16, "num_heads": 2, "dff": 24, **RESIDUAL, "attention_dropout": 0.2}
LAYER |= HIDDEN
POSITIONS = {"max_length": 9, "learned_positions": True}
TABLE = {"vocab_size": 20, "d_model": 16, **POSITIONS}
STACK = {**LAYER, **POSITIONS, "num_layers": 1, "vocab_size": 20}
BARE = {**STACK, "learned_positions": False, "use_positions": False}
CASES = [
    (layers.AddAndNorm, RESIDUAL, (X, Y)),
    (layers.CausalSelfAttention, KIND, (X,)),
    (layers.CrossAttention, KIND, (X, Y)),
    (layers.Decoder, STACK, (IDS, Y)),
    (layers.DecoderLayer, LAYER, (X, Y)),
    (layers.Encoder, STACK, (IDS,)),
    (layers.Encoder, BARE, (IDS,)),
    (layers.EncoderLayer, LAYER, (X,)),
    (layers.FeedForward, {"d_model": 16, "dff": 24, **RESIDUAL, **HIDDEN}, (X,)),
    (layers.GlobalSelfAttention, KIND, (X,)),
    (layers.MultiHeadAttention, ATTENTION, (X, Y)),
    (layers.PositionalEmbedding, TABLE, (IDS,)),
]


@pytest.mark.parametrize(("kind", "options", "inputs"), CASES)
def test_a_layer_rebuilt_from_its_config_gives_the_same_outputs(kind, options, inputs):
    """From its config, and from JSON with its registered name."""
    layer = kind(**options, name="mine")
    layer(*inputs)
    outputs = oracle.randomise(layer)(*inputs)
    config = layer.get_config()
    assert {name: config[name] for name in options} == options
    given = {*inspect.signature(kind.__init__).parameters}
    assert given - {"self", "kwargs", "embedding"} <= {*config}
    written = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
    copy = keras.saving.deserialize_keras_object(written)
    assert type(copy) is kind and copy.get_config() == config
    copy(*inputs)
    copy.set_weights(layer.get_weights())
    assert_array_equal(copy(*inputs), outputs)


@pytest.mark.parametrize("bad", [16.0, "16", np.array([16]), tf.constant(16.0)])
def test_a_layer_accepts_only_integers_as_sizes(bad):
    with pytest.raises(TypeError, match="d_model must be an integer, not"):
        layers.FeedForward(d_model=bad, dff=24)
    sizes = {"d_model": np.array(16), "dff": tf.constant(24)}
    config = layers.FeedForward(**sizes, name="mine").get_config()
    assert config == layers.FeedForward(16, 24, name="mine").get_config()


@pytest.mark.parametrize(("kind", "options", "inputs"), CASES)
def test_the_dtype_of_a_layer_applies_to_all_its_weights_and_its_output(
    kind, options, inputs
):
    layer = kind(**options, dtype="bfloat16")
    output = layer(*(x if x is IDS else tf.cast(x, "bfloat16") for x in inputs))
    assert output.dtype == "bfloat16"
    assert {weight.dtype for weight in layer.weights} == {"bfloat16"}
