"""Loads `tfxformer serve` with REST and gRPC clients, and checks every answer.

    python benchmarks/serving_load.py --seconds 300

The server has the shipped model. The script prints latencies, errors and memory.
"""

import argparse
import contextlib
import http.client
import json
import random
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from urllib.parse import urlsplit

import grpc
import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401
from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub


def ask(url, path, body=None, method=None):
    """Sends an HTTP request; returns the status, and the JSON or text of the answer."""
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    with contextlib.closing(connection):
        connection.request(method or ("GET" if body is None else "POST"), path, body)
        answer = connection.getresponse()
        text, kind = answer.read().decode(), answer.headers["content-type"]
    return answer.status, json.loads(text) if "json" in kind else text


class Server:
    """A running server, by its REST and gRPC addresses."""

    def __init__(self, rest, grpc):
        self.url, self.grpc = f"http://{rest}", grpc

    def ask(self, *arguments):
        return ask(self.url, *arguments)

    def state(self):
        """Returns the state and the error message of each version of `pt_en`."""
        known = self.ask("/v1/models/pt_en")[1]["model_version_status"]
        return {
            int(x["version"]): (x["state"], x["status"]["error_message"]) for x in known
        }

    def metric(self, name, **labels):
        """Returns the sum of a metric's samples that have these labels."""
        page = self.ask("/monitoring/prometheus/metrics")[1]
        wanted = {f'{key}="{value}"' for key, value in labels.items()}
        samples = re.findall(rf"^{name}(?:{{(.*)}})? (\S+)$", page, re.MULTILINE)
        return sum(float(x) for found, x in samples if wanted <= {*found.split(",")})


@contextlib.contextmanager
def command(*arguments):
    """Runs `tfxformer serve` on free ports; the server's `stop` sends SIGTERM."""
    words = [sys.executable, "-m", "tfxformer.cli", "serve", *arguments]
    words += ["--rest-port", "0", "--grpc-port", "0"]
    said = ""

    def stop():
        process.terminate()
        all_said = said + process.communicate(timeout=120)[1]
        assert process.returncode == 0 and "Traceback" not in all_said, all_said
        return all_said

    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        try:
            while "\nready" not in said:
                assert process.poll() is None, said
                said += process.stderr.readline()
            found = re.search(r"^REST: http://(\S+)\ngRPC: (\S+)$", said, re.MULTILINE)
            server = Server(*found.groups())
            server.stop = stop
            yield server
        finally:
            process.kill()


def right_answers(count=None, texts=None):
    """Returns the shipped model's translation of each text, one text at a time."""
    from tfxformer import corpora
    from tfxformer.repository import shipped_model

    translate = tf.saved_model.load(str(shipped_model())).signatures["translate"]
    if texts is None:
        pairs, _ = corpora.load("phrasebook", "test", cleaned=False)
        texts = [*dict.fromkeys(pair.source for pair in pairs)][:count]
    found = (translate(text=tf.constant([text]))["translation"] for text in texts)
    return {text: x.numpy()[0].decode() for text, x in zip(texts, found, strict=True)}


@contextlib.contextmanager
def load(server, answers, clients=64):
    """Runs clients of a server while the context lasts; every other one uses gRPC.

    Yields a record of the seconds, numbers of texts, errors and wrong answers.
    """
    seen = SimpleNamespace(seconds=[], texts=[], errors=[], wrong=[], versions=set())
    stopped = False

    def by_rest(texts):
        path = "/v1/models/pt_en:predict"
        status, found = server.ask(path, {"instances": texts})
        assert status == 200, found
        return [row["translation"] for row in found["predictions"]]

    def by_grpc(texts):
        request = PredictRequest(model_spec={"name": "pt_en"})
        request.inputs["text"].CopyFrom(tf.make_tensor_proto(texts, tf.string))
        answer = stub.Predict(request, timeout=60)
        seen.versions.add(answer.model_spec.version.value)
        return [x.decode() for x in answer.outputs["translation"].string_val]

    def client(seed):
        rng = random.Random(seed)
        while not stopped:
            asked = rng.sample([*answers], rng.choice((1, 1, 1, 1, 2, 4)))
            start = time.monotonic()
            try:
                found = by_grpc(asked) if seed % 2 else by_rest(asked)
            except Exception as error:
                seen.errors.append(repr(error)[:300])
                continue
            seen.seconds.append(time.monotonic() - start)
            seen.texts.append(len(asked))
            if found != [answers[text] for text in asked]:
                seen.wrong.append((asked, found))

    with (
        grpc.insecure_channel(server.grpc) as channel,
        ThreadPoolExecutor(clients) as pool,
    ):
        stub = PredictionServiceStub(channel)
        pool.map(client, range(clients))
        try:
            yield seen
        finally:
            stopped = True


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=300)
    seconds = parser.parse_args().seconds
    answers, resident = right_answers(200), []
    with command() as server, load(server, answers) as seen:
        for _ in range(10):
            time.sleep(seconds / 10)
            size = server.metric("process_resident_memory_bytes")
            resident.append(round(size / 2**20))
    percentiles = (1000 * np.percentile(seen.seconds, [50, 95, 99, 100])).round(1)
    found = {
        "requests": len(seen.seconds),
        "sentences": sum(seen.texts),
        "errors": len(seen.errors),
        "wrong_answers": len(seen.wrong),
        "milliseconds_p50_p95_p99_max": percentiles.tolist(),
        "sentences_per_second": round(sum(seen.texts) / seconds, 1),
        "resident_mib": resident,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
