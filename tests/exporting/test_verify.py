"""`verify` checks that any SavedModel serves, or says in one line why it does not."""

import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from tfxformer.errors import UserError
from tfxformer.exporting import verify as verify_module
from tfxformer.exporting.verify import verify
from tfxformer.repository import EXAMPLES_FILE, read_records, write_records

X = tf.TensorSpec([None, 4], tf.float32, name="x")


def inspect(folder):
    """The lines of `verify`, run in this process, because a new one takes seconds."""
    return [*verify_module.inspect(str(folder))]


def failures(lines):
    """The details of the failed checks, by name."""
    failed = [line.removeprefix("FAIL  ") for line in lines if line[:4] == "FAIL"]
    assert not any("\n" in line for line in lines)
    return dict(line.split(": ", 1) for line in failed)


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


DENSE = keras.Sequential([keras.Input((4,), name="x"), keras.layers.Dense(3)])


@pytest.fixture(scope="module")
def keras_model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keras") / "model"
    DENSE.export(str(folder), verbose=False)
    return folder


@pytest.fixture
def copy(keras_model, tmp_path):
    return shutil.copytree(keras_model, tmp_path / "model")


# --- Models from other programs ---


def test_verify_accepts_a_keras_export(keras_model):
    lines = inspect(keras_model)
    assert not failures(lines)
    one, two = "x: float32 (None, 4)", "output_0: float32 (None, 3)"
    assert f"  serving_default({one}) -> {two}" in lines
    one, two = "x: float32 (2, 4)", "output_0: float32 (2, 3)"
    assert f"ok    run serving_default: ({one}) -> {two}" in lines


def test_verify_fails_a_keras_model_in_a_tf_module_that_runs_only_in_python(tmp_path):
    """A tf.Module around a Keras model, as the TensorFlow tutorial exports it."""
    module = tf.Module()
    module.model = DENSE
    module.call = tf.function(lambda x: {"y": module.model(x)}, [X])
    tf.saved_model.save(module, str(tmp_path), {"serving_default": module.call})
    loaded = tf.saved_model.load(str(tmp_path))
    assert loaded.signatures["serving_default"](tf.ones((2, 4)))["y"].shape == (2, 3)
    ((name, detail),) = failures(inspect(tmp_path)).items()
    assert name == "run serving_default"
    assert "FailedPreconditionError: Could not find variable" in detail
    assert "saved twice" in detail and "model.export()" in detail


def test_verify_fails_a_signature_that_needs_xla_and_names_the_server_s_flag(tmp_path):
    doubled = tf.function(lambda x: x * 2, jit_compile=True)

    def looped(x):  # the function that needs XLA is in a loop
        step = lambda i, v: (i + 1, doubled(v))  # noqa: E731
        return {"y": tf.while_loop(lambda i, _: i < 3, step, (0, x))[1]}

    ((name, detail),) = failures(inspect(save(tmp_path, run=looped))).items()
    assert name == "xla" and "__inference_" in detail
    assert "--xla_cpu_compilation_enabled=true" in detail


def test_verify_makes_up_inputs_of_every_dtype_and_shape(tmp_path):
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
    image = tf.TensorSpec([], tf.string, name="image")
    picture = tf.function(lambda x: {"y": tf.io.decode_jpeg(x)}, [image])
    functions = {"everything": everything, "nothing": nothing, "long": long}
    lines = inspect(save(tmp_path, **functions, picture=picture))
    report = "\n".join(lines)
    assert "ok    run everything: (anything: object (2,), brain: bfloat16" in report
    assert "ok    run nothing: () -> y: " in report
    assert "ok    run long: (x: float32 (2, 16, 3)) -> " in report
    ((name, detail),) = failures(lines).items()
    expected = "not proven on made-up inputs: InvalidArgumentError"
    assert name == "run picture" and detail.startswith(expected)


def rename_an_op(graph):
    for function in graph.graph_def.library.function:
        for node in function.node_def:
            node.op = node.op.replace("MatMul", "MatMulOfMine")


@pytest.mark.parametrize(
    ("change", "check", "said"),
    [
        (rename_an_op, "load", "MatMulOfMine"),
        (lambda graph: graph.signature_def.clear(), "run", "no signature"),
        (lambda graph: graph.meta_info_def.tags.append("train"), "load", "serve"),
    ],
)
def test_verify_fails_an_unknown_op_a_missing_signature_and_a_wrong_tag(
    copy, change, check, said
):
    file = copy / "saved_model.pb"
    model = SavedModel.FromString(file.read_bytes())
    change(model.meta_graphs[0])
    file.write_bytes(model.SerializeToString())
    assert said in failures(inspect(copy))[check]


# --- The fresh process ---


@pytest.mark.slow
def test_verify_reports_python_functions_and_crashes_beside_other_results(tmp_path):
    def python(x):
        y = tf.py_function(lambda a: a + 1, [x], tf.float32)
        return {"y": tf.ensure_shape(y, [None, 4])}

    def crash(x):
        with tf.control_dependencies([tf.raw_ops.Abort(error_msg="bang")]):
            return {"y": tf.identity(x)}

    report = verify(save(tmp_path, a=lambda x: {"y": x + 1}, b=python, c=crash))
    failed = failures(report.lines)
    assert "It calls Python" in failed["run b"]
    assert "it crashed (SIGABRT)" in failed["process"]
    assert "ok    run a" in report.describe()  # earlier results stay
    assert not report.ok and report.lines[-1].startswith("NOT PROVEN TO SERVE: 2 ch")


@pytest.mark.slow
def test_verify_stops_a_process_that_hangs(tmp_path, monkeypatch):
    loop = lambda x: tf.while_loop(lambda x: True, lambda x: [x], [x])[0]  # noqa: E731
    save(tmp_path, b=lambda x: {"y": loop(x)})
    monkeypatch.setattr(verify_module, "TIMEOUT", 20)
    detail = failures(verify(tmp_path).lines)["process"]
    assert "gave no answer within 20 s and was stopped" in detail


def test_importing_verify_loads_no_model_code():
    code = "import sys, tfxformer.exporting.verify; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    ours = {name for name in loaded if name.startswith("tfxformer.")}
    modules = ("errors", "exporting", "exporting.verify", "repository")
    assert ours == {f"tfxformer.{name}" for name in modules}


# --- Our exports: recorded answers ---


def test_verify_fails_examples_that_are_damaged_or_differ_from_the_answers(
    exported, tmp_path
):
    copy = shutil.copytree(exported, tmp_path / "1")
    file = copy / EXAMPLES_FILE
    records = []
    for signature, inputs, outputs in read_records(file):
        if signature == "translate":
            outputs["translation"] = outputs["translation"].astype(object)
            outputs["translation"][2:3] = b"\xff"
        elif signature == "tokenize":
            outputs["ids"] = outputs["ids"][:, 1:]
        elif signature == "score":
            outputs["more"] = outputs["score"]
        elif signature == "attention":
            outputs["attention"] = outputs["attention"] + 0.0002
        records.append((signature, inputs, outputs))
    write_records(file, "model", records)
    failed = failures(inspect(copy))
    changed = "attention", "score", "tokenize", "translate"
    assert [*failed] == [f"run {signature}" for signature in changed]
    assert "example 1, output translation" in failed["run translate"]
    assert r"[2]: b'' (ACTUAL), b'\xff' (DESIRED)" in failed["run translate"]
    assert "shapes" in failed["run tokenize"] and "more" in failed["run score"]
    file.write_bytes(b"nonsense" * 9)
    assert "examples.tfrecord: damaged" in failures(inspect(copy))["load"]


def test_verify_fails_a_scalar_where_the_recorded_answer_is_a_vector(tmp_path):
    save(tmp_path, run=tf.function(lambda x: {"y": tf.reduce_sum(x)}, [X]))
    answers = {"y": np.full(3, 8, "float32")}
    record = "run", {"x": np.ones((2, 4), "float32")}, answers
    write_records(tmp_path / EXAMPLES_FILE, "model", [record])
    assert "shapes" in failures(inspect(tmp_path))["run run"]


# --- Folders that are not SavedModels ---


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (".", "write one with a Keras model's export()"),
        ("run", "is a run folder; export it: tfxformer export --run"),
        ("nowhere", "there is no such folder"),
    ],
)
def test_verify_refuses_a_path_without_a_savedmodel_and_gives_advice(
    tmp_path, path, message
):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").touch()
    path = tmp_path / path
    with pytest.raises(UserError) as caught:
        verify(path)
    assert str(caught.value).startswith(f"{path}: ") and message in str(caught.value)
