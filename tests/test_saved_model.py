"""The export: its contract, its versions, its size, and that it serves."""

import os

import h5py
import numpy as np
import pytest
import tensorflow as tf

from tfxformer import c_api, saved_model
from tfxformer.errors import UserError
from tfxformer.saved_model import export
from tfxformer.verify import verify

# DESIGN's contract: what goes in and what comes out, by name, type and shape.
CONTRACT = {
    "serving_default": (
        {"text": ("string", [None])},
        {"translation": ("string", [None]), "score": ("float32", [None])},
    ),
    "score": (
        {"text": ("string", [None]), "translation": ("string", [None])},
        {"score": ("float32", [None])},
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


def test_the_c_loader_translates_new_sentences(exported, translator):
    """Not the recorded ones: sentences that the export has not seen."""
    texts = np.array(
        [f"Tenho {n} gatos.".encode() for n in range(9)] + [b"\xff", b""], object
    )
    signature = {s.name: s for s in verify(exported).signatures}["serving_default"]
    outputs = {output.name: output.tensor for output in signature.outputs}
    job = c_api.Job({signature.inputs[0].tensor: texts}, list(outputs.values()))
    answers = c_api.run_apart(exported, [job], 120)
    assert not answers.python_tensorflow
    got = dict(zip(outputs, answers.results[0], strict=True))
    expected = translator.answers("serving_default", {"text": texts})
    assert got["translation"].tolist() == expected["translation"].tolist()
    np.testing.assert_allclose(got["score"], expected["score"], atol=1e-4)


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


def test_versions_count_up_and_none_is_touched(run_folder, tmp_path):
    first, _ = export(run_folder, tmp_path, "model")
    before = {p: p.stat().st_mtime_ns for p in first.rglob("*")}
    second, _ = export(run_folder, tmp_path, "model", "last")
    assert (first.name, second.name) == ("1", "2")
    assert {p: p.stat().st_mtime_ns for p in first.rglob("*")} == before
    assert sorted(p.name for p in (tmp_path / "model").iterdir()) == ["1", "2"]


def test_an_export_that_would_not_serve_is_not_published(
    run_folder, tmp_path, monkeypatch
):
    def refuse(path, translator):
        report = verify(path, translator)
        report.checks[0] = type(report.checks[0])("ops", False, "an op is missing")
        return report

    monkeypatch.setattr(saved_model, "verify", refuse)
    with pytest.raises(UserError, match="an op is missing"):
        export(run_folder, tmp_path, "model")
    assert list((tmp_path / "model").iterdir()) == []


def test_two_exports_at_once_take_two_numbers(tmp_path):
    folder = tmp_path / "model"
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "file").touch()
    for number in "abc":
        (tmp_path / number).mkdir()
        (tmp_path / number / "file").touch()
    real = os.rename
    paths = []

    def race(part, path):
        # Another export is faster, once.
        if not paths:
            paths.append(path)
            real(tmp_path / "b", path)
        real(part, path)

    saved_model.os.rename = race
    try:
        path = saved_model._publish(tmp_path / "a", folder)
    finally:
        saved_model.os.rename = real
    assert paths == [folder / "2"] and path == folder / "3"


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "a b", "é"])
def test_names_that_are_no_folder_are_refused(run_folder, tmp_path, name):
    with pytest.raises(UserError, match="model name"):
        export(run_folder, tmp_path, name)


def test_a_repository_that_is_a_file_is_named(run_folder, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="file"):
        export(run_folder, tmp_path / "file")


def test_an_export_is_not_exported_again(exported, tmp_path):
    with pytest.raises(UserError, match="exported model already"):
        export(exported, tmp_path)


def test_the_optimiser_stays_behind(exported, run_folder):
    with h5py.File(run_folder / "best.weights.h5") as file:
        assert "optimizer" in file
    names = [
        name
        for name, _ in tf.train.list_variables(
            str(exported / "variables" / "variables")
        )
    ]
    assert not any("optimizer" in name for name in names)
