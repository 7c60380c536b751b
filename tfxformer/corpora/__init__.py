"""Where sentence pairs come from.

A source is named the same everywhere: `phrasebook` (shipped with the package), `ted`
(TensorFlow Datasets), the path of a TSV, or `SRC,TGT`, the paths of two parallel
files. Files may be gzipped.
"""

import difflib
import importlib.util
import itertools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from tfxformer.corpora.cleaning import Counts, clean, normalize, normalize_pairs
from tfxformer.corpora.files import read_parallel, read_tsv
from tfxformer.corpora.pair import Pair
from tfxformer.errors import UserError

__all__ = [
    "Counts",
    "Pair",
    "check_source",
    "clean",
    "load",
    "load_mixture",
    "normalize",
    "read_parallel",
    "read_tsv",
]

_NAMES = ("phrasebook", "ted")
_SPLITS = ("train", "validation", "test")
_ACCEPTED = "phrasebook, ted, a TSV's path, or SRC,TGT paths"


def load(
    source: str,
    split: str = "train",
    *,
    data_dir: str | os.PathLike | None = None,
    reverse: bool = False,
    strict: bool = False,
    cleaned: bool = True,
    max_characters: int = 1000,
    max_length_ratio: float = 3.0,
    columns: Sequence[int] | None = None,
    encoding: str = "utf-8",
) -> tuple[list[Pair], Counts]:
    r"""Load the sentence pairs of one source.

    Args:
        source: `phrasebook`, `ted`, a TSV's path, or `SRC,TGT` paths. A file that
            is called like a name is reached as `./ted`.
        split: `train`, `validation` or `test`, of phrasebook and ted. A file is
            what it is: it has no splits, and all of it is read.
        data_dir: The folder of TensorFlow Datasets, for ted.
        reverse: Swap the two sides, to train or measure the other direction.
        strict: Stop at a malformed line of a file; otherwise it is named in the
            log, counted and skipped.
        cleaned: Drop duplicates, empty sides, and pairs beyond the limits below.
            Set it to False to evaluate: the text is then normalised, and no pair
            is dropped but a malformed line.
        max_characters: As in `clean`.
        max_length_ratio: As in `clean`.
        columns: The numbers, from 1, of a TSV's column of sources and of targets;
            None for a TSV that has these two alone.
        encoding: Of files: one of Python's codecs.

    Returns:
        The pairs, and the counts of what was read, kept and dropped.

    Raises:
        UserError: The source is unknown or cannot be read, or no pair is left.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "two.tsv")
        >>> _ = path.write_text("olá\thello\nolá\thello\n", encoding="utf-8")
        >>> pairs, counts = load(str(path), reverse=True)
        >>> pairs
        [Pair(source='hello', target='olá')]
        >>> counts.describe()
        '2 read, 1 kept, 1 dropped (1 duplicate)'
    """
    source = os.fspath(source)
    if split not in _SPLITS:
        choice = ", ".join(_SPLITS)
        raise UserError(f"{source}: no split {split!r}; choose one of {choice}")
    counts = Counts()
    options = {"strict": strict, "columns": columns, "encoding": encoding}
    pairs = _read(source, split, data_dir, counts, **options)
    if reverse:
        pairs = (Pair(target, source) for source, target in pairs)
    if cleaned:
        limits = {
            "max_characters": max_characters,
            "max_length_ratio": max_length_ratio,
        }
        pairs = clean(pairs, counts, **limits)
    else:
        pairs = list(normalize_pairs(pairs))
        counts.kept = len(pairs)
    if not pairs:
        hint = "check that it has a sentence and its translation on each line"
        if counts.malformed_columns:
            hint += "; if its lines have more columns, pick two: --columns 2,1"
        if counts.malformed_utf8:
            hint += "; name another encoding: --encoding latin-1"
        raise UserError(f"{source}: no usable pair in it: {counts.describe()}; {hint}")
    return pairs, counts


def load_mixture(
    sources: list[str], split: str = "train", **options
) -> list[tuple[list[Pair], Counts]]:
    """Load several sources and keeps them apart.

    All names are checked before the first source is read. How much of each goes
    into a batch is decided where batches are made.

    Args:
        sources: As `load` takes them.
        split: As in `load`.
        **options: The other arguments of `load`; they hold for every source.

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
    return [load(source, split, **options) for source in sources]


def check_source(source: str) -> None:
    """Make sure that a source exists, without reading it.

    Args:
        source: As `load` takes it.

    Raises:
        UserError: There is no such source; the message says what is accepted.

    Example:
        >>> check_source("phrasebook")
    """
    source = os.fspath(source)
    if source == "ted" and importlib.util.find_spec("tensorflow_datasets") is None:
        raise UserError("ted: needs TensorFlow Datasets; pip install 'tfxformer[ted]'")
    if source not in _NAMES:
        for path in find_files(source):
            if path.is_dir():
                raise UserError(f"{path}: this is a folder; give a file in it")
            if not os.access(path, os.R_OK):
                raise UserError(f"{path}: reading it is not permitted; chmod it")


def _read(
    source, split, data_dir, counts, *, strict, columns, encoding
) -> Iterable[Pair]:
    """Gives the pairs as the source has them, and counts those read."""
    # The sources load when they are used: most runs need one, and none needs
    # TensorFlow but ted.
    if source == "phrasebook":
        from tfxformer.corpora import phrasebook

        pairs = phrasebook.splits()[split]
    elif source == "ted":
        from tfxformer.corpora import ted

        pairs = ted.load(split, data_dir)
    else:
        paths = find_files(source)
        options = {"strict": strict, "counts": counts, "encoding": encoding}
        if len(paths) == 1:
            return read_tsv(*paths, columns=columns, **options)
        return read_parallel(*paths, **options)
    counts.read += len(pairs)
    return pairs


def input_files(sources: Iterable[str]) -> list[Path]:
    """List the files that are read of several sources.

    Args:
        sources: As `load` takes them.

    Returns:
        Paths; of phrasebook and ted none.

    Raises:
        UserError: There is no such file; the message says what is accepted.

    Example:
        >>> input_files(["phrasebook", "ted"])
        []
    """
    return [path for s in sources if s not in _NAMES for path in find_files(s)]


def find_files(source: str) -> tuple[Path] | tuple[Path, Path]:
    """Tell a TSV from two parallel files: a path that exists wins.

    Args:
        source: The path of a TSV, or `SRC,TGT` paths.

    Returns:
        One path or two.

    Raises:
        UserError: There is no such file; the message says what is accepted.
    """
    whole = Path(source).expanduser()
    if source and _exists(whole):
        return (whole,)
    commas = [i for i, character in enumerate(source) if character == ","]
    splits = [(source[:i], source[i + 1 :]) for i in commas]
    for halves in splits:
        paths = tuple(Path(half).expanduser() for half in halves)
        if all(halves) and all(map(_exists, paths)):
            return paths
    if len(splits) == 1 and all(splits[0]):
        missing = next(
            half for half in splits[0] if not _exists(Path(half).expanduser())
        )
        raise UserError(
            f"{missing}: no such file, in {source!r}; a pair source is {_ACCEPTED}"
        )
    guess = _closest(source)
    hint = f" (did you mean {guess!r}?)" if guess else ""
    raise UserError(f"{source!r} is no pair source and no file{hint}; give {_ACCEPTED}")


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # A name that is too long, or has a NUL in it.
        return False


def _closest(source: str) -> str | None:
    """The name or the neighbouring file that a mistyped source is most like."""
    known = {name: name for name in _NAMES}
    whole = Path(source).expanduser()
    try:
        # A folder may be vast: a few thousand names are enough to guess from.
        for entry in itertools.islice(whole.parent.iterdir(), 4096):
            if entry.is_file():
                known.setdefault(str(entry), str(entry))
    except (OSError, ValueError):
        pass
    key = source.lower() if source.lower() in known else str(whole)
    matches = difflib.get_close_matches(key, known, n=1, cutoff=0.7)
    return matches[0] if matches else None
