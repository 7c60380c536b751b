"""What is counted, for Prometheus.

Where TensorFlow Serving has a metric of the same meaning its name is used, so that one
dashboard fits both: `:tensorflow:serving:request_count`, `request_latency`,
`runtime_latency`, `batching_session:processed_batch_size` and `queuing_latency`, and
`:tensorflow:cc:saved_model:load_attempt_count`. `request_count` has two labels more:
API and entrypoint. What begins with `tfxformer_` is ours.
"""

import contextlib
import time

import prometheus_client
from prometheus_client import Counter, Gauge, Histogram

from tfxformer.server.errors import ServingError

PATH = "/monitoring/prometheus/metrics"
# Microseconds, from 10 to 20 minutes, as there.
_MICROSECONDS = [10 * 1.8**i for i in range(33)]
_ROWS = [2**i for i in range(11)]
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
        serving = ":tensorflow:serving:"
        self._requests = self._make(
            Counter,
            serving + "request_count",
            "The total number of requests.",
            ["model_name", "status", "API", "entrypoint"],
        )
        self._latency = self._make(
            Histogram,
            serving + "request_latency",
            "Microseconds for a request that was answered.",
            ["model_name", "API", "entrypoint"],
            buckets=_MICROSECONDS,
        )
        self.runtime = self._make(
            Histogram,
            serving + "runtime_latency",
            "Microseconds for a call of the model.",
            ["model_name", "API", "runtime"],
            buckets=_MICROSECONDS,
        )
        self.batch_rows = self._make(
            Histogram,
            serving + "batching_session:processed_batch_size",
            "Rows of a call of the model.",
            ["model_name"],
            buckets=_ROWS,
        )
        self.queuing = self._make(
            Histogram,
            serving + "batching_session:queuing_latency",
            "Microseconds that a request waited for its first call.",
            ["thread_pool_name"],
            buckets=_MICROSECONDS,
        )
        self.loads = self._make(
            Counter,
            ":tensorflow:cc:saved_model:load_attempt_count",
            "Loads of a version.",
            ["model_path", "status"],
        )
        self.waiting_rows = self._make(
            Gauge, "tfxformer_waiting_rows", "Rows that wait for their call.", []
        )
        self.loaded = self._make(
            Gauge,
            "tfxformer_loaded_version",
            "1 for each version that is served.",
            ["model_name", "version"],
        )
        prometheus_client.ProcessCollector(registry=self._registry)

    def _make(self, kind, name, text, labels, **more):
        return kind(name, text, labels, registry=self._registry, **more)

    @contextlib.contextmanager
    def request(self, model, api, entrypoint):
        """Counts what is done inside as one request.

        Args:
            model: the model's name; "" for one that is not there, or clients could
                make any number of names up.
            api: as TensorFlow Serving has it: "Predict" for gRPC, "predict" for REST.
            entrypoint: "GRPC" or "REST".
        """
        start, status = time.perf_counter(), "INTERNAL"
        try:
            yield
            status = "OK"
            microseconds = (time.perf_counter() - start) * 1e6
            self._latency.labels(model, api, entrypoint).observe(microseconds)
        except ServingError as error:
            status = error.code
            raise
        except BaseException as error:
            if not isinstance(error, Exception):  # whoever asked has gone
                status = "CANCELLED"
            raise
        finally:
            self._requests.labels(model, status, api, entrypoint).inc()

    def page(self):
        """The page that Prometheus reads, bytes."""
        page = prometheus_client.generate_latest(self._registry)
        # The library's counters end in _total, TensorFlow Serving's do not.
        for name in (b":request_count", b":load_attempt_count"):
            page = page.replace(name + b"_total", name)
        return page
