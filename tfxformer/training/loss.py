"""What training minimises and reports; padding never counts."""

from typing import Any, NamedTuple

import keras
from keras import ops

from tfxformer.layers.masking import padding_mask
from tfxformer.tokenizer import PAD_ID

# Positions whose logits exist at the same time: with 8,000 pieces they are 8 MB,
# which stays in a processor's cache.
CHUNK = 256
# Of a smaller probability float32 has no logarithm.
LEAST = 1e-37


def token_loss(labels, logits, label_smoothing=0.0):
    """Cross-entropy of each token, with label smoothing (section 5.4).

    The smoothed target gives ``1 - e`` to the label and spreads ``e`` evenly over
    the whole vocabulary.

    Args:
        labels: token ids ``(batch, target)``.
        logits: ``(batch, target, vocab)``.
        label_smoothing: the paper's epsilon, 0 to 1.

    Returns:
        ``(batch, target)``, in nats, padding included.

    Example:
        >>> import numpy as np
        >>> loss = token_loss(np.array([[3]]), np.zeros((1, 1, 8), "float32"))
        >>> float(loss[0, 0])  # log 8
        2.079...
    """
    loss = ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    if label_smoothing:
        # Smoothing only adds e * (z_label - mean z): no one-hot target, and no
        # second pass through the softmax.
        label_logit = ops.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
        loss = loss + label_smoothing * (label_logit - ops.mean(logits, axis=-1))
    return loss


class Sums(NamedTuple):
    """What a batch's real tokens add up to; each a float32 scalar.

    Attributes:
        loss: with label smoothing, in nats.
        entropy: without, in nats.
        correct: tokens whose label has the highest logit.
        tokens: how many there are.

    Example:
        >>> sums = Sums(loss=6.0, entropy=5.0, correct=1.0, tokens=2.0)
        >>> sums.loss / sums.tokens
        3.0
    """

    loss: Any
    entropy: Any
    correct: Any
    tokens: Any


def output_loss(x, embeddings, bias, labels, label_smoothing=0.0):
    """The output projection and its loss in one: the logits never all exist.

    `CHUNK` positions at a time are projected, compared with their labels, and turned
    into gradients at once, so nothing of the vocabulary's size is kept for the way
    back. (A loss is a scalar: all that its gradient still lacks is a factor.)

    Args:
        x: the decoder's vectors, ``(positions, d_model)``.
        embeddings: the output projection, a row a piece, ``(vocab, d_model)``.
        bias: ``(vocab,)``, or None.
        labels: int32 ``(positions,)``; 0 is padding.
        label_smoothing: the paper's epsilon, 0 to 1 (section 5.4).

    Returns:
        `Sums`; its loss has gradients.

    Example:
        >>> import numpy as np
        >>> x, embeddings = np.ones((3, 4), "float32"), np.zeros((8, 4), "float32")
        >>> sums = output_loss(x, embeddings, None, np.array([5, 6, 0]))
        >>> float(sums.loss), float(sums.tokens)
        (4.158..., 2.0)
    """
    depth = x.shape[-1]
    weights = (embeddings,) if bias is None else (embeddings, bias)
    labels = ops.cast(labels, "int32")
    # A whole number of chunks; what is added is padding.
    missing = -ops.shape(labels)[0] % CHUNK
    labels = ops.reshape(ops.pad(labels, ((0, missing),)), (-1, CHUNK))
    x = ops.reshape(ops.pad(x, ((0, missing), (0, 0))), (-1, CHUNK, depth))

    @ops.custom_gradient
    def loss_of(x, *weights):
        sums, slopes = _loss_and_slopes(x, *weights, labels=labels, e=label_smoothing)

        def gradient(upstream):
            factor = upstream[0]  # the loss's; the other sums are only reported
            return tuple(
                ops.cast(slope * factor, like.dtype)
                for slope, like in zip(slopes, (x, *weights), strict=True)
            )

        return ops.stack(sums), gradient

    return Sums(*ops.unstack(loss_of(x, *weights), 4))


def _loss_and_slopes(x, embeddings, bias=None, *, labels, e):
    """`Sums`, and the loss's gradients with respect to x, embeddings and bias.

    The gradient with respect to the logits is ``p - (1 - e) onehot - e / vocab``. Of
    it only the softmax p is as wide as the vocabulary; what the labels and the
    smoothing add to each product is a row of the embeddings, or their mean.
    """
    vocab, depth = embeddings.shape
    kernel = ops.cast(ops.transpose(embeddings), x.dtype)  # (d_model, vocab)
    embeddings = ops.cast(embeddings, "float32")
    mean = ops.mean(embeddings, axis=0)  # (d_model,)
    bias = None if bias is None else ops.cast(bias, "float32")
    mean_bias = 0.0 if bias is None else ops.mean(bias)
    chunks = x  # (chunks, CHUNK, d_model)

    def chunk(i, carry):
        loss, entropy, correct, tokens, x_slopes, slope, *bias_slope = carry
        x, label = chunks[i], labels[i]  # (CHUNK, d_model), (CHUNK,)
        real = ops.cast(ops.not_equal(label, PAD_ID), "float32")  # (CHUNK,)
        wide = ops.cast(x, "float32")
        logits = ops.matmul(x, kernel)  # (CHUNK, vocab)
        if keras.backend.standardize_dtype(logits.dtype) == "float16":
            logits = ops.cast(logits, "float32")  # half has no room for small p
        if bias is not None:
            logits = logits + ops.cast(bias, logits.dtype)
        p = ops.softmax(logits)
        highest = ops.cast(ops.max(p, axis=-1), "float32")
        at_label = [ops.take_along_axis(y, label[:, None], axis=1) for y in (p, logits)]
        p_label, label_logit = (ops.cast(y[:, 0], "float32") for y in at_label)
        p_label = ops.where(real > 0, p_label, 1.0)

        def exact():
            most = ops.cast(ops.max(logits, axis=-1), "float32")
            return (most - ops.log(highest) - label_logit) * real

        # Each pass over what is as wide as the vocabulary costs: this one is seldom
        # needed.
        each = ops.cond(ops.min(p_label) > LEAST, lambda: -ops.log(p_label), exact)
        mean_logit = ops.matmul(wide, mean) + mean_bias
        smoothed = each + e * (label_logit - mean_logit)
        sums = (
            loss + ops.sum(smoothed * real),
            entropy + ops.sum(each * real),
            correct + ops.sum(ops.cast(p_label >= highest, "float32") * real),
            tokens + ops.sum(real),
        )
        p = ops.cast(p, x.dtype)
        x_slope = ops.cast(ops.matmul(p, ops.transpose(kernel)), "float32")
        target = (1 - e) * ops.take(embeddings, label, axis=0) + e * mean
        x_slope = (x_slope - target) * real[:, None]
        x = ops.cast(wide * real[:, None], x.dtype)  # padding leaves nothing
        slope = slope + ops.cast(ops.matmul(ops.transpose(x), p), "float32")
        bias_slope = [
            total + ops.matmul(real, ops.cast(p, "float32")) for total in bias_slope
        ]
        x_slopes = ops.slice_update(x_slopes, (i, 0, 0), x_slope[None])
        return (*sums, x_slopes, slope, *bias_slope)

    nothing = ops.zeros((), "float32")
    start = [*[nothing] * 4, ops.zeros(ops.shape(x), "float32")]
    start += [ops.zeros((depth, vocab), "float32")]
    start += [] if bias is None else [ops.zeros((vocab,), "float32")]
    carry = ops.fori_loop(0, ops.shape(labels)[0], chunk, tuple(start))
    sums, (x_slope, slope, *bias_slope) = carry[:4], carry[4:]

    label = ops.reshape(labels, (-1,))
    real = ops.cast(ops.not_equal(label, PAD_ID), "float32")
    rows = ops.cast(ops.reshape(x, (-1, depth)), "float32") * real[:, None]

    def less_target(slope, rows):
        at_label = ops.segment_sum(rows, label, num_segments=vocab)
        return slope - (1 - e) * at_label - e * ops.sum(rows, axis=0) / vocab

    slope = less_target(ops.transpose(slope), rows)
    return sums, (x_slope, slope, *[less_target(b, real) for b in bias_slope])


def _mean(values, labels):
    """The mean over real tokens; 0 where there is none."""
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
    """Share of the real tokens whose label has the highest logit.

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
