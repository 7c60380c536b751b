"""The whole Transformer: against NumPy, and what it promises whatever its weights."""

import functools

import keras
import numpy as np
import numpy_transformer as numpy_version
import oracle
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from tfxformer import Transformer, masked_accuracy, masked_loss
from tfxformer.training import MaskedLoss

# What Keras says where a layer loses a mask.
pytestmark = pytest.mark.filterwarnings("error:.*destroy the mask information")

HEADS = oracle.TINY["num_heads"]
VOCAB = oracle.TARGET_VOCAB  # the smaller of the two
SOURCE = np.array([[7, 8, 9, 3, 0, 0], [4, 3, 0, 0, 0, 0], [5, 6, 7, 8, 9, 3]])
TARGET = np.array([[2, 8, 0, 0], [2, 4, 5, 6], [2, 7, 9, 0]])
LABELS = np.array([[8, 3, 0, 0], [4, 5, 6, 3], [7, 9, 3, 0]])

VARIANTS = [
    {"norm": norm, "tie_embeddings": tied, "learned_positions": learned}
    for norm in ("post", "pre")
    for tied in (False, True)
    for learned in (False, True)
]
# A deep encoder and a shallow decoder.
VARIANTS.append(VARIANTS[2] | {"num_layers": 3, "num_decoder_layers": 1})


def name(variant):
    tied = "tied" if variant["tie_embeddings"] else "untied"
    positions = "learned" if variant["learned_positions"] else "sines"
    shallow = " shallow" if "num_decoder_layers" in variant else ""
    return f"{variant['norm']} {tied} {positions}{shallow}"


variants = pytest.mark.parametrize("variant", VARIANTS, ids=name)
# Where all would only take longer: each option both ways.
some_variants = pytest.mark.parametrize(
    "variant", [VARIANTS[i] for i in (0, 3, 5, 6)], ids=name
)


@functools.cache
def make(**options):
    """One model for each set of options: no test changes its weights."""
    return oracle.tiny_transformer(max_length=64, **options)


def close(actual, expected):
    assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def unlike(actual, expected):
    assert np.abs(np.asarray(actual) - np.asarray(expected)).max() > 0.01


# --- Against NumPy ------------------------------------------------------------------


@variants
def test_agrees_with_numpy(variant):
    model = make(**variant)
    weights = oracle.transformer_weights(model)
    assert ("output" in weights) != variant["tie_embeddings"]
    expected = numpy_version.transformer(
        SOURCE, TARGET, weights, HEADS, norm=variant["norm"]
    )
    close(model((SOURCE, TARGET)), expected)
    assert expected.std() > 0.3


@settings(max_examples=8, deadline=None)
@given(
    lengths=st.lists(
        st.tuples(st.integers(1, 8), st.integers(1, 8)), min_size=1, max_size=4
    ),
    variant=st.sampled_from(VARIANTS),
)
def test_agrees_with_numpy_for_sentences_of_any_length(lengths, variant):
    model = make(**variant)
    rng = np.random.default_rng(len(lengths))
    source, target = (
        oracle.random_ids(rng, each, VOCAB) for each in zip(*lengths, strict=True)
    )
    expected = numpy_version.transformer(
        source,
        target,
        oracle.transformer_weights(model),
        HEADS,
        norm=variant["norm"],
    )
    close(model((source, target)), expected)


def test_explicit_masks_agree_with_numpy():
    model = make()
    weights = oracle.transformer_weights(model)
    source_mask = np.array([[1, 0, 1, 1, 1, 0], [1] * 6, [0, 0, 1, 0, 1, 0]], bool)
    target_mask = np.array([[1] * 4, [1, 0, 1, 1], [1, 1, 0, 1]], bool)
    context = numpy_version.encoder(SOURCE, weights["encoder"], HEADS, source_mask)
    x, scores = numpy_version.decoder(
        TARGET, context, weights["decoder"], HEADS, target_mask, source_mask
    )
    expected = x @ weights["output"]["kernel"] + weights["output"]["bias"]
    actual = model((SOURCE, TARGET), source_mask=source_mask, target_mask=target_mask)
    close(actual, expected)
    close(model.decoder.last_attn_scores, scores[-1])
    unlike(actual, model((SOURCE, TARGET)))


def test_an_explicit_mask_may_come_with_the_very_first_call():
    model = Transformer(**oracle.TINY, input_vocab_size=23, target_vocab_size=19)
    model((SOURCE, TARGET), source_mask=SOURCE != 0, target_mask=TARGET != 0)
    oracle.randomise(model)
    expected = model((SOURCE, TARGET))
    close(
        model((SOURCE, TARGET), source_mask=SOURCE != 0, target_mask=TARGET != 0),
        expected,
    )


def test_dropout_is_in_training_only():
    model = make()
    first = model((SOURCE, TARGET))
    assert_array_equal(model((SOURCE, TARGET), training=False), first)
    unlike(model((SOURCE, TARGET), training=True), first)


@pytest.mark.parametrize("tied", [False, True])
def test_hidden_states_are_what_logits_are_made_of(tied):
    model = make(tie_embeddings=tied)
    inputs, masks = (SOURCE, TARGET), (SOURCE > 3, TARGET > 2)
    embeddings, bias = model.output_embeddings()
    assert (bias is None) == tied
    for options in ((), masks):
        x = model.hidden_states(inputs, *options)
        assert x.shape == (*TARGET.shape, 16)
        logits = np.asarray(x) @ np.asarray(embeddings).T
        close(logits + (0 if tied else np.asarray(bias)), model(inputs, *options))
    x = model.hidden_states(inputs)
    assert_array_equal(model.hidden_states(inputs, training=False), x)
    unlike(model.hidden_states(inputs, training=True), x)


@pytest.mark.parametrize("around", [False, True])
def test_each_kind_of_dropout_is_in_training_only(around):
    """However Keras comes to know that it trains."""
    for kind in ("dropout_rate", "attention_dropout", "activation_dropout"):
        options = {"dropout_rate": 0.0, kind: 0.5}
        model = oracle.tiny_transformer(**options)
        if around:
            ids = [keras.Input((None,), dtype="int32") for _ in range(2)]
            model = keras.Model(ids, model(ids))
        first = model([SOURCE, TARGET])
        assert_array_equal(model([SOURCE, TARGET], training=False), first)
        unlike(model([SOURCE, TARGET], training=True), first)


# --- Padding, and neighbours --------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(
    lengths=st.tuples(st.integers(1, 8), st.integers(1, 8)),
    more=st.tuples(st.integers(0, 20), st.integers(0, 20)),
    variant=st.sampled_from(VARIANTS),
    seed=st.integers(0, 2**32 - 1),
)
def test_padding_changes_no_logit(lengths, more, variant, seed):
    model, rng = make(**variant), np.random.default_rng(seed)
    source, target = (oracle.random_ids(rng, [n], VOCAB) for n in lengths)
    longer = [
        np.pad(ids, ((0, 0), (0, n)))
        for ids, n in zip((source, target), more, strict=True)
    ]
    logits = model(longer)[:, : lengths[1]]
    assert_allclose(logits, model((source, target)), rtol=0, atol=1e-5)


@some_variants
def test_a_sentence_does_not_depend_on_its_neighbours(variant):
    model = make(**variant)
    logits = model((SOURCE, TARGET)).numpy()
    for row, source, target in zip(logits, SOURCE, TARGET, strict=True):
        source, target = source[source != 0], target[target != 0]
        alone = model((source[None], target[None]))[0]
        assert_allclose(row[: len(target)], alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize("policy", ["float32", "float16", "mixed_bfloat16"])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_sentences_without_a_token_give_no_nan(norm, policy):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        model = oracle.tiny_transformer(norm=norm)
        source, target = SOURCE.copy(), TARGET.copy()
        source[0] = target[1] = 0
        logits = tf.cast(model((source, target)), "float32")
        assert np.isfinite(logits).all()
        scores = tf.cast(model.decoder.last_attn_scores, "float32").numpy()
        assert (scores[0] == 0).all()
    finally:
        keras.config.set_dtype_policy(before)


@pytest.mark.parametrize("variant", VARIANTS[::5], ids=name)
def test_half_precision_is_close(variant):
    """bfloat16 has 8 bits: what differs is rounding, not the model."""
    exact = make(**variant)
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = oracle.tiny_transformer(max_length=64, **variant)
        logits = model((SOURCE, TARGET))
    finally:
        keras.config.set_dtype_policy(before)
    expected = exact((SOURCE, TARGET)).numpy()
    assert logits.dtype == "bfloat16"
    difference = tf.cast(logits, "float32").numpy() - expected
    assert difference.std() < 0.05 * expected.std()


# --- The future ---------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("step", [0, 2])
def test_logits_do_not_see_the_future(norm, step):
    model = make(norm=norm)
    source, target = SOURCE[2:], np.array([[2, 8, 9, 10]])
    table = model.decoder.pos_embedding.embedding.embeddings
    with tf.GradientTape() as tape:
        logits = model((source, target))[0, step]
    gradient = tf.convert_to_tensor(tape.gradient(logits, table.value)).numpy()
    assert (gradient[target[0, step + 1 :]] == 0).all()
    assert (np.abs(gradient[target[0, : step + 1]]).max(-1) > 1e-6).all()


@variants
@pytest.mark.parametrize("other", [5, 0])
def test_later_tokens_change_no_earlier_logit(variant, other):
    model = make(**variant)
    # Row t keeps the first t + 1 tokens; the last row keeps all.
    target = np.array([[2, 8, 9, 10, 11]] * 5)
    kept = np.tri(5, dtype=bool)
    target[~kept] = other
    logits = model((SOURCE[2:].repeat(5, axis=0), target)).numpy()
    difference = np.abs(logits - logits[4]).max(-1)
    assert (difference[kept] < 5e-6).all()
    if other:
        assert (difference[~kept] > 0.01).all()


# --- Positions, and ties ------------------------------------------------------------


def test_without_positions_the_order_of_the_source_is_lost():
    order = [3, 0, 2, 1, 5, 4]
    for model, same in (
        (make(use_positions=False), True),
        (make(), False),
        (make(learned_positions=True), False),
    ):
        moved = model((SOURCE[:, order], TARGET))
        (close if same else unlike)(moved, model((SOURCE, TARGET)))


def test_tied_embeddings_are_one_matrix():
    tied, untied = make(tie_embeddings=True), make()
    tables = [w for w in tied.weights if tuple(w.shape) == (oracle.SOURCE_VOCAB, 16)]
    assert len(tables) == 1
    assert tied.final_layer is None and untied.final_layer is not None
    # Each of source, target and output reads it.
    with tf.GradientTape() as tape:
        logits = tied((SOURCE, TARGET))
    gradient = tf.convert_to_tensor(tape.gradient(logits, tables[0].value)).numpy()
    assert (np.abs(gradient).max(-1) > 1e-6).all()


# --- In Keras -----------------------------------------------------------------------


@pytest.mark.parametrize("tied", [False, True])
def test_the_logits_carry_no_mask(tied):
    """Keras would weight the loss with it, a second time and by the wrong ids."""
    logits = make(tie_embeddings=tied)((SOURCE, TARGET))
    assert getattr(logits, "_keras_mask", None) is None


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("loss", [masked_loss, MaskedLoss(0.1)])
def test_what_keras_evaluates_is_the_loss_itself(tied, loss):
    model = oracle.tiny_transformer(tie_embeddings=tied)
    logits = model((SOURCE, TARGET))
    model.compile(loss=loss, metrics=[masked_accuracy], run_eagerly=True)
    numbers = model.evaluate((SOURCE, TARGET), LABELS, verbose=0)
    expected = [float(loss(LABELS, logits)), float(masked_accuracy(LABELS, logits))]
    assert_allclose(numbers, expected, rtol=1e-5)


@some_variants
def test_config_round_trip(variant):
    model = oracle.tiny_transformer(dropout_rate=0.3, max_length=9, **variant)
    config = model.get_config()
    expected = {**oracle.TINY, "dropout_rate": 0.3, "max_length": 9, **variant}
    assert expected.items() <= config.items()
    copy = Transformer.from_config(config)
    assert copy.get_config() == config
    copy.build(((None, None), (None, None)))
    copy.set_weights(model.get_weights())
    assert_array_equal(copy((SOURCE, TARGET)), model((SOURCE, TARGET)))


@some_variants
def test_save_and_load(variant, tmp_path):
    model = oracle.tiny_transformer(max_length=9, **variant)
    expected = model((SOURCE, TARGET))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded) is Transformer
    assert_array_equal(loaded((SOURCE, TARGET)), expected)
    assert len(loaded.weights) == len(model.weights)

    model.save_weights(tmp_path / "model.weights.h5")
    other = oracle.tiny_transformer(seed=1, max_length=9, **variant)
    unlike(other((SOURCE, TARGET)), expected)
    other.load_weights(tmp_path / "model.weights.h5")
    assert_array_equal(other((SOURCE, TARGET)), expected)


def test_build_makes_all_the_weights():
    model = Transformer(**oracle.TINY, input_vocab_size=23, target_vocab_size=19)
    model.build()
    assert model.count_params() == make().count_params()


def test_a_model_of_mixed_precision_loads_as_one(tmp_path):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = oracle.tiny_transformer()
    finally:
        keras.config.set_dtype_policy(before)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    logits = loaded((SOURCE, TARGET))
    assert logits.dtype == "bfloat16"
    assert_array_equal(
        tf.cast(logits, "float32"), tf.cast(model((SOURCE, TARGET)), "float32")
    )


def test_part_of_a_functional_model():
    model = make()
    inputs = [keras.Input((None,), dtype="int32") for _ in range(2)]
    whole = keras.Model(inputs, model(inputs))
    assert whole.output_shape == (None, None, oracle.TARGET_VOCAB)
    close(whole([SOURCE, TARGET]), model((SOURCE, TARGET)))


# --- Errors -------------------------------------------------------------------------


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
def test_settings_that_cannot_be(options, message):
    vocabularies = {"input_vocab_size": 9, "target_vocab_size": 9}
    with pytest.raises(ValueError, match=message):
        Transformer(**{**oracle.TINY, **vocabularies, **options})


@pytest.mark.parametrize("learned", [False, True])
def test_too_many_positions(learned):
    model = oracle.tiny_transformer(max_length=5, learned_positions=learned)
    ids = np.full((1, 6), 4)
    model((ids[:, :5], ids[:, :5]))
    for source, target in ((ids, ids[:, :1]), (ids[:, :1], ids)):
        with pytest.raises(ValueError, match=r"6 positions.*max_length=5"):
            model((source, target))
