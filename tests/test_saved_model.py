"""The export: its contract, its versions, its size, and that it serves."""

import shutil

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from tfxformer.decoding import DecodingOptions
from tfxformer.decoding.options import NEVER
from tfxformer.errors import UserError
from tfxformer.exporting import metadata, saved_model
from tfxformer.exporting.metadata import read_metadata
from tfxformer.exporting.saved_model import export
from tfxformer.exporting.verify import verify
from tfxformer.translator import Translator

# DESIGN's contract: what goes in and what comes out, by name, type and shape.
TRANSLATE = (
    {"text": ("string", [None])},
    {"translation": ("string", [None]), "score": ("float32", [None])},
)
CONTRACT = {
    "translate": TRANSLATE,
    "serving_default": TRANSLATE,
    "translate_nbest": (
        {"text": ("string", [None])},
        {"translations": ("string", [None, 4]), "scores": ("float32", [None, 4])},
    ),
    "attention": (
        {"text": ("string", [None])},
        {
            "source_tokens": ("string", [None, None]),
            "target_tokens": ("string", [None, None]),
            "attention": ("float32", [None, 1, 4, None, None]),
        },
    ),
    "score": (
        {"text": ("string", [None]), "translation": ("string", [None])},
        {"score": ("float32", [None])},
    ),
    "count": (
        {"text": ("string", [None])},
        {"tokens": ("int32", [None]), "limit": ("int32", [None])},
    ),
    "tokenize": (
        {"text": ("string", [None])},
        {"ids": ("int32", [None, None])},
    ),
    "detokenize": (
        {"ids": ("int32", [None, None])},
        {"text": ("string", [None])},
    ),
}


def test_signatures_are_the_contract(exported):
    signatures = {s.name: s for s in verify(exported).signatures}
    assert set(CONTRACT) == set(signatures)
    for name, (inputs, outputs) in CONTRACT.items():
        for expected, tensors in (
            (inputs, signatures[name].inputs),
            (outputs, signatures[name].outputs),
        ):
            found = {t.name: (t.dtype, list(t.shape)) for t in tensors}
            assert found == expected


def test_the_server_runs_it_and_answers_as_python_does(exported, translator):
    report = verify(exported, translator)
    assert report.ok, report.describe()
    names = {check.name for check in report.checks}
    assert {"ops", "xla", "load"} <= names
    assert {f"run {name}" for name in CONTRACT} <= names


def test_a_session_translates_new_sentences(exported, translator, tmp_path):
    """Not the recorded ones: sentences that the export has not seen."""
    texts = np.array(
        [f"Tenho {n} gatos.".encode() for n in range(9)] + [b"\xff", b""], object
    )
    inputs = {"text": texts}
    expected = translator.answers("translate", inputs)
    copy = shutil.copytree(exported, tmp_path / "1")
    examples = metadata.read_metadata(copy)["examples"]
    examples.append(metadata.example("serving_default", inputs, expected))
    metadata.write_metadata(copy, examples)
    assert verify(copy).ok


def test_the_best_of_many_is_best_and_scored_as_score_does(exported, translator):
    texts = np.array([b"O gato preto bebeu o leite.", b"Bom dia!", b""], object)
    answer = translator.answers("translate_nbest", {"text": texts})
    translations, scores = answer["translations"], answer["scores"]
    assert np.all(np.diff(scores, axis=1) <= 0)
    for row in range(2):
        assert len({*translations[row]}) > 1
    assert translations[2].tolist() == [b""] * 4
    assert scores[2].tolist() == [0, NEVER, NEVER, NEVER]
    assert translator.n_best([""]) == [[("", 0.0)]]


@pytest.mark.slow
def test_options_are_chosen_at_export_and_recorded(run_folder, tmp_path):
    options = DecodingOptions(beam_size=3, n_best=2, length_penalty=0.6, max_length=9)
    path, report = export(run_folder, tmp_path, "model", options=options)
    assert report.ok
    decoding = read_metadata(path)["model"]["decoding"]
    expected = {"method": "beam", "beam_size": 3, "length_penalty": 0.6}
    assert expected.items() <= decoding["translate"].items()
    assert decoding["translate_nbest"]["n_best"] == 2
    python = Translator.load(run_folder, options=options)
    loaded = Translator.load(path)
    texts = ["O gato preto bebeu o leite.", "Bom dia!"]
    assert loaded(texts) == python(texts)
    assert loaded.n_best(texts)[0][0][0] == python(texts)[0]
    assert all(len(found) == 2 for found in loaded.n_best(texts))
    with pytest.raises(UserError, match="chosen at its export"):
        Translator.load(path, options=options)


@pytest.mark.slow
def test_xla_gives_the_same_and_names_its_flag(run_folder, translator, tmp_path):
    path, report = export(run_folder, tmp_path, "model", xla=True)
    assert report.ok
    assert "--xla_cpu_compilation_enabled=true" in report.describe()
    assert not verify(path).ok  # a server without the flag would refuse
    texts = ["O gato preto bebeu o leite.", "Bom dia!", "", "Onde est\u00e1 o gato?"]
    loaded = Translator.load(path)
    assert loaded(texts) == translator(texts)
    one, other = loaded.explain(texts[0]), translator.explain(texts[0])
    assert one.target_tokens == other.target_tokens
    np.testing.assert_allclose(one.attention, other.attention, atol=1e-4)


def test_the_weights_are_in_it_once(exported, translator):
    """The size of the whole export is held by the quickstart's test (slow)."""
    weights = sum(int(np.prod(v.shape)) for v in translator.transformer.weights)
    variables = tf.train.list_variables(str(exported / "variables" / "variables"))
    stored = sum(int(np.prod(shape)) for _, shape in variables)
    assert translator.transformer.count_params() <= weights
    assert stored <= 1.001 * weights
    # The graph's own node, and Python's loader's function.
    graph = (exported / "saved_model.pb").read_bytes()
    assert graph.count(translator.tokenizer.model) == 2


@pytest.mark.slow
def test_versions_count_up_and_none_is_touched(run_folder, tmp_path):
    first, _ = export(run_folder, tmp_path, "model")
    before = {p: p.stat().st_mtime_ns for p in first.rglob("*")}
    second, _ = export(run_folder, tmp_path, "model", "last")
    assert (first.name, second.name) == ("1", "2")
    assert {p: p.stat().st_mtime_ns for p in first.rglob("*")} == before
    assert sorted(p.name for p in (tmp_path / "model").iterdir()) == ["1", "2"]


@pytest.mark.slow
def test_an_export_that_would_not_serve_is_not_published(
    run_folder, tmp_path, monkeypatch
):
    def refuse(path, allow_xla):
        report = verify(path, allow_xla=allow_xla)
        report.checks[0] = type(report.checks[0])("ops", False, "an op is missing")
        return report

    monkeypatch.setattr(saved_model, "verify", refuse)
    with pytest.raises(UserError, match="an op is missing"):
        export(run_folder, tmp_path, "model")
    assert list((tmp_path / "model").iterdir()) == []


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "a b", "é"])
def test_names_that_are_no_folder_are_refused(run_folder, tmp_path, name):
    with pytest.raises(UserError, match="model name"):
        export(run_folder, tmp_path, name)


def test_a_repository_that_is_a_file_is_named(run_folder, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="file"):
        export(run_folder, tmp_path / "file")


def test_translate_and_serving_default_are_one_function(exported):
    model = SavedModel.FromString((exported / "saved_model.pb").read_bytes())
    (meta_graph,) = model.meta_graphs
    graph = meta_graph.graph_def
    functions = {f.signature.name: f.node_def for f in graph.library.function}
    calls = {n.name: n.attr["f"].func.name for n in graph.node}
    called = []
    for name in ("translate", "serving_default"):
        output = meta_graph.signature_def[name].outputs["translation"].name
        wrapper = functions[calls[output.partition(":")[0]]]
        called += [n.attr["f"].func.name for n in wrapper if "f" in n.attr]
    assert len(called) == 2 and len({*called}) == 1


def test_the_loaded_object_translates_strings_of_any_shape(exported, translator):
    loaded = tf.saved_model.load(str(exported))
    texts = ["O gato preto bebeu o leite.", "Bom dia!"]
    expected = [translator(text).encode() for text in texts]
    one = loaded(texts[0])
    assert one.shape == () and one.numpy() == expected[0]
    assert loaded(texts).numpy().tolist() == expected
    assert loaded(tf.constant(texts)).numpy().tolist() == expected
    assert loaded(np.array([texts])).numpy().tolist() == [expected]


def test_an_export_is_exported_again_with_its_weights(exported, tmp_path, served):
    path, report = export(exported, tmp_path, "again", precision="float16")
    assert report.ok
    texts = ["O gato preto bebeu o leite.", "Bom dia!"]
    assert Translator.load(path)(texts) == served(texts)


def test_the_optimiser_stays_behind(exported, run_folder):
    state = max(run_folder.glob("checkpoints/*/state.npz"))
    with np.load(state) as arrays:
        assert any(name.startswith("optimizer") for name in arrays.files)
    names = [
        name
        for name, _ in tf.train.list_variables(
            str(exported / "variables" / "variables")
        )
    ]
    assert not any("optimizer" in name for name in names)
