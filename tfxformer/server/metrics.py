"""Metrics for Prometheus, under TensorFlow Serving's names where it has the same.

So one dashboard fits both. This server's own metrics begin with ``tfxformer_``.
"""

import contextlib
import functools
import time

import prometheus_client
from prometheus_client import Counter, Gauge, Histogram

from tfxformer.server import ServingError

PATH = "/monitoring/prometheus/metrics"
_SERVING = ":tensorflow:serving:"
_BATCHING = _SERVING + "batching_session:"
_LOADS = ":tensorflow:cc:saved_model:load_attempt_count"
_REQUEST = ("model_name", "API", "entrypoint")
# Microseconds, from 10 to 20 minutes, as in TensorFlow Serving.
_Times = functools.partial(Histogram, buckets=[10 * 1.8**i for i in range(33)])
_Rows = functools.partial(Histogram, buckets=[2**i for i in range(11)])
prometheus_client.disable_created_metrics()

REQUESTS = Counter(_SERVING + "request_count", "Requests.", [*_REQUEST, "status"])
LATENCY = _Times(_SERVING + "request_latency", "Time to answer a request.", _REQUEST)
RUNTIME = _Times(
    _SERVING + "runtime_latency", "Time of a call.", ["model_name", "API", "runtime"]
)
BATCH_ROWS = _Rows(_BATCHING + "processed_batch_size", "Rows of a call.", _REQUEST[:1])
QUEUING = _Times(_BATCHING + "queuing_latency", "Time to a call.", ["thread_pool_name"])
LOADS = Counter(_LOADS, "Loads of a version.", ["model_path", "status"])
WAITING_ROWS = Gauge("tfxformer_waiting_rows", "Unanswered rows.")


@contextlib.contextmanager
def request(model, known, api, entrypoint):
    """A context that counts as one request to a model, by ``api`` "GRPC" or "REST".

    Clients could send any number of names, so unknown models count as "".
    """
    model = model if model in known else ""
    start, status = time.perf_counter(), "INTERNAL"
    try:
        yield
        status = "OK"
        microseconds = 1e6 * (time.perf_counter() - start)
        LATENCY.labels(model, api, entrypoint).observe(microseconds)
    except ServingError as error:
        status = error.code
        raise
    finally:
        REQUESTS.labels(model, api, entrypoint, status).inc()


def page():
    """The page for Prometheus, as bytes."""
    text = prometheus_client.generate_latest()
    # The library's counters end in _total, TensorFlow Serving's do not.
    return text.replace(b"_count_total", b"_count")
