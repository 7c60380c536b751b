"""The package is fast to import, and its modules have no circular imports."""

import ast
import graphlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import tfxformer

FOLDER = Path(tfxformer.__file__).parent
FILES = {
    ".".join(file.relative_to(FOLDER.parent).with_suffix("").parts): file
    for file in FOLDER.rglob("*.py")
}
FILES = {name.removesuffix(".__init__"): file for name, file in FILES.items()}
# Written in keras.ops; only `layers.kernels` calls TensorFlow.
MODEL = ["layers", "decoding", "model", "training.loss"]
HEAVY = {"tensorflow", "tensorflow_text", "keras", "numpy", "sentencepiece"}
HEAVY |= {"sacrebleu", "typer", "rich", "yaml"}


def imported(name):
    """The imports of a module, also those in functions."""
    for node in ast.walk(ast.parse(FILES[name].read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: a relative import"
            for alias in node.names:
                below = f"{node.module}.{alias.name}"
                yield below if below in FILES else node.module


def test_modules_and_folders_have_no_circular_imports():
    graph = {name: {*imported(name)} & {*FILES} - {name} for name in FILES}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError
    rooms = {}
    for name, names in graph.items():
        room, *others = (".".join(x.split(".")[:2]) for x in (name, *names))
        rooms.setdefault(room, set()).update({*others} - {room})
    rooms.pop("tfxformer")  # everything imports the version
    graphlib.TopologicalSorter(rooms).prepare()
    assert not [name for name, names in graph.items() if "tfxformer.cli" in names]


def test_model_code_outside_kernels_does_not_import_tensorflow():
    parts = tuple(f"tfxformer.{part}" for part in MODEL)
    for name in FILES:
        if name.startswith(parts) and name != "tfxformer.layers.kernels":
            names = [*imported(name)]
            assert not [x for x in names if x.startswith("tensorflow")], name


# --- The cost of imports ---


def loaded_by(module):
    """The heavy packages that an import loads; it must print nothing."""
    code = f"import json, sys, {module}; print(json.dumps([*sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return HEAVY & {*json.loads(done.stdout)}


@pytest.mark.parametrize(
    ("module", "brings"),
    [
        ("tfxformer", set()),
        ("tfxformer.console", {"rich"}),
        ("tfxformer.corpora", set()),
        ("tfxformer.tokenizer", {"sentencepiece"}),
        ("tfxformer.cli", {"typer", "rich", "yaml", "numpy", "sentencepiece"}),
    ],
)
def test_importing_a_light_module_loads_neither_tensorflow_nor_keras(module, brings):
    assert loaded_by(module) <= brings


# --- The public names ---


def test_every_public_name_resolves():
    names = {"CustomSchedule", "Tokenizer", "Transformer", "Translator"}
    names |= {"masked_accuracy", "masked_loss", "positional_encoding"}
    assert names <= {*tfxformer.__all__} <= {*dir(tfxformer)}
    for name in tfxformer.__all__:
        found = getattr(tfxformer, name)
        assert found.__name__ == name and found.__doc__
