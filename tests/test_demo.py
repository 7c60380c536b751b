"""The page to play with: what it shows, the model it finds, and in a browser."""

import base64
import html.parser
import itertools
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.request

import pytest

pytest.importorskip("matplotlib", reason="the page draws: pip install matplotlib")

from tfxformer import cli, demo, demo_answers
from tfxformer.decoding import DecodingOptions
from tfxformer.demo_answers import ACROSS, PT_EN, SOURCE, TARGET, Names, answers
from tfxformer.errors import UserError
from tfxformer.run import Run, build_model
from tfxformer.translator import Translator

SENTENCE = "O gato preto bebeu o leite."
EVIL = "<img src=x onerror=\"alert('no')\"> ${alert(1)} {{value}} `</iframe>` \\\"'"
# What each tab shows.
TABS = {
    "Attention": "iframe.attention",
    "N-best": "#n-best td",
    "Positions": "#positions img",
    "Masks": "#masks img",
}
START = 240  # seconds that a page may take to begin, on a busy machine


@pytest.fixture(scope="module")
def brief(translator):
    """It ends each sentence soon, as tests like it."""
    options = DecodingOptions(max_length=8)
    return Translator(translator.tokenizer, translator.transformer, options)


def shown(translator, text, **arguments):
    """All that is shown in the end, and how the translation came to be."""
    found, seen = dict.fromkeys(demo_answers.Answer._fields), []
    for bits in answers(translator, text, **arguments):
        new = {name: bit for name, bit in bits._asdict().items() if bit is not None}
        found |= new
        seen += [new["translation"]] if "translation" in new else []
    return found, seen


class _Tags(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data

    def of(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


# --- What it shows ---


@pytest.fixture(scope="module")
def answered(brief):
    return shown(brief, f"  {SENTENCE}\n")


def test_a_translation_is_seen_to_grow(brief, answered):
    found, seen = answered
    assert found["translation"] == brief(SENTENCE) == seen[-1]
    assert seen[0] == "" and len({*seen}) > 3
    assert all(later.startswith(sooner) for sooner, later in itertools.pairwise(seen))
    assert found["sentence"] == SENTENCE
    tokens = len(brief.explain(SENTENCE).target_tokens)
    said = _Tags(found["status"]).text
    assert re.fullmatch(rf".* {tokens} tokens in \d+\.\d s\.", said)
    assert said.startswith(found["translation"])  # what a screen reader tells


def test_the_best_of_many_have_their_scores(brief, answered):
    table = answered[0]["n_best"]
    cells = re.findall(r"<td>(.*?)</td>", table)
    best = brief.n_best([SENTENCE])[0]
    assert len(best) == 4 and len(cells) == 16
    for row, (translation, score) in enumerate(best):
        place, text, number, share = cells[4 * row : 4 * row + 4]
        assert (int(place), float(number)) == (row + 1, round(score, 3))
        assert text == translation.replace("'", "&#x27;")
        assert 0 < int(share.rstrip("%")) <= 100


@pytest.mark.parametrize("kind", [ACROSS, SOURCE, TARGET])
@pytest.mark.parametrize("dark", [False, True])
def test_attention_is_a_page_that_sees_nothing_else(brief, answered, kind, dark):
    page = demo_answers.attention_of(brief, SENTENCE, kind=kind, dark=dark)
    if (kind, dark) == (ACROSS, False):
        assert page == answered[0]["attention"]
    (frame,) = _Tags(page).of("iframe")
    assert frame["sandbox"] == "allow-scripts" and frame["title"]
    assert "http" not in re.sub(r"http://www.w3.org/\S+", "", frame["srcdoc"])
    theme = _Tags(frame["srcdoc"]).of("html")[0]["data-theme"]
    assert theme == ("dark" if dark else "light")
    pieces = brief.explain(SENTENCE).source_tokens[:-1] if kind != TARGET else ()
    assert all(piece.strip("▁") in frame["srcdoc"] for piece in pieces)


def test_positions_and_masks_are_of_that_very_sentence(brief, answered):
    tokens = brief.explain(SENTENCE)
    source, target = len(tokens.source_tokens), len(tokens.target_tokens)
    for part, sizes in (("positions", [source]), ("masks", [source, target])):
        tags = _Tags(answered[0][part])
        pictures = tags.of("img")
        assert len(pictures) == len(tags.of("figcaption")) == 2
        for picture in pictures:
            kind, data = picture["src"].split(",")
            assert kind == "data:image/svg+xml;base64"
            assert b"<svg" in base64.b64decode(data)
        alternatives = " ".join(picture["alt"] for picture in pictures)
        assert all(f"{size} " in alternatives for size in sizes)
    assert f"0: {tokens.source_tokens[0]}" in _Tags(answered[0]["positions"]).text


def test_masks_are_those_of_the_model(brief, monkeypatch):
    drawn = []

    def draw(queries, keys, mask, dark):
        drawn.append((queries, keys, mask.tolist(), dark))

    monkeypatch.setattr(demo_answers, "draw_mask", draw)
    monkeypatch.setattr(demo_answers, "svg", lambda figure: b"")
    maps = demo_answers.attention_maps(brief, SENTENCE)
    demo_answers._masks(maps, PT_EN, dark=True)
    (rows, columns, padding, _), (written, before, ahead, dark) = drawn
    assert rows == maps.source_tokens and columns == [*rows, *["<pad>"] * 3]
    assert padding == [[True] * len(rows) + [False] * 3] * len(rows)
    assert written == before == maps.target_inputs and dark
    assert ahead == [[c <= r for c in range(len(before))] for r in range(len(written))]


def test_a_model_without_positions_has_none_to_show(brief, monkeypatch):
    layer = brief.transformer.encoder.pos_embedding
    monkeypatch.setattr(layer, "use_positions", False)
    maps = demo_answers.attention_maps(brief, SENTENCE)
    said = demo_answers._positions(brief.transformer, maps, PT_EN, dark=False)
    assert "no positions" in said and "<img" not in said


@pytest.mark.parametrize("text", ["", "  \n", None])
def test_nothing_is_answered_with_what_to_do(brief, text):
    found, _ = shown(brief, text)
    assert found.pop("status") == "Write something to translate first."
    assert {*found.values()} == {""}


def test_what_is_shown_before_does_not_stay(brief):
    """An answer begins by clearing all there was of another."""
    first = next(answers(brief, SENTENCE))
    assert first == ("", "Translating…", "", "", "", "", "")


def test_too_much_is_refused_and_a_document_is_not(brief):
    found, _ = shown(brief, "a" * (demo_answers.MOST_CHARACTERS + 1))
    assert "2,001 characters" in found["status"] and "2,000" in found["status"]
    assert "tfxformer translate" in found["status"] and found["translation"] == ""

    text = "Olá! Bom dia.\nSim."
    found, _ = shown(brief, text)
    assert found["translation"] == brief(text) and found["sentence"] == "Olá!"
    assert "in 3 parts" in found["status"] and "“Olá!”" in found["status"]

    long = "gato " * 60  # one sentence of more than the model reads
    found, _ = shown(brief, long)
    assert found["translation"] == brief(long.strip())
    assert "of 47 tokens at most" in found["status"]
    assert f"“{found['sentence']}”" in found["status"]
    assert found["sentence"] == brief.parts(long)[1]
    assert found["attention"] and found["positions"] and found["masks"]


def test_text_stays_text(brief, monkeypatch):
    monkeypatch.setattr(brief, "stream", lambda text: iter([text, text]))
    monkeypatch.setattr(brief, "n_best", lambda texts: [[(EVIL, -0.5)]])
    found, _ = shown(brief, EVIL)
    assert found["translation"] == EVIL  # the page escapes it, see below
    for name in ("status", "n_best", "attention", "positions", "masks"):
        tags = _Tags(found[name])
        assert not tags.of("script") and len(tags.of("iframe")) <= 1
        assert all("onerror" not in attributes for _, attributes in tags.tags)
    assert EVIL in _Tags(found["status"]).text
    assert EVIL in _Tags(found["n_best"]).text
    (frame,) = _Tags(found["attention"]).of("iframe")
    inside = _Tags(frame["srcdoc"])
    assert not inside.of("img") and not inside.of("iframe")


def test_nothing_that_goes_wrong_is_a_traceback(brief, monkeypatch, caplog):
    def fails(text):
        yield "So"
        raise ValueError("secret")

    logging.getLogger("tfxformer").propagate = True
    monkeypatch.setattr(brief, "stream", fails)
    found, _ = shown(brief, SENTENCE)
    said = found.pop("status")
    assert "went wrong" in said and "secret" not in said
    assert {*found.values()} == {""}
    assert "secret" in caplog.text  # for whom runs the page

    def refuses(text):
        raise UserError("no <such> thing")
        yield

    monkeypatch.setattr(brief, "stream", refuses)
    assert shown(brief, SENTENCE)[0]["status"] == "no &lt;such&gt; thing"


def test_two_at_once_do_not_mix(brief, answered):
    texts = [SENTENCE, "Olá!"]
    alone = [answered[0], shown(brief, texts[1])[0]]
    together = [None] * len(texts)

    def ask(place):
        together[place] = shown(brief, texts[place])[0]

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for found, expected in zip(together, alone, strict=True):
        for name in ("translation", "n_best", "attention", "sentence"):
            assert found[name] == expected[name]


# --- Its model ---


def test_sides_are_named_where_they_are_known(run_folder, tmp_path):
    assert demo.side_names(run_folder) == PT_EN
    assert demo.side_names("export/pt_en/3") == PT_EN
    other = tmp_path / "run"
    shutil.copytree(run_folder, other, ignore=shutil.ignore_patterns("tokens", "ch*"))
    settings = (other / "config.yaml").read_text("utf-8")
    for old, new, names in (
        ("- phrasebook", "- mine.tsv", Names("the source", "the target")),
    ):
        assert old in settings
        changed = settings.replace(old, new)
        (other / "config.yaml").write_text(changed, "utf-8")
        assert demo.side_names(other) == names


# --- Its command ---


@pytest.fixture
def wrong(monkeypatch, capfd):
    """Runs the command, which must fail; gives its one line."""

    def run(*arguments):
        command = ["tfxformer", "demo", *map(str, arguments)]
        monkeypatch.setattr(sys, "argv", command)
        with pytest.raises(SystemExit) as end:
            cli.main()
        out, err = capfd.readouterr()
        assert (end.value.code, out) == (1, "") and "Traceback" not in err
        return err.strip().splitlines()[-1]

    return run


@pytest.fixture(autouse=True)
def _signals():
    """The command sets how SIGTERM ends it."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("module", ["gradio", "matplotlib"])
def test_a_missing_library_is_named(wrong, monkeypatch, module):
    there = cli.importlib.util.find_spec("json")
    monkeypatch.setattr(
        cli.importlib.util, "find_spec", lambda name: None if name == module else there
    )
    assert wrong() == (
        f"tfxformer: error: {module} is missing: pip install 'tfxformer[demo]'"
    )


def test_a_taken_port_and_a_bad_run_are_named(wrong, tmp_path):
    pytest.importorskip("gradio", reason="the extra demo is not installed")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = wrong("--run", tmp_path, "--port", port)
    assert f"--port {port}: " in said and "is another page running there?" in said
    assert f"{tmp_path}/no: there is no such run folder" in wrong(
        "--run", tmp_path / "no", "--port", 0
    )
    assert "not a run folder, config.yaml is missing" in wrong(
        "--run", tmp_path, "--port", 0
    )
    assert "no.such.host" in wrong("--run", tmp_path, "--host", "no.such.host.invalid")


# --- Its server ---


@pytest.fixture(scope="module")
def application(brief):
    pytest.importorskip("gradio", reason="the extra demo is not installed")
    return demo.application(demo.page(brief, PT_EN, "a <model>"))


def test_the_page_tells_nobody(application):
    from starlette.testclient import TestClient

    with TestClient(application) as client:
        page = client.get("/")
        assert page.status_code == 200 and "Portuguese to English" in page.text
        policy = page.headers["content-security-policy"]
        assert "default-src 'self'" in policy and "http" not in policy
        config = client.get("/config").json()
        theme = client.get("/theme.css").text
        assert client.get("/docs").status_code == 404
        assert client.get("/monitoring/summary").status_code != 200
        files = {"files": ("x.txt", b"x" * 5000)}
        assert client.post("/gradio_api/upload", files=files).status_code >= 400
    assert config["analytics_enabled"] is False
    assert "fonts.g" not in page.text + theme
    shown = " ".join(str(part["props"]) for part in config["components"])
    for words in ("'Portuguese'", "Translate", "Whose attention", "a <model>"):
        assert words in shown


def test_other_sides_have_other_labels(brief):
    pytest.importorskip("gradio", reason="the extra demo is not installed")
    blocks = demo.page(brief, Names("the source", "the target"))
    shown = str([part["props"] for part in blocks.get_config_file()["components"]])
    assert "The target on the source" in shown and "gato" not in shown
    assert "My sister" in str(
        demo.page(brief, Names("English", "Portuguese")).get_config_file()
    )


# --- In a browser ---


class Server:
    """`tfxformer demo` until it is stopped."""

    def __init__(self, *arguments):
        command = [sys.executable, "-m", "tfxformer.cli", "demo", "--port", "0"]
        self.said = tempfile.TemporaryFile()  # noqa: SIM115 - it is read at the end
        self.process = subprocess.Popen(
            [*command, *map(str, arguments)], stdout=subprocess.PIPE, stderr=self.said
        )
        # Its address is its answer, and nothing else.
        self.url = self.process.stdout.readline().decode().strip()
        if not self.url:
            self.process.kill()
            raise AssertionError(self.errors())

    def errors(self):
        self.said.seek(0)
        return self.said.read().decode()

    def stop(self, number):
        self.process.send_signal(number)
        out, _ = self.process.communicate(timeout=START)
        return out, self.process.returncode


@pytest.fixture(scope="module")
def two_layers(run_folder, tmp_path_factory):
    """The same model with a second layer that adds nothing: one to choose from."""
    folder = tmp_path_factory.mktemp("two") / "run"
    shutil.copytree(run_folder, folder, ignore=shutil.ignore_patterns("tokens", "ch*"))
    settings = (folder / "config.yaml").read_text("utf-8")
    assert "num_layers: 1\n" in settings and "norm: pre\n" in settings
    settings = settings.replace("num_layers: 1\n", "num_layers: 2\n")
    (folder / "config.yaml").write_text(settings, "utf-8")
    tokenizer, one = Run.open(run_folder).load()
    two = build_model(Run.open(folder).config(), tokenizer.vocab_size)
    by_name = {weight.path.partition("/")[2]: weight for weight in one.weights}
    for weight in two.weights:
        name = weight.path.partition("/")[2]
        value = by_name[name.replace("/layer_1/", "/layer_0/")]
        adds_nothing = "/layer_1/" in name and "/output/" in name
        weight.assign(0 * value if adds_nothing else value)
    two.save_weights(folder / "best.weights.h5")
    return folder


@pytest.fixture(scope="module")
def server(two_layers):
    pytest.importorskip("gradio", reason="the extra demo is not installed")
    server = Server("--run", two_layers)
    yield server
    server.process.kill()
    server.process.wait()


@pytest.fixture(scope="module")
def chromium():
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed"
    )
    found = (shutil.which(name) for name in ("chromium", "chromium-browser", "chrome"))
    path = next(filter(None, found), None)
    if path is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    # It refuses a sandbox to root, who runs CI.
    options = ["--no-sandbox"] if os.getuid() == 0 else []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=options)
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium, server):
    """Opens the page as a new user; at the end nothing may have gone elsewhere."""
    contexts, asked, wrong = [], [], []

    def visit(width=1280, height=900, scheme="light", touch=False):
        context = chromium.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            has_touch=touch,
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda m: m.type == "error" and wrong.append(m.text))
        page.on("dialog", lambda dialog: wrong.append(dialog.message))
        page.goto(server.url)
        page.get_by_label("Portuguese", exact=True).wait_for()
        return page

    yield visit
    for context in contexts:
        context.close()
    assert asked and wrong == []
    assert [x for x in asked if not x.startswith((server.url, "data:", "blob:"))] == []


def translate(page, translator, text):
    """Types a text, and waits for its answer."""
    page.get_by_label("Portuguese", exact=True).fill(text)
    page.keyboard.press("Enter")
    wait_for(page, translator, text)


def wait_for(page, translator, text):
    """Waits until the attention is that of a text, which comes after its status."""
    from playwright.sync_api import expect

    sentence = translator.parts(text.strip())[1]
    keys = attention(page).locator("#keys button")
    tokens = translator.explain(sentence).source_tokens
    expect(keys).to_contain_text(tokens, timeout=60_000)


def expect_count(locator, count):
    from playwright.sync_api import expect

    expect(locator).to_have_count(count, timeout=60_000)


def english(page):
    return page.locator("#translation p").inner_text()


def attention(page):
    return page.frame_locator("iframe.attention")


def reads(page):
    """What the attention's page says of the chosen token."""
    return attention(page).locator("#says").inner_text()


def scrolls_sideways(page):
    width = "document.documentElement.scrollWidth > window.innerWidth"
    return page.evaluate(width)


@pytest.mark.slow
def test_one_sees_a_translation_grow_and_what_it_read(visit, translator):
    page = visit()
    assert page.title() == "Portuguese to English"
    page.evaluate("""() => {
        window.seen = [];
        new MutationObserver(() => {
            const text = document.querySelector("#translation p")?.innerText;
            if (text && window.seen.at(-1) !== text) window.seen.push(text);
        }).observe(document.querySelector("#translation"),
                   { subtree: true, childList: true, characterData: true });
    }""")
    translate(page, translator, SENTENCE)
    assert english(page) == translator(SENTENCE)
    seen = page.evaluate("window.seen")
    assert len(seen) > 2 and seen[-1] == english(page)
    for sooner, later in itertools.pairwise(seen):
        assert later.startswith(sooner)

    tokens = translator.explain(SENTENCE)
    queries = attention(page).locator("#queries button")
    assert queries.count() == len(tokens.target_tokens)
    before = reads(page)
    queries.nth(2).hover()
    assert reads(page) != before
    assert tokens.target_tokens[2].strip("▁") in reads(page)
    # Another head, another layer or their mean, and other attention.
    heads = {reads(page)}
    for head in (1, 2, 3):
        attention(page).get_by_label("Head").select_option(index=head)
        heads.add(reads(page))
    assert len(heads) == 4
    layers = attention(page).get_by_label("Layer").locator("option").all_inner_texts()
    assert len(layers) > 2
    seen = set()
    for layer in range(len(layers)):
        attention(page).get_by_label("Layer").select_option(index=layer)
        seen.add(reads(page))
    assert len(seen) == len(layers)
    page.get_by_label("Portuguese on itself").check()
    keys = attention(page).locator("#keys button")
    expect_count(queries, len(tokens.source_tokens))
    assert keys.count() == len(tokens.source_tokens)
    page.get_by_label("English on itself").check()
    expect_count(queries, len(tokens.target_tokens))
    assert queries.first.inner_text().startswith("<s>")

    page.get_by_role("tab", name="N-best").click()
    page.get_by_role(
        "cell", name=translator.n_best([SENTENCE])[0][0][0]
    ).first.wait_for()
    for tab, part in (("Positions", "#positions"), ("Masks", "#masks")):
        page.get_by_role("tab", name=tab).click()
        expect_count(page.locator(f"{part} img"), 2)
        for picture in page.locator(f"{part} img").all():
            assert picture.evaluate("i => i.decode().then(() => i.naturalWidth)") > 99


@pytest.mark.slow
def test_examples_and_what_is_no_sentence(visit, translator):
    page = visit()
    page.get_by_role("button", name=demo.PORTUGUESE[0]).click()
    wait_for(page, translator, demo.PORTUGUESE[0])
    assert english(page) == translator(demo.PORTUGUESE[0])
    assert (
        page.get_by_label("Portuguese", exact=True).input_value()
        == (demo.PORTUGUESE[0])
    )
    status = page.locator("#status")
    for text, said in (("", "Write something"), ("a " * 1500, "2,000")):
        page.get_by_label("Portuguese", exact=True).fill(text)
        page.get_by_role("button", name="Translate").click()
        status.get_by_text(said).wait_for()
        assert english(page) == "" and page.locator("iframe").count() == 0
    long = "gato " * 60
    translate(page, translator, long)
    assert english(page) == translator(long.strip())
    parts = len(translator.parts(long.strip())[1::2])
    assert f"in {parts} parts" in status.inner_text()
    page.get_by_label("Portuguese", exact=True).fill(EVIL)
    page.keyboard.press("Enter")
    status.get_by_text(EVIL[-9:]).or_(status.get_by_text("tokens in")).first.wait_for()
    page.get_by_role("tab", name="Masks").click()
    expect_count(page.locator("#masks img"), 2)
    assert page.locator("#translation img, #status img").count() == 0
    assert "Traceback" not in page.locator("body").inner_text()


@pytest.mark.slow
def test_two_users_do_not_mix(visit, translator):
    one, other = visit(), visit()
    texts = ["O menino bebe água.", "A minha irmã tem um gato preto. Olá!"]
    for page, text in zip((one, other), texts, strict=True):
        page.get_by_label("Portuguese", exact=True).fill(text)
        page.keyboard.press("Enter")
    for page, text in zip((one, other), texts, strict=True):
        wait_for(page, translator, text)
        assert english(page) == translator(text)
        first = translator.explain(translator.parts(text)[1])
        expect_count(attention(page).locator("#keys button"), len(first.source_tokens))
    # The same user's second text waits for the first.
    one.get_by_label("Portuguese", exact=True).fill(texts[1])
    one.keyboard.press("Enter")
    translate(one, translator, SENTENCE)
    assert english(one) == translator(SENTENCE)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone(visit, translator, scheme):
    page = visit(width=320, height=640, scheme=scheme, touch=True)
    assert not scrolls_sideways(page)
    translate(page, translator, SENTENCE)
    before = reads(page)
    attention(page).locator("#queries button").nth(1).tap()
    assert reads(page) != before
    for tab, part in TABS.items():
        page.get_by_role("tab", name=tab).tap()
        page.locator(part).first.wait_for()
        assert not scrolls_sideways(page)
    page.get_by_role("tab", name="Attention").tap()
    # Letters stand out from their ground, in either scheme, the frame's too.
    inside = attention(page).locator("body").evaluate(_LIGHTNESS)
    outside = page.locator("body").evaluate(_LIGHTNESS)
    for letters, ground in (inside, outside):
        assert (ground < 0.1 < 0.7 < letters) == (scheme == "dark")
        assert (letters < 0.2 < 0.9 < ground) == (scheme == "light")


# How light an element's letters and its ground are, from 0 to 1.
_LIGHTNESS = r"""element => {
    const style = getComputedStyle(element);
    return [style.color, style.backgroundColor].map((colour) =>
        colour.match(/[\d.]+/g).slice(0, 3).reduce((sum, x) => sum + Number(x), 0)
        / 765);
}"""


@pytest.mark.slow
def test_without_a_mouse(visit, translator):
    page = visit()
    page.keyboard.type("Olá!")  # the text box has the focus from the beginning
    page.keyboard.press("Enter")
    wait_for(page, translator, "Olá!")
    assert english(page) == translator("Olá!")
    stops = set()

    def to(name):
        for _ in range(40):
            page.keyboard.press("Tab")
            here = page.evaluate(_FOCUSED)
            stops.add(here)
            if here == name:
                return
        raise AssertionError(f"{name} is not among {stops}")

    to(demo.PORTUGUESE[1])
    page.keyboard.press("Enter")
    wait_for(page, translator, demo.PORTUGUESE[1])
    to("encoder")  # a radio button
    page.keyboard.press("Space")
    title = "What each token of Portuguese reads of its own sentence"
    page.get_by_title(title).wait_for()
    to(title)
    before = reads(page)
    for _ in range(4):  # its layer, its head, its tokens
        page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    attention(page).locator("#queries").wait_for()
    assert "Tab" in attention(page).locator(".hint").inner_text()
    page.get_by_label("Portuguese", exact=True).focus()
    to("Masks")
    page.keyboard.press("Enter")
    page.locator("#masks img").first.wait_for()
    assert before


_FOCUSED = """(() => {
    const element = document.activeElement;
    return element.title || element.innerText || element.value;
})()"""


@pytest.mark.slow
def test_screen_readers_have_names_for_all_of_it(visit, translator):
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright",
        reason="axe-playwright-python is not installed",
    ).Axe()
    from playwright.sync_api import expect

    page = visit()
    status = page.locator("#status")
    # A moment after the page is there.
    expect(status).to_have_attribute("role", "status")
    expect(status).to_have_attribute("aria-live", "polite")
    assert page.evaluate("document.documentElement.lang") == "en"
    translate(page, translator, SENTENCE)
    assert translator(SENTENCE) in status.inner_text()  # what is told
    for tab, part in TABS.items():
        page.get_by_role("tab", name=tab).click()
        page.locator(part).first.wait_for()
        found = axe.run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21aa"]})
        wrong = [
            (rule["id"], [node["html"][:120] for node in rule["nodes"]])
            for rule in found.response["violations"]
        ]
        assert wrong == []


@pytest.mark.slow
def test_it_ends_when_it_is_told_to(run_folder, server, chromium):
    other = Server("--run", run_folder)
    with urllib.request.urlopen(other.url, timeout=60) as page:
        assert page.status == 200
    assert other.stop(signal.SIGINT) == (b"", 130)
    assert "Traceback" not in other.errors()
    # The last of this file's: the page that the others opened, while one is open.
    page = chromium.new_page()
    page.goto(server.url)
    page.get_by_label("Portuguese", exact=True).wait_for()
    assert server.stop(signal.SIGTERM) == (b"", 0)
    assert "Traceback" not in server.errors()
