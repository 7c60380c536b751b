"""Pairs of token ids, and a tokenizer for texts of ids."""

import numpy as np

from tfxformer.token_file import write_tokens


class Numbers:
    """A tokenizer for texts of ids; sampling repeats the ids ``times`` times."""

    vocab_size, times = 5000, 2
    sides = property(lambda self: (self, self))

    def encode(self, texts, alpha=0.0):
        times = self.times if alpha else 1
        return [[int(word) for word in text.split() * times] for text in texts]

    def decode(self, ids):
        return [" ".join(map(str, row)) for row in ids]


def make_rows(count, seed=0, longest=63):
    """Distinct pairs of ids, with realistic lengths that are similar on both sides."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(rng.lognormal(2.7, 0.6, count), 3, longest)
    both = np.clip(lengths[:, None] * rng.normal(1, 0.15, (count, 2)), 3, longest)
    return [
        tuple(
            (*rng.integers(10, 1000, n - 2).tolist(), 1000 + i // 1000, i % 1000 + 4)
            for n in pair
        )
        for i, pair in enumerate(both.astype(int))
    ]


def write(folder, *sources, max_length=64):
    """Writes a token file with rows of ids."""
    decode = Numbers().decode
    texts = [[tuple(decode(row)) for row in rows] for rows in sources]
    return write_tokens(folder, texts, Numbers(), max_length)
