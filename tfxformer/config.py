"""Settings: presets, a YAML file and single overrides, checked before work starts."""

import contextlib
import dataclasses
import difflib
import math
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tfxformer.corpora.files import check_encoding
from tfxformer.errors import UserError
from tfxformer.outputs import write_file


@dataclass
class ModelConfig:
    """The Transformer; `tfxformer.Transformer` says more of each.

    Attributes:
        num_layers: layers in the encoder, and in the decoder.
        num_decoder_layers: in the decoder, if others; null: ``num_layers``.
        d_model: size of each position's vector.
        num_heads: attention heads; it divides ``d_model``.
        dff: size of the feed-forward networks' hidden layer.
        dropout_rate: of embeddings and sublayers' outputs.
        attention_dropout: of attention weights; null: ``dropout_rate``.
        activation_dropout: of the feed-forward networks' hidden layers.
        norm: "post" (the paper's) or "pre".
        learned_positions: instead of sines and cosines.
        tie_embeddings: one matrix for both embeddings and the output projection.
        max_length: the most tokens of a sentence, start or end token included.

    Example:
        >>> [*ModelConfig(d_model=100).check()]
        [('d_model', 'must be a multiple of num_heads, 8')]
    """

    num_layers: int = 4
    num_decoder_layers: int | None = None
    d_model: int = 128
    num_heads: int = 8
    dff: int = 512
    dropout_rate: float = 0.1
    attention_dropout: float | None = None
    activation_dropout: float = 0.0
    norm: str = "post"
    learned_positions: bool = False
    tie_embeddings: bool = True
    max_length: int = 128

    def check(self):
        """Looks for what cannot be.

        Yields:
            The name of a setting, and what is wrong with it.
        """
        for name in ("num_layers", "num_decoder_layers", "d_model", "num_heads", "dff"):
            number = getattr(self, name)
            if number is not None and number < 1:
                yield name, "must be at least 1"
        if self.num_heads >= 1 and self.d_model % self.num_heads:
            yield "d_model", f"must be a multiple of num_heads, {self.num_heads}"
        for name in ("dropout_rate", "attention_dropout", "activation_dropout"):
            rate = getattr(self, name)
            if rate is not None and not 0 <= rate < 1:
                yield name, "must be at least 0 and below 1"
        if self.norm not in ("post", "pre"):
            yield "norm", 'must be "post" or "pre"'
        if self.max_length < 4:
            yield "max_length", "must be at least 4"


@dataclass
class TokenizerConfig:
    """The joint vocabulary; see `tfxformer.Tokenizer.train`.

    Attributes:
        vocab_size: the most pieces, the 4 special ones and the 256 bytes included.
        casing: "keep", or "lower" to read and write lower case only.

    Example:
        >>> [*TokenizerConfig(casing="upper").check()]
        [('casing', 'must be "keep" or "lower"')]
    """

    vocab_size: int = 8000
    casing: str = "keep"

    def check(self):
        """Looks for what cannot be.

        Yields:
            The name of a setting, and what is wrong with it.
        """
        # 4 special pieces, 256 bytes, and some letters.
        if self.vocab_size < 300:
            yield "vocab_size", "must be at least 300 (256 of them are the bytes)"
        if self.casing not in ("keep", "lower"):
            yield "casing", 'must be "keep" or "lower"'


@dataclass
class DataConfig:
    """Where sentence pairs come from, and what is left out of them.

    Attributes:
        sources: ``phrasebook``, ``ted``, paths of TSV files, or ``SRC,TGT`` paths.
        weights: how often each source is drawn; null: as often as it has pairs.
        valid: a source to validate on.
        valid_pairs: held out of the sources where ``valid`` names none.
        data_dir: the folder of TensorFlow Datasets, for ``ted``.
        reverse: swap source and target.
        strict: stop at a malformed line instead of skipping it.
        columns: the numbers, from 1, of a TSV's column of sources and of targets; null
            for a TSV that has these two alone.
        encoding: of files: one of Python's codecs, such as latin-1.
        max_characters: the longest side of a pair that is kept.
        max_length_ratio: the largest ratio of the two sides' lengths.

    Example:
        >>> [*DataConfig(sources=["phrasebook"], weights=[1, 3]).check()]
        [('weights', 'must be one for each of the 1 sources')]
    """

    sources: list[str] = field(default_factory=list)
    weights: list[float] | None = None
    valid: str | None = None
    valid_pairs: int = 1000
    data_dir: str | None = None
    reverse: bool = False
    strict: bool = False
    columns: list[int] | None = None
    encoding: str = "utf-8"
    max_characters: int = 1000
    max_length_ratio: float = 3.0

    def check(self):
        """Looks for what cannot be.

        Yields:
            The name of a setting, and what is wrong with it.
        """
        if self.weights is not None:
            if len(self.weights) != len(self.sources):
                yield (
                    "weights",
                    f"must be one for each of the {len(self.sources)} sources",
                )
            if not all(0 < weight < math.inf for weight in self.weights):
                yield "weights", "must all be above 0"
        columns = self.columns
        if columns is not None and (
            len(columns) != 2 or min(columns) < 1 or columns[0] == columns[1]
        ):
            yield "columns", "must be two numbers from 1, such as [2, 1]"
        try:
            check_encoding(self.encoding)
        except UserError as error:
            yield "encoding", str(error).partition(": ")[2]
        if self.valid_pairs < 1:
            yield "valid_pairs", "must be at least 1"
        if self.max_characters < 1:
            yield "max_characters", "must be at least 1"
        if self.max_length_ratio < 1:
            yield "max_length_ratio", "must be at least 1"


@dataclass
class TrainingConfig:
    """How long and how to train.

    Attributes:
        steps: updates of the weights.
        tokens_per_batch: positions on either side of a batch, padding included, on all
            devices together.
        accumulate: batches whose gradients make one step.
        optimizer: "adam" (the paper's, section 5.3) or "muon".
        schedule: "inverse_sqrt" (the paper's, section 5.3) or "cosine".
        learning_rate: the peak; null: ``(d_model * warmup_steps)^-0.5``.
        warmup_steps: steps until the peak.
        label_smoothing: the paper's epsilon (section 5.4).
        clip_norm: the longest gradient; null: of any length.
        subword_alpha: subword regularisation: 0 is off, 0.1 is usual.
        ema_decay: validate and keep a moving average of the weights: 0.999, say.
        precision: what is computed in: "float32", "bfloat16" or "float16".
        xla: compile the step with XLA.
        validate_every: steps between validations.
        metric: what "best" and patience go by: "perplexity" or "bleu".
        bleu_pairs: validation pairs that are translated and scored with BLEU.
        patience: validations without a better metric; 0 never stops early.
        checkpoint_every: steps between checkpoints; null: after each validation.
        keep_last: checkpoints kept, the newest.
        keep_best: and the best, by the metric.
        on_bad_batch: "stop" or "skip": loss or gradient not finite, or exploding.
        loss_limit: exploding: this many times the running mean of the loss.
        init_from: a run whose weights and vocabulary to begin with.
        seed: of all random numbers.

    Example:
        >>> [*TrainingConfig(steps=0).check()]
        [('steps', 'must be at least 1')]
    """

    steps: int = 20_000
    tokens_per_batch: int = 4096
    accumulate: int = 1
    optimizer: str = "adam"
    schedule: str = "inverse_sqrt"
    learning_rate: float | None = None
    warmup_steps: int = 4000
    label_smoothing: float = 0.1
    clip_norm: float | None = 1.0
    subword_alpha: float = 0.0
    ema_decay: float = 0.0
    precision: str = "float32"
    xla: bool = False
    validate_every: int = 500
    metric: str = "perplexity"
    bleu_pairs: int = 0
    patience: int = 0
    checkpoint_every: int | None = None
    keep_last: int = 2
    keep_best: int = 1
    on_bad_batch: str = "stop"
    loss_limit: float = 4.0
    init_from: str | None = None
    seed: int = 0

    def check(self):
        """Looks for what cannot be.

        Yields:
            The name of a setting, and what is wrong with it.
        """
        for name in (
            "steps",
            "tokens_per_batch",
            "accumulate",
            "warmup_steps",
            "validate_every",
            "checkpoint_every",
            "keep_last",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                yield name, "must be at least 1"
        for name in ("patience", "bleu_pairs", "keep_best"):
            if getattr(self, name) < 0:
                yield name, "must not be below 0"
        for name, choices in (
            ("optimizer", ("adam", "muon")),
            ("schedule", ("inverse_sqrt", "cosine")),
            ("precision", ("float32", "bfloat16", "float16")),
            ("metric", ("perplexity", "bleu")),
            ("on_bad_batch", ("stop", "skip")),
        ):
            if getattr(self, name) not in choices:
                yield name, f"must be {' or '.join(choices)}"
        rate = self.learning_rate
        if rate is not None and not 0 < rate < math.inf:
            yield "learning_rate", "must be above 0, or null for the paper's"
        if not 0 <= self.label_smoothing < 1:
            yield "label_smoothing", "must be at least 0 and below 1"
        if self.clip_norm is not None and not self.clip_norm > 0:
            yield "clip_norm", "must be above 0, or null for no clipping"
        if not 0 <= self.subword_alpha < math.inf:
            yield "subword_alpha", "must not be below 0, nor infinite"
        if not 0 <= self.ema_decay < 1:
            yield "ema_decay", "must be at least 0 and below 1"
        if self.metric == "bleu" and not self.bleu_pairs:
            yield (
                "metric",
                "needs training.bleu_pairs, pairs to translate: 500, say",
            )
        if not self.loss_limit > 1:
            yield "loss_limit", "must be above 1"
        if not 0 <= self.seed < 2**32:
            yield "seed", "must be from 0 to 4294967295"


@dataclass
class Config:
    """All the settings of a run, in the sections of its YAML file.

    Attributes:
        model: `ModelConfig`.
        tokenizer: `TokenizerConfig`.
        data: `DataConfig`.
        training: `TrainingConfig`.

    Example:
        >>> config = Config()
        >>> config.training.steps = 0
        >>> config.check()
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: training.steps = 0: must be at least 1
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    data: DataConfig = field(default_factory=DataConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    def check(self):
        """Refuses what cannot be, by name.

        Raises:
            UserError: naming the setting, its value and what it must be.
        """
        for section in dataclasses.fields(self):
            settings = getattr(self, section.name)
            for name, wrong in settings.check():
                value = _show(getattr(settings, name))
                raise UserError(f"{section.name}.{name} = {value}: {wrong}")
        if self.training.tokens_per_batch < self.model.max_length:
            raise UserError(
                f"training.tokens_per_batch = {self.training.tokens_per_batch}: must "
                f"be at least model.max_length, {self.model.max_length}, or the "
                "longest sentences fit no batch"
            )

    def to_dict(self):
        """Plain dictionaries, as in the YAML file.

        Returns:
            A dictionary of a dictionary for each section.
        """
        return dataclasses.asdict(self)

    def save(self, path):
        """Writes the settings to a YAML file that `load_config` reads.

        A reader sees the whole file or none.

        Args:
            path: the file.

        Raises:
            UserError: when it cannot be written.
        """
        text = yaml.safe_dump(self.to_dict(), sort_keys=False)
        write_file(path, text.encode())


# What differs from the defaults, which are the TensorFlow tutorial's.
PRESETS = {
    # The quickstart: minutes on two CPU cores.
    "tiny": {
        "model": {"num_layers": 2, "norm": "pre", "max_length": 64},
        "tokenizer": {"vocab_size": 2000},
        "training": {
            "steps": 800,
            "tokens_per_batch": 2048,
            "warmup_steps": 300,
            "validate_every": 250,
        },
    },
    "tutorial": {},
    # The paper's, Table 3.
    "base": {
        "model": {"num_layers": 6, "d_model": 512, "dff": 2048, "max_length": 256},
        "tokenizer": {"vocab_size": 32_000},
        "training": {
            "steps": 100_000,
            "tokens_per_batch": 25_000,
            "validate_every": 1000,
        },
    },
    "big": {
        "model": {
            "num_layers": 6,
            "d_model": 1024,
            "num_heads": 16,
            "dff": 4096,
            "dropout_rate": 0.3,
            "max_length": 256,
        },
        "tokenizer": {"vocab_size": 32_000},
        "training": {
            "steps": 300_000,
            "tokens_per_batch": 25_000,
            "validate_every": 1000,
        },
    },
}


# PyYAML lets the errors of its constructors through: of 2020-13-45, say.
NOT_YAML = (
    yaml.YAMLError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    ValueError,
)


def load_config(preset="tutorial", file=None, overrides=()):
    """Settings from a preset, over it a YAML file, over that single overrides.

    Args:
        preset: a name in `PRESETS`.
        file: a YAML file with any of the sections ``model``, ``tokenizer``,
            ``data`` and ``training``, and ``preset`` to begin from another one.
        overrides: strings such as ``"model.dff=1024"``; the value is YAML.

    Returns:
        A checked `Config`.

    Raises:
        UserError: for a setting that does not exist or cannot be, by name.

    Example:
        >>> load_config("tutorial", overrides=["model.dff=1024"]).model.dff
        1024
    """
    read = _read_yaml(file) if file else {}
    preset = read.pop("preset", preset)
    if preset not in [*PRESETS]:
        raise UserError(
            f"preset {_show(preset)} does not exist{_closest(preset, PRESETS)}: "
            f"there are {', '.join(PRESETS)}"
        )
    config = Config()
    _merge(config, PRESETS[preset], f"preset {preset}")
    _merge(config, read, str(file))
    for override in overrides:
        name, equals, value = override.partition("=")
        section, dot, setting = name.strip().partition(".")
        if not (equals and dot):
            raise UserError(
                f"{override!r} is no setting: write it as section.name=value, "
                "for example model.dff=1024"
            )
        try:
            value = yaml.safe_load(value)
        except NOT_YAML:
            raise UserError(f"{override!r}: the value is not YAML") from None
        _merge(config, {section: {setting: value}}, "override")
    config.check()
    return config


def _read_yaml(file):
    try:
        read = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"{file}: not UTF-8 text") from None
    except NOT_YAML as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "cannot be read"
        raise UserError(f"{file}{line}: not YAML: {problem}") from None
    if read is None:
        return {}
    if not isinstance(read, dict):
        raise UserError(
            f"{file}: must hold sections such as 'model:', not {_show(read)}"
        )
    return read


def _merge(config, sections, origin):
    known = [section.name for section in dataclasses.fields(config)]
    for section, settings in sections.items():
        if section not in known:
            raise UserError(
                f"{origin}: there is no section {section!r}"
                f"{_closest(section, known)}: there are {', '.join(known)}"
            )
        if not isinstance(settings, dict):
            raise UserError(f"{origin}: section {section!r} must hold name: value")
        target = getattr(config, section)
        hints = typing.get_type_hints(type(target))
        for name, value in settings.items():
            if name not in hints:
                raise UserError(
                    f"{origin}: there is no setting {_line(f'{section}.{name}')}"
                    f"{_closest(name, hints)}: there are {', '.join(hints)}"
                )
            setattr(target, name, _typed(value, hints[name], f"{section}.{name}"))


def _typed(value, hint, name):
    """The value as the type its setting has; only int to float is converted."""
    if isinstance(hint, types.UnionType):
        inner, _ = typing.get_args(hint)
        return None if value is None else _typed(value, inner, name)
    if typing.get_origin(hint) is list:
        (inner,) = typing.get_args(hint)
        if not isinstance(value, list):
            value = [value]
        return [_typed(item, inner, name) for item in value]
    if hint is float and type(value) is int:
        value = float(value) if abs(value) < 1e308 else value
    if hint is float and isinstance(value, str):
        # YAML reads 1e-4 as a string: it wants 1.0e-4.
        with contextlib.suppress(ValueError):
            value = float(value)
    if type(value) is not hint or (hint is float and math.isnan(value)):
        wanted = {int: "a whole number", float: "a number", bool: "true or false"}
        raise UserError(
            f"{name} = {_show(value)}: must be {wanted.get(hint, 'a string')}"
        )
    return value


def _closest(name, known):
    close = difflib.get_close_matches(str(name), list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _show(value):
    """A value as YAML writes it: one line, and not all of a long one."""
    try:
        text = yaml.safe_dump(value, default_flow_style=True, width=math.inf)
    except ValueError:  # an int of more digits than Python writes
        text = "too many digits"
    return _line(text.removesuffix("\n...\n").strip())


def _line(text):
    text = " ".join(text.split())
    return text if len(text) <= 80 else f"{text[:80]}..."
