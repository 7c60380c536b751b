"""Prepares the training and validation pairs of the shipped model.

    python mix.py gather DATA FOLDER
    python mix.py finish DATA FOLDER

`gather` writes a file of pairs for each kind of text, and `valid.KIND.tsv` to validate
on. `finish` leaves out pairs that hold a test sentence, adds copies (joined, or written
in haste) and writes `copies.KIND.tsv.gz`. `make.sh` calls both, with `recipes/` on
Python's path.
"""

import collections
import gzip
import hashlib
import random
import re
import sys
from pathlib import Path

import pairs as files
from augment import augmented
from firefox import with_do
from kept import kept_pairs
from names import keep_names
from overlap import Overlap

# The sources of model.yaml.
KINDS = ["written", "rare", "retold", "news", "everyday", "back", "taught"]
KINDS += ["textbooks", "books", "prose", "docs", "interface", "lexicon"]
# The kinds whose English is the teacher's.
TEACHERS = ["everyday", "taught"]
# The kinds that get copies with names, links, markup and the like.
KEEPING = ["written", "retold", "everyday", "prose"]
KEEPING_MOST = 30_000
# The pairs that test and validate the model. It never trains on them.
TESTS = ["ted/test.tsv", "ted/validation.tsv", "pt_en/tatoeba.test.tsv"]
TESTS += ["pt_en/valid.tsv"]
# The most pairs of documentation, and of user interfaces.
CAP = 70_000
# The number of pairs held out of each kind; for each kind its file and its sources.
HELD_OUT, PRESS = 200, 500
HELD = {
    "everyday": ("everyday", ["tatoeba"]),
    "retold": ("retold", ["tatoeba"]),
    "news": ("news", ["ud-porttinari", "ud-bosque"]),
    "encyclopedia": ("news", ["ud-gsd"]),
    "dialogue": ("prose", ["cocoa-mt"]),
    "questions": ("prose", ["pira"]),
    "web": ("prose", ["web prose", "story", "prose"]),
    "docs": ("docs", ["docs"]),
    "interface": ("interface", ["UI", "game UI"]),
}
# The tag of oil engineering, which is no register of this model.
LEFT_OUT = "ud-petrogold"
RECIPE = Path(__file__).parent

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


def key_of(source):
    """Returns the name of a sentence in `retold/`, where only its English is kept.

    Example:
        >>> key_of("Bom dia!")
        'e358708abb75634b'
    """
    return hashlib.sha256(source.encode()).hexdigest()[:16]


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


def repeats(source, target):
    """Returns whether a target is so long that the teacher must have stuck.

    Example:
        >>> repeats("Sim, sim.", "Yes, yes."), repeats("Sim.", "Yes, " * 6)
        (False, True)
    """
    return len(target.split()) > 2 * len(source.split()) + 3


def gather(data, folder):
    """Writes the pairs of each kind, and validation pairs."""
    data = data / "pt_en"
    about = [*_rows(data / "human.sources.tsv")][1:]
    register = {row[0]: row[4] for row in about}
    found = collections.defaultdict(list)  # kind: source, target, tag
    for file in sorted((RECIPE / "written").glob("*.tsv")):
        kind = "rare" if file.stem == "rare" else "written"
        found[kind] += [(*pair, file.stem) for pair in _rows(file)]
    retold = set()  # sources with a translation by hand
    for name in ("retranslated.free", "retranslated.sharealike"):
        for source, target, tag in _rows(data / f"{name}.tsv.gz"):
            retold.add(source)
            if tag != LEFT_OUT:
                kind = "news" if tag.startswith("ud-") else "retold"
                found[kind].append((source, target, tag))
    ours = {
        key: english
        for file in sorted((RECIPE / "retold").glob("*.tsv"))
        for key, english in _rows(file)
    }
    for name in ("distilled.free", "distilled.sharealike"):
        for source, target, tag in _rows(data / f"{name}.tsv.gz"):
            english = ours.get(key_of(source))
            if source in retold or tag == LEFT_OUT:
                continue
            if english is None:
                found["everyday"].append((source, target, tag))
            else:
                found["retold"].append((source, english, tag))
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
    for kind in ("docs", "interface"):
        random.Random(1).shuffle(found[kind])
        del found[kind][CAP:]
    for each in found.values():  # an order that more pairs do not change
        each.sort(key=lambda row: key_of(row[0]))
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
    written = sorted((RECIPE / "written" / "valid").glob("*.tsv"))
    files.write(
        folder / "valid.written.tsv", [pair for file in written for pair in _rows(file)]
    )


def finish(data, folder):
    """Writes each kind's pairs with copies, without test sentences, and counts."""
    textbooks = [
        (repaired(source, target), target)
        for source, target in _rows(folder / "teacher.textbooks.tsv.gz")
        if source
    ]
    files.write(folder / "textbooks.tsv.gz", textbooks)
    taught = [
        (repaired(source, target), with_do(target))
        for kind in ("spoken", "textbooks")
        for source, target in _rows(folder / f"taught.{kind}.tsv.gz")
        if source and not repeats(source, target)
    ]
    files.write(folder / "taught.tsv.gz", taught)
    tests = [data / test for test in TESTS]
    tests += [RECIPE / "sentences.tsv", *sorted((RECIPE / "tests").glob("*.tsv"))]
    tests = {file.stem: [row[:2] for row in _rows(file)] for file in tests}
    held_out = [files.read(file) for file in folder.glob("valid.*.tsv")]
    tests["held out"] = [pair for pairs in held_out for pair in pairs]
    known = set()  # the words of human English
    for kind in KINDS:
        if kind in TEACHERS:
            continue
        for _, target in _rows(folder / f"{kind}.tsv.gz"):
            known.update(_WORD.findall(target.lower()))
    counts, keeping = "", []
    for kind in KINDS:
        overlaps = [Overlap(name, pairs) for name, pairs in tests.items()]
        kept = [
            (source, keep_names(source, target))
            for source, target in files.read(folder / f"{kind}.tsv.gz", cleaned=True)
            if not sum(overlap.holds((source, target)) for overlap in overlaps)
            and not (kind == "everyday" and invents(source, target, known))
        ]
        counts += "".join(f"{kind}: {overlap.describe()}\n" for overlap in overlaps)
        copies = augmented(kept, joined=0.3, careless=0.25)
        files.write(folder / f"copies.{kind}.tsv.gz", copies)
        if kind in KEEPING:
            keeping += random.Random(1).sample(kept, min(len(kept), KEEPING_MOST))
    files.write(folder / "copies.kept.tsv.gz", kept_pairs(keeping))
    (folder / "overlap.txt").write_text(counts, "utf-8")


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
