"""Export: one SavedModel, strings in and strings out, for TensorFlow Serving."""

import re
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from tfxformer.errors import UserError
from tfxformer.exporting.metadata import example, write_metadata
from tfxformer.exporting.precision import NarrowWeights, check_precision
from tfxformer.exporting.reopen import load_translator
from tfxformer.exporting.repository import next_version
from tfxformer.exporting.signatures import n_best_options
from tfxformer.exporting.verify import verify
from tfxformer.exporting.warm_up import requests, write_warm_up
from tfxformer.quiet import quiet_stderr

# What the export is asked at once, its answers kept beside it: sentences, and the
# inputs that break lesser models. Any language will do: the answers are compared,
# not judged.
PROBES = [
    "Bom dia!",
    "O gato preto bebeu o leite.",
    "",
    " \t\n",
    "😀 مرحبا 你好",
    b"bytes \xff\xfe that are not UTF-8",
    "NUL \0 inside",
]
# The signatures that read no weights.
WITHOUT_MODEL = ("count", "tokenize", "detokenize")


def export(
    run,
    to="export",
    name="pt_en",
    checkpoint="best",
    options=None,
    xla=False,
    precision="float32",
):
    """Writes the next version of a model into a model repository, and proves it.

    The model is written to a temporary folder and renamed into place once
    `verify` has seen it run, so that a server that watches the repository never sees
    half a version, nor one that cannot be served.

    Args:
        run: the path of a run folder, or of an export to write again.
        to: the model repository.
        name: the model's name in it.
        checkpoint: "best" or "last".
        options: `DecodingOptions`, recorded in the export; None decodes greedily.
        xla: compile what translates with XLA. A server must be told to allow it:
            the report names the flag.
        precision: how matrices are stored, one of `precision.PRECISIONS`.

    Returns:
        The new folder, ``to/name/version``, and the `Report` on it.

    Raises:
        UserError: when the run cannot be read, the repository not be written, or
            the export would not serve.

    Example:
        >>> export("nowhere", precision="float8")
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: precision 'float8': there are float32, ...
    """
    check_precision(precision)
    translator = load_translator(run, checkpoint, options, xla)

    def write_and_prove(part):
        write(translator, part, precision)
        write_warm_up(part, name, requests(translator))
        report = verify(part, allow_xla=xla)
        if not report.ok:
            raise UserError(
                "the export would not serve: "
                + "; ".join(check.detail for check in report.checks if not check.ok)
            )
        return report

    path, report = next_version(to, name, write_and_prove)
    report.path = path
    return path, report


def write(translator, path, precision="float32"):
    """Writes a translator as a SavedModel, with recorded answers beside it.

    Args:
        translator: a `Translator` made from a tokenizer and a model.
        path: the folder to make.
        precision: how matrices are stored, one of `precision.PRECISIONS`; the
            translator's own are rounded to it, so that it answers alike.
    """
    narrow = None
    if precision != "float32":
        narrow = NarrowWeights(translator.transformer, precision)
    archive = keras.export.ExportArchive()
    # Variables are tracked where the functions use them: tracking the model as well
    # would write each one twice.
    archive.track(translator.tokenizer.resource)
    for widened in narrow.widened if narrow else ():
        archive.track(widened)
    for name, function in translator.signatures.items():
        if name == "serving_default":  # the archive's alias for the first endpoint
            continue
        # Traced anew: a graph that was traced before would be written beside the
        # one that saving traces.
        python = function.python_function
        if narrow and name not in WITHOUT_MODEL:
            python = narrow.used_by(python)
        endpoint = archive.add_endpoint(
            name, python, input_signature=function.input_signature
        )
        if name == "translate":
            archive._tf_trackable.__call__ = callable_on_any_shape(endpoint)
    with quiet_stderr():
        archive.write_out(str(path), verbose=False)
    _slim(Path(path, "saved_model.pb"))
    write_metadata(
        path,
        [
            example(signature, inputs, translator.answers(signature, inputs))
            for signature, inputs in _probes(translator)
        ],
        model={
            "max_length": translator.max_length,
            "vocab_size": translator.tokenizer.vocab_size,
            "architecture": translator.transformer.config,
            "decoding": {
                "translate": translator.options.describe(),
                "translate_nbest": n_best_options(translator.options).describe(),
            },
            "xla": translator.xla,
            "precision": precision,
        },
    )


def callable_on_any_shape(translate):
    """What a loaded export does when it is called, as the TensorFlow tutorial's is.

    Args:
        translate: the signature's graph function.

    Returns:
        A graph function of strings of any shape to translations of that shape.
    """

    @tf.function(autograph=False, input_signature=[tf.TensorSpec(None, tf.string)])
    def call(text):
        found = translate(tf.reshape(text, [-1]))["translation"]
        return tf.reshape(found, tf.shape(text))

    return call


def _slim(file):
    """Leaves out of a SavedModel's graph what no server reads: a third of it.

    Nodes in functions are named after the layers they were made in, and named again
    wherever they are read; and each says what shapes it gives, which loading infers.

    Args:
        file: the path of a ``saved_model.pb``.
    """
    model = SavedModel.FromString(file.read_bytes())
    graph = model.meta_graphs[0].graph_def
    for function in graph.library.function:
        names = {node.name: f"n{i}" for i, node in enumerate(function.node_def)}

        def short(place, names=names):  # "name", "name:output:0" or "^name"
            control, name, output = re.fullmatch(r"(\^?)([^:]*)(.*)", place).groups()
            return control + names.get(name, name) + output

        for node in function.node_def:
            node.name = names[node.name]
            node.input[:] = [short(place) for place in node.input]
            node.attr.pop("_output_shapes", None)
        for returned in (function.ret, function.control_ret):
            for name, place in [*returned.items()]:
                returned[name] = short(place)
    for node in graph.node:
        node.attr.pop("_output_shapes", None)
    file.write_bytes(model.SerializeToString(deterministic=True))


def _probes(translator):
    """Inputs for each signature, an empty batch among them."""
    too_long = "palavra " * translator.max_length
    text = np.array(
        [
            probe.encode() if isinstance(probe, str) else probe
            for probe in [*PROBES, too_long]
        ],
        dtype=object,
    )
    translation = translator.answers("translate", {"text": text})["translation"]
    ids = translator.answers("tokenize", {"text": text})["ids"]
    nothing = np.array([], dtype=object)
    for signature in ("translate", "serving_default", "translate_nbest", "attention"):
        # Attention of all of them would be most of what is recorded.
        few = text[[0, 2]] if signature == "attention" else text
        yield signature, {"text": few}
        yield signature, {"text": nothing}
    yield "score", {"text": text, "translation": translation}
    yield "score", {"text": text, "translation": text[::-1]}
    yield "score", {"text": nothing, "translation": nothing}
    for signature in ("count", "tokenize"):
        yield signature, {"text": text}
        yield signature, {"text": nothing}
    yield "detokenize", {"ids": ids}
    yield "detokenize", {"ids": np.array([[5, -1, 2**31 - 1, 0]], dtype="int32")}
    yield "detokenize", {"ids": np.zeros((0, 0), dtype="int32")}
