"""Reads and writes files of sentence pairs."""

import gzip
import sys
from pathlib import Path


def read(source, split="train", cleaned=False):
    """Reads pairs, named as in `tfxformer train --data`.

    Args:
        source: `phrasebook`, or the path of a TSV, gzipped or not.
        split: the part of the phrasebook to read.
        cleaned: leave out duplicates and unusable pairs, as training does.

    Returns:
        A list of `Pair`s.
    """
    from tfxformer import corpora
    from tfxformer.errors import UserError

    try:
        return list(corpora.load(str(source), split, cleaned=cleaned)[0])
    except UserError as error:
        sys.exit(f"error: {error}")


def write(path, pairs):
    """Writes a TSV, gzipped if its name ends in `.gz`.

    The same pairs give the same bytes. The file appears when it is complete.
    """
    path = Path(path)
    data = "".join(f"{source}\t{target}\n" for source, target in pairs).encode()
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    part.replace(path)
    print(f"{path.name}: {len(pairs):,} pairs", file=sys.stderr)
