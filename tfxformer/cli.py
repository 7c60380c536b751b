"""The command line.

Standard output has only the answer; progress and logs go to standard error. Slow
imports wait until a command needs them, so that help and errors appear at once.
"""

import logging
import os
import re
import shlex
import signal
import sys
import time
import uuid
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Exit, Option

from tfxformer import corpora
from tfxformer.commands import (
    Checkpoint,
    Model,
    commands,
    load_translator,
    need,
    option,
    with_settings,
)
from tfxformer.config import PRESETS, DataConfig, TrainingConfig, load_config, read_yaml
from tfxformer.console import say, start_logging, start_tensorflow, watched_lines
from tfxformer.corpora.files import pick, read_argument, read_texts
from tfxformer.decoding import DecodingOptions
from tfxformer.errors import Stopped, UserError, check_output, write_file
from tfxformer.plots.commands import app as plot
from tfxformer.repository import model_name, shipped_model
from tfxformer.server import ServerSettings

log = logging.getLogger("tfxformer")

app = commands("Train a Transformer translator on two columns of text, and serve it.")

Input = Annotated[
    Path | None, Option("--input", "-i", help="A file; by default standard input.")
]
TokensPerBatch = Annotated[int, Option(min=1, help="The most tokens in a batch.")]
To = Annotated[Path, Option(help="The model repository.")]
Precision = Annotated[
    Literal["float32", "float16"],
    Option(help="The format of stored weights; float16 halves their size."),
]
# What separates the columns and the lines of an answer.
_SEPARATOR = re.compile("[\t\r\n]")
# The settings of pairs that several commands take.
PAIRS = ["sources", "data_dir", "columns", "encoding"]


def main():
    """Runs the command line; input errors print one line and exit with 1."""
    start_logging()
    if None in (sys.stdin, sys.stdout):
        sys.exit("tfxformer: error: standard input or output is closed: use /dev/null")
    sys.stdout.reconfigure(encoding="utf-8")  # on any terminal
    try:
        try:
            app()
        finally:
            if sys.stdout:
                sys.stdout.flush()
    except Stopped as end:
        say(f"tfxformer: {end}")
        sys.exit(end.code)
    except (UserError, OSError) as error:
        if isinstance(error, OSError):  # standard output may have failed: stop using it
            sys.stdout = None
        say(f"tfxformer: error: {error}")
        sys.exit(1)


def _stop(number, _):
    raise Stopped(number, "training has not begun")


@app.command(rich_help_panel="Start")
def quickstart(
    out: Annotated[Path | None, Option(help="The folder for all output.")] = None,
):
    """Train on a phrasebook, evaluate, export, translate.

    The reported translations come from the exported signature. No sentence in them, in
    either language, was in the training data. The six that are printed are always the
    same ones, right or wrong.
    """
    started = time.monotonic()
    out = out or Path(f"tfxformer-quickstart-{uuid.uuid4().hex[:8]}")
    start_tensorflow()
    import tensorflow as tf

    from tfxformer.evaluation import compare, describe_samples
    from tfxformer.exporting.saved_model import export
    from tfxformer.training.trainer import train

    say(f"1. Training on the embedded phrasebook, in {out}")
    config = load_config("tiny", overrides=["data.sources=phrasebook"])
    run = train(config, out / "run")

    say("2. Exporting a SavedModel and running it in a TensorFlow session")
    path, report = export(run.path, out / "export", "pt_en")
    say(report.describe().splitlines()[-1])

    say("3. Translating held-out sentences through the exported signature")
    pairs, _ = corpora.load("phrasebook", "test", cleaned=False)
    exported = tf.saved_model.load(str(path)).signatures["translate"]
    answers = exported(text=tf.constant([pair.source for pair in pairs]))
    translations = [text.decode() for text in answers["translation"].numpy()]
    for line in describe_samples(pairs, translations):
        print(line)
    print(compare(translations, [pair.target for pair in pairs]).describe())
    print(f"SavedModel: {path}")
    say(
        f"done in {time.monotonic() - started:.0f} s; try: "
        f'tfxformer translate --model {path} "A minha irmã tem um gato preto."'
    )


@app.command(rich_help_panel="Train")
@with_settings("data", DataConfig, [*PAIRS, "weights", "valid"])
@with_settings("training", TrainingConfig, ["steps", "seed", "init_from"])
def train(
    data: DataConfig,
    out: Annotated[Path, Option(help="The run folder.")],
    preset: Annotated[
        str | None, Option(help=f"One of {', '.join(PRESETS)}; by default tutorial.")
    ] = None,
    config: Annotated[Path | None, Option(help="A YAML file of settings.")] = None,
    settings: Annotated[
        list[str],
        Option("--set", help="Override a setting: model.dff=1024. Repeatable."),
    ] = [],  # noqa: B006
    training: TrainingConfig = ...,
):
    """Train a translator, or resume a stopped run.

    Exit codes: 0 when done, 1 for input errors, 75 after SIGTERM, 130 after Ctrl-C.
    After 75 or 130 the state is saved: run the same command again to resume.
    """
    given = {"data": data, "training": training}
    given = {name: x.model_dump(exclude_unset=True) for name, x in given.items()}
    overrides = [given, *settings]
    loaded = load_config(preset, config, overrides)
    begun = loaded.training.init_from
    in_file = read_yaml(config).get("training", {}).get("init_from") if config else None
    if in_file not in (None, begun):
        raise UserError(
            f"--from {begun}: {config} has training.init_from = {in_file}: leave one "
            "of them out"
        )
    if begun is not None:
        from tfxformer.training import fine_tuning

        base = fine_tuning.settings(begun)
        loaded = load_config(preset, config, overrides, base)
        if not loaded.model.dropout_rate:
            hint = "to change it: --set model.dropout_rate=0.1"
            log.info("model.dropout_rate is 0, as in %s; %s", begun, hint)
    signal.signal(signal.SIGTERM, _stop)  # until training installs its own handler
    start_tensorflow()
    from tfxformer.training.trainer import train

    print(train(loaded, out).path)
    known = [x for x in loaded.data.sources if x in ("phrasebook", "ted")]
    run, pairs = shlex.quote(str(out)), known[0] if known else "TEST.tsv"
    log.info("next: tfxformer evaluate --run %s --data %s", run, pairs)
    log.info("      tfxformer export --run %s", run)


@app.command(rich_help_panel="Train")
@with_settings("decoding", DecodingOptions)
@with_settings("data", DataConfig, PAIRS)
def evaluate(
    data: DataConfig,
    run: Model = None,
    split: Annotated[str, Option(help="test, validation or train.")] = "test",
    checkpoint: Checkpoint = "best",
    lowercase: Annotated[bool, Option(help="Compare in lower case.")] = False,
    output: Annotated[Path | None, Option(help="A file for translations.")] = None,
    tokens_per_batch: TokensPerBatch = 2048,
    decoding: DecodingOptions = ...,
):
    """Translate sentence pairs and score the results with BLEU and chrF."""
    if not data.sources:
        raise UserError("give sentence pairs to evaluate, such as --data test.tsv")
    if decoding.n_best > 1:
        raise UserError("--n-best: only the best translation is scored; leave it out")
    if output:
        check_output("--output", output, corpora.input_files(data.sources))
    options = data.model_dump(include={*PAIRS[1:]}) | {"cleaned": False}
    loaded = [corpora.load(source, split, **options) for source in data.sources]
    translator = load_translator(run, checkpoint, _chosen(decoding))
    from tfxformer.evaluation import evaluate

    translations = []
    for source, (pairs, counts) in zip(data.sources, loaded, strict=True):
        log.info("%s: %s", source, counts.describe())
        result = evaluate(translator, pairs, lowercase, tokens_per_batch)
        print(f"{source}: {len(pairs):,} sentences")
        print(result.describe())
        translations += result.translations
    if output:
        write_file(output, "".join(f"{line}\n" for line in translations).encode())


@app.command(rich_help_panel="Translate")
@with_settings("decoding", DecodingOptions)
@with_settings("data", DataConfig, ["encoding"])
def translate(
    text: Annotated[list[str] | None, Argument(help="Texts to translate.")] = None,
    run: Model = None,
    input: Input = None,
    checkpoint: Checkpoint = "best",
    tokens_per_batch: TokensPerBatch = 2048,
    scores: Annotated[bool, Option(help="Print score, tab, translation.")] = False,
    prefix: Annotated[str, Option(help="Begin each translation with this.")] = "",
    data: DataConfig = ...,
    decoding: DecodingOptions = ...,
):
    """Translate texts, or the lines of a file, in their order.

    A text may have several sentences, each translated on its own. With --n-best or
    --prefix, each text is one sentence. --n-best prints lines with the text's number, a
    score and a translation.
    """
    if text and input:
        raise UserError("give texts or --input, not both")
    if prefix and (decoding.n_best > 1 or scores):
        raise UserError("--prefix cannot go with --n-best or --scores")
    texts = [
        read_argument(one, f"text {number}", data.encoding)
        for number, one in enumerate(text or [], 1)
    ]
    prefix = read_argument(prefix, "--prefix", data.encoding)
    chunks = [texts] if texts else _chunks(input, data.encoding)
    translator = load_translator(run, checkpoint, _chosen(decoding))
    for name in filter(os.path.isfile, text or []):
        hint = f"to translate the file: -i {shlex.quote(name)}"
        log.info("%r is translated as a text; %s", name, hint)
    first = 1
    for lines in chunks:
        if decoding.n_best > 1:
            lists = translator.n_best(lines, tokens_per_batch, first)
            answers = [
                f"{number}\t{score:.4f}\t{translation}"
                for number, translations in enumerate(lists, first)
                for translation, score in translations
            ]
        elif prefix:
            prefixes = [prefix] * len(lines)
            answers = translator.complete(lines, prefixes, tokens_per_batch, first)
        else:
            answers, means = translator.translate(lines, tokens_per_batch, first=first)
            if scores:  # one line, without another tab than the score's
                answers = [
                    f"{score:.4f}\t{_SEPARATOR.sub(' ', translation)}"
                    for translation, score in zip(answers, means, strict=True)
                ]
        for answer in answers:
            print(answer, flush=True)
        first += len(lines)


def _chunks(path, encoding):
    """Lists of lines: single lines from a terminal, many at once otherwise."""
    stream = open(path, "rb") if path else sys.stdin.buffer  # noqa: SIM115
    size = 1 if stream.isatty() else 1024
    return read_texts(watched_lines(stream), stream.name, encoding, size)


def _chosen(decoding):
    """The given options, or None without any: an export then uses its own."""
    return decoding if decoding.model_fields_set else None


@app.command(rich_help_panel="Translate")
@with_settings("data", DataConfig, ["columns", "encoding"])
def score(
    run: Model = None,
    input: Input = None,
    checkpoint: Checkpoint = "best",
    tokens_per_batch: TokensPerBatch = 2048,
    data: DataConfig = ...,
):
    """Score given translations by the model's probability.

    Each input line is a source, a tab and a translation. Each output line has a score
    and a tab before them. The score is the mean log-probability of the translation's
    tokens, or nan, with a warning, if a side is too long for the model.
    """
    chunks = _chunks(input, data.encoding)
    translator = load_translator(run, checkpoint)
    first = 1
    for lines in chunks:
        rows = [pick(line, data.columns) for line in lines]
        bad = rows.index(None) if None in rows else len(rows)
        sides = [*zip(*rows[:bad], strict=True)] or [(), ()]
        scores = translator.score(*sides, tokens_per_batch, first)
        for mean, source, target in zip(scores, *sides, strict=True):
            print(f"{mean:.4f}\t{source}\t{target}", flush=True)
        if bad < len(lines):
            raise UserError(
                f"{input or '<stdin>'}:{first + bad}: expected a source, a tab and a "
                f"translation, found {lines[bad].count(chr(9))} tabs; fix the line, "
                "or choose columns, such as --columns 2,1"
            )
        first += len(lines)


@app.command(rich_help_panel="Translate")
def bulk(
    input: Annotated[
        list[str],
        Option("--input", "-i", help="A file (.gz too), or 'in/*.csv'. Repeatable."),
    ],
    out: Annotated[str, Option(help="The folder to write.")],
    beam_options: Annotated[
        list[str] | None, Argument(help="Options for Beam, after --.")
    ] = None,
    model: Annotated[str | None, Option(help="An exported model.")] = None,
    format: Annotated[
        str | None, Option(help="text, csv, tsv, jsonl or parquet.")
    ] = None,
    column: Annotated[str, Option(help="The column or field with the texts.")] = "text",
    id_column: Annotated[str | None, Option(help="The column with the ids.")] = None,
    runner: Annotated[str, Option(help="The Beam runner.")] = "DirectRunner",
):
    """Translate any number of files of any size with Apache Beam.

    By default a file's extension determines its format, and its path and line numbers
    are the ids. OUT/translations-* gets JSON lines (Parquet for Parquet) with id,
    source, translation and score, in any order. OUT/dead-letters-* gets the records
    that failed, with their place and the reason. Paths may be on any storage that Beam
    supports, such as gs://.
    """
    need("beam", ["apache_beam"])
    logging.root.setLevel(logging.ERROR)  # hides Beam's messages on import
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)  # `bulk` raises them
    from tfxformer.bulk import bulk

    options = {"model": model, "format": format, "column": column}
    options |= {"id_column": id_column, "runner": runner}
    counts = bulk(input, out, **options, beam_options=beam_options or ())
    translated = counts.pop("translated")
    line = f"{translated:,} translated, {sum(counts.values()):,} failed"
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in counts.items())
    print(f"{out}: {line} ({reasons})" if counts else f"{out}: {line}")


@app.command(rich_help_panel="Serve")
@with_settings("decoding", DecodingOptions)
def export(
    run: Model = None,
    to: To = Path("export"),
    name: Annotated[
        str | None, Option(help="The model's name; by default the run folder's.")
    ] = None,
    checkpoint: Checkpoint = "best",
    format: Annotated[
        Literal["savedmodel", "ctranslate2"],
        Option(help="For TensorFlow Serving, or for CTranslate2."),
    ] = "savedmodel",
    precision: Precision = "float32",
    average: Annotated[
        int | None, Option(min=1, help="Average the N most recent checkpoints.")
    ] = None,
    decoding: DecodingOptions = ...,
):
    """Export a run, or a SavedModel again, as the next version of a model.

    The export keeps the decoding options given here. The last line is the path of the
    new version.
    """
    if format == "ctranslate2":
        given = [option(name) for name in decoding.model_fields_set]
        given += ["--precision"] * (precision != "float32")
        if given:
            raise UserError(
                f"{', '.join(given)}: not for --format ctranslate2: give CTranslate2 "
                "its options when it runs the model"
            )
        need("ctranslate2", ["ctranslate2"])
    start_tensorflow()
    from tfxformer.exporting.saved_model import export

    path, report = export(
        run,
        to,
        name,
        checkpoint=checkpoint,
        options=_chosen(decoding),
        precision=precision,
        average=average,
        format=format,
    )
    if report:
        say(report.describe())
    print(path)


@app.command("import", rich_help_panel="Serve")
@with_settings("decoding", DecodingOptions, ["beam_size", "length_penalty"])
def import_(
    folder: Annotated[Path | None, Argument(help="A model as downloaded.")] = None,
    from_hub: Annotated[
        str | None, Option(help="Download it, such as Helsinki-NLP/opus-mt-ROMANCE-en.")
    ] = None,
    to: To = Path("export"),
    name: Annotated[str | None, Option(help="By default the folder's name.")] = None,
    target_language: Annotated[
        str | None, Option(help="The language of texts that begin with none (>>por<<).")
    ] = None,
    precision: Precision = "float32",
    decoding: DecodingOptions = ...,
):
    """Import an OPUS-MT model as the next version of a model.

    The folder is in Hugging Face's layout: config.json, vocab.json, source.spm,
    target.spm, and the weights. The export keeps the decoding options given here. The
    last line is the path of the new version.
    """
    if (folder is None) == (from_hub is None):
        raise UserError("give a model's folder, or its name with --from-hub")
    if from_hub:
        need("opus", ["huggingface_hub"])
    start_tensorflow()
    from tfxformer.exporting.marian import import_marian
    from tfxformer.exporting.marian_folder import download
    from tfxformer.exporting.saved_model import export

    folder = folder or download(from_hub)
    translator = import_marian(folder, target_language, decoding, from_hub)
    name = name or translator.origin["source"].rpartition("/")[2]
    path, report = export(translator, to, name, precision=precision)
    say(report.describe())
    print(path)


@app.command(rich_help_panel="Serve")
@with_settings("settings", ServerSettings)
def serve(
    repository: Annotated[Path | None, Argument(help="A model repository.")] = None,
    config: Annotated[Path | None, Option(help="A models.config instead.")] = None,
    settings: ServerSettings = ...,
):
    """Serve models with TensorFlow Serving's REST and gRPC APIs.

    Serves the newest version of each model in the repository (by default the model that
    comes with the package), and switches to new versions as they appear. SIGTERM and
    Ctrl-C stop it after the pending requests, with exit codes 0 and 130.
    """
    need("serve", ["starlette", "uvicorn", "grpc_health", "prometheus_client"])
    from tfxformer.server.configs import find_models

    if config is not None and repository is not None:
        raise UserError("give a repository or --config, not both")
    if config is None and repository is None:
        repository = shipped_model().parents[1]
    # Raises errors before the slow import of TensorFlow.
    find_models(repository, config)
    log.info("serving %s (loading)", config or repository)
    start_tensorflow()
    from tfxformer.server.local import serve

    serve(repository, config, settings)


@app.command(rich_help_panel="Serve")
def verify(
    path: Annotated[Path, Argument(help="A SavedModel, or a folder of versions.")],
):
    """Check that TensorFlow Serving can run a SavedModel.

    The SavedModel may come from any program.
    """
    from tfxformer.exporting.verify import verify

    report = verify(path)
    print(report.describe())
    if not report.ok:
        raise Exit(1)


@app.command(rich_help_panel="Look")
def demo(
    run: Model = None,
    port: Annotated[int, Option(min=0, max=65535, help="0 for a free one.")] = 7860,
    to: Annotated[
        Path | None, Option(help="Write the page to this .html file instead.")
    ] = None,
):
    """Show every number of the model as it translates, on a web page.

    Prints the address of the page, which only this machine can open. SIGTERM stops it
    with exit code 0, Ctrl-C with 130. With --to, the page is a file that needs no
    server and no network.
    """
    from tfxformer.page import page, serve_page

    def make():
        return page(load_translator(run), model_name(run)).encode()

    if to:
        check_output("--to", to)
        print(write_file(to, make()))
    else:
        serve_page(make, port)


app.add_typer(plot, name="plot", rich_help_panel="Look")


if __name__ == "__main__":
    main()
