"""The models to serve and their versions, found without TensorFlow."""

import re
from pathlib import Path

from google.protobuf import text_format
from tensorflow_serving.config.model_server_config_pb2 import (
    ModelConfig,
    ModelServerConfig,
)

from tfxformer.errors import UserError


def find_models(repository, config=None):
    """Finds the models to serve, each a ``ModelConfig``, or raises a `UserError`.

    A repository is a folder of models, ``NAME/VERSION``; the server takes the newest
    version of each. A models.config in TensorFlow Serving's format replaces it. Its
    paths may be relative to the file's folder.
    """
    if config is not None:
        return _read_config(Path(config))
    repository = Path(repository)
    if not repository.is_dir():
        raise UserError(f"{repository}: no such folder")
    found = [
        config
        for folder in sorted(repository.glob("[!.]*"))
        if versions(config := ModelConfig(name=folder.name, base_path=str(folder)))
    ]
    if not found:
        write = f"tfxformer export --run RUN --to {repository}"
        raise UserError(f"{repository}: no model in NAME/VERSION; export one: {write}")
    return found


def versions(config):
    """The versions of a model to serve by its policy: folders by number."""
    found = {
        int(path.name): path
        for path in Path(config.base_path).glob("*")
        if re.fullmatch("[0-9]{1,18}", path.name) and path.is_dir()
    }
    newest = sorted(found, reverse=True)
    policy = config.model_version_policy
    kind = policy.WhichOneof("policy_choice")
    if kind == "specific":
        newest = [number for number in newest if number in policy.specific.versions]
    elif kind != "all":
        newest = newest[: policy.latest.num_versions or 1]
    return {number: found[number] for number in newest}


def _read_config(file):
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
            raise UserError(f"{file}: model {config.name!r} is listed twice")
        config.base_path = str(file.parent / config.base_path)
    return configs
