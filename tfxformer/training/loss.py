"""The loss and the accuracy; padding never counts."""

import keras
from keras import ops

from tfxformer.layers.masking import padding_mask
from tfxformer.special_tokens import PAD_ID

# Positions whose logits are in memory at the same time: with a vocabulary of 8,000
# tokens they take 8 MB and stay in the processor's cache.
CHUNK = 256


def token_loss(labels, logits, label_smoothing=0.0):
    """Cross-entropy of each token, with label smoothing (section 5.4).

    The smoothed target gives the label ``1 - e`` and spreads ``e`` evenly over the
    whole vocabulary.

    Args:
        labels: token ids ``(batch, target)``.
        logits: ``(batch, target, vocab)``.
        label_smoothing: the paper's epsilon, 0 to 1.

    Returns:
        ``(batch, target)``, in nats, including padding.

    Example:
        >>> import numpy as np
        >>> loss = token_loss(np.array([[3]]), np.zeros((1, 1, 8), "float32"))
        >>> float(loss[0, 0])  # log 8
        2.079...
    """
    loss = ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    if label_smoothing:
        # Smoothing only adds e * (z_label - mean z), without a one-hot target or a
        # second softmax.
        label_logit = ops.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
        loss = loss + label_smoothing * (label_logit - ops.mean(logits, axis=-1))
    return loss


def output_loss(x, embeddings, bias, labels, label_smoothing=0.0):
    """The output projection fused with its loss, without all logits in memory.

    It projects `CHUNK` positions at a time, computes their loss, and their gradients at
    once. The backward pass only scales these gradients by the factor of the loss, so
    nothing of the vocabulary's width is kept for it.

    Args:
        x: the decoder's hidden states ``(positions, d_model)``.
        embeddings: the output projection ``(vocab, d_model)``.
        bias: ``(vocab,)``, or None.
        labels: token ids ``(positions,)``; 0 is padding.
        label_smoothing: the paper's epsilon, 0 to 1 (section 5.4).

    Returns:
        Float32 ``(4,)``, sums over the real tokens: the loss with label smoothing and
        the loss without, both in nats; the number of tokens whose label has the highest
        logit; and the number of tokens. Only the first has a gradient.
    """
    depth = x.shape[-1]
    weights = (embeddings,) if bias is None else (embeddings, bias)
    labels = ops.cast(labels, "int32")
    missing = -ops.shape(labels)[0] % CHUNK  # padding makes whole chunks
    labels = ops.reshape(ops.pad(labels, ((0, missing),)), (-1, CHUNK))
    x = ops.reshape(ops.pad(x, ((0, missing), (0, 0))), (-1, CHUNK, depth))

    @ops.custom_gradient
    def loss_of(x, *weights):
        sums, slopes = _loss_and_slopes(x, *weights, labels=labels, e=label_smoothing)

        def gradient(upstream):
            inputs = zip(slopes, (x, *weights), strict=True)
            return tuple(ops.cast(s * upstream[0], like.dtype) for s, like in inputs)

        return sums, gradient

    return loss_of(x, *weights)


def _loss_and_slopes(x, embeddings, bias=None, *, labels, e):
    """The sums, and the gradients of the loss by x, embeddings and bias.

    The gradient by the logits is ``p - (1 - e) onehot - e / vocab``. Only the softmax p
    needs a product as wide as the vocabulary: the labels add a row of the embeddings
    to each product, and the smoothing adds their mean.
    """
    vocab, depth = embeddings.shape
    kernel = ops.cast(ops.transpose(embeddings), x.dtype)  # (d_model, vocab)
    embeddings = ops.cast(embeddings, "float32")
    mean = ops.mean(embeddings, axis=0)  # (d_model,)
    bias = None if bias is None else ops.cast(bias, "float32")
    mean_bias = 0.0 if bias is None else ops.mean(bias)
    chunks = x  # (chunks, CHUNK, d_model)

    def chunk(i, carry):
        sums, x_slopes, slope, *bias_slope = carry
        x, label = chunks[i], labels[i]  # (CHUNK, d_model), (CHUNK,)
        real = ops.cast(ops.not_equal(label, PAD_ID), "float32")  # (CHUNK,)
        wide = ops.cast(x, "float32")
        logits = ops.matmul(x, kernel)  # (CHUNK, vocab)
        if keras.backend.standardize_dtype(logits.dtype) == "float16":
            logits = ops.cast(logits, "float32")  # float16 cannot hold a small p
        if bias is not None:
            logits = logits + ops.cast(bias, logits.dtype)
        p = ops.softmax(logits)
        at_label = ops.take_along_axis(logits, label[:, None], axis=1)[:, 0]
        at_label = ops.cast(at_label, "float32")
        highest = ops.cast(ops.max(logits, axis=-1), "float32")
        # -log p of the label, even if p itself is too small for float32.
        each = highest - at_label - ops.log(ops.cast(ops.max(p, axis=-1), "float32"))
        smoothed = each + e * (at_label - ops.matmul(wide, mean) - mean_bias)
        correct = ops.cast(at_label >= highest, "float32")
        row = ops.stack([smoothed, each, correct, ops.ones_like(real)])  # (4, CHUNK)
        sums = sums + ops.matmul(row, real)
        p = ops.cast(p, x.dtype)
        x_slope = ops.cast(ops.matmul(p, ops.transpose(kernel)), "float32")
        target = (1 - e) * ops.take(embeddings, label, axis=0) + e * mean
        x_slope = (x_slope - target) * real[:, None]
        x = ops.cast(wide * real[:, None], x.dtype)  # padding adds nothing
        slope = slope + ops.cast(ops.matmul(ops.transpose(x), p), "float32")
        bias_slope = [
            total + ops.matmul(real, ops.cast(p, "float32")) for total in bias_slope
        ]
        x_slopes = ops.slice_update(x_slopes, (i, 0, 0), x_slope[None])
        return (sums, x_slopes, slope, *bias_slope)

    shapes = [(4,), ops.shape(x), (depth, vocab)] + ([] if bias is None else [(vocab,)])
    start = tuple(ops.zeros(shape, "float32") for shape in shapes)
    carry = ops.fori_loop(0, ops.shape(labels)[0], chunk, start)
    sums, x_slope, slope, *bias_slope = carry

    label = ops.reshape(labels, (-1,))
    real = ops.cast(ops.not_equal(label, PAD_ID), "float32")
    rows = ops.cast(ops.reshape(x, (-1, depth)), "float32") * real[:, None]

    def less_target(slope, rows):
        at_label = ops.segment_sum(rows, label, num_segments=vocab)
        return slope - (1 - e) * at_label - e * ops.sum(rows, axis=0) / vocab

    slope = less_target(ops.transpose(slope), rows)
    return sums, (x_slope, slope, *[less_target(b, real) for b in bias_slope])


def _mean(values, labels):
    """The mean over the real tokens; 0 without any."""
    real = ops.cast(padding_mask(labels), values.dtype)
    return ops.sum(values * real) / ops.maximum(ops.sum(real), 1)


def masked_loss(label, pred, label_smoothing=0.0):
    """Mean cross-entropy of the real tokens.

    Args:
        label: token ids ``(batch, target)``; 0 is padding.
        pred: logits ``(batch, target, vocab)``.
        label_smoothing: the paper's epsilon, 0 to 1 (section 5.4 uses 0.1).

    Returns:
        A scalar, in nats.

    Example:
        >>> import numpy as np
        >>> float(masked_loss(np.array([[3, 0]]), np.zeros((1, 2, 8), "float32")))
        2.079...
    """
    label = ops.cast(label, "int32")
    pred = ops.cast(pred, "float32")
    return _mean(token_loss(label, pred, label_smoothing), label)


def masked_accuracy(label, pred):
    """The share of the real tokens whose label has the highest logit.

    Args:
        label: token ids ``(batch, target)``; 0 is padding.
        pred: logits ``(batch, target, vocab)``.

    Returns:
        A scalar, 0 to 1.

    Example:
        >>> import numpy as np
        >>> float(masked_accuracy(np.array([[1, 0]]), np.eye(2)[None, ::-1]))
        1.0
    """
    label = ops.convert_to_tensor(label)
    best = ops.cast(ops.argmax(pred, axis=-1), label.dtype)
    return _mean(ops.cast(ops.equal(label, best), "float32"), label)
