"""The export: signatures, weights, recorded requests, and that it serves."""

import shutil

import numpy as np
import oracle
import pytest
import tensorflow as tf
from numpy.testing import assert_array_equal
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from tfxformer import DecodingOptions, Tokenizer, Translator
from tfxformer.errors import UserError
from tfxformer.exporting import saved_model
from tfxformer.exporting.saved_model import (
    FoldedWeights,
    average_checkpoints,
    export,
    write,
)
from tfxformer.exporting.verify import Report, verify
from tfxformer.repository import (
    WARM_UP_FILE,
    model_name,
    read_export,
    read_metadata,
    read_records,
)
from tfxformer.training.run import Run

# Inputs and outputs of each signature: name, type and shape.
CONTRACT = """\
  attention(text: string (None,)) -> attention: float32 (None, 1, 4, None, None), \
source_tokens: string (None, None), target_tokens: string (None, None)
  count(text: string (None,)) -> limit: int32 (None,), tokens: int32 (None,)
  detokenize(ids: int32 (None, None)) -> text: string (None,)
  score(text: string (None,), translation: string (None,)) -> score: float32 (None,)
  serving_default(text: string (None,)) -> score: float32 (None,), \
translation: string (None,)
  tokenize(text: string (None,)) -> ids: int32 (None, None)
  translate(text: string (None,)) -> score: float32 (None,), translation: string (None,)
  translate_nbest(text: string (None,)) -> scores: float32 (None, 4), \
translations: string (None, 4)
"""
TEXTS = ["O gato preto bebeu o leite.", "Bom dia!", "", "Onde está o gato?"]


def test_a_session_runs_every_signature_and_gives_the_recorded_answers(exported):
    report = exported.parents[2].joinpath("report.txt").read_text("utf-8").splitlines()
    lines = CONTRACT.splitlines()
    assert [line for line in report if line.startswith("  ")] == lines
    ran = [line for line in report if "recorded examples gave the same" in line]
    assert len(ran) == len(lines) and report[-1].startswith("SERVES")


def test_a_loaded_export_translates_a_string_or_a_vector_of_strings(served, translator):
    one, vector = served.loaded(TEXTS[0]), served.loaded(TEXTS)
    assert one.shape == () and one.numpy().decode() == translator(TEXTS[0])
    assert vector.numpy().tolist()[::2] == [one.numpy(), b""]


@pytest.mark.slow
def test_an_export_records_its_decoding_options_and_loads_with_them(
    run_folder, tmp_path
):
    options = DecodingOptions(beam_size=3, n_best=2, length_penalty=0.6, max_length=9)
    path, report = export(run_folder, tmp_path, "model", options=options)
    assert report.ok
    decoding = read_metadata(path)["decoding"]
    expected = {"method": "beam", "beam_size": 3, "length_penalty": 0.6}
    assert expected.items() <= decoding["translate"].items()
    assert decoding["translate_nbest"]["n_best"] == 2
    python, opened = Translator.load(run_folder, options=options), Translator.load(path)
    assert opened.options == options and opened(TEXTS) == python(TEXTS)
    # Exporting the export writes a new version and does not change the first.
    before = {p: p.stat().st_mtime_ns for p in path.rglob("*")}
    second, _ = export(path, tmp_path, "model")
    assert {p: p.stat().st_mtime_ns for p in path.rglob("*")} == before
    assert sorted((tmp_path / "model").iterdir()) == [path, second]
    assert read_metadata(second) == read_metadata(path)


@pytest.mark.slow
def test_a_float16_export_has_half_the_file_size_and_answers_like_python(
    run_folder, exported, tmp_path
):
    path, _ = export(run_folder, tmp_path, "model", precision="float16")
    loaded, python = tf.saved_model.load(str(path)), Translator.load(path)
    assert [line.decode() for line in loaded(TEXTS).numpy()] == python(TEXTS)
    one = loaded.signatures["attention"](text=tf.constant(TEXTS[:1]))["attention"]
    other = python.explain(TEXTS[0]).attention
    np.testing.assert_allclose(one[0], other, atol=1e-4)
    data = "variables/variables.data-00000-of-00001"
    ratio = (path / data).stat().st_size / (exported / data).stat().st_size
    assert 0.5 < ratio < 0.54  # biases and norms stay float32


def test_an_export_that_would_not_serve_is_not_published(
    run_folder, tmp_path, monkeypatch
):
    def refuse(path):
        return Report(path, False, ["FAIL  load: an op is missing", "NOT PROVEN"])

    monkeypatch.setattr(saved_model, "verify", refuse)
    monkeypatch.setattr(saved_model, "write", lambda translator, path, *_: path.mkdir())
    with pytest.raises(UserError, match="would not serve: FAIL  load: an op is m"):
        export(run_folder, tmp_path, "model")
    assert list((tmp_path / "model").iterdir()) == []


def test_export_to_a_full_disk_raises_a_one_line_error_and_leaves_no_version(
    translator, tmp_path, monkeypatch
):
    def full(*_):
        message = "{{node SaveV2}} a/b.tempstate1; No space left on device [Op:SaveV2]"
        raise tf.errors.ResourceExhaustedError(None, None, message)

    monkeypatch.setattr(saved_model, "write", full)
    with pytest.raises(UserError, match=r"/m: cannot be written: No space .* device$"):
        export(translator, tmp_path, "m")
    assert list((tmp_path / "m").iterdir()) == []


def test_model_name_returns_the_name_of_the_model_s_folder(translator):
    for path, name in ((None, "pt_en"), ("runs/mine/", "mine"), ("m/toy/12", "toy")):
        assert model_name(path) == name
    with pytest.raises(UserError, match="needs a name"):
        export(translator)
    with pytest.raises(UserError, match="no checkpoints to average"):
        export(translator, name="toy", average=2)


# --- Weights, and loading an export as a Keras model ---


def test_an_export_loads_as_a_keras_model_with_the_same_weights(
    exported, translator, served
):
    opened = Translator.load(exported)
    weights = translator.transformer.weights, opened.transformer.weights
    for one, other in zip(*weights, strict=True):
        assert_array_equal(one, other)
    assert opened.tokenizer.model == translator.tokenizer.model
    assert opened(TEXTS) == served(TEXTS)
    with pytest.raises(UserError, match=r"checkpoint 'last': .* an exported model"):
        Translator.load(exported, "last")


def small_translator(seed=1, **kind):
    tokenizer = Tokenizer.train(["um gato", "a cat"] * 50, vocab_size=300)
    size = tokenizer.vocab_size
    kind |= {"input_vocab_size": size, "target_vocab_size": size}
    transformer = oracle.tiny_transformer(seed, **kind, max_length=16)
    return Translator(tokenizer, transformer)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "kind"),
    [
        ("float32", {"norm": "post", "use_positions": False}),
        ("float16", {"norm": "post", "learned_positions": True}),
        ("float16", {"tie_embeddings": True, "num_decoder_layers": 1}),
    ],
)
def test_each_kind_of_model_serves_and_keeps_its_weights_in_each_precision(
    tmp_path, precision, kind
):
    translator = small_translator(**kind)
    before = [weight.numpy() for weight in translator.transformer.weights]
    write(translator, tmp_path / "1", precision=precision)
    assert verify(tmp_path / "1").ok
    loaded = tf.saved_model.load(str(tmp_path / "1")).signatures["translate"]
    texts = tf.constant(["um gato", "gato"])
    first = loaded(text=texts)["score"].numpy()
    _, opened = read_export(tmp_path / "1")
    weights = before, translator.transformer.weights, opened.weights
    for old, own, new in zip(*weights, strict=True):
        # Writing rounds the matrices of the translator in the same way.
        assert_array_equal(own, new)
        half = precision == "float16" and old.ndim > 1
        assert_array_equal(new, old.astype("float16") if half else old)
    # Two models in one process do not share folded weights.
    other = small_translator(seed=2, **kind).transformer
    FoldedWeights(other, [weight.value for weight in other.weights])._initialize()
    assert_array_equal(loaded(text=texts)["score"], first)


def test_average_checkpoints_takes_the_mean_of_the_newest_checkpoints(
    run_folder, tmp_path
):
    copy = shutil.copytree(run_folder, tmp_path / "copy")
    transformer = Translator.load(copy).transformer
    newest, *_ = found = Run.open(copy).checkpoints()
    sets = []
    for checkpoint in found[:2]:
        transformer.load_weights(checkpoint.weights_file)
        sets.append(transformer.get_weights())
    average_checkpoints(transformer, copy, 2)
    for weight, *two in zip(transformer.weights, *sets, strict=True):
        np.testing.assert_allclose(weight, np.mean(two, axis=0), atol=1e-6)
        assert not np.array_equal(*two)
    with pytest.raises(UserError, match=r"has \d checkpoints, not 99: .*keep_last"):
        average_checkpoints(transformer, copy, 99)
    newest.weights_file.write_bytes(b"damaged")
    with pytest.raises(UserError, match=f"{newest.path.name}/.*: damaged"):
        average_checkpoints(transformer, copy, 1)


def test_average_checkpoints_leaves_out_older_checkpoints(run_folder):
    transformer = Translator.load(run_folder).transformer
    newest, *older = Run.open(run_folder).checkpoints()
    assert older
    transformer.load_weights(newest.weights_file)
    expected = transformer.get_weights()
    average_checkpoints(transformer, run_folder, 1)
    for weight, one in zip(transformer.weights, expected, strict=True):
        assert_array_equal(weight, one)


# --- Warm-up requests ---


def test_an_export_has_a_valid_warm_up_request_for_each_signature(exported, served):
    """TensorFlow Serving's limit and path, and only logs of a type that it runs."""
    assert str(WARM_UP_FILE) == "assets.extra/tf_serving_warmup_requests"
    records = [*tf.data.TFRecordDataset(str(exported / WARM_UP_FILE))]
    assert 0 < len(records) <= 1000
    for record in records:
        log = PredictionLog.FromString(record.numpy())
        assert log.WhichOneof("log_type") == "predict_log"
        assert log.predict_log.request.model_spec.name == exported.parent.name
    requests = []
    for name, inputs, _ in read_records(exported / WARM_UP_FILE):
        requests.append(name)
        (rows,) = {len(x) for x in inputs.values()}
        answer = served.answers(name, inputs)
        assert rows and all(len(value) == rows for value in answer.values())
    assert sorted(requests) == sorted(served.signatures)
