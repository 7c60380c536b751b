"""The sources of sentence pairs.

A source has the same name everywhere: `phrasebook` (part of the package), `ted`
(TensorFlow Datasets), the path of a TSV, or `SRC,TGT`, the paths of two parallel
files. Files may be gzipped.
"""

import gzip
import importlib.util
import os
from functools import cache
from pathlib import Path

from tfxformer.corpora import ted
from tfxformer.corpora.files import read_pairs
from tfxformer.corpora.pairs import Counts, Pair, Pairs, clean, normalize
from tfxformer.errors import UserError

__all__ = ["Counts", "Pair", "Pairs", "clean", "load", "normalize", "phrasebook"]

_NAMES = ("phrasebook", "ted")


@cache
def phrasebook():
    """Give the embedded Portuguese-English phrasebook, split by sentence.

    It is in the public domain (`data/LICENSE.md`); `recipes/phrasebook` generates it.

    Returns:
        `Pairs` by name: "train", "validation" (500) and "test" (500). No two splits
        share a sentence in either language. Each two words in a row of a held-out
        sentence are in at least three pairs.

    Example:
        >>> phrasebook()["train"][0]
        Pair(source='Olá!', target='Hello!')
    """
    packed = Path(__file__).with_name("data") / "phrasebook.tsv.gz"
    lines = gzip.decompress(packed.read_bytes()).decode("utf-8").splitlines()
    pairs = Pairs(line.split("\t") for line in lines)
    return {"train": pairs[1000:], "validation": pairs[:500], "test": pairs[500:1000]}


def load(
    source,
    split="train",
    *,
    data_dir=None,
    cleaned=True,
    max_characters=1000,
    max_length_ratio=3.0,
    columns=None,
    encoding="utf-8",
):
    """Load the sentence pairs of one source.

    Args:
        source: `phrasebook`, `ted`, a TSV's path, or `SRC,TGT` paths.
        split: `train`, `validation` or `test` of phrasebook and ted; ignored for files.
        data_dir: The folder of TensorFlow Datasets, for ted.
        cleaned: Drop duplicates, empty sides, and pairs beyond the limits below. False,
            for evaluation, drops only malformed lines.
        max_characters: As in `clean`.
        max_length_ratio: As in `clean`.
        columns: The numbers, from 1, of a TSV's source and target columns; None if it
            has only these two.
        encoding: The encoding of the files, one of Python's codecs.

    Returns:
        `Pairs`, and `Counts` of the pairs read and dropped.

    Raises:
        UserError: The source is unknown or cannot be read, or no pair is left.

    Example:
        >>> pairs, counts = load("phrasebook")
        >>> pairs[0], counts.describe()
        (Pair(source='Olá!', target='Hello!'), '42,737 read, 42,737 kept')
    """
    if split not in ("train", "validation", "test"):
        raise UserError(f"no split {split!r}; choose one of train, validation, test")
    counts = Counts()
    if source in _NAMES:
        pairs = ted.load(split, data_dir) if source == "ted" else phrasebook()[split]
        counts["read"] = len(pairs)
    else:
        pairs = read_pairs(_find_files(source), counts, columns, encoding)
    if cleaned:
        pairs = clean(pairs, counts, max_characters, max_length_ratio)
    else:
        pairs = Pairs(map(normalize, pair) for pair in pairs)
    if not pairs:
        hint = "check that each line has a sentence and its translation"
        if counts["wrong number of columns"]:
            hint += "; if lines have more than two columns, use --columns 2,1"
        if counts["in another encoding"]:
            hint += "; if the file is not UTF-8, use --encoding latin-1"
        raise UserError(f"{source}: no usable pair: {counts.describe()}; {hint}")
    return pairs, counts


def input_files(sources):
    """List the files of several sources; raise a UserError if one does not exist."""
    if "ted" in sources and importlib.util.find_spec("tensorflow_datasets") is None:
        problem = "ted: needs TensorFlow Datasets"
        raise UserError(f"{problem}; run: pip install 'tfxformer[ted]'")
    return [path for s in sources if s not in _NAMES for path in _find_files(s)]


def _find_files(source):
    """Find a TSV or two parallel files; a path that exists wins."""
    source = os.fspath(source)
    halves = [(source[:i], source[i + 1 :]) for i, c in enumerate(source) if c == ","]
    for names in [(source,), *halves]:
        paths = [Path(name).expanduser() for name in names]
        if all(os.path.exists(path) and not os.path.isdir(path) for path in paths):
            return paths
    raise UserError(
        f"{source!r} not found: expected phrasebook, ted, a TSV file, or two files as "
        "SRC,TGT"
    )
