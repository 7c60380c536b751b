"""The Transformer: compared with NumPy, and properties that hold for any weights."""

import functools

import keras
import numpy as np
import numpy_transformer as numpy_version
import oracle
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from tfxformer import Transformer, masked_accuracy, masked_loss

# Keras warns with this text when a layer drops a mask.
pytestmark = pytest.mark.filterwarnings("error:.*destroy the mask information")

HEADS = oracle.TINY["num_heads"]
SOURCE = np.array([[7, 8, 9, 3, 0, 0], [4, 3, 0, 0, 0, 0], [5, 6, 7, 8, 9, 3]])
TARGET = np.array([[2, 8, 0, 0], [2, 4, 5, 6], [2, 7, 9, 0]])
LABELS = np.array([[8, 3, 0, 0], [4, 5, 6, 3], [7, 9, 3, 0]])
TIED, LEARNED = {"tie_embeddings": True}, {"learned_positions": True}
SHALLOW = {"num_layers": 3, "num_decoder_layers": 1}
VARIANTS = {
    "post": {"norm": "post"},
    "post, tied, learned": {"norm": "post", **TIED, **LEARNED},
    "pre, learned": {"norm": "pre", **LEARNED},
    "pre, tied, shallow": {"norm": "pre", **TIED, **SHALLOW},
}
OTHER_DROPOUTS = ["attention_dropout", "activation_dropout"]


@functools.cache
def make(**options):
    """One model for each set of options; no test changes its weights."""
    return oracle.tiny_transformer(max_length=64, **options)


def close(actual, expected):
    assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def unlike(actual, expected):
    assert np.abs(np.asarray(actual) - np.asarray(expected)).max() > 0.01


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_logits_agree_with_numpy(variant):
    model = make(**variant)
    weights = oracle.transformer_weights(model)
    expected, _ = numpy_version.transformer(
        SOURCE, TARGET, weights, HEADS, norm=variant["norm"]
    )
    close(model((SOURCE, TARGET)), expected)
    assert expected.std() > 0.3
    # The logits are a projection of the hidden states.
    embeddings, bias = model.output_embeddings()
    hidden = np.asarray(model.hidden_states((SOURCE, TARGET)))
    logits = hidden @ np.asarray(embeddings).T
    close(logits + (0 if bias is None else np.asarray(bias)), expected)
    tied = variant.get("tie_embeddings", False)
    assert (bias is None) == (model.final_layer is None) == tied
    tables = [x for x in model.weights if tuple(x.shape) == (oracle.SOURCE_VOCAB, 16)]
    assert len(tables) == 1  # tied embeddings share one matrix


def test_logits_with_explicit_masks_agree_with_numpy():
    model = make()
    weights = oracle.transformer_weights(model)
    source_mask = np.array([[1, 0, 1, 1, 1, 0], [1] * 6, [0, 0, 1, 0, 1, 0]], bool)
    target_mask = np.array([[1] * 4, [1, 0, 1, 1], [1, 1, 0, 1]], bool)
    context = numpy_version.encoder(SOURCE, weights["encoder"], HEADS, source_mask)
    x, scores = numpy_version.decoder(
        TARGET, context, weights["decoder"], HEADS, target_mask, source_mask
    )
    expected = numpy_version.output(x, weights)
    actual = model((SOURCE, TARGET), source_mask=source_mask, target_mask=target_mask)
    close(actual, expected)
    close(model.decoder.last_attn_scores, scores[-1])
    unlike(actual, model((SOURCE, TARGET)))


@pytest.mark.parametrize("kind", ["dropout_rate", *OTHER_DROPOUTS])
def test_each_kind_of_dropout_is_in_training_only(kind):
    model = oracle.tiny_transformer(**{"dropout_rate": 0.0, kind: 0.5})
    first = model([SOURCE, TARGET])
    assert_array_equal(model([SOURCE, TARGET], training=False), first)
    unlike(model([SOURCE, TARGET], training=True), first)


@pytest.mark.parametrize("variant", [*VARIANTS.values()][::3])
def test_padding_and_the_rest_of_the_batch_do_not_change_logits(variant):
    model = make(**variant)
    logits = model((SOURCE, TARGET)).numpy()
    for row, source, target in zip(logits, SOURCE, TARGET, strict=True):
        source, target = source[source != 0], target[target != 0]
        for more in (0, 20):
            alone = [np.pad(ids, (0, more))[None] for ids in (source, target)]
            found = model(alone)[0, : len(target)]
            assert_allclose(row[: len(target)], found, rtol=0, atol=1e-5)


@pytest.mark.parametrize("variant", [*VARIANTS.values()][::3])
@pytest.mark.parametrize("other", [5, 0])
def test_later_tokens_change_no_earlier_logit(variant, other):
    # Row t keeps the first t + 1 tokens; the last row keeps all.
    target, kept = np.array([[2, 8, 9, 10, 11]] * 5), np.tri(5, dtype=bool)
    target[~kept] = other
    logits = make(**variant)((SOURCE[2:].repeat(5, axis=0), target)).numpy()
    difference = np.abs(logits - logits[4]).max(-1)
    assert (difference[kept] < 5e-6).all()
    if other:
        assert (difference[~kept] > 0.01).all()


@pytest.mark.parametrize("policy", ["float16", "mixed_bfloat16"])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_logits_in_half_precision_are_close_to_float32_and_never_nan(norm, policy):
    model = oracle.tiny_transformer(max_length=64, norm=norm, dtype=policy)
    logits = tf.cast(model((SOURCE, TARGET)), "float32").numpy()
    expected = make(norm=norm)((SOURCE, TARGET)).numpy()
    assert (logits - expected).std() < 0.05 * expected.std()
    source, target = SOURCE.copy(), TARGET.copy()
    source[0] = target[1] = 0  # only padding
    assert np.isfinite(tf.cast(model((source, target)), "float32")).all()
    scores = tf.cast(model.decoder.last_attn_scores, "float32").numpy()
    assert (scores[0] == 0).all()


def test_without_positions_the_order_of_source_tokens_does_not_change_logits():
    order = [3, 0, 2, 1, 5, 4]
    for model, same in ((make(use_positions=False), True), (make(), False)):
        moved = model((SOURCE[:, order], TARGET))
        (close if same else unlike)(moved, model((SOURCE, TARGET)))


@pytest.mark.parametrize("tied", [False, True])
def test_keras_evaluate_returns_the_masked_loss_and_masked_accuracy(tied):
    """The logits have no Keras mask, which would apply to the loss a second time."""
    model = oracle.tiny_transformer(tie_embeddings=tied)
    logits = model((SOURCE, TARGET))
    assert getattr(logits, "_keras_mask", None) is None
    model.compile(loss=masked_loss, metrics=[masked_accuracy], run_eagerly=True)
    numbers = model.evaluate((SOURCE, TARGET), LABELS, verbose=0)
    expected = [masked_loss(LABELS, logits), masked_accuracy(LABELS, logits)]
    assert_allclose(numbers, expected, rtol=1e-5)


@pytest.mark.parametrize("variant", [*VARIANTS.values()][1::2])
def test_a_model_loaded_from_a_file_has_the_same_config_and_logits(variant, tmp_path):
    model = oracle.tiny_transformer(dropout_rate=0.3, max_length=9, **variant)
    expected = model((SOURCE, TARGET))
    config = model.get_config()
    given = {**oracle.TINY, "dropout_rate": 0.3, "max_length": 9, **variant}
    assert given.items() <= config.items()
    assert Transformer.from_config(config).get_config() == config
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded) is Transformer and loaded.get_config() == config
    assert_array_equal(loaded((SOURCE, TARGET)), expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_heads": 3}, r"d_model=16 is not a multiple of num_heads=3"),
        ({"norm": "middle"}, r"'post' or 'pre', not 'middle'"),
        (
            {"tie_embeddings": True, "input_vocab_size": 9, "target_vocab_size": 10},
            r"input_vocab_size=9, target_vocab_size=10",
        ),
    ],
)
def test_impossible_model_settings_raise_an_error_that_names_them(options, message):
    vocabularies = {"input_vocab_size": 9, "target_vocab_size": 9}
    with pytest.raises(ValueError, match=message):
        Transformer(**{**oracle.TINY, **vocabularies, **options})


@pytest.mark.parametrize("learned", [False, True])
def test_more_tokens_than_max_length_raise_an_error(learned):
    model = oracle.tiny_transformer(max_length=5, learned_positions=learned)
    ids = np.full((1, 6), 4)
    for source, target in ((ids, ids[:, :1]), (ids[:, :1], ids)):
        with pytest.raises(ValueError, match=r"6 positions.*max_length=5"):
            model((source, target))
