"""How good translations are: BLEU and chrF, through sacreBLEU."""

import itertools
import math
from dataclasses import dataclass

from sacrebleu.metrics import BLEU, CHRF


@dataclass(frozen=True)
class Evaluation:
    """Scores of translations against references.

    Attributes:
        bleu: BLEU (Papineni et al. 2002), 0 to 100.
        chrf: chrF2 (Popović 2015), 0 to 100.
        bleu_signature: sacreBLEU's, which says how it was computed.
        chrf_signature: the same for chrF.
        sentences: how many there were.
        translations: the translations, in order.

    Example:
        >>> compare(["The cat sat."], ["The cat sat."]).sentences
        1
    """

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str
    sentences: int
    translations: list

    def describe(self):
        """Two lines, a metric each.

        Returns:
            A string.
        """
        return (
            f"BLEU {self.bleu:.2f}  ({self.bleu_signature})\n"
            f"chrF {self.chrf:.2f}  ({self.chrf_signature})"
        )


def compare(translations, references, lowercase=False):
    """Scores translations against references, one reference each.

    Args:
        translations: strings.
        references: as many strings.
        lowercase: compare in lower case (sacreBLEU's ``case:lc``).

    Returns:
        An `Evaluation`.

    Raises:
        ValueError: when there are none, or not as many of one as of the other.

    Example:
        >>> round(compare(["The cat sat there."], ["The cat sat there."]).bleu)
        100
    """
    if not references or len(translations) != len(references):
        raise ValueError(
            f"{len(translations)} translations for {len(references)} references"
        )
    bleu, chrf = BLEU(lowercase=lowercase), CHRF(lowercase=lowercase)
    return Evaluation(
        bleu=bleu.corpus_score(translations, [references]).score,
        chrf=chrf.corpus_score(translations, [references]).score,
        bleu_signature=str(bleu.get_signature()),
        chrf_signature=str(chrf.get_signature()),
        sentences=len(references),
        translations=list(translations),
    )


def evaluate(translator, pairs, lowercase=False, tokens_per_batch=2048):
    """Translates the sources of pairs and scores the result.

    Each source is read as one sentence, as in training, unless it is too long for
    the model.

    Args:
        translator: a `Translator`.
        pairs: `Pair`s.
        lowercase: compare in lower case.
        tokens_per_batch: see `Translator.translate`.

    Returns:
        An `Evaluation`.

    Example:
        >>> from tfxformer.corpora import Pair
        >>> def translator(texts, **options):
        ...     return ["The cat drank the milk." for text in texts]
        >>> pair = Pair("O gato bebeu o leite.", "The cat drank the milk.")
        >>> round(evaluate(translator, [pair]).bleu)
        100
    """
    translations = translator(
        [pair.source for pair in pairs],
        tokens_per_batch=tokens_per_batch,
        split_sentences=False,
    )
    return compare(translations, [pair.target for pair in pairs], lowercase)


def bleu_by_length(
    pairs, translations, longest=(5, 10, 15, 20, 30, math.inf), count=None
):
    """Scores translations of short and of long sources by themselves.

    BLEU of few sentences says little: how many there are is in the result.

    Args:
        pairs: `Pair`s.
        translations: of their sources, as many strings.
        longest: the longest source of each bucket, rising; what is longer than the
            last is left out.
        count: a callable from a source to its length, by default in words, as spaces
            part them.

    Returns:
        A list of ``(longest, bleu, sentences)`` for `plots.draw_bleu_by_length`;
        buckets without a sentence are left out.

    Raises:
        ValueError: when there are not as many translations as pairs, or buckets do
            not rise.

    Example:
        >>> from tfxformer.corpora import Pair
        >>> pairs = [Pair("o gato", "the cat"), Pair("a b c d e f", "u v w x y z")]
        >>> buckets = bleu_by_length(pairs, ["a dog", "u v w x y z"], (5, 10))
        >>> [(longest, round(bleu), sentences) for longest, bleu, sentences in buckets]
        [(5, 0, 1), (10, 100, 1)]
    """
    if len(translations) != len(pairs):
        raise ValueError(f"{len(translations)} translations of {len(pairs)} pairs")
    if not longest or any(a >= b for a, b in itertools.pairwise(longest)):
        raise ValueError(f"{longest=}: give lengths that rise")
    count = count or (lambda source: len(source.split()))
    buckets = {}
    for pair, translation in zip(pairs, translations, strict=True):
        length = count(pair.source)
        limit = next((limit for limit in longest if length <= limit), None)
        if limit is not None:
            buckets.setdefault(limit, []).append((translation, pair.target))
    return [
        (limit, compare(*map(list, zip(*buckets[limit], strict=True))).bleu, len(rows))
        for limit, rows in sorted(buckets.items())
    ]
