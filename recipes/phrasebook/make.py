"""Makes the phrasebook: sentences written by hand, then sentences from patterns.

python recipes/phrasebook/make.py tfxformer/corpora/data/phrasebook.tsv.gz
"""

import argparse
import gzip
import random
from collections.abc import Iterator
from math import prod
from pathlib import Path

import patterns_home  # noqa: F401, importing registers the patterns
import patterns_people  # noqa: F401
import patterns_town  # noqa: F401
from patterns import PATTERNS, Pattern

from tfxformer.corpora import Pair

# So that no pattern drowns the others; the small ones give all they have.
MOST_PER_PATTERN = 300


def main():
    """Write the phrasebook to the file that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="the gzipped TSV to write")
    text = "".join(f"{pair.source}\t{pair.target}\n" for pair in pairs())
    # Without a time, so that the same pairs give the same bytes.
    parser.parse_args().out.write_bytes(gzip.compress(text.encode(), mtime=0))


def pairs() -> Iterator[Pair]:
    """Give distinct pairs; no Portuguese sentence has two translations."""
    translation: dict[str, str] = {}
    for pair in hand_written():
        translation.setdefault(pair.source, pair.target)
    for pattern in PATTERNS:
        for pair in sample(pattern, MOST_PER_PATTERN):
            translation.setdefault(pair.source, pair.target)
    return (Pair(*item) for item in translation.items())


def hand_written() -> Iterator[Pair]:
    """Give the sentences of `phrases.tsv`."""
    path = Path(__file__).with_name("phrases.tsv")
    for line in path.read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            yield Pair(*line.split("\t"))


def sample(pattern: Pattern, most: int) -> Iterator[Pair]:
    """Give up to `most` different sentences of a pattern, the same every time."""
    sizes = [len(choices) for choices in pattern.slots.values()]
    combinations = range(prod(sizes))
    # The pattern's name is the seed: adding a pattern leaves the others as they are.
    chance = random.Random(pattern.make.__name__)
    tried = min(len(combinations), 12 * most)
    seen: set[Pair] = set()
    for index in chance.sample(combinations, tried):
        pair = pattern.pair(index)
        if pair and pair not in seen:
            seen.add(pair)
            yield pair
            if len(seen) == most:
                return


if __name__ == "__main__":
    main()
