"""Translation quality: BLEU and chrF, through sacreBLEU."""

from dataclasses import dataclass

from sacrebleu.metrics import BLEU, CHRF


@dataclass(frozen=True)
class Evaluation:
    """Scores of translations against references.

    Attributes:
        bleu: BLEU (Papineni et al. 2002), 0 to 100.
        chrf: chrF2 (Popović 2015), 0 to 100.
        signatures: sacreBLEU's descriptions of the two computations.
        translations: a list of strings, in order.
    """

    bleu: float
    chrf: float
    signatures: tuple
    translations: list

    def describe(self):
        """Both metrics as text, one on each line."""
        bleu, chrf = self.signatures
        return f"BLEU {self.bleu:.2f}  ({bleu})\nchrF {self.chrf:.2f}  ({chrf})"


def compare(translations, references, lowercase=False):
    """Scores translations against references, one reference each.

    Args:
        translations: strings.
        references: strings, one for each translation.
        lowercase: compare in lower case (sacreBLEU's ``case:lc``).

    Returns:
        An `Evaluation`.

    Example:
        >>> round(compare(["The cat sat there."], ["The cat sat there."]).bleu)
        100
    """
    bleu, chrf = BLEU(lowercase=lowercase), CHRF(lowercase=lowercase)
    return Evaluation(
        bleu=bleu.corpus_score(translations, [references]).score,
        chrf=chrf.corpus_score(translations, [references]).score,
        signatures=(str(bleu.get_signature()), str(chrf.get_signature())),
        translations=list(translations),
    )


def evaluate(translator, pairs, lowercase=False, tokens_per_batch=2048):
    """Translates the sources of `Pair`s and scores the result: an `Evaluation`.

    The `Translator` reads each source as one sentence, as in training, unless it is too
    long. See `compare` and `Translator.translate` for the other arguments.
    """
    sources = [pair.source for pair in pairs]
    translations = translator(sources, tokens_per_batch, split_sentences=False)
    return compare(translations, [pair.target for pair in pairs], lowercase)


def describe_samples(pairs, translations, count=40, shown=6):
    """Says how many of some translations equal their reference, and shows a few.

    Both take translations at equal distances, so a wrong one appears like any other.

    Args:
        pairs: at least ``count`` `Pair`s.
        translations: a list of strings, one for each pair.
        count: the number of translations to compare.
        shown: the number of translations to show.

    Returns:
        A list of lines.

    Example:
        >>> pairs = [("Olá!", "Hello!"), ("Bom dia!", "Good morning!")]
        >>> for line in describe_samples(pairs, ["Hello!", "Good day!"], 2, 2):
        ...     print(line)
        Olá!  →  Hello!
        Bom dia!  →  Good day!  (reference: Good morning!)
        1 of 2 translations equal their reference
    """
    chosen = range(0, len(pairs) - len(pairs) % count, len(pairs) // count)
    lines, equal = [], 0
    for place, index in enumerate(chosen):
        source, reference = pairs[index]
        translation = translations[index]
        equal += translation == reference
        if place % (count // shown) == 0 and len(lines) < shown:
            note = "" if translation == reference else f"  (reference: {reference})"
            lines.append(f"{source}  →  {translation}{note}")
    return [*lines, f"{equal} of {count} translations equal their reference"]
