"""Fixtures of training runs; see `training_runs`."""

import pytest
from training_runs import EVERYTHING, eagerly, numbers, outcome, settings, write_pairs

from tfxformer.training import callbacks
from tfxformer.training.trainer import train


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    return write_pairs(folder / "numbers.tsv", numbers(400))


@pytest.fixture(scope="session")
def mixture(corpus):
    """Settings of a run on two corpora, with every kind of state to save."""
    more = write_pairs(corpus.with_name("more.tsv"), numbers(500)[400:])
    return settings([corpus, more], EVERYTHING)


@pytest.fixture(scope="session")
def whole(mixture, tmp_path_factory):
    """The folder of such a run, which was never stopped."""
    with eagerly():
        return train(mixture, tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture(scope="session")
def expected(whole):
    return outcome(whole)


@pytest.fixture
def eager():
    with eagerly():
        yield


@pytest.fixture
def at_step(monkeypatch):
    """Calls a function at the end of given steps, once each."""

    def at_step(steps, happens):
        real, left = callbacks.RunCallback._report, {*steps}

        def report(self, last):
            real(self, last)
            if self.state.step in left:
                left.remove(self.state.step)
                happens()

        monkeypatch.setattr(callbacks.RunCallback, "_report", report)

    return at_step
