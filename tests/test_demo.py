"""The page to try a translator: what it shows, its command, and in a browser."""

import itertools
import re
import shutil
import signal
import socket
import subprocess
import sys

import pytest

pytest.importorskip("matplotlib")

from tfxformer import cli, demo
from tfxformer.decoding import DecodingOptions
from tfxformer.errors import UserError
from tfxformer.translator import Translator

SENTENCE = "O gato preto bebeu o leite."


@pytest.fixture(scope="module")
def brief(translator):
    """It ends each sentence soon."""
    options = DecodingOptions(max_length=8)
    return Translator(translator.tokenizer, translator.transformer, options)


def shown(translator, text):
    """All that is shown in the end, and how the translation came to be."""
    found, seen = {}, []
    for answer in demo.answers(translator, text):
        found |= answer
        seen += [answer["translation"]] if "translation" in answer else []
    return found, seen


def test_a_translation_grows_and_its_parts_follow(brief):
    found, seen = shown(brief, f"  {SENTENCE}\n")
    assert found["translation"] == brief(SENTENCE) and len({*seen}) > 3
    assert all(later.startswith(sooner) for sooner, later in itertools.pairwise(seen))
    answer = brief.explain(SENTENCE)
    tokens = len(answer.target_tokens)
    assert re.fullmatch(rf"{tokens} tokens in \d+\.\d s\.", found["status"])
    best = brief.n_best([SENTENCE])[0]
    assert [row[:2] for row in found["alternatives"]] == [
        [t, round(s, 3)] for t, s in best
    ]
    assert found["maps"].source_tokens == answer.source_tokens
    padding, ahead = (figure.axes[0].images[0] for figure in demo.masks(found["maps"]))
    source = len(answer.source_tokens)
    assert padding.get_array().tolist() == [[True] * source + [False] * 3] * source
    expected = [[column <= row for column in range(tokens)] for row in range(tokens)]
    assert ahead.get_array().tolist() == expected


@pytest.mark.parametrize(
    ("text", "parts", "first"),
    [("Olá! Bom dia.\nSim.", 3, "Olá!"), ("gato " * 60, 2, "gato gato")],
)
def test_a_text_of_several_parts_is_translated_whole(brief, text, parts, first):
    found, _ = shown(brief, text)
    assert found["translation"] == brief(text.strip())
    assert f"the text has {parts} parts" in found["status"]
    assert found["sentence"] == brief.parts(text.strip())[1]
    assert found["sentence"].startswith(first) and found["sentence"] in found["status"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Write something to translate first"),
        (" \n", "Write something to translate first"),
        (None, "Write something to translate first"),
        ("a" * 2001, "2,001 characters, and this page takes 2,000"),
    ],
)
def test_what_is_no_text_is_told(brief, text, message):
    with pytest.raises(UserError, match=message):
        shown(brief, text)


def test_sides_are_named_where_they_are_known(run_folder):
    assert demo.languages(run_folder) == ("Portuguese", "English")
    assert demo.languages("none") == ("Source", "Target")


@pytest.mark.parametrize("module", ["gradio", "matplotlib"])
def test_a_missing_library_is_named(command, monkeypatch, module):
    find = cli.importlib.util.find_spec
    monkeypatch.setattr(
        cli.importlib.util, "find_spec", lambda name: name != module and find(name)
    )
    if module == "matplotlib" and not find("gradio"):
        pytest.skip("gradio is missing")
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    out, err, code = command("demo")
    assert (out, code) == ("", 1)
    assert f"{module} is missing: pip install 'tfxformer[demo]'" in err


def test_a_taken_port_and_a_wrong_host_are_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"--port {port}: Address already in use"):
            demo.demo(port=port)
    with pytest.raises(UserError, match=r"--host no\.such\.host\.invalid"):
        demo.demo(host="no.such.host.invalid")


@pytest.mark.slow
def test_in_a_browser(run_folder, translator):
    pytest.importorskip("gradio", reason="the extra demo is not installed")
    sync_api = pytest.importorskip("playwright.sync_api")
    program = shutil.which("chromium") or pytest.skip("chromium is missing")
    command = [sys.executable, "-m", "tfxformer.cli", "demo", "--port", "0"]
    server = subprocess.Popen(
        [*command, "--run", run_folder], stdout=subprocess.PIPE, text=True
    )
    try:
        url = server.stdout.readline().strip()
        with sync_api.sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=program, args=["--no-sandbox"]
            )
            page = browser.new_page()
            page.set_default_timeout(60_000)
            asked, wrong = [], []
            page.on("request", lambda request: asked.append(request.url))
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.goto(url)
            source = page.get_by_label("Portuguese", exact=True)
            english = page.get_by_label("English", exact=True)
            frame = page.frame_locator("iframe[title=attention]")

            def expect(sentence):
                tokens = translator.explain(sentence).source_tokens
                keys = frame.locator("#keys button")
                sync_api.expect(keys).to_contain_text(tokens, timeout=60_000)
                assert english.input_value() == translator(sentence)

            source.fill(SENTENCE)
            page.keyboard.press("Enter")
            expect(SENTENCE)
            page.get_by_label("English reads itself").check()
            sync_api.expect(frame.locator("#keys button").first).to_contain_text("<s>")
            page.get_by_label("English reads Portuguese").check()
            page.get_by_role("tab", name="Alternatives").click()
            best = translator.n_best([SENTENCE])[0][1][0]
            page.get_by_role("cell", name=best).or_(
                page.get_by_text(best)
            ).last.wait_for()
            for tab in ("Positions", "Masks"):
                page.get_by_role("tab", name=tab).click()
                pictures = page.get_by_role("tabpanel").locator("img:visible")
                sync_api.expect(pictures).to_have_count(2, timeout=60_000)
            page.get_by_role("tab", name="Attention").click()
            page.get_by_text(demo.EXAMPLES[0]).click()
            expect(demo.EXAMPLES[0])
            for text, message in (
                ("", "Write something"),
                ("a " * 1500, "takes 2,000"),
            ):
                source.fill(text)
                page.get_by_role("button", name="Translate").click()
                page.get_by_text(message).wait_for()
                assert english.input_value() == ""
            # Nothing is fetched from elsewhere, nor goes there.
            assert not wrong
            assert not [x for x in asked if not x.startswith((url, "data:", "blob:"))]
            browser.close()
        server.send_signal(signal.SIGTERM)
        assert server.communicate(timeout=60) == ("", None) and server.returncode == 0
    finally:
        server.kill()
        server.wait()
