"""What happens between the steps: measuring, validating, saving, stopping.

`fit` runs all steps in one epoch. `RunCallback` counts the run's steps, over restarts
and accumulated batches; what it knows is a `State`, which belongs to the checkpoint.
"""

import contextlib
import json
import math
import os
import signal
import time
from dataclasses import asdict, dataclass, field

import keras
import numpy as np
import tensorflow as tf
from sacrebleu.metrics import BLEU

from tfxformer.batches import evaluation_batches
from tfxformer.console import printable, say
from tfxformer.decoding.search import decode
from tfxformer.errors import INTERRUPTED, PREEMPTED, Stopped, UserError
from tfxformer.training import checkpoints

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

    def out_of_patience(self, settings):
        """Whether validations have been worse for too long."""
        return bool(settings.patience) and self.worse >= settings.patience


class RunCallback(keras.callbacks.Callback):
    """Measures each step, and validates, saves and stops where it is due.

    Args:
        run: the `Run`.
        settings: its `TrainingConfig`.
        data: its `Data`.
        batches: the `TrainingBatches` that it trains on.
        state: the `State` in which it begins, which moves on.
        cluster: the `Cluster`.
        signals: has the signal that was `caught`, or None.
        journal: the `Journal` to write.
        progress: the `Progress` to show.
    """

    def __init__(
        self, run, settings, data, batches, state, cluster, signals, journal, progress
    ):
        super().__init__()
        self.run, self.settings, self.data, self.batches = run, settings, data, batches
        self.state, self.cluster, self.signals = state, cluster, signals
        self.journal, self.progress = journal, progress
        self.first_step, self.first_position = state.step, state.position

    def on_train_begin(self, logs=None):
        self.samples = Samples(self.data, self.model, self.settings)
        self.valid = evaluation_batches(
            self.data.valid_rows,
            tokens_per_batch=self.settings.tokens_per_batch,
            max_length=self.model.max_length,
            fixed_shapes=self.settings.xla,
        )
        self._start_clock()

    def on_train_batch_begin(self, batch, logs=None):
        if self.cluster.count > 1:  # so that all learn of it in the same step
            self.model.stop_request.assign(self.signals.caught or 0)

    def on_train_batch_end(self, batch, logs=None):
        steps, rest = divmod(batch + 1, self.settings.accumulate)
        *sums, stop_request = np.ravel(logs["sums"]).tolist()
        if not math.isfinite(sums[0]):
            raise self._not_finite(self.first_step + steps + bool(rest), "loss is")
        state = self.state
        state.seen = [a + b for a, b in zip(state.seen, sums, strict=True)]
        self.timed += sums[3]
        if rest:
            return
        state.step, state.score = self.first_step + steps, None
        last = state.step == self.settings.steps
        self._report(last)
        validate = last or state.step % self.settings.validate_every == 0
        if validate:
            self._validate()
        caught = self.signals.caught
        if self.cluster.count > 1:  # the sum of what all have caught
            caught = stop_request and (
                signal.SIGINT if stop_request % signal.SIGTERM else signal.SIGTERM
            )
        every = self.settings.checkpoint_every
        if validate or caught or (every and state.step % every == 0):
            self._save()
        if caught:
            what = f"step {state.step:,} is saved; the same command resumes from there"
            raise stopped(caught, what)

    def _not_finite(self, step, what):
        return UserError(
            f"step {step:,}: the {what} not finite: nothing of it is saved; begin "
            "another run with a lower training.learning_rate"
        )

    def _start_clock(self):
        self.started, self.timed = time.perf_counter(), 0.0

    def _report(self, last):
        """Shows the means over the tokens since the last record, and records them."""
        state = self.state
        loss, entropy, correct, tokens, positions = state.seen
        values = {
            "loss": loss / tokens,
            "masked_accuracy": correct / tokens,
            "perplexity": math.exp(min(entropy / tokens, 700.0)),
            "learning_rate": float(self.model.optimizer.learning_rate),
            "target_tokens_per_second": self.timed
            / (time.perf_counter() - self.started),
            "padding": 1 - tokens / positions,
        }
        shown = "loss", "target_tokens_per_second", "learning_rate"
        self.progress.update(state.step, **{name: values[name] for name in shown})
        if last or state.step % RECORD_EVERY == 0:
            self.journal.scalars(state.step, "train", values)
            state.seen = [0.0] * 5
            self._start_clock()

    def _validate(self):
        """Measures the validation pairs: each worker all, so that all find the same."""
        with self.model.averaged():
            _, entropy, correct, tokens = self.model.sums_of(self.valid).tolist()
            texts, bleu = self.samples.translate()
        values = {
            "loss": entropy / tokens,
            "perplexity": math.exp(min(entropy / tokens, 700.0)),
            "masked_accuracy": correct / tokens,
        }
        if bleu is not None:
            values["bleu"] = bleu
        self.journal.scalars(self.state.step, "validation", values)
        self.journal.texts(self.state.step, texts)
        self._compare(values)
        self._start_clock()

    def _compare(self, values):
        """Keeps the best score, and stops when none was better for too long."""
        state, by_bleu = self.state, self.settings.metric == "bleu"
        score = values["bleu"] if by_bleu else -values["perplexity"]
        best, finite = state.best_score, math.isfinite(score)
        better = finite and (best is None or score > best)
        state.score, state.worse = score if finite else None, state.worse + 1
        if better:
            state.best_step, state.best_score, state.worse = state.step, score, 0
            state.best_perplexity = values["perplexity"]
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
        state.metrics_size = self.journal.size()
        arrays = model.state()
        writers = {
            checkpoints.WEIGHTS: model.save_weights,
            checkpoints.ARRAYS: lambda path: np.savez(path, *arrays),
        }
        if self.settings.ema_decay:
            writers[checkpoints.AVERAGED] = self._save_averaged
        checkpoints.save(self.run, asdict(state), writers, self.settings.keep_last)

    def _save_averaged(self, path):
        with self.model.averaged():
            self.model.save_weights(path)


def stopped(number, what):
    """The `Stopped` that ends a run which a signal, by its number, has stopped."""
    if number == signal.SIGTERM:
        return Stopped(f"stopped by SIGTERM: {what}", PREEMPTED)
    return Stopped(f"interrupted: {what}", INTERRUPTED)


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
        """Triples to show, (source, reference, translation); BLEU of all, or None."""
        found = {}
        for (source, _), target in self.batches:
            ids = self._decode(tf.constant(source)).numpy()
            found |= zip(target[:, 0].tolist(), ids.tolist(), strict=True)
        texts = self.tokenizer.decode([found[i] for i in range(len(self.pairs))])
        rows = [(*pair, text) for pair, text in zip(self.pairs, texts, strict=True)]
        references = [pair.target for pair in self.pairs]
        bleu = BLEU().corpus_score(texts, [references]).score if self.scored else None
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
        self.run, self.file = run, None
        if run is not None:
            with self._written():
                self.file = open(run.metrics_file, "a+b")  # noqa: SIM115
                self.file.seek(0)
                # Whole lines, should someone have changed the file.
                self.file.truncate(self.file.read(size).rfind(b"\n") + 1)
                folder = str(run.tensorboard_folder)
                self.events = tf.summary.create_file_writer(folder)

    def size(self):
        """How many bytes the metrics have."""
        return os.fstat(self.file.fileno()).st_size

    def scalars(self, step, split, values):
        """Writes numbers, by name: a line, null where one is not finite, and curves."""
        if self.run is None:
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
        """Writes sample translations, as a table for TensorBoard."""
        if self.run is None:
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
            raise UserError(f"{self.run.metrics_file}: {error.strerror}") from None
        except tf.errors.OpError as error:
            raise UserError(f"{self.run.tensorboard_folder}: {error.message}") from None
