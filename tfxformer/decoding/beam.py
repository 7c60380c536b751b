"""Beam search: keeps several hypotheses of each sentence at every step."""

from typing import NamedTuple

from keras import ops

from tfxformer.decoding.loop import append_ids, take_hypotheses
from tfxformer.decoding.options import NEVER
from tfxformer.layers.attention import KeyValue
from tfxformer.special_tokens import END_ID, START_ID


class Finished(NamedTuple):
    """The finished hypotheses of each sentence, best first.

    There are ``beam_size`` places. The rank of an empty one is `NEVER`.
    """

    ids: object  # int32 (sentences, beams, positions), padded
    score: object  # float32 (sentences, beams), mean log-probability a token
    rank: object  # float32 (sentences, beams), the order; see `ranking`


class BeamState(NamedTuple):
    """The state of the loop; the first axis of each field is the sentences."""

    greedy: object  # boolean (sentences,), whether hypothesis 0 is greedy search's
    token: object  # int32 (sentences, beams), the newest token of each hypothesis
    ids: object  # int32 (sentences, beams, positions), all its tokens
    total: object  # float32 (sentences, beams), the sum of their log-probabilities
    cache: object  # a `KeyValue` (sentences, beams * heads, positions, key_dim) a layer
    finished: Finished
    going: object  # boolean (sentences,), False once a sentence's search has ended


class Continuations(NamedTuple):
    """Hypotheses with one more token, the likeliest of a sentence first.

    The total of an impossible one is `NEVER`.
    """

    parent: object  # int32 (sentences, candidates), the hypothesis before
    token: object  # int32 (sentences, candidates), its next token
    total: object  # float32 (sentences, candidates), the sum of log-probabilities


class BeamSearch:
    """A `Search` that keeps ``beam_size`` hypotheses of each sentence.

    Each step expands every hypothesis by every token. Among the ``beam_size`` likeliest
    continuations, those with the end token are finished; the likeliest without it stay
    in the beam. The greedy hypothesis always keeps a place, so without a length penalty
    the best translation never scores below greedy's. The search of a sentence ends when
    no unfinished hypothesis can rank among the ``n_best`` any more (Tensor2Tensor's
    bound), or at the sentence's limit, where unfinished hypotheses count as finished.

    Args:
        decoder_step: a `DecoderStep`.
        options: `DecodingOptions`.
    """

    def __init__(self, decoder_step, options):
        self.decoder_step = decoder_step
        self.options = options
        self.beams = options.beam_size

    def start(self, sources):
        sentences = ops.shape(sources.limit)[0]
        pair = (sentences, self.beams)
        # All hypotheses are equal at first: only one of them may continue.
        others = ops.cast(ops.arange(self.beams) > 0, "float32")[None] * NEVER
        # An empty source has one translation, the empty one, finished already.
        rank = ops.where(sources.limit[:, None] > 0, NEVER, 0.0)  # (sentences, 1)
        return BeamState(
            greedy=sources.limit > 0,
            token=ops.full(pair, START_ID, "int32"),
            ids=self.decoder_step.no_ids(sentences),
            total=ops.broadcast_to(others, pair),
            cache=self.decoder_step.empty_cache(sentences),
            finished=Finished(
                ids=self.decoder_step.no_ids(sentences),
                score=ops.zeros(pair),
                rank=ops.broadcast_to(rank, pair),
            ),
            going=sources.limit > 0,
        )

    def step(self, position, sources, state):
        logits, log_total, cache = self.decoder_step(
            position, sources, token=state.token, ids=state.ids, cache=state.cache
        )
        candidates = self.expand(state, logits, log_total)
        finished = self.finish(position, sources, state, candidates)
        ends = ops.equal(candidates.token, END_ID)
        greedy = ops.logical_and(state.greedy, ops.logical_not(ends[:, 0]))
        chosen = self.choose(candidates, ends, greedy)
        ids = take_hypotheses(state.ids, chosen.parent)
        state = BeamState(
            greedy=greedy,
            token=chosen.token,
            ids=append_ids(ids, chosen.token),
            total=chosen.total,
            cache=reorder(cache, chosen.parent),
            finished=finished,
            going=state.going,
        )
        return state._replace(going=self.goes_on(position, sources, state))

    def expand(self, state, logits, log_total):
        """The likeliest `Continuations` of each sentence, twice as many as its beams.

        Twice the beam's width is enough, since a hypothesis can end in one way only.

        Args:
            state: the `BeamState` before the step.
            logits: ``(sentences * beams, vocab)``.
            log_total: the log-sum-exp of the logits, ``(sentences * beams,)``.
        """
        each = min(2 * self.beams, logits.shape[-1])
        values, tokens = ops.top_k(logits, each)  # (sentences * beams, each)
        shape = (-1, self.beams, each)
        gain = ops.reshape(values - log_total[:, None], shape)
        allowed = ops.reshape(values > NEVER / 2, shape)
        # (sentences, beams, each)
        total = ops.where(allowed, state.total[:, :, None] + gain, NEVER)
        total = ops.reshape(total, (-1, self.beams * each))  # (sentences, beams * each)
        tokens = ops.reshape(ops.cast(tokens, "int32"), (-1, self.beams * each))
        # (sentences, candidates)
        place = _likeliest(total, state.greedy, min(2 * self.beams, self.beams * each))
        return Continuations(
            parent=ops.floor_divide(place, each),
            token=ops.take_along_axis(tokens, place, axis=1),
            total=ops.take_along_axis(total, place, axis=1),
        )

    def finish(self, position, sources, state, candidates):
        """The `Finished` hypotheses, with those of this step that end here."""
        # (sentences, beams)
        new = Continuations(*(x[:, : self.beams] for x in candidates))
        length = ops.cast(position + 1, "float32")
        rank = ranking(new.total, length, self.options)
        last = position + 1 >= sources.limit[:, None]  # (sentences, 1)
        complete = ops.logical_or(ops.equal(new.token, END_ID), last)
        complete = ops.logical_and(complete, new.total > NEVER / 2)
        # A sentence whose search has ended waits for its neighbours, unchanged.
        complete = ops.logical_and(complete, state.going[:, None])
        rank = ops.where(complete, rank, NEVER)
        # (sentences, beams): the best of both
        best_rank, order = ops.top_k(
            ops.concatenate([state.finished.rank, rank], axis=1), self.beams
        )

        def best_of(old, new):
            return take_hypotheses(ops.concatenate([old, new], axis=1), order)

        padding = ops.zeros_like(new.token)
        new_ids = append_ids(take_hypotheses(state.ids, new.parent), new.token)
        return Finished(
            ids=best_of(append_ids(state.finished.ids, padding), new_ids),
            score=best_of(state.finished.score, new.total / length),
            rank=best_rank,
        )

    def choose(self, candidates, ends, greedy):
        """The likeliest `Continuations` without the end token, ``(sentences, beams)``.

        Args:
            candidates: the result of `expand`.
            ends: boolean ``(sentences, candidates)``, whether the token is the end.
            greedy: boolean ``(sentences,)``, whether the first one keeps its place.
        """
        total = ops.where(ends, NEVER, candidates.total)
        place = _likeliest(total, greedy, self.beams)
        return Continuations(
            parent=ops.take_along_axis(candidates.parent, place, axis=1),
            token=ops.take_along_axis(candidates.token, place, axis=1),
            total=ops.take_along_axis(total, place, axis=1),
        )

    def goes_on(self, position, sources, state):
        """Boolean ``(sentences,)``, whether an unfinished hypothesis may still rank."""
        # A bound on the final rank: log-probabilities only fall, so later tokens add
        # at most 0, and the longest length ranks highest.
        longest = ops.cast(sources.limit, "float32")
        bound = ranking(ops.max(state.total, axis=1), longest, self.options)
        hopeless = bound <= state.finished.rank[:, self.options.n_best - 1]
        done = ops.logical_or(position + 1 >= sources.limit, hopeless)
        return ops.logical_and(state.going, ops.logical_not(done))

    def going(self, state):
        return state.going

    def results(self, state):
        n_best = self.options.n_best
        ids, score, rank = state.finished  # best first
        return ids[:, :n_best], score[:, :n_best], rank[:, :n_best]


def reorder(cache, parent):
    """The KV cache reordered by each hypothesis's parent, ``(sentences, beams)``."""

    def take(x):
        _, width, length, key_dim = ops.shape(x)  # the width is beams * heads
        beams = parent.shape[1]
        # (sentences, beams, heads, positions, key_dim)
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
