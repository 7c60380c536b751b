"""The options of decoding, checked before work starts."""

from typing import Annotated

from pydantic import Field, model_validator

from tfxformer.config import Count, Settings
from tfxformer.errors import SettingError

# The logit of a forbidden token, and the score of an empty place in an n-best list. It
# is finite, so that sums and differences are, too.
NEVER = -1e9
# The beam of an n-best list, if no option sets it.
LEAST_BEAM = 4


class DecodingOptions(Settings):
    """The options of decoding.

    With ``beam_size`` 1, decoding is greedy; with ``sampling``, it samples each token.

    Raises:
        UserError: an option is out of range, or two options contradict each other.

    Example:
        >>> DecodingOptions(beam_size=4, length_penalty=0.6).n_best
        1
        >>> DecodingOptions(n_best=3).beam_size
        4
        >>> DecodingOptions(n_best=8, beam_size=4)
        Traceback (most recent call last):
        ...
        tfxformer.errors.SettingError: n_best = 8: must be at most beam_size, 4
    """

    beam_size: Count = 1
    """Beam search with this many hypotheses for each sentence; 1 is greedy."""
    n_best: Count = 1
    """The number of translations in an n-best list, best first, or of samples. Several
    translations need a beam: by default it has their number, and at least 4."""
    length_penalty: Annotated[float, Field(ge=0)] | None = None
    """Beam: GNMT's alpha (Wu et al. 2016, section 7): rank hypotheses by
    log P / ((5 + length) / 6)^alpha; by default by their mean log-probability."""
    sampling: bool = False
    """Sample each token from the model's distribution."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Sampling: below 1 sharpens the distribution, above 1 flattens it."""
    top_k: Annotated[int, Field(ge=0)] = 0
    """Sampling: sample from the k likeliest tokens; 0 samples from all."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Sampling: sample from the fewest tokens with this total probability (Holtzman et
    al. 2020)."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Sampling: the same seed and sentence give the same samples in any batch."""
    no_repeat_ngram: Annotated[int, Field(ge=0)] = 0
    """Write no sequence of this many tokens twice; 0 allows it."""
    forbid: tuple[str, ...] = ()
    """A word or phrase that must not be written, also with a capital."""
    max_length: Count | None = None
    """The most tokens in a translation, including the end token; by default twice the
    source's tokens plus ten."""

    @model_validator(mode="before")
    @classmethod
    def _a_list_has_a_beam(cls, values):
        n_best = values.get("n_best")
        if isinstance(n_best, int) and n_best > 1 and not values.get("sampling"):
            return {"beam_size": max(n_best, LEAST_BEAM)} | values
        return values

    @model_validator(mode="after")
    def _agree(self):
        if self.sampling and self.beam_size > 1:
            self._refuse("beam_size", "does not work with {}", other="sampling")
        if not self.sampling and self.n_best > self.beam_size:
            reason = f"must be at most {{}}, {self.beam_size}"
            self._refuse("n_best", reason, other="beam_size")
        if not self.sampling:
            for name in ("temperature", "top_k", "top_p", "seed"):
                if self._is_set(name):
                    self._refuse(name, "needs {}", other="sampling")
        if self.beam_size == 1 and self._is_set("length_penalty"):
            self._refuse("length_penalty", "needs {} above 1", other="beam_size")
        return self

    def _is_set(self, name):
        """Whether an option changes anything."""
        return getattr(self, name) not in (type(self).model_fields[name].default, 0)

    def _refuse(self, name, reason, other):
        value = getattr(self, name)
        raise SettingError(None, name, reason, value=value, other=other)

    def describe(self):
        """The method and the options that differ from the defaults, as a dictionary."""
        method = "greedy" if self.beam_size == 1 else "beam"
        method = "sampling" if self.sampling else method
        return {"method": method, **self.model_dump(exclude_defaults=True)}

    @classmethod
    def described(cls, description):
        """The options of a dictionary from `describe`, which may have been JSON."""
        return cls(**{key: x for key, x in description.items() if key != "method"})
