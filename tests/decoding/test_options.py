"""What cannot be is refused by name, before work starts."""

import math

import pytest
from pydantic import ValidationError

from tfxformer.decoding import DecodingOptions
from tfxformer.errors import UserError

BEAM, SAMPLING = {"beam_size": 2}, {"sampling": True}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam_size": 0}, "beam_size = 0: must be greater than or equal to 1"),
        ({"n_best": 0}, "n_best = 0: must be greater than or equal to 1"),
        ({"n_best": 2}, "n_best 2 is wider than beam_size 1"),
        ({"n_best": 5, "beam_size": 4}, "n_best 5 is wider than beam_size 4"),
        ({"length_penalty": -0.1} | BEAM, "length_penalty = -0.1: must be gr"),
        ({"length_penalty": math.nan} | BEAM, "length_penalty = nan: must be a finite"),
        ({"coverage_penalty": -1} | BEAM, "coverage_penalty = -1: must be gr"),
        ({"length_penalty": 0.6}, "length_penalty 0.6: only goes with a beam"),
        ({"coverage_penalty": 0.2}, "coverage_penalty 0.2: only goes with a beam"),
        ({"length_penalty": 0.6} | SAMPLING, "length_penalty 0.6: only goes with a"),
        (SAMPLING | {"beam_size": 4}, "sampling does not go with beam_size 4"),
        ({"temperature": 0} | SAMPLING, "temperature = 0: must be greater than 0"),
        ({"temperature": math.inf} | SAMPLING, "temperature = inf: must be a finite"),
        ({"top_k": -1} | SAMPLING, "top_k = -1: must be greater than or equal to 0"),
        ({"top_p": 2} | SAMPLING, "top_p = 2: must be"),
        ({"top_p": 0} | SAMPLING, "top_p = 0: must be"),
        ({"seed": -1} | SAMPLING, "seed = -1: must be greater than or equal to 0"),
        ({"seed": 2**31} | SAMPLING, "seed = 2147483648: must be less"),
        ({"temperature": 0.5}, "temperature 0.5: only goes with sampling"),
        ({"top_k": 3}, "top_k 3: only goes with sampling"),
        ({"top_p": 0.9} | BEAM, "top_p 0.9: only goes with sampling"),
        ({"seed": 7} | BEAM, "seed 7: only goes with sampling"),
        (
            {"no_repeat_ngram": -1},
            "no_repeat_ngram = -1: must be greater than or equal to 0",
        ),
        ({"max_length": 0}, "max_length = 0: must be greater than or equal to 1"),
    ],
)
def test_what_cannot_be(options, message):
    with pytest.raises(UserError) as error:
        DecodingOptions(**options)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"beam_size": 4, "n_best": 4},
        {"beam_size": 2, "length_penalty": 0, "coverage_penalty": 0.2},
        {"sampling": True, "n_best": 9, "temperature": 0.1, "top_k": 1, "top_p": 1},
        {"sampling": True, "seed": 2**31 - 1, "top_p": 1e-6},
        {"max_length": 5, "no_repeat_ngram": 1},
    ],
)
def test_what_can_be(options):
    made = DecodingOptions(**options)
    assert {name: getattr(made, name) for name in options} == options


def test_options_do_not_change():
    with pytest.raises(ValidationError, match="frozen"):
        DecodingOptions().beam_size = 2
    assert hash(DecodingOptions(beam_size=2)) == hash(DecodingOptions(beam_size=2))


@pytest.mark.parametrize(
    ("options", "description"),
    [
        ({}, {"method": "greedy"}),
        ({"max_length": 2}, {"method": "greedy", "max_length": 2}),
        ({"beam_size": 4, "n_best": 1}, {"method": "beam", "beam_size": 4}),
        (
            {"sampling": True, "seed": 3},
            {"method": "sampling", "sampling": True, "seed": 3},
        ),
    ],
)
def test_description_is_what_differs_from_the_defaults(options, description):
    assert DecodingOptions(**options).describe() == description
    assert DecodingOptions.described(description) == DecodingOptions(**options)
