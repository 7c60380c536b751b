"""The demo page: its functions, and the page in a browser."""

import itertools
import re
import shutil
import signal
import socket
import subprocess
import sys

import pytest

pytest.importorskip("matplotlib")

from tfxformer import demo
from tfxformer.errors import UserError
from tfxformer.plots.attention_maps import readable
from tfxformer.translator import Translator

SENTENCE = "O gato preto bebeu o leite."


@pytest.mark.parametrize("text", [f"  {SENTENCE}\n", "Olá! Bom dia.\nSim."])
def test_the_demo_streams_one_sentence_batches_several_and_explains_the_first(
    brief, text
):
    found, seen = {}, []
    for answer in demo.answers(brief, text):
        found |= answer
        seen += [answer["translation"]] if "translation" in answer else []
    text = text.strip()
    sentence, *others = brief.parts(text)[1::2]
    assert found["translation"] == brief(text)
    assert len(seen) == 1 if others else len({*seen}) > 3
    assert all(later.startswith(sooner) for sooner, later in itertools.pairwise(seen))
    assert re.match(r"\d+ (tokens|sentences .*) in \d+\.\d s\.", found["status"])
    assert (f"the first: “{sentence}”" in found["status"]) == bool(others)
    best = [[text, round(score, 3)] for text, score in brief.n_best([sentence])[0]]
    assert [row[:2] for row in found["alternatives"]] == best
    tokens = found["maps"]["cross"][0]
    for step, (token, candidates) in enumerate(
        zip(tokens, found["candidates"], strict=True), 1
    ):
        shares = [share for _, share in candidates]
        assert candidates[0][0] == token and shares == sorted(shares)[::-1]
        view = demo._step(found["maps"], found["candidates"], step, list)
        assert view[0].endswith(f"→ **{token}**") and len(view[1]) == len(shares) == 5
        assert [text for text, _ in view[2]] == found["maps"]["cross"][1]
    answer = brief.explain(sentence)
    source, target = len(answer.source_tokens), len(answer.target_tokens)
    padding, ahead = (figure.axes[0].images[0] for figure in demo._masks(found["maps"]))
    assert padding.get_array().tolist() == [[1] * source + [0] * 3] * source
    expected = [[column <= row for column in range(target)] for row in range(target)]
    assert ahead.get_array().tolist() == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (" \n", "Write something to translate first"),
        ("\u200b", "There is nothing in it to translate"),
        ("a" * 2001, "2,001 characters, and this page takes 2,000"),
    ],
)
def test_the_demo_refuses_empty_and_too_long_text(brief, text, message):
    with pytest.raises(UserError, match=message):
        [*demo.answers(brief, text)]


def test_the_demo_refuses_a_port_that_is_in_use():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"--port {port}: Address already in use"):
            demo.demo(port=port)


@pytest.mark.slow
def test_the_demo_page_in_a_browser_translates_and_shows_attention():
    pytest.importorskip("gradio", reason="the extra demo is not installed")
    sync_api = pytest.importorskip("playwright.sync_api")
    program = shutil.which("chromium") or pytest.skip("chromium is missing")
    command = [sys.executable, "-m", "tfxformer.cli", "demo", "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        url, translator = server.stdout.readline().strip(), Translator.load()
        with sync_api.sync_playwright() as playwright:
            arguments = {"executable_path": program, "args": ["--no-sandbox"]}
            page = playwright.chromium.launch(**arguments).new_page()
            page.set_default_timeout(60_000)
            sync_api.expect.set_options(timeout=60_000)
            asked, wrong = [], []
            page.on("request", lambda request: asked.append(request.url))
            page.on("pageerror", lambda error: wrong.append(error))
            page.goto(url)
            source = page.get_by_label("Portuguese", exact=True)
            english = page.get_by_role("textbox").nth(1)
            keys = page.frame_locator("iframe[title=attention]").locator("#keys button")

            def expect(sentence):
                tokens = readable(translator.explain(sentence).source_tokens)
                sync_api.expect(keys).to_contain_text(tokens)
                assert english.input_value() == translator(sentence)

            expect(demo.EXAMPLES[0])  # the page opens with a translation
            source.fill(SENTENCE)
            page.keyboard.press("Enter")
            expect(SENTENCE)
            page.get_by_label("English reads itself").check()
            frame = page.locator("iframe[title=attention]")
            assert frame.get_attribute("sandbox") == "allow-scripts"
            sync_api.expect(keys.first).to_contain_text("(start)")
            page.get_by_label("Raw tokens").check()
            sync_api.expect(keys.first).to_contain_text("<s>")
            page.get_by_label("Raw tokens").uncheck()
            page.get_by_role("tab", name="N-best").click()
            best = translator.n_best([SENTENCE])[0][0][0]
            sync_api.expect(page.get_by_role("gridcell").first).to_have_text(best)
            for tab in ("Positions", "Masks"):
                page.get_by_role("tab", name=tab).click()
                sync_api.expect(page.locator("img:visible")).to_have_count(2)
            page.get_by_role("tab", name="Attention").click()
            page.get_by_label("English reads Portuguese").check()
            page.get_by_text(demo.EXAMPLES[1]).click()
            expect(demo.EXAMPLES[1])
            source.fill("a " * 1500)
            page.get_by_role("button", name="Translate").click()
            page.get_by_text("takes 2,000").wait_for()
            # The page makes no requests to other hosts.
            here = (url, "data:", "blob:")
            assert not wrong and not [x for x in asked if not x.startswith(here)]
        server.send_signal(signal.SIGTERM)
        assert (*server.communicate(timeout=60), server.returncode) == ("", None, 0)
    finally:
        server.kill()
