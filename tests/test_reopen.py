"""Exports opened as Keras models again: the same weights, the same answers."""

import json
import shutil

import keras
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tfxformer import DecodingOptions, Tokenizer, Transformer, Translator
from tfxformer.corpora import load
from tfxformer.errors import UserError
from tfxformer.exporting.metadata import METADATA_FILE
from tfxformer.exporting.reopen import load_translator, read_export
from tfxformer.exporting.saved_model import write

SENTENCES = [pair.source for pair in load("phrasebook", "test", cleaned=False)[0][:16]]


@pytest.fixture(scope="module")
def reopened(exported):
    return load_translator(exported)


def test_the_weights_are_the_run_s(translator, reopened):
    expected, got = translator.transformer.weights, reopened.transformer.weights
    assert len(expected) == len(got) > 20
    for one, other in zip(expected, got, strict=True):
        assert_array_equal(one, other)
    assert reopened.tokenizer.model == translator.tokenizer.model


def test_it_answers_as_the_run_and_the_export_do(translator, served, reopened):
    assert reopened(SENTENCES) == translator(SENTENCES) == served(SENTENCES)


def test_it_does_what_an_export_cannot(exported):
    options = DecodingOptions(beam_size=3, n_best=2)
    lists = load_translator(exported, options=options).n_best(SENTENCES[:2])
    assert [len(found) for found in lists] == [2, 2]


def test_a_run_folder_is_opened_as_ever(run_folder, translator):
    assert load_translator(run_folder)(SENTENCES[:3]) == translator(SENTENCES[:3])


KINDS = [
    ("float32", {"norm": "post", "use_positions": False}),
    ("float16", {"norm": "post", "learned_positions": True}),
    ("int8", {"norm": "pre", "tie_embeddings": True, "num_decoder_layers": 1}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "kind"), KINDS, ids=str)
def test_every_precision_and_kinds_of_model(tmp_path, precision, kind):
    keras.utils.set_random_seed(1)
    tokenizer = Tokenizer.train(["um gato", "a cat"] * 50, vocab_size=300)
    size = tokenizer.vocab_size
    transformer = Transformer(
        num_layers=2,
        d_model=16,
        num_heads=2,
        dff=32,
        input_vocab_size=size,
        target_vocab_size=size,
        max_length=16,
        **kind,
    )
    translator = Translator(tokenizer, transformer)
    for weight in transformer.weights:  # biases and norms that are not all alike
        weight.assign(weight + 0.1 * keras.random.normal(weight.shape))
    before = [np.asarray(weight) for weight in transformer.weights]
    write(translator, tmp_path / "1", precision)
    _, reopened = read_export(tmp_path / "1")
    for weight, other in zip(transformer.weights, reopened.weights, strict=True):
        # Writing has rounded the translator's own.
        assert_array_equal(weight, other)
    changed = [
        not np.array_equal(old, weight)
        for old, weight in zip(before, transformer.weights, strict=True)
    ]
    assert any(changed) == (precision != "float32")


# --- What cannot be opened ---


@pytest.fixture
def copy(exported, tmp_path):
    return shutil.copytree(exported, tmp_path / "7")


def test_an_earlier_export_says_so(copy):
    file = copy / METADATA_FILE
    metadata = json.loads(file.read_text("utf-8"))
    del metadata["model"]["architecture"]
    file.write_text(json.dumps(metadata), "utf-8")
    with pytest.raises(UserError, match="an earlier tfxformer exported it"):
        read_export(copy)


def test_a_foreign_saved_model(copy):
    (copy / METADATA_FILE).unlink()
    with pytest.raises(UserError, match="none that tfxformer exported"):
        read_export(copy)


@pytest.mark.parametrize(
    "file",
    [
        "saved_model.pb",
        "variables/variables.index",
        "variables/variables.data-00000-of-00001",
    ],
)
@pytest.mark.parametrize("damage", ["gone", "cut", "nonsense"])
def test_damage_is_one_clear_line(copy, file, damage):
    path = copy / file
    content = path.read_bytes()
    path.unlink()
    if damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "nonsense":
        path.write_bytes(b"\xff\x00 nonsense" * 100)
    with pytest.raises(UserError) as caught:
        read_export(copy)
    assert str(copy) in str(caught.value) and "\n" not in str(caught.value)


def test_weights_of_another_architecture(copy):
    file = copy / METADATA_FILE
    metadata = json.loads(file.read_text("utf-8"))
    metadata["model"]["architecture"]["dff"] += 1
    file.write_text(json.dumps(metadata), "utf-8")
    with pytest.raises(UserError, match="damaged"):
        read_export(copy)


def test_nothing_there(tmp_path):
    with pytest.raises(UserError, match="there is no such run folder"):
        load_translator(tmp_path / "none")
