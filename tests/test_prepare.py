"""Prepared corpora: what is in them, whoever did the work; killed, refused, remote."""

import collections
import gzip
import hashlib
import importlib.util
import json
import random
import signal
import subprocess
import sys
import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfxformer import corpora
from tfxformer import prepare as preparing
from tfxformer.batches import TrainingBatches
from tfxformer.cli import main
from tfxformer.corpora.splitting import sentence_key
from tfxformer.errors import UserError
from tfxformer.prepare import prepare
from tfxformer.token_corpus import TokenCorpus
from tfxformer.vocabulary import Vocabulary

pytest.importorskip("apache_beam")

MULTI = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]


def sentences(count, seed=0):
    """Pairs of sentences of their own; now and then two share one."""
    rng = random.Random(seed)
    words = ["gato", "cão", "casa", "azul", "bebe", "vê", "não", "ﬁm", "ação", "rio"]
    sources = [
        " ".join(rng.choices(words, k=rng.randint(2, 9))) + f" {n}"
        for n in range(count)
    ]
    targets = [source.upper()[::-1] for source in sources]
    for _ in range(count // 50):
        sources[rng.randrange(count)] = rng.choice(sources) + "!"
        targets[rng.randrange(count)] = rng.choice(targets).lower()
    return list(zip(sources, targets, strict=True))


def messy(pairs, seed=1):
    """Lines with all that cleaning is for."""
    rng = random.Random(seed)
    lines = [f"{source}\t{target}".encode() for source, target in pairs]
    lines += rng.sample(lines, len(lines) // 10)  # duplicates
    lines += [line.replace(b" ", b"  ") for line in lines[:20]]  # the same, cleaned
    lines += [b"one column", b"", b"a\tb\tc", b"\xff\tb", b"\tempty", b"a\t \xc2\xa0"]
    lines += [b"long\t" + b"word " * 300, b"oi\tnot the same at all, nor near it"]
    lines += [b"many pieces\t" + bytes(range(200, 230)).hex().encode() * 3]
    rng.shuffle(lines)
    return b"".join(line + rng.choice([b"\n", b"\r\n"]) for line in lines)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A TSV, two parallel files that overlap with it, and a vocabulary."""
    folder = tmp_path_factory.mktemp("text")
    pairs = sentences(1500)
    with gzip.open(folder / "a.tsv.gz", "wb") as file:
        file.write(messy(pairs[:1000]))
    sides = zip(*pairs[900:], strict=True)
    for name, side in zip(("b.pt", "b.en"), sides, strict=True):
        (folder / name).write_text("\n".join(side), encoding="utf-8")
    lines = [side for pair in pairs for side in pair]
    Vocabulary.train(lines, 400).save(folder / "tokenizer.model")
    return folder


def sources_of(text):
    return [str(text / "a.tsv.gz"), f"{text / 'b.pt'},{text / 'b.en'}"]


def contents(folder):
    """Every file's bytes, but for what tells when the sources were changed."""
    return {
        file.name: file.read_bytes()
        for file in folder.iterdir()
        if file.name != "prepare.json"
    }


def rows_of(corpus):
    rows = []
    for number in range(len(corpus.shard_sizes)):
        lengths, ids = corpus.shard(number)
        ends = np.cumsum(lengths.ravel())
        sides = [tuple(side) for side in np.split(ids, ends[:-1])]
        rows += zip(sides[::2], sides[1::2], strict=True)
    return rows


def validation(folder):
    pairs, _ = corpora.load(str(folder / "validation.tsv"), cleaned=False)
    return pairs


@pytest.fixture
def small(monkeypatch):
    """Many buckets, files and shards of little text."""
    monkeypatch.setattr(preparing, "BUCKET_BYTES", 10_000)
    monkeypatch.setattr(preparing, "SPILL_PAIRS", 300)
    monkeypatch.setattr(preparing, "PAIRS_PER_SHARD", 40)
    monkeypatch.setattr(preparing, "CHUNK", 17)


OPTIONS = {
    "as it is": {},
    "reversed": {"reverse": True},
    "with its own limits": {"max_characters": 40, "max_length_ratio": 1.2},
    "short": {"max_length": 30, "valid_pairs": 7},
    "another seed": {"seed": 5},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_what_is_in_it_is_what_was_to_stay(name, text, tmp_path, small):
    """Against the pairs that `corpora.load` gives, without the rest of prepare."""
    options = OPTIONS[name]
    model = text / "tokenizer.model"
    out = prepare(sources_of(text), tmp_path / "out", tokenizer=model, **options)
    corpus, held = TokenCorpus.open(out), validation(tmp_path / "out")
    asked = {k: v for k, v in options.items() if k.startswith(("max_ch", "max_le"))}
    length = asked.pop("max_length", 128)
    loaded = corpora.load_mixture(
        sources_of(text), reverse=options.get("reverse", False), **asked
    )
    unique = {pair for pairs, _ in loaded for pair in pairs}
    assert set(held) < unique and len(set(held)) == len(held)
    assert len(held) == options.get("valid_pairs", len(unique) // 20)
    keys = [{sentence_key(pair[side]) for pair in held} for side in (0, 1)]
    train = [
        pair
        for pair in unique
        if all(sentence_key(pair[side]) not in keys[side] for side in (0, 1))
    ]
    vocabulary = Vocabulary.load(model)
    sides = [vocabulary.encode([pair[side] for pair in train]) for side in (0, 1)]
    rows = zip(*(map(tuple, side) for side in sides), strict=True)
    rows = [row for row in rows if max(map(len, row)) < length]
    assert collections.Counter(rows_of(corpus)) == collections.Counter(rows)
    assert corpus.pairs == len(rows) and corpus.max_length == length
    assert corpus.tokenizer_digest == vocabulary.digest

    counts = corpus.counts
    wanted = sum((counts for _, counts in loaded), corpora.Counts())
    wanted.duplicates += wanted.kept - len(unique)
    wanted.kept = len(unique)
    assert counts["cleaning"] == vars(wanted)
    assert counts["held_out"] == len(held)
    assert counts["leaks"] == len(unique) - len(held) - len(train)
    assert counts["too_long"] == len(train) - len(rows)
    assert (name == "short") == (counts["too_long"] > 20)
    assert len(corpus.shard_sizes) > 20 and max(corpus.shard_sizes) <= 40
    files = {path.name for path in (tmp_path / "out").iterdir()}
    shards = {file for file in files if file.startswith("shard-")}
    assert files - shards == {
        *("corpus.json", "prepare.json", "tokenizer.model", "validation.tsv")
    }


def test_order_is_drawn_and_the_source_does_not_show(text, tmp_path):
    out = prepare(sources_of(text), tmp_path / "out", vocab_size=400)
    corpus = TokenCorpus.open(out)
    vocabulary = Vocabulary.load(tmp_path / "out" / "tokenizer.model")
    assert vocabulary.digest == corpus.tokenizer_digest
    first = [source for source, _ in rows_of(corpus)]
    numbers = [int(t.split()[-1].strip("!")) for t in vocabulary.decode(first)[:800]]
    # Of a random order, the correlation is 0 give or take 0.035.
    assert abs(np.corrcoef(numbers, range(len(numbers)))[0, 1]) < 0.2


def test_it_feeds_training(text, tmp_path):
    out = prepare(sources_of(text), tmp_path / "out", vocab_size=400)
    corpus = TokenCorpus.open(out)
    batches = TrainingBatches([corpus], tokens_per_batch=1024, max_length=128)
    seen = 0
    for (_, target_out), position in batches():
        seen += len(target_out)
        if position["block"]:
            break
    assert seen == corpus.pairs


def test_given_pairs_validate_and_do_not_leak(text, tmp_path):
    valid = tmp_path / "valid.tsv"
    pairs, _ = corpora.load(sources_of(text)[0])
    near = f"{pairs[3].source.upper()}?\tsomething else\n"
    valid.write_text(near + "\t...\n", encoding="utf-8")
    out = prepare(sources_of(text)[:1], tmp_path / "out", valid=valid, vocab_size=400)
    corpus = TokenCorpus.open(out)
    assert validation(tmp_path / "out") == [
        (f"{pairs[3].source.upper()}?", "something else"),
        ("", "..."),
    ]
    leaks = sum(sentence_key(p.source) == sentence_key(pairs[3].source) for p in pairs)
    assert corpus.counts["leaks"] == leaks >= 1
    assert corpus.pairs == len(pairs) - leaks


@pytest.mark.slow
def test_neither_runner_nor_workers_nor_order_show(text, tmp_path):
    """In this process, in two others, and on a service that Beam's jobs are sent to."""
    outs = [tmp_path / str(number) for number in range(4)]
    prepare(sources_of(text), outs[0], vocab_size=400)
    prepare(sources_of(text)[::-1], outs[1], vocab_size=400)
    prepare(sources_of(text), outs[2], vocab_size=400, beam_options=MULTI)
    port = tmp_path / "port"
    service = subprocess.Popen(
        [
            *(
                sys.executable,
                "-m",
                "apache_beam.runners.portability.local_job_service_main",
            ),
            *("--port", "0", "--port_file", port),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(port.exists)
        prepare(
            sources_of(text),
            outs[3],
            vocab_size=400,
            runner="PortableRunner",
            beam_options=[
                f"--job_endpoint=localhost:{port.read_text()}",
                "--environment_type=LOOPBACK",
            ],
        )
    finally:
        service.kill()
        service.wait()
    first, *others = map(contents, outs)
    assert all(other == first for other in others)


def wait_for(happened, seconds=60):
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def test_again_is_free_and_otherwise_refused(text, tmp_path, caplog):
    caplog.set_level("INFO", "tfxformer")
    out = tmp_path / "out"
    source = tmp_path / "a.tsv"
    rows = [f"{a}\t{b}\n" for a, b in sentences(200)]
    source.write_text("".join(rows), encoding="utf-8")
    prepare([source], out, vocab_size=350)
    times = {file: file.stat().st_mtime_ns for file in out.iterdir()}
    assert prepare([source], out, vocab_size=350) == str(out)
    assert "is prepared already" in caplog.messages[-1]
    assert times == {file: file.stat().st_mtime_ns for file in out.iterdir()}
    with pytest.raises(UserError, match="--vocab-size was 350 and is 360"):
        prepare([source], out, vocab_size=360)
    with pytest.raises(UserError, match=r"--data was .*a.tsv and is .*gz"):
        prepare(sources_of(text)[:1], out, vocab_size=350)
    with pytest.raises(UserError, match=r"--valid was not given and is .*a.tsv"):
        prepare([source], out, vocab_size=350, valid=source)
    source.write_text("".join(rows[1:]), encoding="utf-8")
    with pytest.raises(UserError, match=r"a\.tsv has changed"):
        prepare([source], out, vocab_size=350)
    (out / "shard-00000-00.npz").unlink()
    source.write_text("".join(rows), encoding="utf-8")
    with pytest.raises(UserError):
        prepare([source], out, vocab_size=350)


KILLED = """
import os, signal, sys
from tfxformer import prepare as preparing

preparing.BUCKET_BYTES = 10_000
def kill(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)
def second(*arguments, calls=[]):
    calls.append(1)
    return write(*arguments) if len(calls) < 2 else kill()
write = preparing._write_shard
{kill}
preparing.prepare([sys.argv[1]], sys.argv[2], tokenizer=sys.argv[3])
"""


@pytest.mark.slow
def test_killed_it_is_no_corpus_and_begins_again(text, tmp_path, small):
    source, model = sources_of(text)[0], text / "tokenizer.model"
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    prepare([source], whole, tokenizer=model)
    for when in (
        "preparing._hold_out = kill",
        "preparing._write_shard = second",
        "os.replace = kill",
    ):
        assert not (killed / "corpus.json").exists()
        done = subprocess.run(
            [sys.executable, "-c", KILLED.format(kill=when), source, killed, model],
            capture_output=True,
            timeout=120,
        )
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert (killed / "prepare.json").exists()
        with pytest.raises(UserError, match="no token corpus"):
            TokenCorpus.open(killed)
    assert len([*killed.glob("shard-*")]) > 1
    prepare([source], killed, tokenizer=model)
    assert contents(killed) == contents(whole)


def test_the_command(text, tmp_path):
    """As a person calls it; without TensorFlow, which it must not need."""
    code = (
        "import sys; sys.modules['tensorflow'] = sys.modules['keras'] = None\n"
        "from tfxformer.cli import main; main()"
    )
    arguments = ["prepare", "--out", tmp_path / "out", "--vocab-size", "400"]
    for source in sources_of(text):
        arguments += ["--data", source]
    for more in ([], ["--", *MULTI]):
        done = subprocess.run(
            [sys.executable, "-c", code, *map(str, arguments), *more],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"{tmp_path / 'out'}\n"
        said = done.stderr.splitlines()
        if not more:
            assert len(said) == 9, done.stderr  # and nothing of Beam's own
            assert sum("the line is skipped" in line for line in said) == 4
            assert "learning a vocabulary of 400 pieces" in said
            assert "dropped" in said[-3] and "for validation" in said[-2]
            assert said[-1].startswith(f"{tmp_path / 'out'}: 1,")
            for file in (tmp_path / "out").iterdir():
                file.unlink()
    assert "prepared in" in said[-1]
    assert all("beam" not in line and "INFO" not in line for line in said)


WRONG = {
    "no source": ([], "--data"),
    "no such source": (["--data", "frasebook"], "did you mean 'phrasebook'"),
    "no such file far away": (["--data", "gs://a/b.tsv"], "apache-beam[gcp]"),
    "a far folder": (["--data", "TEXT", "--out", "hm://a"], "hm://a: Apache Beam"),
    "a source without its option": (["--data", "TEXT", "b.tsv"], "'b.tsv': name sourc"),
    "too short": (["--data", "TEXT", "--max-length", "3"], "--max-length 3: must be"),
    "too long": (["--data", "TEXT", "--max-length", "65537"], "at most 65536"),
    "no pieces": (["--data", "TEXT", "--vocab-size", "9"], "--vocab-size 9: must be"),
    "no casing": (["--data", "TEXT", "--casing", "up"], "--casing up: must be"),
    "seed below 0": (["--data", "TEXT", "--seed", "-1"], "--seed -1: must be"),
    "two vocabularies": (
        ["--data", "TEXT", "--tokenizer", "TOKENIZER", "--vocab-size", "400"],
        "--vocab-size 400: does not go with --tokenizer",
    ),
    "no tokenizer": (["--data", "TEXT", "--tokenizer", "no"], "no: No such file"),
    "text for tokenizer": (
        ["--data", "TEXT", "--tokenizer", "TEXT"],
        "not a SentencePiece model",
    ),
    "two validations": (
        ["--data", "TEXT", "--valid", "TEXT", "--valid-pairs", "3"],
        "does not go with --valid",
    ),
    "no validation": (["--data", "TEXT", "--valid", "no.tsv"], "'no.tsv'"),
    "no runner": (["--data", "TEXT", "--runner", "Bean"], "--runner Bean: Unexpected"),
    "no runner's module": (["--data", "TEXT", "--runner", "a.B"], "--runner a.B: No "),
    "an option that Beam lacks": (
        ["--data", "TEXT", "--", "--x=1"],
        "--x: Beam has no",
    ),
    "a value that Beam lacks": (
        ["--data", "TEXT", "--", "--direct_running_mode=fast"],
        "invalid choice: 'fast'",
    ),
    "the runner twice": (["--data", "TEXT", "--", "--runner=Flink"], "before the --"),
    "malformed": (["--data", "TEXT", "--strict"], "text.tsv:1: expected two columns"),
    "a file for a folder": (["--data", "TEXT", "--out", "TEXT"], "is a file"),
    "a folder of others": (["--data", "TEXT", "--out", "."], "nor an empty folder"),
}


@pytest.fixture
def wrong(monkeypatch, capfd, tmp_path, text):
    """Runs a command that must fail, in a folder with a file; gives its one line."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.tsv").write_text("one column\na b c\td e f\n")
    places = {"TEXT": "text.tsv", "TOKENIZER": str(text / "tokenizer.model")}

    def run(*args):
        args = [places.get(arg, str(arg)) for arg in args]
        if "--out" not in args:
            args = ["--out", "out", *args]
        monkeypatch.setattr(sys, "argv", ["tfxformer", "prepare", *args])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capfd.readouterr()
        assert end.value.code == 1 and out == ""
        assert len(err.splitlines()) == 1, err
        assert {path.name for path in tmp_path.iterdir()} == {"text.tsv"}
        return err

    return run


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_ends_in_one_clear_line_and_leaves_nothing(name, wrong):
    args, message = WRONG[name]
    line = wrong(*args)
    assert line.startswith("tfxformer: error: ") and message in line


def test_without_beam_it_says_what_to_install(wrong, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda n: None if n == "apache_beam" else find(n)
    )
    assert "pip install 'tfxformer[beam]'" in wrong("--data", "TEXT")


BAD = {
    "empty": (b"", "the file is empty"),
    "UTF-16": ("a\tb\n".encode("utf-16"), "is in UTF-16"),
    "cut short": (gzip.compress(b"ab\tcd\n" * 999)[:-9], "the gzip file is cut short"),
    "no pair": (b"one\ntwo\n\t\n", "no usable pair is left: 3 read, 0 kept"),
    "too few to hold out": (
        b"a b\tc d\nd\tf\n",
        "2 pairs are too few to hold some out",
    ),
    "all the same": (b"a %d\tthe same\n" * 30 % (*range(30),), "no pair of 30 can be"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_text_is_named_and_nothing_is_left(name, text, tmp_path):
    content, message = BAD[name]
    source, out = tmp_path / "bad.tsv", tmp_path / "out"
    source.write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        prepare([source], out, tokenizer=text / "tokenizer.model")
    assert "\n" not in str(error.value)
    assert not out.exists()


def test_files_that_do_not_go_together(text, tmp_path):
    (tmp_path / "c.en").write_text("only one line\n")
    with pytest.raises(UserError, match=r"has 600 lines but .* has 1"):
        prepare([f"{text / 'b.pt'},{tmp_path / 'c.en'}"], tmp_path / "out")


def test_a_full_disk_is_told(text, tmp_path, monkeypatch):
    write = preparing.storage.write

    def full(path, content):
        if "shard" in path:
            raise OSError(28, "No space left on device", path)
        write(path, content)

    monkeypatch.setattr(preparing.storage, "write", full)
    with pytest.raises(UserError, match=r"shard-00000-00.npz: No space left on dev"):
        prepare(sources_of(text), tmp_path / "out", vocab_size=400)
    assert not (tmp_path / "out").exists()


def test_a_folder_is_prepared_once_at_a_time(text, tmp_path, monkeypatch):
    options = {"tokenizer": text / "tokenizer.model"}
    hold_out, refused = preparing._hold_out, []

    def meanwhile(*arguments):
        with pytest.raises(UserError, match="another process prepares it") as error:
            prepare(sources_of(text), tmp_path / "out", **options)
        refused.append(error)
        return hold_out(*arguments)

    monkeypatch.setattr(preparing, "_hold_out", meanwhile)
    out = prepare(sources_of(text), tmp_path / "out", **options)
    assert refused and TokenCorpus.open(out).pairs


def test_a_folder_that_others_made_is_left_alone(text, tmp_path):
    (tmp_path / "corpus.json").write_text("{}")
    with pytest.raises(UserError, match="neither a prepared corpus nor"):
        prepare(sources_of(text), tmp_path)
    (tmp_path / "prepare.json").write_text("[")
    with pytest.raises(UserError, match=r"prepare.json: damaged"):
        prepare(sources_of(text), tmp_path)


@pytest.mark.slow
def test_named_corpora_are_read_too(text, tmp_path):
    valid = tmp_path / "valid.tsv"
    valid.write_text("not in it 1\tnor this 2\n")
    model = text / "tokenizer.model"
    out = prepare(["phrasebook"], tmp_path / "out", tokenizer=model, valid=valid)
    pairs, _ = corpora.load("phrasebook")
    assert TokenCorpus.open(out).pairs == len(pairs) > 1000


def test_a_cluster_s_storage_is_read_and_written(text, tmp_path):
    """A storage that Beam knows and Python's open does not."""
    from far_storage import make_storage

    root = tmp_path / "far"
    root.mkdir()
    (root / "a.tsv.gz").write_bytes((text / "a.tsv.gz").read_bytes())
    _far = make_storage(root, "far")
    model = text / "tokenizer.model"
    near = prepare(sources_of(text)[:1], tmp_path / "near", tokenizer=model)
    far = prepare(["far://a.tsv.gz"], "far://deep/out/", tokenizer=model)
    assert far == "far://deep/out"
    out = root / "deep" / "out"
    files = {path.name: path for path in out.rglob("*") if path.is_file()}
    assert contents(tmp_path / "near") == {
        name: path.read_bytes()
        for name, path in files.items()
        if name != "prepare.json"
    }
    assert near == str(tmp_path / "near")
    again = prepare(["far://a.tsv.gz"], "far://deep/out", tokenizer=model)
    assert again == far
    with pytest.raises(UserError, match="--seed was 0 and is 1"):
        prepare(["far://a.tsv.gz"], "far://deep/out", tokenizer=model, seed=1)
    with pytest.raises(UserError, match=r"far://b.tsv: no such file"):
        prepare(["far://b.tsv"], "far://deep/other", tokenizer=model)


def test_memory_does_not_grow_with_the_text(tmp_path, monkeypatch):
    monkeypatch.setattr(preparing, "SPILL_PAIRS", 1000)
    peaks = []
    for count in (3_000, 20_000):
        source = tmp_path / f"{count}.tsv"
        lines = (f"a sentence {n}\tits translation {n}\n" for n in range(count))
        source.write_text("".join(lines))
        plan = {
            **{"folder": str(tmp_path / f"{count}"), "buckets": 5, "sample": 500},
            **{"seed": 0, "strict": False, "reverse": False},
            **{"max_characters": 1000, "max_length_ratio": 3.0},
        }
        tracemalloc.start()
        report = preparing.read_source(plan, 0, str(source))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert report["counts"]["kept"] == count
    assert peaks[1] < 1.2 * peaks[0]


@given(
    st.lists(st.binary(max_size=9).map(lambda b: b.hex().encode()), max_size=60),
    st.integers(1, 5),
    st.integers(1, 9),
)
@settings(deadline=None, max_examples=50)
def test_buckets_come_back_whole(tmp_path_factory, lines, buckets, spill):
    folder = tmp_path_factory.mktemp("spills")
    before, preparing.SPILL_PAIRS = preparing.SPILL_PAIRS, spill
    try:
        spills = preparing._Spills({"folder": str(folder), "buckets": buckets}, 3)
        for line in lines:
            spills.add(len(line) % buckets, line or b"-")
        spills.flush()
    finally:
        preparing.SPILL_PAIRS = before
    for bucket in range(buckets):
        wanted = {line or b"-" for line in lines if len(line) % buckets == bucket}
        paths = [str(folder / ".part" / name) for name in spills.names]
        found = [line for path in paths for line in preparing._spilt(path, bucket)]
        assert set(found) == wanted


@given(st.lists(st.integers(0, 300), max_size=120), st.integers(1, 20), st.data())
@settings(deadline=None)
def test_the_sample_is_the_same_however_the_text_is_cut(ranks, size, data):
    cut = data.draw(st.integers(0, len(ranks)))
    joined = preparing._Sample(size)
    for part in (ranks[:cut], ranks[cut:]):
        sample = preparing._Sample(size)
        for rank in part:
            if rank < sample.limit:
                sample.add(rank, b"s%d\tt" % rank)
        joined.add_bytes(sample.to_bytes())
    wanted = sorted(set(ranks))[:size]
    assert joined.pairs() == [(f"s{rank}", "t") for rank in wanted]


def test_a_rare_sentence_is_held_out_before_a_frequent_one():
    pairs = [corpora.Pair(f"sim {n}", "Yes.") for n in range(80)]
    pairs += [corpora.Pair(f"frase {n}", f"sentence {n}") for n in range(20)]
    random.Random(0).shuffle(pairs)
    held = preparing._hold_out(pairs, 1000)
    assert len(held) == 5
    assert all(pair.target != "Yes." for pair in held)


@pytest.mark.slow
def test_the_key_is_of_what_is_in_it(text, tmp_path):
    keys = []
    for seed, source in ((0, 0), (1, 0), (0, 1)):
        out = tmp_path / f"{seed}{source}"
        prepare(sources_of(text)[source:][:1], out, vocab_size=400, seed=seed)
        content = json.loads((out / "corpus.json").read_text())
        keys.append(content["key"])
        for shard in content["shards"]:
            digest = hashlib.sha256((out / shard["file"]).read_bytes()).hexdigest()
            assert digest == shard["sha256"]
    assert len(set(keys)) == 3
