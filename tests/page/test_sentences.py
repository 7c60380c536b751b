"""sentences.js against sentences.py."""

import random

import node

from tfxformer import sentences

SCRIPT = """
const { splitSentences, splitToFit } = await import(page + "sentences.js");
const length = (text) => [...text].length;
const cut = ([text, line]) => [splitSentences(text), splitToFit(line, length, 20)];
print(JSON.stringify(given.map(cut)));
"""
# What sentences are made of, and what makes them hard to cut.
PARTS = ["O Sr.", "Silva", "saiu.", "Porquê?", "!", "…", "...", "(a)", '"Vens?"', "e"]
PARTS += ["disse", "ela.", "— Sim.", "\n", "\u2028", "n.", "º", "3", "5.", "IV.", "J."]
PARTS += ["K.", "U.S.", "。", "你好！", "”", "“Não", "»", "1.", "Introdução", ",", ";"]
PARTS += ["\x85", "\x1f", "😀", "😀.", "ǅ.", "É", "?!", "'", "[x]", "p.ex.", "and"]


def test_texts_are_cut_as_in_python():
    rng = random.Random(0)
    texts = ["", " \n", "Olá! Bom dia.\r\nSim."]
    for _ in range(3000):
        parts = rng.choices(PARTS, k=rng.randrange(1, 25))
        texts.append("".join(part + rng.choice(["", " ", " "]) for part in parts))
    (found,) = node.run(SCRIPT, [[text, text.strip()] for text in texts])
    for text, (pieces, parts) in zip(texts, found, strict=True):
        assert pieces == sentences.split_sentences(text)
        if max(text, default="") < "\U00010000":  # Python counts other lengths
            assert parts == sentences.split_to_fit(text.strip(), len, 20)
        assert "".join(parts) == text.strip()


def test_a_character_is_never_cut():
    text = "a" + "😀" * 99
    (((_, parts),),) = node.run(SCRIPT, [[text, text]])
    assert {*"".join(part.strip("a😀") for part in parts)} == set() and len(parts) > 5
