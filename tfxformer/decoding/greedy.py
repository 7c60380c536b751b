"""One token after the other: the likeliest (greedy), or a drawn one (sampling)."""

from typing import NamedTuple

from keras import ops

from tfxformer.decoding.hypotheses import take_hypotheses
from tfxformer.decoding.kv_cache import Search
from tfxformer.decoding.sampling import fingerprint, mix, sample_token, uniform
from tfxformer.tokenizer import END_ID, PAD_ID, START_ID


class GreedyState(NamedTuple):
    """What the loop carries; each field leads with the sentences.

    Attributes:
        token: int32 ``(sentences, samples)``, the newest token.
        ids: int32 ``(sentences, samples, positions)``, what has been written.
        total: float32 ``(sentences, samples)``, the sum of its log-probabilities.
        written: int32 ``(sentences, samples)``, how many tokens that is.
        going: boolean ``(sentences, samples)``, False once one has ended.
        cache: the KV cache.
    """

    token: object
    ids: object
    total: object
    written: object
    going: object
    cache: object


def greedy_search(sources, step, options):
    """Writes one token after the other; one hypothesis a sentence, or some samples.

    Args:
        sources: `Sources`.
        step: a `DecoderStep` for ``n_best`` hypotheses a sentence.
        options: `DecodingOptions`; ``sampling`` draws tokens.

    Returns:
        A `Search` whose results are ids, score and rank.
    """
    samples = options.n_best
    pair = (ops.shape(sources.limit)[0], samples)

    def write(position, sources, state):
        logits, log_total, cache, _ = step(
            position, sources, state.token, state.ids, state.cache
        )
        if options.sampling:
            sentence = fingerprint(sources.ids)[:, None]
            sentence = mix(sentence + ops.cast(ops.arange(samples), "uint32")[None])
            number = uniform(ops.reshape(sentence, (-1,)), options.seed, position)
            token = sample_token(logits, number, options)[:, None]
            logit = ops.take_along_axis(logits, token, axis=1)
        else:
            # Its token and its logit at once, and fewer ops than argmax.
            logit, token = ops.top_k(logits, 1)  # (rows, 1)
        gain = ops.reshape(logit[:, 0] - log_total, (-1, samples))
        token = ops.reshape(ops.cast(token, "int32"), (-1, samples))
        token = ops.where(state.going, token, PAD_ID)
        ended = ops.logical_or(
            ops.equal(token, END_ID), position + 1 >= sources.limit[:, None]
        )
        return GreedyState(
            token=token,
            ids=step.append_ids(state.ids, token, position),
            total=state.total + ops.where(state.going, gain, 0.0),
            written=state.written + ops.cast(state.going, "int32"),
            going=ops.logical_and(state.going, ops.logical_not(ended)),
            cache=cache,
        )

    def going(state):
        return ops.any(state.going, axis=1)

    def results(state):
        score = state.total / ops.maximum(ops.cast(state.written, "float32"), 1.0)
        found = (state.ids, score, score)
        if samples == 1:
            return found
        order = ops.top_k(score, samples)[1]
        return tuple(take_hypotheses(x, order) for x in found)

    start = GreedyState(
        token=ops.full(pair, START_ID, "int32"),
        ids=step.no_ids(pair[0]),
        total=ops.zeros(pair, "float32"),
        written=ops.zeros(pair, "int32"),
        going=ops.broadcast_to(sources.limit[:, None] > 0, pair),
        cache=step.empty_cache(pair[0]),
    )
    return Search(write, going, results, start)
