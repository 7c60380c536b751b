"""Hold sentences out of training without leaking them back in."""

import random
import re
import unicodedata
from collections.abc import Hashable, Mapping, Sequence

from tfxformer.corpora.pair import Pair
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


def hold_out(
    pairs: Sequence[Pair], sizes: Mapping[str, int], seed: int
) -> dict[str, list[Pair]]:
    """Split pairs by sentence: no sentence of one split is in another.

    Args:
        pairs: All pairs. Their order decides, with the seed, where they go.
        sizes: How many pairs each held-out split gets, by the split's name.
        seed: Another seed holds out other pairs.

    Returns:
        The named splits and "train", which has the rest in the order of `pairs`.
        Sentences are compared by `sentence_key`, on both sides.

    Raises:
        UserError: If the pairs are too few, or share so many sentences that the
            sizes cannot be met, or if nothing would be left to train on.

    Example:
        >>> pairs = [Pair("Olá!", "Hello!"), Pair("Adeus.", "Goodbye.")]
        >>> splits = hold_out(pairs, {"test": 1}, seed=0)
        >>> len(splits["train"]), len(splits["test"])
        (1, 1)
    """
    if "train" in sizes:
        raise ValueError("'train' is what is left: give sizes for other splits")
    if any(size < 0 for size in sizes.values()):
        raise ValueError(f"sizes of splits cannot be negative: {dict(sizes)}")
    groups = groups_that_share(pairs)
    random.Random(seed).shuffle(groups)

    split_of: dict[int, str] = {}
    missing = dict(sizes)
    for group in groups:
        # The first split with room for the whole group. A group bigger than any
        # room left goes to train: it is never cut.
        for name, room in missing.items():
            if len(group) <= room:
                split_of.update(dict.fromkeys(group, name))
                missing[name] = room - len(group)
                break

    wanted = sum(sizes.values())
    if any(missing.values()) or (wanted and len(split_of) == len(pairs)):
        asked = ", ".join(f"{size} for {name}" for name, size in sizes.items())
        raise UserError(
            f"cannot hold out {asked} from {len(pairs)} pairs in {len(groups)} groups "
            "that share no sentence: ask for less or bring more pairs"
        )
    splits: dict[str, list[Pair]] = {"train": [], **{name: [] for name in sizes}}
    for index, pair in enumerate(pairs):
        splits[split_of.get(index, "train")].append(pair)
    return splits


def groups_that_share(pairs: Sequence[Pair]) -> list[list[int]]:
    """Give the connected components of pairs that share a sentence.

    "Tens fome?" and "Vocês têm fome?" are both "Are you hungry?": with one in
    training and the other in test, the model would have seen the test's answer.
    Sharing is transitive, so whole components move together.

    Args:
        pairs: All pairs. Sentences are compared by `sentence_key`, on both sides.

    Returns:
        The indices of the pairs of each component.

    Example:
        >>> pairs = [Pair("Olá!", "Hello!"), Pair("Sim.", "Yes."), Pair("olá", "Hi")]
        >>> groups_that_share(pairs)
        [[0, 2], [1]]
    """
    parent = list(range(len(pairs)))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    first: dict[Hashable, int] = {}
    for index, pair in enumerate(pairs):
        for side in (0, 1):
            other = first.setdefault((side, sentence_key(pair[side])), index)
            parent[root(index)] = root(other)

    groups: dict[int, list[int]] = {}
    for index in range(len(pairs)):
        groups.setdefault(root(index), []).append(index)
    return list(groups.values())
