"""The page in a browser: a file that opens by itself."""

import json

import node
import pytest
from tabs import opened

from tfxformer.page import page
from tfxformer.translator import Translator

TEXT = "O gato bebe. A casa é azul!"


def rounded(result):
    """Node.js and the browser may have different last digits of an exponential."""
    text = json.dumps(result)
    return json.loads(text, parse_float=lambda digits: round(float(digits), 12))


def test_a_file_opens_and_translates_offline(browser, tmp_path):
    tiny, path = node.tiny(), tmp_path / "page.html"
    path.write_text(page(tiny, "<b>tiny</b>"), "utf-8")
    tab, events = opened(browser, path)
    (ours,) = node.results(tiny, {"type": "translate", "text": TEXT})
    theirs = tab.evaluate("text => tfxformer.translate(text)", TEXT)
    assert rounded(theirs) == rounded(ours)
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


def test_a_file_that_ends_early_says_so(browser, tmp_path):
    path, text = tmp_path / "page.html", page(node.tiny())
    path.write_text(text[:-1000], "utf-8")
    tab, _ = opened(browser, path)
    tab.get_by_text("This file is incomplete").wait_for()


@pytest.mark.slow
def test_the_shipped_model_in_a_browser(browser, command, tmp_path):
    path = tmp_path / "page.html"
    assert command("demo", "--to", path)[::2] == (f"{path}\n", 0)
    tab, events = opened(browser, path)
    for text in ("Bom dia!", "O gato preto bebeu o leite. Quanto custa este livro?"):
        found = tab.evaluate("text => tfxformer.translate(text)", text)
        assert found["translation"] == Translator.load()(text)
    assert events == []
