"""The whole of `decode`: what holds for every search, however it runs."""

import functools

import keras
import numpy as np
import oracle
import pytest
import tensorflow as tf
from decoding_oracle import (
    LETTERS,
    VARIANTS,
    decode_with,
    is_allowed,
    pad,
    score_all,
    small_model,
    written,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from tfxformer import Transformer
from tfxformer.decoding import DecodingOptions, decode, length_limit
from tfxformer.decoding.step import DecoderStep
from tfxformer.layers import padding_mask
from tfxformer.tokenizer import END_ID, START_ID
from tfxformer.training.loss import token_loss

# No token but the end; short ones; some that end at once, some cut off late.
SENTENCES = [[3], [4, 3], [5, 6, 3], [5, 6, 4, 5, 4, 4, 6, 5, 3], [6, 6, 3], [6, 3]]
# Each method with all that it knows.
METHODS = {
    "greedy": {"no_repeat_ngram": 3},
    "beam": {
        "beam_size": 3,
        "n_best": 2,
        "length_penalty": 0.6,
        "coverage_penalty": 0.2,
        "no_repeat_ngram": 2,
    },
    "sampling": {"sampling": True, "n_best": 2, "top_p": 0.9, "seed": 3},
}
methods = pytest.mark.parametrize("method", METHODS)


def shifted(ids):
    return np.concatenate([np.full((len(ids), 1), START_ID), ids], axis=1)[:, :-1]


def same(actual, expected, tolerance=1e-5):
    """The ids, whatever the width of their padding, and the numbers."""
    width = max(actual.ids.shape[-1], expected.ids.shape[-1])
    for found in (actual, expected):
        for answers in np.asarray(found.ids):
            assert all(written(ids) is not None for ids in answers)
    narrow, wide = (
        np.pad(x.ids, [(0, 0), (0, 0), (0, width - x.ids.shape[-1])])
        for x in (actual, expected)
    )
    assert_array_equal(narrow, wide)
    assert_allclose(actual.score, expected.score, atol=tolerance)
    assert_allclose(actual.rank, expected.rank, rtol=1e-5, atol=tolerance)


# --- Constraints, and scores --------------------------------------------------------


@st.composite
def all_options(draw):
    """Whatever can be asked for together, and never leaves nothing to write."""
    options = {
        "no_repeat_ngram": draw(st.integers(0, 3)),
        "max_length": draw(st.sampled_from([None, 1, 4, 7, 99])),
    }
    method = draw(st.sampled_from(["greedy", "beam", "sampling"]))
    if method == "beam":
        options["beam_size"] = draw(st.integers(2, 4))
        options["n_best"] = draw(st.integers(1, options["beam_size"]))
        options["length_penalty"] = draw(st.sampled_from([None, 0.0, 1.0]))
        options["coverage_penalty"] = draw(st.sampled_from([0.0, 0.5]))
    if method == "sampling":
        options["sampling"] = True
        options["n_best"] = draw(st.integers(1, 3))
        options["seed"] = draw(st.integers(0, 2**31 - 1))
        options["temperature"] = draw(st.sampled_from([0.5, 1.0, 1e9]))
        options["top_k"] = draw(st.integers(0, 3))
    return options


prefixes = st.lists(
    st.lists(st.sampled_from(LETTERS), max_size=3), min_size=6, max_size=6
)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(
    options=all_options(),
    prefix=st.none() | prefixes,
    variant=st.integers(0, len(VARIANTS) - 2),
    fixed=st.booleans(),
)
def test_constraints_hold_and_scores_are_the_models(options, prefix, variant, fixed):
    model = small_model(variant)
    given_prefix = None if prefix is None else pad(prefix, 3)
    decoded = decode_with(model, SENTENCES, given_prefix, xla=fixed, **options)
    options = DecodingOptions(**options)
    assert not decoded.ids[0].any() and not decoded.score[0].any()
    for row in range(1, len(SENTENCES)):
        begin = tuple(prefix[row]) if prefix else ()
        limit = min(2 * len(SENTENCES[row]) + 10, model.max_length)
        limit = min(options.max_length or limit, model.max_length)
        limit = max(limit, len(begin) + 1)
        answers = [written(ids) for ids in decoded.ids[row]]
        # A beam can find fewer than n_best where few are allowed.
        answers = [ids for ids in answers if ids]
        assert answers
        for ids in answers:
            assert is_allowed(ids, options, begin), (ids, begin)
            assert len(ids) <= limit
            assert (END_ID in ids) == (ids[-1] == END_ID)
            assert ids[-1] == END_ID or len(ids) == limit
            assert ids.count(END_ID) <= 1
        expected = [x.score for x in score_all(model, SENTENCES[row], answers)]
        assert_allclose(decoded.score[row, : len(answers)], expected, atol=1e-4)


@methods
@pytest.mark.parametrize("variant", [0, 2])
def test_scores_are_those_of_forced_decoding(method, variant):
    """By a plain call of the model, and as the signature `score` computes it."""
    model = small_model(variant)
    decoded = decode_with(model, SENTENCES, **METHODS[method])
    for n in range(decoded.ids.shape[1]):
        source, ids = pad(SENTENCES), decoded.ids[:, n]
        logits = model((source, shifted(ids)))
        log_p = tf.nn.log_softmax(logits).numpy()
        gain = np.take_along_axis(log_p, ids[..., None], axis=-1)[..., 0]
        mean = (gain * (ids != 0)).sum(1) / np.maximum((ids != 0).sum(1), 1)
        assert_allclose(decoded.score[:, n], mean, atol=1e-4)
        real = tf.cast(padding_mask(ids), tf.float32)
        total = tf.reduce_sum(token_loss(ids, logits) * real, axis=1)
        mean = -total / tf.maximum(tf.reduce_sum(real, axis=1), 1.0)
        assert_allclose(decoded.score[:, n], mean, atol=1e-4)


# --- Neighbours ---------------------------------------------------------------------


@functools.cache
def in_a_graph(method):
    return tf.function(
        functools.partial(
            decode, small_model(0), options=DecodingOptions(**METHODS[method])
        ),
        input_signature=[tf.TensorSpec([None, None], tf.int32)],
    )


sentences = st.lists(st.sampled_from(LETTERS), max_size=7).map(
    lambda tokens: [*tokens, END_ID]
)


@methods
@settings(max_examples=6, deadline=None)
@given(batch=st.lists(sentences, min_size=1, max_size=6), more=st.integers(0, 5))
def test_a_sentence_does_not_depend_on_its_neighbours(method, batch, more):
    decode = in_a_graph(method)
    together = decode(pad(batch, max(map(len, batch)) + more))
    for row, sentence in enumerate(batch):
        mine = type(together)(*(x[row : row + 1] for x in together[:3]), None)
        same(mine, decode(pad([sentence])))


@methods
def test_nor_on_those_that_end_before_it(method):
    """Neighbours that end at once, some in between and some late: the batch shrinks."""
    rng = np.random.default_rng(0)
    batch = [[*rng.choice(LETTERS, rng.integers(0, 8)), END_ID] for _ in range(40)]
    decode = in_a_graph(method)
    together = decode(pad(batch))
    lengths = {len(written(ids)) for ids in together.ids.numpy()[:, 0]}
    assert len(lengths) > 3 and 0 in lengths
    order = rng.permutation(40)
    moved = decode(pad([batch[i] for i in order], 11))
    whole = type(together)(*(tf.gather(x, order) for x in together[:3]), None)
    same(moved, whole)
    for row in range(0, 40, 4):
        mine = type(together)(*(x[row : row + 1] for x in together[:3]), None)
        same(mine, decode(pad(batch[row : row + 1])))


@methods
def test_nor_where_there_is_room_for_all(method):
    """The same of `Fixed`, where sentences that have ended wait."""
    rng = np.random.default_rng(0)
    batch = [[*rng.choice(LETTERS, rng.integers(0, 8)), END_ID] for _ in range(20)]
    fixed = decode_with(small_model(0), batch, xla=True, **METHODS[method])
    same(fixed, in_a_graph(method)(pad(batch)))


# --- However it runs ----------------------------------------------------------------


@methods
@pytest.mark.parametrize("extras", [False, True], ids=["plain", "prefix, attention"])
def test_graph_eager_and_fixed_agree(method, extras):
    model, source = small_model(1), pad(SENTENCES)
    options = DecodingOptions(max_length=6, **METHODS[method])
    prefix = pad([[4], [], [6, 6], [], [], [5]]) if extras else None

    def run(source, xla=False):
        return decode(model, source, options, prefix, attention=extras, xla=xla)

    eager = run(source)
    cases = [run(source, xla=True)]
    if extras or method == "sampling":
        cases.append(tf.function(run)(tf.constant(source)))
    if extras and method == "beam":
        # A graph that knows even the ids.
        cases.append(tf.function(lambda: run(tf.constant(source)))())
    for found in cases:
        same(found, eager)
        if extras:
            width = eager.ids.shape[-1]
            weights = np.asarray(found.attention)
            assert_allclose(weights[..., :width, :], eager.attention, atol=1e-5)
            assert not weights[..., width:, :].any()


# Sampling is greedy's loop as well.
@pytest.mark.slow
@pytest.mark.parametrize("method", ["beam", "sampling"])
def test_xla_compiles_it(method):
    model, source = small_model(0), pad(SENTENCES)
    options = DecodingOptions(**METHODS[method])
    attention = method == "beam"

    @tf.function(
        jit_compile=True, input_signature=[tf.TensorSpec([None, None], tf.int32)]
    )
    def compiled(source):
        found = decode(model, source, options, attention=attention, xla=True)
        return tuple(found) if attention else tuple(found)[:3]

    found = compiled(source)
    expected = decode(model, source, options, attention=attention)
    same(type(expected)(*found[:3], None), expected)
    assert found[0].shape[-1] == 24
    if attention:
        width = expected.ids.shape[-1]
        assert_allclose(
            found[3][..., :width, :], np.asarray(expected.attention), atol=1e-5
        )


# --- Attention ----------------------------------------------------------------------


@methods
@pytest.mark.parametrize("fixed", [False, True], ids=["growing", "fixed"])
def test_attention_is_that_of_the_full_forward_pass(method, fixed):
    model, source = small_model(1), pad(SENTENCES, 11)
    decoded = decode(
        model,
        source,
        DecodingOptions(max_length=8, **METHODS[method]),
        attention=True,
        xla=fixed,
    )
    n, width = decoded.ids.shape[1:]
    assert decoded.attention.shape == (6, n, 2, 2, width, 11)
    for i in range(n):
        ids = np.asarray(decoded.ids)[:, i]
        model((source, shifted(ids)))
        layers = [layer.last_attn_scores for layer in model.decoder.dec_layers]
        expected = np.stack([np.asarray(x) for x in layers], axis=1)
        expected = expected * (ids != 0)[:, None, None, :, None]
        actual = np.asarray(decoded.attention)[:, i]
        assert_allclose(actual, expected, atol=1e-5)
        is_real = (ids != 0)[:, :, None] & (source != 0)[:, None, :]
        hidden = ~np.broadcast_to(is_real[:, None, None], actual.shape)
        assert (actual[hidden] == 0).all()
        sums = np.broadcast_to((ids != 0)[:, None, None, :], actual.shape[:-1])
        assert_allclose(actual.sum(-1), sums, atol=1e-5)


def test_attention_is_none_where_it_was_not_asked_for():
    assert decode_with(small_model(0), SENTENCES).attention is None


# --- Limits, and when it ends -------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    batch=st.lists(sentences, min_size=1, max_size=4),
    most=st.integers(1, 40),
    max_length=st.none() | st.integers(30, 50),
)
def test_length_limit(batch, most, max_length):
    expected = [
        min(max_length or 2 * len(sentence) + 10, most) if len(sentence) > 1 else 0
        for sentence in batch
    ]
    options = DecodingOptions(max_length=max_length)
    assert_array_equal(length_limit(pad(batch, 9), options, most), expected)


@pytest.mark.parametrize("xla", [False, True])
@pytest.mark.parametrize("options", [{}, {"beam_size": 3}, {"sampling": True}])
def test_what_never_ends_is_cut_off(options, xla):
    never = small_model(0, end_bias=-1e4)
    decoded = decode_with(never, SENTENCES, xla=xla, **options)
    assert [len(written(ids)) for ids in decoded.ids[:, 0]] == [0, 14, 16, 24, 16, 14]
    assert END_ID not in decoded.ids
    assert np.isfinite(decoded.score).all() and (decoded.score[1:] < 0).all()


@pytest.mark.parametrize(
    ("options", "length"),
    [
        ({}, 1),
        ({"beam_size": 3}, 1),
        ({"sampling": True, "n_best": 4}, 1),
    ],
)
def test_it_ends_as_soon_as_all_have_ended(options, length):
    """The ids are as wide as steps were taken."""
    at_once = small_model(0, end_bias=1e3)
    decoded = decode_with(at_once, SENTENCES, **options)
    assert decoded.ids.shape[-1] <= length
    for ids in decoded.ids[1:, 0]:
        assert written(ids) == (END_ID,)


def test_steps_are_no_more_than_the_longest_translation(monkeypatch):
    positions, call = [], DecoderStep.__call__

    def counted(self, position, sources, token, ids, cache):
        positions.append((int(position), token.shape[0]))
        return call(self, position, sources, token, ids, cache)

    monkeypatch.setattr(DecoderStep, "__call__", counted)
    decoded = decode_with(small_model(0), SENTENCES)
    lengths = [len(written(ids)) for ids in decoded.ids[:, 0]]
    assert [p for p, _ in positions] == list(range(max(lengths)))
    # Those that have ended are not computed for ever.
    rows = [count for _, count in positions]
    assert rows[-1] < len(SENTENCES) and rows == sorted(rows, reverse=True)
    for position, count in positions:
        assert count >= sum(length > position for length in lengths)


def test_a_source_as_long_as_the_model_allows():
    for options in METHODS.values():
        decoded = decode_with(small_model(0), [[4] * 23 + [END_ID]], **options)
        assert 1 <= len(written(decoded.ids[0, 0])) <= 24


def test_a_prefix_as_long_as_the_model_allows():
    for length, options in ((23, {}), (24, {}), (30, {"beam_size": 2})):
        prefix = np.full((2, length), 5, "int32")
        decoded = decode_with(small_model(0), [[4, 3], [3]], prefix, **options)
        assert written(decoded.ids[0, 0])[:length] == (5,) * min(length, 24)
        assert not decoded.ids[1].any()


# --- Nothing ------------------------------------------------------------------------


@methods
@pytest.mark.parametrize("shape", [(0, 5), (0, 1), (2, 1), (2, 3)])
@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
def test_nothing_gives_nothing(method, shape, graph):
    source = np.zeros(shape, np.int32)
    source[:, :1] = END_ID
    options = DecodingOptions(**METHODS[method])
    decoded = (
        in_a_graph(method)(source) if graph else decode(small_model(0), source, options)
    )
    assert decoded.ids.shape == (shape[0], options.n_best, 0)
    assert_array_equal(decoded.score, np.zeros((shape[0], options.n_best)))
    assert_array_equal(decoded.rank, np.zeros((shape[0], options.n_best)))


@pytest.mark.parametrize("options", METHODS.values(), ids=METHODS)
def test_nothing_has_no_attention(options):
    for source, width in (([[3]], 1), (np.zeros((0, 4), "int32"), 4)):
        decoded = decode(
            small_model(0), source, DecodingOptions(**options), attention=True
        )
        n = decoded.ids.shape[1]
        assert decoded.attention.shape == (len(source), n, 2, 2, 0, width)


def test_an_empty_prefix_is_none():
    for options in METHODS.values():
        options = {"max_length": 5, **options}
        free = decode_with(small_model(0), SENTENCES, **options)
        for width in (0, 2):
            prefix = np.zeros((6, width), "int32")
            same(decode_with(small_model(0), SENTENCES, prefix, **options), free)


# --- The rest -----------------------------------------------------------------------


def test_ids_of_64_bits():
    source = tf.constant(pad(SENTENCES), "int64")
    prefix = tf.constant([[5]] * 6, "int64")
    decoded = decode(small_model(0), source, prefix=prefix)
    expected = decode_with(small_model(0), SENTENCES, prefix.numpy().astype("int32"))
    assert decoded.ids.dtype == "int32"
    same(decoded, expected)


def test_a_model_that_was_never_called():
    """Its weights are random, but it has to have them."""
    model = Transformer(**oracle.TINY, input_vocab_size=13, target_vocab_size=13)
    assert decode(model, pad(SENTENCES[:2])).ids.shape[0] == 2


def test_dropout_never_plays_a_part():
    model = small_model(0, dropout_rate=0.9)
    same(decode_with(model, SENTENCES), decode_with(small_model(0), SENTENCES))


@methods
@pytest.mark.parametrize("policy", ["bfloat16", "mixed_bfloat16", "float64"])
def test_other_precisions(method, policy):
    model = small_model(0, dtype=policy)
    for xla in (False, True):
        decoded = decode_with(
            model, SENTENCES, xla=xla, attention=True, max_length=3, **METHODS[method]
        )
        assert decoded.ids.dtype == np.int32 and decoded.score.dtype == np.float32
        assert decoded.attention.dtype == np.float32
        options = DecodingOptions(max_length=3, **METHODS[method])
        for row, answers in enumerate(decoded.ids[1:], 1):
            answers = [written(ids) for ids in answers]
            assert all(is_allowed(ids, options) and ids for ids in answers)
            expected = score_all(model, SENTENCES[row], answers)
            tolerance = 1e-4 if policy == "float64" else 0.05
            actual = decoded.score[row]
            assert_allclose(actual, [x.score for x in expected], atol=tolerance)


@pytest.mark.parametrize("options", METHODS.values(), ids=METHODS)
def test_half_precision(options):
    model = small_model(0, dtype="float16")
    decoded = decode_with(model, SENTENCES, **options)
    assert np.isfinite(decoded.score).all()
    for row, answers in enumerate(decoded.ids[1:], 1):
        answers = [written(ids) for ids in answers]
        assert all(is_allowed(ids, DecodingOptions()) for ids in answers)
        expected = [x.score for x in score_all(model, SENTENCES[row], answers)]
        assert_allclose(decoded.score[row], expected, atol=0.02)


def test_mixed_precision_set_for_all_of_keras():
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = oracle.tiny_transformer()
        decoded = decode_with(model, SENTENCES[:2], beam_size=2)
    finally:
        keras.config.set_dtype_policy(before)
    assert decoded.score.dtype == np.float32 and np.isfinite(decoded.score).all()
