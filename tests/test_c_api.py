import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tfxformer import c_api, verify
from tfxformer.errors import UserError


def strings(*values):
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


VALUES = {
    "words": strings(b"hello", "Olá, açaí 😀".encode(), b"", b"a\0b\0", b"\xff\xfe"),
    "long_words": strings(b"x" * 22, b"x" * 23, b"y" * 100_000),  # 22 fit in the struct
    "no_words": strings(),
    "words_2d": strings(b"a", b"b", b"c", b"d").reshape(2, 2),
    "no_columns": np.empty((3, 0), dtype=object),
    "word": np.array(b"alone", dtype=object),
    "float32": np.array([[1.5, -np.inf], [np.nan, 0.1]], dtype=np.float32),
    "float64": np.array([0.1, 1e300]),
    "int32": np.array([-(2**31), 0, 2**31 - 1], dtype=np.int32),
    "int64": np.array([[[-(2**63)], [2**63 - 1]]]),
    "bool": np.array([True, False, True]),
    "no_numbers": np.empty((0, 4), dtype=np.float32),
    "scalar": np.array(7, dtype=np.int64),
    "transposed": np.arange(6, dtype=np.int32).reshape(2, 3).T,
}


def abort():
    with tf.control_dependencies([tf.raw_ops.Abort(error_msg="bang")]):
        return tf.constant(0.0)


def count_for_ever(x):
    return tf.while_loop(lambda i: i >= 0.0, lambda i: [i + 1], [x])[0]


@pytest.fixture(scope="module")
def echo(tmp_path_factory):
    """A model that gives back what it gets, and each signature's two tensors."""
    folder = tmp_path_factory.mktemp("echo")

    def function(body, shape, dtype):
        spec = tf.TensorSpec(shape, dtype, name="x")
        return tf.function(lambda x: {"y": body(x)}, input_signature=[spec])

    signatures = {
        dtype: function(tf.identity, None, dtype)
        for dtype in ("string", "float32", "float64", "int32", "int64", "bool")
    }
    signatures["stop"] = function(
        lambda x: tf.cond(x > 0, lambda: x, abort), [], "float32"
    )
    signatures["loop"] = function(count_for_ever, [], "float32")
    module = tf.Module()
    module.functions = list(signatures.values())
    tf.saved_model.save(module, str(folder), signatures=signatures)
    meta_graph = verify._read_meta_graph(folder, verify.Report(folder))
    return folder, {
        signature.name: (signature.inputs[0].tensor, signature.outputs[0].tensor)
        for signature in verify._signatures(meta_graph)
    }


def job(echo, signature, value):
    source, target = echo[1][signature]
    return c_api.Job({source: value}, [target])


def signature_of(value):
    return "string" if value.dtype == object else value.dtype.name


@pytest.fixture(scope="module")
def answers(echo):
    jobs = [job(echo, signature_of(value), value) for value in VALUES.values()]
    jobs.append(job(echo, "float32", np.array([1, 2])))  # int64 into float32
    jobs.append(c_api.Job({"nobody:0": np.array([1])}, ["nothing:0"]))
    return c_api.run_apart(echo[0], jobs, timeout=120)


def test_the_process_has_no_python_tensorflow(answers):
    assert answers.python_tensorflow is False
    assert answers.tensorflow == tf.__version__
    assert answers.loaded and answers.finished and not answers.died


def test_ops_before_and_after_tensorflow_text(answers):
    assert {"MatMul", "StatefulPartitionedCall", "EagerPyFunc"} <= answers.ops
    assert "SentencepieceTokenizeOp" in answers.text_ops
    assert not answers.ops & answers.text_ops
    assert answers.text_error == ""


@pytest.mark.parametrize("name", VALUES)
def test_round_trip(answers, name):
    expected = VALUES[name]
    [got] = answers.results[list(VALUES).index(name)]
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    np.testing.assert_array_equal(got, expected)


def test_errors_carry_code_and_message(answers):
    wrong_type, unknown = (answers.results[len(VALUES) + i] for i in range(2))
    assert wrong_type.code == "INVALID_ARGUMENT"
    assert "float" in wrong_type.message
    assert unknown.code == "NOT_FOUND"
    assert str(unknown) == "NOT_FOUND: the graph has no tensor 'nobody:0'"


def test_a_folder_without_a_model_is_a_load_error(tmp_path):
    answers = c_api.run_apart(tmp_path, [], timeout=60)
    assert answers.load_error.code == "NOT_FOUND"
    assert not answers.loaded and not answers.died


def test_a_crash_keeps_what_came_before(echo):
    jobs = [
        job(echo, "float32", np.float32([1.0])),
        job(echo, "stop", np.float32(0)),
        job(echo, "float32", np.float32([2.0])),
    ]
    answers = c_api.run_apart(echo[0], jobs, timeout=60)
    assert answers.died == "crashed (SIGABRT)"
    assert answers.running == 1
    assert list(answers.results) == [0]
    assert "bang" in answers.log


def test_a_run_without_end_is_stopped(echo):
    jobs = [job(echo, "loop", np.float32(0))]
    answers = c_api.run_apart(echo[0], jobs, timeout=12)
    assert answers.died == "gave no answer within 12 s and was stopped"
    assert answers.running == 0


def test_a_group_ends_with_its_first_success(echo):
    source, target = echo[1]["float32"]
    values = [np.array([1]), np.float32([1.0]), np.float32([2.0])]
    jobs = [c_api.Job({source: value}, [target], group="g") for value in values]
    answers = c_api.run_apart(echo[0], jobs, timeout=60)
    assert list(answers.results) == [0, 1]


def test_tensorflow_text_that_does_not_load_is_reported(echo, tmp_path, monkeypatch):
    ops = tmp_path / "tensorflow_text" / "python" / "ops"
    ops.mkdir(parents=True)
    (tmp_path / "tensorflow_text" / "__init__.py").touch()
    (ops / "_broken.so").write_bytes(b"not a library")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    jobs = [job(echo, "float32", np.float32([1.0]))]
    answers = c_api.run_apart(echo[0], jobs, timeout=60)
    assert "_broken.so" in answers.text_error
    assert answers.text_ops == frozenset()
    assert list(answers.results) == [0]


def test_no_library_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(c_api, "_package", lambda name: tmp_path)
    with pytest.raises(UserError, match=r"libtensorflow_framework.so.2 not found in"):
        c_api.run_apart(tmp_path, [])
    monkeypatch.setattr(c_api, "_package", lambda name: None)
    with pytest.raises(UserError, match="TensorFlow is not installed"):
        c_api.run_apart(tmp_path, [])


SCRIPT = """
import resource, sys
import numpy as np
from tfxformer import c_api, verify

path, source, target = sys.argv[1:]
with c_api.SavedModelSession(path) as session, c_api.SavedModelSession(path) as other:
    [got] = session.run({source: np.array(["Olá", b"b"], dtype=object)}, [target])
    assert list(got) == ["Olá".encode(), b"b"]
    assert [list(x) for x in other.run({source: np.array(["z"])}, [target] * 2)] == [
        [b"z"]] * 2
    try:
        session.run({source: np.array([1, None], dtype=object)}, [target])
        raise SystemExit("a number passed for a string")
    except TypeError as error:
        assert "1" in str(error)

    text = np.array([b"x" * 1_000_000], dtype=object)
    def peak(runs):
        for _ in range(runs):
            session.run({source: text}, [target])
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    before = peak(20)
    grown = peak(200) - before
    assert grown < 50, f"{grown} MB more after 200 runs of 1 MB"
session.close()  # again: nothing happens
try:
    session.run({}, [target])
    raise SystemExit("a closed session ran")
except c_api.TensorFlowError as error:
    assert error.code == "FAILED_PRECONDITION"
assert not {"tensorflow", "tensorflow_text", "keras"} & set(sys.modules)
"""


def test_a_session_in_this_process_frees_what_it_takes(echo):
    arguments = [str(echo[0]), *echo[1]["string"]]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
