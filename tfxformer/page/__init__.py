"""The model in a browser tab: packed into one HTML file, and served to this machine.

The file has the model's weights, its vocabulary, and the JavaScript that computes and
shows it.
"""

import base64
import contextlib
import http.server
import json
import re
import signal
import sys
from pathlib import Path

import numpy as np

from tfxformer.console import say
from tfxformer.errors import UserError

HOST = "127.0.0.1"  # this machine alone
FOLDER = Path(__file__).parent
MOST_BYTES = 64_000_000  # of weights: a phone's browser holds the text and the numbers
FLOAT16_MOST = np.finfo("float16").max
ACTIVATIONS = ("relu", "swish")  # those that model.js knows
_IMPORT = re.compile(r'^import (?:({[^}]*}) from )?"\./([\w.]+)";\n', re.MULTILINE)
_EXPORT = re.compile(
    r"^export (?:async )?(?:function\*?|class|const) (\w+)", re.MULTILINE
)


def page(translator, name="model", notebooks=None):
    """The page of a model, as text.

    Args:
        translator: a `Translator`.
        name: the model's name, which the page shows.
        notebooks: the address of the folder with the notebooks as HTML, which the page
            links to; relative to the page, or None.

    Returns:
        A string: HTML that needs no other file and no server.

    Raises:
        UserError: the page does not know a setting of the model or its tokenizer, or
            the weights are too large.

    Example:
        >>> from tfxformer import Translator
        >>> html = page(Translator.load(), "pt_en")
        >>> html.startswith("<!doctype html>"), len(html) > 20_000_000
        (True, True)
    """
    model, weights = model_parts(translator, name)
    model["notebooks"] = notebooks
    parts = {
        # JSON may spell any character so; "</script>" would end the element.
        "model": json.dumps(model, separators=(",", ":")).replace("<", "\\u003c"),
        "weights": base64.b64encode(weights).decode(),
        "worker": bundle("worker.js"),
        "page": bundle("page.js"),
        "style": _text("page.css"),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda x: parts[x[1]], _text("page.html"))


def model_parts(translator, name):
    """A model as the page reads it: what JSON holds, and the bytes of its weights.

    Takes the first arguments of `page`, and raises its errors. Matrices are float16. A
    projection's matrix is transposed: a row for each unit of its result.

    Returns:
        A dict: the ``name``, the ``settings``, the ``tokenizer``, the ``target``'s
        tokenizer or None, and ``weights``, a list of each one's ``name``, ``shape``
        and ``at``, its first byte. And the bytes.
    """
    settings = translator.transformer.config
    if settings["activation"] not in ACTIVATIONS:
        raise UserError(
            f"activation = {settings['activation']!r}: the page knows only "
            f"{' and '.join(ACTIVATIONS)}: choose another model"
        )
    source, target = translator.tokenizer.sides
    model = {
        "name": name,
        "settings": settings,
        "tokenizer": vocabulary(source),
        "target": None if target is source else vocabulary(target),
        "weights": [],
    }
    data = bytearray()
    # Vectors first: float32 needs places that 4 divides.
    for weight in sorted(translator.transformer.weights, key=lambda x: len(x.shape)):
        value, path = np.asarray(weight.value), weight.path.partition("/")[2]
        if path.endswith("kernel"):
            value = value.T
        if not np.abs(value).max() <= FLOAT16_MOST:  # or not a number
            raise UserError(f"{path}: has a weight that float16 cannot hold")
        model["weights"].append({"name": path, "shape": value.shape, "at": len(data)})
        data += value.astype("<f2" if value.ndim > 1 else "<f4").tobytes()
    if len(data) > MOST_BYTES:
        raise UserError(
            f"the weights have {len(data) / 1e6:.0f} MB in float16, and a page holds "
            f"at most {MOST_BYTES / 1e6:.0f} MB: choose a smaller model"
        )
    return model, bytes(data)


def vocabulary(tokenizer):
    """The vocabulary of a `Tokenizer`, as JSON holds it.

    Args:
        tokenizer: a `Tokenizer`.

    Returns:
        A dict: ``pieces``, ``scores`` and ``types`` by id, ``rules`` (SentencePiece's
        rules of normalization in base64), and how it treats spaces and unknown tokens.

    Raises:
        UserError: the model has a part that the page does not know.

    Example:
        >>> from tfxformer import Tokenizer
        >>> tokenizer = Tokenizer.train(["o gato", "the cat"] * 50, vocab_size=300)
        >>> vocabulary(tokenizer)["pieces"][:4]
        ['<pad>', '<unk>', '<s>', '</s>']
    """
    # TensorFlow takes a while: `serve_page` checks the port before.
    from tfxformer.tokenizer import BYTE, UNIGRAM, USER_DEFINED, read_model

    model = read_model(tokenizer.model)
    training, spelling = model.trainer_spec, model.normalizer_spec
    types = [piece.type for piece in model.pieces]
    unknown = {
        "the rules of an imported model": tokenizer.imported,
        "a vocabulary that is not a unigram model": training.model_type != UNIGRAM,
        "tokens of the user": USER_DEFINED in types,
        "spaces after words": training.treat_whitespace_as_suffix,
        "spaces as they are": not spelling.escape_whitespaces,
        "rules after decoding": model.denormalizer_spec.precompiled_charsmap,
        "bytes that are no fallback": training.byte_fallback != (BYTE in types),
    }
    for what, found in unknown.items():
        if found:
            problem = f"the tokenizer has {what}, which the page does not know"
            raise UserError(f"{problem}: choose another model")
    return {
        "pieces": [piece.piece for piece in model.pieces],
        # As short as float32 allows: the page makes float32 of them again.
        "scores": [float(str(np.float32(piece.score))) for piece in model.pieces],
        "types": types,
        "rules": base64.b64encode(spelling.precompiled_charsmap).decode(),
        "add_dummy_prefix": spelling.add_dummy_prefix,
        "remove_extra_whitespaces": spelling.remove_extra_whitespaces,
        "unk_surface": training.unk_surface,
    }


def bundle(name):
    """A module of the page with those that it imports, as one script.

    Browsers load no modules from files. So each module becomes a function that runs
    once, after those it imports, and returns what it exports.
    """
    scripts = {}

    def add(name):
        text = _text(name)
        for _, other in _IMPORT.findall(text):
            if other not in scripts:
                add(other)
        exported = ", ".join(_EXPORT.findall(text))
        text = re.sub("^export ", "", _IMPORT.sub(_import, text), flags=re.MULTILINE)
        script = f"(() => {{\n{text}return {{ {exported} }};\n}})();"
        scripts[name] = f'modules["{name}"] = {script}'

    add(name)
    script = "\n".join(["const modules = {};", *scripts.values()])
    return script.replace("</script", "<\\/script")


def _import(found):
    names, module = found.groups()
    return f'const {names} = modules["{module}"];\n' if names else ""


def _text(name):
    return (FOLDER / name).read_text("utf-8")


def serve_page(make, port=7860):
    """Serves a page until SIGTERM or Ctrl-C; prints its address when it is ready.

    Args:
        make: a function that returns the page, as bytes. It may take long: the port is
            checked before.
        port: the port; 0 for a free one.

    Raises:
        UserError: the port is taken.
        SystemExit: after SIGTERM.
        KeyboardInterrupt: after Ctrl-C.
    """

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path != "/":
                return self.send_error(404)
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # the reader has left
                self.wfile.write(page)

        def log_message(self, *_):
            """Keeps requests out of the terminal."""

    try:
        server = http.server.ThreadingHTTPServer((HOST, port), Handler)
    except OSError as error:
        hint = "choose another one, or 0 for a free one"
        raise UserError(f"--port {port}: {error.strerror}: {hint}") from None
    with server:
        page = make()
        print(f"http://{HOST}:{server.server_port}/", flush=True)
        say("press Ctrl-C to end it")
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        server.serve_forever()
