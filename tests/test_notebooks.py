"""The notebooks have clean outputs and run from top to bottom."""

import gzip
import os
import re
from pathlib import Path

import pytest

import tfxformer

nbformat = pytest.importorskip("nbformat", reason="pip install 'tfxformer[test]'")

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
QUICK = 20  # training steps in these tests, in place of a line such as STEPS = 600
FEWEST_WORDS = 10  # shorter sentences are too common to compare
TUTORIAL = "vou então muito rapidamente partilhar convosco"  # its sentence
# Paths and addresses of a machine, and the traceback of a failed cell.
PRIVATE = re.compile(
    r"/(?:home|root|Users|work|tmp|opt|mnt|content|builds?|var/folders)/[\w.-]+"
    r"|file://|\b(?:\d{1,3}\.){3}\d{1,3}:\d+|Traceback \(most recent|Looking in indexes"
)


def read(name):
    notebook = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
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


@pytest.mark.parametrize("name", NOTEBOOKS)
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


@pytest.mark.parametrize("name", NOTEBOOKS)
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
    ours = [plain("\n".join(everything(read(name)[0]))).split() for name in NOTEBOOKS]
    begins = {tuple(x[i : i + FEWEST_WORDS]) for x in ours for i in range(len(x))}
    for file in files:
        opened = gzip.open if file.suffix == ".gz" else open
        with opened(file, "rt", encoding="utf-8", errors="replace") as lines:
            for text in (plain(text) for line in lines for text in line.split("\t")):
                start = tuple(text.split()[:FEWEST_WORDS])
                fine = start not in begins or text.startswith(TUTORIAL)
                assert len(start) < FEWEST_WORDS or fine, text


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_without_errors(name, tmp_path, monkeypatch):
    """In a folder of its own, with fewer training steps."""
    nbclient = pytest.importorskip("nbclient", reason="pip install 'tfxformer[test]'")
    # The kernel imports the package that these tests import, installed or not.
    paths = [str(Path(tfxformer.__file__).parents[1]), os.environ.get("PYTHONPATH")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    (notebook, cells), resources = read(name), {"metadata": {"path": str(tmp_path)}}
    for cell in cells:
        cell.source = re.sub(r"(?m)^(\w*STEPS) = \d+", rf"\1 = {QUICK}", cell.source)
    nbclient.NotebookClient(notebook, timeout=900, resources=resources).execute()
    outputs = [output for cell in cells for output in cell.outputs]
    assert not [x.text for x in outputs if x.get("name") == "stderr"]
