"""The Transformer in plain NumPy, float64: a reference to test the layers against.

Written from the formulas of Vaswani et al. 2017, "Attention Is All You Need"
(https://arxiv.org/abs/1706.03762), not from our layers, so that the tests compare two
independent implementations of the paper. It has no cache and no dropout. Numbers in
parentheses are sections of the paper.

A mask is boolean, True for a visible key, and broadcasts to (batch, heads, target,
source). A masked weight is exactly 0, and so is a row without a visible key.
Id 0 is padding. The weights are nested dicts of arrays, as `oracle` reads them off a
model; columns of the attention kernels are ordered by head.
"""

import numpy as np

PADDING = 0
EPSILON = 1e-6  # of layer normalization; the paper does not name a value


def softmax(scores, mask=None):
    """exp(s_j) / sum_j exp(s_j) over the last axis, among visible positions only."""
    scores = np.asarray(scores, np.float64)  # (..., source)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    # A row with nothing visible has maximum -inf, and -inf - -inf is undefined.
    peak = np.max(scores, axis=-1, keepdims=True)  # (..., 1)
    exponentials = np.exp(scores - np.where(np.isneginf(peak), 0.0, peak))
    total = np.sum(exponentials, axis=-1, keepdims=True)  # (..., 1)
    return exponentials / np.where(total == 0.0, 1.0, total)  # (..., source)


def attention(q, k, v, mask=None):
    """softmax(q k^T / sqrt(d_k)) v, and the softmax's weights (3.2.1)."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))  # (..., length, d_k)
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(k.shape[-1])  # (..., target, source)
    weights = softmax(scores, mask)
    return weights @ v, weights  # (..., target, d_v), (..., target, source)


def multi_head_attention(x_q, x_kv, weights, num_heads, mask=None):
    """Concat(head_1, ..., head_h) W^O, and each head's weights (3.2.2).

    Returns (batch, target, d_model) and (batch, heads, target, source).
    """

    def project(x, role):  # to (batch, heads, length, key_dim)
        x = np.asarray(x, np.float64) @ weights[f"{role}_kernel"]
        return np.stack(np.split(x + weights[f"{role}_bias"], num_heads, -1), axis=1)

    heads, scores = attention(
        project(x_q, "query"), project(x_kv, "key"), project(x_kv, "value"), mask
    )
    concatenated = np.concatenate([heads[:, h] for h in range(num_heads)], axis=-1)
    return concatenated @ weights["output_kernel"] + weights["output_bias"], scores


def layer_norm(x, gamma, beta):
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta (Ba et al. 2016)."""
    x = np.asarray(x, np.float64)  # (..., d_model)
    mean = np.mean(x, axis=-1, keepdims=True)
    variance = np.mean((x - mean) ** 2, axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + EPSILON) * gamma + beta


def feed_forward(x, w1, b1, w2, b2):
    """max(0, x W1 + b1) W2 + b2 (3.3)."""
    return np.maximum(0.0, np.asarray(x, np.float64) @ w1 + b1) @ w2 + b2


def positional_encoding(length, d_model):
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(the same) (3.5)."""
    position = np.arange(length, dtype=np.float64)[:, np.newaxis]  # (length, 1)
    column = np.arange(d_model)[np.newaxis, :]  # (1, d_model)
    two_i = column - column % 2  # (1, d_model): 0, 0, 2, 2, 4, 4, ...
    angle = position / 10000.0 ** (two_i / d_model)  # (length, d_model)
    return np.where(column % 2 == 0, np.sin(angle), np.cos(angle))


def embed(ids, weights):
    """The embedding of each id times sqrt(d_model), plus its position (3.4, 3.5)."""
    table = np.asarray(weights["embedding"], np.float64)  # (vocab, d_model)
    length, d_model = np.shape(ids)[1], table.shape[1]
    if weights.get("positions") is None:
        positions = positional_encoding(length, d_model)
    else:
        positions = np.asarray(weights["positions"], np.float64)[:length]
    return table[np.asarray(ids)] * np.sqrt(d_model) + positions


def key_mask(is_token):
    """Hides keys that are padding; (batch, 1, 1, source)."""
    return np.asarray(is_token, bool)[:, np.newaxis, np.newaxis, :]


def causal_mask(length):
    """Lets query i attend to keys 0 to i; (1, 1, target, target)."""
    position = np.arange(length)
    return (position[np.newaxis, :] <= position[:, np.newaxis])[np.newaxis, np.newaxis]


def residual(x, sublayer, norm_weights, norm):
    """A sublayer with its residual connection and its layer normalization.

    post, as in the paper: LayerNorm(x + Sublayer(x)).
    pre (Xiong et al. 2020): x + Sublayer(LayerNorm(x)).
    """
    if norm == "post":
        return layer_norm(x + sublayer(x), **norm_weights)
    return x + sublayer(layer_norm(x, **norm_weights))


def layer(x, weights, num_heads, mask, norm, context=None, context_mask=None):
    """Self-attention, attention to the encoder's output, the feed-forward network.

    Without `context`, this is an encoder layer. Returns (batch, length, d_model), and
    the cross-attention's weights or None.
    """
    cross_weights = None

    def self_attention(y):
        own = weights["self_attention"]
        return multi_head_attention(y, y, own, num_heads, mask)[0]

    def cross_attention(y):
        nonlocal cross_weights  # (batch, heads, target, source)
        output, cross_weights = multi_head_attention(
            y, context, weights["cross_attention"], num_heads, context_mask
        )
        return output

    def network(y):
        return feed_forward(y, **weights["feed_forward"])

    x = residual(x, self_attention, weights["self_attention_norm"], norm)
    if context is not None:
        x = residual(x, cross_attention, weights["cross_attention_norm"], norm)
    return residual(x, network, weights["feed_forward_norm"], norm), cross_weights


def stack(ids, weights, num_heads, mask, norm, *context):
    """Ids to hidden states, and the cross-attention's weights of each layer."""
    x = embed(ids, weights)  # (batch, length, d_model)
    cross_weights = []
    for each in weights["layers"]:
        x, cross = layer(x, each, num_heads, mask, norm, *context)
        cross_weights.append(cross)  # (batch, heads, target, source)
    if norm == "pre":  # its layers do not normalize their output
        x = layer_norm(x, **weights["final_norm"])
    return x, cross_weights


def encoder(ids, weights, num_heads, mask=None, norm="post"):
    """Source ids to hidden states; by default the mask is `ids != 0`."""
    mask = key_mask(np.asarray(ids) != PADDING if mask is None else mask)
    return stack(ids, weights, num_heads, mask, norm)[0]


def decoder(ids, context, weights, num_heads, mask, context_mask, norm="post"):
    """Target ids and the encoder's output to hidden states, and each layer's weights.

    `mask` (batch, target) is `ids != 0` by default. The causal mask is always applied.
    """
    mask = key_mask(np.asarray(ids) != PADDING if mask is None else mask)
    mask = mask & causal_mask(np.shape(ids)[1])
    context_mask = key_mask(context_mask)
    return stack(ids, weights, num_heads, mask, norm, context, context_mask)


def output(x, weights):
    """Hidden states to logits; tied, the embedding is the output matrix (3.4)."""
    if weights.get("output") is None:
        return x @ weights["decoder"]["embedding"].T
    return x @ weights["output"]["kernel"] + weights["output"]["bias"]


def transformer(source, target, weights, num_heads, norm="post"):
    """Logits (batch, target, vocab), and each layer's cross-attention weights."""
    is_token = np.asarray(source) != PADDING
    context = encoder(source, weights["encoder"], num_heads, norm=norm)
    x, attention = decoder(
        target, context, weights["decoder"], num_heads, None, is_token, norm
    )
    return output(x, weights), attention


def log_softmax(logits):
    """s_i - log sum_j exp(s_j), over the last axis."""
    logits = np.asarray(logits, np.float64)
    shifted = logits - np.max(logits, axis=-1, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))


def mean_over_tokens(values, labels):
    """The mean of `values` where the label is not padding, each token counted once."""
    is_token = np.asarray(labels) != PADDING  # (batch, target)
    assert is_token.any(), "every label is padding: there is nothing to average"
    return float(np.mean(np.asarray(values, np.float64)[is_token]))


def cross_entropy(logits, labels, smoothing=0.0):
    """-sum_v q(v) log p(v), averaged over tokens; q is the smoothed target (5.4).

    q = (1 - smoothing) * one_hot(label) + smoothing / V (Szegedy et al. 2015).
    """
    log_p = log_softmax(logits)  # (batch, target, vocab)
    vocab_size = log_p.shape[-1]
    one_hot = np.eye(vocab_size)[np.asarray(labels)]
    q = (1.0 - smoothing) * one_hot + smoothing / vocab_size
    return mean_over_tokens(-np.sum(q * log_p, axis=-1), labels)


def accuracy(logits, labels):
    """The share of tokens whose most probable prediction is the label."""
    return mean_over_tokens(np.argmax(logits, axis=-1) == np.asarray(labels), labels)
