"""The Transformer in plain NumPy, float64: the oracle that the layers are tested on.

Written from the formulas of Vaswani et al. 2017, "Attention Is All You Need"
(https://arxiv.org/abs/1706.03762), and never from our layers: where the two
agree, two independent readings of the paper agree. Nothing is fast here, nothing
is cached, and there is no dropout: this is the model at inference.

Conventions:
- A mask is boolean: True = may be attended to, and it broadcasts to
  (batch, heads, target, source). A masked weight is exactly 0.
- A row with no visible key has all-zero weights, hence an all-zero result.
- Id 0 is padding.
- float32 weights are welcome; all arithmetic is in float64.

The weights are nested dicts of arrays, as `oracle` reads them off a model. D is
d_model, F the width of the feed-forward layer, V a vocabulary, H the number of
heads, K the size of one head:

    attention      query_kernel  (D, H*K)   query_bias  (H*K,)
                   key_kernel    (D, H*K)   key_bias    (H*K,)
                   value_kernel  (D, H*K)   value_bias  (H*K,)
                   output_kernel (H*K, D)   output_bias (D,)
    norm           gamma (D,), beta (D,)
    feed-forward   w1 (D, F), b1 (F,), w2 (F, D), b2 (D,)
    encoder layer  attention, attention_norm, feed_forward, feed_forward_norm
    decoder layer  self_attention, self_attention_norm,
                   cross_attention, cross_attention_norm,
                   feed_forward, feed_forward_norm
    stack          embedding (V, D); layers, a list;
                   positions (length, D), a learned table: absent for sinusoids;
                   final_norm, read with norm="pre" only
    transformer    encoder and decoder, a stack each;
                   output: kernel (D, V) and bias (V,), absent where the output is
                   tied to the decoder's embedding

Columns of the attention kernels are ordered by head: head h owns columns h*K to
(h+1)*K. A Keras kernel (D, H, K) is `reshape(D, H*K)`, an output kernel (H, K, D)
is `reshape(H*K, D)`.

References in parentheses are to the sections of the paper.
"""

import numpy as np

PADDING = 0
EPSILON = 1e-6  # of layer normalisation; the paper names none: pass the layer's


# --- Attention (3.2) ----------------------------------------------------------------


def softmax(scores, mask=None):
    """exp(s_j) / sum_j exp(s_j) over the last axis, among visible positions only."""
    scores = np.asarray(scores, np.float64)  # (..., source)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)  # (..., source)
    # Subtracting the maximum changes nothing but the range; a row with nothing
    # visible has maximum -inf, and -inf - -inf is undefined: subtract 0 there.
    peak = np.max(scores, axis=-1, keepdims=True)  # (..., 1)
    peak = np.where(np.isneginf(peak), 0.0, peak)  # (..., 1)
    exponentials = np.exp(scores - peak)  # (..., source), exp(-inf) is 0
    total = np.sum(exponentials, axis=-1, keepdims=True)  # (..., 1)
    return exponentials / np.where(total == 0.0, 1.0, total)  # (..., source)


def attention(q, k, v, mask=None):
    """softmax(q k^T / sqrt(d_k)) v, and the softmax's weights (3.2.1)."""
    q = np.asarray(q, np.float64)  # (..., target, d_k)
    k = np.asarray(k, np.float64)  # (..., source, d_k)
    v = np.asarray(v, np.float64)  # (..., source, d_v)
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(k.shape[-1])  # (..., target, source)
    weights = softmax(scores, mask)  # (..., target, source)
    return weights @ v, weights  # (..., target, d_v), (..., target, source)


def multi_head_attention(x_q, x_kv, weights, num_heads, mask=None):
    """Concat(head_1, ..., head_h) W^O, and each head's weights (3.2.2).

    Returns (batch, target, d_model) and (batch, heads, target, source).
    """
    x_q = np.asarray(x_q, np.float64)  # (batch, target, d_model)
    x_kv = np.asarray(x_kv, np.float64)  # (batch, source, d_model)
    q = x_q @ weights["query_kernel"] + weights["query_bias"]  # (batch, target, H*K)
    k = x_kv @ weights["key_kernel"] + weights["key_bias"]  # (batch, source, H*K)
    v = x_kv @ weights["value_kernel"] + weights["value_bias"]  # (batch, source, H*K)

    heads, scores = attention(
        split_heads(q, num_heads),  # (batch, heads, target, dim)
        split_heads(k, num_heads),  # (batch, heads, source, dim)
        split_heads(v, num_heads),  # (batch, heads, source, dim)
        mask,  # to (batch, heads, target, source)
    )  # (batch, heads, target, dim), (batch, heads, target, source)

    concatenated = np.concatenate(
        [heads[:, h] for h in range(num_heads)], axis=-1
    )  # (batch, target, H*K)
    output = concatenated @ weights["output_kernel"] + weights["output_bias"]
    return output, scores  # (batch, target, d_model), (batch, heads, target, source)


def split_heads(x, num_heads):
    """Head h takes the h-th of `num_heads` equal runs of columns."""
    # (batch, length, H*K) -> (batch, heads, length, dim)
    return np.stack(np.split(x, num_heads, axis=-1), axis=1)


# --- The other pieces of a layer (3.1, 3.3, 3.5) ------------------------------------


def layer_norm(x, gamma, beta, epsilon=EPSILON):
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta (Ba et al. 2016).

    The variance is the population's: divided by d_model, not by d_model - 1.
    """
    x = np.asarray(x, np.float64)  # (..., d_model)
    mean = np.mean(x, axis=-1, keepdims=True)  # (..., 1)
    variance = np.mean((x - mean) ** 2, axis=-1, keepdims=True)  # (..., 1)
    return (x - mean) / np.sqrt(variance + epsilon) * gamma + beta  # (..., d_model)


def feed_forward(x, w1, b1, w2, b2):
    """max(0, x W1 + b1) W2 + b2 (3.3)."""
    x = np.asarray(x, np.float64)  # (..., d_model)
    hidden = np.maximum(0.0, x @ w1 + b1)  # (..., dff)
    return hidden @ w2 + b2  # (..., d_model)


def positional_encoding(length, d_model):
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(the same) (3.5)."""
    position = np.arange(length, dtype=np.float64)[:, np.newaxis]  # (length, 1)
    column = np.arange(d_model)[np.newaxis, :]  # (1, d_model)
    two_i = column - column % 2  # (1, d_model): 0, 0, 2, 2, 4, 4, ...
    angle = position / 10000.0 ** (two_i / d_model)  # (length, d_model)
    is_even = column % 2 == 0  # (1, d_model)
    return np.where(is_even, np.sin(angle), np.cos(angle))  # (length, d_model)


def embed(ids, weights):
    """The embedding of each id times sqrt(d_model), plus its position (3.4, 3.5)."""
    ids = np.asarray(ids)  # (batch, length)
    table = np.asarray(weights["embedding"], np.float64)  # (vocab, d_model)
    length, d_model = ids.shape[1], table.shape[1]
    if weights.get("positions") is None:
        positions = positional_encoding(length, d_model)  # (length, d_model)
    else:
        positions = np.asarray(weights["positions"], np.float64)[:length]
    return table[ids] * np.sqrt(d_model) + positions  # (batch, length, d_model)


# --- Masks (3.2.3) ------------------------------------------------------------------


def key_mask(is_token):
    """No query may look at a key that is padding."""
    is_token = np.asarray(is_token, bool)  # (batch, source)
    return is_token[:, np.newaxis, np.newaxis, :]  # (batch, 1, 1, source)


def causal_mask(length):
    """Query i may look at keys 0 to i."""
    query = np.arange(length)[:, np.newaxis]  # (target, 1)
    key = np.arange(length)[np.newaxis, :]  # (1, target)
    return (key <= query)[np.newaxis, np.newaxis]  # (1, 1, target, target)


# --- Layers (3.1) -------------------------------------------------------------------


def residual(x, sublayer, norm_weights, norm, epsilon):
    """A sub-layer with its residual connection and its layer normalisation.

    post, as in the paper: LayerNorm(x + Sublayer(x)).
    pre (Xiong et al. 2020): x + Sublayer(LayerNorm(x)).
    """
    gamma, beta = norm_weights["gamma"], norm_weights["beta"]  # (d_model,) each
    if norm == "post":
        return layer_norm(x + sublayer(x), gamma, beta, epsilon)
    if norm == "pre":
        return x + sublayer(layer_norm(x, gamma, beta, epsilon))
    raise ValueError(f'norm is "post" or "pre", not {norm!r}')


def encoder_layer(x, weights, num_heads, mask=None, norm="post", epsilon=EPSILON):
    """Self-attention, then the feed-forward network.

    `mask` broadcasts to (batch, heads, source, source).
    """
    x = np.asarray(x, np.float64)  # (batch, source, d_model)

    def self_attention(y):
        return multi_head_attention(y, y, weights["attention"], num_heads, mask)[0]

    def network(y):
        return feed_forward(y, **weights["feed_forward"])

    x = residual(x, self_attention, weights["attention_norm"], norm, epsilon)
    x = residual(x, network, weights["feed_forward_norm"], norm, epsilon)
    return x  # (batch, source, d_model)


def decoder_layer(
    x,
    context,
    weights,
    num_heads,
    self_mask=None,
    cross_mask=None,
    norm="post",
    epsilon=EPSILON,
):
    """Self-attention, attention to the encoder's output, the feed-forward network.

    `self_mask` broadcasts to (batch, heads, target, target) and already holds the
    causal mask; `cross_mask` to (batch, heads, target, source). The context is used
    as it comes: with norm="pre" the encoder's final norm has already been applied.

    Returns (batch, target, d_model), and the cross-attention's weights,
    (batch, heads, target, source).
    """
    x = np.asarray(x, np.float64)  # (batch, target, d_model)
    context = np.asarray(context, np.float64)  # (batch, source, d_model)
    cross_weights = None

    def self_attention(y):
        own = weights["self_attention"]
        return multi_head_attention(y, y, own, num_heads, self_mask)[0]

    def cross_attention(y):
        nonlocal cross_weights  # (batch, heads, target, source)
        output, cross_weights = multi_head_attention(
            y, context, weights["cross_attention"], num_heads, cross_mask
        )
        return output

    def network(y):
        return feed_forward(y, **weights["feed_forward"])

    x = residual(x, self_attention, weights["self_attention_norm"], norm, epsilon)
    x = residual(x, cross_attention, weights["cross_attention_norm"], norm, epsilon)
    x = residual(x, network, weights["feed_forward_norm"], norm, epsilon)
    return x, cross_weights


# --- Stacks and the whole model (3.1, 3.4) ------------------------------------------


def final_norm(x, weights, norm, epsilon):
    """Pre-norm leaves the sum of its residuals unnormalised: once, at the end."""
    if norm == "pre":
        x = layer_norm(x, **weights["final_norm"], epsilon=epsilon)
    return x  # (batch, length, d_model)


def encoder(ids, weights, num_heads, mask=None, norm="post", epsilon=EPSILON):
    """Source ids to their representations, (batch, source, d_model).

    `mask` (batch, source) is True where there is a token; by default, where the id
    is not 0. What comes out at padding is meaningless: mask it again downstream.
    """
    ids = np.asarray(ids)  # (batch, source)
    mask = key_mask(ids != PADDING if mask is None else mask)  # (batch, 1, 1, source)
    x = embed(ids, weights)  # (batch, source, d_model)
    for layer in weights["layers"]:
        x = encoder_layer(x, layer, num_heads, mask, norm, epsilon)
    return final_norm(x, weights, norm, epsilon)  # (batch, source, d_model)


def decoder(
    ids,
    context,
    weights,
    num_heads,
    mask=None,
    context_mask=None,
    norm="post",
    epsilon=EPSILON,
):
    """Target ids and the encoder's output to representations of the target.

    `mask` (batch, target) is True where there is a target token; by default, where
    the id is not 0; the causal mask is added to it. `context_mask` (batch, source)
    is True where the context is of a token; by default, everywhere.

    Returns (batch, target, d_model), and a list with each layer's cross-attention
    weights, (batch, heads, target, source).
    """
    ids = np.asarray(ids)  # (batch, target)
    context = np.asarray(context, np.float64)  # (batch, source, d_model)
    if mask is None:
        mask = ids != PADDING  # (batch, target)
    if context_mask is None:
        context_mask = np.ones(context.shape[:2], bool)  # (batch, source)
    self_mask = key_mask(mask) & causal_mask(ids.shape[1])  # (batch, 1, target, target)
    cross_mask = key_mask(context_mask)  # (batch, 1, 1, source)

    x = embed(ids, weights)  # (batch, target, d_model)
    cross_weights = []
    for layer in weights["layers"]:
        x, cross = decoder_layer(
            x, context, layer, num_heads, self_mask, cross_mask, norm, epsilon
        )
        cross_weights.append(cross)  # (batch, heads, target, source)
    return final_norm(x, weights, norm, epsilon), cross_weights


def transformer(
    source_ids, target_ids, weights, num_heads, norm="post", epsilon=EPSILON
):
    """Source ids and the target's ids so far to logits, (batch, target, vocab).

    The logits at position t are for the token that follows target_ids[:, t].
    """
    source_ids = np.asarray(source_ids)  # (batch, source)
    context = encoder(
        source_ids, weights["encoder"], num_heads, norm=norm, epsilon=epsilon
    )  # (batch, source, d_model)
    x, _ = decoder(
        target_ids,
        context,
        weights["decoder"],
        num_heads,
        context_mask=source_ids != PADDING,
        norm=norm,
        epsilon=epsilon,
    )  # (batch, target, d_model)
    if weights.get("output") is None:  # tied: the embedding is the output matrix (3.4)
        return x @ weights["decoder"]["embedding"].T  # (batch, target, vocab)
    return x @ weights["output"]["kernel"] + weights["output"]["bias"]


# --- Loss, metrics and schedule (5.3, 5.4) ------------------------------------------


def log_softmax(logits):
    """s_i - log sum_j exp(s_j), over the last axis."""
    logits = np.asarray(logits, np.float64)  # (..., vocab)
    shifted = logits - np.max(logits, axis=-1, keepdims=True)  # (..., vocab)
    return shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))


def mean_over_tokens(values, labels):
    """The mean of `values` where the label is not padding, each token counted once."""
    is_token = np.asarray(labels) != PADDING  # (batch, target)
    if not is_token.any():
        raise ValueError("every label is padding: there is nothing to average")
    return float(np.mean(np.asarray(values, np.float64)[is_token]))


def cross_entropy(logits, labels, smoothing=0.0):
    """-sum_v q(v) log p(v), meaned over tokens; q is the smoothed target (5.4).

    q = (1 - smoothing) * one_hot(label) + smoothing / V: uniform over the whole
    vocabulary, the label and padding included (Szegedy et al. 2015).
    """
    log_p = log_softmax(logits)  # (batch, target, vocab)
    vocab_size = log_p.shape[-1]
    one_hot = np.eye(vocab_size)[np.asarray(labels)]  # (batch, target, vocab)
    q = (1.0 - smoothing) * one_hot + smoothing / vocab_size  # (batch, target, vocab)
    return mean_over_tokens(-np.sum(q * log_p, axis=-1), labels)


def accuracy(logits, labels):
    """The share of tokens whose likeliest prediction is the label."""
    predicted = np.argmax(logits, axis=-1)  # (batch, target)
    return mean_over_tokens(predicted == np.asarray(labels), labels)


def perplexity(logits, labels):
    """exp of the mean negative log-likelihood a token, never smoothed."""
    return float(np.exp(cross_entropy(logits, labels, smoothing=0.0)))


def learning_rate(step, d_model, warmup):
    """d_model^-0.5 * min(step^-0.5, step * warmup^-1.5) (5.3, equation 3).

    Steps count from 1; step 0 gives 0, the limit of the formula.
    """
    step = np.asarray(step, np.float64)
    with np.errstate(divide="ignore"):  # 0^-0.5 is infinite, and never the minimum
        return d_model**-0.5 * np.minimum(step**-0.5, step * float(warmup) ** -1.5)


# --- Decoding -----------------------------------------------------------------------


def greedy(
    source_ids,
    weights,
    num_heads,
    start_id,
    end_id,
    max_length,
    norm="post",
    epsilon=EPSILON,
    forbidden=(),
):
    """Translate one sentence, (source,): at each step, the likeliest next token.

    The whole model runs again at each step. It stops after `end_id`, or after
    `max_length` tokens. Ids in `forbidden` are never chosen; the log-probabilities
    stay those of the model, over its whole vocabulary. Should padding be chosen,
    it is masked in later steps like any padding.

    Returns the new ids, without `start_id` and with `end_id` where it was reached,
    and the log-probability of each.
    """
    target, log_probabilities = [start_id], []
    while len(log_probabilities) < max_length:
        logits = transformer(
            [source_ids], [target], weights, num_heads, norm, epsilon
        )  # (1, target, vocab)
        log_p = log_softmax(logits[0, -1])  # (vocab,)
        allowed = log_p.copy()  # (vocab,)
        allowed[list(forbidden)] = -np.inf
        best = int(np.argmax(allowed))
        target.append(best)
        log_probabilities.append(float(log_p[best]))
        if best == end_id:
            break
    return target[1:], log_probabilities
