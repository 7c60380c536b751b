"""Local servers for tests: in a thread or by the command, and small models for them."""

import asyncio
import concurrent.futures
import contextlib
import http.client
import json
import re
import signal
import subprocess
import sys
import threading
import time
from urllib.parse import urlsplit


def fetch(url, path, body=None, method=None):
    """The status, the type and the text of an HTTP answer."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    with contextlib.closing(connection):
        connection.request(method or ("GET" if body is None else "POST"), path, body)
        answer = connection.getresponse()
        return answer.status, answer.headers["content-type"], answer.read().decode()


def ask(url, path, body=None, method=None):
    """The status of an HTTP request, and the JSON in the answer."""
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    status, kind, text = fetch(url, path, body, method)
    assert kind.startswith("application/json"), text
    return status, json.loads(text)


class Server:
    """A server that runs somewhere, by its addresses."""

    def __init__(self, rest, grpc):
        self.url, self.grpc = f"http://{rest}", grpc

    def ask(self, *arguments):
        return ask(self.url, *arguments)

    def state(self):
        """By version of `pt_en`, its state and its error."""
        known = self.ask("/v1/models/pt_en")[1]["model_version_status"]
        return {
            int(x["version"]): (x["state"], x["status"]["error_message"]) for x in known
        }

    def metric(self, name, **labels):
        """The sum of a metric's samples that have the labels."""
        page = fetch(self.url, "/monitoring/prometheus/metrics")[2]
        wanted = {f'{key}="{value}"' for key, value in labels.items()}
        samples = re.findall(rf"^{name}(?:{{(.*)}})? (\S+)$", page, re.MULTILINE)
        return sum(float(x) for found, x in samples if wanted <= {*found.split(",")})


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.02)


@contextlib.contextmanager
def serving(repository=None, config=None, **settings):
    """A server in a thread of this process."""
    from tfxformer.server import ServerSettings
    from tfxformer.server.local import running

    free = {"rest_port": 0, "grpc_port": 0, "poll": 0.05}
    settings = ServerSettings(**free | settings)
    loop, started = asyncio.new_event_loop(), concurrent.futures.Future()
    ended = asyncio.Event()

    async def main():
        try:
            async with running(repository, config, settings) as addresses:
                started.set_result(addresses)
                await ended.wait()
        except Exception as error:
            started.set_exception(error)

    thread = threading.Thread(target=lambda: loop.run_until_complete(main()))
    thread.start()
    try:
        yield Server(*started.result())
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()


class Command:
    """`tfxformer serve` on free ports."""

    def __init__(self, *arguments):
        command = [sys.executable, "-m", "tfxformer.cli", "serve", *arguments]
        command += ["--rest-port", "0", "--grpc-port", "0"]
        self.process = subprocess.Popen(map(str, command), stderr=subprocess.PIPE)
        self.said = ""

    def __enter__(self):
        while "\nready" not in self.said:
            assert self.process.poll() is None, self.said
            self.said += self.process.stderr.readline().decode()
        found = re.search(r"^REST: http://(\S+)\ngRPC: (\S+)$", self.said, re.MULTILINE)
        self.server = Server(*found.groups())
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def stop(self, number=signal.SIGTERM, code=0):
        """What it has said until a signal ends it, with that exit code."""
        self.process.send_signal(number)
        said = self.said + self.process.communicate(timeout=120)[1].decode()
        assert self.process.returncode == code and "Traceback" not in said, said
        return said


def save_toys(folder):
    """A repository of `half`, which is x / 2 + 2, and `pt_en`, which is upper case.

    `pt_en` has a translator's signatures. It fails on "fail", and dawdles if asked.
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
