"""The exported model's signatures as graph functions: strings in, strings out."""

import tensorflow as tf

from tfxformer.decoding import decode
from tfxformer.decoding.options import LEAST_BEAM, NEVER
from tfxformer.layers.masking import padding_mask
from tfxformer.special_tokens import END_ID
from tfxformer.tokenizer import encode_source, encode_target
from tfxformer.training.loss import token_loss


def signatures(tokenizer, transformer, options):
    """The signatures of the export's contract: graph functions by name.

    Their inputs and outputs are tensors by name.
    """
    longest = transformer.max_length - 1  # besides the start or the end token
    some = n_best_options(options)
    forbidden = tokenizer.target.spellings(options.forbid)
    one = options.updated(n_best=1)

    def translate(text):
        source = encode_source(tokenizer, text, longest=longest)
        found = decode(transformer, source, one, forbidden=forbidden)
        return _best(tokenizer, found)

    def translate_nbest(text):
        source = encode_source(tokenizer, text, longest=longest)
        found = decode(transformer, source, some, forbidden=forbidden)
        n = some.n_best
        flat = tf.reshape(found.ids, tf.stack([tf.shape(text)[0] * n, -1]))
        # An empty text has one translation, the empty one.
        again = (source[:, :1] == END_ID) & (tf.range(n) > 0)
        return {
            "translations": tf.reshape(tokenizer.target.detokenize(flat), [-1, n]),
            "scores": tf.where(again, NEVER, found.rank),
        }

    def score(text, translation):
        source = encode_source(tokenizer, text, longest=longest)
        target_in, target_out = encode_target(tokenizer.target, translation, longest)
        rows = tf.shape(text), tf.shape(translation)
        tf.debugging.assert_equal(*rows, "give as many translations as texts")
        logits = transformer((source, target_in), training=False)
        real = tf.cast(padding_mask(target_out), tf.float32)  # (batch, target)
        total = tf.reduce_sum(token_loss(target_out, logits) * real, axis=1)
        mean = -total / tf.maximum(tf.reduce_sum(real, axis=1), 1.0)
        # An empty translation of an empty text has score 0, as in `translate`.
        nothing = (source[:, :1] == END_ID) & (target_out[:, :1] == END_ID)
        return {"score": tf.where(tf.reduce_all(nothing, axis=1), 0.0, mean)}

    def attention(text):
        source = encode_source(tokenizer, text, longest=longest)
        found = decode(transformer, source, one, attention=True, forbidden=forbidden)
        tokens = [
            ["", *side.tokens(range(1, side.vocab_size))]  # PAD_ID first
            for side in tokenizer.sides
        ]
        return {
            "source_tokens": tf.gather(tokens[0], source),
            "target_tokens": tf.gather(tokens[1], found.ids[:, 0]),
            "attention": found.attention[:, 0],  # (batch, layers, heads, T, S)
        }

    def tokenize(text):
        return {"ids": tokenizer.tokenize(text).to_tensor()}

    def count(text):
        tokens = tf.cast(tokenizer.tokenize(text).row_lengths(), tf.int32)
        return {"tokens": tokens, "limit": tf.fill(tf.shape(tokens), longest)}

    def detokenize(ids):
        return {"text": tokenizer.target.detokenize(ids)}

    text = tf.TensorSpec([None], tf.string, name="text")
    specs = {
        score: [text, tf.TensorSpec([None], tf.string, name="translation")],
        detokenize: [tf.TensorSpec([None, None], tf.int32, name="ids")],
    }
    asked = translate, translate_nbest, score, attention, tokenize, count, detokenize
    functions = {
        x.__name__: tf.function(x, specs.get(x, [text]), autograph=False) for x in asked
    }
    # TensorFlow Serving runs this signature if a request names none.
    return functions | {"serving_default": functions["translate"]}


def completion(tokenizer, transformer, options):
    """A graph function like the signature ``translate``, with a prefix for each text.

    It is not in the export's contract.
    """
    longest = transformer.max_length - 1
    one = options.updated(n_best=1)
    forbidden = tokenizer.target.spellings(options.forbid)

    def complete(text, prefix):
        source = encode_source(tokenizer, text, longest=longest)
        begun = tokenizer.target.tokenize(prefix).to_tensor()[:, :longest]
        found = decode(transformer, source, one, prefix=begun, forbidden=forbidden)
        return _best(tokenizer, found)

    texts = tf.TensorSpec([None], tf.string)
    return tf.function(complete, [texts, texts], autograph=False)


def _best(tokenizer, found):
    """The best translation of each sentence, and its score."""
    return {
        "translation": tokenizer.target.detokenize(found.ids[:, 0]),
        "score": found.score[:, 0],
    }


def n_best_options(options):
    """The options of n-best lists: the given ones, with a beam unless sampling."""
    beam = options.beam_size if options.beam_size > 1 else LEAST_BEAM
    n = options.n_best if options.n_best > 1 else beam
    return options.updated(beam_size=1 if options.sampling else beam, n_best=n)
