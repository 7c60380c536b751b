"""The learning rate: up in a straight line, then down with the root of the step."""

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
        self.d_model = d_model
        self.warmup_steps = warmup_steps

    def __call__(self, step):
        # Keras counts steps from 0, the paper from 1: step 0 would learn nothing.
        step = ops.cast(step, "float32") + 1.0
        rise = step * self.warmup_steps**-1.5
        return self.d_model**-0.5 * ops.minimum(ops.rsqrt(step), rise)

    def get_config(self):
        return {"d_model": self.d_model, "warmup_steps": self.warmup_steps}
