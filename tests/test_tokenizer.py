"""Tokenizing keeps any text, in Python and in the graph."""

import gc
import io
import random
import re
import unicodedata

import keras
import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

from tfxformer import Tokenizer
from tfxformer.errors import UserError
from tfxformer.tokenizer import encode_source, encode_target

LINES = [
    "O gato bebe leite. Quem és tu? Perguntou o rapaz à avó.",
    "A casa é azul e o mar também é azul.",
    "Ele foi à praia ontem com os seus amigos.",
    "Não há pão nem maçãs na cozinha!",
    "The cat drinks milk. Who are you? The boy asked his grandmother.",
    "The house is blue and the sea is blue as well.",
    "He went to the beach yesterday with his friends.",
    "There is neither bread nor apples in the kitchen!",
] * 20
TEXT = LINES[2]
SPACES = (
    "\t\n\v\f\r\x00\x1b\x1c \u00a0\u2003\u202f\u205f\u3000\x85\u1680\u2028\u2029\x7f"
)
MARKS = "\u200b\u2060\ufeff\u00ad"
ODD = [
    "",
    " \t",
    "<s></s><pad><unk><0x41>",
    "👩‍👩‍👧 🇵🇹 👍🏽",
    "שלום עולם، مرحبا بالعالم",
    "猫が牛乳を飲む",
    "é e\u0301 \u0301 각 \u1100\u1161",
    "ﬁ ½ ㎏ ² Ａ ⁇ ▁",
    "\ufffd \ufffe \U0010ffff \u200d\u202e",
    f"a{'b'.join(SPACES + MARKS)}c",
    "a" * 10_000,
]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(LINES, vocab_size=400)


@pytest.fixture(scope="module")
def lower():
    return Tokenizer.train(LINES, vocab_size=400, casing="lower")


def in_graph(tokenizer, texts):
    return tokenizer.tokenize(tf.constant(texts, tf.string)).to_list()


def text_of(tokenizer, ids):
    ids = tf.ragged.constant(ids, dtype=tf.int32, ragged_rank=1)
    return [row.decode("utf-8") for row in tokenizer.detokenize(ids).numpy()]


def normal(text):
    """The documented normalization, from Python's own Unicode tables."""
    text = re.sub(f"[{MARKS}]", "", re.sub(f"[\x00-\x20\x7f-\x9f{SPACES}]", " ", text))
    return " ".join(unicodedata.normalize("NFKC", text.replace("▁", " ")).split())


# --- Text ---


def test_encoding_and_decoding_keeps_text_up_to_nfkc_and_white_space(tokenizer):
    ids, plain = tokenizer.encode(ODD), [*map(normal, ODD)]
    # Rows are independent of each other.
    assert ids == in_graph(tokenizer, ODD) == [tokenizer.encode([x])[0] for x in ODD]
    assert tokenizer.decode(ids) == text_of(tokenizer, ids) == plain
    assert tokenizer.decode(tokenizer.encode(plain)) == plain


def test_white_space_and_controls_are_one_space_and_marks_are_dropped(tokenizer):
    texts = [f"o{x}gato" for x in SPACES] + [f"{x}o{x}{x} {x}gato{x}" for x in SPACES]
    texts += [f"{x}o ga{x}to" for x in MARKS] + [f"o {x} gato" for x in MARKS]
    plain = tokenizer.encode(["o gato"])
    assert tokenizer.encode(texts) == in_graph(tokenizer, texts) == plain * len(texts)
    assert not any(tokenizer.encode([*SPACES, *MARKS]))


def test_bytes_that_are_not_utf_8_are_spaces(tokenizer):
    texts = [b"\xff", b"a\xffb", b"\xed\xa0\x80", b"a\xc0\xafb", b"\xf0\x9f\x98x"]
    assert in_graph(tokenizer, texts) == tokenizer.encode(["", "a b", "", "a b", "x"])


def test_an_empty_batch_of_texts_encodes_and_decodes_to_an_empty_batch(tokenizer):
    assert tokenizer.encode([]) == tokenizer.decode([]) == []
    ids = tokenizer.tokenize(tf.zeros([0], tf.string))
    assert ids.dtype == tf.int32 and tokenizer.detokenize(ids).shape == (0,)
    assert encode_source(tokenizer, tf.zeros([0], tf.string)).shape == (0, 1)


def test_casing_lower_encodes_text_in_lower_case(lower):
    texts = ["O GATO Bebe", "Straße", "ÀÉÇ", "ΑΒΓ", "ПРИВЕТ"]
    ids = lower.encode(texts)
    assert in_graph(lower, texts) == ids
    assert lower.decode(ids) == ["o gato bebe", "straße", "àéç", "αβγ", "привет"]


def test_encoded_text_has_no_special_ids_and_spells_unknown_characters_in_bytes(
    tokenizer,
):
    ids = {i for row in tokenizer.encode(LINES[:10] + ODD) for i in row}
    assert ids and min(ids) > 3 and max(ids) < tokenizer.vocab_size
    spelt = [f"<0x{byte:02X}>" for byte in range(256)]
    assert tokenizer.tokens(range(260)) == ["<pad>", "<unk>", "<s>", "</s>", *spelt]
    (ids,) = tokenizer.encode(["猫"])
    assert tokenizer.tokens(ids) == ["▁", *(spelt[byte] for byte in "猫".encode())]


def test_decoding_leaves_out_padding_start_and_end_tokens(tokenizer):
    (ids,) = tokenizer.encode([TEXT])
    padded = [[2, *ids, 3, 0, 0], [0, 2, *ids, 3, 0], [2, 0, 0, 3]]
    assert tokenizer.decode(padded) == text_of(tokenizer, padded) == [TEXT, TEXT, ""]
    assert tokenizer.decode(np.array(padded[:2])) == [TEXT, TEXT]


def test_any_token_ids_decode_to_valid_text(tokenizer):
    draw = np.random.default_rng(0)
    size = tokenizer.vocab_size
    rows = [*draw.integers(0, size, (200, 12)), *draw.integers(4, 260, (200, 12))]
    rows += [np.array([outside]) for outside in (size, -1, 2**31 - 1, -(2**31))]
    texts = text_of(tokenizer, [row.tolist() for row in rows])  # decodes UTF-8
    assert not re.search("[\x00-\x1f\x7f]", "".join(texts))
    assert {text.strip() for text in texts[-4:]} == {"⁇"}
    # SentencePiece's two builds count broken bytes differently.
    python = [text.replace("\ufffd", "") for text in tokenizer.decode(rows)]
    assert python == [text.replace("\ufffd", "") for text in texts]


def test_alpha_varies_the_tokens_and_never_the_text(tokenizer):
    draws = tokenizer.encode([TEXT] * 50, alpha=0.1)
    assert len({*map(tuple, draws)}) > 10
    assert {*tokenizer.decode(draws)} == {TEXT}
    assert draws != tokenizer.encode([TEXT] * 50, alpha=0.1)
    assert tokenizer.encode([TEXT], alpha=200.0) == tokenizer.encode([TEXT])
    plain = tokenizer.decode(tokenizer.encode(ODD[:-1]))
    assert tokenizer.decode(tokenizer.encode(ODD[:-1], alpha=0.1)) == plain


# --- In the graph ---


def test_a_tokenizer_in_a_graph_outlives_tensorflow_s_caches(tokenizer):
    one, twin = (Tokenizer(tokenizer.model) for _ in range(2))  # first used in a graph
    graph = tf.function(lambda text: one.detokenize(one.tokenize(text)))
    stream = iter(tf.data.Dataset.from_tensors([TEXT]).repeat().map(one.tokenize))
    expected = in_graph(twin, [TEXT])
    assert expected == one.encode([TEXT])
    del twin  # TensorFlow shares the resource of the two
    # A new seed empties TensorFlow's cache of eager kernels and their resources.
    for disturb in (lambda: keras.utils.set_random_seed(1), gc.collect) * 2:
        disturb()
        assert graph(tf.constant([TEXT])).numpy()[0].decode() == TEXT
        assert next(stream).to_list() == in_graph(one, [TEXT]) == expected


@pytest.mark.parametrize("longest", [None, 5, 0])
def test_encode_source_adds_the_end_token_and_encode_target_shifts_the_target(
    tokenizer, longest
):
    texts = [*LINES[:5], ""]
    ids = [row[:longest] for row in tokenizer.encode(texts)]
    padded = (encode_source(tokenizer, texts, longest),)
    padded += encode_target(tokenizer, texts, longest)
    source, target_in, labels = (
        [[int(i) for i in row if i] for row in ids.numpy()] for ids in padded
    )
    assert source == labels == [[*row, 3] for row in ids]
    assert target_in == [[2, *row] for row in ids]


# --- Files and training ---


def test_a_saved_tokenizer_loads_with_the_same_model_and_digest(
    tokenizer, lower, tmp_path
):
    path = tmp_path / "tokenizer.model"
    tokenizer.save(path)
    loaded = Tokenizer.load(path)
    assert loaded.model == tokenizer.model and loaded.digest == tokenizer.digest
    assert loaded.vocab_size == tokenizer.vocab_size and loaded.digest != lower.digest
    # The file is an ordinary SentencePiece model.
    other = sentencepiece.SentencePieceProcessor(model_file=str(path))
    assert other.encode(LINES[:10]) == tokenizer.encode(LINES[:10])


def test_a_missing_or_damaged_tokenizer_file_raises_an_error(tokenizer, tmp_path):
    path, model = tmp_path / "wrong.model", tokenizer.model
    with pytest.raises(UserError, match=r"wrong\.model: No such file"):
        Tokenizer.load(path)
    damaged = model[: len(model) // 2], model.replace(b"<0x41>", b"<0x\xff1>")
    for content in (b"", random.Random(0).randbytes(5000), *damaged):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"wrong\.model: not a SentencePiece model"):
            Tokenizer.load(path)


def test_a_sentencepiece_model_with_other_special_ids_is_refused():
    model, sizes = io.BytesIO(), {"vocab_size": 90, "minloglevel": 2}
    train = sentencepiece.SentencePieceTrainer.Train
    train(sentence_iterator=iter(LINES), model_writer=model, **sizes)
    with pytest.raises(UserError, match=r"0, 1, 2 and 3, not \(-1, 0, 1, 2\)"):
        Tokenizer(model.getvalue())


@pytest.mark.parametrize(
    ("lines", "size"), [([], 400), (["  ", "\t\n", "\u3000"], 400), (LINES, 270)]
)
def test_training_a_tokenizer_without_text_or_for_too_few_tokens_is_refused(
    lines, size
):
    with pytest.raises(UserError, match=rf"^cannot learn .* of {size} tokens .+$"):
        Tokenizer.train(lines, size)


def test_a_small_corpus_gives_a_smaller_vocabulary_and_training_is_repeatable(
    tokenizer,
):
    odd = ["\x00", "a\nb", "\ufeff", "", "x" * 2000, "é" * 10, "um gato"]
    small = Tokenizer.train((line for line in odd * 5), vocab_size=10_000)
    assert 260 < small.vocab_size < 400
    assert small.decode(small.encode(["o cão é 猫"])) == ["o cão é 猫"]
    assert Tokenizer.train(iter(LINES), vocab_size=400).model == tokenizer.model
