"""What every corpus gives: pairs of sentences."""

from typing import NamedTuple


class Pair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str
