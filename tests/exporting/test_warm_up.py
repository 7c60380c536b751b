"""The requests that a server runs when it loads a model."""

import pytest
import tensorflow as tf
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog
from tfxformer.exporting.warm_up import WARM_UP_FILE, read_warm_up, warm_up_requests

from tfxformer.errors import UserError


def test_an_export_has_requests_that_run(exported, served):
    found = read_warm_up(exported)
    names = {request.model_spec.signature_name for request in found}
    assert names == {*served.signatures}
    for request in found:
        assert request.model_spec.name == exported.parent.name
        inputs = {key: tf.make_ndarray(x) for key, x in request.inputs.items()}
        answer = served.answers(request.model_spec.signature_name, inputs)
        rows = len(next(iter(inputs.values())))
        assert rows > 0 and all(len(value) == rows for value in answer.values())


def test_they_are_records_as_tensorflow_serving_reads_them(exported):
    """Its limit, its place, and no log but of a kind that it runs."""
    assert str(WARM_UP_FILE) == "assets.extra/tf_serving_warmup_requests"
    records = [*tf.data.TFRecordDataset(str(exported / WARM_UP_FILE))]
    assert 0 < len(records) <= 1000
    for record in records:
        log = PredictionLog.FromString(record.numpy())
        assert log.WhichOneof("log_type") == "predict_log"


def test_with_xla_the_shapes_of_most_requests_are_compiled(translator):
    translator = type("Xla", (), {"xla": True, "answers": translator.answers})()
    shapes = set()
    for name, inputs in warm_up_requests(translator):
        if name == "serving_default":
            texts = inputs["text"]
            tokens = translator.answers("count", {"text": texts})["tokens"]
            shapes.add((len(texts), 16 if tokens.max() + 1 <= 16 else 32))
            assert 8 < tokens.max() + 1 <= 32
    assert shapes == {(rows, n) for rows in (1, 8, 16, 32, 64) for n in (16, 32)}


def test_a_damaged_file_is_named(tmp_path):
    assert read_warm_up(tmp_path) == []
    file = tmp_path / WARM_UP_FILE
    file.parent.mkdir()
    file.write_bytes(b"nonsense" * 9)
    with pytest.raises(UserError, match="tf_serving_warmup_requests: damaged: "):
        read_warm_up(tmp_path)
