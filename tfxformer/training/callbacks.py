"""What happens between the steps: measuring, validating, saving, stopping.

`fit` runs all steps in one epoch. The callbacks count the run's steps, over restarts,
and keep what they know in a `State`, which belongs to the checkpoint.
"""

import contextlib
import json
import logging
import math
import os
import signal
import threading
import time
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from sacrebleu.metrics import BLEU

from tfxformer.batches import evaluation_batches
from tfxformer.console import printable, say
from tfxformer.decoding.search import decode
from tfxformer.errors import INTERRUPTED, PREEMPTED, Stopped, UserError
from tfxformer.training import checkpoints

log = logging.getLogger("tfxformer")

# Steps between two lines of metrics, and translations shown at each validation.
RECORD_EVERY, SHOWN = 50, 5


@dataclass
class State:
    """What a run must know to resume, beside its weights and its optimizer's state."""

    step: int = 0
    position: dict | None = None  # of the data
    data: dict = field(default_factory=dict)  # its digests
    best_step: int = 0
    best_score: float | None = None
    best_perplexity: float | None = None
    score: float | None = None  # of the validation in this very step
    worse: int = 0  # validations in a row
    seen: list = field(default_factory=lambda: [0.0] * 5)  # sums since the last record
    metrics_size: int = 0

    @classmethod
    def of(cls, content):
        """The state that a checkpoint keeps.

        Args:
            content: a dict with its fields, and more.

        Returns:
            A `State`.
        """
        return cls(**{each.name: content[each.name] for each in fields(cls)})


class Job(NamedTuple):
    """What the callbacks of one `fit` share."""

    run: Any
    config: Any
    data: Any
    model: Any
    batches: Any
    state: State
    cluster: Any
    signals: Any
    progress: Any
    journal: Any


class StepCallback(keras.callbacks.Callback):
    """A callback that is called after each step, of one or more batches.

    Args:
        job: a `Job`.
    """

    def __init__(self, job):
        super().__init__()
        self.job, self.state, self.settings = job, job.state, job.config.training
        self.began = job.state.step, job.state.position

    def on_train_batch_end(self, batch, logs=None):
        steps, rest = divmod(batch + 1, self.settings.accumulate)
        if not rest:
            self.on_step(self.began[0] + steps, logs)


class Metrics(StepCallback):
    """Adds up what each batch logs, shows it, and records it now and then."""

    def on_train_begin(self, logs=None):
        self.restart()

    def restart(self):
        """Begins to measure the time anew."""
        self.started, self.timed = time.perf_counter(), 0.0

    def on_train_batch_end(self, batch, logs=None):
        sums = np.ravel(logs["sums"]).tolist()
        self.stop_request = sums[5]
        loss = sums[0] / max(sums[3], 1.0)
        if not math.isfinite(loss):
            step = self.began[0] + batch // self.settings.accumulate + 1
            raise UserError(
                f"step {step:,}: the loss is {loss:.4g}: nothing of it is saved; begin "
                "another run with a lower training.learning_rate"
            )
        self.state.seen = [a + b for a, b in zip(self.state.seen, sums, strict=False)]
        self.timed += sums[3]
        super().on_train_batch_end(batch, logs)

    def on_step(self, step, logs):
        state = self.state
        state.step, state.score = step, None
        values = self._values()
        shown = ("loss", "target_tokens_per_second", "learning_rate")
        self.job.progress.update(step, **{name: values[name] for name in shown})
        if step % RECORD_EVERY == 0 or step == self.settings.steps:
            self.job.journal.scalars(step, "train", values)
            state.seen = [0.0] * 5
            self.restart()

    def _values(self):
        """Means over the real tokens since the last record."""
        loss, entropy, correct, tokens, positions = self.state.seen
        return {
            "loss": loss / tokens,
            "masked_accuracy": correct / tokens,
            "perplexity": math.exp(min(entropy / tokens, 700.0)),
            "learning_rate": float(self.model.optimizer.learning_rate),
            "target_tokens_per_second": self.timed
            / (time.perf_counter() - self.started),
            "padding": 1 - tokens / positions,
        }


class Validation(StepCallback):
    """Measures the validation pairs, and stops when they no longer get better.

    Each worker measures all of them, so that all come to the same end.

    Args:
        job: a `Job`.
        metrics: the `Metrics`, whose time stands still meanwhile.
    """

    def __init__(self, job, metrics):
        super().__init__(job)
        self.metrics = metrics
        self.batches = evaluation_batches(
            job.data.valid_rows,
            tokens_per_batch=self.settings.tokens_per_batch,
            max_length=job.model.max_length,
            fixed_shapes=self.settings.xla,
        )
        self.samples = Samples(job.data, job.model, self.settings)

    def on_step(self, step, logs):
        if step % self.settings.validate_every and step != self.settings.steps:
            return
        with self.model.averaged():
            _, entropy, correct, tokens = self.model.sums_of(self.batches).tolist()
            texts, bleu = self.samples.translate()
        values = {
            "loss": entropy / tokens,
            "perplexity": math.exp(min(entropy / tokens, 700.0)),
            "masked_accuracy": correct / tokens,
        }
        if bleu is not None:
            values["bleu"] = bleu
        self.job.journal.scalars(step, "validation", values)
        self.job.journal.texts(step, texts)
        self._compare(step, values)
        self.metrics.restart()

    def _compare(self, step, values):
        """Keeps the best score, and counts those that are worse."""
        state, by_bleu = self.state, self.settings.metric == "bleu"
        score = values["bleu"] if by_bleu else -values["perplexity"]
        best, finite = state.best_score, math.isfinite(score)
        better = finite and (best is None or score > best)
        state.score = score if finite else None
        if better:
            state.best_step, state.best_score, state.worse = step, score, 0
            state.best_perplexity = values["perplexity"]
        else:
            state.worse += 1
        line = f"step {step:,}: validation perplexity {values['perplexity']:.2f}"
        line += f", accuracy {values['masked_accuracy']:.3f}"
        if "bleu" in values:
            line += f", BLEU {values['bleu']:.2f}"
        if self.job.cluster.chief:
            say(line + ("" if better or best is None else f" (best {abs(best):.2f})"))
        self.model.stop_training = out_of_patience(state, self.settings)


class Checkpoints(StepCallback):
    """Saves the run after validations, now and then, and when it is told to stop.

    Args:
        job: a `Job`.
        metrics: the `Metrics`, which hears of other workers' signals.
    """

    def __init__(self, job, metrics):
        super().__init__(job)
        self.metrics = metrics

    def on_train_batch_begin(self, batch, logs=None):
        if self.job.cluster.count > 1:
            self.model.stop_request.assign(self.job.signals.caught or 0)

    def on_step(self, step, logs):
        every = self.settings.checkpoint_every or self.settings.validate_every
        validated = step % self.settings.validate_every == 0
        due = step % every == 0 or validated or step == self.settings.steps
        caught = self.job.signals.caught
        if self.job.cluster.count > 1:
            # The sum of what all have caught; all see it in the same step.
            caught = self.metrics.stop_request
            if caught:
                single = caught % signal.SIGTERM == 0
                caught = signal.SIGTERM if single else signal.SIGINT
        if due or caught:
            self.save()
        if caught:
            raise stopped(
                caught, f"step {step:,} is saved; the same command resumes from there"
            )

    def save(self):
        """Writes a checkpoint of this step."""
        job, state = self.job, self.state
        batches = (state.step - self.began[0]) * self.settings.accumulate
        state.position = job.batches.after(self.began[1], batches)
        if not job.cluster.chief:
            return
        weights = [keras.ops.convert_to_numpy(v) for v in self.model.trainable_weights]
        if not all(np.isfinite(weight).all() for weight in weights):
            raise UserError(
                f"step {state.step:,}: the weights are not finite: nothing of it is "
                "saved; begin another run with a lower training.learning_rate"
            )
        state.metrics_size = job.journal.size()
        arrays = self.model.state()
        writers = {
            checkpoints.WEIGHTS: self.model.save_weights,
            checkpoints.ARRAYS: lambda path: np.savez(path, *arrays),
        }
        if self.settings.ema_decay:
            writers[checkpoints.AVERAGED] = self._save_averaged
        checkpoints.save(job.run, asdict(state), writers, self.settings.keep_last)

    def _save_averaged(self, path):
        with self.model.averaged():
            self.model.save_weights(path)


def out_of_patience(state, settings):
    """Whether validations have been worse for too long."""
    return bool(settings.patience) and state.worse >= settings.patience


class Samples:
    """Translates validation pairs, greedily: a few to look at, more for BLEU.

    Args:
        data: the run's `Data`.
        model: the `Transformer`.
        settings: a `TrainingConfig`.
    """

    def __init__(self, data, model, settings):
        self.tokenizer, self.scored = data.tokenizer, settings.bleu_pairs > 0
        # Of all over the corpus, and always the same.
        count = max(settings.bleu_pairs, SHOWN)
        every = max(len(data.valid) // count, 1)
        self.pairs = data.valid[::every][:count]
        sources = [source for source, _ in data.valid_rows[::every][:count]]
        # The target has each one's number, since batches are put in order of length.
        self.batches = evaluation_batches(
            [(source, [number]) for number, source in enumerate(sources)],
            tokens_per_batch=settings.tokens_per_batch,
            max_length=model.max_length,
        )
        self._decode = tf.function(
            lambda ids: decode(model, ids).ids[:, 0], reduce_retracing=True
        )

    def translate(self):
        """Translates all of them.

        Returns:
            Triples to show: a source, its reference and the translation; and BLEU of
            all, or None where the settings ask for none.
        """
        found = {}
        for (source, _), target in self.batches:
            ids = self._decode(tf.constant(source)).numpy()
            found |= zip(target[:, 0].tolist(), ids.tolist(), strict=True)
        texts = self.tokenizer.decode([found[i] for i in range(len(self.pairs))])
        rows = [(*pair, text) for pair, text in zip(self.pairs, texts, strict=True)]
        bleu = None
        if self.scored:
            references = [pair.target for pair in self.pairs]
            bleu = BLEU().corpus_score(texts, [references]).score
        return rows[:SHOWN], bleu


class Journal:
    """``metrics.jsonl`` for machines, and TensorBoard's files for people.

    Args:
        run: a `Run`; None to write nothing, as all workers but the chief do.
        size: the bytes of metrics at the checkpoint from which the run resumes; what
            was written after it comes again.

    Raises:
        UserError: here and in all that write, when a file cannot be written.
    """

    def __init__(self, run, size=0):
        self.file = None
        if run is None:
            return
        self.path = run.metrics_file
        with self._written():
            self.file = open(self.path, "a+b")  # noqa: SIM115
            self.file.seek(0)
            # Whole lines, should someone have changed the file.
            self.file.truncate(self.file.read(size).rfind(b"\n") + 1)
            self.events = tf.summary.create_file_writer(str(run.tensorboard_folder))

    def size(self):
        """How many bytes the metrics have."""
        return os.fstat(self.file.fileno()).st_size

    def scalars(self, step, split, values):
        """Writes numbers, as a line of the metrics and as curves.

        Args:
            step: the step they were measured at.
            split: "train" or "validation".
            values: numbers by name; one that is not finite is null in the metrics.
        """
        if self.file is None:
            return
        row = {name: x if math.isfinite(x) else None for name, x in values.items()}
        line = json.dumps({"step": step, "split": split, **row})
        with self._written(), self.events.as_default(step):
            self.file.write(f"{line}\n".encode())
            self.file.flush()
            for name, value in values.items():
                tf.summary.scalar(f"{split}/{name}", value)
            self.events.flush()

    def texts(self, step, rows):
        """Writes sample translations, as a table for TensorBoard.

        Args:
            step: the step they were made at.
            rows: triples of a source, its reference and a translation.
        """
        if self.file is None:
            return
        rows = [["source", "reference", "translation"], ["---"] * 3, *rows]
        rows = [
            [printable(text).replace("|", "&#124;") for text in row] for row in rows
        ]
        lines = [" | ".join(row) for row in rows]
        with self._written(), self.events.as_default(step):
            tf.summary.text("samples", "\n".join(f"| {line} |" for line in lines))
            self.events.flush()

    def close(self):
        """Closes the files."""
        if self.file is not None:
            with self._written():
                self.file.close()
                self.events.close()

    @contextlib.contextmanager
    def _written(self):
        try:
            yield
        except OSError as error:
            raise UserError(f"{self.path}: {error.strerror}") from None
        except tf.errors.OpError as error:
            raise UserError(f"{self.path.parent / 'tensorboard'}: {error}") from None


class Signals:
    """SIGTERM and SIGINT wait until the step is done and the state is saved."""

    NUMBERS = signal.SIGTERM, signal.SIGINT

    def __init__(self):
        self.caught = None
        self.waits = False

    def __enter__(self):
        # Python lets only the main thread handle signals.
        main = threading.current_thread() is threading.main_thread()
        numbers = self.NUMBERS if main else ()
        self.before = {number: signal.signal(number, self._catch) for number in numbers}
        return self

    def __exit__(self, *_):
        for number, handler in self.before.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def held(self):
        """Within it, a signal waits; outside it ends the run at once."""
        self.waits = True
        try:
            yield
        finally:
            self.waits = False

    def _catch(self, number, _):
        if self.waits and self.caught is None:
            self.caught = number
        # Some schedulers say it twice; who presses Ctrl-C again means it.
        elif not (self.waits and number == signal.SIGTERM):
            raise stopped(number, "the same command resumes from the last checkpoint")


def stopped(number, what):
    """What ends a run that a signal has stopped.

    Args:
        number: the signal's.
        what: what becomes of it.

    Returns:
        A `Stopped`.
    """
    if number == signal.SIGTERM:
        return Stopped(f"stopped by SIGTERM: {what}", PREEMPTED)
    return Stopped(f"interrupted: {what}", INTERRUPTED)
