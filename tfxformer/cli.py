"""The command line: one command a verb.

Standard output carries the answer alone; progress and logs go to standard error.
Heavy imports wait until a command needs them, so that help and errors come at once.
"""

import logging
import os
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
from tfxformer.config import PRESETS, DataConfig, TrainingConfig, load_config
from tfxformer.console import say, start_logging, start_tensorflow
from tfxformer.corpora.files import pick, read_argument, read_texts
from tfxformer.decoding import DecodingOptions
from tfxformer.errors import PREEMPTED, Stopped, UserError, check_output, write_file
from tfxformer.plots.commands import app as plot
from tfxformer.repository import shipped_model
from tfxformer.server import ServerSettings

log = logging.getLogger("tfxformer")

app = commands("Train a Transformer translator on two columns of text, and serve it.")

Input = Annotated[
    Path | None, Option("--input", "-i", help="A file; else standard input.")
]
TokensPerBatch = Annotated[int, Option(min=1, help="The most tokens of a batch.")]
Xla = Annotated[bool, Option("--xla", help="Compile decoding with XLA.")]
# The settings of pairs that commands share, and those of a server.
PAIRS = "sources", "data_dir", "columns", "encoding"
SERVING = [name for name in ServerSettings.model_fields if name != "poll"]


def main():
    """Runs the command line; wrong input ends in one line and exit code 1."""
    start_logging()
    if None in (sys.stdin, sys.stdout):
        sys.exit("tfxformer: error: standard input or output is closed: use /dev/null")
    sys.stdout.reconfigure(encoding="utf-8")  # whatever the terminal takes
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
        if isinstance(error, OSError):  # standard output's: do not try it again
            sys.stdout = None
        say(f"tfxformer: error: {error}")
        sys.exit(1)


def _stop(*_):
    raise Stopped("stopped by SIGTERM before it began", PREEMPTED)


@app.command(rich_help_panel="Start")
def quickstart(
    out: Annotated[Path | None, Option(help="The folder to work in.")] = None,
    seed: Annotated[int, Option(help="The seed of all random numbers.")] = 0,
):
    """Train on a phrasebook, evaluate, export, translate.

    What it reports is translated through the exported signature; no sentence of it, in
    either language, was seen in training.
    """
    started = time.monotonic()
    out = out or Path(f"tfxformer-quickstart-{uuid.uuid4().hex[:8]}")
    start_tensorflow()
    import tensorflow as tf

    from tfxformer.evaluation import evaluate
    from tfxformer.exporting.saved_model import export
    from tfxformer.training.trainer import train
    from tfxformer.translator import Translator

    say(f"1. Training on the embedded phrasebook, in {out}")
    settings = {"data": {"sources": ["phrasebook"]}, "training": {"seed": seed}}
    run = train(load_config("tiny").updated(**settings), out / "run")

    say("2. Exporting a SavedModel, and running it in a TensorFlow session")
    path, report = export(run.path, out / "export")
    say(report.describe().splitlines()[-1])

    say("3. Translating held-out sentences through the exported signature")
    pairs, _ = corpora.load("phrasebook", "test", cleaned=False)
    translator, loaded = Translator.load(path), tf.saved_model.load(str(path))
    translator.signatures = loaded.signatures  # the export's own, not Python's
    result = evaluate(translator, pairs)
    for i in range(0, len(pairs), len(pairs) // 8):
        print(f"{pairs[i].source}  →  {result.translations[i]}")
    print(result.describe())
    print(f"SavedModel: {path}")
    say(
        f"done in {time.monotonic() - started:.0f} s; try: "
        f'tfxformer translate --model {path} "A minha irmã tem um gato preto."'
    )


@app.command(rich_help_panel="Train")
@with_settings("data", DataConfig, *PAIRS, "weights", "valid")
@with_settings("training", TrainingConfig, "steps", "seed", "init_from")
def train(
    data: DataConfig,
    out: Annotated[Path, Option(help="The run folder.")],
    preset: Annotated[str, Option(help=f"One of {', '.join(PRESETS)}.")] = "tutorial",
    config: Annotated[Path | None, Option(help="A YAML file of settings.")] = None,
    settings: Annotated[
        list[str], Option("--set", help="A setting, over all others: model.dff=1024.")
    ] = [],  # noqa: B006
    training: TrainingConfig = ...,
):
    """Train a translator, or resume a run that was stopped.

    To resume, run the same command on the same folder again.

    Exit codes: 0 done, 1 wrong input, 75 stopped by SIGTERM and 130 by Ctrl-C, both
    with the state saved: run the same command again.
    """
    given = {"data": data, "training": training}
    given = {name: x.model_dump(exclude_unset=True) for name, x in given.items()}
    overrides, begun = [given, *settings], training.init_from
    if begun is not None:
        from tfxformer.training import fine_tuning

        overrides.insert(0, fine_tuning.settings(begun))
    loaded = load_config(preset, config, overrides)
    if begun is not None and not loaded.model.dropout_rate:
        hint = "to change it: --set model.dropout_rate=0.1"
        log.info("model.dropout_rate is 0, as in %s; %s", begun, hint)
    signal.signal(signal.SIGTERM, _stop)  # until training has its own way
    start_tensorflow()
    from tfxformer.training.trainer import train

    print(train(loaded, out).path)
    known = [x for x in loaded.data.sources if x in ("phrasebook", "ted")]
    run, pairs = shlex.quote(str(out)), known[0] if known else "TEST.tsv"
    log.info("next: tfxformer evaluate --run %s --data %s", run, pairs)
    log.info("      tfxformer export --run %s", run)


@app.command(rich_help_panel="Train")
@with_settings("decoding", DecodingOptions)
@with_settings("data", DataConfig, *PAIRS)
def evaluate(
    data: DataConfig,
    run: Model = None,
    split: Annotated[str, Option(help="Or train, validation.")] = "test",
    checkpoint: Checkpoint = "best",
    lowercase: Annotated[bool, Option(help="Compare in lower case.")] = False,
    output: Annotated[Path | None, Option(help="A file for translations.")] = None,
    tokens_per_batch: TokensPerBatch = 2048,
    xla: Xla = False,
    decoding: DecodingOptions = ...,
):
    """Score translations of pairs: BLEU and chrF, by sacreBLEU."""
    if not data.sources:
        raise UserError("name the pairs to translate, such as --data test.tsv")
    if decoding.n_best > 1:
        raise UserError("--n-best: one translation is evaluated, the best")
    if output:
        check_output("--output", output, corpora.input_files(data.sources))
    options = data.model_dump(include={*PAIRS[1:]})
    loaded = corpora.load_mixture(data.sources, split, cleaned=False, **options)
    translator = load_translator(run, checkpoint, _chosen(decoding), xla)
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
@with_settings("data", DataConfig, "encoding")
def translate(
    text: Annotated[list[str] | None, Argument(help="Texts; or --input.")] = None,
    run: Model = None,
    input: Input = None,
    checkpoint: Checkpoint = "best",
    tokens_per_batch: TokensPerBatch = 2048,
    scores: Annotated[bool, Option(help="Put a score and a tab before each.")] = False,
    prefix: Annotated[str, Option(help="What each translation begins with.")] = "",
    xla: Xla = False,
    data: DataConfig = ...,
    decoding: DecodingOptions = ...,
):
    """Translate texts, line by line, in their order.

    A text may hold many sentences: each is translated by itself. With --n-best, each
    text is one sentence, and gives lines of its number, a score and a translation. With
    --prefix, each text is one sentence.
    """
    if text and input:
        raise UserError("give texts or --input, not both")
    if prefix and (decoding.n_best > 1 or scores or xla):
        raise UserError("--prefix does not go with --n-best, --scores or --xla")
    if decoding.n_best > 1 and scores:
        raise UserError("--n-best gives scores already: leave out --scores")
    texts = [
        read_argument(one, f"text {number}", data.encoding)
        for number, one in enumerate(text or [], 1)
    ]
    prefix = read_argument(prefix, "--prefix", data.encoding)
    chunks = [texts] if texts else _chunks(input, data.encoding)
    translator = load_translator(run, checkpoint, _chosen(decoding), xla)
    for name in filter(os.path.isfile, text or []):
        hint = f"to translate what is in that file: -i {shlex.quote(name)}"
        log.info("%r is translated as a text; %s", name, hint)
    first = 1
    for lines in chunks:
        if decoding.n_best > 1:
            lists = translator.n_best(lines, tokens_per_batch, first)
            rows = [(i, *row) for i, rows in enumerate(lists, first) for row in rows]
            found = [f"{i}\t{score:.4f}\t{text}" for i, text, score in rows]
        elif prefix:
            found = translator.complete(lines, [prefix] * len(lines))
        else:
            found, means = translator.translate(lines, tokens_per_batch, first=first)
            if scores:  # tabs between a text's sentences give way to the score's
                pairs = zip(found, means, strict=True)
                found = [f"{x:.4f}\t" + text.replace("\t", " ") for text, x in pairs]
        for line in found:
            print(line, flush=True)
        first += len(lines)


def _chunks(path, encoding):
    """Lines in lists: one by one for a person who types, many at once otherwise."""
    stream = open(path, "rb") if path else sys.stdin.buffer  # noqa: SIM115
    size = 1 if stream.isatty() else 1024
    return read_texts(stream, stream.name, encoding, size)


def _chosen(decoding):
    """None where nothing was given: an export then decodes as it was made to."""
    return decoding if decoding.model_fields_set else None


@app.command(rich_help_panel="Translate")
@with_settings("data", DataConfig, "columns", "encoding")
def score(
    run: Model = None,
    input: Input = None,
    checkpoint: Checkpoint = "best",
    tokens_per_batch: TokensPerBatch = 2048,
    data: DataConfig = ...,
):
    """Score given translations: how likely the model finds them.

    Each line is a source, a tab and a translation, and comes back with its score and a
    tab before it. The score is the mean log-probability of the translation's tokens;
    nan, with a warning, where a side is too long for the model.
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
                f"translation, found {lines[bad].count(chr(9))} tabs; mend the line, "
                "or name its columns, such as --columns 2,1"
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
        list[str] | None, Argument(help="Beam's, after --.")
    ] = None,
    model: Annotated[str | None, Option(help="An exported model.")] = None,
    format: Annotated[
        str | None, Option(help="text, csv, tsv, jsonl, parquet.")
    ] = None,
    column: Annotated[str, Option(help="The column or field of the texts.")] = "text",
    id_column: Annotated[str | None, Option(help="The column of ids.")] = None,
    runner: Annotated[str, Option(help="Where Apache Beam runs.")] = "DirectRunner",
):
    """Translate files of any number and size, on Apache Beam.

    Formats and ids come from the files' names and lines, unless you name a format and a
    column of ids. Writes OUT/translations-*, JSON lines (of Parquet, Parquet) with id,
    source, translation and score in any order, and OUT/dead-letters-* with the records
    that failed, their place and the reason. Paths may be of storage that Beam reaches,
    such as gs://.
    """
    need("beam", "apache_beam")
    logging.root.setLevel(logging.ERROR)  # what Beam says while it is imported
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)  # errors come as ours
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
    run: Annotated[Path, Option(help="A run folder.")],
    to: Annotated[Path, Option(help="The model repository.")] = Path("export"),
    name: Annotated[str, Option(help="The model's name in it.")] = "pt_en",
    checkpoint: Checkpoint = "best",
    format: Annotated[
        Literal["savedmodel", "ctranslate2"],
        Option(help="For TensorFlow Serving, or for CTranslate2."),
    ] = "savedmodel",
    xla: Xla = False,
    precision: Annotated[
        Literal["float32", "float16"],
        Option(help="How weights are stored; float16 is half the size."),
    ] = "float32",
    average: Annotated[
        int | None, Option(min=1, help="Average so many of the newest checkpoints.")
    ] = None,
    decoding: DecodingOptions = ...,
):
    """Export a run as the next version of a model, a SavedModel.

    How it decodes is chosen here and stays. With --xla, a server needs a flag. The last
    line is the path it wrote.
    """
    if format == "ctranslate2":
        given = [option(name) for name in decoding.model_fields_set]
        given += ["--xla"] * xla + ["--precision"] * (precision != "float32")
        if given:
            raise UserError(
                f"{', '.join(given)}: not with --format ctranslate2: CTranslate2 takes "
                "its options when it runs the model"
            )
        need("ctranslate2", "ctranslate2")
    start_tensorflow()
    from tfxformer.exporting.saved_model import export

    path, report = export(
        run, to, name, checkpoint, _chosen(decoding), xla, precision, average, format
    )
    if report:
        say(report.describe())
    print(path)


@app.command(rich_help_panel="Serve")
@with_settings("settings", ServerSettings, *SERVING)
def serve(
    repository: Annotated[Path | None, Argument(help="A model repository.")] = None,
    config: Annotated[Path | None, Option(help="A models.config instead.")] = None,
    settings: ServerSettings = ...,
):
    """Serve models as TensorFlow Serving does: by REST and gRPC.

    Each model in the repository, by default ./export or the package's own, is served in
    its newest version, and new versions take over as they appear. SIGTERM and Ctrl-C
    end it once the requests that have come are answered, with exit code 0 and 130.
    """
    need("serve", "starlette", "uvicorn", "grpc_health", "prometheus_client")
    from tfxformer.server.configs import find_models

    if config is not None and repository is not None:
        raise UserError("give a repository or --config, not both")
    if config is None and repository is None:
        here = any(Path("export").glob("*/*/saved_model.pb"))
        repository = Path("export") if here else shipped_model().parents[1]
    # What is wrong shows before TensorFlow is imported.
    find_models(repository, config)
    log.info("serving %s (loading)", config or repository)
    start_tensorflow()
    from tfxformer.server.local import serve

    serve(repository, config, settings)


@app.command(rich_help_panel="Serve")
def verify(
    path: Annotated[Path, Argument(help="A SavedModel, or its folder of versions.")],
    allow_xla: Annotated[bool, Option(help="Let signatures need XLA.")] = False,
):
    """Check that TensorFlow Serving will run a SavedModel, any one."""
    from tfxformer.exporting.verify import verify

    report = verify(path, allow_xla=allow_xla)
    print(report.describe())
    if not report.ok:
        raise Exit(1)


@app.command(rich_help_panel="Look")
def demo(
    run: Model = None,
    host: Annotated[str, Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="0 for a free one.")] = 7860,
    checkpoint: Checkpoint = "best",
):
    """Open a local page: translate, and see attention at work.

    Prints the page's address. SIGTERM ends it with exit code 0, Ctrl-C with 130.
    """
    need("demo", "gradio", "matplotlib")
    start_tensorflow()
    from tfxformer.demo import demo

    demo(run, checkpoint, host, port)


app.add_typer(plot, name="plot", rich_help_panel="Look")


if __name__ == "__main__":
    main()
