"""Tidy the text of sentence pairs, and drop the pairs that teach nothing."""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator

from tfxformer.corpora.pair import Pair, Pairs

# Marks that only split words for the eye: zero-width space, word joiner, byte-order
# mark, soft hyphen. Joiners that change letters stay. The tokenizer drops the same.
INVISIBLE = "[\u200b\u2060\ufeff\u00ad]"
_INVISIBLE, _CONTROL = re.compile(INVISIBLE), re.compile("[\x00-\x1f\x7f-\x9f]")


class Counts(Counter):
    """How many pairs were read, and how many were dropped for each reason.

    Example:
        >>> Counts({"read": 9, "duplicate": 2}).describe()
        '9 read, 7 kept, 2 dropped (2 duplicate)'
    """

    def describe(self) -> str:
        """Say it in one line, the most frequent reason first.

        Returns:
            The line.
        """
        why = [f"{n:,} {name}" for name, n in self.most_common() if name != "read"]
        dropped = self.total() - self["read"]
        line = f"{self['read']:,} read, {self['read'] - dropped:,} kept"
        return f"{line}, {dropped:,} dropped ({', '.join(why)})" if why else line


def normalize(text: str) -> str:
    r"""Give text in its one plain form: Unicode NFKC, single spaces.

    Control characters and line separators count as spaces, and invisible marks
    such as the zero-width space and the soft hyphen go.

    Args:
        text: Any string.

    Returns:
        The text; normalising it again changes nothing.

    Example:
        >>> normalize(" ﬁne \u00a0 day\x00\n")
        'fine day'
    """
    if not text.isascii():
        # Before NFKC: a letter and its accent may meet once a mark is gone.
        text = unicodedata.normalize("NFKC", _INVISIBLE.sub("", text))
    return " ".join(_CONTROL.sub(" ", text).split())


def clean(
    pairs: Iterable[Pair],
    counts: Counts,
    max_characters: int = 1000,
    max_length_ratio: float = 3.0,
) -> Pairs:
    """Normalise pairs and keep those worth training on.

    A pair is dropped when a side is empty or too long, when one side is so much longer
    than the other that they can hardly say the same, or when it came before.

    Args:
        pairs: Sentence pairs, read once.
        counts: Where dropped pairs are added up; the reader counts those read.
        max_characters: The longest side that is kept.
        max_length_ratio: The largest `(longer + 10) / (shorter + 10)` in characters
            that is kept. The ten forgives short sentences, where "oi" for "hello
            there" is no mistake.

    Returns:
        The pairs that are left, in their order.

    Example:
        >>> counts = Counts({"read": 3})
        >>> list(clean([Pair("olá", "hello")] * 2 + [Pair("sim", " ")], counts))
        [Pair(source='olá', target='hello')]
        >>> counts.describe()
        '3 read, 1 kept, 2 dropped (1 empty side, 1 duplicate)'
    """
    import numpy as np  # not before it is used: commands read options first

    hashes = bytearray()  # 8 bytes a pair, so that duplicates need no strings

    def fit() -> Iterator[Pair]:
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

    found = Pairs(fit())
    keys, kept = np.frombuffer(hashes, np.int64), np.zeros(len(found), bool)
    for part in range(16):  # a sixteenth at a time needs little memory
        rows = np.flatnonzero(np.frombuffer(hashes, np.uint8)[::8] % 16 == part)
        kept[rows[np.unique(keys[rows], return_index=True)[1]]] = True
    if duplicates := int(np.count_nonzero(~kept)):
        counts["duplicate"] += duplicates
        found = found.select(np.flatnonzero(kept))
    return found
