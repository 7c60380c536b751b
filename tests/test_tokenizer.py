"""Any text survives the tokenizer, and nothing that is given to it breaks it."""

import codecs
import gc
import random
import re
import sys
import unicodedata

import keras
import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tfxformer import Tokenizer
from tfxformer.errors import UserError
from tfxformer.tokenizer import clean, encode_source, encode_target

LINES = [
    "O gato bebe leite.",
    "A casa é azul e o mar também é azul.",
    "Ele foi à praia ontem com os seus amigos.",
    "Não há pão nem maçãs na cozinha!",
    "Quem és tu? Perguntou o rapaz à avó.",
    "The cat drinks milk.",
    "The house is blue and the sea is blue as well.",
    "He went to the beach yesterday with his friends.",
    "There is neither bread nor apples in the kitchen!",
    "Who are you? The boy asked his grandmother.",
] * 20
# What counts as a space: control characters, and white space that NFKC leaves.
SPACE = "[\x00-\x20\x7f-\x9f\u1680\u2028\u2029]"
# Marks that nobody sees: zero-width space, word joiner, byte-order mark, soft hyphen.
MARKS = "[\u200b\u2060\ufeff\u00ad]"
INT32 = st.integers(-(2**31), 2**31 - 1)


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(LINES, vocab_size=400)


@pytest.fixture(scope="module")
def lower():
    return Tokenizer.train(LINES, vocab_size=400, casing="lower")


def ids_of(tokenizer, texts, **options):
    return tokenizer.tokenize(tf.constant(texts, tf.string), **options).to_list()


def text_of(tokenizer, ids):
    ids = tf.ragged.constant(ids, dtype=tf.int32, ragged_rank=1)
    return [row.decode("utf-8") for row in tokenizer.detokenize(ids).numpy()]


def round_trip(tokenizer, texts):
    return text_of(tokenizer, ids_of(tokenizer, texts))


def with_space(error):
    return " ", error.end


codecs.register_error("with_space", with_space)


def normal(text, form=lambda text: unicodedata.normalize("NFKC", text)):
    """The documented normalisation, from Python's own Unicode tables."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", errors="with_space")
    text = re.sub(MARKS, "", re.sub(SPACE, " ", text)).replace("▁", " ")
    return re.sub(" +", " ", form(text)).strip(" ")


def folded(text):
    """Unicode's NFKC_Casefold, but for the characters that it deletes."""
    text = unicodedata.normalize("NFD", text).casefold()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


# --- Round trip ---


@pytest.mark.parametrize(
    "text",
    [
        "A casa é azul.",
        "",
        "👩‍👩‍👧 🇵🇹 👍🏽",
        "שלום עולם، مرحبا بالعالم",
        "猫が牛乳を飲む",
        "é e\u0301 \u0301 각 \u1100\u1161",
        "<s> </s> <unk> <pad> <0x41> \u2047",
        "ﬁ ½ ㎏ ² Ａ",
        "\ufeff \ufffd \ufffe \U0010ffff \u200b\u200d\u202e",
        "zero\u00a0width\u3000spaces",
        "a" * 1000,
    ],
)
def test_text_survives(tokenizer, text):
    assert round_trip(tokenizer, [text]) == [normal(text)]


def test_the_text_that_comes_back_may_need_nfkc(tokenizer):
    # SentencePiece's table neither reorders marks nor composes these syllables.
    for text in ("a\u0301\u0323", "가\u11a8"):
        (back,) = round_trip(tokenizer, [text])
        assert back != normal(text) and normal(back) == normal(text)


@settings(deadline=None)
@given(st.lists(st.text(max_size=30), min_size=1, max_size=20))
def test_any_text_survives_up_to_nfkc_and_spaces(tokenizer, texts):
    back = round_trip(tokenizer, texts)
    assert [normal(text) for text in back] == [normal(text) for text in texts]
    # ... and what came back is stable.
    assert ids_of(tokenizer, back) == ids_of(tokenizer, round_trip(tokenizer, back))


@settings(deadline=None)
@given(st.lists(st.binary(max_size=30), min_size=1, max_size=20))
@example([b"\xff", b"a\xffb", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"])
@example([b"\x00", b"a\x00b", b"\xc0\x80", b"a\xc0\xafb", b"\xef\xbf\xbd"])
@example([b"a\xe2\x96b", b"\xe2\x96\x81", b"\xf0\x9f\x98"])
def test_any_bytes_survive_but_for_what_is_not_utf_8(tokenizer, texts):
    back = round_trip(tokenizer, texts)
    assert [normal(text) for text in back] == [normal(text) for text in texts]


def lines_of_characters():
    """Every character of Python's Unicode, of the vast uniform blocks every 13th.

    Letters between them, so that none composes with another.
    """
    characters = []
    for code in range(sys.maxunicode + 1):
        uniform = 0x3400 <= code < 0xE000 or code >= 0x17000
        assigned = unicodedata.category(chr(code)) not in ("Cn", "Co", "Cs")
        if assigned and (code % 13 == 0 or not uniform):
            characters.append(chr(code))
    assert len(characters) > 20_000
    return ["x".join(characters[i : i + 50]) for i in range(0, len(characters), 50)]


def test_every_character_survives(tokenizer):
    lines = lines_of_characters()
    back = round_trip(tokenizer, lines)
    assert [normal(line) for line in back] == [normal(line) for line in lines]


def test_every_character_survives_lower_but_for_case(lower):
    lines = lines_of_characters()
    back = round_trip(lower, lines)
    assert [normal(line, folded) for line in back] == [
        normal(line, folded) for line in lines
    ]


SPACES = "\t\n\v\f\r\x00\x1b\x1c \u00a0\u2003\u202f\u205f\u3000"
SPACES += "\x85\u1680\u2028\u2029\x7f\x9f"


@pytest.mark.parametrize(
    "space", SPACES, ids=[f"U+{ord(space):04X}" for space in SPACES]
)
def test_white_space_and_control_characters_are_one_space(tokenizer, space):
    texts = [f"o{space}gato", f"{space}o{space}{space} {space}gato{space}", space]
    assert round_trip(tokenizer, texts) == ["o gato", "o gato", ""]


@pytest.mark.parametrize("mark", ["\u200b", "\u2060", "\ufeff", "\u00ad"])
def test_invisible_marks_are_dropped(tokenizer, mark):
    texts = [f"{mark}o ga{mark}to", f"o {mark} gato", mark]
    plain = ids_of(tokenizer, ["o gato", "o gato", ""])
    assert ids_of(tokenizer, texts) == plain
    assert tokenizer.vocabulary.encode(texts) == plain


def test_the_sign_for_a_space_is_read_as_a_space(tokenizer):
    # U+2581 is how SentencePiece spells a space: the one character that is lost.
    assert round_trip(tokenizer, ["o▁gato", "▁o gato"]) == ["o gato", "o gato"]
    assert round_trip(tokenizer, ["▁"]) == [""]


@pytest.mark.parametrize("unit", ["o gato é azul. ", "a", "猫", "\x00", "🙂 ", "\xff"])
def test_100_000_characters_survive(tokenizer, unit):
    text = (unit * 100_000)[:100_000]
    text = text.encode("latin-1") if unit == "\xff" else text
    assert round_trip(tokenizer, [text]) == [normal(text)]


def test_nothing_has_no_ids(tokenizer):
    empty = ["", " ", "\t\n \r", "\x00", "\u3000\u00a0", b"\xff\xfe"]
    assert ids_of(tokenizer, empty) == [[]] * len(empty)
    assert text_of(tokenizer, [[]] * len(empty)) == [""] * len(empty)


@pytest.mark.parametrize("alpha", [0.0, 0.1])
def test_an_empty_batch(tokenizer, alpha):
    ids = tokenizer.tokenize([], alpha)
    assert ids.shape[0] == 0 and ids.dtype == tf.int32
    text = tokenizer.detokenize(ids)
    assert text.shape == (0,) and text.dtype == tf.string


@settings(deadline=None)
@given(st.lists(st.text(max_size=30), min_size=1, max_size=10))
def test_ids_are_those_of_sentencepiece_itself(tokenizer, texts):
    # The Python library is another build of SentencePiece than the graph's ops.
    texts = [re.sub(MARKS, "", re.sub(SPACE, " ", text)) for text in texts]
    assert ids_of(tokenizer, texts) == tokenizer.processor.encode(texts)


@settings(deadline=None)
@given(st.lists(st.text(max_size=20), min_size=1, max_size=10))
def test_rows_do_not_touch_one_another(tokenizer, texts):
    alone = [ids_of(tokenizer, [text])[0] for text in texts]
    assert ids_of(tokenizer, texts) == alone


# --- Ids ---


def test_special_ids_never_come_from_text(tokenizer):
    texts = [*LINES[:10], "<pad><unk><s></s>", "⁇", "猫", "\ufffd", "<0x00>"]
    ids = {i for row in ids_of(tokenizer, texts) for i in row}
    assert ids and min(ids) > 3 and max(ids) < tokenizer.vocab_size
    assert tokenizer.pieces([0, 1, 2, 3]) == ["<pad>", "<unk>", "<s>", "</s>"]


def test_what_has_no_piece_is_spelt_in_bytes(tokenizer):
    (ids,) = ids_of(tokenizer, ["猫"])
    assert tokenizer.pieces(ids) == ["▁", *(f"<0x{b:02X}>" for b in "猫".encode())]
    assert tokenizer.pieces(range(4, 260)) == [f"<0x{b:02X}>" for b in range(256)]


def test_known_words_have_few_pieces(tokenizer):
    (ids,) = ids_of(tokenizer, ["The house is blue and the sea is blue as well."])
    assert len(ids) < 30  # 46 characters


def test_padding_start_and_end_are_left_out(tokenizer):
    (ids,) = ids_of(tokenizer, ["O gato bebe leite."])
    padded = tf.constant([[2, *ids, 3, 0, 0], [0, 2, *ids, 3, 0]])
    assert [row.decode() for row in tokenizer.detokenize(padded).numpy()] == [
        "O gato bebe leite."
    ] * 2
    assert text_of(tokenizer, [[2, 3], [0], [2, 0, 0, 3], []]) == [""] * 4


def test_ids_outside_the_vocabulary_are_marked(tokenizer):
    size = tokenizer.vocab_size
    for outside in (size, size + 1, -1, 2**31 - 1, -(2**31)):
        assert text_of(tokenizer, [[outside]])[0].strip() == "⁇"


@settings(deadline=None)
@given(st.data())
def test_any_ids_are_valid_text(tokenizer, data):
    known = st.integers(0, tokenizer.vocab_size - 1)
    byte = st.integers(4, 259)
    row = st.lists(INT32 | known | byte, max_size=20)
    rows = data.draw(st.lists(row, min_size=1, max_size=8))
    together = text_of(tokenizer, rows)  # which decodes them as UTF-8
    assert together == [text_of(tokenizer, [row])[0] for row in rows]
    assert not any(re.search("[\x00-\x1f]", text) for text in together)
    # Padding to the right changes nothing.
    padded = tf.ragged.constant(rows, dtype=tf.int32, ragged_rank=1).to_tensor()
    assert [row.decode() for row in tokenizer.detokenize(padded).numpy()] == together


@settings(deadline=None)
@given(st.data())
def test_detokenising_agrees_with_sentencepiece_itself(tokenizer, data):
    ids = st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=20)
    rows = data.draw(st.lists(ids, min_size=1, max_size=8))
    control = re.compile(SPACE.replace("\x20", "\x1f"))
    expected = map(tokenizer.processor.decode, rows)
    for text, other in zip(text_of(tokenizer, rows), expected, strict=True):
        # Control characters, spelt in bytes, are not let out.
        assert control.sub("\ufffd", text) == control.sub("\ufffd", other)


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)])
def test_empty_ids(tokenizer, shape):
    text = tokenizer.detokenize(tf.zeros(shape, tf.int32))
    assert text.numpy().tolist() == [b""] * shape[0]


# --- Casing ---


def test_keep_keeps_case(tokenizer):
    assert round_trip(tokenizer, ["O GATO Bebe"]) == ["O GATO Bebe"]
    assert ids_of(tokenizer, ["Gato"]) != ids_of(tokenizer, ["gato"])


def test_lower_reads_and_writes_lower_case(lower):
    # "ß" stays: it is lower case.
    texts = ["O GATO Bebe", "Straße", "ÀÉÇ", "ΑΒΓ", "ПРИВЕТ"]
    assert round_trip(lower, texts) == [
        "o gato bebe",
        "straße",
        "àéç",
        "αβγ",
        "привет",
    ]
    assert ids_of(lower, ["Gato"]) == ids_of(lower, ["gATO"])


@settings(deadline=None)
@given(st.lists(st.text("abzABZéÉçÇñÑ .,!?0", max_size=20), min_size=1))
def test_lower_is_python_s_lower_for_latin_letters(lower, texts):
    assert round_trip(lower, texts) == [normal(text).lower() for text in texts]


# --- Sampling ---


def test_alpha_varies_the_pieces_and_never_the_text(tokenizer):
    text = "Ele foi à praia ontem com os seus amigos."
    draws = ids_of(tokenizer, [text] * 50, alpha=0.1)
    assert len({tuple(ids) for ids in draws}) > 10
    assert set(text_of(tokenizer, draws)) == {text}
    best = ids_of(tokenizer, [text] * 3)
    assert best[0] == best[1] == best[2]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.text(max_size=20), min_size=1, max_size=8))
def test_any_text_survives_sampling(tokenizer, texts):
    drawn = ids_of(tokenizer, texts, alpha=0.2)
    assert text_of(tokenizer, drawn) == round_trip(tokenizer, texts)


def test_a_greater_alpha_is_nearer_to_the_best(tokenizer):
    text = "The house is blue and the sea is blue as well."
    (best,) = ids_of(tokenizer, [text])
    kept = [ids_of(tokenizer, [text] * 100, alpha=a).count(best) for a in (0.1, 100.0)]
    assert kept[0] < kept[1] == 100


# --- In the graph ---


def test_the_graph_gives_what_python_gives(tokenizer):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def tokenize(text):
        return tokenizer.tokenize(text)

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
    def detokenize(ids):
        return tokenizer.detokenize(ids)

    for texts in (["O gato", "", "猫 \x00 é"], [b"\xff", b"a" * 500], [""]):
        ids = tokenize(tf.constant(texts))
        assert ids.to_list() == ids_of(tokenizer, texts)
        padded = ids.to_tensor()
        back = detokenize(padded).numpy().tolist()
        assert back == tokenizer.detokenize(padded).numpy().tolist()
    assert tokenize(tf.zeros([0], tf.string)).shape[0] == 0
    strange = tf.constant([[-5, 10**9, 50, 0], [0, 0, 0, 0]])
    assert (detokenize(strange).numpy() == tokenizer.detokenize(strange).numpy()).all()


def test_sampling_in_a_graph_and_then_outside_it():
    tokenizer = Tokenizer.train(LINES, vocab_size=320)  # one that never sampled

    def graph():
        return tf.function(lambda text: tokenizer.tokenize(text, 0.1))

    text = ["Ele foi à praia ontem."]
    for sample in (graph(), graph(), lambda text: tokenizer.tokenize(text, 0.1)):
        ids = sample(tf.constant(text))
        assert text_of(tokenizer, ids.to_list()) == text


@pytest.mark.parametrize(
    "disturb",
    [
        lambda: tf.random.set_seed(1),
        lambda: keras.utils.set_random_seed(1),
        keras.backend.clear_session,
        gc.collect,
    ],
    ids=["tf.random.set_seed", "set_random_seed", "clear_session", "gc"],
)
def test_a_tokenizer_outlives_tensorflow_s_caches(disturb):
    # A new seed empties TensorFlow's cache of eager kernels, and with it what they own.
    tokenizer = Tokenizer.train(LINES, vocab_size=330)
    text = ["O gato bebe leite."]
    graph = tf.function(lambda text: tokenizer.detokenize(tokenizer.tokenize(text)))
    stream = iter(
        tf.data.Dataset.from_tensors(text).repeat().map(tokenizer.tokenize).prefetch(1)
    )
    first = ids_of(tokenizer, text)
    assert graph(tf.constant(text)).numpy()[0].decode() == text[0]
    assert next(stream).to_list() == first
    disturb()
    assert ids_of(tokenizer, text) == first
    assert text_of(tokenizer, ids_of(tokenizer, text, alpha=0.3)) == text
    assert graph(tf.constant(text)).numpy()[0].decode() == text[0]
    for _ in range(10):
        assert next(stream).to_list() == first


def test_clean_of_valid_text_changes_nothing():
    text = ["", "o gato", "é 猫 🙂 \ufffd"]
    assert [row.decode() for row in clean(tf.constant(text)).numpy()] == text


# --- Files ---


def test_save_and_load(tokenizer, tmp_path):
    path = tmp_path / "tokenizer.model"
    tokenizer.save(path)
    for where in (path, str(path)):
        loaded = Tokenizer.load(where)
        assert loaded.model == tokenizer.model
        assert loaded.vocab_size == tokenizer.vocab_size
        assert ids_of(loaded, LINES[:10]) == ids_of(tokenizer, LINES[:10])
    # The file is an ordinary SentencePiece model.
    other = sentencepiece.SentencePieceProcessor(model_file=str(path))
    assert other.encode(LINES[:10]) == ids_of(tokenizer, LINES[:10])


def test_a_damaged_model_is_refused_or_works(tokenizer):
    draw = random.Random(0)
    for _ in range(50):
        damaged = bytearray(tokenizer.model)
        damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        try:
            survivor = Tokenizer(bytes(damaged))
        except UserError:
            continue
        round_trip(survivor, ["O gato bebe leite."])


def test_one_of_two_tokenizers_of_a_file_goes(tmp_path):
    # TensorFlow shares the resource behind them.
    path = tmp_path / "tokenizer.model"
    Tokenizer.train(LINES, vocab_size=310).save(path)
    for _ in range(3):
        gone, stays = Tokenizer.load(path), Tokenizer.load(path)
        assert ids_of(gone, ["o gato"]) == ids_of(stays, ["o gato"])
        del gone
        gc.collect()
        assert round_trip(stays, ["o gato"]) == ["o gato"]


def test_what_cannot_be_loaded(tmp_path):
    path = tmp_path / "none.model"
    with pytest.raises(UserError, match="No such file"):
        Tokenizer.load(path)
    path.write_bytes(b"not a model")
    with pytest.raises(UserError, match="not a SentencePiece model"):
        Tokenizer.load(path)


# --- What the model reads and writes ---


def rows(ids):
    """Padded ids as lists without their padding."""
    return [[int(i) for i in row if i] for row in ids.numpy()]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.text(max_size=15), min_size=1, max_size=8))
def test_the_source_ends_and_the_target_is_shifted(tokenizer, texts):
    ids = ids_of(tokenizer, texts)
    source = encode_source(tokenizer, texts)
    target_in, target_out = encode_target(tokenizer, texts)
    assert rows(source) == rows(target_out) == [[*row, 3] for row in ids]
    assert rows(target_in) == [[2, *row] for row in ids]
    for side in (source, target_in, target_out):
        assert side.dtype == tf.int32
        assert side.shape == (len(texts), 1 + max(map(len, ids)))
        # Padding is to the right only.
        real = side.numpy() != 0
        assert (real == (np.cumsum(~real, axis=1) == 0)).all()


@pytest.mark.parametrize("longest", [0, 1, 5, 1000])
def test_longest_leaves_out_the_pieces_beyond(tokenizer, longest):
    text = ["o gato bebe leite a casa azul", "", "mar"]
    cut = [row[:longest] for row in ids_of(tokenizer, text)]
    target_in, target_out = encode_target(tokenizer, text, longest)
    assert rows(encode_source(tokenizer, text, longest)) == [[*r, 3] for r in cut]
    assert rows(target_out) == [[*row, 3] for row in cut]
    assert rows(target_in) == [[2, *row] for row in cut]


def test_nothing_has_only_its_end(tokenizer):
    assert encode_source(tokenizer, [""]).numpy().tolist() == [[3]]
    assert encode_source(tokenizer, tf.zeros([0], tf.string)).shape[0] == 0
