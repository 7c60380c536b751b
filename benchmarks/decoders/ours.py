"""Ours, from Python: token ids to token ids in a `tf.function`."""

import worker

args = worker.arguments("--xla")

from tfxformer.quiet import start_tensorflow  # noqa: E402

start_tensorflow()

import tensorflow as tf  # noqa: E402
import weights  # noqa: E402

from tfxformer.decoding import DecodingOptions, decode, greedy  # noqa: E402
from tfxformer.decoding import beam as beam_module  # noqa: E402
from tfxformer.decoding.next_token import next_token  # noqa: E402
from tfxformer.decoding.options import NEVER  # noqa: E402


def search(source, beam, forced):
    """The one place that knows tfxformer's interface: source ids to target ids.

    Args:
        source: int32 ``(batch, source)``, padded.
        beam: 1 is greedy.
        forced: write exactly so many tokens; 0 lets sentences end by themselves,
            within our own rule's limits.
    """
    options = DecodingOptions(beam_size=beam, max_length=forced or None)
    # Where the end token is never allowed, only the limit ends a sentence.
    for module in (greedy, beam_module):
        module.next_token = without_end if forced else next_token
    ids = decode(model, source, options, xla=args.xla).ids
    return ids[:, 0]  # (batch, n, target): the best


def without_end(logits, *rest):
    allowed, log_total = next_token(logits, *rest)
    end = tf.one_hot(worker.END_ID, allowed.shape[-1], NEVER, 0.0)
    return allowed + end, log_total


model = weights.our_model(*weights.read(args))
functions = {}
SIGNATURE = [tf.TensorSpec((None, None), tf.int32)]


def run(batch, beam, min_tokens, max_tokens):
    # Without XLA one graph serves all shapes.
    if (beam, min_tokens) not in functions:
        functions[beam, min_tokens] = tf.function(
            lambda source: search(source, beam, min_tokens),
            input_signature=None if args.xla else SIGNATURE,
            jit_compile=args.xla,
        )
    width = worker.width_for_xla(batch) if args.xla else None
    source = tf.constant(worker.padded(batch, width), tf.int32)
    return functions[beam, min_tokens](source).numpy()


worker.serve(run, "tensorflow", "keras")
