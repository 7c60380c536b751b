"""Requests that a server runs before a model's first user comes.

TensorFlow Serving reads `assets.extra/tf_serving_warmup_requests` when it loads a
version, and sends traffic there once they have run: graphs are optimised and compiled
by then.
"""

from pathlib import Path

import tensorflow as tf
from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from tfxformer.errors import UserError
from tfxformer.exporting.signatures import XLA_COLUMNS, XLA_ROWS

WARM_UP_FILE = Path("assets.extra", "tf_serving_warmup_requests")
# Of an ordinary model's: one sentence, and a batch of long ones.
_ROWS = (1, 32)
_WORDS = "O gato bebeu todo o leite que a menina lhe deu de manhã. "


def write_warm_up(path, name, requests):
    """Writes what a server is to run when it loads a model.

    Args:
        path: the SavedModel's folder.
        name: the model's name.
        requests: pairs of a signature's name and its inputs, arrays by name; a
            server takes 1,000 at most.

    Returns:
        The file written.
    """
    file = Path(path) / WARM_UP_FILE
    file.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(file)) as writer:
        for signature, inputs in requests:
            request = PredictRequest(
                model_spec={"name": name, "signature_name": signature},
                inputs={key: tf.make_tensor_proto(x) for key, x in inputs.items()},
            )
            log = PredictionLog(predict_log={"request": request})
            writer.write(log.SerializeToString(deterministic=True))
    return file


def read_warm_up(path):
    """Reads the requests that `write_warm_up`, or another program, has written.

    Args:
        path: the SavedModel's folder.

    Returns:
        A list of ``PredictRequest``; empty where there is no such file. Logs of other
        kinds of request are left out.

    Raises:
        UserError: when the file is damaged.
    """
    file = Path(path) / WARM_UP_FILE
    if not file.exists():
        return []
    try:
        records = [*tf.data.TFRecordDataset(str(file)).as_numpy_iterator()]
        logs = [PredictionLog.FromString(record) for record in records]
    except Exception as error:  # of TensorFlow's or protobuf's own kinds
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"{file}: damaged: {reason}") from None
    return [log.predict_log.request for log in logs if log.HasField("predict_log")]


def requests(translator):
    """What warms a translator up: each signature, short and long, few and many.

    Args:
        translator: a `Translator`.

    Returns:
        Pairs as `write_warm_up` takes them. With XLA, sentences of the shapes that
        most requests have, for each is compiled by itself.
    """
    ids = translator.answers("tokenize", {"text": [_WORDS * 8]})["ids"]
    # With the end token they fill these columns, nearly.
    some = [ids[:, : columns - 3] for columns in (XLA_COLUMNS, 2 * XLA_COLUMNS)]
    texts = [translator.answers("detokenize", {"ids": x})["text"][0] for x in some]
    rows = XLA_ROWS if translator.xla else _ROWS
    # One function under two names, which a server prepares once for each.
    found = [
        (signature, {"text": [text] * n})
        for signature in ("translate", "serving_default")
        for text in texts
        for n in rows
    ]
    found.append(("score", {"text": texts[:1], "translation": texts[:1]}))
    for signature in ("translate_nbest", "attention", "count", "tokenize"):
        found.append((signature, {"text": texts[:1]}))
    return [*found, ("detokenize", {"ids": ids})]
