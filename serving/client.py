"""Translates texts with TensorFlow Serving or `tfxformer serve`.

    python serving/client.py "Bom dia!" "O gato preto bebeu o leite."
    python serving/client.py --url grpc://localhost:8500 < texts.txt

Copy what you need. REST needs the package requests; gRPC needs tensorflow and
tensorflow-serving-api. Both retry when the server is busy or has not started yet.
"""

import argparse
import json
import sys

BATCH = 32  # texts in a request
TIMEOUT = 60  # seconds
RETRIES = 4


def translate_by_rest(url, model, texts):
    """Yields the translations of texts. The url is like http://host:8501."""
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3 import Retry

    retry = Retry(
        total=RETRIES,
        backoff_factor=0.5,
        status_forcelist=(429, 502, 503),
        allowed_methods=None,  # retry POST too: predict changes nothing
        raise_on_status=False,
    )
    with requests.Session() as session:
        session.mount(url, HTTPAdapter(max_retries=retry))
        for start in range(0, len(texts), BATCH):
            answer = session.post(
                f"{url}/v1/models/{model}:predict",
                json={"instances": texts[start : start + BATCH]},
                timeout=TIMEOUT,
            )
            if answer.status_code != 200:
                sys.exit(f"{answer.status_code}: {answer.json()['error']}")
            for row in answer.json()["predictions"]:
                yield row["translation"]


def translate_by_grpc(address, model, texts):
    """Yields the translations of texts. The address is like host:8500."""
    import grpc
    import tensorflow as tf
    from tensorflow_serving.apis.predict_pb2 import PredictRequest
    from tensorflow_serving.apis.prediction_service_pb2_grpc import (
        PredictionServiceStub,
    )

    retry = {
        "maxAttempts": RETRIES + 1,
        "initialBackoff": "0.5s",
        "maxBackoff": "10s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED"],
    }
    config = json.dumps({"methodConfig": [{"name": [{}], "retryPolicy": retry}]})
    with grpc.insecure_channel(address, [("grpc.service_config", config)]) as channel:
        stub = PredictionServiceStub(channel)
        for start in range(0, len(texts), BATCH):
            batch = tf.make_tensor_proto(texts[start : start + BATCH], tf.string)
            request = PredictRequest(
                model_spec={"name": model, "signature_name": "translate"},
                inputs={"text": batch},
            )
            try:
                answer = stub.Predict(request, timeout=TIMEOUT)
            except grpc.RpcError as error:
                sys.exit(f"{error.code().name}: {error.details()}")
            for translation in answer.outputs["translation"].string_val:
                yield translation.decode()


def main():
    """Prints one translation per line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("texts", nargs="*", help="default: the lines of standard input")
    parser.add_argument("--url", default="http://localhost:8501")
    parser.add_argument("--model", default="pt_en")
    args = parser.parse_args()
    texts = args.texts or sys.stdin.read().splitlines()
    if args.url.startswith("grpc://"):
        found = translate_by_grpc(args.url.removeprefix("grpc://"), args.model, texts)
    else:
        found = translate_by_rest(args.url.rstrip("/"), args.model, texts)
    for translation in found:
        print(translation, flush=True)


if __name__ == "__main__":
    main()
