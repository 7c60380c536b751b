"""Strings to strings: order, batches, bad input, scores."""

import logging
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tfxformer import Translator
from tfxformer.corpora import load
from tfxformer.errors import UserError
from tfxformer.special_ids import END_ID

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


def test_order_is_kept_whatever_the_batch_size(translator):
    expected = [translator(sentence) for sentence in SENTENCES[:20]]
    for batch_size in (1, 3, 64):
        assert_same(translator, SENTENCES[:20], expected, batch_size)


@pytest.mark.parametrize("wrong", [5, None, ["a", 5], [None], [["a"]]])
def test_only_strings_are_taken(translator, wrong):
    with pytest.raises(TypeError):
        translator(wrong)


def test_batches_do_not_change_a_translation(served, translator):
    """64 sentences, 20 random batchings, through the SavedModel."""
    answer = served.signatures["serving_default"]

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


def assert_same(translator, sentences, expected, batch_size):
    got = translator(sentences, batch_size=batch_size)
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
    answers = model(texts, batch_size=len(texts))
    for sentence, expected, got in zip(
        good, alone, answers[:2] + answers[-2:], strict=True
    ):
        if expected != got:
            assert_tied(request.getfixturevalue("translator"), sentence, expected, got)
    bad = dict(zip(BAD, answers[2:-2], strict=True))
    assert bad["empty"] == bad["white space"] == bad["control characters"] == ""
    assert all(isinstance(answer, str) for answer in bad.values())
    for answer in bad.values():
        assert "\n" not in answer and "\0" not in answer
    # A NUL counts as a space.
    assert bad["NUL"] == model("O gato bebe leite.")


def test_nothing_in_nothing_out(served):
    answer = served.signatures["serving_default"](text=tf.constant(["", " "]))
    assert answer["translation"].numpy().tolist() == [b"", b""]
    assert answer["score"].numpy().tolist() == [0.0, 0.0]


def test_an_empty_batch_gives_an_empty_batch(served):
    empty = tf.constant([], tf.string)
    answer = served.signatures["serving_default"](text=empty)
    assert answer["translation"].shape == answer["score"].shape == (0,)
    score = served.signatures["score"](text=empty, translation=empty)["score"]
    assert score.shape == (0,)
    assert served.signatures["tokenize"](text=empty)["ids"].shape[0] == 0
    ids = tf.zeros((0, 0), tf.int32)
    assert served.signatures["detokenize"](ids=ids)["text"].shape == (0,)


def test_text_beyond_the_limit_is_read_as_far_as_it_goes(translator, caplog):
    longest = translator.max_length - 1
    ids = translator.tokenizer.tokenize([HUGE])[0, :longest]
    head = translator.tokenizer.detokenize([ids.numpy().tolist()]).numpy()[0].decode()
    with caplog.at_level(logging.WARNING, "tfxformer"):
        translator(["Olá.", HUGE])
    assert len(caplog.messages) == 1
    assert "text 2 has" in caplog.text and f"first {longest}" in caplog.text
    caplog.clear()
    assert translator(HUGE) == translator(head)


def test_text_that_normalising_makes_long_is_noticed(translator, caplog):
    """One character of three bytes may become eighteen."""
    with caplog.at_level(logging.WARNING, "tfxformer"):
        translator("\ufdfa" * 10)
    assert "text 1 has" in caplog.text


def test_a_translation_that_does_not_end_is_cut_at_its_own_limit(translator):
    ids = translator.tokenizer.tokenize(["o " * 40])
    answer = translator.signatures["serving_default"](text=tf.constant(["o " * 40]))
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
