"""From the decoder's vectors to what may be written next."""

from keras import ops

from tfxformer.decoding_options import NEVER
from tfxformer.errors import UserError
from tfxformer.layers.kernels import add_bias
from tfxformer.special_ids import END_ID, PAD_ID


class NextToken:
    """The logits of the next token, with what is not allowed out of reach.

    What is not allowed still counts where probabilities are made, so that a
    translation's score is what the model gives it, however it was found.

    Args:
        step: a `DecoderStep`.
        options: `DecodingOptions`.
    """

    def __init__(self, step, options):
        self.options = options
        self.kernel = step.output_kernel  # (d_model, vocab)
        vocab = self.kernel.shape[1]
        if max(options.forbidden, default=0) >= vocab:
            raise UserError(
                f"forbidden {max(options.forbidden)}: the vocabulary has {vocab} ids"
            )
        # Padding, unknown and start are the ids below the end token.
        self.forbidden = sorted({*range(END_ID), *options.forbidden})
        never = ops.sum(ops.one_hot(self.forbidden, vocab), axis=0) * NEVER
        bias = 0.0 if step.output_bias is None else step.output_bias
        bias = ops.cast(bias, "float32") + never
        self.bias = ops.cast(bias, step.dtype)
        end = ops.one_hot(END_ID, vocab) * NEVER
        self.end_bias = ops.cast(bias + end, step.dtype)
        # The few columns that the logits leave out; the end token's, last, only
        # where it would come too soon.
        self.end_waits = options.min_length > 0 and END_ID not in self.forbidden
        apart = [*self.forbidden, *([END_ID] if self.end_waits else [])]
        self.end_apart = apart.index(END_ID) if END_ID in apart else None
        self.apart_kernel = ops.take(self.kernel, apart, axis=1)
        self.apart_bias = (
            ops.zeros(len(apart), step.dtype)
            if step.output_bias is None
            else ops.take(step.output_bias, apart, axis=0)
        )
        self.output_bias = step.output_bias

    def __call__(self, x, position, ids, prefix=None):
        """Scores what may come next.

        Args:
            x: the decoder's vectors, ``(rows, d_model)``.
            position: of the token before, a scalar.
            ids: what has been written, ``(rows, positions)``; zeros where nothing
                has.
            prefix: the token that must come next, ``(rows,)``, 0 for any; or None.

        Returns:
            Logits ``(rows, vocab)``, `NEVER` or less where a token is not allowed,
            and the logarithm of the sum over all tokens of their exponentials,
            ``(rows,)``, both float32.
        """
        bias = self.bias
        apart = add_bias(ops.matmul(x, self.apart_kernel), self.apart_bias)
        apart = ops.cast(apart, "float32")  # (rows, few)
        end = None if self.end_apart is None else apart[:, self.end_apart, None]
        if self.end_waits:
            too_short = position < self.options.min_length
            bias = ops.where(too_short, self.end_bias, bias)
            # Else the end token is among the logits, and would count twice.
            counts = ops.cast(ops.arange(apart.shape[1]) < apart.shape[1] - 1, "bool")
            apart = ops.where(ops.logical_or(counts, too_short), apart, NEVER)
        logits = ops.cast(add_bias(ops.matmul(x, self.kernel), bias), "float32")
        largest = ops.maximum(ops.max(logits, axis=-1), ops.max(apart, axis=-1))
        total = ops.sum(ops.exp(logits - largest[:, None]), axis=-1)
        total = total + ops.sum(ops.exp(apart - largest[:, None]), axis=-1)
        log_total = largest + ops.log(total)
        if self.options.no_repeat_ngram:
            logits = logits + self._repeated(ids, position, logits.shape[-1])
        if end is not None:
            # Where nothing may be written, the translation ends after all.
            stuck = ops.max(logits, axis=-1, keepdims=True) <= NEVER / 2
            is_end = ops.equal(ops.arange(logits.shape[-1]), END_ID)
            logits = ops.where(ops.logical_and(stuck, is_end), end, logits)
        if prefix is not None:
            logits = self._forced(logits, x, prefix)
        return logits, log_total

    def _repeated(self, ids, position, vocab):
        """`NEVER` for tokens that would complete an n-gram written before."""
        context = self.options.no_repeat_ngram - 1
        room = ops.shape(ids)[1]
        # Where an n-gram starts, all its tokens have been written.
        start = ops.arange(room)
        same = ops.broadcast_to(start + context < position, ops.shape(ids))
        for k in range(context):
            newest = ops.take(
                ops.pad(ids, [[0, 0], [context, 0]]), position + k, axis=1
            )  # the k-th of the newest tokens, (rows,)
            shifted = ops.take(ops.pad(ids, [[0, 0], [0, context]]), start + k, axis=1)
            same = ops.logical_and(same, ops.equal(shifted, newest[:, None]))
        last = ops.take(ops.pad(ids, [[0, 0], [0, context]]), start + context, axis=1)
        rows = ops.broadcast_to(ops.arange(ops.shape(ids)[0])[:, None], ops.shape(ids))
        places = ops.stack([ops.reshape(rows, (-1,)), ops.reshape(last, (-1,))], axis=1)
        never = ops.reshape(ops.cast(same, "float32"), (-1,)) * NEVER
        return ops.scatter(places, never, (ops.shape(ids)[0], vocab))

    def _forced(self, logits, x, prefix):
        # Computed anew: the logits have lost it where it is not allowed.
        forced = ops.sum(x * ops.transpose(ops.take(self.kernel, prefix, axis=1)), -1)
        if self.output_bias is not None:
            forced = forced + ops.take(self.output_bias, prefix)
        chosen = ops.equal(ops.arange(logits.shape[-1])[None], prefix[:, None])
        only = ops.where(chosen, ops.cast(forced, "float32")[:, None], NEVER)
        return ops.where(ops.equal(prefix, PAD_ID)[:, None], logits, only)
