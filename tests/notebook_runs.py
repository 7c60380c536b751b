"""Runs the notebooks, with the claims of their text checked between their cells.

`python tests/notebook_runs.py NAME ...` runs notebooks with all of their training steps
and stores their outputs. `--answers` runs the answers of the exercises as well.

`notebook_claims/NAME.py` has the checks that a reader need not see. Each block begins
with a line that says where it runs:

    # %% after: a line of one code cell
    # %% trained: the same, and only where the notebook trains all of its steps
    # %% answer: 2        (after the Python code in the answer to exercise 2)
"""

import argparse
import os
import re
import tempfile
import textwrap
import time
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_notebook

import tfxformer

ROOT = Path(__file__).parents[1]
NAMES = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
STEPS = re.compile(r"(?m)^(\w*STEPS) = \d+")
QUICK = 20  # training steps of a quick run, in place of a line such as STEPS = 600
# Finds `tfxformer.notebooks` in a checkout, where nothing has installed it.
IN_CHECKOUT = f"import tfxformer\ntfxformer.__path__.append({str(ROOT)!r})"
ANSWER = re.compile(r"<summary>Answer (\d+)</summary>(.*?)</details>", re.DOTALL)
CODE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def path_of(name):
    return ROOT / "notebooks" / f"{name}.ipynb"


def claims_of(name):
    """The blocks of a notebook's claims: (where, a line or a number, code).

    The code is a function, so that its names do not change the notebook's.
    """
    file = ROOT / "tests" / "notebook_claims" / f"{name}.py"
    if not file.exists():
        return []
    parts = re.split(r"(?m)^# %% (\w+): (.+)\n", file.read_text(encoding="utf-8"))[1:]
    codes = [textwrap.indent(code, "    ") for code in parts[2::3]]
    codes = [f"def claim():\n{code}\nclaim()" for code in codes]
    return [*zip(parts[::3], parts[1::3], codes, strict=True)]


def answers_of(notebook):
    """The Python code of the exercises' answers, by the exercise's number."""
    found = {}
    for cell in notebook.cells:
        for number, text in ANSWER.findall(cell.source):
            if codes := CODE.findall(text):
                found[number] = "\n".join(codes)
    return found


def with_claims(notebook, name, quick):
    """The cells of a notebook with the checks of its text between them."""
    cells, placed = [], []
    if Path(tfxformer.__file__).is_relative_to(ROOT):
        cells.append(new_code_cell(IN_CHECKOUT))
    claims = [claim for claim in claims_of(name) if claim[0] != "answer"]
    for cell in notebook.cells:
        cells.append(cell)
        for claim in claims:
            where, line, code = claim
            if cell.cell_type == "code" and line in cell.source.splitlines():
                placed.append(claim)
                if where == "after" or not quick:
                    cells.append(new_code_cell(code))
    # Each claim has one place.
    assert sorted(placed) == sorted(claims), {*claims} ^ {*placed} or placed
    return cells


def answers_with_checks(notebook, name):
    """The code of the exercises' answers, each with its check."""
    checks = {line: code for where, line, code in claims_of(name) if where == "answer"}
    answers = answers_of(notebook)
    assert {*checks} <= {*answers}
    for number, code in answers.items():
        yield new_code_cell(code)
        yield new_code_cell(checks.get(number, ""))


def run(name, folder, quick=True, answers=True, done=lambda notebook: None):
    """Runs a notebook in a folder of its own, and then the answers of its exercises.

    Gives the notebook with its new outputs, and passes it to ``done`` before answers.
    """
    from nbclient import NotebookClient

    notebook = nbformat.read(path_of(name), as_version=4)
    if quick:
        for cell in notebook.cells:
            cell.source = STEPS.sub(rf"\1 = {QUICK}", cell.source)
    cells = with_claims(notebook, name, quick)
    more = [*answers_with_checks(notebook, name)] if answers else []
    checked = new_notebook(cells=cells + more, metadata=notebook.metadata)
    resources = {"metadata": {"path": str(folder)}}
    options = {"timeout": 1800, "resources": resources, "record_timing": False}
    client = NotebookClient(checked, **options)
    with client.setup_kernel():
        for number, cell in enumerate(checked.cells):
            if number == len(cells):
                done(notebook)
            client.execute_cell(cell, number)
    if not more:
        done(notebook)
    return notebook


def joined(outputs):
    """The outputs, with successive prints joined into one."""
    found = []
    for output in outputs:
        if found and output.get("name") == found[-1].get("name") == "stdout":
            found[-1].text += output.text
        else:
            found.append(output)
    return found


def store(name, answers):
    """Runs a notebook with all of its training steps and stores it with its outputs."""
    started = time.perf_counter()

    def done(notebook):
        codes = [cell for cell in notebook.cells if cell.cell_type == "code"]
        for number, cell in enumerate(codes, 1):
            cell.execution_count = number
            cell.outputs = joined(cell.outputs)
            for output in cell.outputs:
                if output.output_type == "execute_result":
                    output.execution_count = number
        notebook.metadata.language_info = {"name": "python"}
        nbformat.write(notebook, path_of(name))
        print(f"{name}: {time.perf_counter() - started:.0f} s", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        run(name, folder, quick=False, answers=answers, done=done)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--answers", action="store_true")
    options = parser.parse_args()
    paths = [str(ROOT), os.environ.get("PYTHONPATH")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    for name in options.names:
        store(name, options.answers)


if __name__ == "__main__":
    main()
