"""Makes the phrasebook: sentences written by hand, then sentences from patterns.

500 pairs for validation and 500 for tests come first.

python recipes/phrasebook/make.py tfxformer/corpora/data/phrasebook.tsv.gz
"""

import argparse
import gzip
import random
from collections import Counter
from collections.abc import Iterator
from itertools import chain, pairwise
from math import prod
from pathlib import Path

import patterns_home  # noqa: F401, importing registers the patterns
import patterns_people  # noqa: F401
import patterns_town  # noqa: F401
from patterns import PATTERNS, Pattern

from tfxformer.corpora import Pair, Pairs
from tfxformer.corpora.splitting import hold_out, key

# So that no pattern drowns the others; the small ones give all they have.
MOST_PER_PATTERN = 300
# A held-out sentence has no two words in a row that fewer pairs have: nothing that is
# left would teach a model what they mean.
LEAST_FREQUENCY = 3


def main():
    """Write the phrasebook to the file that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="the gzipped TSV to write")
    made = Pairs(pairs())
    sizes = {"validation": 500, "test": 500}
    splits = hold_out(made, sizes, seed=0, kept=rare(made, LEAST_FREQUENCY))
    ordered = chain(splits["validation"], splits["test"], splits["train"])
    text = "".join(f"{pair.source}\t{pair.target}\n" for pair in ordered)
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


def rare(pairs: Pairs, frequency: int) -> list[int]:
    """Give the indices of pairs with two words in a row that too few pairs have."""
    indices: set[int] = set()
    for side in (0, 1):
        sequences = [in_a_row(pair[side]) for pair in pairs]
        counts = Counter(chain.from_iterable(sequences))
        for index, runs in enumerate(sequences):
            if any(counts[run] < frequency for run in runs):
                indices.add(index)
    return sorted(indices)


def in_a_row(text: str) -> set[tuple[str, str]]:
    """Give each two words in a row, with the beginning and the end."""
    return {*pairwise(["", *key(text).split(), ""])}


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
