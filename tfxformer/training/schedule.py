"""The learning rate of each step, and the optimizer that uses it."""

import keras
from keras import ops


@keras.saving.register_keras_serializable("tfxformer")
class CustomSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """``d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5)`` (section 5.3).

    It peaks at ``(d_model * warmup_steps)^-0.5``, in step ``warmup_steps``.

    Args:
        d_model: the size of the hidden states.
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
        # Keras counts steps from 0, the paper from 1: at step 0 the rate would be 0.
        step = ops.cast(step, "float32") + 1.0
        rise = step * self.warmup_steps**-1.5
        return self.d_model**-0.5 * ops.minimum(ops.rsqrt(step), rise)

    def get_config(self):
        return {"d_model": self.d_model, "warmup_steps": self.warmup_steps}


def make_schedule(settings, d_model):
    """The Keras learning-rate schedule of a `TrainingConfig`: a linear rise, a decay.

    The decay is "inverse_sqrt" (the paper's) or "cosine" (to 0 in the last step;
    Loshchilov and Hutter 2017). ``d_model`` determines the paper's peak.
    """
    warmup = settings.warmup_steps
    peak = settings.learning_rate or (d_model * warmup) ** -0.5
    if settings.schedule == "cosine":
        steps = max(settings.steps - warmup, 1)
        return keras.optimizers.schedules.CosineDecay(
            0.0, decay_steps=steps, warmup_target=peak, warmup_steps=warmup
        )
    # The paper's, with the d_model that has this peak.
    return CustomSchedule(1 / (peak * peak * warmup), warmup)


def make_optimizer(settings, d_model):
    """The paper's Adam (section 5.3), or Muon (Jordan et al. 2024).

    Muon makes each update of a matrix orthogonal, so that all directions change
    equally; embeddings, biases and norms use Adam. A step takes longer and learns more.
    """
    options = {
        "learning_rate": make_schedule(settings, d_model),
        "epsilon": 1e-9,
        "global_clipnorm": settings.clip_norm,
        "use_ema": settings.ema_decay > 0,
        "ema_momentum": settings.ema_decay or 0.99,
    }
    if settings.accumulate > 1:
        options["gradient_accumulation_steps"] = settings.accumulate
    if settings.optimizer == "adam":
        return keras.optimizers.Adam(beta_1=0.9, beta_2=0.98, **options)
    options |= {"weight_decay": None, "adam_weight_decay": None}
    muon = Muon if settings.precision == "bfloat16" else keras.optimizers.Muon
    return muon(adam_beta_1=0.9, adam_beta_2=0.98, **options)


class Muon(keras.optimizers.Muon):
    """Keras's Muon, with its matrix products in bfloat16, as in the model."""

    def zeropower_via_newtonschulz5(self, x, steps):
        half = super().zeropower_via_newtonschulz5(ops.cast(x, "bfloat16"), steps)
        return ops.cast(half, x.dtype)
