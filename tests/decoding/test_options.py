"""Impossible options raise an error that names them, before work starts."""

import math

import pytest

from tfxformer.decoding import DecodingOptions
from tfxformer.errors import UserError

BEAM, SAMPLING = {"beam_size": 2}, {"sampling": True}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam_size": 0}, "beam_size = 0: must be gr"),
        ({"n_best": 5, "beam_size": 4}, "n_best = 5: must be at most beam_size, 4"),
        ({"length_penalty": -0.1} | BEAM, "length_penalty = -0.1: must be gr"),
        ({"length_penalty": math.nan} | BEAM, "length_penalty = nan: must be a finite"),
        ({"length_penalty": 0.6}, "length_penalty = 0.6: needs beam_size above 1"),
        (SAMPLING | {"beam_size": 4}, "beam_size = 4: does not work with sampling"),
        ({"temperature": 0} | SAMPLING, "temperature = 0: must be gr"),
        ({"top_k": -1} | SAMPLING, "top_k = -1: must be gr"),
        ({"top_p": 2} | SAMPLING, "top_p = 2: must be"),
        ({"seed": 2**31} | SAMPLING, "seed = 2147483648: must be less"),
        ({"temperature": 0.5}, "temperature = 0.5: needs sampling"),
        ({"top_k": 3}, "top_k = 3: needs sampling"),
        ({"seed": 7} | BEAM, "seed = 7: needs sampling"),
        ({"no_repeat_ngram": -1}, "no_repeat_ngram = -1: must be gr"),
    ],
)
def test_impossible_decoding_options_raise_an_error_that_names_them(options, message):
    with pytest.raises(UserError) as error:
        DecodingOptions(**options)
    assert str(error.value).startswith(message)
