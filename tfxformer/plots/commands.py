"""The commands of `tfxformer plot`: each draws one picture and prints its path."""

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from typer import Argument, Context, Option

from tfxformer import corpora, plots
from tfxformer.commands import (
    Checkpoint,
    Model,
    commands,
    load_translator,
    need,
    with_settings,
)
from tfxformer.config import PRESETS, DataConfig, load_config
from tfxformer.console import start_tensorflow
from tfxformer.errors import UserError, check_output, write_file
from tfxformer.training.run import Run, measurements

app = commands("Draw a model, its attention, its data and its training.")


def _check_out(context: Context, out: Path):
    """Refuses what cannot be written before the work begins."""
    forms = {"attention": [".png", ".svg", ".html"], "decoding": [".gif"]}
    forms = forms.get(context.info_name, [".png", ".svg"])
    if out.suffix.lower() not in forms:
        raise UserError(f"--out {out}: its name must end in {' or '.join(forms)}")
    check_output("--out", out)
    if out.suffix.lower() != ".html":
        need("plots", "matplotlib")
    return out


Text = Annotated[str, Argument(help="A sentence.")]
Out = Annotated[Path, Option(callback=_check_out, help="A .png or .svg file.")]
OwnModel = Annotated[
    Path | None,
    Option("--run", "--model", help="A run folder, or an exported SavedModel."),
]
Dark = Annotated[bool, Option("--dark", help="Light letters on a dark background.")]


@app.command()
def positions(
    out: Out,
    kind: Literal["heatmap", "curves", "similarity"] = "heatmap",
    length: Annotated[int, Option(min=1, help="How many positions.")] = 100,
    depth: Annotated[int, Option(min=1, help="Of each, without --run.")] = 512,
    depths: Annotated[str, Option(help="Depths of curves, from 0.")] = "1,5,15,20",
    run: OwnModel = None,
    checkpoint: Checkpoint = "best",
    dark: Dark = False,
):
    """Draw positional encodings: the paper's sines and cosines, or a model's own."""
    if run is None:
        start_tensorflow()
        from tfxformer.layers.positional import positional_encoding

        encoding = positional_encoding(length, depth)
    else:
        layer = load_translator(run, checkpoint).transformer.encoder.pos_embedding
        most = layer.max_length if layer.use_positions else 0
        if length > most:
            raise UserError(f"--length {length}: the model has {most} positions")
        encoding = layer.encodings(length)
    known = range(encoding.shape[1])
    try:
        chosen = [known[int(number)] for number in depths.split(",")]
    except (ValueError, IndexError):
        raise UserError(f"--depths {depths}: choose from 0 to {known[-1]}") from None
    _draw(plots.draw_positions, out, dark, encoding, kind, chosen)


@app.command()
def masks(
    text: Text,
    out: Out,
    kind: Literal["look-ahead", "padding", "both"] = "look-ahead",
    length: Annotated[int | None, Option(min=1, help="Pad to so many tokens.")] = None,
    run: OwnModel = None,
    dark: Dark = False,
):
    """Draw which token may read which, and what is added to the scores.

    The text is cut at spaces, or by the tokenizer of --run. A padding mask has 3 tokens
    of padding where --length gives no number.
    """
    tokens = text.split() if run is None else _tokens(load_translator(run), text)
    tokens = [*tokens, "[end]"] if kind == "padding" else ["[start]", *tokens]
    size = length or len(tokens) + (0 if kind == "look-ahead" else 3)
    if size < len(tokens):
        raise UserError(f"--length {length}: the sentence has {len(tokens)} tokens")
    mask = np.ones((size, size), bool) if kind == "padding" else np.tri(size) > 0
    if kind != "look-ahead":
        mask &= np.arange(size) < len(tokens)
    tokens += ["[pad]"] * (size - len(tokens))
    title = "Look-ahead and padding" if kind == "both" else kind.capitalize()
    _draw(plots.draw_mask, out, dark, tokens, tokens, mask, f"{title} mask")


@app.command()
def attention(
    text: Text,
    out: Out,
    run: Model = None,
    kind: Literal["cross", "encoder", "decoder"] = "cross",
    layer: Annotated[int | None, Option(min=1, help="One layer, from 1.")] = None,
    head: Annotated[int | None, Option(min=1, help="One head of it, from 1.")] = None,
    checkpoint: Checkpoint = "best",
    dark: Dark = False,
):
    """Translate a sentence and draw what its tokens read, by layers and heads.

    An .html file is a page: point at a token to see what it reads.
    """
    _check_text(text)
    if head is not None and layer is None:
        raise UserError("--head: give --layer, too")
    translator = load_translator(run, checkpoint)
    from tfxformer.plots.attention_maps import AttentionPage, attention_maps, readable

    queries, keys, weights = attention_maps(translator, text)[kind]
    queries, keys = readable(queries), readable(keys)
    title = "Cross-attention" if kind == "cross" else f"Self-attention of the {kind}"
    for name, number in (("layer", layer), ("head", head)):
        if number is not None:
            if number > len(weights):
                raise UserError(f"--{name} {number}: the model has {len(weights)}")
            weights = weights[number - 1]
            title += f", {name} {number}"
    if out.suffix.lower() == ".html":
        print(AttentionPage(queries, keys, weights, title, dark or None).save(out))
        return
    _draw(plots.draw_attention, out, dark, queries, keys, weights, title)


@app.command()
def decoding(
    text: Text,
    out: Annotated[Path, Option(callback=_check_out, help="A .gif file.")],
    run: Model = None,
    checkpoint: Checkpoint = "best",
):
    """Animate how the decoder writes a translation, one token at a time.

    Lines show the new token's attention to the source, in the head that aligns words
    best, and numbers show the probability of each token.
    """
    _check_text(text)
    translator = load_translator(run, checkpoint)
    from tfxformer.plots import attention_maps as maps

    found = maps.attention_maps(translator, text)
    target, source, weights = found["cross"]
    layer, head = maps.best_head(weights)
    chosen = translator.tokenizer.target.processor.piece_to_id(target)
    shares = maps.token_probabilities(translator, found)[range(len(target)), chosen]
    note = f"lines: attention of layer {layer + 1}, head {head + 1}; below: probability"
    sides = maps.readable(source), maps.readable(target)
    frames = plots.decoding_frames(*sides, weights[layer, head], shares, note)
    print(write_file(out, plots.gif(frames)))


@app.command()
def schedule(
    out: Out,
    preset: Annotated[list[str] | None, Option(help="Repeat for several.")] = None,
    run: Annotated[list[Path] | None, Option(help="Run folder; also several.")] = None,
    steps: Annotated[int | None, Option(min=1, help="5 warm-ups by default.")] = None,
    dark: Dark = False,
):
    """Draw learning rates over training steps: of presets, and of runs."""
    presets = preset or ([] if run else [*PRESETS])
    configs = {f"preset {name}": load_config(name) for name in presets}
    configs |= {str(folder): Run.open(folder).config() for folder in run or []}
    start_tensorflow()
    from tfxformer.training.step import make_schedule

    schedules = {
        name: make_schedule(x.training, x.model.d_model) for name, x in configs.items()
    }
    steps = steps or 5 * max(x.training.warmup_steps for x in configs.values())
    _draw(plots.draw_schedules, out, dark, schedules, steps)


@app.command()
@with_settings("data", DataConfig, "sources", "data_dir", "columns", "encoding")
def lengths(
    data: DataConfig,
    out: Out,
    run: OwnModel = None,
    split: Annotated[str, Option(help="Of phrasebook and ted.")] = "train",
    dark: Dark = False,
):
    """Draw how long sentences are, in words, or in the tokens of --run."""
    if not data.sources:
        raise UserError("name the pairs, such as --data pairs.tsv")
    options = data.model_dump(include={"data_dir", "columns", "encoding"})
    loaded = (corpora.load(source, split, **options) for source in data.sources)
    pairs = [pair for found, _ in loaded for pair in found]
    unit, cut = "words", lambda texts: map(str.split, texts)
    if run is not None:
        unit, cut = "tokens", load_translator(run).tokenizer.encode
    sides = {"source": [p.source for p in pairs], "target": [p.target for p in pairs]}
    counts = {side: [*map(len, cut(texts))] for side, texts in sides.items()}
    _draw(plots.draw_lengths, out, dark, counts, unit)


@app.command()
def curves(
    folders: Annotated[list[Path], Argument(help="Run folders.")],
    out: Out,
    dark: Dark = False,
):
    """Draw the training curves of runs: loss, accuracy, BLEU, speed."""
    rows = {str(folder): measurements(folder) for folder in folders}
    _draw(plots.draw_curves, out, dark, rows)


@app.command()
def neighbours(
    words: Annotated[list[str], Argument(help="Words that the vocabulary has whole.")],
    out: Out,
    run: Model = None,
    count: Annotated[int, Option(min=1, help="Neighbours of each.")] = 6,
    checkpoint: Checkpoint = "best",
    dark: Dark = False,
):
    """Draw which tokens' embeddings are nearest to those of some words."""
    translator = load_translator(run, checkpoint)
    tokens = translator.tokenizer.tokens(range(translator.tokenizer.vocab_size))
    chosen = {}
    for word in words:
        found = [token for token in (f"\u2581{word}", word) if token in tokens]
        if not found:
            parts = " ".join(_tokens(translator, word))
            raise UserError(f"{word!r}: the vocabulary has parts of it only: {parts}")
        chosen[found[0]] = word
    embeddings = translator.transformer.encoder.pos_embedding.embedding.embeddings
    _draw(plots.draw_neighbours, out, dark, embeddings, tokens, [*chosen], count)


def _check_text(text):
    if not text.strip():
        raise UserError("the text is empty: give a sentence")


def _draw(function, out, dark, *arguments):
    import matplotlib.style

    with matplotlib.style.context("dark_background" if dark else "default"):
        try:
            figure = function(*arguments)
        except ValueError as error:  # nothing to draw
            raise UserError(str(error)) from None
        print(plots.save(figure, out))


def _tokens(translator, text):
    return translator.tokenizer.tokens(translator.tokenizer.encode([text])[0])
