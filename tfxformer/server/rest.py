"""TensorFlow Serving's REST API.

Nothing of an address is ever a path: a model's name in it is looked up among those that
are served.
"""

import asyncio
import contextlib
import json
import re
from urllib.parse import unquote

import uvicorn
from google.protobuf.json_format import MessageToDict
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from uvicorn.protocols.http.h11_impl import H11Protocol

from tfxformer.server import metrics as metrics_page
from tfxformer.server import tensors
from tfxformer.server.errors import ServingError, invalid, unexpected

_MODEL = r"/v1/models(?:/(?P<name>[^/:]+))?"
_VERSION = r"(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
_PREDICT = re.compile(
    rf"{_MODEL}{_VERSION}:(?P<method>classify|regress|predict)", re.I | re.A
)
_STATUS = re.compile(rf"{_MODEL}{_VERSION}(?:/(?P<metadata>metadata))?", re.I | re.A)
# Before the path of a request line in absolute form (RFC 9112, 3.2.2).
_ORIGIN = re.compile("^https?://[^/]*", re.I)
# An answer of more elements is written in a thread.
_SMALL = 10_000
# Of a body that is too large, so many times the maximum is read and thrown away: a
# client that is still sending would not read the answer.
_READ_AND_THROW_AWAY = 8


class RestApi:
    """The REST API as an ASGI application.

    Args:
        models: `models.Models`.
        batcher: `batching.Batcher`.
        metrics: `metrics.Metrics`.
        settings: `local.Settings`.
    """

    def __init__(self, models, batcher, metrics, settings):
        self._models, self._batcher, self._metrics = models, batcher, metrics
        self._settings = settings

    async def __call__(self, scope, receive, send):
        """Answers one HTTP request."""
        response = await self._answer(Request(scope, receive))
        await response(scope, receive, send)

    async def _answer(self, request):
        headers = {}
        try:
            # Not decoded: a slash in a model's name is not one of the address.
            path = _ORIGIN.sub("", request.scope["raw_path"].decode("latin-1"))
            if request.method == "GET" and path == metrics_page.PATH:
                return Response(self._metrics.page(), media_type="text/plain")
            text = await self._route(request, path)
            return Response(text, media_type="application/json")
        except ServingError as error:
            answer = error
        except ClientDisconnect:
            answer = ServingError("CANCELLED", "the client has gone")
        except Exception as error:
            answer = unexpected(error)
        if answer.http_status in (408, 413):  # its body may not have been read
            headers["connection"] = "close"
        text = json.dumps({"error": answer.message}, ensure_ascii=False)
        # Half a surrogate pair, which a request may quote, has no UTF-8: JSON's escape.
        content = text.encode("utf-8", "backslashreplace")
        return Response(content, answer.http_status, headers, "application/json")

    async def _route(self, request, path):
        method = request.method
        malformed = invalid(f"Malformed request: {method} {path}")
        if not path.lower().startswith("/v1/"):
            raise ServingError("NOT_FOUND", f"Not found: {path}")
        kind = {"POST": _PREDICT, "GET": _STATUS, "HEAD": _STATUS}.get(method)
        found = kind and kind.fullmatch(path)
        if not found:
            raise malformed
        spec = found.groupdict()
        name, label = spec["name"] and unquote(spec["name"]), spec["label"]
        version = spec["version"]
        if version is not None:
            digits = version.lstrip("0") or "0"
            if len(digits) > 19 or int(digits) >= 2**63:
                raise invalid(f"Failed to convert version: {version} to numeric.")
            version = int(digits)
        wanted = (name, version, label and unquote(label))
        known = self._models.known(name)
        if method != "POST":
            with self._metrics.request(known, "", "REST"):
                return self._describe(*wanted, spec["metadata"])
        if name is None:
            raise malformed
        api = spec["method"].lower()
        with self._metrics.request(known, api, "REST"):
            document = tensors.parse_json(await self._body(request))
            if api == "predict":
                return await self._until_gone(request, self._predict(document, *wanted))
            self._refuse(api, document, *wanted)

    def _describe(self, name, version, label, metadata):
        """The status or the metadata of a model."""
        if name is None:
            raise invalid("Missing model name in request.")
        if not metadata:
            return _as_json(self._models.status(name, version, label))
        with self._models.use(name, version, label) as servable:
            spec, signatures = servable.describe()
        return (
            f'{{"model_spec": {_as_json(spec)}, "metadata": '
            f'{{"signature_def": {_as_json(signatures)}}}}}'
        )

    async def _predict(self, document, name, version, label):
        with self._models.use(name, version, label) as servable:
            wanted = tensors.signature_name(document)
            signature = servable.signatures.get(wanted)
            if signature is None:
                raise invalid(
                    f'Serving signature name: "{wanted}" not found in signature def'
                )
            inputs, rows = tensors.from_json(document, signature, self._settings.limits)
            outputs = await self._batcher.run(servable, signature, inputs)
        if sum(array.size for array in outputs.values()) > _SMALL:
            return await asyncio.to_thread(tensors.to_json, outputs, rows)
        return tensors.to_json(outputs, rows)

    def _refuse(self, api, document, name, version, label):
        """Says no to classify and regress, which no translator has signatures for."""
        signature = tensors.signature_name(document)
        examples = document.get("examples")
        if not isinstance(examples, list) or not examples:
            raise invalid(
                "When method is classify, key 'examples' is expected, an list/array "
                "that is not empty"
            )
        with self._models.use(name, version, label) as servable:
            raise servable.refusal(api, signature)

    async def _body(self, request):
        """The request's body, in bounded time and memory."""
        most, size, chunks = self._settings.max_body, 0, []
        too_large = ServingError(
            "RESOURCE_EXHAUSTED", f"a body of more than {most} bytes", 413
        )

        async def read():
            nonlocal size
            async for chunk in request.stream():
                size += len(chunk)
                if size <= most:
                    chunks.append(chunk)
                elif size > _READ_AND_THROW_AWAY * most:
                    raise too_large

        declared = request.headers.get("content-length", "0")
        if len(declared) > 18 or int(declared) > _READ_AND_THROW_AWAY * most:
            raise too_large
        seconds = self._settings.read_timeout
        try:
            await asyncio.wait_for(read(), seconds)
        except asyncio.TimeoutError:
            raise ServingError(
                "DEADLINE_EXCEEDED", f"the body took more than {seconds:g} seconds", 408
            ) from None
        if size > most:
            raise too_large
        return b"".join(chunks)

    async def _until_gone(self, request, coroutine):
        """Awaits it while the client waits, and no longer than a request may take."""
        answer = asyncio.ensure_future(coroutine)
        gone = asyncio.ensure_future(request.receive())  # after the body: it has gone
        try:
            await asyncio.wait(
                {answer, gone},
                timeout=self._settings.timeout,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if answer.done():
                return answer.result()
            if gone.done():
                raise ServingError("CANCELLED", "the client has gone")
            raise ServingError(
                "DEADLINE_EXCEEDED", f"no answer in {self._settings.timeout:g} seconds"
            )
        finally:
            answer.cancel()
            gone.cancel()


def _as_json(message):
    return json.dumps(
        MessageToDict(
            message,
            preserving_proto_field_name=True,
            always_print_fields_with_no_presence=True,
        )
    )


class HttpServer(uvicorn.Server):
    """Serves an application by HTTP/1.1 until it is told to stop.

    Args:
        app: an ASGI application.
        settings: `local.Settings`.
    """

    def __init__(self, app, settings):
        class Protocol(_Protocol):
            read_timeout = settings.read_timeout
            max_connections = settings.max_connections

        config = uvicorn.Config(
            app,
            http=Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=settings.grace,
        )
        super().__init__(config)

    @contextlib.contextmanager
    def capture_signals(self):
        """Leaves signals to `local`."""
        yield


class _Protocol(H11Protocol):
    """A connection, which must say in time what it wants, and not be one too many."""

    read_timeout = max_connections = None
    _timer = None

    def connection_made(self, transport):
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            self._end(503, "too many connections")
        else:
            self._wait_for_request()

    def data_received(self, data):
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._wait_for_request()
        else:
            self._stop_waiting()

    def connection_lost(self, exc):
        self._stop_waiting()
        super().connection_lost(exc)

    def send_400_response(self, msg):
        self._end(400, msg)

    def _wait_for_request(self):
        """Starts the time in which a request's head must be here, unless it runs."""
        if self._timer is None:
            self._timer = self.loop.call_later(
                self.read_timeout, self._end, 408, "the request took too long"
            )

    def _stop_waiting(self):
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self, status, message):
        if self.transport.is_closing():
            return
        body = json.dumps({"error": message})
        self.transport.write(
            f"HTTP/1.1 {status} \r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode()
        )
        self.transport.close()
