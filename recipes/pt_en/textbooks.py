"""Extracts sentences from OpenStax's textbooks: modern English on science and society.

    python recipes/pt_en/textbooks.py CLONES OUT

CLONES holds a clone of `https://github.com/openstax/osbooks-NAME` for each name below.
The script reads each book at its last commit under CC BY 4.0, according to its licence
file and its collections. Many later commits are under CC BY-NC-SA 4.0. OUT gets one
sentence a line. The teacher translates these sentences into Portuguese.
"""

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

BOOKS = {
    "american-government": "d8ce50dc12",
    "anatomy-physiology": "b0058a743b",
    "astronomy": "63157f370b",
    "business-ethics": "d64573e280",
    "chemistry-bundle": "32c719622f",
    "college-physics-bundle": "f98d7a7921",
    "college-success": "695b838a0a",
    "entrepreneurship": "c1fa2c872b",
    "introduction-anthropology": "418eedd9be",
    "introduction-business": "f99a5bb2ee",
    "introduction-intellectual-property": "be76c2d982",
    "introduction-philosophy": "d7bd4f0f52",
    "introduction-political-science": "4391e659b9",
    "introduction-sociology": "d35d5f3bda",
    "microbiology": "ecf34dad12",
    "nursing-external-bundle": "7876f90a3d",
    "principles-economics-bundle": "cd31beb103",
    "principles-finance": "3b7fc65c52",
    "principles-marketing": "40369d8ce3",
    "psychology": "e061043bf2",
    "us-history": "046331cfce",
    "world-history": "3e17beda91",
    "writing-guide": "a6c9552839",
}
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
    part.write_text("".join(f"{sentence}\n" for sentence in found), "utf-8")
    part.replace(out)


def _git(folder, *arguments):
    command = ["git", "-C", folder, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
