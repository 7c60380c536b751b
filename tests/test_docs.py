"""The documentation: links work, and the site builds."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [*ROOT.glob("*.md"), *DOCS.glob("*.md"), *DOCS.glob("*/*.md")]
PAGES = sorted([*PAGES, *ROOT.glob("*/README.md"), *ROOT.glob("export/*/README.md")])
LINK = re.compile(r"\]\(([^)\s]*?)(?:#([^)\s]*))?\)")
CODE = re.compile(r"^(```+|~~~+).*?^\1|`[^`\n]*`", re.DOTALL | re.MULTILINE)


def module(name):
    """Imports `docs/NAME.py`, which is in no package."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def anchors(file):
    """The anchors of a file's headings, as GitHub and MyST make them."""
    text = file.read_text("utf-8")
    if file.suffix == ".ipynb":
        cells = [x for x in json.loads(text)["cells"] if x["cell_type"] == "markdown"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells)
    for heading in re.findall(r"^#{1,6} +(.*)$", text, re.MULTILINE):
        plain = re.sub(r"[`*]|\]\([^)]*\)|\[", "", heading).strip().lower()
        yield re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda x: x.relative_to(ROOT).as_posix())
def test_links_lead_to_existing_files_and_headings(page):
    for target, anchor in LINK.findall(CODE.sub("", page.read_text("utf-8"))):
        if ":" in target:
            continue
        file = page.parent / unquote(target) if target else page
        assert file.exists(), target
        if anchor:
            file = file / "README.md" if file.is_dir() else file
            assert anchor in anchors(file), f"{target}#{anchor}"


def test_generated_parts_of_pages_are_up_to_date():
    made = module("made")
    for page in DOCS.rglob("*.md"):
        text = page.read_text("utf-8")
        stale = f"{page.relative_to(ROOT)} is stale: run python docs/made.py"
        assert made.renewed(text) == text, stale


def test_the_hours_of_the_large_presets_are_those_that_are_computed():
    made = module("made")
    table = (DOCS / "train.md").read_text("utf-8")
    for name in ("base", "big"):
        [hours] = re.findall(rf"`{name}` .*\| (\S+ to \S+) \|$", made.hours(), re.M)
        assert re.search(rf"(?m)^\| `{name}`, .* \| {hours} \(computed\)", table)


def test_parameters_are_counted_as_the_model_has_them():
    from tfxformer import Transformer
    from tfxformer.config import load_config

    for name in ("tiny", "tutorial"):
        config = load_config(name)
        sizes = config.model.model_dump()
        vocab_size = config.tokenizer.vocab_size
        vocabularies = ("input_vocab_size", "target_vocab_size")
        model = Transformer(**sizes, **dict.fromkeys(vocabularies, vocab_size))
        model.build()
        assert module("made").parameters(config) == model.count_params()


def test_the_glossary_names_a_notebook_that_has_the_term():
    page = (DOCS / "glossary.md").read_text("utf-8")
    rows = re.findall(r"(?m)^\| ([^|]+) \| [^|]+ \| \[\w+\]\((\S+)\) \|$", page)
    assert len(rows) > 20 and rows == sorted(rows, key=lambda row: row[0].lower())
    for terms, path in rows:
        cells = json.loads((DOCS / path).read_text("utf-8"))["cells"]
        text = " ".join("".join(cell["source"]) for cell in cells).lower()
        for term in terms.split(", "):
            assert re.search(rf"\b{term.lower()}", text), f"{path} lacks {term}"


def test_names_link_to_the_files_that_define_them():
    links = module("made").NAME
    for page in PAGES:
        for name, path in links.findall(page.read_text("utf-8")):
            code = (ROOT / f"{path}.py").read_text("utf-8")
            last = name.rpartition(".")[2]
            assert re.search(rf"^ *(class|def) {last}\b", code, re.MULTILINE), name


def test_how_it_is_built_lists_exactly_the_modules_of_the_package():
    text = (DOCS / "how_it_is_built.md").read_text("utf-8")
    rooms = text.partition("## The rooms")[2].partition("## One sentence")[0]
    package = ROOT / "tfxformer"
    named = set()
    for room, *described in re.findall(r"^\| (.+?) \| (.+) \|$", rooms, re.MULTILINE):
        folders = re.findall(r"`(\w+/)`", room)
        files = re.findall(r"`(\w+\.py)`", room if not folders else described[0])
        named |= {(folders[0] if folders else "") + file for file in files}
    modules = {file.relative_to(package).as_posix() for file in package.rglob("*.py")}
    known = {x for x in modules if not x.endswith("__init__.py") or x in named}
    assert named == known


@pytest.mark.slow
def test_the_site_builds_without_warnings_and_loads_no_remote_files(tmp_path):
    for name in ("sphinx", "myst_nb", "furo", "latex2mathml"):
        pytest.importorskip(name, reason="pip install '.[docs]'")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", "-q"]
    built = subprocess.run(
        [*command, "-d", tmp_path / "doctrees", DOCS, tmp_path / "html"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert built.returncode == 0, built.stderr
    pages = [file.read_text("utf-8") for file in (tmp_path / "html").rglob("*.html")]
    assert len(pages) > 30
    for page in pages:  # pages load nothing from the network
        loaded = r'<(?:script|img|iframe)[^>]* src="(?:https?:)?//'
        loaded += r'|<link[^>]*stylesheet[^>]*"(?:https?:)?//'
        assert not re.search(loaded, page)
    for name in ("index.html", "learn.html"):
        assert 'href="page.html"' in (tmp_path / "html" / name).read_text("utf-8")
    settings = (tmp_path / "html" / "reference" / "settings.html").read_text("utf-8")
    assert 'id="tfxformer.config.TrainingConfig.steps"' in settings
    assert "Updates of the weights." in settings
