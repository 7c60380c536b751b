"""Tidy the text of sentence pairs, and drop the pairs that teach nothing."""

import dataclasses
import re
import unicodedata
from collections.abc import Iterable, Iterator

from tfxformer.corpora.pair import Pair

# How `Counts.describe` names each reason for which a pair is dropped.
_REASONS = {
    "malformed_columns": "wrong number of columns",
    "malformed_utf8": "in another encoding",
    "empty": "empty side",
    "too_long": "too long",
    "length_ratio": "length ratio",
    "duplicates": "duplicate",
}

# Invisible marks that only split words for the eye: zero-width space, word
# joiner, byte-order mark, soft hyphen. Joiners that change letters stay. The
# tokenizer drops the same marks.
INVISIBLE = "[\u200b\u2060\ufeff\u00ad]"
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


@dataclasses.dataclass
class Counts:
    """How many pairs were read, kept, and dropped for each reason.

    Readers count what they read and what is malformed, `clean` the rest, so that
    `read` is the sum of the other fields once a corpus has gone through both.

    Attributes:
        read: pairs read.
        malformed_columns: lines without the columns.
        malformed_utf8: lines that are not UTF-8, or in the encoding that is named.
        empty: pairs with an empty side.
        duplicates: pairs that were there before.
        too_long: pairs with a side of too many characters.
        length_ratio: pairs whose sides are of too different lengths.
        kept: pairs that are left.

    Example:
        >>> counts = Counts(read=9, duplicates=2, kept=7)
        >>> (counts + Counts(read=1, kept=1)).describe()
        '10 read, 8 kept, 2 dropped (2 duplicate)'
    """

    read: int = 0
    malformed_columns: int = 0
    malformed_utf8: int = 0
    empty: int = 0
    duplicates: int = 0
    too_long: int = 0
    length_ratio: int = 0
    kept: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        if not isinstance(other, Counts):
            return NotImplemented
        mine, theirs = dataclasses.astuple(self), dataclasses.astuple(other)
        return Counts(*(a + b for a, b in zip(mine, theirs, strict=True)))

    @property
    def dropped(self) -> int:
        """All pairs that were dropped, whatever the reason."""
        return sum(getattr(self, reason) for reason in _REASONS)

    def describe(self) -> str:
        """Say it in one line, leaving out the reasons that did not occur.

        Returns:
            The line, such as `10 read, 8 kept, 2 dropped (2 duplicate)`.
        """
        line = f"{self.read:,} read, {self.kept:,} kept"
        if not self.dropped:
            return line
        counted = ((getattr(self, name), text) for name, text in _REASONS.items())
        reasons = ", ".join(f"{count:,} {text}" for count, text in counted if count)
        return f"{line}, {self.dropped:,} dropped ({reasons})"


def normalize(text: str) -> str:
    r"""Give text in its one plain form: Unicode NFKC, single spaces.

    Control characters and line separators count as spaces, and invisible marks
    such as the zero-width space and the soft hyphen go.

    Args:
        text: Any string.

    Returns:
        The text without spaces at its ends; normalising it again changes nothing.

    Example:
        >>> normalize(" ﬁne \u00a0 day\x00\n")
        'fine day'
    """
    if not text.isascii():
        # Before NFKC: a letter and its accent may meet once a mark is gone.
        text = re.sub(INVISIBLE, "", text)
        text = unicodedata.normalize("NFKC", text)
    return " ".join(_CONTROL.sub(" ", text).split())


def normalize_pairs(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Normalise both sides of each pair and drop none.

    Args:
        pairs: Sentence pairs.

    Yields:
        As many pairs.

    Example:
        >>> list(normalize_pairs([Pair("bom  dia", "")]))
        [Pair(source='bom dia', target='')]
    """
    for source, target in pairs:
        yield Pair(normalize(source), normalize(target))


def unfit(
    pair: Pair, *, max_characters: int = 1000, max_length_ratio: float = 3.0
) -> str | None:
    """Say why a pair teaches nothing, whatever other pairs there are.

    The reason is the first that holds: a side is empty, a side is too long, one side
    is so much longer than the other that they can hardly say the same.

    The ratio of lengths is `(longer + 10) / (shorter + 10)` in characters: the ten
    forgives short sentences, where "oi" for "hello there" is no mistake.

    Args:
        pair: A pair of normalised sentences.
        max_characters: The longest side that is fit.
        max_length_ratio: The largest ratio of lengths that is fit.

    Returns:
        A field of `Counts`: `empty`, `too_long` or `length_ratio`. None for a pair
        that is fit.

    Example:
        >>> unfit(Pair("sim", "yes")), unfit(Pair("sim", ""))
        (None, 'empty')
    """
    shorter, longer = sorted((len(pair.source), len(pair.target)))
    if not shorter:
        return "empty"
    if longer > max_characters:
        return "too_long"
    if (longer + 10) / (shorter + 10) > max_length_ratio:
        return "length_ratio"
    return None


def clean(
    pairs: Iterable[Pair],
    counts: Counts,
    *,
    max_characters: int = 1000,
    max_length_ratio: float = 3.0,
) -> list[Pair]:
    """Normalise pairs and keep those worth training on.

    A pair is dropped when it is `unfit`, or when the same pair came before.

    Args:
        pairs: Sentence pairs; read once, so an iterator will do.
        counts: Where kept and dropped pairs are added up. `read` and the malformed
            lines are the reader's to count.
        max_characters: The longest side that is kept.
        max_length_ratio: The largest ratio of lengths that is kept.

    Returns:
        The pairs that are left, in their order.

    Example:
        >>> counts = Counts(read=3)
        >>> clean([Pair("olá", "hello")] * 2 + [Pair("sim", " ")], counts)
        [Pair(source='olá', target='hello')]
        >>> counts.describe()
        '3 read, 1 kept, 2 dropped (1 empty side, 1 duplicate)'
    """
    kept, seen = [], set()
    for pair in normalize_pairs(pairs):
        reason = unfit(
            pair, max_characters=max_characters, max_length_ratio=max_length_ratio
        )
        if reason:
            setattr(counts, reason, getattr(counts, reason) + 1)
        elif pair in seen:
            counts.duplicates += 1
        else:
            seen.add(pair)
            kept.append(pair)
    counts.kept += len(kept)
    return kept
