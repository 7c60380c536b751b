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

from tfxformer.corpora.cleaning import Counts, clean, normalize
from tfxformer.corpora.files import read_pairs
from tfxformer.corpora.pair import Pair, Pairs
from tfxformer.errors import UserError

__all__ = ["Counts", "Pair", "Pairs", "check_source", "clean", "load", "normalize"]

_NAMES = ("phrasebook", "ted")
_SPLITS = ("train", "validation", "test")


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
    r"""Load the sentence pairs of one source.

    Args:
        source: `phrasebook`, `ted`, a TSV's path, or `SRC,TGT` paths. `./ted` is a
            file of that name.
        split: `train`, `validation` or `test`, of phrasebook and ted. A file has no
            splits: all of it is read.
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
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "two.tsv")
        >>> _ = path.write_text("olá\thello\nolá\thello\n", encoding="utf-8")
        >>> pairs, counts = load(path)
        >>> pairs[0]
        Pair(source='olá', target='hello')
        >>> counts.describe()
        '2 read, 1 kept, 1 dropped (1 duplicate)'
    """
    if split not in _SPLITS:
        choice = ", ".join(_SPLITS)
        raise UserError(f"{source}: no split {split!r}; choose one of {choice}")
    counts = Counts()
    if source == "phrasebook":
        from tfxformer.corpora import phrasebook

        pairs = phrasebook.splits()[split]
    elif source == "ted":
        from tfxformer.corpora import ted  # TensorFlow starts here

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
    """Load several sources, and check all their names before reading the first.

    Args:
        sources: As `load` takes them.
        *args: Other arguments of `load`, which hold for every source.
        **options: The same.

    Returns:
        What `load` returns, for each source in turn.

    Raises:
        UserError: As in `load`.

    Example:
        >>> [(pairs, _)] = load_mixture(["phrasebook"], "test")
        >>> len(pairs)
        500
    """
    for source in sources:
        check_source(source)
    return [load(source, *args, **options) for source in sources]


def check_source(source: str) -> None:
    """Make sure that a source exists, without reading it.

    Args:
        source: As `load` takes it.

    Raises:
        UserError: There is no such source; the message says what is accepted.

    Example:
        >>> check_source("phrasebook")
    """
    if source == "ted" and importlib.util.find_spec("tensorflow_datasets") is None:
        raise UserError("ted: needs TensorFlow Datasets; pip install 'tfxformer[ted]'")
    for path in input_files([source]):
        if path.is_dir():
            raise UserError(f"{path}: this is a folder; give a file in it")
        if not os.access(path, os.R_OK):
            raise UserError(f"{path}: reading it is not permitted; chmod it")


def input_files(sources: Iterable[str]) -> list[Path]:
    """List the files that are read of several sources.

    Args:
        sources: As `load` takes them.

    Returns:
        Paths; of phrasebook and ted none.

    Raises:
        UserError: There is no such file; the message says what is accepted.
    """
    return [path for s in sources if s not in _NAMES for path in _find_files(s)]


def _find_files(source):
    """Tells a TSV from two parallel files: a path that exists wins."""
    source = os.fspath(source)
    cuts = [i for i, character in enumerate(source) if character == ","]
    halves = [(source[:cut], source[cut + 1 :]) for cut in cuts]
    for names in [(source,), *halves]:
        paths = [Path(name).expanduser() for name in names]
        if all(names) and all(map(_exists, paths)):
            return paths
    guess = difflib.get_close_matches(source.lower(), _NAMES, n=1, cutoff=0.7)
    hint = f" (did you mean {guess[0]!r}?)" if guess else ""
    if len(halves) == 1 and all(halves[0]):
        missing = [half for half in halves[0] if not _exists(Path(half).expanduser())]
        hint = f" ({missing[0]}: no such file)"
    raise UserError(
        f"{source!r} is no pair source and no file{hint}; give phrasebook, ted, "
        "a TSV's path, or SRC,TGT paths"
    )


def _exists(path):
    try:
        return path.exists()
    except (OSError, ValueError):  # a name that is too long, or has a NUL in it
        return False
