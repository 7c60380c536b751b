"""Attention of a translation, in every layer and head."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tfxformer import Transformer, Translator
from tfxformer.layers import attention
from tfxformer.plots.attention_maps import attention_maps


@pytest.fixture(scope="module")
def deep(translator):
    size = translator.tokenizer.vocab_size
    sizes = {"num_layers": 2, "d_model": 8, "num_heads": 2, "dff": 8, "max_length": 12}
    sizes |= {"input_vocab_size": size, "target_vocab_size": size, "norm": "post"}
    return Translator(translator.tokenizer, Transformer(**sizes))


@pytest.mark.parametrize(
    ("model", "text"),
    [("translator", "O gato."), ("deep", "😀 مرحبا"), ("deep", "palavra " * 300)],
)
def test_attention_maps_equal_the_weights_of_the_model(
    model, text, request, monkeypatch
):
    """The same weights, recorded inside the model."""
    model = request.getfixturevalue(model)
    answer, maps = model.explain(text), attention_maps(model, text)
    inputs = ["<s>", *answer.target_tokens[:-1]]
    seen = []
    plain = attention.scaled_dot_product_attention

    def watched(*args, **options):
        output, weights = plain(*args, **options)
        seen.append(np.asarray(weights)[0])
        return output, weights

    monkeypatch.setattr(attention, "scaled_dot_product_attention", watched)
    ids = model.tokenizer.processor.piece_to_id
    pair = np.array([ids(answer.source_tokens)]), np.array([ids(inputs)])
    model.transformer(pair, training=False)
    layers = len(seen) // 3  # of the encoder, then self- and cross-attention in turn
    for kind, queries, keys, weights in (
        ("encoder", answer.source_tokens, answer.source_tokens, seen[:layers]),
        ("decoder", inputs, inputs, seen[layers::2]),
        ("cross", answer.target_tokens, answer.source_tokens, seen[layers + 1 :: 2]),
    ):
        assert maps[kind][:2] == (queries, keys)
        assert_allclose(maps[kind][2], np.stack(weights), atol=1e-5)
