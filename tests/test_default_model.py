"""The model that comes with the package answers wherever none is named."""

import functools

import pytest

import tfxformer.translator
from tfxformer import Translator
from tfxformer.exporting.repository import shipped_model

PAIRS = "O gato bebe leite.\tThe cat drinks milk.\nBom dia!\tGood morning!\n"
COMMANDS = [
    ["translate", "Bom dia!"],
    ["score", "-i", "pairs.tsv"],
    ["evaluate", "--data", "pairs.tsv"],
    ["plot", "attention", "O gato bebe leite.", "--out", "page.html"],
    ["plot", "neighbours", "gato", "--out", "gato.svg"],
    pytest.param(["bulk", "-i", "in.txt", "--out", "out"], marks=pytest.mark.slow),
]


read_export = functools.cache(tfxformer.translator.read_export)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tfxformer.translator, "read_export", read_export)
    (tmp_path / "pairs.tsv").write_text(PAIRS, "utf-8")
    (tmp_path / "in.txt").write_text("Bom dia!\n", "utf-8")
    return tmp_path


@pytest.mark.parametrize("args", COMMANDS, ids=lambda args: " ".join(args[:2]))
def test_a_command_uses_it_and_names_it(command, folder, args):
    out, err, code = command(*args)
    assert code == 0 and out, err
    named = [line for line in err.splitlines() if line.startswith("model: ")]
    assert [line.removesuffix(" (loading)") for line in named] == [
        f"model: {shipped_model()}"
    ]


def test_in_python(folder):
    assert Translator.load()("Bom dia!") == "Good morning!"


def test_a_checkpoint_of_an_export_is_refused(command, folder):
    for name in ("translate", "evaluate"):
        args = {"translate": ["Bom dia!"], "evaluate": ["--data", "pairs.tsv"]}[name]
        out, err, code = command(name, *args, "--checkpoint", "nonsense")
        assert (out, code) == ("", 1)
        assert "checkpoint 'nonsense': " in err and "exported model" in err
    args = "O gato", "--out", "page.html", "--checkpoint", "last"
    _, err, code = command("plot", "attention", *args)
    assert code == 1 and "checkpoint 'last': " in err


def test_a_text_that_is_a_file_s_name_brings_a_hint(command, folder):
    _, err, _ = command("translate", "in.txt", "Bom dia!")
    hints = [line for line in err.splitlines() if "-i " in line]
    assert hints == [
        "'in.txt' is translated as a text; to translate what is in that file: -i in.txt"
    ]
