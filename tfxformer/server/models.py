"""The loaded models: versions are loaded, swapped and unloaded.

A new version is loaded and warmed up before it gets requests. The old one answers its
pending requests and is then unloaded. If a version fails to load, the old one stays,
and the status has the reason; when the files change, the server tries again.
"""

import asyncio
import collections
import gc
import logging
import time

import tensorflow as tf
import tensorflow_text  # noqa: F401  (registers the ops of exported translators)
from tensorflow.core.protobuf.error_codes_pb2 import Code
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow_serving.apis import get_model_metadata_pb2 as metadata_pb2
from tensorflow_serving.apis import get_model_status_pb2 as status_pb2

from tfxformer.errors import UserError
from tfxformer.repository import METADATA_FILE, WARM_UP_FILE, read_records
from tfxformer.server import ServingError, invalid, metrics
from tfxformer.server.batching import as_serving_error
from tfxformer.server.configs import versions

log = logging.getLogger("tfxformer")


class Signature:
    """One signature of a loaded model, called with arrays by input name."""

    def __init__(self, model, name, function, rows_independent):
        self.model, self.name = model, name
        self._function = function
        # Whether an answer never depends on the other rows of a call.
        self.rows_independent = rows_independent
        # tf.TensorSpec by name.
        self.inputs = dict(sorted(function.structured_input_signature[1].items()))
        self.outputs = dict(sorted(function.structured_outputs.items()))
        shapes = [x.shape for x in (*self.inputs.values(), *self.outputs.values())]
        # Whether a row has the same shape in any batch. Only then are requests joined:
        # not if rows are padded to the longest.
        self.by_row = all(
            shape.rank and shape[0] is None and shape[1:].is_fully_defined()
            for shape in shapes
        )
        # For `batching`: the waiting requests, and the task that answers them.
        self.queue, self.worker = collections.deque(), None

    def __call__(self, inputs):
        """Arrays by output name."""
        tensors = {x: tf.constant(inputs[x], y.dtype) for x, y in self.inputs.items()}
        outputs = self._function(**tensors)
        return {name: outputs[name].numpy() for name in self.outputs}


class Servable:
    """One version of a model, loaded and warmed up from its folder."""

    def __init__(self, name, version, path):
        self.version = version
        self._model = tf.saved_model.load(str(path))  # it owns the variables
        functions = self._model.signatures.items()
        ours = (path / METADATA_FILE).exists()  # tests hold our exports to it
        self._signatures = {x: Signature(name, x, y, ours) for x, y in functions}
        for signature, inputs, _ in read_records(path / WARM_UP_FILE):
            self.signature(signature)(inputs)
        saved = SavedModel.FromString((path / "saved_model.pb").read_bytes())
        signatures = saved.meta_graphs[0].signature_def
        content = metadata_pb2.SignatureDefMap(signature_def=signatures)
        spec = {"name": name, "version": {"value": version}}
        self.metadata = metadata_pb2.GetModelMetadataResponse(model_spec=spec)
        self.metadata.metadata["signature_def"].Pack(content)

    def signature(self, name):
        """A signature by its name; "" is the default signature."""
        name = name or "serving_default"
        if name not in self._signatures:
            message = f'Serving signature key "{name}" not found.'
            raise ServingError("FAILED_PRECONDITION", message)
        return self._signatures[name]


class Models:
    """The models of ``find_configs()`` and their versions on disk."""

    def __init__(self, find_configs):
        self._find_configs, self.configs = find_configs, {}
        # By model and version. Unloaded versions keep a status.
        self._loaded = collections.defaultdict(dict)
        self._statuses = collections.defaultdict(dict)
        self._failed = {}  # the files of versions that failed to load

    async def start(self):
        """Loads the models; a `UserError` if one has no version."""
        await self.update()
        for name, config in self.configs.items():
            if not self._loaded[name]:
                known = self._statuses[name].values()
                why = [f"version {x.version}: {x.status.error_message}" for x in known]
                where = f"{'; '.join(why) or 'no version'} in {config.base_path}"
                raise UserError(f"model {name}: {where}")

    async def watch(self, seconds):
        """Updates the models every few seconds until cancelled."""
        told = None
        while True:
            await asyncio.sleep(seconds)
            try:
                if await self.update():
                    # Functions refer to one another: collect them once unused.
                    await asyncio.sleep(seconds)
                    gc.collect()
            except Exception as error:
                if str(error) != told:  # do not repeat the line every second
                    log.warning("%s; keeping the loaded models", error)
                told = str(error)

    async def update(self):
        """Loads and unloads versions; returns whether it unloaded any."""
        self.configs = {config.name: config for config in self._find_configs()}
        dropped = False
        for name in {*self.configs, *self._loaded}:
            config, loaded = self.configs.get(name), self._loaded[name]
            wanted = versions(config) if config else {}
            for number, path in wanted.items():
                if number not in loaded:
                    await self._load(name, number, path)
            if config and not loaded.keys() & wanted.keys():
                continue  # keep the old version for requests
            for number in loaded.keys() - wanted.keys():
                del loaded[number]
                self._tell(name, number, "END")
                log.info("%s version %d: unloaded", name, number)
                dropped = True
        return dropped

    async def _load(self, name, number, path):
        """Loads a version, unless this failed before with the same files."""
        # `lstat`, since a link may lead nowhere.
        files = {(str(file), file.lstat().st_mtime_ns) for file in path.rglob("*")}
        if self._failed.get((name, number)) == files:
            return
        self._tell(name, number, "LOADING")
        start, status = time.monotonic(), "success"
        try:
            servable = await asyncio.to_thread(Servable, name, number, path)
        except Exception as error:
            status, self._failed[name, number] = "fail", files
            if not isinstance(error, tf.errors.OpError):
                error = ServingError("UNKNOWN", str(error))
            error = as_serving_error(error)
            self._tell(name, number, "END", code=error.code, message=str(error))
            log.warning("%s version %d: cannot be loaded: %s", name, number, error)
        else:
            self._loaded[name][number] = servable
            self._tell(name, number, "AVAILABLE")
            seconds = time.monotonic() - start
            log.info("%s version %d: loaded in %.1f s", name, number, seconds)
        metrics.LOADS.labels(str(path), status).inc()

    def _tell(self, name, number, state, *, code="OK", message=""):
        """Sets the status of a version."""
        self._statuses[name][number] = status_pb2.ModelVersionStatus(
            version=number,
            state=state,
            status={"error_code": Code.Value(code), "error_message": message},
        )

    def get(self, name, version=None, label=None):
        """The `Servable` of a version or a label; by default the newest."""
        version = self._number(name, version, label)
        loaded = self._loaded.get(name)
        if loaded and version in (None, *loaded):
            return loaded[max(loaded) if version is None else version]
        which = f"Latest({name})" if version is None else f"Specific({name}, {version})"
        raise ServingError("NOT_FOUND", f"Servable not found for request: {which}")

    def status(self, name, version=None, label=None):
        """A ``GetModelStatusResponse`` for a version or a label; by default for all."""
        version = self._number(name, version, label)
        known = sorted(self._statuses.get(name, {}).items(), reverse=True)
        statuses = [status for number, status in known if version in (None, number)]
        if not statuses:
            which = "any versions" if version is None else f"version {version}"
            raise ServingError("NOT_FOUND", f"Could not find {which} of model {name}")
        return status_pb2.GetModelStatusResponse(model_version_status=statuses)

    def _number(self, name, version, label):
        """The given version, or the version of a label."""
        if not name:
            raise invalid("Missing model name in request.")
        if label is None:
            return version
        config = self.configs.get(name)
        if config is None or label not in config.version_labels:
            raise invalid(f"Unrecognized servable version label: {label}")
        return config.version_labels[label]
