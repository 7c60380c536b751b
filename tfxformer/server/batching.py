"""Requests that come together are answered by one call of the model.

A call takes whoever waits, up to a number of rows, so batches grow by themselves while
the model is busy. When more rows wait than fit, each request gets its fair share of the
next call: a request of a thousand rows is answered in pieces, between which the small
ones have their turn.
"""

import asyncio
import collections
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import tensorflow as tf

from tfxformer.server.errors import ServingError, from_tensorflow, invalid, unexpected

_POOL = "tfxformer-model"


@dataclass(eq=False)
class _Request:
    """Rows that wait for their answers.

    Args:
        servable: the model's version, which has `run`.
        signature: a `tensors.Signature`.
        inputs: arrays by input name.
        rows: how many; 1 for all of a request that has a call to itself.
        together: whether others may be in the same call, and a part of the rows.
        answer: a future of arrays by output name.
        since: when it came, in seconds.
        taken: how many rows a call has, or had.
        parts: the answers of rows, by the first row's number.
        answered: how many rows those are.
    """

    servable: object
    signature: object
    inputs: dict
    rows: int
    together: bool
    answer: asyncio.Future
    since: float = field(default_factory=time.monotonic)
    taken: int = 0
    parts: dict = field(default_factory=dict)
    answered: int = 0

    def fail(self, error):
        if not self.answer.done():
            self.answer.set_exception(error)

    def add(self, row, count, outputs):
        """Takes the answers of some rows; the last ones make it whole."""
        self.parts[row] = outputs
        self.answered += count
        if self.answered == self.rows and not self.answer.done():
            parts = [self.parts[row] for row in sorted(self.parts)]
            self.answer.set_result(
                parts[0]
                if len(parts) == 1
                else {x: np.concatenate([part[x] for part in parts]) for x in outputs}
            )


class Batcher:
    """Joins requests of the same version and signature, and asks the model.

    Args:
        metrics: `metrics.Metrics`.
        threads: calls of models at the same time.
        max_batch: the most rows of a call.
        wait: seconds that the first of a batch waits for others.
        max_waiting: the most rows that wait; more are refused.
        max_elements: the most numbers or strings of a call's answer.
    """

    def __init__(self, metrics, threads, max_batch, wait, max_waiting, max_elements):
        self._metrics = metrics
        self._threads = threads
        self._max_batch = max_batch
        self._wait = wait
        self._max_waiting = max_waiting
        self._max_elements = max_elements
        self._waiting = 0
        # Requests by what they have in common; no entry stays empty.
        self._queues = {}
        # Keys of queues, each to be looked at when its turn comes.
        self._turns = asyncio.Queue()
        self._pool = ThreadPoolExecutor(threads, _POOL)
        self._workers = []

    def start(self):
        """Begins to answer; inside a running event loop."""
        self._workers = [
            asyncio.create_task(self._work()) for _ in range(self._threads)
        ]

    async def stop(self):
        """Ends; who still waits is told so."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        for queue in self._queues.values():
            for request in queue:
                request.fail(ServingError("UNAVAILABLE", "the server stops"))
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def run(self, servable, signature, inputs):
        """Answers one request; cancelling it takes its waiting rows away.

        Args:
            servable: has a ``name``, and ``run(signature_name, inputs)``, which is
                called in a thread.
            signature: a `tensors.Signature`.
            inputs: arrays by input name, checked.

        Returns:
            Arrays by output name.

        Raises:
            ServingError: UNAVAILABLE when too many rows wait already; INVALID_ARGUMENT
                when the answer would be too large; what the model raised.
        """
        sizes = {array.shape[0] if array.ndim else None for array in inputs.values()}
        size = sizes.pop() if len(sizes) == 1 else None
        together = signature.by_row and bool(size)
        if not together and size and size > self._max_batch:
            raise invalid(
                f"Task size {size} is larger than maximum input batch size "
                f"{self._max_batch} of signature {signature.name}"
            )
        rows = size if together else 1
        if self._waiting + rows > self._max_waiting:
            raise ServingError(
                "UNAVAILABLE",
                "The batch scheduling queue to which this task was submitted is full",
            )
        answer = asyncio.get_running_loop().create_future()
        request = _Request(servable, signature, inputs, rows, together, answer)
        key = request
        if together:
            shapes = tuple(inputs[name].shape[1:] for name in signature.inputs)
            key = (servable, signature.name, shapes)
        queue = self._queues.setdefault(key, collections.deque())
        if not queue:
            self._turns.put_nowait(key)
        queue.append(request)
        self._count(rows)
        try:
            return await answer
        finally:  # what nobody waits for any more is not computed
            self._count(request.taken - request.rows)
            request.taken = request.rows
            self._remove(key, request)

    def _count(self, rows):
        self._waiting += rows
        self._metrics.waiting_rows.set(self._waiting)

    def _remove(self, key, request):
        queue = self._queues.get(key, ())
        if request in queue:
            queue.remove(request)
            if not queue:
                del self._queues[key]

    async def _work(self):
        while True:
            key = await self._turns.get()
            queue = self._queues.get(key)
            if queue and queue[0].together:
                rows = sum(request.rows - request.taken for request in queue)
                if rows < self._max_batch:
                    since = time.monotonic() - queue[0].since
                    await asyncio.sleep(self._wait - since)
            pieces = self._take(key)
            if pieces:
                await self._answer(pieces)

    def _take(self, key):
        """The next call's pieces: triples of request, first row and number of rows."""
        # Who has gone leaves the queue now: who came to a queue in which there is
        # nobody else would have no turn.
        for request in [*self._queues.get(key, ())]:
            if request.answer.done():
                self._remove(key, request)
        live = [*self._queues.get(key, ())]
        room = self._max_batch
        counts = dict.fromkeys(live, 0)
        # First each has its share, then who came first has what is left.
        for share in (max(1, room // max(1, len(live))), room):
            for request in live:
                count = request.rows - request.taken - counts[request]
                count = min(count, share, room)
                counts[request] += count
                room -= count
        pieces = []
        for request, count in counts.items():
            if not count:
                continue
            if not request.taken:
                waited = time.monotonic() - request.since
                self._metrics.queuing.labels(_POOL).observe(waited * 1e6)
            pieces.append((request, request.taken, count))
            request.taken += count
            self._count(-count)
            if request.taken == request.rows:
                self._remove(key, request)
        if key in self._queues:
            self._turns.put_nowait(key)
        return pieces

    async def _answer(self, pieces):
        try:
            outputs = await self._call(pieces)
            start = 0
            for request, row, count in pieces:
                part = outputs
                if request.together:
                    end = start + count
                    part = {name: x[start:end] for name, x in outputs.items()}
                    start = end
                request.add(row, count, part)
        except Exception as error:
            if len(pieces) == 1:
                known = isinstance(error, ServingError)
                pieces[0][0].fail(error if known else unexpected(error))
                return
            # One of them may be to blame: the others shall not pay for it.
            for piece in pieces:
                if not piece[0].answer.done():
                    await self._answer([piece])

    async def _call(self, pieces):
        """The model's answer to some pieces' rows, arrays by output name."""
        first = pieces[0][0]
        servable, signature, inputs = first.servable, first.signature, first.inputs
        if first.together:
            inputs = {
                name: np.concatenate(
                    [request.inputs[name][row : row + n] for request, row, n in pieces]
                )
                for name in signature.inputs
            }
        rows = {len(array) for array in inputs.values() if array.ndim}
        self._metrics.batch_rows.labels(servable.name).observe(max(rows, default=1))
        start = time.perf_counter()
        try:
            outputs = await asyncio.get_running_loop().run_in_executor(
                self._pool, servable.run, signature.name, inputs
            )
        except tf.errors.OpError as error:
            raise from_tensorflow(error) from None
        microseconds = (time.perf_counter() - start) * 1e6
        self._metrics.runtime.labels(servable.name, "predict", "TF").observe(
            microseconds
        )
        size = sum(array.size for array in outputs.values())
        if size > self._max_elements:
            raise invalid(
                f"the answer has {size} elements, more than the maximum of "
                f"{self._max_elements}: ask for fewer rows at once"
            )
        for name, array in outputs.items() if first.together else ():
            if {len(array)} != rows:
                raise ValueError(f"{name}: {len(array)} rows in answer to {rows}")
        return outputs
