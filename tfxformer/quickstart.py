"""The whole path in minutes: train, evaluate, export, translate through the export."""

import tempfile
import time
from pathlib import Path

from tfxformer.config import load_config
from tfxformer.console import console
from tfxformer.corpora import load
from tfxformer.errors import UserError
from tfxformer.evaluation import evaluate
from tfxformer.saved_model import export
from tfxformer.training.trainer import train
from tfxformer.translator import Translator

SENTENCES = [
    "Bom dia!",
    "Onde fica a estação?",
    "A minha irmã comprou um vestido azul.",
    "Não temos tempo para comer agora.",
]


def quickstart(out=None, seed=0):
    """Trains on the embedded phrasebook and ends with a SavedModel that answers.

    Args:
        out: the folder to work in; None for a new one, which is named.
        seed: seed of all random numbers.

    Returns:
        The folder, the `Evaluation` on held-out pairs and the exported path.

    Raises:
        UserError: when the folder cannot be used.
    """
    started = time.monotonic()
    if out is None:
        out = Path(tempfile.mkdtemp(prefix="tfxformer-quickstart-", dir="."))
    out = Path(out)
    run_folder = out / "run"
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{out}: {error.strerror}") from None
    _say(f"1. Training on the embedded phrasebook, in {out}")
    config = load_config(
        "tiny", overrides=["data.sources=[phrasebook]", f"training.seed={seed}"]
    )
    run = train(config, run_folder)

    _say("2. Exporting a SavedModel, and running it in TensorFlow's C++ runtime")
    path, report = export(run.path, out / "export")
    _say(report.describe().splitlines()[-1])

    _say("3. Translating held-out sentences through the exported signature")
    served = Translator.load(path)
    result = evaluate(served, load("phrasebook", "test", cleaned=False)[0])
    print(result.describe())
    for sentence, translation in zip(SENTENCES, served(SENTENCES), strict=True):
        print(f"{sentence}  →  {translation}")
    print(f"SavedModel: {path}")
    _say(
        f"done in {time.monotonic() - started:.0f} s; try: "
        f'tfxformer translate --model {path} "Boa noite!"'
    )
    return out, result, path


def _say(line):
    console.print(line, markup=False, soft_wrap=True)
