"""The models that are served: versions on the disk, loaded, swapped and unloaded.

As TensorFlow Serving does it: a version is loaded and warmed up before it is used, and
the one that it replaces is unloaded when the last request that uses it is answered. A
version that cannot be loaded leaves the old one serving, and the status says why; it is
tried again when its files have changed. What a model's folder no longer holds is
unloaded, but when the folder itself is gone the versions that are loaded stay.
"""

import asyncio
import contextlib
import gc
import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf

# Its ops are in any exported translator; importing it registers them.
import tensorflow_text  # noqa: F401
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow_serving.apis.get_model_metadata_pb2 import SignatureDefMap
from tensorflow_serving.apis.get_model_status_pb2 import (
    GetModelStatusResponse,
    ModelVersionStatus,
)
from tensorflow_serving.apis.model_pb2 import ModelSpec

from tfxformer.errors import UserError
from tfxformer.exporting.metadata import decode, read_metadata
from tfxformer.exporting.warm_up import read_warm_up
from tfxformer.server.errors import CODES, ServingError, from_tensorflow, invalid
from tfxformer.server.tensors import Signature

log = logging.getLogger("tfxformer")


class Servable:
    """One version of a model, loaded.

    Args:
        name: the model's name.
        version: its number.
        path: its folder.

    Raises:
        Exception: of many kinds, when it cannot be loaded or does not run.
    """

    def __init__(self, name, version, path):
        self.name, self.version = name, version
        self.users, self.retired = 0, False
        saved = SavedModel.FromString((path / "saved_model.pb").read_bytes())
        served = [x for x in saved.meta_graphs if "serve" in x.meta_info_def.tags]
        if not served:
            raise ServingError("NOT_FOUND", 'no graph with the tag "serve"')
        self.definitions = dict(served[0].signature_def)
        self._model = tf.saved_model.load(str(path))  # it owns the variables
        self._functions = dict(self._model.signatures)
        self.signatures = {
            key: Signature(key, self.definitions[key]) for key in self._functions
        }
        for signature, inputs in self._warm_up(path):
            self.run(signature, inputs)

    def _warm_up(self, path):
        """What to ask first: the records beside the model, or else its examples."""
        requests = read_warm_up(path)
        for request in requests:
            signature = request.model_spec.signature_name or "serving_default"
            inputs = request.inputs.items()
            yield signature, {key: tf.make_ndarray(x) for key, x in inputs}
        seen = set(self.signatures) if requests else set()
        for example in (read_metadata(path) or {"examples": []})["examples"]:
            name = example["signature"]
            if name in self.signatures and name not in seen:
                seen.add(name)
                specs = self.signatures[name].inputs
                inputs = example["inputs"].items()
                yield name, {x: decode(y, specs[x].dtype.name) for x, y in inputs}

    def describe(self):
        """A ``ModelSpec``, and a ``SignatureDefMap`` of all signatures."""
        spec = ModelSpec(name=self.name, version={"value": self.version})
        return spec, SignatureDefMap(signature_def=self.definitions)

    def refusal(self, api, name):
        """Why a signature does not classify or regress, a `ServingError`.

        Args:
            api: "classify" or "regress".
            name: the signature's name.
        """
        if name not in self.definitions:
            return invalid(f"No signature was found with the name: {name}")
        definition = self.definitions[name]
        kind = "classification" if api == "classify" else "regression"
        some = "one or two output Tensors" if api == "classify" else "one output Tensor"
        count = len(definition.outputs)
        if len(definition.inputs) != 1:
            return invalid("Expected one input Tensor.")
        if count != 1 and (api == "regress" or count != 2):
            return invalid(f"Expected {some}, found {count}")
        if "inputs" not in definition.inputs:
            return invalid(f"No {kind} inputs found in SignatureDef: {name}")
        return ServingError("UNIMPLEMENTED", f"this server does not {api}")

    def run(self, signature, inputs):
        """Calls the model.

        Args:
            signature: a signature's name.
            inputs: arrays by input name.

        Returns:
            Arrays by output name.
        """
        specs = self.signatures[signature].inputs
        tensors = {x: tf.constant(inputs[x], specs[x].dtype) for x in specs}
        outputs = self._functions[signature](**tensors)
        return {name: outputs[name].numpy() for name in sorted(outputs)}


@dataclass
class _Version:
    """What is known of a version: its state, its `Servable`, its files' `_stamp`."""

    state: str
    code: str = "OK"
    message: str = ""
    servable: Servable | None = None
    stamp: frozenset = frozenset()


class Models:
    """The models, kept as the disk has them.

    All but loading happens in the event loop's thread.

    Args:
        configs: a function without arguments that gives the list of `ModelConfig`, and
            may raise `UserError`; it is called again and again.
        metrics: `metrics.Metrics`.
    """

    def __init__(self, configs, metrics):
        self._find_configs = configs
        self._metrics = metrics
        self._configs = {}
        # By model and number; what has ended stays, as the status shows it.
        self._versions = {}
        self._empty = set()
        self._said = set()
        self._loader = ThreadPoolExecutor(1, "tfxformer-loader")

    async def start(self):
        """Loads what there is.

        Raises:
            UserError: when a model has no version that can be loaded.
        """
        await self._update(self._find_configs())
        for name in self._configs:
            known = self._versions[name]
            if not any(version.servable for version in known.values()):
                ended = [f"version {x}: {y.message}" for x, y in known.items()]
                where = self._configs[name].folder
                why = "; ".join(ended) or f"no version to serve in {where}"
                raise UserError(
                    f"model {name}: {why}; tfxformer verify {where} may say more"
                )

    async def watch(self, seconds):
        """Follows the disk until it is cancelled.

        Args:
            seconds: between two looks.
        """
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(seconds)
            try:
                configs = await loop.run_in_executor(self._loader, self._find_configs)
                await self._update(configs)
            except UserError as error:
                self._say_once(f"{error}; goes on with what it has")
            except Exception as error:
                self._say_once(f"{error!r}; goes on with what it has", error)

    def stop(self):
        """Ends what `watch` left in a thread."""
        self._loader.shutdown(wait=False, cancel_futures=True)

    def names(self):
        """The models' names."""
        return [*self._configs]

    def known(self, name):
        """The name where there is such a model, else ""."""
        return name if name in self._versions else ""

    @contextlib.contextmanager
    def use(self, name, version=None, label=None):
        """A version, which is not unloaded while it is used.

        Args:
            name: the model's name.
            version: a number; None for the newest.
            label: a label instead of a number; None for the newest.

        Yields:
            A `Servable`.

        Raises:
            ServingError: when there is none, as TensorFlow Serving words it.
        """
        if not name:
            raise invalid("ModelSpec has no name specified.")
        version = self._labelled(name, version, label)
        loaded = self._loaded(name)
        if version is None:
            servable = loaded[max(loaded)] if loaded else None
        else:
            servable = loaded.get(version)
        if servable is None:
            wanted = f"Latest({name})"
            if version is not None:
                wanted = f"Specific({name}, {version})"
            raise ServingError("NOT_FOUND", f"Servable not found for request: {wanted}")
        servable.users += 1
        try:
            yield servable
        finally:
            servable.users -= 1
            self._free(servable)

    def status(self, name, version=None, label=None):
        """The states of a model's versions, a ``GetModelStatusResponse``.

        Args:
            name: the model's name.
            version: a number; None for all.
            label: a label instead of a number.

        Raises:
            ServingError: when there is none.
        """
        version = self._labelled(name, version, label)
        known = self._versions.get(name, {})
        if version is not None:
            if version not in known:
                raise ServingError(
                    "NOT_FOUND", f"Could not find version {version} of model {name}"
                )
            known = {version: known[version]}
        if not known:
            raise ServingError(
                "NOT_FOUND", f"Could not find any versions of model {name}"
            )
        response = GetModelStatusResponse()
        for number in sorted(known, reverse=True):
            entry = known[number]
            response.model_version_status.add(
                version=number,
                state=ModelVersionStatus.State.Value(entry.state),
                status={
                    "error_code": CODES.index(entry.code),
                    "error_message": entry.message,
                },
            )
        return response

    def _labelled(self, name, version, label):
        if label is None:
            return version
        config = self._configs.get(name)
        if config is None or label not in config.labels:
            raise invalid(f"Unrecognized servable version label: {label}")
        return config.labels[label]

    def _loaded(self, name):
        """A model's versions that are served, by number."""
        return {
            number: version.servable
            for number, version in self._versions.get(name, {}).items()
            if version.state == "AVAILABLE"
        }

    async def _update(self, configs):
        """Makes what is served what the configs and the disk say."""
        loop = asyncio.get_running_loop()
        self._configs = {config.name: config for config in configs}
        for name in self._versions.keys() - self._configs.keys():
            self._retire(name, self._loaded(name))
        for config in configs:
            known = self._versions.setdefault(config.name, {})
            wanted = await loop.run_in_executor(self._loader, config.versions)
            if wanted is None:
                self._say_once(f"{config.folder}: gone; goes on with what is loaded")
                continue
            # A folder that is being deleted is empty for a moment: look twice.
            if not wanted and config.name not in self._empty:
                self._empty.add(config.name)
                continue
            if wanted:
                self._empty.discard(config.name)
            for number, path in wanted.items():
                await self._load(config, known, number, path)
            loaded = self._loaded(config.name)
            if not wanted or loaded.keys() & wanted.keys():
                self._retire(config.name, loaded.keys() - wanted.keys())

    async def _load(self, config, known, number, path):
        """Loads a version, unless it is loaded, or has failed and not changed."""
        entry = known.get(number)
        if entry and entry.state in ("AVAILABLE", "UNLOADING"):
            return
        loop = asyncio.get_running_loop()
        stamp = await loop.run_in_executor(self._loader, _stamp, path)
        if entry and entry.code != "OK" and entry.stamp == stamp:
            return
        known[number] = entry = _Version("LOADING", stamp=stamp)
        title, started = f"{config.name} version {number}", time.monotonic()
        status = "success"
        try:
            entry.servable = await loop.run_in_executor(
                self._loader, Servable, config.name, number, path
            )
            entry.state = "AVAILABLE"
            self._metrics.loaded.labels(config.name, number).set(1)
            log.info("%s: loaded in %.1f s", title, time.monotonic() - started)
        except Exception as error:
            status = "fail"
            reason = _reason(error)
            entry.state, entry.code = "END", reason.code
            entry.message = reason.message.replace(str(path), title)
            log.warning("%s: cannot be loaded: %s", title, entry.message)
        self._metrics.loads.labels(str(path), status).inc()

    def _retire(self, name, numbers):
        """Takes versions out of service; they go when their requests are answered."""
        for number in [*numbers]:
            entry = self._versions[name][number]
            entry.state = "UNLOADING"
            entry.servable.retired = True
            self._metrics.loaded.remove(name, str(number))
            self._free(entry.servable)

    def _free(self, servable):
        if servable.retired and not servable.users:
            entry = self._versions[servable.name][servable.version]
            entry.state, entry.servable = "END", None
            log.info("%s version %d: unloaded", servable.name, servable.version)
            # Its functions refer to one another.
            self._loader.submit(gc.collect)

    def _say_once(self, line, error=None):
        if line not in self._said:
            self._said.add(line)
            log.warning("%s", line, exc_info=error)


def _stamp(path):
    """What tells that a version's files have changed."""
    files = [Path(folder, name) for folder, _, names in os.walk(path) for name in names]
    found = set()
    for file in files:
        with contextlib.suppress(OSError):  # gone meanwhile
            status = file.stat()
            found.add((str(file), status.st_size, status.st_mtime_ns))
    return frozenset(found)


def _reason(error):
    """Why a version was not loaded, as a `ServingError`."""
    if isinstance(error, ServingError):
        return error
    if isinstance(error, tf.errors.OpError):
        return from_tensorflow(error)
    if isinstance(error, UserError):
        return ServingError("DATA_LOSS", str(error))
    code = "NOT_FOUND" if isinstance(error, FileNotFoundError) else "UNKNOWN"
    return ServingError(code, f"{type(error).__name__}: {error}")
