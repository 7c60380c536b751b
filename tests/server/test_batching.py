"""Concurrent requests joined into calls of the model, with a model that is made up."""

import asyncio
import itertools
import random
import threading

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.meta_graph_pb2 import SignatureDef

from tfxformer.server.batching import Batcher
from tfxformer.server.errors import ServingError
from tfxformer.server.metrics import Metrics
from tfxformer.server.tensors import Signature


def make_signature(name="double", shape=(-1,)):
    definition = SignatureDef()
    for side in (definition.inputs["x"], definition.outputs["y"]):
        side.dtype = tf.int64.as_datatype_enum
        for size in shape:
            side.tensor_shape.dim.add(size=size)
    return Signature(name, definition)


BY_ROW, WIDE = make_signature(), make_signature("wide", (-1, -1))


class Doubler:
    """Doubles numbers; its calls wait until they are let through."""

    name = "doubler"

    def __init__(self, free=True):
        self.calls, self.free = [], threading.Event()
        self.bad, self.most, self.now = None, 0, 0
        if free:
            self.free.set()

    def run(self, signature, inputs):
        self.calls.append(inputs["x"].tolist())
        self.now += 1
        self.most = max(self.most, self.now)
        assert self.free.wait(20)
        self.now -= 1
        if self.bad is not None and self.bad in inputs["x"]:
            raise tf.errors.InvalidArgumentError(None, None, f"{self.bad} is bad")
        return {"y": 2 * inputs["x"]}


def run(scenario, model=None, **settings):
    """Runs a coroutine function of a batcher and a model in an event loop."""
    model = model or Doubler(free=False)
    given = {"threads": 1, "max_batch": 8, "wait": 0, "max_waiting": 100}
    given = {**given, "max_elements": 1000, **settings}

    async def main():
        batcher = Batcher(Metrics(), **given)
        batcher.start()
        try:
            await asyncio.wait_for(scenario(batcher, model), 30)
        finally:
            model.free.set()
            await batcher.stop()
        assert batcher._waiting == 0 and not batcher._queues

    asyncio.run(main())
    return model.calls


def ask(batcher, model, *numbers, signature=BY_ROW):
    inputs = {"x": np.array(numbers, "int64")}
    return asyncio.ensure_future(batcher.run(model, signature, inputs))


async def until(condition):
    while not condition():
        await asyncio.sleep(0.001)


async def busy(batcher, model):
    """Has the model answer something, until it is set free."""
    first = ask(batcher, model, -1)
    await until(lambda: model.calls)
    return first


async def answers(tasks):
    return [(await task)["y"].tolist() for task in tasks]


def test_who_waits_is_answered_together():
    async def scenario(batcher, model):
        await busy(batcher, model)
        tasks = [ask(batcher, model, i, i + 100) for i in range(4)]
        await asyncio.sleep(0)
        model.free.set()
        assert await answers(tasks) == [[2 * i, 2 * i + 200] for i in range(4)]

    assert run(scenario) == [[-1], [0, 100, 1, 101, 2, 102, 3, 103]]


def test_the_first_waits_for_others():
    async def scenario(batcher, model):
        tasks = [ask(batcher, model, 1)]
        await asyncio.sleep(0.01)
        tasks.append(ask(batcher, model, 2))
        assert await answers(tasks) == [[2], [4]]

    assert run(scenario, Doubler(), wait=0.3) == [[1, 2]]


def test_a_full_batch_does_not_wait():
    async def scenario(batcher, model):
        tasks = [ask(batcher, model, *range(8))]
        assert await answers(tasks) == [[*range(0, 16, 2)]]

    run(scenario, Doubler(), wait=1000)


def test_a_large_request_goes_in_pieces_and_lets_small_ones_through():
    async def scenario(batcher, model):
        await busy(batcher, model)
        large = ask(batcher, model, *range(1000, 1040))
        small = [ask(batcher, model, i) for i in range(3)]
        await asyncio.sleep(0)
        model.free.set()
        assert await answers(small) == [[0], [2], [4]]
        assert not large.done()  # they did not wait for it
        assert await answers([large]) == [[*range(2000, 2080, 2)]]

    calls = run(scenario)
    assert all(len(call) <= 8 for call in calls)
    # Each has its share of the next call, and the large one what is left.
    assert calls[1] == [1000, 1001, 1002, 1003, 1004, 0, 1, 2]
    assert [*itertools.chain(*calls[2:])] == [*range(1005, 1040)]


def test_shapes_that_do_not_fit_are_apart():
    fixed = make_signature("fixed", (-1, 3))
    object.__setattr__(fixed.inputs["x"], "shape", (None, None))

    async def scenario(batcher, model):
        await busy(batcher, model)
        tasks = [
            ask(batcher, model, *rows, signature=fixed)
            for rows in ([[1, 2]], [[3]], [[4, 5]])
        ]
        await asyncio.sleep(0)
        model.free.set()
        assert await answers(tasks) == [[[2, 4]], [[6]], [[8, 10]]]

    calls = run(scenario)
    assert sorted(calls[1:]) == [[[1, 2], [4, 5]], [[3]]]


def test_answers_that_neighbours_would_widen_are_apart():
    async def scenario(batcher, model):
        await busy(batcher, model)
        tasks = [ask(batcher, model, [i], signature=WIDE) for i in range(3)]
        await asyncio.sleep(0)
        model.free.set()
        assert await answers(tasks) == [[[2 * i]] for i in range(3)]
        with pytest.raises(
            ServingError, match=r"larger than maximum .* 8 of signature"
        ):
            await ask(batcher, model, *[[1]] * 9, signature=WIDE)

    assert run(scenario)[1:] == [[[0]], [[1]], [[2]]]


def test_nothing_is_answered_too():
    async def scenario(batcher, model):
        assert await answers([ask(batcher, model)]) == [[]]

    assert run(scenario, Doubler()) == [[]]


def test_who_is_to_blame_fails_alone():
    async def scenario(batcher, model):
        model.bad = 3
        await busy(batcher, model)
        tasks = [ask(batcher, model, i) for i in range(6)]
        await asyncio.sleep(0)
        model.free.set()
        for i, task in enumerate(tasks):
            if i == 3:
                with pytest.raises(ServingError, match="3 is bad") as caught:
                    await task
                assert caught.value.code == "INVALID_ARGUMENT"
            else:
                assert (await task)["y"].tolist() == [2 * i]

    run(scenario)


def test_a_large_request_of_which_a_piece_fails_is_not_finished():
    async def scenario(batcher, model):
        model.bad = 9
        await busy(batcher, model)
        task = ask(batcher, model, *range(80))
        await asyncio.sleep(0)
        model.free.set()
        with pytest.raises(ServingError, match="9 is bad"):
            await task
        assert await answers([ask(batcher, model, 1)]) == [[2]]

    assert len(run(scenario)) <= 5


def test_a_mistake_in_the_model_is_told_without_details(caplog):
    class Broken(Doubler):
        def run(self, signature, inputs):
            raise KeyError("secret")

    async def scenario(batcher, model):
        for _ in range(2):  # and the worker lives on
            with pytest.raises(ServingError) as caught:
                await ask(batcher, model, 1)
            assert caught.value.code == "INTERNAL"
            assert "secret" not in caught.value.message

    run(scenario, Broken())


def test_a_model_that_is_not_answered_by_row_after_all_is_found_out():
    class Summer(Doubler):
        def run(self, signature, inputs):
            return {"y": np.sum(inputs["x"], keepdims=True)}

    async def scenario(batcher, model):
        with pytest.raises(ServingError) as caught:
            await ask(batcher, model, 1, 2)
        assert caught.value.code == "INTERNAL"

    run(scenario, Summer())


def test_more_than_may_wait_is_refused_and_room_comes_back():
    async def scenario(batcher, model):
        first = await busy(batcher, model)
        tasks = [ask(batcher, model, *range(50)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(ServingError, match=r"queue .* is full") as caught:
            await ask(batcher, model, 1)
        assert (caught.value.code, caught.value.http_status) == ("UNAVAILABLE", 503)
        model.free.set()
        assert await answers([first, *tasks]) == [[-2], *[[*range(0, 100, 2)]] * 2]
        assert await answers([ask(batcher, model, 1)]) == [[2]]

    run(scenario)


def test_who_has_gone_costs_nothing_more():
    async def scenario(batcher, model):
        await busy(batcher, model)
        tasks = [ask(batcher, model, *range(i, i + 30)) for i in (0, 1000)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.sleep(0)
        assert batcher._waiting == 30
        model.free.set()
        assert await answers([tasks[1]]) == [[*range(2000, 2060, 2)]]

    calls = run(scenario)
    assert all(x == -1 or x >= 1000 for x in itertools.chain(*calls))


def test_a_large_request_that_goes_halfway_is_not_finished():
    async def scenario(batcher, model):
        task = ask(batcher, model, *range(80))
        await until(lambda: model.calls)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        model.free.set()
        assert await answers([ask(batcher, model, 1)]) == [[2]]

    assert run(scenario) == [[*range(8)], [1]]


def test_as_many_calls_at_once_as_there_are_threads():
    async def scenario(batcher, model):
        tasks = [ask(batcher, model, *range(8)) for _ in range(6)]
        await until(lambda: model.now == 2)
        await asyncio.sleep(0.05)
        model.free.set()
        await answers(tasks)
        assert model.most == 2

    run(scenario, threads=2)


def test_models_take_turns():
    """One that is asked a lot does not keep the other waiting."""
    other = Doubler()

    async def scenario(batcher, model):
        await busy(batcher, model)
        much = ask(batcher, model, *range(80))
        little = ask(batcher, other, 5)
        await asyncio.sleep(0)
        model.free.set()
        assert await answers([little]) == [[10]]
        assert not much.done()
        await much

    run(scenario)


def test_an_answer_that_is_too_large_is_refused():
    async def scenario(batcher, model):
        with pytest.raises(ServingError, match="ask for fewer rows at once"):
            await ask(batcher, model, *[[0] * 300] * 4, signature=WIDE)

    run(scenario, Doubler())


def test_who_still_waits_at_the_end_is_told():
    async def scenario(batcher, model):
        await busy(batcher, model)
        task = ask(batcher, model, 1)
        await asyncio.sleep(0)
        stopping = asyncio.ensure_future(batcher.stop())
        with pytest.raises(ServingError, match="the server stops"):
            await task
        await stopping

    run(scenario)


def test_order_holds_for_any_mixture():
    """Thousands of rows in requests of all sizes, some of which go: no row is lost."""
    rng = np.random.default_rng(0)

    async def scenario(batcher, model):
        tasks, expected = [], []
        for i in range(200):
            numbers = rng.integers(0, 1000, rng.integers(1, 30))
            tasks.append(ask(batcher, model, *numbers))
            expected.append((2 * numbers).tolist())
            await asyncio.sleep(0)
            if i == 100:  # until now they all wait
                for gone in range(0, 100, 10):
                    tasks[gone].cancel()
                model.free.set()
            if rng.random() < 0.3:
                await asyncio.sleep(0.001)
        found = await asyncio.gather(*tasks, return_exceptions=True)
        gone = [isinstance(x, asyncio.CancelledError) for x in found]
        assert [i for i, x in enumerate(gone) if x] == [*range(0, 100, 10)]
        for answer, right, cancelled in zip(found, expected, gone, strict=True):
            assert cancelled or answer["y"].tolist() == right

    run(scenario, threads=2, max_waiting=10**5)


@pytest.mark.parametrize("seed", range(10))
def test_who_comes_while_others_go_is_not_forgotten(seed):
    """Clients that ask and give up, each as fast as it can: none waits for ever."""
    rng = random.Random(seed)

    async def client(batcher, model):
        for _ in range(60):
            numbers = [rng.randrange(1000) for _ in range(rng.randint(1, 3))]
            task = ask(batcher, model, *numbers)
            if rng.random() < 0.5:
                for _ in range(rng.randrange(4)):
                    await asyncio.sleep(0)
                task.cancel()
            else:
                answer = await asyncio.wait_for(task, 20)
                assert answer["y"].tolist() == [2 * x for x in numbers]

    async def scenario(batcher, model):
        await asyncio.gather(*[client(batcher, model) for _ in range(3)])

    run(scenario, Doubler())
