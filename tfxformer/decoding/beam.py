"""Beam search: the likeliest translations found by keeping several side by side."""

from typing import NamedTuple

from keras import ops

from tfxformer.decoding.hypotheses import (
    Decoded,
    no_weights,
    stack_weights,
    take_hypotheses,
)
from tfxformer.decoding.next_token import next_token
from tfxformer.decoding.options import NEVER
from tfxformer.tokenizer import END_ID, START_ID


class BeamState(NamedTuple):
    """What the loop carries; each field leads with the sentences.

    ``going_on`` hypotheses are those that the next step continues, ``found`` ones
    have ended; there are ``beam_size`` of either, the found ones best first.

    Attributes:
        greedy: boolean ``(sentences,)``, whether hypothesis 0 is still the one that
            greedy search writes.
        token: int32 ``(sentences, beams)``, the newest token of what goes on.
        ids: int32 ``(sentences, beams, positions)``, all its tokens.
        total: float32 ``(sentences, beams)``, the sum of their log-probabilities;
            `NEVER` for a place that is empty.
        coverage: float32 ``(sentences, beams, source)``, the attention that each
            source token has had; or ().
        past: the decoder's cache, a `Past`.
        attention: ``(sentences, beams, layers * heads, source, positions)``, or ().
        found_ids: int32 ``(sentences, beams, positions)``, padded.
        found_rank: float32 ``(sentences, beams)``; `NEVER` for an empty place.
        found_score: float32 ``(sentences, beams)``, mean log-probability per token.
        found_attention: as ``attention``.
        going: boolean ``(sentences,)``, False once a sentence's search has ended.
    """

    greedy: object
    token: object
    ids: object
    total: object
    coverage: object
    past: object
    attention: object
    found_ids: object
    found_rank: object
    found_score: object
    found_attention: object
    going: object


def beam_search(sources, step, options, history, keep_attention=False):
    """Keeps the ``beam_size`` likeliest hypotheses of each sentence side by side.

    Each step continues every hypothesis by every token. Of the ``beam_size``
    likeliest continuations, those that end are found; the likeliest that do not end
    stay in the beam. The hypothesis of greedy search always keeps a place, so the
    best translation never ranks below greedy's. A sentence's search ends when no
    unfinished hypothesis can still rank among the ``n_best`` (the bound of
    Tensor2Tensor), or at the sentence's limit, where unfinished ones count as found.

    Args:
        sources: `Sources`.
        step: a `DecoderStep` for ``beam_size`` hypotheses a sentence.
        options: `DecodingOptions`.
        history: a `Growing` or a `Fixed`.
        keep_attention: return cross-attention's weights as well.

    Returns:
        `Decoded`, without attention's last axes in place; see `decode`.
    """
    beams = options.beam_size
    sentences = ops.shape(sources.limit)[0]
    pair = (sentences, beams)
    covers = options.coverage_penalty > 0

    def write(position, sources, state):
        x, past, weights = step(
            ops.reshape(state.token, (-1,)), position, sources.memory, state.past
        )
        flat = ops.reshape(state.ids, (-1, ops.shape(state.ids)[-1]))
        prefix = sources.forced(position, beams)
        logits, log_total = next_token(step.logits(x), position, flat, prefix, options)

        # The likeliest continuations of each hypothesis, then of each sentence. Twice
        # the beam's width, since each hypothesis can end in one way only.
        each = min(2 * beams, logits.shape[-1])
        values, tokens = ops.top_k(logits, each)  # (rows, each)
        gain = ops.reshape(values - log_total[:, None], (-1, beams, each))
        allowed = ops.reshape(values > NEVER / 2, (-1, beams, each))
        total = ops.where(allowed, state.total[:, :, None] + gain, NEVER)
        total = ops.reshape(total, (-1, beams * each))
        place = first_kept(total, state.greedy, min(2 * beams, beams * each))
        total = ops.take_along_axis(total, place, axis=1)  # (sentences, twice the beam)
        tokens = ops.reshape(ops.cast(tokens, "int32"), (-1, beams * each))
        token = ops.take_along_axis(tokens, place, axis=1)
        parent = ops.floor_divide(place, each)
        ends = ops.equal(token, END_ID)
        greedy = ops.logical_and(state.greedy, ops.logical_not(ends[:, 0]))

        attention, coverage = state.attention, state.coverage
        if keep_attention:
            attention = history.append(
                attention, stack_weights(weights), position, axis=-1
            )
        if covers:
            coverage = coverage + attended(weights)

        # What ends here joins what has been found.
        last = position + 1 >= sources.limit[:, None]  # (sentences, 1)
        length = ops.cast(position + 1, "float32")
        new = parent[:, :beams]
        new_ids = history.append(
            take_hypotheses(state.ids, new), token[:, :beams, None], position, axis=-1
        )
        new_total = total[:, :beams]
        rank = ranking(new_total, length, options)
        if covers:
            seen = take_hypotheses(coverage, new)
            rank = rank + options.coverage_penalty * covered(seen, sources.memory)
        complete = ops.logical_and(
            ops.logical_or(ends[:, :beams], last), new_total > NEVER / 2
        )
        # A sentence whose search has ended waits for its neighbours, unchanged.
        complete = ops.logical_and(complete, state.going[:, None])
        found_ids = history.append(
            state.found_ids, ops.zeros((*ops.shape(new), 1), "int32"), position, axis=-1
        )
        found_rank, order = ops.top_k(
            ops.concatenate(
                [state.found_rank, ops.where(complete, rank, NEVER)], axis=1
            ),
            beams,
        )
        score = ops.concatenate([state.found_score, new_total / length], axis=1)
        found_attention = state.found_attention
        if keep_attention:
            nothing = ops.zeros_like(attention[..., :1])
            found_attention = ops.concatenate(
                [
                    history.append(found_attention, nothing, position, axis=-1),
                    take_hypotheses(attention, new),
                ],
                axis=1,
            )
            found_attention = take_hypotheses(found_attention, order)

        # The likeliest that do not end go on.
        total = ops.where(ends, NEVER, total)
        stays = first_kept(total, greedy, beams)
        total, parent, token = (
            ops.take_along_axis(x, stays, axis=1) for x in (total, parent, token)
        )
        state = BeamState(
            greedy=greedy,
            token=token,
            ids=history.append(
                take_hypotheses(state.ids, parent), token[:, :, None], position, axis=-1
            ),
            total=total,
            coverage=take_hypotheses(coverage, parent),
            past=step.reorder(past, parent),
            attention=take_hypotheses(attention, parent),
            found_ids=take_hypotheses(
                ops.concatenate([found_ids, new_ids], axis=1), order
            ),
            found_rank=found_rank,
            found_score=take_hypotheses(score, order),
            found_attention=found_attention,
            going=state.going,
        )
        return state._replace(going=goes_on(state, sources, last[:, 0]))

    def goes_on(state, sources, last):
        # Log-probabilities only fall: at best all to come are 0, and the length is
        # the one that counts most in its favour, the longest.
        longest = ops.cast(sources.limit, "float32")
        best = ranking(ops.max(state.total, axis=1), longest, options)
        hopeless = best <= state.found_rank[:, options.n_best - 1]
        done = ops.logical_or(last, hopeless)
        return ops.logical_and(state.going, ops.logical_not(done))

    def results(state):
        n = options.n_best
        attention = state.found_attention
        return (
            state.found_ids[:, :n],
            state.found_score[:, :n],
            state.found_rank[:, :n],
            attention[:, :n] if keep_attention else (),
        )

    # At first the hypotheses are one: only one of them may go on.
    first = ops.cast(ops.arange(beams) > 0, "float32")[None] * NEVER
    nothing = history.empty((*pair, None), "int32")
    weights = no_weights(sources, step, beams, history) if keep_attention else ()
    state = BeamState(
        greedy=sources.limit > 0,
        token=ops.full(pair, START_ID, "int32"),
        ids=nothing,
        total=ops.broadcast_to(first, pair),
        coverage=ops.zeros((*pair, ops.shape(sources.ids)[1])) if covers else (),
        past=step.nothing_written(sentences),
        attention=weights,
        found_ids=nothing,
        # The translation of nothing is nothing, and that is found already.
        found_rank=ops.broadcast_to(
            ops.where(sources.limit[:, None] > 0, NEVER, 0.0), pair
        ),
        found_score=ops.zeros(pair),
        found_attention=weights,
        going=sources.limit > 0,
    )
    return Decoded(
        *history.repeat(write, lambda state: state.going, results, sources, state)
    )


def first_kept(total, keep_first, count):
    """Finds the likeliest hypotheses; one that must stay comes first.

    Args:
        total: float32 ``(sentences, hypotheses)``, sums of log-probabilities.
        keep_first: boolean ``(sentences,)``, whether hypothesis 0 must stay.
        count: how many to find.

    Returns:
        int32 ``(sentences, count)``, the places of the hypotheses.
    """
    first = ops.arange(total.shape[1]) == 0
    kept = ops.logical_and(first[None], keep_first[:, None])
    # Sums of log-probabilities are below 0.
    return ops.cast(ops.top_k(ops.where(kept, 1.0, total), count)[1], "int32")


def ranking(total, length, options):
    """What hypotheses are ordered by (GNMT, Wu et al. 2016, equation 14).

    Args:
        total: the sum of log-probabilities.
        length: the number of tokens, the end token included.
        options: `DecodingOptions`.

    Returns:
        The mean, or with ``length_penalty`` alpha the sum divided by
        ``((5 + length) / 6) ** alpha``.
    """
    if options.length_penalty is None:
        return total / ops.maximum(length, 1.0)
    return total / ((5.0 + length) / 6.0) ** options.length_penalty


def attended(weights):
    """The attention of one step: mean of layers and heads ``(sentences, beams, S)``."""
    return ops.cast(ops.mean(ops.concatenate(weights, axis=2), axis=2), "float32")


def covered(coverage, memory):
    """GNMT's coverage: the sum of log min(attention, 1) over the source's tokens."""
    log = ops.log(ops.clip(coverage, 1e-9, 1.0))
    real = ops.cast(memory.hidden[:, 0] > -1.0, "float32")  # (sentences, 1, source)
    return ops.sum(log * real, axis=-1)
