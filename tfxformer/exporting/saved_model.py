"""Export: one SavedModel, strings in and strings out, for TensorFlow Serving."""

from dataclasses import replace
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from tfxformer.console import quiet_stderr
from tfxformer.errors import UserError
from tfxformer.exporting.repository import (
    EXAMPLES_FILE,
    WARM_UP_FILE,
    next_version,
    write_metadata,
    write_records,
)
from tfxformer.exporting.signatures import XLA_COLUMNS, XLA_ROWS, n_best_options
from tfxformer.exporting.verify import verify
from tfxformer.exporting.weights import PRECISIONS, HalfWeights
from tfxformer.training import checkpoints
from tfxformer.training.run import Run, load_weights
from tfxformer.translator import Translator

# The signatures that read no weights.
WITHOUT_MODEL = ("count", "tokenize", "detokenize")
# Of an ordinary model's warm-up: one sentence, and a batch of long ones.
WARM_UP_ROWS = (1, 32)
LONG = "O gato bebeu todo o leite que a menina lhe deu de manhã. " * 8
# The examples: sentences, and inputs that break lesser models. Any language will do,
# since `verify` compares the answers and does not judge them.
PROBES = [
    "Bom dia!",
    "O gato preto bebeu o leite.",
    "",
    " \t\n",
    "😀 مرحبا 你好",
    b"bytes \xff\xfe that are not UTF-8",
    "NUL \0 inside",
]


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
                + "; ".join(check.detail for check in report.failed)
            )
        return report

    path, report = next_version(to, name, write_and_prove)
    return path, replace(report, path=path)


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
    # In order, for `read_export`; tracking the model would write each weight twice.
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
            translate = endpoint

    # As the TensorFlow tutorial's export, it may be called on any shape.
    @tf.function(autograph=False, input_signature=[tf.TensorSpec(None, tf.string)])
    def call(text):
        found = translate(tf.reshape(text, [-1]))["translation"]
        return tf.reshape(found, tf.shape(text))

    archive._tf_trackable.__call__ = call
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
    write_records(Path(path, WARM_UP_FILE), name, warm_up_requests(translator))
    examples = (
        (signature, inputs, translator.answers(signature, inputs))
        for signature, inputs in _example_requests(translator)
    )
    write_records(Path(path, EXAMPLES_FILE), name, examples)


def _drop_output_shapes(file):
    """Leaves out of a SavedModel the shapes that loading infers anyway."""
    model = SavedModel.FromString(file.read_bytes())
    graph = model.meta_graphs[0].graph_def
    for nodes in (graph.node, *(f.node_def for f in graph.library.function)):
        for node in nodes:
            node.attr.pop("_output_shapes", None)
    file.write_bytes(model.SerializeToString(deterministic=True))


def warm_up_requests(translator):
    """What warms a translator up: each signature, short and long, few and many.

    Pairs of a signature's name and its inputs. With XLA, sentences of the shapes that
    most requests have, for each is compiled by itself.
    """
    ids = translator.answers("tokenize", {"text": [LONG]})["ids"]
    # With the end token they fill these columns, nearly.
    some = [ids[:, : columns - 3] for columns in (XLA_COLUMNS, 2 * XLA_COLUMNS)]
    texts = [translator.answers("detokenize", {"ids": x})["text"][0] for x in some]
    # One function under two names, which a server prepares once for each.
    found = [
        (signature, {"text": [text] * n})
        for signature in ("translate", "serving_default")
        for text in texts
        for n in (XLA_ROWS if translator.xla else WARM_UP_ROWS)
    ]
    found.append(("score", {"text": texts[:1], "translation": texts[:1]}))
    for signature in ("translate_nbest", "attention", "count", "tokenize"):
        found.append((signature, {"text": texts[:1]}))
    return [*found, ("detokenize", {"ids": ids})]


def _example_requests(translator):
    """Yields signatures and inputs: for each signature some, and an empty batch."""
    probes = [*PROBES, "palavra " * translator.max_length]
    probes = [x.encode() if isinstance(x, str) else x for x in probes]
    text, nothing = np.array(probes, object), np.array([], object)
    translation = translator.answers("translate", {"text": text})["translation"]
    ids = translator.answers("tokenize", {"text": text})["ids"]
    for signature in translator.signatures:
        if signature == "detokenize":
            yield signature, {"ids": ids}
            yield signature, {"ids": np.array([[5, -1, 2**31 - 1, 0]], "int32")}
            yield signature, {"ids": np.zeros((0, 0), "int32")}
        elif signature == "score":
            yield signature, {"text": text, "translation": translation}
            yield signature, {"text": text, "translation": text[::-1]}
            yield signature, {"text": nothing, "translation": nothing}
        else:
            # Attention of all of them would be most of what is recorded.
            few = text[[0, 2]] if signature == "attention" else text
            yield signature, {"text": few}
            yield signature, {"text": nothing}
