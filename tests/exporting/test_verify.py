import io
import json
import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
import tensorflow_text as tf_text
from tensorflow.core.protobuf import saved_model_pb2

from tfxformer.errors import UserError
from tfxformer.exporting import metadata as recorded
from tfxformer.exporting import verify

X = tf.TensorSpec([None, 4], tf.float32, name="x")


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


def edit_graph(folder, change):
    """Changes each node of the SavedModel's graph and its functions."""
    file = folder / "saved_model.pb"
    saved_model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    for meta_graph in saved_model.meta_graphs:
        for nodes in (
            meta_graph.graph_def.node,
            *(f.node_def for f in meta_graph.graph_def.library.function),
        ):
            for node in nodes:
                change(node)
    file.write_bytes(saved_model.SerializeToString())


def failures(report):
    """The details of the failed checks, by name; each is one line."""
    assert not report.ok
    assert "NOT PROVEN TO SERVE" in report.describe().splitlines()[-1]
    failed = {check.name: check.detail for check in report.checks if not check.ok}
    assert not any("\n" in detail for detail in failed.values())
    return failed


@pytest.fixture(scope="module")
def keras_model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keras") / "model"
    dense().export(str(folder), verbose=False)
    return folder


# Models of others.


def test_a_keras_export_serves(keras_model):
    report = verify.verify(keras_model)
    assert report.ok, report.describe()
    assert [s.name for s in report.signatures] == ["serving_default", "serve"]
    [x] = report.signatures[0].inputs
    assert (x.name, x.dtype, x.shape) == ("x", "float32", (None, 4))
    text = report.describe()
    assert "serving_default(x: float32 [?, 4]) -> output_0: float32 [?, 3]" in text
    assert "run serving_default: x float32 [2, 4] gave output_0 float32 [2, 3]" in text
    assert text.splitlines()[-1].startswith("SERVES")
    assert "put this in NAME/1/" in text


class Wrapper(tf.Module):
    """What the TensorFlow tutorial exports: a tf.Module around a Keras model."""

    def __init__(self):
        super().__init__()
        self.model = dense()

    @tf.function(input_signature=[X])
    def __call__(self, x):
        return {"y": self.model(x)}


def test_the_trap_runs_in_python_and_not_in_the_server(tmp_path):
    tf.saved_model.save(Wrapper(), str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    assert loaded.signatures["serving_default"](tf.ones((2, 4)))["y"].shape == (2, 3)
    failed = failures(verify.verify(tmp_path))
    assert list(failed) == ["run serving_default"]
    detail = failed["run serving_default"]
    assert detail.startswith("FAILED_PRECONDITION: Could not find variable")
    assert "saved twice" in detail and "model.export()" in detail


def test_xla_under_a_signature_fails_and_names_the_flag(tmp_path):
    doubled = tf.function(lambda x: x * 2, jit_compile=True)
    looped = tf.function(
        lambda x: {
            "y": tf.while_loop(
                lambda i, _: i < 3, lambda i, v: (i + 1, doubled(v)), (0, x)
            )[1]
        },
        [X],
    )
    unused = tf.function(lambda x: {"y": x + 1}, [X])
    save(tmp_path, serving_default=looped, plain=unused)
    report = verify.verify(tmp_path)
    failed = failures(report)
    assert list(failed) == ["xla"]
    assert "serving_default reaches function __inference_" in failed["xla"]
    assert "plain" not in failed["xla"]
    assert "--xla_cpu_compilation_enabled=true" in failed["xla"]
    assert "--xla_gpu_compilation_enabled=true" in failed["xla"]
    assert "experimental" in failed["xla"]
    allowed = verify.verify(tmp_path, allow_xla=True)
    assert allowed.ok
    assert "--xla_cpu_compilation_enabled=true" in allowed.describe()


def test_a_python_function_fails(tmp_path):
    def body(x):
        y = tf.py_function(lambda a: a + 1, [x], tf.float32)
        return {"y": tf.ensure_shape(y, [None, 4])}

    failed = failures(verify.verify(save(tmp_path, serving_default=body)))
    assert set(failed) == {"python", "run serving_default"}
    assert "EagerPyFunc in function __inference_body" in failed["python"]


def test_an_unknown_op_fails_and_is_named(tmp_path):
    def rename(node):
        if node.op == "Cos":
            node.op = "CosOfMine"

    save(tmp_path, serving_default=lambda x: {"y": tf.cos(x)})
    edit_graph(tmp_path, rename)
    failed = failures(verify.verify(tmp_path))
    assert set(failed) == {"ops", "load"}
    assert "tensorflow-text: CosOfMine in function __inference_" in failed["ops"]
    assert "CosOfMine" in failed["load"]


def test_a_crash_is_one_line(tmp_path):
    def body(x):
        with tf.control_dependencies([tf.raw_ops.Abort(error_msg="bang")]):
            return {"y": tf.identity(x)}

    save(tmp_path, serving_default=body, other=lambda x: {"y": x + 1})
    failed = failures(verify.verify(tmp_path))
    assert set(failed) == {"run serving_default", "run other"}
    assert "the process crashed (SIGABRT)" in failed["run serving_default"]
    assert "the process died before this" in failed["run other"]


def test_a_process_that_hangs_is_stopped(tmp_path):
    def body(x):
        return {"y": tf.while_loop(lambda x: True, lambda x: [x + 1], [x])[0]}

    save(tmp_path, serving_default=body)
    [detail] = failures(verify.verify(tmp_path, timeout=15)).values()
    assert "the process gave no answer within 15 s and was stopped" in detail


def test_the_process_needs_no_model_code():
    code = "import sys, tfxformer.exporting.verify; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    ours = {name for name in loaded if name.startswith("tfxformer")}
    needed = ("errors", "exporting", "exporting.metadata", "exporting.verify")
    assert ours == {"tfxformer"} | {f"tfxformer.{name}" for name in needed}


def test_a_model_that_refuses_the_made_up_input_is_not_proven(tmp_path):
    spec = tf.TensorSpec([None], tf.string, name="image")
    decode = tf.function(
        lambda s: {"y": tf.map_fn(tf.io.decode_jpeg, s, fn_output_signature=tf.uint8)},
        [spec],
    )
    failed = failures(verify.verify(save(tmp_path, serving_default=decode)))
    detail = failed["run serving_default"]
    assert detail.startswith("not proven: INVALID_ARGUMENT")
    assert "the input was made up, image string [2], and may be at fault" in detail


def test_open_dimensions_are_tried_in_several_sizes(tmp_path):
    wide = tf.TensorSpec([None, None, 3], tf.float32, name="x")
    pooled = tf.function(lambda x: {"y": x[:, 15]}, [wide])
    report = verify.verify(save(tmp_path, serving_default=pooled))
    assert report.ok, report.describe()
    assert "x float32 [2, 16, 3] gave" in report.describe()


def test_every_type_and_shape_of_input(tmp_path):
    specs = [
        tf.TensorSpec(None, tf.string, name="anything"),
        tf.TensorSpec([], tf.bool, name="flag"),
        tf.TensorSpec([None, 2], tf.int64, name="ids"),
        tf.TensorSpec([3], tf.bfloat16, name="brain"),
        tf.TensorSpec([None], tf.float16, name="half"),
    ]
    everything = tf.function(lambda *a: {f"y{i}": v for i, v in enumerate(a)}, specs)
    nothing = tf.function(lambda: {"y": tf.constant([b"hi"])}, [])
    save(tmp_path, serving_default=everything, nothing=nothing)
    report = verify.verify(tmp_path)
    assert report.ok, report.describe()
    assert "anything string [2]" in report.describe()
    assert "anything: string [...]" in report.describe()
    assert "run nothing: nothing gave y string [1]" in report.describe()


def test_a_graph_without_the_serve_tag(keras_model, tmp_path):
    folder = shutil.copytree(keras_model, tmp_path / "model")
    file = folder / "saved_model.pb"
    saved_model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    saved_model.meta_graphs[0].meta_info_def.tags[:] = ["train"]
    file.write_bytes(saved_model.SerializeToString())
    failed = failures(verify.verify(folder))
    assert failed == {
        "tags": "no graph is tagged 'serve', as the server expects it (tags: train)"
    }


def test_no_signature(keras_model, tmp_path):
    folder = shutil.copytree(keras_model, tmp_path / "model")
    file = folder / "saved_model.pb"
    saved_model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    saved_model.meta_graphs[0].signature_def.clear()
    file.write_bytes(saved_model.SerializeToString())
    assert "no signature" in failures(verify.verify(folder))["run"]


# Our exports: recorded answers.


class TextModel(tf.Module):
    """Tokenizer signatures like our export's, around a tiny SentencePiece model."""

    def __init__(self, model):
        super().__init__()
        self.tokenizer = tf_text.SentencepieceTokenizer(model)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def tokenize(self, text):
        return {"ids": self.tokenizer.tokenize(text).to_tensor()}

    @tf.function(
        input_signature=[tf.TensorSpec([None, None], tf.int32, name="ids")],
    )
    def detokenize(self, ids):
        return {"text": self.tokenizer.detokenize(ids)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def translate(self, text):
        length = tf.cast(tf.strings.length(text), tf.float32)
        return {"translation": tf.strings.join([text, "!"]), "score": -length / 7}

    def answers(self, signature, inputs):
        """What a Translator offers to `verify`."""
        function = self.translate if signature == "serving_default" else None
        function = function or getattr(self, signature)
        outputs = function(*(tf.constant(value) for value in inputs.values()))
        return {name: value.numpy() for name, value in outputs.items()}


SENTENCES = ["o gato come peixe", "a menina lê um livro", "hoje está sol", "bom dia"]
EXAMPLES = {
    "serving_default": [
        {"text": np.array(["Olá.".encode(), b"", b"a\0b"], dtype=object)},
        {"text": np.array([], dtype=object)},
    ],
    "tokenize": [{"text": np.array(["o gato", "peixe"], dtype=object)}],
    "detokenize": [
        {"ids": np.array([[3, 4, 5]], dtype=np.int32)},
        {"ids": np.zeros((0, 2), dtype=np.int32)},
    ],
}


@pytest.fixture(scope="module")
def text_model(tmp_path_factory):
    """The module, and its folder of versions, of which the newest has examples."""
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES),
        model_writer=file,
        vocab_size=40,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    module = TextModel(file.getvalue())
    folder = tmp_path_factory.mktemp("export") / "pt_en" / "10"
    signatures = {
        "serving_default": module.translate,
        "tokenize": module.tokenize,
        "detokenize": module.detokenize,
    }
    tf.saved_model.save(module, str(folder), signatures=signatures)
    (folder.parent / "9").mkdir()
    (folder.parent / "notes").mkdir()
    examples = [
        recorded.example(signature, inputs, module.answers(signature, inputs))
        for signature, each in EXAMPLES.items()
        for inputs in each
    ]
    recorded.write_metadata(folder, examples, model={"max_length": 128})
    return module, folder.parent


@pytest.fixture
def export(text_model, tmp_path):
    return shutil.copytree(text_model[1] / "10", tmp_path / "1")


def edit_examples(folder, change):
    file = folder / recorded.METADATA_FILE
    metadata = json.loads(file.read_text("utf-8"))
    change(metadata)
    file.write_text(json.dumps(metadata), "utf-8")


def test_recorded_answers_and_versions(text_model):
    report = verify.verify(text_model[1])
    assert report.ok, report.describe()
    assert report.path == text_model[1] / "10"
    assert "took the newest, 10" in report.describe()
    assert "tensorflow-text (Sentencepiece" in report.describe()
    assert (
        "run serving_default: 2 recorded examples answered alike, floats within"
        in report.describe()
    )
    assert "run tokenize: 1 recorded example answered alike\n" in report.describe()
    metadata = recorded.read_metadata(report.path)
    assert metadata["model"] == {"max_length": 128}
    assert metadata["tensorflow"] == tf.__version__


def test_a_live_translator_answers_anew(text_model, export):
    def spoil(metadata):
        metadata["examples"][0]["outputs"]["translation"][0] = "old"

    edit_examples(export, spoil)
    assert verify.verify(export, translator=text_model[0]).ok
    (export / recorded.METADATA_FILE).unlink()
    failed = failures(verify.verify(export, translator=text_model[0]))
    assert "tfxformer.json is missing" in failed["examples"]


def test_wrong_answers_name_signature_output_and_row(export):
    def change(metadata):
        first, _, tokenize, *_ = metadata["examples"]
        first["outputs"]["translation"][2] = {"b64": "/w=="}
        tokenize["outputs"]["ids"][1][0] += 1
        metadata["examples"] = [
            e for e in metadata["examples"] if "ids" not in e["inputs"]
        ]

    edit_examples(export, change)
    failed = failures(verify.verify(export))
    assert set(failed) == {"run serving_default", "run tokenize", "run detokenize"}
    assert failed["run serving_default"] == (
        "example 1, output translation, row 2: got 'a\\x00b!', expected '\\\\xff'"
    )
    assert failed["run tokenize"].startswith(
        "example 1, output ids, row 1, at [0]: got"
    )
    assert failed["run detokenize"] == "signature detokenize has no recorded example"


def test_examples_that_do_not_fit_the_model(export):
    def change(metadata):
        examples = metadata["examples"]
        examples[0]["signature"] = "unheard_of"
        del examples[1]["outputs"]["score"]
        examples[2]["inputs"]["text"] = [["a"], "b"]
        examples[3]["outputs"]["text"] = ["one", "two"]

    edit_examples(export, change)
    failed = failures(verify.verify(export))
    assert failed["examples"].endswith("the model has no signature unheard_of")
    problem = "it has translation where the model has score, translation"
    assert failed["run serving_default"].endswith(problem)
    assert "not an array of string" in failed["run tokenize"]
    assert "shape [1], expected [2]" in failed["run detokenize"]


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"format": 1}', '{"format": 1, "examples": [{}]}', "\x00"]
)
def test_damaged_examples_are_one_line(export, text):
    (export / recorded.METADATA_FILE).write_text(text)
    with pytest.raises(UserError, match=r"tfxformer.json is damaged") as caught:
        verify.verify(export)
    assert "\n" not in str(caught.value)


def test_examples_of_a_later_format(export):
    edit_examples(export, lambda metadata: metadata.update(format=2))
    with pytest.raises(UserError, match="has format 2, but this tfxformer reads 1"):
        verify.verify(export)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (np.array(["é".encode(), b"\xff", b"", b"\0"], dtype=object), "string"),
        (np.array([[b"a"], [b"b"]], dtype=object), "string"),
        (np.empty((2, 0), dtype=object), "string"),
        (np.empty((0, 3), dtype=np.float32), "float32"),
        (np.float32([[0.1, -1e-9], [np.inf, 3]]), "float32"),
        (np.int32([[1, -2]]), "int32"),
        (np.int64(2**63 - 1), "int64"),
        (np.array([True, False]), "bool"),
    ],
)
def test_json_round_trip(value, dtype):
    back = recorded.decode(json.loads(json.dumps(recorded.encode(value))), dtype)
    assert back.dtype == value.dtype and back.shape == value.shape
    np.testing.assert_array_equal(back, value)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ([1], "string"),
        ([["a"], ["b", "c"]], "string"),
        ([{"b64": "?"}], "string"),
        ([{"b63": ""}], "string"),
        ([None], "string"),
        ([[1], [2, 3]], "float32"),
        (["one"], "float32"),
        ([2**31], "int32"),
        ({"shape": "wide"}, "int32"),
        ({"size": 3}, "int32"),
    ],
)
def test_what_is_no_array_of_its_type(value, dtype):
    with pytest.raises(ValueError, match=f"not an array of {dtype}"):
        recorded.decode(value, dtype)


def test_compare_floats():
    def difference(a, b):
        return verify.compare(np.float32(a), np.float32(b))[0]

    assert difference([1.0, np.nan, np.inf], [1.00009, np.nan, np.inf]) == ""
    assert difference([1.0, 2.0], [1.0, 2.0002]).startswith(", row 1: got 2.0002")
    assert difference([np.inf], [-np.inf]).startswith(", row 0")
    assert difference([np.nan], [0.0]).startswith(", row 0")
    assert difference(1.0, 2.0) == ": got 2.0, expected 1.0"
    assert "shape" in difference([1.0], [[1.0]])


# What is no SavedModel, or a damaged one.


def test_paths_without_a_saved_model(tmp_path, keras_model):
    (tmp_path / "empty").mkdir()
    (tmp_path / "versions" / "2").mkdir(parents=True)
    (tmp_path / "model.keras").touch()
    for path, message in {
        tmp_path / "nowhere": "there is no such folder",
        tmp_path / "empty": "it holds no saved_model.pb",
        tmp_path / "versions": "2, the newest version, is not a SavedModel",
        tmp_path / "model.keras": "is a Keras file",
        keras_model / "saved_model.pb": "is a file: give the SavedModel's folder",
    }.items():
        with pytest.raises(UserError, match=message) as caught:
            verify.verify(path)
        assert str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"not a protobuf", None])
def test_a_damaged_graph_is_one_line(keras_model, tmp_path, content):
    folder = shutil.copytree(keras_model, tmp_path / "model")
    file = folder / "saved_model.pb"
    file.write_bytes(file.read_bytes()[:-50] if content is None else content)
    with pytest.raises(UserError, match=r"saved_model.pb is damaged") as caught:
        verify.verify(folder)
    assert "\n" not in str(caught.value)


def test_damaged_variables_fail_to_load(keras_model, tmp_path):
    folder = shutil.copytree(keras_model, tmp_path / "model")
    data = folder / "variables" / "variables.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:20])
    failed = failures(verify.verify(folder))
    assert set(failed) == {"load"}
    assert failed["load"].startswith(("DATA_LOSS", "OUT_OF_RANGE"))
    shutil.rmtree(folder / "variables")
    failed = failures(verify.verify(folder))
    assert set(failed) == {"load"}
    assert "variables.index is missing" in failed["load"]
