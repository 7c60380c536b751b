"""What a translation looked at: tokens, attention, and the words it aligns."""

from dataclasses import dataclass

import numpy as np

SPACE = "\u2581"  # how SentencePiece marks the beginning of a word
END = "</s>"


@dataclass(frozen=True)
class Explanation:
    """A translation and its cross-attention.

    Attributes:
        source_tokens: the source's pieces, the end token included.
        target_tokens: the translation's pieces, the end token included if written.
        attention: float32 ``(layers, heads, target, source)``; each row sums to 1:
            what the decoder looked at when it wrote that token.

    Example:
        See `alignment`.

        >>> Explanation(["</s>"], ["</s>"], np.ones((1, 1, 1, 1))).alignment()
        []
    """

    source_tokens: list
    target_tokens: list
    attention: np.ndarray

    @classmethod
    def of(cls, source_tokens, target_tokens, attention):
        """From one row of the ``attention`` signature, its padding left out.

        Args:
            source_tokens: bytes ``(source,)``, empty for padding.
            target_tokens: bytes ``(target,)``, empty for padding.
            attention: ``(layers, heads, target, source)``.

        Returns:
            An `Explanation`.
        """
        source = [token.decode() for token in source_tokens if token]
        target = [token.decode() for token in target_tokens if token]
        return cls(source, target, attention[:, :, : len(target), : len(source)])

    def alignment(self):
        """Which source word each word of the translation comes from.

        The weights are averaged over layers and heads and summed over the pieces of a
        word; a word comes from the one that it attended to most. The end token is no
        word. With attention this is a good guess, not a proof (Jain and Wallace 2019).

        Returns:
            A list of triples: a word of the translation, the source's word, and the
            share of attention that it had; empty where either side has no word.

        Example:
            >>> weights = np.array([[[[0.9, 0.05, 0.05], [0.3, 0.6, 0.1]]]])
            >>> source = ["\u2581gato", "\u2581preto", "</s>"]
            >>> Explanation(source, ["\u2581cat", "</s>"], weights).alignment()
            [('cat', 'gato', 0.9)]
        """
        source, target = _words(self.source_tokens), _words(self.target_tokens)
        mean = self.attention.mean(axis=(0, 1))  # (target, source)
        aligned = []
        for word, rows in target:
            weights = [
                mean[np.ix_(rows, columns)].sum(axis=1).mean() for _, columns in source
            ]
            if weights:
                best = int(np.argmax(weights))
                aligned.append((word, source[best][0], float(weights[best])))
        return aligned


def _words(tokens):
    """The words that pieces make, each with the places of its pieces."""
    words = []
    for place, token in enumerate(tokens):
        if token == END:
            continue
        if token.startswith(SPACE) or not words:
            words.append(("", []))
        text, places = words[-1]
        words[-1] = (text + token.replace(SPACE, ""), [*places, place])
    return [(text, places) for text, places in words if text]
