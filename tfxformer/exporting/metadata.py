"""What an export says about itself: its settings, and examples with their answers.

They are in `assets.extra/tfxformer.json` and `assets.extra/examples.tfrecord`.
"""

import importlib.metadata
import json
from pathlib import Path

from tfxformer import __version__
from tfxformer.errors import UserError

METADATA_FILE = Path("assets.extra", "tfxformer.json")
EXAMPLES_FILE = Path("assets.extra", "examples.tfrecord")


def write_metadata(path, model):
    """Writes the limits and settings of a model beside it.

    Args:
        path: the SavedModel's folder.
        model: what JSON can hold, by name.
    """
    versions = {
        "tfxformer": __version__,
        "tensorflow": importlib.metadata.version("tensorflow"),
    }
    file = Path(path, METADATA_FILE)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{json.dumps(versions | {'model': model}, indent=2)}\n", "utf-8")


def read_metadata(path):
    """Reads the limits and settings of an exported model.

    Args:
        path: the SavedModel's folder.

    Returns:
        A dict: ``max_length``, ``architecture`` (the arguments of `Transformer`),
        ``decoding``, and more.

    Raises:
        UserError: when another program wrote the SavedModel, or the file is damaged.

    Example:
        >>> read_metadata("nowhere")
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: nowhere: a SavedModel, but none that tfxformer ...
    """
    file = Path(path, METADATA_FILE)
    if not file.exists():
        raise UserError(f"{path}: a SavedModel, but none that tfxformer exported")
    try:
        model = json.loads(file.read_text("utf-8"))["model"]
        return dict(model) | {"architecture": dict(model["architecture"])}
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"{file} is damaged ({error!r}): export it again") from None


def read_records(file):
    """Reads recorded requests, in the form of TensorFlow Serving's warm-up.

    Args:
        file: a path; there need be no such file.

    Returns:
        A list of ``PredictLog``. Logs of other kinds of request are left out.

    Raises:
        UserError: when the file is damaged.

    Example:
        >>> read_records("nowhere")
        []
    """
    import tensorflow as tf
    from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

    if not Path(file).exists():
        return []
    try:
        records = [*tf.data.TFRecordDataset(str(file)).as_numpy_iterator()]
        logs = [PredictionLog.FromString(record) for record in records]
    except Exception as error:  # of TensorFlow's or protobuf's own kinds
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"{file}: damaged: {reason}") from None
    return [log.predict_log for log in logs if log.HasField("predict_log")]
