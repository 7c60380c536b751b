"""The whole path in minutes: train, evaluate, export, translate through the export."""

import time
import uuid
from pathlib import Path

import tensorflow as tf

from tfxformer import corpora
from tfxformer.config import load_config
from tfxformer.console import say
from tfxformer.evaluation import evaluate
from tfxformer.exporting.saved_model import export
from tfxformer.training.trainer import train
from tfxformer.translator import Translator

# How many of the held-out sentences are shown.
SHOWN = 8


def quickstart(out=None, seed=0):
    """Trains on the embedded phrasebook and ends with a SavedModel that answers.

    Everything it reports was translated through the exported signature; none of
    those sentences, in either language, was seen in training.

    Args:
        out: the folder to work in; None for a new one, which is named.
        seed: seed of all random numbers.

    Returns:
        The `Evaluation` on held-out pairs, and the path of the exported model.

    Raises:
        UserError: when the folder cannot be used.

    Example:
        >>> quickstart("/dev/null")  # in a folder it takes minutes
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: /dev/null/run: Not a directory
    """
    started = time.monotonic()
    out = Path(out or f"tfxformer-quickstart-{uuid.uuid4().hex[:8]}")
    say(f"1. Training on the embedded phrasebook, in {out}")
    settings = {"data": {"sources": ["phrasebook"]}, "training": {"seed": seed}}
    run = train(load_config("tiny").updated(**settings), out / "run")

    say("2. Exporting a SavedModel, and running it in a TensorFlow session")
    path, report = export(run.path, out / "export")
    say(report.describe().splitlines()[-1])

    say("3. Translating held-out sentences through the exported signature")
    pairs, _ = corpora.load("phrasebook", "test", cleaned=False)
    translator, loaded = Translator.load(path), tf.saved_model.load(str(path))
    translator.signatures = loaded.signatures  # the export's own, not Python's
    result = evaluate(translator, pairs)
    for i in range(0, len(pairs), len(pairs) // SHOWN):
        print(f"{pairs[i].source}  →  {result.translations[i]}")
    print(result.describe())
    print(f"SavedModel: {path}")
    say(
        f"done in {time.monotonic() - started:.0f} s; try: "
        f'tfxformer translate --model {path} "A minha irmã tem um gato preto."'
    )
    return result, path
