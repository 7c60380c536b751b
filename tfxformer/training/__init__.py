"""From batches to weights."""

from tfxformer.training.loss import (
    MaskedAccuracy,
    MaskedLoss,
    Perplexity,
    masked_accuracy,
    masked_loss,
    token_loss,
)
from tfxformer.training.schedule import CustomSchedule

__all__ = [
    "CustomSchedule",
    "MaskedAccuracy",
    "MaskedLoss",
    "Perplexity",
    "masked_accuracy",
    "masked_loss",
    "token_loss",
]
