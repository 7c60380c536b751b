"""What the patterns of the phrasebook share: the registry, people, times, places.

A pattern is a function that takes one word for each of its slots and returns a
`Pair`, or None where the words do not go together. To add one, name in the
decorator the lists that its slots choose from:

    @pattern(who=PEOPLE, what=nouns("drink"))
    def wants_a_drink(who, what):
        return say(who, f"querer {what.pt}", f"want {what.en}")

The patterns themselves are in `patterns_people.py`, `patterns_home.py` and
`patterns_town.py`. A pattern's name says what its sentences say, so it has no
docstring. The same Portuguese must have the same English everywhere.

A slot called `who` that meets `mode="?"` is asked about as one asks: "do you", not
"do I", and "does your sister", not "does my sister".
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from grammar import (
    LEXICON,
    Noun,
    Phrase,
    adjectives,
    de,
    nouns,
    of,
    own,
    phrases,
    the,
)

from tfxformer.corpora import Pair


class Pattern(NamedTuple):
    """A pattern and the lists its slots choose from."""

    make: Callable[..., Pair | None]
    slots: dict[str, Sequence]

    def pair(self, index: int) -> Pair | None:
        """Make the sentence of one combination of words, by its number."""
        words = {}
        for slot, choices in self.slots.items():
            index, place = divmod(index, len(choices))
            words[slot] = choices[place]
        if words.get("mode") == "?" and "who" in words:
            words["who"] = asked_about(words["who"])
        if words.get("mode") == "-" and "ago" in getattr(words.get("when"), "en", ""):
            return None  # "I didn't phone two days ago": nobody says that.
        return self.make(**words)


PATTERNS: list[Pattern] = []


def pattern(**slots: Sequence) -> Callable:
    """Register a pattern; each keyword names a slot and what may fill it."""

    def register(make: Callable[..., Pair | None]) -> Callable:
        PATTERNS.append(Pattern(make, slots))
        return make

    return register


# --- People -----------------------------------------------------------------------

I = Phrase("", "I", "m", False, 1)  # noqa: E741
YOU = Phrase("", "you", "m", False, 2)
HE = Phrase("ele", "he")
SHE = Phrase("ela", "she", "f")
WE = Phrase("", "we", "m", True, 1)
YOU_ALL = Phrase("vocês", "you", "m", True, 2)
THEY = Phrase("eles", "they", "m", True)
THEY_F = Phrase("elas", "they", "f", True)
IT = Phrase("", "it")
PRONOUNS = [I, YOU, HE, SHE, WE, YOU_ALL, THEY, THEY_F]
# For sentences with an adjective: "estou cansada" is said by a woman.
GENDERED = [*PRONOUNS, *(who._replace(gender="f") for who in (I, YOU, WE, YOU_ALL))]
OWNERS = [I, YOU, HE, SHE, WE, THEY]
NAMES = [
    Phrase(f"{article} {name}", name, gender)
    for gender, article in (("m", "o"), ("f", "a"))
    for name in LEXICON["names"][gender]
]
KIN = [own(I, noun) for noun in nouns("kin") + nouns("relatives")]
ONE_KIN = [kin for kin in KIN if not kin.plural]
FRIENDS = [own(I, noun) for noun in nouns("friend")]
FRIENDS += [own(I, nouns("friend")[0], plural=True)]
CHILDREN = Phrase("as crianças", "the children", "f", True)
OTHERS = [
    Phrase("o rapaz", "the boy"),
    Phrase("a rapariga", "the girl", "f"),
    Phrase("o professor", "the teacher"),
    Phrase("a professora", "the teacher", "f"),
    Phrase("os alunos", "the students", "m", True),
    CHILDREN,
]
NAMED = NAMES + KIN + FRIENDS
# Pronouns are said more often than any one name.
PEOPLE = PRONOUNS * 4 + NAMED + OTHERS
GENDERED_PEOPLE = GENDERED * 3 + NAMED
THIRD_PERSONS = NAMED + OTHERS
MODES = ("+", "-", "?")
STATE_OR_DENY = ("+", "-")

# One asks about others: "do you", "does your sister", never "does my sister".
_ASKED = {own(I, noun): own(YOU, noun) for noun in nouns("kin|relatives|friend")}
_ASKED |= {FRIENDS[-1]: own(YOU, nouns("friend")[0], plural=True)}
_ASKED |= {I: YOU, WE: YOU_ALL}
_ASKED |= {I._replace(gender="f"): YOU._replace(gender="f")}
_ASKED |= {WE._replace(gender="f"): YOU_ALL._replace(gender="f")}

GRAND = {"grandfather", "grandmother", "grandparents"}
GROWN_UP = {"father", "mother", "parents", "uncle", "aunt", "husband", "wife"}
YOUNG = {"son", "daughter", "nephew", "niece", "grandson", "granddaughter", "children"}
PUPILS = {"boy", "girl", "students"}


def asked_about(who: Phrase) -> Phrase:
    """Turn someone one talks about into someone one asks about."""
    return _ASKED.get(who, who)


def is_one_of(who: Phrase, words: set[str]) -> bool:
    """Say whether the English for someone has one of these words."""
    return not words.isdisjoint(who.en.split())


def pronoun(who: Phrase) -> Phrase:
    """Give the pronoun that takes someone up again: "Ana", then "she"."""
    if who.person != 3:
        return who
    if who.plural:
        return {"m": THEY, "f": THEY_F}[who.gender]
    return {"m": HE, "f": SHE}[who.gender]


def apart(who: Phrase, whom: Phrase) -> bool:
    """Say whether these are two people who can meet, of one speaker's family."""
    spouses = {"my husband", "my wife"}
    both = {who.en, whom.en}
    crowd = (who.plural or whom.plural) and who in KIN and whom in KIN
    overlap = who.person == 1 and whom.person == 1
    return who != whom and not crowd and not overlap and both != spouses


def of_whom(thing: Noun, owner: Phrase | None, plural: bool = False) -> Phrase:
    """Give something of anybody: "the cat", "my cat", "Ana's cat"."""
    if owner is None:
        return the(thing, plural=plural)
    if owner in OWNERS:
        return own(owner, thing, plural=plural)
    return of(owner, the(thing, plural=plural))


def fits(who: Phrase, clothes: Noun) -> bool:
    """Say whether these clothes are usual for someone whose gender shows."""
    usual = {"dress": "f", "skirt": "f", "blouse": "f", "tie": "m"}
    return who.person != 3 or usual.get(clothes.en, who.gender) == who.gender


# --- Places, times and things -----------------------------------------------------


COUNTRIES = [
    Phrase(f"{article} {pt}" if article else pt, en, "m", article == "os")
    for pt, (article, en) in LEXICON["countries"].items()
]
CITIES = [
    Phrase(f"{article} {pt}" if article else pt, en)
    for pt, (article, en) in LEXICON["cities"].items()
]


PAST = phrases("times", "past")
FUTURE = phrases("times", "future")
HABIT = phrases("times", "habit")
FREQUENCIES = [
    Phrase("sempre", "always"),
    Phrase("nunca", "never"),
    Phrase("raramente", "rarely"),
    Phrase("às vezes", "sometimes"),
    Phrase("normalmente", "usually"),
]


FURNITURE = nouns("furniture")


def beside(place: Phrase, thing: Phrase) -> Phrase:
    """Put a preposition before a thing: "ao lado da mesa", "next to the table"."""
    preposition = place.pt.removesuffix("de")
    return Phrase(f"{preposition}{de(thing.pt)}", f"{place.en} {thing.en}")


COLOURS = adjectives("colour")
