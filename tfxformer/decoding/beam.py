"""Beam search: keeps several hypotheses of each sentence at every step."""

from typing import NamedTuple

from keras import ops

from tfxformer.decoding.kv_cache import Search, take_hypotheses
from tfxformer.decoding.options import NEVER
from tfxformer.layers.attention import KeyValue
from tfxformer.layers.masking import padding_mask
from tfxformer.special_tokens import END_ID, START_ID


class BeamState(NamedTuple):
    """The state of the loop; the first axis of each field is the sentences.

    The next step continues ``beam_size`` hypotheses. As many finished ones are kept as
    ``found``, best first. `NEVER` marks an empty place.
    """

    greedy: object  # boolean (sentences,), whether hypothesis 0 is greedy search's
    token: object  # int32 (sentences, beams), the newest token of each hypothesis
    ids: object  # int32 (sentences, beams, positions), all its tokens
    total: object  # float32 (sentences, beams), the sum of their log-probabilities
    # float32 (sentences, beams, source), attention to each source token so far; or ()
    coverage: object
    cache: object  # the KV cache
    found_ids: object  # int32 (sentences, beams, positions), padded
    found_rank: object  # float32 (sentences, beams)
    found_score: object  # float32 (sentences, beams), mean log-probability a token
    going: object  # boolean (sentences,), False once a sentence's search has ended


def beam_search(sources, step, options):
    """A `Search` that keeps ``beam_size`` hypotheses of each sentence.

    Each step continues every hypothesis by every token. Among the ``beam_size``
    likeliest continuations, those with the end token are found; the likeliest without
    it stay in the beam. The greedy hypothesis always keeps a place, so without
    penalties the best translation never scores below greedy's. The search of a
    sentence ends when no unfinished hypothesis can rank among the ``n_best`` any more
    (Tensor2Tensor's bound), or at the sentence's limit, where unfinished hypotheses
    count as found.
    """
    beams = options.beam_size
    sentences = ops.shape(sources.limit)[0]
    pair = (sentences, beams)
    covers = options.coverage_penalty > 0

    def write(position, sources, state):
        logits, log_total, cache, weights = step(
            position, sources, state.token, state.ids, state.cache
        )
        # The likeliest continuations of each hypothesis, then of each sentence. Twice
        # the beam's width is enough, since a hypothesis can end in one way only.
        each = min(2 * beams, logits.shape[-1])
        values, tokens = ops.top_k(logits, each)  # (rows, each)
        gain = ops.reshape(values - log_total[:, None], (-1, beams, each))
        allowed = ops.reshape(values > NEVER / 2, (-1, beams, each))
        total = ops.where(allowed, state.total[:, :, None] + gain, NEVER)
        total = ops.reshape(total, (-1, beams * each))
        place = _likeliest(total, state.greedy, min(2 * beams, beams * each))
        total = ops.take_along_axis(total, place, axis=1)  # (sentences, twice the beam)
        tokens = ops.reshape(ops.cast(tokens, "int32"), (-1, beams * each))
        token = ops.take_along_axis(tokens, place, axis=1)
        parent = ops.floor_divide(place, each)
        ends = ops.equal(token, END_ID)
        greedy = ops.logical_and(state.greedy, ops.logical_not(ends[:, 0]))

        coverage = state.coverage
        if covers:  # the mean over layers and heads
            coverage = coverage + ops.mean(weights, axis=2)

        # Hypotheses that end here join the found ones.
        last = position + 1 >= sources.limit[:, None]  # (sentences, 1)
        length = ops.cast(position + 1, "float32")
        new = parent[:, :beams]
        new_ids = step.append_ids(
            take_hypotheses(state.ids, new), token[:, :beams], position
        )
        new_total = total[:, :beams]
        rank = ranking(new_total, length, options)
        if covers:
            seen = take_hypotheses(coverage, new)
            rank = rank + options.coverage_penalty * _covered(seen, sources.ids)
        complete = ops.logical_or(ends[:, :beams], last)
        complete = ops.logical_and(complete, new_total > NEVER / 2)
        # A sentence whose search has ended waits for its neighbours, unchanged.
        complete = ops.logical_and(complete, state.going[:, None])
        rank = ops.where(complete, rank, NEVER)
        found_rank, order = ops.top_k(
            ops.concatenate([state.found_rank, rank], axis=1), beams
        )

        def best_of(found, new):
            return take_hypotheses(ops.concatenate([found, new], axis=1), order)

        found_ids = step.append_ids(state.found_ids, ops.zeros_like(new), position)

        # The likeliest unfinished hypotheses stay in the beam.
        total = ops.where(ends, NEVER, total)
        stays = _likeliest(total, greedy, beams)
        total, parent, token = (
            ops.take_along_axis(x, stays, axis=1) for x in (total, parent, token)
        )
        ids = take_hypotheses(state.ids, parent)
        state = BeamState(
            greedy=greedy,
            token=token,
            ids=step.append_ids(ids, token, position),
            total=total,
            coverage=take_hypotheses(coverage, parent),
            cache=_reorder(cache, parent),
            found_ids=best_of(found_ids, new_ids),
            found_rank=found_rank,
            found_score=best_of(state.found_score, new_total / length),
            going=state.going,
        )
        return state._replace(going=goes_on(state, sources, last[:, 0]))

    def goes_on(state, sources, last):
        # A bound on the final rank: log-probabilities only fall, so later tokens add
        # at most 0, and the longest length ranks highest.
        longest = ops.cast(sources.limit, "float32")
        best = ranking(ops.max(state.total, axis=1), longest, options)
        hopeless = best <= state.found_rank[:, options.n_best - 1]
        done = ops.logical_or(last, hopeless)
        return ops.logical_and(state.going, ops.logical_not(done))

    def results(state):
        found = state.found_ids, state.found_score, state.found_rank
        return tuple(x[:, : options.n_best] for x in found)

    # All hypotheses are equal at first: only one of them may continue.
    first = ops.cast(ops.arange(beams) > 0, "float32")[None] * NEVER
    start = BeamState(
        greedy=sources.limit > 0,
        token=ops.full(pair, START_ID, "int32"),
        ids=step.no_ids(sentences),
        total=ops.broadcast_to(first, pair),
        coverage=ops.zeros((*pair, ops.shape(sources.ids)[1])) if covers else (),
        cache=step.empty_cache(sentences),
        found_ids=step.no_ids(sentences),
        # An empty source has one translation, the empty one, found already.
        found_rank=ops.broadcast_to(
            ops.where(sources.limit[:, None] > 0, NEVER, 0.0), pair
        ),
        found_score=ops.zeros(pair),
        going=sources.limit > 0,
    )
    return Search(write, lambda state: state.going, results, start)


def _reorder(cache, parent):
    """The KV cache reordered by each hypothesis's parent, ``(sentences, beams)``."""

    def take(x):
        _, width, length, key_dim = ops.shape(x)  # the width is beams * heads
        beams = parent.shape[1]
        apart = ops.reshape(x, (-1, beams, width // beams, length, key_dim))
        return ops.reshape(take_hypotheses(apart, parent), (-1, width, length, key_dim))

    return tuple(KeyValue(key=take(x.key), value=take(x.value)) for x in cache)


def _likeliest(total, keep_first, count):
    """The places of the highest totals, ``(sentences, count)``; place 0 may be kept."""
    first = ops.arange(total.shape[1]) == 0
    kept = ops.logical_and(first[None], keep_first[:, None])
    # Sums of log-probabilities are below 0.
    return ops.cast(ops.top_k(ops.where(kept, 1.0, total), count)[1], "int32")


def ranking(total, length, options):
    """The rank of hypotheses (GNMT, Wu et al. 2016, equation 14).

    It is the mean log-probability of ``length`` tokens, including the end token. With
    ``length_penalty`` alpha it is their sum divided by ``((5 + length) / 6) ** alpha``.
    """
    if options.length_penalty is None:
        return total / ops.maximum(length, 1.0)
    return total / ((5.0 + length) / 6.0) ** options.length_penalty


def _covered(coverage, source):
    """GNMT's coverage: the sum of log min(attention, 1) over the source's tokens."""
    log = ops.log(ops.clip(coverage, 1e-9, 1.0))
    real = ops.cast(padding_mask(source), "float32")[:, None]  # (sentences, 1, source)
    return ops.sum(log * real, axis=-1)
