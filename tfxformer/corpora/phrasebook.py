"""The embedded corpus: a Portuguese-English phrasebook, written for this project.

It has sentences written by hand (`data/phrases.tsv`) and sentences made from the
patterns in `patterns_*.py`. All of it is in the public domain: `data/LICENSE.md`.
"""

import random
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from math import prod

from tfxformer.corpora import (  # noqa: F401, importing registers the patterns
    patterns_home,
    patterns_people,
    patterns_town,
)
from tfxformer.corpora.pair import Pair
from tfxformer.corpora.patterns import PATTERNS, Pattern
from tfxformer.corpora.splitting import hold_out

# So that no pattern drowns the others; the small ones give all they have.
MOST_PER_PATTERN = 300


def pairs() -> list[Pair]:
    """Give the whole phrasebook.

    Returns:
        Distinct pairs, the hand-written ones first, in an order that never changes.
        No Portuguese sentence has two translations.

    Example:
        >>> pairs()[0]
        Pair(source='Olá!', target='Hello!')
    """
    return list(_all_pairs())


def splits(
    seed: int = 0, validation: int = 500, test: int = 500
) -> dict[str, list[Pair]]:
    """Split the phrasebook by sentence.

    Args:
        seed: Another seed holds out other sentences.
        validation: How many pairs to hold out for choosing a checkpoint.
        test: How many pairs to hold out for the final score.

    Returns:
        The pairs of "train", "validation" and "test". No sentence of one split, in
        either language, is in another.

    Raises:
        UserError: If more is asked than the phrasebook has.

    Example:
        >>> {name: len(pairs) for name, pairs in splits().items() if name != "train"}
        {'validation': 500, 'test': 500}
    """
    return hold_out(_all_pairs(), {"validation": validation, "test": test}, seed)


@cache
def _all_pairs() -> tuple[Pair, ...]:
    translation: dict[str, str] = {}
    for pair in _hand_written():
        translation.setdefault(pair.source, pair.target)
    for pattern in PATTERNS:
        for pair in _sample(pattern, MOST_PER_PATTERN):
            translation.setdefault(pair.source, pair.target)
    return tuple(Pair(source, target) for source, target in translation.items())


def _hand_written() -> Iterator[Pair]:
    path = files("tfxformer.corpora").joinpath("data/phrases.tsv")
    for line in path.read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            yield Pair(*line.split("\t"))


def _sample(pattern: Pattern, most: int) -> Iterator[Pair]:
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
