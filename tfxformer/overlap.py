"""Whether test sentences are in the training pairs: exactly, or as runs of words."""

import gzip
import os
import re
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path

from tfxformer.corpora.pair import Pair
from tfxformer.outputs import write_file

# So many words in a row are seldom the same by chance.
RUN = 8


@dataclass(frozen=True)
class Overlap:
    """How much of a test set is in the training pairs.

    Attributes:
        name: the test set.
        sentences: how many pairs it has.
        exact: how many of them have a side that is a training pair's side, in other
            case or punctuation as well.
        runs: how many share `RUN` words in a row with a training pair's side.
        training: how many training pairs have such a side or share such a run.

    Example:
        >>> Overlap("ted", 1803, 2, 0, 5).describe()
        'ted: 1,803 pairs; 2 whole, 0 by 8 words in a row, in 5 training pairs'
    """

    name: str
    sentences: int
    exact: int
    runs: int
    training: int

    def describe(self) -> str:
        """Says it in a line.

        Returns:
            Text.
        """
        return (
            f"{self.name}: {self.sentences:,} pairs; {self.exact:,} whole, "
            f"{self.runs:,} by {RUN} words in a row, in {self.training:,} training "
            "pairs"
        )


@dataclass
class _Test:
    """A test set as it is searched for."""

    name: str
    sentences: int
    # By side: which test pairs have these words, or this run of words.
    whole: tuple = field(default_factory=lambda: ({}, {}))
    runs: tuple = field(default_factory=lambda: ({}, {}))
    exact_found: set = field(default_factory=set)
    runs_found: set = field(default_factory=set)
    training: int = 0


def words(text: str) -> tuple[str, ...]:
    """A text's words, as they are compared: no case, punctuation or accents.

    Args:
        text: any text.

    Returns:
        Its words; letters and digits alone.

    Example:
        >>> words("Amanhã, não!") == words("amanha nao")
        True
        >>> words("she 's 30 .")
        ('she', 's', '30')
    """
    # Unicode's caseless match of compatible letters (D146): each brings out the other.
    text = unicodedata.normalize("NFD", text)
    for _ in range(2):
        text = unicodedata.normalize("NFKD", text.casefold())
    text = "".join(c for c in text if not unicodedata.combining(c))
    return tuple(re.findall(r"[^\W_]+", text))


class OverlapCheck:
    """Looks for test sets in training pairs, one pair at a time.

    Args:
        tests: a dict from the name of each test set to its `Pair`s.

    Example:
        >>> check = OverlapCheck({"test": [Pair("O gato dorme.", "The cat sleeps.")]})
        >>> check.found_in(Pair("o gato dorme", "The tomcat sleeps."))
        True
        >>> check.found_in(Pair("O cão dorme.", "The dog sleeps."))
        False
        >>> check.overlaps()[0].exact, check.overlaps()[0].training
        (1, 1)
    """

    def __init__(self, tests):
        self._tests = []
        for name, pairs in tests.items():
            test = _Test(name, len(pairs))
            for number, pair in enumerate(pairs):
                for side, text in enumerate((pair.source, pair.target)):
                    found = words(text)
                    if found:
                        test.whole[side].setdefault(found, set()).add(number)
                    for run in _runs(found):
                        test.runs[side].setdefault(run, set()).add(number)
            self._tests.append(test)

    def found_in(self, pair: Pair) -> bool:
        """Counts one training pair.

        Args:
            pair: a `Pair`.

        Returns:
            Whether a side of it is in a test set, or shares a run of words with one.
        """
        sides = [words(pair.source), words(pair.target)]
        found = False
        for test in self._tests:
            exact, shared = set(), set()
            for side, whole, runs in zip(sides, test.whole, test.runs, strict=True):
                exact |= whole.get(side, set())
                for run in _runs(side):
                    shared |= runs.get(run, set())
            test.exact_found |= exact
            test.runs_found |= shared
            test.training += bool(exact or shared)
            found = found or bool(exact or shared)
        return found

    def overlaps(self) -> list[Overlap]:
        """What was found so far.

        Returns:
            An `Overlap` of each test set.
        """
        return [
            Overlap(
                test.name,
                test.sentences,
                len(test.exact_found),
                len(test.runs_found),
                test.training,
            )
            for test in self._tests
        ]


def _runs(found):
    return (found[i : i + RUN] for i in range(len(found) - RUN + 1))


def write_pairs(path: str | os.PathLike, pairs):
    """Writes a file of pairs, which has its name once it is whole.

    Args:
        path: where to; gzipped if it ends in ``.gz``.
        pairs: a list of `Pair`s.

    Raises:
        UserError: when it cannot be written.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "pairs.tsv")
        >>> write_pairs(path, [Pair("um", "one")])
        >>> path.read_text("utf-8").split()
        ['um', 'one']
    """
    path = Path(path)
    content = "".join(f"{pair.source}\t{pair.target}\n" for pair in pairs).encode()
    if path.suffix == ".gz":
        content = gzip.compress(content, mtime=0)  # the same pairs, the same bytes
    write_file(path, content)
