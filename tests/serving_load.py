"""Many clients at once, by REST and gRPC, each answer compared with the right one.

    python tests/serving_load.py --seconds 300

serves the shipped model by `tfxformer serve`, and prints what the clients see.
"""

import argparse
import json
import random
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401
from local_server import Command, wait_for
from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

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
    """Clients of a server, every other one by gRPC, while the context lasts.

    The answers that are right are translations by text.
    """

    def __init__(self, server, answers, clients=64):
        self.server, self.answers = server, answers
        self.seconds, self.errors, self.wrong = [], [], []
        self.sentences, self.versions, self.stopped = 0, set(), False
        self._channel = grpc.insecure_channel(server.grpc)
        self._pool = ThreadPoolExecutor(clients)
        self._clients = clients

    def __enter__(self):
        self.started = time.monotonic()
        self._pool.map(self._run, range(self._clients))
        return self

    def __exit__(self, *_):
        self.stopped = True
        self._pool.shutdown()
        self.elapsed = time.monotonic() - self.started
        self._channel.close()

    def wait(self, requests):
        """Until so many more requests are answered, each with the right answer."""
        until = len(self.seconds) + requests
        wait_for(lambda: len(self.seconds) >= until, 120)
        assert not self.errors and not self.wrong, (self.errors[:3], self.wrong[:3])

    def _run(self, seed):
        rng, texts = random.Random(seed), [*self.answers]
        while not self.stopped:
            asked = rng.sample(texts, rng.choice(SIZES))
            start = time.monotonic()
            try:
                found = self._by_grpc(asked) if seed % 2 else self._by_rest(asked)
            except Exception as error:
                self.errors.append(repr(error)[:300])
                continue
            self.seconds.append(time.monotonic() - start)
            self.sentences += len(asked)
            if found != [self.answers[text] for text in asked]:
                self.wrong.append((asked, found))

    def _by_rest(self, texts):
        path = "/v1/models/pt_en:predict"
        status, found = self.server.ask(path, {"instances": texts})
        assert status == 200, found
        return [row["translation"] for row in found["predictions"]]

    def _by_grpc(self, texts):
        request = PredictRequest(model_spec={"name": "pt_en"})
        request.inputs["text"].CopyFrom(tf.make_tensor_proto(texts, tf.string))
        answer = PredictionServiceStub(self._channel).Predict(request, timeout=60)
        self.versions.add(answer.model_spec.version.value)
        return [x.decode() for x in answer.outputs["translation"].string_val]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=300)
    seconds = parser.parse_args().seconds
    answers, resident = right_answers(200), []
    with Command() as command, Load(command.server, answers) as load:
        while time.monotonic() - load.started < seconds:
            time.sleep(seconds / 10)
            size = command.server.metric("process_resident_memory_bytes")
            resident.append(round(size / 2**20))
    percentiles = (1000 * np.percentile(load.seconds, [50, 95, 99, 100])).round(1)
    summary = {
        "requests": len(load.seconds),
        "sentences": load.sentences,
        "errors": len(load.errors),
        "wrong_answers": len(load.wrong),
        "seconds": round(load.elapsed, 1),
        "milliseconds_p50_p95_p99_max": percentiles.tolist(),
        "sentences_per_second": round(load.sentences / load.elapsed, 1),
        "resident_mib": resident,
    }
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
