"""Adds copies of pairs in forms that clean corpora lack.

    python recipes/augment.py pairs.tsv.gz more.tsv.gz --joined 0.3 --careless 0.35

`--joined` is the share of pairs that get a copy joined with the next one or two pairs,
so that it holds several sentences. `--careless` is the share of all pairs, joined ones
included, that get a copy with a source written in haste: without capitals, accents or
final punctuation, or with spaces around all punctuation. If a source has no capitals,
the sentences of its translation begin in lower case; names and "I" keep their capital.
The same pairs give the same copies.
"""

import argparse
import collections
import hashlib
import random
import re
import unicodedata

import pairs as files

# The final punctuation, which careless copies may lack.
_END = re.compile(r"[\s.!?…]+$")
# The Penn Treebank writes these quotes as `` and '', and so do corpora like it.
_QUOTED = re.compile(r"[\"“]([^\"“”]*)[\"”]")
# The end of a text that another sentence may follow.
_CLOSED = re.compile(r"[.!?…][\"”»)]*$")
# The marks that a tokenizer puts spaces around; not the comma in 1,5.
_MARKS = re.compile(r"([.…]{2,}|``|''|[!?;:()«»“”\"]|[.,](?!\w))")
# The first word of a sentence, and the words inside one.
_FIRST = re.compile(r"(^\W*|[.!?…][\"”»)]*\s+\W*)(\w+)")
_INNER = re.compile(r"(?<=[\w,;] )\w+")


def augmented(pairs, joined, careless):
    """Returns the pairs in their order, each followed by its copies.

    The source of a pair decides whether and how the pair is copied.

    Example:
        >>> pairs = [("Olá.", "Hello."), ("É noite.", "It is night.")]
        >>> [source for source, _ in augmented(pairs, joined=1.0, careless=0.0)]
        ['Olá.', 'Olá. É noite.', 'É noite.']
    """
    with_joined = []
    for number, pair in enumerate(pairs):
        with_joined.append(pair)
        chance = _chance_of(pair, "joined")
        if chance.random() < joined:
            others = pairs[number + 1 : number + chance.choice((2, 2, 3))]
            if others and _CLOSED.search(pair[0]):
                both = zip(pair, *others, strict=True)
                with_joined.append(tuple(" ".join(side) for side in both))
    names = names_in(target for _, target in pairs)
    found = []
    for source, target in with_joined:
        found.append((source, target))
        chance = _chance_of((source, target), "careless")
        if chance.random() < careless:
            copy = write_carelessly(source, chance)
            if copy != source:
                like = begin_in_lower_case(target, names) if copy.islower() else target
                found.append((copy, like))
    return found


def _chance_of(pair, purpose):
    return random.Random(hashlib.sha256(f"{purpose}\t{pair[0]}".encode()).digest())


def write_carelessly(text, chance):
    """Returns a text with one to three of the four changes of `--careless`.

    Example:
        >>> [write_carelessly("Água!", random.Random(seed)) for seed in (1, 3, 4, 0)]
        ['água!', 'Agua!', 'Água', 'água !']
        >>> text = '"Já, 1,50"... ok?'
        >>> print(*(write_carelessly(text, random.Random(seed)) for seed in (21, 31)))
        " Já , 1,50 " ... ok ? `` Já , 1,50 '' ... ok ?
        >>> write_carelessly("...", random.Random(0))  # punctuation alone stays
        '...'
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


def names_in(texts):
    """Returns the words that usually have a capital inside sentences.

    Example:
        >>> sorted(names_in(["Then Ana and I left.", "An ant left.", "The ant, Ana!"]))
        ['Ana', 'I']
    """
    counts = collections.Counter(
        word for text in texts for word in _INNER.findall(text)
    )
    return {
        word
        for word in counts
        if word[0].isupper() and counts[word] > counts[word.lower()]
    }


def begin_in_lower_case(text, names):
    """Returns a text whose sentences begin in lower case, except with a name.

    Example:
        >>> begin_in_lower_case("We know. Ana left! UFOs? I see.", {"Ana", "I"})
        'we know. Ana left! UFOs? I see.'
    """

    def lowered(match):
        word = match[2]
        plain = word.istitle() and word not in names
        return match[1] + (word[0].lower() + word[1:] if plain else word)

    return _FIRST.sub(lowered, text)


def without_accents(text):
    """Returns a text without accents and cedillas, in Unicode's NFC form.

    Example:
        >>> without_accents("Ação, à noite, já!")
        'Acao, a noite, ja!'
    """
    parts = unicodedata.normalize("NFD", text)
    kept = "".join(c for c in parts if not unicodedata.combining(c))
    return unicodedata.normalize("NFC", kept)


def main():
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", help="pairs: a TSV (.gz too) or phrasebook")
    parser.add_argument("out", help="the TSV to write, gzipped if it ends in .gz")
    for name in ("--joined", "--careless"):
        parser.add_argument(name, type=float, default=0.0, help="a share, 0 to 1")
    arguments = parser.parse_args()
    pairs = files.read(arguments.data, cleaned=True)
    files.write(arguments.out, augmented(pairs, arguments.joined, arguments.careless))


if __name__ == "__main__":
    main()
