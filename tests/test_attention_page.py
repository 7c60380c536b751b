"""The page of attention: what is in it, and what a browser makes of it."""

import base64
import html
import html.parser
import json
import re
import shutil

import numpy as np
import pytest

from tfxformer.attention_page import AttentionPage, attention_html
from tfxformer.errors import UserError

SOURCE = ["▁o", "▁gato", "▁preto", "</s>"]
TARGET = ["▁the", "▁black", "▁cat", "</s>"]
# What would end a script or a tag, or turn the text around it.
EVIL = [
    *["</script><script>alert(1)</script>", "<!--", "]]>", "<b onclick='x'>", '"', "'"],
    *["&lt;", "\u2028", "\u202eabc", "\x00", "\n", "\\u003c", "{{data}}", "$&", ""],
]


def weights(*shape, seed=0):
    raw = np.random.default_rng(seed).random(shape) ** 4
    return raw / raw.sum(-1, keepdims=True)


class Elements(html.parser.HTMLParser):
    """The elements of a page, with their attributes and the text in them."""

    def __init__(self, page):
        super().__init__()
        self.found = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes), []))

    def handle_data(self, text):
        if self.found:
            self.found[-1][2].append(text)

    def all(self, tag):
        return [
            (given, "".join(text)) for name, given, text in self.found if name == tag
        ]


def data_of(page):
    """What the page's script reads."""
    (text,) = [
        text
        for given, text in Elements(page).all("script")
        if given.get("id") == "data"
    ]
    return json.loads(text)


def test_all_weights_are_in_it():
    given = weights(2, 3, 4, 4)
    data = data_of(attention_html(TARGET, SOURCE, given))
    assert (data["queries"], data["keys"], data["shape"]) == (
        TARGET,
        SOURCE,
        [2, 3, 4, 4],
    )
    kept = np.frombuffer(base64.b64decode(data["weights"]), "<u2").reshape(given.shape)
    np.testing.assert_allclose(kept / 65535, given, atol=1e-5)


def test_what_is_no_share_is_none():
    data = data_of(attention_html(["a"], [*"xyz"], [[[[np.nan, -1, 1.0001]]]]))
    kept = np.frombuffer(base64.b64decode(data["weights"]), "<u2")
    assert kept.tolist() == [0, 0, 65535]


@pytest.mark.parametrize("title", ["", *EVIL])
def test_no_text_becomes_a_part_of_the_page(title):
    page = attention_html(EVIL, EVIL, weights(1, 1, len(EVIL), len(EVIL)), title)
    plain = attention_html(["a"], ["a"], weights(1, 1, 1, 1))
    tags = [(tag, sorted(given)) for tag, given, _ in Elements(page).found]
    assert tags == [(tag, sorted(given)) for tag, given, _ in Elements(plain).found]
    tokens = data_of(page)["queries"]
    assert tokens[:6] == EVIL[:6]
    assert tokens[7:11] == ["\\u2028", "\\u202eabc", "\\u0000", "\\u000a"]
    assert tokens[-1] == "∅"
    (shown,) = Elements(page).all("title")
    if title.isprintable():
        assert shown[1].strip("\n") == (title or "Attention")


def test_it_loads_nothing():
    page = attention_html(TARGET, SOURCE, weights(1, 1, 4, 4))
    assert not re.search(
        r"https?:|//\w|@import|url\(|\bsrc=|\bhref=|fetch|import\(", page
    )
    assert not [given for tag, given, _ in Elements(page).found if "src" in given]


@pytest.mark.parametrize(
    ("dark", "theme"), [(None, "auto"), (True, "dark"), (False, "light")]
)
def test_themes(dark, theme):
    page = attention_html(TARGET, SOURCE, weights(1, 1, 4, 4), dark=dark)
    ((root, _),) = Elements(page).all("html")
    assert root["data-theme"] == theme


def test_a_row_begins_where_its_script_does():
    arabic = ["▁القطة", "▁شربت", ".", "</s>"]
    page = attention_html(arabic, TARGET, weights(1, 1, 4, 4))
    rows = {
        given["id"]: given["dir"]
        for given, _ in Elements(page).all("div")
        if "id" in given
    }
    assert rows == {"queries": "rtl", "keys": "ltr"}
    page = attention_html(["▁שלום"], ["1", "。"], weights(1, 1, 1, 2))
    assert 'id="queries"' in page and page.count('dir="rtl"') == 1


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((4, 4), "4 x 4 pieces"),
        ((1, 4, 4), "4 x 4 pieces"),
        ((1, 1, 4, 5), "4 x 4 pieces"),
        ((1, 1, 5, 4), "4 x 4 pieces"),
        ((0, 1, 4, 4), "nothing to show"),
    ],
)
def test_tokens_must_be_as_many_as_the_weights(shape, message):
    with pytest.raises(ValueError, match=message):
        attention_html(TARGET, SOURCE, np.ones(shape))
    with pytest.raises(ValueError, match="nothing to show"):
        attention_html([], SOURCE, np.ones((1, 1, 0, 4)))


def test_a_notebook_shows_it_in_a_frame_that_reaches_nothing(tmp_path):
    page = attention_html(EVIL, SOURCE, weights(1, 2, len(EVIL), 4), "a & b")
    shown = AttentionPage(page)
    ((frame, inside),) = Elements(shown._repr_html_()).all("iframe")
    assert frame["srcdoc"] == page and inside == ""
    assert frame["sandbox"] == "allow-scripts" and frame["title"]
    assert "<script" not in shown._repr_html_()
    assert repr(shown) == f"AttentionPage({len(page):,} characters)"
    assert shown.save(tmp_path / "a.html") == tmp_path / "a.html"
    assert (tmp_path / "a.html").read_text("utf-8") == page
    with pytest.raises(UserError, match=r"none/a\.html: No such file"):
        shown.save(tmp_path / "none" / "a.html")


# --- In a browser ---


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is missing")
    with playwright.sync_playwright() as started:
        options = ["--no-sandbox"]  # of which a container has none
        opened = started.chromium.launch(executable_path=program, args=options)
        yield opened
        opened.close()


@pytest.fixture
def visit(browser, tmp_path):
    """Opens a page, offline; what goes wrong in it fails the test."""
    wrong, contexts = [], []

    def visit(page, **options):
        (tmp_path / "page.html").write_text(page, encoding="utf-8")
        context = browser.new_context(offline=True, **options)
        contexts.append(context)
        tab = context.new_page()
        tab.set_default_timeout(20_000)
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.on("console", lambda message: wrong.append(message.text))
        tab.on("dialog", lambda dialog: (wrong.append("dialog"), dialog.dismiss()))
        tab.on(
            "request",
            lambda asked: (
                wrong.append(asked.url) if "page.html" not in asked.url else None
            ),
        )
        tab.goto((tmp_path / "page.html").as_uri())
        return tab

    yield visit
    for context in contexts:
        context.close()
    assert not wrong


def percents(tab, side):
    return tab.locator(f"#{side} small").all_inner_texts()


def rounded(shares):
    return ["<1%" if 0.0005 < x < 0.005 else f"{100 * x:.0f}%" for x in shares]


GIVEN = weights(2, 3, 4, 4, seed=3)


@pytest.mark.slow
def test_pointing_at_a_token_shows_what_it_reads(visit):
    tab = visit(attention_html(TARGET, SOURCE, GIVEN))
    # At first: the first token, the last layer, the mean of its heads.
    assert percents(tab, "keys") == rounded(GIVEN[1].mean(0)[0])
    tab.hover("#queries button:nth-child(3)")
    mean = GIVEN[1].mean(0)
    assert percents(tab, "keys") == rounded(mean[2])
    most = int(mean[2].argmax())
    says = f"▁cat reads {SOURCE[most]} {100 * mean[2, most]:.0f}%"
    assert tab.inner_text("#says").startswith(says)
    # The other way round: by whom it is read.
    tab.hover("#keys button:nth-child(2)")
    assert percents(tab, "queries") == rounded(mean[:, 1])
    assert tab.inner_text("#says").startswith("▁gato is read by ")
    # What has more is farther from the paper.
    shades = tab.eval_on_selector_all(
        "#queries button", "all => all.map(b => b.style.getPropertyValue('--share'))"
    )
    assert np.argsort([float(x[:-1]) for x in shades]).tolist() == (
        np.argsort(mean[:, 1]).tolist()
    )


@pytest.mark.slow
def test_layers_and_heads_to_choose(visit):
    tab = visit(attention_html(TARGET, SOURCE, GIVEN))
    assert tab.locator("#layer option").all_inner_texts() == ["mean of all 2", "1", "2"]
    tab.select_option("#layer", "1")
    tab.select_option("#head", "2")
    assert percents(tab, "keys") == rounded(GIVEN[0, 1, 0])
    tab.select_option("#layer", "0")
    assert percents(tab, "keys") == rounded(GIVEN[:, 1].mean(0)[0])
    tab.click("summary")
    cells = tab.locator("td").all_inner_texts()
    np.testing.assert_allclose(
        np.array(cells, float).reshape(4, 4), 100 * GIVEN[:, 1].mean(0), atol=0.06
    )
    one = visit(attention_html(TARGET, SOURCE, GIVEN[:1, :1]))
    assert one.locator("#head option").all_inner_texts() == ["1"]
    assert percents(one, "keys") == rounded(GIVEN[0, 0, 0])


@pytest.mark.slow
def test_keys_alone_are_enough(visit):
    arabic = ["▁القطة", "▁شربت", "▁الحليب", "</s>"]
    tab = visit(attention_html(TARGET, arabic, GIVEN[:1, :1]))
    shares = GIVEN[0, 0]
    for _ in range(3):  # two choices, then the first row
        tab.keyboard.press("Tab")
    for key, row in [("ArrowRight", 1), ("End", 3), ("ArrowRight", 3), ("Home", 0)]:
        tab.keyboard.press(key)
        assert percents(tab, "keys") == rounded(shares[row])
    tab.keyboard.press("Tab")  # one stop a row
    # There "forward" is to the left.
    for key, column in [("ArrowLeft", 1), ("ArrowRight", 0), ("End", 3)]:
        tab.keyboard.press(key)
        assert percents(tab, "queries") == rounded(shares[:, column])
    pressed = tab.locator("button[aria-pressed=true]").all_inner_texts()
    assert [text.split("\n")[0] for text in pressed] == ["</s>"]
    assert tab.locator("#says[role=status]").count() == 1
    named = tab.get_by_role("toolbar", name="Tokens that read (queries)")
    assert named.get_by_role("button").count() == 4


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_letters_stand_out_in_both_themes_on_a_phone(visit, scheme):
    shares = np.linspace(0, 1, 21)[None, None, None]
    tokens = [f"▁token{number}" for number in range(21)]
    options = {"color_scheme": scheme, "viewport": {"width": 360, "height": 640}}
    tab = visit(attention_html(["▁a"], tokens, shares), **options)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360
    colours = tab.eval_on_selector_all(
        "#keys button",
        """all => all.map(button => {
          const style = getComputedStyle(button);
          const canvas = document.createElement("canvas")
            .getContext("2d", { willReadFrequently: true });
          return [style.color, style.backgroundColor].map(colour => {
            canvas.fillStyle = colour;
            canvas.fillRect(0, 0, 1, 1);
            return [...canvas.getImageData(0, 0, 1, 1).data];
          });
        })""",
    )
    pixels = np.array(colours)[:, :, :3] / 255
    linear = np.where(
        pixels <= 0.04045, pixels / 12.92, ((pixels + 0.055) / 1.055) ** 2.4
    )
    least, most = np.sort(linear @ (0.2126, 0.7152, 0.0722), axis=1).T
    assert ((most + 0.05) / (least + 0.05) > 4.5).all()
    paper = linear[:, 1] @ (0.2126, 0.7152, 0.0722)
    assert (np.diff(paper) * (1 if scheme == "dark" else -1) > 0).all()
    sizes = tab.eval_on_selector_all(
        "button", "all => all.map(b => b.getBoundingClientRect().height)"
    )
    assert min(sizes) >= 44  # room for a finger


@pytest.mark.slow
def test_any_text_is_shown_as_it_is(visit):
    page = attention_html(EVIL, EVIL, weights(1, 1, len(EVIL), len(EVIL)), EVIL[0])
    tab = visit(page)
    assert tab.inner_text("h1") == EVIL[0]
    shown = tab.locator("#queries bdi").all_inner_texts()
    assert shown[:6] == EVIL[:6] and shown[8] == "\\u202eabc"
    assert (
        visit(attention_html(["a"], ["b"], [[[[1.0]]]], "{{data}}")).title()
        == "{{data}}"
    )


@pytest.mark.slow
def test_it_works_within_a_notebook(visit):
    page = AttentionPage(attention_html(TARGET, SOURCE, GIVEN))
    tab = visit(f"<!doctype html><p>a notebook</p>{page._repr_html_()}")
    frame = tab.frame_locator("iframe")
    frame.locator("#queries button").nth(2).hover()
    assert frame.locator("#keys small").all_inner_texts() == rounded(
        GIVEN[1].mean(0)[2]
    )


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_wrong(visit, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    tab = visit(
        attention_html(EVIL, SOURCE, weights(2, 2, len(EVIL), 4)), color_scheme=scheme
    )
    tab.click("summary")
    found = axe.Axe().run(tab)
    assert found.violations_count == 0, found.generate_report()
