"""The load that the server must bear: 64 clients for minutes, and what it measures.

`pytest -m soak tests/server/test_load.py` trains the quickstart's model, asks for
TFXFORMER_SOAK_SECONDS (300) and writes benchmarks/serving_load.json. With
TFXFORMER_SOAK_EXPORT, a model repository, it asks its pt_en instead.
"""

import datetime
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tensorflow as tf
from local_server import LocalServer
from serving_load import Load, answers_of

from tfxformer.translator import Translator

pytestmark = pytest.mark.soak

CLIENTS = 64
SWAPS = 10
# How much memory may grow once it has been busy for a while, in MB.
GROWTH = 30


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    out = tmp_path_factory.mktemp("quickstart")
    given = os.environ.get("TFXFORMER_SOAK_EXPORT")
    if given:
        shutil.copytree(Path(given) / "pt_en", out / "export" / "pt_en")
    else:
        command = [sys.executable, "-m", "tfxformer.cli", "quickstart", "--out", out]
        subprocess.run(command, check=True, timeout=1800)
    return out / "export"


@pytest.fixture(scope="module")
def answers(repository):
    return answers_of(Translator.load(max(repository.glob("pt_en/*"))), 400)


def memory(server):
    return server.metric("process_resident_memory_bytes") / 2**20


def one_at_a_time_and_together(repository, answers, seconds):
    """The same clients, with calls of one text and as they are by default."""
    found = {}
    for name, options in (
        ("one_text_a_call", ["--max-batch", 1, "--batch-wait", 0]),
        ("batched", []),
    ):
        with (
            LocalServer(repository, *options) as server,
            Load(server, answers, CLIENTS) as load,
        ):
            load.wait(seconds)
            load.stop()
            load.assert_good()
            found[name] = load.summary()["sentences_per_second"]
    return found | {"times": round(found["batched"] / found["one_text_a_call"], 1)}


def test_64_clients_for_minutes(repository, answers):
    seconds = float(os.environ.get("TFXFORMER_SOAK_SECONDS", 300))
    others = os.getloadavg()[0]
    with LocalServer(repository) as server:
        resident = [memory(server)]
        with Load(server, answers, CLIENTS) as load:
            while time.monotonic() - load.started < seconds:
                load.wait(seconds / 60)
                resident.append(memory(server))
            load.stop()
        result = load.summary()
        calls = ":tensorflow:serving:batching_session:processed_batch_size_"
        result["sentences_per_call"] = round(
            server.metric(calls + "sum") / server.metric(calls + "count"), 1
        )
        busy, end = (statistics.median(x) for x in (resident[12:24], resident[-12:]))

        # Versions that come and go.
        newest = max(repository.glob("pt_en/*"), key=lambda path: int(path.name))
        swapped = []
        for number in range(int(newest.name) + 1, int(newest.name) + 1 + SWAPS):
            part = repository / ".part"
            shutil.copytree(newest, part)
            shutil.rmtree(newest)
            newest = part.rename(repository / "pt_en" / str(number))
            server.wait_for(
                lambda n=number: (
                    server.state("pt_en").get(n) == ("AVAILABLE", "")
                    and server.state("pt_en")[n - 1][0] == "END"
                )
            )
            server.ask("/v1/models/pt_en:predict", {"instances": [*answers][:64]})
            swapped.append(memory(server))
        said, code = server.stop()

    throughput = one_at_a_time_and_together(repository, answers, seconds / 5)
    result = {
        "date": datetime.date.today().isoformat(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, clients on the same",
        "load_average_before": round(others, 1),
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
        "model": "the quickstart's",
        "clients": CLIENTS,
        **result,
        "resident_mb": {
            "loaded": round(resident[0]),
            "after_a_fifth": round(busy),
            "end": round(end),
            "after_version_swaps": [round(x) for x in swapped],
        },
        "sentences_per_second_by_batching": throughput,
    }
    file = Path(__file__).parents[2] / "benchmarks" / "serving_load.json"
    file.write_text(json.dumps(result, indent=1) + "\n")
    load.assert_good()
    assert code == 0 and "Traceback" not in said
    assert end - busy < GROWTH, resident
    assert swapped[-1] - swapped[SWAPS // 2] < GROWTH, swapped
    assert throughput["times"] >= 3
