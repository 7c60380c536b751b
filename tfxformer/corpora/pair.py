"""What every corpus gives: pairs of sentences."""

from typing import NamedTuple


class Pair(NamedTuple):
    """A sentence and its translation.

    Attributes:
        source: what is to be translated, a string.
        target: what it is to become, a string.

    Example:
        >>> Pair("Bom dia!", "Good morning!").target
        'Good morning!'
    """

    source: str
    target: str
