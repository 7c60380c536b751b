"""What every corpus gives: pairs of sentences, millions of them in little memory."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple


class Pair(NamedTuple):
    """A sentence and its translation.

    Attributes:
        source: The sentence to translate.
        target: Its translation.

    Example:
        >>> Pair("Bom dia!", "Good morning!").target
        'Good morning!'
    """

    source: str
    target: str


class Pairs(Sequence):
    """A sequence of `Pair`s that keeps UTF-8 in one buffer instead of strings.

    A pair takes its bytes and 16 more. A slice, and what `select` gives, share them.

    Args:
        pairs: The pairs to put into it.

    Example:
        >>> pairs = Pairs([("um", "one"), ("dois", "two"), ("três", "three")])
        >>> pairs[1], len(pairs[1:])
        (Pair(source='dois', target='two'), 2)
    """

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()):
        self._text, self._ends = bytearray(), array("q", [0])  # the ends of all sides
        for pair in pairs:
            for side in pair:
                self._text += side.encode()
                self._ends.append(len(self._text))
        self._rows = range(len(self._ends) // 2)

    def select(self, rows: Sequence[int]) -> "Pairs":
        """Give some of the pairs, without a copy of their text.

        Args:
            rows: Their indices: an array, a list or a range.

        Returns:
            As many pairs, in the order of the indices.
        """
        import numpy as np  # not before it is used: most commands do without

        return self._view(np.asarray(self._rows)[np.asarray(rows, int)])

    def _view(self, rows):
        some = object.__new__(Pairs)
        some._text, some._ends, some._rows = self._text, self._ends, rows
        return some

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return self._view(self._rows[index])
        return self._pair(self._rows[index])

    def __iter__(self) -> Iterator[Pair]:
        return map(self._pair, self._rows)

    def _pair(self, row) -> Pair:
        begin, middle, end = self._ends[2 * row : 2 * row + 3]
        text = self._text
        return Pair(text[begin:middle].decode(), text[middle:end].decode())
