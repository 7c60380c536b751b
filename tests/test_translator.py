"""Strings to strings: order, batches, bad input, scores, documents, streams."""

import itertools
import logging
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from tfxformer import DecodingOptions, Tokenizer, Transformer, Translator
from tfxformer.corpora import phrasebook
from tfxformer.errors import UserError
from tfxformer.special_tokens import END_ID
from tfxformer.translator import Explanation

PAIRS = phrasebook()["test"][:64]
SENTENCES = [pair.source for pair in PAIRS[:12]]
TEXT = "O gato preto bebeu o leite."
SPACE = "\u2581"


def ids_of(translator, text):
    """A text's tokens and the end token."""
    return [*translator.tokenizer.encode([text])[0], END_ID]


def log_probabilities(translator, source, target):
    """The reference: one forward pass over one sentence, softmax in NumPy."""
    inputs = np.array([ids_of(translator, source)]), np.array([[2, *target]])
    logits = translator.transformer(inputs).numpy()[0].astype("float64")
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def assert_same(translator, texts, expected, got):
    """Equal translations, or equal probabilities of the first tokens that differ."""
    for text, *lines in zip(texts, expected, got, strict=True):
        one, other = (ids_of(translator, line) for line in lines)
        if one != other:
            parted = [a == b for a, b in zip(one, other, strict=False)].index(False)
            logs = log_probabilities(translator, text, one[:parted])[-1]
            assert abs(logs[one[parted]] - logs[other[parted]]) < 1e-5, lines


def test_a_string_gives_a_string_and_a_list_a_list(translator):
    one = translator(TEXT)
    assert isinstance(one, str) and one == translator(TEXT.encode()) != ""
    assert translator([TEXT]) == [one] == translator(np.array([TEXT]))
    assert translator([]) == translator.n_best([]) == translator.complete([], []) == []
    assert translator.score([], []).shape == (0,)


@pytest.mark.parametrize("wrong", [None, 3, ["a"]])
def test_the_translator_refuses_input_that_is_not_a_string(translator, wrong):
    kind = f"must be a string, not {type(wrong).__name__}: "
    for name, call in {
        "text": translator.translate,
        "translation": lambda x: translator.score(["a", "b"], x),
        "prefix": lambda x: translator.complete(["a", "b"], x),
    }.items():
        with pytest.raises(TypeError, match=f"^{name} 2: {kind}"):
            call(["a", wrong])
        with pytest.raises(TypeError, match=r"list of strings, not str: 'Olá\.'"):
            call("Olá.")  # not a list of characters
    with pytest.raises(TypeError, match=kind):
        translator.explain(wrong)


def test_a_translation_depends_on_nothing_else_in_its_batch(translator, served):
    alone = translator(SENTENCES, tokens_per_batch=1)
    order = np.random.default_rng(0).permutation(len(SENTENCES))
    shuffled, expected = zip(*((SENTENCES[i], alone[i]) for i in order), strict=True)
    for model, tokens in ((translator, 50), (translator, 2048), (served, 2048)):
        got = model([*shuffled], tokens_per_batch=tokens)
        assert_same(translator, shuffled, expected, got)


def test_a_batch_has_no_more_tokens_than_the_limit(translator, monkeypatch):
    batches, answers = [], translator.answers

    def watched(name, inputs):
        batches.append(translator.tokenizer.encode(inputs["text"]))
        return answers(name, inputs)

    monkeypatch.setattr(translator, "answers", watched)
    translator.translate(SENTENCES * 4, tokens_per_batch=10_000)
    assert len(batches) == 1
    batches.clear()
    translator.translate(SENTENCES * 4, tokens_per_batch=100)
    longest = [max(map(len, batch)) + 1 for batch in batches]  # with the end token
    assert max(map(len, batches)) > 1 and len(batches) > 1
    for batch, length in zip(batches, longest, strict=True):
        assert len(batch) == 1 or len(batch) * length <= 100


# The examples in each export have such input too.
BAD = [
    b"",
    b" \t\r\n\xc2\xa0 ",
    bytes(range(32)),
    b"O gato\0bebe\xffleite.",
    "O gato\ud800bebe leite.",
    b"O gato bebe leite. " * 5264,  # 100,016 characters
    b"a" * 20_000,  # one word
    "😀👩‍👩‍👧‍👦🏳️‍🌈",
    "مرحبا بالعالم שלום",
    "<s> </s> <unk> <pad> ▁ <0x41>",
]


def test_bad_input_does_not_change_other_translations_of_its_batch(translator):
    good = SENTENCES[:4]
    alone = translator(good, tokens_per_batch=1)
    answers = translator([*good[:2], *BAD, *good[2:]], tokens_per_batch=10_000)
    assert_same(translator, good, alone, answers[:2] + answers[-2:])
    empty, white, controls, broken, surrogate, *others = answers[2:-2]
    assert (empty, white, controls.strip()) == ("", BAD[1].decode(), "")
    # Invalid bytes and surrogates count as spaces.
    assert broken == surrogate == translator("O gato bebe leite.")
    assert all(isinstance(answer, str) and "\0" not in answer for answer in others)


# --- Scores ---


def test_score_is_the_mean_log_probability(translator):
    texts = SENTENCES[:8]
    translations, found = translator.translate(texts)
    scores = translator.score(texts, translations)
    assert np.isfinite(scores).mean() > 0.5  # the others are too long to score
    for i in np.flatnonzero(np.isfinite(scores)):
        text, translation, score = texts[i], translations[i], scores[i]
        target = ids_of(translator, translation)
        logs = log_probabilities(translator, text, target[:-1])
        assert score == pytest.approx(logs[range(len(target)), target].mean(), abs=1e-4)
    # Translating returns the same scores.
    assert np.nanmedian(np.abs(found - scores)) < 1e-4


def test_given_translations_are_scored_in_order(translator):
    texts, translations = zip(*PAIRS, ("", ""), ("Olá.", ""), strict=True)
    alone = translator.score(texts, translations, tokens_per_batch=1)
    scores = translator.score(texts, translations)
    assert scores == pytest.approx(alone, abs=1e-5)
    assert scores[-2] == 0 and (scores[:-2] < 0).all()
    others = translator.score(texts, translations[1:] + translations[:1])
    assert (scores > others).mean() > 0.6
    with pytest.raises(ValueError, match="1 translations for 2 texts"):
        translator.score(["a", "b"], ["a"])
    with pytest.raises(Exception, match="as many translations"):
        translator.answers("score", {"text": ["a", "b"], "translation": ["a"]})


def test_a_pair_longer_than_the_model_reads_has_no_score(translator, caplog):
    texts = ["Olá.", "o " * 47, "o " * 48, "Olá.", "Olá."]
    translations = ["Hi.", "Hi.", "Hi.", "a " * 48, "Hi."]
    scores = translator.score(texts, translations, first=10)
    assert [*np.isnan(scores)] == [False, False, True, True, False]
    assert scores[0] == pytest.approx(scores[4])
    why = "or its translation has 48 tokens, the model reads 47: it is not scored"
    assert caplog.messages == [f"text 12 {why}", f"text 13 {why}"]


# --- Documents. `Echo` replaces the model ---


class Echo(Translator):
    """Treats words as tokens, returns its input, and records its batches."""

    tokenizer = SimpleNamespace(language=lambda text: "")

    def __init__(self, max_length=8):
        self.max_length = max_length
        self.batches, self.read = [], []

    def _lengths(self, texts, side=0):
        return np.array([len(text.split()) for text in texts], int)

    def answers(self, signature, inputs):
        texts = inputs["text"]
        self.batches.append(texts)
        self.read += texts
        # The more words, the worse the score.
        lines, scores = [text.encode() for text in texts], -self._lengths(texts)
        return {"translation": lines, "score": scores}


def test_translating_a_document_keeps_its_white_space_and_line_breaks():
    text, echo = (
        "\tUm gato.  O Sr. Silva ri!\u00a0Porquê?\r\n \n\n Um gato. Fim ",
        Echo(),
    )
    assert echo([text, "", "Fim"]) == [text, "", "Fim"]
    # Nothing is translated twice.
    assert sorted(echo.read) == ["Fim", "O Sr. Silva ri!", "Porquê?", "Um gato."]
    # Translations are separated by a space.
    assert Echo()("你好。再见！\n好") == "你好。 再见！\n好"


def test_sentences_are_batched_by_length_up_to_the_token_limit():
    echo = Echo(max_length=100)
    counts = np.random.default_rng(0).integers(0, 90, 99)
    texts = [f"{i} " + "a " * count for i, count in enumerate(counts)]
    assert echo(texts, tokens_per_batch=200) == texts
    lengths = [[len(line.split()) for line in batch] for batch in echo.batches]
    assert [*itertools.chain(*lengths)] == sorted(counts + 1)
    # Each batch is full: one more sentence would make it too big.
    for batch, after in itertools.pairwise(lengths):
        assert len(batch) * max(batch[-1] + 1, 16) <= 200
        assert (len(batch) + 1) * max(after[0] + 1, 16) > 200


def test_a_long_sentence_is_split_at_the_best_place_and_logged(caplog):
    texts = ["Olá. Sim.", "Bom dia. Um dois três, quatro; seis sete oito nove.\nDez."]
    whole = ["Olá.", "Sim.", "Bom dia.", "Um dois três, quatro;"]
    lines = ["Olá. Sim.", "Bom dia. Um dois três, quatro;"]
    with caplog.at_level(logging.INFO, "tfxformer"):
        for split, sentences in ((True, whole), (False, lines)):
            echo = Echo(max_length=8)
            assert echo.translate(texts, split_sentences=split, first=5)[0] == texts
            assert {*echo.read} == {*sentences, "seis sete oito nove.", "Dez."}
    said = "text 6: a sentence of more than 7 tokens becomes 2 parts"
    assert caplog.messages == [said] * 2


def test_a_document_s_score_is_the_mean_over_its_tokens():
    _, scores = Echo().translate(["Um.", "Um. Dois três.\n\nUm.", " \n", ""])
    # "Um." has 2 tokens of -1, "Dois três." 3 of -2, with the end token.
    assert scores == pytest.approx([-1, -(2 + 6 + 2) / 7, 0, 0])


def test_loading_a_damaged_run_folder_raises_an_error_that_names_the_file(
    translator, run_folder, tmp_path
):
    def refused(path, message):
        with pytest.raises(UserError, match=message):
            Translator.load(path)

    refused(tmp_path, r"config\.yaml is missing")
    copy = shutil.copytree(run_folder, tmp_path / "copy")
    for name in ("tokenizer.model", "best.weights.h5", "config.yaml"):
        content = (copy / name).read_bytes()
        (copy / name).write_bytes(content[:1000][::-1])
        refused(copy, re.escape(name))
        (copy / name).write_bytes(content)
    config = (copy / "config.yaml").read_text()
    (copy / "config.yaml").write_text(config.replace("dff: 128", "dff: 256"))
    refused(copy, "not the model of")
    (copy / "best.weights.h5").unlink()
    refused(copy, r"best\.weights\.h5 is missing")
    other = Tokenizer.train(["um gato", "a cat"] * 50, vocab_size=300)
    with pytest.raises(UserError, match="own tokenizer"):
        Translator(other, translator.transformer)


# --- N-best lists, prefixes, streams, explanations ---


def test_n_best_lists_are_sorted_and_the_same_in_an_export(served, translator):
    texts = [TEXT, "", "Bom dia!"]
    lists = translator.n_best(texts), served.n_best(texts)
    for ours, theirs in zip(*lists, strict=True):
        (lines, scores), other = zip(*ours, strict=True), zip(*theirs, strict=True)
        assert [lines, pytest.approx(scores, abs=1e-4)] == [*other]
        assert len({*lines}) == len(lines) == (1 if lines == ("",) else 4)
        assert [*scores] == sorted(scores, reverse=True)


def test_translations_begin_with_the_prefix(translator, monkeypatch):
    sizes, answers = [], translator.answers
    monkeypatch.setattr(
        translator,
        "answers",
        lambda name, inputs: sizes.append(len(inputs["text"])) or answers(name, inputs),
    )
    begun, free = translator.complete([TEXT, TEXT], ["My", ""], tokens_per_batch=16)
    assert begun.startswith("My") and free == translator(TEXT)
    assert sizes[:2] == [1, 1]
    with pytest.raises(ValueError, match="1 prefixes for 2 texts"):
        translator.complete([TEXT, TEXT], ["My"])
    for sides, what in (
        ((TEXT * 9, "My"), "text 8"),
        ((TEXT, "My cat " * 30), "the pre"),
    ):
        with pytest.raises(UserError, match=f"^{what}.*single sentences"):
            translator.complete(["", sides[0]], ["", sides[1]], first=7)


@pytest.mark.parametrize("options", [{}, {"beam_size": 3}, {"sampling": True}], ids=str)
def test_forbidden_words_are_not_written(translator, options):
    texts = [TEXT, "Bom dia!", "O cão dorme."]

    def translations(**more):
        chosen = DecodingOptions(**options, **more)
        return Translator(translator.tokenizer, translator.transformer, chosen)

    free = translations()(texts)
    words = [line.split()[0].strip(".,!?") for line in free]
    without = translations(forbid=words)
    changed = without(texts)
    for word in words:
        assert not any(re.search(rf"\b{word}\b", line) for line in changed)
    assert without(texts[:1]) == changed[:1]  # a sentence at a time


def test_explain_returns_the_attention_of_a_forward_pass_over_the_translation(
    translator,
):
    explanation = translator.explain(TEXT)
    written = "".join(explanation.target_tokens[:-1]).replace(SPACE, " ").strip()
    assert written == translator(TEXT)
    np.testing.assert_allclose(explanation.attention.sum(-1), 1, atol=1e-5)
    # A forward pass over the translation has the same weights.
    log_probabilities(translator, TEXT, ids_of(translator, written)[:-1])
    last = translator.transformer.decoder.last_attn_scores[0]
    np.testing.assert_allclose(last, explanation.attention[-1], atol=1e-5)
    nothing = translator.explain("")
    assert nothing.target_tokens == [] and nothing.alignment() == []


def test_alignment_joins_the_tokens_of_a_word():
    source = [f"{SPACE}o", f"{SPACE}ga", "to", "</s>"]
    target = [f"{SPACE}the", f"{SPACE}c", "at", "</s>"]
    weights = [
        [0.9, 0.05, 0.05, 0.0],
        [0.4, 0.3, 0.2, 0.1],  # "o" has most of any token, "gato" of any word
        [0.1, 0.1, 0.1, 0.7],
        [0.0, 0.0, 0.0, 1.0],
    ]
    aligned = Explanation(source, target, np.array([[weights] * 2] * 2)).alignment()
    assert [pair[:2] for pair in aligned] == [("the", "o"), ("cat", "gato")]
    np.testing.assert_allclose([weight for *_, weight in aligned], [0.9, 0.35])
    assert Explanation(["</s>"], [SPACE], np.ones((1, 1, 1, 1))).alignment() == []


def test_a_translator_uses_changed_weights_after_fold_weights(translator):
    copy = Translator(
        translator.tokenizer, Transformer(**translator.transformer.config)
    )
    text, before = ["um gato"], copy.score(["um gato"], ["a cat"])
    copy.transformer.set_weights(translator.transformer.get_weights())
    assert copy.score(text, ["a cat"]) == before
    copy.fold_weights()
    assert copy.score(text, ["a cat"]) == translator.score(text, ["a cat"]) != before
