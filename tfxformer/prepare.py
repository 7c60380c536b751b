"""Text of any size to a token corpus, on Apache Beam.

The sentences themselves never travel through Beam (see `beam_jobs`). The first step has
a job for each source: it cleans the pairs and writes them to files, where each pair
has a bucket by its hash. The second has a job for each bucket, small enough for
memory, and all copies of a pair are in the same one: it drops duplicates and what
would leak from the validation pairs, tokenises, shuffles, and writes shards.

What comes out depends on the input and the settings alone: not on the runner, nor on
how many workers there were, nor on what was done twice.
"""

import dataclasses
import functools
import hashlib
import io
import json
import logging
import os
import tempfile
import time
import types
import zlib
from pathlib import Path

import numpy as np

from tfxformer import corpora, storage
from tfxformer.beam_jobs import Pace, Pipeline, check_installed, less_talk
from tfxformer.config import DataConfig, ModelConfig, TokenizerConfig, TrainingConfig
from tfxformer.corpora.cleaning import Counts, normalize_pairs, unfit
from tfxformer.corpora.files import read_parallel, read_tsv
from tfxformer.corpora.pair import Pair
from tfxformer.corpora.splitting import groups_that_share, sentence_key
from tfxformer.errors import UserError
from tfxformer.storage import WORK
from tfxformer.token_corpus import FORMAT, PAIRS_PER_SHARD, TokenCorpus, write_shard
from tfxformer.vocabulary import Vocabulary

log = logging.getLogger("tfxformer")

# Text of one bucket, about.
BUCKET_BYTES = 8_000_000
# What gzipped text takes when it is unpacked, about.
GZIP_RATIO = 3
# Pairs that a reader holds before it writes them to a file.
SPILL_PAIRS = 100_000
# Pairs drawn from all, for the vocabulary and to find validation pairs in.
SAMPLE_PAIRS = 100_000
# Pairs that are tokenised in one call.
CHUNK = 2_000
# What keeps the settings; it is the first file of a preparation, corpus.json the last.
MARK = "prepare.json"
NAMED = ("phrasebook", "ted")


def prepare(
    sources,
    out,
    *,
    tokenizer=None,
    vocab_size=8000,
    casing="keep",
    max_length=128,
    valid=None,
    valid_pairs=1000,
    max_characters=1000,
    max_length_ratio=3.0,
    reverse=False,
    strict=False,
    seed=0,
    runner="DirectRunner",
    beam_options=(),
):
    r"""Cleans, deduplicates, splits, tokenises and shards corpora of any size.

    Memory does not grow with the corpora. A source is read by one worker: a very
    large one is best given as several files.

    Args:
        sources: as `corpora.load` takes them. Paths of cluster storage, such as
            ``gs://bucket/pairs.tsv.gz``, are read where Beam knows the storage.
        out: the folder to write, local or on such storage: a token corpus with
            ``tokenizer.model`` and ``validation.tsv`` beside it.
        tokenizer: the path of a SentencePiece model; by default a vocabulary is
            learnt from a sample of the pairs.
        vocab_size: see `Vocabulary.train`.
        casing: see `Vocabulary.train`.
        max_length: the most positions of a source or a target, in tokens.
        valid: the source of pairs to validate on; by default some are held out.
        valid_pairs: how many to hold out, but never more than one in twenty.
        max_characters: as in `corpora.load`.
        max_length_ratio: as in `corpora.load`.
        reverse: swap source and target.
        strict: stop at a malformed line instead of skipping it.
        seed: of the sample, of what is held out, and of the order.
        runner: Beam's name for where to run. ``DirectRunner`` is this machine.
        beam_options: further options of Beam, as on its command line.

    Returns:
        The folder's path. One that the same call made is left as it is.

    Raises:
        UserError: before any work, when a setting, a source or the runner cannot be,
            or the folder holds something else; or when nothing is left of the pairs.

    Example:
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> rows = [f"o número {n}\tthe number {n}\n" for n in range(100)]
        >>> _ = (folder / "a.tsv").write_text("".join(rows), encoding="utf-8")
        >>> out = prepare([folder / "a.tsv"], folder / "out", vocab_size=300)
        >>> TokenCorpus.open(out).pairs
        95
    """
    settings = {
        "tokenizer": None,
        "vocab_size": vocab_size,
        "casing": casing,
        "max_length": max_length,
        "valid": None,
        "valid_pairs": valid_pairs,
        "max_characters": max_characters,
        "max_length_ratio": max_length_ratio,
        "reverse": reverse,
        "strict": strict,
        "seed": seed,
    }
    _check(settings)
    if not sources:
        raise UserError("name where sentence pairs come from with --data")
    check_installed("prepare")
    vocabulary = None
    if tokenizer:
        vocabulary = Vocabulary.load(tokenizer)
        settings |= {"tokenizer": vocabulary.digest, "vocab_size": None, "casing": None}
    with less_talk():
        pipeline = Pipeline(runner, beam_options, "name sources with --data")
        inputs = [_find(os.fspath(source)) for source in sources]
        settings["sources"] = [_identity(file) for files in inputs for file in files]
        if valid is not None:
            valid = os.fspath(valid)
            settings["valid"] = [_identity(file) for file in _find(valid)]
            settings["valid_pairs"] = None
        folder = _Folder(out)
        try:
            if folder.is_done(settings):
                return folder.path
            folder.begin(settings)
            try:
                _prepare(folder, inputs, valid, vocabulary, settings, pipeline)
            except BaseException:
                folder.leave()
                raise
        except OSError as error:
            raise UserError(f"{out}: {error.strerror or error}") from None
        finally:
            folder.release()
    return folder.path


def _prepare(folder, inputs, valid, vocabulary, settings, pipeline):
    """All of the work, into a folder that has nothing yet."""
    started = time.monotonic()
    inputs = [
        [_unpack(folder, number, *files)] if files[0] in NAMED else files
        for number, files in enumerate(inputs)
    ]
    plan = settings | {
        "folder": folder.path,
        "buckets": max(1, -(-sum(map(_text_size, inputs)) // BUCKET_BYTES)),
        # Twenty times what is held out: see _hold_out.
        "sample": max(SAMPLE_PAIRS, 20 * (settings["valid_pairs"] or 0)),
    }
    if vocabulary and valid:
        plan["sample"] = 0
    read = pipeline.run(
        [(number, *files) for number, files in enumerate(inputs)],
        functools.partial(read_source, plan),
        folder.work("read.json"),
    )
    counts = sum((Counts(**report["counts"]) for report in read), Counts())
    if not counts.kept:
        raise UserError(_nothing_left(settings, counts))
    sample = _joined_sample(folder, len(inputs), plan["sample"])
    if valid:
        options = {"reverse": settings["reverse"], "strict": settings["strict"]}
        held, _ = corpora.load(valid, "validation", cleaned=False, **options)
    else:
        held = _hold_out(sample, settings["valid_pairs"])
    text = "".join(f"{source}\t{target}\n" for source, target in held).encode()
    folder.write("validation.tsv", text)
    if vocabulary is None:
        vocabulary = _learn(sample, held, settings)
    folder.write("tokenizer.model", vocabulary.model)
    del sample

    plan["spills"] = [name for report in read for name in report["spills"]]
    # What a worker keeps of another preparation is not taken for this one's.
    plan["digests"] = [vocabulary.digest, hashlib.sha256(text).hexdigest()]
    content = json.dumps(plan).encode()
    storage.write(folder.work("plan.json"), content)
    written = pipeline.run(
        [(bucket,) for bucket in range(plan["buckets"])],
        functools.partial(
            write_bucket, folder.work("plan.json"), hashlib.sha256(content).hexdigest()
        ),
        folder.work("written.json"),
    )
    sums = {
        name: sum(report[name] for report in written)
        for name in ("unique", "held_out", "leaks", "too_long")
    }
    counts.duplicates = counts.kept - sums["unique"]
    counts.kept = sums.pop("unique")
    shards = [shard for report in written for shard in report["shards"]]
    pairs = sum(shard["pairs"] for shard in shards)
    log.info("%s", counts.describe())
    log.info(
        "%s pairs for validation; of the others, %s share a sentence with them and %s "
        "have more than %s tokens: left out",
        f"{len(held):,}",
        f"{sums['leaks']:,}",
        f"{sums['too_long']:,}",
        settings["max_length"] - 1,
    )
    if not pairs:
        raise UserError(_nothing_left(settings, counts))
    described = [vocabulary.digest, settings["max_length"], shards]
    folder.clear_up()
    folder.finish(
        {
            "format": FORMAT,
            "key": hashlib.sha256(json.dumps(described).encode()).hexdigest(),
            "tokenizer": vocabulary.digest,
            "vocab_size": vocabulary.vocab_size,
            "max_length": settings["max_length"],
            "pairs": pairs,
            "counts": sums | {"cleaning": dataclasses.asdict(counts)},
            "shards": shards,
        }
    )
    log.info(
        "%s: %s pairs in %s shards, prepared in %.0f s",
        folder.path,
        f"{pairs:,}",
        f"{len(shards):,}",
        time.monotonic() - started,
    )


def _check(settings):
    """Refuses what cannot be, by the rules that hold for training."""
    rules = [
        DataConfig(
            valid_pairs=settings["valid_pairs"],
            max_characters=settings["max_characters"],
            max_length_ratio=settings["max_length_ratio"],
        ),
        ModelConfig(max_length=settings["max_length"]),
        TokenizerConfig(settings["vocab_size"], settings["casing"]),
        TrainingConfig(seed=settings["seed"]),
    ]
    for rule in rules:
        for name, wrong in rule.check():
            option = "--" + name.replace("_", "-")
            raise UserError(f"{option} {getattr(rule, name)}: {wrong}")
    if settings["max_length"] > 2**16:
        raise UserError(
            f"--max-length {settings['max_length']}: must be at most {2**16}, so that "
            "a length fits the shards' 16 bits"
        )


def _nothing_left(settings, counts):
    names = " and ".join(file["path"] for file in settings["sources"])
    return (
        f"{names}: no usable pair is left: {counts.describe()}; check that there is a "
        "sentence and its translation on each line, in UTF-8"
    )


# What is read


def _find(source):
    """The files of a source, or the name that it has."""
    if source in NAMED:
        corpora.check_source(source)
        return [source]
    if "://" in source:
        from apache_beam.io.filesystems import FileSystems

        files = source.split(",")
        for file in files:
            storage.check_storage(file)
            if not FileSystems.exists(file):
                raise UserError(f"{file}: no such file; check the path")
        return files
    corpora.check_source(source)
    return [os.path.abspath(path) for path in corpora.find_files(source)]


def _identity(file):
    """What tells that a source is no longer the same."""
    return {"path": file} if file in NAMED else storage.identity(file)


def _text_size(files):
    """The bytes of text in a source, about."""
    return sum(
        _identity(file)["bytes"] * (GZIP_RATIO if file.endswith(".gz") else 1)
        for file in files
    )


def _unpack(folder, number, name):
    """Writes a source that is no file to one."""
    pairs, _ = corpora.load(name, "train", cleaned=False)
    path = folder.work(f"input-{number:05d}.tsv")
    text = "".join(f"{source}\t{target}\n" for source, target in pairs)
    storage.write(path, text.encode())
    return path


# The first step: from text to buckets


def read_source(plan, number, *paths):
    """Cleans the pairs of a source and writes them to files by bucket.

    Args:
        plan: the settings, and what `_prepare` adds to them.
        number: of the source.
        *paths: a TSV, or two parallel files.

    Returns:
        The counts, in which duplicates are still kept, and the names of the files.
    """
    counts, pace = Counts(), Pace()
    spills, sample = _Spills(plan, number), _Sample(plan["sample"])
    read = read_tsv if len(paths) == 1 else read_parallel
    limits = {name: plan[name] for name in ("max_characters", "max_length_ratio")}
    key = plan["seed"].to_bytes(8, "big")
    for pair in normalize_pairs(read(*paths, strict=plan["strict"], counts=counts)):
        reason = unfit(pair, **limits)
        if reason:
            setattr(counts, reason, getattr(counts, reason) + 1)
            continue
        source, target = reversed(pair) if plan["reverse"] else pair
        line = f"{source}\t{target}".encode()
        digest = hashlib.blake2b(line, digest_size=8, key=key).digest()
        rank = int.from_bytes(digest, "big")
        spills.add(rank % plan["buckets"], line)
        if rank < sample.limit:
            sample.add(rank, line)
        counts.kept += 1
        if not counts.kept % 10_000 and pace.is_due():
            log.info("%s: %s lines read", " and ".join(paths), f"{counts.read:,}")
    spills.flush()
    if plan["sample"]:
        path = storage.join(plan["folder"], WORK, f"sample-{number:05d}")
        storage.write(path, sample.to_bytes())
    return {"counts": dataclasses.asdict(counts), "spills": spills.names}


class _Spills:
    """Files of pairs, each with its buckets one after the other, compressed.

    A file begins with where each bucket begins, and where the last one ends: 8 bytes
    each. The same pairs give the same files, should a cluster do a job twice.
    """

    def __init__(self, plan, number):
        self._folder, self._number = plan["folder"], number
        # Of the copies of a pair, one is enough: else it might fill a bucket alone.
        self._buckets = [set() for _ in range(plan["buckets"])]
        self._held = 0
        self.names = []

    def add(self, bucket, line):
        self._buckets[bucket].add(line)
        self._held += 1
        if self._held == SPILL_PAIRS:
            self.flush()

    def flush(self):
        if not self._held:
            return
        parts = [zlib.compress(b"\n".join(sorted(x)), 1) for x in self._buckets]
        ends = np.cumsum([8 * (len(parts) + 1), *map(len, parts)])
        name = f"spill-{self._number:05d}-{len(self.names):05d}"
        path = storage.join(self._folder, WORK, name)
        storage.write(path, ends.astype("<u8").tobytes() + b"".join(parts))
        self.names.append(name)
        for lines in self._buckets:
            lines.clear()
        self._held = 0


def _spilt(path, bucket):
    """The pairs of a bucket in one of the files that `_Spills` writes."""
    from apache_beam.io.filesystems import FileSystems

    with FileSystems.open(path) as file:
        file.seek(8 * bucket)
        begin, end = np.frombuffer(file.read(16), "<u8").tolist()
        file.seek(begin)
        lines = zlib.decompress(file.read(end - begin))
    return lines.split(b"\n") if lines else []


class _Sample:
    """The pairs of the smallest hashes: as many as are asked for, or all."""

    def __init__(self, size):
        self._size = size
        self._lines = {}
        # Hashes from here on are not wanted.
        self.limit = 2**64 if size else 0

    def add(self, rank, line):
        self._lines[rank] = line
        if len(self._lines) > self._size * 5 // 4:
            self._cut()

    def _cut(self):
        self._lines = dict(sorted(self._lines.items())[: self._size])
        if len(self._lines) == self._size:
            self.limit = max(self._lines)

    def to_bytes(self):
        self._cut()
        return b"".join(b"%x\t%s\n" % row for row in self._lines.items())

    def add_bytes(self, content):
        for row in io.BytesIO(content):
            rank, _, line = row.removesuffix(b"\n").partition(b"\t")
            if int(rank, 16) < self.limit:
                self.add(int(rank, 16), line)

    def pairs(self):
        self._cut()
        return [_to_pair(line) for line in self._lines.values()]


def _joined_sample(folder, sources, size):
    """The sample of all sources, in random order; empty where none is needed."""
    if not size:
        return []
    sample = _Sample(size)
    for number in range(sources):
        sample.add_bytes(storage.read(folder.work(f"sample-{number:05d}")))
    return sample.pairs()


def _hold_out(sample, wanted):
    """Draws pairs to validate on from a sample, which is in random order.

    Those whose sentences no other pair of the sample has come first: elsewhere, too,
    such a sentence is rare, and few pairs have to go because they share it.
    """
    room = min(wanted, len(sample) // 20)
    if not room:
        raise UserError(
            f"{len(sample)} pairs are too few to hold some out: name pairs to validate "
            "on with --valid"
        )
    held = []
    for group in sorted(groups_that_share(sample), key=len):
        if len(group) <= room:
            held += group
            room -= len(group)
    if not held:
        raise UserError(
            f"no pair of {len(sample)} can be held out: each shares its sentences with "
            "too many others; name pairs to validate on with --valid"
        )
    return [sample[index] for index in held]


def _learn(sample, held, settings):
    started = time.monotonic()
    log.info("learning a vocabulary of %s pieces", f"{settings['vocab_size']:,}")
    held = set(held)
    lines = [side for pair in sample if pair not in held for side in pair]
    vocabulary = Vocabulary.train(
        lines, settings["vocab_size"], settings["casing"], settings["seed"]
    )
    log.info("vocabulary learnt in %.0f s", time.monotonic() - started)
    return vocabulary


# The second step: from buckets to shards


def write_bucket(plan, digest, bucket):
    """Makes the shards of a bucket.

    Args:
        plan: the path of the settings, and what `_prepare` adds to them.
        digest: the SHA-256 of that file.
        bucket: the bucket's number.

    Returns:
        What ``corpus.json`` has to say of the shards; and how many pairs there were,
        are held out, share a sentence with those, and are too long.
    """
    loaded = _load(plan, digest)
    folder, buckets = loaded.plan["folder"], loaded.plan["buckets"]
    lines = set()
    for name in loaded.plan["spills"]:
        lines.update(_spilt(storage.join(folder, WORK, name), bucket))
    pairs, held_out = [], 0
    for pair in map(_to_pair, sorted(lines)):
        if pair in loaded.held:
            held_out += 1
        elif not (
            sentence_key(pair.source) in loaded.sources
            or sentence_key(pair.target) in loaded.targets
        ):
            pairs.append(pair)
    report = {
        "unique": len(lines),
        "held_out": held_out,
        "leaks": len(lines) - held_out - len(pairs),
        "too_long": len(pairs),  # less those that follow
        "shards": [],
    }
    order = np.random.default_rng([loaded.plan["seed"], bucket])
    order = order.permutation(len(pairs))
    for number, part in enumerate(
        np.array_split(order, -(-len(pairs) // PAIRS_PER_SHARD) or 1)
    ):
        rows = _encode([pairs[index] for index in part], loaded)
        report["too_long"] -= len(rows)
        if rows:
            name = f"shard-{bucket:05d}-{number:02d}.npz"
            report["shards"].append(_write_shard(folder, name, rows))
    if loaded.pace.is_due():
        log.info("%s of %s parts are tokenised", f"{bucket + 1:,}", f"{buckets:,}")
    return report


@functools.lru_cache(maxsize=1)
def _load(path, digest):
    """What all buckets need: once for each worker, and anew for other content."""
    plan = json.loads(storage.read(path))
    folder = plan["folder"]
    vocabulary = Vocabulary(storage.read(storage.join(folder, "tokenizer.model")))
    text = storage.read(storage.join(folder, "validation.tsv"))
    lines = text.removesuffix(b"\n").split(b"\n")
    held = {_to_pair(line) for line in lines}
    # A side of nothing but punctuation is nobody's sentence.
    sources, targets = ({sentence_key(pair[i]) for pair in held} - {""} for i in (0, 1))
    return types.SimpleNamespace(
        plan=plan,
        vocabulary=vocabulary,
        held=held,
        sources=sources,
        targets=targets,
        pace=Pace(),
    )


def _encode(pairs, loaded):
    """The ids of pairs, without those that have too many."""
    rows = []
    for first in range(0, len(pairs), CHUNK):
        sources, targets = zip(*pairs[first : first + CHUNK], strict=True)
        encoded = map(loaded.vocabulary.encode, (list(sources), list(targets)))
        rows += [
            row
            for row in zip(*encoded, strict=True)
            if max(map(len, row)) < loaded.plan["max_length"]
        ]
    return rows


def _write_shard(folder, name, rows):
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary, name)
        entry = write_shard(path, rows)
        storage.write(storage.join(folder, name), path.read_bytes())
    return entry


def _to_pair(line):
    return Pair(*line.decode().split("\t"))


# Where it is written


class _Folder(storage.Folder):
    """The folder to write, on a disk or on a cluster's storage."""

    def is_done(self, settings):
        """Whether the corpus is there, of the same settings.

        Raises:
            UserError: when there is something else.
        """
        if os.path.isfile(self.path):
            raise UserError(f"{self.path}: is a file; name a folder")
        names = self.names()
        if not names:
            return False
        if MARK not in names:
            raise UserError(
                f"{self.path}: is neither a prepared corpus nor an empty folder; name "
                "another"
            )
        if "corpus.json" not in names:
            return False
        changed = _changes(self._settings(), json.loads(json.dumps(settings)))
        if changed:
            raise UserError(
                f"{self.path}: holds a corpus prepared otherwise "
                f"({'; '.join(changed)}): name another folder, or delete it"
            )
        if not storage.is_remote(self.path):
            TokenCorpus.open(self.path)
        log.info("%s: is prepared already", self.path)
        return True

    def begin(self, settings):
        """Takes the folder, without what an earlier preparation left.

        Raises:
            UserError: when another process has it.
        """
        self.lock("prepares")
        if MARK in self.names():
            log.info("%s: what was begun did not end: starting again", self.path)
        self._empty()
        self.write(MARK, json.dumps(settings, indent=1).encode() + b"\n")

    def clear_up(self):
        """Deletes what is gone in the end."""
        self.delete(WORK)

    def leave(self):
        """Gives the folder back, as empty as it was."""
        self._empty()
        self.delete(MARK)
        self.remove_if_empty()

    def finish(self, content):
        """Writes what makes the corpus whole."""
        text = json.dumps(content, indent=1) + "\n"
        self.write_whole("corpus.json", text.encode())

    def _empty(self):
        """Deletes what preparing writes, the mark apart."""
        ours = (WORK, "shard-", "tokenizer.model", "validation.tsv", ".corpus.json")
        for name in self.names():
            if name.startswith(ours):
                self.delete(name)

    def _settings(self):
        path = storage.join(self.path, MARK)
        try:
            return dict(json.loads(storage.read(path)))
        except (TypeError, ValueError):
            raise UserError(f"{path}: damaged: delete {self.path}") from None


def _changes(old, new):
    """Says what differs between two settings."""
    changes = []
    for name, value in new.items():
        before = old.get(name)
        if before == value:
            continue
        if isinstance(before, list) and isinstance(value, list):
            paths = [[file["path"] for file in files] for files in (before, value)]
            if paths[0] == paths[1]:
                changes.append(f"{' or '.join(paths[0])} has changed")
                continue
        option = "--data" if name == "sources" else f"--{name.replace('_', '-')}"
        changes.append(f"{option} was {_shown(before)} and is {_shown(value)}")
    return changes


def _shown(value):
    if isinstance(value, list):
        return ", ".join(file["path"] for file in value)
    return "not given" if value is None else value
