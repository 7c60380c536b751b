"""More pairs from pairs: what a model should read too, and clean corpora lack."""

import hashlib
import random
import re
import unicodedata

from tfxformer.corpora.pair import Pair

# What may be left out at the end of a sentence.
_END = re.compile(r"[\s.!?…]+$")
# The Penn Treebank writes these quotes as `` and '', and so do corpora like it.
_QUOTED = re.compile(r"[\"“]([^\"“”]*)[\"”]")
# What another sentence may follow.
_CLOSED = re.compile(r"[.!?…][\"”»)]*$")
# What a tokeniser puts spaces around; not the comma in 1,5.
_MARKS = re.compile(r"([.…]{2,}|``|''|[!?;:()«»“”\"]|[.,](?!\w))")


def augmented(pairs: list[Pair], joined: float, careless: float) -> list[Pair]:
    """Adds copies: several sentences in one, and sources that were written in haste.

    Whether and how a pair is copied is decided by its own source, so the same pairs
    always give the same copies.

    Args:
        pairs: pairs as they are.
        joined: the share of the pairs, 0 to 1, that come a second time joined to the
            one or two that follow.
        careless: the share of all these, 0 to 1, that come again with a source written
            carelessly; their target is not.

    Returns:
        The pairs in their order, copies after what they are copies of.

    Example:
        >>> pairs = [Pair("Olá.", "Hello."), Pair("É noite.", "It is night.")]
        >>> [pair.source for pair in augmented(pairs, joined=1.0, careless=0.0)]
        ['Olá.', 'Olá. É noite.', 'É noite.']
        >>> len(augmented(pairs, joined=0.0, careless=1.0))
        4
    """
    with_joined = []
    for number, pair in enumerate(pairs):
        with_joined.append(pair)
        chance = _chance_of(pair, "joined")
        if chance.random() < joined:
            others = pairs[number + 1 : number + chance.choice((2, 2, 3))]
            if others and _CLOSED.search(pair.source):
                with_joined.append(_join([pair, *others]))
    found = []
    for pair in with_joined:
        found.append(pair)
        chance = _chance_of(pair, "careless")
        if chance.random() < careless:
            source = write_carelessly(pair.source, chance)
            if source != pair.source:
                found.append(Pair(source, pair.target))
    return found


def _chance_of(pair, purpose):
    return random.Random(hashlib.sha256(f"{purpose}\t{pair.source}".encode()).digest())


def _join(pairs):
    return Pair(*(" ".join(side) for side in zip(*pairs, strict=True)))


def write_carelessly(text: str, chance: random.Random) -> str:
    """Writes a text in haste: without capitals, accents or its end, or tokenised.

    Args:
        text: a sentence.
        chance: what decides.

    Returns:
        The text with one or more of four changes: lower case, no accents, no
        punctuation at the end, spaces around all punctuation.

    Example:
        >>> write_carelessly("Água!", random.Random(3))
        'Agua!'
    """
    changes = ["lower", "plain", "open end", "spaced"]
    chosen = chance.sample(changes, chance.randint(1, 3))
    if "lower" in chosen:
        text = text.lower()
    if "plain" in chosen:
        text = without_accents(text)
    if "open end" in chosen:
        text = _END.sub("", text) or text
    if "spaced" in chosen:
        if chance.random() < 0.5:
            text = _QUOTED.sub(r"``\1''", text)
        text = " ".join(_MARKS.sub(r" \1 ", text).split())
    return text


def without_accents(text: str) -> str:
    """Leaves letters without their accents, the cedilla among them.

    Args:
        text: any text.

    Returns:
        The text, its letters composed.

    Example:
        >>> without_accents("Ação, à noite, já!")
        'Acao, a noite, ja!'
    """
    parts = unicodedata.normalize("NFD", text)
    kept = "".join(c for c in parts if not unicodedata.combining(c))
    return unicodedata.normalize("NFC", kept)
