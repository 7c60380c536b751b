"""Scores are sacreBLEU's, as its own command gives them, and the textbook's."""

import json
import math
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfxformer.corpora import Pair
from tfxformer.evaluation import Evaluation, compare, evaluate

REFERENCES = [
    "The cat drinks milk in the kitchen.",
    "He went to the beach yesterday with his friends.",
    "There is no bread, and there are no apples!",
    "Quem és tu?",
    'It cost $3.50 — too much, said "Ana" & I agree.',
]
TRANSLATIONS = [
    "the cat drinks the milk in the kitchen .",
    "Yesterday he went to the beach with his friends.",
    "There is no bread and no apples!",
    "",
    "It cost $3.50, too much said Ana and I agree.",
]


def sacrebleu_command(folder, *options):
    """What `sacrebleu` itself prints, by the metric's name."""
    for name, lines in (("hypotheses", TRANSLATIONS), ("references", REFERENCES)):
        text = "".join(f"{line}\n" for line in lines)
        (folder / name).write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "sacrebleu", "references", "-i", "hypotheses"]
    command += ["-m", "bleu", "chrf", "--format", "json", "-w", "9", *options]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, check=True, timeout=60
    )
    return {metric["name"]: metric for metric in json.loads(done.stdout)}


@pytest.mark.parametrize("lowercase", [False, True])
def test_scores_are_those_of_sacrebleu_s_command(tmp_path, lowercase):
    expected = sacrebleu_command(
        tmp_path, *(["-lc", "--chrf-lowercase"] if lowercase else [])
    )
    scores = compare(TRANSLATIONS, REFERENCES, lowercase=lowercase)
    assert scores.bleu == pytest.approx(expected["BLEU"]["score"], abs=1e-6)
    assert scores.chrf == pytest.approx(expected["chrF2"]["score"], abs=1e-6)
    assert 20 < scores.bleu < 80
    assert scores.bleu_signature == expected["BLEU"]["signature"]
    assert scores.chrf_signature == expected["chrF2"]["signature"]
    case = "case:lc" if lowercase else "case:mixed"
    for signature in (scores.bleu_signature, scores.chrf_signature):
        assert "nrefs:1" in signature and case in signature
        assert "version:2." in signature
    assert "tok:13a" in scores.bleu_signature


def test_lowercase_forgives_case_only():
    shouted = [reference.upper() for reference in REFERENCES]
    assert compare(shouted, REFERENCES).bleu < 50
    assert compare(shouted, REFERENCES, lowercase=True).bleu == pytest.approx(100)
    assert compare(shouted, REFERENCES, lowercase=True).chrf == pytest.approx(100)


@pytest.mark.parametrize(
    ("translation", "reference", "bleu"),
    [
        # Precisions 5/6, 4/5, 3/4 and 2/3, whose product is 1/3.
        ("a b c d e f", "a b c d e g", 100 * (1 / 3) ** 0.25),
        # All right but too short: the brevity penalty alone.
        ("a b c d", "a b c d e", 100 * math.exp(1 - 5 / 4)),
        # Too long: precisions 5/6, 4/5, 3/4 and 2/3, and no penalty.
        ("a b c d e f", "a b c d e", 100 * (1 / 3) ** 0.25),
    ],
)
def test_bleu_by_hand(translation, reference, bleu):
    assert compare([translation], [reference]).bleu == pytest.approx(bleu)


def test_chrf_by_hand():
    # Of "abc" against "abd": 2 of 3 letters and 1 of 2 pairs are right, 0 of 1 triple;
    # precision and recall are alike, so is any F.
    scores = compare(["abc"], ["abd"])
    assert scores.chrf == pytest.approx(100 * (2 / 3 + 1 / 2 + 0) / 3)


WORD = st.text("abcdefg", min_size=1, max_size=5)
SENTENCE = st.lists(WORD, min_size=4, max_size=12).map(" ".join)


@settings(deadline=None)
@given(st.lists(SENTENCE, min_size=1, max_size=8))
def test_what_is_perfect_scores_100(references):
    scores = compare(references, references)
    assert scores.bleu == pytest.approx(100) and scores.chrf == pytest.approx(100)
    assert scores.sentences == len(references)
    assert scores.translations == references


@settings(deadline=None)
@given(st.lists(st.tuples(st.text(max_size=20), st.text(max_size=20)), min_size=1))
def test_any_text_has_scores(rows):
    translations, references = map(list, zip(*rows, strict=True))
    scores = compare(translations, references)
    assert 0 <= scores.bleu <= 100.000001 and 0 <= scores.chrf <= 100.000001


def test_nothing_alike_scores_0():
    scores = compare(["aaa bbb ccc ddd"], ["eee fff ggg hhh"])
    assert scores.bleu < 15  # sacreBLEU smooths
    assert scores.chrf == 0
    assert compare([""], ["eee fff ggg hhh"]).bleu == 0


@pytest.mark.parametrize(
    ("translations", "references"),
    [([], []), (["a"], []), ([], ["a"]), (["a"] * 3, "ab")],
)
def test_counts_that_do_not_match(translations, references):
    counts = f"{len(translations)} translations for {len(references)} references"
    with pytest.raises(ValueError, match=counts):
        compare(translations, references)


def test_describe_says_how_it_was_measured():
    scores = Evaluation(12.345, 67.891, "nrefs:1|a", "nrefs:1|b", 3, [])
    assert scores.describe().splitlines() == [
        "BLEU 12.35  (nrefs:1|a)",
        "chrF 67.89  (nrefs:1|b)",
    ]


# --- evaluate ---


def test_evaluate_translates_sources_and_compares_with_targets_in_order():
    calls = []

    def translator(texts, **options):
        calls.append((texts, options))
        return [text.replace("o gato", "the cat drinks some milk") for text in texts]

    pairs = [
        Pair(f"o gato {number}", f"the cat drinks some milk {number}")
        for number in (3, 1, 2)
    ]
    scores = evaluate(translator, pairs, tokens_per_batch=2)
    # A line is one sentence, whatever stops it has.
    options = {"tokens_per_batch": 2, "split_sentences": False}
    assert calls == [(["o gato 3", "o gato 1", "o gato 2"], options)]
    assert scores.translations == [pair.target for pair in pairs]
    assert scores.bleu == pytest.approx(100) and scores.sentences == 3
    wrong_order = evaluate(lambda texts, **_: translator(texts)[::-1], pairs)
    assert wrong_order.bleu < 100


def test_evaluate_in_lower_case():
    pairs = [Pair("", "The Cat Drinks Milk")]
    answer = ["the cat drinks milk"]
    assert evaluate(lambda *_, **__: answer, pairs).bleu < 100
    lower = evaluate(lambda *_, **__: answer, pairs, lowercase=True)
    assert lower.bleu == pytest.approx(100)


def test_evaluate_of_nothing():
    with pytest.raises(ValueError, match="0 translations"):
        evaluate(lambda texts, **_: texts, [])
