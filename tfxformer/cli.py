"""The command line: one command a verb.

Standard output carries the answer alone; progress and logs go to standard error.
Heavy imports wait until a command needs them, so that help and errors come at once.
"""

import json
import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from tfxformer import __version__
from tfxformer.console import say, start_logging
from tfxformer.errors import UserError
from tfxformer.quiet import start_tensorflow

log = logging.getLogger("tfxformer")

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Train a Transformer translator on two columns of text, and serve it.",
)

Source = Annotated[
    list[str],
    typer.Option(
        "--data",
        help="Where sentence pairs come from: phrasebook, ted, a TSV's path (.gz "
        "too), or SRC,TGT paths. Repeat it to mix several.",
    ),
]
Model = Annotated[
    Path,
    typer.Option("--run", "--model", help="A run folder, or an exported SavedModel."),
]
Checkpoint = Annotated[
    str, typer.Option(help="Which weights of a run folder: best or last.")
]
DataDir = Annotated[
    str | None, typer.Option(help="TensorFlow Datasets' folder, for ted.")
]
Reverse = Annotated[bool, typer.Option(help="Swap source and target.")]
Strict = Annotated[
    bool, typer.Option(help="Stop at a malformed line instead of skipping it.")
]


def main():
    """Runs the command line; wrong input ends in one line and exit code 1."""
    try:
        app()
    except UserError as error:
        _fail(str(error))
    except BrokenPipeError:  # whoever read our answer has seen enough
        sys.stdout = None
        sys.exit(0)
    except KeyboardInterrupt:
        _fail("interrupted", code=130)


def _fail(message, code=1):
    say(f"tfxformer: error: {message}")
    sys.exit(code)


def _version(value):
    if value:
        print(__version__)
        raise typer.Exit


@app.callback()
def options(
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Warnings and errors only.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, help="Print the version."),
    ] = False,
):
    """What holds for every command."""
    start_logging(quiet)


@app.command()
def quickstart(
    out: Annotated[
        Path | None, typer.Option(help="The folder to work in; by default a new one.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.")] = 0,
):
    """Train on the embedded phrasebook, evaluate, export, translate: in minutes."""
    start_tensorflow()
    from tfxformer.quickstart import quickstart

    quickstart(out, seed)


@app.command()
def train(
    data: Source = [],  # noqa: B006 - typer reads it, nobody changes it
    out: Annotated[Path, typer.Option(help="The run folder.")] = ...,
    preset: Annotated[
        str, typer.Option(help="Settings to begin from: tiny, tutorial, base, big.")
    ] = "tutorial",
    config: Annotated[
        Path | None, typer.Option(help="A YAML file with settings, over the preset's.")
    ] = None,
    settings: Annotated[
        list[str],
        typer.Option("--set", help="A setting, over all others: model.dff=1024."),
    ] = [],  # noqa: B006
    steps: Annotated[int | None, typer.Option(help="Training steps.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of all random numbers.")
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(help="How often to draw from each --data, such as 1,3."),
    ] = None,
    valid: Annotated[
        str | None,
        typer.Option(help="Pairs to validate on; by default some are held out."),
    ] = None,
    data_dir: DataDir = None,
    reverse: Annotated[
        bool | None, typer.Option("--reverse", help="Swap source and target.")
    ] = None,
    strict: Annotated[
        bool | None, typer.Option("--strict", help="Stop at a malformed line.")
    ] = None,
):
    """Train a translator; the same command on the same folder goes on."""
    from tfxformer.config import load_config

    given = {
        "data.sources": data or None,
        "data.weights": _numbers(weights, "--weights"),
        "data.valid": valid,
        "data.data_dir": data_dir,
        "data.reverse": reverse,
        "data.strict": strict,
        "training.steps": steps,
        "training.seed": seed,
    }
    overrides = [
        f"{name}={json.dumps(value, ensure_ascii=False)}"
        for name, value in given.items()
        if value is not None
    ]
    loaded = load_config(preset, config, [*overrides, *settings])
    start_tensorflow()
    from tfxformer.training.trainer import train

    print(train(loaded, out).path)


@app.command()
def translate(
    text: Annotated[
        list[str] | None,
        typer.Argument(help="Texts; without any, lines of --input or standard input."),
    ] = None,
    run: Model = ...,
    input: Annotated[
        Path | None, typer.Option("--input", "-i", help="A file, a text a line.")
    ] = None,
    checkpoint: Checkpoint = "best",
    batch_size: Annotated[
        int, typer.Option(min=1, help="The most texts translated at once.")
    ] = 64,
    scores: Annotated[
        bool, typer.Option(help="Put each translation's score before it, and a tab.")
    ] = False,
):
    """Translate texts, line by line, in their order."""
    if text and input:
        raise UserError("give texts or --input, not both")
    stream = None
    if not text:
        stream = _open(input, "rb") if input else sys.stdin.buffer
    start_tensorflow()
    from tfxformer.translator import Translator

    translator = Translator.load(run, checkpoint)
    first = 1
    for lines in _chunks(stream) if stream else [text]:
        translations, means = translator.translate(lines, batch_size, first)
        for translation, mean in zip(translations, means, strict=True):
            line = f"{mean:.4f}\t{translation}\n" if scores else f"{translation}\n"
            sys.stdout.buffer.write(line.encode())
        sys.stdout.buffer.flush()
        first += len(lines)


@app.command()
def evaluate(
    data: Source,
    run: Model,
    split: Annotated[
        str, typer.Option(help="Of phrasebook and ted: train, validation or test.")
    ] = "test",
    checkpoint: Checkpoint = "best",
    data_dir: DataDir = None,
    reverse: Reverse = False,
    strict: Strict = False,
    lowercase: Annotated[
        bool, typer.Option(help="Compare in lower case, for lower-cased references.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option(help="Write the translations here, one a line.")
    ] = None,
    batch_size: Annotated[
        int, typer.Option(min=1, help="The most sentences translated at once.")
    ] = 64,
):
    """Score translations of pairs with BLEU and chrF, by sacreBLEU."""
    from tfxformer import corpora

    for source in data:
        corpora.check_source(source)
    written = _open(output, "wb") if output else None
    start_tensorflow()
    from tfxformer.evaluation import evaluate
    from tfxformer.translator import Translator

    translator = Translator.load(run, checkpoint)
    for source in data:
        pairs, counts = corpora.load(
            source,
            split,
            data_dir=data_dir,
            reverse=reverse,
            strict=strict,
            cleaned=False,
        )
        log.info("%s: %s", source, counts.describe())
        result = evaluate(translator, pairs, lowercase, batch_size)
        print(f"{source}: {result.sentences:,} sentences")
        print(result.describe())
        if written:
            written.write("".join(f"{t}\n" for t in result.translations).encode())
            written.flush()


@app.command()
def export(
    run: Annotated[Path, typer.Option(help="A run folder.")],
    to: Annotated[Path, typer.Option(help="The model repository.")] = Path("export"),
    name: Annotated[str, typer.Option(help="The model's name in it.")] = "pt_en",
    checkpoint: Checkpoint = "best",
):
    """Export a run as the next version of a model for TensorFlow Serving.

    The last line is the path it wrote.
    """
    start_tensorflow()
    from tfxformer.saved_model import export

    path, report = export(run, to, name, checkpoint)
    say(report.describe())
    print(path)


@app.command()
def verify(
    path: Annotated[
        Path, typer.Argument(help="A SavedModel, or a model's folder of versions.")
    ],
    run: Annotated[
        Path | None,
        typer.Option(help="Compare with what this run answers now, too."),
    ] = None,
    checkpoint: Checkpoint = "best",
    allow_xla: Annotated[
        bool, typer.Option(help="Let signatures need XLA, and say which flag it takes.")
    ] = False,
):
    """Find out whether TensorFlow Serving will run a SavedModel: ours or another."""
    start_tensorflow()
    from tfxformer.verify import verify

    translator = None
    if run is not None:
        from tfxformer.translator import Translator

        translator = Translator.load(run, checkpoint)
    report = verify(path, translator, allow_xla=allow_xla)
    print(report.describe())
    if not report.ok:
        raise typer.Exit(1)


def _numbers(text, option):
    if text is None:
        return None
    try:
        return [float(number) for number in text.split(",")]
    except ValueError:
        raise UserError(
            f"{option} {text!r}: write numbers with commas between, such as 1,3"
        ) from None


def _open(path, mode):
    try:
        return open(path, mode)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None


def _chunks(stream):
    """Lines in lists: one by one for a person who types, many at once otherwise."""
    size = 1 if stream.isatty() else 1024
    lines = []
    for line in stream:
        lines.append(line.rstrip(b"\r\n"))
        if len(lines) == size:
            yield lines
            lines = []
    if lines:
        yield lines


if __name__ == "__main__":
    main()
