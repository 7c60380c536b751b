"""One token after the other: the likeliest (greedy), or a drawn one (sampling)."""

from typing import NamedTuple

from keras import ops

from tfxformer.decoding.hypotheses import (
    Decoded,
    best_first,
    no_weights,
    stack_weights,
)
from tfxformer.decoding.next_token import next_token
from tfxformer.decoding.sampling import fingerprint, mix, sample_token, uniform
from tfxformer.tokenizer import END_ID, PAD_ID, START_ID


class _State(NamedTuple):
    """What the loop carries; each field leads with the sentences.

    Attributes:
        token: int32 ``(sentences, samples)``, the newest token.
        ids: int32 ``(sentences, samples, positions)``, what has been written.
        total: float32 ``(sentences, samples)``, the sum of its log-probabilities.
        written: int32 ``(sentences, samples)``, how many tokens that is.
        going: boolean ``(sentences, samples)``, False once one has ended.
        past: the decoder's cache, a `Past`.
        attention: ``(sentences, samples, layers * heads, source, positions)``, or ().
    """

    token: object
    ids: object
    total: object
    written: object
    going: object
    past: object
    attention: object


def greedy(sources, step, options, history, keep_attention=False):
    """Writes one token after the other; one hypothesis a sentence, or some samples.

    Args:
        sources: `Sources`.
        step: a `DecoderStep` for ``n_best`` hypotheses a sentence.
        options: `DecodingOptions`; ``sampling`` draws tokens.
        history: a `Growing` or a `Fixed`.
        keep_attention: return cross-attention's weights as well.

    Returns:
        `Decoded`, without attention's last axes in place; see `decode`.
    """
    write, going, results, state = _search(
        sources, step, options, history, keep_attention
    )
    ids, score, attention = history.repeat(write, going, results, sources, state)
    return Decoded(ids, score, score, attention)


def greedy_steps(sources, step, options, history):
    """The same search, which can be watched: it halts after each token.

    Args:
        sources: `Sources`.
        step: a `DecoderStep` for ``n_best`` hypotheses a sentence.
        options: `DecodingOptions`; ``sampling`` draws tokens.
        history: a `Growing` or a `Fixed`.

    Yields:
        int32 ``(sentences, samples, positions)``, what has been written so far.
    """
    write, going, _, state = _search(
        sources, step, options, history, keep_attention=False
    )
    position = ops.zeros((), "int32")
    while bool(ops.any(going(state))):
        state = write(position, sources, state)
        position = position + 1
        yield state.ids


def _search(sources, step, options, history, keep_attention):
    """One step of the search, what tells whether it goes on, its results, its start."""
    samples = options.n_best
    sentences = ops.shape(sources.limit)[0]
    pair = (sentences, samples)

    def write(position, sources, state):
        x, past, attention = step(
            ops.reshape(state.token, (-1,)), position, sources.memory, state.past
        )
        flat = ops.reshape(state.ids, (-1, ops.shape(state.ids)[-1]))
        prefix = sources.forced(position, samples)
        logits, log_total = next_token(step.logits(x), position, flat, prefix, options)
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
        kept = state.attention
        if keep_attention:
            kept = history.append(kept, stack_weights(attention), position, axis=-1)
        ended = ops.logical_or(
            ops.equal(token, END_ID), position + 1 >= sources.limit[:, None]
        )
        return _State(
            token=token,
            ids=history.append(state.ids, token[:, :, None], position, axis=-1),
            total=state.total + ops.where(state.going, gain, 0.0),
            written=state.written + ops.cast(state.going, "int32"),
            going=ops.logical_and(state.going, ops.logical_not(ended)),
            past=past,
            attention=kept,
        )

    def going(state):
        return ops.any(state.going, axis=1)

    def results(state):
        score = state.total / ops.maximum(ops.cast(state.written, "float32"), 1.0)
        found = (state.ids, score, state.attention)
        if samples == 1:
            return found
        return best_first(score, samples, found)

    state = _State(
        token=ops.full(pair, START_ID, "int32"),
        ids=history.empty((*pair, None), "int32"),
        total=ops.zeros(pair, "float32"),
        written=ops.zeros(pair, "int32"),
        going=ops.broadcast_to(sources.limit[:, None] > 0, pair),
        past=step.nothing_written(sentences),
        attention=no_weights(sources, step, samples, history) if keep_attention else (),
    )
    return write, going, results, state
