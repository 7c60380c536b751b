"""Batching: one call of the model answers several requests.

Each signature of each version has a queue. One thread runs the models, so a queue grows
while a model is busy, and the next call takes more rows.
"""

import asyncio
import logging
import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.error_codes_pb2 import Code

from tfxformer.server import ServingError, invalid, metrics

log = logging.getLogger("tfxformer")
_THREAD = "tfxformer-model"


class _Request(NamedTuple):
    """Rows waiting for a call."""

    inputs: dict
    rows: int
    since: float
    answer: asyncio.Future


class Batcher:
    """Joins requests and calls the models, by the `ServerSettings`."""

    def __init__(self, settings):
        self._settings, self._waiting = settings, 0
        metrics.WAITING_ROWS.set_function(lambda: self._waiting)
        self._thread = ThreadPoolExecutor(1, _THREAD)

    async def run(self, signature, inputs):
        """Answers one request: arrays by output name for arrays by input name.

        A large request takes several calls, so that small ones need not wait for it.
        """
        sizes = {len(array) if array.ndim else 1 for array in inputs.values()}
        rows, most = max(sizes, default=1), self._settings.max_batch
        joined = signature.rows_independent or self._settings.enable_batching
        joined = joined and signature.by_row and len(sizes) == 1 and rows > 0
        limit = self._settings.max_waiting if joined else most
        if rows > limit:
            raise invalid(f"Task size {rows} is larger than the maximum, {limit}")
        if self._waiting + rows > self._settings.max_waiting:
            raise ServingError("UNAVAILABLE", "The batch scheduling queue is full")
        self._waiting += rows
        try:
            if not joined:
                return await self._call(signature, inputs, rows)
            parts = []
            for start in range(0, rows, most):
                part = {x: array[start : start + most] for x, array in inputs.items()}
                size, now = min(most, rows - start), time.monotonic()
                request = _Request(part, size, now, asyncio.Future())
                signature.queue.append(request)
                if signature.worker is None or signature.worker.done():
                    signature.worker = asyncio.create_task(self._work(signature))
                parts.append(await request.answer)
            return {x: np.concatenate([part[x] for part in parts]) for x in parts[0]}
        finally:
            self._waiting -= rows

    async def _work(self, signature):
        """Answers the requests in a queue until it is empty."""
        queue, most = signature.queue, self._settings.max_batch
        while queue:
            if sum(request.rows for request in queue) < most:
                waited = time.monotonic() - queue[0].since
                await asyncio.sleep(self._settings.batch_wait / 1000 - waited)
            batch, rows = [], 0
            while queue and rows + queue[0].rows <= most:
                request = queue.popleft()
                if not request.answer.done():  # otherwise its client is gone
                    batch.append(request)
                    rows += request.rows
                    waited = time.monotonic() - request.since
                    metrics.QUEUING.labels(_THREAD).observe(1e6 * waited)
            if batch:
                await self._answer(signature, batch)

    async def _answer(self, signature, batch):
        """Answers requests with one call; if it fails, with one call for each."""
        ends = np.cumsum([request.rows for request in batch])
        inputs = {
            name: np.concatenate([request.inputs[name] for request in batch])
            for name in signature.inputs
        }
        try:
            outputs = await self._call(signature, inputs, ends[-1])
        except ServingError as error:
            if len(batch) > 1:
                for request in batch:
                    await self._answer(signature, [request])
            elif not batch[0].answer.done():
                batch[0].answer.set_exception(error)
            return
        for request, end in zip(batch, ends, strict=True):
            rows = slice(end - request.rows, end)
            if not request.answer.done():
                request.answer.set_result({x: y[rows] for x, y in outputs.items()})

    async def _call(self, signature, inputs, rows):
        """Runs the model in its thread."""
        metrics.BATCH_ROWS.labels(signature.model).observe(rows)
        runtime = metrics.RUNTIME.labels(signature.model, "predict", "TF")
        start, loop = time.perf_counter(), asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, signature, inputs)
        except Exception as error:
            raise as_serving_error(error) from None
        finally:
            runtime.observe(1e6 * (time.perf_counter() - start))


def as_serving_error(error):
    """A `ServingError` for any exception.

    TensorFlow's errors keep their code and reason; only the log has details of others.
    """
    if isinstance(error, ServingError):
        return error
    if not isinstance(error, tf.errors.OpError):
        log.error("unexpected error", exc_info=error)
        return ServingError("INTERNAL", "internal error; see the server's log")
    around = r"(Graph execution error:|<stack traces|Detected at node|File \").*"
    reason = re.sub(rf"{around}|(?s:(\[\[|\[Op:).*)", "", str(error.message))
    return ServingError(Code.Name(error.error_code), reason.strip() or "failed")
