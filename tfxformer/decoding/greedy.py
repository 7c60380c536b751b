"""Decoding one token after the other: the likeliest (greedy) or a sampled one."""

import math
from typing import NamedTuple

import numpy as np
from keras import ops

from tfxformer.decoding.loop import append_ids, take_hypotheses
from tfxformer.decoding.options import NEVER
from tfxformer.layers.kernels import few_rows_softmax
from tfxformer.special_tokens import END_ID, PAD_ID, START_ID


class GreedyState(NamedTuple):
    """The state of the loop; the first axis of each field is the sentences."""

    token: object  # int32 (sentences, samples), the newest token
    ids: object  # int32 (sentences, samples, positions), all tokens
    total: object  # float32 (sentences, samples), the sum of their log-probabilities
    written: object  # int32 (sentences, samples), the number of tokens
    going: object  # boolean (sentences, samples), False once a translation has ended
    cache: object  # the KV cache


class GreedySearch:
    """A `Search` that writes one hypothesis a sentence, or ``n_best`` samples.

    Args:
        decoder_step: a `DecoderStep`.
        options: `DecodingOptions`.
    """

    def __init__(self, decoder_step, options):
        self.decoder_step = decoder_step
        self.options = options
        self.samples = options.n_best

    def start(self, sources):
        sentences = ops.shape(sources.limit)[0]
        pair = (sentences, self.samples)
        return GreedyState(
            token=ops.full(pair, START_ID, "int32"),
            ids=self.decoder_step.no_ids(sentences),
            total=ops.zeros(pair, "float32"),
            written=ops.zeros(pair, "int32"),
            going=ops.broadcast_to(sources.limit[:, None] > 0, pair),
            cache=self.decoder_step.empty_cache(sentences),
        )

    def step(self, position, sources, state):
        logits, log_total, cache = self.decoder_step(
            position, sources, token=state.token, ids=state.ids, cache=state.cache
        )
        if self.options.sampling:
            logit, token = self.sample(position, sources, logits)
        else:
            # The token and its logit at once, with fewer ops than argmax.
            logit, token = ops.top_k(logits, 1)  # (sentences * samples, 1)
        gain = ops.reshape(logit[:, 0] - log_total, (-1, self.samples))
        token = ops.reshape(ops.cast(token, "int32"), (-1, self.samples))
        token = ops.where(state.going, token, PAD_ID)
        last = position + 1 >= sources.limit[:, None]  # (sentences, 1)
        ended = ops.logical_or(ops.equal(token, END_ID), last)
        return GreedyState(
            token=token,
            ids=append_ids(state.ids, token),
            total=state.total + ops.where(state.going, gain, 0.0),
            written=state.written + ops.cast(state.going, "int32"),
            going=ops.logical_and(state.going, ops.logical_not(ended)),
            cache=cache,
        )

    def sample(self, position, sources, logits):
        """Draws a token for each sample: its logit and the token, ``(rows, 1)`` each.

        A draw depends on the seed, the sentence, the sample and the position alone.
        """
        sentence = fingerprint(sources.ids)[:, None]  # (sentences, 1)
        sample = ops.cast(ops.arange(self.samples), "uint32")[None]
        key = ops.reshape(mix(sentence + sample), (-1,))  # (sentences * samples,)
        number = uniform(key, self.options.seed, position)
        token = sample_token(logits, number, self.options)[:, None]
        return ops.take_along_axis(logits, token, axis=1), token

    def going(self, state):
        return ops.any(state.going, axis=1)  # (sentences,)

    def results(self, state):
        score = state.total / ops.maximum(ops.cast(state.written, "float32"), 1.0)
        if self.samples == 1:
            return state.ids, score, score
        order = ops.top_k(score, self.samples)[1]
        ids = take_hypotheses(state.ids, order)
        score = take_hypotheses(score, order)
        return ids, score, score


def sample_token(logits, uniform, options):
    """Samples a token, int32, for each row of float32 logits ``(rows, vocab)``.

    ``uniform`` ``(rows,)`` has a random number from 0 to 1 for each row.
    """
    vocab = logits.shape[-1]
    logits = ops.cast(logits, "float32")
    order = None
    if options.top_k or options.top_p < 1:
        count = min(options.top_k or vocab, vocab)
        logits, order = ops.top_k(logits, count)  # (rows, count), likeliest first
    # Forbidden tokens keep probability 0 at any temperature.
    lag = logits - ops.max(logits, axis=-1, keepdims=True)
    warm = lag / max(options.temperature, 1e-30)
    probability = few_rows_softmax(ops.where(logits > NEVER / 2, warm, -math.inf))
    below = ops.cumsum(probability, axis=-1)
    if options.top_p < 1:
        kept = ops.cast(below - probability < options.top_p, "float32")
        below = ops.cumsum(probability * kept, axis=-1)
    # The first token at which the cumulative sum passes the random number.
    mark = ops.cast(uniform, "float32")[:, None] * below[:, -1:]
    index = ops.sum(ops.cast(below <= mark, "int32"), axis=-1)
    index = ops.minimum(index, logits.shape[-1] - 1)
    if order is None:
        return ops.cast(index, "int32")
    return ops.cast(ops.take_along_axis(order, index[:, None], axis=1)[:, 0], "int32")


def fingerprint(source):
    """A hash of each row of ids ``(sentences, source)``.

    It makes samples depend on the sentence, never on its neighbours in the batch.
    """
    source = ops.cast(source, "uint32")
    place = ops.cast(ops.arange(ops.shape(source)[1]), "uint32")
    mixed = mix(source * np.uint32(0x9E3779B1) + mix(place + 1)[None])
    mixed = ops.where(ops.equal(source, 0), ops.zeros_like(mixed), mixed)
    # Signed sums wrap around on every backend; TensorFlow has no unsigned sums.
    return ops.cast(ops.sum(ops.cast(mixed, "int32"), axis=1), "uint32")


def uniform(sentence, seed, position):
    """A random number from 0 to 1 for each ``sentence``, uint32 ``(rows,)``."""
    position = ops.cast(position, "uint32")
    bits = mix(mix(sentence + mix(position + 1)) + seed)
    return ops.cast(ops.right_shift(bits, 8), "float32") * 2.0**-24


def mix(bits):
    """A hash of uint32 numbers: every bit affects all others."""
    # "lowbias32", found by Chris Wellons's search for integer hashes.
    bits = ops.cast(bits, "uint32")
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        bits = ops.bitwise_xor(bits, ops.right_shift(bits, shift)) * np.uint32(factor)
    return ops.bitwise_xor(bits, ops.right_shift(bits, 16))
