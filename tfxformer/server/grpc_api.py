"""TensorFlow Serving's gRPC API, and the standard health service."""

import functools

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_health.v1.health_pb2 import HealthCheckResponse
from tensorflow_serving.apis import (
    model_service_pb2_grpc,
    prediction_service_pb2_grpc,
)
from tensorflow_serving.apis.get_model_metadata_pb2 import GetModelMetadataResponse
from tensorflow_serving.apis.predict_pb2 import PredictResponse

from tfxformer.server import tensors
from tfxformer.server.errors import ServingError, invalid, unexpected

_SERVICES = (
    "",  # the server as a whole
    "tensorflow.serving.PredictionService",
    "tensorflow.serving.ModelService",
)


def create_server(models, batcher, metrics, settings):
    """A gRPC server, not started.

    Args:
        models: `models.Models`.
        batcher: `batching.Batcher`.
        metrics: `metrics.Metrics`.
        settings: `local.Settings`.

    Returns:
        The server and its health service, which says NOT_SERVING until `set_serving`.
    """
    server = grpc.aio.server(
        maximum_concurrent_rpcs=settings.max_connections,
        options=[
            ("grpc.max_receive_message_length", settings.max_body),
            # Two servers on one port would share its requests, without a word.
            ("grpc.so_reuseport", 0),
            ("grpc.server_handshake_timeout_ms", int(1000 * settings.read_timeout)),
        ],
    )
    service = _Services(models, batcher, metrics, settings.limits)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(service, server)
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(service, server)
    healthy = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
    return server, healthy


async def set_serving(healthy, serving):
    """Has the health service say whether requests are welcome."""
    status = "SERVING" if serving else "NOT_SERVING"
    for name in _SERVICES:
        await healthy.set(name, HealthCheckResponse.ServingStatus.Value(status))


def _method(api):
    """Makes a service's method of a function that answers or raises `ServingError`.

    Args:
        api: the method's name, for the metrics; "" where TensorFlow Serving has none.
    """

    def decorate(function):
        @functools.wraps(function)
        async def method(self, request, context):
            name = request.model_spec.name if hasattr(request, "model_spec") else ""
            try:
                with self._metrics.request(self._models.known(name), api, "GRPC"):
                    return await function(self, request)
            except ServingError as error:
                answer = error
            except Exception as error:
                answer = unexpected(error)
            await context.abort(getattr(grpc.StatusCode, answer.code), answer.message)

        return method

    return decorate


def _wanted(request):
    """The model's name, version and label, as `Models.use` takes them."""
    if not request.HasField("model_spec"):
        raise invalid("Missing ModelSpec")
    spec = request.model_spec
    choice = spec.WhichOneof("version_choice")
    return (
        spec.name,
        spec.version.value if choice == "version" else None,
        spec.version_label if choice == "version_label" else None,
    )


class _Services(
    prediction_service_pb2_grpc.PredictionServiceServicer,
    model_service_pb2_grpc.ModelServiceServicer,
):
    def __init__(self, models, batcher, metrics, limits):
        self._models, self._batcher, self._metrics = models, batcher, metrics
        self._limits = limits

    @_method("Predict")
    async def Predict(self, request):
        name = request.model_spec.signature_name or tensors.DEFAULT_SIGNATURE
        with self._models.use(*_wanted(request)) as servable:
            signature = servable.signatures.get(name)
            if signature is None:
                raise ServingError(
                    "FAILED_PRECONDITION", f'Serving signature key "{name}" not found.'
                )
            inputs = tensors.from_proto(request.inputs, signature, self._limits)
            outputs = _output_filter(request.output_filter, signature)
            answer = await self._batcher.run(servable, signature, inputs)
            response = PredictResponse(
                model_spec={
                    "name": servable.name,
                    "version": {"value": servable.version},
                    "signature_name": name,
                }
            )
        for output in outputs:
            response.outputs[output].CopyFrom(tensors.to_proto(answer[output]))
        return response

    @_method("")
    async def GetModelMetadata(self, request):
        if not request.metadata_field:
            raise invalid(
                "GetModelMetadataRequest must specify at least one metadata_field"
            )
        for field in request.metadata_field:
            if field != "signature_def":
                raise invalid(f"Metadata field {field} is not supported")
        with self._models.use(*_wanted(request)) as servable:
            model_spec, signatures = servable.describe()
        response = GetModelMetadataResponse(model_spec=model_spec)
        response.metadata["signature_def"].Pack(signatures)
        return response

    @_method("Classify")
    async def Classify(self, request):
        self._refuse("classify", request)

    @_method("Regress")
    async def Regress(self, request):
        self._refuse("regress", request)

    @_method("")
    async def MultiInference(self, request):
        if not request.tasks:
            raise invalid("Inference request must have at least one task")
        method = request.tasks[0].method_name
        api = method.removeprefix("tensorflow/serving/")
        if api not in ("classify", "regress"):
            raise ServingError(
                "UNIMPLEMENTED", f"Unsupported signature method_name: {method}"
            )
        self._refuse(api, request.tasks[0])

    def _refuse(self, api, request):
        """Says no to classify and regress, which no translator has signatures for."""
        with self._models.use(*_wanted(request)) as servable:
            name = request.model_spec.signature_name or tensors.DEFAULT_SIGNATURE
            raise servable.refusal(api, name)

    @_method("")
    async def GetModelStatus(self, request):
        return self._models.status(*_wanted(request))

    @_method("")
    async def HandleReloadConfigRequest(self, request):
        raise ServingError(
            "PERMISSION_DENIED",
            "this server takes its models from its command line alone; it reads its "
            "--config again when that changes",
        )


def _output_filter(wanted, signature):
    """The outputs that are to be sent; all where none is named."""
    for i, name in enumerate(wanted):
        if name not in signature.outputs:
            known = ",".join(signature.outputs)
            raise invalid(
                f"output tensor alias not found in signature: {name} Outputs expected "
                f"to be in the set {{{known}}}."
            )
        if name in wanted[:i]:
            raise invalid(f"duplicate output tensor alias: {name}")
    return [*wanted] or [*signature.outputs]
