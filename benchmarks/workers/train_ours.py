"""Trains with tfxformer: `fit` with the training step of `tfxformer train`."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import keras_fit
import worker

from tfxformer.console import start_tensorflow

start_tensorflow()

import keras  # noqa: E402

from tfxformer.config import load_config  # noqa: E402
from tfxformer.training.run import build_model  # noqa: E402
from tfxformer.training.step import TrainingTransformer  # noqa: E402

folder, batches, *flags = sys.argv[1:]
sizes = json.loads(Path(folder, "sizes.json").read_text())
precision = "bfloat16" if "--bfloat16" in flags else "float32"
config = load_config(sizes["preset"], None, [f"training.precision={precision}"])
keras.utils.set_random_seed(0)
side = SimpleNamespace(vocab_size=sizes["vocab_size"])
transformer = build_model(config, SimpleNamespace(sides=(side, side)), precision)
model = TrainingTransformer(transformer, config.training)
keras_fit.serve(model, worker.read_batches(folder, batches))
