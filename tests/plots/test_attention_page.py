"""The weights of a translation, and the page that shows them."""

import html.parser
import json
import re
import shutil

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tfxformer import Transformer, Translator
from tfxformer.errors import UserError
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
    deep = Transformer(
        num_layers=3,
        d_model=16,
        num_heads=2,
        dff=32,
        input_vocab_size=size,
        target_vocab_size=size,
        norm=norm,
        max_length=12,
    )
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
    assert all(
        np.isfinite(maps.of_kind(kind)[2]).all() for kind in ("encoder", "cross")
    )


# --- The page ---


def shares(*shape):
    raw = np.random.default_rng(3).random(shape) ** 4
    return raw / raw.sum(-1, keepdims=True)


GIVEN = shares(2, 3, 4, 4)


class Tags(html.parser.HTMLParser):
    """The tags of a page, and the text of its data."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.data = [], None
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, text):
        if self.tags and self.tags[-1][1].get("id") == "data" and self.data is None:
            self.data = json.loads(text)


def test_no_text_becomes_a_part_of_the_page():
    plain = Tags(AttentionPage(["a"], ["a"], [[[[1]]]]).html)
    for title in EVIL:
        page = AttentionPage(EVIL, EVIL, shares(1, 1, 7, 7), title).html
        found = Tags(page)
        assert found.tags == plain.tags
        assert (found.data["title"], found.data["queries"]) == (title, EVIL)


def test_it_loads_nothing_and_is_itself_in_a_frame(tmp_path):
    page = AttentionPage(TARGET, SOURCE, GIVEN)
    assert not re.search(
        r"https?:|//\w|@import|url\(|\bsrc=|\bhref=|fetch|import\(", page.html
    )
    ((_, frame),) = Tags(page._repr_html_()).tags
    assert frame["srcdoc"] == page.html and frame["sandbox"] == "allow-scripts"
    assert page.save(tmp_path / "a.html").read_text("utf-8") == page.html
    with pytest.raises(UserError, match=r"none/a\.html: No such file"):
        page.save(tmp_path / "none" / "a.html")


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
    wrong = []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox"]
        )
        tab = browser.new_context(
            offline=True, color_scheme=scheme, viewport={"width": 360, "height": 640}
        ).new_page()
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.on("console", lambda message: wrong.append(message.text))
        tab.on("request", lambda asked: wrong.append(asked.url))
        tab.goto(path.as_uri())
        assert wrong == [path.as_uri()]

        def percents(side):
            return tab.locator(f"#{side} small").all_inner_texts()

        assert tab.title() == tab.inner_text("h1") == EVIL[0]
        assert tab.evaluate("document.documentElement.scrollWidth") <= 360
        # At first the first token, the last layer, the mean of its heads.
        assert percents("keys") == rounded(GIVEN[1].mean(0)[0])
        tab.hover("#queries button:nth-child(3)")
        mean = GIVEN[1].mean(0)
        assert percents("keys") == rounded(mean[2])
        most = int(mean[2].argmax())
        says = f"▁cat reads {SOURCE[most]} {rounded(mean[2])[most]}"
        assert tab.inner_text("#says").startswith(says)
        tab.hover("#keys button:nth-child(2)")
        assert percents("queries") == rounded(mean[:, 1])
        assert tab.inner_text("#says").startswith("▁gato is read by ")

        tab.select_option("#layer", "1")
        tab.select_option("#head", "2")
        assert percents("queries") == rounded(GIVEN[0, 1, :, 1])
        tab.select_option("#layer", "0")
        tab.click("summary")
        cells = np.array(tab.locator("td").all_inner_texts(), float).reshape(4, 4)
        assert_allclose(cells, 100 * GIVEN[:, 1].mean(0), atol=0.06)

        # Each row is one stop of the Tab key; where letters run from the right,
        # "forward" is to the left.
        tab.focus("#head")
        tab.keyboard.press("Tab")
        for key, row in [("ArrowLeft", 1), ("End", 3), ("ArrowLeft", 3), ("Home", 0)]:
            tab.keyboard.press(key)
            assert percents("keys") == rounded(GIVEN[:, 1].mean(0)[row])
        tab.keyboard.press("Tab")
        tab.keyboard.press("ArrowRight")
        assert tab.evaluate("document.activeElement.innerText").startswith("▁preto")
        rows = tab.get_by_role("toolbar", name="Tokens that read (queries)")
        assert rows.get_by_role("button").count() == 4

        # Letters stand out from their button.
        colours = tab.eval_on_selector_all("button", BRIGHTNESS)
        least, most = np.sort(np.array(colours), axis=1).T
        assert (most - least > 0.4).all()
        assert len(wrong) == 1
        browser.close()


def rounded(row):
    return ["<1%" if 0.0005 < x < 0.005 else f"{100 * x:.0f}%" for x in row]


# The brightness of an element's letters and of what is behind them, from 0 to 1.
BRIGHTNESS = """all => all.map(element => {
  const canvas = document.createElement("canvas").getContext("2d");
  const style = getComputedStyle(element);
  return [style.color, style.backgroundColor].map(colour => {
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = canvas.getImageData(0, 0, 1, 1).data;
    return (0.3 * r + 0.59 * g + 0.11 * b) / 255;
  });
})"""
