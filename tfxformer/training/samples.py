"""Validation sentences that are translated as training goes on."""

from typing import Any, NamedTuple

import numpy as np
from sacrebleu.metrics import BLEU

from tfxformer.batches import evaluation_batches
from tfxformer.decoding.search import decode
from tfxformer.tokenizer import END_ID, PAD_ID

# Translations that are shown at each validation.
SHOWN = 5


class Translated(NamedTuple):
    """Translations of validation sentences."""

    rows: list  # (source, reference, translation) to show
    bleu: Any  # of all that were translated; None where it was not asked for
    # Of the first: source and target pieces, cross-attention's weights
    # (layers, heads, target, source).
    looked_at: tuple


class Samples:
    """Translates validation pairs, greedily: a few to look at, more for BLEU.

    Args:
        data: the run's `Data`.
        model: the `Transformer`.
        compiled: turns functions of the model and ids into compiled ones.
        settings: a `TrainingConfig`.
        static_shapes: see `TrainingBatches`.
    """

    def __init__(self, data, model, compiled, settings, static_shapes):
        self.vocabulary = data.vocabulary
        self.model = model
        self.scored = settings.bleu_pairs > 0
        # Of all over the corpus, and always the same.
        count = max(settings.bleu_pairs, SHOWN)
        every = max(len(data.valid) // count, 1)
        self.pairs = data.valid[::every][:count]
        sources = [source for source, _ in data.valid_rows[::every][:count]]
        # The target has each one's number, since batches are put in order of length.
        self.batches = evaluation_batches(
            [(source, [number]) for number, source in enumerate(sources)],
            tokens_per_batch=min(settings.tokens_per_batch, count * model.max_length),
            max_length=model.max_length,
            static_shapes=static_shapes,
        )
        self.first = sources[0]
        self._decode = compiled(lambda ids: decode(model, ids).ids[:, 0])
        self._explain = compiled(self._with_attention)

    def translate(self):
        """Translates all of them.

        Returns:
            `Translated`.
        """
        found = [None] * len(self.pairs)
        for (source, _), target in self.batches:
            numbers = [row[0] for row in target.tolist() if END_ID in row[1:]]
            for number, ids in zip(numbers, self._decode(source), strict=False):
                found[number] = ids.tolist()
        texts = self.vocabulary.decode(found)
        rows = [(*pair, text) for pair, text in zip(self.pairs, texts, strict=True)]
        bleu = None
        if self.scored:
            references = [pair.target for pair in self.pairs]
            bleu = BLEU().corpus_score(texts, [references]).score
        return Translated(rows[:SHOWN], bleu, self._look())

    def _with_attention(self, ids):
        found = decode(self.model, ids, attention=True)
        return found.ids[:, 0], found.attention[:, 0]

    def _look(self):
        source = np.array([[*self.first, END_ID]], np.int32)
        (target,), (weights,) = self._explain(source)
        target = target[target != PAD_ID]
        return (
            self.vocabulary.tokens(source[0]),
            self.vocabulary.tokens(target),
            weights[:, :, : len(target)],
        )
