"""Sentence pairs, cleaned: millions of them in little memory."""

import hashlib
import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

# Invisible marks: zero-width space, word joiner, byte-order mark, soft hyphen. Joiners
# that change letters stay. The tokenizer drops the same marks.
INVISIBLE = "[\u200b\u2060\ufeff\u00ad]"
_INVISIBLE, _CONTROL = re.compile(INVISIBLE), re.compile("[\x00-\x1f\x7f-\x9f]")


class Pair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


class Pairs(Sequence):
    """A sequence of `Pair`s in one UTF-8 buffer instead of Python strings.

    Each pair takes 9 bytes besides its text. Slices and selections share the buffer.

    Args:
        pairs: An iterable of (source, target) strings.

    Example:
        >>> pairs = Pairs([("um", "one"), ("dois", "two"), ("três", "three")])
        >>> pairs[1], len(pairs[1:])
        (Pair(source='dois', target='two'), 2)
    """

    def __init__(self, pairs=()):
        self._text, self._ends = bytearray(), array("q", [0])
        for source, target in pairs:
            self._text += b"%b\xff%b" % (source.encode(), target.encode())
            self._ends.append(len(self._text))  # UTF-8 has no byte 255
        self._rows = range(len(self._ends) - 1)

    def select(self, rows):
        """Give the pairs of these indices, without copying their text."""
        import numpy as np  # slow to import, and most commands need none

        some = object.__new__(Pairs)
        some._text, some._ends = self._text, self._ends
        rows = np.fromiter(rows, int, len(rows))
        some._rows = rows if isinstance(self._rows, range) else self._rows[rows]
        return some

    def __len__(self):
        return len(self._rows)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return self.select(range(len(self))[index])
        return self._pair(self._rows[index])

    def __iter__(self):
        return map(self._pair, self._rows)

    def _pair(self, row):
        text = self._text[self._ends[row] : self._ends[row + 1]]
        source, target = text.split(b"\xff")
        return Pair(source.decode(), target.decode())


class Counts(Counter):
    """Counts of the pairs read, and of those dropped for each reason.

    Example:
        >>> Counts({"read": 9, "duplicate": 2}).describe()
        '9 read, 7 kept, 2 dropped (2 duplicate)'
    """

    def describe(self):
        """Summarise the counts in one line, the most frequent reason first."""
        why = [f"{n:,} {name}" for name, n in self.most_common() if name != "read"]
        dropped = self.total() - self["read"]
        line = f"{self['read']:,} read, {self['read'] - dropped:,} kept"
        return f"{line}, {dropped:,} dropped ({', '.join(why)})" if why else line


def normalize(text):
    r"""Normalize a string: Unicode NFKC, single spaces.

    Control characters and line separators become spaces, and invisible marks such as
    the zero-width space and the soft hyphen are dropped. Normalizing the result again
    changes nothing.

    Example:
        >>> normalize(" ﬁne \u00a0 day\x00\n")
        'fine day'
    """
    if not text.isascii():
        # Before NFKC: without the mark, a letter may combine with its accent.
        text = unicodedata.normalize("NFKC", _INVISIBLE.sub("", text))
    return " ".join(_CONTROL.sub(" ", text).split())


def clean(pairs, counts, max_characters=1000, max_length_ratio=3.0):
    """Normalize pairs and keep those worth training on.

    A pair is dropped if a side is empty or too long, if one side is much longer than
    the other (a sign that it is not a translation), or if it is a duplicate.

    Args:
        pairs: An iterable of `Pair`s, read once.
        counts: `Counts`, to which the dropped pairs are added.
        max_characters: The most characters on either side.
        max_length_ratio: The largest `(longer + 10) / (shorter + 10)` in characters.
            The 10 allows for short sentences: "oi" may well mean "hello there".

    Returns:
        `Pairs`: the kept ones in their order.

    Example:
        >>> counts = Counts({"read": 3})
        >>> list(clean([Pair("olá", "hello")] * 2 + [Pair("sim", " ")], counts))
        [Pair(source='olá', target='hello')]
        >>> counts.describe()
        '3 read, 1 kept, 2 dropped (1 empty side, 1 duplicate)'
    """
    import numpy as np

    hashes = bytearray()  # 8 bytes a pair, to find duplicates without their strings

    def fit():
        for source, target in pairs:
            source, target = normalize(source), normalize(target)
            shorter, longer = sorted((len(source), len(target)))
            if not shorter:
                counts["empty side"] += 1
            elif longer > max_characters:
                counts["too long"] += 1
            elif (longer + 10) / (shorter + 10) > max_length_ratio:
                counts["length ratio"] += 1
            else:
                line = f"{source}\t{target}".encode()
                hashes.extend(hashlib.blake2b(line, digest_size=8).digest())
                yield Pair(source, target)

    cleaned = Pairs(fit())
    keys, kept = np.frombuffer(hashes, np.int64), np.zeros(len(cleaned), bool)
    for part in range(16):  # a sixteenth at a time needs little memory
        rows = np.flatnonzero(keys.view(np.uint8)[::8] % 16 == part)
        kept[rows[np.unique(keys[rows], return_index=True)[1]]] = True
    if duplicates := int(np.count_nonzero(~kept)):
        counts["duplicate"] += duplicates
        cleaned = cleaned.select(np.flatnonzero(kept))
    return cleaned
