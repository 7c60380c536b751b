"""Times the page in headless Chromium: opening, translating, sliders and hovering.

    python benchmarks/page_speed.py

It needs Chromium and Playwright. The page has the shipped model and comes from disk.
"""

import argparse
import shutil
import statistics
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from tfxformer import Translator
from tfxformer.page import page
from tfxformer.repository import SHIPPED

WRITTEN = Path(__file__).parents[1] / "recipes" / "pt_en" / "written"
WORDS = range(11, 14)
SHOWN = "document.querySelector('main:not(.waiting)') && performance.now()"
# What a reader does, and the time until the browser has painted what comes of it.
PAINTED = """
const painted = () => new Promise((resolve) => requestAnimationFrame(() => {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = resolve;
  port2.postMessage(null);
}));
const timed = async (act) => {
  const start = performance.now();
  act();
  await painted();
  return performance.now() - start;
};
const times = [];
"""
TRANSLATE = """async (texts) => {
  const times = [];
  for (const text of texts) {
    const start = performance.now();
    await tfxformer.translate(text);
    times.push(performance.now() - start);
  }
  return times;
}"""
SLIDE = f"""async ([section, label, rounds]) => {{
  {PAINTED}
  const input = document.querySelector(`#${{section}} [aria-label="${{label}}"]`);
  for (let round = 0; round < rounds; round++) {{
    const value = Number(input.min) + (round % (input.max - input.min + 1));
    times.push(await timed(() => {{
      input.value = value;
      input.dispatchEvent(new Event("input", {{ bubbles: true }}));
    }}));
  }}
  return times;
}}"""
HOVER = f"""async (rounds) => {{
  {PAINTED}
  for (let round = 0; round < rounds; round++) {{
    const svg = document.querySelector("#encoder svg.grid");
    const cells = svg.querySelector(".ground").getBoundingClientRect();
    const cell = 22, across = Math.round(cells.width / cell);
    const down = Math.round(cells.height / cell);
    const clientX = cells.x + cell * ((round % across) + 0.5);
    const clientY = cells.y + cell * ((Math.floor(round / across) % down) + 0.5);
    const move = new PointerEvent("pointermove", {{ clientX, clientY }});
    times.push(await timed(() => svg.dispatchEvent(move)));
  }}
  return times;
}}"""


def sentences(count):
    """The first sentences of about twelve words in the hand-written test pairs."""
    lines = [
        line.split("\t")[0]
        for path in sorted((WRITTEN / "valid").glob("*.tsv"))
        for line in path.read_text("utf-8").splitlines()
    ]
    return [line for line in lines if len(line.split()) in WORDS][:count]


def report(what, times):
    """Prints the median and the range of some times."""
    middle, least, most = statistics.median(times), min(times), max(times)
    print(f"{what}: {middle:.0f} ms ({least:.0f} to {most:.0f}, {len(times)} times)")


def time_page(browser, path, rounds):
    """Times all that a reader waits for."""
    opening = []
    for _ in range(5):
        tab = browser.new_page(viewport={"width": 1200, "height": 800}, offline=True)
        tab.goto(path.as_uri(), wait_until="commit")
        opening.append(tab.wait_for_function(SHOWN).json_value())
        if len(opening) < 5:
            tab.close()
    report("from opening to the first translation", opening)
    texts = sentences(100)
    tab.evaluate(TRANSLATE, texts[:5])  # JavaScript's compiler warms up
    times = tab.evaluate(TRANSLATE, texts)
    report(f"a sentence of {WORDS[0]} to {WORDS[-1]} words", times)
    for section, label in (("embedding", "Position"), ("decoder", "Step")):
        tab.locator(f"nav a[href$={section}]").click()
        tab.wait_for_selector(f"#{section}.shown h2:focus")
        report(f"the slider “{label}”", tab.evaluate(SLIDE, [section, label, rounds]))
    tab.locator("nav a[href$=encoder]").click()
    tab.wait_for_selector("#encoder.shown h2:focus")
    report("hovering over a cell of a head", tab.evaluate(HOVER, rounds))


def main():
    """Packs the page, and times it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=50)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "page.html"
        path.write_text(page(Translator.load(), SHIPPED), "utf-8")
        program = shutil.which("chromium")
        arguments = {"executable_path": program, "args": ["--no-sandbox"]}
        with playwright.chromium.launch(**arguments) as browser:
            time_page(browser, path, rounds)


if __name__ == "__main__":
    main()
