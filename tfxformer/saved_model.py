"""Export: one SavedModel, strings in and strings out, for TensorFlow Serving."""

import errno
import os
import re
import shutil
import tempfile
from pathlib import Path

import keras
import numpy as np

from tfxformer.errors import UserError
from tfxformer.quiet import quiet_stderr
from tfxformer.recorded import example, write_metadata
from tfxformer.translator import Translator
from tfxformer.verify import verify

# What the export is asked at once, its answers kept beside it: sentences, and the
# inputs that break lesser models. Any language will do: the answers are compared,
# not judged.
PROBES = [
    "Bom dia!",
    "O gato preto bebeu o leite.",
    "",
    " \t\n",
    "😀 مرحبا 你好",
    b"bytes \xff\xfe that are not UTF-8",
    "NUL \0 inside",
]


def export(run, to="export", name="pt_en", checkpoint="best"):
    """Writes the next version of a model into a model repository, and proves it.

    The model is written to a temporary folder and renamed into place once
    `tfxformer.verify.verify` has seen it run, so that a server that watches the
    repository never sees half a version, nor one that cannot be served.

    Args:
        run: the path of a run folder.
        to: the model repository.
        name: the model's name in it.
        checkpoint: "best" or "last".

    Returns:
        The new folder, ``to/name/version``, and the `Report` on it.

    Raises:
        UserError: when the run cannot be read, the repository not be written, or
            the export would not serve.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise UserError(
            f"model name {name!r}: use letters, digits, '_', '-' and '.' only, since "
            "it is a folder and a part of the server's addresses"
        )
    translator = Translator.load(run, checkpoint)
    if translator.transformer is None:
        raise UserError(f"{run}: is an exported model already; give a run folder")
    folder = Path(to) / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Beside the versions, so that renaming is one step; a name that is no
        # number is no version to a server.
        scratch = Path(tempfile.mkdtemp(prefix=".part-", dir=folder))
    except OSError as error:
        raise UserError(f"{error.filename}: {error.strerror}") from None
    try:
        part = scratch / "1"
        write(translator, part)
        report = verify(part, translator)
        if not report.ok:
            raise UserError(
                "the export would not serve: "
                + "; ".join(check.detail for check in report.checks if not check.ok)
            )
        report.path = _publish(part, folder)
    except OSError as error:
        raise UserError(f"{error.filename}: {error.strerror}") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return report.path, report


def write(translator, path):
    """Writes a translator as a SavedModel, with recorded answers beside it.

    Args:
        translator: a `Translator` made from a tokenizer and a model.
        path: the folder to make.
    """
    archive = keras.export.ExportArchive()
    # Variables are tracked where the functions use them: tracking the model as well
    # would write each one twice.
    archive.track(translator.tokenizer)
    for name, function in translator.signatures.items():
        # Traced anew: a graph that was traced before would be written beside the
        # one that saving traces.
        archive.add_endpoint(
            name, function.python_function, input_signature=function.input_signature
        )
    with quiet_stderr():
        archive.write_out(str(path), verbose=False)
    write_metadata(
        path,
        [
            example(signature, inputs, translator.answers(signature, inputs))
            for signature, inputs in _probes(translator)
        ],
        model={
            "max_length": translator.max_length,
            "vocab_size": translator.tokenizer.vocab_size,
            "decoding": {"method": "greedy"},
        },
    )


def _probes(translator):
    """Inputs for each signature, an empty batch among them."""
    too_long = "palavra " * translator.max_length
    text = np.array(
        [
            probe.encode() if isinstance(probe, str) else probe
            for probe in [*PROBES, too_long]
        ],
        dtype=object,
    )
    translation = translator.answers("serving_default", {"text": text})["translation"]
    ids = translator.answers("tokenize", {"text": text})["ids"]
    nothing = np.array([], dtype=object)
    yield "serving_default", {"text": text}
    yield "serving_default", {"text": nothing}
    yield "score", {"text": text, "translation": translation}
    yield "score", {"text": text, "translation": text[::-1]}
    yield "score", {"text": nothing, "translation": nothing}
    yield "tokenize", {"text": text}
    yield "tokenize", {"text": nothing}
    yield "detokenize", {"ids": ids}
    yield "detokenize", {"ids": np.array([[5, -1, 2**31 - 1, 0]], dtype="int32")}
    yield "detokenize", {"ids": np.zeros((0, 0), dtype="int32")}


def _publish(part, folder):
    """Renames the finished folder to the next version; never over another one."""
    while True:
        versions = [int(p.name) for p in folder.iterdir() if p.name.isdecimal()]
        path = folder / str(max(versions, default=0) + 1)
        try:
            os.rename(part, path)
            return path
        except OSError as error:
            # Another export took the number meanwhile: a folder that holds
            # something is not replaced by a rename.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
