"""A model repository, `name/version/`, as servers watch it, and what its files say.

Beside each SavedModel of ours, `assets.extra/` holds three files:

- `tfxformer.json`: the model's limits and settings.
- `tf_serving_warmup_requests`: what TensorFlow Serving runs when it loads a version,
  before it sends traffic there, so that graphs are optimised and compiled by then.
- `examples.tfrecord`: records of the same kind, with the answers that Python gave at
  export; `verify` asks for them again.
"""

import errno
import importlib.metadata
import json
import logging
import re
import tempfile
from pathlib import Path

from tfxformer import __version__
from tfxformer.errors import UserError

log = logging.getLogger("tfxformer")

# The model that comes with the package, in its repository.
SHIPPED = "pt_en"
METADATA_FILE = Path("assets.extra", "tfxformer.json")
WARM_UP_FILE = Path("assets.extra", "tf_serving_warmup_requests")
EXAMPLES_FILE = Path("assets.extra", "examples.tfrecord")

# --- To find a model ---


def shipped_model():
    """The newest version of the model to use where none is named.

    Returns:
        ``export/pt_en/VERSION`` in the working folder, or else in the installed
        package or in the checkout that it is imported from.

    Raises:
        UserError: where there is none.

    Example:
        >>> shipped_model().parent.name
        'pt_en'
    """
    package = Path(__file__).parents[1]
    for place in (Path(), package, package.parent):
        version = newest_version(place / "export" / SHIPPED)
        if version is not None:
            return version
    raise UserError(
        f"no model came with this installation ({package}): name one with --model"
    )


def newest_version(folder):
    """The newest version in a model's folder, a path; None where there is none.

    Example:
        >>> newest_version("nowhere")
    """
    versions = [
        int(file.parent.name)
        for file in Path(folder).glob("*/saved_model.pb")
        if file.parent.name.isdecimal()
    ]
    return Path(folder) / str(max(versions)) if versions else None


def find_model(path=None):
    """Finds the model that a path names.

    Args:
        path: a run folder, a version of an exported model, or the folder of its
            versions, whose newest is taken; None for `shipped_model`.

    Returns:
        The path of a run folder or of a version.

    Raises:
        UserError: as `shipped_model`.

    Example:
        >>> find_model("runs/mine").as_posix()
        'runs/mine'
    """
    return shipped_model() if path is None else newest_version(path) or Path(path)


def chosen_model(path=None):
    """`find_model` for a command: a line of the log names what it finds."""
    path = find_model(path)
    log.info("model: %s (loading)", path)
    return path


def find_saved_model(path=None):
    """`find_model` where only a SavedModel will do.

    Raises:
        UserError: when the path names none.

    Example:
        >>> find_saved_model("nowhere")
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: nowhere: there is no such folder
    """
    path = find_model(path)
    if path.is_file():
        hint = "give the SavedModel's folder"
        if path.suffix in (".keras", ".h5"):
            hint = 'load it, call model.export("FOLDER"), and give that folder'
        raise UserError(f"{path}: is a file: {hint}")
    if not path.is_dir():
        raise UserError(f"{path}: there is no such folder")
    if (path / "config.yaml").exists():
        raise UserError(f"{path}: is a run folder: tfxformer export --run {path}")
    if not (path / "saved_model.pb").is_file():
        raise UserError(f"{path}: is not a SavedModel: it holds no saved_model.pb")
    return path


# --- To add a version ---


def model_folder(to, name):
    """A model's folder in a repository.

    Raises:
        UserError: when the name cannot be one.

    Example:
        >>> model_folder("export", "pt_en").as_posix()
        'export/pt_en'
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise UserError(
            f"model name {name!r}: use letters, digits, '_', '-' and '.' only, since "
            "it is a folder and a part of a server's addresses"
        )
    return Path(to) / name


def next_version(to, name, write):
    """Writes the next version of a model, so that nobody sees half of it.

    Args:
        to: the repository.
        name: the model's name in it.
        write: makes the folder that it is given, and fills it. If it raises, the
            repository stays as it was.

    Returns:
        The new folder, ``to/name/version``, and what ``write`` returned.

    Raises:
        UserError: when the name cannot be one, or the repository not be written.

    Example:
        >>> to = Path(tempfile.mkdtemp())
        >>> path, _ = next_version(to, "pt_en", lambda part: part.mkdir())
        >>> path.relative_to(to).as_posix()
        'pt_en/1'
    """
    folder = model_folder(to, name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Beside the versions, so that renaming is one step; a name that is no
        # number is no version to a server.
        with tempfile.TemporaryDirectory(
            prefix=".part-", dir=folder, ignore_cleanup_errors=True
        ) as scratch:
            written = write(Path(scratch, "1"))
            return _publish(Path(scratch, "1"), folder), written
    except OSError as error:
        raise UserError(f"{error.filename}: {error.strerror}") from None


def _publish(part, folder):
    """Renames the finished folder to the next version; never over another one."""
    while True:
        versions = [int(p.name) for p in folder.iterdir() if p.name.isdecimal()]
        try:
            return part.rename(folder / str(max(versions, default=0) + 1))
        except OSError as error:
            # Another export took the number meanwhile: a folder that holds
            # something is not replaced by a rename.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise


# --- What is beside a SavedModel ---


def write_metadata(path, model):
    """Writes a model's limits and settings, a dict, into its SavedModel's folder."""
    versions = {
        "tfxformer": __version__,
        "tensorflow": importlib.metadata.version("tensorflow"),
    }
    file = Path(path, METADATA_FILE)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{json.dumps(versions | {'model': model}, indent=2)}\n", "utf-8")


def read_metadata(path):
    """Reads the limits and settings of an exported model from its folder.

    Returns:
        A dict: ``max_length``, ``architecture`` (the arguments of `Transformer`),
        ``decoding``, and more.

    Raises:
        UserError: when another program wrote the SavedModel, or the file is damaged.

    Example:
        >>> read_metadata("nowhere")
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: nowhere: a SavedModel, but none that tfxformer ...
    """
    file = Path(path, METADATA_FILE)
    if not file.exists():
        raise UserError(f"{path}: a SavedModel, but none that tfxformer exported")
    try:
        model = json.loads(file.read_text("utf-8"))["model"]
        return dict(model) | {"architecture": dict(model["architecture"])}
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"{file} is damaged ({error!r}): export it again") from None


def write_records(file, name, asked):
    """Writes requests to a model, in the form of TensorFlow Serving's warm-up.

    Args:
        file: the path to write.
        name: the model's name.
        asked: tuples of a signature's name, its inputs, and perhaps its outputs,
            arrays by name. For its warm-up, a server takes 1,000 at most.
    """
    import numpy as np
    import tensorflow as tf
    from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

    file.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(file)) as writer:
        for signature, inputs, *outputs in asked:
            record = PredictionLog()
            log = record.predict_log
            log.request.model_spec.name = name
            log.request.model_spec.signature_name = signature
            sides = log.request.inputs, log.response.outputs
            for protos, arrays in zip(sides, [inputs, *outputs], strict=False):
                for key, array in arrays.items():
                    array = np.asarray(array)
                    dtype = tf.string if array.dtype.kind in "OSU" else None
                    protos[key].CopyFrom(tf.make_tensor_proto(array, dtype))
            writer.write(record.SerializeToString(deterministic=True))


def read_records(file):
    """Reads what `write_records` wrote, or a warm-up of another program.

    Returns:
        A list of ``PredictLog``, empty where there is no file. Logs of other kinds of
        request are left out.

    Raises:
        UserError: when the file is damaged.

    Example:
        >>> read_records("nowhere")
        []
    """
    import tensorflow as tf
    from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

    if not Path(file).exists():
        return []
    try:
        records = [*tf.data.TFRecordDataset(str(file)).as_numpy_iterator()]
        logs = [PredictionLog.FromString(record) for record in records]
    except Exception as error:  # of TensorFlow's or protobuf's own kinds
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"{file}: damaged: {reason}") from None
    return [log.predict_log for log in logs if log.HasField("predict_log")]
