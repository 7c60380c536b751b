"""What Prometheus reads."""

import asyncio

import pytest

from tfxformer.server.errors import ServingError
from tfxformer.server.metrics import Metrics


def count(metrics, *parts):
    """The sum of the samples whose line has all of these parts."""
    lines = [x for x in metrics.page().decode().splitlines() if not x.startswith("#")]
    found = [x for x in lines if all(part in x for part in parts)]
    return sum(float(line.rpartition(" ")[2]) for line in found)


def requests(metrics, status):
    return count(metrics, ":tensorflow:serving:request_count{", f'status="{status}"')


def test_requests_are_counted_by_how_they_end():
    metrics = Metrics()
    for raised, status in (
        (None, "OK"),
        (ServingError("NOT_FOUND", "nope"), "NOT_FOUND"),
        (KeyError("x"), "INTERNAL"),
        (asyncio.CancelledError(), "CANCELLED"),
    ):
        if raised is None:
            with metrics.request("m", "predict", "REST"):
                pass
        else:
            with (
                pytest.raises(type(raised)),
                metrics.request("m", "predict", "REST"),
            ):
                raise raised
        assert requests(metrics, status) == 1
    of = 'API="predict",entrypoint="REST",model_name="m"'
    latency = ":tensorflow:serving:request_latency_count{"
    assert count(metrics, latency, of) == 1  # of what was answered


def test_names_are_those_of_tensorflow_serving():
    metrics = Metrics()
    metrics.loads.labels("/models/m/1", "success").inc()
    page = metrics.page().decode()
    for line in (
        "# TYPE :tensorflow:serving:request_count counter",
        "# TYPE :tensorflow:serving:request_latency histogram",
        "# TYPE :tensorflow:cc:saved_model:load_attempt_count counter",
        "# TYPE :tensorflow:serving:batching_session:processed_batch_size histogram",
    ):
        assert line in page.splitlines()
    load = ':tensorflow:cc:saved_model:load_attempt_count{model_path="/models/m/1",'
    assert load + 'status="success"} 1.0' in page
    assert "_created" not in page


def test_two_servers_in_a_process_count_apart():
    one, other = Metrics(), Metrics()
    with one.request("m", "predict", "REST"):
        pass
    assert requests(one, "OK") == 1 and requests(other, "OK") == 0
