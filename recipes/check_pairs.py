"""Checks pairs written by hand: form, repeats, frames used too often, test sentences.

    python recipes/check_pairs.py FOLDER [--test FILE]... [--known FILE]...

FOLDER holds TSVs of `Portuguese<TAB>English`. A pair must not repeat a Portuguese
sentence, share a side with a pair of a `--test` file, or repeat a sentence of a
`--known` file. The script prints each fault with its file and line, then how long the
sentences are, and how many of each file begin alike. It exits with 1 if it finds a
fault.
"""

import argparse
import collections
import sys
from pathlib import Path

from overlap import Overlap, words
from pairs import read

# Longer sentences that begin with the same words have the same frame, or nearly.
BEGINNING = 4
MOST_ALIKE = 4
LENGTHS = {
    "2 to 5": (0, 5),
    "6 to 12": (6, 12),
    "13 to 22": (13, 22),
    "more": (23, 999),
}


def faults(line, known, tests):
    r"""Yields what is wrong with a line.

    Args:
        line: the line's text.
        known: where each Portuguese sentence stands, by its words; gets this one's.
        tests: an `Overlap` for each test file.

    Example:
        >>> list(faults("Olá!  ", {}, []))
        ['has 1 column, not 2']
        >>> list(faults("Olá!\tHello!", {("ola",): "a.tsv:1"}, []))
        ['repeats a.tsv:1']
    """
    columns = line.split("\t")
    if len(columns) != 2:
        yield f"has {len(columns)} column{'s' * (len(columns) != 1)}, not 2"
        return
    if any(side != " ".join(side.split()) or not side for side in columns):
        yield "has an empty side, or needless spaces"
    key = words(columns[0])
    if key in known:
        yield f"repeats {known[key]}"
    for test in tests:
        if test.holds(tuple(columns)):
            yield f"shares a sentence with the test set {test.name}"


def beginnings(sources):
    """Counts the beginnings that too many sentences share.

    Example:
        >>> beginnings(["A Ana foi ontem à praia de Faro."] * 5)
        {'a ana foi ontem': 5}
    """
    keys = [words(source) for source in sources]
    counts = collections.Counter(
        " ".join(key[:BEGINNING]) for key in keys if len(key) > BEGINNING + 1
    )
    return {start: count for start, count in counts.items() if count > MOST_ALIKE}


def main():
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--test", type=Path, action="append", default=[])
    parser.add_argument("--known", type=Path, action="append", default=[])
    arguments = parser.parse_args()
    tests = [
        Overlap(file.name, [line.split("\t")[:2] for line in _lines(file)])
        for file in arguments.test
    ]
    known = {
        words(source): file.name for file in arguments.known for source, _ in read(file)
    }
    found, sources = 0, []
    for file in sorted(arguments.folder.glob("*.tsv")):
        mine = []
        for number, line in enumerate(_lines(file), 1):
            for fault in faults(line, known, tests):
                print(f"{file.name}:{number}: {fault}: {line[:70]}")
                found += 1
            source = line.partition("\t")[0]
            known.setdefault(words(source), f"{file.name}:{number}")
            mine.append(source)
        for start, count in beginnings(mine).items():
            print(f'{file.name}: {count} sentences begin with "{start}"')
        sources += mine
    sizes = [len(source.split()) for source in sources]
    for name, (least, most) in LENGTHS.items():
        share = sum(least <= size <= most for size in sizes) / len(sizes)
        print(f"{name} words: {share:.0%}")
    print(f"the rest is longer; {len(sources):,} pairs, {found} faults")
    sys.exit(bool(found))


def _lines(file):
    return file.read_text("utf-8").splitlines()


if __name__ == "__main__":
    main()
