"""Concurrent requests joined into calls of the model, with a model that is made up."""

import asyncio
import collections
import itertools
import threading

import numpy as np
import pytest
import tensorflow as tf

from tfxformer.server import ServingError
from tfxformer.server.batching import Batcher, as_serving_error
from tfxformer.server.settings import ServerSettings


class Doubler:
    """A signature that doubles numbers; its calls wait until they are let through."""

    model, inputs = "m", ("x",)

    def __init__(self, by_row=True, bad=None):
        self.queue, self.worker = collections.deque(), None
        self.by_row, self.bad = by_row, bad
        self.calls, self.free = [], threading.Event()

    def __call__(self, inputs):
        self.calls.append(inputs["x"].tolist())
        assert self.free.wait(20)
        if self.bad is not None and self.bad in inputs["x"]:
            raise tf.errors.InvalidArgumentError(None, None, f"{self.bad} is bad")
        return {"y": 2 * inputs["x"]}


def run(scenario, model=None, busy=True, **settings):
    """Runs a scenario while the model answers one request; returns the later calls."""
    model = model or Doubler()
    settings = {"max_batch": 8, "batch_wait": 0, "max_waiting": 100, **settings}

    async def main():
        batcher = Batcher(ServerSettings(**settings))

        def ask(*numbers, of=model):
            inputs = {"x": np.array(numbers, "int64")}
            return asyncio.ensure_future(batcher.run(of, inputs))

        first = ask(-1) if busy else None
        while busy and not model.calls:
            await asyncio.sleep(0.001)
        await asyncio.wait_for(scenario(ask, model), 30)
        model.free.set()
        if first:
            await first
        assert batcher._waiting == 0 and not model.queue

    asyncio.run(main())
    return model.calls[busy:]


async def answers(tasks):
    return [(await task)["y"].tolist() for task in tasks]


def test_requests_that_wait_are_answered_together():
    async def scenario(ask, model):
        tasks = [ask(i, i + 100) for i in range(4)]
        await asyncio.sleep(0)
        model.free.set()
        assert await answers(tasks) == [[2 * i, 2 * i + 200] for i in range(4)]

    assert run(scenario) == [[0, 100, 1, 101, 2, 102, 3, 103]]


def test_a_large_request_makes_several_calls_with_small_ones_between():
    async def scenario(ask, model):
        large = ask(*range(1000, 1040))
        small = [ask(i) for i in range(3)]
        await asyncio.sleep(0)
        model.free.set()
        await answers(small)
        assert not large.done()
        assert await answers([large]) == [[*range(2000, 2080, 2)]]

    calls = run(scenario)
    assert all(len(call) <= 8 for call in calls)


def test_what_neighbours_would_widen_is_answered_alone():
    wide = Doubler(by_row=False)

    async def scenario(ask, model):
        wide.free.set()
        model.free.set()
        tasks = [ask([i], of=wide) for i in range(3)]
        assert await answers(tasks) == [[[2 * i]] for i in range(3)]
        with pytest.raises(ServingError, match=r"larger than maximum .* 8"):
            await ask(*[[1]] * 9, of=wide)

    run(scenario)
    assert wide.calls == [[[0]], [[1]], [[2]]]


def test_a_request_that_fails_fails_alone():
    async def scenario(ask, model):
        tasks = [ask(i) for i in range(6)]
        await asyncio.sleep(0)
        model.free.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert str(found[3]) == "3 is bad" and found[3].code == "INVALID_ARGUMENT"
        assert [x["y"].tolist() for x in found if x is not found[3]] == [
            [2 * i] for i in range(6) if i != 3
        ]

    run(scenario, Doubler(bad=3))


def test_more_than_may_wait_is_refused():
    async def scenario(ask, model):
        tasks = [ask(*range(45)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(ServingError, match=r"queue .* is full") as caught:
            await ask(*range(20))
        assert caught.value.code == "UNAVAILABLE"
        with pytest.raises(ServingError, match="Task size 101 is larger"):
            await ask(*range(101))
        model.free.set()
        await answers(tasks)
        assert await answers([ask(1)]) == [[2]]

    run(scenario)


def test_requests_whose_clients_are_gone_are_not_answered():
    async def scenario(ask, model):
        tasks = [ask(*range(i, i + 30)) for i in (0, 1000)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.sleep(0)
        model.free.set()
        assert await answers([tasks[1]]) == [[*range(2000, 2060, 2)]]

    assert all(x >= 1000 for x in itertools.chain(*run(scenario)))


def test_no_row_is_lost_in_any_mixture():
    rng = np.random.default_rng(0)

    async def scenario(ask, model):
        tasks, expected = [], []
        for i in range(100):
            numbers = rng.integers(0, 1000, rng.integers(1, 30))
            tasks.append(ask(*numbers))
            expected.append((2 * numbers).tolist())
            await asyncio.sleep(0.001 * (rng.random() < 0.3))
            if i == 50:  # until now they all wait
                for gone in range(0, 50, 10):
                    tasks[gone].cancel()
                model.free.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        for i, (answer, right) in enumerate(zip(found, expected, strict=True)):
            if i < 50 and i % 10 == 0:
                assert isinstance(answer, asyncio.CancelledError)
            else:
                assert answer["y"].tolist() == right

    run(scenario, max_waiting=10**5)


def test_tensorflow_s_errors_keep_their_reason_alone():
    message = (
        "Graph execution error:\n\nDetected at node 'x' defined at (most recent call "
        "last):\n<stack traces unavailable>\nassertion failed: [too bad]\n\t [[{{node "
        "a/b}}]] [Op:__inference_signature_wrapper_1]"
    )
    error = as_serving_error(tf.errors.ResourceExhaustedError(None, None, message))
    assert error.message == "assertion failed: [too bad]"
    assert error.code == "RESOURCE_EXHAUSTED"


def test_unexpected_errors_are_not_told():
    error = as_serving_error(KeyError("secret"))
    assert error.code == "INTERNAL" and "secret" not in error.message
