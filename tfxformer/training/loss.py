"""What training minimises and reports; padding never counts."""

import keras
from keras import ops

from tfxformer.layers.masking import padding_mask


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
    """
    loss = ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    if label_smoothing:
        # Smoothing only adds e * (z_label - mean z): no one-hot target, and no
        # second pass through the softmax.
        label_logit = ops.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
        loss = loss + label_smoothing * (label_logit - ops.mean(logits, axis=-1))
    return loss


def _mean(values, labels):
    """The mean over real tokens; 0 where there is none."""
    real = ops.cast(padding_mask(labels), values.dtype)
    return ops.sum(values * real) / ops.maximum(ops.sum(real), 1)


def masked_loss(label, pred):
    """Mean cross-entropy of the real tokens.

    Args:
        label: token ids ``(batch, target)``; 0 is padding.
        pred: logits ``(batch, target, vocab)``.

    Returns:
        A scalar, in nats.

    Example:
        >>> import numpy as np
        >>> float(masked_loss(np.array([[3, 0]]), np.zeros((1, 2, 8), "float32")))
        2.079...
    """
    label = ops.convert_to_tensor(label)
    return _mean(token_loss(label, ops.cast(pred, "float32")), label)


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


@keras.saving.register_keras_serializable("tfxformer")
class MaskedLoss(keras.losses.Loss):
    """`masked_loss` with label smoothing.

    Args:
        label_smoothing: the paper's epsilon, 0 to 1 (section 5.4 uses 0.1).

    Example:
        >>> import numpy as np
        >>> loss = MaskedLoss(label_smoothing=0.1)
        >>> float(loss(np.array([[3, 0]]), np.zeros((1, 2, 8), "float32")))
        2.079...
    """

    def __init__(self, label_smoothing=0.0, name="masked_loss", **kwargs):
        kwargs.pop("reduction", None)  # the mean over real tokens is the reduction
        super().__init__(name=name, reduction=None, **kwargs)
        self.label_smoothing = label_smoothing

    def call(self, label, pred):
        pred = ops.cast(pred, "float32")
        label = ops.cast(label, "int32")
        return _mean(token_loss(label, pred, self.label_smoothing), label)

    def get_config(self):
        return super().get_config() | {"label_smoothing": self.label_smoothing}


class _TokenMean(keras.metrics.Metric):
    """A mean over all the real tokens seen, however they fell into batches."""

    def __init__(self, name, **kwargs):
        super().__init__(name=name, **kwargs)
        self.total = self.add_variable((), "zeros", name="total")
        self.count = self.add_variable((), "zeros", name="count")

    def add(self, values, label):
        real = ops.cast(padding_mask(label), "float32")
        self.total.assign_add(ops.sum(ops.cast(values, "float32") * real))
        self.count.assign_add(ops.sum(real))

    def result(self):
        return self.total / ops.maximum(self.count, 1)


@keras.saving.register_keras_serializable("tfxformer")
class MaskedAccuracy(_TokenMean):
    """`masked_accuracy` over many batches: each token counts the same."""

    def __init__(self, name="masked_accuracy", **kwargs):
        super().__init__(name, **kwargs)

    def update_state(self, y_true, y_pred, sample_weight=None):
        best = ops.argmax(y_pred, axis=-1)
        self.add(ops.equal(ops.cast(y_true, best.dtype), best), y_true)


@keras.saving.register_keras_serializable("tfxformer")
class Perplexity(_TokenMean):
    """``exp`` of the mean cross-entropy, without label smoothing (section 5.4)."""

    def __init__(self, name="perplexity", **kwargs):
        super().__init__(name, **kwargs)

    def update_state(self, y_true, y_pred, sample_weight=None):
        label = ops.cast(y_true, "int32")
        self.add(token_loss(label, ops.cast(y_pred, "float32")), label)

    def result(self):
        return ops.exp(super().result())
