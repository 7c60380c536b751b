"""The notebooks: stored with their outputs, clean, and they run from top to bottom."""

import ast
import gzip
import importlib.util
import os
import re
import time
from pathlib import Path

import pytest

import tfxformer

nbformat = pytest.importorskip(
    "nbformat", reason="nbformat reads the notebooks: pip install 'tfxformer[test]'"
)

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
EXPECTED = {
    "attention_step_by_step",
    "other_tasks",
    "positions",
    "transformer",
    "why_attention",
}
LARGEST = 1_500_000  # bytes
# Seconds for one notebook: on an idle machine each takes less than half of it.
LIMIT = 900
FEWEST_WORDS = 7
# Nobody's, and in the data as well.
PROVERBS = {
    "when the cat is away the mice will play",
    "where there is smoke there is fire",
}
# Folders that only some machine has, its address, and the traces of a failed cell.
PRIVATE = re.compile(
    r"/(?:home|root|Users|work|tmp|opt|mnt|content|builds?|var/folders)/[\w.-]+"
    r"|file://|\b(?:\d{1,3}\.){3}\d{1,3}:\d+|Traceback \(most recent|Looking in indexes"
)


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def path(request):
    return request.param


@pytest.fixture
def notebook(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(notebook):
    return [output for cell in code_cells(notebook) for output in cell.outputs]


def texts(output):
    """All that an output says, pictures left out."""
    if output.output_type == "stream":
        yield output.text
    for kind, data in output.get("data", {}).items():
        if not kind.startswith("image/"):
            yield data if isinstance(data, str) else str(data)


def everything(notebook):
    """All text in a notebook, sources and outputs."""
    for cell in notebook.cells:
        yield cell.source
        for output in cell.get("outputs", ()):
            yield from texts(output)


def plain(text):
    """Lower-case words, for a comparison that spaces and signs do not matter to."""
    return " ".join(re.findall(r"\w+", text.lower()))


def test_all_notebooks_are_there():
    assert {path.stem for path in NOTEBOOKS} == EXPECTED


def test_it_was_run_from_top_to_bottom(notebook):
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == [*range(1, len(cells) + 1)]
    assert sum(bool(cell.outputs) for cell in cells) >= len(cells) / 2


def test_no_output_is_an_error_or_a_warning(notebook):
    for output in outputs(notebook):
        assert output.output_type != "error"
        assert output.get("name") != "stderr", output.text


def test_nothing_in_it_is_of_one_machine(notebook):
    for text in everything(notebook):
        assert not (found := PRIVATE.search(text)), found
        assert os.uname().nodename not in text.split()


def test_its_metadata_are_those_of_any_machine(notebook):
    assert {*notebook.metadata} <= {"kernelspec", "language_info"}
    assert notebook.metadata.kernelspec.name == "python3"
    assert {*notebook.metadata.language_info} <= {"name"}
    for cell in notebook.cells:
        assert not cell.metadata


def test_it_is_small_enough_to_read_in_a_browser(path):
    assert path.stat().st_size < LARGEST


def test_each_picture_says_what_it_shows(notebook):
    """In words that a screen reader finds: its alternative text, or a caption."""
    pictures = 0
    for place, cell in enumerate(notebook.cells):
        found = cell.get("outputs", ())
        for number, output in enumerate(found):
            kinds = [k for k in output.get("data", {}) if k.startswith("image/")]
            if not kinds:
                continue
            pictures += 1
            said = [output.metadata.get(kind, {}).get("alt", "") for kind in kinds]
            beside = found[number + 1 : number + 2]
            said += [o.data.get("text/markdown", "") for o in beside if "data" in o]
            after = notebook.cells[place + 1 : place + 2]
            said += [c.source for c in after if c.cell_type == "markdown"]
            assert any(len(text.split()) >= 4 for text in said), cell.source
    assert pictures


def test_it_begins_by_installing_what_is_missing(notebook):
    first = code_cells(notebook)[0]
    assert "find_spec" in first.source and "%pip install" in first.source
    assert not first.outputs


def test_all_install_in_the_same_way():
    firsts = {code_cells(nbformat.read(path, 4))[0].source for path in NOTEBOOKS}
    assert len(firsts) == 1


@pytest.mark.parametrize(
    ("missing", "inside", "wanted"),
    [
        (["tfxformer"], False, "tfxformer[plots]"),
        (["tfxformer"], True, "{checkout}[plots]"),
        (["matplotlib"], True, "{checkout}[plots]"),
        ([], True, None),
    ],
)
def test_what_the_first_cell_installs(tmp_path, monkeypatch, missing, inside, wanted):
    source = code_cells(nbformat.read(NOTEBOOKS[0], 4))[0].source
    assert source.count("%pip install --quiet") == 1
    source = source.replace('%pip install --quiet "{package}"', "asked.append(package)")
    checkout = tmp_path / "checkout"
    (checkout / "tfxformer").mkdir(parents=True)
    (checkout / "tfxformer" / "__init__.py").touch()
    (checkout / "notebooks").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(checkout / "notebooks" if inside else tmp_path / "elsewhere")
    there = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: None if name in missing else there("json"),
    )
    asked = []
    exec(compile(ast.parse(source), "cell", "exec"), {"asked": asked})
    assert asked == ([wanted.format(checkout=checkout)] if wanted else [])


@pytest.fixture(scope="module")
def theirs():
    """Lines of the data beside some checkouts, which have licences of their own."""
    lines = {
        plain(part)
        for file in sorted((ROOT.parent / "shared" / "data").rglob("*.tsv*"))
        for line in (gzip.open if file.suffix == ".gz" else open)(file, "rb")
        for part in line.decode().rstrip("\n").split("\t")
    }
    if not lines:
        pytest.skip("no ../shared/data beside this checkout")
    # Anyone says shorter ones.
    return {x for x in lines - PROVERBS if len(x.split()) >= FEWEST_WORDS}


def test_no_text_of_data_that_is_not_ours_is_in_it(notebook, theirs):
    ours = plain("\n".join(everything(notebook)))
    words = ours.split()
    begins = {tuple(words[place : place + FEWEST_WORDS]) for place in range(len(words))}
    may_be = (x for x in theirs if tuple(x.split()[:FEWEST_WORDS]) in begins)
    assert not [line for line in may_be if line in ours]


@pytest.mark.slow
def test_it_runs(path, tmp_path, monkeypatch):
    """As a newcomer runs it, in a folder of its own; each cell's claims hold."""
    nbclient = pytest.importorskip(
        "nbclient", reason="nbclient runs the notebooks: pip install 'tfxformer[test]'"
    )
    pytest.importorskip("ipykernel", reason="a kernel: pip install 'tfxformer[test]'")
    pytest.importorskip("matplotlib", reason="pictures: pip install 'tfxformer[plots]'")
    # The kernel imports the package that these tests import, installed or not.
    paths = [str(Path(tfxformer.__file__).parents[1]), os.environ.get("PYTHONPATH")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    notebook = nbformat.read(path, as_version=4)
    for cell in code_cells(notebook):
        cell.outputs, cell.execution_count = [], None
    end = time.monotonic() + LIMIT
    client = nbclient.NotebookClient(
        notebook,
        # For a cell: what is left for them all.
        timeout_func=lambda cell: max(end - time.monotonic(), 1),
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute()
    noise = [o.text for o in outputs(notebook) if o.get("name") == "stderr"]
    assert not noise
