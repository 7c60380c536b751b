"""Exports the weighted mean of a run and of the model that it started from.

    python average.py MODEL RUN REPOSITORY NAME

A training stage learns its own data and forgets a little. The mean of the weights
before and after the stage translates better than either (Wortsman et al. 2022). MODEL
is a run, an export, or ``pt_en``, the model that comes with the package. The script
writes the mean as the next version of NAME in REPOSITORY, with matrices in float16.
"""

import sys

from tfxformer.exporting.saved_model import export
from tfxformer.repository import SHIPPED
from tfxformer.translator import Translator

AFTER = 0.6  # the share of the run's weights


def mean(before, after, share=AFTER):
    """Returns the weighted mean of two lists of arrays.

    Example:
        >>> mean([0.0, 10.0], [1.0, 20.0])
        [0.6, 16.0]
    """
    pairs = zip(before, after, strict=True)
    return [(1 - share) * old + share * new for old, new in pairs]


def main():
    """Runs the command line."""
    *names, repository, name = sys.argv[1:]
    before, after = (Translator.load(None if x == SHIPPED else x) for x in names)
    weights = (x.transformer.get_weights() for x in (before, after))
    after.transformer.set_weights(mean(*weights))
    print(export(after, repository, name, precision="float16")[0])


if __name__ == "__main__":
    main()
