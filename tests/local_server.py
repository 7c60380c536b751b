"""A local server in a thread, and small models for it."""

import contextlib
import time

from anyio.from_thread import start_blocking_portal
from serving_load import Server


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.02)


@contextlib.contextmanager
def serving(repository=None, config=None, **settings):
    """A server in a thread of this process."""
    from tfxformer.server import ServerSettings, local

    local.POLL = 0.05
    free = {"rest_port": 0, "grpc_port": 0}
    server = local.running(repository, config, ServerSettings(**free | settings))
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(server) as addresses,
    ):
        yield Server(*addresses)


def save_toys(folder):
    """A repository of `half`, which is x / 2 + 2, and `pt_en`, which is upper case.

    `pt_en` has a translator's signatures. It fails on "fail"; `dawdle` is slow.
    """
    import tensorflow as tf

    def save(path, default, *functions):
        module = tf.Module()
        module.functions = {
            function.__name__: tf.function(function, specs, autograph=False)
            for function, *specs in (default, *functions)
        }
        first = module.functions[default[0].__name__]
        signatures = module.functions | {"serving_default": first}
        tf.saved_model.save(module, str(folder / path), signatures=signatures)

    def translate(text):
        bad = tf.reduce_any(tf.equal(text, "fail"))
        with tf.control_dependencies([tf.debugging.Assert(~bad, ["told to fail"])]):
            return {"translation": tf.strings.upper(text), **score(text, text)}

    def translate_nbest(text):
        return {"translations": tf.stack([text] * 2, 1), "scores": tf.ones([1, 2])}

    def score(text, translation):
        length = tf.strings.length(tf.strings.join([text, translation]))
        return {"score": -tf.cast(length, tf.float32) / 10}

    def tokenize(text):  # as wide as the longest
        return {"ids": tf.strings.unicode_decode(text, "UTF-8").to_tensor()}

    def detokenize(ids):
        return {"text": tf.strings.unicode_encode(ids, "UTF-8")}

    def dawdle(text):  # a fraction of a second
        x, step = tf.random.uniform((200, 200)), lambda x: [x @ x]
        (x,) = tf.while_loop(lambda x: True, step, [x], maximum_iterations=200)
        return {"sum": tf.fill(tf.shape(text), tf.reduce_sum(x))}

    text = tf.TensorSpec([None], tf.string, "text")
    pair = text, tf.TensorSpec([None], tf.string, "translation")
    ids = tf.TensorSpec([None, None], tf.int32, "ids")
    more = [(each, text) for each in (translate_nbest, tokenize, dawdle)]
    save("pt_en/1", (translate, text), *more, (score, *pair), (detokenize, ids))
    x = tf.TensorSpec([None], tf.float32, "x")
    for number in "12":
        save(f"half/{number}", (lambda x: {"y": x / 2 + 2}, x))
