"""TensorFlow Serving's gRPC API, and the standard health service."""

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_health.v1.health_pb2 import HealthCheckResponse
from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc
from tensorflow_serving.apis.get_model_metadata_pb2 import GetModelMetadataResponse
from tensorflow_serving.apis.predict_pb2 import PredictResponse

from tfxformer.server import invalid, metrics, tensors
from tfxformer.server.batching import as_serving_error
from tfxformer.server.models import DEFAULT_SIGNATURE


def create_server(models, batcher, settings):
    """A gRPC server that is not started, and its health service for `set_serving`."""
    options = [("grpc.max_receive_message_length", settings.max_body)]
    server = grpc.aio.server(options=options)
    service = _Services(models, batcher, settings)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(service, server)
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(service, server)
    healthy = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
    return server, healthy


async def set_serving(healthy, serving):
    """Makes the health service say whether requests are welcome."""
    status = HealthCheckResponse.SERVING if serving else HealthCheckResponse.NOT_SERVING
    await healthy.set("", status)  # the server as a whole


def _counted(method):
    """Counts a service's method, and turns its errors into statuses."""

    async def answer(self, request, context):
        spec = request.model_spec
        choice = spec.WhichOneof("version_choice")
        version = spec.version.value if choice == "version" else None
        wanted = (spec.name, version, spec.version_label or None)
        known = spec.name if spec.name in self._models.configs else ""
        try:
            with metrics.request(known, method.__name__, "GRPC"):
                return await method(self, request, wanted)
        except Exception as error:
            told = as_serving_error(error)
        await context.abort(getattr(grpc.StatusCode, told.code), told.message)

    return answer


class _Services(
    prediction_service_pb2_grpc.PredictionServiceServicer,
    model_service_pb2_grpc.ModelServiceServicer,
):
    """Other methods than these answer UNIMPLEMENTED, as their base classes do."""

    def __init__(self, models, batcher, settings):
        self._models, self._batcher, self._settings = models, batcher, settings

    @_counted
    async def Predict(self, request, wanted):
        servable = self._models.get(*wanted)
        name = request.model_spec.signature_name or DEFAULT_SIGNATURE
        signature = servable.signature(name)
        for output in request.output_filter:
            if output not in signature.outputs:
                raise invalid(f"output tensor alias not found in signature: {output}")
        most = self._settings.max_body
        inputs = tensors.from_proto(request.inputs, signature.inputs, most)
        answer = await self._batcher.run(signature, inputs)
        spec = {"name": servable.name, "version": {"value": servable.version}}
        outputs = [*request.output_filter] or answer
        return PredictResponse(
            model_spec=spec | {"signature_name": name},
            outputs={output: tensors.to_proto(answer[output]) for output in outputs},
        )

    @_counted
    async def GetModelMetadata(self, request, wanted):
        if [*request.metadata_field] != ["signature_def"]:
            raise invalid("metadata_field must be signature_def, and nothing else")
        servable = self._models.get(*wanted)
        spec = {"name": servable.name, "version": {"value": servable.version}}
        response = GetModelMetadataResponse(model_spec=spec)
        response.metadata["signature_def"].Pack(servable.metadata)
        return response

    @_counted
    async def GetModelStatus(self, request, wanted):
        return self._models.status(*wanted)
