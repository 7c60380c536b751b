"""The files of an OPUS-MT model, Marian's Transformer in Hugging Face's layout."""

import json
import logging
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
import yaml
from pydantic import ConfigDict, Field, model_validator

from tfxformer.config import Count, Rate, Settings
from tfxformer.errors import SettingError, UserError

log = logging.getLogger("tfxformer")


def download(name):
    """Downloads a model from Hugging Face's hub; returns its folder, in their cache."""
    import huggingface_hub

    try:
        files = huggingface_hub.list_repo_files(name)
        weights = [file for file in READERS if file in files]
        # TensorFlow's file may lack the bias, which PyTorch's has.
        weights = weights[: 2 if weights[:1] == ["tf_model.h5"] else 1]
        wanted = [*weights, "model-*.safetensors", "*.json", "*.spm", "README.md"]
        return huggingface_hub.snapshot_download(name, allow_patterns=wanted)
    except Exception as error:  # many types, of several packages
        reason = str(error).strip().partition("\n")[0]
        raise UserError(f"--from-hub {name}: {reason}") from None


def read_json(file):
    """The content of a file with a JSON object, a dict."""
    try:
        content = json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file}: damaged: {error}") from None
    if not isinstance(content, dict):
        raise UserError(f"{file}: must be a JSON object, not {type(content).__name__}")
    return content


def read_card(file):
    """The YAML header of a model card, a dict; empty without one."""
    try:
        _, header, _ = file.read_text("utf-8").split("---\n", 2)
        return dict(yaml.load(header, yaml.BaseLoader))  # "no" stays a language
    except (OSError, ValueError, TypeError, yaml.YAMLError):
        return {}


# --- Settings ---

# Settings of a search that change the translation, unless they are off: absent, null,
# false, 0 or empty, and those of `OFF_AT_1` also if they are 1.
OFF = """begin_suppress_tokens constraints diversity_penalty do_sample
encoder_no_repeat_ngram_size exponential_decay_length_penalty force_words_ids
forced_decoder_ids min_new_tokens no_repeat_ngram_size prefix sequence_bias
suppress_tokens"""
OFF_AT_1 = """encoder_repetition_penalty guidance_scale min_length num_beam_groups
repetition_penalty"""
OFF_VALUES = dict.fromkeys(OFF.split(), 0) | dict.fromkeys(OFF_AT_1.split(), 1)


class MarianConfig(Settings):
    """The settings of ``config.json`` and ``generation_config.json`` that count.

    Those of the model come first, then those of the search. `transformers` does not
    read any others for a Marian model, or they do not change a translation.
    """

    model_config = ConfigDict(extra="ignore", strict=True)

    model_type: Literal["marian"]
    d_model: Count
    encoder_layers: Count
    decoder_layers: Count
    encoder_attention_heads: Count
    decoder_attention_heads: Count
    encoder_ffn_dim: Count
    decoder_ffn_dim: Count
    max_position_embeddings: Count
    vocab_size: Count
    decoder_vocab_size: Count | None = None
    dropout: Rate = 0.1
    activation_function: Literal["relu", "swish", "silu"]
    share_encoder_decoder_embeddings: bool = True
    scale_embedding: Literal[True]
    tie_word_embeddings: Literal[True] = True
    static_position_embeddings: Literal[True] = True
    normalize_before: Literal[False] = False
    normalize_embedding: Literal[False] = False
    add_final_layer_norm: Literal[False] = False

    pad_token_id: int
    eos_token_id: int = 0
    decoder_start_token_id: Annotated[int, Field(ge=0)]
    forced_bos_token_id: None = None
    bad_words_ids: list | None = None
    num_beams: Count | None = 1
    length_penalty: float | None = 1.0

    @model_validator(mode="after")
    def _agree(self):
        for part in ("attention_heads", "ffn_dim"):
            name, other = f"decoder_{part}", f"encoder_{part}"
            value, right = getattr(self, name), getattr(self, other)
            if value != right:
                raise SettingError(None, name, f"must be {other}, {right}", value=value)
        heads, padding = self.encoder_attention_heads, [[self.pad_token_id]]
        if self.d_model % heads:
            problem = f"must divide d_model, {self.d_model}"
            raise SettingError(None, "encoder_attention_heads", problem, value=heads)
        if (words := self.bad_words_ids or padding) != padding:
            problem = f"must be the padding alone, {padding}"
            raise SettingError(None, "bad_words_ids", problem, value=words)
        return self


class Vocabulary(NamedTuple):
    """The token ids of a side."""

    file: Path
    ids: dict  # Marian's id of each token


def read_settings(folder):
    """The `MarianConfig` of a folder, and the `Vocabulary` of each side."""
    file, search_file = folder / "config.json", folder / "generation_config.json"
    config = read_json(file)
    search = read_json(search_file) if search_file.exists() else {}
    values = config | search
    try:
        for name, off in OFF_VALUES.items():
            if (value := values.get(name)) and value != off:
                problem = "changes the translation; remove it to translate without"
                raise SettingError(None, name, problem, value=value)
        config = MarianConfig.model_validate(values)
        sides = [_read_vocabulary(folder / "vocab.json")] * 2
        if not config.share_encoder_decoder_embeddings:
            sides[1] = _read_vocabulary(folder / "target_vocab.json")
        _check_ids(config, *sides)
    except SettingError as error:
        error.origin = search_file if error.name in search else file
        raise
    return config, sides


def _read_vocabulary(file):
    ids = read_json(file)
    numbers = sorted(x for x in ids.values() if type(x) is int)
    if numbers != [*range(len(ids))]:
        raise UserError(f"{file}: its {len(ids):,} ids are not 0, 1, 2, ...")
    for token in ("</s>", "<unk>", "<pad>"):
        if token not in ids:
            raise UserError(f"{file}: {token!r} is missing")
    return Vocabulary(file, ids)


def _check_ids(config, source, target):
    """Checks the settings that the vocabularies have, too."""
    size = len(target.ids)
    right = {
        "vocab_size": [len(source.ids)],
        "decoder_vocab_size": [size, None] if source is target else [size],
        "eos_token_id": [target.ids["</s>"]],
        "pad_token_id": [target.ids["<pad>"], source.ids["<pad>"]],
        "decoder_start_token_id": range(size),
    }
    for name, values in right.items():
        if (value := getattr(config, name)) not in values:
            file = (source if name == "vocab_size" else target).file
            problem = f"must be {values[0]}, by {file.name}"
            raise SettingError(None, name, problem, value=value)


# --- Weights ---


def read_weights(folder, config):
    """The file of the weights, and float arrays by PyTorch's names."""
    file, *others = [x for x in map(folder.joinpath, READERS) if x.exists()] or [None]
    if file is None:
        known = ", ".join(READERS)
        raise UserError(f"{folder}: has no weights; it must have one of {known}")
    weights = _read(file)
    if file.name == "tf_model.h5" and "final_logits_bias" not in weights:
        if others:
            file, weights = others[0], _read(others[0])
        else:
            log.warning(f"{file}: has no final_logits_bias: it counts as 0")
            weights["final_logits_bias"] = np.zeros((1, config.vocab_size), "float32")
    for name, weight in weights.items():
        if weight.dtype.kind not in "fV":  # V: bfloat16
            problem = f"{weight.dtype}; give a checkpoint of float32 or float16"
            raise UserError(f"{file}: {name} is {problem}")
        if not np.isfinite(weight).all():
            raise UserError(f"{file}: damaged: {name} has NaN or infinite values")
    return file, weights


def _read(file):
    try:
        return READERS[file.name](file)
    except ImportError as error:
        package, extra = error.name, {"torch": "opus-bin"}.get(error.name, "opus")
        problem = f"needs {package}: pip install 'tfxformer[{extra}]'"
        raise UserError(f"{file}: {problem}") from None
    except Exception as error:  # each reader has its own types
        reason = str(error).strip().partition("\n")[0]
        raise UserError(f"{file}: damaged: {reason}") from None


def _read_safetensors(file):
    from safetensors.numpy import load_file

    return load_file(file)


def _read_shards(file):
    """The files that an index names for its weights."""
    weights = {}
    for shard in sorted({*read_json(file)["weight_map"].values()}):
        weights |= _read_safetensors(file.with_name(shard))
    return weights


def _read_h5(file):
    """TensorFlow's weights: other names, and kernels transposed."""
    import h5py

    weights, paths = {}, []
    with h5py.File(file) as opened:
        opened.visit(paths.append)
        for path in paths:
            if isinstance(opened[path], h5py.Dataset):
                array = opened[path][()]
                weights[_pytorch_name(path)] = array.T if "kernel:0" in path else array
    return weights


def _pytorch_name(path):
    """PyTorch's name of a weight in TensorFlow's file."""
    *layers, kind = path.removesuffix(":0").split("/")
    if kind == "final_logits_bias":
        return kind
    if layers[-1] == "model.shared":
        return "model.shared.weight"
    kinds = dict.fromkeys(("kernel", "gamma", "embeddings"), "weight")
    kinds["beta"] = "bias"
    # TensorFlow has two names of its own before PyTorch's.
    return ".".join([*layers[2:], kinds.get(kind, kind)])


def _read_pytorch(file):
    import torch

    weights = torch.load(file, map_location="cpu", weights_only=True)
    return {
        # NumPy has no bfloat16.
        name: (x.float() if x.is_floating_point() else x).numpy()
        for name, x in weights.items()
    }


# The files of weights, the best first.
READERS = {
    "model.safetensors": _read_safetensors,
    "model.safetensors.index.json": _read_shards,
    "tf_model.h5": _read_h5,
    "pytorch_model.bin": _read_pytorch,
}
