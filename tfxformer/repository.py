"""Model repositories, `name/version/`, and the exported models in them."""

import itertools
import json
import logging
import re
import tempfile
from pathlib import Path

from tfxformer.errors import UserError

log = logging.getLogger("tfxformer")

# The name of the model that comes with the package.
SHIPPED = "pt_en"
# The files beside each SavedModel: the model's limits and settings,
METADATA_FILE = Path("assets.extra", "tfxformer.json")
# the requests that TensorFlow Serving runs before a new version gets traffic,
WARM_UP_FILE = Path("assets.extra", "tf_serving_warmup_requests")
# and requests with Python's answers at export, which `verify` repeats.
EXAMPLES_FILE = Path("assets.extra", "examples.tfrecord")


def shipped_model():
    """The newest version of the default model.

    Returns:
        ``export/pt_en/VERSION`` in the installed package, or in its checkout.

    Raises:
        UserError: there is none.

    Example:
        >>> shipped_model().parent.name
        'pt_en'
    """
    package = Path(__file__).parent
    for place in (package, package.parent):
        version = newest_version(place / "export" / SHIPPED)
        if version is not None:
            return version
    raise UserError(f"no model found with {package}: give one with --model")


def newest_version(folder):
    """The path of the newest version in a model's folder, or None."""
    folders = [file.parent for file in Path(folder).glob("*/saved_model.pb")]
    versions = [path for path in folders if path.name.isdecimal()]  # 007 is version 7
    return max(versions, key=lambda path: int(path.name), default=None)


def find_model(path=None):
    """Finds the run folder or the exported version that a path names.

    The path may be a run folder, a version of an exported model, or the folder of its
    versions (the newest counts). None is the `shipped_model`.
    """
    return shipped_model() if path is None else newest_version(path) or Path(path)


def model_name(path=None):
    """The name that a path gives its model: the folder's, also for a version.

    Example:
        >>> model_name(), model_name("runs/mine"), model_name("models/mine/3")
        ('pt_en', 'mine', 'mine')
    """
    if path is None:
        return SHIPPED
    path = Path(path).resolve()
    return path.parent.name if path.name.isdecimal() else path.name


def chosen_model(path=None):
    """`find_model` for a command: logs the path that it finds."""
    path = find_model(path)
    log.info("model: %s (loading)", path)
    return path


def find_saved_model(path=None):
    """`find_model` for a SavedModel; a `UserError` for anything else."""
    path = find_model(path)
    if (path / "saved_model.pb").is_file():
        return path
    problem = "not a SavedModel; write one with a Keras model's export()"
    if not path.exists():
        problem = "there is no such folder"
    elif (path / "config.yaml").exists():
        problem = f"is a run folder; export it: tfxformer export --run {path}"
    raise UserError(f"{path}: {problem}")


def next_version(to, name, write):
    """Writes the next version of a model in one step.

    ``write(path)`` creates and fills a folder. If it raises, the repository does not
    change. Returns ``to/name/version`` and the result of ``write``.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise UserError(
            f"model name {name!r}: use only letters, digits, '_', '-' and '.', since "
            "it is a folder and a part of a server's addresses: choose one with --name"
        )
    folder = Path(to) / name
    folder.mkdir(parents=True, exist_ok=True)
    # Beside the versions, so that a rename is enough. Servers ignore the name, which
    # is not a number.
    with tempfile.TemporaryDirectory(
        prefix=".part-", dir=folder, ignore_cleanup_errors=True
    ) as scratch:
        written = write(Path(scratch, "1"))
        taken = [int(p.name) for p in folder.iterdir() if p.name.isdecimal()]
        for number in itertools.count(max(taken, default=0) + 1):
            version = folder / str(number)
            try:
                return Path(scratch, "1").rename(version), written
            except OSError:
                if not version.exists():  # otherwise another export took the number
                    raise


def read_metadata(path):
    """Reads the limits and settings of an exported model from its folder.

    Returns:
        A dict: ``max_length``, ``architecture`` (the arguments of `Transformer`),
        ``decoding``, and more.

    Raises:
        UserError: another program wrote the SavedModel, or the file is damaged.

    Example:
        >>> read_metadata(shipped_model())["max_length"]
        128
    """
    file = Path(path, METADATA_FILE)
    if not file.exists():
        raise UserError(f"{path}: a SavedModel that tfxformer did not export")
    try:
        return json.loads(file.read_text("utf-8"))["model"]
    except (OSError, ValueError, LookupError) as error:
        raise _damaged(file, error) from None


def read_export(path):
    """The tokenizer and the Keras model of an exported SavedModel.

    The graph does not run: the weights come from its variables, the architecture from
    its metadata, and the vocabulary from the graph's definition.

    Args:
        path: the folder of one version of an exported model.

    Returns:
        A `Tokenizer`, and a built `Transformer` with float32 weights.

    Raises:
        UserError: the export is damaged, or another program's.

    Example:
        >>> tokenizer, transformer = read_export(shipped_model())
        >>> tokenizer.vocab_size, transformer.max_length
        (8000, 128)
    """
    import tensorflow as tf

    from tfxformer.model import Transformer

    metadata = read_metadata(path)
    try:
        tokenizer = _read_tokenizer(path)
        transformer = Transformer(**metadata["architecture"])
        transformer.build()
        values = tf.train.load_checkpoint(str(Path(path, "variables", "variables")))
        for i, weight in enumerate(transformer.weights):
            value = values.get_tensor(f"weights/{i}/.ATTRIBUTES/VARIABLE_VALUE")
            weight.assign(value.astype("float32"))  # raises for another shape
    except Exception as error:  # TensorFlow and Keras raise many types
        raise _damaged(path, error) from None
    return tokenizer, transformer


def _read_tokenizer(path):
    """The `Tokenizer` in the graph of an exported model."""
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    from tfxformer.tokenizer import Tokenizer

    content = Path(path, "saved_model.pb").read_bytes()
    graph = SavedModel.FromString(content).meta_graphs[0].graph_def
    functions = (function.node_def for function in graph.library.function)
    models = {
        node.attr["model"].s: node.attr["shared_name"].s.decode()  # the digest
        for node in itertools.chain(graph.node, *functions)
        if node.op == "SentencepieceOp"
    }
    if not models:
        raise ValueError("saved_model.pb has no tokenizer")
    alone = [x for x in map(Tokenizer, models) if x.digest == models[x.model]]
    target = alone[0]  # the other one's digest is of both
    return next((Tokenizer(x, target) for x in models if x != target.model), target)


def write_records(file, name, records):
    """Writes requests to a model, in the format of TensorFlow Serving's warm-up.

    Each is a triple: a signature's name, its inputs and its outputs as arrays by name.
    Warm-up requests have no outputs.
    """
    import tensorflow as tf
    from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

    file.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(file)) as writer:
        for signature, inputs, outputs in records:
            record = PredictionLog()
            request, response = record.predict_log.request, record.predict_log.response
            request.model_spec.name = name
            request.model_spec.signature_name = signature
            sides = (request.inputs, inputs), (response.outputs, outputs)
            for protos, arrays in sides:
                for key, array in arrays.items():
                    protos[key].CopyFrom(tf.make_tensor_proto(array))
            writer.write(record.SerializeToString(deterministic=True))


def read_records(file):
    """Reads a file of `write_records`: a list of triples, empty without a file.

    Another program's warm-up may hold other kinds of requests: they are left out.
    """
    import tensorflow as tf
    from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

    triples = []
    try:
        records = tf.data.TFRecordDataset(str(file)) if Path(file).exists() else []
        for record in records:
            log = PredictionLog.FromString(record.numpy()).predict_log
            sides = dict(log.request.inputs), dict(log.response.outputs)
            arrays = tf.nest.map_structure(tf.make_ndarray, sides)
            triples.append((log.request.model_spec.signature_name, *arrays))
    except Exception as error:  # TensorFlow and protobuf raise many types
        raise _damaged(file, error) from None
    return [triple for triple in triples if triple[1]]


def _damaged(path, error):
    reason = str(getattr(error, "message", error)).strip().partition("\n")[0]
    return UserError(f"{path}: damaged: {reason or repr(error)}")
