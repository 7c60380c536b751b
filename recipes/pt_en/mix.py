"""Prepares the training and validation pairs of the shipped model.

    python mix.py gather DATA FOLDER
    python mix.py finish DATA FOLDER

`gather` writes a file of pairs for each kind of text, `valid.KIND.tsv` to validate on,
and `human.txt`, the Portuguese that the teacher translates. `finish` keeps the good
translations of the teacher, leaves out pairs that hold a test sentence, adds copies
(joined, or written in haste) and writes `copies.KIND.tsv.gz`. `make.sh` calls both,
with `recipes/` on Python's path.
"""

import collections
import gzip
import random
import re
import sys
from pathlib import Path

import pairs as files
from augment import augmented
from overlap import Overlap
from sacrebleu.metrics import CHRF

# The sources of model.yaml.
KINDS = ["everyday", "news", "back", "textbooks", "books", "prose", "docs"]
KINDS += ["interface", "taught", "lexicon"]
# The pairs that test and validate the model. It never trains on them.
TESTS = ["ted/test.tsv", "ted/validation.tsv", "pt_en/tatoeba.test.tsv"]
TESTS += ["pt_en/valid.tsv"]
# The most pairs of documentation, and of user interfaces.
CAP = 70_000
# The lowest chrF, against a person's English, at which the teacher's is kept.
LEAST_LIKE = 40
# The number of pairs held out of each kind; for each kind its file and its sources.
HELD_OUT, PRESS = 200, 500
HELD = {
    "everyday": ("everyday", ["tatoeba"]),
    "news": ("news", ["ud-porttinari", "ud-bosque"]),
    "encyclopedia": ("news", ["ud-gsd"]),
    "dialogue": ("prose", ["cocoa-mt"]),
    "questions": ("prose", ["pira"]),
    "web": ("prose", ["web prose", "story", "prose"]),
    "docs": ("docs", ["docs"]),
    "interface": ("interface", ["UI", "game UI"]),
}
# The kinds whose Portuguese the teacher translates.
TAUGHT = ("prose", "docs", "interface")
# The kinds whose English is the teacher's.
TEACHERS = ("everyday", "news", "taught")

_CHRF = CHRF()
# The kind of each register in `human.sources.tsv`; all others are prose.
_KIND_OF = {"docs": "docs", "UI": "interface", "game UI": "interface"}
_KIND_OF["lexicon"] = "lexicon"

_NEGATION = re.compile(
    r"\b(no|not|never|none|nobody|nothing|nowhere|nor|neither|cannot|hardly|scarcely|"
    r"barely|unless|non|without|ain't)\b|n['’]t\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W\d_]+")
_CODE = re.compile(
    r"[{}<>\\|_=~@#$^`\[\]]|%\w|&\w|\(\)|::|https?:|\b[a-z]+[A-Z]|\w\.[a-z]{2,}\b|"
    r"^\d+:"
)
_PROGRAMMING = re.compile(
    r"\b(Python|modules?|functions?|objects?|strings?|arguments?|attributes?|methods?|"
    r"bytes|parameters?|iterators?|interpreter|exceptions?|deprecated|API|C)\b"
)
# The teacher sometimes writes "of" instead of "do", as in "what to of".
_OF_FOR_DO = re.compile(
    r"\bdo?n?t? of\b|\bof (it|that|this|what|so|not|you|we|I|they)\b|"
    r"\b(to|you|I|we|they|not|can|will|would|could|should|must|may) of\b"
)


def repaired(source, target):
    """Returns a machine-translated source with "no" instead of a wrong "não".

    The model that translated it writes "não" ("not") for "no" ("in the"). If the
    English has no negation, every "não" before a word is wrong.

    Example:
        >>> repaired("O barco não porto.", "The boat in the harbour.")
        'O barco no porto.'
        >>> repaired("Não sei.", "I don't know.")
        'Não sei.'
    """
    if _NEGATION.search(target):
        return source
    return re.sub(r"\b([Nn])ão\b(?= \w)", r"\1o", source)


def is_clean(source, target):
    """Returns whether a pair has no code, and the same numbers on both sides.

    Example:
        >>> is_clean("Tem 3 gatos.", "He has 3 cats."), is_clean("3 gatos", "2 cats")
        (True, False)
        >>> is_clean("Use print()", "Use print()")
        False
    """
    sides = (source, target)
    one, other = (sorted(re.findall(r"\d+", side)) for side in sides)
    return one == other and not any(map(_CODE.search, sides))


def invents(source, target, known):
    """Returns whether a target has an unknown word that is not in the source.

    Names and short words do not count.

    Example:
        >>> known = {"the", "rain", "falls"}
        >>> invents("A chuva cai.", "The rain falls.", known)
        False
        >>> invents("A chuva cai torrencialmente.", "Rain falls torentially.", known)
        True
    """
    said = {*_WORD.findall(source.lower())}
    return any(
        len(word) >= 4 and word.islower() and word not in known and word not in said
        for word in _WORD.findall(target)
    )


def gather(data, folder):
    """Writes the pairs of each kind, validation pairs and texts for the teacher."""
    data = data / "pt_en"
    about = [*_rows(data / "human.sources.tsv")][1:]
    register = {row[0]: row[4] for row in about}
    found = collections.defaultdict(list)  # kind: source, target, tag
    for name in ("distilled.free", "distilled.sharealike"):
        for source, target, tag in _rows(data / f"{name}.tsv.gz"):
            kind = "news" if tag.startswith("ud-") else "everyday"
            found[kind].append((source, target, tag))
    for source, target, tag in _rows(data / "backtranslated.free.tsv.gz"):
        found["back"].append((repaired(source, target), target, tag))
    for source, target in _rows(data / "train.free.tsv.gz"):
        if not (_CODE.search(target) or _PROGRAMMING.search(target)):
            found["back"].append((repaired(source, target), target, ""))
    for source, target in _rows(data / "books.free.tsv.gz"):
        found["books"].append((repaired(source, target), target, ""))
    for name in ("human.free", "human.sharealike"):
        for source, target, tag in _rows(data / f"{name}.tsv.gz"):
            kind = _KIND_OF.get(register[tag], "prose")
            fits = 3 <= len(source.split()) <= 60 and is_clean(source, target)
            if kind == "lexicon" or fits:
                found[kind].append((source, target, tag))
    for kind in TAUGHT:
        random.Random(1).shuffle(found[kind])
    for kind in ("docs", "interface"):
        del found[kind][CAP:]
    for each in found.values():
        random.Random(1).shuffle(each)
    for name, (kind, tags) in HELD.items():
        held = [
            row
            for row in found[kind]
            if {row[2], register.get(row[2])} & {*tags} and len(row[0].split()) >= 4
        ][:HELD_OUT]
        files.write(folder / f"valid.{name}.tsv", [row[:2] for row in held])
        held = {*held}
        found[kind] = [row for row in found[kind] if row not in held]
    press = [
        (repaired(source, target), target)
        for source, target in _rows(data / "train.research.tsv.gz")
        if 6 <= len(source.split()) <= 40 and "``" not in target
    ]
    files.write(folder / "valid.press.tsv", random.Random(7).sample(press, PRESS))
    for kind, each in found.items():
        files.write(folder / f"{kind}.tsv.gz", [row[:2] for row in each])
    texts = (_one_spaced(row[0]) for kind in TAUGHT for row in found[kind])
    texts = dict.fromkeys(text for text in texts if 4 <= len(text.split()) <= 40)
    part = folder / "human.part"  # the final name appears when it is complete
    part.write_text("".join(f"{text}\n" for text in texts), "utf-8")
    part.replace(folder / "human.txt")


def finish(data, folder):
    """Writes each kind's pairs with copies, without test sentences, and counts."""
    written = {}
    for kind in TAUGHT:
        for source, target in _rows(folder / f"{kind}.tsv.gz"):
            written.setdefault(_one_spaced(source), target)
    taught = [
        (source, target)
        for source, target in _rows(folder / "teacher.tsv.gz")
        if target != written[source] and _is_good(target, written[source])
    ]
    files.write(folder / "taught.tsv.gz", taught)
    textbooks = [
        (repaired(source, target), target)
        for source, target in _rows(folder / "teacher.textbooks.tsv.gz")
        if source
    ]
    files.write(folder / "textbooks.tsv.gz", textbooks)
    tests = [data / test for test in TESTS]
    tests += [Path(__file__).with_name("sentences.tsv")]
    tests = {file.stem: files.read(file, "test") for file in tests}
    held_out = [files.read(file) for file in folder.glob("valid.*.tsv")]
    tests["held out"] = [pair for pairs in held_out for pair in pairs]
    known = set()  # the words of human English
    for kind in (kind for kind in KINDS if kind not in TEACHERS):
        for _, target in _rows(folder / f"{kind}.tsv.gz"):
            known.update(_WORD.findall(target.lower()))
    counts = ""
    for kind in KINDS:
        overlaps = [Overlap(name, pairs) for name, pairs in tests.items()]
        kept = [
            pair
            for pair in files.read(folder / f"{kind}.tsv.gz", cleaned=True)
            if not sum(overlap.holds(pair) for overlap in overlaps)  # all count
            and not (kind in TEACHERS and invents(*pair, known))
        ]
        counts += "".join(f"{kind}: {overlap.describe()}\n" for overlap in overlaps)
        copies = augmented(kept, joined=0.3, careless=0.25)
        files.write(folder / f"copies.{kind}.tsv.gz", copies)
    (folder / "overlap.txt").write_text(counts, "utf-8")


def _is_good(taught, written):
    """Returns whether the teacher's English is like the person's, without its fault."""
    if _OF_FOR_DO.search(taught) and not _OF_FOR_DO.search(written):
        return False
    return _CHRF.sentence_score(taught, [written]).score >= LEAST_LIKE


def _one_spaced(text):
    """Returns a text with single spaces, as the teacher reads and writes it."""
    return " ".join(text.split())


def _rows(path):
    """Yields the columns of each line of a TSV."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            yield line.rstrip("\n").split("\t")


def main():
    """Runs the command line."""
    step, *folders = sys.argv[1:]
    {"gather": gather, "finish": finish}[step](*map(Path, folders))


if __name__ == "__main__":
    main()
