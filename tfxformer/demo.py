"""A local page that translates and shows how: `tfxformer demo`, the extra ``demo``."""

import html
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
from tfxformer.plots.attention_maps import (
    attention_maps,
    best_head,
    readable,
)
from tfxformer.plots.attention_page import attention_page
from tfxformer.repository import chosen_model
from tfxformer.translator import Translator

EXAMPLES = [
    "Eu li um livro novo sobre o mar.",
    "A minha irmã tem um gato preto.",
    "Quanto custa este livro?",
    "Vou à praia amanhã.",
    "Ela não gosta de café. Ele gosta de chá.",
]
# A page is for sentences; documents have `tfxformer translate` and `bulk`.
MOST_CHARACTERS = 2000
PADDING = 3  # tokens of padding in the picture of the padding mask
CANDIDATES = 5  # next tokens at each step


def demo(run=None, host="127.0.0.1", port=7860):
    """Serves the page until SIGTERM or Ctrl-C; prints its address when it is ready.

    Args:
        run: a run folder or an exported model; None for the model that comes with the
            package.
        host: the address to listen on.
        port: the port; 0 for a free one.

    Raises:
        UserError: when the port is taken, or there is no such model.
        SystemExit: after SIGTERM.
        KeyboardInterrupt: after Ctrl-C.
    """
    try:  # before the model loads, which takes seconds
        with socket.create_server((host, port)) as free:
            port = free.getsockname()[1]  # Gradio's own search would take 7860
    except OSError as error:
        raise UserError(f"--host {host} --port {port}: {error.strerror}") from None
    path = chosen_model(run)
    translator = Translator.load(path)
    sides = ("Portuguese", "English") if run is None else ("Source", "Target")
    page = _page(translator, *sides, model="/".join(Path(path).parts[-2:]))
    from gradio.themes import Default

    # Installed fonts: Gradio's own would come from elsewhere.
    fonts = {"font": ["system-ui"], "font_mono": ["monospace"]}
    page.launch(
        server_name=host,
        server_port=port,
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


def answers(translator, text):
    """Everything that the page shows about a text, each part as soon as it is ready.

    A single sentence grows token by token. Several sentences are one batch.

    Args:
        translator: a `Translator`.
        text: a string.

    Yields:
        Dicts with some of these: ``translation``, ``status``, ``alternatives`` (rows
        of a translation, its score and its probability per token), ``maps`` (what
        `attention_maps` returns) and ``candidates`` (for each step, the most probable
        tokens and their probabilities). The last three show the first sentence.

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
    began, (sentence, *others) = time.monotonic(), translator.parts(text)[1::2] or [""]
    if others:
        translation = translator(text)
        count = f"{len(others) + 1} sentences or parts of sentences"
    else:
        for translation in translator.stream(text):
            yield {"translation": translation}
        ids = translator.tokenizer.target.encode([translation])[0]
        count = f"{len(ids) + 1} tokens"
    if not translation:
        raise UserError("There is nothing in it to translate.")
    status = f"{count} in {time.monotonic() - began:.1f} s."
    if others:
        status += f" The tabs show the first: “{sentence}”"
    yield {"translation": translation, "status": status}
    found = translator.n_best([sentence])[0]
    rows = [[text, round(score, 3), f"{math.exp(score):.0%}"] for text, score in found]
    yield {"alternatives": rows}
    maps = attention_maps(translator, sentence)
    shares = maps["probabilities"]
    likeliest = np.argsort(-shares)[:, :CANDIDATES]
    candidates = [
        [*zip(translator.tokenizer.target.tokens(ids), row[ids].tolist(), strict=True)]
        for ids, row in zip(likeliest.tolist(), shares, strict=True)
    ]
    yield {"maps": maps, "candidates": candidates}


def _step(maps, candidates, number, names):
    """One step of decoding, from 1: what was written, candidates, what was read."""
    target, source, weights = maps["cross"]
    number = min(number, len(target))
    *written, new = names(target[:number])
    tokens, shares = zip(*candidates[number - 1], strict=True)
    labels = {}
    shown = names(["<s>", *tokens])[1:]
    for name, token, share in zip(shown, tokens, shares, strict=True):
        labels[token if name in labels else name] = share
    read = weights[best_head(weights)][number - 1].round(3).tolist()
    text = f"{' '.join(written) or '(nothing)'} → **{new}**"
    return text, labels, [*zip(names(source), read, strict=True)]


def _masks(maps, names=list):
    """Pictures of the encoder's padding mask, with some padding, and the decoder's."""
    source, target = names(maps["encoder"][0]), names(maps["decoder"][0])
    padded = source + names(PADDING * ["<pad>"])
    seen = np.tile(np.arange(len(padded)) < len(source), (len(source), 1))
    ahead = np.tri(len(target), dtype=bool)
    return (
        draw_mask(source, padded, seen, "Padding mask: no token reads padding"),
        draw_mask(target, target, ahead, "Look-ahead mask: no token reads later ones"),
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

    named = {True: list, False: readable}  # as the vocabulary has tokens, or readable

    def frame(found, kind, raw):
        if not found:
            return None
        queries, keys, weights = found["maps"][kind]
        title = next(name for name, value in kinds if value == kind)
        sides = named[raw](queries), named[raw](keys)
        page = html.escape(attention_page(*sides, weights, title))
        # The frame may run its script, and reach nothing around it.
        return (
            f'<iframe srcdoc="{page}" title="attention" sandbox="allow-scripts" '
            'width="100%" height="600" style="border: 0"></iframe>'
        )

    def step(found, number, raw):
        return _step(**found, number=number, names=named[raw]) if found else [None] * 3

    def rename(found, kind, number, raw):
        masks = _masks(found["maps"], named[raw]) if found else (None, None)
        parts = frame(found, kind, raw), *step(found, number, raw), *masks
        return dict(zip(views, parts, strict=True))

    def translate(text, kind, raw):
        # An answer begins with an empty page: nothing of another text stays.
        shown = dict.fromkeys(outputs) | {translation: "", status: "", number: 1}
        yield shown
        try:
            for answer in answers(translator, text):
                if "maps" not in answer:
                    shown |= {parts[name]: value for name, value in answer.items()}
                    yield shown
        except UserError as error:
            raise gr.Error(str(error), duration=None, print_exception=False) from None
        shown |= {found: answer} | rename(answer, kind, 1, raw)
        steps = len(answer["candidates"])
        shown |= {number: gr.update(maximum=max(steps, 2), value=1)}
        if embedding.use_positions:
            encoding = embedding.encodings(len(answer["maps"]["encoder"][0]))
            shown |= {
                positions: draw_positions(encoding),
                similarity: draw_positions(encoding, "similarity"),
            }
        yield shown  # all at once: Gradio drops earlier updates of tabs not yet seen

    with gr.Blocks(title=title, analytics_enabled=False) as blocks:
        gr.Markdown(
            f"# {title}\n"
            f"This page translates with the Transformer `{model}` and shows what the "
            "model computes.  \nThe model is small and makes mistakes: check what it "
            "writes before you use it."
        )
        first = EXAMPLES[0] if source == "Portuguese" else ""
        with gr.Row():
            with gr.Column():
                hint = "Type here, then press Enter"
                text = gr.Textbox(first, label=source, placeholder=hint)
                button = gr.Button("Translate", variant="primary")
            with gr.Column():
                translation = gr.Textbox(label=target, buttons=["copy"])
                status = gr.Markdown()
        examples = gr.Examples(EXAMPLES, text) if first else None
        found = gr.State()
        raw = gr.Checkbox(
            label="Raw tokens",
            info="Show tokens as in the vocabulary: ▁ begins a word, </s> is the end.",
        )
        with gr.Tab("Attention", render_children=True):
            kind = gr.Radio(kinds, value="cross", label="Whose attention")
            attention = gr.HTML()
        with gr.Tab("Step by step", render_children=True):
            gr.Markdown(
                "The decoder writes one token at a time. Move the slider to see each "
                "step: the tokens written before it, the most probable next tokens, "
                "and the source tokens that the decoder read."
            )
            number = gr.Slider(1, 2, 1, step=1, label="Step")
            written = gr.Markdown()
            with gr.Row():
                candidates = gr.Label(label="The five most probable next tokens")
                read = gr.HighlightedText(
                    label="Share of attention, in the head that aligns words best",
                    combine_adjacent=False,
                )
        with gr.Tab("N-best", render_children=True):
            gr.Markdown(
                "Beam search keeps several translations and ranks them by score, the "
                "mean log-probability per token; the translation above is greedy and "
                "takes the most probable token each time."
            )
            headers = [target, "Score", "Probability per token"]
            alternatives = gr.Dataframe(headers=headers, label="N-best", wrap=True)
        with gr.Tab("Positions", render_children=True):
            gr.Markdown(
                "The model adds the encoding of each position to the token's embedding."
            )
            positions, similarity = (gr.Plot(show_label=False) for _ in range(2))
        with gr.Tab("Masks", render_children=True):
            gr.Markdown(
                "A mask adds −∞ to the scores of positions that a token must not read, "
                "so that softmax gives them no attention."
            )
            with gr.Row():
                mask_pictures = [gr.Plot(show_label=False) for _ in range(2)]
        parts = {"translation": translation, "status": status}
        parts |= {"alternatives": alternatives}
        steps = [written, candidates, read]
        views = [attention, *steps, *mask_pictures]
        outputs = [*parts.values(), found, number, *views, positions, similarity]
        # One at a time: neither TensorFlow nor Matplotlib is faster at two.
        shared = {"concurrency_id": "model", "show_progress": "hidden"}
        shared |= {"api_visibility": "private", "trigger_mode": "always_last"}
        asked = [text, kind, raw]
        gr.on([button.click, text.submit], translate, asked, outputs, **shared)
        kind.change(frame, [found, kind, raw], attention, **shared)
        number.change(step, [found, number, raw], steps, **shared)
        raw.change(rename, [found, kind, number, raw], views, **shared)
        if examples:
            examples.load_input_event.then(translate, asked, outputs, **shared)
            blocks.load(translate, asked, outputs, **shared)
    return blocks
