"""A local page to play with a translator: `tfxformer demo`, the extra ``demo``."""

import asyncio
import contextlib
import os
import signal
from html import escape
from pathlib import Path

from tfxformer.console import say
from tfxformer.demo_answers import (
    ACROSS,
    PT_EN,
    SOURCE,
    TARGET,
    Names,
    answers,
    attention_of,
)
from tfxformer.errors import UserError
from tfxformer.exporting.repository import SHIPPED, chosen_model
from tfxformer.listening import bind, in_address, told_to_end
from tfxformer.run import Run
from tfxformer.translator import Translator

PORTUGUESE = [
    "A minha irmã tem um gato preto.",
    "A bola é azul.",
    "Quanto custa este livro?",
    "Vou à praia amanhã.",
    "Ela não gosta de café. Ele gosta de chá.",
]
ENGLISH = [
    "My sister has a black cat.",
    "The ball is blue.",
    "How much does this book cost?",
    "I'm going to the beach tomorrow.",
    "She doesn't like coffee. He likes tea.",
]
_WHOSE = "Whose attention"
# Users whose translations are written at the same time.
AT_ONCE = 4
# Seconds that open connections have when the page is to end.
GRACE = 1
# Whatever a page's library thinks of: nothing is fetched from elsewhere.
POLICY = (
    b"default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; "
    b"form-action 'self'; base-uri 'self'; object-src 'none'"
)


def demo(run=None, checkpoint="best", host="127.0.0.1", port=7860):
    """Serves the page until SIGTERM or Ctrl-C; prints its address once it is there.

    Args:
        run: a run folder or an exported model; None for the model that comes with the
            package.
        checkpoint: "best" or "last", for a run folder.
        host: the address to listen on.
        port: 0 for one that is free.

    Raises:
        UserError: when the port is taken, or there is no such model.
        KeyboardInterrupt: after Ctrl-C.

    Example:
        >>> demo("nowhere", port=0)
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: nowhere: there is no such run folder
    """
    listener = _bind(host, port)  # what is taken is told before a model is loaded
    path = chosen_model(run)
    translator = Translator.load(path, checkpoint)
    names = side_names(path)
    app = application(page(translator, names, described(path, translator)))
    say("getting ready")
    for _ in answers(translator, "Olá."):  # traces what a graph has, finds the fonts
        pass
    address = f"http://{in_address(host)}:{listener.getsockname()[1]}/"
    if asyncio.run(_serve(app, listener, address)) == signal.SIGINT:
        raise KeyboardInterrupt


def side_names(path):
    """What a model's sides are called.

    Args:
        path: a run folder, or an exported model ``NAME/VERSION``.

    Returns:
        `Names`: the languages where they are known, by the corpora that a run was
        trained on or by an export's name, and "the source" and "the target" elsewhere.

    Example:
        >>> side_names("export/pt_en/3").source, side_names("export/mine/1").target
        ('Portuguese', 'the target')
    """
    if Path(path).resolve().parent.name == SHIPPED:
        return PT_EN
    with contextlib.suppress(UserError):
        data = Run.open(path).config().data
        if data.sources and {*data.sources} <= {"phrasebook", "ted"}:
            return PT_EN
    return Names("the source", "the target")


def described(path, translator):
    """A model in one line.

    Args:
        path: where it is.
        translator: a `Translator` with its Keras model.

    Returns:
        Text.
    """
    path, transformer = Path(path), translator.transformer
    name = "/".join(path.parts[-2:])
    depths = len(transformer.encoder.enc_layers), len(transformer.decoder.dec_layers)
    layers = f"{depths[0]} layers"
    if depths[0] != depths[1]:
        layers = "{} and {} layers".format(*depths)
    return (
        f"{name}: {layers}, {transformer.config['num_heads']} heads, "
        f"{transformer.count_params() / 1e6:.1f} million parameters"
    )


def page(translator, names=PT_EN, model=""):
    """The page.

    Args:
        translator: a `Translator` with its Keras model.
        names: `Names` of the two sides.
        model: a line on the model.

    Returns:
        Gradio's ``Blocks``; `application` serves it.
    """
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # before it is imported
    import gradio as gr

    examples = {"Portuguese": PORTUGUESE, "English": ENGLISH}.get(names.source)
    title = f"{names.source} to {names.target}" if examples else "Translate"
    looks = [
        (f"{_capital(names.target)} on {names.source}", ACROSS),
        (f"{_capital(names.source)} on itself", SOURCE),
        (f"{_capital(names.target)} on itself", TARGET),
    ]

    def answer(text, kind, dark):
        for bits in answers(translator, text, names, kind, dark):
            if bits.translation is not None:
                bits = bits._replace(translation=escape(bits.translation))
            yield tuple(gr.skip() if bit is None else bit for bit in bits)

    def look(sentence, kind, dark):
        return attention_of(translator, sentence, names, kind, dark)

    with gr.Blocks(title=title, analytics_enabled=False, fill_width=False) as blocks:
        gr.Markdown(f"# {title}\n{model}")
        text = gr.Textbox(
            label=_capital(names.source),
            placeholder="Type here, then press Enter",
            lines=1,
            max_lines=8,
            autofocus=True,
            elem_id="text",
        )
        go = gr.Button("Translate", variant="primary", elem_id="translate")
        if examples:
            clicked = gr.Examples(
                [[example] for example in examples], [text], elem_id="examples"
            )
        # No text box: those that cannot be written in cannot be reached by keyboard.
        translation = gr.HTML(
            html_template=_TRANSLATION.replace("NAME", _capital(names.target)),
            elem_id="translation",
        )
        hint = "Type something, or choose an example." if examples else ""
        status = gr.HTML(hint, elem_id="status")
        with gr.Tabs(elem_id="tabs"):
            with gr.Tab("Attention"):
                kind = gr.Radio(looks, value=ACROSS, label=_WHOSE, elem_id="kind")
                attention = gr.HTML(elem_id="attention")
            with gr.Tab("N-best"):
                n_best = gr.HTML(elem_id="n-best")
            with gr.Tab("Positions"):
                positions = gr.HTML(elem_id="positions")
            with gr.Tab("Masks"):
                masks = gr.HTML(elem_id="masks")
        dark = gr.Checkbox(visible=False)
        sentence = gr.State("")

        shown = [translation, status, n_best, attention, positions, masks, sentence]
        # One event for all that can be pressed, so that of a user's two texts the
        # second waits for the first and nothing of them mixes.
        gr.on(
            [go.click, text.submit],
            answer,
            [text, kind, dark],
            shown,
            js=_WITH_THEME,
            trigger_mode="always_last",
            concurrency_limit=AT_ONCE,
            show_progress="hidden",
            api_visibility="private",
        )
        kind.change(
            look,
            [sentence, kind, dark],
            attention,
            js=_WITH_THEME,
            trigger_mode="always_last",
            concurrency_limit=AT_ONCE,
            show_progress="hidden",
            api_visibility="private",
        )
        if examples:
            clicked.load_input_event.then(None, js=_PRESS)
    return blocks


def application(blocks):
    """What a web server runs.

    Args:
        blocks: what `page` gives.

    Returns:
        An ASGI application.
    """
    import gradio as gr
    from fastapi import FastAPI

    # Fonts that are there already: Gradio's own would come from elsewhere.
    theme = gr.themes.Default(
        primary_hue="blue",
        font=["system-ui", "sans-serif"],
        font_mono=["ui-monospace", "monospace"],
    )
    # Gradio's own are too pale for many eyes (WCAG 2, contrast of 4.5 to 1).
    theme.set(
        button_primary_background_fill="*primary_700",
        button_primary_background_fill_hover="*primary_800",
        button_primary_background_fill_dark="*primary_700",
        button_primary_background_fill_hover_dark="*primary_800",
        button_primary_text_color="white",
        body_background_fill_dark="#14171c",  # as the pictures'
        body_text_color_subdued="*neutral_600",
        body_text_color_subdued_dark="*neutral_300",
        block_title_text_color="*body_text_color",
        block_title_text_color_dark="*body_text_color",
        block_label_text_color="*body_text_color",
        block_label_text_color_dark="*body_text_color",
        input_placeholder_color="*neutral_600",
        input_placeholder_color_dark="*neutral_400",
    )
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    gr.mount_gradio_app(
        app,
        blocks,
        path="",
        theme=theme,
        head=f"<style>{_CSS}</style>",  # as it is: Gradio would rewrite its selectors
        js=_ON_LOAD,
        footer_links=[],
        run_history=False,  # what is typed stays nowhere
        show_error=False,
        ssr_mode=False,
        pwa=False,
        mcp_server=False,
        enable_monitoring=False,
        max_file_size="1kb",  # there is nothing to upload
    )
    return _with_policy(app)


def _with_policy(app):
    async def with_policy(scope, receive, send):
        async def send_with_policy(message):
            if message["type"] == "http.response.start":
                headers = [*message["headers"], (b"content-security-policy", POLICY)]
                message = {**message, "headers": headers}
            await send(message)

        await app(scope, receive, send_with_policy)

    return with_policy


async def _serve(app, listener, address):
    """Serves; returns the signal that ended it."""
    import uvicorn

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self):  # they are caught here
            yield

    told = told_to_end()
    server = Server(
        uvicorn.Config(
            app,
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE,
        )
    )
    serving = asyncio.create_task(server.serve([listener]))
    while not server.started:
        if serving.done():
            serving.result()
            raise RuntimeError("the page's server ended before it began")
        await asyncio.sleep(0.01)
    print(address, flush=True)
    say("press Ctrl-C to end it")
    number = await told
    server.should_exit = True
    await serving
    return number


def _bind(host, port):
    try:
        return bind(host, port)
    except OSError as error:
        raise UserError(
            f"--host {host} --port {port}: {error.strerror}; is another page running "
            "there? Choose another port, or 0 for one that is free"
        ) from None


def _capital(name):
    """A name as it begins a label.

    Example:
        >>> _capital("the source"), _capital("English")
        ('The source', 'English')
    """
    return name[0].upper() + name[1:]


# --- What the browser is given ---

# The third input is whether the page is dark, which only the browser knows.
_WITH_THEME = (
    "(first, kind, dark) => [first, kind, document.body.classList.contains('dark')]"
)
_PRESS = "() => { document.querySelector('#translate').click(); }"
# Screen readers tell what changes in the status; nothing else interrupts them.
_ON_LOAD = """() => {
  document.documentElement.lang = "en";
  const status = document.querySelector("#status");
  status.setAttribute("role", "status");
  status.setAttribute("aria-live", "polite");
  document.querySelector("#kind").setAttribute("aria-label", "WHOSE");
  // As high as its page, but never so high that its last line is out of sight.
  addEventListener("message", (event) => {
    const frame = document.querySelector("iframe.attention");
    if (frame && event.source === frame.contentWindow && event.data.height) {
      frame.style.height = `${Math.min(event.data.height, 0.85 * innerHeight)}px`;
    }
  });
}""".replace("WHOSE", _WHOSE)
_TRANSLATION = """<section aria-labelledby="target"><h2 id="target">NAME</h2>
<p>${value}</p></section>"""
_CSS = """
:root { --color-accent: #1d4ed8 !important; }
.dark { --color-accent: #93c5fd !important; }
/* What is wide scrolls in its own place, the page never does. */
.gradio-container {
  width: 100% !important; max-width: 60rem !important; min-width: 0 !important;
  margin: 0 auto !important;
}
.gradio-container main, .gradio-container .main, .gradio-container .wrap,
.gradio-container .column, .gradio-container .tabs { min-width: 0 !important; }
.html-container { padding: 0 !important; }
@media (max-width: 30rem) {
  .gradio-container .main { padding: .75rem !important; }
  #tabs .tab-container button { padding: 0 .4rem !important; }
}
#translation section {
  border: 1px solid var(--border-color-primary); padding: .5rem .75rem;
  border-radius: var(--block-radius); background: var(--block-background-fill);
}
#translation h2 { font-size: var(--text-md); font-weight: 400; margin: 0; }
#translation p {
  font-size: 1.35rem; line-height: 1.4; min-height: 1.4em; margin: .25rem 0 0;
  white-space: pre-wrap; overflow-wrap: anywhere;
}
#status { min-height: 1.5em; }
#status .heard {
  position: absolute; width: 1px; height: 1px; overflow: hidden;
  clip-path: inset(50%); white-space: nowrap;
}
.wide { overflow-x: auto; }
iframe.attention { width: 100% !important; height: 34rem; border: 0; display: block; }
figure { margin: 0 0 2rem !important; }
figure img { display: block; max-width: none !important; margin: 0 !important; }
figcaption { color: var(--body-text-color-subdued); padding-top: .25rem; }
#n-best table {
  width: 100%; border: 0 !important; border-collapse: collapse; margin: 0;
}
#n-best tr { border: 0 !important; }
#n-best caption {
  caption-side: bottom; text-align: left; padding-top: .5rem;
  color: var(--body-text-color-subdued);
}
#n-best th, #n-best td {
  text-align: left; padding: .4rem .6rem;
  border: 0 solid var(--border-color-primary) !important;
  border-bottom-width: 1px !important;
}
#n-best td:nth-child(n + 3) { font-variant-numeric: tabular-nums; }
:focus-visible {
  outline: 2px solid var(--color-accent) !important; outline-offset: 2px;
}
"""
