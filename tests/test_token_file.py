"""The token file gives back each pair that is short enough, and notices damage."""

import numpy as np
import pytest
from id_pairs import make_rows, write

from tfxformer.errors import UserError
from tfxformer.token_file import TokenFile


def read(tokens, numbers):
    """The pairs of ids with some numbers."""
    sides = tokens.pairs(np.array(numbers)).to_lists(slice(None))
    return [*zip(map(tuple, sides[::2]), map(tuple, sides[1::2]), strict=True)]


def test_a_token_file_counts_too_long_pairs_and_keeps_its_sources_apart(tmp_path):
    rows = make_rows(3000)
    short = [row for row in rows if max(map(len, row)) < 20]
    tokens = write(tmp_path, rows, rows[:7], max_length=20)
    assert tokens.sources[0]["pairs"] == len(short)
    assert tokens.sources[0]["too_long"] == 3000 - len(short)
    same, other = (write(tmp_path / x, rows[: 7 + i]) for i, x in enumerate("ab"))
    digests = [each.sources[-1]["digest"] for each in (tokens, same, other)]
    assert digests[0] == digests[1] != digests[2]
    opened = TokenFile(tmp_path)
    assert read(opened, range(len(opened)))[: len(short)] == short
    assert read(opened, [5, 2, 5]) == [short[5], short[2], short[5]]


@pytest.mark.parametrize("name", ["tokens.json", "lengths.bin", "ids.bin"])
def test_a_damaged_token_file_raises_a_one_line_error(name, tmp_path):
    write(tmp_path, make_rows(9))
    content = (tmp_path / name).read_bytes()
    for damaged in (content[:-2], b""):
        (tmp_path / name).write_bytes(damaged)
        with pytest.raises(UserError, match=r"^\S+: damaged; delete this folder$"):
            TokenFile(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(OSError, match=name):
        TokenFile(tmp_path)
