"""Export to a SavedModel, strings in and strings out, for TensorFlow Serving."""

import hashlib
import importlib.metadata
import json
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from tfxformer import __version__
from tfxformer.console import quiet_stderr, say
from tfxformer.decoding.folded import FoldedTransformer, fold
from tfxformer.errors import UserError
from tfxformer.exporting.verify import verify
from tfxformer.repository import (
    EXAMPLES_FILE,
    METADATA_FILE,
    WARM_UP_FILE,
    model_name,
    next_version,
    write_records,
)
from tfxformer.signatures import Signatures, n_best_options
from tfxformer.training.run import Run, load_weights
from tfxformer.translator import Translator

# The examples: sentences and difficult inputs. Their language does not matter: `verify`
# only compares the answers.
PROBES = ["Bom dia!", "O gato preto bebeu o leite.", "", " \t\n", "😀 مرحبا 你好"]
PROBES += [b"bytes \xff\xfe that are not UTF-8", "NUL \0 inside"]


def export(
    run=None,
    to="export",
    name=None,
    checkpoint="best",
    options=None,
    precision="float32",
    average=None,
    format="savedmodel",
):
    """Writes the next version of a model to a model repository, and tests it.

    The version is renamed into place after `verify` has run it, or CTranslate2 has
    scored translations like the run. So a server that watches the repository never sees
    an incomplete version, or one that it cannot serve.

    Args:
        run: the path of a run folder, or of an export to write again; or a
            `Translator`, which has the weights, options already; None for the
            model that comes with the package.
        to: the model repository.
        name: the model's name in the repository; None for the folder's name. A
            `Translator` needs one.
        checkpoint: "best" or "last".
        options: `DecodingOptions`, recorded in the export; None is greedy, or the
            options of the export to write again.
        precision: the format of stored matrices: "float32", or "float16" (half the
            size).
        average: export the mean weights of the given number of newest checkpoints.
        format: "savedmodel", or "ctranslate2": CTranslate2's own files, and
            ``tokenizer.model`` for SentencePiece. CTranslate2 takes decoding options at
            run time.

    Returns:
        The new folder, ``to/name/version``, and its `Report`, or None for CTranslate2.

    Raises:
        UserError: the run cannot be read, or the export would not serve.
    """
    if precision not in ("float32", "float16"):
        raise UserError(f"precision {precision!r}: choose float32 or float16")
    if isinstance(run, Translator) and (name is None or average is not None):
        raise UserError("a Translator needs a name, and has no checkpoints to average")
    name = name or model_name(run)
    if format == "ctranslate2" and any(Path(to, name).glob("*/saved_model.pb")):
        raise UserError(
            f"{Path(to, name)}: holds SavedModels, and TensorFlow Serving would try to "
            "load the new version as one: give another --name"
        )
    translator = run
    if not isinstance(run, Translator):
        translator = Translator.load(run, checkpoint, options)
    if average is not None:
        average_checkpoints(translator.transformer, run, average)
        translator.fold_weights()

    def write_and_prove(part):
        if format == "ctranslate2":
            from tfxformer.exporting.ctranslate2 import prove, specification

            part.mkdir()
            specification(translator.tokenizer, translator.transformer).save(str(part))
            translator.tokenizer.save(part / "tokenizer.model")
            return say(prove(part, translator, probes(translator)))
        try:
            write(translator, part, name, precision)
        except tf.errors.OpError as error:  # such as a full disk
            reason = error.message.rpartition("; ")[2].partition(" [Op:")[0]
            raise UserError(f"{Path(to, name)}: cannot be written: {reason}") from None
        report = verify(part)
        if not report.ok:
            failed = [line for line in report.lines if line.startswith("FAIL")]
            raise UserError(f"the export would not serve: {'; '.join(failed)}")
        return report

    path, report = next_version(to, name, write_and_prove)
    return path, report and report._replace(path=path)


def average_checkpoints(transformer, run, last):
    """Gives a model the mean weights of a run's newest checkpoints (section 6.1).

    Args:
        transformer: a `Transformer` of the run's architecture; its weights change.
        run: the path of a run folder.
        last: the number of checkpoints to average.

    Raises:
        UserError: there are fewer, or one is damaged.
    """
    checkpoints = Run.open(run).checkpoints()
    if len(checkpoints) < last:
        raise UserError(
            f"{run}: has {len(checkpoints)} checkpoints, not {last}: average fewer, or "
            "train with a larger training.keep_last"
        )
    sets = []
    for checkpoint in checkpoints[:last]:
        checkpoint.verify()
        load_weights(transformer, checkpoint.weights_file)
        sets.append(transformer.get_weights())
    transformer.set_weights([np.mean(x, 0, "float64") for x in zip(*sets, strict=True)])


def write(translator, path, name="pt_en", precision="float32"):
    """Writes a translator as a SavedModel, with examples of its answers beside it."""
    transformer = translator.transformer
    if precision == "float16":
        stored = round_to_float16(transformer)
    else:
        stored = [weight.value for weight in transformer.weights]
    translator.fold_weights()  # its answers are the export's examples
    weights = FoldedWeights(transformer, stored)
    archive = keras.export.ExportArchive()
    for side in dict.fromkeys(translator.tokenizer.sides):
        archive.track(side.resource)
    archive.track(weights)
    # `read_export` needs this order; tracking the model would write weights twice.
    archive._tf_trackable.weights = stored
    signatures = Signatures(
        translator.tokenizer,
        transformer,
        translator.options,
        folded=lambda: FoldedTransformer(transformer, weights.read()),
    )
    endpoints = {}
    for signature, function in signatures.functions().items():
        if signature == "serving_default":  # the archive's alias for the first endpoint
            continue
        # Pass the Python function: a graph that is already traced would be written
        # beside the one that saving traces.
        endpoints[signature] = archive.add_endpoint(
            signature, function.python_function, function.input_signature
        )

    # Like the TensorFlow tutorial's export, the loaded object takes any shape.
    @tf.function(autograph=False, input_signature=[tf.TensorSpec(None, tf.string)])
    def call(text):
        answer = endpoints["translate"](tf.reshape(text, [-1]))
        return tf.reshape(answer["translation"], tf.shape(text))

    archive._tf_trackable.__call__ = call
    with quiet_stderr():
        archive.write_out(str(path), verbose=False)
    metadata = {
        "tfxformer": __version__,
        "tensorflow": importlib.metadata.version("tensorflow"),
        "model": {
            "max_length": translator.max_length,
            "vocab_size": translator.tokenizer.vocab_size,
            "architecture": translator.transformer.config,
            "decoding": {
                "translate": translator.options.describe(),
                "translate_nbest": n_best_options(translator.options).describe(),
            },
            "precision": precision,
        },
    }
    if translator.origin:
        metadata["model"]["origin"] = translator.origin
    examples = [*_examples(translator)]
    # A server runs these on loading.
    requests = [(signature, _rows(inputs, 2), {}) for signature, inputs, _ in examples]
    write_records(Path(path, WARM_UP_FILE), name, requests)
    for signature, inputs, _ in examples[:]:  # and an empty batch of each
        none = _rows(inputs, 0)
        examples.append((signature, none, translator.answers(signature, none)))
    write_records(Path(path, EXAMPLES_FILE), name, examples)
    Path(path, METADATA_FILE).write_text(f"{json.dumps(metadata, indent=2)}\n", "utf-8")


class FoldedWeights(tf.saved_model.experimental.TrackableResource):
    """The weights of the signatures: folded, and float32, once a model is loaded.

    The file has the weights as trained, so training can start from them again, and no
    others. A loader folds them; see `fold`.

    Args:
        transformer: a `Transformer`.
        stored: the variables in the file, in the order of its weights.
    """

    def __init__(self, transformer, stored):
        super().__init__()
        self.stored = stored
        self.fold = lambda: fold(transformer)
        self.weights = transformer.weights
        self.structure = fold(transformer)
        # Two models in one process share these only if their values are equal.
        content = b"".join(x.numpy().tobytes() for x in stored)
        self.name = f"folded-{hashlib.sha256(content).hexdigest()}"

    def _handles(self):
        """The handles of the folded weights, which are resources of the process."""
        return [
            tf.raw_ops.VarHandleOp(
                dtype=x.dtype, shape=x.shape, shared_name=f"{self.name}-{i}"
            )
            for i, x in enumerate(keras.tree.flatten(self.structure))
        ]

    def _create_resource(self):
        return self._handles()[0]  # loaders need one; `_initialize` fills all

    def _initialize(self):
        """Loaders run this after they have restored the stored variables."""
        values = [tf.cast(x, tf.float32) for x in self.stored]
        pairs = zip(self.weights, values, strict=True)
        with keras.StatelessScope(state_mapping=pairs):
            folded = keras.tree.flatten(self.fold())
        for handle, value in zip(self._handles(), folded, strict=True):
            tf.raw_ops.AssignVariableOp(resource=handle, value=value)

    def read(self):
        """The folded weights, in the graph of a signature."""
        flat = zip(self._handles(), keras.tree.flatten(self.structure), strict=True)
        values = [
            tf.raw_ops.ReadVariableOp(resource=handle, dtype=x.dtype)
            for handle, x in flat
        ]
        return keras.tree.pack_sequence_as(self.structure, values)


def round_to_float16(transformer):
    """Rounds a model's matrices, so that Python gives the same answers as the export.

    Biases and norms, a percent of the weights, stay float32.

    Returns:
        The variables to store, in the order of the model's weights.
    """
    stored = []
    for weight in transformer.weights:
        dtype = tf.float16 if len(weight.shape) > 1 else tf.float32
        stored.append(tf.Variable(tf.cast(weight.value, dtype), trainable=False))
        weight.assign(tf.cast(stored[-1], tf.float32))
    return stored


def _examples(translator):
    """Yields each signature with inputs, the longest text among them, and answers."""
    text = {"text": probes(translator)}
    short = {"text": text["text"][:3]}
    answers = {
        name: translator.answers(name, text) for name in ("translate", "tokenize")
    }
    # Translating the longest text would take long, and its logits much memory.
    longest = probes(translator, [PROBES[0], "", "palavra " * translator.max_length])
    translations = [answers["translate"]["translation"][0], b"", b""]
    inputs = {
        "serving_default": short,  # the same function as translate
        "translate_nbest": short,
        "attention": short,
        "count": {"text": longest},
        "score": {"text": longest, "translation": tf.constant(translations).numpy()},
        "detokenize": answers["tokenize"],
    }
    for name in translator.signatures:
        given = inputs.get(name, text)
        yield name, given, answers.get(name) or translator.answers(name, given)


def probes(translator, texts=PROBES):
    """Texts as an array of bytes; the model may need a language in front of each."""
    language = "".join(translator.tokenizer.languages[:1]).encode()
    texts = [language + text if text else text for text in tf.constant(texts).numpy()]
    return tf.constant(texts).numpy()


def _rows(inputs, count):
    """The first rows of a signature's inputs."""
    return {name: array[:count] for name, array in inputs.items()}
