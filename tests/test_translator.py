"""Strings to strings: order, batches, bad input, scores."""

import itertools
import logging
import math
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import tfxformer.translator as translator_module
from tfxformer import Translator
from tfxformer.corpora import load
from tfxformer.decoding import DecodingOptions
from tfxformer.errors import UserError
from tfxformer.sentences import split_to_fit
from tfxformer.tokenizer import END_ID

SENTENCES = [pair.source for pair in load("phrasebook", "test", cleaned=False)[0][:64]]
TIE = 1e-5  # two candidates this near in log-probability may change places


def test_a_string_gives_a_string_and_a_list_a_list(translator):
    one = translator(SENTENCES[0])
    assert isinstance(one, str) and one
    assert translator([SENTENCES[0]]) == [one]
    assert translator(SENTENCES[0].encode()) == one
    assert translator([]) == []
    assert translator(np.array(SENTENCES[:2])) == translator(SENTENCES[:2])


def test_it_has_learnt_something(translator):
    translations = translator(SENTENCES)
    assert len(set(translations)) > 32
    assert sum(line.endswith((".", "?", "!")) for line in translations) > 50


def test_order_is_kept_whatever_the_size_of_batches(translator):
    expected = [translator(sentence) for sentence in SENTENCES[:20]]
    for tokens in (1, 50, 2048):
        got = translator(SENTENCES[:20], tokens_per_batch=tokens)
        assert_same(translator, SENTENCES[:20], expected, got)


@pytest.mark.parametrize("wrong", [None, 3, bytearray(b"a"), np.array("a"), ["a"]])
def test_only_strings_are_taken(translator, wrong):
    t, two = translator, ["a", "b"]
    kind = f"a text must be a string, not {type(wrong).__name__}: "
    doors = [
        ("text", t),
        ("text", t.translate),
        ("text", t.n_best),
        ("text", lambda x: t.score(x, two)),
        ("translation", lambda x: t.score(two, x)),
        ("text", lambda x: t.complete(x, two)),
        ("prefix", lambda x: t.complete(two, x)),
    ]
    for name, door in doors:
        with pytest.raises(TypeError, match=f"^{name} 2: {kind}"):
            door(["a", wrong])
    for door in (t.explain, t.parts, lambda x: [*t.stream(x)]):
        with pytest.raises(TypeError, match=f"^{kind}"):
            door(wrong)
    for _, door in doors if wrong != ["a"] else ():
        with pytest.raises(TypeError, match=f"^{kind}"):
            door(wrong)
    for _, door in doors[1:]:  # not each of its characters
        with pytest.raises(TypeError, match=r"list of strings, not one: 'Olá\.'"):
            door("Olá.")


@pytest.mark.slow
def test_batches_do_not_change_a_translation(served, translator):
    """64 sentences, 20 random batchings, through the SavedModel."""
    answer = served.signatures["translate"]

    def translate(rows):
        out = answer(text=tf.constant([SENTENCES[i] for i in rows]))
        return [line.decode() for line in out["translation"].numpy()]

    alone = [translate([i])[0] for i in range(len(SENTENCES))]
    rng = np.random.default_rng(0)
    for _ in range(20):
        order = rng.permutation(len(SENTENCES))
        cuts = np.sort(rng.choice(np.arange(1, 64), rng.integers(1, 12), replace=False))
        for rows in np.split(order, cuts):
            for i, line in zip(rows, translate(rows), strict=True):
                if line != alone[i]:
                    assert_tied(translator, SENTENCES[i], alone[i], line)


def assert_same(translator, sentences, expected, got):
    for sentence, one, other in zip(sentences, expected, got, strict=True):
        if one != other:
            assert_tied(translator, sentence, one, other)


def assert_tied(translator, sentence, one, other):
    """Where two greedy translations part, both next tokens must be as likely."""
    tokenizer, transformer = translator.tokenizer, translator.transformer
    pieces = [[*tokenizer.tokenize([line])[0].numpy(), END_ID] for line in (one, other)]
    parted = next(i for i, (a, b) in enumerate(zip(*pieces, strict=False)) if a != b)
    source = tf.constant([[*tokenizer.tokenize([sentence])[0].numpy(), END_ID]])
    target = tf.constant([[2, *pieces[0][:parted]]])
    log_probability = tf.nn.log_softmax(transformer((source, target))[0, -1]).numpy()
    a, b = (log_probability[line[parted]] for line in pieces)
    assert abs(a - b) < TIE, f"{sentence!r}: {one!r} or {other!r}"


# Bad input: what goes in, and what is documented to come out.

HUGE = "O gato bebe leite. " * 5264  # 100,016 characters
BAD = {
    "empty": b"",
    "white space": b" \t\r\n\xc2\xa0 ",
    "100,000 characters": HUGE.encode(),
    "one word of 100,000 characters": b"a" * 100_000,
    "emoji": "😀👩‍👩‍👧‍👦🏳️‍🌈".encode(),
    "right to left": "مرحبا بالعالم שלום".encode(),
    "NUL": b"O gato\0bebe\0leite.",
    "not UTF-8": b"\xff\xfe\x80 gato \xc3",
    "half a character": "ação".encode()[:-3],
    "control characters": bytes(range(32)),
    "special pieces": "<s> </s> <unk> <pad> ▁ <0x41>".encode(),
}


@pytest.mark.parametrize("model", ["translator", "served"])
def test_bad_input_disturbs_nobody(model, request):
    model = request.getfixturevalue(model)
    good = SENTENCES[:4]
    alone = [model(sentence) for sentence in good]
    texts = [*good[:2], *BAD.values(), *good[2:]]
    answers = model(texts, tokens_per_batch=10_000)
    oracle = request.getfixturevalue("translator")
    assert_same(oracle, good, alone, answers[:2] + answers[-2:])
    bad = dict(zip(BAD, answers[2:-2], strict=True))
    assert bad["empty"] == "" and bad["white space"] == BAD["white space"].decode()
    assert bad["control characters"].strip() == ""
    assert all(isinstance(answer, str) for answer in bad.values())
    assert all("\0" not in answer for answer in bad.values())
    # A NUL counts as a space.
    assert bad["NUL"] == model("O gato bebe leite.")
    assert model("O gato\ud800bebe leite.") == model("O gato bebe leite.")


def test_nothing_in_nothing_out(served):
    answer = served.signatures["translate"](text=tf.constant(["", " "]))
    assert answer["translation"].numpy().tolist() == [b"", b""]
    assert answer["score"].numpy().tolist() == [0.0, 0.0]


def test_an_empty_batch_gives_an_empty_batch(served):
    empty = tf.constant([], tf.string)
    answer = served.signatures["translate"](text=empty)
    assert answer["translation"].shape == answer["score"].shape == (0,)
    score = served.signatures["score"](text=empty, translation=empty)["score"]
    assert score.shape == (0,)
    assert served.signatures["tokenize"](text=empty)["ids"].shape[0] == 0
    ids = tf.zeros((0, 0), tf.int32)
    assert served.signatures["detokenize"](ids=ids)["text"].shape == (0,)


def test_a_translation_that_does_not_end_is_cut_at_its_own_limit(translator):
    ids = translator.tokenizer.tokenize(["o " * 40])
    answer = translator.signatures["translate"](text=tf.constant(["o " * 40]))
    written = translator.tokenizer.tokenize(answer["translation"]).row_lengths()
    assert int(written[0]) <= min(2 * (ids.shape[1] or 41) + 10, translator.max_length)


# Scores.


def test_score_is_the_mean_log_probability(translator):
    """The oracle: one forward pass, a softmax in NumPy, one sentence at a time."""
    sentences = SENTENCES[:8]
    translations = translator(sentences)
    answer = translator.signatures["score"](
        text=tf.constant(sentences), translation=tf.constant(translations)
    )["score"].numpy()
    for sentence, translation, score in zip(
        sentences, translations, answer, strict=True
    ):
        source = [*translator.tokenizer.tokenize([sentence])[0].numpy(), END_ID]
        target = [*translator.tokenizer.tokenize([translation])[0].numpy(), END_ID]
        target_in = [2, *target[:-1]]
        logits = translator.transformer(
            (np.array([source]), np.array([target_in])), training=False
        ).numpy()[0]
        logits = logits.astype("float64")
        logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        assert score == pytest.approx(logs[range(len(target)), target].mean(), abs=1e-4)


def test_translating_and_scoring_agree(translator):
    """Where the translation's text has the very tokens that were written."""
    translations, scores = translator.translate(SENTENCES)
    forced = translator.answers(
        "score",
        {"text": np.array(SENTENCES), "translation": np.array(translations)},
    )["score"]
    assert np.median(np.abs(forced - scores)) < 1e-4
    assert (forced <= 0).all() and (scores <= 0).all()


def test_score_wants_as_many_translations_as_texts(translator):
    with pytest.raises(tf.errors.InvalidArgumentError, match="as many translations"):
        translator.signatures["score"](
            text=tf.constant(["a", "b"]), translation=tf.constant(["a"])
        )


@pytest.mark.parametrize("model", ["translator", "served"])
def test_given_translations_are_scored_in_order(model, request):
    """What the signature gives, whatever the batches and the neighbours."""
    model = request.getfixturevalue(model)
    pairs = [*load("phrasebook", "test", cleaned=False)[0][:20], ("", ""), ("Olá.", "")]
    texts, translations = zip(*pairs, strict=True)
    answer = model.answers("score", {"text": texts, "translation": translations})
    for tokens in (1, 100, 2048):
        scores = model.score(texts, translations, tokens_per_batch=tokens)
        assert scores == pytest.approx(answer["score"], abs=1e-5)
    assert scores[-2] == 0 and (scores[:-2] < 0).all()
    given = [line.encode() for line in translations]
    assert model.score(texts, given).tolist() == scores.tolist()
    assert model.score([], []).shape == (0,)


def test_good_translations_score_better_than_those_of_others(translator):
    texts, translations = zip(*load("phrasebook", "test")[0][:30], strict=True)
    right = translator.score(texts, translations)
    wrong = translator.score(texts, translations[1:] + translations[:1])
    assert (right > wrong).mean() > 0.7


def test_what_is_too_long_has_no_score(translator, caplog):
    texts = ["Olá.", "o " * 47, "o " * 48, "Olá.", "Olá."]
    translations = ["Hi.", "Hi.", "Hi.", "a " * 48, "Hi."]
    with caplog.at_level(logging.WARNING, "tfxformer"):
        scores = translator.score(texts, translations, first=10)
    assert [math.isnan(score) for score in scores] == [False, False, True, True, False]
    assert scores[0] == pytest.approx(scores[4])
    first, second = caplog.messages
    assert "text 12 is not scored" in first and "text 13 " in second
    assert "48 tokens, more than the 47" in first


def test_scoring_wants_pairs(translator):
    with pytest.raises(ValueError, match="1 translations for 2 texts"):
        translator.score(["a", "b"], ["a"])


# Documents. `Echo` stands for a model where it does not matter what that answers.


class Echo(Translator):
    """Takes words for tokens, gives back what it reads, and remembers its batches."""

    def __init__(self, max_length=8):
        self.max_length = max_length
        self.batches = []
        self.signatures = {"count": self._count, "translate": self._echo}

    def _count(self, text):
        return {"tokens": tf.constant([len(t.decode().split()) for t in text.numpy()])}

    def _echo(self, text):
        self.batches.append([line.decode() for line in text.numpy()])
        # The more words, the worse the score.
        scores = [-float(len(line.split())) for line in self.batches[-1]]
        return {"translation": text, "score": tf.constant(scores)}

    @property
    def read(self):
        return [line for batch in self.batches for line in batch]


DOCUMENT = """\tO título

O gato bebe leite.  O Sr. Silva ri!\u00a0Porquê?\r
    Uma linha.

\n
O gato bebe leite. Fim """


def test_a_document_keeps_its_form():
    echo = Echo()
    assert echo([DOCUMENT, "", "Fim"]) == [DOCUMENT, "", "Fim"]
    assert {*echo.read} == {
        *("O título", "O gato bebe leite.", "O Sr. Silva ri!", "Porquê?"),
        *("Uma linha.", "Fim"),
    }
    assert len(echo.read) == 6  # nothing is translated twice


def test_translations_do_not_run_together():
    assert Echo()("你好。再见！\n好") == "你好。 再见！\n好"


CHARACTERS = st.characters(codec="utf-8") | st.sampled_from("a.?! \n\u2028。")


@settings(deadline=None)
@given(st.lists(st.text(CHARACTERS)))
def test_nothing_is_lost_or_moved(texts):
    echo = Echo(max_length=4)
    for text, answer in zip(texts, echo(texts, tokens_per_batch=20), strict=True):
        assert "".join(answer.split()) == "".join(text.split())
        assert re.findall(r"\s", answer.replace(" ", "")) == re.findall(
            r"\s", text.replace(" ", "")
        )
    assert all(len(line.splitlines()) == 1 for line in echo.read)
    assert all(len(line.split()) <= 3 for line in echo.read)


def test_half_a_surrogate_pair_is_read_as_a_space():
    assert Echo()(["o\ud800gato"]) == ["o gato"]  # no UTF-8 bytes could tell it


def test_batches_are_sorted_and_bounded_by_tokens():
    echo = Echo(max_length=100)
    counts = np.random.default_rng(0).integers(0, 90, 99)
    texts = [f"{i} " + "a " * count for i, count in enumerate(counts)]
    assert echo(texts, tokens_per_batch=200) == texts
    lengths = [[len(line.split()) for line in batch] for batch in echo.batches]
    assert [*itertools.chain(*lengths)] == sorted(counts + 1)
    assert max(len(batch) * max(batch[-1] + 1, 16) for batch in lengths) <= 200
    # Each is as full as it can be: with the next sentence it would be too big.
    for batch, after in itertools.pairwise(lengths):
        assert (len(batch) + 1) * max(after[0] + 1, 16) > 200
    # One that is longer than a whole batch has its own.
    echo = Echo(max_length=100)
    echo(texts, tokens_per_batch=1)
    assert {len(batch) for batch in echo.batches} == {1}


def test_a_long_sentence_is_cut_at_the_best_place_and_said(caplog):
    echo = Echo(max_length=8)
    texts = ["Olá.", "Bom dia. Um dois três, quatro cinco; seis sete oito nove dez"]
    with caplog.at_level(logging.INFO, "tfxformer"):
        assert echo.translate(texts, first=5)[0] == texts
    assert {*echo.read} == {
        *("Olá.", "Bom dia."),
        *("Um dois três, quatro cinco;", "seis sete oito nove dez"),
    }
    (message,) = caplog.messages
    assert "text 6: a sentence of 51 characters" in message
    assert "7 tokens: translated in 2 parts" in message


def test_a_character_beyond_the_limit_is_said(caplog):
    with caplog.at_level(logging.WARNING, "tfxformer"):
        Echo(max_length=1)("ab")
    assert caplog.messages == [
        "'a' has 1 tokens: the model reads the first 0",
        "'b' has 1 tokens: the model reads the first 0",
    ]


def test_a_line_stays_one_sentence_if_asked_and_if_it_fits():
    echo = Echo(max_length=8)
    texts = ["Olá. Bom dia.", "Um dois três. Quatro cinco seis sete. Oito nove.\nDez."]
    assert echo(texts, split_sentences=False) == texts
    assert {*echo.read} == {
        *("Olá. Bom dia.", "Um dois três.", "Quatro cinco seis sete. Oito nove."),
        "Dez.",
    }


def test_a_document_s_score_is_the_mean_over_its_tokens():
    _, scores = Echo().translate(["Um.", "Um. Dois três.\n\nUm.", " \n", ""])
    # "Um." has 2 tokens of -1, "Dois três." 3 of -2, the end token among them.
    assert scores == pytest.approx([-1, -(2 + 6 + 2) / 7, 0, 0])


@pytest.mark.parametrize("model", ["translator", "served"])
def test_a_document_is_its_sentences(model, request):
    model = request.getfixturevalue(model)
    lines = [" ".join(SENTENCES[:3]), "", *SENTENCES[3:5]]
    one = [model(sentence) for sentence in SENTENCES[:5]]
    text, expected = "\n".join(lines), "\n".join([" ".join(one[:3]), "", *one[3:]])
    got = model(text)
    assert re.findall(r"\s*\n\s*", got) == re.findall(r"\s*\n\s*", expected)
    if got != expected:  # a tie in one of them
        assert_same(
            request.getfixturevalue("translator"),
            SENTENCES[3:5],
            one[3:],
            got.split("\n")[2:],
        )


@pytest.mark.parametrize("model", ["translator", "served"])
def test_nothing_of_a_long_text_is_left_out(model, request, caplog):
    """Ten sentences without a stop are far beyond the 47 tokens that fit."""
    tokenizer = request.getfixturevalue("translator").tokenizer
    model = request.getfixturevalue(model)
    text = ", ".join(re.sub("[.?!]", "", sentence) for sentence in SENTENCES[:10])
    with caplog.at_level(logging.INFO, "tfxformer"):
        translation = model(text)
    assert "text 1: a sentence of" in caplog.text
    caplog.clear()
    parts = split_to_fit([text], lambda t: tokenizer.tokenize(t).row_lengths(), 47)[0]
    assert len(parts) > 3
    assert translation == " ".join(model(parts[::2]))
    assert not caplog.messages


# Loading.


def test_loading_says_what_is_missing(run_folder, tmp_path):
    with pytest.raises(UserError, match="no such run folder"):
        Translator.load(tmp_path / "nothing")
    with pytest.raises(UserError, match=r"config\.yaml is missing"):
        Translator.load(tmp_path)
    copy = shutil.copytree(run_folder, tmp_path / "copy")
    (copy / "best.weights.h5").unlink()
    with pytest.raises(UserError, match=r"best\.weights\.h5 is missing"):
        Translator.load(copy)
    assert Translator.load(copy, "last")("") == ""


@pytest.mark.parametrize("file", ["best.weights.h5", "tokenizer.model", "config.yaml"])
def test_damaged_files_are_named(run_folder, tmp_path, file):
    copy = shutil.copytree(run_folder, tmp_path / "copy")
    (copy / file).write_bytes((copy / file).read_bytes()[:1000][::-1])
    with pytest.raises(UserError, match=file.replace(".", r"\.")):
        Translator.load(copy)


def test_weights_of_another_model_are_refused(run_folder, tmp_path):
    copy = shutil.copytree(run_folder, tmp_path / "copy")
    config = (copy / "config.yaml").read_text()
    (copy / "config.yaml").write_text(config.replace("dff: 128", "dff: 256"))
    with pytest.raises(UserError, match="of another model"):
        Translator.load(copy)


def test_a_tokenizer_of_another_model_is_refused(translator, tmp_path):
    from tfxformer import Tokenizer

    other = Tokenizer.train(["um gato", "a cat"] * 50, vocab_size=300)
    with pytest.raises(UserError, match="do not belong together"):
        Translator(other, translator.transformer)


def test_a_foreign_saved_model_is_refused(tmp_path):
    tf.saved_model.save(tf.Module(), str(tmp_path / "foreign"))
    with pytest.raises(UserError, match="none that tfxformer exported"):
        Translator.load(tmp_path / "foreign")


def test_the_best_of_many_are_alike_in_python_and_in_an_export(exported, translator):
    texts = ["O gato preto bebeu o leite.", "", "Bom dia!"]
    ours = translator.n_best(texts)
    served = Translator.load(exported).n_best(texts)
    for mine, theirs, count in zip(ours, served, (4, 1, 4), strict=True):
        assert len(mine) == count
        assert [text for text, _ in mine] == [text for text, _ in theirs]
        scores = [score for _, score in mine]
        assert scores == sorted(scores, reverse=True)
        assert scores == pytest.approx([score for _, score in theirs], abs=1e-4)
    assert ours[1] == [("", 0.0)]


def test_translations_begin_as_they_are_told_to(translator, exported):
    text = "O gato preto bebeu o leite."
    begun, free = translator.complete([text, text], ["My", ""])
    assert begun.startswith("My") and free == translator(text)
    assert translator.complete([], []) == []
    with pytest.raises(ValueError, match="1 prefixes for 2 texts"):
        translator.complete([text, text], ["My"])
    with pytest.raises(UserError, match="takes no prefixes"):
        Translator.load(exported).complete([text], ["My"])


# --- Streaming ---


@pytest.fixture(scope="module")
def brief(translator):
    """It ends each sentence soon, as tests like it."""
    options = DecodingOptions(max_length=5)
    return Translator(translator.tokenizer, translator.transformer, options)


@pytest.mark.parametrize("text", ["", " ", "\n\n"])
def test_of_nothing_one_sees_nothing(translator, text):
    assert [*translator.stream(text)] == [text]


def test_what_one_sees_ends_as_the_whole(translator):
    streams = [[*translator.stream(sentence)] for sentence in SENTENCES[:3]]
    whole = [stream[-1] for stream in streams]
    assert_same(translator, SENTENCES[:3], translator(SENTENCES[:3]), whole)
    for stream, sentence in zip(streams, SENTENCES, strict=False):
        # One for each token, its end too, and the whole.
        assert len(stream) == len(translator.explain(sentence).target_tokens) + 1
        assert len({*stream}) > 2
        for before, after in itertools.pairwise(stream):
            assert after.startswith(before)


def test_a_document_is_seen_sentence_by_sentence(brief):
    text = " Olá!  Bom dia.\n\nSim。Não。\n"
    *_, before_last, last = brief.stream(text)
    assert last == brief(text)
    assert last == f"{before_last}\n"
    # What is too long is cut, as elsewhere.
    long = "gato " * 60
    assert len(brief.parts(long)) > 3
    *_, last = brief.stream(long.encode())
    assert last == brief(long)


def test_one_may_stop_looking(brief):
    stream = brief.stream(SENTENCES[0])
    first = next(stream)
    stream.close()
    assert [*stream] == []
    # Two at a time do not mix.
    one, other = brief.stream(SENTENCES[0]), brief.stream(SENTENCES[1])
    assert next(one) == first and next(other)
    assert [[*one][-1], [*other][-1]] == [*map(brief, SENTENCES[:2])]


def test_streams_take_the_options_but_a_beam(translator, brief):
    model = translator.tokenizer, translator.transformer
    beam = DecodingOptions(beam_size=3, n_best=2, length_penalty=0.6, max_length=5)
    *_, last = Translator(*model, beam).stream(SENTENCES[0])
    assert last == brief(SENTENCES[0])
    drawn = Translator(*model, DecodingOptions(sampling=True, seed=3, max_length=5))
    *_, last = drawn.stream(SENTENCES[0])
    assert last == drawn(SENTENCES[0])


def test_half_a_character_is_not_seen(translator, monkeypatch):
    """Some characters are three bytes, and each byte a token."""
    tokens = ["▁a", "<0xE6>", "<0xBC>", "<0xA2>", "▁b"]
    ids = translator.tokenizer.processor.piece_to_id(tokens)
    steps = [np.array([[ids[: i + 1]]], "int32") for i in range(len(ids))]
    monkeypatch.setattr(translator_module, "decode_steps", lambda *_: steps)
    seen = [*translator.stream("qualquer")]
    assert seen == ["a", "a", "a", "a漢", "a漢 b", "a漢 b"]
    monkeypatch.setattr(translator_module, "decode_steps", lambda *_: steps[:2])
    assert [*translator.stream("qualquer")][-1] == "a\ufffd"  # as the whole has it


def test_an_export_is_not_watched(served):
    with pytest.raises(UserError, match="load_translator, or give a run folder"):
        next(served.stream("Olá!"))
