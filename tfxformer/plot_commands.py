"""The commands of `tfxformer plot`: one a picture, each prints the path it wrote."""

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from tfxformer.commands import Commands, Quiet
from tfxformer.console import start_logging
from tfxformer.corpora.files import check_encoding, parse_columns
from tfxformer.errors import UserError
from tfxformer.exporting.repository import chosen_model
from tfxformer.outputs import check_output
from tfxformer.quiet import start_tensorflow

app = Commands("Draw a model, its attention, its data and its training.")

PICTURES = (".png", ".svg")
PAGE = ".html"

Out = Annotated[Path, typer.Option(help="The picture to write, .png or .svg.")]
Dark = Annotated[bool, typer.Option("--dark", help="Light letters on dark paper.")]
MODEL = "A run folder, or an exported SavedModel"
SHIPPED = "by default the Portuguese-to-English model that comes with the package"
Model = Annotated[
    Path | None, typer.Option("--run", "--model", help=f"{MODEL}; {SHIPPED}.")
]
Checkpoint = Annotated[
    str,
    typer.Option(help="Which weights of a run folder: best, last or ema."),
]
DataDir = Annotated[
    str | None, typer.Option(help="TensorFlow Datasets' folder, for ted.")
]
Split = Annotated[
    str, typer.Option(help="Of phrasebook and ted: train, validation or test.")
]
Columns = Annotated[
    str | None,
    typer.Option(
        callback=lambda text: text and parse_columns(text),
        metavar="N,N",
        help="The columns of a TSV that have the source and the translation, from 1, "
        "such as 2,1; by default it has these two alone.",
    ),
]
Encoding = Annotated[
    str,
    typer.Option(
        callback=check_encoding,
        help="How files are written where not in UTF-8, such as latin-1.",
    ),
]
DATA = "Where pairs come from: phrasebook, ted, a TSV's path (.gz too), or SRC,TGT."


@app.callback()
def options(quiet: Quiet = False):
    """What holds for every plot."""
    if quiet:
        start_logging(quiet)


@app.command()
def positions(
    out: Out,
    kind: Annotated[
        str,
        typer.Option(
            help="heatmap, curves (of single depths) or similarity (of positions)."
        ),
    ] = "heatmap",
    length: Annotated[int, typer.Option(min=1, help="How many positions.")] = 100,
    depth: Annotated[
        int | None,
        typer.Option(min=1, help="How long each encoding is; by default 512."),
    ] = None,
    depths: Annotated[
        str, typer.Option(help="Which depths to draw curves of, from 0.")
    ] = "1,5,15,20",
    run: Annotated[
        Path | None,
        typer.Option("--run", "--model", help=f"{MODEL}: draw those of its encoder."),
    ] = None,
    checkpoint: Checkpoint = "best",
    dark: Dark = False,
):
    """Draw positional encodings: the paper's sines and cosines, or a model's own."""
    _one_of("--kind", kind, ("heatmap", "curves", "similarity"))
    chosen = _whole_numbers("--depths", depths)
    _check_out(out)
    if run is None:
        start_tensorflow()
        from tfxformer.layers.positional import positional_encoding

        encoding = positional_encoding(length, depth or 512)
    else:
        if depth is not None:
            raise UserError("--depth does not go with --run: a model has its own")
        layer = _translator(run, checkpoint).transformer.encoder.pos_embedding
        if not layer.use_positions:
            raise UserError(f"{run}: its model has no positions")
        if length > layer.max_length:
            raise UserError(
                f"--length {length}: the model has {layer.max_length} positions"
            )
        encoding = layer.encodings(length)
    from tfxformer import plots

    if kind == "heatmap":
        figure = plots.draw_positions(encoding, dark=dark)
    elif kind == "similarity":
        figure = plots.draw_position_similarity(encoding, dark=dark)
    else:
        deepest = encoding.shape[1] - 1
        if max(chosen) > deepest:
            raise UserError(f"--depths {depths}: there are 0 to {deepest}")
        figure = plots.draw_position_curves(encoding, chosen, dark=dark)
    print(plots.save(figure, out))


@app.command()
def masks(
    text: Annotated[str, typer.Argument(help="A sentence.")],
    out: Out,
    kind: Annotated[
        str,
        typer.Option(
            help="look-ahead (as the decoder reads), padding (as the encoder reads a "
            "sentence beside longer ones) or both."
        ),
    ] = "look-ahead",
    length: Annotated[
        int | None,
        typer.Option(min=1, help="Pad to so many tokens; of a padding mask, by 3."),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            "--run",
            "--model",
            help=f"{MODEL}, to cut with its tokenizer, not at spaces.",
        ),
    ] = None,
    dark: Dark = False,
):
    """Draw who may read whom in a sentence, and what is added to the scores."""
    _one_of("--kind", kind, ("look-ahead", "padding", "both"))
    _check_text(text)
    _check_out(out)
    start_tensorflow()
    tokens = text.split() if run is None else _pieces(run, text)
    tokens = ["[start]", *tokens] if kind != "padding" else [*tokens, "[end]"]
    if length is None:
        length = len(tokens) + (0 if kind == "look-ahead" else 3)
    if length < len(tokens):
        raise UserError(f"--length {length}: the sentence has {len(tokens)} tokens")
    import numpy as np

    from tfxformer import plots
    from tfxformer.layers.masking import look_ahead_mask, padding_mask

    real = np.arange(length) < len(tokens)
    mask = np.ones((length, length), bool)
    if kind != "padding":
        mask &= np.asarray(look_ahead_mask(length))[0, 0]
    if kind != "look-ahead":
        mask &= np.asarray(padding_mask(real.astype("int32")[None]))
    tokens += ["[pad]"] * (length - len(tokens))
    titles = {"both": "Look-ahead and padding mask"}
    title = titles.get(kind, f"{kind.capitalize()} mask")
    figure = plots.draw_mask(tokens, tokens, mask, title, dark=dark)
    print(plots.save(figure, out))


@app.command()
def attention(
    text: Annotated[str, typer.Argument(help="A sentence in the source language.")],
    out: Annotated[
        Path,
        typer.Option(
            help="The picture to write, .png or .svg, or .html: a page on which one "
            "points at a token and sees what it reads."
        ),
    ],
    run: Model = None,
    kind: Annotated[
        str,
        typer.Option(
            help="cross (what the translation reads of the source), encoder (what the "
            "source reads of itself) or decoder (what the translation does)."
        ),
    ] = "cross",
    layer: Annotated[
        int | None, typer.Option(min=1, help="One layer, from 1; by default all.")
    ] = None,
    head: Annotated[
        int | None, typer.Option(min=1, help="Of that layer, one head, from 1.")
    ] = None,
    checkpoint: Checkpoint = "best",
    dark: Dark = False,
):
    """Translate a sentence and draw what its tokens read: by layers and heads."""
    _one_of("--kind", kind, ("cross", "encoder", "decoder"))
    _check_text(text)
    _check_out(out, (*PICTURES, PAGE))
    page = out.suffix.lower() == PAGE
    if page and layer is not None:
        raise UserError("--layer does not go with .html: on the page one chooses")
    if head is not None and layer is None:
        raise UserError("--head: give --layer, too")
    translator = _translator(run, checkpoint)
    from tfxformer.attention_maps import attention_maps

    maps = attention_maps(translator, text)
    queries, keys, weights = maps.of_kind(kind)
    title = {
        "cross": "Cross-attention",
        "encoder": "Self-attention of the encoder",
        "decoder": "Causal self-attention of the decoder",
    }[kind]
    for option, given, there in zip(
        ("--layer", "--head"), (layer, head), weights.shape[:2], strict=True
    ):
        if given is not None and given > there:
            raise UserError(f"{option} {given}: the model has 1 to {there}")
    if page:
        from tfxformer.attention_page import AttentionPage, attention_html

        html = attention_html(queries, keys, weights, title, dark or None)
        print(AttentionPage(html).save(out))
        return
    from tfxformer import plots

    if layer is None:
        figure = plots.draw_layers(queries, keys, weights, title, dark=dark)
    elif head is None:
        title += f", layer {layer}"
        figure = plots.draw_heads(queries, keys, weights[layer - 1], title, dark=dark)
    else:
        title += f", layer {layer}, head {head}"
        weights = weights[layer - 1, head - 1]
        figure = plots.draw_head(queries, keys, weights, title, dark=dark)
    print(plots.save(figure, out))


@app.command()
def schedule(
    out: Out,
    preset: Annotated[
        list[str],
        typer.Option(
            help="Settings whose schedule to draw: tiny, tutorial, base, big. Repeat "
            "it to draw several; by default all, without --run."
        ),
    ] = [],  # noqa: B006 - typer reads it, nobody changes it
    run: Annotated[
        list[Path], typer.Option(help="A run folder. Repeat it to draw several.")
    ] = [],  # noqa: B006
    steps: Annotated[
        int | None,
        typer.Option(
            min=1, help="Steps to draw; by default 5 times the longest warm-up."
        ),
    ] = None,
    dark: Dark = False,
):
    """Draw learning rates over training steps: of presets, and of runs."""
    from tfxformer.config import PRESETS, load_config

    presets = preset or ([] if run else [*PRESETS])
    configs = {f"preset {name}": load_config(name) for name in presets}
    for folder, name in zip(run, _names(run), strict=True):
        file = folder / "config.yaml"
        if not file.exists():
            raise UserError(f"{folder}: no run folder, it has no config.yaml")
        configs[name] = load_config(file=file)
    _check_out(out)
    start_tensorflow()
    from tfxformer import plots
    from tfxformer.training.schedule import make_schedule

    schedules = {
        name: make_schedule(config.training, config.model.d_model)
        for name, config in configs.items()
    }
    steps = steps or 5 * max(x.training.warmup_steps for x in configs.values())
    print(plots.save(plots.draw_schedules(schedules, steps, dark=dark), out))


@app.command()
def lengths(
    data: Annotated[str, typer.Option(help=DATA)],
    out: Out,
    run: Annotated[
        Path | None,
        typer.Option(
            "--run", "--model", help=f"{MODEL}, to count its tokens; else words."
        ),
    ] = None,
    split: Split = "train",
    data_dir: DataDir = None,
    columns: Columns = None,
    encoding: Encoding = "utf-8",
    dark: Dark = False,
):
    """Draw how long the sentences of both sides are."""
    from tfxformer import corpora

    corpora.check_source(data)
    _check_out(out, inputs=corpora.input_files([data]))
    pairs, _ = corpora.load(
        data, split, data_dir=data_dir, columns=columns, encoding=encoding
    )
    sides = {"source": [p.source for p in pairs], "target": [p.target for p in pairs]}
    if run is None:
        unit = "words"
        counts = {
            side: [len(t.split()) for t in texts] for side, texts in sides.items()
        }
    else:
        unit = "tokens"
        encode = _tokenizer(run).encode
        counts = {side: [*map(len, encode(texts))] for side, texts in sides.items()}
    from tfxformer import plots

    print(plots.save(plots.draw_lengths(counts, unit, dark=dark), out))


@app.command()
def curves(
    folders: Annotated[list[Path], typer.Argument(help="Run folders.")],
    out: Out,
    dark: Dark = False,
):
    """Draw the training curves of runs: loss, accuracy, BLEU, speed."""
    from tfxformer.run import measurements

    _check_out(out)
    rows = map(measurements, folders)
    measured = dict(zip(_names(folders), rows, strict=True))
    from tfxformer import plots

    try:
        figure = plots.draw_curves(measured, dark=dark)
    except ValueError as error:
        raise UserError(f"{', '.join(map(str, folders))}: {error}") from None
    print(plots.save(figure, out))


@app.command()
def neighbours(
    words: Annotated[
        list[str], typer.Argument(help="Words or pieces that the vocabulary has whole.")
    ],
    out: Out,
    run: Model = None,
    count: Annotated[int, typer.Option(min=1, help="Neighbours of each.")] = 6,
    checkpoint: Checkpoint = "best",
    dark: Dark = False,
):
    """Draw which pieces' embeddings are nearest to those of some words."""
    _check_out(out)
    translator = _translator(run, checkpoint)
    tokenizer = translator.tokenizer
    size = tokenizer.vocab_size
    pieces = tokenizer.tokens(range(size))
    chosen = []
    for word in words:
        found = next((p for p in (f"\u2581{word}", word) if p in pieces), None)
        if found is None:
            ids = tokenizer.tokenize([word])[0].numpy()
            cut = " ".join(tokenizer.tokens(ids))
            raise UserError(f"{word!r}: the vocabulary has it in pieces only: {cut}")
        chosen.append(found)
    layer = translator.transformer.encoder.pos_embedding.embedding
    from tfxformer import plots

    figure = plots.draw_neighbours(
        layer.embeddings[:size], pieces, [*dict.fromkeys(chosen)], count, dark=dark
    )
    print(plots.save(figure, out))


def _check_out(out, suffixes=PICTURES, inputs=()):
    """Stops before the work what could not be written after it."""
    if out.suffix.lower() not in suffixes:
        kinds = f"{', '.join(suffixes[:-1])} or {suffixes[-1]}"
        raise UserError(f"--out {out}: its name must end in {kinds}")
    check_output("--out", out, inputs)
    page = out.suffix.lower() == PAGE
    if not page and importlib.util.find_spec("matplotlib") is None:
        raise UserError("matplotlib is missing: pip install 'tfxformer[plots]'")


def _check_text(text):
    if any("\ud800" <= c <= "\udfff" for c in text):
        raise UserError("the text is not UTF-8: write it in UTF-8")
    if not text.strip():
        raise UserError("the text is empty: give a sentence")


def _chosen(path):
    if path is not None and not path.exists():
        raise UserError(f"{path}: there is no such run folder or exported model")
    return chosen_model(path)


def _one_of(option, value, known):
    if value not in known:
        raise UserError(f"{option} {value!r}: there are {', '.join(known)}")


def _whole_numbers(option, text):
    try:
        numbers = [int(number) for number in text.split(",")]
        if min(numbers) < 0:
            raise ValueError
    except ValueError:
        raise UserError(
            f"{option} {text!r}: write whole numbers with commas between, such as 1,5"
        ) from None
    return numbers


def _names(paths):
    """What to call runs: by their folders, or where two are called so, by all."""
    names = [path.resolve().name for path in paths]
    alike = len({*names}) < len(names)
    return [str(path) for path in paths] if alike else names


def _translator(path, checkpoint):
    path = _chosen(path)
    start_tensorflow()
    from tfxformer.translator import Translator

    return Translator.load(path, checkpoint)


def _tokenizer(path):
    """The tokenizer of a run folder, or of an export."""
    path = _chosen(path)
    start_tensorflow()
    from tfxformer.exporting.weights import read_vocabulary
    from tfxformer.run import Run
    from tfxformer.tokenizer import Tokenizer

    if (path / "saved_model.pb").exists():
        return Tokenizer(read_vocabulary(path))
    return Run.open(path).tokenizer()


def _pieces(path, text):
    tokenizer = _tokenizer(path)
    return tokenizer.tokens(tokenizer.encode([text])[0])
