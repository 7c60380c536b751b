"""Each public layer goes through its config and comes back the same."""

import inspect
import itertools
import json

import keras
import numpy as np
import oracle
import pytest
import tensorflow as tf
from numpy.testing import assert_array_equal

import tfxformer.layers
from tfxformer import Transformer
from tfxformer.layers import (
    AddAndNorm,
    CausalSelfAttention,
    CrossAttention,
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    GlobalSelfAttention,
    MultiHeadAttention,
    PositionalEmbedding,
)

RNG = np.random.default_rng(0)
IDS = np.array([[7, 8, 3, 0], [9, 4, 5, 3]])
X = RNG.normal(size=(2, 4, 16)).astype("float32")
Y = RNG.normal(size=(2, 4, 16)).astype("float32")

# Each option away from its default, so that one that is forgotten shows.
ATTENTION = {"num_heads": 3, "key_dim": 5, "dropout": 0.3}
RESIDUAL = {"dropout_rate": 0.3, "norm": "pre"}
LAYER = {"d_model": 16, "num_heads": 2, "dff": 24, **RESIDUAL}
POSITIONS = {"max_length": 9, "learned_positions": True}
STACK = {**LAYER, **POSITIONS, "num_layers": 1, "vocab_size": 20}
CASES = [
    (AddAndNorm, RESIDUAL, (X, Y)),
    (CausalSelfAttention, {**ATTENTION, "norm": "pre"}, (X,)),
    (CrossAttention, {**ATTENTION, "norm": "pre"}, (X, Y)),
    (Decoder, STACK, (IDS, Y)),
    (Decoder, {**STACK, "learned_positions": False, "use_positions": False}, (IDS, Y)),
    (DecoderLayer, LAYER, (X, Y)),
    (Encoder, STACK, (IDS,)),
    (Encoder, {**STACK, "learned_positions": False, "use_positions": False}, (IDS,)),
    (EncoderLayer, LAYER, (X,)),
    (FeedForward, {"d_model": 16, "dff": 24, **RESIDUAL}, (X,)),
    (GlobalSelfAttention, {**ATTENTION, "norm": "pre"}, (X,)),
    (MultiHeadAttention, ATTENTION, (X, Y)),
    (PositionalEmbedding, {"vocab_size": 20, "d_model": 16, **POSITIONS}, (IDS,)),
]
VOCABULARIES = {"input_vocab_size": 20, "target_vocab_size": 30}
DEPTHS = {"num_layers": 2, "num_decoder_layers": 1}
TRANSFORMER = (
    Transformer,
    {**LAYER, **POSITIONS, **VOCABULARIES, **DEPTHS},
    ((IDS, IDS),),
)
cases = pytest.mark.parametrize(("kind", "options", "inputs"), CASES)
# Not options of the layer, but a layer that is handed over.
NOT_IN_CONFIG = {"self", "args", "arguments", "kwargs", "embedding"}


def test_no_public_layer_is_left_out():
    public = [getattr(tfxformer.layers, name) for name in tfxformer.layers.__all__]
    layers = {x for x in public if inspect.isclass(x)}
    assert layers == {kind for kind, _, _ in CASES}


@cases
def test_config_round_trip(kind, options, inputs):
    layer = kind(**options, name="mine")
    layer(*inputs)
    oracle.randomise(layer)
    config = layer.get_config()
    assert {name: config[name] for name in options} == options
    names = {
        name
        for base in kind.__mro__
        if base.__module__.startswith("tfxformer")
        for name in inspect.signature(base.__init__).parameters
    }
    assert names - NOT_IN_CONFIG <= set(config)
    # Keras writes it as JSON, and finds the class again by its registered name.
    written = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
    for copy in (
        kind.from_config(config),
        keras.saving.deserialize_keras_object(written),
    ):
        assert type(copy) is kind and copy.name == "mine"
        assert copy.get_config() == config
        copy(*inputs)
        copy.set_weights(layer.get_weights())
        assert_array_equal(copy(*inputs), layer(*inputs))


@pytest.mark.parametrize(("kind", "options", "inputs"), [*CASES, TRANSFORMER])
def test_any_integer_type_is_a_size(kind, options, inputs):
    sizes = {name: x for name, x in options.items() if type(x) is int}
    types = itertools.cycle([np.int32, np.array, tf.constant, np.uint8])
    given = {name: next(types)(size) for name, size in sizes.items()}
    layer = kind(**options | given, name="mine")
    layer(*inputs)
    config = layer.get_config()
    assert config == kind(**options, name="mine").get_config()
    assert all(type(config[name]) is int for name in sizes)
    for name, size in sizes.items():
        for bad in (float(size), str(size), np.array([size]), tf.constant(1.0)):
            with pytest.raises(TypeError, match=f"{name} must be an integer, not"):
                kind(**options | {name: bad})


@cases
def test_a_functional_model_saves_it(kind, options, inputs, tmp_path):
    symbolic = [keras.Input(x.shape[1:], dtype=x.dtype) for x in inputs]
    layer = kind(**options)
    model = keras.Model(symbolic, layer(*symbolic))
    oracle.randomise(layer)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert_array_equal(loaded(list(inputs)), model(list(inputs)))


@cases
def test_the_dtype_of_a_layer_is_that_of_all_its_parts(kind, options, inputs):
    layer = kind(**options, dtype="bfloat16")
    output = layer(*(x if x is IDS else tf.cast(x, "bfloat16") for x in inputs))
    assert output.dtype == "bfloat16"
    assert {weight.dtype for weight in layer.weights} == {"bfloat16"}
    config = layer.get_config()
    copy = kind.from_config(config)
    assert copy.compute_dtype == "bfloat16"
