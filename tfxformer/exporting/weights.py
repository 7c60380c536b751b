"""An export's weights: how it stores them, and how they become a Keras model again."""

import functools
import hashlib
from pathlib import Path

import keras
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from tfxformer.errors import UserError
from tfxformer.exporting.repository import read_metadata
from tfxformer.model import Transformer
from tfxformer.tokenizer import Tokenizer

# How matrices are stored. Biases and norms, a percent of the weights, stay float32.
PRECISIONS = ("float32", "float16")


class HalfWeights(tf.saved_model.experimental.TrackableResource):
    """A model's matrices as float16 in the files, float32 once they are loaded.

    A server computes with float32, so a request takes no longer than with weights
    that were never narrowed. The model's own matrices are rounded to the same values,
    so that Python answers as the export does.

    Args:
        transformer: a `Transformer`; its matrices are rounded.
    """

    def __init__(self, transformer):
        super().__init__()
        self.matrices = [x for x in transformer.weights if len(x.shape) > 1]
        self.halves = [
            tf.Variable(tf.cast(x.value, tf.float16), trainable=False)
            for x in self.matrices
        ]
        content = hashlib.sha256()
        for matrix, half in zip(self.matrices, self.halves, strict=True):
            matrix.assign(tf.cast(half, tf.float32))
            content.update(half.numpy().tobytes())
        # Two models in one process share these only when their values are the same.
        self.name = f"float32-{content.hexdigest()}"
        self._initialize()

    def _wide(self, i):
        """Matrix `i` in float32, as a resource of the process."""
        shape, name = self.halves[i].shape, f"{self.name}-{i}"
        return tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=shape, shared_name=name)

    def _create_resource(self):
        return self._wide(0)  # loaders ask for one resource; `_initialize` fills all

    def _initialize(self):
        """Loaders run this when they have restored the float16 variables."""
        for i, half in enumerate(self.halves):
            wide = tf.cast(half, tf.float32)
            tf.raw_ops.AssignVariableOp(resource=self._wide(i), value=wide)

    def used_by(self, function):
        """A function for the export, which reads these matrices, not the model's."""

        @functools.wraps(function)  # a signature's inputs are named after arguments
        def with_wide_matrices(*tensors):
            values = []
            for i, half in enumerate(self.halves):
                wide = self._wide(i)
                value = tf.raw_ops.ReadVariableOp(resource=wide, dtype=tf.float32)
                values.append(tf.ensure_shape(value, half.shape))
            pairs = zip(self.matrices, values, strict=True)
            with keras.StatelessScope(state_mapping=pairs):
                return function(*tensors)

        return with_wide_matrices


def read_export(path):
    """The tokenizer and the Keras model of an exported SavedModel.

    Nothing of its graph runs: the weights come from its variables, the architecture
    from its metadata, and the vocabulary from the graph.

    Args:
        path: the folder of one version of an exported model.

    Returns:
        A `Tokenizer`, and a built `Transformer` with float32 weights.

    Raises:
        UserError: when the export is damaged, or another program's.

    Example:
        >>> read_export("nowhere")
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: nowhere: a SavedModel, but none that tfxformer ...
    """
    architecture = read_metadata(path)["architecture"]
    tokenizer = Tokenizer(read_vocabulary(path))
    try:
        transformer = Transformer(**architecture)
        transformer.build()
        values = _read_values(path)
        for weight, value in zip(transformer.weights, values, strict=True):
            weight.assign(value)  # refuses another shape
    except (*_DAMAGE, ValueError, TypeError) as error:
        raise _damaged(path, error) from None
    return tokenizer, transformer


def read_vocabulary(path):
    """The SentencePiece model in an exported model's graph, bytes for `Tokenizer`.

    Raises:
        UserError: when the export is damaged, or has no such model.

    Example:
        >>> from tfxformer.exporting.repository import shipped_model
        >>> Tokenizer(read_vocabulary(shipped_model())).vocab_size
        8000
    """
    try:
        content = Path(path, "saved_model.pb").read_bytes()
        graph = SavedModel.FromString(content).meta_graphs[0].graph_def
    except _DAMAGE as error:
        raise _damaged(path, error) from None
    for nodes in (graph.node, *(f.node_def for f in graph.library.function)):
        for node in nodes:
            if node.op == "SentencepieceOp":
                return node.attr["model"].s
    raise UserError(f"{path}: damaged: saved_model.pb has no tokenizer")


_DAMAGE = (OSError, LookupError, DecodeError, tf.errors.OpError)


def _damaged(path, error):
    reason = str(getattr(error, "message", error)).strip().partition("\n")[0]
    return UserError(f"{path}: damaged: {reason or repr(error)}")


def _read_values(path):
    """An export's weights in the order of `Transformer.weights`, float32 arrays."""
    reader = tf.train.load_checkpoint(str(Path(path, "variables", "variables")))
    graph = TrackableObjectGraph.FromString(
        reader.get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH")
    )

    def children(node):
        return {child.local_name: graph.nodes[child.node_id] for child in node.children}

    weights = children(children(graph.nodes[0])["weights"])
    for i in range(len(weights)):
        (attribute,) = weights[str(i)].attributes
        yield reader.get_tensor(attribute.checkpoint_key).astype("float32")
