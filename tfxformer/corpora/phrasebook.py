"""The embedded corpus: a Portuguese-English phrasebook, written for this project.

It is in the public domain (`data/LICENSE.md`); `recipes/phrasebook` makes its file.
"""

import gzip
from functools import cache
from importlib.resources import files

from tfxformer.corpora.pair import Pairs
from tfxformer.corpora.splitting import hold_out


@cache
def splits() -> dict[str, Pairs]:
    """Give the phrasebook, split by sentence.

    Returns:
        The pairs of "train", "validation" (500) and "test" (500). No sentence of one
        split, in either language, is in another.

    Example:
        >>> splits()["train"][0]
        Pair(source='Olá!', target='Hello!')
    """
    packed = files("tfxformer.corpora").joinpath("data/phrasebook.tsv.gz").read_bytes()
    lines = gzip.decompress(packed).decode("utf-8").splitlines()
    pairs = Pairs(line.split("\t") for line in lines)
    return hold_out(pairs, {"validation": 500, "test": 500}, seed=0)
