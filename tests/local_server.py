"""The local server, started by its command, and small models for it."""

import http.client
import json
import re
import signal
import subprocess
import sys
import time
from urllib.parse import urlsplit

START = 120  # seconds


class LocalServer:
    """`tfxformer serve` until it is stopped.

    Args:
        arguments: what follows the command; ports are free ones unless given.
        cwd: the folder it works in.
    """

    def __init__(self, *arguments, cwd=None):
        ports = [] if "--rest-port" in arguments else ["--rest-port", "0"]
        ports += [] if "--grpc-port" in arguments else ["--grpc-port", "0"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tfxformer.cli", "serve"]
            + [str(x) for x in [*arguments, *ports]],
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.said = ""
        self.url = self.grpc = None

    def __enter__(self):
        return self.wait_until_ready()

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        for stream in (self.process.stdout, self.process.stderr):
            stream.close()
        self.process.wait()

    def wait_until_ready(self):
        end = time.monotonic() + START
        for line in iter(self.process.stderr.readline, b""):
            self.said += line.decode()
            if line.startswith(b"ready"):
                self.url = re.search(r"^REST: (\S+)$", self.said, re.M)[1]
                self.grpc = re.search(r"^gRPC: (\S+)$", self.said, re.M)[1]
                return self
            assert time.monotonic() < end, self.said
        raise AssertionError(f"the server ended: {self.said}")

    def stop(self, number=signal.SIGTERM):
        """Tells it to stop; what it said since, and its exit code."""
        self.process.send_signal(number)
        return self.finish()

    def finish(self):
        out, err = self.process.communicate(timeout=START)
        assert out == b""  # all it says goes to standard error
        return err.decode(), self.process.returncode

    def ask(self, path, body=None, method=None, headers=None):
        """One HTTP request: its status, and the JSON that came."""
        return ask(self.url, path, body, method, headers)

    def state(self, model):
        """By version, its state and what is wrong."""
        status, found = self.ask(f"/v1/models/{model}")
        assert status == 200, found
        return {
            int(each["version"]): (each["state"], each["status"]["error_message"])
            for each in found["model_version_status"]
        }

    def wait_for(self, condition, seconds=60):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "it does not come to that"
            assert self.process.poll() is None, "the server ended"
            time.sleep(0.05)

    def metric(self, name, **labels):
        """The sum of a metric's samples that have the labels."""
        connection = connect(self.url)
        connection.request("GET", "/monitoring/prometheus/metrics")
        page = connection.getresponse().read().decode()
        connection.close()
        wanted = {f'{key}="{value}"' for key, value in labels.items()}
        total = 0.0
        for line in page.splitlines():
            head, _, value = line.rpartition(" ")
            found, _, has = head.partition("{")
            if found == name and wanted <= {*has.rstrip("}").split(",")}:
                total += float(value)
        return total


def connect(url, timeout=60):
    return http.client.HTTPConnection(urlsplit(url).netloc, timeout=timeout)


def ask(url, path, body=None, method=None, headers=None):
    connection = connect(url)
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    method = method or ("GET" if body is None else "POST")
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    assert answer.headers["content-type"].startswith("application/json"), text
    return answer.status, json.loads(text)


def save_half_plus_two(folder):
    """TensorFlow Serving's toy: x / 2 + 2."""
    import tensorflow as tf

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.float32)])
    def half_plus_two(x):
        return {"y": x / 2 + 2}

    save(folder, serving_default=half_plus_two)


def save_echo(folder):
    """Answers at once, and fails or dawdles when it is told to."""
    import tensorflow as tf

    text = tf.TensorSpec([None], tf.string, "text")
    number = tf.TensorSpec([None], tf.float32, "x")

    @tf.function(autograph=False, input_signature=[text])
    def echo(text):
        bad = tf.reduce_any(tf.equal(text, "fail"))
        tf.debugging.assert_equal(bad, False, "told to fail")
        return {"text": text, "rows": tf.fill(tf.shape(text), tf.shape(text)[0])}

    @tf.function(autograph=False, input_signature=[text])
    def dawdle(text):
        """Takes a second or so."""
        x = tf.random.uniform((300, 300))
        x = tf.while_loop(
            lambda i, x: i < 400, lambda i, x: (i + 1, tf.tanh(x @ x)), (0, x)
        )[1]
        return {"text": text, "sum": tf.fill(tf.shape(text), tf.reduce_sum(x))}

    @tf.function(autograph=False, input_signature=[text])
    def raw(text):
        return {"text_bytes": text}

    @tf.function(autograph=False, input_signature=[text])
    def spell(text):
        """As wide as the longest."""
        return {"ids": tf.strings.unicode_decode(text, "UTF-8").to_tensor()}

    @tf.function(autograph=False, input_signature=[number, text])
    def both(x, text):
        return {"x": x, "text": text}

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([], tf.int32, "n")])
    def many(n):
        return {"numbers": tf.zeros([n])}

    save(
        folder,
        serving_default=echo,
        dawdle=dawdle,
        raw=raw,
        spell=spell,
        both=both,
        many=many,
    )


def save(folder, **signatures):
    import tensorflow as tf

    module = tf.Module()
    module.functions = [*signatures.values()]
    folder.parent.mkdir(parents=True, exist_ok=True)
    tf.saved_model.save(module, str(folder), signatures=signatures)
