"""Counts test sentences in training pairs, and keeps the pairs without any.

    python recipes/overlap.py pairs.tsv.gz --test test.tsv --out clean.tsv.gz

A training pair holds a test sentence if its source or target equals the test pair's, or
shares eight words in a row with it. Case, accents and punctuation do not matter. Repeat
`--test` for several test sets.
"""

import argparse
import re
import unicodedata

import pairs as files

# This many words in a row are rarely the same by chance.
RUN = 8


def words(text):
    """Returns the words of a text without case, accents and punctuation.

    Example:
        >>> words("Amanhã, não!") == words("amanha nao")
        True
        >>> words("she 's 30 .")
        ('she', 's', '30')
    """
    # Unicode's compatibility caseless match (D146) repeats both steps.
    text = unicodedata.normalize("NFD", text)
    for _ in range(2):
        text = unicodedata.normalize("NFKD", text.casefold())
    text = "".join(c for c in text if not unicodedata.combining(c))
    return tuple(re.findall(r"[^\W_]+", text))


class Overlap:
    """Finds the pairs of one test set in training pairs.

    Example:
        >>> overlap = Overlap("test", [("O gato dorme.", "The cat sleeps.")])
        >>> overlap.holds(("o gato dorme", "The tomcat sleeps."))
        True
        >>> overlap.describe()
        'test: 1 pairs; 1 whole, 0 by 8 words in a row, in 1 training pairs'
    """

    def __init__(self, name, pairs):
        self.name, self.size, self.training = name, len(pairs), 0
        self.whole, self.runs = {}, {}  # (side, words): numbers of test pairs
        self.whole_found, self.runs_found = set(), set()
        for number, pair in enumerate(pairs):
            for key, runs in _keys(pair):
                self.whole.setdefault(key, set()).add(number)
                for run in runs:
                    self.runs.setdefault(run, set()).add(number)

    def holds(self, pair):
        """Returns whether a training pair holds a test sentence, and counts it."""
        whole, by_run = set(), set()
        for key, runs in _keys(pair):
            whole |= self.whole.get(key, set())
            by_run = by_run.union(*(self.runs.get(run, ()) for run in runs))
        self.whole_found |= whole
        self.runs_found |= by_run
        self.training += bool(whole or by_run)
        return bool(whole or by_run)

    def describe(self):
        """Returns the counts in one line."""
        return (
            f"{self.name}: {self.size:,} pairs; {len(self.whole_found):,} whole, "
            f"{len(self.runs_found):,} by {RUN} words in a row, in "
            f"{self.training:,} training pairs"
        )


def _keys(pair):
    """Yields the key of each side that has words, and the keys of its runs."""
    for side, text in enumerate(pair):
        if found := words(text):
            starts = range(len(found) - RUN + 1)
            yield (side, found), [(side, found[i : i + RUN]) for i in starts]


def main():
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", help="training pairs: a TSV (.gz too) or phrasebook")
    parser.add_argument("--test", action="append", required=True, help="test pairs")
    parser.add_argument("--out", help="write the pairs without test sentences here")
    arguments = parser.parse_args()
    tests = [Overlap(name, files.read(name, "test")) for name in arguments.test]
    kept = []
    for pair in files.read(arguments.data):
        holds = [test.holds(pair) for test in tests]  # every test set counts the pair
        if not any(holds):
            kept.append(pair)
    for test in tests:
        print(test.describe())
    if arguments.out:
        files.write(arguments.out, kept)


if __name__ == "__main__":
    main()
