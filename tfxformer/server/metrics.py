"""Metrics for Prometheus, with TensorFlow Serving's names where it has the same.

So one dashboard fits both. Names that begin with ``tfxformer_`` are this server's own.
"""

import contextlib
import time

import prometheus_client
from prometheus_client import Counter, Gauge, Histogram

from tfxformer.server import ServingError

PATH = "/monitoring/prometheus/metrics"
# Microseconds, from 10 to 20 minutes, as in TensorFlow Serving.
_TIMES = {"buckets": [10 * 1.8**i for i in range(33)]}
_SERVING = ":tensorflow:serving:"
_BATCHING = ":tensorflow:serving:batching_session:"
prometheus_client.disable_created_metrics()

_name, _text = _SERVING + "request_count", "Requests."
REQUESTS = Counter(_name, _text, ["model_name", "API", "entrypoint", "status"])
_name, _text = _SERVING + "request_latency", "Microseconds to answer a request."
LATENCY = Histogram(_name, _text, ["model_name", "API", "entrypoint"], **_TIMES)
_name, _text = _SERVING + "runtime_latency", "Microseconds of a model's call."
RUNTIME = Histogram(_name, _text, ["model_name", "API", "runtime"], **_TIMES)
_name, _text = _BATCHING + "processed_batch_size", "Rows of a model's call."
BATCH_ROWS = Histogram(_name, _text, ["model_name"], buckets=[2**i for i in range(11)])
_name, _text = _BATCHING + "queuing_latency", "Microseconds until the call."
QUEUING = Histogram(_name, _text, ["thread_pool_name"], **_TIMES)
_name, _text = ":tensorflow:cc:saved_model:load_attempt_count", "Loads of a version."
LOADS = Counter(_name, _text, ["model_path", "status"])
WAITING_ROWS = Gauge("tfxformer_waiting_rows", "Rows that are not answered yet.")


@contextlib.contextmanager
def request(model, api, entrypoint):
    """Counts what happens inside as one request, by "GRPC" or "REST".

    The model is "" if it is unknown, or clients could make up any number of names.
    """
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
    """The page that Prometheus reads, bytes."""
    text = prometheus_client.generate_latest()
    # The library's counters end in _total, TensorFlow Serving's do not.
    for name in (b":request_count", b":load_attempt_count"):
        text = text.replace(name + b"_total", name)
    return text
