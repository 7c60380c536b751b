"""The exported model's signatures as graph functions: strings in, strings out."""

import tensorflow as tf

from tfxformer.batches import encode_source, encode_target
from tfxformer.decoding import greedy
from tfxformer.layers.masking import padding_mask
from tfxformer.special_ids import END_ID
from tfxformer.training.loss import token_loss


def signatures(tokenizer, transformer):
    """The exported model's signatures as graph functions; DESIGN's contract.

    Returns:
        By name, functions that take and give tensors by name.
    """
    longest = transformer.max_length - 1  # beside the start or the end token
    text = tf.TensorSpec([None], tf.string, name="text")
    translation = tf.TensorSpec([None], tf.string, name="translation")
    ids = tf.TensorSpec([None, None], tf.int32, name="ids")

    def translate(text):
        source = encode_source(tokenizer, text, longest=longest)
        decoded = greedy(transformer, source)
        return {
            "translation": tokenizer.detokenize(decoded.ids),
            "score": decoded.score,
        }

    def score(text, translation):
        source = encode_source(tokenizer, text, longest=longest)
        target_in, target_out = encode_target(tokenizer, translation, longest=longest)
        # Sentences of different counts cannot be scored against each other.
        tf.debugging.assert_equal(
            tf.shape(source)[0],
            tf.shape(target_in)[0],
            "as many translations as texts are needed",
        )
        logits = transformer((source, target_in), training=False)
        real = tf.cast(padding_mask(target_out), tf.float32)  # (batch, target)
        total = tf.reduce_sum(token_loss(target_out, logits) * real, axis=1)
        mean = -total / tf.maximum(tf.reduce_sum(real, axis=1), 1.0)
        # As in translating: the translation of nothing is nothing, with score 0.
        nothing = (source[:, :1] == END_ID) & (target_out[:, :1] == END_ID)
        return {"score": tf.where(tf.reduce_all(nothing, axis=1), 0.0, mean)}

    def tokenize(text):
        return {"ids": tokenizer.tokenize(text).to_tensor()}

    def detokenize(ids):
        return {"text": tokenizer.detokenize(ids)}

    return {
        "serving_default": tf.function(translate, input_signature=[text]),
        "score": tf.function(score, input_signature=[text, translation]),
        "tokenize": tf.function(tokenize, input_signature=[text]),
        "detokenize": tf.function(detokenize, input_signature=[ids]),
    }
