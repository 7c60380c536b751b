"""Extracts sentences from OpenStax's textbooks: modern English on science and society.

    python recipes/pt_en/textbooks.py CLONES OUT

CLONES holds a clone of `https://github.com/openstax/osbooks-NAME` for each name below.
The script reads each book at its last commit under CC BY 4.0, according to its licence
file and its collections. Many later commits are under CC BY-NC-SA 4.0. OUT gets every
third sentence, one a line. The teacher translates them into Portuguese.
"""

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

BOOKS = {
    "anatomy-physiology": "b0058a743b",
    "nursing-external-bundle": "7876f90a3d",
    "psychology": "e061043bf2",
    "world-history": "3e17beda91",
    "introduction-sociology": "d35d5f3bda",
    "us-history": "046331cfce",
}
EVERY = 3  # neighbours share their subject: one sentence of three is enough
FEWEST, MOST = 4, 35  # words in a sentence

_CNXML = "{http://cnx.rice.edu/cnxml}"
# Elements without words of a sentence. A formula becomes {}, which _WHOLE rejects.
_SKIPPED = {"figure", "footnote", "list", "media", "note", "table"}
_ASIDE = re.compile(r"\s*[(\[][^()\[\]]*[)\]]")
_BETWEEN = re.compile(
    r"(?<=[a-z0-9%][.?!])\s+(?=[“\"A-Z])|(?<=[.?!][”\"])\s+(?=[“\"A-Z])"
)
_WHOLE = re.compile(r"[“\"]?[A-Z][^<>{}=|\\_*^#~&]*[.?!][”\"]?")
# Signs of a bibliography's entry.
_CITED = re.compile(r"\b[A-Z]\.,|\.\.|\bet al\b|https?:|^[A-Z]\w+, [A-Z]\w+, and ")


def sentences(cnxml):
    """Yields the sentences of a module's paragraphs, without text in brackets.

    Args:
        cnxml: the contents of the module's file.

    Example:
        >>> text = "<para>Why do we sleep? It <term>rests</term> us all (Lee).</para>"
        >>> list(sentences(f"<document xmlns='{_CNXML[1:-1]}'>{text}</document>"))
        ['Why do we sleep?', 'It rests us all.']
    """
    for para in ElementTree.fromstring(cnxml).iter(f"{_CNXML}para"):
        text = " ".join(_ASIDE.sub("", "".join(_words(para))).split())
        for sentence in _BETWEEN.split(text):
            if not FEWEST <= len(sentence.split()) <= MOST:
                continue
            if _WHOLE.fullmatch(sentence) and not _CITED.search(sentence):
                yield sentence


def _words(element):
    """Yields the text of an element and of its children."""
    yield element.text or ""
    for child in element:
        name = child.tag.rpartition("}")[2]
        if name == "math" or (name == "link" and not child.text):
            yield "{}"
        elif name not in _SKIPPED:
            yield from _words(child)
        yield child.tail or ""


def main(clones, out):
    """Writes the sentences of all books, each once."""
    found = {}
    for name, commit in BOOKS.items():
        folder = clones / f"osbooks-{name}"
        files = _git(folder, "ls-tree", "-r", "--name-only", commit, "modules").split()
        for file in files:
            if file.endswith(".cnxml"):
                cnxml = _git(folder, "show", f"{commit}:{file}")
                found |= dict.fromkeys(sentences(cnxml))
        print(f"{name}: {len(found):,} sentences so far")
    part = out.with_suffix(".part")  # the final name appears when it is complete
    chosen = [*found][::EVERY]
    part.write_text("".join(f"{sentence}\n" for sentence in chosen), "utf-8")
    part.replace(out)


def _git(folder, *arguments):
    command = ["git", "-C", folder, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
