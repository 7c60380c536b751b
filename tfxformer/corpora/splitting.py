"""Held-out sentences that do not leak into training."""

import hashlib
import random
import re
import unicodedata
from array import array

import numpy as np

from tfxformer.errors import UserError


def hold_out(pairs, sizes, seed, kept=()):
    """Split pairs so that no two splits share a sentence.

    "Tens fome?" and "Vocês têm fome?" are both "Are you hungry?". So pairs that share a
    sentence, ignoring case and punctuation, stay in one split.

    Args:
        pairs: `Pairs`. Their order and the seed determine the splits.
        sizes: The number of pairs in each held-out split, by the split's name.
        seed: Another seed holds out other pairs.
        kept: The indices of pairs that stay in "train".

    Returns:
        `Pairs` by name, in their order: the named splits, and "train" with the rest.

    Raises:
        UserError: There are too few pairs for the sizes.

    Example:
        >>> from tfxformer.corpora import Pairs
        >>> pairs = Pairs([("Olá!", "Hello!"), ("Adeus.", "Goodbye.")])
        >>> splits = hold_out(pairs, {"test": 1}, seed=0)
        >>> len(splits["train"]), len(splits["test"])
        (1, 1)
    """
    group = _groups(pairs)  # (pairs,): the first pair of each pair's group
    members = np.bincount(group)
    members[group[[*kept]]] = 0  # no split holds these groups
    firsts = array("q", np.flatnonzero(members).tobytes())
    random.Random(seed).shuffle(firsts)

    split = np.zeros(len(pairs), np.int8)  # the split of each group: 0 for train
    missing = dict(sizes)
    for first in firsts:
        if not any(missing.values()):
            break
        # A group that is too large for every split goes to train.
        for number, (name, room) in enumerate(missing.items(), start=1):
            if members[first] <= room:
                split[first] = number
                missing[name] -= int(members[first])
                break

    split = split[group]  # the split of each pair
    if any(missing.values()) or (any(sizes.values()) and split.all()):
        asked = ", ".join(f"{size} for {name}" for name, size in sizes.items())
        available = f"{len(pairs)} pairs in {len(firsts)} groups that share no sentence"
        raise UserError(f"cannot hold out {asked} from {available}: use more pairs")
    names = enumerate(["train", *sizes])
    return {name: pairs.select(np.flatnonzero(split == i)) for i, name in names}


def _groups(pairs):
    """For each pair, the index of the first pair in its group, int32."""
    sides = [_numbers(pair[side] for pair in pairs) for side in (0, 1)]
    group = np.arange(len(pairs), dtype=np.int32)
    while True:
        before = group.copy()
        for numbers in sides:
            # All pairs of a sentence join the first group among theirs.
            least = np.full(len(pairs), len(pairs), np.int32)
            np.minimum.at(least, numbers, group)
            group = least[numbers]
            group = group[group]  # and that pair's own group
        if np.array_equal(group, before):
            return group


def _numbers(texts):
    """A number for each text, int32: near copies of a sentence share one."""
    keys = bytearray()
    for text in texts:
        keys += hashlib.blake2b(key(text).encode(), digest_size=8).digest()
    keys = np.frombuffer(keys, np.int64)
    return np.unique(keys, return_inverse=True)[1].astype(np.int32)


def key(text):
    """The text after NFKC, in lower case, without punctuation, with single spaces.

    Near copies of a sentence have the same.
    """
    text = unicodedata.normalize("NFKC", text).casefold()
    text = re.sub(r"[^\w\s]|_", "", unicodedata.normalize("NFKC", text))
    return " ".join(text.split())
