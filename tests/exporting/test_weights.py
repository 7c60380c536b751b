"""An export's weights: float16 in its files, and a Keras model again; averages."""

import json
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_array_equal

from tfxformer import DecodingOptions, Tokenizer, Transformer, Translator
from tfxformer.corpora import load
from tfxformer.errors import UserError
from tfxformer.exporting import saved_model
from tfxformer.exporting.repository import METADATA_FILE
from tfxformer.exporting.saved_model import average_checkpoints, export, write
from tfxformer.exporting.verify import verify
from tfxformer.exporting.weights import HalfWeights, read_export
from tfxformer.training.run import Run

SENTENCES = [pair.source for pair in load("phrasebook", "test", cleaned=False)[0][:4]]


def small_translator(seed=1, **kind):
    keras.utils.set_random_seed(seed)
    tokenizer = Tokenizer.train(["um gato", "a cat"] * 50, vocab_size=300)
    size = tokenizer.vocab_size
    sizes = {"num_layers": 2, "d_model": 16, "num_heads": 2, "dff": 32}
    vocabularies = {"input_vocab_size": size, "target_vocab_size": size}
    transformer = Transformer(**sizes, **vocabularies, max_length=16, **kind)
    transformer.build()
    for weight in transformer.weights:  # biases and norms that are not all alike
        weight.assign(weight + 0.1 * keras.random.normal(weight.shape))
    return Translator(tokenizer, transformer)


def test_an_export_opens_as_a_keras_model(exported, translator, served):
    opened = Translator.load(exported)
    for one, other in zip(
        translator.transformer.weights, opened.transformer.weights, strict=True
    ):
        assert_array_equal(one, other)
    assert opened.tokenizer.model == translator.tokenizer.model
    assert opened(SENTENCES) == served(SENTENCES)
    options = DecodingOptions(beam_size=3, n_best=2)
    assert Translator.load(exported, options=options).options == options
    with pytest.raises(UserError, match=r"checkpoint 'last': .* an exported model"):
        Translator.load(exported, "last")


KINDS = [
    ("float32", {"norm": "post", "use_positions": False}),
    ("float16", {"norm": "post", "learned_positions": True}),
    ("float16", {"norm": "pre", "tie_embeddings": True, "num_decoder_layers": 1}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "kind"), KINDS, ids=str)
def test_every_precision_and_kinds_of_model(tmp_path, precision, kind):
    translator = small_translator(**kind)
    before = [weight.numpy() for weight in translator.transformer.weights]
    write(translator, tmp_path / "1", precision=precision)
    assert verify(tmp_path / "1").ok
    loaded = tf.saved_model.load(str(tmp_path / "1")).signatures["translate"]
    texts = tf.constant(["um gato", "gato"])
    first = loaded(text=texts)["score"].numpy()
    _, opened = read_export(tmp_path / "1")
    for old, own, new in zip(
        before, translator.transformer.weights, opened.weights, strict=True
    ):
        # Writing rounds the translator's own matrices alike.
        assert_array_equal(own, new)
        half = precision == "float16" and old.ndim > 1
        assert_array_equal(new, old.astype("float16") if half else old)
    # The float16 values alone are in the file.
    reader = tf.train.load_checkpoint(str(tmp_path / "1" / "variables" / "variables"))
    types = reader.get_variable_to_dtype_map()
    shapes = reader.get_variable_to_shape_map()
    stored = {types[name] for name, shape in shapes.items() if len(shape) > 1}
    assert stored == {tf.as_dtype(precision)}
    # Another model's widened matrices in the same process are kept apart.
    HalfWeights(small_translator(seed=2, **kind).transformer)
    assert_array_equal(loaded(text=texts)["score"], first)


def test_other_precisions_are_refused_before_any_work(tmp_path):
    with pytest.raises(UserError, match="precision 'int8': there are float32 and fl"):
        export(tmp_path / "no run", tmp_path, precision="int8")


# --- Averages of checkpoints ---


def test_the_mean_of_the_newest_checkpoints(run_folder):
    transformer = Translator.load(run_folder).transformer
    sets = []
    for checkpoint in saved_model.checkpoints.list_checkpoints(Run.open(run_folder))[
        :2
    ]:
        transformer.load_weights(checkpoint.weights_file)
        sets.append(transformer.get_weights())
    average_checkpoints(transformer, run_folder, 2)
    for weight, *two in zip(transformer.weights, *sets, strict=True):
        np.testing.assert_allclose(weight, np.mean(two, axis=0), atol=1e-6)
        assert not np.array_equal(*two)
    with pytest.raises(UserError, match=r"has \d checkpoints, not 99: .*keep_last"):
        average_checkpoints(transformer, run_folder, 99)


def test_a_damaged_checkpoint_is_named(run_folder, tmp_path):
    copy = shutil.copytree(run_folder, tmp_path / "copy")
    newest = saved_model.checkpoints.list_checkpoints(Run.open(copy))[0]
    data = bytearray(newest.weights_file.read_bytes())
    data[-1] ^= 1
    newest.weights_file.write_bytes(data)
    transformer = Translator.load(copy).transformer
    with pytest.raises(UserError, match=f"{newest.path.name}/.*: damaged"):
        average_checkpoints(transformer, copy, 1)


# --- What cannot be opened ---


@pytest.fixture
def copy(exported, tmp_path):
    return shutil.copytree(exported, tmp_path / "7")


def test_a_foreign_saved_model_is_refused(copy):
    (copy / METADATA_FILE).unlink()
    with pytest.raises(UserError, match="none that tfxformer exported"):
        Translator.load(copy)


@pytest.mark.parametrize(
    "file", ["saved_model.pb", "variables/variables.index", "variables/variables.data"]
)
@pytest.mark.parametrize("damage", ["gone", "cut", "nonsense"])
def test_damage_is_one_clear_line(copy, file, damage):
    path = next(copy.glob(f"{file}*"))
    content = path.read_bytes()
    path.unlink()
    if damage != "gone":
        half = content[: len(content) // 2]
        path.write_bytes(half if damage == "cut" else b"\xff\x00 nonsense" * 100)
    with pytest.raises(UserError) as caught:
        read_export(copy)
    assert str(copy) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("change", [{"dff": 129}, {"num_layers": 2}, {"unheard_of": 1}])
def test_weights_of_another_architecture_are_refused(copy, change):
    file = copy / METADATA_FILE
    metadata = json.loads(file.read_text("utf-8"))
    metadata["model"]["architecture"] |= change
    file.write_text(json.dumps(metadata), "utf-8")
    with pytest.raises(UserError, match="damaged"):
        read_export(copy)
