"""Extracts spoken English from transcripts: people who explain, tell and ask.

    python recipes/pt_en/spoken.py CLONE OUT

CLONE is a clone of `https://github.com/thechangelog/transcripts`: the episodes of some
ten podcasts by Changelog Media, CC BY-SA 4.0. The podcasts are about software. OUT gets
sentences in ordinary words, one a line. The teacher translates them into Portuguese.
"""

import io
import re
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path

COMMIT = "44a0e16c5919d332e05de481919fbfca90a2c90b"
SKIPPED = {"bigtent"}  # another owner's
FEWEST, MOST = 8, 32  # words in a sentence
KNOWN = 2  # the written pairs have each word at least so often

WRITTEN = Path(__file__).parent / "written"

_SPEAKER = re.compile(r"^\*\*[^*]+:\*\*\s*")
_LINK = re.compile(r"(?<!\\)\[([^\]\\]+)\]\([^)]*\)")
_ASIDE = re.compile(r"\\?\[[^\]]*\]|\([^)]*\)")
_BETWEEN = re.compile(r"(?<=[a-z][.?!])\s+(?=[A-Z])")
_WHOLE = re.compile(r"[A-Z][A-Za-z ,;:'-]*[.?!]")
# Speech that starts over, and sounds that fill a pause.
_FILLED = re.compile(
    r"\b(uh|um|hmm|yeah|gonna|wanna|gotta|kinda|sorta|cuz|okay|you know|I mean|like,|"
    r"right)\b|, like\b|\b(\w+),? \2\b|--|,? (and|but|so|or)[.?!]$",
    re.IGNORECASE,
)
_SOFTWARE = re.compile(
    r"\b(cod(e|ing|ers?)|servers?|software|developers?|apps?|web(site)?|browser|data|"
    r"database|api|users?|projects?|community|files?|open source|podcast|episode|show|"
    r"language|tech|team|bugs?|program\w*|function\w*|test\w*|component\w*|script|page|"
    r"version|models?|engineer\w*|compan\w*)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[A-Za-z]+")


def sentences(transcript):
    r"""Yields the whole sentences of a transcript that do not speak of software.

    Example:
        >>> text = r"**Ann:** Why do we \[laughs\] want what we don't need at all? Um."
        >>> list(sentences(text))
        ["Why do we want what we don't need at all?"]
    """
    for line in transcript.splitlines():
        text = _ASIDE.sub(" ", _LINK.sub(r"\1", _SPEAKER.sub("", line)))
        text = " ".join(text.replace("’", "'").split())
        for sentence in _BETWEEN.split(text):
            if (
                FEWEST <= len(sentence.split()) <= MOST
                and _WHOLE.fullmatch(sentence)
                and not _FILLED.search(sentence)
                and not _SOFTWARE.search(sentence)
            ):
                yield sentence


def main(clone, out):
    """Writes the sentences of all episodes."""
    ordinary = Counter()
    for file in WRITTEN.glob("*.tsv"):
        for line in file.read_text("utf-8").splitlines():
            ordinary.update(_WORD.findall(line.split("\t")[1].lower()))
    command = ["git", "-C", clone, "archive", COMMIT]
    archive = subprocess.run(command, check=True, capture_output=True).stdout
    found = {}  # each sentence once, in the order of the episodes
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for member in files:
            path = Path(member.name)
            if path.suffix != ".md" or path.parent.name in {"", *SKIPPED}:
                continue
            transcript = files.extractfile(member).read().decode()
            for sentence in sentences(transcript):
                words = _WORD.findall(sentence.lower())
                if all(ordinary[word] >= KNOWN for word in words):
                    found[sentence] = None
    out.write_text("".join(f"{sentence}\n" for sentence in found), "utf-8")
    print(f"{len(found):,} sentences")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
