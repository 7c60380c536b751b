"""What every corpus gives: pairs of sentences, millions of them in little memory."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple


class Pair(NamedTuple):
    """A sentence and its translation.

    Args:
        source: The sentence.
        target: Its translation.

    Example:
        >>> Pair("Bom dia!", "Good morning!").target
        'Good morning!'
    """

    source: str
    target: str


class Pairs(Sequence):
    """A sequence of `Pair`s that keeps UTF-8 in one buffer instead of strings.

    A pair takes its bytes and 9 more. A slice, and what `select` gives, share them.

    Args:
        pairs: The pairs to put into it.

    Example:
        >>> pairs = Pairs([("um", "one"), ("dois", "two"), ("três", "three")])
        >>> pairs[1], len(pairs[1:])
        (Pair(source='dois', target='two'), 2)
    """

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()):
        self._text, self._ends = bytearray(), array("q", [0])
        for source, target in pairs:
            self._text += b"%b\xff%b" % (source.encode(), target.encode())
            self._ends.append(len(self._text))  # UTF-8 has no byte 255
        self._rows = range(len(self._ends) - 1)

    def select(self, rows: Sequence[int]) -> "Pairs":
        """Give some of the pairs, without a copy of their text.

        Args:
            rows: Their indices.

        Returns:
            As many pairs, in the order of the indices.
        """
        import numpy as np  # not before it is used: most commands do without

        some = object.__new__(Pairs)
        some._text, some._ends = self._text, self._ends
        rows = np.fromiter(rows, int, len(rows))
        some._rows = rows if isinstance(self._rows, range) else self._rows[rows]
        return some

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return self.select(range(len(self))[index])
        return self._pair(self._rows[index])

    def __iter__(self) -> Iterator[Pair]:
        return map(self._pair, self._rows)

    def _pair(self, row):
        text = self._text[self._ends[row] : self._ends[row + 1]]
        source, target = text.split(b"\xff")
        return Pair(source.decode(), target.decode())
