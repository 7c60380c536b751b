"""Recorded requests beside an export: some warm a server up, some prove the model.

TensorFlow Serving reads `assets.extra/tf_serving_warmup_requests` when it loads a
version, and sends traffic there once they have run: graphs are optimised and compiled
by then. The examples are records of the same kind, with the answers that Python gave at
export; `verify` asks for them again.
"""

from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog, PredictLog

from tfxformer.exporting.metadata import EXAMPLES_FILE, read_records
from tfxformer.exporting.signatures import XLA_COLUMNS, XLA_ROWS

WARM_UP_FILE = Path("assets.extra", "tf_serving_warmup_requests")
# Of an ordinary model's warm-up: one sentence, and a batch of long ones.
_ROWS = (1, 32)
_WORDS = "O gato bebeu todo o leite que a menina lhe deu de manhã. "
# The examples: sentences, and inputs that break lesser models. Any language will do,
# since `verify` compares the answers and does not judge them.
PROBES = [
    "Bom dia!",
    "O gato preto bebeu o leite.",
    "",
    " \t\n",
    "😀 مرحبا 你好",
    b"bytes \xff\xfe that are not UTF-8",
    "NUL \0 inside",
]


def write_warm_up(path, name, requests):
    """Writes what a server is to run when it loads a model.

    Args:
        path: the SavedModel's folder.
        name: the model's name.
        requests: pairs of a signature's name and its inputs, arrays by name; a
            server takes 1,000 at most.
    """
    _write(Path(path, WARM_UP_FILE), name, ((*request, {}) for request in requests))


def write_examples(path, name, translator):
    """Writes the examples, with their answers.

    Args:
        path: the SavedModel's folder.
        name: the model's name.
        translator: the `Translator` that was exported.
    """
    examples = (
        (signature, inputs, translator.answers(signature, inputs))
        for signature, inputs in _example_requests(translator)
    )
    _write(Path(path, EXAMPLES_FILE), name, examples)


def _write(file, name, asked):
    """Writes a record for each signature with its inputs and outputs."""
    file.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(file)) as writer:
        for signature, inputs, outputs in asked:
            log = PredictLog()
            log.request.model_spec.name = name
            log.request.model_spec.signature_name = signature
            _fill(log.request.inputs, inputs)
            _fill(log.response.outputs, outputs)
            record = PredictionLog(predict_log=log)
            writer.write(record.SerializeToString(deterministic=True))


def _fill(protos, arrays):
    for name, array in arrays.items():
        array = np.asarray(array)
        dtype = tf.string if array.dtype.kind in "OSU" else None
        protos[name].CopyFrom(tf.make_tensor_proto(array, dtype))


def read_warm_up(path):
    """The requests that a server is to run when it loads a model.

    Args:
        path: the SavedModel's folder.

    Returns:
        A list of ``PredictRequest``; empty where there are none.

    Raises:
        UserError: when the file is damaged.
    """
    return [log.request for log in read_records(Path(path, WARM_UP_FILE))]


def warm_up_requests(translator):
    """What warms a translator up: each signature, short and long, few and many.

    Args:
        translator: a `Translator`.

    Returns:
        Pairs of a signature's name and its inputs. With XLA, sentences of the shapes
        that most requests have, for each is compiled by itself.
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


def _example_requests(translator):
    """Yields signatures and inputs: for each signature some, and an empty batch."""
    probes = [*PROBES, "palavra " * translator.max_length]
    probes = [x.encode() if isinstance(x, str) else x for x in probes]
    text, nothing = np.array(probes, object), np.array([], object)
    translation = translator.answers("translate", {"text": text})["translation"]
    ids = translator.answers("tokenize", {"text": text})["ids"]
    for signature in translator.signatures:
        if signature == "detokenize":
            yield signature, {"ids": ids}
            yield signature, {"ids": np.array([[5, -1, 2**31 - 1, 0]], "int32")}
            yield signature, {"ids": np.zeros((0, 0), "int32")}
        elif signature == "score":
            yield signature, {"text": text, "translation": translation}
            yield signature, {"text": text, "translation": text[::-1]}
            yield signature, {"text": nothing, "translation": nothing}
        else:
            # Attention of all of them would be most of what is recorded.
            few = text[[0, 2]] if signature == "attention" else text
            yield signature, {"text": few}
            yield signature, {"text": nothing}
