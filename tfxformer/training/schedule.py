"""The learning rate: up in a straight line, then down."""

import keras
from keras import ops


@keras.saving.register_keras_serializable("tfxformer")
class CustomSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """``d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5)`` (section 5.3).

    It peaks at ``(d_model * warmup_steps)^-0.5``, in step ``warmup_steps``.

    Args:
        d_model: the model's width.
        warmup_steps: steps until the peak.

    Example:
        >>> schedule = CustomSchedule(d_model=512, warmup_steps=4000)
        >>> round(float(schedule(3999)), 6)
        0.000699
    """

    def __init__(self, d_model, warmup_steps=4000):
        super().__init__()
        self.d_model = float(d_model)  # of any numeric type
        self.warmup_steps = float(warmup_steps)

    def __call__(self, step):
        # Keras counts steps from 0, the paper from 1: step 0 would learn nothing.
        step = ops.cast(step, "float32") + 1.0
        rise = step * self.warmup_steps**-1.5
        return self.d_model**-0.5 * ops.minimum(ops.rsqrt(step), rise)

    def get_config(self):
        return {"d_model": self.d_model, "warmup_steps": self.warmup_steps}


def make_schedule(settings, d_model):
    """The schedule that the settings name.

    Args:
        settings: a `TrainingConfig`.
        d_model: the model's width, which decides the paper's peak.

    Returns:
        A Keras schedule: "inverse_sqrt" (the paper's shape) or "cosine" (down to 0 in
        the last step; Loshchilov and Hutter 2017), both after a straight rise.

    Example:
        >>> from tfxformer.config import TrainingConfig
        >>> settings = TrainingConfig(learning_rate=1e-3, warmup_steps=100)
        >>> round(float(make_schedule(settings, 512)(99)), 6)
        0.001
    """
    warmup = settings.warmup_steps
    peak = settings.learning_rate or (d_model * warmup) ** -0.5
    if settings.schedule == "cosine":
        return keras.optimizers.schedules.CosineDecay(
            0.0,
            decay_steps=max(settings.steps - warmup, 1),
            warmup_target=peak,
            warmup_steps=warmup,
        )
    # The paper's with the width at which its peak is the one wanted.
    return CustomSchedule(1 / (peak * peak * warmup), warmup)
