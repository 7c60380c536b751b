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
_MICROSECONDS = [10 * 1.8**i for i in range(33)]
_ROWS = [2**i for i in range(11)]
_SERVING = ":tensorflow:serving:"
_BATCHING = ":tensorflow:serving:batching_session:"
_LOADS = ":tensorflow:cc:saved_model:load_attempt_count"
_REQUEST = ["model_name", "API", "entrypoint"]
prometheus_client.disable_created_metrics()


class Metrics:
    """One server's metrics.

    Example:
        >>> metrics = Metrics()
        >>> with metrics.request("pt_en", "predict", "REST"):
        ...     pass
        >>> ':request_count{API="predict",' in metrics.page().decode()
        True
    """

    def __init__(self):
        self._registry = prometheus_client.CollectorRegistry()
        prometheus_client.ProcessCollector(registry=self._registry)
        to = {"registry": self._registry}
        times = {**to, "buckets": _MICROSECONDS}

        name, text = _SERVING + "request_count", "Requests."
        self._requests = Counter(name, text, [*_REQUEST, "status"], **to)
        name, text = _SERVING + "request_latency", "Microseconds to answer a request."
        self._latency = Histogram(name, text, _REQUEST, **times)
        name, text = _SERVING + "runtime_latency", "Microseconds of a model's call."
        labels = ["model_name", "API", "runtime"]
        self.runtime = Histogram(name, text, labels, **times)
        name, text = _BATCHING + "processed_batch_size", "Rows of a model's call."
        self.batch_rows = Histogram(name, text, ["model_name"], **to, buckets=_ROWS)
        name, text = _BATCHING + "queuing_latency", "Microseconds until the call."
        self.queuing = Histogram(name, text, ["thread_pool_name"], **times)
        labels = ["model_path", "status"]
        self.loads = Counter(_LOADS, "Loads of a version.", labels, **to)
        name, text = "tfxformer_waiting_rows", "Rows that are not answered yet."
        self.waiting_rows = Gauge(name, text, **to)
        name, text = "tfxformer_loaded_version", "1 for each version that is served."
        self.loaded = Gauge(name, text, ["model_name", "version"], **to)

    @contextlib.contextmanager
    def request(self, model, api, entrypoint):
        """Counts what happens inside as one request.

        Args:
            model: The model's name; "" for an unknown one, or clients could make up
                any number of names.
            api: In TensorFlow Serving's spelling, "Predict" by gRPC, "predict" by REST.
            entrypoint: "GRPC" or "REST".
        """
        start, status = time.perf_counter(), "INTERNAL"
        try:
            yield
            status = "OK"
            microseconds = 1e6 * (time.perf_counter() - start)
            self._latency.labels(model, api, entrypoint).observe(microseconds)
        except ServingError as error:
            status = error.code
            raise
        finally:
            self._requests.labels(model, api, entrypoint, status).inc()

    def page(self):
        """The page that Prometheus reads, bytes."""
        page = prometheus_client.generate_latest(self._registry)
        # The library's counters end in _total, TensorFlow Serving's do not.
        for name in (b":request_count", b":load_attempt_count"):
            page = page.replace(name + b"_total", name)
        return page
