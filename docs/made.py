"""Writes the parts of the pages that come from the code, and adapts pages to the site.

The comments ``<!-- made: NAME -->`` and ``<!-- end -->`` enclose such a part.
``python docs/made.py`` writes these parts anew.
"""

import ast
import base64
import inspect
import json
import pkgutil
import re
import sys
from pathlib import Path
from typing import get_args

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
PART = re.compile(r"(<!-- made: ([\w ]+) -->\n).*?(<!-- end -->\n)", re.DOTALL)
LINK = re.compile(r"(\]\()([^)#\s]*)(#[^)\s]*)?(\))")
# A name in code that links to the file that defines it.
NAME = re.compile(r"\[`([\w.]+)`\]\([./]*(tfxformer/\S+)\.py\)")
# A list or table of links, whose heading becomes the caption in the site's menu.
MENU = re.compile(r"(?:^## (.*)\n\n)?^<!-- toctree -->\n((?:.+\n)+)", re.MULTILINE)
# The picture of the front page that links to the page of the shipped model.
PICTURE = "page.png"
LINKED = r'<a href="page.html">\g<0></a>'
# Target tokens a second of `tutorial` on the faster machine of benchmarks/README.md.
FAST_MACHINE = 10_112
# The comment "made: page" becomes this; `write_files` writes the page.
PAGE = (
    '<p><a href="page.html"><strong>Open the page of the shipped model</strong></a> '
    "(25 MB).</p>"
)


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
    # Notebooks link to the modules beside them.
    for path in (ROOT / "notebooks").glob("*.py"):
        (folder / path.name).write_bytes(path.read_bytes())


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


def write_files(app, error):
    """Writes the page of the shipped model.

    Args:
        app: the Sphinx application.
        error: the error that ended the build, or None.
    """
    from tfxformer import Translator
    from tfxformer.page import page
    from tfxformer.repository import SHIPPED

    if error is None and app.builder.format == "html":
        html = page(Translator.load(), SHIPPED, notebooks="notebooks")
        (Path(app.outdir) / "page.html").write_text(html, "utf-8")


def adapt(app, name, source):
    """Adapts a page to the site.

    Args:
        app: the Sphinx application, which is not used.
        name: the page's name.
        source: a list with the page's text as its one item; changed in place.
    """
    if name.startswith("notebooks/"):
        return
    text = linked(source[0], f"docs/{name}.md")
    menus = [menu(*match.groups()) for match in MENU.finditer(text)]
    for file, page in PAGES.items():
        if page == f"{name}.md":
            text = linked((ROOT / file).read_text("utf-8"), file)
    text = re.sub(rf"!\[.*\]\({PICTURE}\)", LINKED, text)
    text = text.replace("<!-- made: page -->", PAGE)
    source[0] = "\n".join([text, *menus])


def menu(caption, links):
    """Returns a part of the site's menu.

    Args:
        caption: a title for the part, or None.
        links: Markdown with links to pages.
    """
    lines = ["```{toctree}", ":hidden:"]
    if caption:
        lines.append(f":caption: {caption}")
    pages = re.findall(r"\[(.+?)\]\((.+?)\)", links)
    lines += [f"{title} <{page}>" for title, page in pages]
    return "\n".join([*lines, "```", ""])


def linked(text, file):
    """Turns links to the project's files into links to pages.

    Links in the sources are relative to the file, so that they also work on GitHub.
    Names that link to their code become links to the reference.

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
        if path.suffix in (".py", ".js"):
            return f"{start}{up}../{where}{end}"  # a file to download
        if page == where and not where.startswith("notebooks/"):
            raise ValueError(f"{file}: {target} is not a page of the site")
        return f"{start}{up}{page}{anchor}{end}"

    def reference(match):
        name, path = match.groups()
        return f"{{py:obj}}`{name} <{path.replace('/', '.')}.{name}>`"

    text = NAME.sub(reference, text)
    # Code may have brackets too: leave it unchanged.
    parts = re.split(r"(^```.*?^```|`[^`\n]+`)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(x if i % 2 else LINK.sub(link, x) for i, x in enumerate(parts))


def renewed(text):
    """Returns a page with its made parts written anew.

    Args:
        text: the page's Markdown.
    """

    def part(match):
        start, what, end = match.groups()
        name, *arguments = what.split()
        return f"{start}\n{MAKERS[name](*arguments)}\n\n{end}"

    return PART.sub(part, text)


def names():
    """A table of the names that `tfxformer` itself exports."""
    import tfxformer

    rows = {}
    for path in (ROOT / "tfxformer").rglob("*.py"):
        where = path.relative_to(ROOT).as_posix()
        for found in ast.parse(path.read_text("utf-8")).body:
            name = getattr(found, "name", None)
            if name in tfxformer.__all__:
                summary = ast.get_docstring(found).splitlines()[0]
                summary = summary.replace("``", "`").replace("|", r"\|")
                rows[name] = f"| [`{name}`](../../{where}) | {summary} |"
    table = [rows[name] for name in tfxformer.__all__]
    return "\n".join(["| name | summary |", "|---|---|", *table])


def command_groups():
    """A table of all commands, with links to their pages."""
    rows = ["| command | what it does |", "|---|---|"]
    for name, command in _app().commands.items():
        summary = inspect.cleandoc(command.help).splitlines()[0]
        page = f"commands/{command.rich_help_panel.lower()}.md#tfxformer-{name}"
        rows.append(f"| [`tfxformer {name}`]({page}) | {_escaped(summary)} |")
    return "\n".join(rows)


def options():
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
    """A list of a command's arguments and options, with their help texts."""
    lines = []
    for parameter in command.params:
        title = ", ".join(sorted(parameter.opts, key=lambda x: x.startswith("--")))
        title += "..." if parameter.nargs == -1 else ""
        notes = ["[required]"] if parameter.required else []
        default = parameter.default
        if parameter.secondary_opts:
            title += f" / {parameter.secondary_opts[0]}"
            default = (parameter.opts if default else parameter.secondary_opts)[0]
        elif title.startswith("-") and not parameter.is_flag:
            title += f" {parameter.metavar or _choices(command, parameter)}"
        if default:
            notes.append(f"[default: {default}]")
        what = " ".join([parameter.help or "", *notes]).split()
        lines.append(f"- `{title}`: {_escaped(' '.join(what))}")
    return "\n".join(lines)


def _choices(command, option):
    """The values that an option without a type's name may have."""
    annotation = inspect.signature(command.callback).parameters[option.name].annotation
    return f"<{'|'.join(get_args(annotation))}>"


def _escaped(text):
    """Escapes plain text for Markdown, and marks options as code."""
    text = re.sub(r"([\\`*_\[\]<>|$])", r"\\\1", text)
    return re.sub(r"(?<![\w-])(--[a-z][a-z-]*)", r"`\1`", text)


def settings():
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


def claims():
    """The table of claims in the stored outputs of why_attention."""
    path = ROOT / "notebooks" / "why_attention.ipynb"
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        for output in cell.get("outputs", ()):
            text = "".join(output.get("data", {}).get("text/markdown", ""))
            if text.startswith("| claim |"):
                return text
    raise ValueError(f"{path} has no table of claims: run the notebook")


def hours():
    """A table of the hours that the presets take, and how they are computed."""
    from tfxformer.config import PRESETS, load_config

    file = ROOT / "benchmarks" / "training_speed.json"
    measured = json.loads(file.read_text("utf-8"))["ways"]["ours, same"]
    speeds = measured["tokens_per_second"], FAST_MACHINE
    configs = {name: load_config(name) for name in PRESETS if name != "tiny"}
    base = parameters(configs["tutorial"])
    rows = [
        "| computed | target tokens | parameters | times `tutorial`'s | hours |",
        "|---|---|---|---|---|",
    ]
    for name, config in configs.items():
        training = config.training
        positions = training.steps * training.tokens_per_batch
        tokens = positions * (1 - measured["target_padding"])
        times = parameters(config) / base
        # With two digits that count.
        slow, fast = (float(f"{tokens * times / x / 3600:.2g}") for x in speeds)
        rows.append(
            f"| `{name}` | {tokens / 1e6:,.0f} million | {times * base / 1e6:,.1f} "
            f"million | {times:.1f} | {fast:,g} to {slow:,g} |"
        )
    return "\n".join(rows)


def parameters(config):
    """How many parameters a preset's model has; tests compare it with the model's."""
    model, size = config.model, config.tokenizer.vocab_size
    d, dff = model.d_model, model.dff
    attention, norm = 4 * (d * d + d), 2 * d
    feed_forward = 2 * d * dff + dff + d
    encoder = attention + feed_forward + 2 * norm
    decoder = 2 * attention + feed_forward + 3 * norm
    last_norms = 2 * norm if model.norm == "pre" else 0
    return size * d + model.num_layers * (encoder + decoder) + last_norms


MAKERS = (claims, command_groups, commands, names, options, settings, hours)
MAKERS = {maker.__name__: maker for maker in MAKERS}


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
        found = pkgutil.resolve_name(target)
        home = f"{found.__module__}.{found.__qualname__}"
    except (AttributeError, ImportError):
        return None
    if home == target:
        return None
    return env.get_domain("py").resolve_any_xref(
        env, node["refdoc"], app.builder, home, node, text
    )[0][1]


def main():
    """Writes the made parts of all pages anew, and prints the pages that changed."""
    sys.path.insert(0, str(ROOT))
    for page in HERE.rglob("*.md"):
        text = page.read_text("utf-8")
        if renewed(text) != text:
            page.write_text(renewed(text), "utf-8")
            print(page.relative_to(ROOT))


if __name__ == "__main__":
    main()
