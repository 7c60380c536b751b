"""The package is light to import, and its modules build on one another one way."""

import ast
import graphlib
import importlib.metadata
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import tfxformer

FOLDER = Path(tfxformer.__file__).parent
# Each may import those before it and itself, none that comes later.
ORDER = [
    ["tfxformer"],
    ["exporting", "errors", "quiet", "sentences", "listening"],
    ["outputs"],
    ["corpora"],
    ["tokenizer"],
    ["console", "config", "exporting.repository"],
    ["decoding.options", "commands"],
    ["plots.style"],
    ["plots"],
    ["layers"],
    ["model", "decoding", "training.loss", "training.schedule", "training"],
    ["batches"],
    ["run"],
    ["exporting.metadata"],
    ["exporting.signatures", "exporting.weights"],
    ["translator"],
    ["plots.attention_maps"],
    ["fine_tuning"],
    ["training.checkpoints", "training.data", "training.distribution"],
    ["training.step"],
    ["training.callbacks"],
    ["training.trainer"],
    ["evaluation"],
    ["exporting.verify"],
    ["bulk"],
    ["exporting.warm_up"],
    ["exporting.saved_model"],
    ["exporting.ctranslate2"],
    ["server"],
    ["quickstart"],
    ["demo"],
    ["plots.commands"],
    ["cli"],
]
HEAVY = ["tensorflow", "tensorflow_text", "keras", "numpy", "sentencepiece"]
HEAVY += ["sacrebleu", "typer", "rich", "yaml"]


def source_files():
    """Every module's name and file."""
    for file in sorted(FOLDER.rglob("*.py")):
        parts = file.relative_to(FOLDER.parent).with_suffix("").parts
        yield ".".join(part for part in parts if part != "__init__"), file


FILES = dict(source_files())


def imported(name, everywhere=True):
    """What a module imports: at its top, or in its functions too."""
    tree = ast.parse(FILES[name].read_text("utf-8"))
    nodes = [*ast.walk(tree)] if everywhere else tree.body
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: a relative import"
            for alias in node.names:
                below = f"{node.module}.{alias.name}"
                home = tfxformer._HOME_OF.get(alias.name)
                if below in FILES:
                    names.add(below)
                elif node.module == "tfxformer" and home:
                    names.add(f"tfxformer.{home}")
                else:
                    names.add(node.module)
    return names


def own(names):
    return {name for name in names if name.split(".")[0] == "tfxformer"}


def rank(name):
    """How late in ORDER a module comes."""
    short = name.removeprefix("tfxformer.")
    ranks = {part: number for number, level in enumerate(ORDER) for part in level}
    package = short.split(".")[0]
    assert short in ranks or package in ranks, f"{name}: give it a place in ORDER"
    return ranks.get(short, ranks.get(package))


def test_the_files_are_all_found():
    packages = pkgutil.walk_packages(tfxformer.__path__, "tfxformer.")
    assert {*FILES} == {"tfxformer", *(module.name for module in packages)}


@pytest.mark.parametrize("name", FILES)
def test_imports_go_one_way(name):
    late = {other for other in own(imported(name)) if rank(other) > rank(name)}
    assert not late, f"{name} imports {late}, which build on it"


@pytest.mark.parametrize("everywhere", [False, True])
def test_no_module_imports_itself_in_a_circle(everywhere):
    graph = {name: own(imported(name, everywhere)) - {name} for name in FILES}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError


def test_nothing_imports_the_command_line():
    assert not [name for name in FILES if "tfxformer.cli" in imported(name)]


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in FILES
        if name.startswith(("tfxformer.layers", "tfxformer.decoding"))
    ]
    + ["tfxformer.model", "tfxformer.training.loss", "tfxformer.training.schedule"],
)
def test_the_model_runs_on_any_backend(name):
    """None imports TensorFlow, nor what they import of the package: but the seam."""
    todo, done = [name], set()
    while todo:
        module = todo.pop()
        done.add(module)
        names = imported(module)
        # The tokenizer imports it in the functions that work in its graph.
        if module not in ("tfxformer.layers.kernels", "tfxformer.tokenizer"):
            assert not any(other.startswith("tensorflow") for other in names), module
        todo += own(names) - done


# --- What it costs to import ---


def run(code, *options):
    return subprocess.run(
        [sys.executable, *options, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
    )


def loaded_by(statement):
    """Which heavy packages an import brings along; it must not say a word."""
    done = run(f"{statement}\nimport json, sys\nprint(json.dumps([*sys.modules]))")
    assert (done.returncode, done.stderr) == (0, "")
    return {*HEAVY} & {*json.loads(done.stdout)}


def test_the_package_is_light():
    assert loaded_by("import tfxformer") == set()
    assert loaded_by("import tfxformer; dir(tfxformer); tfxformer.__all__") == set()


@pytest.mark.parametrize(
    ("module", "brings"),
    [
        ("errors", set()),
        ("quiet", set()),
        ("tokenizer", {"sentencepiece"}),
        ("sentences", set()),
        ("config", {"yaml"}),
        ("console", {"rich"}),
        ("plots", {"numpy"}),
        ("corpora", set()),
        ("exporting.metadata", {"numpy"}),
        ("exporting.verify", {"numpy"}),
        ("cli", {"typer", "rich", "yaml", "numpy"}),
    ],
)
def test_modules_that_must_not_wait_for_tensorflow(module, brings):
    assert loaded_by(f"import tfxformer.{module}") <= brings


def test_tensorflow_s_notes_are_off_unless_asked_for():
    level = "import os, tfxformer; print(os.environ['TF_CPP_MIN_LOG_LEVEL'])"
    asked = f"import os; os.environ['TF_CPP_MIN_LOG_LEVEL'] = '0'; {level}"
    assert run(asked).stdout == "0\n"
    unset = f"import os; os.environ.pop('TF_CPP_MIN_LOG_LEVEL', None); {level}"
    assert run(unset).stdout == "3\n"


# --- The public names ---


def test_every_public_name_resolves():
    assert {
        "CustomSchedule",
        "Tokenizer",
        "Transformer",
        "Translator",
        "masked_accuracy",
        "masked_loss",
        "positional_encoding",
    } <= {*tfxformer.__all__}
    assert [*tfxformer.__all__] == sorted({*tfxformer.__all__})
    for name in tfxformer.__all__:
        thing = getattr(tfxformer, name)
        assert thing.__name__ == name and thing.__doc__
        home = importlib.import_module(f"tfxformer.{tfxformer._HOME_OF[name]}")
        assert getattr(home, name) is thing
        assert name in dir(tfxformer)


def test_a_star_import_gives_the_public_names():
    names = {}
    exec("from tfxformer import *", names)
    assert {*names} - {"__builtins__"} == {*tfxformer.__all__}


@pytest.mark.parametrize("name", ["Transfomer", "tensorflow", "__path__x", "trainer"])
def test_a_name_that_does_not_exist(name):
    with pytest.raises(AttributeError, match=f"'tfxformer' has no attribute '{name}'"):
        getattr(tfxformer, name)
    with pytest.raises(ImportError):
        exec(f"from tfxformer import {name}")


def test_the_version_is_the_installed_one():
    assert tfxformer.__version__ == importlib.metadata.version("tfxformer")
