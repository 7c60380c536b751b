"""The exported model's signatures as graph functions: strings in, strings out."""

import tensorflow as tf

from tfxformer.decoding import Decoded, decode
from tfxformer.decoding.options import NEVER
from tfxformer.layers.masking import padding_mask
from tfxformer.tokenizer import END_ID, encode_source, encode_target
from tfxformer.training.loss import token_loss

# The shapes that XLA compiles for: the least of these rows and of these columns that
# hold the batch; beyond the last, multiples of it.
XLA_ROWS = (1, 8, 16, 32, 64)
XLA_COLUMNS = tuple(16 * 2**i for i in range(12))


def signatures(tokenizer, transformer, options, xla=False):
    """The signatures of DESIGN's contract.

    Args:
        tokenizer: a `Tokenizer`.
        transformer: the `Transformer` that was trained with it.
        options: `DecodingOptions` of all that translates.
        xla: compile decoding with XLA, for a few shapes.

    Returns:
        By name, functions that take and give tensors by name.
    """
    longest = transformer.max_length - 1  # beside the start or the end token
    one = options.updated(n_best=1)
    some = n_best_options(options)

    def translate(text, prefix=None):  # Python alone gives a prefix
        source = encode_source(tokenizer, text, longest=longest)
        if prefix is None:
            found = _search(transformer, source, one, xla)
        else:
            begun = tokenizer.tokenize(prefix).to_tensor()[:, :longest]
            found = decode(transformer, source, one, prefix=begun)
        return {
            "translation": tokenizer.detokenize(found.ids[:, 0]),
            "score": found.score[:, 0],
        }

    def translate_nbest(text):
        source = encode_source(tokenizer, text, longest=longest)
        found = _search(transformer, source, some, xla)
        n = some.n_best
        flat = tf.reshape(found.ids, tf.stack([tf.shape(text)[0] * n, -1]))
        # Nothing has one translation: nothing.
        again = (source[:, :1] == END_ID) & (tf.range(n) > 0)
        return {
            "translations": tf.reshape(tokenizer.detokenize(flat), [-1, n]),
            "scores": tf.where(again, NEVER, found.rank),
        }

    def score(text, translation):
        source = encode_source(tokenizer, text, longest=longest)
        target_in, target_out = encode_target(tokenizer, translation, longest=longest)
        # Sentences of different counts cannot be scored against each other.
        rows = tf.shape(text), tf.shape(translation)
        tf.debugging.assert_equal(*rows, "as many translations as texts are needed")
        logits = transformer((source, target_in), training=False)
        real = tf.cast(padding_mask(target_out), tf.float32)  # (batch, target)
        total = tf.reduce_sum(token_loss(target_out, logits) * real, axis=1)
        mean = -total / tf.maximum(tf.reduce_sum(real, axis=1), 1.0)
        # As in translating: the translation of nothing is nothing, with score 0.
        nothing = (source[:, :1] == END_ID) & (target_out[:, :1] == END_ID)
        return {"score": tf.where(tf.reduce_all(nothing, axis=1), 0.0, mean)}

    def attention(text):
        source = encode_source(tokenizer, text, longest=longest)
        found = _search(transformer, source, one, xla, attention=True)
        tokens = ["", *tokenizer.tokens(range(1, tokenizer.vocab_size))]  # PAD_ID first
        return {
            "source_tokens": tf.gather(tokens, source),
            "target_tokens": tf.gather(tokens, found.ids[:, 0]),
            "attention": found.attention[:, 0],  # (batch, layers, heads, T, S)
        }

    def tokenize(text):
        return {"ids": tokenizer.tokenize(text).to_tensor()}

    def count(text):
        tokens = tf.cast(tokenizer.tokenize(text).row_lengths(), tf.int32)
        return {"tokens": tokens, "limit": tf.fill(tf.shape(tokens), longest)}

    def detokenize(ids):
        return {"text": tokenizer.detokenize(ids)}

    text = tf.TensorSpec([None], tf.string, name="text")
    specs = {
        score: [text, tf.TensorSpec([None], tf.string, name="translation")],
        detokenize: [tf.TensorSpec([None, None], tf.int32, name="ids")],
    }
    asked = translate, translate_nbest, score, attention, tokenize, count, detokenize
    functions = {
        x.__name__: tf.function(x, specs.get(x, [text]), autograph=False) for x in asked
    }
    # TensorFlow Serving's name for the signature of a request that names none.
    return functions | {"serving_default": functions["translate"]}


def n_best_options(options):
    """The options of n-best lists: those given, with a beam at least."""
    beam = options.beam_size if options.beam_size > 1 else 4
    n = options.n_best if options.n_best > 1 else beam
    return options.updated(beam_size=1 if options.sampling else beam, n_best=n)


def _search(transformer, source, options, xla, attention=False):
    """`decode`, as it is or compiled by XLA for a few shapes."""
    if not xla:
        return decode(transformer, source, options, attention=attention)
    rows, columns = tf.unstack(tf.shape(source))
    # Rows and columns of padding are sources without a token: they take no steps.
    more_rows = _least_shape(rows, XLA_ROWS) - rows
    more_columns = _least_shape(columns, XLA_COLUMNS) - columns
    padded = tf.pad(source, [[0, more_rows], [0, more_columns]])

    @tf.function(autograph=False, jit_compile=True)
    def compiled(source):
        found = decode(transformer, source, options, attention=attention, xla=True)
        # What is not there cannot leave a graph.
        return found if attention else found._replace(attention=tf.zeros([]))

    found = compiled(padded)
    # As long as the longest, and no padding: as without XLA.
    longest = tf.reduce_max(tf.math.count_nonzero(found.ids, axis=-1, dtype=tf.int32))
    weights = found.attention[:rows, ..., :longest, :columns] if attention else None
    ids, score, rank = (x[:rows] for x in found[:3])
    return Decoded(ids[..., :longest], score, rank, weights)


def _least_shape(size, shapes):
    """The least of some ascending shapes, or multiple of the last, to hold a size."""
    multiple = -(-size // shapes[-1]) * shapes[-1]
    return tf.reduce_min(tf.where(tf.constant(shapes) >= size, shapes, multiple))
