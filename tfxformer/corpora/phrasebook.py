"""The embedded corpus: a Portuguese-English phrasebook, written for this project.

Its pairs are in `data/phrasebook.tsv.gz`, and in the public domain: `data/LICENSE.md`.
`recipes/phrasebook` makes that file.
"""

import gzip
from functools import cache
from importlib.resources import files

from tfxformer.corpora.pair import Pairs
from tfxformer.corpora.splitting import hold_out


@cache
def pairs() -> Pairs:
    """Give the whole phrasebook.

    Returns:
        Distinct pairs, the hand-written ones first, in an order that never changes.
        No Portuguese sentence has two translations.

    Example:
        >>> pairs()[0]
        Pair(source='Olá!', target='Hello!')
    """
    packed = files("tfxformer.corpora").joinpath("data/phrasebook.tsv.gz").read_bytes()
    lines = gzip.decompress(packed).decode("utf-8").splitlines()
    return Pairs(line.split("\t") for line in lines)


@cache
def splits() -> dict[str, Pairs]:
    """Split the phrasebook by sentence.

    Returns:
        The pairs of "train", "validation" (500) and "test" (500). No sentence of one
        split, in either language, is in another.

    Example:
        >>> len(splits()["test"])
        500
    """
    return hold_out(pairs(), {"validation": 500, "test": 500}, seed=0)
