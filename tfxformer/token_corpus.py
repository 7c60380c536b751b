"""Sentence pairs as token ids on disk: compressed shards that load with NumPy alone."""

import glob
import hashlib
import io
import json
import os
import shutil
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np

from tfxformer.errors import UserError

FORMAT = 1
PAIRS_PER_SHARD = 20_000
# Pairs that are tokenised in one call.
_CHUNK = 2_000
# What a killed writer left is removed once nothing was written to it for so long.
_STALE_SECONDS = 600


class TokenCorpus:
    """Pairs of token ids in a folder.

    ``corpus.json`` says what the ids were made with and names the shards; it is read
    first, and a shard only when it is asked for.

    Args:
        folder: where it is.
        content: what its ``corpus.json`` holds; `open` reads it.

    Attributes:
        folder: where it is.
        key: what `corpus_key` gave when it was written, or what else tells it from
            other corpora.
        tokenizer_digest: the `Tokenizer.digest` of the vocabulary.
        vocab_size: the vocabulary's pieces.
        max_length: no side has more pieces than this less one, so that the start or
            the end token still fits.
        pairs: how many there are.
        counts: what was left out, by reason.
        shard_sizes: the pairs of each shard.

    Example:
        >>> import tempfile
        >>> from tfxformer.corpora import Pair
        >>> from tfxformer.tokenizer import Tokenizer
        >>> vocabulary = Tokenizer.train(["o gato", "the cat"] * 50, 300)
        >>> pairs = [Pair("o gato", "the cat"), Pair("gato", "cat")]
        >>> key = corpus_key(pairs, vocabulary, 64)
        >>> folder = tempfile.mkdtemp() + "/tokens"
        >>> corpus = write_corpus(folder, [pairs], vocabulary, 64, key)
        >>> lengths, ids = TokenCorpus.open(folder).shard(0)
        >>> vocabulary.decode([ids[: lengths[0, 0]]])
        ['o gato']
    """

    def __init__(self, folder, content):
        self.folder = Path(folder)
        self.key = content["key"]
        self.tokenizer_digest = content["tokenizer"]
        self.vocab_size = content["vocab_size"]
        self.max_length = content["max_length"]
        self.pairs = content["pairs"]
        self.counts = content["counts"]
        self.shard_sizes = [shard["pairs"] for shard in content["shards"]]
        self._shards = content["shards"]

    @classmethod
    def open(cls, folder):
        """Reads what ``corpus.json`` says, and looks whether the shards are there.

        Args:
            folder: the corpus's.

        Returns:
            A `TokenCorpus`.

        Raises:
            UserError: when the folder is no token corpus, its ``corpus.json`` is
                damaged or of a later format, or a shard is missing.
        """
        file = Path(folder) / "corpus.json"
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UserError(
                f"{folder}: no token corpus, it has no corpus.json"
            ) from None
        except OSError as error:
            raise UserError(f"{file}: {error.strerror}") from None
        except (ValueError, RecursionError):  # no UTF-8, no JSON, JSON without end
            content = None
        version = content.get("format") if isinstance(content, dict) else None
        if _is_count(version) and version > FORMAT:
            raise UserError(
                f"{file}: has format {version}, and this version of tfxformer reads "
                f"{FORMAT}: update tfxformer"
            )
        if not _is_whole(content):
            raise UserError(f"{file}: damaged: delete {folder} and make it again")
        for shard in content["shards"]:
            if not (Path(folder) / shard["file"]).is_file():
                raise UserError(
                    f"{Path(folder) / shard['file']}: is missing: delete {folder} and "
                    "make it again"
                )
        return cls(folder, content)

    def shard(self, number):
        """Reads one shard.

        Args:
            number: from 0 on.

        Returns:
            The lengths, int64 ``(pairs, 2)``, of source and target in pieces; and
            the ids, int32: the source of pair 0, its target, the source of pair 1,
            and so on.

        Raises:
            UserError: naming the shard, when it cannot be read or is not what was
                written.
        """
        entry = self._shards[number]
        path = self.folder / entry["file"]
        try:
            content = path.read_bytes()
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}") from None
        damaged = UserError(f"{path}: damaged: delete {self.folder} and make it again")
        if hashlib.sha256(content).hexdigest() != entry["sha256"]:
            raise damaged
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                lengths = arrays["lengths"].astype(np.int64)
                ids = arrays["ids"].astype(np.int32)
        except (ValueError, KeyError, EOFError, zipfile.BadZipFile):
            raise damaged from None
        if lengths.shape != (entry["pairs"], 2) or ids.shape != (lengths.sum(),):
            raise damaged
        return lengths, ids


def write_shard(path, rows):
    """Writes one shard; the same rows give the same bytes.

    Args:
        path: the file to write.
        rows: for each pair, the ids of its source and those of its target.

    Returns:
        What ``corpus.json`` has to say about it under "shards".

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/shard-00000.npz"
        >>> write_shard(path, [([5, 6], [7]), ([8], [9, 10])])["pairs"]
        2
    """
    sides = [side for row in rows for side in row]
    lengths = np.array([len(side) for side in sides], np.uint16).reshape(-1, 2)
    ids = np.array([id for side in sides for id in side], np.uint32)
    if ids.max(initial=0) < 2**16:
        ids = ids.astype(np.uint16)
    content = io.BytesIO()
    np.savez_compressed(content, lengths=lengths, ids=ids)
    Path(path).write_bytes(content.getvalue())
    return {
        "file": Path(path).name,
        "pairs": len(rows),
        "sha256": hashlib.sha256(content.getvalue()).hexdigest(),
    }


def write_corpus(folder, chunks, vocabulary, max_length, key):
    """Tokenises pairs as they come and writes them, a shard at a time.

    All goes to another folder first, which is renamed when it is whole: a writer
    that is killed leaves no half corpus. A corpus that is there is replaced.

    Args:
        folder: where the corpus is to be.
        chunks: lists of `Pair`s, one after the other.
        vocabulary: a `Tokenizer`.
        max_length: the most positions of a source or a target; a pair with more than
            ``max_length - 1`` pieces on a side is left out and counted.
        key: see `TokenCorpus`.

    Returns:
        The `TokenCorpus`.

    Raises:
        UserError: when it cannot be written, or something else is in its place.

    Example:
        See `TokenCorpus`.

        >>> write_corpus("/dev/null", [], None, 64, "")
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: /dev/null: ...
    """
    folder = Path(folder)
    try:
        _check_place(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(folder)
        part = tempfile.mkdtemp(prefix=f".{folder.name}.part-", dir=folder.parent)
        try:
            _write(Path(part), chunks, vocabulary, max_length, key)
            _move(part, folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror or error}") from None
    return TokenCorpus.open(folder)


def cached_corpus(folder, pairs, vocabulary, max_length, key):
    """Opens a corpus that was written before, or writes it.

    Args:
        folder: where it is, or is to be.
        pairs: a list of `Pair`s.
        vocabulary: a `Tokenizer`.
        max_length: see `write_corpus`.
        key: `corpus_key` of the same.

    Returns:
        The `TokenCorpus`. One that is damaged, or was made of other pairs, with
        another vocabulary or for another length, is written anew.

    Raises:
        UserError: when it cannot be written.

    Example:
        >>> import tempfile
        >>> from tfxformer.corpora import Pair
        >>> from tfxformer.tokenizer import Tokenizer
        >>> vocabulary = Tokenizer.train(["o gato", "the cat"] * 50, 300)
        >>> folder = tempfile.mkdtemp() + "/tokens"
        >>> cached_corpus(folder, [Pair("gato", "cat")], vocabulary, 64, "1").pairs
        1
        >>> cached_corpus(folder, [], vocabulary, 64, "1").pairs  # it is there
        1
    """
    try:
        corpus = TokenCorpus.open(folder)
    except UserError:
        corpus = None
    wanted = (key, vocabulary.digest, max_length)
    if corpus and (corpus.key, corpus.tokenizer_digest, corpus.max_length) == wanted:
        return corpus
    chunks = (pairs[i : i + _CHUNK] for i in range(0, len(pairs), _CHUNK))
    return write_corpus(folder, chunks, vocabulary, max_length, key)


def corpus_key(pairs, vocabulary, max_length):
    """What tells token corpora apart: a digest of all that decides their ids.

    Args:
        pairs: an iterable of `Pair`s.
        vocabulary: a `Tokenizer`.
        max_length: the most positions of a source or a target.

    Returns:
        A hexadecimal string.

    Example:
        >>> from tfxformer.corpora import Pair
        >>> from tfxformer.tokenizer import Tokenizer
        >>> vocabulary = Tokenizer.train(["o gato", "the cat"] * 50, 300)
        >>> pairs = [Pair("o gato", "the cat")]
        >>> corpus_key(pairs, vocabulary, 64) == corpus_key(pairs, vocabulary, 65)
        False
    """
    digest = hashlib.sha256(f"{FORMAT} {vocabulary.digest} {max_length}".encode())
    for source, target in pairs:
        # With the lengths before them, so that no text can pass for another's end.
        text = f"{len(source)} {len(target)} {source}{target}"
        digest.update(text.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _write(folder, chunks, vocabulary, max_length, key):
    shards, rows, too_long = [], [], 0

    def flush(count):
        path = folder / f"shard-{len(shards):05d}.npz"
        shards.append(write_shard(path, rows[:count]))
        del rows[:count]

    for pairs in chunks:
        sources = vocabulary.encode([source for source, _ in pairs])
        targets = vocabulary.encode([target for _, target in pairs])
        fitting = [
            row
            for row in zip(sources, targets, strict=True)
            if max(map(len, row)) < max_length
        ]
        too_long += len(pairs) - len(fitting)
        rows += fitting
        while len(rows) >= PAIRS_PER_SHARD:
            flush(PAIRS_PER_SHARD)
    if rows:
        flush(len(rows))
    content = {
        "format": FORMAT,
        "key": key,
        "tokenizer": vocabulary.digest,
        "vocab_size": vocabulary.vocab_size,
        "max_length": max_length,
        "pairs": sum(shard["pairs"] for shard in shards),
        "counts": {"too_long": too_long},
        "shards": shards,
    }
    text = json.dumps(content, indent=1) + "\n"
    (folder / "corpus.json").write_text(text, encoding="utf-8")


def _check_place(folder):
    """Makes sure that nothing but a token corpus is replaced."""
    if not folder.exists() or (folder / "corpus.json").exists():
        return
    if not folder.is_dir() or any(folder.iterdir()):
        raise UserError(
            f"{folder}: is neither a token corpus nor an empty folder; name another"
        )


def _move(part, folder):
    """Renames a folder; what stood in its place goes."""
    os.chmod(part, 0o755)  # a temporary folder is for its owner alone
    if folder.exists():
        old = tempfile.mkdtemp(prefix=f".{folder.name}.part-", dir=folder.parent)
        os.replace(folder, old)
        shutil.rmtree(old, ignore_errors=True)
    os.replace(part, folder)


def _remove_stale(folder):
    for part in folder.parent.glob(f".{glob.escape(folder.name)}.part-*"):
        if time.time() - part.stat().st_mtime > _STALE_SECONDS:
            shutil.rmtree(part, ignore_errors=True)


def _is_whole(content):
    """Whether corpus.json has all that it must have."""
    try:
        shards = content["shards"]
        return (
            _is_count(content["format"])
            and content["format"] >= 1
            and all(isinstance(content[name], str) for name in ("key", "tokenizer"))
            and all(_is_count(content[n]) for n in ("vocab_size", "max_length"))
            and isinstance(content["counts"], dict)
            and all(_is_count(shard["pairs"]) for shard in shards)
            and all(isinstance(shard["sha256"], str) for shard in shards)
            # A name, and no path that leads elsewhere.
            and all(Path(shard["file"]).name == shard["file"] for shard in shards)
            and content["pairs"] == sum(shard["pairs"] for shard in shards)
        )
    except (KeyError, TypeError):
        return False


def _is_count(value):
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
