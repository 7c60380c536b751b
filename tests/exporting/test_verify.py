"""`verify` proves that a model serves, ours or not, or says why not in one line."""

import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from tfxformer.errors import UserError
from tfxformer.exporting import verify as verify_module
from tfxformer.exporting.repository import EXAMPLES_FILE, read_records
from tfxformer.exporting.verify import Check, Report, verify

X = tf.TensorSpec([None, 4], tf.float32, name="x")


def inspect(folder, allow_xla=False):
    """The report of `verify`, made in this process: a fresh one takes seconds."""
    findings = [*verify_module.inspect(str(folder), allow_xla)]
    notes = [finding for finding in findings if isinstance(finding, str)]
    checks = [Check(*finding) for finding in findings if isinstance(finding, tuple)]
    return Report(folder, checks, notes)


def failures(report):
    """The details of the failed checks, by name; each is one line."""
    assert not report.ok
    assert "NOT PROVEN TO SERVE" in report.describe().splitlines()[-1]
    failed = {check.name: check.detail for check in report.checks if not check.ok}
    assert not any("\n" in detail for detail in failed.values())
    return failed


def save(folder, **signatures):
    """Saves functions of one float input `x`, or tf.functions, as signatures."""
    module = tf.Module()
    functions = {
        name: f if hasattr(f, "get_concrete_function") else tf.function(f, [X])
        for name, f in signatures.items()
    }
    module.functions = list(functions.values())
    tf.saved_model.save(module, str(folder), signatures=functions)
    return folder


def dense():
    return keras.Sequential([keras.Input((4,), name="x"), keras.layers.Dense(3)])


@pytest.fixture(scope="module")
def keras_model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keras") / "model"
    dense().export(str(folder), verbose=False)
    return folder


@pytest.fixture
def copy(keras_model, tmp_path):
    return shutil.copytree(keras_model, tmp_path / "model")


# --- Models of others ---


def test_a_keras_export_serves(keras_model):
    report = inspect(keras_model)
    assert report.ok, report.describe()
    text = report.describe()
    assert "serving_default(x: float32 (?, 4)) -> output_0: float32 (?, 3)" in text
    assert "run serving_default: x [2, 4] gave output_0 [2, 3]" in text
    assert text.splitlines()[-1].startswith("SERVES")


def test_the_trap_runs_in_python_and_not_in_the_server(tmp_path):
    """What the TensorFlow tutorial exports: a tf.Module around a Keras model."""
    module = tf.Module()
    module.model = dense()
    module.call = tf.function(lambda x: {"y": module.model(x)}, [X])
    tf.saved_model.save(module, str(tmp_path), {"serving_default": module.call})
    loaded = tf.saved_model.load(str(tmp_path))
    assert loaded.signatures["serving_default"](tf.ones((2, 4)))["y"].shape == (2, 3)
    failed = failures(inspect(tmp_path))
    assert list(failed) == ["run serving_default"]
    detail = failed["run serving_default"]
    assert "FailedPreconditionError: Could not find variable" in detail
    assert "saved twice" in detail and "model.export()" in detail


def test_xla_under_a_signature_fails_and_names_the_flag(tmp_path):
    doubled = tf.function(lambda x: x * 2, jit_compile=True)

    def looped(x):  # the demand is in the body of a loop
        step = lambda i, v: (i + 1, doubled(v))  # noqa: E731
        return {"y": tf.while_loop(lambda i, _: i < 3, step, (0, x))[1]}

    report = inspect(save(tmp_path, serving_default=looped))
    failed = failures(report)
    assert list(failed) == ["xla"]
    assert "XLA must compile" in failed["xla"] and "__inference_" in failed["xla"]
    assert "--xla_cpu_compilation_enabled=true" in failed["xla"]
    allowed = inspect(tmp_path, allow_xla=True)
    assert allowed.ok and "--xla_gpu_compilation_enabled=true" in allowed.describe()


def test_an_op_of_neither_package_fails_and_is_named(tmp_path):
    save(tmp_path, serving_default=lambda x: {"y": tf.cos(x)})
    file = tmp_path / "saved_model.pb"
    model = SavedModel.FromString(file.read_bytes())
    for function in model.meta_graphs[0].graph_def.library.function:
        for node in function.node_def:
            node.op = node.op.replace("Cos", "CosOfMine")
    file.write_bytes(model.SerializeToString())
    assert "CosOfMine" in failures(inspect(tmp_path))["load"]


def test_every_type_and_shape_of_input(tmp_path):
    specs = [
        tf.TensorSpec(None, tf.string, name="anything"),
        tf.TensorSpec([], tf.bool, name="flag"),
        tf.TensorSpec([None, 2], tf.int64, name="ids"),
        tf.TensorSpec([3], tf.bfloat16, name="brain"),
    ]
    everything = tf.function(lambda *a: {f"y{i}": v for i, v in enumerate(a)}, specs)
    nothing = tf.function(lambda: {"y": tf.constant([b"hi"])}, [])
    # Open dimensions are tried in several sizes.
    wide = tf.TensorSpec([None, None, 3], tf.float32, name="x")
    long = tf.function(lambda x: {"y": x[:, 15]}, [wide])
    picture = tf.function(
        lambda s: {"y": tf.map_fn(tf.io.decode_jpeg, s, fn_output_signature=tf.uint8)},
        [tf.TensorSpec([None], tf.string, name="image")],
    )
    functions = {"everything": everything, "nothing": nothing, "long": long}
    report = inspect(save(tmp_path, **functions, picture=picture))
    assert "anything [2]" in report.describe()
    assert "run nothing: nothing gave y [1]" in report.describe()
    assert "run long: x [2, 16, 3] gave" in report.describe()
    failed = failures(report)
    assert list(failed) == ["run picture"]
    expected = "not proven on made-up inputs: InvalidArgumentError"
    assert failed["run picture"].startswith(expected)


def test_graphs_that_no_client_can_call(copy):
    file = copy / "saved_model.pb"
    model = SavedModel.FromString(file.read_bytes())
    model.meta_graphs[0].signature_def.clear()
    file.write_bytes(model.SerializeToString())
    assert "no signature" in failures(inspect(copy))["run"]
    model.meta_graphs[0].meta_info_def.tags[:] = ["train"]
    file.write_bytes(model.SerializeToString())
    assert "serve" in failures(inspect(copy))["load"]


# --- The fresh process ---


@pytest.mark.slow
def test_python_functions_do_not_serve(tmp_path):
    def body(x):
        y = tf.py_function(lambda a: a + 1, [x], tf.float32)
        return {"y": tf.ensure_shape(y, [None, 4])}

    failed = failures(verify(save(tmp_path, serving_default=body)))
    assert "It calls Python" in failed["run serving_default"]


@pytest.mark.slow
def test_a_crash_is_one_line(tmp_path):
    def body(x):
        with tf.control_dependencies([tf.raw_ops.Abort(error_msg="bang")]):
            return {"y": tf.identity(x)}

    report = verify(save(tmp_path, other=lambda x: {"y": x + 1}, serving_default=body))
    assert "it crashed (SIGABRT)" in failures(report)["process"]
    assert "ok    run other" in report.describe()  # what was found before stays
    assert "put this in NAME/1/" in report.describe()


@pytest.mark.slow
def test_a_process_that_hangs_is_stopped(tmp_path, monkeypatch):
    def body(x):
        return {"y": tf.while_loop(lambda x: True, lambda x: [x + 1], [x])[0]}

    save(tmp_path, serving_default=body)
    monkeypatch.setattr(verify_module, "TIMEOUT", 20)
    detail = failures(verify(tmp_path))["process"]
    assert "gave no answer within 20 s and was stopped" in detail


def test_it_needs_no_model_code():
    code = "import sys, tfxformer.exporting.verify; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    ours = {name for name in loaded if name.startswith("tfxformer.")}
    modules = ("errors", "exporting", "exporting.repository", "exporting.verify")
    assert ours == {f"tfxformer.{name}" for name in modules}


# --- Our exports: recorded answers ---


@pytest.fixture
def export(exported, tmp_path):
    return shutil.copytree(exported, tmp_path / "1")


def test_wrong_answers_name_signature_output_and_place(export):
    logs = read_records(export / EXAMPLES_FILE)
    with tf.io.TFRecordWriter(str(export / EXAMPLES_FILE)) as writer:
        for log in logs:
            name, outputs = log.request.model_spec.signature_name, log.response.outputs
            if name == "serving_default" and outputs["score"].tensor_shape.dim[0].size:
                outputs["translation"].string_val[2] = b"\xff"
            elif name == "tokenize":
                ids = tf.make_ndarray(outputs["ids"])[:, 1:]
                outputs["ids"].CopyFrom(tf.make_tensor_proto(ids))
            elif name == "score":
                outputs["more"].CopyFrom(outputs["score"])
            else:
                continue
            writer.write(PredictionLog(predict_log=log).SerializeToString())
    failed = failures(inspect(export))
    wrong = failed["run serving_default"]
    assert wrong.startswith("example 1, output translation: Arrays are not equal")
    assert r"[2]: b'' (ACTUAL), b'\xff' (DESIRED)" in wrong
    assert "example 1, output ids: Arrays are not equal" in failed["run tokenize"]
    assert "shapes" in failed["run tokenize"]
    assert failed["run score"] == "example 1 answers more, score"
    assert failed["run detokenize"] == "it has no recorded example"


def test_damaged_examples_are_one_line(export):
    (export / EXAMPLES_FILE).write_bytes(b"nonsense" * 9)
    assert "examples.tfrecord: damaged" in failures(inspect(export))["examples"]


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        ([1.0, 2.0], [1.0, 2.0002]),
        ([np.inf], [-np.inf]),
        ([np.nan], [0.0]),
        (1.0, 2.0),
        ([1.0], [[1.0]]),
        ([b"a\0"], [b"a"]),
    ],
)
def test_what_differs(expected, got):
    dtype = object if isinstance(np.ravel(got)[0], bytes) else "float32"
    expected, got = np.array(expected, dtype), np.array(got, dtype)
    verify_module._assert_same(expected, expected)
    with pytest.raises(AssertionError):
        verify_module._assert_same(got, expected)


def test_floats_may_differ_a_little():
    expected = np.array([1.0, np.nan, np.inf], "float32")
    verify_module._assert_same(expected + 0.00009, expected)


# --- What is no SavedModel, or a damaged one ---


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nowhere", "there is no such folder"),
        ("empty", "it holds no saved_model.pb"),
        ("run/config.yaml", "is a run folder: tfxformer export --run"),
        ("model.keras", r"is a file: load it, call model\.export"),
        ("1/saved_model.pb", "is a file: give the SavedModel's folder"),
    ],
)
def test_paths_without_a_saved_model(tmp_path, path, message):
    file = tmp_path / path
    if path == "empty":
        file.mkdir()
    elif path != "nowhere":
        file.parent.mkdir(exist_ok=True)
        file.touch()
    path = file.parent if file.name == "config.yaml" else file
    with pytest.raises(UserError, match=message) as caught:
        verify(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("file", ["saved_model.pb", "variables/variables.data", ""])
def test_damage_fails_to_load(copy, file):
    if file:
        (path,) = copy.glob(f"{file}*")
        path.write_bytes(path.read_bytes()[:20])
    else:
        shutil.rmtree(copy / "variables")
    assert [*failures(inspect(copy))] == ["load"]
