"""The oracle itself, against values worked out by hand."""

import math

import numpy as np
import numpy_transformer as oracle
import pytest
from numpy.testing import assert_allclose, assert_array_equal

LOG_3 = math.log(3.0)


def close(actual, expected):
    assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)


# --- Attention ----------------------------------------------------------------------


def test_softmax():
    close(oracle.softmax([0.0, LOG_3]), [1 / 4, 3 / 4])
    close(oracle.softmax([1000.0, 1000.0 + LOG_3]), [1 / 4, 3 / 4])


def test_softmax_masked_is_exactly_zero():
    weights = oracle.softmax([0.0, 1e9, LOG_3], [True, False, True])
    close(weights, [1 / 4, 0, 3 / 4])
    assert weights[1] == 0.0


def test_softmax_nothing_visible():
    assert_array_equal(oracle.softmax([5.0, -7.0], [False, False]), [0.0, 0.0])


# q k^T / sqrt(2) is [[0, ln 3], [0, 0]].
Q = [[math.sqrt(2) * LOG_3, 0.0], [0.0, 0.0]]
K = [[0.0, 0.0], [1.0, 0.0]]
V = [[4.0, 0.0], [8.0, 4.0]]


def test_attention_two_by_two():
    output, weights = oracle.attention(Q, K, V)
    close(weights, [[1 / 4, 3 / 4], [1 / 2, 1 / 2]])
    close(output, [[7, 3], [6, 2]])


def test_attention_masked():
    output, weights = oracle.attention(Q, K, V, [[True, False], [False, False]])
    assert_array_equal(weights, [[1, 0], [0, 0]])
    assert_array_equal(output, [[4, 0], [0, 0]])


def identity_attention(d_model):
    eye, zero = np.eye(d_model), np.zeros(d_model)
    return {
        "query_kernel": eye,
        "query_bias": zero,
        "key_kernel": eye,
        "key_bias": zero,
        "value_kernel": eye,
        "value_bias": zero,
        "output_kernel": eye,
        "output_bias": zero,
    }


def test_multi_head_attention_two_heads_of_one_column():
    # Head 0 reads column 0: scores [0, ln 3], values [0, 1].
    # Head 1 reads column 1: scores [0, 0], values [4, 8].
    x_q, x_kv = [[[LOG_3, 0.0]]], [[[0.0, 4.0], [1.0, 8.0]]]
    weights = identity_attention(2)
    output, scores = oracle.multi_head_attention(x_q, x_kv, weights, num_heads=2)
    close(scores, [[[[1 / 4, 3 / 4]], [[1 / 2, 1 / 2]]]])
    close(output, [[[3 / 4, 6]]])

    # The output kernel swaps the heads; biases: of the values, and of the output.
    weights["output_kernel"] = np.array([[0.0, 1.0], [1.0, 0.0]])
    weights["value_bias"] = np.array([1.0, 2.0])
    weights["output_bias"] = np.array([10.0, 20.0])
    output, _ = oracle.multi_head_attention(x_q, x_kv, weights, num_heads=2)
    close(output, [[[18, 21.75]]])


def test_multi_head_attention_query_and_key_bias():
    # (x_q + b_q) * (x_kv + b_k) = ln 3 * [0, 1]. The key bias adds the same to all
    # the scores of a query, so it never moves a weight, here or in any model.
    weights = identity_attention(1)
    weights["query_bias"] = np.array([LOG_3])
    weights["key_bias"] = np.array([-2.0])
    output, scores = oracle.multi_head_attention(
        [[[0.0]]], [[[2.0], [3.0]]], weights, num_heads=1
    )
    close(scores, [[[[1 / 4, 3 / 4]]]])
    close(output, [[[2.75]]])


def test_multi_head_attention_nothing_visible_leaves_the_bias():
    weights = identity_attention(2)
    weights["output_bias"] = np.array([3.0, 5.0])
    output, scores = oracle.multi_head_attention(
        np.ones((1, 1, 2)), np.ones((1, 3, 2)), weights, 2, np.zeros((1, 1, 1, 3), bool)
    )
    assert_array_equal(scores, np.zeros((1, 2, 1, 3)))
    assert_array_equal(output, [[[3, 5]]])


def test_head_size_need_not_divide_d_model():
    rng = np.random.default_rng(0)
    weights = oracle.random_weights(rng, 1, 6, 2, 8, 9, 9, head_dim=5)
    assert oracle.transformer([[1, 2]], [[1, 2, 3]], weights, 2).shape == (1, 3, 9)


# --- The other pieces ---------------------------------------------------------------


def test_layer_norm_of_one_two_three():
    # Mean 2, variance 2/3: (1 - 2) / sqrt(2/3) = -sqrt(3/2).
    root = math.sqrt(3 / 2)
    close(oracle.layer_norm([1, 2, 3], 1.0, 0.0, epsilon=0.0), [-root, 0, root])
    close(
        oracle.layer_norm([1, 2, 3], np.array([1, 5, 2]), np.array([0, 7, 1]), 1 / 3),
        [-1, 7, 3],  # variance + epsilon = 1
    )


def test_feed_forward():
    # [1, -2] W1 + b1 = [1 + 1, -2 - 1, 1 - 2 + 4] -> relu [2, 0, 3].
    w1 = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    b1 = np.array([1.0, -1.0, 4.0])
    w2 = np.array([[1.0, 2.0], [100.0, 100.0], [10.0, 0.0]])
    b2 = np.array([0.5, -0.5])
    close(oracle.feed_forward([[1.0, -2.0]], w1, b1, w2, b2), [[32.5, 3.5]])


def test_positional_encoding():
    encoding = oracle.positional_encoding(4, 6)
    assert encoding.shape == (4, 6)
    assert_array_equal(encoding[0], [0, 1, 0, 1, 0, 1])
    for position in range(4):
        for i in range(3):
            angle = position / 10000 ** (2 * i / 6)
            close(encoding[position, 2 * i], math.sin(angle))
            close(encoding[position, 2 * i + 1], math.cos(angle))


def test_embed():
    table = np.array([[9.0, 9.0, 9.0, 9.0], [1.0, 2.0, 3.0, 4.0]])
    sinusoidal = oracle.embed([[0, 1]], {"embedding": table})
    close(sinusoidal[0, 0], [18, 19, 18, 19])  # times sqrt(4), plus sin 0 and cos 0
    close(
        sinusoidal[0, 1],
        [2 + math.sin(1), 4 + math.cos(1), 6 + math.sin(0.01), 8 + math.cos(0.01)],
    )
    learned = oracle.embed(
        [[1, 1]], {"embedding": table, "positions": 10 * np.arange(12).reshape(3, 4)}
    )
    close(learned, [[[2, 14, 26, 38], [42, 54, 66, 78]]])


def test_masks():
    assert_array_equal(
        oracle.causal_mask(3)[0, 0],
        [[True, False, False], [True, True, False], [True, True, True]],
    )
    assert oracle.key_mask([[True, False]]).shape == (1, 1, 1, 2)


# --- Layers. With d_model 2 and epsilon 0, layer_norm is [-1, 1] or [1, -1] ---------

PLAIN_NORM = {"gamma": np.ones(2), "beta": np.zeros(2)}


def constant_attention(value):
    """Attention whose output is `value` whatever it looks at."""
    weights = {name: np.zeros_like(w) for name, w in identity_attention(2).items()}
    return weights | {"output_bias": np.array(value)}


def relu_plus(value):
    """A feed-forward network that is relu(x) + value."""
    return {
        "w1": np.eye(2),
        "b1": np.zeros(2),
        "w2": np.eye(2),
        "b2": np.array(value),
    }


ENCODER_LAYER = {
    "attention": constant_attention([0.0, 4.0]),
    "attention_norm": PLAIN_NORM,
    "feed_forward": relu_plus([4.0, 0.0]),
    "feed_forward_norm": PLAIN_NORM,
}


def test_encoder_layer_post_norm():
    # [1, 2] + [0, 4] = [1, 6] -> norm [-1, 1];
    # + relu [0, 1] + [4, 0] = [3, 2] -> norm [1, -1].
    output = oracle.encoder_layer([[[1, 2]]], ENCODER_LAYER, 1, None, "post", 0.0)
    close(output, [[[1, -1]]])


def test_encoder_layer_pre_norm():
    # [1, 2] + [0, 4] = [1, 6]; + relu(norm [-1, 1]) + [4, 0] = [5, 7].
    output = oracle.encoder_layer([[[1, 2]]], ENCODER_LAYER, 1, None, "pre", 0.0)
    close(output, [[[5, 7]]])


def test_pre_norm_comes_before_attention():
    # One token attends to itself: [1, 5] + norm([1, 5]) = [0, 6], then the network:
    # + relu([-1, 1]) + [4, 0] = [4, 7].
    layer = ENCODER_LAYER | {"attention": identity_attention(2)}
    output = oracle.encoder_layer([[[1, 5]]], layer, 1, None, "pre", 0.0)
    close(output, [[[4, 7]]])


DECODER_LAYER = {
    "self_attention": constant_attention([0.0, 4.0]),
    "self_attention_norm": PLAIN_NORM,
    "cross_attention": identity_attention(2),
    "cross_attention_norm": PLAIN_NORM,
    "feed_forward": relu_plus([0.0, 0.0]),
    "feed_forward_norm": PLAIN_NORM,
}
# Only the first of two source tokens is visible: cross-attention gives [7, 3].
CONTEXT = [[[7.0, 3.0], [50.0, 60.0]]]
CROSS_MASK = oracle.key_mask([[True, False]])


def test_decoder_layer_post_norm():
    # [1, 2] + [0, 4] -> norm [-1, 1]; + [7, 3] = [6, 4] -> norm [1, -1];
    # + relu [1, 0] = [2, -1] -> norm [1, -1].
    output, cross = oracle.decoder_layer(
        [[[1, 2]]], CONTEXT, DECODER_LAYER, 1, None, CROSS_MASK, "post", 0.0
    )
    close(output, [[[1, -1]]])
    assert_array_equal(cross, [[[[1, 0]]]])


def test_decoder_layer_pre_norm():
    # [1, 2] + [0, 4] = [1, 6]; + [7, 3], the context as it is, = [8, 9];
    # + relu(norm [-1, 1]) = [8, 10].
    output, _ = oracle.decoder_layer(
        [[[1, 2]]], CONTEXT, DECODER_LAYER, 1, None, CROSS_MASK, "pre", 0.0
    )
    close(output, [[[8, 10]]])


def test_norm_has_two_names():
    with pytest.raises(ValueError, match="post"):
        oracle.encoder_layer([[[1, 2]]], ENCODER_LAYER, 1, norm="sandwich")


# --- The whole model ----------------------------------------------------------------


def test_output_tied_and_untied():
    # No layers: the decoder's output is the embedding * sqrt(4) + learned position 0.
    table = np.array([[9.0, 9, 9, 9], [1, 2, 0, 0], [0, 1, 0, 1]])
    stack = {"embedding": table, "positions": np.zeros((5, 4)), "layers": []}
    tied = {"encoder": stack, "decoder": stack}
    close(oracle.transformer([[1]], [[1]], tied, 1), [[[54, 10, 4]]])

    kernel, bias = np.eye(4)[:, :3], np.array([0.5, 0.25, 7.0])
    untied = tied | {"output": {"kernel": kernel, "bias": bias}}
    close(oracle.transformer([[1]], [[1]], untied, 1), [[[2.5, 4.25, 7]]])


def test_final_norm_with_pre_norm_only():
    # No layers: [1, 2] * sqrt(2) is normalised to [-1, 1] with norm="pre" alone.
    final = {"gamma": np.array([1.0, 2.0]), "beta": np.array([0.0, 3.0])}
    stack = {
        "embedding": np.array([[0.0, 0.0], [1.0, 2.0]]),
        "positions": np.zeros((1, 2)),
        "layers": [],
        "final_norm": final,
    }
    pre = oracle.encoder([[1]], stack, 1, norm="pre", epsilon=0.0)
    post = oracle.encoder([[1]], stack, 1, norm="post", epsilon=0.0)
    close(pre, [[[-1, 5]]])
    close(post, [[[math.sqrt(2), 2 * math.sqrt(2)]]])
    close(oracle.decoder([[1]], pre, stack, 1, norm="pre", epsilon=0.0)[0], pre)


@pytest.fixture(params=["post", "pre"])
def norm(request):
    return request.param


@pytest.fixture(params=[None, 12], ids=["sinusoidal", "learned"])
def weights(request):
    rng = np.random.default_rng(7)
    return oracle.random_weights(
        rng, 2, 8, 2, 16, 11, 13, max_length=request.param, tied=False
    )


SOURCE = [[3, 5, 7, 2]]
TARGET = [[1, 4, 6, 8, 9]]


def test_shapes(weights, norm):
    logits = oracle.transformer(SOURCE, TARGET, weights, 2, norm)
    assert logits.shape == (1, 5, 13)
    assert logits.dtype == np.float64
    context = oracle.encoder(SOURCE, weights["encoder"], 2, norm=norm)
    _, cross = oracle.decoder(TARGET, context, weights["decoder"], 2, norm=norm)
    assert [c.shape for c in cross] == [(1, 2, 5, 4)] * 2
    close(np.sum(cross, axis=-1), np.ones((2, 1, 2, 5)))


def test_padding_changes_nothing(weights, norm):
    alone = oracle.transformer(SOURCE, TARGET, weights, 2, norm)
    padded = oracle.transformer(
        [[*SOURCE[0], 0, 0, 0], [1, 2, 3, 4, 5, 6, 7]],
        [[*TARGET[0], 0, 0], [7, 6, 5, 4, 3, 2, 1]],
        weights,
        2,
        norm,
    )
    close(padded[:1, :5], alone)


def test_masks_hide_what_they_say(weights, norm):
    """An explicit mask does to a token what id 0 does, and is not ignored."""
    seen = oracle.encoder(SOURCE, weights["encoder"], 2, norm=norm)
    hidden = oracle.encoder(
        SOURCE, weights["encoder"], 2, [[True, True, True, False]], norm
    )
    shorter = oracle.encoder([SOURCE[0][:3]], weights["encoder"], 2, norm=norm)
    close(hidden[:, :3], shorter)
    assert not np.allclose(hidden[:, :3], seen[:, :3])


def test_padding_inside_the_target_is_hidden(weights, norm):
    """After a padding id, later positions do not depend on its embedding."""
    target = [[1, 0, 6]]
    before = oracle.transformer(SOURCE, target, weights, 2, norm)
    weights["decoder"]["embedding"][0] *= -3.0  # adding 5 the norm would undo
    after = oracle.transformer(SOURCE, target, weights, 2, norm)
    close(after[:, [0, 2]], before[:, [0, 2]])
    assert not np.allclose(after[:, 1], before[:, 1])


def test_no_position_sees_the_future(weights, norm):
    whole = oracle.transformer(SOURCE, TARGET, weights, 2, norm)
    for t in range(1, 5):
        part = oracle.transformer(SOURCE, [TARGET[0][:t]], weights, 2, norm)
        close(part, whole[:, :t])
    changed = oracle.transformer(SOURCE, [[2, 4, 6, 8, 9]], weights, 2, norm)
    assert not np.allclose(changed[:, 4], whole[:, 4])  # the past is seen


def test_an_empty_source_is_finite(weights, norm):
    logits = oracle.transformer([[0, 0]], TARGET, weights, 2, norm)
    assert np.all(np.isfinite(logits))


# --- Loss, metrics, schedule --------------------------------------------------------

# p = [1/4, 3/4] at the first position, [1/2, 1/2] at the second, then padding.
LOGITS = [[[0.0, LOG_3], [0.0, 0.0], [9.0, -9.0]]]
LABELS = [[1, 1, 0]]


def test_cross_entropy():
    expected = (-math.log(3 / 4) - math.log(1 / 2)) / 2
    close(oracle.cross_entropy(LOGITS, LABELS), expected)


def test_cross_entropy_smoothed():
    # (1 - 0.1) * [0, 1] + 0.1 / 2 = [0.05, 0.95].
    first = -0.05 * math.log(1 / 4) - 0.95 * math.log(3 / 4)
    second = -math.log(1 / 2)
    close(oracle.cross_entropy(LOGITS, LABELS, smoothing=0.1), (first + second) / 2)


def test_mean_counts_tokens_not_sentences():
    logits = np.zeros((2, 3, 4))
    logits[0, :, 1] = LOG_3  # p(1) = 3 / 6
    labels = [[1, 1, 1], [1, 0, 0]]  # p(1) = 1 / 4 in the second sentence
    close(oracle.cross_entropy(logits, labels), (3 * math.log(2) + math.log(4)) / 4)


def test_accuracy():
    logits = [[[0, 2, 1], [0, 1, 2], [0, 2, 1], [5, 0, 0]]]
    close(oracle.accuracy(logits, [[1, 2, 2, 0]]), 2 / 3)


def test_perplexity():
    close(oracle.perplexity(np.zeros((2, 3, 7)), np.ones((2, 3), int)), 7)
    close(oracle.perplexity(LOGITS, LABELS), math.sqrt(4 / 3 * 2))


def test_nothing_to_average():
    with pytest.raises(ValueError, match="padding"):
        oracle.cross_entropy(LOGITS, [[0, 0, 0]])


def test_learning_rate():
    # d_model 4 and warm-up 4: 1/2 * min(step^-1/2, step / 8).
    close(
        oracle.learning_rate([0, 1, 4, 16], 4, 4),
        [0, 1 / 16, 1 / 4, 1 / 8],
    )
    close(oracle.learning_rate(4000, 512, 4000), 1 / math.sqrt(512 * 4000))


# --- Greedy decoding ----------------------------------------------------------------


def test_greedy_reads_what_the_positions_say():
    """No layers, no embedding: the logits at position t are row t of the table."""
    table = np.log([[1.0, 1, 6, 2], [5, 1, 1, 3], [1, 1, 1, 7], [7, 1, 1, 1]])
    stack = {"embedding": np.zeros((4, 4)), "positions": table, "layers": []}
    output = {"kernel": np.eye(4), "bias": np.zeros(4)}
    weights = {"encoder": stack, "decoder": stack, "output": output}

    ids, log_p = oracle.greedy([2, 1], weights, 1, 1, end_id=3, max_length=4)
    assert ids == [2, 0, 3]
    close(log_p, np.log([0.6, 0.5, 0.7]))

    ids, log_p = oracle.greedy(
        [2, 1], weights, 1, 1, end_id=3, max_length=4, forbidden=(0,)
    )
    assert ids == [2, 3]
    close(log_p, np.log([0.6, 0.3]))

    ids, log_p = oracle.greedy([2, 1], weights, 1, 1, end_id=9, max_length=2)
    assert ids == [2, 0]
    assert len(log_p) == 2


def test_greedy_agrees_with_one_run_over_its_answer(weights, norm):
    ids, log_p = oracle.greedy(
        SOURCE[0], weights, 2, 1, end_id=2, max_length=8, norm=norm, forbidden=(0,)
    )
    logits = oracle.transformer(SOURCE, [[1, *ids[:-1]]], weights, 2, norm)
    expected = oracle.log_softmax(logits)[0, np.arange(len(ids)), ids]
    close(log_p, expected)
    assert_array_equal(np.argmax(logits[0, :, 1:], axis=-1) + 1, ids)
