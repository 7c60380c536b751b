"""Texts of any number to translations, on Apache Beam, with an exported model.

All input files, one after the other, are cut into parts. Each part becomes a shard: a
file of translations, and one of the records that could not be used, where there are
any. A shard has its name when it is whole, and not before; what is there is not done
again. `bulk.json`, the first file of the folder, tells how the input was cut, and of
what input, model and options.

The texts never travel through Beam (see `beam_jobs`): a worker reads a part from its
files and writes the shard. Its sentences are translated together, those of like length
in one batch.
"""

import collections
import contextlib
import dataclasses
import functools
import glob
import gzip
import hashlib
import itertools
import json
import logging
import os
import tempfile
import threading
import time
import uuid
from pathlib import Path

from tfxformer import __version__, storage
from tfxformer.beam_jobs import Pace, Pipeline, check_installed, less_talk
from tfxformer.corpora.files import check_encoding, open_bytes
from tfxformer.errors import UserError
from tfxformer.exporting.metadata import read_metadata
from tfxformer.exporting.repository import find_model
from tfxformer.exporting.verify import find_saved_model
from tfxformer.records import FORMATS, Fields, Piece, format_of, read, shown, survey
from tfxformer.storage import WORK

log = logging.getLogger("tfxformer")

# Input of a shard, about: some minutes of work, which is what a killed job loses.
SHARD_BYTES = 1_000_000
# There are no more shards than about so many: they get longer instead.
MAX_SHARDS = 10_000
# What gzipped text takes when it is unpacked, about.
GZIP_RATIO = 3
# What is translated at once: all of a shard, if it is not longer than most are.
CHUNK_BYTES = 2_000_000
CHUNK_RECORDS = 20_000

# The manifest.
MARK = "bulk.json"
FORMAT = 1

# A worker process may have many threads: one at a time has the model, and it uses
# all cores.
_TURN = threading.Lock()
# The calls that failed in this process: what is left of them is not tried.
_failed = set()


@dataclasses.dataclass
class Summary:
    """What came of it.

    Attributes:
        path: the folder.
        shards: how many files of translations are in it.
        records: how many records were read.
        translated: how many of them have a translation.
        reasons: how many of the others there are, by what is wrong with them.

    Example:
        >>> Summary("out", 1, 1500, 1499, {"not UTF-8": 1}).describe()
        'out: 1,500 records, 1,499 translated, 1 dead letter (1 not UTF-8), 1 shard'
    """

    path: str
    shards: int
    records: int
    translated: int
    reasons: dict

    def describe(self):
        """All of it on one line.

        Returns:
            A string.
        """
        dead = self.records - self.translated
        line = f"{self.path}: {_many(self.records, 'record')}"
        line += f", {self.translated:,} translated, {_many(dead, 'dead letter')}"
        if dead:
            reasons = sorted(self.reasons.items(), key=lambda item: -item[1])
            line += f" ({', '.join(f'{count:,} {name}' for name, count in reasons)})"
        return f"{line}, {_many(self.shards, 'shard')}"


def bulk(
    inputs,
    out,
    *,
    model=None,
    format=None,
    column=None,
    id_column=None,
    encoding="utf-8",
    shards=None,
    runner="DirectRunner",
    beam_options=(),
):
    r"""Translates the records of files, of any number and size.

    Memory does not grow with them, but with what is translated at once: a shard, or
    `CHUNK_BYTES` of a long one. The same call goes on where one that was killed
    stopped, and ends with the same files.

    Args:
        inputs: paths or patterns (``*``, ``?``, ``**``) of files, also on storage that
            Beam reaches, such as ``gs://bucket/*.csv.gz``; gzipped or not.
        out: the folder to write, local or on such storage. Of Parquet come Parquet
            files, of all else JSON lines, gzipped if all the input is, with ``id``,
            ``source``, ``translation`` and ``score``; in ``dead-letters-*`` are
            ``place``, ``reason`` and ``raw`` of records that cannot be used.
        model: an exported SavedModel: the folder of a version, or of versions, of
            which the newest is taken; on Beam's storage, too. None takes the model
            that comes with the package.
        format: one of `records.FORMATS`; by default files' names tell.
        column: which column or field has the texts, by default "text"; of CSV and TSV
            without a header, its number from 1.
        id_column: which has the records' ids, strings or integers; by default an id
            is the file's name, a colon, and the line's or row's number.
        encoding: of all but Parquet: one of Python's codecs, such as latin-1.
        shards: into how many shards to cut the input, about; by default one has about
            `SHARD_BYTES` of it.
        runner: Beam's name for where to run. ``DirectRunner`` is this machine.
        beam_options: further options of Beam, as on its command line.

    Returns:
        A `Summary`.

    Raises:
        UserError: before any work, when an input, the model, an option or the runner
            cannot be, or the folder holds something else; in the course of it, when a
            file cannot be read or written any more; in the end, when not one record
            could be used.

    Example:
        >>> bulk([], "translated", model="export/pt_en")
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: name files to translate with --input
    """
    inputs = [inputs] if isinstance(inputs, (str, os.PathLike)) else inputs
    inputs = [os.fspath(pattern) for pattern in inputs]
    if not inputs:
        raise UserError("name files to translate with --input")
    if shards is not None and shards < 1:
        raise UserError(f"--shards {shards}: must be at least 1")
    check_encoding(encoding)
    check_installed("bulk")
    with less_talk():
        hint = "name files with --input, a pattern within quotes"
        pipeline = Pipeline(runner, beam_options, hint)
        folder = storage.Folder(out)
        if os.path.isfile(folder.path):
            raise UserError(f"{out}: is a file; name a folder")
        try:
            model = _find_model(os.fspath(find_model(model)))
            files = _find_files(inputs, folder.path)
            fields = _fields(files, format, column, id_column, encoding)
            settings = {
                "input": files,
                **fields._asdict(),
                "shards": shards,
                "model": _digest(model),
            }
            folder.lock("writes")
            try:
                return _bulk(folder, settings, fields, model, pipeline)
            finally:
                folder.delete(WORK)
                folder.remove_if_empty()
        except OSError as error:
            line = error.strerror or (str(error).splitlines() or [repr(error)])[0]
            where = f"{error.filename}: " if error.filename else ""
            raise UserError(f"{where}{line}") from None
        finally:
            folder.release()


def _bulk(folder, settings, fields, model, pipeline):
    """All of the work, or what is left of it."""
    started = time.monotonic()
    manifest = _begun(folder, settings)
    if manifest is None:
        manifest = _cut(folder, settings, fields, pipeline)
        folder.write_whole(MARK, json.dumps(manifest).encode() + b"\n")
    parts = manifest["parts"]
    log.info("model: %s", model)
    plan = {
        "folder": folder.path,
        "shards": len(parts),
        "ending": manifest["ending"],
        "id_type": manifest["id_type"],
        "fields": fields,
        "model": model,
        "digest": settings["model"],
        "call": uuid.uuid4().hex,
    }
    names = folder.names()
    jobs = [
        (number, json.dumps([_segment(manifest, *piece) for piece in part]))
        for number, part in enumerate(parts)
        if shard_name(plan, number) not in names
    ]
    records = sum(piece[-1] for part in parts for piece in part)
    files = len(settings["input"])
    log.info(
        "%s of %s, in %s%s",
        _many(records, "record"),
        _many(files, "file"),
        _many(len(parts), "shard"),
        "" if len(jobs) == len(parts) else f", {len(parts) - len(jobs):,} done before",
    )
    if jobs:
        step = functools.partial(translate_part, plan)
        pipeline.run(jobs, step, folder.work("translated.json"))
        log.info("translated in %.0f s", time.monotonic() - started)
    reasons = _reasons(folder, plan)
    dead = sum(reasons.values())
    summary = Summary(folder.path, len(parts), records, records - dead, reasons)
    if dead == records > 0:
        raise UserError(
            f"not one record could be used: {summary.describe()}; see the dead letters "
            "there, and check --format, --column and --encoding"
        )
    return summary


# What is read


def _find_files(patterns, out):
    """The input files in order of names: what tells that one is no longer the same."""
    found = {}
    for pattern in patterns:
        if storage.is_remote(pattern):
            matched = _match_remote(pattern)
        else:
            if os.path.isdir(pattern):
                raise UserError(
                    f"{pattern}: is a folder; name the files in it, such as "
                    f"'{os.path.join(pattern, '*.csv')}'"
                )
            # A file's name may look like a pattern.
            names = [pattern]
            if not os.path.exists(pattern):
                names = glob.glob(pattern, recursive=True)
            names = [os.path.normpath(name) for name in names if os.path.isfile(name)]
            matched = [storage.identity(name) for name in names]
        matched = [
            file
            for file in matched
            if not _path(file["path"]).startswith(storage.join(out, ""))
        ]
        if not matched:
            raise UserError(f"{pattern}: there is no such file; check the path")
        found |= {file["path"]: file for file in matched}
    return [found[name] for name in sorted(found)]


def _match_remote(pattern):
    from apache_beam.io.filesystems import FileSystems

    storage.check_storage(pattern)
    return [
        {
            "path": metadata.path,
            "bytes": metadata.size_in_bytes,
            "changed": metadata.last_updated_in_seconds,
        }
        for metadata in FileSystems.match([pattern])[0].metadata_list
    ]


def _path(name):
    """Where workers find a file: they may be in another folder."""
    return name if storage.is_remote(name) else os.path.abspath(name)


def _fields(files, format, column, id_column, encoding):
    """What is wanted of the records.

    Raises:
        UserError: when it does not go together.
    """
    if format is None:
        formats = {format_of(file["path"]): file["path"] for file in files}
        if len(formats) > 1:
            (one, file), (other, another) = sorted(formats.items())[:2]
            raise UserError(
                f"{file} is {one} and {another} is {other}: give files of one format, "
                "or name it with --format"
            )
        (format,) = formats
    if format not in FORMATS:
        raise UserError(f"--format {format!r}: there are {', '.join(FORMATS)}")
    if format == "parquet" and encoding != "utf-8":
        raise UserError(f"--encoding {encoding}: Parquet is in UTF-8; leave it out")
    if format == "text":
        for option, name in (("--column", column), ("--id-column", id_column)):
            if name is not None:
                raise UserError(
                    f"{option} {name}: text has no columns; name another --format"
                )
        return Fields("text", None, None, encoding)
    column = "text" if column is None else column
    numbers = {name.isdecimal() for name in (column, id_column) if name is not None}
    if format in ("csv", "tsv") and len(numbers) > 1:
        raise UserError(
            f"--column {column} and --id-column {id_column}: give names of columns, or "
            "numbers where the files have no header"
        )
    return Fields(format, column, id_column, encoding)


def _cut(folder, settings, fields, pipeline):
    """Finds where each part begins; gives the manifest."""
    files = settings["input"]
    sizes = [
        file["bytes"] * (GZIP_RATIO if file["path"].lower().endswith(".gz") else 1)
        for file in files
    ]
    total = sum(sizes)
    part_bytes = max(SHARD_BYTES, total // MAX_SHARDS)
    if settings["shards"]:
        part_bytes = max(1, -(-total // settings["shards"]))
    starts = [0, *itertools.accumulate(sizes)]
    surveys = pipeline.run(
        [
            (number, json.dumps([_path(file["path"]), starts[number], sizes[number]]))
            for number, file in enumerate(files)
        ],
        functools.partial(survey_file, fields, part_bytes),
        folder.work("surveys.json"),
    )
    parts, last = [], None
    for number, found in enumerate(surveys):
        for part, *piece in found["pieces"]:
            if part != last:
                parts.append([])
                last = part
            parts[-1].append([number, *piece])
    ending = "parquet" if fields.format == "parquet" else "jsonl"
    gzipped = all(file["path"].lower().endswith(".gz") for file in files)
    if ending == "jsonl" and gzipped:
        ending = "jsonl.gz"
    return {
        "format": FORMAT,
        "tfxformer": __version__,
        "settings": settings,
        "ending": ending,
        "id_type": _id_type(files, surveys) if ending == "parquet" else None,
        "columns": [found["columns"] for found in surveys],
        # Of each shard, its pieces: a file's number, and what `Piece` says.
        "parts": parts or [[]],
    }


def survey_file(fields, part_bytes, number, file):
    """`records.survey`, as a job.

    Args:
        fields: what is wanted of the records.
        part_bytes: the length of a part.
        number: the file's, from 0.
        file: its path, the bytes before it and its own, as JSON: a name may be none
            that Beam can pass on.

    Returns:
        A dict of its answers.
    """
    path, start, size = json.loads(file)
    columns, pieces = survey(path, fields, part_bytes, start, size)
    return {"columns": columns, "pieces": pieces}


def _id_type(files, surveys):
    """The type of Parquet's ids, the same in all files."""
    types = [found["columns"][0] for found in surveys]
    for type_, file in zip(types, files, strict=True):
        if type_ != types[0]:
            raise UserError(
                f"the ids of {files[0]['path']} are of type {types[0]}, those of "
                f"{file['path']} of type {type_}: translate them apart"
            )
    return types[0]


def _segment(manifest, file, begin, number, records):
    """All that a worker must know of a piece."""
    identity = manifest["settings"]["input"][file]
    return identity, manifest["columns"][file], begin, number, records


# What was begun


def _begun(folder, settings):
    """The manifest of the same work; None where nothing of any is done.

    Raises:
        UserError: when there is other work in the folder, or something else.
    """
    folder.delete(WORK)
    names = folder.names() - {f".{MARK}"}
    if not names:
        return None
    if MARK not in names:
        raise UserError(
            f"{folder.path}: is neither a folder of translations nor an empty one; "
            "name another"
        )
    path = storage.join(folder.path, MARK)
    try:
        manifest = json.loads(storage.read(path))
        if manifest["format"] != FORMAT:
            raise UserError(
                f"{path}: was written by another tfxformer ({manifest['tfxformer']}): "
                "name another folder, or delete it"
            )
        changes = _changes(manifest["settings"], json.loads(json.dumps(settings)))
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{path}: damaged: delete {folder.path}") from None
    if not changes:
        return manifest
    if any(name.startswith("translations-") for name in names):
        raise UserError(
            f"{folder.path}: was begun otherwise ({'; '.join(changes)}): name another "
            "folder, or delete it"
        )
    for name in names:
        if name.startswith("dead-letters-"):
            folder.delete(name)
    return None


def _changes(old, new):
    """Says what differs between two settings."""
    changes = []
    for name, value in new.items():
        before = old[name]
        if before == value:
            continue
        if name == "model":
            changes.append("--model is another")
        elif name == "input":
            paths = [[file["path"] for file in files] for files in (before, value)]
            if paths[0] == paths[1]:
                both = zip(before, value, strict=True)
                changed = [file["path"] for file, now in both if file != now]
                changes.append(f"{_some(changed)} changed")
            else:
                before, value = map(_some, paths)
                changes.append(f"--input was {before} and is {value}")
        else:
            option = f"--{name.replace('_', '-')}"
            before, value = ("not given" if x is None else x for x in (before, value))
            changes.append(f"{option} was {before} and is {value}")
    return changes


def _some(names):
    return names[0] + (f" (and {len(names) - 1:,} more)" if len(names) > 1 else "")


def _many(count, name):
    return f"{count:,} {name}{'' if count == 1 else 's'}"


def _reasons(folder, plan):
    """Counts the dead letters by what is wrong with them."""
    names, counts = folder.names(), collections.Counter()
    for number in range(plan["shards"]):
        name = shard_name(plan, number, dead=True)
        if name in names:
            with open_bytes(storage.join(folder.path, name)) as file:
                for line in file:
                    counts[json.loads(line)["reason"].partition(":")[0]] += 1
    return dict(counts)


# The model


def _find_model(path):
    """The folder of a model's version.

    Raises:
        UserError: when there is none, or none of ours.
    """
    if storage.is_remote(path):
        return _find_remote_model(path.rstrip("/"))
    if os.path.isfile(os.path.join(path, "config.yaml")):
        raise UserError(
            f"{path}: is a run folder: export it, and name what that writes: tfxformer "
            f"export --run {path}"
        )
    found, _ = find_saved_model(path)
    if read_metadata(found) is None:
        raise UserError(f"{found}: a SavedModel, but none that tfxformer exported")
    return os.path.abspath(found)


def _find_remote_model(path):
    from apache_beam.io.filesystems import FileSystems

    storage.check_storage(path)
    found = FileSystems.match([f"{path}/**"])[0].metadata_list
    names = [metadata.path.removeprefix(f"{path}/").split("/") for metadata in found]
    if ["saved_model.pb"] in names:
        return path
    versions = [
        int(name[0])
        for name in names
        if name[1:] == ["saved_model.pb"] and name[0].isdecimal()
    ]
    if not versions:
        raise UserError(f"{path}: is not a SavedModel: it holds no saved_model.pb")
    return storage.join(path, str(max(versions)))


@contextlib.contextmanager
def _local_model(path):
    """A model on this machine's disk: a copy, where it is not there already."""
    if not storage.is_remote(path):
        yield Path(path)
        return
    from apache_beam.io.filesystems import FileSystems

    with tempfile.TemporaryDirectory() as folder:
        for metadata in FileSystems.match([f"{path}/**"])[0].metadata_list:
            copy = Path(folder, metadata.path.removeprefix(f"{path}/"))
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(storage.read(metadata.path))
        yield Path(folder)


def _digest(path):
    """A SHA-256 of all that decides what a model answers."""
    digest = hashlib.sha256()
    with _local_model(path) as folder:
        for file in sorted(folder.rglob("*")):
            name = file.relative_to(folder)
            if file.is_file() and name.parts[0] != "assets.extra":
                digest.update(name.as_posix().encode())
                with open(file, "rb") as content:
                    while block := content.read(2**20):
                        digest.update(block)
    return digest.hexdigest()


@functools.lru_cache(maxsize=1)
def _load(path, digest):
    """The model: once for each worker, and anew when it is another."""
    from tfxformer.quiet import start_tensorflow

    start_tensorflow()
    from tfxformer.translator import Translator

    if _digest(path) != digest:
        raise UserError(f"{path}: has changed since the work began; begin it again")
    with _local_model(path) as folder:
        return Translator.load(folder)


# From a part of the input to a shard


def shard_name(plan, number, dead=False):
    """The name of a shard's file.

    Args:
        plan: what `_bulk` tells the workers.
        number: the shard's, from 0.
        dead: of its dead letters instead of its translations.

    Example:
        >>> shard_name({"shards": 12, "ending": "jsonl"}, 3)
        'translations-00003-of-00012.jsonl'
    """
    place = f"{number:05d}-of-{plan['shards']:05d}"
    if not dead:
        return f"translations-{place}.{plan['ending']}"
    return f"dead-letters-{place}.{plan['ending'].replace('parquet', 'jsonl')}"


def translate_part(plan, number, segments):
    """Writes a shard.

    Args:
        plan: what `_bulk` tells the workers.
        number: the shard's, from 0.
        segments: its pieces of files, as JSON.

    Returns:
        An empty dict.
    """
    if plan["call"] in _failed:
        return {}
    _pace(plan["call"])
    try:
        shard = _Shard(plan, number)
        try:
            for chunk in _chunks(plan["fields"], json.loads(segments)):
                shard.add(chunk, *_translate(plan, chunk))
            shard.finish()
        finally:
            shard.close()
    except Exception:
        _failed.add(plan["call"])
        raise
    if plan["shards"] > 1 and _pace(plan["call"]).is_due():
        many = f"{plan['shards']:,}"
        log.info("shard %s of %s is translated", f"{number + 1:,}", many)
    return {}


@functools.lru_cache(maxsize=1)
def _pace(call):
    """When this process has to say more of a call."""
    return Pace()


def _chunks(fields, segments):
    """Lists of places and `Record`s, so many as may be in memory."""
    chunk, held = [], 0
    for identity, columns, begin, number, count in segments:
        name, path = identity["path"], _path(identity["path"])
        # A name that is not UTF-8 cannot be written as it is.
        shown_name = os.fsencode(name).decode(errors="replace")
        records = read(path, Fields(*fields), columns, Piece(0, begin, number, count))
        found = 0
        for record in records:
            found += 1
            chunk.append((f"{shown_name}:{record.number}", record))
            held += len(record.text or record.raw or b"")
            if held >= CHUNK_BYTES or len(chunk) >= CHUNK_RECORDS:
                yield chunk
                chunk, held = [], 0
        if found < count or storage.identity(path) != {**identity, "path": path}:
            raise UserError(
                f"{name}: has changed while it was translated; name another --out"
            )
    if chunk:
        yield chunk


def _translate(plan, chunk):
    """The translations of what can be used, and their scores."""
    texts = [record.text for _, record in chunk if record.reason is None]
    if not texts:
        return [], []
    with _TURN:
        translator = _load(plan["model"], plan["digest"])
        import tensorflow as tf

        level = log.level
        log.setLevel(max(level, logging.WARNING))  # it would note every long sentence
        try:
            return translator.translate(texts)
        except tf.errors.OpError as error:
            reason = str(error).strip().splitlines()[0]
            raise UserError(f"{plan['model']}: cannot translate: {reason}") from None
        finally:
            log.setLevel(level)


class _Shard:
    """The files of a shard, which get their names when they are whole."""

    def __init__(self, plan, number):
        self._plan = plan
        self._files = [
            _NewFile(plan["folder"], shard_name(plan, number, dead))
            for dead in (False, True)
        ]
        self._translations, self._dead_letters = self._files
        self._parquet = None

    def add(self, chunk, translations, scores):
        """Adds the records of a chunk.

        Args:
            chunk: a list of places and `Record`s.
            translations: of those that can be used.
            scores: of the translations.
        """
        answers, rows, dead = zip(translations, scores, strict=True), [], []
        for place, record in chunk:
            if record.reason is not None:
                raw = shown(record.raw)
                dead.append({"place": place, "reason": record.reason, "raw": raw})
                continue
            translation, score = next(answers)
            rows.append(
                {
                    "id": place if record.id is None else record.id,
                    "source": record.text,
                    "translation": translation,
                    # The last digits depend on the number of threads. No -0.0.
                    "score": round(float(score), 4) + 0.0,
                }
            )
        if self._plan["ending"] == "parquet":
            self._write_parquet(rows)
        else:
            self._translations.write(_json_lines(rows))
        if dead:
            self._dead_letters.write(_json_lines(dead))

    def finish(self):
        """Gives the files their names.

        The translations come last: they tell that the shard is whole.
        """
        if self._plan["ending"] == "parquet":
            self._write_parquet([])  # its schema, if there is nothing else
            self._parquet.close()
        self._translations.write(b"")
        for file in reversed(self._files):
            file.finish()

    def close(self):
        """Deletes what did not get its name."""
        for file in self._files:
            file.close()

    def _write_parquet(self, rows):
        import pyarrow as pa
        from pyarrow import parquet

        types = [self._plan["id_type"], "string", "string", "float64"]
        names = ("id", "source", "translation", "score")
        schema = pa.schema(list(zip(names, types, strict=True)))
        if self._parquet is None:
            self._parquet = parquet.ParquetWriter(self._translations.open(), schema)
        if rows:
            self._parquet.write_table(pa.Table.from_pylist(rows, schema))


def _json_lines(rows):
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    return "".join(lines).encode()


class _NewFile:
    """A file that gets its name when it is whole.

    Args:
        folder: the one it is to be in.
        name: the one it is to get; gzipped if it ends in ``.gz``.
    """

    def __init__(self, folder, name):
        self._path = storage.join(folder, name)
        # Of its own: a cluster may do a job twice at the same time.
        self._part = storage.join(folder, WORK, f"{name}-{uuid.uuid4().hex}")
        self._raw = self._packed = None

    def open(self):
        """The file to write to."""
        if self._raw is None:
            if storage.is_remote(self._part):
                from apache_beam.io.filesystem import CompressionTypes
                from apache_beam.io.filesystems import FileSystems

                plain = CompressionTypes.UNCOMPRESSED
                self._raw = FileSystems.create(self._part, compression_type=plain)
            else:
                os.makedirs(os.path.dirname(self._part), exist_ok=True)
                self._raw = open(self._part, "wb")  # noqa: SIM115 - see close
            if self._path.endswith(".gz"):
                self._packed = gzip.GzipFile("", "wb", fileobj=self._raw, mtime=0)
        return self._packed or self._raw

    def write(self, content):
        self.open().write(content)

    def finish(self):
        """Gives it its name; nothing, if nothing was written to it."""
        if self._raw is None:
            return
        if self._packed:
            self._packed.close()
        if not storage.is_remote(self._part):
            self._raw.flush()
            os.fsync(self._raw.fileno())  # else a power cut could leave it empty
        self._raw.close()
        storage.rename(self._part, self._path)
        self._raw = None

    def close(self):
        """Deletes it, unless it has its name."""
        if self._raw is None:
            return
        with contextlib.suppress(OSError):
            self._raw.close()
        if not storage.is_remote(self._part):
            with contextlib.suppress(OSError):
                os.remove(self._part)
