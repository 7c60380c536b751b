"""The models that are served: their versions are loaded, swapped and dropped.

A new version is loaded and warmed up before requests reach it. The one that it replaces
answers the requests it has, and then goes. If a version cannot be loaded, the old one
stays, and the status says why; the load is tried again when the files have changed.
"""

import asyncio
import gc
import logging
import time
from dataclasses import dataclass

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
from tfxformer.exporting.warm_up import read_warm_up
from tfxformer.server import ServingError, invalid
from tfxformer.server.batching import as_serving_error
from tfxformer.server.configs import versions

log = logging.getLogger("tfxformer")
DEFAULT_SIGNATURE = "serving_default"


class Signature:
    """One signature of a loaded model, called with arrays by input name."""

    def __init__(self, function):
        self._function = function
        # tf.TensorSpec by name.
        self.inputs = dict(sorted(function.structured_input_signature[1].items()))
        self.outputs = dict(sorted(function.structured_outputs.items()))

    @property
    def by_row(self):
        """Whether each row's answer has the same shape in any batch.

        If not, as in an output padded to the longest row, a request is answered alone.
        """
        inputs = [spec.shape for spec in self.inputs.values()]
        outputs = [spec.shape for spec in self.outputs.values()]
        rows = all(shape.rank and shape[0] is None for shape in inputs + outputs)
        return rows and all(shape[1:].is_fully_defined() for shape in outputs)

    def __call__(self, inputs):
        """Arrays by output name."""
        specs = self.inputs.items()
        outputs = self._function(
            **{x: tf.constant(inputs[x], y.dtype) for x, y in specs}
        )
        return {name: outputs[name].numpy() for name in self.outputs}


class Servable:
    """One version of a model, loaded and warmed up from its folder.

    Raises:
        Exception: Of many types, if it cannot be loaded or does not run.
    """

    def __init__(self, name, version, path):
        self.name, self.version = name, version
        graph = SavedModel.FromString((path / "saved_model.pb").read_bytes())
        definitions = graph.meta_graphs[0].signature_def
        self.metadata = SignatureDefMap(signature_def=definitions)
        self._model = tf.saved_model.load(str(path))  # it owns the variables
        self.signatures = {x: Signature(y) for x, y in self._model.signatures.items()}
        for request in read_warm_up(path):
            inputs = {x: tf.make_ndarray(proto) for x, proto in request.inputs.items()}
            self.signatures[request.model_spec.signature_name or DEFAULT_SIGNATURE](
                inputs
            )


@dataclass
class _Version:
    """What is known of a version."""

    state: str
    files: frozenset
    error: ServingError | None = None
    servable: Servable | None = None


class Models:
    """The models, as ``find_configs()`` and the disk have them."""

    def __init__(self, find_configs, metrics):
        self._find_configs, self._metrics = find_configs, metrics
        self._configs = {}
        self._versions = {}  # by model and number; for the status, ended ones stay

    async def start(self):
        """Loads what there is.

        Raises:
            UserError: If a model has no version that can be loaded.
        """
        await self.update()
        for name, config in self._configs.items():
            if not self._loaded(name):
                known = self._versions.get(name, {}).items()
                why = "; ".join(f"version {x}: {y.error.message}" for x, y in known)
                where = config.base_path
                raise UserError(f"model {name}: {why or 'no version'} in {where}")

    async def watch(self, seconds):
        """Follows the disk, looking every so many seconds, until it is cancelled."""
        told = None
        while True:
            await asyncio.sleep(seconds)
            try:
                if await self.update():
                    # The functions of a model refer to one another. By now most
                    # requests that used them are answered.
                    await asyncio.sleep(seconds)
                    gc.collect()
            except Exception as error:
                if str(error) != told:  # not the same line every second
                    log.warning("%s; the models that are loaded stay", error)
                told = str(error)

    def names(self):
        """The models' names."""
        return [*self._configs]

    def get(self, name, version=None, label=None):
        """The `Servable` of a version or a label, or else the newest.

        Raises:
            ServingError: If there is none, in the words of TensorFlow Serving.
        """
        if not name:
            raise invalid("ModelSpec has no name specified.")
        version = self._number(name, version, label)
        loaded = self._loaded(name)
        if loaded and version is None:
            return loaded[max(loaded)]
        if version in loaded:
            return loaded[version]
        which = f"Latest({name})" if version is None else f"Specific({name}, {version})"
        raise ServingError("NOT_FOUND", f"Servable not found for request: {which}")

    def status(self, name, version=None, label=None):
        """A ``GetModelStatusResponse`` for a version or a label, or else for all.

        Raises:
            ServingError: If there is none, in the words of TensorFlow Serving.
        """
        if not name:
            raise invalid("Missing model name in request.")
        version = self._number(name, version, label)
        response = GetModelStatusResponse()
        for number, known in sorted(self._versions.get(name, {}).items(), reverse=True):
            if version in (None, number):
                state = ModelVersionStatus.State.Value(known.state)
                added = response.model_version_status.add(version=number, state=state)
                added.status.SetInParent()  # present, also where all is well
                if known.error:
                    added.status.error_code = Code.Value(known.error.code)
                    added.status.error_message = known.error.message
        if not response.model_version_status:
            which = "any versions" if version is None else f"version {version}"
            raise ServingError("NOT_FOUND", f"Could not find {which} of model {name}")
        return response

    def _number(self, name, version, label):
        """The version that a label names."""
        if label is None:
            return version
        config = self._configs.get(name)
        if config is None or label not in config.version_labels:
            raise invalid(f"Unrecognized servable version label: {label}")
        return config.version_labels[label]

    def _loaded(self, name):
        known = self._versions.get(name, {})
        return {number: x.servable for number, x in known.items() if x.servable}

    async def update(self):
        """Loads and drops versions; returns those that it drops."""
        configs = {config.name: config for config in self._find_configs()}
        gone = self._versions.keys() - configs.keys()
        dropped = [(name, number) for name in gone for number in self._loaded(name)]
        self._configs = configs
        for name, config in configs.items():
            wanted = versions(config)
            for number, path in wanted.items():
                await self._load(name, number, path)
            loaded = self._loaded(name).keys()
            if loaded & wanted.keys():  # or what is there goes on answering
                dropped += [(name, number) for number in loaded - wanted.keys()]
        for name, number in dropped:
            self._versions[name][number] = _Version("END", frozenset())
            self._metrics.loaded.remove(name, str(number))
            log.info("%s version %d: unloaded", name, number)
        return dropped

    async def _load(self, name, number, path):
        """Loads a version, unless it is loaded, or failed and has not changed."""
        stats = ((str(file), file.stat()) for file in path.rglob("*"))
        files = frozenset((file, x.st_size, x.st_mtime_ns) for file, x in stats)
        known = self._versions.setdefault(name, {}).get(number)
        if known and (known.servable or (known.error and known.files == files)):
            return
        self._versions[name][number] = entry = _Version("LOADING", files)
        start = time.monotonic()
        try:
            entry.servable = await asyncio.to_thread(Servable, name, number, path)
        except Exception as error:
            known = isinstance(error, tf.errors.OpError)
            entry.error = as_serving_error(error) if known else None
            entry.error = entry.error or ServingError("UNKNOWN", str(error))
            entry.state, why = "END", entry.error.message
            log.warning("%s version %d: cannot be loaded: %s", name, number, why)
        else:
            entry.state = "AVAILABLE"
            self._metrics.loaded.labels(name, number).set(1)
            seconds = time.monotonic() - start
            log.info("%s version %d: loaded in %.1f s", name, number, seconds)
        status = "fail" if entry.error else "success"
        self._metrics.loads.labels(str(path), status).inc()
