"""Bulk translation of files with an exported model, on Apache Beam.

Beam reads and writes the files, and its `RunInference` runs the model:

    files ─► records ─► valid ────► RunInference ─► translations-*
                └─► invalid ───────────┴──────────► dead-letters-*

The records come out in any order: each has an id, or the file and line it came from.
On this machine each file has a pipeline of its own, so that a second run of the same
command can skip the files that are finished.
"""

import bz2
import collections
import csv
import functools
import gzip
import hashlib
import itertools
import json
import logging
import lzma
import os
import re
import zlib
from pathlib import Path

import apache_beam as beam
import pyarrow as pa
from apache_beam.io import WriteToParquet, WriteToText, fileio
from apache_beam.io.filesystem import CompressionTypes, FileMetadata
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import Metrics, MetricsFilter
from apache_beam.ml.inference.base import ModelHandler, RunInference
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from pyarrow import parquet

from tfxformer.errors import UserError
from tfxformer.repository import chosen_model, find_saved_model

log = logging.getLogger("tfxformer")

# Formats by file extension. Any other file is text, with one record on each line.
FORMATS = {".csv": "csv", ".tsv": "tsv", ".parquet": "parquet"}
FORMATS |= dict.fromkeys((".jsonl", ".ndjson", ".json"), "jsonl")
csv.register_dialect("tsv", delimiter="\t", quoting=csv.QUOTE_NONE)
csv.register_dialect("strict", "excel", strict=True)  # refuses an open quote
# The outputs, by the beginning of their names.
OUTPUTS = "translations", "dead-letters"
# Python's own readers notice the end of a truncated file; Beam's do not.
READERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
DAMAGE = (EOFError, csv.Error, gzip.BadGzipFile, lzma.LZMAError, zlib.error)
MAX_BYTES = 2**20  # the most bytes in a text
BATCH = 1024  # records translated together


class Translations(ModelHandler):
    """Beam's handler of the exported model at a path."""

    def __init__(self, model: str):
        super().__init__(min_batch_size=BATCH, max_batch_size=BATCH)
        self._model, self._done = model, 0

    def load_model(self):
        """Returns a `Translator`; Beam calls this once in each process and pipeline."""
        return _load(self._model)

    def run_inference(self, batch: list[dict], model, inference_args=None):
        """Returns the translated records; if a batch fails, it tries each alone."""
        try:
            texts, scores = model.translate([record["source"] for record in batch])
        except Exception as error:
            if len(batch) > 1:
                return [self.run_inference([record], model)[0] for record in batch]
            return [_dead(batch[0]["id"], f"not translated: {_line(error)}", batch[0])]
        Metrics.counter("records", "translated").inc(len(batch))
        self._done += len(batch)
        log.info("records translated: %s", f"{self._done:,}")
        return [
            {**record, "translation": text, "score": round(float(score), 4)}
            for record, text, score in zip(batch, texts, scores, strict=True)
        ]


@functools.cache
def _load(model):
    from tfxformer.console import start_tensorflow

    start_tensorflow()
    from tfxformer.translator import Translator

    return Translator.load(model)


def bulk(
    inputs: list[str],
    out: str,
    *,
    model: str | None = None,
    format: str | None = None,
    column: str = "text",
    id_column: str | None = None,
    runner: str = "DirectRunner",
    beam_options: tuple[str, ...] | list[str] = (),
) -> dict[str, int]:
    """Translates the records in files.

    Args:
        inputs: Paths or patterns of files for Beam, such as `gs://bucket/*.csv.gz`.
        out: The output folder, with `translations-*` as JSON lines (gzipped if the
            input is) or Parquet (if the input is), with `dead-letters-*` for the
            failed records and the reasons, and on this machine with a `finished-*` for
            each input. A second call with the same arguments skips finished inputs.
        model: An exported model; None for the one that comes with the package.
        format: text, csv, tsv (without quotes), jsonl or parquet; None: by file names.
        column: The column or field with the texts.
        id_column: The one with the ids, strings or integers; None: file and line.
        runner: The name of a Beam runner; `DirectRunner` runs on this machine.
        beam_options: More Beam options, such as `["--region=europe-west1"]`.

    Returns:
        The number of translated records, and of failed records for each reason.

    Raises:
        UserError: An input does not exist or is damaged, the output is of other
            options, or no record is valid.
    """
    if format not in (None, "text", *FORMATS.values()):
        raise UserError(f"--format {format}: choose text, csv, tsv, jsonl or parquet")
    if set(out) & set("*?["):
        raise UserError(f"--out {out}: Beam would read *, ? and [ as a pattern")
    names = [name for name in (column, id_column) if name is not None]
    local = runner.lower() in ("direct", "directrunner")
    options = [*beam_options] if local else [f"--runner={runner}", *beam_options]
    total, damaged = collections.Counter(), []
    try:
        files, out = _find(inputs), _absolute(out)
        parts = {_part_name(file): [file] for file in files} if local else {"": files}
        model = os.path.abspath(find_saved_model(chosen_model(model)))
        asked = {"model": model, "digest": _digest(model), "format": format}
        asked |= {"columns": names, "beam_options": options}
        finished = _finished(out, parts, asked)
        for counts in finished.values():
            total.update(counts)
        parts = {name: parts[name] for name in parts.keys() - finished.keys()}
        _look(sorted(itertools.chain(*parts.values())), format, names)
        for name in sorted(parts):
            # The local runner is Python's: Beam's runner in Go needs a download.
            known_runner = FnApiRunner() if local else None
            pipeline = beam.Pipeline(known_runner, options=PipelineOptions(options))
            outputs = [FileSystems.join(out, prefix + name) for prefix in OUTPUTS]
            FileSystems.delete([y for x in outputs for y in _match(f"{x}-*-of-*")])
            _build(pipeline, parts[name], asked, outputs)
            result = pipeline.run()
            result.wait_until_finish()
            counts, broken = _counts(result, "records"), _counts(result, "damaged")
            total.update(counts)
            damaged += broken
            if local and not broken:
                note = {"part": name, "asked": asked, "inputs": _sizes(parts[name])}
                _finish(out, note | {"counts": counts})
    except Exception as error:  # storage and runners raise many types
        if _line(error) == "KeyboardInterrupt":  # in the local runner's own error
            raise KeyboardInterrupt from None
        raise UserError(_line(error)) from error
    if damaged:
        raise UserError(
            f"{', '.join(damaged)}: damaged: the records before the damage are in "
            f"{out}, the place is in its dead-letters-*; mend the file and run again"
        )
    if total and "translated" not in total:
        raise UserError(f"no record could be translated: see {out}/dead-letters-*")
    return {"translated": 0} | total


def _part_name(file):
    """What the outputs of an input file are called."""
    stem = re.sub(r"[^\w.-]", "_", Path(file).stem)
    return f"-{stem}-{hashlib.sha256(file.encode()).hexdigest()[:8]}"


def _digest(model):
    """A hash of a SavedModel: of its graph, and of the index with its checksums."""
    files = Path(model, "saved_model.pb"), Path(model, "variables", "variables.index")
    content = b"".join(file.read_bytes() for file in files if file.exists())
    return hashlib.sha256(content).hexdigest()


def _counts(result, namespace):
    """The counters of a finished pipeline."""
    metrics = result.metrics().query(MetricsFilter().with_namespace(namespace))
    return {each.key.metric.name: each.result for each in metrics["counters"]}


def _finished(out, parts, asked):
    """The counts of the parts that an earlier run has finished, by name."""
    if os.path.isfile(out):
        raise UserError(f"--out {out}: is a file; name a folder")
    records, notes = {}, _match(FileSystems.join(out, "finished-*"))
    for path in notes:
        with FileSystems.open(path) as file:
            record = json.load(file)
        if record["asked"] != asked:
            different = [key for key in asked if record["asked"].get(key) != asked[key]]
            raise UserError(
                f"--out {out}: was begun with another {' and '.join(different)}: use "
                "the same options and model, or another folder"
            )
        if record["inputs"] == _sizes(parts.get(record["part"], ())):
            records[record["part"]] = record["counts"]
            log.info("%s: finished before", ", ".join(record["inputs"]))
    if not notes and _match(FileSystems.join(out, "*-of-*")):
        raise UserError(f"--out {out}: exists already; name another folder")
    return records


def _finish(out, note):
    """Notes that a part is finished, for `_finished`."""
    path = FileSystems.join(out, f"finished{note['part']}.json")
    with FileSystems.create(path) as file:
        file.write(json.dumps(note, indent=1).encode())


def _sizes(files):
    """The sizes of files in bytes, by path."""
    return {file: FileSystems.get_filesystem(file).size(file) for file in files}


def _absolute(path):
    """A path that workers in another folder find."""
    return path if "://" in path else os.path.abspath(path)


def _find(patterns):
    """The input files, sorted paths."""
    inputs = set()
    for pattern in patterns:
        path = _absolute(pattern)
        if os.path.isdir(path):
            raise UserError(f"{pattern}: is a folder; use files: '{pattern}/*.csv'")
        # A file's name may look like a pattern.
        files = [path] if os.path.exists(path) else _match(path)
        if not files:
            raise UserError(f"{pattern}: no such file")
        inputs.update(files)
    return sorted(inputs)


def _match(pattern):
    return [file.path for file in FileSystems.match([pattern])[0].metadata_list]


def _look(files, format, names):
    """Reads 100 records of each file, to find a wrong option at once."""
    looked = []
    for path in files:
        records = _read(fileio.ReadableFile(FileMetadata(path, 0)), format, names)
        looked += itertools.islice(records, 100)
    if looked and all(_has_failed(record) for record in looked):
        where = f"{looked[0]['place']}: {looked[0]['reason']}"
        raise UserError(f"{where}; check --format, --column and --id-column")


def _build(pipeline, files, asked, outputs):
    """Adds all steps to a pipeline; ``outputs`` are the paths of `OUTPUTS`."""
    format, names = asked["format"], asked["columns"]
    to_json = beam.Map(json.dumps, ensure_ascii=False)
    paths = pipeline | beam.Create(files) | beam.Reshuffle() | fileio.ReadMatches()
    records = paths | beam.FlatMap(_read, format, names)
    valid, invalid = records | "Valid" >> beam.Partition(_has_failed, 2)
    answers = valid | RunInference(Translations(asked["model"]))
    translated, failed = answers | "Translated" >> beam.Partition(_has_failed, 2)
    path, dead_path = outputs
    if all(_format_of(file, format) == "parquet" for file in files):
        types = {"id": _id_type(files, names), "source": pa.string()}
        types |= {"translation": pa.string(), "score": pa.float64()}
        translated | WriteToParquet(path, pa.schema(types), file_name_suffix=".parquet")
    else:
        ending = ".jsonl.gz" if all(x.endswith(".gz") for x in files) else ".jsonl"
        translated | "JSON" >> to_json | "Write" >> WriteToText(path, ending)
    dead = (invalid, failed) | beam.Flatten()
    write = WriteToText(dead_path, ".jsonl", skip_if_empty=True)
    dead | "JSON of dead" >> to_json | "Write dead" >> write


def _id_type(files, names):
    """The type of the ids in Parquet files; a `UserError` if they differ."""
    if not names[1:]:
        return pa.string()
    schemas = {file: parquet.read_schema(FileSystems.open(file)) for file in files}
    types = {file: schema.field(names[1]).type for file, schema in schemas.items()}
    first = types[files[0]]
    for file, other in types.items():
        if other != first:
            raise UserError(
                f"{file}: --id-column {names[1]} is {other}, and {first} in "
                f"{files[0]}: translate the files one by one"
            )
    return first


def _has_failed(record, *_):
    return int("reason" in record)


def _line(error):
    """The last line of an error, without the prefixes of Beam and Python."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[-1]
    added = r"^(\w+\.)*\w*(Error|Exception): | \[while running '.*"
    return re.sub(added, "", line)


def _format_of(path, format):
    path = Path(path.lower())
    plain = path.with_suffix("") if path.suffix in READERS else path
    return format or FORMATS.get(plain.suffix, "text")


def _read(file, format, names):
    """Yields the records of a file; invalid records have a reason."""
    path, number = file.metadata.path, 0
    reader = READERS.get(Path(path).suffix.lower())
    plain = CompressionTypes.UNCOMPRESSED if reader else CompressionTypes.AUTO
    try:
        with file.open(compression_type=plain) as packed:
            stream = reader(packed) if reader else packed
            for number, row in _rows(stream, _format_of(path, format), names):
                place = f"{path}:{number}"
                try:
                    yield _parse(row, names, place)
                except ValueError as error:
                    broken = isinstance(error, UnicodeEncodeError)
                    yield _dead(place, "not UTF-8" if broken else str(error), row)
    except DAMAGE as error:
        Metrics.counter("damaged", path).inc()
        yield _dead(f"{path}:{number + 1}", f"damaged: {_line(error)}", "")


def _dead(place, reason, row):
    """A failed record, counted by its reason."""
    Metrics.counter("records", reason.partition(":")[0]).inc()
    raw = row if isinstance(row, str) else "\t".join(map(str, row.values()))
    raw = raw.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return {"place": place, "reason": reason, "raw": raw}


def _rows(stream, format, names):
    """Yields the number of each row, and the row: a dict, or a line of JSON."""
    if format == "parquet":
        batches = parquet.ParquetFile(stream).iter_batches(columns=names)
        yield from enumerate((row for each in batches for row in each.to_pylist()), 1)
        return
    encoded = (line.rstrip(b"\r\n") for line in iter(stream.readline, b""))
    lines = (line.decode("utf-8-sig", "surrogateescape") for line in encoded)
    if format in ("csv", "tsv"):
        csv.field_size_limit(2**31 - 1)
        lines = (line.replace("\r", " ") + "\n" for line in lines)
        reader = csv.DictReader(lines, dialect="tsv" if format == "tsv" else "strict")
        yield from ((reader.line_num, row) for row in reader)
    else:
        text = format == "text"
        yield from enumerate(({names[0]: x} if text else x for x in lines), 1)


def _parse(row, names, place):
    """The record of a row; ValueError if the row is not valid."""
    try:
        values = json.loads(row) if isinstance(row, str) else row
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(values, dict):
        raise ValueError("not a JSON object")
    if missing := [name for name in names if values.get(name) is None]:
        fields = ", ".join(map(str, values)) or "none"
        raise ValueError(f"no value for {missing[0]!r}; the fields are: {fields}")
    if None in values:  # `csv.DictReader` puts extra cells there
        raise ValueError("more columns than the header")
    text = values[names[0]]
    id = values[names[1]] if names[1:] else place
    if not isinstance(text, str) or not isinstance(id, (str, int)):
        raise ValueError("the text must be a string, and the id a string or integer")
    if len(f"{text}{id}".encode()) > MAX_BYTES:
        raise ValueError(f"longer than {MAX_BYTES:,} bytes")
    if not text.strip():
        raise ValueError("no text")
    return {"id": id, "source": text}
