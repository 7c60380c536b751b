"""The notebooks have clean outputs and run from top to bottom."""

import ast
import gzip
import os
import re
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("nbformat", reason="pip install 'tfxformer[test]'")

import nbformat
from notebook_runs import NAMES, ROOT, answers_of, claims_of, path_of, run

import tfxformer

FEWEST_WORDS = 10  # shorter sentences are too common to compare
TUTORIAL = "vou então muito rapidamente partilhar convosco"  # its sentence
# Paths and addresses of a machine, and the traceback of a failed cell.
PRIVATE = re.compile(
    r"/(?:home|root|Users|work|tmp|opt|mnt|content|builds?|var/folders)/[\w.-]+"
    r"|file://|\b(?:\d{1,3}\.){3}\d{1,3}:\d+|Traceback \(most recent|Looking in indexes"
)


def read(name):
    notebook = nbformat.read(path_of(name), as_version=4)
    nbformat.validate(notebook)
    return notebook, [cell for cell in notebook.cells if cell.cell_type == "code"]


def everything(notebook):
    """All text in a notebook, sources and outputs, without pictures."""
    for cell in notebook.cells:
        yield cell.source
        for output in cell.get("outputs", ()):
            yield output.get("text", "")
            data = output.get("data", {}).items()
            yield from (str(x) for kind, x in data if not kind.startswith("image/"))


def plain(text):
    """Lower-case words, for comparing texts without spaces and punctuation."""
    return " ".join(re.findall(r"\w+", text.lower()))


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_stored_with_clean_outputs_of_all_cells(name):
    notebook, cells = read(name)
    assert "%pip install" in cells[0].source  # installs the package
    for number, cell in enumerate(cells, 1):
        assert cell.execution_count == number
        for output in cell.outputs:
            assert output.output_type != "error" and output.get("name") != "stderr"
    for text in everything(notebook):
        assert not (found := PRIVATE.search(text)), found
        assert os.uname().nodename not in text.split()
    assert {*notebook.metadata} <= {"kernelspec", "language_info"}
    assert not any(cell.metadata for cell in notebook.cells)


@pytest.mark.parametrize("name", NAMES)
def test_each_picture_of_a_notebook_has_a_text_alternative(name):
    notebook, _ = read(name)
    for cell, after in zip(notebook.cells, [*notebook.cells[1:], {}], strict=True):
        outputs = cell.get("outputs", ())
        for output, beside in zip(outputs, [*outputs[1:], {}], strict=False):
            kinds = [k for k in output.get("data", {}) if k.startswith("image/")]
            said = [output.metadata.get(kind, {}).get("alt", "") for kind in kinds]
            said.append(beside.get("data", {}).get("text/markdown", ""))
            if after.get("cell_type") == "markdown":
                said.append(after.source)
            assert not kinds or any(len(x.split()) >= 4 for x in said), cell.source


@pytest.mark.slow
def test_notebooks_contain_no_sentences_of_third_party_data():
    files = [*(ROOT.parent / "shared" / "data").rglob("*.tsv*")]
    if not files:
        pytest.skip("no ../shared/data beside this checkout")
    ours = [plain("\n".join(everything(read(name)[0]))).split() for name in NAMES]
    begins = {tuple(x[i : i + FEWEST_WORDS]) for x in ours for i in range(len(x))}
    for file in files:
        opened = gzip.open if file.suffix == ".gz" else open
        with opened(file, "rt", encoding="utf-8", errors="replace") as lines:
            for text in (plain(text) for line in lines for text in line.split("\t")):
                start = tuple(text.split()[:FEWEST_WORDS])
                fine = start not in begins or text.startswith(TUTORIAL)
                assert len(start) < FEWEST_WORDS or fine, text


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_keeps_its_checks_out_of_the_reader_s_sight(name):
    _, cells = read(name)
    assert claims_of(name)
    asserts = [line for cell in cells for line in cell.source.splitlines()]
    asserts = [line for line in asserts if line.lstrip().startswith("assert")]
    # In `transformer`, you check each layer against the package's.
    assert len(asserts) <= (15 if name == "transformer" else 0), asserts


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_imports_only_what_its_first_cell_installs(name):
    _, cells = read(name)
    code = "\n".join(cell.source for cell in cells)
    modules = {*re.findall(r"(?m)^ *(?:from|import) (\w+)", code)}
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    project = settings["project"]
    installed = project["dependencies"] + project["optional-dependencies"]["plots"]
    installed = {re.match(r"\w+", package)[0] for package in installed}
    known = installed | {"tfxformer", "IPython"} | sys.stdlib_module_names
    assert modules <= known
    if "tfxformer.notebooks" in code:
        assert "tfxformer.notebooks" in settings["tool"]["setuptools"]["packages"]


@pytest.mark.parametrize("name", NAMES)
def test_each_exercise_of_a_notebook_has_an_answer(name):
    notebook, _ = read(name)
    [exercises] = [x.source for x in notebook.cells if "## Exercises" in x.source]
    asked = re.findall(r"(?m)^(\d+)\. ", exercises)
    assert asked == re.findall(r"<summary>Answer (\d+)</summary>", exercises)
    assert answers_of(notebook)


def test_why_attention_has_each_claim_just_before_the_cell_that_judges_it():
    code = (ROOT / "notebooks" / "comparison.py").read_text("utf-8")
    [claims] = re.findall(r"(?ms)^CLAIMS = (\{.*?^\})", code)
    said, judged = [], []
    for place, cell in enumerate(read("why_attention")[0].cells):
        if cell.cell_type == "markdown":
            text = re.sub(r"(?<=.)\n> ", " ", cell.source)  # a quotation on one line
            found = re.findall(r"(?m)^> \*\*Claim (\d)\*\*: (.*)\.$", text)
            said += [(place + 1, int(number), claim) for number, claim in found]
        else:
            found = re.findall(r"(?m)^judge\((\d),", cell.source)
            judged += [(place, int(number)) for number in found]
    assert [(n, claim) for _, n, claim in said] == [*ast.literal_eval(claims).items()]
    assert [(place, n) for place, n, _ in said] == judged


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_with_its_claims_and_the_answers_to_its_exercises(
    name, tmp_path, monkeypatch
):
    """In a folder of its own, with fewer training steps."""
    pytest.importorskip("nbclient", reason="pip install 'tfxformer[test]'")
    # The kernel imports the package that these tests import, installed or not.
    paths = [str(Path(tfxformer.__file__).parents[1]), os.environ.get("PYTHONPATH")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    notebook = run(name, tmp_path)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    outputs = [output for cell in cells for output in cell.outputs]
    assert not [x.text for x in outputs if x.get("name") == "stderr"]
