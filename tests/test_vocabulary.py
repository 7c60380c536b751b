"""Text to ids without TensorFlow: as in the graph, and drawn as the seed says."""

import io
import itertools
import math
import os
import random
import subprocess
import sys
import threading
from collections import Counter

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tfxformer import Tokenizer
from tfxformer.errors import UserError
from tfxformer.vocabulary import Vocabulary

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
TEXT = "Ele foi à praia ontem com os seus amigos."


@pytest.fixture(scope="module")
def vocabulary():
    return Vocabulary.train(LINES, vocab_size=400)


@pytest.fixture(scope="module")
def lower():
    return Vocabulary.train(LINES, vocab_size=400, casing="lower")


@pytest.fixture(scope="module")
def tokenizer(vocabulary):
    return Tokenizer(vocabulary.model)


# --- The same as in the graph ---


def graph_ids(tokenizer, texts):
    return tokenizer.tokenize(tf.constant(texts, tf.string)).to_list()


ODD = "\x00\t\n\x1c\x7f\x85\xa0\u1680\u2028\u2029\u3000\u200b\u202e\ufeff\ufffd▁⁇猫🙂é"


@settings(deadline=None, max_examples=300)
@given(st.lists(st.text() | st.text("ab é" + ODD), min_size=1, max_size=8))
@example([*ODD])
@example(["", " ", "▁", "<s></s><pad><0x41>", "e\u0301 가\u11a8 ﬁ ½ Ａ"])
def test_ids_are_those_of_the_graph(vocabulary, tokenizer, texts):
    assert vocabulary.encode(texts) == graph_ids(tokenizer, texts)


def test_ids_of_every_character_are_those_of_the_graph(vocabulary, tokenizer):
    # Of those without a name of their own, every 29th.
    named = [code for code in range(0x3400) if not 0xD800 <= code < 0xE000]
    others = [c for c in range(0x3400, sys.maxunicode, 29) if not 0xD800 <= c < 0xE000]
    texts = [f"a{chr(code)}b" for code in named + others]
    assert vocabulary.encode(texts) == graph_ids(tokenizer, texts)


def test_lower_case_as_in_the_graph(lower):
    texts = ["O GATO Bebe", "Straße ΑΒΓ", "ÀÉÇ"]
    assert lower.encode(texts) == graph_ids(Tokenizer(lower.model), texts)
    assert lower.decode(lower.encode(texts))[0] == "o gato bebe"


def test_half_a_pair_of_utf_16_is_a_space(vocabulary):
    assert vocabulary.encode(["o \ud83dgato"]) == vocabulary.encode(["o gato"])


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_text_is_that_of_the_graph(vocabulary, tokenizer, data):
    piece = st.integers(0, vocabulary.vocab_size - 1)
    id = piece | st.integers(4, 259) | st.integers(-(2**31), 2**31 - 1)
    rows = data.draw(st.lists(st.lists(id, max_size=20), min_size=1, max_size=8))
    ragged = tf.ragged.constant(rows, dtype=tf.int32, ragged_rank=1)
    graph = [text.decode() for text in tokenizer.detokenize(ragged).numpy()]
    # Of what is no character, the two say how many there are in different words.
    together = [
        [text.replace("\ufffd", "") for text in texts]
        for texts in (graph, vocabulary.decode(rows))
    ]
    assert together[0] == together[1]


def test_nothing(vocabulary):
    assert vocabulary.encode([]) == vocabulary.decode([]) == []
    assert vocabulary.encode(["", " \t"]) == [[], []]
    assert vocabulary.decode([[], [0, 2, 3]]) == ["", ""]
    assert vocabulary.sample([], 0.1, 0) == []
    assert vocabulary.sample(["", ""], 0.1, 0) == [[], []]


def test_arrays_are_as_good_as_lists(vocabulary):
    ids = vocabulary.encode([TEXT])
    assert vocabulary.decode(np.array(ids)) == [TEXT]
    assert vocabulary.pieces(np.array(ids[0])) == vocabulary.pieces(ids[0])


def test_pieces_and_back(vocabulary):
    (ids,) = vocabulary.encode([TEXT])
    pieces = vocabulary.pieces(ids)
    assert "".join(pieces).replace("▁", " ").strip() == TEXT
    assert vocabulary.ids_of(pieces) == vocabulary.ids_of(ids) == tuple(ids)
    with pytest.raises(UserError, match="no piece 'casa'"):
        vocabulary.ids_of(["casa"])


# --- Sampling ---


def segmentations(vocabulary, word, alpha):
    """All ways to cut a word and their probabilities, by brute force."""
    score = vocabulary.processor.GetScore
    least = min(
        score(i)
        for i in range(vocabulary.vocab_size)
        if not (vocabulary.processor.IsByte(i) or vocabulary.processor.IsUnused(i))
        and i > 3
    )
    weights = {}
    for cuts in itertools.product([False, True], repeat=len(word) - 1):
        bounds = [0, *(i for i, cut in enumerate(cuts, 1) if cut), len(word)]
        ids, weight = [], 0.0
        for part in itertools.starmap(slice, itertools.pairwise(bounds)):
            id = vocabulary.processor.PieceToId(word[part])
            if id != 1 and not vocabulary.processor.IsUnused(id):
                ids.append(id)
                weight += score(id)
            elif len(word[part]) == 1:  # spelt in bytes
                ids += [4 + byte for byte in word[part].encode()]
                weight += least - 10
            else:
                break
        else:
            weights[tuple(ids)] = math.exp(alpha * weight)
    total = sum(weights.values())
    return {ids: weight / total for ids, weight in weights.items()}


def check_draws(vocabulary, word, alpha):
    expected = segmentations(vocabulary, "▁" + word, alpha)
    count = 20_000
    drawn = Counter(map(tuple, vocabulary.sample([word] * count, alpha, 1)))
    assert drawn.keys() <= expected.keys()
    for ids, chance in expected.items():
        error = math.sqrt(count * chance * (1 - chance))
        assert abs(drawn[ids] - count * chance) <= 5 * error + 2


@pytest.mark.parametrize("alpha", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("word", ["praia", "well.", "a", "blue猫", "aéa"])
def test_draws_follow_their_probabilities(vocabulary, word, alpha):
    check_draws(vocabulary, word, alpha)


def test_a_character_in_bytes_or_within_a_piece():
    # SentencePiece always gives a character that it has pieces with one of its own.
    # Take it away, as a vocabulary of another origin may have it.
    whole = Vocabulary.train(["já há", "há já"] * 50, 275)
    pieces = whole.pieces(range(whole.vocab_size))
    assert "á" in pieces and {"já", "▁já", "há", "▁há"} & {*pieces}
    # Its message in the file: the piece and a score; what is added says "unused".
    piece = b"\x0a\x02" + "á".encode() + b"\x15"
    before, after = whole.model.split(b"\x0a\x09" + piece)
    score, after = after[:4], after[4:]
    vocabulary = Vocabulary(before + b"\x0a\x0b" + piece + score + b"\x18\x05" + after)
    for word in ("já", "há"):
        for alpha in (0.02, 0.1):
            check_draws(vocabulary, word, alpha)
    drawn = {tuple(row) for row in vocabulary.sample(["já"] * 5000, 0.02, 1)}
    in_bytes = {row for row in drawn if {*"á".encode()} <= {i - 4 for i in row}}
    assert in_bytes and drawn - in_bytes


def test_words_are_drawn_independently(vocabulary):
    # The same word twice in a text: a pair of draws is as likely as it must be.
    expected = segmentations(vocabulary, "▁praia", 0.3)
    count = 20_000
    rows = vocabulary.sample(["praia praia"] * count, 0.3, 2)
    pairs = Counter()
    for row in rows:
        begins = [i for i, p in enumerate(vocabulary.pieces(row)) if p[0] == "▁"]
        pairs[tuple(row[: begins[1]]), tuple(row[begins[1] :])] += 1
    likely = sorted(expected, key=expected.get)[-5:]
    for first, second in itertools.product(likely, repeat=2):
        chance = expected[first] * expected[second]
        error = math.sqrt(count * chance * (1 - chance))
        assert abs(pairs[first, second] - count * chance) < 5 * error + 2


def test_draws_are_spread_as_those_of_sentencepiece(vocabulary):
    # Its own sampler cannot be seeded, but what it draws from must be the same.
    draw = {"enable_sampling": True, "alpha": 0.2, "nbest_size": -1}
    theirs = [len(vocabulary.processor.encode(TEXT, **draw)) for _ in range(4000)]
    ours = [len(ids) for ids in vocabulary.sample([TEXT] * 4000, 0.2, 0)]
    error = math.sqrt((np.var(theirs) + np.var(ours)) / 4000)
    assert abs(np.mean(theirs) - np.mean(ours)) < 5 * error
    assert 0.9 < np.std(ours) / np.std(theirs) < 1.1


@settings(deadline=None, max_examples=100)
@given(st.lists(st.text() | st.text("ab é" + ODD), max_size=8), st.integers(0, 2**40))
def test_any_text_survives_sampling(vocabulary, texts, seed):
    drawn = vocabulary.sample(texts, 0.1, seed)
    assert vocabulary.decode(drawn) == vocabulary.decode(vocabulary.encode(texts))
    assert all(3 < id < vocabulary.vocab_size for row in drawn for id in row)
    assert drawn == vocabulary.sample(texts, 0.1, seed)


def test_a_great_alpha_gives_the_best_and_small_ones_spread(vocabulary):
    assert vocabulary.sample(LINES, 200.0, 0) == vocabulary.encode(LINES)
    kinds = [
        len({*map(tuple, vocabulary.sample([TEXT] * 200, alpha, 0))})
        for alpha in (1.0, 0.1)
    ]
    assert 1 < kinds[0] < kinds[1]


def test_each_seed_has_its_draws(vocabulary):
    texts = [TEXT] * 5
    seeds = [0, 1, (0, 1), (1, 0), 2**32 - 1, 2**64]
    draws = [str(vocabulary.sample(texts, 0.1, seed)) for seed in seeds]
    assert len({*draws}) == len(seeds)


def test_draws_do_not_depend_on_what_ran_before_or_beside(vocabulary):
    texts = LINES[:30]
    expected = vocabulary.sample(texts, 0.1, 7)
    fresh = Vocabulary(vocabulary.model)
    assert fresh.sample(texts, 0.1, 7) == expected
    np.random.seed(1)
    vocabulary.processor.encode(texts, enable_sampling=True, alpha=0.1, nbest_size=-1)
    vocabulary.sample([TEXT], 0.5, 8)
    results = []

    def draw(seed):
        for _ in range(5):
            results.append((seed, vocabulary.sample(texts, 0.1, seed)))

    threads = [threading.Thread(target=draw, args=(seed,)) for seed in (7, 8, 7, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 20
    assert all((ids == expected) == (seed == 7) for seed, ids in results)


def test_draws_are_the_same_in_another_process(vocabulary, tmp_path):
    # SentencePiece's own draws are not, whatever its seed.
    vocabulary.save(tmp_path / "tokenizer.model")
    code = (
        "import sys; from tfxformer.vocabulary import Vocabulary\n"
        "print(Vocabulary.load(sys.argv[1]).sample([sys.argv[2]] * 9, 0.1, (3, 4)))\n"
        "assert 'tensorflow' not in sys.modules"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code, tmp_path / "tokenizer.model", TEXT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    ]
    expected = str(vocabulary.sample([TEXT] * 9, 0.1, (3, 4)))
    assert outputs == [expected, expected]


def test_resample_takes_ids_as_they_lie(vocabulary):
    texts = [*LINES[:5], "", "猫 o", ""]
    best = vocabulary.encode(texts)
    flat = np.array([id for row in best for id in row], np.int32)
    ids, lengths = vocabulary.resample(flat, [len(row) for row in best], 0.1, 5)
    assert ids.dtype == np.int32 and lengths.dtype == np.int64
    rows = [row.tolist() for row in np.split(ids, np.cumsum(lengths)[:-1])]
    assert rows == vocabulary.sample(texts, 0.1, 5)


def test_sampling_needs_bytes():
    model = train_bare(byte_fallback=False, pad_id=0, unk_id=1, bos_id=2, eos_id=3)
    with pytest.raises(UserError, match="in bytes"):
        Vocabulary(model).sample([TEXT], 0.1, 0)


# --- Files ---


def test_save_and_load(vocabulary, tmp_path):
    path = tmp_path / "tokenizer.model"
    vocabulary.save(path)
    vocabulary.save(str(path))  # once more, over it
    loaded = Vocabulary.load(path)
    assert loaded.model == vocabulary.model and loaded.digest == vocabulary.digest
    assert loaded.vocab_size == vocabulary.vocab_size
    assert [file.name for file in tmp_path.iterdir()] == ["tokenizer.model"]
    # The file is an ordinary SentencePiece model.
    other = sentencepiece.SentencePieceProcessor(model_file=str(path))
    assert other.encode(LINES[:10]) == vocabulary.encode(LINES[:10])


def test_saving_where_nothing_can_be_saved(vocabulary, tmp_path):
    with pytest.raises(UserError, match=r"none/tokenizer\.model: No such file"):
        vocabulary.save(tmp_path / "none" / "tokenizer.model")


def test_other_models_have_other_digests(vocabulary, lower):
    assert vocabulary.digest != lower.digest and len(lower.digest) == 64


def load_error(path):
    with pytest.raises(UserError) as caught:
        Vocabulary.load(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ") and "\n" not in message
    return message


@pytest.mark.parametrize(
    "content", [b"", b"not a model", bytes(1000), random.Random(0).randbytes(5000)]
)
def test_a_file_that_is_no_model(tmp_path, content):
    path = tmp_path / "wrong.model"
    path.write_bytes(content)
    assert "not a SentencePiece model" in load_error(path)


def test_half_a_model(vocabulary, tmp_path):
    path = tmp_path / "half.model"
    path.write_bytes(vocabulary.model[: len(vocabulary.model) // 2])
    assert "not a SentencePiece model" in load_error(path)


def test_a_model_whose_piece_for_a_byte_is_not_utf_8(vocabulary):
    assert vocabulary.model.count(b"<0x41>") == 1
    with pytest.raises(UserError, match="not a SentencePiece model"):
        Vocabulary(vocabulary.model.replace(b"<0x41>", b"<0x\xff1>"))


def test_no_file_and_a_folder(tmp_path):
    assert "No such file" in load_error(tmp_path / "none.model")
    assert "directory" in load_error(tmp_path)


def train_bare(**options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(LINES),
        model_writer=model,
        vocab_size=90,
        minloglevel=2,
        **options,
    )
    return model.getvalue()


def test_a_model_with_other_special_ids(tmp_path):
    path = tmp_path / "other.model"
    path.write_bytes(train_bare())
    message = load_error(path)
    assert "(-1, 0, 1, 2)" in message and "0, 1, 2 and 3" in message


# --- Training ---


def train_error(*arguments, **options):
    with pytest.raises(UserError) as caught:
        Vocabulary.train(*arguments, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("lines", [[], [""], ["  ", "\t\n", "\u3000"]])
def test_no_text_to_learn_from(lines):
    assert "there is no text" in train_error(lines, 400)


@pytest.mark.parametrize("vocab_size", [-1, 0, 1, 260, 270])
def test_a_vocabulary_that_is_too_small(vocab_size):
    message = train_error(LINES, vocab_size)
    assert f"no vocabulary of {vocab_size} pieces" in message
    assert "200 lines" in message


def test_lines_that_are_too_long_to_learn_from():
    assert "no vocabulary" in train_error(["x" * 200_000], 400)


def test_a_small_corpus_gives_fewer_pieces():
    vocabulary = Vocabulary.train(["um gato"], vocab_size=10_000)
    assert 260 < vocabulary.vocab_size < 300
    assert vocabulary.decode(vocabulary.encode(["o cão é 猫"])) == ["o cão é 猫"]


def test_lines_may_be_any_iterable_and_odd():
    odd = ["\x00", "a\nb", "\ufeff", "", "x" * 2000, "é" * 10, "um gato"]
    vocabulary = Vocabulary.train((line for line in odd * 5), vocab_size=400)
    assert vocabulary.decode(vocabulary.encode(["um gato"])) == ["um gato"]


def test_the_same_lines_give_the_same_bytes(vocabulary):
    assert Vocabulary.train(LINES, vocab_size=400).model == vocabulary.model


def test_the_vocabulary_does_not_depend_on_the_number_of_cores(monkeypatch):
    lines = list(dict.fromkeys(f"{a} {b}" for a in LINES[:10] for b in LINES[:10]))
    vocabularies = []
    for cores in (1, 2, 7):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        processor = Vocabulary.train(lines, vocab_size=400).processor
        vocabularies.append(
            [
                (processor.IdToPiece(i), processor.GetScore(i))
                for i in range(len(processor))
            ]
        )
    assert vocabularies[0] == vocabularies[1] == vocabularies[2]
