"""The weights of a translation, and the page that shows them."""

import html
import json
import re
import shutil

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tfxformer import Transformer, Translator
from tfxformer.plots.attention_maps import attention_maps
from tfxformer.plots.attention_page import AttentionPage

SENTENCE = "O gato preto bebeu o leite."
SOURCE = ["▁o", "▁gato", "▁preto", "</s>"]
TARGET = ["▁القطة", "▁black", "▁cat", "</s>"]
# What could end a script or a tag, or be taken for a part of the page.
EVIL = ["</script><script>alert(1)</script>", "<!--", '"', "'", "&lt;", "{{data}}", ""]


# --- The weights ---


@pytest.fixture(scope="module")
def maps(translator):
    return attention_maps(translator, SENTENCE)


def test_maps_are_of_the_translation(translator, maps):
    answer = translator.explain(SENTENCE)
    assert maps.source_tokens == answer.source_tokens
    assert maps.target_tokens == answer.target_tokens
    assert maps.target_inputs == ["<s>", *maps.target_tokens[:-1]]
    assert_allclose(maps.cross, answer.attention, atol=1e-5)
    for kind in ("encoder", "decoder", "cross"):
        queries, keys, weights = maps.of_kind(kind)
        assert weights.shape[2:] == (len(queries), len(keys))
        assert_allclose(weights.sum(-1), 1, atol=1e-5)
    future = np.triu(np.ones(maps.decoder.shape[2:], bool), 1)
    assert (maps.decoder[:, :, future] == 0).all()


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_every_layer_is_what_the_model_computes(translator, norm, monkeypatch):
    """The same weights, seen where the model itself computes them."""
    from tfxformer.layers import attention

    size = translator.tokenizer.vocab_size
    sizes = {"num_layers": 3, "d_model": 16, "num_heads": 2, "dff": 32}
    vocabulary = {"input_vocab_size": size, "target_vocab_size": size}
    deep = Transformer(**sizes, **vocabulary, norm=norm, max_length=12)
    maps = attention_maps(Translator(translator.tokenizer, deep), "Um gato")
    seen = []
    plain = attention.scaled_dot_product_attention

    def watched(*args):
        output, weights = plain(*args)
        seen.append(np.asarray(weights)[0])
        return output, weights

    monkeypatch.setattr(attention, "scaled_dot_product_attention", watched)
    ids = translator.tokenizer.processor.piece_to_id
    source, target_in = ids(maps.source_tokens), ids(maps.target_inputs)
    deep((np.array([source]), np.array([target_in])), training=False)
    assert len(seen) == 9  # three of the encoder, then self and cross in turn
    assert_allclose(maps.encoder, np.stack(seen[:3]), atol=1e-6)
    assert_allclose(maps.decoder, np.stack(seen[3::2]), atol=1e-6)
    assert_allclose(maps.cross, np.stack(seen[4::2]), atol=1e-6)


@pytest.mark.parametrize("text", ["", "palavra " * 300, "😀 مرحبا"])
def test_odd_texts_have_maps(translator, text):
    maps = attention_maps(translator, text)
    assert len(maps.source_tokens) <= translator.max_length
    assert np.isfinite(maps.encoder).all() and np.isfinite(maps.cross).all()


# --- The page ---


def shares(*shape):
    raw = np.random.default_rng(3).random(shape) ** 4
    return raw / raw.sum(-1, keepdims=True)


GIVEN = shares(2, 3, 4, 4)


def test_no_text_becomes_a_part_of_the_page_and_it_loads_nothing(tmp_path):
    plain = AttentionPage(["a"], ["a"], [[[[1]]]]).html
    for title in EVIL:
        page = AttentionPage(EVIL, EVIL, shares(1, 1, 7, 7), title)
        assert page.html.count("<") == plain.count("<")
        found = json.loads(re.search(r'id="data">(.*)</script>', page.html)[1])
        assert (found["title"], found["queries"]) == (title, EVIL)
    assert not re.search(r"https?:|//\w|@import|url\(|src=|href=|fetch|import\(", plain)
    frame = page._repr_html_()  # what a notebook shows
    assert html.unescape(re.search('srcdoc="([^"]*)"', frame)[1]) == page.html
    assert 'sandbox="allow-scripts"' in frame
    assert page.save(tmp_path / "a.html").read_text("utf-8") == page.html


@pytest.mark.parametrize("shape", [(4, 4), (1, 4, 4), (1, 1, 4, 5), (0, 1, 4, 4)])
def test_tokens_must_be_as_many_as_the_weights(shape):
    with pytest.raises(ValueError, match="4 x 4 tokens"):
        AttentionPage(TARGET, SOURCE, np.ones(shape))


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_a_browser(tmp_path, scheme):
    sync_api = pytest.importorskip("playwright.sync_api")
    program = shutil.which("chromium") or pytest.skip("chromium is missing")
    path = AttentionPage(TARGET, SOURCE, GIVEN, EVIL[0]).save(tmp_path / "page.html")
    events = []
    with sync_api.sync_playwright() as playwright:
        arguments = {"executable_path": program, "args": ["--no-sandbox"]}
        tab = playwright.chromium.launch(**arguments).new_page(
            offline=True, color_scheme=scheme, viewport={"width": 360, "height": 640}
        )
        for event in ("pageerror", "console", "request"):
            tab.on(event, lambda found: events.append(found))
        tab.goto(path.as_uri())
        assert tab.title() == tab.inner_text("h1") == EVIL[0]
        assert tab.evaluate("document.documentElement.scrollWidth") <= 360

        def shown(side):
            return tab.locator(f"#{side} small").all_inner_texts()

        # At first the first token, the last layer, the mean of its heads.
        mean = GIVEN[1].mean(0)
        assert shown("keys") == rounded(mean[0])
        tab.hover("#queries button:nth-child(3)")
        assert shown("keys") == rounded(mean[2])
        most = int(mean[2].argmax())
        says = f"▁cat reads {SOURCE[most]} {rounded(mean[2])[most]}"
        assert tab.inner_text("#says").startswith(says)
        tab.hover("#keys button:nth-child(2)")
        assert shown("queries") == rounded(mean[:, 1])
        assert tab.inner_text("#says").startswith("▁gato is read by ")
        tab.select_option("#layer", "1")
        tab.select_option("#head", "2")
        assert shown("queries") == rounded(GIVEN[0, 1, :, 1])
        tab.select_option("#layer", "0")
        tab.click("summary")
        cells = np.array(tab.locator("td").all_inner_texts(), float).reshape(4, 4)
        assert_allclose(cells, 100 * GIVEN[:, 1].mean(0), atol=0.06)

        # Each row is one stop of the Tab key. Where letters run from the right,
        # "forward" is to the left.
        tab.focus("#head")
        tab.keyboard.press("Tab")
        for key, row in [("ArrowLeft", 1), ("End", 3), ("ArrowLeft", 3), ("Home", 0)]:
            tab.keyboard.press(key)
            assert shown("keys") == rounded(GIVEN[:, 1].mean(0)[row])
        tab.keyboard.press("Tab")
        tab.keyboard.press("ArrowRight")
        assert shown("queries") != [*" " * 4]
        named = tab.get_by_role("toolbar", name="Tokens that read (queries)")
        assert named.get_by_role("button").count() == 4
        paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
        assert len(events) == 1  # it asked for itself alone


def rounded(row):
    return ["<1%" if 0.0005 < x < 0.005 else f"{100 * x:.0f}%" for x in row]
