"""Many clients at once, by REST and gRPC, each answer compared with the right one."""

import collections
import itertools
import json
import random
import threading
import time

import grpc
import numpy as np
import tensorflow as tf
from local_server import connect
from tensorflow_serving.apis import prediction_service_pb2_grpc
from tensorflow_serving.apis.predict_pb2 import PredictRequest

# Of a request: mostly one text.
SIZES = (1, 1, 1, 1, 2, 4)


def answers_of(translator, count):
    """Offline translations of sentences that no model was trained on, by text.

    Each is translated by itself, in Python, by the same exported model.
    """
    from tfxformer import corpora

    pairs, _ = corpora.load("phrasebook", "test", cleaned=False)
    texts = [*dict.fromkeys(pair.source for pair in pairs)][:count]
    return {
        text: translator.answers("serving_default", {"text": [text]})["translation"][
            0
        ].decode()
        for text in texts
    }


class Load:
    """Clients that ask for translations until they are told to stop.

    Args:
        server: a `LocalServer`.
        answers: translations by text, both str.
        clients: how many; every other one speaks gRPC.
        model: the model's name.
    """

    def __init__(self, server, answers, clients=64, model="pt_en"):
        self.server, self.answers, self.model = server, answers, model
        self.texts = [*answers]
        self.done = collections.Counter()  # requests by protocol
        self.sentences = 0
        self.errors, self.wrong, self.seconds = [], [], []
        # When requests began that failed; when others began and were answered.
        self.failed_since, self.answered_since = [], []
        self.versions = collections.Counter()
        self._stop, self._lock = threading.Event(), threading.Lock()
        # As few channels as a fleet of clients would have.
        self._channels = [grpc.insecure_channel(server.grpc) for _ in range(4)]
        stubs = itertools.cycle(
            prediction_service_pb2_grpc.PredictionServiceStub(channel)
            for channel in self._channels
        )
        self._threads = [
            threading.Thread(
                target=self._run,
                args=(i, self._grpc(next(stubs)) if i % 2 else self._rest()),
                daemon=True,
            )
            for i in range(clients)
        ]

    def __enter__(self):
        self.started = time.monotonic()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a client hangs"
        self.elapsed = time.monotonic() - self.started
        for channel in self._channels:
            channel.close()

    def wait(self, seconds=None, requests=None):
        """Until so much time has passed, or so many more requests were answered."""
        if seconds is not None:
            time.sleep(seconds)
            return
        end, until = time.monotonic() + 120, self.done.total() + requests
        while self.done.total() < until:
            assert time.monotonic() < end, "nothing is answered"
            assert not self.errors, self.errors[:3]
            time.sleep(0.01)

    def summary(self):
        """Counts, latencies in milliseconds, and speed."""
        p50, p95, p99 = (1000 * np.percentile(self.seconds, [50, 95, 99])).tolist()
        return {
            "requests": dict(self.done),
            "sentences": self.sentences,
            "errors": len(self.errors),
            "wrong_answers": len(self.wrong),
            "seconds": round(self.elapsed, 1),
            "milliseconds": {
                "p50": round(p50, 1),
                "p95": round(p95, 1),
                "p99": round(p99, 1),
                "max": round(max(self.seconds) * 1000, 1),
            },
            "sentences_per_second": round(self.sentences / self.elapsed, 1),
        }

    def assert_good(self):
        assert not self.errors, (len(self.errors), self.errors[:3])
        assert not self.wrong, (len(self.wrong), self.wrong[:3])
        assert self.done["REST"] and self.done["gRPC"]

    def _run(self, seed, ask):
        rng = random.Random(seed)
        while not self._stop.is_set():
            texts = rng.sample(self.texts, rng.choice(SIZES))
            started = time.monotonic()
            try:
                protocol, found = ask(texts)
            except Exception as error:
                with self._lock:
                    self.errors.append(repr(error)[:300])
                    self.failed_since.append(started)
                time.sleep(0.1)
                continue
            ended = time.monotonic()
            expected = [self.answers[text] for text in texts]
            with self._lock:
                self.done[protocol] += 1
                self.sentences += len(texts)
                self.seconds.append(ended - started)
                self.answered_since.append((started, ended))
                if found != expected:
                    self.wrong.append((texts, found, expected))

    def _rest(self):
        path = f"/v1/models/{self.model}:predict"
        connection = connect(self.server.url)

        def ask(texts):
            try:
                connection.request("POST", path, json.dumps({"instances": texts}))
                answer = connection.getresponse()
                body = json.loads(answer.read())
            except BaseException:
                connection.close()
                raise
            if answer.status != 200:
                raise AssertionError(f"{answer.status} {body}")
            return "REST", [row["translation"] for row in body["predictions"]]

        return ask

    def _grpc(self, stub):
        def ask(texts):
            request = PredictRequest(
                model_spec={"name": self.model},
                inputs={"text": tf.make_tensor_proto(texts, tf.string)},
            )
            answer = stub.Predict(request, timeout=60)
            self.versions[answer.model_spec.version.value] += 1
            found = answer.outputs["translation"].string_val
            return "gRPC", [x.decode() for x in found]

        return ask
