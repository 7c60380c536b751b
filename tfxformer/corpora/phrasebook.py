"""The embedded corpus: a Portuguese-English phrasebook, written for this project.

Its pairs are in `data/phrasebook.tsv.gz`, and in the public domain: `data/LICENSE.md`.
`recipes/phrasebook` makes that file.
"""

import gzip
from functools import cache
from importlib.resources import files

from tfxformer.corpora.pair import Pair
from tfxformer.corpora.splitting import hold_out


def pairs() -> list[Pair]:
    """Give the whole phrasebook.

    Returns:
        Distinct pairs, the hand-written ones first, in an order that never changes.
        No Portuguese sentence has two translations.

    Example:
        >>> pairs()[0]
        Pair(source='Olá!', target='Hello!')
    """
    return list(_all_pairs())


def splits(
    seed: int = 0, validation: int = 500, test: int = 500
) -> dict[str, list[Pair]]:
    """Split the phrasebook by sentence.

    Args:
        seed: Another seed holds out other sentences.
        validation: How many pairs to hold out for choosing a checkpoint.
        test: How many pairs to hold out for the final score.

    Returns:
        The pairs of "train", "validation" and "test". No sentence of one split, in
        either language, is in another.

    Raises:
        UserError: If you ask for more than the phrasebook has.

    Example:
        >>> {name: len(pairs) for name, pairs in splits().items() if name != "train"}
        {'validation': 500, 'test': 500}
    """
    return hold_out(_all_pairs(), {"validation": validation, "test": test}, seed)


@cache
def _all_pairs() -> tuple[Pair, ...]:
    packed = files("tfxformer.corpora").joinpath("data/phrasebook.tsv.gz").read_bytes()
    lines = gzip.decompress(packed).decode("utf-8").splitlines()
    return tuple(Pair(*line.split("\t")) for line in lines)
