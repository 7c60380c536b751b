"""The phrasebook is whole, well-formed, and what its recipe makes."""

import gzip
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tfxformer.corpora import phrasebook

ROOT = Path(__file__).parents[2]
PAIRS = [pair for split in phrasebook.splits().values() for pair in split]


def test_pairs_are_many_and_no_portuguese_sentence_has_two_translations():
    assert len(PAIRS) == 43_737
    assert len({pair.source for pair in PAIRS}) == len(PAIRS)


@pytest.mark.parametrize("side", [0, 1], ids=["portuguese", "english"])
def test_sentences_are_well_formed(side):
    for text in (pair[side] for pair in PAIRS):
        assert text[0].isupper(), text
        assert text[-1] in ".!?", text
        assert "  " not in text and " ," not in text and " ." not in text, text
        assert text == text.strip(), text
        assert not re.search(r"[{}<>_|\\]|None|one's|\d", text), text
        assert not re.search(r"[.!?][.!?]", text), text


@pytest.mark.slow
def test_the_recipe_makes_the_same_phrasebook(tmp_path):
    made = tmp_path / "phrasebook.tsv.gz"
    make = ROOT / "recipes" / "phrasebook" / "make.py"
    subprocess.run([sys.executable, make, made], check=True)
    shipped = Path(phrasebook.__file__).parent / "data" / "phrasebook.tsv.gz"
    assert gzip.decompress(made.read_bytes()) == gzip.decompress(shipped.read_bytes())
