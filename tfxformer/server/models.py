"""The models that are served: their versions are loaded, swapped and dropped.

A new version is loaded and warmed up before requests reach it. The one that it replaces
answers the requests it has, and then goes. If a version cannot be loaded, the old one
stays, and the status says why; the load is tried again when the files have changed.
"""

import asyncio
import collections
import gc
import logging
import time

import tensorflow as tf

# Importing it registers the ops of exported translators.
import tensorflow_text  # noqa: F401
from tensorflow.core.protobuf.error_codes_pb2 import Code
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow_serving.apis.get_model_metadata_pb2 import SignatureDefMap
from tensorflow_serving.apis.get_model_status_pb2 import (
    GetModelStatusResponse,
    ModelVersionStatus,
)

from tfxformer.errors import UserError
from tfxformer.exporting.repository import WARM_UP_FILE, read_records
from tfxformer.server import ServingError, invalid, metrics
from tfxformer.server.batching import as_serving_error
from tfxformer.server.configs import versions

log = logging.getLogger("tfxformer")
DEFAULT_SIGNATURE = "serving_default"


class Signature:
    """One signature of a loaded model, called with arrays by input name."""

    def __init__(self, model, function):
        self.model, self._function = model, function
        # tf.TensorSpec by name.
        self.inputs = dict(sorted(function.structured_input_signature[1].items()))
        self.outputs = dict(sorted(function.structured_outputs.items()))
        shapes = [x.shape for x in (*self.inputs.values(), *self.outputs.values())]
        # Whether a row has the same shape in any batch. Others, as those padded to the
        # longest row, are not joined.
        self.by_row = all(
            shape.rank and shape[0] is None and shape[1:].is_fully_defined()
            for shape in shapes
        )
        # For `batching`: the requests that wait, and the task that answers them.
        self.queue, self.worker = collections.deque(), None

    def __call__(self, inputs):
        """Arrays by output name."""
        tensors = {x: tf.constant(inputs[x], y.dtype) for x, y in self.inputs.items()}
        outputs = self._function(**tensors)
        return {name: outputs[name].numpy() for name in self.outputs}


class Servable:
    """One version of a model, loaded and warmed up from its folder."""

    def __init__(self, name, version, path):
        self.name, self.version = name, version
        saved = (path / "saved_model.pb").read_bytes()
        graph = SavedModel.FromString(saved).meta_graphs[0]
        self.metadata = SignatureDefMap(signature_def=graph.signature_def)
        self._model = tf.saved_model.load(str(path))  # it owns the variables
        found = self._model.signatures.items()
        self.signatures = {key: Signature(name, function) for key, function in found}
        for log in read_records(path / WARM_UP_FILE):
            request = log.request
            inputs = {x: tf.make_ndarray(proto) for x, proto in request.inputs.items()}
            self.signature(request.model_spec.signature_name)(inputs)

    def signature(self, name):
        """A signature by its name; "" is the default one's."""
        name = name or DEFAULT_SIGNATURE
        if name not in self.signatures:
            message = f'Serving signature key "{name}" not found.'
            raise ServingError("FAILED_PRECONDITION", message)
        return self.signatures[name]


class Models:
    """The models, as ``find_configs()`` and the disk have them."""

    def __init__(self, find_configs):
        self._find_configs, self.configs = find_configs, {}
        # By model and version; a status stays when its version is gone.
        self._loaded = collections.defaultdict(dict)
        self._statuses = collections.defaultdict(dict)
        self._failed = {}  # the files of versions that could not be loaded

    async def start(self):
        """Loads what there is, at least one version of each model."""
        await self.update()
        for name, config in self.configs.items():
            if not self._loaded[name]:
                known = self._statuses[name].values()
                why = [f"version {x.version}: {x.status.error_message}" for x in known]
                where = f"{'; '.join(why) or 'no version'} in {config.base_path}"
                raise UserError(f"model {name}: {where}")

    async def watch(self, seconds):
        """Follows the disk, looking every so many seconds, until it is cancelled."""
        told = None
        while True:
            await asyncio.sleep(seconds)
            try:
                if await self.update():
                    # The functions of a model refer to one another. By then most
                    # requests that used them are answered.
                    await asyncio.sleep(seconds)
                    gc.collect()
            except Exception as error:
                if str(error) != told:  # not the same line every second
                    log.warning("%s; the models that are loaded stay", error)
                told = str(error)

    def get(self, name, version=None, label=None):
        """The `Servable` of a version or a label, or else the newest."""
        if not name:
            raise invalid("ModelSpec has no name specified.")
        version = self._number(name, version, label)
        loaded = self._loaded.get(name)
        if loaded and version in (None, *loaded):
            return loaded[max(loaded) if version is None else version]
        which = f"Latest({name})" if version is None else f"Specific({name}, {version})"
        raise ServingError("NOT_FOUND", f"Servable not found for request: {which}")

    def status(self, name, version=None, label=None):
        """A ``GetModelStatusResponse`` for a version or a label, or else for all."""
        if not name:
            raise invalid("Missing model name in request.")
        version = self._number(name, version, label)
        known = sorted(self._statuses.get(name, {}).items(), reverse=True)
        found = [status for number, status in known if version in (None, number)]
        if not found:
            which = "any versions" if version is None else f"version {version}"
            raise ServingError("NOT_FOUND", f"Could not find {which} of model {name}")
        return GetModelStatusResponse(model_version_status=found)

    def _number(self, name, version, label):
        """The version that a label names."""
        if label is None:
            return version
        config = self.configs.get(name)
        if config is None or label not in config.version_labels:
            raise invalid(f"Unrecognized servable version label: {label}")
        return config.version_labels[label]

    async def update(self):
        """Loads and drops versions; returns those that it drops."""
        self.configs = {config.name: config for config in self._find_configs()}
        dropped = []
        for name in {*self.configs, *self._loaded}:
            config = self.configs.get(name)
            wanted = versions(config) if config else {}
            for number, path in wanted.items():
                await self._load(name, number, path)
            loaded = self._loaded[name].keys()
            if not config or loaded & wanted.keys():  # or something must still answer
                dropped += [(name, number) for number in loaded - wanted.keys()]
        for name, number in dropped:
            del self._loaded[name][number]
            self._tell(name, number, "END")
            log.info("%s version %d: unloaded", name, number)
        return dropped

    async def _load(self, name, number, path):
        """Loads a version, unless it is loaded, or failed and has not changed."""
        if number in self._loaded[name]:
            return
        stats = ((str(file), file.stat()) for file in path.rglob("*"))
        files = {(file, x.st_size, x.st_mtime_ns) for file, x in stats}
        if self._failed.get((name, number)) == files:
            return
        self._tell(name, number, "LOADING")
        start, status = time.monotonic(), "success"
        try:
            servable = await asyncio.to_thread(Servable, name, number, path)
        except Exception as error:
            status, self._failed[name, number] = "fail", files
            unknown = not isinstance(error, tf.errors.OpError)
            error = ServingError("UNKNOWN", str(error)) if unknown else error
            error = as_serving_error(error)
            self._tell(name, number, "END", error.code, error.message)
            log.warning("%s version %d: cannot be loaded: %s", name, number, error)
        else:
            self._loaded[name][number] = servable
            self._tell(name, number, "AVAILABLE")
            told = (name, number, time.monotonic() - start)
            log.info("%s version %d: loaded in %.1f s", *told)
        metrics.LOADS.labels(str(path), status).inc()

    def _tell(self, name, number, state, code="OK", message=""):
        """Sets the status of a version."""
        self._statuses[name][number] = ModelVersionStatus(
            version=number,
            state=ModelVersionStatus.State.Value(state),
            status={"error_code": Code.Value(code), "error_message": message},
        )
