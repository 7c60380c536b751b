"""What a reader does on the page: text, decoder, beam search, address, pictures."""

import re
from urllib.parse import parse_qs, urlencode
from xml.etree import ElementTree

import node
import pytest
from tabs import opened

from tfxformer.page import page
from tfxformer.special_tokens import END_ID

TEXT = "O gato bebe. A casa é azul!"
LAST = "A casa é azul!"
# Another address before: the same again is no event.
FOLLOW = "hash => { location.hash = ''; location.hash = hash; }"
SHOWN = "text => document.querySelector('#decoder .result')?.textContent === text"


@pytest.fixture(scope="module")
def tiny():
    return node.tiny(max_length=24, num_layers=2)


@pytest.fixture(scope="module")
def path(tiny, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(page(tiny), "utf-8")
    return path


@pytest.fixture(scope="module")
def shared(browser, path):
    return opened(browser, path, viewport={"width": 1200, "height": 12000})


@pytest.fixture
def tab(shared):
    """The page with its first sentence; no test leaves an error in the console."""
    tab, events = shared
    events.clear()
    go(tab, text=TEXT)
    yield tab
    assert events == []


def go(tab, **address):
    """Follows a link, and waits until the decoder shows its sentence."""
    tab.evaluate(FOLLOW, urlencode(address))
    forced = [int(id) for id in address.get("forced", "").split(",") if id]
    part = int(address.get("sentence", 1)) - 1
    found = ask(tab, "translate", address["text"])["parts"][part]
    if forced:
        source = {"source": found["source"], "forced": forced}
        found = ask(tab, "translate", "", source)["parts"][0]
    tab.wait_for_function(SHOWN, arg=found["translation"])


def ask(tab, name, *arguments):
    return tab.evaluate(
        "([name, given]) => tfxformer[name](...given)", [name, arguments]
    )


def texts(tab, selector):
    return tab.locator(selector).all_inner_texts()


def spell(token):
    return {"<s>": "⟨start⟩", "</s>": "⟨end⟩"}.get(token, token)


def address(tab, **expected):
    """Waits until the address has these values."""
    tab.wait_for_function(
        "expected => Object.entries(expected).every(([name, value]) =>"
        " new URLSearchParams(location.hash.slice(1)).get(name) === value)",
        arg=expected,
    )


def press(tab, label, key, times=1):
    for _ in range(times):
        tab.get_by_label(label, exact=True).press(key)


def test_a_text_shows_its_tokens_with_ids_and_the_written_ones(tab, tiny):
    tab.fill("#text", LAST)
    found = ask(tab, "translate", LAST)
    tab.wait_for_function(
        "seen => translation.value === seen", arg=found["translation"]
    )
    read, written = [".sentence .chips >> nth=0", ".sentence .chips >> nth=1"]
    ids = [*tiny.tokenizer.encode([LAST])[0], END_ID]
    tokens = map(spell, tiny.tokenizer.tokens(ids))
    expected = [f"{token}\n{id}" for token, id in zip(tokens, ids, strict=True)]
    assert texts(tab, f"{read} >> button") == expected
    tab.wait_for_function(SHOWN, arg=found["translation"])
    shown = [text.split("\n")[0] for text in texts(tab, f"{written} >> button")]
    assert shown == list(map(spell, found["tokens"]))


def test_the_reader_walks_through_the_sentence_of_her_choice(tab):
    first, second = ask(tab, "translate", TEXT)["parts"]
    assert tab.inner_text("#decoder .result") == first["translation"]
    press(tab, "Walk through sentence 1", "ArrowDown")
    tab.wait_for_function(SHOWN, arg=second["translation"])
    focused = "document.activeElement.labels[0].textContent"
    assert tab.evaluate(focused).strip() == "Walk through sentence 2"
    assert texts(tab, "#decoder .chips button") == list(map(spell, second["tokens"]))
    address(tab, sentence="2")


def test_the_decoder_shows_each_step_by_keyboard(tab):
    steps = ask(tab, "translate", TEXT)["parts"][0]["steps"]
    press(tab, "Step", "ArrowRight", times=2)
    address(tab, step="3")
    rows = texts(tab, ".candidates button .token")
    assert rows == [spell(token["token"]) for token in steps[2]["candidates"]]
    # The keys and values of the tokens before, and of this one.
    kept = tab.get_by_label("The keys of 3 tokens, 4 numbers each").locator("text")
    assert kept.count() == 3
    press(tab, "Step", "End")
    address(tab, step=str(len(steps)))


def test_another_token_changes_the_translation_and_undo_restores_it(tab):
    own = ask(tab, "translate", TEXT)["parts"][0]
    press(tab, "Step", "ArrowRight")
    address(tab, step="2")
    other = own["steps"][1]["candidates"][3]["id"]
    forced = [own["ids"][0], other]
    expected = ask(tab, "translate", "", {"source": own["source"], "forced": forced})
    row = tab.locator(".candidates button").nth(3)
    place = row.bounding_box()
    row.click()
    tab.wait_for_function(SHOWN, arg=expected["translation"])
    assert row.bounding_box() == place  # a second click finds the same token
    address(tab, forced=",".join(map(str, forced)), step="2")
    assert tab.locator("#decoder .chip.forced").count() == 1
    # The rest of the text is translated as before.
    text = tab.evaluate("translation.value")
    assert text.startswith(expected["translation"])
    tab.locator("#type").get_by_role("button", name="Undo").click()
    tab.wait_for_function(SHOWN, arg=own["translation"])
    row.click()
    tab.wait_for_function(SHOWN, arg=expected["translation"])
    tab.locator("#decoder").get_by_role("button", name="Undo").click()
    tab.wait_for_function(SHOWN, arg=own["translation"])


@pytest.mark.parametrize("x", [5, -20], ids=["cell", "name"])
def test_a_row_of_the_map_of_all_heads_chooses_its_head(tab, x):
    cell, heads = 22, 4
    chosen = "#decoder svg.grid >> nth=0 >> text.chosen"
    assert tab.text_content(chosen) == "layer 1, head 1"
    box = tab.locator("#decoder svg.grid .ground").first.bounding_box()
    tab.mouse.click(box["x"] + x, box["y"] + (heads + 1.5) * cell)
    address(tab, **{"decoder-layer": "2", "decoder-head": "2"})
    assert tab.text_content(chosen) == "layer 2, head 2"
    assert tab.get_by_label("Layer of the decoder").input_value() == "1"


def test_beam_search_shows_the_finished_translations(tab):
    source = ask(tab, "translate", TEXT)["parts"][0]["source"]
    rows = "#beam tbody tr"
    for beams, penalty in ((1, None), (3, None), (3, 1.2)):
        wanted = {"beams": beams, "penalty": penalty}
        kept = {name: str(value) for name, value in wanted.items() if value}
        go(tab, text=TEXT, **kept)
        asked = {"source": source, "beams": beams, "nBest": beams}
        found = ask(tab, "beam", asked | {"lengthPenalty": penalty})
        greedy = ask(tab, "translate", TEXT)["parts"][0]["ids"]
        lines = [
            x["translation"] + " (greedy)" * (x["ids"] == greedy)
            for x in found["hypotheses"]
        ]
        scores = [f"{x['rank']:.3f}".replace("-", "−") for x in found["hypotheses"]]
        tab.wait_for_function(
            "([rows, scores]) => [...document.querySelectorAll(rows)]"
            ".map((row) => row.lastChild.textContent).join() === scores.join()",
            arg=[rows, scores],
        )
        assert texts(tab, f"{rows} td:nth-child(2)") == lines
        candidates = sum(len(step) for step in found["steps"])
        assert tab.locator("#beam svg g[class]").count() == candidates + 1
        best = len(found["hypotheses"][0]["ids"])
        assert tab.locator("#beam svg g.best").count() == best + 1
        both = min(len(greedy), len(found["steps"]))
        assert tab.locator("#beam svg g.greedy").count() == both


def test_an_address_restores_what_the_reader_sees(tab):
    own = ask(tab, "translate", TEXT)["parts"][1]
    forced = f"{own['ids'][0]},{own['steps'][1]['candidates'][2]['id']}"
    kept = {"text": TEXT, "sentence": "2", "forced": forced, "step": "2"}
    kept |= {"layer": "1", "head": "3", "decoder-head": "4", "beams": "2"}
    go(tab, **kept)
    assert tab.get_by_label("Walk through sentence 2").is_checked()
    assert tab.get_by_label("Step", exact=True).input_value() == "2"
    press(tab, "Width", "ArrowRight")
    address(tab, **kept | {"beams": "3"})


@pytest.mark.parametrize(
    "wrong",
    [
        {"layer": "99", "head": "-4", "step": "1000", "sentence": "7"},
        {"layer": "one", "beams": "[3]", "forced": "a,2,99999", "broken": "{"},
        {"layer": "1.5", "step": "2.5", "penalty": "1e9", "text": "<b>O gato</b>"},
        {"column": "99", "value": '{"name": "encoder/gato"}'},
        {"value": '{"name": "encoder/output", "row": "two", "unit": -1}'},
    ],
)
def test_an_address_with_wrong_values_shows_what_there_is(tab, wrong):
    followed = urlencode({"text": TEXT} | wrong)
    tab.evaluate(FOLLOW, followed)
    tab.evaluate("tfxformer.translate('O gato')")
    tab.wait_for_function("document.querySelector('main:not(.waiting) .candidates')")
    press(tab, "Step", "Home")
    press(tab, "Step", "End")
    # The address follows a little later.
    tab.wait_for_function("old => location.hash.slice(1) !== old", arg=followed)
    tab.wait_for_function(r"/[#&]step=\d+(&|$)/.test(location.hash)")
    found = parse_qs(tab.evaluate("location.hash.slice(1)"))
    names = {"text", "layer", "head", "step", "sentence", "penalty", "column"}
    assert set(found) <= names
    assert all(re.fullmatch(r"\d+", found[name][0]) for name in found if name != "text")
    assert not tab.locator("dialog[open]").count()
    assert tab.locator("#text").input_value() == found["text"][0]
    assert tab.locator("b >> text=O gato").count() == 0


@pytest.mark.parametrize("text", ["", " \n ", "\u200b", "a" * 2001])
def test_a_text_without_a_translation_waits_for_another(tab, text):
    tab.fill("#text", text)
    tab.wait_for_function("document.querySelector('main.waiting')")
    assert tab.evaluate("translation.value").strip() == ""
    message = "That is 2001 characters, and this page takes 2000." * (len(text) > 9)
    assert tab.inner_text("#status") == message
    # No section shows the text before.
    assert not tab.locator("#decoder .result").is_visible()
    tab.fill("#text", LAST)
    tab.wait_for_function("!document.querySelector('main.waiting')")
    tab.wait_for_function("document.querySelector('#status').textContent === ''")


def test_markup_and_letters_of_any_script_are_shown_as_text(tab):
    text = "<script>events.push(1)</script> 🐈 قطة"
    tab.fill("#text", text)
    part = ask(tab, "translate", text)["parts"][0]
    tab.wait_for_function(SHOWN, arg=part["translation"])
    shown = [text.split("\n")[0] for text in texts(tab, ".chips >> nth=0 >> button")]
    assert shown == list(map(spell, part["sourceTokens"]))
    assert tab.get_by_text("is one byte of a character").first.is_visible()


@pytest.mark.parametrize(
    "title", ["The tree", "The ten likeliest", "What does the layer make"]
)
def test_a_picture_is_saved_as_svg_without_a_style_sheet(tab, title, tmp_path):
    with tab.expect_download() as download:
        tab.locator(f"[aria-label^='Save as SVG: {title}']").click()
    assert re.search(r"-(layer|step|width)-\d", download.value.suggested_filename)
    download.value.save_as(tmp_path / "picture.svg")
    svg = ElementTree.parse(tmp_path / "picture.svg").getroot()
    width, height = float(svg.get("width")), float(svg.get("height"))
    assert svg.tag == "{http://www.w3.org/2000/svg}svg" and min(width, height) > 100
    tags = {element.tag.split("}")[1] for element in svg.iter()}
    assert "text" in tags and not tags & {"foreignObject", "style", "script"}
    for element in svg.iter("{http://www.w3.org/2000/svg}text"):
        style = element.get("style") or f"fill: {element.get('fill')}"
        assert re.search(r"fill: (rgb|#)", style)
        assert re.search(r"font-size: [\d.]+px", style)
    texts = [element.text for element in svg.iter() if element.tag.endswith("}text")]
    assert texts[0].startswith(title) and TEXT.split(".")[0] in texts[1]


def test_colours_follow_the_theme(tab):
    colours = "document.querySelector('#decoder image').getAttribute('href')"
    light = tab.evaluate(colours)
    tab.emulate_media(color_scheme="dark")
    tab.wait_for_function(f"light => {colours} !== light", arg=light)
    tab.emulate_media(color_scheme="light")
    tab.wait_for_function(f"light => {colours} === light", arg=light)


def test_each_control_has_a_name_and_the_keyboard_reaches_it(tab):
    controls = tab.locator("button, input, select, textarea, a, [tabindex='0']")
    found = controls.evaluate_all(
        "all => all.map((it) => [it.getAttribute('aria-label') ||"
        " it.labels?.[0]?.textContent || it.textContent ||"
        " it.firstElementChild.alt, it.tabIndex >= 0])"
    )
    assert len(found) > 50
    assert [
        control for control in found if not (control[0].strip() and control[1])
    ] == []


@pytest.mark.parametrize("section", ["encoder", "break"])
@pytest.mark.parametrize("by", ["address", "menu"])
def test_a_link_leads_to_the_heading_of_a_section(browser, path, section, by):
    size = {"width": 1000, "height": 700}
    link = "#" + urlencode({"section": section})
    tab, events = opened(browser, path, link * (by == "address"), viewport=size)
    tab.wait_for_selector("main:not(.waiting)")
    if by == "menu":
        tab.locator(f"nav a[href='{link}']").click()
    tab.wait_for_selector(f"#{section}.shown")
    tab.wait_for_selector(f"#{section} h2:focus")
    tab.wait_for_timeout(500)  # nothing moves it later
    top = tab.locator(f"#{section} h2").bounding_box()["y"]
    menu = tab.locator("nav").bounding_box()
    assert menu["y"] == 0 and menu["height"] < top < 100
    assert events == []
    tab.close()


def test_the_second_of_two_clicks_on_a_token_chooses_no_other(tab):
    """The first one leads to the decoder, so a candidate may be under the pointer."""
    tab.locator(".candidates button").nth(3).dispatch_event("click", {"detail": 2})
    press(tab, "Step", "ArrowRight")
    address(tab, step="2")
    assert "forced" not in tab.evaluate("location.hash")


def test_nothing_is_wider_than_a_phone(browser, path):
    size = {"width": 360, "height": 12000}
    tab, events = opened(browser, path, "#" + urlencode({"text": TEXT}), viewport=size)
    tab.wait_for_selector("#beam tbody tr")
    widths = "[document.documentElement.scrollWidth, innerWidth]"
    assert tab.evaluate(widths) == [360, 360]
    assert events == []
    tab.close()


def test_an_old_browser_is_told(browser, path, tmp_path):
    broken = tmp_path / "page.html"
    text = path.read_text("utf-8").replace("const modules = {};", "const = modules;")
    broken.write_text(text, "utf-8")
    tab, _ = opened(browser, broken)
    tab.get_by_text("This browser cannot run the page").wait_for()
