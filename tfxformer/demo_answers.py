"""What the page of `tfxformer demo` shows of a text, bit by bit, as HTML."""

import logging
import threading
import time
from base64 import b64encode
from html import escape
from math import exp
from typing import NamedTuple

import numpy as np

from tfxformer.attention_maps import attention_maps
from tfxformer.attention_page import attention_html
from tfxformer.errors import UserError
from tfxformer.layers.masking import look_ahead_mask, padding_mask
from tfxformer.plots import draw_mask, draw_position_similarity, draw_positions, svg
from tfxformer.tokenizer import END_ID, PAD_ID
from tfxformer.translator import as_texts

log = logging.getLogger("tfxformer")

# A page is for sentences; documents have `tfxformer translate` and `bulk`.
MOST_CHARACTERS = 2000
# The places of padding that the mask is shown with.
PADDING = 3
PADDING_PIECE = "<pad>"
# Whose attention can be looked at.
ACROSS, SOURCE, TARGET = "cross", "encoder", "decoder"

_TELL_HEIGHT = """<script>
new ResizeObserver(() => {
  parent.postMessage({ height: document.body.offsetHeight }, "*");
}).observe(document.body);
</script>"""

# Drawing and a pass for the maps take a moment, and two at once no less: users wait
# for one another here. Nothing of one user's is kept for another.
_one_at_a_time = threading.Lock()


class Answer(NamedTuple):
    """What to show; None leaves what is there.

    Attributes:
        translation: text, not HTML.
        status: one sentence on how it went.
        n_best: a table.
        attention: a page in a frame.
        positions: pictures.
        masks: pictures.
        sentence: text, the sentence that the last four are of.
    """

    translation: str | None = None
    status: str | None = None
    n_best: str | None = None
    attention: str | None = None
    positions: str | None = None
    masks: str | None = None
    sentence: str | None = None


class Names(NamedTuple):
    """What the two sides are called.

    Attributes:
        source: what is read.
        target: what is written.
    """

    source: str
    target: str


PT_EN = Names("Portuguese", "English")


def answers(translator, text, names=PT_EN, kind=ACROSS, dark=False):
    """All that the page shows of a text, as soon as it is there.

    It never raises: what went wrong is the status.

    Args:
        translator: a `Translator` with its Keras model.
        text: a string of any length, of any user.
        names: `Names`.
        kind: whose attention: `ACROSS`, `SOURCE` or `TARGET`.
        dark: whether the page is dark.

    Yields:
        `Answer`: first the translation, token by token, then the rest of it.
    """
    try:
        yield from _answers(
            translator, as_texts([text or ""])[0].strip(), names, kind, dark
        )
    except UserError as error:
        yield _nothing(str(error))
    except Exception:
        log.exception("the page could not answer")
        yield _nothing("Something went wrong; the terminal of this page says what.")


def attention_of(translator, sentence, names=PT_EN, kind=ACROSS, dark=False):
    """The attention of a sentence, to play with.

    Args:
        translator: a `Translator` with its Keras model.
        sentence: a string, read as one sentence; nothing is shown of an empty one.
        names: `Names`.
        kind: `ACROSS`, `SOURCE` or `TARGET`.
        dark: whether the page is dark.

    Returns:
        HTML: a frame that holds a page of its own.
    """
    if not sentence:
        return ""
    with _one_at_a_time:
        maps = attention_maps(translator, sentence)
    return _attention(maps, names, kind, dark)


def _answers(translator, text, names, kind, dark):
    if not text:
        yield _nothing("Write something to translate first.")
        return
    if len(text) > MOST_CHARACTERS:
        yield _nothing(
            f"That is {len(text):,} characters, and this page takes "
            f"{MOST_CHARACTERS:,}: for documents there is `tfxformer translate`."
        )
        return
    yield _nothing("Translating…")
    began = time.monotonic()
    written, translation = -1, ""  # the last is the whole once more
    for translation in translator.stream(text):
        written += 1
        yield Answer(translation=translation)
    seconds = time.monotonic() - began
    sentences = translator.parts(text)[1::2]
    if not translation:
        yield _nothing("There is nothing in it to translate.")
        return
    status = f"{_count(written, 'token')} in {seconds:.1f} s."
    status += _about(translator, sentences)
    # What a screen reader tells once the translation is whole.
    heard = f'<span class="heard">{escape(translation)}</span> '
    yield Answer(status=heard + escape(status), sentence=sentences[0])

    yield Answer(n_best=_n_best(translator.n_best(sentences[:1])[0], names))
    with _one_at_a_time:
        maps = attention_maps(translator, sentences[0])
    yield Answer(attention=_attention(maps, names, kind, dark))
    with _one_at_a_time:
        positions = _positions(translator.transformer, maps, names, dark)
    yield Answer(positions=positions)
    with _one_at_a_time:
        masks = _masks(maps, names, dark)
    yield Answer(masks=masks)


def _nothing(status):
    """An empty page with a status."""
    return Answer("", escape(status), "", "", "", "", "")


def _about(translator, sentences):
    """What to know about a text that is not one sentence that fits."""
    if len(sentences) == 1:
        return ""
    return (
        f" The model reads one sentence at a time, of {translator.max_length - 1} "
        f"tokens at most: this text was translated in {len(sentences)} parts, and "
        f"what is shown below is of the first: “{sentences[0]}”"
    )


def _n_best(found, names):
    rows = "".join(
        f"<tr><td>{place}</td><td>{escape(translation)}</td>"
        f"<td>{score:.3f}</td><td>{exp(score):.0%}</td></tr>"
        for place, (translation, score) in enumerate(found, 1)
    )
    return (
        '<div class="wide" role="region" aria-label="N-best list" tabindex="0">'
        f"<table><caption>What beam search found, which goes on with "
        f"{_count(len(found), 'beginning')} at once where the translation above takes "
        "the likeliest token each time. The score is the mean log-probability of a "
        "token; the last column is the same as a probability.</caption><thead>"
        '<tr><th scope="col">Place</th>'
        f'<th scope="col">{escape(names.target)}</th><th scope="col">Score</th>'
        '<th scope="col">Per token</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _attention(maps, names, kind, dark):
    title = {
        ACROSS: f"What each token of {names.target} read of {names.source}",
        SOURCE: f"What each token of {names.source} reads of its own sentence",
        TARGET: f"What each token of {names.target} reads of those before it",
    }[kind]
    page = attention_html(*maps.of_kind(kind), title=title, dark=dark) + _TELL_HEIGHT
    # A frame that may run its script and nothing else: neither sees into the other.
    return (
        f'<iframe class="attention" sandbox="allow-scripts" title="{escape(title)}" '
        f'srcdoc="{escape(page)}"></iframe>'
    )


def _positions(transformer, maps, names, dark):
    layer = transformer.encoder.pos_embedding
    if not layer.use_positions:
        return "<p>This model has no positions: to it a sentence is a bag of words.</p>"
    tokens = maps.source_tokens
    encoding = np.asarray(layer.encodings(len(tokens)))
    what = "learned" if layer.learned_positions else "sines and cosines"
    places = ", ".join(f"{place}: {token}" for place, token in enumerate(tokens))
    return _figure(
        draw_positions(encoding, dark=dark),
        f"Heat map of {len(tokens)} positions by {encoding.shape[1]} dimensions",
        f"What is added to the embedding of each of the {len(tokens)} tokens of "
        f"{names.source}, so that the model knows their order ({what}). "
        f"The positions are {places}.",
    ) + _figure(
        draw_position_similarity(encoding, dark=dark),
        f"How alike the encodings of {len(tokens)} positions are, each with each",
        "How alike they are: the nearer two places, the more their encodings agree.",
    )


def _masks(maps, names, dark):
    source, target = maps.source_tokens, maps.target_inputs
    padded = [*source, *[PADDING_PIECE] * PADDING]
    ids = np.array([[END_ID] * len(source) + [PAD_ID] * PADDING])  # any but padding's
    seen = np.broadcast_to(np.asarray(padding_mask(ids)), (len(source), len(padded)))
    ahead = np.asarray(look_ahead_mask(len(target)))[0, 0]
    return _figure(
        draw_mask(source, padded, seen, dark=dark),
        f"Padding mask: {len(source)} tokens may be read, {PADDING} of padding not",
        f"Padding mask. In a batch with a longer sentence, {PADDING} places of padding "
        f"would follow the {len(source)} tokens of {names.source}. No token may read "
        "them, so a sentence is translated the same in any company.",
    ) + _figure(
        draw_mask(target, target, ahead, dark=dark),
        f"Look-ahead mask: each of {len(target)} tokens reads itself and those before",
        f"Look-ahead mask. Each token of {names.target} reads itself and what stands "
        "before it, never what comes: in training the whole translation is there at "
        "once, and it must not copy the answer.",
    )


def _figure(figure, alternative, caption):
    data = b64encode(svg(figure)).decode()
    return (
        f'<figure><div class="wide" role="region" aria-label="{escape(alternative)}" '
        f'tabindex="0"><img alt="{escape(alternative)}" '
        f'src="data:image/svg+xml;base64,{data}"></div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _count(number, thing):
    """A number and what it counts.

    Example:
        >>> _count(1, "token"), _count(2, "token")
        ('1 token', '2 tokens')
    """
    return f"{number} {thing}" + ("" if number == 1 else "s")
