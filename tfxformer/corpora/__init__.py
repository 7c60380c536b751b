"""Where sentence pairs come from.

A source is named the same everywhere: `phrasebook` (shipped with the package), `ted`
(TensorFlow Datasets), the path of a TSV, or `SRC,TGT`, the paths of two parallel
files. Files may be gzipped.
"""

import difflib
import importlib.util
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from tfxformer.corpora import ted
from tfxformer.corpora.cleaning import Counts, clean, normalize
from tfxformer.corpora.files import read_pairs
from tfxformer.corpora.pair import Pair, Pairs
from tfxformer.errors import UserError

__all__ = ["Counts", "Pair", "Pairs", "clean", "load", "normalize"]

_NAMES = ("phrasebook", "ted")


def load(
    source: str,
    split: str = "train",
    *,
    data_dir: str | os.PathLike | None = None,
    cleaned: bool = True,
    max_characters: int = 1000,
    max_length_ratio: float = 3.0,
    columns: Sequence[int] | None = None,
    encoding: str = "utf-8",
) -> tuple[Pairs, Counts]:
    """Load the sentence pairs of one source.

    Args:
        source: `phrasebook`, `ted`, a TSV's path, or `SRC,TGT` paths.
        split: `train`, `validation` or `test`, of phrasebook and ted; a file has none.
        data_dir: The folder of TensorFlow Datasets, for ted.
        cleaned: Drop duplicates, empty sides, and pairs beyond the limits below.
            Set it to False to evaluate: the text is then normalised, and no pair
            is dropped but a malformed line.
        max_characters: As in `clean`.
        max_length_ratio: As in `clean`.
        columns: The numbers, from 1, of a TSV's column of sources and of targets;
            None for a TSV that has these two alone.
        encoding: Of files: one of Python's codecs.

    Returns:
        The pairs, and the counts of those read and dropped.

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
    if source == "phrasebook":
        from tfxformer.corpora import phrasebook  # needs NumPy, which takes a while

        pairs = phrasebook.splits()[split]
    elif source == "ted":
        pairs = ted.load(split, data_dir)
    else:
        pairs = read_pairs(_find_files(source), counts, columns, encoding)
    if source in _NAMES:
        counts["read"] = len(pairs)
    if cleaned:
        pairs = clean(pairs, counts, max_characters, max_length_ratio)
    else:
        pairs = Pairs(map(normalize, pair) for pair in pairs)
    if not pairs:
        hint = "check that it has a sentence and its translation on each line"
        if counts["wrong number of columns"]:
            hint += "; if its lines have more columns, pick two: --columns 2,1"
        if counts["in another encoding"]:
            hint += "; name another encoding: --encoding latin-1"
        raise UserError(f"{source}: no usable pair in it: {counts.describe()}; {hint}")
    return pairs, counts


def load_mixture(sources: Iterable[str], *args, **options) -> list:
    """Load several sources as `load` does, each once all their names are known good."""
    for source in sources:
        check_source(source)
    return [load(source, *args, **options) for source in sources]


def check_source(source: str) -> None:
    """Raise a UserError if a source does not exist, without reading it."""
    if source == "ted" and importlib.util.find_spec("tensorflow_datasets") is None:
        raise UserError("ted: needs TensorFlow Datasets; pip install 'tfxformer[ted]'")
    for path in input_files([source]):
        if path.is_dir() or not os.access(path, os.R_OK):
            raise UserError(f"{path}: a folder, or not readable; give a file")


def input_files(sources: Iterable[str]) -> list[Path]:
    """List the files of several sources; phrasebook and ted have none."""
    return [path for s in sources if s not in _NAMES for path in _find_files(s)]


def _find_files(source):
    """Tells a TSV from two parallel files: a path that exists wins."""
    source = os.fspath(source)
    halves = [(source[:i], source[i + 1 :]) for i, c in enumerate(source) if c == ","]
    for names in [(source,), *halves]:
        paths = [Path(name).expanduser() for name in names]
        if all(names) and all(map(os.path.exists, paths)):
            return paths
    guess = difflib.get_close_matches(source.lower(), _NAMES, n=1, cutoff=0.7)
    hint = f" (did you mean {guess[0]!r}?)" if guess else ""
    if len(halves) == 1 and all(names):
        hint = f" ({names[os.path.exists(paths[0])]}: no such file)"
    raise UserError(
        f"{source!r} is no pair source and no file{hint}; give phrasebook, ted, "
        "a TSV's path, or SRC,TGT paths"
    )
