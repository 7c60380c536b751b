"""Settings: presets, a YAML file and single overrides, checked before work starts.

A setting's type, limits, default and description are written once, here. The checks,
the YAML file, the command line's options and the page of settings are made from them.
"""

import contextlib
import difflib
from importlib.resources import files
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from tfxformer.corpora.files import check_encoding
from tfxformer.errors import UserError, write_file

# What pydantic finds wrong, in our words.
_MUST = {
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "list_type": "must be a list",
    "model_type": "must hold name: value",
    "literal_error": "must be {expected}",
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be above {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be below {lt}",
    "value_error": "{error}",
}


class Settings(BaseModel):
    """Values that are checked when they are given, and never change.

    Each field's description is the string below it.

    Raises:
        UserError: naming the first setting that is wrong, its value, and what it
            must be.

    Example:
        >>> ModelConfig(num_layers=0)
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: model.num_layers = 0: must be at least 1
    """

    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="forbid",
        validate_default=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )
    # The section of the YAML file, with a dot: what messages put before a name.
    section: ClassVar[str] = ""

    def __init__(self, **values):
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise self._explained(error.errors()[0]) from None

    def updated(self, **values):
        """The same settings with some of them changed.

        Args:
            values: the new ones by name; of a section, a dictionary of what changes.

        Returns:
            New settings, checked.

        Example:
            >>> config = Config().updated(training={"steps": 300})
            >>> config.training.steps, config.training.warmup_steps
            (300, 4000)
        """
        return type(self)(**_merged(self.model_dump(), values))

    @classmethod
    def _explained(cls, error):
        """The `UserError` of what pydantic found."""
        if error["type"] == "extra_forbidden":
            return _unknown("setting", cls.section, error["loc"][0], cls.model_fields)
        wrong = _MUST.get(error["type"], error["msg"]).format(**error.get("ctx", {}))
        if not error["loc"]:  # of several settings together
            return UserError(wrong)
        value = _show(error["input"])
        return UserError(f"{cls.section}{error['loc'][0]} = {value}: {wrong}")


def _number(value):
    """YAML 1.1, which PyYAML reads, takes 1e-4 for text."""
    with contextlib.suppress(ValueError):
        return float(value) if isinstance(value, str) else value
    return value


Count = Annotated[int, Field(ge=1)]
Number = Annotated[float, BeforeValidator(_number)]
Rate = Annotated[Number, Field(ge=0, lt=1)]


def _listed(value, info):
    """One value for a list of one, and numbers as the command line has them: 2,1."""
    if isinstance(value, str) and info.field_name != "sources":
        value = [int(x) if x.isdecimal() else x for x in value.split(",")]
    return value if isinstance(value, list | None) else [value]


class ModelConfig(Settings):
    """The Transformer; `tfxformer.Transformer` says more of each setting."""

    section: ClassVar[str] = "model."

    num_layers: Count = 4
    """Layers of the encoder, and of the decoder."""
    num_decoder_layers: Count | None = None
    """Layers of the decoder; by default `num_layers`."""
    d_model: Count = 128
    """The size of each position's vector."""
    num_heads: Count = 8
    """Attention heads; they divide `d_model`."""
    dff: Count = 512
    """The size of the feed-forward networks' hidden layer."""
    dropout_rate: Rate = 0.1
    """Dropout of embeddings and of the sublayers' outputs."""
    attention_dropout: Rate | None = None
    """Dropout of attention weights; by default `dropout_rate`."""
    activation_dropout: Rate = 0.0
    """Dropout of the feed-forward networks' hidden layers."""
    norm: Literal["post", "pre"] = "post"
    """Where layers are normalised: "post" (the paper's) or "pre"."""
    learned_positions: bool = False
    """Learn an embedding of each position, instead of sines and cosines."""
    tie_embeddings: bool = True
    """Use one matrix for both embeddings and the output projection."""
    max_length: Annotated[int, Field(ge=4)] = 128
    """The most tokens of a sentence, start or end token included."""

    @field_validator("num_heads")
    @classmethod
    def _divides(cls, heads, info):
        if info.data.get("d_model", heads) % heads:
            raise ValueError(f"must divide model.d_model, {info.data['d_model']}")
        return heads


class TokenizerConfig(Settings):
    """The joint vocabulary; see `tfxformer.Tokenizer.train`."""

    section: ClassVar[str] = "tokenizer."

    # 4 special tokens, 256 bytes, and some letters.
    vocab_size: Annotated[int, Field(ge=300)] = 8000
    """The most tokens, the 4 special ones and the 256 bytes included."""
    casing: Literal["keep", "lower"] = "keep"
    """"keep", or "lower" to read and write lower case only."""


class DataConfig(Settings):
    """Where sentence pairs come from, and what is left out of them."""

    section: ClassVar[str] = "data."

    sources: Annotated[list[str], BeforeValidator(_listed)] = []
    """Where pairs come from: phrasebook, ted, TSV files (.gz too), or SRC,TGT paths."""
    weights: Annotated[list[Number] | None, BeforeValidator(_listed)] = None
    """How often each source is drawn, such as 1,3; by default by its pairs' number."""
    valid: str | None = None
    """A source to validate on; by default pairs are held out of the others."""
    valid_pairs: Count = 1000
    """How many pairs are held out where `valid` names no source."""
    data_dir: str | None = None
    """The folder of TensorFlow Datasets, for ted."""
    columns: Annotated[list[int] | None, BeforeValidator(_listed)] = None
    """A TSV's columns of source and translation, such as 2,1; by default it has two."""
    encoding: Annotated[str, AfterValidator(check_encoding)] = "utf-8"
    """The encoding of files: one of Python's codecs, such as latin-1."""
    max_characters: Count = 1000
    """The longest side of a pair that is kept."""
    max_length_ratio: Annotated[Number, Field(ge=1)] = 3.0
    """The largest ratio of the two sides' lengths."""

    @field_validator("weights")
    @classmethod
    def _one_each(cls, weights, info):
        sources = info.data.get("sources", [])
        if weights is not None and len(weights) != len(sources):
            raise ValueError(f"must be one for each of the {len(sources)} sources")
        if weights is not None and min(weights, default=1) <= 0:
            raise ValueError("must all be above 0")
        return weights

    @field_validator("columns")
    @classmethod
    def _two(cls, columns):
        if columns is None:
            return None
        if len(columns) != 2 or len({*columns}) != 2 or min(columns) < 1:
            raise ValueError("must be two numbers from 1, such as [2, 1]")
        return columns


class TrainingConfig(Settings):
    """How long and how to train."""

    section: ClassVar[str] = "training."

    steps: Count = 20_000
    """Updates of the weights."""
    tokens_per_batch: Count = 4096
    """Positions on either side of a batch, padding included, all devices together."""
    accumulate: Count = 1
    """Batches whose gradients make one step."""
    optimizer: Literal["adam", "muon"] = "adam"
    """"adam" (the paper's, section 5.3) or "muon"."""
    schedule: Literal["inverse_sqrt", "cosine"] = "inverse_sqrt"
    """The learning rate's: "inverse_sqrt" (the paper's, section 5.3) or "cosine"."""
    learning_rate: Annotated[Number, Field(gt=0)] | None = None
    """The peak; by default the paper's, `(d_model * warmup_steps)^-0.5`."""
    warmup_steps: Count = 4000
    """Steps until the peak."""
    label_smoothing: Rate = 0.1
    """The paper's epsilon (section 5.4)."""
    clip_norm: Annotated[Number, Field(gt=0)] | None = 1.0
    """The longest gradient; null for any length."""
    subword_alpha: Annotated[Number, Field(ge=0)] = 0.0
    """Subword regularisation: 0 is off, 0.1 is usual."""
    ema_decay: Rate = 0.0
    """Validate and keep a moving average of the weights: 0.999, say; 0 is off."""
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    """What the step computes in; weights stay float32."""
    xla: bool = False
    """Compile the step with XLA."""
    validate_every: Count = 500
    """Steps between validations."""
    bleu_pairs: Annotated[int, Field(ge=0)] = 0
    """Validation pairs that are translated and scored with BLEU."""
    metric: Literal["perplexity", "bleu"] = "perplexity"
    """What "best" and patience go by: "perplexity" or "bleu"."""
    patience: Annotated[int, Field(ge=0)] = 0
    """Validations without a better metric before training stops; 0 never does."""
    checkpoint_every: Count | None = None
    """Steps between checkpoints; by default after each validation."""
    keep_last: Count = 2
    """How many of the newest checkpoints are kept."""
    init_from: str | None = None
    """Fine-tuning: begin with the weights, vocabulary and model settings of a run, an
    exported model, or pt_en, which comes with the package."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """The seed of all random numbers."""

    @field_validator("metric")
    @classmethod
    def _measured(cls, metric, info):
        if metric == "bleu" and not info.data.get("bleu_pairs", 1):
            raise ValueError("needs training.bleu_pairs, pairs to translate: 500, say")
        return metric


class Config(Settings):
    """All the settings of a run, in the sections of its YAML file.

    Example:
        >>> Config().model.norm
        'post'
    """

    model: ModelConfig = ModelConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    data: DataConfig = DataConfig()
    training: TrainingConfig = TrainingConfig()

    @model_validator(mode="after")
    def _fit(self):
        tokens, length = self.training.tokens_per_batch, self.model.max_length
        if tokens < length:
            raise ValueError(
                f"training.tokens_per_batch = {tokens}: must be at least "
                f"model.max_length, {length}, or the longest sentences fit no batch"
            )
        return self

    def save(self, path):
        """Writes the settings to a YAML file that `load_config` reads.

        A reader sees the whole file or none.

        Args:
            path: the file.

        Raises:
            UserError: when it cannot be written.
        """
        write_file(path, yaml.safe_dump(self.model_dump(), sort_keys=False).encode())


PRESETS = yaml.safe_load(files("tfxformer").joinpath("presets.yaml").read_bytes())


def load_config(preset="tutorial", file=None, overrides=()):
    """Settings from a preset, over it a YAML file, over that single overrides.

    Args:
        preset: a name in `PRESETS`.
        file: a YAML file with any of the sections ``model``, ``tokenizer``,
            ``data`` and ``training``, and ``preset`` to begin from another one.
        overrides: strings such as ``"model.dff=1024"``, whose value is YAML, or
            dictionaries of sections; each goes over those before it.

    Returns:
        A `Config`.

    Raises:
        UserError: for a setting that does not exist or cannot be, by name.

    Example:
        >>> load_config("tiny", overrides=["model.dff=1024"]).model.dff
        1024
    """
    read = _read_yaml(file) if file else {}
    preset = read.pop("preset", preset)
    if not isinstance(preset, str) or preset not in PRESETS:
        raise _unknown("preset", "", preset, PRESETS)
    values = _merged(PRESETS[preset], read)
    for override in overrides:
        changes = _parsed(override) if isinstance(override, str) else override
        values = _merged(values, changes)
    try:
        return Config(**values)
    except UserError as error:
        names = [
            f"{section}.{name}"
            for section, settings in read.items()
            for name in (settings if isinstance(settings, dict) else ())
        ]
        wrong = str(error).replace("'", " ").split()
        in_file = any(str(name) in wrong for name in [*names, *read])
        raise UserError(f"{file}: {error}" if in_file else str(error)) from None


def _read_yaml(file):
    try:
        read = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"{file}: not UTF-8 text") from None
    except Exception as error:  # PyYAML's, and any of its constructors: of 2020-13-45
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "cannot be read"
        raise UserError(f"{file}{line}: not YAML: {problem}") from None
    if not isinstance(read, dict | None):
        shown = _show(read)
        raise UserError(f"{file}: must hold sections such as 'model:', not {shown}")
    return read or {}


def _parsed(override):
    """``section.name=value`` as a dictionary of its section."""
    name, equals, value = override.partition("=")
    section, dot, setting = name.strip().partition(".")
    if not (equals and dot):
        raise UserError(
            f"{override!r} is no setting: write it as section.name=value, "
            "for example model.dff=1024"
        )
    try:
        return {section: {setting: yaml.safe_load(value)}}
    except Exception:  # as above
        raise UserError(f"{override!r}: the value is not YAML") from None


def _merged(values, changes):
    """A dictionary with another over it, dictionaries in them alike."""
    merged = dict(values)
    for name, new in changes.items():
        if isinstance(new, dict):
            old = merged.get(name)
            new = _merged(old if isinstance(old, dict) else {}, new)
        merged[str(name)] = new
    return merged


def _unknown(what, section, name, known):
    """The error of a name that does not exist, with the one that may be meant."""
    close = difflib.get_close_matches(str(name), [*known], n=1)
    meant = f" (did you mean {close[0]!r}?)" if close else ""
    shown, choice = _show(f"{section}{name}"), ", ".join(known)
    return UserError(f"there is no {what} {shown}{meant}: there are {choice}")


def _show(value):
    """A value as Python writes it, and not all of a long one."""
    try:
        text = repr(value)
    except ValueError:
        text = "a number of too many digits"
    return text if len(text) <= 80 else f"{text[:80]}..."
