"""Splitting text: sentence ends, splits of long sentences, and no lost characters."""

import random

import pytest

from tfxformer.sentences import split_lines, split_sentences, split_to_fit

# Each list has the sentences of one line, which a space separates.
LINES = [
    # Stops.
    ["O gato bebe leite.", "A casa é azul!", "Onde estás?", "Não sei…", "Sim."],
    ["Como?!", "Não!!!", "Bem...", "Está bem."],
    # Abbreviations.
    ["O Sr. Silva e a Sra. Costa saíram.", "A Dra. Ana e o Prof. Rui ficaram."],
    ["Exmo. Sr. Dr. Costa e V. Exa. Maria.", "Av. Brasil, St. Louis, Mr. Bean."],
    ["Frutas, p. ex. Maçãs, peras, etc. e tal.", "Pão, etc.", "Mais nada."],
    ["Ver p. 12, pp. 3-5, fig. 2, n. 7, n.º 5 e art. 3.º da lei.", "Fim."],
    ["I said no.", "He left on Oct. 5 with No. 6.", "The end."],
    ["J. K. Rowling e J.R.R. Tolkien.", "The U.S. Army left at 5 p.m.", "Good."],
    ["E.g. Tom, i.e. Thomas, vs. Ann.", "Cf. Smith et al. 2010."],
    # Numbers.
    ["Pi é 3.14 e custa 1.000 euros.", "2 mais 2 são 4.", "5 pessoas vieram."],
    ["1. Introdução.", "Começa aqui."],
    ["a. Primeiro ponto.", "2.1. Segundo ponto.", "IV. Capítulo."],
    # Quotes and brackets.
    ['"Olá!"', '"Bom dia."', "Ela saiu.", "(Foi assim.)", "«Não.»", "Pois."],
    ['"Vens?" perguntou ela.', "«Vou!» disse ele.", "Foi (ele!) ontem."],
    ["— Vens? — perguntou ela.", "— Sim.", "— Bom."],
    ["Três! repetiu o capitão.", "Eu... não sei...", "Talvez."],
    ["É assim. [sic]"],
    # Lower-cased and tokenised, as in TED.
    ["olá .", "como estás ?", "bem , obrigado !", "e tu ?"],
    ['ela disse : " olá . " e saiu .', '" vens ? " disse ela .', "( risos ) ."],
    ["eu ... não sei .", "o sr. silva saiu .", "são 3.14 metros .", "ok . . . bom"],
    # Lower-cased, not tokenised: a dot may belong to an abbreviation.
    ["oi!", "tudo bem?", "o sr. silva saiu. eu não sei"],
    # No sentence ends.
    ["www.ted.com ou a@b.pt/?x=1 das 10h30"],
    ["Olá!", "😀 Bom dia.", "Был дождь.", "Да."],
]


@pytest.mark.parametrize("sentences", LINES, ids=lambda sentences: sentences[0])
def test_split_sentences_finds_the_sentences_of_a_line(sentences):
    text = " ".join(sentences)
    assert split_sentences(text)[1::2] == sentences


def test_splitting_into_sentences_or_lines_keeps_white_space():
    text = "\ufeff Olá.\t Bom dia.\u00a0Sim.\r\n\r\n \tDois\nversos\u2028e um \x85"
    assert split_sentences(text) == [
        *("", "\ufeff Olá.", "\t ", "Bom dia.", "\u00a0", "Sim.", "\r\n\r\n \t"),
        *("Dois", "\n", "versos", "\u2028", "e um", " \x85"),
    ]
    lines = ["\ufeff Olá.\t Bom dia.\u00a0Sim.", "Dois", "versos", "e um"]
    assert split_lines(text)[1::2] == lines
    pieces = ["", "你好。", "", "你好吗？", "", "「好。」", "", "再见！", " ", "好", ""]
    assert split_sentences("".join(pieces)) == pieces  # these need no spaces
    for nothing in ("", " \t\r\n\u2029 "):
        assert split_sentences(nothing) == split_lines(nothing) == [nothing]


def tricky_texts(count):
    """Random texts of stops, quotes, line breaks and their neighbours."""
    parts = [*"aAé1.?!…。\"'()»—, \t\n\r\x1c\x85\u2028\0\ud800", "Sr", "p. ex", "😀"]
    draw = random.Random(0)
    return ["".join(draw.choices(parts, k=draw.randrange(30))) for _ in range(count)]


def test_the_pieces_of_a_split_text_join_to_the_same_text():
    for text in tricky_texts(2000):
        for split in (split_sentences, split_lines):
            pieces = split(text)
            assert "".join(pieces) == text and len(pieces) % 2 == 1
            assert not "".join(pieces[::2]).strip()
            for sentence in pieces[1::2]:
                assert sentence and sentence == sentence.strip()
                assert len(sentence.splitlines()) == 1
        lines = split_lines(text)[1::2]  # splitting again changes nothing
        sentences = [part for line in lines for part in split_sentences(line)[1::2]]
        assert sentences == split_sentences(text)[1::2]


# --- Long sentences ---


def words(text):
    return len(text.split())


@pytest.mark.parametrize(
    ("left", "right"),
    [
        # The best place near the middle: a sentence's end before a semicolon,
        ("um dois, três.", "Quatro; cinco seis sete"),
        # that, a colon or a dash before a comma, however much nearer that is,
        ("um dois três;", "quatro, cinco seis sete"),
        ("um dois, três:", "quatro cinco, seis"),
        ("um dois —", "três, quatro cinco seis"),
        # a comma before a conjunction,
        ("um dois três e quatro,", "cinco seis"),
        # a conjunction before white space, which is better than within a word.
        ("um dois três", "porque quatro cinco seis"),
        ("The red one", "that you all saw"),
        ("um dois três", "quatro cinco seis"),
        # A decimal comma or a time is not a place to split.
        ("um dois três", "3,14 10:30 seis"),
        # Not near an end: the other part would be long.
        ("um; dois três", "quatro cinco seis"),
    ],
)
def test_split_to_fit_splits_at_the_best_place_near_the_middle(left, right):
    text = f"{left} {right}"
    assert split_to_fit(text, words, words(text) - 1) == [left, " ", right]


@pytest.mark.parametrize("count", [words, len])
def test_split_to_fit_gives_parts_within_the_limit_and_loses_no_text(count):
    assert split_to_fit("abcdefgh", len, 4) == ["abcd", "", "efgh"]
    # A character is never split, even if it is too long.
    assert split_to_fit("ab", lambda text: 9, 4) == ["a", "", "b"]
    for text in (text.strip() for text in tricky_texts(500) if text.strip()):
        for limit in (4, 9):
            pieces = split_to_fit(text, count, limit)
            assert "".join(pieces) == text
            assert max(map(count, pieces[::2])) <= limit
            assert not "".join(pieces[1::2]).strip()
            assert all(part == part.strip() != "" for part in pieces[::2])
            # A text that fits is never split.
            assert count(text) > limit or pieces == [text]


@pytest.mark.parametrize("text", ["a", ". ", '" ', "!a", "。", "a\n", "A. "])
def test_splitting_a_very_long_text_loses_no_characters(text):
    text = text * 10_000
    assert "".join(split_sentences(text)) == text
    assert max(map(len, split_to_fit(text.strip(), len, 100)[::2])) <= 100
