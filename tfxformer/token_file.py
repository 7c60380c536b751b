"""The token ids of sentence pairs in files, so that pairs are tokenised only once.

The files are in one folder. ``ids.bin`` has the ids of each source and then of its
target, ``lengths.bin`` how many they are, and ``tokens.json`` what they were made of.
The ids stay on disk: memory does not grow with them.
"""

import hashlib
import itertools
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tfxformer.errors import UserError, write_file

CHUNK = 2_000  # pairs that are tokenised in one call


class EncodedPairs(NamedTuple):
    """Pairs in token ids: their lengths, and where each starts in one array of ids."""

    lengths: np.ndarray  # of each source and target, in tokens: (pairs, 2)
    starts: np.ndarray  # (pairs, 2)
    ids: np.ndarray  # (tokens,)

    @classmethod
    def from_lists(cls, sides):
        """The pairs of lists of ids: a source, its target, the next source."""
        lengths = np.fromiter(map(len, sides), np.int64, len(sides))
        ids = np.fromiter(itertools.chain.from_iterable(sides), np.int32, lengths.sum())
        starts = np.cumsum(lengths) - lengths
        return cls(lengths.reshape(-1, 2), starts.reshape(-1, 2), ids)

    def to_lists(self, chosen):
        """The inverse of `from_lists`, for the pairs of a slice."""
        lengths, starts = self.lengths[chosen].ravel(), self.starts[chosen].ravel()
        return [
            self.ids[start : start + length].tolist()
            for start, length in zip(starts, lengths, strict=True)
        ]


class TokenFile:
    """The folder that `write_tokens` wrote, with 12 bytes a pair in memory.

    Args:
        folder: its path.

    Attributes:
        sources: a dict for each source: ``pairs`` (the number kept), ``too_long`` (the
            number left out), and ``digest`` (of its text).
        about: the ``about`` of `write_tokens`.
        lengths: the tokens in each source and target, uint16 ``(pairs, 2)``.

    Raises:
        OSError: the folder has no token ids.
        UserError: the files are damaged.
    """

    def __init__(self, folder):
        self.folder = Path(folder)
        try:
            content = json.loads((self.folder / "tokens.json").read_text("utf-8"))
            self.sources, self.about = content["sources"], content["about"]
            self._dtype = np.dtype(content["dtype"])
            lengths = np.fromfile(self.folder / "lengths.bin", np.uint16)
            self.lengths = lengths.reshape(-1, 2)
            ends = self.lengths.sum(axis=1, dtype=np.int64)
            # Where the ids of each pair end, (pairs,); in place, to save memory.
            self._ends = np.cumsum(ends, out=ends)
            size = int(ends[-1]) * self._dtype.itemsize if len(ends) else 0
            kept = sum(source["pairs"] for source in self.sources)
            if len(self) != kept or (self.folder / "ids.bin").stat().st_size != size:
                raise ValueError
        except (ValueError, KeyError, TypeError):
            raise UserError(f"{folder}: damaged; delete this folder") from None

    def __len__(self):
        return len(self.lengths)

    def pairs(self, numbers):
        """The `EncodedPairs` with some numbers; their ids are read on use."""
        lengths = self.lengths[numbers].astype(np.int64)  # (pairs, 2)
        sources = self._ends[numbers] - lengths.sum(axis=1)  # their starts, (pairs,)
        starts = np.stack([sources, sources + lengths[:, 0]], axis=1)  # (pairs, 2)
        # A new map each time, so that old pages do not stay in memory.
        ids = np.memmap(self.folder / "ids.bin", self._dtype, "r")
        return EncodedPairs(lengths, starts, ids)


def write_tokens(folder, sources, tokenizer, max_length, about=None):
    """Tokenises pairs into a folder, one chunk at a time.

    Args:
        folder: the folder; its earlier token ids are replaced.
        sources: for each source, an iterable of (source, target) strings.
        tokenizer: a `Tokenizer`.
        max_length: the most positions in a source or a target, including the start or
            end token. Longer pairs are left out and counted.
        about: any JSON value, stored beside the ids.

    Returns:
        A `TokenFile`.

    Raises:
        OSError: the folder cannot be written.

    Example:
        >>> import tempfile
        >>> from tfxformer import Tokenizer
        >>> tokenizer = Tokenizer.train(["o gato", "the cat"] * 50, vocab_size=300)
        >>> pairs = [("o gato", "the cat"), ("gato", "cat")]
        >>> tokens = write_tokens(tempfile.mkdtemp(), [pairs], tokenizer, max_length=32)
        >>> len(tokens), tokens.sources[0]["too_long"]
        (2, 0)
    """
    folder = Path(folder)
    most = max(side.vocab_size for side in tokenizer.sides)
    dtype = "uint16" if most <= 2**16 else "uint32"
    folder.mkdir(parents=True, exist_ok=True)
    # This file is written last: without it, the others do not count.
    (folder / "tokens.json").unlink(missing_ok=True)
    written = []
    with (
        open(folder / "ids.bin", "wb") as ids_file,
        open(folder / "lengths.bin", "wb") as lengths_file,
    ):
        for pairs in sources:
            pairs, digest = iter(pairs), hashlib.sha256()
            counts = {"pairs": 0, "too_long": 0}
            while chunk := list(itertools.islice(pairs, CHUNK)):
                digest.update(json.dumps(chunk).encode())
                encoded = encode_pairs(chunk, tokenizer)
                short = [pair for pair in encoded if max(map(len, pair)) < max_length]
                ids = itertools.chain.from_iterable(itertools.chain(*short))
                ids_file.write(np.fromiter(ids, dtype).tobytes())
                lengths = [[*map(len, pair)] for pair in short]
                lengths_file.write(np.array(lengths, "uint16").tobytes())
                counts["pairs"] += len(short)
                counts["too_long"] += len(chunk) - len(short)
            written.append(counts | {"digest": digest.hexdigest()})
    content = {"sources": written, "dtype": dtype, "about": about}
    write_file(folder / "tokens.json", json.dumps(content).encode())
    return TokenFile(folder)


def encode_pairs(pairs, tokenizer):
    """Tokenises pairs.

    Args:
        pairs: a list of (source, target) strings.
        tokenizer: a `Tokenizer`.

    Returns:
        A list with the ids of each pair: of its source, and of its target.
    """
    source_side, target_side = tokenizer.sides
    sources = source_side.encode([pair[0] for pair in pairs])
    targets = target_side.encode([pair[1] for pair in pairs])
    return list(zip(sources, targets, strict=True))
