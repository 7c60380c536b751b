"""Many clients at once, by REST and gRPC, each answer compared with the right one.

    python tests/serving_load.py --seconds 300

serves the shipped model by `tfxformer serve`, and prints what the clients see.
"""

import argparse
import collections
import contextlib
import http.client
import itertools
import json
import random
import threading
import time
from urllib.parse import urlsplit

import grpc
import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401
from tensorflow_serving.apis import prediction_service_pb2_grpc
from tensorflow_serving.apis.predict_pb2 import PredictRequest

SIZES = (1, 1, 1, 1, 2, 4)  # texts of a request


def right_answers(count=None, texts=None):
    """Translations by the shipped model in this process, of one text at a time."""
    from tfxformer import corpora
    from tfxformer.exporting.repository import shipped_model

    translate = tf.saved_model.load(str(shipped_model())).signatures["translate"]
    if texts is None:
        pairs, _ = corpora.load("phrasebook", "test", cleaned=False)
        texts = [*dict.fromkeys(pair.source for pair in pairs)][:count]
    found = (translate(text=tf.constant([text]))["translation"] for text in texts)
    return {text: x.numpy()[0].decode() for text, x in zip(texts, found, strict=True)}


class Load:
    """Clients that ask for translations until the context ends.

    Args:
        server: Has ``url`` and ``grpc``, its addresses.
        answers: Translations by text.
        clients: How many; every other one speaks gRPC.
    """

    def __init__(self, server, answers, clients=64):
        self.server, self.answers = server, answers
        self.done, self.versions = collections.Counter(), collections.Counter()
        self.sentences, self.errors, self.wrong, self.seconds = 0, [], [], []
        self._stop, self._lock = threading.Event(), threading.Lock()
        self._channels = [grpc.insecure_channel(server.grpc) for _ in range(4)]
        stubs = itertools.cycle(
            prediction_service_pb2_grpc.PredictionServiceStub(channel)
            for channel in self._channels
        )
        asks = [
            self._grpc(next(stubs)) if i % 2 else self._rest for i in range(clients)
        ]
        self._threads = [
            threading.Thread(target=self._run, args=given) for given in enumerate(asks)
        ]

    def __enter__(self):
        self.started = time.monotonic()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self.elapsed = time.monotonic() - self.started
        for channel in self._channels:
            channel.close()

    def wait(self, requests):
        """Until so many more requests are answered."""
        end, until = time.monotonic() + 120, self.done.total() + requests
        while self.done.total() < until:
            assert time.monotonic() < end and not self.errors, self.errors[:3]
            time.sleep(0.01)

    def summary(self):
        percentiles = (1000 * np.percentile(self.seconds, [50, 95, 99, 100])).round(1)
        return {
            "requests": dict(self.done),
            "sentences": self.sentences,
            "errors": len(self.errors),
            "wrong_answers": len(self.wrong),
            "seconds": round(self.elapsed, 1),
            "milliseconds_p50_p95_p99_max": percentiles.tolist(),
            "sentences_per_second": round(self.sentences / self.elapsed, 1),
        }

    def _run(self, seed, ask):
        rng = random.Random(seed)
        address = urlsplit(self.server.url).netloc
        connection = http.client.HTTPConnection(address, timeout=60)
        with contextlib.closing(connection):
            while not self._stop.is_set():
                texts = rng.sample([*self.answers], rng.choice(SIZES))
                start = time.monotonic()
                try:
                    protocol, found = ask(connection, texts)
                except Exception as error:
                    self.errors.append(repr(error)[:300])
                    time.sleep(0.1)
                    continue
                with self._lock:
                    self.done[protocol] += 1
                    self.sentences += len(texts)
                    self.seconds.append(time.monotonic() - start)
                    if found != [self.answers[text] for text in texts]:
                        self.wrong.append((texts, found))

    def _rest(self, connection, texts):
        body = json.dumps({"instances": texts})
        connection.request("POST", "/v1/models/pt_en:predict", body)
        answer = connection.getresponse()
        found = json.loads(answer.read())
        assert answer.status == 200, found
        return "REST", [row["translation"] for row in found["predictions"]]

    def _grpc(self, stub):
        def ask(_, texts):
            request = PredictRequest(
                model_spec={"name": "pt_en"},
                inputs={"text": tf.make_tensor_proto(texts, tf.string)},
            )
            answer = stub.Predict(request, timeout=60)
            self.versions[answer.model_spec.version.value] += 1
            found = answer.outputs["translation"].string_val
            return "gRPC", [x.decode() for x in found]

        return ask


def main():
    from local_server import LocalServer

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--clients", type=int, default=64)
    args = parser.parse_args()
    answers = right_answers(200)
    memory, resident = "process_resident_memory_bytes", []
    with LocalServer() as server, Load(server, answers, args.clients) as load:
        while time.monotonic() - load.started < args.seconds:
            time.sleep(args.seconds / 10)
            resident.append(round(server.metric(memory) / 2**20))
    print(json.dumps({**load.summary(), "resident_mib": resident}, indent=1))


if __name__ == "__main__":
    main()
