"""The work between the steps: measuring, validating, saving, stopping.

`fit` runs all steps in one epoch. For resuming, `RunCallback` counts the run's steps
across restarts and accumulated batches, and saves checkpoints between two steps. Its
`State` is part of each checkpoint.
"""

import contextlib
import datetime
import json
import math
import re
import signal
import time
from dataclasses import asdict, dataclass, field

import keras
import numpy as np
import tensorflow as tf
from sacrebleu.metrics import BLEU

from tfxformer.batches import evaluation_batches
from tfxformer.console import say
from tfxformer.decoding.search import decode
from tfxformer.errors import Stopped, UserError
from tfxformer.training.run import ARRAYS, AVERAGED, WEIGHTS

# Steps between two lines of metrics, and translations shown at each validation.
RECORD_EVERY, SHOWN = 50, 5


@dataclass
class State:
    """The state of a run besides its weights and its optimizer's state."""

    step: int = 0
    position: list | None = None  # in the data
    data: dict = field(default_factory=dict)  # digests of the data
    best_step: int = 0
    best_score: float | None = None  # higher is better: BLEU, or -perplexity
    worse: int = 0  # validations in a row without a better score
    seen: list = field(default_factory=lambda: [0.0] * 5)  # sums since the last record
    metrics_size: int = 0

    def out_of_patience(self, settings):
        """Whether too many validations in a row had no better score."""
        return bool(settings.patience) and self.worse >= settings.patience


class RunCallback(keras.callbacks.Callback):
    """Measures each step, and validates, saves and stops when due."""

    def __init__(self, run, settings, *, data, batches, state, cluster, signals):
        super().__init__()
        self.run = run
        self.settings = settings
        self.data = data
        self.batches = batches
        self.state = state  # updated at each step
        self.cluster = cluster
        self.signals = signals  # `caught` is the signal received, or None
        self.first_step = state.step
        self.first_position = state.position

    def on_train_begin(self, logs=None):
        settings, valid = self.settings, self.data.valid_rows
        limits = {"tokens_per_batch": settings.tokens_per_batch}
        limits["max_length"] = self.model.transformer.max_length
        self.valid = evaluation_batches(valid, fixed_shapes=settings.xla, **limits)
        # A fixed sample from the whole set. Each target holds the sample's number,
        # since batches are sorted by length.
        every = max(len(valid) // max(settings.bleu_pairs, SHOWN), 1)
        self.samples = self.data.valid[::every][: max(settings.bleu_pairs, SHOWN)]
        sources = [source for source, _ in valid[::every][: len(self.samples)]]
        rows = [(source, [number]) for number, source in enumerate(sources)]
        self.sources = evaluation_batches(rows, **limits)
        self.decode = tf.function(
            lambda ids: decode(self.model.transformer, ids).ids[:, 0],
            reduce_retracing=True,
        )
        if self.cluster.chief:
            self.journal = Journal(self.run, self.state.metrics_size)
        self.began = time.perf_counter()
        self._start_clock()

    def on_train_batch_begin(self, batch, logs=None):
        if self.cluster.count > 1:  # so that all workers see it in the same step
            self.model.stop_request.assign(bool(self.signals.caught))

    def on_train_batch_end(self, batch, logs=None):
        settings, state = self.settings, self.state
        steps, rest = divmod(batch + 1, settings.accumulate)
        *sums, stop_request = np.ravel(logs["sums"]).tolist()
        if not math.isfinite(sums[0]):
            raise self._not_finite(self.first_step + steps + bool(rest), "loss is")
        state.seen = [a + b for a, b in zip(state.seen, sums, strict=True)]
        self.timed += sums[3]
        if rest:
            return
        state.step = self.first_step + steps
        last = state.step == settings.steps
        self._report(last)
        validate = last or state.step % settings.validate_every == 0
        if validate:
            self._validate()
        caught = self.signals.caught
        if self.cluster.count > 1:
            caught = (caught or signal.SIGTERM) if stop_request else None
        every = settings.checkpoint_every or settings.steps
        if validate or caught or state.step % every == 0:
            self._save()
        if caught:
            what = f"step {state.step:,} is saved; the same command resumes from there"
            raise Stopped(caught, what)

    def _not_finite(self, step, what):
        return UserError(
            f"step {step:,}: the {what} not finite, and the step is not saved: start "
            "another run with a lower training.learning_rate"
        )

    def _start_clock(self):
        self.started, self.timed = time.perf_counter(), 0.0

    def _report(self, last):
        """Records and prints, when due, the means since the last record."""
        state, steps = self.state, self.settings.steps
        now = time.perf_counter()
        if not last and state.step % RECORD_EVERY:
            return
        loss, entropy, correct, tokens, positions = state.seen
        values = _means(loss, entropy, correct, tokens)
        values["learning_rate"] = float(self.model.optimizer.learning_rate)
        values["target_tokens_per_second"] = self.timed / (now - self.started)
        values["padding"] = 1 - tokens / positions
        if self.cluster.chief:
            self.journal.write(state.step, "train", values)
        pace = (now - self.began) / (state.step - self.first_step)
        left = datetime.timedelta(seconds=round(pace * (steps - state.step)))
        line = "loss {loss:.2f}, {target_tokens_per_second:,.0f} tokens/s, "
        line = (line + "lr {learning_rate:.1e}").format(**values)
        say(f"step {state.step:,} of {steps:,}, {left} left: {line}")
        state.seen = [0.0] * 5
        self._start_clock()

    def _validate(self):
        """Measures all validation pairs on each worker, so that all workers agree."""
        texts = [""] * len(self.samples)
        with self.model.averaged():
            values = _means(*self.model.sums_of(self.valid).tolist())
            for (source, _), target in self.sources:
                ids = self.decode(tf.constant(source)).numpy().tolist()
                translations = self.data.tokenizer.target.decode(ids)
                for number, text in zip(target[:, 0], translations, strict=True):
                    texts[number] = text
        if self.settings.bleu_pairs:
            references = [pair.target for pair in self.samples]
            values["bleu"] = BLEU().corpus_score(texts, [references]).score
        if self.cluster.chief:
            rows = [(*x, text) for x, text in zip(self.samples, texts, strict=True)]
            self.journal.write(self.state.step, "validation", values, rows[:SHOWN])
        self._compare(values)
        self._start_clock()

    def _compare(self, values):
        """Updates the best score, and stops when patience runs out."""
        state, by_bleu = self.state, self.settings.metric == "bleu"
        score = values["bleu"] if by_bleu else -values["perplexity"]
        best = state.best_score
        better = math.isfinite(score) and (best is None or score > best)
        state.worse += 1
        if better:
            state.best_step = state.step
            state.best_score = score
            state.worse = 0
        line = f"step {state.step:,}: validation perplexity {values['perplexity']:.2f}"
        line += f", accuracy {values['masked_accuracy']:.3f}"
        if "bleu" in values:
            line += f", BLEU {values['bleu']:.2f}"
        say(line + ("" if better or best is None else f" (best {abs(best):.2f})"))
        self.model.stop_training = state.out_of_patience(self.settings)

    def _save(self):
        """Writes a checkpoint of this step."""
        state, model = self.state, self.model
        batches = (state.step - self.first_step) * self.settings.accumulate
        state.position = self.batches.after(self.first_position, batches)
        if not self.cluster.chief:
            return
        weights = map(keras.ops.convert_to_numpy, model.trainable_weights)
        if not all(np.isfinite(weight).all() for weight in weights):
            raise self._not_finite(state.step, "weights are")
        state.metrics_size = self.run.metrics_file.stat().st_size
        writers = {
            WEIGHTS: model.transformer.save_weights,
            ARRAYS: lambda path: np.savez(path, *model.state()),
        }
        if self.settings.ema_decay:
            writers[AVERAGED] = self._save_averaged
        self.run.save_checkpoint(asdict(state), writers, self.settings.keep_last)

    def _save_averaged(self, path):
        with self.model.averaged():
            self.model.transformer.save_weights(path)


class Signals:
    """A context that catches SIGTERM and SIGINT.

    They end the run with one line, with ``wait`` only when the step is saved.
    """

    caught, wait = None, False

    def __enter__(self):
        numbers = signal.SIGTERM, signal.SIGINT
        self.before = {number: signal.signal(number, self._catch) for number in numbers}
        return self

    def __exit__(self, *_):
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _catch(self, number, _):
        if self.wait and self.caught is None:
            self.caught = number
        # Some schedulers send SIGTERM twice; a second Ctrl-C stops at once.
        elif not (self.wait and number == signal.SIGTERM):
            raise Stopped(number, "the same command resumes from the last checkpoint")


def _means(loss, entropy, correct, tokens):
    return {
        "loss": loss / tokens,
        "masked_accuracy": correct / tokens,
        "perplexity": math.exp(min(entropy / tokens, 700.0)),
    }


class Journal:
    """``metrics.jsonl`` for programs, and TensorBoard's files for people.

    The metrics after the first ``size`` bytes are cut off: they come after the
    checkpoint to resume from, and will be written again.
    """

    def __init__(self, run, size=0):
        self.file, self.folder = run.metrics_file, run.tensorboard_folder
        with _writing(self.file), open(self.file, "ab") as file:
            file.truncate(min(size, file.tell()))
        with _writing(self.folder):
            self.events = tf.summary.create_file_writer(str(self.folder))

    def write(self, step, split, values, samples=()):
        """Writes a line of metrics, and the same for TensorBoard with a few samples.

        The line has null for a number that is not finite.
        """
        row = {name: x if math.isfinite(x) else None for name, x in values.items()}
        line = json.dumps({"step": step, "split": split, **row})
        with _writing(self.file), open(self.file, "a", encoding="utf-8") as file:
            file.write(f"{line}\n")
        with _writing(self.folder), self.events.as_default(step):
            for name, value in values.items():
                tf.summary.scalar(f"{split}/{name}", value)
            if samples:
                table = [("source", "reference", "translation"), *samples]
                tf.summary.text("samples", table)
            self.events.flush()


@contextlib.contextmanager
def _writing(path):
    """A context that writes to a path; a `UserError` with the path if that fails."""
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        reason = getattr(error, "strerror", None)
        reason = reason or re.sub(r"{{.*?}} |(\n| \[Op:)(?s:.*)", "", error.message)
        raise UserError(
            f"{path}: cannot be written: {reason}; fix this, and the same command "
            "resumes from the last checkpoint"
        ) from None
