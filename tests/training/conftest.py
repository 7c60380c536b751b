"""Fixtures of training runs; see `training_runs`."""

import pytest
from training_runs import Shared, numbers, write_pairs

from tfxformer.training import trainer


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    return write_pairs(folder / "numbers.tsv", numbers(400))


@pytest.fixture(scope="module")
def mixture(tmp_path_factory):
    """Two corpora, of which the smaller one comes more often."""
    folder = tmp_path_factory.mktemp("mixture")
    pairs = numbers(500)
    return [
        write_pairs(folder / "numbers.tsv", pairs[:400]),
        write_pairs(folder / "more.tsv", pairs[400:]),
    ]


@pytest.fixture(scope="module")
def shared():
    return Shared()


@pytest.fixture
def quick(shared, monkeypatch):
    """`train` as `Shared` lets it."""
    shared.use(monkeypatch)


@pytest.fixture
def at_step(monkeypatch):
    """Makes something happen in the middle of given steps, once each."""

    def at_step(steps, happens):
        real = trainer._Trainer._step
        left = {*steps}

        def step(self, number, batches):
            found = real(self, number, batches)
            if number in left:
                left.remove(number)
                happens()
            return found

        monkeypatch.setattr(trainer._Trainer, "_step", step)

    return at_step
