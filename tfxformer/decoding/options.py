"""How to decode: what a user can choose, checked before work starts."""

import dataclasses
import math
from dataclasses import dataclass

from tfxformer.errors import UserError

# The logit of a token that may not be written, and the score of an empty place in an
# n-best list: finite, so that sums and differences are.
NEVER = -1e9

# What each option may be; None, where it is a default, always may.
RANGES = {
    "beam_size": (lambda x: x >= 1, "at least 1"),
    "n_best": (lambda x: x >= 1, "at least 1"),
    "length_penalty": (lambda x: 0 <= x < math.inf, "at least 0, and finite"),
    "coverage_penalty": (lambda x: 0 <= x < math.inf, "at least 0, and finite"),
    "temperature": (lambda x: 0 < x < math.inf, "above 0, and finite"),
    "top_k": (lambda x: x >= 0, "at least 0"),
    "top_p": (lambda x: 0 < x <= 1, "above 0 and at most 1"),
    "seed": (lambda x: 0 <= x < 2**31, "from 0 to 2147483647"),
    "no_repeat_ngram": (lambda x: x >= 0, "at least 0"),
    "max_length": (lambda x: x >= 1, "at least 1"),
}


@dataclass(frozen=True)
class DecodingOptions:
    """How to search for a translation.

    With ``beam_size`` 1 the search is greedy; with ``sampling`` it draws each token.

    Args:
        beam_size: number of hypotheses kept side by side for each sentence.
        n_best: number of translations returned for each sentence, best first. With
            sampling, the number of samples.
        length_penalty: alpha of GNMT (Wu et al. 2016, section 7): hypotheses rank by
            ``log P / ((5 + length) / 6) ** alpha``. None ranks them by their mean
            log-probability per token.
        coverage_penalty: beta of GNMT: how much a hypothesis loses for source tokens
            that it did not attend to.
        sampling: draw each token from the model's distribution.
        temperature: sampling: below 1 sharpens the distribution, above 1 flattens it.
        top_k: sampling: draw from the k likeliest tokens; 0 draws from all.
        top_p: sampling: draw from the fewest tokens that have this much probability
            together (Holtzman et al. 2020).
        seed: sampling: seed of the draws. The same seed and sentence give the same
            samples, whatever else is in the batch.
        no_repeat_ngram: write no sequence of this many tokens twice; 0 allows it.
        max_length: the most tokens, the end token counted. None allows twice as many
            as the source has, and ten more.

    Raises:
        UserError: when an option is out of range, or two contradict each other.

    Example:
        >>> DecodingOptions(beam_size=4, length_penalty=0.6).n_best
        1
        >>> DecodingOptions(n_best=8, beam_size=4)
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: n_best 8 is wider than beam_size 4
    """

    beam_size: int = 1
    n_best: int = 1
    length_penalty: float | None = None
    coverage_penalty: float = 0.0
    sampling: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    no_repeat_ngram: int = 0
    max_length: int | None = None

    def __post_init__(self):
        for name, (in_range, rule) in RANGES.items():
            value = getattr(self, name)
            if value is not None and not in_range(value):
                raise UserError(f"{name} {value}: must be {rule}")
        if self.sampling and self.beam_size > 1:
            raise UserError(f"sampling does not go with beam_size {self.beam_size}")
        if not self.sampling:
            if self.n_best > self.beam_size:
                raise UserError(
                    f"n_best {self.n_best} is wider than beam_size {self.beam_size}"
                )
            self._only_with("sampling", "temperature", "top_k", "top_p", "seed")
        if self.beam_size == 1:
            self._only_with("a beam", "length_penalty", "coverage_penalty")

    def _only_with(self, what, *names):
        for name in names:
            if getattr(self, name) not in (getattr(DecodingOptions, name), 0):
                raise UserError(f"{name} {getattr(self, name)}: only goes with {what}")

    def describe(self):
        """The method, and the options that differ from the defaults.

        Returns:
            A dictionary for people and JSON.
        """
        method = "greedy" if self.beam_size == 1 else "beam"
        changed = {
            name: value
            for name, value in dataclasses.asdict(self).items()
            if value != getattr(DecodingOptions, name)
        }
        return {"method": "sampling" if self.sampling else method, **changed}

    @classmethod
    def described(cls, description):
        """Reads what `describe` gave.

        Args:
            description: a dictionary, also one that was JSON.

        Returns:
            `DecodingOptions`.

        Example:
            >>> options = DecodingOptions(beam_size=4)
            >>> DecodingOptions.described(options.describe()) == options
            True
        """
        return cls(**{key: x for key, x in description.items() if key != "method"})
