"""Small training runs for tests: their settings, their outcome, and how to be quick.

TensorFlow's graphs take seconds to build, and steps of a tiny model milliseconds. So
here runs of one test file share models and graphs; each begins from fresh weights and a
fresh optimiser as any run does, and the rest is the trainer's own.
"""

import json
import os
import signal

import h5py
import keras
import numpy as np

from tfxformer.config import load_config
from tfxformer.training import trainer
from tfxformer.training.samples import Translated

TINY = [
    "model.num_layers=1",
    "model.d_model=16",
    "model.num_heads=2",
    "model.dff=32",
    "model.max_length=24",
    "tokenizer.vocab_size=400",
    "training.tokens_per_batch=256",
    "training.warmup_steps=20",
    "training.validate_every=4",
]
# All that draws at random, adds up or carries over from step to step.
ALL = [
    *TINY,
    "model.dropout_rate=0.2",
    "model.attention_dropout=0.1",
    "model.activation_dropout=0.1",
    "training.accumulate=2",
    "training.subword_alpha=0.2",
    "training.ema_decay=0.9",
    "training.checkpoint_every=5",
    "training.keep_best=2",
    "training.steps=13",
]


def numbers(count):
    """Pairs of a small language of its own: numbers, and what they are called."""
    words = ["zero", "um", "dois", "três", "quatro", "cinco", "seis", "sete", "oito"]
    english = ["nought", "one", "two", "three", "four", "five", "six", "seven", "eight"]
    rng = np.random.default_rng(0)
    rows = {tuple(rng.integers(0, 9, rng.integers(2, 7))) for _ in range(2 * count)}
    return [
        (" ".join(words[i] for i in row), " ".join(english[i] for i in row))
        for row in sorted(rows)[:count]
    ]


def write_pairs(path, pairs):
    lines = [f"{source}\t{target}\n" for source, target in pairs]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def settings(corpus, *more, base=TINY):
    return load_config("tiny", overrides=[*base, f"data.sources=['{corpus}']", *more])


def settings_of_all(mixture, *more):
    sources = ", ".join(f"'{path}'" for path in mixture)
    mixed = [f"data.sources=[{sources}]", "data.weights=[1, 2]"]
    return load_config("tiny", overrides=[*ALL, *mixed, *more])


# --- What came of a run ---


def arrays(path):
    """All arrays of an HDF5 file, by name."""
    found = {}

    def note(name, item):
        if isinstance(item, h5py.Dataset):
            found[name] = item[()]

    with h5py.File(path) as file:
        file.visititems(note)
    return found


def rows(run):
    """The rows of the metrics but for what depends on the clock."""
    lines = run.metrics_file.read_text("utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    for row in found:
        row.pop("target_tokens_per_second", None)
    return found


def outcome(run):
    """All that must not depend on whether a run was ever stopped."""
    found = {"metrics": rows(run)}
    for file in sorted(run.path.glob("*.weights.h5")):
        found[file.name] = arrays(file)
    newest = max(run.checkpoints_folder.glob("step-*"))
    with np.load(newest / "state.npz") as optimizer:
        found["optimizer"] = dict(optimizer)
    state = json.loads((newest / "state.json").read_text("utf-8"))
    for name in ("sha256", "checksum", "metrics_size"):
        state.pop(name)
    return found | {"state": state}


def assert_same_outcome(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if isinstance(value, dict) and name != "state":
            assert found[name].keys() == value.keys()
            for key, array in value.items():
                np.testing.assert_array_equal(found[name][key], array, err_msg=key)
        else:
            assert found[name] == value, name


def leftovers(run):
    """What a kill left behind: there should be none once a run is done."""
    return [str(path) for path in run.path.rglob("*") if "part" in path.name]


# --- Quick runs, and stopping them ---


class Shared:
    """Models and graphs, each built once."""

    def __init__(self):
        self.models, self.steps = {}, {}
        self.build_model, self.training_step = trainer.build_model, trainer.TrainingStep

    def use(self, patch):
        """Lets `train` share them, translate nothing, and record every five steps."""
        patch.setattr(trainer, "build_model", self.model)
        patch.setattr(trainer, "TrainingStep", self.step)
        patch.setattr(trainer, "Samples", NoSamples)
        patch.setattr(trainer, "RECORD_EVERY", 5)
        patch.setattr(trainer.Reporter, "attention", lambda *_: None)

    def model(self, config, vocab_size, *precision):
        new = self.build_model(config, vocab_size, *precision)
        key = json.dumps([config.to_dict()["model"], vocab_size, *precision])
        model = self.models.setdefault(key, new)
        for variable, value in zip(model.variables, new.variables, strict=True):
            variable.assign(value)
        return model

    def step(self, model, settings):
        names = "label_smoothing", "ema_decay", "schedule", "learning_rate", "xla"
        used = [getattr(settings, name) for name in (*names, "warmup_steps")]
        key = (id(model), *used)
        if key not in self.steps:
            self.steps[key] = self.training_step(model, settings)
        step = self.steps[key]
        weights = [keras.ops.convert_to_numpy(v) for v in model.trainable_variables]
        nothing = [np.zeros_like(array) for array in step.state()["optimizer"]]
        averages = weights if settings.ema_decay else []
        step.restore({"optimizer": nothing, "averages": averages})
        return step


class NoSamples:
    """Translates nothing, which takes no time; the BLEU score is what is said."""

    bleu = None

    def __init__(self, *_):
        pass

    def translate(self):
        looked_at = ["a"], ["b"], np.ones((1, 1, 1, 1))
        return Translated([("a", "b", "c")], self.bleu, looked_at)


class Killed(BaseException):
    """The end of a process, as far as one can have it without ending one."""


def terminate():
    os.kill(os.getpid(), signal.SIGTERM)


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def die():
    raise Killed
