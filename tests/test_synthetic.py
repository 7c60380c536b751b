"""Back-translation and distillation, with a stand-in for the model and with one."""

import errno
import gzip
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfxformer import synthetic
from tfxformer.corpora import Counts, Pair, clean, normalize, read_tsv
from tfxformer.decoding_options import DecodingOptions
from tfxformer.errors import UserError
from tfxformer.synthetic import backtranslate, distill
from tfxformer.translator import Translator


class Model:
    """Words are its tokens, and each is translated by its letters from the end."""

    max_length = 20

    def __init__(self):
        self.options = DecodingOptions()
        self.known = {}  # translations by text, other than those
        self.asked = []  # what was translated, a list for each call
        self.breaks_at = None  # a text that ends it all

    def answers(self, signature, inputs):
        assert signature == "count"
        return {"tokens": np.array([len(text.split()) for text in inputs["text"]])}

    def translate(self, texts, tokens_per_batch, split_sentences):
        assert not split_sentences
        if self.breaks_at in texts:
            raise KeyboardInterrupt
        self.asked.append(texts)
        return [self.answer(text) for text in texts], np.zeros(len(texts))

    def answer(self, text):
        words = text.split()
        assert 0 < len(words) < self.max_length and text == normalize(text)
        return self.known.get(text, " ".join(word[::-1] for word in words))


@pytest.fixture
def model(monkeypatch, tmp_path):
    """What a run folder, which is `tmp_path`, gives."""
    model = Model()
    monkeypatch.setattr(Translator, "load", lambda *args: model)
    for name in ("config.yaml", "tokenizer.model", "best.weights.h5"):
        (tmp_path / name).write_text(name)
    return model


@pytest.fixture
def messages(caplog):
    logger = logging.getLogger("tfxformer")
    logger.addHandler(caplog.handler)
    caplog.set_level(logging.INFO, "tfxformer")
    yield lambda: [*dict.fromkeys(record.getMessage() for record in caplog.records)]
    logger.removeHandler(caplog.handler)


def write(path, *lines):
    lines = (line if isinstance(line, bytes) else line.encode() for line in lines)
    text = b"".join(line + b"\n" for line in lines)
    path.write_bytes(gzip.compress(text) if path.name.endswith(".gz") else text)
    return path


def test_what_people_wrote_is_the_target_and_the_tag_tells(model, tmp_path, messages):
    text = write(tmp_path / "a.en", "the  cat", "", b"\xff", "ﬁne day\r", " \u2028")
    out = backtranslate(tmp_path, text, tmp_path / "a.tsv")
    assert out.read_text() == "<BT> eht tac\tthe cat\n<BT> enif yad\tfine day\n"
    assert messages()[-1] == (
        f"{out}: 5 lines read, 2 pairs made, 3 left out (1 not UTF-8, 2 blank)"
    )
    untagged = backtranslate(tmp_path, text, tmp_path / "b.tsv", tag="")
    assert untagged.read_text() == out.read_text().replace("<BT> ", "")


def test_a_student_reads_sources_without_a_tag(model, tmp_path):
    text = write(tmp_path / "a.pt", "o gato", "um\tdia")
    out = distill(tmp_path, text, tmp_path / "a.tsv")
    assert out.read_text() == "o gato\to otag\num dia\tmu aid\n"
    tagged = distill(tmp_path, text, tmp_path / "b.tsv", tag="<KD>")
    assert tagged.read_text().splitlines()[0] == "<KD> o gato\to otag"


def test_the_sources_of_pairs_are_distilled(model, tmp_path, messages):
    rows = ["", "o gato\tthe cat", "no tab", "a\tb\tc", "\tempty", "  "]
    pairs = write(tmp_path / "pairs.tsv.gz", *rows)
    out = distill(tmp_path, pairs, tmp_path / "a.tsv")
    assert out.read_text() == "o gato\to otag\n"
    assert "5 left out (2 not two columns, 3 blank)" in messages()[-1]
    with pytest.raises(UserError, match=r"pairs.tsv.gz: holds pairs; .* cut -f2"):
        backtranslate(tmp_path, pairs, tmp_path / "b.tsv")


def words(number):
    return " ".join(f"w{i}" for i in range(number))


JUNK = [
    ("Hello there", "hello there!", "copied, not translated"),
    ("...", "!", "copied, not translated"),
    ("the dog", " ", "empty translation"),
    ("the dog", "não, Não não, não!", "translation in a loop"),
    ("the dog", "um ninininini", "translation in a loop"),
    # Two tokens and the end: 16 at most, and with 16 there is no end.
    ("the dog", words(16), "translation without an end"),
    (words(9), words(20), "translation without an end"),  # the model has no more
    ("the dog", "o cachorro que viu o gato em cima do telhado", "length ratio"),
    (words(20), "curto", "too long"),
    ("x" * 1001, "curto", "too long"),
    ("a tale", "".join(map(chr, range(0x4E00, 0x5200))), "too long"),
]
FINE = [
    ("the dog", words(7)),
    ("ha ha ha ha ha", "he he he he he"),  # as the text does
    ("no no no", "não não não"),
    (words(19), words(18) + " end"),
]


@pytest.mark.parametrize("text, translation, reason", JUNK)
def test_what_teaches_nothing_is_left_out(
    text, translation, reason, model, tmp_path, messages
):
    model.known[text] = translation
    file = write(tmp_path / "a.en", "the cat", text)
    out = backtranslate(tmp_path, file, tmp_path / "a.tsv")
    assert out.read_text() == "<BT> eht tac\tthe cat\n"
    assert messages()[-1].endswith(f"1 pairs made, 1 left out (1 {reason})")


@pytest.mark.parametrize("text, translation", FINE)
def test_what_may_teach_is_kept(text, translation, model, tmp_path):
    model.known[text] = translation
    file = write(tmp_path / "a.pt", text)
    out = distill(tmp_path, file, tmp_path / "a.tsv")
    assert out.read_text() == f"{text}\t{translation}\n"


def test_the_most_tokens_that_were_chosen_are_an_end_too(model, tmp_path, messages):
    model.options = DecodingOptions(max_length=4)
    text = write(tmp_path / "a.pt", "o gato bebe", "o gato bebe leite")
    out = distill(tmp_path, text, tmp_path / "a.tsv")
    assert out.read_text() == "o gato bebe\to otag ebeb\n"


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(synthetic, "LINES_PER_CHUNK", 3)


LINES = [f"line {number} abc" if number % 4 else "" for number in range(1, 12)]


@pytest.mark.parametrize("name", ["out.tsv", "out.tsv.gz"])
def test_a_stopped_job_goes_on_and_ends_with_the_same_bytes(
    name, model, tmp_path, small_chunks, messages
):
    text = write(tmp_path / "a.en.gz", *LINES)
    whole = backtranslate(tmp_path, text, tmp_path / f"whole-{name}").read_bytes()
    texts = [[line for line in LINES[i : i + 3] if line] for i in range(0, 12, 3)]
    assert model.asked == texts  # no more at once than a chunk
    for chunk in range(4):
        out = tmp_path / f"{chunk}-{name}"
        model.asked, model.breaks_at = [], texts[chunk][-1]
        with pytest.raises(KeyboardInterrupt):
            backtranslate(tmp_path, text, out)
        assert not out.exists()
        # What was written of a chunk when the power went.
        with open(f"{out}.part", "ab") as part:
            part.write(b"half a pai")
        model.breaks_at = None
        assert backtranslate(tmp_path, text, out).read_bytes() == whole
        assert model.asked == texts  # nothing twice
        if chunk:
            assert f"{out}: going on from line {3 * chunk + 1}" in messages()
        assert {p.name for p in tmp_path.glob(f"*{chunk}-*")} == {
            out.name,
            f"{out.name}.json",
        }
    plain = gzip.decompress(whole) if name.endswith(".gz") else whole
    assert plain.decode().splitlines() == [
        f"<BT> {model.answer(line)}\t{line}" for line in LINES if line
    ]


def test_a_disk_that_is_full_loses_nothing(model, tmp_path, small_chunks, monkeypatch):
    text = write(tmp_path / "a.en", *LINES)
    whole = backtranslate(tmp_path, text, tmp_path / "whole.tsv").read_bytes()
    calls = []

    def full(fd):
        calls.append(fd)
        if len(calls) == 5:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    out = tmp_path / "out.tsv"
    with pytest.raises(UserError, match=r"out\.tsv\.part: No space left on device"):
        backtranslate(tmp_path, text, out)
    monkeypatch.undo()
    monkeypatch.setattr(Translator, "load", lambda *args: model)
    model.asked = []
    assert backtranslate(tmp_path, text, out).read_bytes() == whole
    assert len(model.asked) < 4


@pytest.mark.parametrize("finished", [True, False])
def test_other_settings_and_other_text_are_refused(
    finished, model, tmp_path, small_chunks
):
    text = write(tmp_path / "a.en", *LINES)
    out = tmp_path / "out.tsv"
    model.breaks_at = None if finished else LINES[6]

    def begin(tag="<BT>"):
        backtranslate(tmp_path, text, out, tag=tag)

    if finished:
        begin()
    else:
        with pytest.raises(KeyboardInterrupt):
            begin()
    before = {p: p.read_bytes() for p in tmp_path.glob("out.tsv*")}
    stands = r"out\.tsv: was" if finished else r"out\.tsv\.part: was"
    with pytest.raises(UserError, match=stands + " .*tag was '<BT>' and is '<B>'"):
        begin("<B>")
    with pytest.raises(UserError, match="command was 'backtranslate' and is 'distill'"):
        distill(tmp_path, text, out)
    model.options = DecodingOptions(beam_size=2, forbidden=(5,))
    with pytest.raises(UserError, match=r"decoding was .*'greedy'.* and is .*'beam'"):
        begin()
    model.options = DecodingOptions()
    (tmp_path / "best.weights.h5").write_text("trained on")
    with pytest.raises(UserError, match="another model"):
        begin()
    (tmp_path / "best.weights.h5").write_text("best.weights.h5")
    write(text, *LINES, "more")
    with pytest.raises(UserError, match="another input"):
        begin()
    assert before == {p: p.read_bytes() for p in tmp_path.glob("out.tsv*")}
    # The same lines are the same text, and files may move.
    text = write(tmp_path / "moved.en.gz", *LINES)
    model.breaks_at, model.asked = None, []
    begin()
    assert len(model.asked) == (0 if finished else 2)


def test_options_with_lists_go_on_too(model, tmp_path, small_chunks):
    text = write(tmp_path / "a.en", *LINES)
    model.options = DecodingOptions(beam_size=2, forbidden=(5,))
    model.breaks_at = LINES[6]
    with pytest.raises(KeyboardInterrupt):
        backtranslate(tmp_path, text, tmp_path / "out.tsv")
    model.breaks_at = None
    backtranslate(tmp_path, text, tmp_path / "out.tsv")


def test_the_sidecar_says_how_pairs_were_made(model, tmp_path):
    text = write(tmp_path / "a.en", "the cat", "")
    model.options = DecodingOptions(sampling=True, seed=3)
    out = backtranslate(tmp_path, text, tmp_path / "a.tsv")
    told = json.loads(Path(f"{out}.json").read_text())
    assert told["made"]["synthetic"] == "source" and told["made"]["tag"] == "<BT>"
    assert told["made"]["decoding"] == {
        "method": "sampling",
        "sampling": True,
        "seed": 3,
    }
    assert told["run"] == str(tmp_path) and told["input"] == str(text)
    assert told["pairs"] == 1
    assert told["counts"] == {"read": 2, "kept": 1, "blank": 1}


def test_two_processes_do_not_write_one_file(model, tmp_path, small_chunks):
    text = write(tmp_path / "a.en", *LINES)
    out = tmp_path / "out.tsv"
    answer = model.answer

    def meanwhile(line):
        with pytest.raises(UserError, match="another process writes it"):
            backtranslate(tmp_path, text, out)
        model.answer = answer
        return answer(line)

    model.answer = meanwhile
    backtranslate(tmp_path, text, out)
    assert len(out.read_text().splitlines()) == 9


def test_most_of_it_junk_is_said_at_once(model, tmp_path, messages, monkeypatch):
    monkeypatch.setattr(synthetic, "LINES_PER_CHUNK", 100)
    lines = [f"line {number}" for number in range(300)]
    model.known = {line: line for line in lines[50:]}
    text = write(tmp_path / "a.en", *lines)
    backtranslate(tmp_path, text, tmp_path / "a.tsv")
    (warning,) = (line for line in messages() if "does the model read" in line)
    assert "150 copied, not translated" in warning  # in the second hundred


def test_files_that_cannot_be_used_are_named(model, tmp_path):
    text = write(tmp_path / "a.en", "the cat")

    def fails(message, input=text, out=tmp_path / "a.tsv", **options):
        with pytest.raises(UserError, match=message) as error:
            backtranslate(tmp_path, input, out, **options)
        assert "\n" not in str(error.value)

    fails("no.en: no such file", input=tmp_path / "no.en")
    fails("this is a folder", input=tmp_path)
    fails("no text in it", input=write(tmp_path / "empty.en"))
    fails("no text in it", input=write(tmp_path / "blank.en", "", b"\xff", " "))
    fails("gzip file is cut short or damaged", input=_cut(tmp_path))
    fails("a file on disk", input="/dev/null")
    fails("no/a.tsv.part: No such file", out=tmp_path / "no" / "a.tsv")
    fails("a.en: is there already", out=text)
    fails("tag '<B>\\\\t'", tag="<B>\t")
    fails("tag ' <B>'", tag=" <B>")
    model.known["the cat"] = "The cat!"
    fails("not one pair came of it: 1 lines read, 0 pairs made, 1 left out")
    assert not [*tmp_path.glob("a.tsv*")]
    (tmp_path / "a.tsv.part.json").write_text("{")
    fails("a.tsv.part.json: damaged; delete it and a.tsv.part")


def _cut(folder):
    path = write(folder / "cut.en.gz", "the cat sat on the mat")
    path.write_bytes(path.read_bytes()[:-9])
    return path


def test_a_part_that_lost_its_end_is_not_gone_on_with(model, tmp_path, small_chunks):
    text = write(tmp_path / "a.en", *LINES)
    model.breaks_at = LINES[6]
    with pytest.raises(KeyboardInterrupt):
        backtranslate(tmp_path, text, tmp_path / "a.tsv")
    os.truncate(tmp_path / "a.tsv.part", 5)
    with pytest.raises(UserError, match=r"a.tsv.part: is shorter than a.tsv.part.json"):
        backtranslate(tmp_path, text, tmp_path / "a.tsv")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.text(alphabet=st.characters(codec="utf-8"), max_size=30).map(str.encode)
        | st.binary(max_size=8)
        | st.sampled_from([b"a\tb", b"um\x0bdia", b"a\xe2\x80\xa8b", b"\xef\xbb\xbf"]),
        max_size=12,
    ),
    st.booleans(),
)
def test_any_file_gives_pairs_that_training_takes(lines, back):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        folder, model = Path(folder), Model()
        patch.setattr(Translator, "load", lambda *args: model)
        for name in ("config.yaml", "tokenizer.model", "best.weights.h5"):
            (folder / name).write_text(name)
        text = write(folder / "text", *lines)
        command = backtranslate if back else distill
        try:
            out = command(folder, text, folder / "out.tsv.gz", tag="")
        except UserError:
            return  # nothing in it
        counts = json.loads((folder / "out.tsv.gz.json").read_text())["counts"]
        pairs = list(read_tsv(out, strict=True))
    reasons = sum(counts.values()) - counts["read"] - counts["kept"]
    assert counts["kept"] == len(pairs) == counts["read"] - reasons > 0
    assert all(Pair(*map(normalize, pair)) == pair for pair in pairs)
    cleaned = Counts()
    clean(pairs, cleaned)
    assert cleaned.kept + cleaned.duplicates == len(pairs)


COMMAND = [sys.executable, "-m", "tfxformer.cli"]


def call(*args):
    done = subprocess.run([*COMMAND, *map(str, args)], capture_output=True, timeout=300)
    return done.stdout.decode(), done.stderr.decode(), done.returncode


SENTENCES = ["O gato bebe leite.", "Bom dia!", "Olá!", "Onde está o meu livro?"]


@pytest.mark.slow
def test_a_killed_command_goes_on(run_folder, tmp_path, translator):
    chunk = synthetic.LINES_PER_CHUNK
    # Few of them differ: a chunk is done in no time.
    lines = [f"{SENTENCES[i % 4]} {i % 40}" for i in range(8 * chunk)]
    text = write(tmp_path / "a.pt", *lines)
    options = ["--run", run_folder, "--input", text, "--beam", 1, "--out"]
    killed = tmp_path / "out.tsv.gz"
    process = subprocess.Popen(
        [*COMMAND, "distill", *map(str, [*options, killed])], stderr=subprocess.PIPE
    )
    while not Path(f"{killed}.part.json").exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.communicate()
    assert not killed.exists()
    out, err, code = call("distill", *options, killed)
    assert code == 0 and out == f"{killed}\n", err
    assert "going on from line" in err
    whole = distill(run_folder, text, tmp_path / "whole.tsv.gz")
    assert killed.read_bytes() == whole.read_bytes()
    answers = dict(read_tsv(whole, strict=True))
    assert len(answers) > 5
    given = [line for line in lines[:40] if line in answers]
    expected = translator(given, split_sentences=False)
    assert [answers[line] for line in given] == expected


@pytest.mark.slow
def test_any_translator_makes_pairs(run_folder, exported, tmp_path, command):
    """By an exported model and a run folder; greedy, by a beam, drawn."""
    text = write(tmp_path / "a.pt", *SENTENCES)
    back = ["backtranslate", "--input", text, "--out"]
    out = tmp_path / "bt.tsv"
    printed, err, code = command(*back, out, "--run", exported)
    assert code == 0 and printed == f"{out}\n", err
    rows = list(read_tsv(out, strict=True))
    assert rows and all(source.startswith("<BT> ") for source, _ in rows)
    assert {target for _, target in rows} <= {*SENTENCES}
    assert command(*back, out, "--run", exported) == (
        f"{out}\n",
        f"{out}: is there already, made with these settings\n",
        0,
    )
    drawn = ["--run", run_folder, "--sample", "--seed", 7]
    for name, more, decoding in (
        ("drawn.tsv", drawn, {"method": "sampling", "sampling": True, "seed": 7}),
        ("beam.tsv", ["--run", run_folder], {"method": "beam", "beam_size": 5}),
        ("served.tsv", ["--run", exported], {"method": "greedy"}),
    ):
        kd = ["distill", "--input", text, "--out", tmp_path / name]
        _, err, code = command(*kd, *more)
        assert code == 0, err
        told = json.loads((tmp_path / f"{name}.json").read_text())
        assert told["made"]["decoding"] == decoding
    _, err, code = command(*back, out, "--run", run_folder, "--beam", 3, "--n-best", 2)
    assert code == 1 and len(err.splitlines()) == 1
    assert "--n-best: one translation is written of each line, the best" in err
