"""Hold sentences out of training without leaking them back in."""

import hashlib
import random
import re
import unicodedata
from array import array
from collections.abc import Mapping

import numpy as np

from tfxformer.corpora.pair import Pairs
from tfxformer.errors import UserError


def sentence_key(text: str) -> str:
    """Give what two near copies of a sentence have in common.

    Args:
        text: A sentence in any language.

    Returns:
        The sentence after NFKC, in lower case, without punctuation and with
        single spaces.

    Example:
        >>> sentence_key("Onde  está, Ana?") == sentence_key("onde está Ana")
        True
    """
    text = unicodedata.normalize("NFKC", text).casefold()
    text = re.sub(r"[^\w\s]|_", "", unicodedata.normalize("NFKC", text))
    return " ".join(text.split())


def hold_out(pairs: Pairs, sizes: Mapping[str, int], seed: int) -> dict[str, Pairs]:
    """Split pairs by sentence: no sentence of one split is in another.

    "Tens fome?" and "Vocês têm fome?" are both "Are you hungry?": with one in training
    and the other in test, the model would have seen the test's answer. So pairs that
    share a sentence, directly or through others, form a group that moves as a whole.

    Args:
        pairs: All pairs. Their order decides, with the seed, where they go.
        sizes: How many pairs each held-out split gets, by the split's name.
        seed: Another seed holds out other pairs.

    Returns:
        The named splits and "train", which has the rest in the order of `pairs`.
        Sentences are compared by `sentence_key`, on both sides.

    Raises:
        UserError: The pairs are too few, or share so many sentences that the sizes
            cannot be met, or nothing would be left to train on.

    Example:
        >>> pairs = Pairs([("Olá!", "Hello!"), ("Adeus.", "Goodbye.")])
        >>> splits = hold_out(pairs, {"test": 1}, seed=0)
        >>> len(splits["train"]), len(splits["test"])
        (1, 1)
    """
    group = _groups(pairs)  # (pairs,): the first pair of each one's group
    members = np.bincount(group)
    firsts = array("q", np.flatnonzero(members).tobytes())
    random.Random(seed).shuffle(firsts)

    split = np.zeros(len(pairs), np.int8)  # of each group: 0 for train
    missing = dict(sizes)
    for first in firsts:
        if not any(missing.values()):
            break
        # The first split with room for the whole group. A group bigger than any
        # room left goes to train: it is never cut.
        for number, (name, room) in enumerate(missing.items(), start=1):
            if members[first] <= room:
                split[first] = number
                missing[name] -= int(members[first])
                break

    split = split[group]  # of each pair
    if any(missing.values()) or (any(sizes.values()) and split.all()):
        asked = ", ".join(f"{size} for {name}" for name, size in sizes.items())
        raise UserError(
            f"cannot hold out {asked} from {len(pairs)} pairs in {len(firsts)} groups "
            "that share no sentence: ask for less or bring more pairs"
        )
    return {
        name: pairs.select(np.flatnonzero(split == number))
        for number, name in enumerate(["train", *sizes])
    }


def _groups(pairs):
    """The index of the first pair that each pair is connected with, int32."""
    sides = [_numbers(pair[side] for pair in pairs) for side in (0, 1)]
    group = np.arange(len(pairs), dtype=np.int32)
    while True:
        before = group.copy()
        for numbers in sides:
            # All pairs of a sentence join the first group among theirs.
            least = np.full(len(pairs), len(pairs), np.int32)
            np.minimum.at(least, numbers, group)
            group = least[numbers]
            group = group[group]  # and that of the pair that it is named after
        if np.array_equal(group, before):
            return group


def _numbers(texts):
    """The same number for each text of a key, int32."""
    keys = bytearray()
    for text in texts:
        key = sentence_key(text).encode()
        keys += hashlib.blake2b(key, digest_size=8).digest()
    return np.unique(np.frombuffer(keys, np.int64), return_inverse=True)[1].astype(
        np.int32
    )
