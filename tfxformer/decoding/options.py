"""How to decode: what a user can choose, checked before work starts."""

from typing import Annotated

from pydantic import Field, model_validator

from tfxformer.config import Count, Settings
from tfxformer.errors import UserError

# The logit of a token that may not be written, and the score of an empty place in an
# n-best list: finite, so that sums and differences are.
NEVER = -1e9


class DecodingOptions(Settings):
    """How to search for a translation.

    With ``beam_size`` 1 the search is greedy; with ``sampling`` it draws each token.

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

    beam_size: Count = 1
    """Beam search with this many hypotheses for each sentence; 1 is greedy."""
    n_best: Count = 1
    """How many translations an n-best list has, best first; or how many samples."""
    length_penalty: Annotated[float, Field(ge=0)] | None = None
    """Beam: alpha of GNMT (Wu et al. 2016, section 7), by which hypotheses rank as
    log P / ((5 + length) / 6)^alpha; by default by their mean log-probability."""
    coverage_penalty: Annotated[float, Field(ge=0)] = 0.0
    """Beam: beta of GNMT, the loss for source tokens that were not attended to."""
    sampling: bool = False
    """Draw each token from the model's distribution."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Sampling: below 1 sharpens the distribution, above 1 flattens it."""
    top_k: Annotated[int, Field(ge=0)] = 0
    """Sampling: draw from the k likeliest tokens; 0 draws from all."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Sampling: draw from the fewest tokens of this probability together (Holtzman et
    al. 2020)."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Sampling: the same seed and sentence give the same samples in any batch."""
    no_repeat_ngram: Annotated[int, Field(ge=0)] = 0
    """Write no sequence of this many tokens twice; 0 allows it."""
    max_length: Count | None = None
    """The most tokens of a translation, the end token counted; by default twice the
    source's, and ten more."""

    @model_validator(mode="after")
    def _agree(self):
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
        return self

    def _only_with(self, what, *names):
        for name in names:
            value = getattr(self, name)
            if value not in (type(self).model_fields[name].default, 0):
                raise UserError(f"{name} {value}: only goes with {what}")

    def describe(self):
        """The method and the options that differ from the defaults, as a dictionary."""
        method = "greedy" if self.beam_size == 1 else "beam"
        changed = {
            name: value
            for name, value in dict(self).items()
            if value != DecodingOptions.model_fields[name].default
        }
        return {"method": "sampling" if self.sampling else method, **changed}

    @classmethod
    def described(cls, description):
        """The options that `describe` gave as a dictionary, also one that was JSON.

        Example:
            >>> options = DecodingOptions(beam_size=4)
            >>> DecodingOptions.described(options.describe()) == options
            True
        """
        return cls(**{key: x for key, x in description.items() if key != "method"})
