"""A local page to try a translator: `tfxformer demo`, the extra ``demo``."""

import contextlib
import math
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import numpy as np

from tfxformer.console import say
from tfxformer.errors import UserError
from tfxformer.plots import draw_mask, draw_positions
from tfxformer.plots.attention_maps import AttentionPage, attention_maps
from tfxformer.repository import SHIPPED, chosen_model
from tfxformer.training.run import Run
from tfxformer.translator import Translator

EXAMPLES = [
    "A minha irmã tem um gato preto.",
    "A bola é azul.",
    "Quanto custa este livro?",
    "Vou à praia amanhã.",
    "Ela não gosta de café. Ele gosta de chá.",
]
# A page is for sentences; documents have `tfxformer translate` and `bulk`.
MOST_CHARACTERS = 2000
PADDING = 3  # tokens of padding in the picture of the padding mask


def demo(run=None, checkpoint="best", host="127.0.0.1", port=7860):
    """Serves the page until SIGTERM or Ctrl-C; prints its address once it is there.

    Args:
        run: a run folder or an exported model; None for the model that comes with the
            package.
        checkpoint: "best" or "last", for a run folder.
        host: the address to listen on.
        port: 0 for a free one.

    Raises:
        UserError: when the port is taken, or there is no such model.
        SystemExit: after SIGTERM.
        KeyboardInterrupt: after Ctrl-C.

    Example:
        >>> demo("nowhere", port=0)
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: nowhere: there is no such run folder
    """
    try:  # before the model loads, which takes seconds
        socket.create_server((host, port)).close()
    except OSError as error:
        raise UserError(f"--host {host} --port {port}: {error.strerror}") from None
    path = chosen_model(run)
    translator = Translator.load(path, checkpoint)
    page = _page(translator, *_languages(path), model="/".join(Path(path).parts[-2:]))
    say("getting ready")
    translator("Olá.")  # traces the graphs, so that the first user need not wait
    from gradio.themes import Default

    # Installed fonts: Gradio's own would come from elsewhere.
    fonts = {"font": ["system-ui"], "font_mono": ["monospace"]}
    page.launch(
        server_name=host,
        server_port=port or None,
        theme=Default(primary_hue="blue", **fonts),
        footer_links=[],
        prevent_thread_lock=True,
        quiet=True,
        share=False,
        ssr_mode=False,
        run_history=False,  # keeps nothing of what is typed
    )
    print(page.local_url, flush=True)
    say("press Ctrl-C to end it")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        threading.Event().wait()
    finally:
        page.close(verbose=False)


def _languages(path):
    """What to call the two sides: known for the package's own model and corpora."""
    ours = Path(path).resolve().parent.name == SHIPPED
    with contextlib.suppress(UserError):  # an exported model is no run folder
        sources = Run.open(path).config().data.sources
        ours = bool(sources) and {*sources} <= {"phrasebook", "ted"}
    return ("Portuguese", "English") if ours else ("Source", "Target")


def answers(translator, text):
    """All that the page shows of a text, each part as soon as it is there.

    Args:
        translator: a `Translator`.
        text: a string.

    Yields:
        Dicts of some of these: ``translation``, which grows token by token,
        ``status``, ``sentence`` (the first, which the others are of), ``alternatives``
        (rows of a translation, its score and its probability a token), ``maps`` (what
        `attention_maps` returns).

    Raises:
        UserError: when there is nothing to translate, or too much.
    """
    text = (text or "").strip()
    if not text:
        raise UserError("Write something to translate first.")
    if len(text) > MOST_CHARACTERS:
        raise UserError(
            f"That is {len(text):,} characters, and this page takes "
            f"{MOST_CHARACTERS:,}. Use `tfxformer translate` for documents."
        )
    began, written = time.monotonic(), -1
    for translation in translator.stream(text):
        written += 1  # the last is the whole once more
        yield {"translation": translation}
    if not translation:
        raise UserError("There is nothing in it to translate.")
    status = f"{written} tokens in {time.monotonic() - began:.1f} s."
    sentence, *others = translator.parts(text)[1::2]
    if others:
        status += (
            f" The model reads one sentence at a time, of {translator.max_length - 1} "
            f"tokens at most: the text has {len(others) + 1} parts. The tabs show the "
            f"first: “{sentence}”"
        )
    yield {"status": status, "sentence": sentence}
    found = translator.n_best([sentence])[0]
    rows = [[text, round(score, 3), f"{math.exp(score):.0%}"] for text, score in found]
    yield {"alternatives": rows}
    yield {"maps": attention_maps(translator, sentence)}


def _masks(maps):
    """Pictures of the encoder's padding mask, with 3 of padding, and the decoder's."""
    source, target = maps["encoder"][0], maps["decoder"][0]
    padded = source + PADDING * ["<pad>"]
    seen = np.tile(np.arange(len(padded)) < len(source), (len(source), 1))
    ahead = np.tri(len(target), dtype=bool)
    return (
        draw_mask(source, padded, seen, "Padding mask of the encoder"),
        draw_mask(target, target, ahead, "Look-ahead mask of the decoder"),
    )


def _page(translator, source, target, model):
    """The page: Gradio's ``Blocks``."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # before it is imported
    import gradio as gr

    embedding = translator.transformer.encoder.pos_embedding
    title = f"{source} to {target}"
    kinds = [
        (f"{target} reads {source}", "cross"),
        (f"{source} reads itself", "encoder"),
        (f"{target} reads itself", "decoder"),
    ]

    def frame(maps, kind):
        title = next(name for name, value in kinds if value == kind)
        return AttentionPage(*maps[kind], title)._repr_html_()

    def translate(text, kind):
        # An answer begins with an empty page: nothing of another text stays.
        shown = dict.fromkeys(outputs) | {translation: "", status: ""}
        yield shown
        try:
            for answer in answers(translator, text):
                if "maps" not in answer:
                    shown |= {parts[name]: value for name, value in answer.items()}
                    yield shown
        except UserError as error:
            raise gr.Error(str(error), duration=None, print_exception=False) from None
        maps = answer["maps"]
        shown |= {attention: frame(maps, kind)}
        padding, ahead = _masks(maps)
        shown |= {padding_picture: padding, ahead_picture: ahead}
        if embedding.use_positions:
            encoding = embedding.encodings(len(maps["encoder"][0]))
            shown |= {
                positions: draw_positions(encoding),
                similarity: draw_positions(encoding, "similarity"),
            }
        yield shown  # all at once: Gradio drops earlier updates of tabs not yet seen

    def look(sentence, kind):
        return frame(attention_maps(translator, sentence), kind) if sentence else None

    with gr.Blocks(title=title, analytics_enabled=False) as blocks:
        gr.Markdown(f"# {title}\n{model}")
        text = gr.Textbox(
            label=source,
            placeholder="Type here, then press Enter",
            max_lines=8,
            autofocus=True,
        )
        button = gr.Button("Translate", variant="primary")
        examples = gr.Examples(EXAMPLES, text) if source == "Portuguese" else None
        translation = gr.Textbox(label=target, interactive=False, buttons=["copy"])
        status = gr.Markdown()
        sentence = gr.State("")
        with gr.Tab("Attention", render_children=True):
            kind = gr.Radio(kinds, value="cross", label="Whose attention")
            attention = gr.HTML()
        with gr.Tab("Alternatives", render_children=True):
            gr.Markdown(
                "The list of beam search, best first. The score is the mean "
                "log-probability of a token. The translation above is greedy: it takes "
                "the likeliest token each time."
            )
            alternatives = gr.Dataframe(
                headers=[target, "Score", "Probability a token"],
                label="Alternatives",
                interactive=False,
                wrap=True,
            )
        with gr.Tab("Positions", render_children=True):
            positions = gr.Plot(label="What is added to the embeddings of the tokens")
            similarity = gr.Plot(label="How alike the positions are")
        with gr.Tab("Masks", render_children=True):
            padding_picture = gr.Plot(label="No token reads padding")
            ahead_picture = gr.Plot(label="No token reads the tokens after it")
        parts = {
            "translation": translation,
            "status": status,
            "sentence": sentence,
            "alternatives": alternatives,
        }
        outputs = [*parts.values(), attention, positions, similarity]
        outputs += [padding_picture, ahead_picture]
        # One at a time: neither TensorFlow nor Matplotlib is faster at two.
        shared = {"concurrency_id": "model", "show_progress": "hidden"}
        shared |= {"api_visibility": "private", "trigger_mode": "always_last"}
        asked = [text, kind]
        gr.on([button.click, text.submit], translate, asked, outputs, **shared)
        kind.change(look, [sentence, kind], attention, **shared)
        if examples:
            examples.load_input_event.then(translate, asked, outputs, **shared)
    return blocks
