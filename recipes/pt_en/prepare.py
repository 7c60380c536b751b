"""Makes the training pairs of the shipped model, in two steps with the teacher between.

    python prepare.py repair FOLDER   # train.tsv.gz, books.tsv.gz -> repaired.*.tsv.gz
    python teach.py FOLDER            # the sources' translations by the teacher
    python prepare.py finish FOLDER   # -> made.train, .books and .taught.tsv.gz

`portuguese.py` says what is repaired and why. Of the teacher's pairs those stay whose
translation resembles what a person wrote: where it does not, the source is at fault.
Documentation for programmers, a quarter of all words, is thinned out; half of all
sources are written as in Portugal.
"""

import gzip
import random
import re
import sys
from pathlib import Path

from portuguese import Repair, european, without_pronouns
from sacrebleu.metrics import CHRF

# chrF of the teacher's translation against the person's.
LEAST_LIKE = 45
# What documentation for programmers has in it, and how much of it stays.
_CODE = re.compile(
    r"[_`{}\[\]<>=]|\(\)|[a-z]\.[a-z]|::|^\d+:|\b[a-z]+[A-Z]|\bPy[A-Z]|"
    r"\b(Python|modules?|functions?|objects?|strings?|arguments?|attributes?|methods?|"
    r"bytes|parameters?|iterators?|interpreter|exceptions?|deprecated|API|C)\b"
)
CODE_SHARE = 0.3


def read(file):
    """Pairs of a gzipped TSV."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        return [tuple(line.rstrip("\n").split("\t")[:2]) for line in lines]


def write(file, pairs):
    """The same the other way; the same pairs give the same bytes."""
    text = "".join(f"{source}\t{target}\n" for source, target in pairs)
    file.write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{file.name}: {len(pairs):,} pairs")


def repair(folder):
    """Puts "no" back where "não" stands for it."""
    corpora = {name: read(folder / f"{name}.tsv.gz") for name in ("train", "books")}
    put_right = Repair([pair for pairs in corpora.values() for pair in pairs])
    for name, pairs in corpora.items():
        repaired = [(put_right(*pair), pair[1]) for pair in pairs]
        changed = sum(a != b for a, b in zip(pairs, repaired, strict=True))
        print(f"{name}: {changed:,} repaired")
        write(folder / f"repaired.{name}.tsv.gz", repaired)


def finish(folder):
    """Leaves out what the teacher could not read, and makes half of it European."""
    corpora = {n: read(folder / f"repaired.{n}.tsv.gz") for n in ("train", "books")}
    written = {source: target for pairs in corpora.values() for source, target in pairs}
    chrf = CHRF()
    corpora["taught"] = [
        (source, target, written[source])
        for source, target in read(folder / "taught.tsv.gz")
        if chrf.sentence_score(target, [written[source]]).score >= LEAST_LIKE
    ]
    for name, pairs in corpora.items():
        made = []
        for source, target, *by_a_person in pairs:
            chance = random.Random(f"{name}\t{source}")
            if _CODE.search(target) and chance.random() > CODE_SHARE:
                continue
            if chance.random() < 0.5:
                english = by_a_person[0] if by_a_person else target
                source = european(source, english, chance)
            source = without_pronouns(source, chance)
            made.append((source, target))
        write(folder / f"made.{name}.tsv.gz", made)


if __name__ == "__main__":
    {"repair": repair, "finish": finish}[sys.argv[1]](Path(sys.argv[2]))
