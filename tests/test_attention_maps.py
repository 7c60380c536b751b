"""All the attention of a translation, against the layers' own and NumPy's."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tfxformer import Transformer, Translator
from tfxformer.attention_maps import attention_maps
from tfxformer.errors import UserError
from tfxformer.tokenizer import START_ID

SENTENCE = "O gato preto bebeu o leite."


@pytest.fixture(scope="module")
def maps(translator):
    return attention_maps(translator, SENTENCE)


@pytest.fixture(scope="module")
def deep(translator):
    """Several layers, untrained, of either kind of norm."""
    size = translator.tokenizer.vocab_size
    return {
        norm: Translator(
            translator.tokenizer,
            Transformer(
                num_layers=3,
                d_model=16,
                num_heads=2,
                dff=32,
                input_vocab_size=size,
                target_vocab_size=size,
                norm=norm,
                max_length=24,
            ),
        )
        for norm in ("pre", "post")
    }


def test_tokens_are_those_of_the_translation(translator, maps):
    explanation = translator.explain(SENTENCE)
    assert maps.source_tokens == explanation.source_tokens
    assert maps.target_tokens == explanation.target_tokens
    assert maps.source_tokens[-1] == maps.target_tokens[-1] == "</s>"
    start = translator.tokenizer.tokens([START_ID])[0]
    assert maps.target_inputs == [start, *maps.target_tokens[:-1]]


def test_cross_attention_is_what_the_translation_was_written_with(translator, maps):
    explanation = translator.explain(SENTENCE)
    assert_allclose(maps.cross, explanation.attention, atol=1e-5)


def test_rows_sum_to_one_and_the_future_is_hidden(maps):
    source, target = len(maps.source_tokens), len(maps.target_tokens)
    assert maps.encoder.shape[2:] == (source, source)
    assert maps.decoder.shape[2:] == (target, target)
    assert maps.cross.shape[2:] == (target, source)
    for weights in (maps.encoder, maps.decoder, maps.cross):
        assert_allclose(weights.sum(-1), 1, atol=1e-5)
    future = np.triu(np.ones((target, target), bool), 1)
    assert (maps.decoder[:, :, future] == 0).all()


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_every_layer_is_what_the_model_computes(deep, norm, monkeypatch):
    """The same, seen where the model itself computes it."""
    from tfxformer.layers import attention

    translator = deep[norm]
    maps = attention_maps(translator, "Um gato")
    seen = []
    plain = attention.scaled_dot_product_attention

    def watched(*args):
        output, weights = plain(*args)
        seen.append(np.asarray(weights)[0])
        return output, weights

    monkeypatch.setattr(attention, "scaled_dot_product_attention", watched)
    ids = translator.tokenizer.processor.piece_to_id
    translator.transformer(
        (np.array([ids(maps.source_tokens)]), np.array([ids(maps.target_inputs)])),
        training=False,
    )
    assert len(seen) == 9  # three of the encoder, then self and cross in turn
    assert_allclose(maps.encoder, np.stack(seen[:3]), atol=1e-6)
    assert_allclose(maps.decoder, np.stack(seen[3::2]), atol=1e-6)
    assert_allclose(maps.cross, np.stack(seen[4::2]), atol=1e-6)
    assert np.ptp(maps.encoder) > 0.01


def test_kinds_come_with_their_tokens(maps):
    for kind in ("encoder", "decoder", "cross"):
        queries, keys, weights = maps.of_kind(kind)
        assert weights.shape[2:] == (len(queries), len(keys))
    assert maps.of_kind("cross")[0] == maps.target_tokens
    assert maps.of_kind("decoder")[0] == maps.target_inputs
    with pytest.raises(UserError, match="'self': there are encoder, decoder, cross"):
        maps.of_kind("self")


@pytest.mark.parametrize("text", ["", " ", "palavra " * 300, "😀 \0 مرحبا"])
def test_odd_texts_have_maps(translator, text):
    maps = attention_maps(translator, text)
    assert len(maps.source_tokens) <= translator.max_length
    for kind in ("encoder", "decoder", "cross"):
        queries, keys, weights = maps.of_kind(kind)
        assert weights.shape[2:] == (len(queries), len(keys))
        assert np.isfinite(weights).all()
