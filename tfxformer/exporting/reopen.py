"""An exported model as a Keras model again: to look inside it, or to go on with it."""

import math
import re
from pathlib import Path

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from tfxformer.errors import UserError
from tfxformer.exporting.metadata import read_architecture
from tfxformer.exporting.repository import check_checkpoint, find_model
from tfxformer.model import Transformer
from tfxformer.run import Run
from tfxformer.tokenizer import Tokenizer
from tfxformer.translator import Translator

VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"


def load_translator(path, checkpoint="best", options=None, xla=False):
    """A translator that has its tokenizer and its Keras model, wherever it comes from.

    Args:
        path: as `Translator.load` takes it.
        checkpoint: "best" or "last", for a run folder.
        options: `DecodingOptions`; None decodes greedily.
        xla: compile decoding with XLA.

    Returns:
        A `Translator`. That of an export stored in half precision or int8 has
        the rounded weights, as the export answers with them.

    Raises:
        UserError: when there is nothing at the path that translates, or it is an
            export that does not say how its model is built.

    Example:
        >>> load_translator("nowhere")
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: nowhere: there is no such run folder
    """
    path = Path(find_model(path))
    if (path / "saved_model.pb").exists():
        check_checkpoint(path, checkpoint)
        return Translator(*read_export(path), options, xla)
    return Translator(*Run.open(path).load(checkpoint), options, xla)


def read_export(path):
    """The tokenizer and the model in an exported SavedModel.

    Nothing of its graph runs: the weights are those in its checkpoint, the
    architecture is recorded beside it, and the tokenizer stands in the graph.

    Args:
        path: the folder of one version of an exported model.

    Returns:
        A `Tokenizer` and a built `Transformer`, its weights float32.

    Raises:
        UserError: when it is damaged, or not an export of this package that says how
            its model is built.

    Example:
        >>> read_export("nowhere")
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: nowhere: a SavedModel, but none that tfxformer ...
    """
    path = Path(path)
    architecture = read_architecture(path)
    tokenizer = Tokenizer(read_vocabulary(path))
    try:
        transformer = Transformer(**architecture)
        transformer.build()
        _read_weights(transformer, path)
    except (OSError, ValueError, LookupError, TypeError, DecodeError) as error:
        raise UserError(f"{path}: damaged: {_first_line(error)}") from None
    except tf.errors.OpError as error:
        raise UserError(f"{path}: damaged: {_first_line(error.message)}") from None
    return tokenizer, transformer


def _first_line(error):
    return next(iter(str(error).strip().splitlines()), "") or repr(error)


def read_vocabulary(path):
    """The SentencePiece model that an exported model's tokenizer was made of.

    Args:
        path: the folder of one version of an exported model.

    Returns:
        Bytes.

    Raises:
        UserError: when the model is damaged, or has no such tokenizer.

    Example:
        >>> from tfxformer import Tokenizer
        >>> from tfxformer.exporting.repository import shipped_model
        >>> Tokenizer(read_vocabulary(shipped_model())).vocab_size
        8000
    """
    file = Path(path) / "saved_model.pb"
    try:
        graph = SavedModel.FromString(file.read_bytes()).meta_graphs[0].graph_def
    except (OSError, LookupError, DecodeError) as error:
        raise UserError(f"{path}: damaged: {_first_line(error)}") from None
    functions = (function.node_def for function in graph.library.function)
    for nodes in (graph.node, *functions):
        for node in nodes:
            if node.op == "SentencepieceOp":
                return node.attr["model"].s
    raise UserError(f"{path}: damaged: {file.name} has no tokenizer")


def _read_weights(transformer, path):
    reader = tf.train.load_checkpoint(str(path / "variables" / "variables"))
    keys = reader.get_variable_to_shape_map()
    graph = TrackableObjectGraph.FromString(
        reader.get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH")
    )
    whole = {
        _within_model(attribute.full_name): attribute.checkpoint_key
        for node in graph.nodes
        for attribute in node.attributes
        if attribute.checkpoint_key in keys
    }
    # Matrices in fewer bits have no names; they stand in the order of the weights.
    places = [re.fullmatch(rf"(.*/(\d+))/part_0{VALUE}", key) for key in keys]
    narrow = iter(sorted((int(match[2]), match[1]) for match in places if match))
    for weight in transformer.weights:
        name = _within_model(weight.path)
        if name in whole:
            value = reader.get_tensor(whole[name])
        elif found := next(narrow, None):
            parts = [f"{found[1]}/part_{i}{VALUE}" for i in range(2)]
            value = math.prod(
                reader.get_tensor(key).astype("float32") for key in parts if key in keys
            )
        else:
            raise LookupError(f"{name} is not in its variables")
        weight.assign(value)  # which refuses another shape


def _within_model(name):
    """A weight's name without that of its model, which counts up."""
    return name.partition("/")[2]
