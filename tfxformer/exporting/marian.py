"""Import of OPUS-MT models: Marian's Transformer in Hugging Face's layout.

The imported model is the paper's, and translates as the original. Two things move:

- Token ids: the special tokens get our ids 0 to 3; the others keep their order.
- Components of the hidden states: Marian's positions have all sines before all cosines,
  ours alternate. Reordered weights make up for it.
"""

import functools
import json
import logging
from pathlib import Path

import numpy as np
import yaml

from tfxformer.errors import UserError
from tfxformer.model import Transformer
from tfxformer.tokenizer import Tokenizer
from tfxformer.translator import Translator

log = logging.getLogger("tfxformer")

# Arguments of `Transformer`, and their names in config.json.
SIZES = {
    "d_model": "d_model",
    "num_layers": "encoder_layers",
    "num_decoder_layers": "decoder_layers",
    "num_heads": "encoder_attention_heads",
    "dff": "encoder_ffn_dim",
    "max_length": "max_position_embeddings",
    "dropout_rate": "dropout",
}
ACTIVATIONS = {"relu": "relu", "swish": "swish", "silu": "swish"}
# Settings with one supported value, and the value where config.json does not have them.
FIXED = {
    "model_type": ("marian", None),
    "scale_embedding": (True, False),
    "tie_word_embeddings": (True, True),
    "static_position_embeddings": (True, True),
    "normalize_before": (False, False),
    "normalize_embedding": (False, False),
    "add_final_layer_norm": (False, False),
}
# Further settings that we read, and those that do not change the model.
KNOWN = """_name_or_path _num_labels activation_dropout activation_function
add_bias_logits architectures attention_dropout bos_token_id classif_dropout
classifier_dropout decoder_layerdrop decoder_start_token_id decoder_vocab_size dtype
encoder_layerdrop eos_token_id extra_pos_embeddings forced_eos_token_id
gradient_checkpointing id2label init_std is_encoder_decoder label2id length_penalty
max_length num_beams num_hidden_layers pad_token_id share_encoder_decoder_embeddings
tokenizer_class torch_dtype transformers_version use_cache vocab_size"""
# SentencePiece's message with the fields that an import changes; it keeps the others.
# (SentencePiece's own module needs a newer protobuf than TensorFlow allows.)
MESSAGE = """name: "model" message_type { name: "Piece"
  field { name: "piece" number: 1 type: TYPE_STRING }
  field { name: "score" number: 2 type: TYPE_FLOAT }
  field { name: "type" number: 3 type: TYPE_INT32 default_value: "1" }
} message_type { name: "Spec"
  field { name: "unk_piece" number: 45 type: TYPE_STRING }
  field { name: "bos_piece" number: 46 type: TYPE_STRING }
  field { name: "eos_piece" number: 47 type: TYPE_STRING }
  field { name: "pad_piece" number: 48 type: TYPE_STRING }
} message_type { name: "Model"
  field { name: "pieces" number: 1 type_name: "Piece" label: LABEL_REPEATED }
  field { name: "trainer_spec" number: 2 type_name: "Spec" }
}"""
NORMAL, UNKNOWN, CONTROL, UNUSED = 1, 2, 3, 5  # its types of tokens


def import_marian(folder, target_language=None, options=None, source=None):
    """Reads a Marian model, such as one of OPUS-MT's.

    Args:
        folder: a folder with ``config.json``, ``vocab.json`` (and
            ``target_vocab.json``), ``source.spm``, ``target.spm``, and the weights:
            ``model.safetensors``, ``tf_model.h5`` or ``pytorch_model.bin``.
        target_language: the language to write, such as "por", if the model writes
            several.
        options: `DecodingOptions`; None is greedy.
        source: the model's name on a hub; None for the folder's name.

    Returns:
        A `Translator`. Its ``origin`` has the source, the licence and the languages.

    Raises:
        UserError: a file is missing or damaged, files do not fit together, or the model
            has a part that `Transformer` does not have.
    """
    folder = Path(folder)
    config = _read_json(folder / "config.json")
    arguments = _read_architecture(folder / "config.json", config)
    tokenizer, rows, languages = _read_tokenizer(folder, config, target_language)
    transformer = Transformer(
        **arguments,
        input_vocab_size=tokenizer.vocab_size,
        target_vocab_size=tokenizer.target.vocab_size,
    )
    transformer.build()
    file, weights = _read_weights(folder)
    try:
        _fill(transformer, weights, rows)
    except (KeyError, ValueError) as error:
        problem = "cut off, or another model's than config.json"
        raise UserError(f"{file}: {problem}: {error}") from None
    search = config | _read_json(folder / "generation_config.json", {})
    beam, penalty = (search.get(x) or 1 for x in ("num_beams", "length_penalty"))
    own = f"the model's own search has beam {beam} and length penalty {penalty:g}"
    log.info(f"{own}; --beam {beam} searches so, with length penalty 1")
    translator = Translator(tokenizer, transformer, options)
    card = _read_card(folder / "README.md")
    translator.origin = {
        "source": source or folder.resolve().name,
        "license": card.get("license", "unknown"),
        "languages": card.get("language", "unknown"),
        "target_languages": languages,
        "target_language": target_language,
    }
    return translator


def download(name):
    """Downloads a model from Hugging Face's hub; returns its folder, in their cache."""
    import huggingface_hub

    try:
        files = huggingface_hub.list_repo_files(name)
        wanted = [*filter(files.__contains__, READERS)][:1]
        wanted += ["*.json", "*.spm", "README.md"]
        return huggingface_hub.snapshot_download(name, allow_patterns=wanted)
    except Exception as error:  # many types, of several packages
        reason = str(error).strip().partition("\n")[0]
        raise UserError(f"--from-hub {name}: {reason}") from None


def _read_json(file, missing=None):
    try:
        return json.loads(file.read_text("utf-8"))
    except OSError as error:
        if missing is not None:
            return missing
        raise UserError(f"{file}: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"{file}: damaged: {error}") from None


def _read_card(file):
    """The YAML header of a model card, a dict; empty without one."""
    try:
        _, header, _ = file.read_text("utf-8").split("---\n", 2)
        return dict(yaml.safe_load(header))
    except (OSError, ValueError, TypeError, yaml.YAMLError):
        return {}


def _read_architecture(file, config):
    """The arguments of `Transformer`; refuses every setting that it does not have."""
    try:
        arguments = {ours: config[theirs] for ours, theirs in SIZES.items()}
        activation, pad = config["activation_function"], [[config["pad_token_id"]]]
    except KeyError as missing:
        raise UserError(f"{file}: {missing} is missing") from None
    heads, dff = arguments["num_heads"], arguments["dff"]
    fixed = FIXED | {"decoder_attention_heads": (heads,) * 2}
    fixed |= {"decoder_ffn_dim": (dff,) * 2, "bad_words_ids": (pad,) * 2}
    for key, (supported, default) in fixed.items():
        value = config.get(key, default)
        if value != supported:
            problem = f"only {supported!r} is supported"
            raise UserError(f"{file}: {key} is {value!r}: {problem}")
    if activation not in ACTIVATIONS:
        problem = f"only {', '.join(ACTIVATIONS)} are supported"
        raise UserError(f"{file}: activation_function is {activation!r}: {problem}")
    for key in config.keys() - {*fixed, *SIZES.values(), *KNOWN.split()}:
        if config[key]:
            problem = "unknown; if it does not change the model, remove the line"
            raise UserError(f"{file}: {key} is {config[key]!r}: {problem}")
    shared = config.get("share_encoder_decoder_embeddings", True)
    arguments |= {"tie_embeddings": True if shared else "target", "output_bias": True}
    return arguments | {"activation": ACTIVATIONS[activation]}


def _read_tokenizer(folder, config, language):
    """The `Tokenizer`, the rows of each side's weights, and the target languages."""
    shared = config.get("share_encoder_decoder_embeddings", True)
    files = [folder / "vocab.json", folder / "target_vocab.json"]
    files[1] = files[0] if shared else files[1]
    sources = _read_json(files[0])
    languages = sorted(x[2:-2] for x in sources if x[:2] == ">>" and x[-2:] == "<<")
    if (language or None) not in (languages or [None]):
        known = ", ".join(languages) or "none: the model writes one language"
        raise UserError(f"{folder}: choose --target-language from {known}")
    models, rows = [], []
    for side, file in zip(("source", "target"), files, strict=True):
        vocabulary = _read_json(file)
        names = {number: token for token, number in vocabulary.items()}
        if names.keys() != {*range(len(vocabulary))}:
            problem = f"its {len(vocabulary):,} ids are not 0, 1, 2, ..."
            raise UserError(f"{file}: {problem}")
        try:
            end, unknown = vocabulary["</s>"], vocabulary["<unk>"]
            pad, start = config["pad_token_id"], config["decoder_start_token_id"]
        except KeyError as missing:
            raise UserError(f"{file}: {missing} is missing") from None
        special = [pad, unknown, start, end]
        others = [number for number in range(len(names)) if number not in special]
        rows.append(np.array(special + others))
        tokens = [names[number] for number in others]
        first = f">>{language}<<" if side == "source" else None
        models.append(_rewrite(folder / f"{side}.spm", file, tokens, first))
    source, target = models
    return Tokenizer(source, Tokenizer(target)), rows, languages


def _rewrite(spm, file, tokens, first):
    """A SentencePiece model with our special tokens and then the vocabulary's tokens.

    Tokens keep their scores, so texts are cut as before. Tokens that only the
    vocabulary has are never cut from a text, except for single characters; those that
    only the model has are left out.
    """
    try:
        model = _message().FromString(spm.read_bytes())
    except OSError as error:
        raise UserError(f"{spm}: {error.strerror}") from None
    except Exception as error:  # protobuf's own type
        raise UserError(f"{spm}: not a SentencePiece model: {error}") from None
    scores = {x.piece: x.score for x in model.pieces if x.type == NORMAL}
    missing = len(scores.keys() - {*tokens})
    if missing > len(scores) // 2 or not scores:
        problem = f"{missing:,} of its {len(scores):,} tokens are not in {file.name}"
        raise UserError(f"{spm}: another model's: {problem}")
    special = {"<pad>": CONTROL, "<unk>": UNKNOWN, "<s>": CONTROL, "</s>": CONTROL}
    types = special | {
        token: NORMAL if token in scores or len(token) == 1 else UNUSED
        for token in tokens
    }
    if first in types:
        types[first] = CONTROL
    least = min(scores.values())
    del model.pieces[:]
    for token, kind in types.items():
        model.pieces.add(piece=token, score=scores.get(token, least), type=kind)
    spec = model.trainer_spec
    spec.pad_piece, spec.unk_piece, spec.bos_piece, spec.eos_piece = special
    return model.SerializeToString(deterministic=True)


@functools.cache
def _message():
    """The class of `MESSAGE`."""
    from google.protobuf import descriptor_pb2, message_factory, text_format

    file = text_format.Parse(MESSAGE, descriptor_pb2.FileDescriptorProto())
    return message_factory.GetMessages([file])["Model"]


def _safetensors(file):
    from safetensors.numpy import load_file

    return load_file(file)


def _h5(file):
    """TensorFlow's weights: other names, and kernels transposed."""
    import h5py

    found, kinds = {}, {"kernel": "weight", "gamma": "weight", "beta": "bias"}

    def add(path, item):
        if isinstance(item, h5py.Dataset):
            *place, kind = path.removesuffix(":0").split("/")
            if place[-1] == "model.shared":
                place, kind = ["model", "shared"], "weight"
            elif kind != "final_logits_bias":  # below TensorFlow's two names
                place, kind = place[2:], kinds.get(kind, kind)
            name = ".".join([*place, kind]) if place[1:] else kind
            found[name] = item[()].T if path.endswith("kernel:0") else item[()]

    with h5py.File(file) as opened:
        opened.visititems(add)
    return found


def _pytorch(file):
    import torch

    weights = torch.load(file, map_location="cpu", weights_only=True)
    return {name: weight.float().numpy() for name, weight in weights.items()}


# The files of weights, the best first.
READERS = {
    "model.safetensors": _safetensors,
    "tf_model.h5": _h5,
    "pytorch_model.bin": _pytorch,
}


def _read_weights(folder):
    """The file of the weights, and the weights by PyTorch's names."""
    for name, read in READERS.items():
        file = folder / name
        if file.exists():
            try:
                return file, read(file)
            except ImportError as error:
                problem = f"needs {error.name}: pip install {error.name}"
                raise UserError(f"{file}: {problem}") from None
            except Exception as error:  # each reader has its own types
                raise UserError(f"{file}: damaged: {error}") from None
    raise UserError(f"{folder}: no weights: it must have {' or '.join(READERS)}")


def _fill(transformer, weights, rows):
    """Sets the weights; a KeyError or ValueError names what does not fit."""
    depth = transformer.d_model
    order, every = np.arange(depth).reshape(2, -1).T.ravel(), slice(None)

    def dense(layer, name, inputs=every, outputs=every):
        value = weights.pop(f"{name}.weight").T[inputs][:, outputs]
        layer.kernel.assign(value.astype("float32"))
        layer.bias.assign(weights.pop(f"{name}.bias")[outputs].astype("float32"))

    def norm(layer, name):
        layer.gamma.assign(weights.pop(f"{name}.weight")[order].astype("float32"))
        layer.beta.assign(weights.pop(f"{name}.bias")[order].astype("float32"))

    def attention(layer, name):
        for role in ("query", "key", "value"):
            projection = getattr(layer.mha, f"{role}_dense")
            dense(projection, f"{name}.{role[0]}_proj", inputs=order)
        dense(layer.mha.output_dense, f"{name}.out_proj", outputs=order)
        norm(layer.add_and_norm.layernorm, f"{name}_layer_norm")

    # Tied matrices have one or several of these names.
    names = ["model.encoder.embed_tokens", "model.decoder.embed_tokens"]
    names += ["lm_head", "model.shared"]
    tied = [weights.pop(f"{name}.weight", None) for name in names]
    shared = transformer.tie_embeddings is True
    sides = zip(("encoder", "decoder"), (tied[:1], tied[1:]), rows, strict=True)
    for side, own, numbers in sides:
        stack, tokens = getattr(transformer, side), len({*numbers})
        found = [x for x in (tied if shared else own) if x is not None]
        if not found or len(found[0]) != tokens:
            sizes = [len(x) for x in found[:1]]
            raise ValueError(f"{sizes} embeddings of {tokens} {side} tokens")
        embeddings = found[0][numbers][:, order].astype("float32")
        stack.pos_embedding.embedding.embeddings.assign(embeddings)
        layers = stack.enc_layers if side == "encoder" else stack.dec_layers
        for number, layer in enumerate(layers):
            name = f"model.{side}.layers.{number}"
            if side == "encoder":
                attention(layer.self_attention, f"{name}.self_attn")
            else:
                attention(layer.causal_self_attention, f"{name}.self_attn")
                attention(layer.cross_attention, f"{name}.encoder_attn")
            dense(layer.ffn.hidden_dense, f"{name}.fc1", inputs=order)
            dense(layer.ffn.output_dense, f"{name}.fc2", outputs=order)
            norm(layer.ffn.add_and_norm.layernorm, f"{name}.final_layer_norm")
    bias = weights.pop("final_logits_bias").reshape(-1)[rows[1]]
    transformer.output_bias.assign(bias.astype("float32"))
    left = [name for name in weights if "embed_positions" not in name]
    if left:
        raise ValueError(f"it also has {left[0]}")
