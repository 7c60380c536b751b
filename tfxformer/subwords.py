"""Subword regularisation: text cut into pieces at random (Kudo 2018).

SentencePiece can do this too, but no seed settles its draws: they differ from one
process to the next, and a training that is resumed would not be the one that was
stopped. So they are made here, from the same distribution.
"""

from itertools import pairwise

import numpy as np

from tfxformer.errors import UserError

# A character without a piece is spelt in bytes. SentencePiece takes it for so much
# less likely than the rarest piece.
_BYTES_PENALTY = 10.0


class SubwordSampler:
    """Draws segmentations, each as its probability to the power of alpha is.

    Pieces do not cross the spaces between words, so each word is drawn for itself;
    and all words at once, for speed.

    Args:
        processor: a ``SentencePieceProcessor`` of a unigram language model.

    Raises:
        UserError: when the vocabulary cannot spell in bytes.

    Example:
        >>> from tfxformer.vocabulary import Vocabulary
        >>> vocabulary = Vocabulary.train(["o gato bebe leite"] * 50, 300)
        >>> ids = vocabulary.encode(["o gato"])[0]
        >>> sampler = SubwordSampler(vocabulary.processor)
        >>> drawn, lengths = sampler.sample(ids, [len(ids)], alpha=0.1, seed=7)
        >>> vocabulary.decode([drawn]), int(lengths[0]) == len(drawn)
        (['o gato'], True)
    """

    def __init__(self, processor):
        size = processor.GetPieceSize()
        pieces = [processor.IdToPiece(i) for i in range(size)]
        byte_ids = [processor.PieceToId(f"<0x{byte:02X}>") for byte in range(256)]
        if not all(map(processor.IsByte, byte_ids)):
            raise UserError(
                "subword regularisation needs a vocabulary that spells what it does "
                "not know in bytes: train one with `tfxformer train`"
            )
        special = {*byte_ids}
        for kind in ("IsControl", "IsUnknown", "IsUnused"):
            special |= {i for i in range(size) if getattr(processor, kind)(i)}
        ordinary = {pieces[i].encode(): i for i in range(size) if i not in special}
        self._scores = np.array([processor.GetScore(i) for i in range(size)])
        least = min((self._scores[i] for i in ordinary.values()), default=0.0)
        # The first byte of a character bears all of the cost.
        self._scores[byte_ids] = 0.0
        self._byte_ids = np.array(byte_ids)
        self._byte_score = least - _BYTES_PENALTY
        self._spelling = {i: piece for piece, i in ordinary.items()}
        self._spelling |= {id: bytes([byte]) for byte, id in enumerate(byte_ids)}
        self._begins_word = np.array([piece.startswith("▁") for piece in pieces])
        self._trie = _Trie(ordinary)

    def sample(self, ids, lengths, alpha, seed):
        """Draws other pieces of the same texts.

        Args:
            ids: the ids of all texts, one text after the other.
            lengths: how many of them each text has.
            alpha: the smaller, the freer.
            seed: an integer from 0 on, or a tuple of them.

        Returns:
            The ids and the lengths that were drawn, int32 and int64.
        """
        ids = np.ascontiguousarray(ids, np.int32)
        text = np.repeat(np.arange(len(lengths)), lengths)  # of each id
        begins = self._begins_word[ids] | (np.diff(text, prepend=-1) > 0)
        first_ids = np.flatnonzero(begins)
        # Each word once, as the bytes of its ids: most come often.
        content, numbers = ids.tobytes(), {}
        bounds = [*(ids.itemsize * first_ids).tolist(), len(content)]
        occurrences = [
            numbers.setdefault(content[first:last], len(numbers))
            for first, last in pairwise(bounds)
        ]
        if not occurrences:
            return ids, np.zeros(len(lengths), np.int64)
        words = [self._spell(word) for word in numbers]
        # As entropy, 1 and (1, 0) would be the same.
        key = seed if isinstance(seed, tuple) else (seed,)
        rng = np.random.default_rng(np.random.SeedSequence(0, spawn_key=key))
        drawn, counts = self._lattice(words, alpha).draw(np.array(occurrences), rng)
        lengths = np.bincount(text[first_ids], counts, minlength=len(lengths))
        return drawn, lengths.astype(np.int64)

    def _spell(self, word):
        """The UTF-8 of a word that is given as the bytes of its ids."""
        ids = np.frombuffer(word, np.int32).tolist()
        return b"".join([self._spelling[id] for id in ids])

    def _lattice(self, words, alpha):
        """All ways to cut some words into pieces.

        Args:
            words: UTF-8.
            alpha: the power of the probabilities.

        Returns:
            A `_Lattice`.
        """
        text = np.frombuffer(b"".join(words), np.uint8)
        sizes = np.array([len(word) for word in words])
        begin = np.repeat(np.cumsum(sizes) - sizes, sizes)  # of each byte's word
        first, last, piece = self._trie.find(text, begin + np.repeat(sizes, sizes))
        # What characters there are, and which have a piece of their own.
        is_head = ((text & 0xC0) != 0x80) | (np.arange(len(text)) == begin)
        heads = np.flatnonzero(is_head)
        widths = np.diff(heads, append=len(text))
        whole = np.repeat(widths, widths)[first] == last - first
        has_piece = np.isin(heads, first[whole])
        # The others may be spelt in bytes.
        spelt = np.flatnonzero(np.repeat(~has_piece, widths))
        cost = np.where(is_head[spelt], self._byte_score, 0.0)
        return _Lattice(
            np.concatenate([first, spelt]),
            np.concatenate([last, spelt + 1]),
            np.concatenate([piece, self._byte_ids[text[spelt]]]),
            np.concatenate([self._scores[piece], cost]) * alpha,
            begin,
            sizes,
        )


class _Trie:
    """Which pieces begin at each byte of a text, found for all bytes at once."""

    def __init__(self, pieces):
        """Builds it of a dict of bytes to ids."""
        nodes, self._piece = {b"": 0}, [-1]
        for piece, id in sorted(pieces.items()):
            for size in range(1, len(piece) + 1):
                if nodes.setdefault(piece[:size], len(nodes)) == len(self._piece):
                    self._piece.append(-1)
            self._piece[nodes[piece]] = id
        # A step from a node: its number and the byte, in one number to search for.
        steps = sorted(
            (nodes[prefix[:-1]] * 256 + prefix[-1], node)
            for prefix, node in nodes.items()
            if prefix
        )
        self._steps, self._to = np.array(steps, np.int64).reshape(-1, 2).T.copy()
        self._piece = np.array(self._piece)

    def find(self, text, end):
        """Finds pieces.

        Args:
            text: bytes, as an array.
            end: for each byte, where its word ends.

        Returns:
            Three arrays: where each piece begins, where it ends, and its id.
        """
        first = last = np.arange(len(text))
        node, found = np.zeros(len(text), np.int64), []
        while len(first):
            step = node * 256 + text[last]
            place = np.searchsorted(self._steps, step)
            place = np.minimum(place, len(self._steps) - 1)
            known = self._steps[place] == step
            node, first, last = self._to[place[known]], first[known], last[known] + 1
            piece = self._piece[node]
            is_piece = piece >= 0
            found.append((first[is_piece], last[is_piece], piece[is_piece]))
            inside = last < end[first]
            node, first, last = node[inside], first[inside], last[inside]
        return map(np.concatenate, zip(*found, strict=True))


class _Lattice:
    """All ways to cut words into pieces: edges from byte to byte, each a piece.

    Args:
        first: the first byte of each edge, in all words one after the other.
        last: the byte after it.
        piece: its id.
        weight: the logarithm of its weight.
        begin: for each byte, where its word begins.
        sizes: how many bytes each word has.
    """

    def __init__(self, first, last, piece, weight, begin, sizes):
        state = last - 1  # a state is the byte that an edge ends with
        order = np.lexsort((state, state - begin[state]))
        first, state, weight = first[order], state[order], weight[order]
        at_begin = first == begin[first]
        # Forward filtering: the weight of all ways that lead to a state, for the
        # states at byte 0 of their words first.
        total = np.zeros(len(begin))
        bounds = np.flatnonzero(np.diff(state - begin[state], prepend=-1))
        for low, high in pairwise([*bounds.tolist(), len(order)]):
            part = slice(low, high)
            weight[part] += np.where(at_begin[part], 0.0, total[first[part] - 1])
            groups = np.flatnonzero(np.diff(state[part], prepend=-1))
            total[state[low + groups]] = np.logaddexp.reduceat(weight[part], groups)
        share = np.exp(weight - total[state])  # of an edge, in those of its state

        # Sorted throughout: a state and a random number below 1 find an edge.
        by_state = np.argsort(state, kind="stable")
        state, share = state[by_state], share[by_state]
        upto = np.cumsum(share)
        starts = np.flatnonzero(np.diff(state, prepend=-1))
        counts = np.diff(starts, append=len(state))
        self._upto = state + upto - np.repeat(upto[starts] - share[starts], counts)
        self._last_edge = np.zeros(len(begin), int)
        self._last_edge[state[starts]] = starts + counts - 1
        self._to = np.where(at_begin, -1, first - 1)[by_state]
        self._piece = piece[order][by_state]
        self._ends = np.cumsum(sizes) - 1

    def draw(self, words, rng):
        """Draws a way for each word, from its end to its beginning.

        Args:
            words: the number of each word; one may come many times.
            rng: a NumPy ``Generator``.

        Returns:
            The pieces of all words, one word after the other, int32; and how many
            each has.
        """
        steps, going, state = [], np.arange(len(words)), self._ends[words]
        while len(going):
            chance = state + rng.random(len(state))
            edge = np.searchsorted(self._upto, chance, side="right")
            edge = np.minimum(edge, self._last_edge[state])  # where sums are rounded
            steps.append((going, self._piece[edge]))
            state = self._to[edge]
            going, state = going[state >= 0], state[state >= 0]
        counts = np.bincount(np.concatenate([some for some, _ in steps]))
        drawn = np.empty(counts.sum(), np.int32)
        place = np.cumsum(counts) - 1
        for step, (some, pieces) in enumerate(steps):
            drawn[place[some] - step] = pieces
        return drawn, counts
