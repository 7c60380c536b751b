"""Fine-tuning: training that starts from another run or an exported model.

A model's name is the path of a run folder, of one version of an exported model, or of
the folder of its versions (the newest counts). ``pt_en`` is the model that comes with
the package; ``./pt_en`` is a folder.
"""

from tfxformer.config import ModelConfig
from tfxformer.errors import UserError
from tfxformer.repository import SHIPPED, find_model, read_export, read_metadata
from tfxformer.training.run import Run


def settings(name):
    """Reads a model's settings: the sections ``model`` and ``tokenizer``, as a dict.

    Raises:
        UserError: there is no such model.
    """
    path = _find(name)
    if not _is_export(path):
        return Run.open(path).config().model_dump(include={"model", "tokenizer"})
    architecture = read_metadata(path)["architecture"]
    # Exports of earlier versions have fewer settings.
    known = ModelConfig.model_fields.keys() & architecture
    return {
        "model": {name: architecture[name] for name in known},
        "tokenizer": {"vocab_size": architecture["input_vocab_size"]},
    }


def check(config):
    """Checks that a `Config` describes the model of its ``training.init_from``.

    Raises:
        UserError: with the first setting that differs.
    """
    name, ours = config.training.init_from, config.model.model_dump()
    try:
        theirs = ModelConfig(**settings(name)["model"]).model_dump()
    except UserError as error:
        raise UserError(f"training.init_from: {error}") from None
    free = {"dropout_rate", "attention_dropout", "activation_dropout"}
    if not theirs["learned_positions"]:
        free.add("max_length")
    for setting, value in theirs.items():
        if setting not in free and value != ours[setting]:
            raise UserError(
                f"training.init_from = {name}: its model.{setting} is {value!r}, "
                f"not {ours[setting]!r}: use its model settings"
            )


def load(name):
    """Loads a model's `Tokenizer` and `Transformer`; a run's best weights count.

    Raises:
        UserError: there is no such model, or it is damaged.
    """
    path = _find(name)
    return read_export(path) if _is_export(path) else Run.open(path).load()


def _find(name):
    """The path of a run folder or of an exported version, by the model's name."""
    return find_model(None if str(name) == SHIPPED else name)


def _is_export(path):
    return (path / "saved_model.pb").exists()
