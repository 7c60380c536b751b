"""Takes the pictures of the page: ``python docs/pictures.py``.

Writes `page.png`, the README's picture, and each section of the page into `pages/`: in
light and dark, and on a phone. It needs Chromium, Playwright and Pillow.
"""

import io
import shutil
import tempfile
from pathlib import Path
from urllib.parse import urlencode

from PIL import Image
from playwright.sync_api import sync_playwright

from tfxformer import Translator
from tfxformer.page import page
from tfxformer.repository import SHIPPED

HERE = Path(__file__).parent
SECTIONS = ["type", "embedding", "encoder", "decoder", "beam", "break", "details"]
# Width and theme. All is in view at once, since only then are all sections drawn.
FORMS = {"light": (1200, "light"), "dark": (1200, "dark"), "phone": (360, "light")}
HEIGHT = 16_000
# The step that writes "drank", and a head that reads "bebeu": of this model alone.
STEP = {"step": 4, "decoder-layer": 2, "decoder-head": 2, "section": "decoder"}


def show(browser, path, width, theme, address="", scale=1):
    """Opens the page, and returns its tab once all sections are drawn."""
    size = {"width": width, "height": HEIGHT}
    looks = {"color_scheme": theme, "device_scale_factor": scale}
    tab = browser.new_page(viewport=size, **looks)
    tab.goto(path.as_uri() + address)
    for drawn in ("#beam tbody tr", "#break [aria-busy=false] .translation"):
        tab.wait_for_selector(drawn)
    tab.evaluate("document.activeElement.blur()")
    return tab


def take_front(browser, path):
    """The README's picture: a step of the decoder."""
    tab = show(browser, path, 960, "light", "#" + urlencode(STEP), scale=1.5)
    top = tab.locator("#decoder .controls").first.bounding_box()
    bottom = tab.locator("#decoder figure").nth(2).bounding_box()
    clip = {"x": 0, "width": 960, "y": top["y"] - 8}
    clip["height"] = bottom["y"] + bottom["height"] + 16 - clip["y"]
    reduced(tab.screenshot(clip=clip)).save(HERE / "page.png", optimize=True)
    tab.close()


def reduced(png):
    """A picture with 256 colours: a third of the bytes, and it looks the same."""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    return picture.quantize(256, dither=Image.Dither.NONE)


def take_sections(browser, path):
    """A picture of each section in each form."""
    folder = HERE / "pages"
    folder.mkdir(exist_ok=True)
    for form, (width, theme) in FORMS.items():
        tab = show(browser, path, width, theme)
        for section in SECTIONS:
            picture = reduced(tab.locator(f"#{section}").screenshot()).convert("RGB")
            file = folder / f"{section}_{form}.webp"
            picture.save(file, lossless=True, method=6)
        tab.close()


def main():
    """Packs the page of the shipped model, and takes all its pictures."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "page.html"
        path.write_text(page(Translator.load(), SHIPPED), "utf-8")
        program = shutil.which("chromium")
        arguments = {"executable_path": program, "args": ["--no-sandbox"]}
        with playwright.chromium.launch(**arguments) as browser:
            take_front(browser, path)
            take_sections(browser, path)


if __name__ == "__main__":
    main()
