"""TED's tokens are joined to text; without a prepared copy, one line says so."""

import random
import re
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest

from tfxformer.corpora import Pair, load, ted
from tfxformer.errors import UserError

REAL = Path(__file__).parents[2].parent / "shared" / "data" / "tfds"

JOINED = """
o problema . => o problema.
¿ qué ? ¡ ah ! => ¿qué? ¡ah!
she 's here => she's here
i 'm , you 're , we 've , he 'll , they 'd => i'm, you're, we've, he'll, they'd
do n't , ca n't , wo n't => don't, can't, won't
three o 'clock , o'clock => three o'clock, o'clock
the dogs ' bowls => the dogs' bowls
l 'oeuvre e copo d 'água => l'oeuvre e copo d'água
o 'balde ' novo => o 'balde' novo
say 'hi . i am ann . ' now => say 'hi. i am ann.' now
' start => 'start
( risos ) [ som ] fim => (risos) [som] fim
... and so => ...and so
voice : ... again => voice: ...again
$ 100 and us$ 5 for # 1 => $100 and us$5 for #1
she &apos;s at q &amp; a => she's at q & a
don &apos;t , don & apos ; t , i & #39 ; m => don't, don't, i'm
`` uma `` '' cena '' '' aqui . '' => uma "cena" aqui.
`` `` '' go on , '' '' he said . '' => "go on," he said.
`` he said : `` go . '' '' => he said: "go."
`` what ? '' '' `` '' this ! '' '' '' => what?" "this!"
`` she said `` '' ... and then '' '' . '' => she said "...and then".
`` it ends `` '' here ... `` '' ( laughter ) '' => it ends "here..." (laughter)
`` the `` '' bird '' '' 's egg '' => the "bird"'s egg
`` hello . '' => "hello."
say `` hello '' now => say "hello" now
say " hello " , " you " ! => say "hello", "you"!
"""


@pytest.mark.parametrize("case", JOINED.strip().splitlines())
def test_join_detokenizes_the_text_of_ted(case):
    tokens, text = case.split(" => ")
    assert ted.join(tokens) == text


TOKENS = [*"abcs,.;:?!()[]$%#-—…'\"", "``", "''", "'s", "n't", "...", "can", "not"]


def test_join_loses_nothing_but_spaces_and_quotes():
    draw, bare = random.Random(0), re.compile("[\\s`\"']")
    for _ in range(2000):
        text = " ".join(draw.choices(TOKENS, k=draw.randrange(12)))
        joined = ted.join(text)
        assert bare.sub("", joined) == bare.sub("", text)
        assert joined == " ".join(joined.split())


# Invented sentences in the format of the data.
SENTENCES = {
    "train": [
        ("`` eu disse `` '' olá '' '' . ''", "`` i said `` '' hello . '' '' ''"),
        ("não sei .", "i do n't know ."),
    ],
    "dev": [("chove ?", "is it raining ?"), ("chove ?", "is it raining ?")],
    "test": [("custa 5 % ( risos ) .", "it costs 5 percent ( laughter ) .")],
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A copy that TensorFlow Datasets prepared from local files, without a network."""
    tfds = pytest.importorskip("tensorflow_datasets")
    import requests

    root = tmp_path_factory.mktemp("ted")
    folder = root / "extracted" / "datasets" / "pt_to_en"
    folder.mkdir(parents=True)
    for split, sentences in SENTENCES.items():
        for language, texts in zip(("pt", "en"), zip(*sentences), strict=True):  # noqa: B905
            (folder / f"{language}.{split}").write_text("\n".join(texts), "utf-8")
    manager = tfds.download.DownloadManager
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manager, "download_and_extract", lambda *_: root / "extracted")
        patch.setattr(requests, "get", Mock())
        ted.load("train", root / "data")
        error = requests.ConnectionError("no network in tests")
        patch.setattr(requests, "get", Mock(side_effect=error))
        yield root / "data"


def test_a_prepared_copy_of_ted_loads_without_a_network(prepared, capsys):
    assert sorted(ted.load("train", str(prepared))) == [
        Pair('eu disse "olá".', 'i said "hello."'),
        Pair("não sei.", "i don't know."),
    ]
    pairs, counts = load("ted", "validation", data_dir=prepared)
    assert list(pairs) == [("chove?", "is it raining?")]
    assert counts.describe() == "2 read, 1 kept, 1 dropped (1 duplicate)"
    assert capsys.readouterr().out == ""


def test_ted_without_a_prepared_copy_or_a_network_raises_an_error(prepared, tmp_path):
    with pytest.raises(UserError, match=r"no network in tests.* --data-dir"):
        ted.load("train", tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("pattern", ["dataset_info.json", "*train.tfrecord*"])
def test_a_damaged_copy_of_ted_raises_a_one_line_error(prepared, tmp_path, pattern):
    copy = shutil.copytree(prepared, tmp_path / "copy")
    next(copy.rglob(pattern)).write_bytes(b"{" * 40)
    with pytest.raises(UserError, match=r"^ted: train of ted_hrlr_translate/.+$"):
        ted.load("train", copy)


@pytest.mark.skipif(not REAL.is_dir(), reason=f"no TED talks at {REAL}")
def test_the_real_ted_talks_join_without_spaces_around_punctuation():
    pairs = ted.load("validation", REAL)
    assert len(pairs) == 1193
    text = "\n".join(side for pair in pairs for side in pair)
    assert not re.findall(r" [,;:!?)\]%](?!\.)|[(\[] |``|''| '(?:s|re|ve|ll)\b", text)
