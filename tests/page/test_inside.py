"""What a reader does inside the model: embedding, encoder, switches, and each value."""

import json
import math
import re
from pathlib import Path
from urllib.parse import urlencode

import node
import numpy as np
import pytest
from tabs import opened

from tfxformer.page import page

TEXT = "O gato bebe."
ROOT = Path(node.PAGE).parent.parent
TALL = {"width": 1200, "height": 9000}
# Together they have every rule of the catalogue.
MODELS = {
    "pre_norm": {"norm": "pre", "tie_embeddings": True, "output_bias": True}
    | {"use_positions": False},
    "post_norm": {"learned_positions": True, "activation": "swish"},
}


def write(folder, **options):
    tiny = node.tiny(max_length=24, num_layers=2, **options)
    path = folder / "page.html"
    path.write_text(page(tiny, notebooks="notebooks"), "utf-8")
    return tiny, path


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return write(tmp_path_factory.mktemp("page"), norm="pre")


@pytest.fixture(scope="module")
def tiny(made):
    return made[0]


@pytest.fixture(scope="module")
def shared(browser, made):
    return opened(browser, made[1], "#" + urlencode({"text": TEXT}), viewport=TALL)


@pytest.fixture
def tab(shared):
    """The page with a sentence; no test leaves an error in the console."""
    tab, events = shared
    go(tab)
    yield tab
    assert events == []


def go(tab, **address):
    """Follows a link to the sentence, and waits until the sections are drawn."""
    hash = urlencode({"text": TEXT, "token": 2, "position": 1} | address)
    tab.evaluate("hash => (location.hash = hash)", hash)
    tab.wait_for_function("document.querySelector('#encoder .steps')")
    tab.wait_for_function("!document.querySelector('main.waiting')")


def wait(tab, script, seen):
    if isinstance(seen, list):
        seen = "|".join(seen)
    tab.wait_for_function(f"seen => {script} === seen", arg=seen)


def kept(tab, name, value):
    """Waits until the address keeps a value."""
    script = f"new URLSearchParams(location.hash.slice(1)).get('{name}')"
    wait(tab, script, value)


def values(tiny, *names):
    """What Python computes for the sentence, under the names of the page."""
    (found,) = node.results(tiny, {"type": "translate", "text": TEXT})
    part = found["parts"][0]
    all = node.values_of(tiny.transformer, part["source"], part["ids"][:-1])
    return part, *(np.asarray(all[name]) for name in names)


def shown(value):
    """A number as the page writes it, in percent."""
    text = f"{100 * value:.{0 if 0.1 <= value <= 0.99 else 1}f}%"
    return "<0.1%" if value < 0.001 else text


def spell(token):
    return "⟨end⟩" if token == "</s>" else token


def test_the_waves_follow_the_position_that_the_reader_moves(tab):
    slider = tab.get_by_label("Position", exact=True)
    for position in (2, 3, 4):
        slider.press("ArrowRight")
        wait(tab, "document.querySelector('#embedding output').value", str(position))
        tab.get_by_text(f"+ position {position}", exact=True).wait_for()
        dots = tab.locator("#embedding circle").evaluate_all(
            "dots => dots.map((dot) => Number(dot.getAttribute('cy')))"
        )
        # In lanes of 56, the wave of number 2i + 1 of 16 is 0.38 lanes high.
        angles = [position / 10000 ** (unit / 16) for unit in (0, 2, 4, 6)]
        expected = [56 * (i + 0.5 - 0.38 * math.sin(a)) for i, a in enumerate(angles)]
        assert dots == pytest.approx(expected, abs=0.01)
    kept(tab, "position", "4")
    # Another token comes with its own position.
    tab.locator("#embedding .chips button").nth(2).click()
    wait(tab, "document.querySelector('#embedding output').value", "2")
    kept(tab, "token", "3")
    # In the first section, too.
    tab.locator("#type .chips >> nth=0 >> button").nth(1).click()
    wait(tab, "document.querySelector('#embedding output').value", "1")


def test_a_cell_of_a_head_shows_its_weight(tab, tiny):
    part, weights = values(tiny, "encoder/layer_1/self_attention/weights")
    tokens = part["sourceTokens"]
    tab.get_by_label("Layer", exact=True).select_option("2")
    tab.locator("#encoder").get_by_label("Head", exact=True).select_option("3")
    kept(tab, "head", "3")
    said = "document.querySelector('#encoder [aria-live]').textContent"
    row, column = 1, int(weights[2, 1].argmax())
    share = shown(weights[2, row, column])
    reads = "{} reads {} with a weight of {}."
    wait(tab, said, reads.format(tokens[row], tokens[column], share))
    column += 1 if column == 0 else -1
    key = "ArrowRight" if column == 1 else "ArrowLeft"
    tab.locator("#encoder svg.grid").press(key)
    share = weights[2, row, column]
    wait(tab, said, reads.format(tokens[row], tokens[column], shown(share)))
    steps = tab.locator("#encoder .steps dd").all_inner_texts()
    assert float(steps[-1].split("= ")[1]) == pytest.approx(share, abs=0.005)
    # A click keeps the cell in the address, and moves section 2 to its token.
    tab.locator("#encoder svg.grid").press("Enter")
    kept(tab, "column", str(column + 1))
    wait(tab, "document.querySelector('#embedding output').value", str(row))
    go(tab, layer=2, head=3, token=1, column=2)
    picked = reads.format(*tokens[:2], shown(weights[2, 0, 1]))
    wait(tab, said, picked)
    # The mouse only visits other cells.
    tab.locator("#encoder svg.grid image").hover(position={"x": 5, "y": 5})
    wait(tab, said, reads.format(tokens[0], tokens[0], shown(weights[2, 0, 0])))
    tab.mouse.move(1, 1)
    wait(tab, said, picked)


def test_the_small_maps_choose_a_head(tab):
    tab.locator("#encoder .heads tr").nth(4).locator("button").nth(0).click()
    kept(tab, "layer", "1")
    kept(tab, "head", "4")
    chosen = tab.locator("#encoder .small-map[aria-pressed='true'] img")
    assert chosen.get_attribute("alt") == "Layer 1, head 4"
    tab.locator("#encoder .heads th", has_text="Head 2").click()
    kept(tab, "head", "2")
    tab.locator("#encoder .heads th[scope=col]").nth(1).click()
    kept(tab, "layer", None)  # the second is where a reader begins


def test_the_stream_tells_how_much_each_layer_changes_the_token(tab, tiny):
    _, first, second = values(
        tiny, "encoder/layer_0/ffn/result", "encoder/layer_1/ffn/result"
    )
    change = np.linalg.norm(second[1] - first[1]) / np.linalg.norm(first[1])
    line = tab.locator("#encoder .line", has_text="after layer 2")
    assert line.inner_text().split("\n")[-1] == f"changed by {shown(change)}"


def test_layers_that_change_a_token_little_are_named(browser, tmp_path):
    tiny = node.new_tiny(max_length=24, num_layers=2, norm="pre")
    for weight in tiny.transformer.encoder.enc_layers[1].weights:
        weight.assign(0 * weight)
    path = tmp_path / "page.html"
    path.write_text(page(tiny), "utf-8")
    tab, _ = opened(browser, path, viewport=TALL)
    tab.get_by_text("Layers that do little for this token: 2.").wait_for()
    tab.close()


# What a reader changes, and the switches that it makes.
BROKEN = {
    "No positions": ("Space", {"positions": False}),
    "No residual connections": ("Space", {"residual": False}),
    "Padding tokens": ("ArrowRight", {"pads": 1}),
    "Padding unmasked": ("Space", {"paddingMask": False, "pads": 4}),
    "Temperature of attention": ("End", {"temperature": 4}),
    "Weights rounded to": ("ArrowDown", {"bits": 8}),
    "Silence encoder layer 1, head 2": (
        "Enter",
        {"silenced": ["encoder/layer_0/self_attention/head_1"]},
    ),
}


@pytest.mark.parametrize("label", BROKEN)
def test_a_switch_changes_the_translation_until_it_is_mended(tab, tiny, label):
    key, switches = BROKEN[label]
    asked = {"type": "translate", "text": TEXT}
    (intact,) = node.results(tiny, asked)
    forced = asked | {"forced": intact["ids"], "switches": switches}
    changed, same = node.results(tiny, asked | {"switches": switches}, forced)
    if "silenced" in switches:
        tab.get_by_text("Silence layers or heads").click()
    tab.get_by_label(label, exact=True).press(key)
    wait(tab, TRANSLATIONS, [intact["translation"], changed["translation"]])
    averages = [
        np.exp(np.mean(x["scores"][: len(intact["ids"])])) for x in (intact, same)
    ]
    expected = f"Agreement: {shown(averages[0])} → {shown(averages[1])}"
    assert tab.locator("#break b").inner_text() == expected
    kept(tab, "broken", json.dumps(switches, separators=(",", ":")))
    tab.get_by_role("button", name="Mend everything").click()
    wait(tab, TRANSLATIONS, [intact["translation"]] * 2)


def test_an_address_breaks_only_what_there_is(tab, tiny):
    (intact,) = node.results(tiny, {"type": "translate", "text": TEXT})
    wrong = {"pads": 0.5, "bits": "x", "silenced": 1, "temperature": 0, "no": 1}
    go(tab, broken=json.dumps(wrong))
    wait(tab, TRANSLATIONS, [intact["translation"]] * 2)
    assert tab.get_by_role("button", name="Mend everything").is_disabled()


def test_an_address_opens_what_it_silences(tab):
    go(tab, broken=json.dumps({"silenced": ["encoder/layer_0"]}))
    pressed = "Silence all of encoder layer 1"
    tab.locator(f"[aria-label='{pressed}'][aria-pressed=true]").wait_for()
    tab.get_by_role("button", name="Mend everything").click()
    tab.get_by_text("Silence layers or heads").click()


def test_a_token_of_the_readers_choice_is_no_part_of_an_experiment(tab, tiny):
    (own,) = node.results(tiny, {"type": "translate", "text": TEXT})
    candidates = own["parts"][0]["steps"][0]["candidates"]
    go(tab, forced=candidates[1]["id"])
    tab.locator("#type").get_by_role("button", name="Undo").wait_for()
    wait(tab, TRANSLATIONS, [own["translation"]] * 2)


@pytest.mark.parametrize("name", MODELS)
def test_each_value_opens_with_its_formula_filled_in(browser, tmp_path, name):
    _, path = write(tmp_path, **MODELS[name])
    tab, events = opened(browser, path, "#" + urlencode({"text": TEXT}), viewport=TALL)
    tab.wait_for_selector("#details.shown .part button")
    tab.wait_for_selector("#encoder .steps")
    tab.wait_for_selector("#embedding .line")
    positions = MODELS[name].get("use_positions", True)
    shown = tab.locator("#positions, #embedding svg, #embedding input").count()
    assert shown == 3 * positions
    found = tab.evaluate(OPEN_ALL, TEXT)
    assert len(found) > 3 * 40
    for title, value, filled, _ in found:
        numbers = re.findall(r"−?[\d.]+", filled.removesuffix(", unchanged"))
        last = float(numbers[-1].replace("−", "-"))
        assert last == pytest.approx(value, rel=0.01, abs=0.006), (title, filled)
    assert_places_exist({place for *_, place in found})
    tab.close()
    assert events == []


def assert_places_exist(places):
    """The classes are in the package, and the sections in the notebooks."""
    code = "\n".join(x.read_text("utf-8") for x in ROOT.glob("tfxformer/**/*.py"))
    pattern = r"In Python: (\w+)\. In the notebooks: (\w+\.ipynb), “(.+)”\."
    for place in places:
        python, notebook, section = re.fullmatch(pattern, place).groups()
        assert re.search(rf"^(class|def) {python}\b", code, re.MULTILINE)
        text = Path(ROOT, "notebooks", notebook).read_text("utf-8")
        assert re.search(rf'"## {re.escape(section)}(\\n)?"', text), place


def test_a_strip_opens_the_panel_at_its_number(tab, tiny):
    token = values(tiny)[0]["sourceTokens"][1]
    tab.get_by_label(f"Query of {token}: open", exact=True).click()
    tab.wait_for_selector("dialog .where")
    assert tab.locator("dialog h2").inner_text() == "Q: queries"
    assert tab.locator("dialog .filled b").inner_text() == f"{token}, number 1: "
    tab.get_by_label("Close").press("Enter")
    tab.get_by_role("button", name="Open the weights").click()
    tab.wait_for_selector("dialog .where")
    assert tab.locator("dialog .filled b").inner_text().startswith(f"{token} reads ")
    # A link to it opens the panel, too.
    kept(tab, "section", None)
    tab.wait_for_function("location.hash.includes('self_attention%2Fweights')")
    link = tab.evaluate("location.hash.slice(1)")
    tab.get_by_label("Close").press("Enter")
    tab.wait_for_function("!location.hash.includes('value')")
    tab.evaluate("hash => (location.hash = hash)", link)
    tab.wait_for_selector("dialog .where")
    names = tab.locator("dialog svg.grid text").all_text_contents()
    assert names == 2 * [*map(spell, values(tiny)[0]["sourceTokens"])]
    link = tab.locator("dialog .where a").get_attribute("href")
    softmax = "softmax-shares-that-sum-to-1"
    assert link == f"notebooks/attention_step_by_step.html#{softmax}"
    tab.get_by_label("Close").press("Enter")
    wait(tab, "document.querySelectorAll('dialog[open]').length", 0)


def test_no_section_is_wider_than_a_phone(browser, made):
    hash = "#" + urlencode({"text": TEXT})
    size = {"width": 360, "height": 14000}
    tab, events = opened(browser, made[1], hash, viewport=size)
    tab.wait_for_selector("#encoder .steps")
    tab.get_by_text("Silence layers or heads").click()
    assert tab.evaluate("document.documentElement.scrollWidth") == 360
    tab.locator("#details .part button").first.click()
    tab.wait_for_selector("dialog .where")
    assert tab.evaluate("document.querySelector('dialog').scrollWidth") <= 360
    assert events == []
    tab.close()


TRANSLATIONS = (
    "[...document.querySelectorAll('#break [aria-busy=false] .translation')]"
    ".map((text) => text.textContent).join('|')"
)
# Opens each value of the map, and moves to three of its numbers. Gives the title, the
# marked number as the model has it, the formula's line, and the last line.
OPEN_ALL = """async (text) => {
  const { source, ids } = (await tfxformer.translate(text)).parts[0];
  const first = await tfxformer.inspect({ source, names: ["output"] });
  const target = ids.slice(0, -1);
  const names = ["encoder", "decoder"];
  const all = await tfxformer.inspect({ source, target, names });
  const dialog = document.querySelector("dialog");
  const found = [];
  for (const button of document.querySelectorAll("#details .part button")) {
    button.click();
    const part = (selector) => dialog.querySelector(selector);
    while (!part(".where")) await new Promise((go) => setTimeout(go, 1));
    const tensor = { ...all, ...first }[button.dataset.name];
    const width = tensor.shape.length > 1 ? tensor.shape.at(-1) : 200;
    for (const key of ["ArrowRight", "ArrowDown", "ArrowLeft"]) {
      part(".grid").dispatchEvent(new KeyboardEvent("keydown", { key }));
      const box = (selector) => part(selector).getBBox();
      const [mark, ground] = [box(".mark"), box(".ground")];
      const row = Math.round((mark.y - ground.y) / mark.height);
      const unit = Math.round((mark.x - ground.x) / mark.width);
      const value = tensor.data[row * width + unit]; // of the first head
      const filled = part(".filled").textContent.split(": ").at(-1);
      found.push([button.textContent, value, filled, part(".where").textContent]);
    }
    dialog.close();
  }
  return found;
}"""
