"""Import of OPUS-MT models: Marian's Transformer in Hugging Face's layout.

The imported model is the paper's, and translates as the original. Two things move:

- Token ids: the special tokens get our ids 0 to 3; the others keep their order.
- Components of the hidden states: Marian's positions have all sines before all cosines,
  ours alternate. Reordered weights make up for it.
"""

import json
import logging
import operator
from pathlib import Path

import numpy as np
import yaml

from tfxformer.errors import UserError
from tfxformer.model import Transformer
from tfxformer.tokenizer import (
    CONTROL,
    NORMAL,
    UNKNOWN,
    UNUSED,
    Tokenizer,
    read_model,
)
from tfxformer.translator import Translator

log = logging.getLogger("tfxformer")


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
    languages = _read_languages(folder, target_language)
    source_model, source_ids = _read_tokens(folder, "source", config, target_language)
    target_model, target_ids = _read_tokens(folder, "target", config)
    tokenizer = Tokenizer(source_model, Tokenizer(target_model))
    transformer = Transformer(
        **arguments,
        input_vocab_size=tokenizer.vocab_size,
        target_vocab_size=tokenizer.target.vocab_size,
    )
    transformer.build()
    file, weights = _read_weights(folder)
    try:
        _set_weights(transformer, weights, source_ids, target_ids)
    except (KeyError, ValueError) as error:
        problem = "cut off, or another model's than config.json"
        raise UserError(f"{file}: {problem}: {error}") from None
    search = config | _read_json(folder / "generation_config.json", missing={})
    beam = search.get("num_beams") or 1
    penalty = search.get("length_penalty") or 1
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
        weights = [file for file in READERS if file in files][:1]  # the best
        wanted = [*weights, "*.json", "*.spm", "README.md"]
        return huggingface_hub.snapshot_download(name, allow_patterns=wanted)
    except Exception as error:  # many types, of several packages
        reason = str(error).strip().partition("\n")[0]
        raise UserError(f"--from-hub {name}: {reason}") from None


def _read_json(file, missing=None):
    """The content of a JSON file; ``missing`` where there is no file."""
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


# --- Settings ---

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
# Settings with one supported value.
FIXED = {
    "model_type": "marian",
    "scale_embedding": True,
    "tie_word_embeddings": True,
    "static_position_embeddings": True,
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
}
# What they are where config.json leaves them out, if that is not supported.
DEFAULTS = {"model_type": None, "scale_embedding": False}
# Further settings that we read, and those that do not change the model.
KNOWN = """_name_or_path _num_labels activation_dropout activation_function
add_bias_logits architectures attention_dropout bos_token_id classif_dropout
classifier_dropout decoder_layerdrop decoder_start_token_id decoder_vocab_size dtype
encoder_layerdrop eos_token_id extra_pos_embeddings forced_eos_token_id
gradient_checkpointing id2label init_std is_encoder_decoder label2id length_penalty
max_length num_beams num_hidden_layers pad_token_id share_encoder_decoder_embeddings
tokenizer_class torch_dtype transformers_version use_cache vocab_size"""


def _read_architecture(file, config):
    """The arguments of `Transformer`; refuses every setting that it does not have."""
    try:
        arguments = {ours: config[theirs] for ours, theirs in SIZES.items()}
        activation = config["activation_function"]
        fixed = FIXED | {
            "decoder_attention_heads": arguments["num_heads"],
            "decoder_ffn_dim": arguments["dff"],
            "bad_words_ids": [[config["pad_token_id"]]],
        }
    except KeyError as missing:
        raise UserError(f"{file}: {missing} is missing") from None
    for name, supported in fixed.items():
        value = config.get(name, DEFAULTS.get(name, supported))
        if value != supported:
            problem = f"only {supported!r} is supported"
            raise UserError(f"{file}: {name} is {value!r}: {problem}")
    if activation not in ACTIVATIONS:
        problem = f"only {', '.join(ACTIVATIONS)} are supported"
        raise UserError(f"{file}: activation_function is {activation!r}: {problem}")
    for name in config.keys() - {*fixed, *SIZES.values(), *KNOWN.split()}:
        if config[name]:
            problem = "unknown; if it does not change the model, remove the line"
            raise UserError(f"{file}: {name} is {config[name]!r}: {problem}")
    shared = config.get("share_encoder_decoder_embeddings", True)
    return arguments | {
        "tie_embeddings": True if shared else "target",
        "output_bias": True,
        "activation": ACTIVATIONS[activation],
    }


# --- Tokens ---


def _read_languages(folder, chosen):
    """The languages that the model can write; none if it has only one."""
    tokens = _read_json(folder / "vocab.json")
    languages = sorted(x[2:-2] for x in tokens if x[:2] == ">>" and x[-2:] == "<<")
    if chosen not in (languages or [None, ""]):
        known = ", ".join(languages) or "none: the model writes one language"
        raise UserError(f"{folder}: choose --target-language from {known}")
    return languages


def _read_tokens(folder, side, config, language=None):
    """Reads the tokens of a side, "source" or "target".

    Args:
        folder: as for `import_marian`.
        side: the name of the side.
        config: the content of config.json.
        language: its token, such as ">>por<<", will begin every text.

    Returns:
        A SentencePiece model of the tokens in our order, and Marian's id of each,
        ``(vocab_size,)``.
    """
    shared = config.get("share_encoder_decoder_embeddings", True)
    own_file = side == "target" and not shared
    file = folder / ("target_vocab.json" if own_file else "vocab.json")
    vocabulary = _read_json(file)
    tokens = {number: token for token, number in vocabulary.items()}
    if tokens.keys() != {*range(len(vocabulary))}:
        raise UserError(f"{file}: its {len(vocabulary):,} ids are not 0, 1, 2, ...")
    try:
        end, unknown = vocabulary["</s>"], vocabulary["<unk>"]
        pad, start = config["pad_token_id"], config["decoder_start_token_id"]
    except KeyError as missing:
        raise UserError(f"{file}: {missing} is missing") from None
    special = [pad, unknown, start, end]  # the order of our ids 0 to 3
    others = {x: tokens[x] for x in range(len(tokens)) if x not in special}
    spm = folder / f"{side}.spm"
    model = _rewrite(spm, file, [*others.values()], prefix=f">>{language}<<")
    return model, np.array([*special, *others])


def _rewrite(spm, file, tokens, prefix):
    """A SentencePiece model with our special tokens and then the vocabulary's tokens.

    Tokens keep their scores, so texts are cut as before. Tokens that only the
    vocabulary has are never cut from a text, except for single characters; those that
    only the model has are left out.
    """
    try:
        model = read_model(spm.read_bytes())
    except (OSError, UserError) as error:
        reason = getattr(error, "strerror", error)
        raise UserError(f"{spm}: {reason}") from None
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
    if prefix in types:
        types[prefix] = CONTROL
    least = min(scores.values())
    del model.pieces[:]
    for token, kind in types.items():
        model.pieces.add(piece=token, score=scores.get(token, least), type=kind)
    spec = model.trainer_spec
    spec.pad_piece, spec.unk_piece, spec.bos_piece, spec.eos_piece = special
    return model.SerializeToString(deterministic=True)


# --- Files of weights ---


def _read_safetensors(file):
    from safetensors.numpy import load_file

    return load_file(file)


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
    kinds = {"kernel": "weight", "gamma": "weight", "beta": "bias"}
    # TensorFlow has two names of its own before PyTorch's.
    return ".".join([*layers[2:], kinds.get(kind, kind)])


def _read_pytorch(file):
    import torch

    weights = torch.load(file, map_location="cpu", weights_only=True)
    return {name: weight.float().numpy() for name, weight in weights.items()}


# The files of weights, the best first.
READERS = {
    "model.safetensors": _read_safetensors,
    "tf_model.h5": _read_h5,
    "pytorch_model.bin": _read_pytorch,
}


def _read_weights(folder):
    """The file of the weights, and the weights by PyTorch's names."""
    file = next((folder / x for x in READERS if (folder / x).exists()), None)
    if file is None:
        raise UserError(f"{folder}: no weights: it must have {' or '.join(READERS)}")
    try:
        return file, READERS[file.name](file)
    except ImportError as error:
        problem = f"needs {error.name}: pip install {error.name}"
        raise UserError(f"{file}: {problem}") from None
    except Exception as error:  # each reader has its own types
        raise UserError(f"{file}: damaged: {error}") from None


# --- Weights ---


def _attention(theirs, ours):
    """Where the weights of an attention go: Marian's names, and ours."""
    return {
        f"{theirs}.q_proj": f"{ours}.mha.query_dense",
        f"{theirs}.k_proj": f"{ours}.mha.key_dense",
        f"{theirs}.v_proj": f"{ours}.mha.value_dense",
        f"{theirs}.out_proj": f"{ours}.mha.output_dense",
        f"{theirs}_layer_norm": f"{ours}.add_and_norm.layernorm",
    }


# The same for the other weights, and for a whole layer.
FEED_FORWARD = {
    "fc1": "ffn.hidden_dense",
    "fc2": "ffn.output_dense",
    "final_layer_norm": "ffn.add_and_norm.layernorm",
}
CAUSAL_ATTENTION = _attention("self_attn", "causal_self_attention")
CROSS_ATTENTION = _attention("encoder_attn", "cross_attention")
ENCODER_LAYER = _attention("self_attn", "self_attention") | FEED_FORWARD
DECODER_LAYER = CAUSAL_ATTENTION | CROSS_ATTENTION | FEED_FORWARD
# Marian's names of the embeddings. A tied matrix has one or several of them.
SOURCE_EMBEDDINGS = ["model.encoder.embed_tokens"]
TARGET_EMBEDDINGS = ["model.decoder.embed_tokens", "lm_head", "model.shared"]


def _set_weights(transformer, weights, source_ids, target_ids):
    """Sets all weights; a KeyError or ValueError names what does not fit.

    Args:
        transformer: a `Transformer`.
        weights: arrays by Marian's names. They are taken out, and none may be left.
        source_ids: Marian's id of each of our source tokens, ``(input_vocab_size,)``.
        target_ids: the same for target tokens, ``(target_vocab_size,)``.
    """
    sources = _take_matrices(weights, SOURCE_EMBEDDINGS)
    targets = _take_matrices(weights, TARGET_EMBEDDINGS)
    if transformer.tie_embeddings is True:
        sources = targets = sources + targets
    # Marian's place of each of our components: a sine, its cosine, the next sine.
    order = np.arange(transformer.d_model).reshape(2, -1).T.ravel()  # (d_model,)
    _set_embeddings(transformer.encoder, sources, source_ids, order)
    for number, layer in enumerate(transformer.encoder.enc_layers):
        prefix = f"model.encoder.layers.{number}."
        _set_layer(layer, ENCODER_LAYER, prefix, weights=weights, order=order)
    _set_embeddings(transformer.decoder, targets, target_ids, order)
    for number, layer in enumerate(transformer.decoder.dec_layers):
        prefix = f"model.decoder.layers.{number}."
        _set_layer(layer, DECODER_LAYER, prefix, weights=weights, order=order)
    bias = weights.pop("final_logits_bias").reshape(-1)  # (Marian's vocab_size,)
    transformer.output_bias.assign(bias[target_ids])
    left = [name for name in weights if "embed_positions" not in name]
    if left:
        raise ValueError(f"it also has {left[0]}")


def _take_matrices(weights, names):
    """Takes the named matrices out of the weights, those that are there."""
    return [weights.pop(f"{x}.weight") for x in names if f"{x}.weight" in weights]


def _set_embeddings(stack, matrices, marian_ids, order):
    """Sets the embeddings of the encoder or the decoder to the first matrix."""
    size = len({*marian_ids})  # Marian's padding is often its start token, too
    sizes = [len(matrix) for matrix in matrices[:1]]
    if sizes != [size]:
        raise ValueError(f"{sizes} embeddings of {size} {stack.name} tokens")
    embeddings = matrices[0][marian_ids][:, order]  # (vocab_size, d_model)
    stack.pos_embedding.embedding.embeddings.assign(embeddings)


def _set_layer(layer, table, prefix, *, weights, order):
    """Sets the weights of an encoder or decoder layer."""
    for theirs, ours in table.items():
        weight = weights.pop(f"{prefix}{theirs}.weight")  # (outputs, inputs)
        bias = weights.pop(f"{prefix}{theirs}.bias")  # (outputs,)
        if ours.endswith(("output_dense", "layernorm")):  # they give hidden states
            weight, bias = weight[order], bias[order]
        else:  # the others take them
            weight = weight[:, order]
        # Keras calls those of a layer norm gamma and beta.
        our_weight, our_bias = operator.attrgetter(ours)(layer).weights
        our_weight.assign(weight.T)
        our_bias.assign(bias)
