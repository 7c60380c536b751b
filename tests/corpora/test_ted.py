import json
import random
import re
import shutil
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from tfxformer.corpora import Pair, load, ted
from tfxformer.errors import UserError

PREPARED = Path(__file__).parents[2].parent / "shared" / "data" / "tfds"
real = pytest.mark.skipif(
    not PREPARED.is_dir(), reason=f"the prepared TED talks are not at {PREPARED}"
)


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        # Sentence marks.
        ("o problema .", "o problema."),
        ("yes , no ; maybe : why ?", "yes, no; maybe: why?"),
        ("what ? !", "what?!"),
        ("¿ qué ? ¡ ah !", "¿qué? ¡ah!"),
        ("the u.s . is big", "the u.s. is big"),
        ("p.t . : olá", "p.t.: olá"),
        # English contractions.
        ("she 's here", "she's here"),
        (
            "i 'm , you 're , we 've , he 'll , they 'd",
            "i'm, you're, we've, he'll, they'd",
        ),
        ("do n't , ca n't , wo n't", "don't, can't, won't"),
        ("i could n't 've known", "i couldn't've known"),
        ("you can not go", "you cannot go"),
        ("i 'm gon na , wan na , got ta", "i'm gonna, wanna, gotta"),
        ("the 1990 's", "the 1990's"),
        ("the u.s. 's law", "the u.s.'s law"),
        ("in the '90s", "in the '90s"),
        ("get 'em all", "get 'em all"),
        ("three o 'clock , o'clock", "three o'clock, o'clock"),
        ("the dogs ' bowls", "the dogs' bowls"),
        ("singin ' now", "singin' now"),
        ("l 'oeuvre e copo d 'água", "l'oeuvre e copo d'água"),
        ("it’s and do n’t", "it's and don't"),
        # Portuguese.
        ("fazer-se , dá-lhe , dir-vos-ei", "fazer-se, dá-lhe, dir-vos-ei"),
        ("27 % de 10.000", "27% de 10.000"),
        ("o 'balde ' novo", "o 'balde' novo"),
        # Single quotation marks.
        ("say 'hi . i am ann . ' now", "say 'hi. i am ann.' now"),
        ("' start", "'start"),
        # Brackets, dashes, music, dots.
        ("( risos ) [ som ] fim", "(risos) [som] fim"),
        ("a mota ( velha ) , aqui", "a mota (velha), aqui"),
        ("well — frankly — no", "well — frankly — no"),
        ("so -- no - one", "so -- no - one"),
        ("♪ la la ♪", "♪ la la ♪"),
        ("one ... two ...", "one... two..."),
        ("... and so", "...and so"),
        ("voice : ... again", "voice: ...again"),
        ("cut [ ... ] here", "cut [...] here"),
        # Numbers and money: the data keeps numbers whole.
        ("1,000 and 2.5", "1,000 and 2.5"),
        ("1 , 2 , 3", "1, 2, 3"),
        ("$ 100 and us$ 5 for # 1", "$100 and us$5 for #1"),
        ("price in $ only", "price in $ only"),
        ("e = mc2", "e = mc2"),
        # Escapes.
        ("she &apos;s at q &amp; a", "she's at q & a"),
        ("don &apos;t , don & apos ; t , i & #39 ; m", "don't, don't, i'm"),
        ("&quot; hi &quot; he said", '"hi" he said'),
        # Quotation marks: a line with some is wrapped in a pair.
        ("`` uma `` '' cena '' '' aqui . ''", 'uma "cena" aqui.'),
        ("`` `` '' go on , '' '' he said . ''", '"go on," he said.'),
        ("`` he said : `` go . '' ''", 'he said: "go."'),
        ("`` `` go . '' ''", '"go."'),
        ("`` go . '' ''", 'go."'),
        ("`` `` '' it goes on . ''", '"it goes on.'),
        ("`` it went on . '' '' he left . ''", 'it went on." he left.'),
        ("`` ( `` '' no more ! '' '' ) — yes ''", '("no more!") — yes'),
        ("`` what ? '' '' `` '' this ! '' '' ''", 'what?" "this!"'),
        ("`` she said `` '' ... and then '' '' . ''", 'she said "...and then".'),
        (
            "`` it ends `` '' here ... `` '' ( laughter ) ''",
            'it ends "here..." (laughter)',
        ),
        ("`` named `` '' x et al . `` `` , ok ''", 'named "x et al.", ok'),
        ("`` the `` '' bird '' '' 's egg ''", 'the "bird"\'s egg'),
        # Not wrapped.
        ("`` hello . ''", '"hello."'),
        ("say `` hello '' now", 'say "hello" now'),
        ('say " hello " , " you " !', 'say "hello", "you"!'),
        ("“ouch” and “ ah ” .", '"ouch" and "ah".'),
        # Nothing to do.
        ("", ""),
        ("  spaces   go ", "spaces go"),
        ('already joined, isn\'t it? "yes." (ok)',) * 2,
    ],
)
def test_join(tokens, text):
    assert ted.join(tokens) == text


TOKENS = [*"abcs,.;:?!()[]$%#-—…'\"", "``", "''", "'s", "n't", "...", "can", "not"]


def test_join_loses_nothing_but_spaces_and_quotes():
    draw, bare = random.Random(0), re.compile("[\\s`\"']")
    for _ in range(2000):
        text = " ".join(draw.choices(TOKENS, k=draw.randrange(12)))
        joined = ted.join(text)
        assert bare.sub("", joined) == bare.sub("", text)
        assert joined == " ".join(joined.split())


# Written for this test, in the data's own form.
SENTENCES = {
    "train": [
        ("o gato dorme .", "the cat 's asleep ."),
        ("`` eu disse `` '' olá '' '' . ''", "`` i said `` '' hello . '' '' ''"),
        ("não sei .", "i do n't know ."),
    ],
    "validation": [("chove ?", "is it raining ?"), ("chove ?", "is it raining ?")],
    "test": [("custa 5 % ( risos ) .", "it costs 5 percent ( laughter ) .")],
}


@pytest.fixture(scope="module")
def tfds_dir(tmp_path_factory):
    """A folder as TensorFlow Datasets prepares it, a few sentences small."""
    pytest.importorskip("tensorflow_datasets")
    import tensorflow as tf

    root = tmp_path_factory.mktemp("tfds")
    folder = root / "ted_hrlr_translate" / "pt_to_en" / "1.0.0"
    folder.mkdir(parents=True)
    splits = []
    for split, sentences in SENTENCES.items():
        path = folder / f"ted_hrlr_translate-{split}.tfrecord-00000-of-00001"
        with tf.io.TFRecordWriter(str(path)) as writer:
            for texts in sentences:
                example = tf.train.Example()
                for language, text in zip(("pt", "en"), texts, strict=True):
                    feature = example.features.feature[language]
                    feature.bytes_list.value.append(text.encode())
                writer.write(example.SerializeToString())
        splits.append(
            {
                "name": split,
                "numBytes": str(path.stat().st_size),
                "shardLengths": [str(len(sentences))],
            }
        )
    info = {
        "name": "ted_hrlr_translate",
        "configName": "pt_to_en",
        "version": "1.0.0",
        "splits": splits,
        "supervisedKeys": {"input": "pt", "output": "en"},
    }
    features = {
        "type": "tensorflow_datasets.core.features.translation_feature.Translation",
        "content": {"languages": ["en", "pt"]},
    }
    (folder / "dataset_info.json").write_text(json.dumps(info))
    (folder / "features.json").write_text(json.dumps(features))
    return root


@pytest.fixture
def offline(monkeypatch):
    """No test may wait for a network."""
    requests = pytest.importorskip("requests")

    def refuse(*args, **kwargs):
        raise requests.ConnectionError("no network in tests")

    monkeypatch.setattr(requests, "get", refuse)


def message_of(*args, **kwargs) -> str:
    with pytest.raises(UserError) as caught:
        ted.load(*args, **kwargs)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_prepared_copy(tfds_dir, offline):
    assert ted.load("train", tfds_dir) == [
        Pair("o gato dorme.", "the cat's asleep."),
        Pair('eu disse "olá".', 'i said "hello."'),
        Pair("não sei.", "i don't know."),
    ]
    assert len(ted.load("test", str(tfds_dir))) == 1
    pairs, counts = load("ted", "validation", data_dir=tfds_dir)
    assert list(pairs) == [("chove?", "is it raining?")]
    assert counts.describe() == "2 read, 1 kept, 1 dropped (1 duplicate)"


def test_nothing_prepared_and_no_network(tmp_path, offline):
    message = message_of("train", tmp_path / "none")
    assert "no network in tests" in message and "--data-dir" in message
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("pattern", "data"),
    [
        ("dataset_info.json", b"{"),
        ("dataset_info.json", None),
        ("*train.tfrecord*", b"\x00" * 40),
        ("*train.tfrecord*", b""),
        ("*train.tfrecord*", None),
    ],
)
def test_damaged_copy(tfds_dir, tmp_path, offline, pattern, data):
    copy = shutil.copytree(tfds_dir, tmp_path / "copy")
    path = next(copy.rglob(pattern))
    path.unlink() if data is None else path.write_bytes(data)
    assert message_of("train", copy).startswith("ted: train of ted_hrlr_translate/")


def test_without_tensorflow_datasets(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    assert "pip install 'tfxformer[ted]'" in message_of("train")


def test_download_and_prepare(tmp_path, monkeypatch, capsys):
    """The whole way, from the folder that the download manager hands out."""
    tfds = pytest.importorskip("tensorflow_datasets")
    pytest.importorskip("importlib_resources")  # TensorFlow Datasets needs it here.
    import requests

    names = {"train": "train", "validation": "dev", "test": "test"}
    extracted = tmp_path / "extracted"
    folder = extracted / "datasets" / "pt_to_en"
    folder.mkdir(parents=True)
    for split, sentences in SENTENCES.items():
        for side, language in enumerate(("pt", "en")):
            text = "\n".join(pair[side] for pair in sentences)
            (folder / f"{language}.{names[split]}").write_text(text, "utf-8")
    fine = Namespace(raise_for_status=lambda: None)
    monkeypatch.setattr(requests, "get", lambda *args, **kwargs: fine)
    monkeypatch.setattr(
        tfds.download.DownloadManager,
        "download_and_extract",
        lambda self, url: extracted,
    )
    pairs = ted.load("train", tmp_path / "data")
    assert sorted(pairs)[0] == ('eu disse "olá".', 'i said "hello."')
    assert capsys.readouterr().out == ""
    assert len(ted.load("test", tmp_path / "data")) == 1


@real
@pytest.mark.parametrize(("split", "size"), [("validation", 1193), ("test", 1803)])
def test_the_real_talks(offline, split, size):
    pytest.importorskip("tensorflow_datasets")
    pairs = ted.load(split, PREPARED)
    assert len(pairs) == size
    assert pairs == ted.load(split, PREPARED)
    text = "\n".join(side for pair in pairs for side in pair)
    # No token is left standing where a writer would not put it.
    assert not re.findall(
        r" [.,;:!?)\]%](?!\.)|[(\[] |``|''| '(?:s|m|re|ve|ll|d)\b", text
    )
    assert not re.findall(r'(?:^|\s)"(?:\s|$)|\b(?:ca|do|wo|is) n\'t', text)


@real
def test_the_real_train_split_is_not_there(offline):
    pytest.importorskip("tensorflow_datasets")
    assert "Unknown split 'train'" in message_of("train", PREPARED)
