"""The page: what it refuses, and in a browser the file that opens by itself."""

import re

import node
import numpy as np
import pytest
from tabs import opened

from tfxformer.errors import UserError
from tfxformer.page import packing
from tfxformer.page.packing import bundle, page, write_page
from tfxformer.translator import Translator

TEXT = "O gato bebe. A casa é azul!"


def test_a_file_opens_and_translates_offline(browser, tmp_path):
    tiny, path = node.tiny(), tmp_path / "page.html"
    path.write_text(page(tiny, "<b>tiny</b>"), "utf-8")
    tab, events = opened(browser, path)
    (ours,) = node.results(tiny, {"type": "translate", "text": TEXT})
    theirs = tab.evaluate("text => tfxformer.translate(text)", TEXT)
    assert theirs == ours
    assert tab.evaluate("async () => (await tfxformer.ready).name") == "<b>tiny</b>"
    tab.fill("#text", TEXT)
    tab.wait_for_function("seen => translation.value === seen", arg=ours["translation"])
    # An error of the worker is the promise's.
    with pytest.raises(Exception, match="this page takes 2000"):
        tab.evaluate("text => tfxformer.translate(text)", "a" * 2001)
    stopped = """async text => {
        const stop = new AbortController();
        const onEvent = () => stop.abort();
        const options = { onEvent, signal: stop.signal };
        return tfxformer.translate(text, options).catch((error) => error.message);
    }"""
    assert tab.evaluate(stopped, TEXT) == "The translation was stopped."
    assert events == []


@pytest.mark.parametrize("missing", [1000, 1001, 1002, 1003])  # base64 has groups of 4
def test_a_file_that_ends_early_says_so(browser, tmp_path, missing):
    path, text = tmp_path / "page.html", page(node.tiny())
    path.write_text(text[:-missing], "utf-8")
    tab, _ = opened(browser, path)
    tab.get_by_text("This file is incomplete").wait_for()


def test_modules_share_no_names():
    script = bundle("worker.js")
    assert not re.search("^(import|export) ", script, re.MULTILINE)
    order = re.findall(r'^modules\["([\w.]+)"\] = ', script, re.MULTILINE)
    assert order[0] == "matrix.js" and order[-1] == "worker.js" and len(order) == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"activation": "gelu"}, "activation = 'gelu': the page does not know"),
        ({"num_heads": 1, "d_model": 3}, "d_model = 3: the page needs at least 4"),
    ],
)
def test_settings_that_the_page_does_not_know_are_told(options, message):
    with pytest.raises(UserError, match=message):
        page(node.tiny(**options))


def test_new_settings_are_not_left_out_silently(monkeypatch):
    tiny = node.tiny()
    config = tiny.transformer.config | {"rotary": True}
    monkeypatch.setattr(type(tiny.transformer), "config", config)
    with pytest.raises(UserError, match="rotary = True: the page does not know"):
        page(tiny)


def test_weights_that_do_not_fit_are_told(monkeypatch):
    tiny = node.tiny()
    monkeypatch.setattr(packing, "MOST_BYTES", 10_000)
    with pytest.raises(UserError, match="holds at most 0 MB: choose a smaller model"):
        page(tiny)
    monkeypatch.undo()
    weight = tiny.transformer.encoder.pos_embedding.embedding.embeddings
    weight.assign(np.full(weight.shape, 1e6))
    with pytest.raises(UserError, match="has a weight that float16 cannot hold"):
        page(tiny)


@pytest.mark.slow
def test_the_shipped_model_in_a_browser(browser, tmp_path):
    path = write_page(tmp_path / "page.html")
    tab, events = opened(browser, path)
    for text in ("Bom dia!", "O gato preto bebeu o leite. Quanto custa este livro?"):
        found = tab.evaluate("text => tfxformer.translate(text)", text)
        assert found["translation"] == Translator.load()(text)
    assert events == []
