"""Scores equal those of sacreBLEU's own command."""

import json
import subprocess
import sys

import pytest

from tfxformer.corpora import Pair
from tfxformer.evaluation import compare, evaluate

REFERENCES = [
    "The cat drinks milk in the kitchen.",
    "He went to the beach yesterday with his friends.",
    "There is no bread, and there are no apples!",
    "Quem és tu?",
    'It cost $3.50 — too much, said "Ana" & I agree.',
]
TRANSLATIONS = [
    "the cat drinks the milk in the kitchen .",
    "Yesterday he went to the beach with his friends.",
    "There is no bread and no apples!",
    "",
    "It cost $3.50, too much said Ana and I agree.",
]


@pytest.mark.parametrize("lowercase", [False, True])
def test_bleu_and_chrf_equal_those_of_the_sacrebleu_command(tmp_path, lowercase):
    for name, lines in (("hypotheses", TRANSLATIONS), ("references", REFERENCES)):
        (tmp_path / name).write_text("".join(f"{x}\n" for x in lines), "utf-8")
    command = [sys.executable, "-m", "sacrebleu", "references", "-i", "hypotheses"]
    command += ["-m", "bleu", "chrf", "--format", "json", "-w", "9"]
    command += ["-lc", "--chrf-lowercase"] if lowercase else []
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    expected = {metric["name"]: metric for metric in json.loads(done.stdout)}
    scores = compare(TRANSLATIONS, REFERENCES, lowercase=lowercase)
    assert scores.bleu == pytest.approx(expected["BLEU"]["score"], abs=1e-6)
    assert scores.chrf == pytest.approx(expected["chrF2"]["score"], abs=1e-6)
    signatures = expected["BLEU"]["signature"], expected["chrF2"]["signature"]
    assert scores.signatures == signatures
    assert ("case:lc" if lowercase else "case:mixed") in signatures[0]
    bleu, chrf = scores.describe().splitlines()
    assert bleu == f"BLEU {scores.bleu:.2f}  ({signatures[0]})"
    assert chrf == f"chrF {scores.chrf:.2f}  ({signatures[1]})"


def test_evaluate_translates_sources_and_compares_with_targets_in_order():
    def translator(texts, tokens_per_batch, split_sentences):
        # A line is one sentence, also with several full stops.
        assert (tokens_per_batch, split_sentences) == (2, False)
        return [text.replace("o gato", "the cat drinks some milk") for text in texts]

    pairs = [Pair(f"o gato {i}", f"The cat drinks some milk {i}") for i in (3, 1, 2)]
    scores = evaluate(translator, pairs, lowercase=True, tokens_per_batch=2)
    assert scores.bleu == pytest.approx(100)
    assert scores.translations[0] == "the cat drinks some milk 3"
    assert evaluate(translator, pairs, tokens_per_batch=2).bleu < 100
