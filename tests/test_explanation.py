"""What a translation looked at."""

import numpy as np
import pytest

from tfxformer.explanation import Explanation

SPACE = "\u2581"


def test_padding_is_left_out():
    attention = np.arange(24, dtype="float32").reshape(1, 2, 3, 4)
    explanation = Explanation.of(
        [b"a", "\u2581b".encode(), b"", b""], [b"c", b"</s>", b""], attention
    )
    assert explanation.source_tokens == ["a", f"{SPACE}b"]
    assert explanation.target_tokens == ["c", "</s>"]
    assert explanation.attention.tolist() == attention[:, :, :2, :2].tolist()


def test_pieces_of_a_word_are_aligned_together():
    source = [f"{SPACE}o", f"{SPACE}ga", "to", "</s>"]
    target = [f"{SPACE}the", f"{SPACE}c", "at", "</s>"]
    weights = np.array(
        [
            [0.9, 0.05, 0.05, 0.0],
            [0.4, 0.3, 0.2, 0.1],  # "o" has most of any piece, "gato" of any word
            [0.1, 0.1, 0.1, 0.7],
            [0.0, 0.0, 0.0, 1.0],
        ]
    )
    aligned = Explanation(source, target, weights[None, None]).alignment()
    assert [pair[:2] for pair in aligned] == [("the", "o"), ("cat", "gato")]
    np.testing.assert_allclose([weight for *_, weight in aligned], [0.9, 0.35])


def test_layers_and_heads_count_alike():
    one, other = np.eye(2), 1 - np.eye(2)
    attention = np.stack([np.stack([one, one]), np.stack([one, other])])
    explanation = Explanation([f"{SPACE}a", f"{SPACE}b"], [f"{SPACE}x"] * 2, attention)
    assert explanation.alignment() == [("x", "a", 0.75), ("x", "b", 0.75)]


@pytest.mark.parametrize("tokens", [[], ["</s>"], [SPACE]])
def test_no_words_align_with_nothing(tokens):
    explanation = Explanation(["</s>"], tokens, np.ones((1, 1, len(tokens), 1)))
    assert explanation.alignment() == []


def test_a_translation_is_explained_by_the_weights_that_wrote_it(translator):
    text = "O gato preto bebeu o leite."
    explanation = translator.explain(text)
    written = "".join(explanation.target_tokens[:-1]).replace(SPACE, " ").strip()
    assert written == translator(text)
    np.testing.assert_allclose(explanation.attention.sum(-1), 1, atol=1e-5)
    # A forced pass over what was written has the same weights.
    ids = [
        translator.tokenizer.processor.PieceToId(t) for t in explanation.source_tokens
    ]
    target = [
        translator.tokenizer.processor.PieceToId(t) for t in explanation.target_tokens
    ]
    model = translator.transformer
    model((np.array([ids]), np.array([[2, *target[:-1]]])), training=False)
    np.testing.assert_allclose(
        model.decoder.last_attn_scores[0], explanation.attention[-1], atol=1e-5
    )


def test_nothing_is_explained_by_nothing(translator):
    explanation = translator.explain("")
    assert explanation.target_tokens == [] and explanation.alignment() == []
