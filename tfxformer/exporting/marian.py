"""Import of OPUS-MT models: Marian's Transformer as ours.

The imported model is the paper's, and translates as the original. Two things move:

- Token ids: the special tokens get our ids 0 to 3; the others keep their order.
- Components of the hidden states: Marian's positions have all sines before all cosines,
  ours alternate. Reordered weights make up for it.
"""

import logging
import operator
from pathlib import Path

import numpy as np
import sentencepiece

from tfxformer.errors import UserError
from tfxformer.exporting.marian_folder import (
    read_card,
    read_settings,
    read_weights,
)
from tfxformer.layers import positional_encoding
from tfxformer.model import Transformer
from tfxformer.special_tokens import PAD_ID, START_ID
from tfxformer.tokenizer import (
    ANY_LANGUAGE,
    BYTE,
    CONTROL,
    NORMAL,
    SPELT,
    UNIGRAM,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
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
            ``model.safetensors`` (or its index), ``tf_model.h5`` or
            ``pytorch_model.bin``.
        target_language: for a model that writes several languages, the one for texts
            that do not begin with a language, such as ">>por<<"; None to refuse them.
        options: `DecodingOptions`; None is greedy.
        source: the model's name on a hub; None for the folder's name.

    Returns:
        A `Translator`. Its ``origin`` has the source, the licence and the languages.

    Raises:
        UserError: a file is missing or damaged, files do not fit together, or the model
            has a part that `Transformer` does not have.
    """
    folder = Path(folder)
    config, vocabularies = read_settings(folder)
    default = _default_language(vocabularies[0], target_language)
    source_model, source_ids = _convert_tokens(
        folder / "source.spm", vocabularies[0], default=default
    )
    target_model, target_ids = _convert_tokens(
        folder / "target.spm", vocabularies[1], config.decoder_start_token_id
    )
    tokenizer = Tokenizer(source_model, Tokenizer(target_model))
    shared = config.share_encoder_decoder_embeddings
    transformer = Transformer(
        num_layers=config.encoder_layers,
        num_decoder_layers=config.decoder_layers,
        d_model=config.d_model,
        num_heads=config.encoder_attention_heads,
        dff=config.encoder_ffn_dim,
        max_length=config.max_position_embeddings,
        dropout_rate=config.dropout,
        activation=config.activation_function.replace("silu", "swish"),
        tie_embeddings=True if shared else "target",
        output_bias=True,
        input_vocab_size=tokenizer.vocab_size,
        target_vocab_size=tokenizer.target.vocab_size,
    )
    transformer.build()
    file, weights = read_weights(folder, config)
    try:
        _set_weights(transformer, weights, source_ids, target_ids)
    except ValueError as error:
        problem = "cut off, or another model's than config.json"
        raise UserError(f"{file}: {problem}: {error}") from None
    beam, penalty = config.num_beams or 1, config.length_penalty or 0
    own = f"the model's own search has beam {beam} and length penalty {penalty:g}"
    log.info(f"{own}; --beam {beam} searches so, with length penalty 1")
    translator = Translator(tokenizer, transformer, options)
    card = read_card(folder / "README.md")
    translator.origin = {
        "source": source or folder.resolve().name,
        "license": card.get("license", "unknown"),
        "languages": card.get("language", "unknown"),
        "target_languages": [x[2:-2] for x in tokenizer.languages],
        "target_language": target_language,
    }
    return translator


# --- Tokens ---


def _convert_tokens(spm, vocabulary, start=None, default=""):
    """Converts the tokens of a side.

    Args:
        spm: the file of its SentencePiece model.
        vocabulary: its `Vocabulary`.
        start: Marian's id of the start token; None for a source, which has none.
        default: what begins the texts that name no language.

    Returns:
        A SentencePiece model of the tokens in our order, and Marian's id of each,
        ``(vocab_size,)``.
    """
    special = [vocabulary.ids[x] for x in ("<pad>", "<unk>", "</s>")]
    pad, unknown, end = special
    start = pad if start is None else start
    others = sorted(vocabulary.ids, key=vocabulary.ids.get)
    others = [x for x in others if vocabulary.ids[x] not in special]
    model = _rewrite(spm, vocabulary.file, others, default)
    numbers = [vocabulary.ids[x] for x in others]
    # The order of our ids 0 to 3, and in the end those that a text spells out.
    return model, np.array([pad, unknown, start, end, *numbers, end, pad])


def _default_language(vocabulary, chosen):
    """What begins a text that names no target language, such as ">>por<<"."""
    languages = sorted(x for x in vocabulary.ids if x[:2] == ">>" and x[-2:] == "<<")
    if chosen is not None and f">>{chosen}<<" not in languages:
        known = ", ".join(x[2:-2] for x in languages)
        known = known or "none: the model writes one language"
        raise UserError(f"{vocabulary.file}: choose --target-language from {known}")
    if not languages:
        return ""
    return ANY_LANGUAGE if chosen is None else f">>{chosen}<<"


def _rewrite(spm, file, tokens, default):
    """A SentencePiece model that cuts texts as before, for a `Tokenizer`.

    It has the special tokens, the vocabulary's, and those that a text spells out. A
    control token with the default language ends them; then come the tokens that only
    the SentencePiece model has, which are read as unknown. Those that only the
    vocabulary has are looked up for text that SentencePiece does not know.
    """
    try:
        content = spm.read_bytes()
        model = read_model(content)
        normalize = sentencepiece.SentencePieceProcessor(model_proto=content).normalize
    except (OSError, UserError) as error:
        reason = getattr(error, "strerror", error)
        raise UserError(f"{spm}: {reason}") from None
    except RuntimeError as error:  # SentencePiece's
        raise UserError(f"{spm}: not a SentencePiece model: {error}") from None
    cut = {x.piece: (x.type, x.score) for x in model.pieces}
    scores = {x.piece: x.score for x in model.pieces if x.type == NORMAL}
    missing = len(scores.keys() - {*tokens})
    if missing > len(scores) // 2 or not scores:
        problem = f"{missing:,} of its {len(scores):,} tokens are not in {file.name}"
        raise UserError(f"{spm}: another model's: {problem}")
    source, missing = spm.with_name("source.spm"), len({*tokens} - cut.keys())
    if spm != source and content == source.read_bytes() and missing > len(tokens) // 4:
        problem = f"{missing:,} tokens of {file.name} are not in it"
        raise UserError(f"{spm}: it is source.spm again, but {problem}")
    spec = model.trainer_spec
    unigram = spec.model_type == UNIGRAM
    # The best token on every path, and no change of the best score.
    spelt = (NORMAL, max(scores.values())) if unigram else (USER_DEFINED, 0.0)
    known, never = {NORMAL, USER_DEFINED, BYTE}, (UNUSED, min(scores.values()) - 1)
    start = "<start>" if "<s>" in tokens else "<s>"
    pieces = dict.fromkeys(("<pad>", "<unk>", start, "</s>"), (CONTROL, 0.0))
    pieces["<unk>"] = UNKNOWN, 0.0
    for token in tokens:
        kind, _ = own = cut.get(token, never)
        pieces[token] = own if kind in known else never
    pieces |= {normalize(SPELT + x): spelt for x in ("</s>", "<pad>")}
    pieces[SPELT + default] = CONTROL, 0.0
    languages = [x for x in tokens if x[:2] == ">>" and x[-2:] == "<<"]
    pieces |= {normalize(SPELT + x): spelt for x in ("<unk>", *languages)}
    for token, (kind, score) in cut.items():
        if token not in pieces and kind in known:
            pieces[token] = kind, score
    del model.pieces[:]
    for token, (kind, score) in pieces.items():
        model.pieces.add(piece=token, score=score, type=kind)
    spec.pad_piece, spec.unk_piece, spec.bos_piece, spec.eos_piece = [*pieces][:4]
    return model.SerializeToString(deterministic=True)


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
# The bias of a token that is never written, as in Marian's search; float16 can hold it.
NEVER_WRITTEN = -1e4


def _set_weights(transformer, weights, source_ids, target_ids):
    """Sets all weights; a ValueError names what does not fit.

    Args:
        transformer: a `Transformer`.
        weights: arrays by Marian's names. They are taken out, and none may be left.
        source_ids: Marian's id of each of our source tokens, ``(input_vocab_size,)``.
        target_ids: the same for target tokens, ``(target_vocab_size,)``.
    """
    sources, targets = SOURCE_EMBEDDINGS, TARGET_EMBEDDINGS
    if transformer.tie_embeddings is True:
        sources, targets = [], targets + sources
    # Marian's place of each of our components: a sine, its cosine, the next sine.
    depth = transformer.d_model
    order = np.argsort([*range(0, depth, 2), *range(1, depth, 2)])  # (d_model,)
    _check_positions(weights, order)
    encoder, decoder = transformer.encoder, transformer.decoder
    for stack, names, ids in (
        (encoder, sources, source_ids),
        (decoder, targets, target_ids),
    ):
        if names:
            matrix = _take_embeddings(weights, names, (len({*ids}), depth))
            embeddings = matrix[ids][:, order]  # (vocab_size, d_model)
            stack.pos_embedding.embedding.embeddings.assign(embeddings)
    for name, layers, table in (
        ("encoder", encoder.enc_layers, ENCODER_LAYER),
        ("decoder", decoder.dec_layers, DECODER_LAYER),
    ):
        for number, layer in enumerate(layers):
            prefix = f"model.{name}.layers.{number}."
            _set_layer(layer, table, prefix, weights=weights, order=order)
    bias = _take(weights, "final_logits_bias", (1, len({*target_ids})))[0, target_ids]
    # The last two are those that a text spells out.
    bias[[PAD_ID, START_ID, -2, -1]] = NEVER_WRITTEN
    transformer.output_bias.assign(bias)
    for name in weights:
        raise ValueError(f"it also has {name}")


def _take(weights, name, shape):
    """Takes a weight out of the others."""
    if name not in weights:
        raise ValueError(f"{name} is missing")
    weight = weights.pop(name)
    if weight.shape != shape:
        raise ValueError(f"{name} has shape {weight.shape}, not {shape}")
    return weight


def _take_embeddings(weights, names, shape):
    """Takes a matrix, which must be the same under all of its names."""
    first, *others = [x for x in names if f"{x}.weight" in weights] or names[:1]
    matrix = _take(weights, f"{first}.weight", shape)
    for name in others:
        if not np.array_equal(_take(weights, f"{name}.weight", shape), matrix):
            raise ValueError(f"{name}.weight differs from {first}.weight")
    return matrix


def _check_positions(weights, order):
    """Takes the tables of positions, which must be sines and cosines."""
    for name in [x for x in weights if x.endswith("embed_positions.weight")]:
        length = len(weights[name])
        table = _take(weights, name, (length, len(order)))[:, order]
        expected = positional_encoding(length, len(order))
        if not np.allclose(table, expected, atol=5e-3):  # float16
            raise ValueError(f"{name} has other values than sines and cosines")


def _set_layer(layer, table, prefix, *, weights, order):
    """Sets the weights of an encoder or decoder layer."""
    for theirs, ours in table.items():
        # Keras calls those of a layer norm gamma and beta.
        our_weight, our_bias = operator.attrgetter(ours)(layer).weights
        shape = tuple(our_weight.shape)[::-1]  # (outputs, inputs)
        weight = _take(weights, f"{prefix}{theirs}.weight", shape)
        bias = _take(weights, f"{prefix}{theirs}.bias", tuple(our_bias.shape))
        if ours.endswith(("output_dense", "layernorm")):  # they give hidden states
            weight, bias = weight[order], bias[order]
        else:  # the others take them
            weight = weight[:, order]
        our_weight.assign(weight.T)
        our_bias.assign(bias)
