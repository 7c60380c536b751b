"""Requests that come together are answered by one call of the model.

Each signature of each version has a queue while requests wait in it. A thread runs the
models, so a queue grows while the model is busy, and its next call takes more rows.
"""

import asyncio
import collections
import logging
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.error_codes_pb2 import Code

from tfxformer.server import ServingError, invalid

log = logging.getLogger("tfxformer")
_THREAD = "tfxformer-model"


@dataclass(eq=False)
class _Request:
    """Rows that wait for a call."""

    inputs: dict
    rows: int
    answer: asyncio.Future = field(default_factory=lambda: asyncio.Future())
    since: float = field(default_factory=time.monotonic)


class Batcher:
    """Joins requests and calls the models, for `local.Settings` and `Metrics`."""

    def __init__(self, settings, metrics):
        self._settings, self._metrics = settings, metrics
        self._waiting, self._queues = 0, {}
        self._workers = set()  # or nothing would hold the tasks
        self._thread = ThreadPoolExecutor(1, _THREAD)

    async def run(self, model, signature, inputs):
        """Answers one request.

        Many rows make several calls, between which small requests are answered.

        Args:
            model: The model's name.
            signature: A `models.Signature`.
            inputs: Arrays by input name.

        Returns:
            Arrays by output name.

        Raises:
            ServingError: If the request is too large, if too many rows wait already,
                or if the model fails.
        """
        sizes = {len(array) if array.ndim else 1 for array in inputs.values()}
        rows, most = max(sizes), self._settings.max_batch
        joined = signature.by_row and len(sizes) == 1 and rows > 0
        limit = self._settings.max_waiting if joined else most
        if rows > limit:
            message = f"Task size {rows} is larger than maximum input batch size"
            raise invalid(f"{message} {limit}")
        if self._waiting + rows > self._settings.max_waiting:
            message = (
                "The batch scheduling queue to which this task was submitted is full"
            )
            raise ServingError("UNAVAILABLE", message)
        self._count(rows)
        try:
            if not joined:
                return await self._call(model, signature, inputs, rows)
            parts = []
            for start in range(0, rows, most):
                part = {x: array[start : start + most] for x, array in inputs.items()}
                parts.append(await self._wait(model, signature, part))
            return {x: np.concatenate([part[x] for part in parts]) for x in parts[0]}
        finally:
            self._count(-rows)

    def _count(self, rows):
        self._waiting += rows
        self._metrics.waiting_rows.set(self._waiting)

    async def _wait(self, model, signature, inputs):
        """Puts a request in its queue, and waits for its answer."""
        shapes = tuple(inputs[name].shape[1:] for name in signature.inputs)
        request = _Request(inputs, len(next(iter(inputs.values()))))
        key = (signature, shapes)
        if key in self._queues:
            self._queues[key].append(request)
        else:
            self._queues[key] = collections.deque([request])
            worker = asyncio.create_task(self._work(key, model))
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)
        return await request.answer

    async def _work(self, key, model):
        """Answers the requests of a queue until it is empty."""
        queue, most = self._queues[key], self._settings.max_batch
        while queue:
            if sum(request.rows for request in queue) < most:
                waited = time.monotonic() - queue[0].since
                await asyncio.sleep(self._settings.batch_wait / 1000 - waited)
            batch, rows = [], 0
            while queue and rows + queue[0].rows <= most:
                request = queue.popleft()
                if not request.answer.done():  # or its client is gone
                    batch.append(request)
                    rows += request.rows
                    waited = time.monotonic() - request.since
                    self._metrics.queuing.labels(_THREAD).observe(1e6 * waited)
            if batch:
                await self._answer(model, key[0], batch)
        del self._queues[key]

    async def _answer(self, model, signature, batch):
        """Answers requests by one call; if it fails, by a call for each."""
        rows = sum(request.rows for request in batch)
        inputs = {
            name: np.concatenate([request.inputs[name] for request in batch])
            for name in signature.inputs
        }
        try:
            outputs = await self._call(model, signature, inputs, rows)
        except ServingError as error:
            if len(batch) > 1:
                for request in batch:
                    await self._answer(model, signature, [request])
            elif not batch[0].answer.done():
                batch[0].answer.set_exception(error)
            return
        start = 0
        for request in batch:
            end = start + request.rows
            if not request.answer.done():
                part = {name: array[start:end] for name, array in outputs.items()}
                request.answer.set_result(part)
            start = end

    async def _call(self, model, signature, inputs, rows):
        """Runs the model in its thread."""
        self._metrics.batch_rows.labels(model).observe(rows)
        start, loop = time.perf_counter(), asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, signature, inputs)
        except Exception as error:
            raise as_serving_error(error) from None
        finally:
            runtime = self._metrics.runtime.labels(model, "predict", "TF")
            runtime.observe(1e6 * (time.perf_counter() - start))


def as_serving_error(error):
    """A `ServingError` for any exception.

    TensorFlow's errors keep their code and their reason, without the stack and the
    names of the graph's nodes. The log has the rest of other errors.

    Example:
        >>> as_serving_error(tf.errors.NotFoundError(None, None, "no")).code
        'NOT_FOUND'
    """
    if isinstance(error, ServingError):
        return error
    if not isinstance(error, tf.errors.OpError):
        log.error("unexpected error", exc_info=error)
        return ServingError("INTERNAL", "internal error; see the server's log")
    reason = re.split(r"\[\[|\[Op:", str(error.message))[0]
    above = r"\s*(Graph execution error:|<stack traces|Detected at node|File \")"
    lines = [line for line in reason.splitlines() if not re.match(above, line)]
    return ServingError(Code.Name(error.error_code), " ".join(lines) or "failed")
