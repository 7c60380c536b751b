"""Small grammars of Portuguese and English, as large as the phrasebook needs.

Words come from `lexicon.yaml`; this module puts them in the right form. A
`Phrase` is a piece of a sentence in both languages at once, so that a pattern
cannot say one thing in Portuguese and another in English.
"""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import yaml

from tfxformer.corpora import Pair


def _read_lexicon() -> dict:
    text = Path(__file__).with_name("lexicon.yaml").read_text("utf-8")
    # The C loader is ten times faster, but not every build of PyYAML has it.
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


LEXICON = _read_lexicon()


class Phrase(NamedTuple):
    """A piece of a sentence in both languages, with what others agree with."""

    pt: str
    en: str
    gender: str = "m"
    plural: bool = False
    person: int = 3


class Noun(NamedTuple):
    """A noun as the lexicon has it; `only_plural` as in "as calças"."""

    pt: str
    en: str
    gender: str
    pt_plural: str
    en_plural: str
    only_plural: bool = False


class Adjective(NamedTuple):
    """An adjective: Portuguese masculine, feminine and masculine plural."""

    pt: str
    en: str
    feminine: str
    masculine_plural: str


# --- Portuguese words -------------------------------------------------------------


def pt_plural(word: str) -> str:
    """Give the regular plural: "mês" becomes "meses", "hotel" becomes "hotéis"."""
    for ending, plural in (
        ("ão", "ões"),
        ("ês", "eses"),
        ("m", "ns"),
        ("r", "res"),
        ("z", "zes"),
        ("al", "ais"),
        ("el", "éis"),
        ("ol", "óis"),
        ("ul", "uis"),
        ("il", "is"),
        ("s", "s"),
    ):
        if word.endswith(ending):
            # "móvel" and "confortável" already carry the accent elsewhere.
            if ending == "el" and any(letter in word for letter in "áéíóú"):
                plural = "eis"
            return word.removesuffix(ending) + plural
    return word + "s"


def pt_feminine(word: str) -> str:
    """Give the regular feminine of an adjective: "novo", "nova"."""
    if word.endswith("o"):
        return word[:-1] + "a"
    if word.endswith("ês"):
        return word[:-2] + "esa"
    return word + "a" if word.endswith("dor") else word


def agree(adjective: Adjective, phrase: Phrase | Noun) -> str:
    """Put an adjective in the gender and number of what it describes.

    Args:
        adjective: The adjective.
        phrase: What it describes.

    Returns:
        The Portuguese form.

    Example:
        >>> agree(adjectives("colour")[0], Phrase("as casas", "the houses", "f", True))
        'vermelhas'
    """
    plural = phrase.plural if isinstance(phrase, Phrase) else phrase.only_plural
    if phrase.gender == "m":
        return adjective.masculine_plural if plural else adjective.pt
    if not plural or adjective.feminine == adjective.masculine_plural:
        return adjective.feminine
    return pt_plural(adjective.feminine)


_CONTRACTIONS = {
    "de": {"o": "do", "a": "da", "os": "dos", "as": "das"}
    | {"ele": "dele", "ela": "dela", "eles": "deles", "elas": "delas"}
    | {"este": "deste", "esta": "desta", "estes": "destes", "estas": "destas"}
    | {"aquele": "daquele", "aquela": "daquela"}
    | {"aqueles": "daqueles", "aquelas": "daquelas"},
    "em": {"o": "no", "a": "na", "os": "nos", "as": "nas", "um": "num", "uma": "numa"}
    | {"este": "neste", "esta": "nesta", "aquele": "naquele", "aquela": "naquela"},
    "a": {"o": "ao", "a": "à", "os": "aos", "as": "às"},
    "por": {"o": "pelo", "a": "pela", "os": "pelos", "as": "pelas"},
}


def _contract(preposition: str, text: str) -> str:
    first, space, rest = text.partition(" ")
    contracted = _CONTRACTIONS[preposition].get(first, f"{preposition} {first}")
    return contracted + space + rest


def de(text: str) -> str:
    """Put "de" before Portuguese text: `de("o carro")` is "do carro"."""
    return _contract("de", text)


def em(text: str) -> str:
    """Put "em" before Portuguese text: `em("uma loja")` is "numa loja"."""
    return _contract("em", text)


def ao(text: str) -> str:
    """Put "a" before Portuguese text: `ao("a praia")` is "à praia"."""
    return _contract("a", text)


_ROWS = {(1, False): 0, (2, False): 1, (3, False): 2, (1, True): 3}
_ENDINGS = {
    "present": {
        "ar": "o as a amos am",
        "er": "o es e emos em",
        "ir": "o es e imos em",
    },
    "past": {
        "ar": "ei aste ou ámos aram",
        "er": "i este eu emos eram",
        "ir": "i iste iu imos iram",
    },
    "imperfect": {
        "ar": "ava avas ava ávamos avam",
        "er": "ia ias ia íamos iam",
        "ir": "ia ias ia íamos iam",
    },
}


@cache
def _paradigm(verb: str, tense: str) -> list[str]:
    irregular = LEXICON["irregular_verbs"].get(verb, {})
    if tense in irregular:
        return irregular[tense]
    stem, ending = verb[:-2], verb[-2:]
    forms = [stem + suffix for suffix in _ENDINGS[tense][ending].split()]
    if tense == "past" and ending == "ar":
        forms[0] = _soft(stem) + "ei"
    if tense == "present" and ending == "er" and stem.endswith("c"):
        forms[0] = stem[:-1] + "ço"
    return forms


def _soft(stem: str) -> str:
    """Spell a stem before "e": "fiquei", "cheguei", "comecei"."""
    for ending, spelt in (("c", "qu"), ("g", "gu"), ("ç", "c")):
        if stem.endswith(ending):
            return stem.removesuffix(ending) + spelt
    return stem


def conjugate(verb: str, who: Phrase, tense: str = "present") -> str:
    """Conjugate a Portuguese verb.

    Args:
        verb: The infinitive.
        who: The subject.
        tense: "present", "past" (pretérito perfeito) or "imperfect".

    Returns:
        The verb's form; "vocês" takes the third person plural.

    Example:
        >>> conjugate("comer", Phrase("", "we", "m", True, 1), "past")
        'comemos'
    """
    return _paradigm(verb, tense)[_ROWS.get((who.person, who.plural), 4)]


def command(verb: str, polite: bool) -> str:
    """Tell someone to do something.

    Args:
        verb: The infinitive.
        polite: Speak to "o senhor" or "a senhora", rather than to "tu".

    Returns:
        The imperative: "abra" where polite, else "abre".
    """
    if not polite:
        return _paradigm(verb, "present")[2]
    stem = _paradigm(verb, "present")[0].removesuffix("o")
    return _soft(stem) + "e" if verb.endswith("ar") else stem + "a"


# --- English words ----------------------------------------------------------------


def en_plural(word: str) -> str:
    """Give the regular plural: "box" becomes "boxes", "party" becomes "parties"."""
    if word.endswith(("s", "x", "ch", "sh")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


def indefinite(text: str) -> str:
    """Put "a" or "an" before English text, by its sound."""
    silent = text.startswith(("hour", "honest"))
    consonant = text.startswith(("uni", "use", "euro", "one", "Euro"))
    vowel = silent or (text[0].lower() in "aeiou" and not consonant)
    return f"an {text}" if vowel else f"a {text}"


def _doubles_its_end(verb: str) -> bool:
    """Say whether the last consonant doubles: "swim", "travel", but not "listen"."""
    vowels = [letter in "aeiou" for letter in verb]
    short = sum(vowels) == 1 and vowels[-2:] == [True, False] and len(verb) > 2
    return (short and verb[-1] not in "wxy") or verb.endswith("vel")


def third(verb: str) -> str:
    """Give the English third person singular: "goes", "tidies", "has"."""
    if verb == "have":
        return "has"
    return verb + "es" if verb.endswith("o") else en_plural(verb)


def past(verb: str) -> str:
    """Give the English simple past: "went", "tidied", "stopped"."""
    if verb in LEXICON["english_verbs"]:
        return LEXICON["english_verbs"][verb][0]
    if verb.endswith("e"):
        return verb + "d"
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ied"
    return verb + (verb[-1] if _doubles_its_end(verb) else "") + "ed"


def participle(verb: str) -> str:
    """Give the English past participle: "gone", "tidied"."""
    if verb in LEXICON["english_verbs"]:
        return LEXICON["english_verbs"][verb][1]
    return past(verb)


def ing(phrase: str) -> str:
    """Give the English -ing form of a verb phrase: "swimming in the sea"."""
    verb, space, rest = phrase.partition(" ")
    if verb.endswith("e") and verb not in ("be", "see"):
        verb = verb[:-1]
    elif _doubles_its_end(verb):
        verb += verb[-1]
    return verb + "ing" + space + rest


def comparative(adjective: str) -> str:
    """Give the English comparative: "taller", "more expensive"."""
    short = LEXICON["english_comparatives"].get(adjective)
    return short[0] if short else f"more {adjective}"


def superlative(adjective: str) -> str:
    """Give the English superlative, without "the": "tallest", "most expensive"."""
    short = LEXICON["english_comparatives"].get(adjective)
    return short[1] if short else f"most {adjective}"


def pt_comparative(adjective: Adjective, phrase: Phrase) -> str:
    """Give the Portuguese comparative: "mais altas", "melhores"."""
    short = LEXICON["portuguese_comparatives"].get(adjective.pt)
    if short:
        return pt_plural(short) if phrase.plural else short
    return f"mais {agree(adjective, phrase)}"


# --- Numbers ----------------------------------------------------------------------

_PT_UNITS = [
    "zero",
    "um",
    "dois",
    "três",
    "quatro",
    "cinco",
    "seis",
    "sete",
    "oito",
    "nove",
    "dez",
    "onze",
    "doze",
    "treze",
    "catorze",
    "quinze",
    "dezasseis",
    "dezassete",
    "dezoito",
    "dezanove",
]
_PT_TENS = [
    "vinte",
    "trinta",
    "quarenta",
    "cinquenta",
    "sessenta",
    "setenta",
    "oitenta",
    "noventa",
]
_EN_UNITS = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_EN_TENS = [
    "twenty",
    "thirty",
    "forty",
    "fifty",
    "sixty",
    "seventy",
    "eighty",
    "ninety",
]


def number(value: int, gender: str = "m") -> Phrase:
    """Write a number from 0 to 100 in words.

    Args:
        value: The number.
        gender: Portuguese "um" and "dois" agree with what is counted.

    Returns:
        The number in both languages.

    Example:
        >>> number(22, "f")[:2]
        ('vinte e duas', 'twenty-two')
    """
    tens, units = divmod(value, 10)
    if value == 100:
        return Phrase("cem", "a hundred", gender, True)
    if value < 20:
        pt, en = _PT_UNITS[value], _EN_UNITS[value]
    elif units == 0:
        pt, en = _PT_TENS[tens - 2], _EN_TENS[tens - 2]
    else:
        pt = f"{_PT_TENS[tens - 2]} e {_PT_UNITS[units]}"
        en = f"{_EN_TENS[tens - 2]}-{_EN_UNITS[units]}"
    if gender == "f" and value not in (11, 12):
        if units == 1:
            pt = pt.removesuffix("um") + "uma"
        elif units == 2:
            pt = pt.removesuffix("dois") + "duas"
    return Phrase(pt, en, gender, value != 1)


# --- Looking words up -------------------------------------------------------------


def nouns(*classes: str) -> list[Noun]:
    """List the nouns that have all these classes; "a|b" is either.

    Args:
        *classes: Words from the keys of `nouns` in the lexicon.

    Returns:
        The nouns, in the lexicon's order.

    Raises:
        ValueError: If no noun has them: the pattern has a slip of the pen.

    Example:
        >>> [noun.en for noun in nouns("food", "mass")][:2]
        ['rice', 'pasta']
    """
    found = [
        _noun(pt, *entry)
        for group, entries in LEXICON["nouns"].items()
        if all(set(group.split()) & set(wanted.split("|")) for wanted in classes)
        for pt, entry in entries.items()
    ]
    if not found:
        raise ValueError(f"the lexicon has no nouns of class {classes}")
    return found


def _noun(
    pt: str,
    gender: str,
    en: str,
    plural: str | None = None,
    plural_en: str | None = None,
) -> Noun:
    if gender.endswith("p"):
        return Noun(pt, en, gender[0], pt, en, only_plural=True)
    return Noun(pt, en, gender, plural or pt_plural(pt), plural_en or en_plural(en))


def adjectives(*groups: str) -> list[Adjective]:
    """List the adjectives of these groups, in the lexicon's order."""
    found = []
    for group in groups:
        for pt, entry in LEXICON["adjectives"][group].items():
            en, *forms = [entry] if isinstance(entry, str) else entry
            feminine = forms[0] if forms else pt_feminine(pt)
            plural = forms[1] if len(forms) > 1 else pt_plural(pt)
            found.append(Adjective(pt, en, feminine, plural))
    return found


def phrases(*path: str) -> list[Phrase]:
    """List the entries of a part of the lexicon that maps Portuguese to English."""
    entries = LEXICON
    for key in path:
        entries = entries[key]
    return [Phrase(pt, en) for pt, en in entries.items()]


# --- Noun phrases -----------------------------------------------------------------

_ARTICLES = {
    ("m", False): "o um este aquele",
    ("f", False): "a uma esta aquela",
    ("m", True): "os uns estes aqueles",
    ("f", True): "as umas estas aquelas",
}


def _article(kind: str, gender: str, plural: bool) -> str:
    column = ("the", "a", "this", "that").index(kind)
    return _ARTICLES[gender, plural].split()[column]


def bare(
    noun: Noun, adjective: Adjective | None = None, plural: bool = False
) -> Phrase:
    """Give a noun without article: "pão fresco", "fresh bread".

    Args:
        noun: The noun.
        adjective: What it is like, if anything; after the noun in Portuguese.
        plural: More than one.

    Returns:
        The phrase, with its gender and number.
    """
    plural = plural or noun.only_plural
    phrase = Phrase(
        noun.pt_plural if plural else noun.pt,
        noun.en_plural if plural else noun.en,
        noun.gender,
        plural,
    )
    if adjective is None:
        return phrase
    return phrase._replace(
        pt=f"{phrase.pt} {agree(adjective, phrase)}", en=f"{adjective.en} {phrase.en}"
    )


def the(noun: Noun, adjective: Adjective | None = None, plural: bool = False) -> Phrase:
    """Give a noun with the definite article: "a casa", "the house"."""
    phrase = bare(noun, adjective, plural)
    article = _article("the", phrase.gender, phrase.plural)
    return phrase._replace(pt=f"{article} {phrase.pt}", en=f"the {phrase.en}")


def a(noun: Noun, adjective: Adjective | None = None) -> Phrase:
    """Give one of something: "uma casa", "a house"; "a pair of" trousers."""
    phrase = bare(noun, adjective)
    article = _article("a", phrase.gender, phrase.plural)
    en = f"a pair of {phrase.en}" if noun.only_plural else indefinite(phrase.en)
    return phrase._replace(pt=f"{article} {phrase.pt}", en=en)


def this(noun: Noun, plural: bool = False, far: bool = False) -> Phrase:
    """Point at something: "este carro", "this car"; far away, "aquele"."""
    phrase = bare(noun, plural=plural)
    kind = "that" if far else "this"
    pt = f"{_article(kind, phrase.gender, phrase.plural)} {phrase.pt}"
    plural_en = {"this": "these", "that": "those"}[kind]
    return phrase._replace(
        pt=pt, en=f"{plural_en if phrase.plural else kind} {phrase.en}"
    )


def generic(noun: Noun) -> Phrase:
    """Give a thing in general: "pão", "bread", but "maçãs", "apples"."""
    return bare(noun, plural=noun not in _MASS)


def count(value: int, noun: Noun) -> Phrase:
    """Count things: "duas cadeiras", "two chairs"."""
    phrase = bare(noun, plural=value != 1)
    amount = number(value, noun.gender)
    return phrase._replace(pt=f"{amount.pt} {phrase.pt}", en=f"{amount.en} {phrase.en}")


_OWNERS = {
    (1, False): ("meu minha meus minhas", "my"),
    (2, False): ("teu tua teus tuas", "your"),
    (1, True): ("nosso nossa nossos nossas", "our"),
    (2, True): ("vosso vossa vossos vossas", "your"),
}


def possessive(owner: Phrase) -> str:
    """Give the English possessive of a subject: "my", "his", "their"."""
    if (owner.person, owner.plural) in _OWNERS:
        return _OWNERS[owner.person, owner.plural][1]
    return "their" if owner.plural else {"m": "his", "f": "her"}[owner.gender]


def own(
    owner: Phrase,
    noun: Noun,
    adjective: Adjective | None = None,
    plural: bool = False,
) -> Phrase:
    """Give something of someone that a pronoun names: "o meu gato", "o gato dela".

    Args:
        owner: Whose it is; only person, gender and number count.
        noun: What it is.
        adjective: What it is like, if anything.
        plural: More than one.

    Returns:
        The phrase, with the gender and number of what is owned.
    """
    phrase = bare(noun, adjective, plural)
    article = _article("the", phrase.gender, phrase.plural)
    if owner.person == 3:
        pronoun = {"m": "ele", "f": "ela"}[owner.gender] + "s" * owner.plural
        pt = f"{article} {phrase.pt} d{pronoun}"
    else:
        forms = _OWNERS[owner.person, owner.plural][0].split()
        form = forms[2 * phrase.plural + (phrase.gender == "f")]
        pt = f"{article} {form} {phrase.pt}"
    return phrase._replace(pt=pt, en=f"{possessive(owner)} {phrase.en}")


def of(owner: Phrase, thing: Phrase) -> Phrase:
    """Give a thing of a named owner: "o gato da Ana", "Ana's cat".

    Args:
        owner: "a Ana", "o meu pai".
        thing: With the definite article: "o gato", "the cat".

    Returns:
        The phrase, with the gender and number of the thing.
    """
    genitive = "'" if owner.plural and owner.en.endswith("s") else "'s"
    return thing._replace(
        pt=f"{thing.pt} {de(owner.pt)}",
        en=f"{owner.en}{genitive} {thing.en.removeprefix('the ')}",
    )


_MASS = frozenset(nouns("mass"))


# --- Clauses ----------------------------------------------------------------------

_MODALS = ("can", "should")
_NEGATIVES = {"am": "'m not", "can": " can't"}
_CONTRACTED = {"am": "'m", "is": "'s", "are": "'re", "have": "'ve", "has": "'s"}
_PRONOUNS = ("I", "you", "he", "she", "it", "we", "they")
_PT_TENSES = {"already": "past", "perfect": "present"}
_CLITICS = ("me", "te", "se", "nos", "se")
# These pull the pronoun before the verb: "não me levanto", but "levanto-me".
_BEFORE_CLITICS = (["não"], ["nunca"], ["raramente"], ["já"])


def clause(
    who: Phrase,
    pt: str,
    en: str,
    tense: str = "present",
    mode: str = "+",
    adverb: Phrase | None = None,
) -> Phrase:
    """Let someone do something, without the capital and the full stop.

    Args:
        who: The subject. An empty Portuguese side is a dropped pronoun.
        pt: The infinitive and all that follows: "levantar-se às sete".
        en: The same from the English base form; "one's" stands for the subject's
            possessive: "tidy one's bedroom".
        tense: "present", "past", "imperfect" (used to), "going" (going to),
            "progressive" (is doing), "already" (já fez, has already done) or
            "perfect" (vive há um ano, has lived for a year).
        mode: "+" states, "-" denies, "?" asks.
        adverb: "sempre"/"always", which follows the Portuguese verb, or another,
            which comes before it.

    Returns:
        Both sides.

    Example:
        >>> ana = Phrase("a Ana", "Ana", "f")
        >>> clause(ana, "comer pão", "eat bread", mode="-")[:2]
        ('a Ana não come pão', "Ana doesn't eat bread")
    """
    en = en.replace("one's", possessive(who))
    return Phrase(
        " ".join(_pt_clause(who, pt, tense, mode, adverb).split()),
        " ".join(_en_clause(who, en, tense, mode, adverb).split()),
    )


def _pt_clause(
    who: Phrase, pt: str, tense: str, mode: str, adverb: Phrase | None
) -> str:
    verb, _, rest = pt.partition(" ")
    infinitive = verb.removesuffix("-se")
    clitic = (
        _CLITICS[_ROWS.get((who.person, who.plural), 4)] if verb != infinitive else ""
    )
    after = adverb.pt if adverb and adverb.pt == "sempre" else ""
    before = adverb.pt if adverb and not after else ""
    if mode == "-":
        before = f"ainda não {before}" if tense == "already" else f"não {before}"
    elif tense == "already":
        before = f"já {before}"
    # In the imperfect "eu" and "ele" share a form: "eu" must be said.
    subject = "eu" if tense == "imperfect" and who.en == "I" else who.pt

    if tense in ("going", "progressive"):
        helper = "ir" if tense == "going" else "estar"
        link = "a " if tense == "progressive" else ""
        attached = f"-{clitic}" if clitic else ""
        form = f"{conjugate(helper, who)} {after} {link}{infinitive}{attached}"
    else:
        form = conjugate(infinitive, who, _PT_TENSES.get(tense, tense))
        if clitic and before.split()[-1:] in _BEFORE_CLITICS:
            before += f" {clitic}"
        elif clitic:
            # "levantamos" loses its -s: "levantamo-nos".
            form = (form[:-1] if clitic == "nos" else form) + f"-{clitic}"
        form = f"{form} {after}"
    return f"{subject} {before} {form} {rest}"


def _en_clause(
    who: Phrase, en: str, tense: str, mode: str, adverb: Phrase | None
) -> str:
    verb, _, rest = en.partition(" ")
    third_singular = who.person == 3 and not who.plural
    am = "am" if who.en == "I" else "is" if third_singular else "are"
    was = "was" if who.en == "I" or third_singular else "were"
    auxiliary, main = "", ""
    if verb in _MODALS:
        auxiliary, main = verb, rest
    elif tense == "progressive":
        auxiliary, main = am, ing(en)
    elif tense == "going":
        auxiliary, main = am, f"going to {en}"
    elif tense in ("already", "perfect"):
        auxiliary = "has" if third_singular else "have"
        main = f"{participle(verb)} {rest}"
        if tense == "already":
            main = f"{main} yet" if mode == "-" else f"already {main}"
    elif verb == "be":
        auxiliary, main = (am if tense == "present" else was), rest
    elif mode != "+":
        auxiliary = "did" if tense == "past" else "does" if third_singular else "do"
        main = en
    elif tense == "present":
        main = f"{third(verb) if third_singular else verb} {rest}"
    elif tense == "past":
        main = f"{past(verb)} {rest}"
    else:
        main = f"used to {en}"

    often = adverb.en if adverb else ""
    if mode == "?":
        return f"{auxiliary} {who.en} {often} {main}"
    if mode == "-":
        negative = _NEGATIVES.get(auxiliary, f" {auxiliary}n't")
        return f"{who.en}{negative} {often} {main}"
    if who.en in _PRONOUNS and auxiliary in _CONTRACTED:
        return f"{who.en}{_CONTRACTED[auxiliary]} {often} {main}"
    return f"{who.en} {auxiliary} {often} {main}"


def sentence(pt: str, en: str, end: str = ".") -> Pair:
    """Make a sentence of both sides: capital, single spaces, end mark.

    Args:
        pt: The Portuguese words.
        en: The English words.
        end: The mark at the end of both.

    Returns:
        The pair.
    """
    sides = []
    for words in (pt, en):
        text = " ".join(words.split())
        sides.append(text[0].upper() + text[1:] + end)
    return Pair(*sides)


def say(
    who: Phrase,
    pt: str,
    en: str,
    tense: str = "present",
    mode: str = "+",
    adverb: Phrase | None = None,
) -> Pair:
    """Make a sentence of one clause; the arguments are those of `clause`."""
    said = clause(who, pt, en, tense, mode, adverb)
    return sentence(said.pt, said.en, "?" if mode == "?" else ".")


def join(items: Iterable[Phrase]) -> Phrase:
    """Join two things with "e" and "and"."""
    first, second = items
    return Phrase(f"{first.pt} e {second.pt}", f"{first.en} and {second.en}", "m", True)
