"""TED talks, Portuguese to English, through TensorFlow Datasets.

`ted_hrlr_translate/pt_to_en` (Qi et al., 2018, https://arxiv.org/abs/1804.06323) is
what the TensorFlow tutorial trains on. Its text is lower-cased and cut into tokens
in the Penn Treebank's way; `join` puts the words back together, so that a model
learns, and is measured on, text as people write it.
"""

import contextlib
import html
import os
import re
import sys
from pathlib import Path

from tfxformer.corpora.pair import Pair
from tfxformer.errors import UserError

NAME = "ted_hrlr_translate/pt_to_en"
SPLITS = ("train", "validation", "test")

_URL = "http://www.phontron.com/data/qi18naacl-dataset.tar.gz"
_PIP = "pip install 'tfxformer[ted]'"


def load(split: str, data_dir: str | os.PathLike | None = None) -> list[Pair]:
    """Give the pairs of one split, joined back into plain lower-cased text.

    A prepared copy is read where there is one, without a network. Otherwise
    TensorFlow Datasets downloads the data (131 MB) and prepares it.

    Args:
        split: `train` (51,785 pairs), `validation` (1,193) or `test` (1,803).
        data_dir: The folder that holds, or is to hold, `ted_hrlr_translate/`. By
            default `$TFDS_DATA_DIR` or `~/tensorflow_datasets`.

    Returns:
        The pairs, always in the same order.

    Raises:
        UserError: There is no such split, TensorFlow Datasets is not installed, or
            the data is not there and cannot be had.

    Example:
        >>> load("everything")
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: ted: no split 'everything'; choose one of train, ...
    """
    if split not in SPLITS:
        raise UserError(f"ted: no split {split!r}; choose one of {', '.join(SPLITS)}")
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise UserError(
            f"ted: needs TensorFlow Datasets ({_line(error)}); {_PIP}"
        ) from error
    where = None if data_dir is None else Path(data_dir).expanduser()
    try:
        builder = tfds.builder(NAME, data_dir=where)
    except Exception as error:
        raise UserError(
            f"ted: the copy under {where or 'the default folder'} cannot be used "
            f"({_line(error)}); give another --data-dir"
        ) from error
    if not builder.info.splits:
        _download(tfds, builder)
    if split not in builder.info.splits:
        raise UserError(
            f"ted: the copy at {builder.data_path} has no split {split!r}, only "
            f"{', '.join(builder.info.splits)}; with a network, give another "
            "--data-dir to download the whole into"
        )
    return _read(tfds, builder, split)


def _read(tfds, builder, split: str) -> list[Pair]:
    pairs = []
    try:
        batches = builder.as_dataset(split=split, shuffle_files=False).batch(1024)
        for batch in tfds.as_numpy(batches):
            for source, target in zip(batch["pt"], batch["en"], strict=True):
                pairs.append(Pair(join(source.decode()), join(target.decode())))
    except Exception as error:  # What TensorFlow raises here has no common class.
        raise UserError(
            f"ted: the copy at {builder.data_path} is damaged ({_line(error)}); "
            "remove that folder and let it be prepared again"
        ) from error
    if len(pairs) != builder.info.splits[split].num_examples:
        raise UserError(
            f"ted: the copy at {builder.data_path} has {len(pairs):,} pairs in "
            f"{split!r}, not {builder.info.splits[split].num_examples:,}; remove that "
            "folder and let it be prepared again"
        )
    return pairs


def _download(tfds, builder):
    """Downloads and prepares the data, or says what could not be had."""
    import requests  # TensorFlow Datasets brings it.

    try:
        # TensorFlow Datasets tries for minutes before it gives up: a look first.
        with requests.get(_URL, timeout=20, stream=True) as answer:
            answer.raise_for_status()
        # Standard output is for answers alone.
        with contextlib.redirect_stdout(sys.stderr):
            builder.download_and_prepare()
    except ModuleNotFoundError as error:
        # Some versions of TensorFlow Datasets do not declare all they import.
        raise UserError(
            "ted: TensorFlow Datasets lacks a module that it downloads with; "
            f"pip install {error.name}"
        ) from error
    except Exception as error:
        offline = isinstance(error, requests.ConnectionError | requests.Timeout)
        reason = "no connection" if offline else _line(error)
        folder = NAME.split("/")[0]
        raise UserError(
            f"ted: no prepared copy at {builder.data_path}, and it could not be had "
            f"from {_URL} ({reason}); try again with a network, or copy a prepared "
            f"{folder}/ from elsewhere and give the folder it is in as --data-dir"
        ) from error


def _line(error: BaseException) -> str:
    """The error on one short line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:199] + "…"


# Marks that stand against the word before them, and against the word after.
_LEFT = set(".,;:!?)]}»")
_RIGHT = set("([{«¿¡")
_CLITIC = re.compile(r"n['’]t|['’](s|m|re|ve|ll|d|t)")
# Words that the Penn Treebank's way cuts in two, besides the clitics.
_HALVES = {
    ("can", "not"),
    ("gim", "me"),
    ("gon", "na"),
    ("got", "ta"),
    ("lem", "me"),
    ("wan", "na"),
}
# An escaped mark, which may have been cut itself, as in "she & apos ; s".
_ENTITY = re.compile(r"& ?(#\d+|amp|apos|quot|lt|gt) ?;")
_CUT_APOSTROPHE = re.compile(r"& ?(?:apos|#39) ?; ?(?=(?:s|m|re|ve|ll|d|t)\b)")
# Only while joining do quotation marks that open and close differ.
_OPEN, _CLOSE = "“", "”"
_STRAIGHT = str.maketrans("“”‘’", "\"\"''")


def join(text: str) -> str:
    """Join tokenised text back into text as it is written.

    No word or mark is lost, with one exception: the pair of quotation marks that
    the data's makers put round each whole line that has quotation marks inside.

    Args:
        text: Tokens with spaces between them.

    Returns:
        The text, with straight quotation marks and apostrophes.

    Example:
        >>> join("she 's sure it does n't matter ( much ) .")
        "she's sure it doesn't matter (much)."
        >>> join("`` he said , `` '' fine ! '' '' and left . ''")
        'he said, "fine!" and left.'
    """
    if "&" in text:
        text = _CUT_APOSTROPHE.sub("'", text)
        text = _ENTITY.sub(lambda match: html.unescape(f"&{match[1]};"), text)
    tokens = _arrange_quotes(text.split())
    parts, glue = [], True
    for i, token in enumerate(tokens):
        before = tokens[i - 1] if i else ""
        after = tokens[i + 1] if i + 1 < len(tokens) else ""
        if not (glue or _joins_left(token, before)):
            parts.append(" ")
        parts.append(token)
        glue = _joins_right(token, before, after)
    return "".join(parts).translate(_STRAIGHT)


def _joins_left(token: str, before: str) -> bool:
    """Whether a token stands against the one before it."""
    if token in ("...", "…"):
        # Trailing off. After a colon, say, it leads in: "voice: ...again".
        return _ends_word(before) and not before.endswith((".", "…"))
    if token in _LEFT or token in (_CLOSE, "'", "’"):
        return True
    if _CLITIC.fullmatch(token):
        return _ends_word(before)
    if token in ("%", "°", "º", "ª"):
        return before[-1:].isdigit()
    if token[:1] in ("'", "’") and token[1:2].isalpha():
        # "l 'oeuvre", "d 'água"; but "o 'balde'" is an article and a quotation.
        return before in ("d", "l") or (before, token[1:]) == ("o", "clock")
    return (before, token) in _HALVES


def _joins_right(token: str, before: str, after: str) -> bool:
    """Whether a token stands against the one after it."""
    if token in _RIGHT or token in (_OPEN, "‘"):
        return True
    if token in ("...", "…"):
        return not _joins_left(token, before)
    if token in ("'", "’"):  # At the start there is nothing to close.
        return not before or before in _RIGHT or before == _OPEN
    if token.endswith(("$", "£", "€", "#")):
        return after[:1].isdigit()
    return False


def _ends_word(token: str) -> bool:
    return token[-1:].isalnum() or token.endswith((_CLOSE, *"'’.!?)]…"))


def _arrange_quotes(tokens: list[str]) -> list[str]:
    """Turns runs of quote tokens into single marks that open or close.

    The text went through a CSV file before it was tokenised. So a line with
    quotation marks is wrapped in a pair of them, and those inside are doubled,
    which came out as two tokens: "`` ''" where one opens, "'' ''" where it closes.
    Typographic marks were not doubled: "``" and "''".
    """
    marks = ("``", "''", '"')
    if not any(mark in tokens for mark in marks):
        return tokens
    inside = tokens[1:-1]
    if tokens[0] == "``" and tokens[-1] == "''" and ("``" in inside or "''" in inside):
        tokens = inside
    arranged, is_open, i = [], False, 0
    while i < len(tokens):
        token, following = tokens[i], tokens[i + 1 : i + 2]
        if token not in marks:
            arranged.append(token)
            i += 1
            continue
        doubled = (token == "``" and following in (["``"], ["''"])) or (
            token == "''" and following == ["''"]
        )
        i += 2 if doubled else 1
        after = tokens[i] if i < len(tokens) else ""
        opens = not is_open if token == '"' else token == "``"
        # The tokeniser took for opening some marks that can only close.
        if not after or after in _LEFT or (is_open and after == "("):
            opens = False
        arranged.append(_OPEN if opens else _CLOSE)
        is_open = opens
    return arranged
