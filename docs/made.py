"""Writes the parts of the pages that come from the code, when the site is built.

The comment ``<!-- made: NAME -->`` in a page marks the place of such a part.
"""

import base64
import importlib
import inspect
import json
import re
from pathlib import Path

import tfxformer

HERE = Path(__file__).parent
ROOT = HERE.parent

# Files outside this folder that are pages of the site.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changes.md",
    "benchmarks/README.md": "measurements.md",
    "export/README.md": "signatures.md",
    "export/pt_en/README.md": "model_card.md",
    "serving/README.md": "tensorflow_serving.md",
}
SENTENCE = "O gato preto bebeu o leite."
MARK = re.compile(r"^<!-- made: (\w+)(?: (\S+))? -->$", re.MULTILINE)
LINK = re.compile(r"(\]\()([^)#\s]*)(#[^)\s]*)?(\))")

# The paper's Figure 1 from bottom to top, left side first: box, explanation, object.
FIGURE_1 = [
    ("Inputs", "turns text into token ids", "tokenizer.Tokenizer"),
    (
        "Outputs (shifted right)",
        "gives the decoder its input, which begins with the start token, and its "
        "labels, which end with the end token",
        "tokenizer.encode_target",
    ),
    (
        "Input Embedding, Output Embedding",
        "token embeddings times √d_model; tied embeddings use one table for both sides "
        "(section 3.4)",
        "layers.positional.PositionalEmbedding",
    ),
    (
        "Positional Encoding",
        "sines and cosines of each position (section 3.5)",
        "layers.positional.positional_encoding",
    ),
    (
        "Multi-Head Attention, in the encoder",
        "each source position attends to all source positions",
        "layers.attention.GlobalSelfAttention",
    ),
    (
        "Masked Multi-Head Attention",
        "each target position attends to itself and earlier positions",
        "layers.attention.CausalSelfAttention",
    ),
    ("", "hides later positions", "layers.masking.look_ahead_mask"),
    (
        "Multi-Head Attention, in the decoder",
        "queries from the decoder, keys and values from the encoder output",
        "layers.attention.CrossAttention",
    ),
    (
        "Add & Norm",
        "residual connection and layer normalisation (section 3.1)",
        "layers.residual.AddAndNorm",
    ),
    (
        "Feed Forward",
        "two projections and a ReLU (section 3.3)",
        "layers.stacks.FeedForward",
    ),
    ("N× (left)", "one encoder layer", "layers.stacks.EncoderLayer"),
    ("", "all encoder layers", "layers.stacks.Encoder"),
    ("N× (right)", "one decoder layer", "layers.stacks.DecoderLayer"),
    ("", "all decoder layers", "layers.stacks.Decoder"),
    (
        "Linear",
        "one logit for each token of the vocabulary; multiplies by the embedding table "
        "when tied (section 3.4)",
        "model.Transformer.project",
    ),
    (
        "Softmax, in training",
        "computed with the linear layer and the loss, some positions at a time",
        "training.loss.output_loss",
    ),
    (
        "Output Probabilities, in decoding",
        "chooses the next token",
        "decoding.search.decode",
    ),
    ("The whole figure", "encoder, decoder and output", "model.Transformer"),
]
BESIDE_FIGURE_1 = [
    (
        "Figure 2, left",
        "Scaled Dot-Product Attention (section 3.2.1)",
        "layers.attention.scaled_dot_product_attention",
    ),
    (
        "Figure 2, right",
        "Multi-Head Attention (section 3.2.2)",
        "layers.attention.MultiHeadAttention",
    ),
    ("Section 3.2.3", "hides padding", "layers.masking.padding_mask"),
    ("Section 5.1", "batches of similar length", "batches.TrainingBatches"),
    ("Section 5.3", "the learning-rate schedule", "training.step.CustomSchedule"),
    ("Section 5.4", "dropout", "layers.residual.AddAndNorm"),
    ("Section 5.4", "label smoothing", "training.loss.masked_loss"),
    (
        "Section 6.1",
        "the mean of checkpoints",
        "exporting.saved_model.average_checkpoints",
    ),
    (
        "Section 6.1",
        "beam search with a length penalty",
        "decoding.options.DecodingOptions",
    ),
]


def copy_notebooks(app, config):
    """Copies the notebooks into this folder, where Sphinx looks for pages.

    Args:
        app: the Sphinx application, which is not used.
        config: the Sphinx configuration, which is not used.
    """
    folder = HERE / "notebooks"
    folder.mkdir(exist_ok=True)
    paths = {path.name: path for path in (ROOT / "notebooks").glob("*.ipynb")}
    for path in folder.glob("*.ipynb"):
        if path.name not in paths:
            path.unlink()
    for name, path in paths.items():
        notebook = json.loads(path.read_text("utf-8"))
        # This lexer colours Python code and lines such as "!command".
        notebook["metadata"]["language_info"] = {
            "name": "python",
            "pygments_lexer": "ipython3",
        }
        # MyST-NB does not support attachments: save the pictures beside the page.
        for cell in notebook["cells"]:
            for picture, forms in cell.pop("attachments", {}).items():
                (folder / picture).write_bytes(base64.b64decode(*forms.values()))
        text = json.dumps(notebook).replace("](attachment:", "](")
        copy = folder / name
        # Sphinx reads a file again when its time changes.
        if not copy.exists() or copy.read_text("utf-8") != text:
            copy.write_text(text, "utf-8")


def check_cheat_sheet(app, config):
    """Runs the code of the cheat sheet and compares its tables with the tensors.

    Args:
        app: the Sphinx application, which is not used.
        config: the Sphinx configuration, which is not used.

    Raises:
        ValueError: when a shape on the page is wrong.
    """
    text = (HERE / "cheat_sheet.md").read_text("utf-8")
    tensors = {}
    exec(re.search(r"```python\n(.*?)```", text, re.DOTALL)[1], tensors)
    axes = dict(re.findall(r"^\| `(\w+)` \|.*\| (\d+) \|$", text, re.MULTILINE))
    axes = {name: int(size) for name, size in axes.items()}
    rows = re.findall(r"^\| (`.*`) \|.*\| `(\[.*\])` \| `(.*)` \|$", text, re.MULTILINE)
    for names, shape, sizes in rows:
        for name in re.findall(r"`(\w+)`", names):
            found = list(tensors[name].shape)
            if not found == eval(shape, axes) == json.loads(sizes):
                raise ValueError(f"cheat_sheet.md: {name} has the shape {found}")
    if len(rows) < 30:
        raise ValueError("cheat_sheet.md: could not read its tables")


def attention(_):
    """Returns a frame with the page that `write_attention_page` writes."""
    return (
        '<iframe src="attention_page.html" title="Attention of the shipped model" '
        'sandbox="allow-scripts" class="attention"></iframe>\n\n'
        f"*The shipped model translates “{SENTENCE}”. Point at a token to see "
        "which tokens it attends to, and choose a layer and a head. "
        "`tfxformer plot attention` makes this page for your own sentence.*"
    )


def write_attention_page(app, error):
    """Writes the attention page for the front page, with the shipped model.

    Args:
        app: the Sphinx application.
        error: the error that ended the build, or None.
    """
    from tfxformer import Translator
    from tfxformer.plots.attention_maps import attention_maps, attention_page, readable

    if error is None and app.builder.format == "html":
        queries, keys, weights = attention_maps(Translator.load(), SENTENCE)["cross"]
        sides = readable(queries), readable(keys)
        page = attention_page(*sides, weights, "Cross-attention")
        (Path(app.outdir) / "attention_page.html").write_text(page, "utf-8")


def fill_in(app, name, source):
    """Replaces each mark with the part that it names.

    Args:
        app: the Sphinx application, which is not used.
        name: the page's name.
        source: a list with the page's text as its one item; changed in place.
    """
    if name.startswith("notebooks/"):
        return
    text = linked(source[0], f"docs/{name}.md")
    source[0] = MARK.sub(lambda mark: MAKERS[mark[1]](mark[2]), text)


def linked(text, file):
    """Turns links to the project's files into links to pages.

    Links in the sources are relative to the file, so that they also work on GitHub.

    Args:
        text: Markdown.
        file: the path of its file in the project; links are relative to its folder.

    Returns:
        The Markdown for a page in this folder.

    Raises:
        ValueError: when a link leads to a file that is not a page.
    """
    up = "../" * (file.count("/") - 1) if file.startswith("docs/") else ""

    def link(match):
        start, target, anchor, end = match.groups(default="")
        if not target or ":" in target:
            return match[0]
        path = (ROOT / file).parent.joinpath(target).resolve()
        path = path / "README.md" if path.is_dir() else path
        where = path.relative_to(ROOT).as_posix()
        page = PAGES.get(where, where.removeprefix("docs/"))
        if path.suffix == ".py":
            return f"{start}{up}../{where}{end}"  # a file to download
        if page == where and not where.startswith("notebooks/"):
            raise ValueError(f"{file}: {target} is not a page of the site")
        return f"{start}{up}{page}{anchor}{end}"

    # Code may have brackets too: leave it unchanged.
    parts = re.split(r"(^```.*?^```|`[^`\n]+`)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(x if i % 2 else LINK.sub(link, x) for i, x in enumerate(parts))


def file(path):
    """Returns a file of the project as part of a page.

    Args:
        path: the file's path in the project.

    Returns:
        The file's Markdown, with links that work on the site.
    """
    text = linked((ROOT / path).read_text("utf-8"), path)
    return MARK.sub(lambda mark: MAKERS[mark[1]](mark[2]), text)


def figure_1(_):
    """Two tables: each box of Figure 1, and other parts of the paper, with the code."""
    return "\n\n".join(
        [
            _lines("in the figure", FIGURE_1),
            "## Elsewhere in the paper",
            _lines("in the paper", BESIDE_FIGURE_1),
        ]
    )


def _lines(title, pieces):
    rows = [f"| {title} | class or function | explanation |", "|---|---|---|"]
    for piece, what, name in pieces:
        found = find(f"tfxformer.{name}")
        path, line = place(found)
        module, short = _split_name(f"tfxformer.{name}")
        page = f"_modules/{module.replace('.', '/')}.html#{short}"
        rows.append(
            f"| {piece} | {{py:obj}}`{short} <tfxformer.{name}>`<br>"
            f'<a class="line" href="{page}">{path}:{line}</a> | {what} |'
        )
    return "\n".join(rows)


def find(name):
    """Imports the object that a dotted name refers to.

    Args:
        name: for example ``tfxformer.model.Transformer.project``.

    Returns:
        The object.
    """
    module, short = _split_name(name)
    found = importlib.import_module(module)
    for part in short.split("."):
        found = getattr(found, part)
    return found


def _split_name(name):
    parts = name.split(".")
    for count in range(len(parts) - 1, 0, -1):
        module = ".".join(parts[:count])
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
        else:
            return module, ".".join(parts[count:])
    raise ValueError(f"{name}: no such name")


def place(found):
    """Finds the place where a class or function is defined.

    Args:
        found: the class or function.

    Returns:
        The path of its file in the project, and the line with its name.
    """
    found = inspect.unwrap(found)
    # The package may be imported from the checkout or from site-packages.
    home = Path(tfxformer.__file__).resolve().parents[1]
    path = Path(inspect.getsourcefile(found)).resolve().relative_to(home)
    lines, first = inspect.getsourcelines(found)
    names = re.compile(rf"\s*(?:async )?(?:class|def) {found.__name__}\b")
    # Skip the decorators.
    offset = next(i for i, line in enumerate(lines) if names.match(line))
    return path.as_posix(), first + offset


def names(_):
    """A table of the names that `tfxformer` itself exports."""
    import tfxformer

    rows = ["| name | summary |", "|---|---|"]
    for name in tfxformer.__all__:
        found = getattr(tfxformer, name)
        summary = inspect.getdoc(found).splitlines()[0]
        summary = re.sub(r"`{1,2}([^`]+)`{1,2}", r"`\1`", summary).replace("|", r"\|")
        home = f"{found.__module__}.{name}"
        rows.append(f"| {{py:obj}}`tfxformer.{name} <{home}>` | {summary} |")
    return "\n".join(rows)


def command_groups(_):
    """A table of all commands, with links to their pages."""
    rows = ["| command | what it does |", "|---|---|"]
    for name, command in _app().commands.items():
        summary = inspect.cleandoc(command.help).splitlines()[0]
        page = f"commands/{command.rich_help_panel.lower()}.md#tfxformer-{name}"
        rows.append(f"| [`tfxformer {name}`]({page}) | {_escaped(summary)} |")
    return "\n".join(rows)


def options(_):
    """The options of `tfxformer` itself."""
    return _options(_app())


def commands(group):
    """The commands of one group, with their help texts and options."""
    app = _app()
    chosen = {n: c for n, c in app.commands.items() if c.rich_help_panel == group}
    return "\n\n".join(_commands(chosen, "tfxformer", 2))


def _app():
    import typer

    from tfxformer.cli import app

    return typer.main.get_command(app)


def _commands(chosen, title, level):
    """Headings, help texts and options of commands and their subcommands."""
    parts = []
    for name, command in chosen.items():
        parts.append(f"{'#' * level} {title} {name}")
        parts.append(_escaped(inspect.cleandoc(command.help)))
        parts.append(_options(command))
        if hasattr(command, "commands"):
            parts += _commands(command.commands, f"{title} {name}", level + 1)
    return parts


def _options(command):
    """A definition list of a command's options, with their help texts."""
    import typer

    parts = []
    for parameter in command.params:
        record = parameter.get_help_record(typer.Context(command))
        if record and parameter.name != "help":
            title, what = record
            parts.append(f"`{title}`\n: {_escaped(' '.join(what.split()))}")
    return "\n\n".join(parts)


def _escaped(text):
    """Escapes plain text for Markdown, and marks options as code."""
    text = re.sub(r"([\\`*_\[\]<>|$])", r"\\\1", text)
    return re.sub(r"(?<![\w-])(--[a-z][a-z-]*)", r"`\1`", text)


def settings(_):
    """A table of the settings that differ between presets."""
    from tfxformer.config import PRESETS, load_config

    loaded = {name: load_config(name).model_dump() for name in PRESETS}
    rows = [
        "| setting | " + " | ".join(loaded) + " |",
        "|---|" + "---|" * len(loaded),
    ]
    first = next(iter(loaded.values()))
    for section, values in first.items():
        for setting in values:
            each = [config[section][setting] for config in loaded.values()]
            if any(value != each[0] for value in each):
                cells = " | ".join(str(value) for value in each)
                rows.append(f"| `{section}.{setting}` | {cells} |")
    return "\n".join(rows)


_MAKERS = (
    attention,
    command_groups,
    commands,
    figure_1,
    file,
    names,
    options,
    settings,
)
MAKERS = {maker.__name__: maker for maker in _MAKERS}


def adapt_docstring(app, what, name, found, options, lines):
    """Adapts a docstring before the extension napoleon converts it.

    Napoleon reads the words before a colon, in the first line after ``Returns:``, as a
    type. And reStructuredText needs a mark between a back-tick and a plural's s.

    Args:
        app: the Sphinx application, which is not used.
        what: the kind of object, such as "class".
        name: its name.
        found: the object itself.
        options: autodoc's options.
        lines: the docstring's lines; changed in place.
    """
    for i, line in enumerate(lines):
        if i and lines[i - 1].strip() in ("Returns:", "Yields:") and ":" in line:
            # An empty type: the rest of the line is the description.
            line = f"{re.match(' *', line)[0]}: {line.strip()}"
        lines[i] = re.sub(r"(?<!`)(`[^`\s][^`]*`)(?=[a-z])", r"\1\\ ", line)


def plain_signature(app, what, name, found, options, signature, returns):
    """Shows the arguments of ``__init__`` where a base's ``__new__`` hides them.

    The base class of Keras's layers and models has such a ``__new__``.

    Args:
        app: the Sphinx application, which is not used.
        what: the kind of object, such as "class".
        name: its name.
        found: the object itself.
        options: autodoc's options.
        signature: the signature that autodoc found.
        returns: the annotation of the return value.

    Returns:
        The signature and the annotation to show, or None to keep autodoc's.
    """
    if what != "class" or signature != "(*args, **kwargs)":
        return None
    parameters = inspect.signature(found.__init__).parameters.values()
    own = [x.replace(annotation=x.empty) for x in parameters if x.name != "self"]
    return str(inspect.Signature(own)), returns


def resolve_alias(app, env, node, text):
    """Links a name such as `tfxformer.Translator` to the module that defines it.

    Sphinx calls this for references that it cannot resolve.

    Args:
        app: the Sphinx application.
        env: its build environment.
        node: the reference.
        text: the text to show.

    Returns:
        The link, or None if there is none.
    """
    target = node.get("reftarget", "")
    if not target.startswith("tfxformer.") or node.get("refdomain") != "py":
        return None
    try:
        home = find(target)
        home = f"{home.__module__}.{home.__qualname__}"
    except (AttributeError, ValueError):
        return None
    if home == target:
        return None
    return env.get_domain("py").resolve_any_xref(
        env, node["refdoc"], app.builder, home, node, text
    )[0][1]
