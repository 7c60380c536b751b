"""One step of training, on the backend that Keras runs on."""

import keras

from tfxformer.errors import UserError


def make_step(model, config):
    """What trains a model on the backend that Keras runs on.

    Args:
        model: a built `Transformer`.
        config: a `Config`.

    Returns:
        A `TensorFlowStep` or a `JaxStep`; they have the same methods.

    Raises:
        UserError: when Keras runs on a backend that does not train here.
    """
    model.encoder.remat = model.decoder.remat = config.training.remat
    backend = keras.backend.backend()
    if backend not in ("tensorflow", "jax"):
        raise UserError(f"KERAS_BACKEND={backend}: train on tensorflow or on jax")
    if backend == "jax":
        from tfxformer.training.step_jax import JaxStep

        return JaxStep(model, config.training)
    from tfxformer.training.step_tensorflow import TensorFlowStep

    return TensorFlowStep(model, config.training)
