"""Which models are served, and which of their versions; found without TensorFlow."""

import contextlib
import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf import text_format
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

from tfxformer.errors import UserError
from tfxformer.exporting.repository import shipped_model


@dataclass(frozen=True)
class ModelConfig:
    """What of a model is served.

    Args:
        name: the model's name.
        folder: where its versions are.
        latest: how many of the newest versions; None for all.
        specific: these versions and no others; None for the newest.
        labels: versions by label.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> for number in "1", "2":
        ...     (folder / number).mkdir()
        >>> [*ModelConfig("pt_en", folder).versions()]
        [2]
    """

    name: str
    folder: Path
    latest: int | None = 1
    specific: frozenset | None = None
    labels: Mapping[str, int] = field(default_factory=dict)

    def versions(self):
        """The versions on the disk that are to be served.

        Returns:
            Their folders by number, the newest first; None where the model's folder
            is not there.
        """
        try:
            entries = [*os.scandir(self.folder)]
        except OSError:
            return None
        found = {
            int(entry.name): Path(entry.path)
            for entry in entries
            if entry.name.isascii() and entry.name.isdecimal() and entry.is_dir()
        }
        newest = sorted((x for x in found if x < 2**63), reverse=True)
        if self.specific is not None:
            return {x: found[x] for x in newest if x in self.specific}
        return {x: found[x] for x in newest[: self.latest]}


def find_models(repository):
    """The models in a repository, each served in its newest version.

    Args:
        repository: a folder of models' folders.

    Returns:
        A list of `ModelConfig`.

    Raises:
        UserError: when there is none in it.

    Example:
        >>> import tempfile
        >>> repository = Path(tempfile.mkdtemp())
        >>> (repository / "pt_en" / "1").mkdir(parents=True)
        >>> [config.name for config in find_models(repository)]
        ['pt_en']
    """
    repository = Path(repository)
    if not repository.is_dir():
        raise UserError(f"{repository}: no such folder")
    found = [
        ModelConfig(folder.name, folder)
        for folder in sorted(repository.iterdir())
        if folder.is_dir() and not folder.name.startswith(".")
    ]
    found = [config for config in found if config.versions()]
    if found:
        return found
    is_version = (repository / "saved_model.pb").exists()
    if is_version or ModelConfig("", repository).versions():
        parents = repository.resolve().parents
        raise UserError(
            f"{repository}: a model's folder; name the repository that it is in: "
            f"{parents[1] if is_version else parents[0]}"
        )
    raise UserError(
        f"{repository}: no model in it, which would be in {repository}/NAME/VERSION; "
        f"write one: tfxformer export --run RUN --to {repository}"
    )


def read_config(file):
    """Reads a models.config, as TensorFlow Serving takes it.

    Args:
        file: a text-format ``ModelServerConfig``. A relative ``base_path`` is one
            from the file's folder.

    Returns:
        A list of `ModelConfig`.

    Raises:
        UserError: with the line that is wrong.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp(), "models.config")
        >>> _ = file.write_text(
        ...     "model_config_list { config { name: 'pt_en' base_path: '/models/pt_en' "
        ...     "model_platform: 'tensorflow' } }"
        ... )
        >>> [config.name for config in read_config(file)]
        ['pt_en']
    """
    file = Path(file)
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: {getattr(error, 'strerror', error)}") from None
    try:
        parsed = text_format.Parse(text, ModelServerConfig())
    except text_format.ParseError as error:
        reason = str(error).rpartition(" : ")[2]
        raise UserError(f"{file}:{error.GetLine() or 1}: {reason}") from None
    found = {}
    for config in parsed.model_config_list.config:
        problem = None
        if not config.name or not config.base_path:
            problem = "a model needs a name and a base_path"
        elif config.model_platform != "tensorflow":
            problem = f'model {config.name} needs model_platform: "tensorflow"'
        elif config.name in found:
            problem = f"model {config.name} is there twice"
        if problem:
            raise UserError(f"{file}:{_line_of(text, config.name)}: {problem}")
        policy = config.model_version_policy
        kind = policy.WhichOneof("policy_choice")
        specific = frozenset(policy.specific.versions)
        found[config.name] = ModelConfig(
            config.name,
            file.parent / config.base_path,
            None if kind == "all" else policy.latest.num_versions or 1,
            specific if kind == "specific" else None,
            dict(config.version_labels),
        )
    if not found:
        raise UserError(f"{file}:1: no model in its model_config_list")
    return [*found.values()]


def _line_of(text, name):
    """The number of the last line that names a model."""
    lines = text.splitlines()
    quoted = (f'"{name}"', f"'{name}'")
    numbers = [
        i for i, x in enumerate(lines, 1) if name and any(q in x for q in quoted)
    ]
    return numbers[-1] if numbers else 1


def default_repository(folder="."):
    """Where models are by default.

    Args:
        folder: where to look.

    Returns:
        The path of ``export``, or else of the newest quickstart's, or else of the
        model that comes with the package.

    Raises:
        UserError: where there is none.
    """
    folder = Path(folder)
    made = [*folder.glob("tfxformer-quickstart-*/export")]
    made.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for path in [folder / "export", *made]:
        with contextlib.suppress(UserError):
            find_models(path)
            return path
    return shipped_model().parents[1]


def configs_of(repository=None, config=None):
    """What is to be served, each time it is asked.

    Args:
        repository: a folder of models; None for `default_repository`. What was in it
            once stays, as its versions do when they are gone.
        config: the path of a models.config instead.

    Returns:
        A function that gives a list of `ModelConfig`, and raises `UserError` as
        `find_models` and `read_config` do.

    Raises:
        UserError: when there is nothing to serve.
    """
    if config is not None:
        if repository is not None:
            raise UserError("give a repository or --config, not both")
        return functools.partial(read_config, config)
    repository = repository or default_repository()
    known = {}

    def find():
        known.update((config.name, config) for config in find_models(repository))
        return [*known.values()]

    return find
