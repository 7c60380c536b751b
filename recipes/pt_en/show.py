"""Writes anew what shows the shipped model: its card and the answers in the docs.

    python recipes/pt_en/show.py

First, `benchmarks/translation_quality.py` scores the new model, the one before it and
Firefox's (`--model NEW --model BEFORE --teacher PYTHON`, in this order). The card,
`export/pt_en/README.md`, has its tables between the comments ``<!-- shown: NAME -->``
and ``<!-- end -->``. The text around them is written by hand. `samples.tsv` has a
person's verdict on each of fifty answers. The script prints an answer without one, and
exits with 1. At the end, run `docs/pictures.py` and the notebooks that load the model.
"""

import json
import re
import sys
from pathlib import Path

from tfxformer.translator import Translator

RECIPE = Path(__file__).parent
ROOT = RECIPE.parents[1]
CARD = ROOT / "export" / "pt_en" / "README.md"
README = ROOT / "README.md"
TRANSLATE = ROOT / "docs" / "translate.md"
SCORES = ROOT / "benchmarks" / "translation_quality.json"
SAMPLES = RECIPE / "samples.tsv"

# The test sets that the first table names; the second one has all others.
SETS = {
    "everyday (300)": "300 everyday sentences",
    "own 200": "its own 200 sentences",
    "TED test": "TED talks, `ted/test`",
    "Tatoeba test": "Tatoeba, `pt_en/tatoeba.test`",
}
CHECKS = {
    "probes": "probes: the right word, and not the wrong one",
    "names": "sentences whose names are kept",
    "unchanged": "lines whose links, numbers, markup and the like are kept",
}
MODELS = ["this model", "before", "Firefox's"]

_PART = re.compile(r"(<!-- shown: ([\w ]+) -->\n).*?(<!-- end -->\n)", re.DOTALL)
_TRANSLATED = re.compile(r"(\$ tfxformer translate \"([^\"]+)\"\n).*")
_SCORED = re.compile(r"^-\d+\.\d{4}\t(.+)\t(.+)$", re.MULTILINE)
_SERVED = re.compile(r"(\$ curl -d '.*\[\"([^\"]+)\"\].*\n).*")


def table(header, rows):
    """Returns a Markdown table.

    Example:
        >>> print(table(["a", "b"], [["c", 1]]), end="")
        | a | b |
        |---|---|
        | c | 1 |
    """
    rows = [" | ".join(map(str, row)) for row in [header, *rows]]
    rows = [f"| {row} |\n" for row in rows]
    return "".join([rows[0], f"|{'---|' * len(header)}\n", *rows[1:]])


def tested(scores):
    """Returns the table of the test sets and checks."""
    rows = []
    for name, text in SETS.items():
        results = scores[name].values()
        rows.append([f"{text}, BLEU", *(result["bleu"] for result in results)])
        if name == "TED test":
            lower = (result["lower case"] for result in results)
            rows.append(["the same, compared in lower case, BLEU", *lower])
    rows += [[text, *scores[name].values()] for name, text in CHECKS.items()]
    return table(["", *MODELS], rows)


def kinds(scores, written):
    """Returns the table of the held-out kinds of text, or of the written parts."""
    rows = [
        [name.removeprefix("written: "), *(x["bleu"] for x in results.values())]
        for name, results in scores.items()
        if name not in {*SETS, *CHECKS} and name.startswith("written: ") == written
    ]
    return table(["BLEU", *MODELS], rows)


def everyday(translator):
    """Returns every 25th of the 300 everyday sentences with the model's answer."""
    rows = [row[:2] for row in _rows(RECIPE / "tests" / "everyday.tsv")[::25]]
    answers = translator([source for source, _ in rows], split_sentences=False)
    rows = [
        [source, answer, reference]
        for (source, reference), answer in zip(rows, answers, strict=True)
    ]
    return table(["Portuguese", "this model", "a person"], rows)


def fifty(translator):
    """Returns every fourth of the 200 sentences with the model's answer and a verdict.

    Raises:
        SystemExit: answers have no verdict.
    """
    verdicts = {tuple(row[:2]): row[2] for row in _rows(SAMPLES)}
    sources = [source for source, *_ in _rows(RECIPE / "sentences.tsv")[::4]]
    answers = translator(sources, split_sentences=False)
    rows = [*zip(sources, answers, strict=True)]
    if missing := [row for row in rows if row not in verdicts]:
        for row in missing:
            print(*row, "", sep="\t")
        sys.exit(f"{SAMPLES.name}: add these {len(missing)} lines with your verdict")
    rows = [[*row, verdicts[row]] for row in rows]
    return table(["Portuguese", "this model", "what is wrong"], rows)


def _rows(file):
    return [line.split("\t") for line in file.read_text("utf-8").splitlines()]


def main():
    """Runs the command line."""
    translator = Translator.load()
    scores = json.loads(SCORES.read_text("utf-8"))["scores"]
    parts = {
        "test sets": lambda: tested(scores),
        "kinds": lambda: kinds(scores, written=False),
        "written": lambda: kinds(scores, written=True),
        "everyday": lambda: everyday(translator),
        "fifty": lambda: fifty(translator),
    }
    card = _PART.sub(lambda x: x[1] + parts[x[2]]() + x[3], CARD.read_text("utf-8"))
    CARD.write_text(card, "utf-8")

    def served(match):
        answer = translator.answers("translate", {"text": [match[2]]})
        score, text = answer["score"][0], answer["translation"][0].decode()
        prediction = json.dumps({"score": float(str(score)), "translation": text})
        return f'{match[1]}{{"predictions": [{prediction}]}}'

    readme = README.read_text("utf-8")
    readme = _TRANSLATED.sub(lambda x: x[1] + translator(x[2]), readme)
    README.write_text(_SERVED.sub(served, readme), "utf-8")

    def scored(match):
        score = translator.score([match[1]], [match[2]])[0]
        return f"{score:.4f}\t{match[1]}\t{match[2]}"

    page = TRANSLATE.read_text("utf-8")
    TRANSLATE.write_text(_SCORED.sub(scored, page), "utf-8")


if __name__ == "__main__":
    main()
