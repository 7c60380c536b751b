"""How to decode: what a user can choose, checked before work starts."""

import dataclasses
import math
from dataclasses import dataclass

from tfxformer.errors import UserError

# The logit of what may not be written, and the score of an n-best list's empty place:
# finite, so that sums and differences are.
NEVER = -1e9


@dataclass(frozen=True)
class DecodingOptions:
    """How a translation is searched for.

    With ``beam_size`` 1 the search is greedy; with ``sampling`` each token is drawn.

    Args:
        beam_size: hypotheses kept side by side for each sentence.
        n_best: translations returned for each sentence, best first. With sampling,
            the number of samples.
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
        seed: sampling: of the draws. The same seed and sentence give the same
            samples, whatever else is in the batch.
        no_repeat_ngram: no sequence of this many tokens is written twice; 0 allows
            it.
        min_length: the fewest tokens, the end token not counted.
        max_length: the most tokens, the end token counted. None allows twice as many
            as the source has, and ten more.
        forbidden: pieces that are never written, beside padding, unknown and start:
            ids, or where a `Translator` takes them, as SentencePiece spells them.

    Raises:
        UserError: naming the options that cannot be, or contradict each other.

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
    min_length: int = 0
    max_length: int | None = None
    forbidden: tuple = ()

    def __post_init__(self):
        for problem in self._problems():
            raise UserError(problem)

    def _problems(self):
        for name in ("beam_size", "n_best"):
            if getattr(self, name) < 1:
                yield f"{name} {getattr(self, name)}: must be at least 1"
        for name in ("top_k", "no_repeat_ngram", "min_length"):
            if getattr(self, name) < 0:
                yield f"{name} {getattr(self, name)}: must not be below 0"
        for name in ("length_penalty", "coverage_penalty"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                yield f"{name} {value}: must be at least 0, and finite"
        if not 0 < self.temperature < math.inf:
            yield f"temperature {self.temperature}: must be above 0, and finite"
        if not 0 < self.top_p <= 1:
            yield f"top_p {self.top_p}: must be above 0 and at most 1"
        if not 0 <= self.seed < 2**31:
            yield f"seed {self.seed}: must be from 0 to 2147483647"
        if self.max_length is not None:
            if self.max_length < 1:
                yield f"max_length {self.max_length}: must be at least 1"
            if self.min_length > self.max_length:
                yield (
                    f"min_length {self.min_length} is more than max_length "
                    f"{self.max_length}"
                )
        for piece in self.forbidden:
            if isinstance(piece, int) and piece < 0:
                yield f"forbidden {piece}: ids are not below 0"
        if self.sampling:
            if self.beam_size > 1:
                yield f"sampling does not go with beam_size {self.beam_size}"
        else:
            if self.n_best > self.beam_size:
                yield f"n_best {self.n_best} is wider than beam_size {self.beam_size}"
            defaults = {f.name: f.default for f in dataclasses.fields(self)}
            for name in ("temperature", "top_k", "top_p", "seed"):
                if getattr(self, name) != defaults[name]:
                    yield f"{name} {getattr(self, name)}: only goes with sampling"
        if self.beam_size == 1:
            for name in ("length_penalty", "coverage_penalty"):
                if getattr(self, name):
                    yield f"{name} {getattr(self, name)}: only goes with a beam"

    def describe(self):
        """What differs from the defaults, and the method, for people and JSON.

        Returns:
            A dictionary.
        """
        method = "greedy" if self.beam_size == 1 else "beam"
        changed = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        }
        return {"method": "sampling" if self.sampling else method, **changed}

    @classmethod
    def described(cls, description):
        """The options that `describe` told of.

        Args:
            description: a dictionary, from JSON too.

        Returns:
            `DecodingOptions`.

        Example:
            >>> options = DecodingOptions(beam_size=4)
            >>> DecodingOptions.described(options.describe()) == options
            True
        """
        values = {key: x for key, x in description.items() if key != "method"}
        if "forbidden" in values:
            values["forbidden"] = tuple(values["forbidden"])  # JSON has lists
        return cls(**values)
