"""The commands of `tfxformer plot`: each draws one picture and prints its path."""

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from typer import Argument, Option

from tfxformer import corpora, plots
from tfxformer.commands import Model, commands, load_translator, need, with_settings
from tfxformer.config import PRESETS, DataConfig, load_config
from tfxformer.console import start_tensorflow
from tfxformer.errors import UserError, check_output, write_file
from tfxformer.training.run import measurements

app = commands("Draw a model, its attention, its data and its training.")

# The settings that say how to read pairs.
READING = ("data_dir", "columns", "encoding")


def _check_out(out: Path):
    """Refuses what cannot be written before the work begins."""
    form = out.suffix.lower()
    if form not in (".png", ".svg"):
        problem = f"--out {out}: its name must end in .png or .svg"
        page = f"; for a page to explore: tfxformer demo --to {out}"
        raise UserError(problem + page if form == ".html" else problem)
    check_output("--out", out)
    need("plots", ["matplotlib"])
    return out


def _check_text(text: str):
    """Refuses a text without words."""
    if not corpora.normalize(text):
        raise UserError("the text is empty: give a sentence")
    return text


Text = Annotated[str, Argument(callback=_check_text, help="A sentence.")]
Out = Annotated[Path, Option(callback=_check_out, help="A .png or .svg file.")]
Dark = Annotated[bool, Option("--dark", help="Light letters on a dark background.")]
Presets = Annotated[list[str] | None, Option(help="Repeat for several.")]
Folders = Annotated[list[Path], Argument(help="Run folders.")]


@app.command()
def positions(
    out: Out,
    kind: Literal["heatmap", "curves", "similarity"] = "heatmap",
    length: Annotated[int, Option(min=1, help="How many positions.")] = 100,
    dark: Dark = False,
):
    """Draw positional encodings: the paper's sines and cosines."""
    start_tensorflow()
    from tfxformer.layers.positional import positional_encoding

    encoding = positional_encoding(length, 512)
    with _background(dark):
        _save(plots.draw_positions(encoding, kind), out)


@app.command()
def masks(
    text: Text,
    out: Out,
    kind: Literal["look-ahead", "padding", "both"] = "look-ahead",
    dark: Dark = False,
):
    """Draw which word may read which, and what is added to the scores.

    A padding mask has 3 tokens of padding.
    """
    words = ["[start]", *text.split()]
    tokens = words if kind == "look-ahead" else words + 3 * ["[pad]"]
    is_word = np.arange(len(tokens)) < len(words)  # (key,)
    mask = np.tile(is_word, (len(tokens), 1))  # (query, key)
    if kind != "padding":
        mask &= np.tri(len(tokens), dtype=bool)  # no token reads later ones
    title = "Look-ahead and padding" if kind == "both" else kind.capitalize()
    with _background(dark):
        _save(plots.draw_mask(tokens, tokens, mask, f"{title} mask"), out)


@app.command()
def attention(
    text: Text,
    out: Out,
    run: Model = None,
    kind: Literal["cross", "encoder", "decoder"] = "cross",
    layer: Annotated[int | None, Option(min=1, help="One layer, from 1.")] = None,
    head: Annotated[int | None, Option(min=1, help="One head of it, from 1.")] = None,
    dark: Dark = False,
):
    """Translate a sentence and draw what its tokens read, by layers and heads."""
    if head is not None and layer is None:
        raise UserError("--head: give --layer, too")
    translator = load_translator(run)
    from tfxformer.plots.attention_maps import attention_maps, readable

    queries, keys, weights = attention_maps(translator, text)[kind]
    queries, keys = readable(queries), readable(keys)
    title = "Cross-attention" if kind == "cross" else f"Self-attention of the {kind}"
    rows = {
        "cross": "target token to write (query)",
        "encoder": "source token (query)",
        "decoder": "target token (query)",
    }
    names = {
        "rows": rows[kind],
        "columns": "target token (key)" if kind == "decoder" else "source token (key)",
    }
    # A number takes away the first axis of (layers, heads, target, source).
    for axis, number in (("layer", layer), ("head", head)):
        if number is not None:
            if number > len(weights):
                raise UserError(f"--{axis} {number}: the model has {len(weights)}")
            weights = weights[number - 1]
            title += f", {axis} {number}"
    with _background(dark):
        _save(plots.draw_attention(queries, keys, weights, title, **names), out)


@app.command()
def schedule(out: Out, preset: Presets = None, dark: Dark = False):
    """Draw learning rates over 5 warm-ups, by default of all presets."""
    configs = {f"preset {name}": load_config(name) for name in preset or PRESETS}
    start_tensorflow()
    from tfxformer.training.schedule import make_schedule

    schedules = {
        name: make_schedule(config.training, config.model.d_model)
        for name, config in configs.items()
    }
    warmup = max(config.training.warmup_steps for config in configs.values())
    with _background(dark):
        _save(plots.draw_schedules(schedules, 5 * warmup), out)


@app.command()
@with_settings("data", DataConfig, ["sources", *READING])
def lengths(data: DataConfig, out: Out, dark: Dark = False):
    """Draw how long sentences are, in words."""
    if not data.sources:
        raise UserError("name the pairs, such as --data pairs.tsv")
    check_output("--out", out, corpora.input_files(data.sources))
    reading = data.model_dump(include=set(READING))
    pairs = []
    for source in data.sources:
        pairs_of_source, _ = corpora.load(source, **reading)
        pairs.extend(pairs_of_source)
    word_counts = {
        "source": [len(pair.source.split()) for pair in pairs],
        "target": [len(pair.target.split()) for pair in pairs],
    }
    with _background(dark):
        _save(plots.draw_lengths(word_counts, "words"), out)


@app.command()
def curves(folders: Folders, out: Out, dark: Dark = False):
    """Draw the training curves of runs: loss, accuracy, BLEU, speed."""
    runs = {str(folder): measurements(folder) for folder in folders}
    with _background(dark):
        _save(plots.draw_curves(runs), out)


def _background(dark):
    """Matplotlib's style for a dark or a light background, for a `with` block."""
    import matplotlib.style

    return matplotlib.style.context("dark_background" if dark else "default")


def _save(figure, out):
    """Writes a figure to a file and prints the file's path."""
    picture = plots.png(figure, out.suffix[1:].lower())
    print(write_file(out, picture))
