"""Export: one SavedModel, strings in and strings out, for TensorFlow Serving."""

from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from tfxformer.console import quiet_stderr
from tfxformer.errors import UserError
from tfxformer.exporting.metadata import write_metadata
from tfxformer.exporting.repository import next_version
from tfxformer.exporting.signatures import n_best_options
from tfxformer.exporting.verify import verify
from tfxformer.exporting.warm_up import (
    warm_up_requests,
    write_examples,
    write_warm_up,
)
from tfxformer.exporting.weights import PRECISIONS, HalfWeights
from tfxformer.training import checkpoints
from tfxformer.training.run import Run, load_weights
from tfxformer.translator import Translator

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
    average=None,
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
        options: `DecodingOptions`, recorded in the export; None decodes greedily, or
            as the export does that is written again.
        xla: compile what translates with XLA. A server must be told to allow it:
            the report names the flag.
        precision: how matrices are stored, "float32" or "float16" (half the size).
        average: export the mean of the weights of this many newest checkpoints.

    Returns:
        The new folder, ``to/name/version``, and the `Report` on it.

    Raises:
        UserError: when the run cannot be read, the repository not be written, or
            the export would not serve.

    Example:
        >>> export("nowhere", precision="float8")
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: precision 'float8': there are float32 and float16
    """
    if precision not in PRECISIONS:
        raise UserError(
            f"precision {precision!r}: there are {' and '.join(PRECISIONS)}"
        )
    translator = Translator.load(run, checkpoint, options, xla)
    if average is not None:
        average_checkpoints(translator.transformer, run, average)

    def write_and_prove(part):
        write(translator, part, name, precision)
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


def average_checkpoints(transformer, run, last):
    """Gives a model the mean of a run's newest checkpoints (section 6.1).

    Args:
        transformer: a `Transformer` of the run's architecture; its weights change.
        run: the path of a run folder.
        last: how many checkpoints to take.

    Raises:
        UserError: when there are fewer, or one is damaged.

    Example:
        >>> average_checkpoints(None, "nowhere", last=5)
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: nowhere: there is no such run folder
    """
    found = checkpoints.list_checkpoints(Run.open(run))
    if len(found) < last:
        raise UserError(
            f"{run}: has {len(found)} checkpoints, not {last}: average fewer, or "
            "train with a larger training.keep_last"
        )
    totals = [np.zeros(weight.shape, "float64") for weight in transformer.weights]
    for checkpoint in found[:last]:
        checkpoints.verify(checkpoint)
        load_weights(transformer, checkpoint.weights_file)
        for total, weight in zip(totals, transformer.weights, strict=True):
            total += weight.numpy()
    for total, weight in zip(totals, transformer.weights, strict=True):
        weight.assign(total / last)


def write(translator, path, name="pt_en", precision="float32"):
    """Writes a translator as a SavedModel, with recorded answers beside it.

    Args:
        translator: a `Translator`.
        path: the folder to make.
        name: the model's name.
        precision: how matrices are stored, "float32" or "float16"; the translator's
            own are rounded to it, so that it answers alike.
    """
    weights = [weight.value for weight in translator.transformer.weights]
    archive = keras.export.ExportArchive()
    archive.track(translator.tokenizer.resource)
    half = None
    if precision == "float16":
        half = HalfWeights(translator.transformer)
        archive.track(half)
        stored = dict(zip(map(id, half.matrices), half.halves, strict=True))
        weights = [stored.get(id(x), x.value) for x in translator.transformer.weights]
    # In order, for `read_export`. Tracking the model would write each weight twice.
    archive._tf_trackable.weights = weights
    for signature, function in translator.signatures.items():
        if signature == "serving_default":  # the archive's alias for the first endpoint
            continue
        # The Python function is traced anew: a graph that was traced before would be
        # written beside the one that saving traces.
        python = function.python_function
        if half and signature not in WITHOUT_MODEL:
            python = half.used_by(python)
        endpoint = archive.add_endpoint(
            signature, python, input_signature=function.input_signature
        )
        if signature == "translate":
            archive._tf_trackable.__call__ = _callable_on_any_shape(endpoint)
    with quiet_stderr():
        archive.write_out(str(path), verbose=False)
    _drop_output_shapes(Path(path, "saved_model.pb"))
    write_metadata(
        path,
        {
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
    write_warm_up(path, name, warm_up_requests(translator))
    write_examples(path, name, translator)


def _callable_on_any_shape(translate):
    """Makes the export callable as the TensorFlow tutorial's is, on any shape."""

    @tf.function(autograph=False, input_signature=[tf.TensorSpec(None, tf.string)])
    def call(text):
        found = translate(tf.reshape(text, [-1]))["translation"]
        return tf.reshape(found, tf.shape(text))

    return call


def _drop_output_shapes(file):
    """Leaves out of a SavedModel the shapes that loading infers anyway."""
    model = SavedModel.FromString(file.read_bytes())
    graph = model.meta_graphs[0].graph_def
    for nodes in (graph.node, *(f.node_def for f in graph.library.function)):
        for node in nodes:
            node.attr.pop("_output_shapes", None)
    file.write_bytes(model.SerializeToString(deterministic=True))
