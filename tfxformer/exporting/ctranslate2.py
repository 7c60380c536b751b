"""Export for CTranslate2: the same weights and pieces, for its engine in C++."""

import logging

import numpy as np
import tensorflow as tf
from keras import ops

from tfxformer.decoding import decode
from tfxformer.errors import UserError
from tfxformer.exporting.repository import model_folder, next_version
from tfxformer.exporting.saved_model import PROBES, average_checkpoints
from tfxformer.layers import positional_encoding
from tfxformer.tokenizer import END_ID, PAD_ID, START_ID, UNK_ID, encode_source
from tfxformer.translator import Translator

log = logging.getLogger("tfxformer")

# CTranslate2 reads 1,024 tokens and writes 256 unless it is told otherwise, and stops
# with an error where it has no encoding for a position.
POSITIONS = 1025

# Log-probabilities may differ by so much: both add up in single precision, in another
# order. Between words that are nearer to each other than this, either may win.
TOLERANCE = 1e-3


def export_ctranslate2(run, to="export", name="pt_en", checkpoint="best", average=None):
    """Writes the next version of a model for CTranslate2, and proves it.

    The folder has CTranslate2's own files (``model.bin``, ``config.json``,
    ``shared_vocabulary.json``) and ``tokenizer.model`` for SentencePiece. It is
    renamed into place once CTranslate2 has loaded it and given the run's answers.

    Args:
        run: the path of a run folder, or of an export.
        to: the model repository.
        name: the model's name in it.
        checkpoint: "best" or "last".
        average: export the mean of the weights of this many newest checkpoints.

    Returns:
        The new folder, ``to/name/version``.

    Raises:
        UserError: when CTranslate2 is not installed or cannot express the model, the
            run cannot be read, the repository not be written, or the export would
            not translate as the run does.

    Example:
        >>> export_ctranslate2("nowhere", "export", "pt_en_ct2")
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: ...
    """
    _import_ctranslate2()
    folder = model_folder(to, name)
    if any(folder.glob("*/saved_model.pb")):
        raise UserError(
            f"{folder}: holds SavedModels, and TensorFlow Serving would take the new "
            "version for one: give another --name"
        )
    translator = Translator.load(run, checkpoint)
    if average is not None:
        average_checkpoints(translator.transformer, run, average)
    spec = specification(translator.tokenizer, translator.transformer)

    def write_and_prove(part):
        part.mkdir()
        spec.save(str(part))
        translator.tokenizer.save(part / "tokenizer.model")
        log.info("%s", prove(part, translator))

    return next_version(to, name, write_and_prove)[0]


def _import_ctranslate2():
    try:
        import ctranslate2
    except ImportError:
        raise UserError(
            "--format ctranslate2: needs CTranslate2; "
            "pip install 'tfxformer[ctranslate2]'"
        ) from None
    return ctranslate2


# --- The weights, where CTranslate2 looks for them ---


def specification(tokenizer, transformer):
    """The model as CTranslate2 describes one.

    Args:
        tokenizer: a `Tokenizer`.
        transformer: the `Transformer` that was trained with it.

    Returns:
        A ``ctranslate2.specs.TransformerSpec``, checked, its equal weights shared;
        ``save`` writes it.

    Raises:
        UserError: when CTranslate2 is not installed, or cannot express the model.
    """
    config = transformer.config
    if not config["use_positions"]:
        raise UserError("use_positions=False: CTranslate2 always adds positions")
    specs = _import_ctranslate2().specs
    spec = specs.TransformerSpec.from_config(
        (len(transformer.encoder.enc_layers), len(transformer.decoder.dec_layers)),
        config["num_heads"],
        pre_norm=config["norm"] == "pre",
    )
    _set_stack(spec.encoder, transformer.encoder)
    for layer_spec, layer in zip(
        spec.encoder.layer, transformer.encoder.enc_layers, strict=True
    ):
        _set_attention(layer_spec.self_attention, layer.self_attention)
        _set_feed_forward(layer_spec.ffn, layer.ffn)
    _set_stack(spec.decoder, transformer.decoder)
    for layer_spec, layer in zip(
        spec.decoder.layer, transformer.decoder.dec_layers, strict=True
    ):
        _set_attention(layer_spec.self_attention, layer.causal_self_attention)
        _set_attention(layer_spec.attention, layer.cross_attention)
        _set_feed_forward(layer_spec.ffn, layer.ffn)
    _set_projection(spec.decoder.projection, transformer)

    pieces = tokenizer.tokens(range(tokenizer.vocab_size))
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.unk_token = pieces[UNK_ID]
    spec.config.bos_token = spec.config.decoder_start_token = pieces[START_ID]
    spec.config.eos_token = pieces[END_ID]
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = _epsilon(transformer)
    # Not CTranslate2's: for those who call it, see `translate_pieces`.
    spec.config.add_attribute("max_length", transformer.max_length)
    spec.validate()
    spec.optimize()
    return spec


def _set_stack(spec, stack):
    """Embeddings, positions and the last norm: an `Encoder`'s or a `Decoder`'s."""
    embedding = stack.pos_embedding
    # CTranslate2 scales them by the root of d_model by itself.
    many = isinstance(spec.embeddings, list)
    embeddings_spec = spec.embeddings[0] if many else spec.embeddings
    embeddings_spec.weight = _array(embedding.embedding.embeddings)
    # Its own sines and cosines are not interleaved, and begin with position 1.
    spec.position_encodings.encodings = _array(
        embedding.positions
        if embedding.learned_positions
        else positional_encoding(
            max(embedding.max_length, POSITIONS), embedding.d_model
        )
    )
    if stack.final_norm is not None:
        _set_norm(spec.layer_norm, stack.final_norm)


def _set_attention(spec, attention):
    """Self-attention has query, key and value in one matrix, cross-attention two."""
    mha = attention.mha
    query, rest = [mha.query_dense], [mha.key_dense, mha.value_dense]
    inputs = [query + rest] if len(spec.linear) == 2 else [query, rest]
    for linear, parts in zip(spec.linear, [*inputs, [mha.output_dense]], strict=True):
        _set_linear(linear, *parts)
    _set_norm(spec.layer_norm, attention.add_and_norm.layernorm)


def _set_feed_forward(spec, ffn):
    _set_linear(spec.linear_0, ffn.hidden_dense)
    _set_linear(spec.linear_1, ffn.output_dense)
    _set_norm(spec.layer_norm, ffn.add_and_norm.layernorm)


def _set_projection(spec, transformer):
    if transformer.final_layer is not None:
        _set_linear(spec, transformer.final_layer)
    else:
        spec.weight = _array(transformer.decoder.pos_embedding.embedding.embeddings)
        spec.bias = np.zeros(transformer.target_vocab_size, "float32")
    # Padding, unknown and start are never written (see `decode`). With this bias they
    # are not, whatever options CTranslate2 is called with; half precision can hold it.
    spec.bias[:END_ID] = -3e4


def _set_linear(spec, *layers):
    # Keras's kernels are (in, out), CTranslate2's weights (out, in).
    spec.weight = np.concatenate([_array(layer.kernel).T for layer in layers])
    spec.bias = np.concatenate([_array(layer.bias) for layer in layers])


def _set_norm(spec, layernorm):
    spec.gamma, spec.beta = _array(layernorm.gamma), _array(layernorm.beta)


def _epsilon(transformer):
    """The one epsilon of all norms."""
    return transformer.encoder.enc_layers[0].ffn.add_and_norm.layernorm.epsilon


def _array(weight):
    return ops.convert_to_numpy(weight).astype("float32")


# --- The same answers ---


def translate_pieces(engine, sources, max_length):
    """Greedy decoding by CTranslate2, within the limits of `tfxformer.decoding`.

    Args:
        engine: a ``ctranslate2.Translator``.
        sources: for each text a list of its pieces, without start and end.
        max_length: the most positions that the model knows.

    Returns:
        For each text a list of pieces, without start and end.
    """
    sources = list(sources)
    lengths = [min(len(pieces) + 1, max_length) for pieces in sources]
    limits = [min(2 * length + 10, max_length) for length in lengths]
    results = engine.translate_batch(
        sources,
        beam_size=1,
        min_decoding_length=0,  # the end may come first
        max_input_length=max_length,  # the end counted
        max_decoding_length=max(limits, default=0),
    )
    # CTranslate2 has one limit for all: what is beyond a text's own is cut off.
    return [
        result.hypotheses[0][:limit]
        for result, limit in zip(results, limits, strict=True)
    ]


def prove(path, translator):
    """Loads an export with CTranslate2 and compares it with what was exported.

    Args:
        path: the exported folder.
        translator: the `Translator` that it was made from.

    Returns:
        A line that says what was compared.

    Raises:
        UserError: when CTranslate2 cannot load it, or answers differently.
    """
    ctranslate2 = _import_ctranslate2()
    try:
        engine = ctranslate2.Translator(str(path), compute_type="float32")
    except (RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"CTranslate2 cannot load the export: {reason}") from None
    tokenizer, transformer = translator.tokenizer, translator.transformer
    max_length = transformer.max_length
    probes = [*PROBES, "palavra " * max_length]
    source = encode_source(tokenizer, probes, longest=max_length - 1)
    decoded = tf.function(
        lambda source: decode(transformer, source).ids[:, 0], autograph=False
    )(source)
    sources = [_words(ids) for ids in source.numpy()]
    translations = [_words(ids) for ids in decoded.numpy()]
    theirs = translate_pieces(engine, map(tokenizer.tokens, sources), max_length)
    worst = 0.0
    for probe, ids, ours, pieces in zip(
        probes, sources, translations, theirs, strict=True
    ):
        difference = first_difference(
            transformer, ids, ours, map(tokenizer.processor.PieceToId, pieces)
        )
        if difference is not None and not difference[1] <= TOLERANCE:
            raise UserError(
                "the export would not translate as the run does: in the translation "
                f"of {probe[:40]!r}, token {difference[0] + 1} is another one"
            )
        ours = ours[: max_length - 1]  # beside the end token
        [result] = engine.score_batch(
            [tokenizer.tokens(ids)], [tokenizer.tokens(ours)], max_input_length=0
        )
        scores = log_probabilities(transformer, ids, ours)
        worst = max(worst, float(np.abs(scores - result.log_probs).max()))
    if not worst <= TOLERANCE:
        raise UserError(
            "the export would not translate as the run does: log-probabilities of the "
            f"same tokens differ by {worst:.2g}"
        )
    return (
        f"CTranslate2 {ctranslate2.__version__} translates {len(probes)} probes as the "
        f"run does; log-probabilities differ by {worst:.1g} at most"
    )


def first_difference(transformer, source, ours, theirs):
    """Where two translations part, and how near to each other the two tokens are.

    Args:
        transformer: the `Transformer`.
        source: the source's ids, without the end token.
        ours: the ids of the greedy translation, without start and end.
        theirs: the ids of another one.

    Returns:
        None where they are the same. Else the position, and the logit of our token
        there above that of theirs: next to nothing where the model finds both
        equally good.
    """
    ours, theirs = [*ours, END_ID], [*theirs, END_ID]
    if ours == theirs:
        return None
    pairs = zip(ours, theirs, strict=False)
    position = next(i for i, (one, other) in enumerate(pairs) if one != other)
    logits = _logits(transformer, source, ours[:position])[-1]
    return position, float(logits[ours[position]] - logits[theirs[position]])


def log_probabilities(transformer, source, target):
    """How likely each token of a target and its end are, of all that may be written.

    Args:
        transformer: the `Transformer`.
        source: the source's ids, without the end token.
        target: the target's ids, without start and end.

    Returns:
        float32 array ``(target + 1,)``.
    """
    allowed = _logits(transformer, source, target)[:, END_ID:]
    highest = allowed.max(axis=1, keepdims=True)
    total = np.log(np.exp(allowed - highest).sum(axis=1, keepdims=True)) + highest
    tokens = np.array([*target, END_ID]) - END_ID
    return np.take_along_axis(allowed - total, tokens[:, None], axis=1)[:, 0]


def _logits(transformer, source, target):
    """After the start token and after each of the target's, ``(target + 1, vocab)``."""
    source, target_in = np.array([[*source, END_ID]]), np.array([[START_ID, *target]])
    return _array(transformer((source, target_in), training=False)[0])


def _words(ids):
    """The ids without padding and end."""
    return [int(i) for i in ids if i not in (PAD_ID, END_ID)]
