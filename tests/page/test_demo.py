"""`tfxformer demo`: the page at an address, or in a file."""

import os
import re
import signal
import socket
import threading
import time
import urllib.request
from pathlib import Path

import node
import pytest

import tfxformer.page
from tfxformer import corpora
from tfxformer.config import load_config
from tfxformer.page import page
from tfxformer.training.run import Run
from tfxformer.translator import Translator

pytestmark = pytest.mark.usefixtures("loaded_once")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run folder with what a command reads of it."""
    run = Run(tmp_path_factory.mktemp("demo") / "mine")
    run.path.mkdir()
    sizes = {"num_layers": 1, "d_model": 16, "num_heads": 4, "dff": 32}
    load_config("tiny", overrides=[{"model": sizes}]).save(run.config_file)
    tiny = node.tiny(num_layers=1, norm="pre")
    tiny.tokenizer.save(run.tokenizer_file)
    tiny.transformer.save_weights(run.weights_file("best"))
    return run.path


@pytest.fixture
def while_served(command, capfd, monkeypatch):
    """Runs `tfxformer demo` until a function has seen the page's address."""

    def serve(visit, number, *args):
        found = []

        def watch():
            out, ends = "", time.monotonic() + 60
            while not out.endswith("\n") and time.monotonic() < ends:
                time.sleep(0.02)
                out += capfd.readouterr().out
            try:
                found.append(visit(out.removesuffix("\n")))
            finally:
                os.kill(os.getpid(), number)

        handler = signal.getsignal(signal.SIGTERM)
        thread = threading.Thread(target=watch)
        thread.start()
        try:
            out, _, code = command("demo", *args)
        finally:
            thread.join()
            signal.signal(signal.SIGTERM, handler)
        assert out == ""  # besides the address
        return found[0], code

    return serve


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 0), ("SIGINT", 130)])
def test_the_page_is_served_to_this_machine_alone_until_a_signal(
    while_served, run, name, code
):
    def visit(address):
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", address)
        with urllib.request.urlopen(address) as answer:
            assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
            html = answer.read().decode()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(address + "other")
        port = urllib.parse.urlsplit(address).port
        # A server on all addresses would answer on this one, too.
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port))
        return html

    number = getattr(signal, name)
    html, ended = while_served(visit, number, "--port", 0, "--run", run)
    assert ended == code and html == page(Translator.load(run), "mine")


def test_a_reader_who_leaves_while_the_page_loads_does_not_disturb_the_server(
    while_served, run, capfd, monkeypatch
):
    large = 30_000_000 * "x"  # more than a connection holds
    monkeypatch.setattr(tfxformer.page, "page", lambda *_: large)

    def visit(address):
        port = urllib.parse.urlsplit(address).port
        with socket.create_connection(("127.0.0.1", port)) as reader:
            reader.sendall(b"GET / HTTP/1.0\r\n\r\n")
            reader.recv(10)
        with urllib.request.urlopen(address) as answer:
            assert len(answer.read()) == len(large)
        return capfd.readouterr().err

    err, _ = while_served(visit, signal.SIGTERM, "--port", 0, "--run", run)
    assert "Traceback" not in err


def test_the_page_is_written_into_a_file(command, run, tmp_path):
    path = tmp_path / "page.html"
    out, err, code = command("demo", "--to", path, "--run", run)
    assert (out, code) == (f"{path}\n", 0), err
    assert path.read_text("utf-8") == page(Translator.load(run), "mine")


@pytest.mark.slow
def test_a_trained_run_and_its_export_have_the_page_of_the_same_model(
    command, run_folder, exported, tmp_path
):
    htmls = []
    for option, model in (("--run", run_folder), ("--model", exported)):
        path = tmp_path / "page.html"
        out, err, code = command("demo", option, model, "--to", path)
        assert (out, code) == (f"{path}\n", 0), err
        htmls.append(path.read_text("utf-8"))
    assert htmls[0].replace('"name":"small"', "") == htmls[1].replace(
        f'"name":"{exported.parent.name}"', ""
    )
    texts = [pair.source for pair in corpora.load("phrasebook", "test")[0][:50]]
    asked = [{"type": "translate", "text": text} for text in texts]
    answers = node.ask_page(htmls[0], *asked)
    translations = [answer["result"]["translation"] for answer in answers]
    python = node.rounded(Translator(*Run.open(run_folder).load()))
    assert translations == python(texts)


def changed(**values):
    """Changes values of the package, such as what the page knows."""
    package = tfxformer.page
    return lambda patch: [patch.setattr(package, *item) for item in values.items()]


NOTHING = changed()


@pytest.mark.parametrize(
    ("args", "change", "message"),
    [
        ("--model none", NOTHING, "none: there is no such run folder"),
        ("--model empty", NOTHING, "empty: not a run folder, config.yaml is missing"),
        ("--model other", NOTHING, "other: a SavedModel that tfxformer did not export"),
        ("--to none/page.html", NOTHING, "--to none/page.html: cannot be written; is "),
        ("--to empty", NOTHING, "--to empty: is a folder; name a file"),
        (
            "--run RUN",
            changed(MOST_BYTES=10_000),
            "the weights have 0 MB in float16, and a page holds at most 0 MB: choose a "
            "smaller model",
        ),
        (
            "--run RUN",
            changed(ACTIVATIONS=("swish",)),
            "activation = 'relu': the page knows only swish: choose another model",
        ),
    ],
)
def test_what_has_no_page_ends_with_one_line(
    command, run, tmp_path, monkeypatch, args, change, message
):
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("other").mkdir()
    Path("other", "saved_model.pb").touch()
    change(monkeypatch)
    words = [run if word == "RUN" else word for word in args.split()]
    words += [] if "--to" in words else ["--to", "page.html"]
    out, err, code = command("demo", *words)
    assert (out, code, len([*tmp_path.iterdir()])) == ("", 1, 2)
    assert err.splitlines()[-1].startswith(f"tfxformer: error: {message}")


def test_a_port_that_is_in_use_is_told_before_the_model_loads(command):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        out, err, code = command("demo", "--port", port)
    message = f"--port {port}: Address already in use: choose another one, or 0 for a "
    assert (out, code) == ("", 1) and err.startswith(f"tfxformer: error: {message}")
