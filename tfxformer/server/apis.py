"""TensorFlow Serving's two APIs, REST and gRPC, and gRPC's standard health service."""

import asyncio
import json
import re
from urllib.parse import unquote

import grpc
from google.protobuf.json_format import MessageToDict
from grpc_health.v1 import health, health_pb2_grpc
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc
from tensorflow_serving.apis.predict_pb2 import PredictResponse

from tfxformer.server import ServingError, invalid, metrics, tensors
from tfxformer.server.batching import as_serving_error

# A request line may have the absolute form (RFC 9112, 3.2.2).
_PATH = re.compile(
    r"(?:https?://[^/]*)?/v1/models(?:/(?P<name>[^/:]+))?"
    r"(?:/versions/(?P<version>\d{1,18})|/labels/(?P<label>[^/:]+))?"
    r"(?P<action>/metadata|:predict)?",
    re.I | re.A,
)
_BAD_REQUEST = ("INVALID_ARGUMENT", "FAILED_PRECONDITION", "OUT_OF_RANGE")
_HTTP_STATUS = dict.fromkeys(_BAD_REQUEST, 400) | {
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}


class RestApi:
    """The REST API as an ASGI application."""

    def __init__(self, models, batcher, settings):
        self._models = models
        self._batcher = batcher
        self._settings = settings

    async def __call__(self, scope, receive, send):
        """Answers one HTTP request."""
        # Still quoted, so that a quoted slash in a model's name stays in the name.
        path, request = scope["raw_path"].decode("latin-1"), Request(scope, receive)
        try:
            if request.method == "GET" and path == metrics.PATH:
                response = Response(metrics.page(), media_type="text/plain")
            else:
                text = await self._answer(request, path)
                response = Response(text, media_type="application/json")
        except ClientDisconnect:
            return
        except Exception as error:
            error = as_serving_error(error)
            status = error.http_status or _HTTP_STATUS.get(error.code, 500)
            text = json.dumps({"error": str(error)})
            response = Response(text, status, media_type="application/json")
        await response(scope, receive, send)

    async def _answer(self, request, path):
        match = _PATH.fullmatch(path)
        action = match and (match["action"] or "/status").lower()[1:]
        if not match or request.method != ("POST" if action == "predict" else "GET"):
            raise invalid(f"Malformed request: {request.method} {path}")
        name = unquote(match["name"] or "")
        version = match["version"] and int(match["version"])
        label = match["label"] and unquote(match["label"])
        wanted = {"name": name, "version": version, "label": label}
        with metrics.request(name, self._models.configs, action, "REST"):
            if action == "metadata":
                answer = _as_dict(self._models.get(**wanted).metadata)
                del answer["metadata"]["signature_def"]["@type"]
                return json.dumps(answer)
            if action == "status":
                return json.dumps(_as_dict(self._models.status(**wanted)))
            try:
                async with asyncio.timeout(self._settings.timeout):
                    return await self._predict(request, wanted)
            except TimeoutError:
                raise ServingError("DEADLINE_EXCEEDED", "Timed out") from None

    async def _predict(self, request, wanted):
        document = tensors.parse_json(await self._body(request))
        servable = self._models.get(**wanted)
        name = document.get("signature_name", "")
        if not isinstance(name, str):
            raise invalid("'signature_name' key must be a string value.")
        signature = servable.signature(name)
        inputs, rows = tensors.from_json(document, signature.inputs)
        outputs = await self._batcher.run(signature, inputs)
        return tensors.to_json(outputs, rows)

    async def _body(self, request):
        body, most = bytearray(), self._settings.max_body
        async for chunk in request.stream():
            body += chunk
            if len(body) > most:
                message = f"a body of more than {most} bytes"
                raise ServingError("RESOURCE_EXHAUSTED", message, http_status=413)
        return body


def _as_dict(message):
    return MessageToDict(
        message,
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
    )


def create_grpc_server(models, batcher, settings):
    """A gRPC server, not yet started, and its health service."""
    options = [("grpc.max_receive_message_length", settings.max_body)]
    server = grpc.aio.server(options=options)
    service = _Services(models, batcher, settings)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(service, server)
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(service, server)
    healthy = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
    return server, healthy


def _counted(method):
    """Counts the calls of a service's method, and turns its errors into statuses."""

    async def answer(self, request, context):
        spec = request.model_spec
        version = spec.version.value if spec.HasField("version") else None
        label = spec.version_label or None
        wanted = {"name": spec.name, "version": version, "label": label}
        known = self._models.configs
        try:
            with metrics.request(spec.name, known, method.__name__, "GRPC"):
                return await method(self, request, wanted)
        except Exception as error:
            told = as_serving_error(error)
        await context.abort(getattr(grpc.StatusCode, told.code), str(told))

    return answer


class _Services(
    prediction_service_pb2_grpc.PredictionServiceServicer,
    model_service_pb2_grpc.ModelServiceServicer,
):
    """The services; all other methods answer UNIMPLEMENTED, as in the base classes."""

    def __init__(self, models, batcher, settings):
        self._models = models
        self._batcher = batcher
        self._settings = settings

    @_counted
    async def Predict(self, request, wanted):
        servable = self._models.get(**wanted)
        signature = servable.signature(request.model_spec.signature_name)
        for output in request.output_filter:
            if output not in signature.outputs:
                raise invalid(f"output tensor alias not found in signature: {output}")
        most = self._settings.max_body
        inputs = tensors.from_proto(request.inputs, signature.inputs, most)
        answer = await self._batcher.run(signature, inputs)
        response = PredictResponse(model_spec=servable.metadata.model_spec)
        response.model_spec.signature_name = signature.name
        for output in [*request.output_filter] or answer:
            response.outputs[output].CopyFrom(tensors.to_proto(answer[output]))
        return response

    @_counted
    async def GetModelMetadata(self, request, wanted):
        if [*request.metadata_field] != ["signature_def"]:
            raise invalid("metadata_field must be signature_def only")
        return self._models.get(**wanted).metadata

    @_counted
    async def GetModelStatus(self, request, wanted):
        return self._models.status(**wanted)
