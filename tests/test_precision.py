"""Exports with weights in fewer bits: their size, and that they answer alike."""

import numpy as np
import pytest
import tensorflow as tf

from tfxformer import Translator, cli
from tfxformer.errors import UserError
from tfxformer.exporting.metadata import read_metadata
from tfxformer.exporting.precision import NarrowWeights, round_weights
from tfxformer.exporting.saved_model import export
from tfxformer.exporting.verify import verify

TEXTS = [f"Tenho {n} gatos." for n in range(9)] + ["O gato bebe leite.", ""]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("int8", marks=pytest.mark.slow),
        pytest.param("float16", marks=pytest.mark.slow),
    ],
)
def narrow(request, run_folder, tmp_path_factory):
    """A precision, and a proven export of it."""
    path, report = export(
        run_folder, tmp_path_factory.mktemp("narrow"), precision=request.param
    )
    assert report.ok, report.describe()
    return request.param, path


def weights_file(path):
    return path / "variables" / "variables.data-00000-of-00001"


def test_the_file_shrinks(narrow, exported):
    precision, path = narrow
    whole = weights_file(exported).stat().st_size
    ratio = weights_file(path).stat().st_size / whole
    # Biases and norms, and int8's scales, are more of a small model than of others.
    bounds = {"float16": (0.5, 0.54), "int8": (0.25, 0.33)}
    least, most = bounds[precision]
    assert least < ratio < most
    assert read_metadata(path)["model"]["precision"] == precision
    assert read_metadata(exported)["model"]["precision"] == "float32"


def test_no_matrix_is_stored_in_full(narrow, translator):
    precision, path = narrow
    reader = tf.train.load_checkpoint(str(path / "variables" / "variables"))
    types = reader.get_variable_to_dtype_map()
    stored = [
        types[name]
        for name, shape in reader.get_variable_to_shape_map().items()
        if len(shape) > 1 and shape[-1] > 1
    ]
    matrices = [x for x in translator.transformer.weights if len(x.shape) > 1]
    assert stored == [tf.as_dtype(precision)] * len(matrices)


def test_it_translates_and_scores_nearly_as_float32_does(narrow, translator):
    precision, path = narrow
    loaded = Translator.load(path)
    # What eight bits change is seen in a model as small and as unsure as this one.
    same, tolerance = {"float16": (0.9, 2e-3), "int8": (0.5, 0.05)}[precision]
    expected = translator(TEXTS)
    got = loaded(TEXTS)
    assert np.mean([x == y for x, y in zip(got, expected, strict=True)]) >= same
    np.testing.assert_allclose(
        loaded.score(TEXTS, expected),
        translator.score(TEXTS, expected),
        atol=tolerance,
    )


def test_it_answers_exactly_as_the_rounded_model(narrow, run_folder):
    precision, path = narrow
    translator = Translator.load(run_folder)
    inputs = {"text": np.array(TEXTS, object)}
    different = Translator.load(path).answers("translate", inputs)
    whole = translator.answers("translate", inputs)
    assert np.abs(whole["score"] - different["score"]).max() > 1e-6
    round_weights(translator.transformer, precision)
    rounded = translator.answers("translate", inputs)
    np.testing.assert_array_equal(rounded["translation"], different["translation"])
    np.testing.assert_allclose(rounded["score"], different["score"], atol=1e-5)
    assert verify(path, translator).ok


def test_two_precisions_in_one_process_keep_apart(narrow, run_folder, exported):
    """Their widened matrices have names, and names are shared."""
    _, path = narrow
    inputs = {"text": np.array(TEXTS, object)}
    first, second = Translator.load(path), Translator.load(exported)
    before = first.answers("translate", inputs)["score"]
    translator = Translator.load(run_folder)
    for matrix in translator.transformer.weights:
        matrix.assign(matrix * 0.5)
    NarrowWeights(translator.transformer, "float16")
    second.answers("translate", inputs)
    np.testing.assert_array_equal(first.answers("translate", inputs)["score"], before)


@pytest.mark.slow
def test_xla_goes_with_it(run_folder, tmp_path):
    path, report = export(run_folder, tmp_path, xla=True, precision="float16")
    assert report.ok and path.exists()


@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_rounding_moves_no_value_far(run_folder, precision):
    transformer = Translator.load(run_folder).transformer
    before = [x.numpy() for x in transformer.weights]
    round_weights(transformer, None)
    round_weights(transformer, "float32")
    for old, new in zip(before, transformer.weights, strict=True):
        np.testing.assert_array_equal(new.numpy(), old)
    round_weights(transformer, precision)
    for old, new in zip(before, transformer.weights, strict=True):
        if old.ndim == 1:
            np.testing.assert_array_equal(new.numpy(), old)
        elif precision == "float16":
            np.testing.assert_array_equal(new.numpy(), old.astype("float16"))
        else:
            half_a_step = np.abs(old).max(-1, keepdims=True) / 254
            assert np.all(np.abs(new.numpy() - old) <= half_a_step * 1.001)


def test_a_row_of_zeros_stays_one(run_folder):
    transformer = Translator.load(run_folder).transformer
    embedding = next(x for x in transformer.weights if "embeddings" in x.path)
    value = embedding.numpy()
    value[3] = 0
    embedding.assign(value)
    round_weights(transformer, "int8")
    assert np.all(embedding.numpy()[3] == 0)
    assert np.all(np.isfinite(embedding.numpy()))


@pytest.mark.parametrize("precision", ["bfloat16", "int4", ""])
def test_others_are_refused_before_any_work(tmp_path, precision):
    with pytest.raises(UserError, match=f"precision '{precision}'.*float16 and int8"):
        export(tmp_path / "no run", tmp_path, precision=precision)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--precision", "int4"], "--precision 'int4': there are float32, float16"),
        (
            ["--precision", "int8", "--format", "ctranslate2"],
            "--precision int8: CTranslate2 takes its compute type when it loads",
        ),
    ],
)
def test_the_command_line_refuses_in_one_line(arguments, line, monkeypatch, capfd):
    command = ["tfxformer", "export", "--run", "no", *arguments]
    monkeypatch.setattr("sys.argv", command)
    with pytest.raises(SystemExit):
        cli.main()
    said = capfd.readouterr().err.strip().splitlines()
    assert len(said) == 1 and line in said[0]


@pytest.mark.slow
def test_the_command_line_compares_with_the_run_rounded_alike(
    narrow, run_folder, monkeypatch, capfd
):
    _, path = narrow
    command = ["tfxformer", "verify", path, "--run", run_folder]
    monkeypatch.setattr("sys.argv", [str(word) for word in command])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 0, capfd.readouterr()
