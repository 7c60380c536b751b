"""The documentation: what is public is documented, links lead somewhere, it builds."""

import ast
import dataclasses
import functools
import html.parser
import importlib
import importlib.util
import inspect
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tfxformer.config import Settings

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
NEEDS_SPHINX = pytest.mark.skipif(
    not all(
        map(importlib.util.find_spec, ("sphinx", "myst_nb", "furo", "latex2mathml"))
    ),
    reason="the site is built with the extra docs: pip install '.[docs]'",
)
# Other modules that pass names on, each with its __all__.
PASSING_ON = ["", "layers", "decoding", "training", "corpora", "plots"]


def made():
    """`docs/made.py`, which is no package's."""
    return _module(DOCS / "made.py")


@functools.cache
def _module(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def documented():
    """Every module of the reference, with the names that it shows."""
    found = {}
    for page in sorted((DOCS / "reference").glob("*.rst")):
        for name, members in re.findall(
            r"^\.\. automodule:: (\S+)\n   :members:(.*)$", page.read_text(), re.M
        ):
            found[name] = [x.strip() for x in members.split(",") if x.strip()]
    return found


def public(name, names):
    """The public functions and classes of a module."""
    module = importlib.import_module(name)
    names = names or getattr(module, "__all__", None)
    for key, value in vars(module).items():
        if names is None:
            own = getattr(value, "__module__", None) == name
            wanted = own and not key.startswith("_")
        else:
            wanted = key in names
        if wanted and (inspect.isclass(value) or inspect.isroutine(value)):
            yield key, value
    if names and getattr(module, "__getattr__", None):
        for key in names:
            yield key, getattr(module, key)


def section(doc, *titles):
    """A docstring's sections of these titles, or an empty string."""
    pattern = rf"^(?:{'|'.join(titles)}):\n((?:    .*\n|\n)+)"
    return "".join(re.findall(pattern, doc + "\n", re.MULTILINE))


def described(doc):
    """The parameters and fields that a docstring tells of."""
    text = section(doc, "Args", "Attributes", "Call arguments")
    return {
        name.strip(" *")
        for names in re.findall(r"^    (\*{0,2}\w+(?:, \*{0,2}\w+)*):", text, re.M)
        for name in names.split(",")
    }


def parameters(found):
    """What a function takes or a class is made from."""
    if dataclasses.is_dataclass(found):
        return [field.name for field in dataclasses.fields(found)]
    if inspect.isclass(found):
        if issubclass(found, tuple):
            return list(getattr(found, "_fields", ()))
        if "__init__" not in vars(found):
            return []
        found = inspect.signature(found.__init__).parameters.values()
        # What goes on to the base is the base's to tell.
        passed_on = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        return [x.name for x in found if x.kind not in passed_on][1:]
    return [x for x in inspect.signature(found).parameters if x not in ("self", "cls")]


def gives(function):
    """Whether a function returns or yields something."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    nodes = [tree.body[0]]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return True
        if isinstance(node, ast.Return) and node.value is not None:
            value = node.value
            if not (isinstance(value, ast.Constant) and value.value is None):
                return True
        inner = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
        nodes += [x for x in ast.iter_child_nodes(node) if not isinstance(x, inner)]
    return False


def lacks(found, example):
    """What a docstring does not say and should."""
    doc = inspect.getdoc(found)
    if not doc:
        return ["a docstring"]
    lacking = [
        f"{name} in Args"
        for name in parameters(found)
        if not name.startswith("_") and name not in described(doc)
    ]
    if (
        not inspect.isclass(found)
        and gives(found)
        and not section(doc, "Returns", "Yields")
    ):
        lacking.append("Returns")
    if example and ">>>" not in section(doc, "Example", "Examples"):
        lacking.append("an Example")
    return lacking


def methods(kind):
    """A class's own public methods that are its interface.

    Keras says of a layer's `call`, `build` and the like what they are for, and the
    class of what they take.
    """
    for name, value in vars(kind).items():
        function = getattr(value, "__func__", value)
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        if not (issubclass(kind, _keras_kinds()) and hasattr(kind.__base__, name)):
            yield name, function


@functools.cache
def _keras_kinds():
    import keras

    schedules = keras.optimizers.schedules
    return (
        keras.layers.Layer,
        keras.losses.Loss,
        keras.metrics.Metric,
        schedules.LearningRateSchedule,
    )


@pytest.mark.parametrize("module", documented())
def test_docstrings_are_whole(module):
    lacking = {}
    for name, found in public(module, documented()[module]):
        # Settings explain themselves field by field.
        fields = inspect.isclass(found) and issubclass(found, Settings)
        lacking[name] = lacks(found, example=not fields)
        if inspect.isclass(found):
            for method, function in methods(found):
                lacking[f"{name}.{method}"] = lacks(function, example=False)
    assert {name: what for name, what in lacking.items() if what} == {}


def test_what_is_passed_on_is_in_the_reference():
    shown = {name for module in documented() for name, _ in _shown(module)}
    for package in PASSING_ON:
        module = importlib.import_module(f"tfxformer.{package}".rstrip("."))
        assert {*module.__all__} <= shown, package


def _shown(module):
    return public(module, documented()[module])


def test_every_name_of_the_package_has_a_docstring():
    import pkgutil

    import tfxformer

    for found in pkgutil.walk_packages(tfxformer.__path__, "tfxformer."):
        module = importlib.import_module(found.name)
        assert module.__doc__, found.name
        for name, value in public(found.name, None):
            assert inspect.getdoc(value), f"{found.name}.{name}"


# What links lead to, in the Markdown and in the notebooks as they lie here.

LINK = re.compile(r"\]\(([^)\s]*?)(?:#([^)\s]*))?\)")
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.glob("**/*.md"), *ROOT.glob("*/README.md")])


def slug(heading):
    """A heading's anchor, as GitHub and MyST make it."""
    text = re.sub(r"[`*]|\]\([^)]*\)|\[", "", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def text_of(file):
    """A file's Markdown, without code."""
    if file.suffix == ".ipynb":
        cells = json.loads(file.read_text("utf-8"))["cells"]
        texts = ["".join(x["source"]) for x in cells if x["cell_type"] == "markdown"]
        text = "\n\n".join(texts)
    else:
        text = file.read_text("utf-8")
    return re.sub(r"^(```+|~~~+).*?^\1", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(file):
    """The anchors of a file's headings, with those that are made when it is built."""
    text = text_of(file)
    if "<!-- made:" in text:
        module = made()
        text = module.MARK.sub(lambda x: module.MAKERS[x[1]](x[2]), text)
    headings = re.findall(r"^#{1,6} +(.*)$", text, re.MULTILINE)
    return {slug(heading) for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda x: x.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    if page.is_relative_to(DOCS / "notebooks"):
        return
    text = re.sub(r"`[^`\n]*`", "", text_of(page))
    for target, anchor in LINK.findall(text):
        if ":" in target:
            continue
        file = page.parent / unquote(target) if target else page
        assert file.exists(), f"{page.name}: {target}"
        if anchor:
            file = file / "README.md" if file.is_dir() else file
            assert anchor in anchors(file), f"{page.name}: {target}#{anchor}"


def test_a_link_that_leads_to_no_page_is_told():
    with pytest.raises(ValueError, match=r"LICENSE leads to no page"):
        made().linked("[the licence](LICENSE)", "README.md")


def test_figure_1_has_the_line_of_each_class():
    module = made()
    table = module.figure_1(None)
    for pieces in (module.FIGURE_1, module.BESIDE_FIGURE_1):
        for _, _, name in pieces:
            path, line = module.place(module.find(f"tfxformer.{name}"))
            written = (ROOT / path).read_text("utf-8").splitlines()[line - 1]
            assert re.match(rf"\s*(class|def) {name.rpartition('.')[2]}\b", written)
            assert f">{path}:{line}</a>" in table


def test_every_command_and_option_is_in_the_reference():
    from typer.testing import CliRunner

    from tfxformer.cli import app

    page = made().commands(None)

    def help_of(*command):
        return CliRunner().invoke(app, [*command, "--help"]).output

    def commands_of(*group):
        listed = help_of(*group).partition("Options:")[2]
        for name in re.findall(r"^  ([a-z][a-z-]*)(?:  |$)", listed, re.M):
            inner = [*commands_of(*group, name)]
            yield from inner or [(*group, name)]

    commands = [*commands_of()]
    assert ("train",) in commands and ("plot", "positions") in commands
    for command in commands:
        told = help_of(*command)
        title = rf"^###? tfxformer {' '.join(command)}\n(.*?)(?=^#|\Z)"
        part = re.search(title, page, re.M | re.S)[1]
        options = {*re.findall(r"(?<![\w-])--[a-z][a-z-]+", told)} - {"--help"}
        assert options <= {*re.findall(r"--[a-z][a-z-]+", part)}, command


def test_the_picture_is_as_it_is_drawn():
    drawn = _module(DOCS / "picture.py").draw()
    assert (DOCS / "picture.svg").read_text("utf-8") == drawn


def test_every_line_of_the_articles_has_its_place():
    page = (DOCS / "articles.md").read_text("utf-8")
    rows = {}
    for part in page.split("\n## ")[1:]:
        title, *lines = part.splitlines()
        rows[title] = [line for line in lines if line.startswith("| ")][1:]
    assert {title: len(lines) for title, lines in rows.items()} == {
        "Pictures and tables": 14,
        "Tasks": 5,
        "Claims": 6,
        "Where an article is wrong": 5,
    }
    numbers = [line.split(" | ")[0] for line in rows["Pictures and tables"]]
    assert numbers == [f"| {n}" for n in range(1, 15)]
    for lines in rows.values():
        for line in lines:
            assert LINK.search(line.rpartition(" | ")[2]), line


# The site


class Page(html.parser.HTMLParser):
    """What a page refers to, and the anchors it has."""

    def __init__(self, file):
        super().__init__()
        self.links, self.loaded, self.ids, self.pictures = [], [], set(), []
        self.feed(file.read_text("utf-8"))

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.ids.add(attributes.get("id"))
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"])
        if tag == "link" and attributes.get("rel") in ("stylesheet", "icon", "preload"):
            self.loaded.append(attributes["href"])
        if tag in ("script", "img", "iframe", "source", "video", "audio"):
            self.loaded += filter(None, [attributes.get("src")])
        if tag == "img":
            self.pictures.append(attributes.get("alt"))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, as CI builds it."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", "-q"]
    built = subprocess.run(
        [*command, "-d", out / "doctrees", DOCS, out / "html"],
        capture_output=True,
        text=True,
        cwd=out,  # nothing is written beside the sources
    )
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    return out / "html"


@NEEDS_SPHINX
@pytest.mark.slow
def test_the_site_is_whole(site):
    pages = {file: Page(file) for file in site.rglob("*.html")}
    broken, fetched = [], []
    for file, page in pages.items():
        for link in page.links + page.loaded:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve()
            target = target if parts.path else file
            if not target.is_file():
                broken.append((file.name, link))
            elif target in pages and parts.fragment:
                # The theme's own is made by its script.
                known = pages[target].ids | {"", "top"}
                if unquote(parts.fragment) not in known:
                    broken.append((file.name, link))
        fetched += [x for x in page.loaded if urlsplit(x).netloc]
    assert broken == []
    assert fetched == [], "a page must open without a network"
    assert len(pages) > 30


@NEEDS_SPHINX
@pytest.mark.slow
def test_the_site_shows_what_is_public(site):
    text = "".join(x.read_text("utf-8") for x in site.glob("reference/*.html"))
    for module in documented():
        for name, _ in _shown(module):
            assert f'id="{module}.{name}"' in text, f"{module}.{name}"
    assert (site / "searchindex.js").stat().st_size > 10_000


@NEEDS_SPHINX
@pytest.mark.slow
def test_notebooks_are_shown_as_they_were_stored(site):
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        page = (site / "notebooks" / f"{notebook.stem}.html").read_text("utf-8")
        for heading in re.findall(r"^# +(.*)$", text_of(notebook), re.MULTILINE):
            assert slug(heading) in page
        assert "cell_output" in page
