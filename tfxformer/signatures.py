"""The exported model's signatures as graph functions: strings in, strings out."""

import tensorflow as tf

from tfxformer.decoding import decode
from tfxformer.decoding.options import LEAST_BEAM, NEVER
from tfxformer.layers.masking import padding_mask
from tfxformer.special_tokens import END_ID
from tfxformer.tokenizer import encode_source, encode_target
from tfxformer.training.loss import token_loss

TEXT = tf.TensorSpec([None], tf.string, name="text")
TRANSLATION = tf.TensorSpec([None], tf.string, name="translation")
PREFIX = tf.TensorSpec([None], tf.string, name="prefix")
IDS = tf.TensorSpec([None, None], tf.int32, name="ids")


class Signatures:
    """A method for each signature of the export's contract, and `complete`.

    The methods take tensors and return tensors by name. `functions` makes graph
    functions of them.

    Args:
        tokenizer: a `Tokenizer`.
        transformer: the `Transformer` that was trained with it.
        options: `DecodingOptions`.
        folded: a function that returns the transformer's `FoldedTransformer`. Each
            signature calls it once, in its graph.
    """

    def __init__(self, tokenizer, transformer, options, folded):
        self.tokenizer = tokenizer
        self.folded = folded
        self.one_best = options.updated(n_best=1)
        self.n_best = n_best_options(options)
        self.forbidden = tokenizer.target.spellings(options.forbid)
        # The most tokens of a text, besides the start or the end token.
        self.longest = transformer.max_length - 1

    def functions(self):
        """The contract's signatures: `tf.function`s by name."""
        methods = {
            self.translate: [TEXT],
            self.translate_nbest: [TEXT],
            self.score: [TEXT, TRANSLATION],
            self.attention: [TEXT],
            self.tokenize: [TEXT],
            self.count: [TEXT],
            self.detokenize: [IDS],
        }
        functions = {
            method.__name__: tf.function(method, specs, autograph=False)
            for method, specs in methods.items()
        }
        # TensorFlow Serving runs this signature if a request names none.
        return functions | {"serving_default": functions["translate"]}

    def completion(self):
        """`complete` as a `tf.function`; it is not in the export's contract."""
        return tf.function(self.complete, [TEXT, PREFIX], autograph=False)

    def translate(self, text):
        decoded = self._decode(self._encode(text), self.one_best)
        return self._best_of(decoded)

    def complete(self, text, prefix):
        """As `translate`, for translations that begin with a prefix each."""
        prefix_ids = self.tokenizer.target.tokenize(prefix).to_tensor()
        decoded = self._decode(
            self._encode(text), self.one_best, prefix=prefix_ids[:, : self.longest]
        )
        return self._best_of(decoded)

    def translate_nbest(self, text):
        source = self._encode(text)  # (batch, source)
        decoded = self._decode(source, self.n_best)
        n = self.n_best.n_best
        ids = tf.reshape(decoded.ids, tf.stack([tf.shape(text)[0] * n, -1]))
        translations = self.tokenizer.target.detokenize(ids)  # (batch * n,)
        # An empty text has one translation, the empty one.
        is_empty_place = (source[:, :1] == END_ID) & (tf.range(n) > 0)  # (batch, n)
        return {
            "translations": tf.reshape(translations, [-1, n]),
            "scores": tf.where(is_empty_place, NEVER, decoded.rank),
        }

    def score(self, text, translation):
        rows = tf.shape(text), tf.shape(translation)
        tf.debugging.assert_equal(*rows, "give as many translations as texts")
        source = self._encode(text)  # (batch, source)
        target_in, target_out = encode_target(
            self.tokenizer.target, translation, self.longest
        )  # (batch, target) each
        folded = self.folded()
        hidden, _ = folded.forward(target_in, folded.encode(source))
        # (batch, target, vocab)
        logits = tf.reshape(
            folded.project(hidden),
            [*tf.unstack(tf.shape(target_in)), self.tokenizer.target.vocab_size],
        )
        is_token = tf.cast(padding_mask(target_out), tf.float32)  # (batch, target)
        total = tf.reduce_sum(token_loss(target_out, logits) * is_token, axis=1)
        mean = -total / tf.maximum(tf.reduce_sum(is_token, axis=1), 1.0)  # (batch,)
        # An empty translation of an empty text has score 0, as in `translate`.
        nothing = (source[:, 0] == END_ID) & (target_out[:, 0] == END_ID)
        return {"score": tf.where(nothing, 0.0, mean)}

    def attention(self, text):
        source = self._encode(text)  # (batch, source)
        decoded = self._decode(source, self.one_best, attention=True)
        source_tokens, target_tokens = (
            ["", *side.tokens(range(1, side.vocab_size))]  # PAD_ID first
            for side in self.tokenizer.sides
        )
        return {
            "source_tokens": tf.gather(source_tokens, source),
            "target_tokens": tf.gather(target_tokens, decoded.ids[:, 0]),
            "attention": decoded.attention[:, 0],  # (batch, layers, heads, T, S)
        }

    def tokenize(self, text):
        return {"ids": self.tokenizer.tokenize(text).to_tensor()}

    def count(self, text):
        tokens = tf.cast(self.tokenizer.tokenize(text).row_lengths(), tf.int32)
        return {"tokens": tokens, "limit": tf.fill(tf.shape(tokens), self.longest)}

    def detokenize(self, ids):
        return {"text": self.tokenizer.target.detokenize(ids)}

    def _encode(self, text):
        """Source ids ``(batch, source)``."""
        return encode_source(self.tokenizer, text, longest=self.longest)

    def _decode(self, source, options, prefix=None, attention=False):
        return decode(
            self.folded(),
            source,
            options,
            prefix=prefix,
            attention=attention,
            forbidden=self.forbidden,
        )

    def _best_of(self, decoded):
        """The best translation of each sentence, and its score."""
        return {
            "translation": self.tokenizer.target.detokenize(decoded.ids[:, 0]),
            "score": decoded.score[:, 0],
        }


def n_best_options(options):
    """The options of n-best lists: the given ones, with a beam unless sampling."""
    beam = options.beam_size if options.beam_size > 1 else LEAST_BEAM
    n = options.n_best if options.n_best > 1 else beam
    return options.updated(beam_size=1 if options.sampling else beam, n_best=n)
