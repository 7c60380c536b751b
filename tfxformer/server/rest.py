"""TensorFlow Serving's REST API."""

import asyncio
import contextlib
import json
import re
from urllib.parse import unquote

import uvicorn
from google.protobuf.json_format import MessageToDict
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from tfxformer.server import ServingError, invalid, metrics, tensors
from tfxformer.server.batching import as_serving_error

# A request line may be in absolute form (RFC 9112, 3.2.2).
_ORIGIN = re.compile("https?://[^/]*", re.I)
_PATH = re.compile(
    r"/v1/models(?:/(?P<name>[^/:]+))?"
    r"(?:/versions/(?P<version>\d{1,30})|/labels/(?P<label>[^/:]+))?"
    r"(?:/(?P<metadata>metadata)|:(?P<method>predict|classify|regress))?",
    re.I | re.A,
)
_BAD_REQUEST = ("INVALID_ARGUMENT", "FAILED_PRECONDITION", "OUT_OF_RANGE")
_HTTP_STATUS = dict.fromkeys(_BAD_REQUEST, 400) | {
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}


class RestApi:
    """The REST API as an ASGI application."""

    def __init__(self, models, batcher, settings):
        self._models, self._batcher, self._settings = models, batcher, settings

    async def __call__(self, scope, receive, send):
        """Answers one HTTP request."""
        # Not decoded: a slash in a model's name does not separate parts of the path.
        path = _ORIGIN.sub("", scope["raw_path"].decode("latin-1"), count=1)
        request = Request(scope, receive)
        try:
            if request.method == "GET" and path == metrics.PATH:
                response = Response(metrics.page(), media_type="text/plain")
            else:
                text = await self._answer(request, path)
                response = Response(text, media_type="application/json")
        except Exception as error:
            if isinstance(error, ClientDisconnect):
                error = ServingError("CANCELLED", "the client is gone")
            error = as_serving_error(error)
            status = error.http_status or _HTTP_STATUS.get(error.code, 500)
            text = json.dumps({"error": str(error)})
            response = Response(text, status, media_type="application/json")
        await response(scope, receive, send)

    async def _answer(self, request, path):
        found = _PATH.fullmatch(path)
        if not found or request.method != ("POST" if found["method"] else "GET"):
            raise invalid(f"Malformed request: {request.method} {path}")
        name, version = unquote(found["name"] or ""), found["version"]
        if version is not None:
            if int(version) >= 2**63:
                raise invalid(f"Failed to convert version: {version} to numeric.")
            version = int(version)
        wanted = (name, version, found["label"] and unquote(found["label"]))
        known = name if name in self._models.configs else ""
        method = (found["method"] or "").lower()
        with metrics.request(known, method, "REST"):
            if found["metadata"]:
                servable = self._models.get(*wanted)
                spec = {"name": servable.name, "version": str(servable.version)}
                content = {"signature_def": _as_dict(servable.metadata)}
                spec["signature_name"] = ""  # there, as in TensorFlow Serving
                return json.dumps({"model_spec": spec, "metadata": content})
            if not method:
                return json.dumps(_as_dict(self._models.status(*wanted)))
            try:
                async with asyncio.timeout(self._settings.timeout):
                    return await self._predict(request, method, wanted)
            except TimeoutError:
                raise ServingError("DEADLINE_EXCEEDED", "Timed out") from None

    async def _predict(self, request, method, wanted):
        document = tensors.parse_json(await self._body(request))
        servable = self._models.get(*wanted)
        if method != "predict":
            if not document.get("examples"):
                raise invalid(f"When method is {method}, key 'examples' is expected")
            raise invalid(f"No {method} inputs found in SignatureDef")
        name = document.get("signature_name", "")
        if not isinstance(name, str):
            raise invalid("'signature_name' key must be a string value.")
        signature = servable.signature(name)
        inputs, rows = tensors.from_json(document, signature.inputs)
        outputs = await self._batcher.run(signature, inputs)
        return tensors.to_json(outputs, rows)

    async def _body(self, request):
        """The request's body."""
        most, size, chunks = self._settings.max_body, 0, []
        async for chunk in request.stream():
            size += len(chunk)
            if size <= most:
                chunks.append(chunk)
            elif size > 8 * most:  # up to here: a client that sends reads no answer
                break
        if size > most:
            message = f"a body of more than {most} bytes"
            raise ServingError("RESOURCE_EXHAUSTED", message, http_status=413)
        return b"".join(chunks)


def _as_dict(message):
    return MessageToDict(
        message,
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
    )


def create_http_server(models, batcher, settings):
    """An HTTP server that is not started, and ends when ``should_exit`` is set."""
    quiet = {"log_config": None, "log_level": "critical"}
    app, grace = RestApi(models, batcher, settings), settings.grace
    config = uvicorn.Config(app, timeout_graceful_shutdown=grace, **quiet)
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # `local` has them
    return server
