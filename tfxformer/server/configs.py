"""Which models to serve, and which of their versions: found without TensorFlow."""

from pathlib import Path

from google.protobuf import text_format
from tensorflow_serving.config.model_server_config_pb2 import (
    ModelConfig,
    ModelServerConfig,
)

from tfxformer.errors import UserError


def versions(config):
    """The versions of a model on the disk that its policy serves: folders by number."""
    found = {
        int(path.name): path
        for path in Path(config.base_path).glob("[0-9]*")
        if path.name.isascii() and path.name.isdecimal() and path.is_dir()
    }
    newest = sorted((number for number in found if number < 2**63), reverse=True)
    policy = config.model_version_policy
    kind = policy.WhichOneof("policy_choice")
    if kind == "specific":
        newest = [number for number in newest if number in policy.specific.versions]
    elif kind != "all":
        newest = newest[: policy.latest.num_versions or 1]
    return {number: found[number] for number in newest}


def find_models(repository):
    """The models in a repository, each to be served in its newest version.

    Args:
        repository: A folder of models, ``NAME/VERSION``.

    Returns:
        A list of ``ModelConfig``.

    Raises:
        UserError: If there is none.

    Example:
        >>> find_models("nowhere")
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: nowhere: no such folder
    """
    repository = Path(repository)
    if not repository.is_dir():
        raise UserError(f"{repository}: no such folder")
    found = [
        ModelConfig(name=folder.name, base_path=str(folder))
        for folder in sorted(repository.iterdir())
        if not folder.name.startswith(".")
    ]
    found = [config for config in found if versions(config)]
    if found:
        return found
    if versions(ModelConfig(base_path=str(repository))):
        parent = repository.resolve().parent
        raise UserError(f"{repository}: one model; name its repository: {parent}")
    raise UserError(
        f"{repository}: no model in {repository}/NAME/VERSION; write one: tfxformer "
        f"export --run RUN --to {repository}"
    )


def read_config(file):
    """Reads a models.config in TensorFlow Serving's format.

    Args:
        file: A text-format ``ModelServerConfig``. A relative ``base_path`` is relative
            to the file's folder.

    Returns:
        A list of ``ModelConfig``.

    Raises:
        UserError: With the file, and the line or the model that is wrong.

    Example:
        >>> read_config("nowhere/models.config")
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: nowhere/models.config: No such file or directory
    """
    file = Path(file)
    try:
        parsed = text_format.Parse(file.read_text("utf-8"), ModelServerConfig())
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: {getattr(error, 'strerror', error)}") from None
    except text_format.ParseError as error:
        reason = str(error).rpartition(" : ")[2]
        raise UserError(f"{file}:{error.GetLine() or 1}: {reason}") from None
    configs = [*parsed.model_config_list.config]
    if not configs:
        raise UserError(f"{file}: no model in its model_config_list")
    for config in configs:
        given = config.name and config.base_path
        if not given or config.model_platform != "tensorflow":
            needed = 'a name, a base_path and model_platform: "tensorflow"'
            raise UserError(f"{file}: model {config.name!r} needs {needed}")
        if [x.name for x in configs].count(config.name) > 1:
            raise UserError(f"{file}: model {config.name!r} is there twice")
        config.base_path = str(file.parent / config.base_path)
    return configs
