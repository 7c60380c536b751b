"""TED talks, Portuguese to English, through TensorFlow Datasets.

The TensorFlow tutorial trains on `ted_hrlr_translate/pt_to_en` (Qi et al., 2018,
https://arxiv.org/abs/1804.06323). Its text is lower-cased and split into Penn Treebank
tokens; `join` turns them back into ordinary text.
"""

import contextlib
import html
import os
import re
import sys

from tfxformer.corpora.pairs import Pair
from tfxformer.errors import UserError

_NAME = "ted_hrlr_translate/pt_to_en"
_URL = "http://www.phontron.com/data/qi18naacl-dataset.tar.gz"


def load(split, data_dir=None):
    """Give the pairs of one split as ordinary lower-cased text.

    Without a prepared copy, TensorFlow Datasets downloads the data (131 MB).

    Args:
        split: `train` (51,785 pairs), `validation` (1,193) or `test` (1,803).
        data_dir: The folder of TensorFlow Datasets; by default its usual one.

    Returns:
        A list of `Pair`s, always in the same order.

    Raises:
        UserError: The data cannot be read or downloaded.
    """
    try:
        import requests
        import tensorflow_datasets as tfds

        where = data_dir and os.path.expanduser(data_dir)
        builder = tfds.builder(_NAME, data_dir=where)
        if not builder.info.splits:
            # Without a network, TensorFlow Datasets would retry for minutes.
            requests.get(_URL, timeout=20, stream=True).raise_for_status()
            with contextlib.redirect_stdout(sys.stderr):  # keep stdout for answers
                builder.download_and_prepare()
        batches = builder.as_dataset(split=split, shuffle_files=False).batch(1024)
        return [
            Pair(join(source.decode()), join(target.decode()))
            for batch in tfds.as_numpy(batches)
            for source, target in zip(batch["pt"], batch["en"], strict=True)
        ]
    except Exception as error:  # TensorFlow's errors here have no common class
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise UserError(
            f"ted: {split} of {_NAME} cannot be read or downloaded ({reason}); check "
            "the network, or use a prepared copy with --data-dir"
        ) from error


# Marks without a space before them.
_LEFT = set(".,;:!?)]}»")
# Opening and closing quotation marks differ only while joining.
_OPEN, _CLOSE = "“", "”"
_STRAIGHT = str.maketrans("“”‘’", "\"\"''")
# An escaped mark, which may itself be split into tokens, as in "she & apos ; s".
_ENTITY = re.compile(r"& ?(#\d+|amp|apos|quot|lt|gt) ?;")
_CUT_APOSTROPHE = re.compile(r"& ?(?:apos|#39) ?; ?(?=(?:s|m|re|ve|ll|d|t)\b)")
# The last character of a word, which a clitic or dots may follow.
_WORD = r"""[^\W_]|[”"'’!?)\]]"""
# Spaces that ordinary text does not have. A token begins at <B> and ends at <E>.
_GAPS = [
    r" (?=[.,;:!?)\]}»”'’]<E>)",  # before closing marks
    r"(?<=<B>[(\[{«¿¡“‘]) ",  # after opening marks
    r"(?<=^['’]) |(?<=<B>[(\[{«¿¡“] ['’]) ",  # here a quote can only open
    r"(?<=<W>|[.…]) (?=(?:n['’]t|['’](?:s|m|re|ve|ll|d|t))<E>)",
    # "l 'oeuvre", "d 'água"; but "o 'balde'" is an article and a quotation.
    r"(?<=<B>[dl]) (?=['’][^\W\d_])|(?<=<B>o) (?=['’]clock<E>)",
    r"(?<=<B>can) (?=not<E>)|(?<=<B>(?:gim|lem)) (?=me<E>)",
    r"(?<=<B>(?:gon|wan)) (?=na<E>)|(?<=<B>got) (?=ta<E>)",
    r"(?<=\d) (?=[%°ºª]<E>)|(?<=[$£€#]) (?=\d)",
    # Dots end a phrase. After a mark such as a colon they begin one: "voice: ...again".
    r"(?<=<W>) (?=(?:\.\.\.|…)<E>)",
    r"(?<=^\.\.\.) |(?<=^…) |(?<=(?<!<W>) \.\.\.) |(?<=(?<!<W>) …) ",
]
_GAP = "|".join(_GAPS).replace("<B>", "(?<![^ ])").replace("<E>", "(?![^ ])")
_GAP = re.compile(_GAP.replace("<W>", _WORD))


def join(text):
    """Join tokens back into ordinary text.

    No word or mark is lost, with one exception: the data set wraps each line that
    contains quotation marks in another pair, and that pair is dropped.

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
    text = _CUT_APOSTROPHE.sub("'", text)
    text = _ENTITY.sub(lambda match: html.unescape(f"&{match[1]};"), text)
    text = " ".join(_arrange_quotes(text.split()))
    return _GAP.sub("", text).translate(_STRAIGHT)


def _arrange_quotes(tokens):
    """Turns runs of quote tokens into single marks that open or close.

    The text was in a CSV file before it was tokenised. So a pair of quotation marks
    wraps a line that contains some, and the inner marks are doubled: "`` ''" opens,
    "'' ''" closes. Typographic marks are single: "``" and "''".
    """
    inside = tokens[1:-1]
    if tokens[:1] == ["``"] and tokens[-1] == "''" and {"``", "''"} & {*inside}:
        tokens = inside
    arranged, is_open = [], False
    i = 0
    while i < len(tokens):
        token, following = tokens[i], tokens[i + 1 : i + 2]
        i += 1
        if token not in ("``", "''", '"'):
            arranged.append(token)
            continue
        if token != '"' and following in ([token], ["''"]):
            i += 1  # doubled
        after = tokens[i] if i < len(tokens) else ""
        # The tokeniser marks some quotes as opening that can only close.
        closes = not after or after in _LEFT or (is_open and after == "(")
        is_open = not closes and (not is_open if token == '"' else token == "``")
        arranged.append(_OPEN if is_open else _CLOSE)
    return arranged
