"""Bulk translation of files with an exported model, on Apache Beam.

Beam reads and writes the files, and its `RunInference` runs the model:

    files ─► records ─► valid ────► RunInference ─► translations-*
                └─► invalid ───────────┴──────────► dead-letters-*

The records come out in any order: each has an id, or the file and line it came from.
"""

import csv
import itertools
import json
import logging
import os
import re
from pathlib import Path

import apache_beam as beam
import pyarrow as pa
from apache_beam.io import WriteToParquet, WriteToText, fileio
from apache_beam.io.filesystem import FileMetadata
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
MAX_BYTES = 2**20  # the most bytes in a text
BATCH = 1024  # records translated together


class Translations(ModelHandler):
    """Beam's handler of the exported model at a path."""

    def __init__(self, model: str):
        super().__init__(min_batch_size=BATCH, max_batch_size=BATCH)
        self._model, self._done = model, 0

    def load_model(self):
        """Returns a `Translator`; Beam calls this once in each process."""
        from tfxformer.console import start_tensorflow

        start_tensorflow()
        from tfxformer.translator import Translator

        return Translator.load(self._model)

    def run_inference(self, batch: list[dict], model, inference_args=None):
        """Returns the translated records; if a batch fails, it tries each alone."""
        try:
            texts, scores = model.translate([record["source"] for record in batch])
        except Exception as error:
            if len(batch) > 1:
                return [self.run_inference([record], model)[0] for record in batch]
            return [_dead(batch[0]["id"], f"not translated: {_line(error)}", batch[0])]
        Metrics.counter(__name__, "translated").inc(len(batch))
        self._done += len(batch)
        log.info("records translated: %s", f"{self._done:,}")
        return [
            {**record, "translation": text, "score": round(float(score), 4)}
            for record, text, score in zip(batch, texts, scores, strict=True)
        ]


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
            input is) or Parquet (if the input is), and with `dead-letters-*` for the
            failed records and the reasons.
        model: An exported model; None for the one that comes with the package.
        format: text, csv, tsv (without quotes), jsonl or parquet; None: by file names.
        column: The column or field with the texts.
        id_column: The one with the ids, strings or integers; None: file and line.
        runner: The name of a Beam runner; `DirectRunner` runs on this machine.
        beam_options: More Beam options, such as `["--region=europe-west1"]`.

    Returns:
        The number of translated records, and of failed records for each reason.

    Raises:
        UserError: An input does not exist, the output exists, or no record is valid.
    """
    if format not in (None, "text", *FORMATS.values()):
        raise UserError(f"--format {format}: choose text, csv, tsv, jsonl or parquet")
    names = [name for name in (column, id_column) if name is not None]
    local = runner.lower() in ("direct", "directrunner")
    options = [*beam_options] if local else [f"--runner={runner}", *beam_options]
    # The local runner is Python's: Beam's runner in Go needs a download.
    known_runner = FnApiRunner() if local else None
    try:
        pipeline = beam.Pipeline(known_runner, options=PipelineOptions(options))
        files, out = _find(inputs), _absolute(out)
        if os.path.isfile(out) or _match(FileSystems.join(out, "*-of-*")):
            raise UserError(f"--out {out}: exists already; name another folder")
        _look(files, format, names)
        model = find_saved_model(chosen_model(model))
        _build(pipeline, files, format, names, os.path.abspath(model), out)
        result = pipeline.run()
        result.wait_until_finish()
    except Exception as error:  # storage and runners raise many types
        if _line(error) == "KeyboardInterrupt":  # in the local runner's own error
            raise KeyboardInterrupt from None
        raise UserError(_line(error)) from error
    ours = result.metrics().query(MetricsFilter().with_namespace(__name__))
    counts = {each.key.metric.name: each.result for each in ours["counters"]}
    if counts and "translated" not in counts:
        raise UserError(f"no record could be translated: see {out}/dead-letters-*")
    return {"translated": 0} | counts


def _absolute(path):
    """A path that workers in another folder find."""
    return path if "://" in path else os.path.abspath(path)


def _find(patterns):
    """The input files, sorted paths."""
    found = set()
    for pattern in patterns:
        path = _absolute(pattern)
        if os.path.isdir(path):
            raise UserError(f"{pattern}: is a folder; use files: '{pattern}/*.csv'")
        # A file's name may look like a pattern.
        files = [path] if os.path.exists(path) else _match(path)
        if not files:
            raise UserError(f"{pattern}: no such file")
        found.update(files)
    return sorted(found)


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


def _build(pipeline, files, format, names, model, out):
    """Adds all steps to a pipeline."""
    to_json = beam.Map(json.dumps, ensure_ascii=False)
    paths = pipeline | beam.Create(files) | beam.Reshuffle() | fileio.ReadMatches()
    records = paths | beam.FlatMap(_read, format, names)
    valid, invalid = records | "Valid" >> beam.Partition(_has_failed, 2)
    answers = valid | RunInference(Translations(model))
    translated, failed = answers | "Translated" >> beam.Partition(_has_failed, 2)
    path = FileSystems.join(out, "translations")
    if all(_format_of(file, format) == "parquet" for file in files):
        source = parquet.read_schema(FileSystems.open(files[0]))
        id = source.field(names[1]).type if names[1:] else pa.string()
        schema = {"id": id, "source": pa.string(), "translation": pa.string()}
        schema = pa.schema(schema | {"score": pa.float64()})
        translated | WriteToParquet(path, schema, file_name_suffix=".parquet")
    else:
        ending = ".jsonl.gz" if all(f.endswith(".gz") for f in files) else ".jsonl"
        translated | "JSON" >> to_json | "Write" >> WriteToText(path, ending)
    dead = (invalid, failed) | beam.Flatten()
    path = FileSystems.join(out, "dead-letters")
    write = WriteToText(path, ".jsonl", skip_if_empty=True)
    dead | "JSON of dead" >> to_json | "Write dead" >> write


def _has_failed(record, *_):
    return int("reason" in record)


def _line(error):
    """The last line of an error, without the prefixes of Beam and Python."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[-1]
    added = r"^(\w+\.)*\w*(Error|Exception): | \[while running '.*"
    return re.sub(added, "", line)


def _format_of(path, format):
    return format or FORMATS.get(Path(path.removesuffix(".gz")).suffix, "text")


def _read(file, format, names):
    """Yields the records of a file; invalid records have a reason."""
    path = file.metadata.path
    with file.open() as stream:
        for number, row in _rows(stream, _format_of(path, format), names):
            place = f"{path}:{number}"
            try:
                yield _parse(row, names, place)
            except ValueError as error:
                broken = isinstance(error, UnicodeEncodeError)
                yield _dead(place, "not UTF-8" if broken else str(error), row)


def _dead(place, reason, row):
    """A failed record, counted by its reason."""
    Metrics.counter(__name__, reason.partition(":")[0]).inc()
    raw = row if isinstance(row, str) else "\t".join(map(str, row.values()))
    raw = raw.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return {"place": place, "reason": reason, "raw": raw}


def _rows(stream, format, names):
    """Yields the number of each row, and the row: a dict, or a line of JSON."""
    if format == "parquet":
        batches = parquet.ParquetFile(stream).iter_batches(columns=names)
        yield from enumerate((row for b in batches for row in b.to_pylist()), 1)
        return
    found = (line.rstrip(b"\r\n") for line in iter(stream.readline, b""))
    lines = (line.decode("utf-8-sig", "surrogateescape") for line in found)
    if format in ("csv", "tsv"):
        csv.field_size_limit(2**31 - 1)
        lines = (line.replace("\r", " ") + "\n" for line in lines)
        reader = csv.DictReader(lines, dialect="tsv" if format == "tsv" else "excel")
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
    text, id, *_ = *(values[name] for name in names), place
    if not isinstance(text, str) or not isinstance(id, (str, int)):
        raise ValueError("the text must be a string, and the id a string or integer")
    if len(f"{text}{id}".encode()) > MAX_BYTES:
        raise ValueError(f"longer than {MAX_BYTES:,} bytes")
    if not text.strip():
        raise ValueError("no text")
    return {"id": id, "source": text}
