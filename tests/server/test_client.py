"""The client, where a server fails it; with real servers see test_local.py."""

import asyncio
import base64
import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfxformer.errors import UserError
from tfxformer.server import Client, ServerError, client


def answer_of(path, body):
    """What a server says whose model writes each text in capitals."""
    signature, inputs = body["signature_name"], body["inputs"]
    texts = [
        base64.b64decode(x["b64"]).decode() if isinstance(x, dict) else x
        for x in inputs["text"]
    ]
    if signature == "count":
        counts = [len(text.split()) for text in texts]
        return {"outputs": {"tokens": counts, "limit": [7] * len(texts)}}
    if signature == "tokenize":  # one output only, so it has no name
        return {"outputs": [[ord(c) for c in text] for text in texts]}
    return {
        "outputs": {
            "translation": [text.upper() for text in texts],
            "score": [-float(len(text.split())) for text in texts],
        }
    }


class Server(ThreadingHTTPServer):
    """Answers as told: first what is in ``before``, a code each; then well."""

    request_queue_size = 128

    def __init__(self):
        self.before, self.seen, self.most, self.now = [], [], 0, 0
        self.lock, self.delay = threading.Lock(), 0.0
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        server = self.server
        body = self.rfile.read(int(self.headers["content-length"]))
        with server.lock:
            server.seen.append((self.path, dict(self.headers), json.loads(body)))
            server.now += 1
            server.most = max(server.most, server.now)
            told = server.before.pop(0) if server.before else 200
        time.sleep(server.delay)
        with server.lock:
            server.now -= 1
        if told == "reset":
            # Without a word: a reset where something is unread, an end otherwise.
            self.close_connection = True
            return
        found = {"error": f"told to say {told}"}
        if told == 200:
            found = answer_of(self.path, json.loads(body))
        data = b"<html>proxy</html>" if told == "page" else json.dumps(found).encode()
        self.send_response(200 if told == "page" else told)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with Server() as server:
        yield server
        server.shutdown()


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Pauses as they are, only shorter."""
    monkeypatch.setattr(client, "_FIRST_PAUSE", 0.01)


def test_what_comes_back_is_in_order(server):
    texts = [f"texto número {i}" for i in range(100)]
    with Client(server.url, batch_size=7, in_flight=3) as client:
        assert client(texts) == [text.upper() for text in texts]
        assert client("um só") == "UM SÓ"
        assert client([]) == [] and client("") == ""
    sizes = [len(body["inputs"]["text"]) for _, _, body in server.seen]
    assert max(sizes) == 7 and 1 < server.most <= 3


def test_one_sentence_takes_one_request(server):
    with Client(server.url) as client:
        assert client.max_length == 8
        server.seen.clear()
        assert client("oi") == "OI"
        assert [body["signature_name"] for _, _, body in server.seen] == ["translate"]


def test_long_texts_are_cut_as_by_a_translator(server):
    text = "Um dois três, quatro cinco seis, sete oito nove. Outra frase aqui."
    with Client(server.url) as client:
        translations, scores = client.translate([text])
    assert translations == [text.upper()]
    read = [
        text
        for _, _, body in server.seen
        if body["signature_name"] == "translate"
        for text in body["inputs"]["text"]
    ]
    assert len(read) > 2 and all(len(part.split()) <= 7 for part in read)
    # The mean over tokens, of which each part has its words and the end.
    words = [len(part.split()) for part in read]
    tokens = np.array(words) + 1
    assert scores[0] == pytest.approx(-(tokens * words).sum() / tokens.sum())


@pytest.mark.parametrize("told", [429, 502, 503, "reset"])
def test_what_passes_is_tried_again(server, told):
    server.before = [told]
    with Client(server.url) as client:
        assert client.answers("translate", {"text": ["a"]})["translation"] == b"A"
    assert len(server.seen) == 2


def test_it_gives_up_at_last(server):
    server.before = [503] * 20
    with Client(server.url) as client, pytest.raises(ServerError) as error:
        client.answers("translate", {"text": ["a"]})
    assert len(server.seen) == 5
    assert error.value.code == 503
    assert str(error.value) == f"{server.url}: told to say 503 (HTTP 503)"


@pytest.mark.parametrize("told", [400, 404, 500, 504])
def test_what_does_not_pass_is_not_tried_again(server, told):
    server.before = [told]
    with Client(server.url) as client, pytest.raises(ServerError, match=str(told)):
        client.answers("translate", {"text": ["a"]})
    assert len(server.seen) == 1


def test_another_kind_of_server(server):
    server.before = ["page"]
    with Client(server.url) as client, pytest.raises(ServerError) as error:
        client.answers("translate", {"text": ["a"]})
    assert "no server of TensorFlow's REST API (HTTP 200)" in str(error.value)


def test_nobody_there():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with (
        Client(f"http://127.0.0.1:{port}") as client,
        pytest.raises(ServerError) as error,
    ):
        client("a")
    assert str(error.value) == (
        f"http://127.0.0.1:{port}: cannot be reached (Connection refused); is a server "
        "there? Start one with: tfxformer serve"
    )


def test_no_answer_in_time(server):
    server.delay = 1.0
    with Client(server.url, timeout=0.1) as client, pytest.raises(ServerError) as error:
        client.answers("translate", {"text": ["a"]})
    assert "no answer in 0.1 seconds" in str(error.value)


def test_an_error_ends_a_batch(server):
    server.before = [200, 400]
    server.delay = 0.05
    one_by_one = Client(server.url, batch_size=1, in_flight=1)
    with one_by_one as client, pytest.raises(ServerError, match="told to say 400"):
        client(["a"] + [str(i) for i in range(200)])
    assert len(server.seen) < 20


def test_many_at_once_by_asyncio(server):
    async def ask(client):
        texts = [[f"texto {i}"] for i in range(50)]
        return await asyncio.gather(*(client.translate_async(text) for text in texts))

    with Client(server.url, in_flight=8) as client:
        found = asyncio.run(ask(client))
    assert [translations for translations, _ in found] == [
        [f"TEXTO {i}"] for i in range(50)
    ]


def test_headers_versions_and_passwords(server):
    url = server.url.replace("//", "//ana:a%20b@") + "/v1/models/m%20x/versions/3"
    with Client(url, headers={"X-Key": "k"}) as client:
        client.answers("count", {"text": ["a"]})
        assert (client.model, client.version) == ("m x", 3)
    path, headers, _ = server.seen[0]
    assert path == "/v1/models/m%20x/versions/3:predict"
    assert headers["X-Key"] == "k"
    assert base64.b64decode(headers["authorization"].split()[1]) == b"ana:a b"


@pytest.mark.parametrize(
    "url",
    [
        *("", "localhost:8501", "ftp://a:1", "http://", "grpc://host", "http://a:1/x"),
        *("http://a:x", "http://a/v1/models/", "http://a/v1/models/m/versions/x"),
        *("http://a/v1/models/m?x=1", "http://[", "grpc://host:70000"),
    ],
)
def test_addresses_that_are_none(url):
    with pytest.raises(UserError, match="no server's address; write http://HOST:8501"):
        Client(url)


@given(st.text())
def test_no_text_has_more_tokens_than_that(tokenizers, text):
    for tokenizer in tokenizers:
        (ids,) = tokenizer.tokenize([text]).to_list()
        assert len(ids) <= client._most_tokens(text)


@pytest.fixture(scope="module")
def tokenizers():
    from tfxformer import Tokenizer

    lines = ["um gato preto", "a black cat", "Straße ﬁ ﷺ"] * 30
    return [Tokenizer.train(lines, vocab_size=300, casing=c) for c in ("keep", "lower")]


@pytest.fixture
def translate(command):
    """`tfxformer translate` with arguments: its code, answer and last line."""

    def run(*args):
        out, err, code = command("translate", *args)
        return code, out, (err.splitlines() or [""])[-1]

    return run


def test_the_command_translates_through_a_server(server, translate, tmp_path):
    assert translate("--server", server.url, "um gato") == (0, "UM GATO\n", "")
    file = tmp_path / "texts"
    file.write_text("um gato\n\numa gata. Um rato.\n")
    assert translate("--server", server.url, "-i", file, "--scores") == (
        0,
        "-2.0000\tUM GATO\n0.0000\t\n-2.0000\tUMA GATA. UM RATO.\n",
        "",
    )


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (["--model", "m", "--server", "http://a:1"], "give --model, a run folder or"),
        (["--server", "http://a:1", "--beam", "4"], "--server: how its model decodes"),
        (["--server", "http://a:1", "--xla"], "--server: how its model decodes was"),
        (["--server", "a:1"], "a:1: no server's address; write http://HOST:8501"),
    ],
)
def test_the_command_with_wrong_input(translate, args, error):
    code, out, line = translate(*args, "um gato")
    assert (code, out) == (1, "")
    assert line.startswith(f"tfxformer: error: {error}")
