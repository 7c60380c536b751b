"""What training may begin with: another run, or an exported model.

A name is the path of a run folder, of a version of an exported model, or of a model's
versions (the newest is taken); or ``pt_en``, the model that comes with the package,
unless there is a path of that name.
"""

from pathlib import Path

from tfxformer.config import ModelConfig
from tfxformer.errors import UserError
from tfxformer.exporting.repository import (
    SHIPPED,
    find_model,
    read_export,
    read_metadata,
)
from tfxformer.training.run import Run, load_weights


def find(name):
    """The path of a run folder or of a version of an exported model, by its name.

    Example:
        >>> find("pt_en").parent.name
        'pt_en'
    """
    named = str(name) == SHIPPED and not Path(name).exists()
    path = find_model(None if named else name)
    if not _is_export(path):
        Run.open(path)
    return path


def settings(name):
    """The settings that training takes over, by section: ``model`` and ``tokenizer``.

    Example:
        >>> settings("pt_en")["tokenizer"]
        {'vocab_size': 8000}
    """
    path = find(name)
    if not _is_export(path):
        theirs = Run.open(path).config().model_dump()
        return {section: theirs[section] for section in ("model", "tokenizer")}
    architecture = read_metadata(path)["architecture"]
    if not architecture["use_positions"]:
        raise UserError(f"{path}: its model has no positions, which is no setting")
    return {
        "model": {name: architecture[name] for name in ModelConfig.model_fields},
        "tokenizer": {"vocab_size": architecture["input_vocab_size"]},
    }


def check(config):
    """Refuses a `Config` whose ``training.init_from`` is built otherwise.

    Raises:
        UserError: naming the setting that differs.

    Example:
        >>> from tfxformer.config import load_config
        >>> check(load_config("tiny", overrides=["training.init_from=pt_en"]))
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: training.init_from = pt_en: its model.num_layers ...
    """
    name = config.training.init_from
    try:
        path = find(name)
        theirs = _architecture(ModelConfig(**settings(name)["model"]))
        if not _is_export(path):
            Run(path).trained_weights("best")
    except UserError as error:
        raise UserError(f"training.init_from: {error}") from None
    names = ["num_layers", "num_decoder_layers", "d_model", "num_heads", "dff", "norm"]
    names += ["learned_positions", "tie_embeddings"]
    if theirs["learned_positions"]:
        names.append("max_length")
    ours = _architecture(config.model)
    for setting in names:
        if theirs[setting] != ours[setting]:
            raise UserError(
                f"training.init_from = {name}: its model.{setting} is "
                f"{theirs[setting]!r}, not {ours[setting]!r}: train with the same "
                "model settings"
            )


def tokenizer(name):
    """The `Tokenizer` that training takes over, by the model's name.

    Example:
        >>> tokenizer("pt_en").vocab_size
        8000
    """
    path = find(name)
    if not _is_export(path):
        return Run(path).tokenizer()
    return read_export(path)[0]


def set_weights(model, name):
    """Gives a built `Transformer` the weights that a name means; returns their path."""
    path = find(name)
    if not _is_export(path):
        load_weights(model, Run(path).weights_file("best"))
        return path
    _, theirs = read_export(path)
    for weight, value in zip(model.weights, theirs.weights, strict=True):
        weight.assign(value)
    return path


def _is_export(path):
    return (path / "saved_model.pb").exists()


def _architecture(model):
    depth = model.num_decoder_layers or model.num_layers
    return model.model_dump() | {"num_decoder_layers": depth}
