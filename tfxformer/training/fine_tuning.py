"""What training may begin with: another run, or an exported model.

A name is the path of a run folder, of a version of an exported model, or of a model's
versions (the newest is taken); or ``pt_en``, the model that comes with the package,
unless there is a path of that name.
"""

from pathlib import Path

from tfxformer.config import ModelConfig
from tfxformer.errors import UserError
from tfxformer.repository import (
    SHIPPED,
    find_model,
    read_export,
    read_metadata,
)
from tfxformer.training.run import Run


def settings(name):
    """Reads the settings that training takes over.

    Args:
        name: the model's name.

    Returns:
        A dict of the sections ``model`` and ``tokenizer``.

    Raises:
        UserError: there is no such model.

    Example:
        >>> settings("pt_en")["tokenizer"]
        {'vocab_size': 8000}
    """
    path = _find(name)
    if not _is_export(path):
        theirs = Run.open(path).config().model_dump()
        return {section: theirs[section] for section in ("model", "tokenizer")}
    architecture = read_metadata(path)["architecture"]
    return {
        "model": {name: architecture[name] for name in ModelConfig.model_fields},
        "tokenizer": {"vocab_size": architecture["input_vocab_size"]},
    }


def check(config):
    """Refuses settings whose model is another than that of ``training.init_from``.

    Args:
        config: a `Config`.

    Raises:
        UserError: naming the setting that differs.

    Example:
        >>> from tfxformer.config import load_config
        >>> check(load_config("tiny", overrides=["training.init_from=pt_en"]))
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: training.init_from = pt_en: its model.num_layers ...
    """
    name, ours = config.training.init_from, config.model.model_dump()
    try:
        theirs = settings(name)["model"]
    except UserError as error:
        raise UserError(f"training.init_from: {error}") from None
    names = ["num_layers", "num_decoder_layers", "d_model", "num_heads", "dff", "norm"]
    names += ["learned_positions", "tie_embeddings"]
    names += ["max_length"] if theirs["learned_positions"] else []
    for setting in names:
        if theirs[setting] != ours[setting]:
            raise UserError(
                f"training.init_from = {name}: its model.{setting} is "
                f"{theirs[setting]!r}, not {ours[setting]!r}: train with the same "
                "model settings"
            )


def load(name):
    """Loads the model that training begins with.

    Args:
        name: the model's name.

    Returns:
        Its `Tokenizer` and its `Transformer`; of a run, with the best weights.

    Raises:
        UserError: there is no such model, or it is damaged.

    Example:
        >>> tokenizer, transformer = load("pt_en")
        >>> tokenizer.vocab_size == transformer.target_vocab_size
        True
    """
    path = _find(name)
    return read_export(path) if _is_export(path) else Run.open(path).load()


def _find(name):
    """The path of a run folder or of a version of an exported model, by its name."""
    shipped = str(name) == SHIPPED and not Path(name).exists()
    return find_model(None if shipped else name)


def _is_export(path):
    return (path / "saved_model.pb").exists()
