"""The phrasebook is right Portuguese, right English, and splits without leaks."""

import re
from collections import Counter
from itertools import chain
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfxformer.corpora import grammar, phrasebook
from tfxformer.corpora.pair import Pair
from tfxformer.corpora.patterns import (
    HE,
    PATTERNS,
    SHE,
    THEY,
    WE,
    YOU,
    YOU_ALL,
    I,
)
from tfxformer.corpora.splitting import hold_out, sentence_key
from tfxformer.errors import UserError

ANA = grammar.Phrase("a Ana", "Ana", "f")
PAIRS = phrasebook.pairs()
SOURCES = [pair.source for pair in PAIRS]
TARGETS = [pair.target for pair in PAIRS]
NOUNS = {(noun.pt, noun.gender): noun for noun in grammar.nouns()}
ADJECTIVES = {
    adjective.pt: adjective
    for adjective in grammar.adjectives(*grammar.LEXICON["adjectives"])
}


# --- The corpus as a whole --------------------------------------------------------


def test_there_are_enough_distinct_pairs():
    assert len(PAIRS) >= 20_000
    assert len(set(PAIRS)) == len(PAIRS)


def test_hand_written_sentences_come_first():
    hand_written = list(phrasebook._hand_written())
    assert len(hand_written) >= 600
    assert PAIRS[: len(hand_written)] == hand_written


def test_every_pattern_contributes_and_none_dominates():
    made = Counter(
        pattern.make.__name__
        for pattern in PATTERNS
        for _ in phrasebook._sample(pattern, phrasebook.MOST_PER_PATTERN)
    )
    assert len(made) == len(PATTERNS) >= 40
    assert max(made.values()) <= 1_500


def test_generating_is_fast_and_repeatable():
    start = perf_counter()
    again = phrasebook._all_pairs.__wrapped__()
    assert perf_counter() - start < 10  # Under 1 s on an idle machine.
    assert list(again) == PAIRS


def test_no_portuguese_sentence_has_two_translations():
    # On what the patterns make, before pairs() drops what it already has.
    english: dict[str, set[str]] = {}
    made = list(phrasebook._hand_written())
    for pattern in PATTERNS:
        made += phrasebook._sample(pattern, phrasebook.MOST_PER_PATTERN)
    for pair in made:
        english.setdefault(pair.source.casefold(), set()).add(pair.target)
    assert {pt: en for pt, en in english.items() if len(en) > 1} == {}


@pytest.mark.parametrize("side", [SOURCES, TARGETS], ids=["portuguese", "english"])
def test_sentences_are_well_formed(side):
    for text in side:
        assert text[0].isupper(), text
        assert text[-1] in ".!?", text
        assert "  " not in text and " ," not in text and " ." not in text, text
        assert text == text.strip(), text
        assert not re.search(r"[{}<>_|\\]|None|one's|\d", text), text
        assert not re.search(r"[.!?][.!?]", text), text


def test_both_sides_end_alike():
    for pattern in PATTERNS:
        for pair in phrasebook._sample(pattern, 50):
            assert pair.source[-1] == pair.target[-1], pair


# --- Rules that the generated Portuguese must not break ---------------------------

UNCONTRACTED = re.compile(
    r"\b(de|em|a|por) (o|a|os|as)\b|\b(em) (um|uma)\b|\b(de|em) (este|esta|aquel)"
    r"|\bde (ele|ela|eles|elas)\b",
    re.IGNORECASE,
)


def test_prepositions_contract():
    for text in SOURCES:
        assert not UNCONTRACTED.search(text), text


# Words whose gender is written here by hand, not read from the lexicon.
FEMININE = "casa mesa cadeira cama saia camisa mota bicicleta carta chave sopa mala"
MASCULINE = "carro livro casaco gato cão vestido chapéu sofá armário filme comboio"


@pytest.mark.parametrize("noun", FEMININE.split())
def test_feminine_nouns_take_feminine_words(noun):
    wrong = re.compile(
        rf"\b(o|um|do|no|ao|este|aquele|meu|teu|nosso) {noun}\b"
        rf"|\b(os|uns|dos|nos|aos|estes|aqueles|meus|teus|nossos|dois) {noun}s\b",
        re.IGNORECASE,
    )
    assert any(re.search(rf"\b{noun}\b", text) for text in SOURCES)
    assert [text for text in SOURCES if wrong.search(text)] == []


@pytest.mark.parametrize("noun", MASCULINE.split())
def test_masculine_nouns_take_masculine_words(noun):
    wrong = re.compile(
        rf"\b(a|uma|da|na|esta|aquela|minha|tua|nossa) {noun}\b"
        rf"|\b(as|umas|das|nas|estas|aquelas|minhas|tuas|nossas|duas) {noun}s\b",
        re.IGNORECASE,
    )
    assert any(re.search(rf"\b{noun}\b", text) for text in SOURCES)
    assert [text for text in SOURCES if wrong.search(text)] == []


def test_plural_articles_take_plural_nouns():
    wrong = re.compile(
        r"\b(os|as|uns|umas|estes|estas|aqueles|aquelas|nos|nas|dos|das|aos) "
        r"(meus |minhas |teus |tuas |nossos |nossas )?[\w-]*[^s\W](?!\S)",
        re.IGNORECASE,
    )
    # Here "nos" is a pronoun: "não nos ajudou", "levantamo-nos às sete".
    pronoun = re.compile(
        r"(?<=[ -])nos\b(?= \w+(ou|eu|iu|mos|aram|eram|iram)\b)|-nos\b"
    )
    for text in SOURCES:
        assert not wrong.search(pronoun.sub("", text)), text


# --- Rules that the generated English must not break ------------------------------


def test_indefinite_articles_fit_the_sound():
    # No word of the lexicon starts with a silent h or a "yoo" but these.
    for text in TARGETS:
        for article, word in re.findall(r"\b(an?) ([a-z]\w*)", text, re.I):
            vowel = word[0].lower() in "aeiou" or word == "hour"
            assert (article.lower() == "an") == vowel, text


def test_subjects_and_verbs_agree():
    asked = "".join(f"(?<!{word} )" for word in ("does", "did", "can", "should"))
    wrong = re.compile(
        rf"{asked}\b(he|she|it) (am|are|have|do|don't|were|haven't|aren't)\b"
        r"|\bI (is|are|has|does|doesn't)\b"
        r"|\b(we|they|you) (is|am|has|does|was|doesn't|isn't|hasn't)\b"
        r"|\b(didn't|doesn't|don't|can't) (is|are|was|went|goes|has|had|does|did)\b",
        re.IGNORECASE,
    )
    for text in TARGETS:
        assert not wrong.search(text), text


# --- Spot checks, written by hand -------------------------------------------------


@pytest.mark.parametrize(
    ("noun", "adjective", "plural", "pt", "en"),
    [
        ("casa f", "branco", False, "a casa branca", "the white house"),
        ("casa f", "azul", True, "as casas azuis", "the blue houses"),
        ("cão m", "preto", True, "os cães pretos", "the black dogs"),
        ("faca f", "novo", True, "as facas novas", "the new knives"),
        ("hotel m", "moderno", True, "os hotéis modernos", "the modern hotels"),
        ("calças f", "preto", False, "as calças pretas", "the black trousers"),
        ("telemóvel m", "cor-de-rosa", True, "os telemóveis cor-de-rosa",
         "the pink phones"),
        ("camisa f", "cor-de-rosa", True, "as camisas cor-de-rosa", "the pink shirts"),
        ("canção f", "bom", True, "as canções boas", "the good songs"),
        ("filme m", "mau", True, "os filmes maus", "the bad films"),
        ("filme m", "horrível", True, "os filmes horríveis", "the horrible films"),
        ("irmã f", "trabalhador", False, "a irmã trabalhadora",
         "the hard-working sister"),
        ("amiga f", "francês", True, "as amigas francesas", "the French friends"),
        ("amigo m", "alemão", True, "os amigos alemães", "the German friends"),
        ("amiga f", "espanhol", False, "a amiga espanhola", "the Spanish friend"),
        ("homem m", "jovem", True, "os homens jovens", "the young men"),
        ("rapaz m", "otimista", True, "os rapazes otimistas", "the optimistic boys"),
        ("lápis m", "cinzento", True, "os lápis cinzentos", "the grey pencils"),
        ("mão f", "pequeno", True, "as mãos pequenas", "the small hands"),
    ],
)  # fmt: skip
def test_noun_phrases_agree(noun, adjective, plural, pt, en):
    name, gender = noun.split()
    phrase = grammar.the(NOUNS[name, gender], ADJECTIVES[adjective], plural)
    assert (phrase.pt, phrase.en) == (pt, en)


@pytest.mark.parametrize(
    ("verb", "who", "tense", "form"),
    [
        ("falar", I, "present", "falo"),
        ("falar", WE, "past", "falámos"),
        ("falar", THEY, "imperfect", "falavam"),
        ("comer", YOU, "present", "comes"),
        ("comer", SHE, "past", "comeu"),
        ("comer", WE, "imperfect", "comíamos"),
        ("abrir", WE, "present", "abrimos"),
        ("abrir", YOU, "past", "abriste"),
        ("tocar", I, "past", "toquei"),
        ("pagar", I, "past", "paguei"),
        ("começar", I, "past", "comecei"),
        ("conhecer", I, "present", "conheço"),
        ("fazer", I, "present", "faço"),
        ("fazer", HE, "past", "fez"),
        ("ser", THEY, "present", "são"),
        ("ir", I, "past", "fui"),
        ("ter", WE, "imperfect", "tínhamos"),
        ("pôr", YOU, "present", "pões"),
        ("ouvir", I, "present", "ouço"),
        ("perder", I, "present", "perco"),
        ("ler", THEY, "present", "leem"),
        ("sair", WE, "past", "saímos"),
        ("ver", YOU_ALL, "present", "veem"),
        ("passear", HE, "present", "passeia"),
        ("passear", WE, "present", "passeamos"),
    ],
)
def test_portuguese_verbs(verb, who, tense, form):
    assert grammar.conjugate(verb, who, tense) == form


@pytest.mark.parametrize(
    ("verb", "polite", "form"),
    [
        ("abrir", False, "abre"),
        ("abrir", True, "abra"),
        ("fechar", True, "feche"),
        ("ligar", True, "ligue"),
        ("apagar", True, "apague"),
        ("trazer", False, "traz"),
        ("trazer", True, "traga"),
        ("pôr", True, "ponha"),
        ("repetir", True, "repita"),
        ("ler", True, "leia"),
    ],
)
def test_commands(verb, polite, form):
    assert grammar.command(verb, polite) == form


@pytest.mark.parametrize(
    ("who", "pt", "en", "tense", "mode", "sentences"),
    [
        (I, "comer pão", "eat bread", "present", "+", "Como pão. | I eat bread."),
        (ANA, "comer pão", "eat bread", "present", "+",
         "A Ana come pão. | Ana eats bread."),
        (ANA, "comer pão", "eat bread", "present", "-",
         "A Ana não come pão. | Ana doesn't eat bread."),
        (ANA, "comer pão", "eat bread", "past", "?",
         "A Ana comeu pão? | Did Ana eat bread?"),
        (WE, "ir à praia", "go to the beach", "past", "+",
         "Fomos à praia. | We went to the beach."),
        (I, "nadar", "swim", "progressive", "+", "Estou a nadar. | I'm swimming."),
        (THEY, "nadar", "swim", "going", "-",
         "Eles não vão nadar. | They aren't going to swim."),
        (HE, "fazer a cama", "make the bed", "already", "+",
         "Ele já fez a cama. | He's already made the bed."),
        (HE, "fazer a cama", "make the bed", "already", "-",
         "Ele ainda não fez a cama. | He hasn't made the bed yet."),
        (I, "ser alto", "be tall", "present", "-", "Não sou alto. | I'm not tall."),
        (SHE, "jogar", "play", "imperfect", "+", "Ela jogava. | She used to play."),
        (I, "jogar", "play", "imperfect", "+", "Eu jogava. | I used to play."),
        (WE, "levantar-se", "get up", "present", "+",
         "Levantamo-nos. | We get up."),
        (WE, "levantar-se", "get up", "present", "-",
         "Não nos levantamos. | We don't get up."),
        (I, "deitar-se", "go to bed", "going", "+",
         "Vou deitar-me. | I'm going to go to bed."),
        (SHE, "fazer as malas", "pack one's suitcases", "present", "+",
         "Ela faz as malas. | She packs her suitcases."),
        (HE, "poder sair", "can leave", "present", "-",
         "Ele não pode sair. | He can't leave."),
    ],
)  # fmt: skip
def test_clauses(who, pt, en, tense, mode, sentences):
    assert " | ".join(grammar.say(who, pt, en, tense, mode)) == sentences


@pytest.mark.parametrize(
    ("contracted", "expected"),
    [
        (grammar.de("o carro"), "do carro"),
        (grammar.de("as casas"), "das casas"),
        (grammar.de("ela"), "dela"),
        (grammar.de("aquela loja"), "daquela loja"),
        (grammar.de("um amigo"), "de um amigo"),
        (grammar.de("Lisboa"), "de Lisboa"),
        (grammar.em("o Porto"), "no Porto"),
        (grammar.em("uma loja"), "numa loja"),
        (grammar.em("Espanha"), "em Espanha"),
        (grammar.ao("a praia"), "à praia"),
        (grammar.ao("os Estados Unidos"), "aos Estados Unidos"),
        (grammar.ao("Paris"), "a Paris"),
    ],
)
def test_contractions(contracted, expected):
    assert contracted == expected


def test_english_words():
    assert [grammar.indefinite(word) for word in ("apple", "pear", "hour")] == [
        "an apple", "a pear", "an hour"
    ]  # fmt: skip
    assert grammar.indefinite("honest man") == "an honest man"
    assert grammar.indefinite("university") == "a university"
    assert grammar.indefinite("umbrella") == "an umbrella"
    assert [grammar.third(verb) for verb in ("go", "watch", "tidy", "play")] == [
        "goes", "watches", "tidies", "plays"
    ]  # fmt: skip
    assert [grammar.past(verb) for verb in ("stop", "tidy", "open", "go", "dance")] == [
        "stopped", "tidied", "opened", "went", "danced"
    ]  # fmt: skip
    assert [grammar.ing(verb) for verb in ("swim", "see", "make", "listen", "fix")] == [
        "swimming", "seeing", "making", "listening", "fixing"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "gender", "pt", "en"),
    [
        (1, "f", "uma", "one"),
        (2, "f", "duas", "two"),
        (12, "f", "doze", "twelve"),
        (16, "m", "dezasseis", "sixteen"),
        (20, "f", "vinte", "twenty"),
        (21, "f", "vinte e uma", "twenty-one"),
        (32, "m", "trinta e dois", "thirty-two"),
        (92, "f", "noventa e duas", "ninety-two"),
        (100, "m", "cem", "a hundred"),
    ],
)
def test_numbers(value, gender, pt, en):
    assert grammar.number(value, gender)[:2] == (pt, en)


def test_an_unknown_class_of_nouns_is_an_error():
    with pytest.raises(ValueError, match="unicorn"):
        grammar.nouns("unicorn")


# --- Splits -----------------------------------------------------------------------


def _leaks(splits):
    names = list(splits)
    for place, name in enumerate(names):
        for other in names[place + 1 :]:
            for side in (0, 1):
                mine = {sentence_key(pair[side]) for pair in splits[name]}
                theirs = {sentence_key(pair[side]) for pair in splits[other]}
                yield from mine & theirs


def test_splits_are_disjoint_on_both_sides_and_lose_nothing():
    splits = phrasebook.splits()
    assert list(splits) == ["train", "validation", "test"]
    assert len(splits["validation"]) == len(splits["test"]) == 500
    assert list(_leaks(splits)) == []
    assert sorted(chain(*splits.values())) == sorted(PAIRS)


def test_splits_depend_on_the_seed_alone():
    assert phrasebook.splits(seed=3) == phrasebook.splits(seed=3)
    assert phrasebook.splits(seed=3)["test"] != phrasebook.splits(seed=4)["test"]


def test_sentence_key_sees_through_near_copies():
    assert sentence_key("Olá,  Ana!") == sentence_key("OLÁ ANA")
    assert sentence_key("A\u0301gua") == sentence_key("Água")
    assert sentence_key("avó") != sentence_key("avô")


WORDS = st.sampled_from(["um", "Um!", "dois", "três", "quatro", "cinco", "seis"])


@given(
    st.lists(st.builds(Pair, WORDS, WORDS), max_size=30),
    st.integers(0, 4),
    st.integers(0, 4),
    st.integers(0, 3),
)
def test_hold_out_never_leaks(pairs, validation, test, seed):
    sizes = {"validation": validation, "test": test}
    try:
        splits = hold_out(pairs, sizes, seed)
    except UserError as error:
        assert "\n" not in str(error)
        return
    assert {name: len(splits[name]) for name in sizes} == sizes
    assert sorted(chain(*splits.values())) == sorted(pairs)
    assert list(_leaks(splits)) == []
    assert splits == hold_out(pairs, sizes, seed)


def test_pairs_that_share_a_side_stay_together():
    linked = [Pair("a", "1"), Pair("a", "2"), Pair("b", "2"), Pair("c", "3")]
    assert hold_out(linked, {"test": 1}, seed=0)["test"] == [Pair("c", "3")]


def test_too_few_pairs_is_one_clear_line():
    with pytest.raises(UserError, match="5 for test from 1 pairs"):
        hold_out([Pair("a", "1")], {"test": 5}, seed=0)
    with pytest.raises(UserError):
        hold_out([Pair("a", "1")], {"test": 1}, seed=0)


def test_bad_sizes_are_programming_errors():
    with pytest.raises(ValueError, match="train"):
        hold_out([], {"train": 1}, seed=0)
    with pytest.raises(ValueError, match="negative"):
        hold_out([], {"test": -1}, seed=0)
