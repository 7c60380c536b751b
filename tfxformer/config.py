"""Settings: presets, a YAML file and single overrides, checked before work starts.

Each setting has its type, limits, default and description here and nowhere else. The
checks, the YAML file, the command-line options and the docs are generated from them.
"""

import difflib
import re
from importlib.resources import files
from typing import Annotated, Literal, get_args

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
from tfxformer.errors import SettingError, UserError, write_file


class Settings(BaseModel):
    """Immutable values that are checked on creation.

    Each field's description is the string below it.

    Raises:
        UserError: a setting is wrong; the message has its name, its value and the
            values that it may have.

    Example:
        >>> ModelConfig(num_layers=0)
        Traceback (most recent call last):
        ...
        tfxformer.errors.SettingError: model.num_layers = 0: must be greater than \
or equal to 1
    """

    # The title of a subclass is its section in the YAML file.
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value, info):
        """YAML's `yes` is a truth value, which Python would count as 1."""
        kind = cls.model_fields[info.field_name].annotation
        values = value if isinstance(value, list) else [value]
        truth = any(isinstance(each, bool) for each in values)
        kinds = {kind, *get_args(kind), *map(type, get_args(kind))}
        if truth and bool not in kinds:
            raise ValueError("must not be yes or no, true or false")
        return value

    @model_validator(mode="wrap")
    @classmethod
    def _refused_in_one_line(cls, values, handler):
        try:
            return handler(values)
        except ValidationError as errors:
            error = errors.errors()[0]
        section, value = cls.model_config.get("title"), error["input"]
        name = str(error["loc"][0]) if error["loc"] else None
        if name is None:  # the whole section is wrong
            section, name = None, section
        # Pydantic writes "Input should be ..." and "Value error, ...".
        reason = re.sub(r"^\w+ should", "must", error["msg"])
        reason = reason.removeprefix("Value error, ")
        if error["type"] == "missing":
            value, reason = SettingError.UNKNOWN, "is missing"
        if error["type"] == "extra_forbidden":
            value = SettingError.UNKNOWN
            reason = f"no such setting{_choices(name, cls.model_fields)}"
        raise SettingError(section, name, reason, value=value)

    def updated(self, **values):
        """Returns a checked copy with some settings changed.

        Args:
            values: the new values by name; for a section, a dictionary of its changes.

        Example:
            >>> config = Config().updated(training={"steps": 300})
            >>> config.training.steps, config.training.warmup_steps
            (300, 4000)
        """
        return type(self)(**_merged(self.model_dump(), values))


Count = Annotated[int, Field(ge=1)]
Two = Annotated[list[Count], Field(min_length=2, max_length=2)]
Positive = Annotated[float, Field(gt=0)]
Rate = Annotated[float, Field(ge=0, lt=1)]


def _listed(value, info):
    """A list of one value, or of several in the command line's form: 2,1."""
    if isinstance(value, str) and info.field_name != "sources":
        return value.split(",")
    return value if isinstance(value, list | None) else [value]


Listed = BeforeValidator(_listed)


class ModelConfig(Settings, title="model"):
    """The Transformer; see `tfxformer.Transformer` for more about each setting."""

    num_layers: Count = 4
    """Layers in the encoder, and in the decoder."""
    num_decoder_layers: Count | None = None
    """Layers in the decoder; by default `num_layers`."""
    d_model: Count = 128
    """The size of the hidden states."""
    num_heads: Count = 8
    """Attention heads; the number must divide `d_model`."""
    dff: Count = 512
    """The size of the feed-forward networks' hidden layer."""
    dropout_rate: Rate = 0.1
    """Dropout of embeddings and of the sublayers' outputs."""
    attention_dropout: Rate | None = None
    """Dropout of attention weights; by default `dropout_rate`."""
    activation_dropout: Rate = 0.0
    """Dropout of the feed-forward networks' hidden layers."""
    activation: Literal["relu", "swish"] = "relu"
    """The activation of these layers: "relu" (the paper's) or "swish"."""
    norm: Literal["post", "pre"] = "post"
    """Where to normalize: "post" (after each sublayer, the paper's) or "pre"."""
    learned_positions: bool = False
    """Learn an embedding for each position, instead of sines and cosines."""
    tie_embeddings: bool | Literal["target"] = True
    """Use one matrix for both embeddings and the output projection; "target" has a
    source embedding of its own, as separate vocabularies need it."""
    output_bias: bool = False
    """Add a bias to the logits of tied embeddings, too."""
    max_length: Annotated[int, Field(ge=4)] = 128
    """The most tokens in a sentence, including the start or end token."""


class TokenizerConfig(Settings, title="tokenizer"):
    """The vocabulary; see `tfxformer.Tokenizer.train`."""

    # 4 special tokens, 256 bytes, and some letters.
    vocab_size: Annotated[int, Field(ge=300)] = 8000
    """The most tokens, including 4 special tokens and 256 bytes."""
    shared: bool = True
    """One vocabulary for both languages; false learns one for each."""
    casing: Literal["keep", "lower"] = "keep"
    """"keep", or "lower" to read and write lower case only."""


class DataConfig(Settings, title="data"):
    """The sources of sentence pairs, and the filters on them."""

    sources: Annotated[list[str], Listed] = []
    """Sentence pairs: phrasebook, ted, a TSV file (.gz too), or SRC,TGT paths."""
    weights: Annotated[list[Positive] | None, Listed] = None
    """How often to draw from each source, such as 1,3; by default as it has pairs."""
    valid: str | None = None
    """A source to validate on; by default, pairs held out of the training sources."""
    valid_pairs: Count = 1000
    """The number of pairs to hold out if `valid` names no source."""
    data_dir: str | None = None
    """The folder of TensorFlow Datasets, for ted."""
    columns: Annotated[Two | None, Listed] = None
    """A TSV's source and translation columns, such as 2,1; by default its only two."""
    encoding: Annotated[str, AfterValidator(check_encoding)] = "utf-8"
    """The encoding of the files, such as utf-8 or latin-1."""
    max_characters: Count = 1000
    """The most characters on either side of a pair."""
    max_length_ratio: Annotated[float, Field(ge=1)] = 3.0
    """The largest ratio of the two sides' lengths."""

    @field_validator("columns")
    @classmethod
    def _two_columns(cls, columns):
        if columns and columns[0] == columns[1]:
            raise ValueError("must be two different columns")
        return columns


class TrainingConfig(Settings, title="training"):
    """The training."""

    steps: Count = 20_000
    """Updates of the weights."""
    tokens_per_batch: Count = 4096
    """The most positions on either side of a batch, including padding, on all devices
    together."""
    accumulate: Count = 1
    """Accumulate the gradients of this many batches in each step."""
    optimizer: Literal["adam", "muon"] = "adam"
    """"adam" (the paper's, section 5.3) or "muon"."""
    schedule: Literal["inverse_sqrt", "cosine"] = "inverse_sqrt"
    """The learning rate: "inverse_sqrt" (the paper's, section 5.3) or "cosine"."""
    learning_rate: Positive | None = None
    """The peak; by default the paper's, `(d_model * warmup_steps)^-0.5`."""
    warmup_steps: Count = 4000
    """Steps until the learning rate peaks."""
    label_smoothing: Rate = 0.1
    """Label smoothing: the paper's epsilon (section 5.4)."""
    clip_norm: Positive | None = 1.0
    """Clip gradients to this norm; null turns clipping off."""
    subword_alpha: Annotated[float, Field(ge=0)] = 0.0
    """Subword regularisation: 0 is off, 0.1 is usual."""
    ema_decay: Rate = 0.0
    """Validate and keep a moving average of the weights, with a decay such as 0.999;
    0 is off."""
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    """The number format of the computation; weights stay float32."""
    xla: bool = False
    """Compile the step with XLA."""
    validate_every: Count = 500
    """Steps between validations."""
    bleu_pairs: Annotated[int, Field(ge=0)] = 0
    """Validation pairs to translate and score with BLEU."""
    metric: Literal["perplexity", "bleu"] = "perplexity"
    """The metric of "best" and of patience: "perplexity" or "bleu"."""
    patience: Annotated[int, Field(ge=0)] = 0
    """Stop after this many validations without a better metric; 0 never stops."""
    checkpoint_every: Count | None = None
    """Steps between checkpoints; each validation saves one, too."""
    keep_last: Count = 2
    """The number of recent checkpoints to keep."""
    init_from: str | None = None
    """Fine-tuning: start with the weights, vocabulary and model settings of a run, an
    exported model, or pt_en, which comes with the package."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """The random seed."""


class Config(Settings):
    """All the settings of a run, in the sections of its YAML file."""

    model: ModelConfig = ModelConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    data: DataConfig = DataConfig()
    training: TrainingConfig = TrainingConfig()

    @model_validator(mode="after")
    def _go_together(self):
        heads = self.model.num_heads
        d_model = self.model.d_model
        if d_model % heads:
            reason = f"must divide model.d_model, {d_model}"
            raise SettingError("model", "num_heads", reason, value=heads)
        weights = self.data.weights
        if weights is not None and len(weights) != len(self.data.sources):
            reason = "must have one for each source"
            raise SettingError("data", "weights", reason, value=weights)
        metric = self.training.metric
        if metric == "bleu" and not self.training.bleu_pairs:
            reason = "needs training.bleu_pairs, such as 500"
            raise SettingError("training", "metric", reason, value=metric)
        tokens = self.training.tokens_per_batch
        length = self.model.max_length
        if tokens < length:
            reason = (
                f"must be at least {length}, model.max_length, so that the longest "
                "sentences fit into a batch"
            )
            raise SettingError("training", "tokens_per_batch", reason, value=tokens)
        return self

    def save(self, path):
        """Writes a YAML file for `load_config`; a `UserError` if that fails."""
        write_file(path, yaml.safe_dump(self.model_dump(), sort_keys=False).encode())


PRESETS = yaml.safe_load(files("tfxformer").joinpath("presets.yaml").read_bytes())


def load_config(preset=None, file=None, overrides=(), base=None):
    """Loads a preset, then a YAML file over it, then single overrides.

    Args:
        preset: a name in `PRESETS`; None for the file's, or for "tutorial".
        file: a YAML file with any of the sections ``model``, ``tokenizer``,
            ``data`` and ``training``, and ``preset`` to start from another one.
        overrides: strings such as ``"model.dff=1024"``, with the value in YAML, or
            dictionaries of sections; later ones replace earlier ones.
        base: sections that the file and the overrides may change: the settings of the
            model to fine-tune.

    Returns:
        A `Config`.

    Raises:
        UserError: a setting does not exist or has a wrong value.

    Example:
        >>> load_config("tiny", overrides=["model.dff=1024"]).model.dff
        1024
    """
    read = read_yaml(file) if file else {}
    named = read.pop("preset", preset or "tutorial")
    if preset not in (None, named):
        raise UserError(
            f"--preset {preset}: {file} has preset = {named}: leave one of them out"
        )
    preset = named
    if preset not in [*PRESETS]:
        raise UserError(f"{preset}: no such preset{_choices(preset, PRESETS)}")
    overrides = [
        _parsed(override) if isinstance(override, str) else override
        for override in overrides
    ]
    values = PRESETS[preset]
    for changes in (base or {}, read, *overrides):
        values = _merged(values, changes)
    try:
        return Config.model_validate(values)
    except SettingError as error:
        overridden = any(_sets(changes, error) for changes in overrides)
        if _sets(read, error) and not overridden:
            error.origin = file
        raise


def _sets(values, error):
    """Whether sections of settings have the setting of a `SettingError`."""
    if error.section is None:
        return error.name in values
    section = values.get(error.section)
    return isinstance(section, dict) and error.name in map(str, section)


def read_yaml(file):
    """Reads the sections of a settings file, unchecked.

    Raises:
        UserError: the file cannot be read, or holds something else.
    """
    try:
        with open(file, encoding="utf-8") as opened:
            read = yaml.safe_load(opened) or {}
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(f"{file}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(read, dict):
        raise UserError(
            f"{file}: must hold sections such as 'model:', not {read!r:.80}"
        )
    return read


def _parsed(override):
    """``section.name=value`` as a dictionary of its section."""
    name, equals, value = override.partition("=")
    section, dot, setting = name.strip().partition(".")
    if not (equals and dot):
        raise UserError(
            f"{override!r} is not a setting: write section.name=value, such as "
            "model.dff=1024"
        )
    try:
        return {section: {setting: yaml.safe_load(value)}}
    except (yaml.YAMLError, ValueError):
        raise UserError(f"{override!r}: the value is not YAML") from None


def _merged(values, changes):
    """Sections of settings with changes over them."""
    merged = dict(values)
    for name, new in changes.items():
        both = isinstance(new, dict) and isinstance(merged.get(name), dict)
        merged[name] = merged[name] | new if both else new
    return merged


def _choices(name, known):
    """The end of the error for an unknown name: the nearest one, and all of them."""
    close = difflib.get_close_matches(str(name), [*known], n=1)
    meant = f" (did you mean {close[0]!r}?)" if close else ""
    return f"{meant}: choose from {', '.join(known)}"
