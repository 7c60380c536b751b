"""Measures how far padding moves the logits of the tutorial's model, and of ours.

    python benchmarks/lost_masks.py transformer.ipynb

The notebook is the tutorial's own, from github.com/tensorflow/text.
"""

import argparse
import json
import warnings
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from tfxformer import Transformer

PADDING, SEEDS = 20, 5
SIZES = {"num_layers": 4, "d_model": 128, "num_heads": 8, "dff": 512}
SIZES |= {"input_vocab_size": 8000, "target_vocab_size": 8000}


def tutorial_model(notebook):
    """Runs the cells that define the tutorial's layers; returns its `Transformer`."""
    names = {"tf": tf, "np": np}
    for cell in json.loads(Path(notebook).read_text("utf-8"))["cells"]:
        code = "".join(cell["source"])
        if code.startswith(("class ", "def positional_encoding")):
            exec(code, names)
        if "Transformer" in names:
            return names["Transformer"]
    raise SystemExit(f"{notebook}: defines no Transformer")


def moves(kind):
    """Yields for each seed how far a logit moves at most, and the logits' deviation."""
    for seed in range(SEEDS):
        keras.utils.set_random_seed(seed)
        model, random = kind(**SIZES), np.random.default_rng(seed)
        source = tf.constant(random.integers(4, 8000, (1, 12)))
        target = tf.constant(random.integers(4, 8000, (1, 10)))
        padded = tf.pad(source, [[0, 0], [0, PADDING]])
        alone = model((source, target), training=False).numpy()
        beside = model((padded, target), training=False).numpy()
        yield abs(alone - beside).max(), alone.std()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebook", help="docs/tutorials/transformer.ipynb")
    kinds = {"tutorial": tutorial_model(parser.parse_args().notebook)}
    kinds["tfxformer"] = Transformer
    warnings.simplefilter("ignore")  # Keras warns that masks are lost
    for name, kind in kinds.items():
        for moved, deviation in moves(kind):
            print(f"{name}: moved by up to {moved:.2g}, deviation {deviation:.3f}")


if __name__ == "__main__":
    main()
