"""Which models a page holds, what it refuses, how modules are joined."""

import re
from pathlib import Path

import node
import numpy as np
import oracle
import pytest

import tfxformer.page
from tfxformer import Translator
from tfxformer.config import load_config
from tfxformer.errors import UserError
from tfxformer.exporting.marian import import_marian
from tfxformer.page import bundle, page
from tfxformer.special_tokens import END_ID
from tfxformer.training.run import build_model

MARIAN = Path(__file__).parents[1] / "marian"
TEXTS = ["O gato bebe.", "É azul 😀"]


def assert_translates_as_in_python(translator):
    asked = [{"type": "translate", "text": text} for text in TEXTS]
    answers = node.ask_page(page(translator), *asked)
    parts = [answer["result"]["parts"] for answer in answers]
    assert [len(found) for found in parts] == [1, 1]
    sources = [found[0]["source"] for found in parts]
    tokenizer = translator.tokenizer
    assert sources == [[*ids, END_ID] for ids in tokenizer.encode(TEXTS)]
    node.assert_greedy(translator, sources, [found[0] for found in parts])


@pytest.mark.parametrize("preset", ["tiny", "tutorial"])
def test_a_model_of_a_small_preset_translates_as_in_python(preset):
    config = load_config(preset, overrides=["model.max_length=16"])  # short is fast
    model = oracle.randomise(build_model(config, node.tokenizer()))
    assert_translates_as_in_python(node.rounded(Translator(node.tokenizer(), model)))


@pytest.mark.slow
def test_a_model_of_the_preset_base_is_too_large():
    model = build_model(load_config("base"), node.tokenizer())
    with pytest.raises(UserError, match="the weights have 89 MB in float16"):
        page(Translator(node.tokenizer(), model))


def test_an_imported_models_tokenizer_is_refused():
    with pytest.raises(UserError, match="the rules of an imported model"):
        page(import_marian(MARIAN / "shared"))


def test_modules_share_no_names():
    script = bundle("worker.js")
    assert not re.search("^(import|export) ", script, re.MULTILINE)
    order = re.findall(r'^modules\["([\w.]+)"\] = ', script, re.MULTILINE)
    assert order[0] == "matrix.js" and order[-1] == "worker.js" and len(order) == 5


def test_an_activation_that_the_page_does_not_know_is_told():
    with pytest.raises(UserError, match="activation = 'gelu': the page knows only"):
        page(node.tiny(num_layers=1, activation="gelu"))


def test_the_page_knows_each_setting_of_a_model():
    """A new argument of `Transformer` needs a place in model.js, then in this list."""
    known = "num_layers d_model num_heads dff input_vocab_size target_vocab_size norm "
    known += "max_length learned_positions use_positions tie_embeddings activation "
    known += "output_bias num_decoder_layers "
    known += "dropout_rate attention_dropout activation_dropout"  # in training only
    assert set(node.tiny().transformer.config) == set(known.split())


def test_weights_that_do_not_fit_are_told(monkeypatch):
    tiny = node.new_tiny(num_layers=1)
    monkeypatch.setattr(tfxformer.page, "MOST_BYTES", 10_000)
    with pytest.raises(UserError, match="holds at most 0 MB: choose a smaller model"):
        page(tiny)
    monkeypatch.undo()
    weight = tiny.transformer.encoder.pos_embedding.embedding.embeddings
    for value in (1e6, np.nan):
        weight.assign(np.full(weight.shape, value))
        with pytest.raises(UserError, match="has a weight that float16 cannot hold"):
            page(tiny)
