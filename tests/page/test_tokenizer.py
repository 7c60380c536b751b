"""tokenizer.js against SentencePiece in Python."""

import functools
import io
import random

import node
import pytest
import sentencepiece

from tfxformer import Tokenizer
from tfxformer.errors import UserError
from tfxformer.page import vocabulary
from tfxformer.repository import read_export, shipped_model

LINES = ["O gato bebe leite.", "A Casa é azul", "ação e coração"] * 50
SCRIPT = """
const { Tokenizer } = await import(page + "tokenizer.js");
const tokenizer = new Tokenizer(given.model);
const ids = given.texts.map((text) => tokenizer.encode(text));
print(JSON.stringify([ids, given.rows.map((row) => tokenizer.decode(row))]));
"""
FIXED = ["", " ", "▁", "  a  b ", "a▁ ▁b", " ▁▁", "\0", "a" * 300, "👩‍👩‍👧", "ﷺ", "İß"]
FIXED += ["\u0301", "e\u0301\u0323", "<0x41>", "<s>", "</s>", "<unk>", "<pad>", "ﬁ①Ⅳ"]
# White space, marks that are dropped, letters with accents apart and in any order,
# spaces of other widths, Hangul letters, emoji, private and unassigned characters.
MIXED = [
    " \t\n\r\0\x7f\x85\xa0\u1680\u2009\u2028\u3000▁",
    "\u200b\u200d\u2060\ufeff\xad",
]
MIXED += ["aeioucnAEIOUßﬁ½™①ǅé", "\u0301\u0302\u0307\u0323\u0327\u0308"]
RANGES = [(0, 0x250), (0x300, 0x370), (0, 0x3000), (0x1100, 0x1200), (0xAC00, 0xD7A4)]
RANGES += [(0x1E00, 0x2200), (0x3000, 0xD800), (0xE000, 0x10000), (0x10000, 0x110000)]
RANGES += [(0x1F300, 0x1FB00)]


def strings(count):
    """Words with strange characters between them, and strange characters alone."""
    rng = random.Random(0)

    def strange():
        characters = rng.choice([*MIXED, *RANGES])
        if isinstance(characters, str):
            return rng.choice(characters)
        return chr(rng.randrange(*characters))

    texts = FIXED[:]
    while len(texts) < count:
        text = [*" ".join(rng.sample(LINES, 2))] if rng.random() < 0.5 else []
        for _ in range(rng.randrange(1, 20)):
            text.insert(rng.randrange(len(text) + 1), strange())
        texts.append("".join(text))
    return texts


def by_sentencepiece(**options):
    """A vocabulary that `Tokenizer.train` would not make."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(LINES),
        model_writer=model,
        vocab_size=320,
        hard_vocab_limit=False,
        pad_id=0,
        unk_id=1,
        bos_id=2,
        eos_id=3,
        minloglevel=2,
        **options,
    )
    return Tokenizer(model.getvalue())


OTHERS = {
    "keep": node.tokenizer,
    "lower": functools.partial(node.tokenizer, casing="lower"),
    "unknown": functools.partial(
        by_sentencepiece, normalization_rule_name="nmt_nfkc", byte_fallback=False
    ),
    "no_rules": functools.partial(
        by_sentencepiece, normalization_rule_name="identity", byte_fallback=True
    ),
    "all_spaces": functools.partial(
        by_sentencepiece, remove_extra_whitespaces=False, byte_fallback=True
    ),
}


def assert_equal(tokenizer, count):
    texts, rng = strings(count), random.Random(1)
    ids = tokenizer.encode(texts)
    size = tokenizer.vocab_size
    rows = [
        rng.choices([*range(size), *range(260), -1, size], k=rng.randrange(12))
        for _ in range(count)
    ]
    rows += ids
    given = {"model": vocabulary(tokenizer), "texts": texts, "rows": rows}
    ((found, decoded),) = node.run(SCRIPT, given)
    for text, ours, theirs in zip(texts, ids, found, strict=True):
        assert theirs == ours, text
    for row, ours, theirs in zip(rows, tokenizer.decode(rows), decoded, strict=True):
        assert theirs == ours, row


@pytest.mark.parametrize("name", OTHERS)
def test_texts_are_cut_and_joined_as_in_python(name):
    assert_equal(OTHERS[name](), 1000)


@pytest.mark.slow
def test_the_shipped_vocabulary():
    assert_equal(read_export(shipped_model())[0], 20_000)


def test_lone_surrogates_are_spaces():
    given = {"model": vocabulary(node.tokenizer()), "texts": ["a\ud800b"], "rows": []}
    ((found, _),) = node.run(SCRIPT, given)
    assert found == node.tokenizer().encode(["a b"])


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"model_type": "bpe"}, "not a unigram model"),
        ({"user_defined_symbols": ["<x>"]}, "tokens of the user"),
        ({"treat_whitespace_as_suffix": True}, "spaces after words"),
    ],
)
def test_what_the_page_does_not_know_is_told(options, what):
    with pytest.raises(UserError, match=f"{what}.*, which the page does not know"):
        vocabulary(by_sentencepiece(**options))
