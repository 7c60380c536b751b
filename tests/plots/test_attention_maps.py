"""Attention of a translation, and the page that shows it."""

import json
import re
import shutil

import numpy as np
import pytest
from keras import ops
from numpy.testing import assert_allclose

from tfxformer import Transformer, Translator
from tfxformer.layers import attention
from tfxformer.plots.attention_maps import attention_maps
from tfxformer.plots.attention_page import attention_page

SOURCE = ["▁o", "▁gato", "▁preto", "</s>"]
TARGET = ["▁القطة", "▁black", "▁cat", "</s>"]
# Tokens that could break the HTML of the page.
EVIL = ["</script><script>alert(1)</script>", "<!--", '"', "'", "&lt;", "{{data}}", ""]


@pytest.fixture(scope="module")
def deep(translator):
    size = translator.tokenizer.vocab_size
    sizes = {"num_layers": 2, "d_model": 8, "num_heads": 2, "dff": 8, "max_length": 12}
    sizes |= {"input_vocab_size": size, "target_vocab_size": size, "norm": "post"}
    return Translator(translator.tokenizer, Transformer(**sizes))


@pytest.mark.parametrize(
    ("model", "text"),
    [("translator", "O gato."), ("deep", "😀 مرحبا"), ("deep", "palavra " * 300)],
)
def test_attention_maps_equal_the_weights_and_probabilities_of_the_model(
    model, text, request, monkeypatch
):
    """The same weights, recorded inside the model."""
    model = request.getfixturevalue(model)
    answer, maps = model.explain(text), attention_maps(model, text)
    inputs = ["<s>", *answer.target_tokens[:-1]]
    seen = []
    plain = attention.scaled_dot_product_attention

    def watched(*args, **options):
        output, weights = plain(*args, **options)
        seen.append(np.asarray(weights)[0])
        return output, weights

    monkeypatch.setattr(attention, "scaled_dot_product_attention", watched)
    ids = model.tokenizer.processor.piece_to_id
    pair = np.array([ids(answer.source_tokens)]), np.array([ids(inputs)])
    logits = model.transformer(pair, training=False)[0]
    assert_allclose(maps["probabilities"], ops.softmax(logits), atol=1e-5)
    layers = len(seen) // 3  # of the encoder, then self- and cross-attention in turn
    for kind, queries, keys, weights in (
        ("encoder", answer.source_tokens, answer.source_tokens, seen[:layers]),
        ("decoder", inputs, inputs, seen[layers::2]),
        ("cross", answer.target_tokens, answer.source_tokens, seen[layers + 1 :: 2]),
    ):
        assert maps[kind][:2] == (queries, keys)
        assert_allclose(maps[kind][2], np.stack(weights), atol=1e-5)


def test_attention_page_escapes_all_text_and_loads_no_resources():
    plain = attention_page(["a"], ["a"], [[1]])
    for title in EVIL:
        page = attention_page(EVIL, EVIL, np.eye(7), title)
        assert page.count("<") == plain.count("<")
        found = json.loads(re.search(r'id="data">(.*)</script>', page)[1])
        assert (found["title"], found["queries"]) == (title, EVIL)
    assert not re.search(r"https?:|//\w|@import|url\(|src=|href=|fetch|import\(", plain)


@pytest.mark.slow
def test_the_attention_page_in_a_browser_shows_the_chosen_layer_head_and_token(
    tmp_path,
):
    sync_api = pytest.importorskip("playwright.sync_api")
    program = shutil.which("chromium") or pytest.skip("chromium is missing")
    given = np.random.default_rng(3).random((2, 3, 4, 4)) ** 4
    given /= given.sum(-1, keepdims=True)
    path = tmp_path / "page.html"
    path.write_text(attention_page(TARGET, SOURCE, given, EVIL[0]), "utf-8")
    events = []
    with sync_api.sync_playwright() as playwright:
        arguments = {"executable_path": program, "args": ["--no-sandbox"]}
        tab = playwright.chromium.launch(**arguments).new_page(
            offline=True, color_scheme="dark", viewport={"width": 360, "height": 640}
        )
        for event in ("pageerror", "console", "request"):
            tab.on(event, lambda found: events.append(found))
        tab.goto(path.as_uri())
        assert tab.title() == tab.inner_text("h1") == EVIL[0]
        assert tab.evaluate("document.documentElement.scrollWidth") <= 360
        paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        assert paper == "rgb(20, 23, 28)"

        def assert_shown(side, row):
            row = ["<1%" if 0.0005 < x < 0.005 else f"{100 * x:.0f}%" for x in row]
            assert tab.locator(f"#{side} small").all_inner_texts() == row

        # The page opens with the first token, the last layer and the mean of its heads.
        mean = given[1].mean(0)
        assert_shown("keys", mean[0])
        tab.hover("#queries button:nth-child(3)")
        assert_shown("keys", mean[2])
        most = SOURCE[mean[2].argmax()]
        assert tab.inner_text("#says").startswith(f"▁cat reads {most}")
        tab.hover("#keys button:nth-child(2)")
        assert_shown("queries", mean[:, 1])
        tab.select_option("#layer", "1")
        tab.select_option("#head", "2")
        assert_shown("queries", given[0, 1, :, 1])
        tab.select_option("#layer", "0")
        tab.locator("td").first.wait_for()
        cells = np.array(tab.locator("td").all_inner_texts(), float).reshape(4, 4)
        assert_allclose(cells, 100 * given[:, 1].mean(0), atol=0.51)
        assert tab.locator("#lines path").count() > 3
        # The Tab key stops once for the rows. In right-to-left text, the left arrow
        # moves forward.
        tab.focus("#head")
        tab.keyboard.press("Tab")
        for key, row in [("ArrowLeft", 1), ("End", 3), ("ArrowLeft", 3), ("Home", 0)]:
            tab.keyboard.press(key)
            assert_shown("keys", given[:, 1].mean(0)[row])
        assert len(events) == 1  # the page loads nothing else
