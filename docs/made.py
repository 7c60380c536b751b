"""The parts of the pages that are made from the code when the site is built.

A page asks for one with a comment, ``<!-- made: NAME -->``.
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

# Files elsewhere in the project that are pages here.
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

# The paper's Figure 1 from bottom to top, left side first, with what stands beside it.
FIGURE_1 = [
    ("Inputs", "text becomes token ids", "tokenizer.Tokenizer"),
    (
        "Outputs (shifted right)",
        "the decoder reads from the start token on, and is to write to the end token",
        "tokenizer.encode_target",
    ),
    (
        "Input Embedding, Output Embedding",
        "one table for both, times √d_model (section 3.4)",
        "layers.positional.PositionalEmbedding",
    ),
    (
        "Positional Encoding",
        "sines and cosines (section 3.5)",
        "layers.positional.positional_encoding",
    ),
    (
        "Multi-Head Attention, in the encoder",
        "each position of the source looks at all of it",
        "layers.attention.GlobalSelfAttention",
    ),
    (
        "Masked Multi-Head Attention",
        "each position of the target looks at those up to itself",
        "layers.attention.CausalSelfAttention",
    ),
    ("", "the mask", "layers.masking.look_ahead_mask"),
    (
        "Multi-Head Attention, in the decoder",
        "queries from the decoder, keys and values from the encoder's output",
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
    ("N× (left)", "one layer of the encoder", "layers.stacks.EncoderLayer"),
    ("", "the stack", "layers.stacks.Encoder"),
    ("N× (right)", "one layer of the decoder", "layers.stacks.DecoderLayer"),
    ("", "the stack", "layers.stacks.Decoder"),
    (
        "Linear",
        "to one logit for each piece, with the embedding's weights",
        "model.Transformer.project",
    ),
    (
        "Softmax, in training",
        "with the loss, some positions at a time",
        "training.loss.output_loss",
    ),
    (
        "Output Probabilities, in decoding",
        "which token is written next",
        "decoding.search.decode",
    ),
    ("The whole of it", "", "model.Transformer"),
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
    ("Section 3.2.3", "padding is never looked at", "layers.masking.padding_mask"),
    ("Section 5.1", "batches of like lengths", "batches.TrainingBatches"),
    ("Section 5.3", "the learning rate", "training.step.CustomSchedule"),
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
    """Copy the notebooks to where Sphinx looks for pages; a listener of Sphinx's.

    Args:
        app: the Sphinx application, which is not used.
        config: its settings, which are not used.
    """
    folder = HERE / "notebooks"
    folder.mkdir(exist_ok=True)
    paths = {path.name: path for path in (ROOT / "notebooks").glob("*.ipynb")}
    for path in folder.glob("*.ipynb"):
        if path.name not in paths:
            path.unlink()
    for name, path in paths.items():
        notebook = json.loads(path.read_text("utf-8"))
        # Colours for Python's code and for "!command" alike, whoever saved it.
        notebook["metadata"]["language_info"] = {
            "name": "python",
            "pygments_lexer": "ipython3",
        }
        # MyST-NB knows no attachments: the pictures become files beside the page.
        for cell in notebook["cells"]:
            for picture, forms in cell.pop("attachments", {}).items():
                (folder / picture).write_bytes(base64.b64decode(*forms.values()))
        text = json.dumps(notebook).replace("](attachment:", "](")
        copy = folder / name
        # Sphinx reads only the copies that have changed.
        if not copy.exists() or copy.read_text("utf-8") != text:
            copy.write_text(text, "utf-8")


def check_cheat_sheet(app, config):
    """Runs the code of the cheat sheet and compares its tables with the tensors.

    Args:
        app: the Sphinx application, which is not used.
        config: its settings, which are not used.

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
        raise ValueError("cheat_sheet.md: its tables have another form")


def attention(_):
    """A frame with the page that `write_attention_page` writes."""
    return (
        '<iframe src="attention_page.html" title="Attention of the shipped model" '
        'sandbox="allow-scripts" class="attention"></iframe>\n\n'
        f"*The shipped model translates “{SENTENCE}”. Point at a token to see "
        "which tokens it attends to, and choose a layer and a head. "
        "`tfxformer plot attention` makes this page for your own sentence.*"
    )


def write_attention_page(app, error):
    """Writes the front page's attention page, with the shipped model.

    Args:
        app: the Sphinx application.
        error: why the build failed, or None.
    """
    from tfxformer import Translator
    from tfxformer.plots.attention_maps import AttentionPage, attention_maps, readable

    if error is None and app.builder.format == "html":
        queries, keys, weights = attention_maps(Translator.load(), SENTENCE)["cross"]
        sides = readable(queries), readable(keys)
        page = AttentionPage(*sides, weights, "Cross-attention")
        page.save(Path(app.outdir) / "attention_page.html")


def fill_in(app, name, source):
    """Replace each mark with the part that it names; a listener of Sphinx's.

    Args:
        app: the Sphinx application, which is not used.
        name: the page's name.
        source: a list of one string, its text, changed in place.
    """
    if name.startswith("notebooks/"):
        return
    text = linked(source[0], f"docs/{name}.md")
    source[0] = MARK.sub(lambda mark: MAKERS[mark[1]](mark[2]), text)


def linked(text, file):
    """Markdown whose links to the project's files become links to pages.

    A link is written so that it also works where the file lies, as on GitHub.

    Args:
        text: the Markdown.
        file: the path of its file in the project, whose folder links begin at.

    Returns:
        The text for a page in this folder.

    Raises:
        ValueError: when a link leads to no page.
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
            raise ValueError(f"{file}: {target} leads to no page")
        return f"{start}{up}{page}{anchor}{end}"

    # Not in code, which may have brackets of its own.
    parts = re.split(r"(^```.*?^```|`[^`\n]+`)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(x if i % 2 else LINK.sub(link, x) for i, x in enumerate(parts))


def file(path):
    """A file of the project as part of a page.

    Args:
        path: its path in the project.

    Returns:
        Its Markdown, with links that work here.
    """
    text = linked((ROOT / path).read_text("utf-8"), path)
    return MARK.sub(lambda mark: MAKERS[mark[1]](mark[2]), text)


def figure_1(_):
    """Two tables: each piece of the paper's Figure 1, and its class and line."""
    return "\n\n".join(
        [
            _lines("in the figure", FIGURE_1),
            "## Beside the figure",
            _lines("in the paper", BESIDE_FIGURE_1),
        ]
    )


def _lines(title, pieces):
    rows = [f"| {title} | here | what it does |", "|---|---|---|"]
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
    """What a dotted name stands for.

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
    """Where something is defined.

    Args:
        found: a class or a function.

    Returns:
        Its file's path in the project, and the line of its name.
    """
    found = inspect.unwrap(found)
    # The package may be the installed one.
    home = Path(tfxformer.__file__).resolve().parents[1]
    path = Path(inspect.getsourcefile(found)).resolve().relative_to(home)
    lines, first = inspect.getsourcelines(found)
    names = re.compile(rf"\s*(?:async )?(?:class|def) {found.__name__}\b")
    # A decorator stands above.
    offset = next(i for i, line in enumerate(lines) if names.match(line))
    return path.as_posix(), first + offset


def names(_):
    """A table of what `tfxformer` itself exports."""
    import tfxformer

    rows = ["| name | what it is |", "|---|---|"]
    for name in tfxformer.__all__:
        found = getattr(tfxformer, name)
        summary = inspect.getdoc(found).splitlines()[0]
        summary = re.sub(r"`{1,2}([^`]+)`{1,2}", r"`\1`", summary).replace("|", r"\|")
        home = f"{found.__module__}.{name}"
        rows.append(f"| {{py:obj}}`tfxformer.{name} <{home}>` | {summary} |")
    return "\n".join(rows)


def command_groups(_):
    """A table of all commands, with the page of each."""
    rows = ["| command | what it does |", "|---|---|"]
    for name, command in _app().commands.items():
        summary = inspect.cleandoc(command.help).splitlines()[0]
        page = f"commands/{command.rich_help_panel.lower()}.md#tfxformer-{name}"
        rows.append(f"| [`tfxformer {name}`]({page}) | {_escaped(summary)} |")
    return "\n".join(rows)


def options(_):
    """The options of the program itself."""
    return _options(_app())


def commands(group):
    """The commands of one group, with their options, as the program has them."""
    app = _app()
    chosen = {n: c for n, c in app.commands.items() if c.rich_help_panel == group}
    return "\n\n".join(_commands(chosen, "tfxformer", 2))


def _app():
    import typer

    from tfxformer.cli import app

    return typer.main.get_command(app)


def _commands(chosen, title, level):
    """The headings, help texts and options of some commands, and of those in them."""
    parts = []
    for name, command in chosen.items():
        parts.append(f"{'#' * level} {title} {name}")
        parts.append(_escaped(inspect.cleandoc(command.help)))
        parts.append(_options(command))
        if hasattr(command, "commands"):
            parts += _commands(command.commands, f"{title} {name}", level + 1)
    return parts


def _options(command):
    """The options of a command, as its help has them: a definition list."""
    import typer

    parts = []
    for parameter in command.params:
        record = parameter.get_help_record(typer.Context(command))
        if record and parameter.name != "help":
            title, what = record
            parts.append(f"`{title}`\n: {_escaped(' '.join(what.split()))}")
    return "\n\n".join(parts)


def _escaped(text):
    """Plain text as Markdown, with options as code."""
    text = re.sub(r"([\\`*_\[\]<>|$])", r"\\\1", text)
    return re.sub(r"(?<![\w-])(--[a-z][a-z-]*)", r"`\1`", text)


def settings(_):
    """The presets side by side."""
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
    """Makes reStructuredText of what Google's style and plain sentences mean.

    In the first line after ``Returns:`` what stands before a colon would be taken for a
    type, and a plural's s after a back-tick needs a mark before it. A listener of
    Sphinx's, before napoleon's.

    Args:
        app: the Sphinx application, which is not used.
        what: the kind of thing that has the docstring.
        name: its name.
        found: the thing itself.
        options: autodoc's.
        lines: the docstring; changed in place.
    """
    for i, line in enumerate(lines):
        if i and lines[i - 1].strip() in ("Returns:", "Yields:") and ":" in line:
            # A field of no type: all that follows is the description.
            line = f"{re.match(' *', line)[0]}: {line.strip()}"
        lines[i] = re.sub(r"(?<!`)(`[^`\s][^`]*`)(?=[a-z])", r"\1\\ ", line)


def plain_signature(app, what, name, found, options, signature, returns):
    """What a class takes, where its base's ``__new__`` would hide it, as Keras's does.

    A listener of Sphinx's.

    Args:
        app: the Sphinx application, which is not used.
        what: the kind of thing that has the signature.
        name: its name.
        found: the thing itself.
        options: autodoc's.
        signature: what autodoc found.
        returns: the annotation of what is returned.

    Returns:
        The signature to show and the annotation, or None to leave them.
    """
    if what != "class" or signature != "(*args, **kwargs)":
        return None
    parameters = inspect.signature(found.__init__).parameters.values()
    own = [x.replace(annotation=x.empty) for x in parameters if x.name != "self"]
    return str(inspect.Signature(own)), returns


def resolve_alias(app, env, node, text):
    """Leads a name that `tfxformer` passes on to where it is at home.

    A listener of Sphinx's, for references that lead nowhere.

    Args:
        app: the Sphinx application.
        env: its build environment.
        node: the reference.
        text: what it is shown as.

    Returns:
        The link, or None where there is none.
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
