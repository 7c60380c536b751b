"""The folded model computes what the model computes."""

import numpy as np
import oracle
import pytest
from numpy.testing import assert_allclose

from tfxformer.decoding.folded import FoldedTransformer

SOURCE = np.array([[7, 8, 9, 3, 0, 0], [4, 3, 0, 0, 0, 0], [5, 6, 7, 8, 9, 3]])
TARGET = np.array([[2, 8, 9, 10, 0], [2, 4, 0, 0, 0], [2, 7, 9, 5, 4]])
VARIANTS = {
    "post-norm": {"norm": "post"},
    "pre-norm, learned positions": {"norm": "pre", "learned_positions": True},
    "tied, without positions": {
        "norm": "pre",
        "tie_embeddings": True,
        "use_positions": False,
    },
    "no positions": {"use_positions": False, "learned_positions": True},
    "tied target, output bias": {"tie_embeddings": "target", "output_bias": True},
    "swish, deep encoder": {
        "norm": "pre",
        "activation": "swish",
        "num_layers": 3,
        "num_decoder_layers": 1,
    },
}


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_logits_and_attention_equal_the_models(variant):
    model = oracle.tiny_transformer(max_length=12, **variant)
    folded = FoldedTransformer(model)
    hidden, attention = folded.forward(TARGET, folded.encode(SOURCE))
    tokens = TARGET.reshape(-1) != 0
    expected = model((SOURCE, TARGET)).numpy().reshape(tokens.size, -1)
    assert_allclose(folded.project(hidden)[tokens], expected[tokens], atol=2e-5)
    expected = oracle.cross_attention(model).swapaxes(1, 3)
    attention = attention.numpy().swapaxes(1, 3)  # (batch, target, heads, layers, S)
    assert_allclose(attention[TARGET != 0], expected[TARGET != 0], atol=1e-5)


def test_a_source_longer_than_the_model_reads_is_refused():
    folded = FoldedTransformer(oracle.tiny_transformer(max_length=5))
    with pytest.raises(ValueError, match="6 positions exceed max_length=5"):
        folded.encode(SOURCE)
