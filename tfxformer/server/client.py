"""A client of TensorFlow Serving, and of `tfxformer serve`, by REST or gRPC."""

import asyncio
import base64
import json
import re
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from urllib.parse import quote, unquote, urlsplit

import numpy as np
import urllib3

from tfxformer.errors import UserError
from tfxformer.quiet import start_tensorflow
from tfxformer.signature_translator import SignatureTranslator

_PATH = re.compile(
    r"(?:/v1/models/(?P<model>[^/]+)(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/]+))?)?"
    r"/?"
)
# What a later try may find gone. gRPC counts the first try among its attempts, of which
# it allows five.
_PASSING_HTTP = (429, 502, 503)
_PASSING_GRPC = ["UNAVAILABLE", "RESOURCE_EXHAUSTED"]
_RETRIES = 4
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 10.0  # seconds
_GRPC_RETRIES = {
    "name": [{}],  # of every method
    "retryPolicy": {
        "maxAttempts": 1 + _RETRIES,
        "initialBackoff": f"{_FIRST_PAUSE}s",
        "maxBackoff": f"{_LONGEST_PAUSE}s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": _PASSING_GRPC,
    },
}
_IS_ONE_THERE = "; is a server there? Start one with: tfxformer serve"
# Of signatures with one output: REST leaves out its name.
_ONLY_OUTPUT = {"score": "score", "tokenize": "ids", "detokenize": "text"}
# The longest answer, which gRPC wants to know: attention's are long.
_LONGEST_ANSWER = 256 * 2**20
# How many callers may wait for translations at the same time.
_CALLERS = 64


class ServerError(UserError):
    """What a server answered other than what it was asked for, or that it did not.

    Args:
        message: one line.
        code: HTTP's number or gRPC's name, such as 404 or "NOT_FOUND"; None where no
            answer came.

    Example:
        >>> ServerError("there is no such model", 404).code
        404
    """

    def __init__(self, message, code=None):
        super().__init__(message)
        self.code = code


class Client(SignatureTranslator):
    """Translates through a server as a `Translator` does through a model.

    Texts go in batches, several at the same time, and sentences in any order: what
    comes back is in yours. A text may hold many sentences, and one that is too long
    for the model is cut at the best places, as `Translator.translate` says. What fails
    and may pass (no connection, an overloaded server) is tried again up to four times,
    after a pause that doubles each time. A client may be used by many threads.

    Args:
        url: ``http://host:8501`` or ``https://...`` for REST, ``grpc://host:8500`` or
            ``grpcs://...`` for gRPC; a version or a label may follow, as in
            ``http://host:8501/v1/models/pt_en/labels/stable``. A user's name and
            password in an HTTP address are sent as basic authentication.
        model: the model's name, where the address has none.
        timeout: seconds to wait for an answer; by REST each time, by gRPC in all.
        batch_size: the most texts of one request.
        in_flight: the most requests at the same time.
        headers: HTTP headers or gRPC metadata, such as ``{"authorization": "Bearer
            ..."}``.

    Raises:
        UserError: for an address that is none, or a package that is missing.

    Example:
        >>> client = Client("http://127.0.0.1:8501/v1/models/pt_en/labels/stable")
        >>> client.model, client.version, client.label
        ('pt_en', None, 'stable')
        >>> client.close()
    """

    def __init__(
        self,
        url="http://127.0.0.1:8501",
        model="pt_en",
        timeout=60.0,
        batch_size=32,
        in_flight=4,
        headers=None,
    ):
        parts, path = _parse(url)
        self.model = path["model"] or model
        self.version = path["version"] and int(path["version"])
        self.label = path["label"]
        self.batch_size = batch_size
        kind = _Rest if parts.scheme.startswith("http") else _Grpc
        self._wire = kind(parts, self, timeout, in_flight, headers or {})
        self._requests = ThreadPoolExecutor(in_flight, "tfxformer-request")
        self._callers = ThreadPoolExecutor(_CALLERS, "tfxformer-caller")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Ends connections; what is under way is not waited for."""
        for pool in (self._callers, self._requests):
            pool.shutdown(wait=False, cancel_futures=True)
        self._wire.close()

    @cached_property
    def max_length(self):
        """The most positions that the model reads."""
        return int(self.answers("count", {"text": [""]})["limit"][0]) + 1

    def answers(self, signature, inputs):
        """Runs one signature of the model.

        Args:
            signature: its name, such as "serving_default".
            inputs: lists or arrays by input name; strings as str or bytes.

        Returns:
            NumPy arrays by output name; strings are bytes.

        Raises:
            ServerError: when the server refuses, or cannot be reached after retries.
        """
        return self._wire.predict(signature, inputs)

    def all_answers(self, signature, batches):
        """As `SignatureTranslator.all_answers` says, several at the same time.

        Args:
            signature: its name.
            batches: an iterable of inputs, as `answers` takes them.

        Yields:
            Answers, in the same order.

        Raises:
            ServerError: as `answers`.
        """
        batches = [[*self._pieces(inputs)] for inputs in batches]
        waiting = [
            [self._requests.submit(self.answers, signature, piece) for piece in pieces]
            for pieces in batches
        ]
        try:
            for pieces in waiting:
                yield _joined([future.result() for future in pieces])
        finally:  # after an error, the rest is not asked for
            for pieces in waiting:
                for future in pieces:
                    future.cancel()

    async def translate_async(self, texts, **options):
        """`translate`, for `asyncio`.

        Args:
            texts: a list of strings.
            options: those of `translate`.

        Returns:
            What `translate` gives.
        """
        return await asyncio.wrap_future(
            self._callers.submit(self.translate, texts, **options)
        )

    def status(self):
        """What versions of the model the server knows.

        Returns:
            By version, pairs of its state, such as "AVAILABLE", and an error message,
            empty where there is none.

        Raises:
            ServerError: as in `answers`.
        """
        return self._wire.status()

    def metadata(self):
        """The signatures that the server's model has.

        Returns:
            By signature, a dict of "inputs" and "outputs": by name, pairs of a type's
            name, such as "DT_STRING", and a shape, -1 for what may vary.

        Raises:
            ServerError: as in `answers`.
        """
        return self._wire.metadata()

    def _pieces(self, inputs):
        rows = len(next(iter(inputs.values())))
        for i in range(0, rows, self.batch_size):
            yield {name: x[i : i + self.batch_size] for name, x in inputs.items()}

    def _lengths(self, texts):
        # Most are short beyond doubt: the server is asked about the others alone.
        lengths = np.array([len(text) // 3 + 1 for text in texts], int)
        lengths = np.minimum(lengths, self.max_length - 1)
        doubtful = [
            i for i, x in enumerate(texts) if _most_tokens(x) >= self.max_length
        ]
        lengths[doubtful] = self._tokens([texts[i] for i in doubtful])
        return lengths


def _parse(url):
    """An address's parts, and what its path names."""
    try:
        parts = urlsplit(url)
        path = _PATH.fullmatch(parts.path)
        good = (
            parts.scheme in ("http", "https", "grpc", "grpcs")
            and parts.hostname
            and path
            and not parts.query
            and (parts.port or parts.scheme.startswith("http"))
        )
    except ValueError:
        good = False
    if not good:
        raise UserError(
            f"{url}: no server's address; write http://HOST:8501 or grpc://HOST:8500, "
            "and after it /v1/models/NAME for another model than pt_en"
        )
    return parts, {name: x and unquote(x) for name, x in path.groupdict().items()}


def _most_tokens(text):
    """More tokens than this a text cannot have: one for each byte, and a space.

    Example:
        >>> _most_tokens("Olá")
        5
    """
    normal = unicodedata.normalize("NFKC", text)
    # Some vocabularies fold case, which may make a text longer.
    return 1 + max(len(x.encode()) for x in (normal, normal.casefold()))


def _joined(answers):
    """One answer of several to pieces of a batch; cells that only some have are 0."""
    if len(answers) == 1:
        return answers[0]
    joined = {}
    for name in answers[0]:
        arrays = [answer[name] for answer in answers]
        shape = np.max([array.shape for array in arrays], axis=0)
        joined[name] = np.concatenate(
            [_padded(array, [len(array), *shape[1:]]) for array in arrays]
        )
    return joined


def _padded(array, shape):
    fill = b"" if array.dtype == object else 0
    wide = np.full(shape, fill, array.dtype)
    wide[tuple(slice(n) for n in array.shape)] = array
    return wide


class _Rest:
    """TensorFlow Serving's REST API."""

    def __init__(self, parts, client, timeout, in_flight, headers):
        path = f"/v1/models/{quote(client.model, safe='')}"
        if client.version is not None:
            path += f"/versions/{client.version}"
        if client.label is not None:
            path += f"/labels/{quote(client.label, safe='')}"
        address = parts.netloc.rpartition("@")[2]
        self.where = f"{parts.scheme}://{address}"
        self.url = self.where + path
        if parts.username:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            headers = {**urllib3.make_headers(basic_auth=user), **headers}
        self.timeout = timeout
        self.http = urllib3.PoolManager(
            maxsize=in_flight,
            headers={"content-type": "application/json", **headers},
            timeout=timeout,
            retries=urllib3.Retry(
                total=_RETRIES,
                read=1,
                redirect=0,
                allowed_methods=None,
                status_forcelist=_PASSING_HTTP,
                backoff_factor=_FIRST_PAUSE,
                backoff_max=_LONGEST_PAUSE,
                backoff_jitter=_FIRST_PAUSE,
                raise_on_status=False,
                raise_on_redirect=False,
            ),
        )

    def close(self):
        self.http.clear()

    def predict(self, signature, inputs):
        body = {
            "signature_name": signature,
            "inputs": {name: _to_json(value) for name, value in inputs.items()},
        }
        outputs = self._ask("POST", ":predict", json.dumps(body))["outputs"]
        if not isinstance(outputs, dict):  # a single output comes without its name
            outputs = {_ONLY_OUTPUT[signature]: outputs}
        return {name: _from_json(value) for name, value in outputs.items()}

    def status(self):
        return {
            int(each["version"]): (each["state"], each["status"]["error_message"])
            for each in self._ask("GET", "")["model_version_status"]
        }

    def metadata(self):
        found = self._ask("GET", "/metadata")["metadata"]["signature_def"]
        return {
            name: {
                side: {
                    tensor: (
                        info["dtype"],
                        [int(d["size"]) for d in info["tensor_shape"]["dim"]],
                    )
                    for tensor, info in signature[side].items()
                }
                for side in ("inputs", "outputs")
            }
            for name, signature in found["signature_def"].items()
        }

    def _ask(self, method, path, body=None):
        try:
            answer = self.http.request(method, self.url + path, body=body)
        except urllib3.exceptions.MaxRetryError as error:
            if isinstance(error.reason, urllib3.exceptions.ReadTimeoutError):
                message = f"no answer in {self.timeout:g} seconds"
            else:
                message = f"cannot be reached ({_reason(error.reason)})"
            raise ServerError(f"{self.where}: {message}{_IS_ONE_THERE}") from None
        except urllib3.exceptions.HTTPError as error:
            raise ServerError(f"{self.where}: {_reason(error)}") from None
        try:
            found = json.loads(answer.data)
            if answer.status == 200:
                return found
            message = found["error"]
        except (ValueError, KeyError, TypeError):
            message = "what answers there is no server of TensorFlow's REST API"
        raise ServerError(
            f"{self.where}: {message} (HTTP {answer.status})", answer.status
        )


class _Grpc:
    """TensorFlow Serving's gRPC API."""

    def __init__(self, parts, client, timeout, in_flight, headers):
        start_tensorflow()
        import grpc
        from tensorflow_serving.apis import (
            model_service_pb2_grpc,
            prediction_service_pb2_grpc,
        )

        self.where = f"grpc://{parts.netloc}"
        self.timeout, self.rpc_error = timeout, grpc.RpcError
        self.headers = [(name.lower(), value) for name, value in headers.items()]
        settings = [
            ("grpc.max_receive_message_length", _LONGEST_ANSWER),
            ("grpc.service_config", json.dumps({"methodConfig": [_GRPC_RETRIES]})),
        ]
        if parts.scheme == "grpcs":
            trust = grpc.ssl_channel_credentials()
            self.channel = grpc.secure_channel(parts.netloc, trust, settings)
        else:
            self.channel = grpc.insecure_channel(parts.netloc, settings)
        self.prediction = prediction_service_pb2_grpc.PredictionServiceStub(
            self.channel
        )
        self.models = model_service_pb2_grpc.ModelServiceStub(self.channel)
        self.model = {"name": client.model}
        if client.version is not None:
            self.model["version"] = {"value": client.version}
        if client.label is not None:
            self.model["version_label"] = client.label

    def close(self):
        self.channel.close()

    def predict(self, signature, inputs):
        import tensorflow as tf
        from tensorflow_serving.apis.predict_pb2 import PredictRequest

        request = PredictRequest(
            model_spec={**self.model, "signature_name": signature},
            inputs={name: tf.make_tensor_proto(x) for name, x in inputs.items()},
        )
        outputs = self._ask(self.prediction.Predict, request).outputs
        return {name: tf.make_ndarray(x) for name, x in outputs.items()}

    def status(self):
        from tensorflow_serving.apis import get_model_status_pb2 as messages

        request = messages.GetModelStatusRequest(model_spec=self.model)
        answer = self._ask(self.models.GetModelStatus, request)
        return {
            each.version: (
                messages.ModelVersionStatus.State.Name(each.state),
                each.status.error_message,
            )
            for each in answer.model_version_status
        }

    def metadata(self):
        from tensorflow.core.framework.types_pb2 import DataType
        from tensorflow_serving.apis import get_model_metadata_pb2 as messages

        request = messages.GetModelMetadataRequest(
            model_spec=self.model, metadata_field=["signature_def"]
        )
        answer = self._ask(self.prediction.GetModelMetadata, request)
        found = messages.SignatureDefMap()
        answer.metadata["signature_def"].Unpack(found)
        return {
            name: {
                side: {
                    tensor: (
                        DataType.Name(info.dtype),
                        [dimension.size for dimension in info.tensor_shape.dim],
                    )
                    for tensor, info in getattr(signature, side).items()
                }
                for side in ("inputs", "outputs")
            }
            for name, signature in found.signature_def.items()
        }

    def _ask(self, method, request):
        try:
            return method(request, timeout=self.timeout, metadata=self.headers)
        except self.rpc_error as error:
            code = error.code().name
            message = f"{error.details()} ({code})"
            if code == "DEADLINE_EXCEEDED":
                message = f"no answer in {self.timeout:g} seconds"
            raise ServerError(
                f"{self.where}: {message}"
                + (
                    _IS_ONE_THERE
                    if code in ("DEADLINE_EXCEEDED", "UNAVAILABLE")
                    else ""
                ),
                code,
            ) from None


def _to_json(values):
    """Strings and numbers as TensorFlow Serving reads them in JSON."""
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if isinstance(values, (list, tuple)):
        return [_to_json(value) for value in values]
    if isinstance(values, bytes):
        return {"b64": base64.b64encode(values).decode()}
    return values


def _from_json(values):
    """An array of what TensorFlow Serving writes in JSON."""
    array = np.array(values)
    if array.dtype.kind not in "UO":
        return array.astype("int32" if array.dtype.kind == "i" else "float32")
    as_bytes = [
        base64.b64decode(x["b64"]) if isinstance(x, dict) else x.encode()
        for x in array.ravel().tolist()
    ]
    flat = np.empty(len(as_bytes), object)
    flat[:] = as_bytes
    return flat.reshape(array.shape)


def _reason(error):
    """The words in a connection's error that say what happened."""
    # urllib3 writes "...: Failed to establish ...: [Errno 111] Connection refused".
    words = str(error).rpartition(": ")[2].rpartition("] ")[2]
    return words.strip("()'\" ") or type(error).__name__
