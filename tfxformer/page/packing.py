"""One HTML file with a model in it: its weights, its vocabulary, and the JavaScript."""

import base64
import json
import re
from pathlib import Path

import numpy as np

from tfxformer.errors import UserError, write_file
from tfxformer.page.vocabulary import vocabulary
from tfxformer.repository import chosen_model, model_name

FOLDER = Path(__file__).parent
MOST_BYTES = 64_000_000  # of weights: a phone's browser holds the text and the numbers
# What model.js knows of `Transformer`'s arguments, and the values it knows of some.
# Dropout is for training alone.
SETTINGS = {"num_layers", "num_decoder_layers", "d_model", "num_heads", "dff", "norm"}
SETTINGS |= {"input_vocab_size", "target_vocab_size", "max_length", "tie_embeddings"}
SETTINGS |= {"learned_positions", "use_positions", "activation", "output_bias"}
TRAINING = {"dropout_rate", "attention_dropout", "activation_dropout"}
VALUES = {"norm": ("post", "pre"), "activation": ("relu", "swish")}
_IMPORT = re.compile(r'^import (?:({[^}]*}) from )?"\./([\w.]+)";\n', re.MULTILINE)
_EXPORT = re.compile(
    r"^export (?:async )?(?:function\*?|class|const) (\w+)", re.MULTILINE
)


def write_page(to, run=None):
    """Writes the page of a model as one file, which opens with a double click.

    Args:
        to: the file's path.
        run: a run folder or an exported model; None for the model that comes with the
            package.

    Returns:
        The path.

    Raises:
        UserError: there is no such model, or the page cannot show it.
    """
    from tfxformer.translator import Translator

    path = chosen_model(run)
    return write_file(to, page(Translator.load(path), model_name(path)).encode())


def page(translator, name="model"):
    """The page of a model, as text.

    Args:
        translator: a `Translator`.
        name: the model's name, which the page shows.

    Returns:
        A string: HTML that needs no other file and no server.

    Raises:
        UserError: the page does not know a setting of the model or its tokenizer, or
            the weights are too large.
    """
    model, weights = model_parts(translator, name)
    parts = {
        # JSON may spell any character so; "</script>" would end the element.
        "model": json.dumps(model, separators=(",", ":")).replace("<", "\\u003c"),
        "weights": base64.b64encode(weights).decode(),
        "worker": bundle("worker.js"),
        "page": bundle("page.js"),
        "style": Path(FOLDER, "page.css").read_text("utf-8"),
    }
    html = Path(FOLDER, "page.html").read_text("utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], html)


def model_parts(translator, name):
    """A model as the page reads it: what JSON holds, and the bytes of its weights.

    Takes the arguments of `page`, and raises its errors. Matrices are float16. A
    projection's matrix is transposed: a row for each unit of its result.

    Returns:
        A dict: the ``name``, the ``settings``, the ``tokenizer``, the ``target``'s
        tokenizer or None, and ``weights``, a list of each one's ``name``, ``shape``
        and ``at``, its first byte. And the bytes.
    """
    manifest, chunks = [], []
    size = 0
    # Vectors first: float32 needs places that 4 divides.
    weights = sorted(translator.transformer.weights, key=lambda x: len(x.shape))
    for weight in weights:
        value, path = np.asarray(weight.value), weight.path.partition("/")[2]
        if path.endswith("kernel"):
            value = value.T
        with np.errstate(over="ignore"):  # to infinity, which the next lines refuse
            value = value.astype("<f2" if value.ndim > 1 else "<f4")
        if not np.isfinite(value).all():
            raise UserError(f"{path}: has a weight that float16 cannot hold")
        manifest.append({"name": path, "shape": value.shape, "at": size})
        chunks.append(value.tobytes())
        size += len(chunks[-1])
    if size > MOST_BYTES:
        raise UserError(
            f"the weights have {size / 1e6:.0f} MB in float16, and a page holds at "
            f"most {MOST_BYTES / 1e6:.0f} MB: choose a smaller model"
        )
    source, target = translator.tokenizer.sides
    model = {
        "name": name,
        "settings": _settings(translator.transformer.config),
        "weights": manifest,
        "tokenizer": vocabulary(source),
        "target": None if target is source else vocabulary(target),
    }
    return model, b"".join(chunks)


def _settings(config):
    """The settings that the page needs; a `UserError` for those it does not know."""
    for name, value in config.items():
        known = VALUES.get(name, (value,))
        if name not in SETTINGS | TRAINING or value not in known:
            raise UserError(f"{name} = {value!r}: the page does not know this setting")
    for name in ("d_model", "dff"):
        if config[name] < 4:  # the width of its loops
            raise UserError(f"{name} = {config[name]}: the page needs at least 4")
    return {name: value for name, value in config.items() if name in SETTINGS}


def bundle(name):
    """A module of the page with those that it imports, as one script.

    Browsers load no modules from files. So each module becomes a function that runs
    once, after those it imports, and returns what it exports.
    """
    texts = {}

    def add(name):
        text = Path(FOLDER, name).read_text("utf-8")
        for *_, other in _IMPORT.findall(text):
            if other not in texts:
                add(other)
        text = _IMPORT.sub(_import, text)
        exported = ", ".join(_EXPORT.findall(text))
        text = re.sub("^export ", "", text, flags=re.MULTILINE)
        texts[name] = (
            f'modules["{name}"] = (() => {{\n{text}return {{ {exported} }};\n}})();'
        )

    add(name)
    script = "\n".join(["const modules = {};", *texts.values()])
    return script.replace("</script", "<\\/script")


def _import(found):
    names, module = found.groups()
    return f'const {names} = modules["{module}"];\n' if names else ""
