"""Greedy decoding: always the likeliest next token, with cached keys and values."""

from typing import NamedTuple

from keras import ops

from tfxformer.layers.masking import padding_mask
from tfxformer.special_ids import END_ID, PAD_ID, START_ID


class Decoded(NamedTuple):
    """Translations as ids.

    Attributes:
        ids: int32 ``(batch, target)``: the tokens without start, with the end token
            where one was written, then padding.
        score: float32 ``(batch,)``: the mean log-probability of those tokens, the
            end token included; 0 where there is none.
    """

    ids: object
    score: object


class _State(NamedTuple):
    """What the loop carries.

    Attributes:
        position: int32 scalar, the position of `token`.
        token: int32 ``(batch,)``, the newest token.
        ids: int32 ``(batch, room)``, what has been written.
        total: float32 ``(batch,)``, the sum of its log-probabilities.
        going: boolean ``(batch,)``, False once a sentence has ended.
        model: the model's `DecodingState`.
    """

    position: object
    token: object
    ids: object
    total: object
    going: object
    model: object


def length_limit(source, max_length):
    """How many tokens a translation may have: twice its source's, and ten more.

    It depends on the sentence alone, never on its neighbours in the batch.

    Args:
        source: token ids ``(batch, source)``.
        max_length: the most positions that the model knows.

    Returns:
        int32 ``(batch,)``. A source without a token but the end has limit 0: the
        translation of nothing is nothing.
    """
    length = ops.sum(ops.cast(padding_mask(source), "int32"), axis=1)
    limit = ops.minimum(2 * length + 10, max_length)
    return ops.where(length > 1, limit, 0)


def greedy(model, source):
    """Translates a batch, always taking the likeliest next token.

    The loop stops when every sentence has ended or is as long as `length_limit`
    lets it be. It runs in the graph when it is traced, and outside it as well.

    Args:
        model: a `Transformer`.
        source: int32 token ids ``(batch, source)``, each with its end token, padded;
            at least one column, also where the batch is empty.

    Returns:
        `Decoded` ids and scores.
    """
    limit = length_limit(source, model.max_length)
    batch = ops.shape(source)[0]
    # Never below 0, also where the batch is empty.
    room = ops.max(limit, initial=0)
    state = _State(
        position=ops.convert_to_tensor(0, "int32"),
        token=ops.full((batch,), START_ID, "int32"),
        ids=ops.full((batch, room), PAD_ID, "int32"),
        total=ops.zeros((batch,), "float32"),
        going=limit > 0,
        model=model.encode(source, room),
    )

    def unfinished(*state):
        state = _State(*state)
        return ops.logical_and(state.position < room, ops.any(state.going))

    def step(*state):
        state = _State(*state)
        logits, model_state = model.decode_step(
            state.token, state.position, state.model
        )
        logits = ops.cast(logits, "float32")  # (batch, vocab)
        # Padding, unknown and start, the ids below the end token, are never written.
        allowed = logits[:, END_ID:]
        token = ops.cast(ops.argmax(allowed, axis=-1), "int32") + END_ID
        log_probability = ops.max(allowed, axis=-1) - ops.logsumexp(logits, axis=-1)
        token = ops.where(state.going, token, PAD_ID)
        here = ops.equal(ops.arange(room), state.position)[None, :]
        position = state.position + 1
        return _State(
            position=position,
            token=token,
            ids=ops.where(here, token[:, None], state.ids),
            total=state.total + ops.where(state.going, log_probability, 0.0),
            going=ops.logical_and(
                state.going, ops.logical_and(token != END_ID, position < limit)
            ),
            model=model_state,
        )

    state = _State(*ops.while_loop(unfinished, step, state))
    written = ops.sum(ops.cast(padding_mask(state.ids), "float32"), axis=1)
    return Decoded(state.ids, state.total / ops.maximum(written, 1.0))
