"""Makes the training pairs of the shipped model, in two steps with the teacher between.

    python prepare.py repair FOLDER   # train.tsv.gz, books.tsv.gz -> repaired.*.tsv.gz,
                                      # and taught.txt, more.txt for the teacher
    python prepare.py finish FOLDER   # -> made.train, books, taught, more, dictionary

`make.sh` calls both, with `recipes/` on Python's path.

`portuguese.py` says what is repaired and why. Of the teacher's English that stays which
resembles what a person wrote: where it does not, the source is at fault, or the teacher
is, which writes "of" for "do". Of its Portuguese that stays which is not the English.
Documentation for programmers, a quarter of all words, is thinned out; half of all
sources are written as in Portugal.
"""

import random
import re
import sys
from pathlib import Path

import pairs as files
from portuguese import Repair, european, without_pronouns
from sacrebleu.metrics import CHRF

# The sources that the teacher translates have at most so many words; so many of them,
# drawn at random, are taught.txt, the others more.txt.
LONGEST, FIRST = 30, 120_000
# chrF of the teacher's translation against the person's.
LEAST_LIKE = 45
# What documentation for programmers has in it, and how much of it stays.
_CODE = re.compile(
    r"[_`{}\[\]<>=]|\(\)|[a-z]\.[a-z]|::|^\d+:|\b[a-z]+[A-Z]|\bPy[A-Z]|"
    r"\b(Python|modules?|functions?|objects?|strings?|arguments?|attributes?|methods?|"
    r"bytes|parameters?|iterators?|interpreter|exceptions?|deprecated|API|C)\b"
)
CODE_SHARE = 0.3
_DO = re.compile(r"\bdo(n['’]t)?\b", re.IGNORECASE)
_CHRF = CHRF()


def repair(folder):
    """Puts "no" back where "não" stands for it, and draws what the teacher gets."""
    corpora = {n: files.read(folder / f"{n}.tsv.gz") for n in ("train", "books")}
    put_right = Repair([pair for pairs in corpora.values() for pair in pairs])
    for name, pairs in corpora.items():
        repaired = [(put_right(*pair), pair[1]) for pair in pairs]
        changed = sum(a != b for a, b in zip(pairs, repaired, strict=True))
        print(f"{name}: {changed:,} repaired")
        files.write(folder / f"repaired.{name}.tsv.gz", repaired)
        corpora[name] = repaired
    sources = [source for source, _ in corpora["train"]]
    sources = [source for source in sources if len(source.split()) <= LONGEST]
    first = random.Random(0).sample(sources, min(FIRST, len(sources)))
    drawn = set(first)
    more = dict.fromkeys(source for source in sources if source not in drawn)
    for name, texts in ("taught", first), ("more", more):
        text = "".join(f"{text}\n" for text in texts)
        (folder / f"{name}.txt").write_text(text, "utf-8")


def finish(folder):
    """Leaves out what the teacher could not read, and makes half of it European."""
    corpora = {
        n: files.read(folder / f"repaired.{n}.tsv.gz") for n in ("train", "books")
    }
    written = {source: target for pairs in corpora.values() for source, target in pairs}
    for name in ("taught", "more"):
        corpora[name] = [
            (source, target, written[source])
            for source, target in files.read(folder / f"{name}.tsv.gz")
            if _is_good(target, written[source])
        ]
    put_right = Repair([pair for name in ("train", "books") for pair in corpora[name]])
    corpora["dictionary"] = [
        (put_right(source, target), target)
        for source, target in files.read(folder / "dictionary.tsv.gz")
        if source and source.lower() != target.lower()
    ]
    for name, pairs in corpora.items():
        made = []
        for source, target, *by_a_person in pairs:
            chance = random.Random(f"{name}\t{source}")
            documentation = name != "dictionary" and _CODE.search(target)
            if documentation and chance.random() > CODE_SHARE:
                continue
            if chance.random() < 0.5:
                english = by_a_person[0] if by_a_person else target
                source = european(source, english, chance)
            source = without_pronouns(source, chance)
            made.append((source, target))
        files.write(folder / f"made.{name}.tsv.gz", made)


def _is_good(taught, written):
    """Whether the teacher's English is what the person's says."""
    if "of" in taught.split() and _DO.search(written) and not _DO.search(taught):
        return False
    return _CHRF.sentence_score(taught, [written]).score >= LEAST_LIKE


if __name__ == "__main__":
    {"repair": repair, "finish": finish}[sys.argv[1]](Path(sys.argv[2]))
