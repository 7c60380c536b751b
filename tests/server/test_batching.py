"""Concurrent requests are joined into calls of the model; the model is a stand-in."""

import asyncio
import collections
import itertools
import threading

import numpy as np
import tensorflow as tf

from tfxformer.server import ServerSettings
from tfxformer.server.batching import Batcher, as_serving_error


class Doubler:
    """A signature that doubles numbers; its calls wait for the event `free`."""

    model, inputs, by_row, worker = "m", ("x",), True, None

    def __init__(self, rows_independent):
        self.rows_independent = rows_independent
        self.queue = collections.deque()
        self.calls, self.free = [], threading.Event()

    def __call__(self, inputs):
        self.calls.append(inputs["x"].tolist())
        assert self.free.wait(20)
        if 13 in inputs["x"]:
            raise tf.errors.InvalidArgumentError(None, None, "13 is bad")
        return {"y": 2 * inputs["x"]}


def run(requests, gone=(), rows_independent=True, **settings):
    """Sends requests, each a list of rows, while the model is busy with another.

    ``gone`` has the numbers of the requests whose clients leave before the answer.
    Returns the answer to each request, rows or an exception, and the model's calls.
    """
    model = Doubler(rows_independent)
    settings = ServerSettings(max_batch=8, batch_wait=0, max_waiting=100, **settings)

    async def main():
        batcher = Batcher(settings)

        async def ask(numbers):
            found = await batcher.run(model, {"x": np.array(numbers, "int64")})
            return found["y"].tolist()

        first = asyncio.create_task(ask([-1]))
        while not model.calls:
            await asyncio.sleep(0.001)
        tasks = [asyncio.create_task(ask(numbers)) for numbers in requests]
        await asyncio.sleep(0)
        for number in gone:
            tasks[number].cancel()
        model.free.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        await first
        assert batcher._waiting == 0 and not model.queue
        return found

    return asyncio.run(asyncio.wait_for(main(), 30)), model.calls[1:]


def test_waiting_requests_are_joined_into_one_call_of_the_model():
    found, calls = run([[1, 10], [2, 20], [3, 30], [4, 40]])
    assert found == [[2, 20], [4, 40], [6, 60], [8, 80]]
    assert calls == [[1, 10, 2, 20, 3, 30, 4, 40]]


def test_a_model_with_dependent_rows_gets_separate_calls_unless_batching_is_on():
    requests = [[1, 10], [2, 20]]
    _, calls = run(requests, rows_independent=False)
    assert sorted(calls) == requests
    _, calls = run(requests, rows_independent=False, enable_batching=True)
    assert calls == [[1, 10, 2, 20]]


def test_a_large_request_is_split_and_small_requests_run_between_its_parts():
    found, calls = run([[*range(1000, 1040)], [1], [2]])
    assert found == [[*range(2000, 2080, 2)], [2], [4]]
    assert all(len(call) <= 8 for call in calls)
    assert calls.index([1, 2]) < len(calls) - 1


def test_a_failing_request_does_not_fail_the_requests_joined_with_it():
    found, _ = run([[1], [13], [2]])
    assert found[0] == [2] and found[2] == [4]
    assert (found[1].code, str(found[1])) == ("INVALID_ARGUMENT", "13 is bad")
    error = as_serving_error(KeyError("secret"))  # only the log has it
    assert error.code == "INTERNAL" and "secret" not in str(error)


def test_requests_of_disconnected_clients_do_not_reach_the_model():
    found, calls = run([[*range(20)], [*range(100, 130)], [200]], gone=[0])
    assert isinstance(found[0], asyncio.CancelledError)
    assert found[1:] == [[*range(200, 260, 2)], [400]]
    assert min(itertools.chain(*calls)) >= 100
