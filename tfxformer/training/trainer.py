"""The training run: corpora and settings in, a run folder out."""

import contextlib
import hashlib
import logging
import math
import signal
import threading
import time
from itertools import islice
from pathlib import Path

import keras
import numpy as np

from tfxformer import fine_tuning
from tfxformer.batches import TrainingBatches, evaluation_batches, prefetch
from tfxformer.console import Progress, say
from tfxformer.errors import INTERRUPTED, PREEMPTED, Stopped, UserError
from tfxformer.outputs import make_folder, remove_folder
from tfxformer.run import Run, build_model, load_weights
from tfxformer.training import checkpoints
from tfxformer.training.data import check_sources, load_data, open_data
from tfxformer.training.distribution import join
from tfxformer.training.reporting import Reporter
from tfxformer.training.samples import Samples
from tfxformer.training.step import TrainingStep

log = logging.getLogger("tfxformer")

# Steps between two lines of metrics.
RECORD_EVERY = 50
# Bad batches in a row that are skipped; more are the weights' fault.
SKIPS = 20


def train(config, out):
    """Trains a translator, or goes on where the run folder stands.

    A run that was stopped, at any moment and in any way, ends with the weights that it
    would have had.

    All devices that TensorFlow shows train together; so do several processes, each
    of which calls this, where the environment names them: see `distribution.join`.

    Args:
        config: a `Config`.
        out: the path of the run folder; it is made where it is missing. A folder
            with a run in it is continued; what of its settings changes is said, and
            what cannot change is refused.

    Returns:
        The `Run`.

    Raises:
        UserError: before any work, when a setting or a source cannot be; when the
            folder holds a run with other settings, or another process trains in it;
            when nothing can be saved; and when a batch's loss is not sound and
            ``training.on_bad_batch`` says to stop; and when another process is lost.
        Stopped: after SIGTERM or SIGINT, once the state is saved.

    Example:
        >>> from tfxformer.config import load_config
        >>> train(load_config("tiny", overrides=["data.sources=[nowhere.tsv]"]), "run")
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: 'nowhere.tsv' is no pair source and no file; ...
    """
    workers = join()
    run = Run(Path(out))
    with contextlib.ExitStack() as stack:
        stack.enter_context(workers.watched())
        signals = stack.enter_context(_Signals())
        unbegun = contextlib.ExitStack()  # what a run without a step takes back
        data = _prepare(run, config, workers, stack, unbegun)
        keras.utils.set_random_seed(config.training.seed)
        vocab_size = data.vocabulary.vocab_size
        with workers.scope():
            model = build_model(config, vocab_size, config.training.precision)
            log.info(
                "model: %s parameters, %s pieces, %s",
                f"{model.count_params():,}",
                f"{vocab_size:,}",
                _devices(workers),
            )
            trainer = _Trainer(run, config, data, model, signals, workers)
        trainer.resume()
        unbegun.pop_all()  # from now on there is something to keep
        trainer.train()
    return run


def _prepare(run, config, workers, stack, unbegun):
    """Readies the run folder and all data: the chief, and then the others read them.

    If the run fails, what is left in ``unbegun`` removes the folder that was made.
    """

    def chiefs():
        check_sources(config)
        made = _open(config, run.path)
        stack.enter_context(run.locked())
        stack.push(unbegun)  # after the lock, so that it acts within it
        unbegun.push(lambda kind, *_: _forget(made, kind))
        if run.config_file.exists():
            _check_same(config, run)
        if not checkpoints.are_in(run):
            # A start that was stopped early may have had other settings or pairs.
            with contextlib.suppress(OSError):
                run.tokenizer_file.unlink()
        data = load_data(config, run)
        # Not before: a folder whose pairs could not be read is not yet a run.
        config.save(run.config_file)
        return data

    settings = {
        f"{section}.{name}": value
        for section, values in config.to_dict().items()
        for name, value in values.items()
    }
    workers.same("its settings", settings)
    data = workers.together(lambda: chiefs() if workers.chief else None)
    valid = workers.chiefs(data and data.valid)
    if not workers.chief:
        data = workers.together(lambda: open_data(config, run, valid))
    else:
        workers.together(lambda: None)
    workers.same("its data", data.keys())
    return data


def _forget(made, failure):
    """Removes new folders after a failure; a run that is stopped keeps its work."""
    if failure and issubclass(failure, Exception):
        remove_folder(made)


def _open(config, out):
    """Makes the run folder; returns the folders that were not there before."""
    run = Run(out)
    if out.exists() and not out.is_dir():
        raise UserError(f"{out}: is a file; name a folder")
    try:
        if out.exists() and not run.config_file.exists():
            # What a start that was stopped early may have left.
            own = {"tokenizer.model", "tokens"}
            if {p.name for p in out.iterdir() if not p.name.startswith(".")} - own:
                raise UserError(
                    f"{out}: is neither a run folder nor an empty folder; name another"
                )
        if not checkpoints.are_in(run):
            if run.weights_file("last").exists():
                raise UserError(
                    f"{run.checkpoints_folder}: has no checkpoint, and without one the "
                    "run cannot go on: bring one back, or use another folder (with "
                    f"training.init_from = {out} it begins with these weights)"
                )
            if config.training.init_from is not None:
                fine_tuning.check(config)
        return make_folder(out)
    except OSError as error:
        raise UserError(f"{out}: {error.strerror}") from None


# What may differ when a run goes on: how long, how it is watched and kept, what
# becomes of bad batches; and how gradients are computed, which changes no meaning.
_MAY_CHANGE = {
    "training": {
        "steps",
        "validate_every",
        "patience",
        "checkpoint_every",
        "keep_last",
        "keep_best",
        "bleu_pairs",
        "on_bad_batch",
        "loss_limit",
        "xla",
    },
    "data": {"data_dir"},
}


def _check_same(config, run):
    old, new = run.config().to_dict(), config.to_dict()
    changed = {
        (section, name): f"{section}.{name} was {old[section][name]!r} and is {value!r}"
        for section, settings in new.items()
        for name, value in settings.items()
        if old[section][name] != value
    }
    refused = [
        text
        for (section, name), text in changed.items()
        if name not in _MAY_CHANGE.get(section, ())
    ]
    if refused:
        raise UserError(
            f"{run.path}: holds a run with other settings ({'; '.join(refused)}): "
            "use its own, or another folder"
        )
    for text in changed.values():
        log.info("%s: going on with another setting: %s", run.path, text)


def _devices(workers):
    kind = keras.distribution.list_devices()[0].partition(":")[0].upper()
    where = f"tensorflow on {workers.devices} {kind}"
    return where if workers.count == 1 else f"{where} of {workers.count} processes"


class _Signals:
    """SIGTERM and SIGINT wait until the step is done and the state is saved."""

    NUMBERS = signal.SIGTERM, signal.SIGINT

    def __init__(self):
        self.caught = None
        self.waits = False

    def __enter__(self):
        # Python lets only the main thread handle signals.
        self.before = (
            {number: signal.signal(number, self._catch) for number in self.NUMBERS}
            if threading.current_thread() is threading.main_thread()
            else {}
        )
        return self

    def __exit__(self, *_):
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _catch(self, number, _):
        if self.waits and self.caught is None:
            self.caught = number
        # Some schedulers say it twice; who presses Ctrl-C again means it.
        elif not (self.waits and number == signal.SIGTERM):
            raise _stopped(number, "the same command goes on from the last checkpoint")


def _stopped(number, what):
    if number == signal.SIGTERM:
        return Stopped(f"stopped by SIGTERM: {what}", PREEMPTED)
    return Stopped(f"interrupted: {what}", INTERRUPTED)


class _Trainer:
    """The loop, and what it keeps between steps."""

    def __init__(self, run, config, data, model, signals, workers):
        self.run = run
        self.config = config
        self.settings = settings = config.training
        self.data = data
        self.model = model
        self.signals = signals
        self.workers = workers
        sizes = {
            "tokens_per_batch": settings.tokens_per_batch,
            "max_length": config.model.max_length,
            "static_shapes": settings.xla,  # XLA compiles for each shape
        }
        self.batches = TrainingBatches(
            data.corpora,
            weights=config.data.weights,
            vocabulary=data.vocabulary,
            alpha=settings.subword_alpha,
            seed=settings.seed,
            **sizes,
        )
        self.valid = evaluation_batches(data.valid_rows, **sizes)
        self.step = TrainingStep(model, settings)
        self.samples = Samples(data, model, self.step.compiled, settings, settings.xla)
        self.reporter = Reporter(run, data.vocabulary)
        self.state = {
            "step": 0,
            "position": None,  # of the data
            "best_step": 0,
            "best_score": None,
            "best_perplexity": None,
            "score": None,  # of the validation in this very step
            "worse": 0,  # validations in a row
            "running_loss": None,
            "skipped": 0,  # bad batches in a row
            "loss_scale": 2.0**10 if settings.precision == "float16" else 1.0,
            "scale_steps": 0,  # since the scale changed
            "window": None,  # what was seen since the last record
            "metrics_size": 0,
            "data": data.keys(),
            "static_shapes": settings.xla,
        }
        self.saved = None  # the step of the last checkpoint

    def resume(self):
        # The chief first, since it puts the folder right.
        for turn in (True, False):
            self.workers.together(
                lambda turn=turn: self._resume() if self.workers.chief is turn else None
            )
        self._check_same_start()

    def train(self):
        steps, step = self.settings.steps, self.state["step"]
        if step >= steps:
            log.info("the run has its %s steps already", f"{step:,}")
            return
        if self._out_of_patience():
            return
        if self.workers.chief:
            self.reporter.start(step, self.state["metrics_size"])
        seen = _Seen(self.state["window"])
        batches = prefetch(self.batches(self.state["position"]))
        self.signals.waits = True
        try:
            with Progress("training", steps, step) as progress:
                while step < steps and not self._out_of_patience():
                    some = list(islice(batches, self.settings.accumulate))
                    step += 1
                    totals, norm = self._step(step, [batch for batch, _ in some])
                    self.state |= {"position": some[-1][1], "step": step, "score": None}
                    if totals:
                        seen.add(totals, norm, [batch for batch, _ in some])
                    if seen.steps:
                        shown = seen.values() | {"learning_rate": self.learning_rate}
                        progress.update(
                            step,
                            loss=shown["loss"],
                            target_tokens_per_second=shown["target_tokens_per_second"],
                            learning_rate=self.learning_rate,
                        )
                        if step % RECORD_EVERY == 0 or step == steps:
                            if self.workers.chief:
                                self.reporter.scalars(step, "train", shown)
                            seen = _Seen()
                    self.state["window"] = seen.state()
                    validated = step % self.settings.validate_every == 0
                    if validated or step == steps:
                        self._validate(step)
                        seen.restart()
                        validated = True
                    every = self.settings.checkpoint_every
                    if validated if every is None else validated or step % every == 0:
                        self._save()
                    caught = self.workers.largest(self.signals.caught or 0)
                    if caught:
                        self._stop(step, caught)
        finally:
            self.signals.waits = False
            batches.close()
            self.reporter.close()
        log.info("done: step %s, %s", f"{step:,}", self._best())

    def _best(self):
        perplexity, step = self.state["best_perplexity"], self.state["best_step"]
        if perplexity is None:
            return "no validation gave a sound score"
        return f"best perplexity {perplexity:.2f} in step {step:,}"

    def _resume(self):
        checkpoint = checkpoints.newest(self.run)
        if checkpoint is None:
            self._begin()
            return
        self._check_data(checkpoint)
        load_weights(self.model, checkpoint.weights_file)
        try:
            self.step.restore(checkpoint.arrays())
        except (ValueError, KeyError, OSError) as error:
            raise UserError(f"{checkpoint.path}: {error}") from None
        static = self.state["static_shapes"]
        self.state = {k: checkpoint.state.get(k, v) for k, v in self.state.items()}
        self.saved = checkpoint.step
        if self.workers.chief:
            checkpoints.restore(self.run, checkpoint)
        log.info("going on from step %s", f"{checkpoint.step:,}")
        if static != self.state["static_shapes"]:
            # The same place of other batches would be another one.
            block = self.state["position"]["block"] + 1
            self.state |= {
                "position": {"block": block, "batch": 0},
                "static_shapes": static,
            }
            log.info("batches have other shapes now: going on with the next block")

    def _check_same_start(self):
        if self.workers.count == 1:
            return
        digest = hashlib.sha256()
        for variable in self.model.trainable_variables:
            digest.update(keras.ops.convert_to_numpy(variable).tobytes())
        start = {"step": self.state["step"], "weights": digest.hexdigest()}
        self.workers.same("the checkpoint it goes on from", start)

    def _check_data(self, checkpoint):
        """Refuses to go on with other pairs: they would not be those of a whole run."""
        ours, theirs = self.state["data"], checkpoint.state.get("data", {})
        for name, digest in theirs.items():
            if ours.get(name) != digest:
                if name.isdecimal():
                    name = self.config.data.sources[int(name)]
                raise UserError(
                    f"{name}: is not what it was when this run began: bring it back, "
                    "or begin another run in another folder (with training.init_from "
                    f"= {self.run.path} it begins with these weights)"
                )

    def _begin(self):
        name = self.settings.init_from
        if name is None:
            return
        path = fine_tuning.set_weights(self.model, name)
        state = self.step.state()
        if state["averages"]:
            weights = self.model.trainable_variables
            state["averages"] = [*map(keras.ops.convert_to_numpy, weights)]
        self.step.restore(state)
        log.info("beginning with the best weights of %s", path)

    def _step(self, step, batches):
        """One step: the totals and the gradient's norm, or None if it was skipped."""
        state, settings = self.state, self.settings
        scale = state["loss_scale"]
        self.learning_rate = self.step.learning_rate()
        totals, gradients = [], None
        for i, batch in enumerate(batches):
            number = (step * settings.accumulate + i + settings.seed * 7919) % 2**31
            found, gradients = self.step.gradients(
                batch, number, scale, gradients, last=i + 1 == len(batches)
            )
            totals.append(found)
        tokens = max(sum(found.tokens for found in totals), 1.0)
        loss = sum(found.loss for found in totals) / tokens
        norm = math.sqrt(totals[-1].square_norm) / tokens / scale
        running = state["running_loss"]
        sound = math.isfinite(loss) and not (
            running and loss > settings.loss_limit * running
        )
        finite = math.isfinite(norm)
        if sound and settings.precision == "float16" and self._rescale(finite):
            return None, None  # the scale's fault, not the batch's
        if not (sound and finite):
            self._refuse(step, batches, loss, norm)
            return None, None
        state["skipped"] = 0
        # About the last hundred steps.
        state["running_loss"] = (
            loss if running is None else 0.99 * running + 0.01 * loss
        )
        clip = (
            min(1.0, settings.clip_norm / norm) if settings.clip_norm and norm else 1.0
        )
        self.step.apply(gradients, clip / tokens / scale)
        return totals, norm

    def _rescale(self, finite):
        """Moves float16's loss scale; whether gradients went over the top."""
        state = self.state
        state["scale_steps"] += 1
        if not finite and state["loss_scale"] > 1:
            state |= {"loss_scale": state["loss_scale"] / 2, "scale_steps": 0}
            return True
        if state["scale_steps"] >= 2000:
            state |= {"loss_scale": state["loss_scale"] * 2, "scale_steps": 0}
        return False

    def _refuse(self, step, batches, loss, norm):
        """Keeps a bad batch to look at, and stops or goes on without it."""
        file = self.run.bad_batches_folder / f"step-{step:08d}.npz"
        arrays = {}
        for i, ((source, target_in), target_out) in enumerate(batches):
            arrays |= {
                f"source_{i}": source,
                f"target_in_{i}": target_in,
                f"target_out_{i}": target_out,
            }

        def save():
            try:
                file.parent.mkdir(exist_ok=True)
                np.savez_compressed(file, **arrays)
            except OSError as error:
                raise UserError(f"{file}: {error.strerror}") from None

        self.workers.together(save if self.workers.chief else lambda: None)
        running = self.state["running_loss"]
        before = (
            "" if running is None else f" (before, it was {running:.4g} on average)"
        )
        what = (
            f"step {step:,}: the loss is {loss:.4g}{before}, the gradient's norm "
            f"{norm:.4g}; the batch is in {file}"
        )
        if self.settings.on_bad_batch == "skip":
            self.state["skipped"] += 1
            log.warning("%s; skipped", what)
            if self.state["skipped"] < SKIPS:
                return
            raise UserError(
                f"step {step:,}: {SKIPS} bad batches in a row, so the weights are to "
                "blame: begin another run with a lower training.learning_rate"
            )
        if self.state["step"] not in (0, self.saved):
            self._save()
        raise UserError(
            f"{what}: look at it; the same command with --set "
            "training.on_bad_batch=skip goes on without such batches, and another run "
            "with a lower training.learning_rate may have none"
        )

    def _out_of_patience(self):
        if not self.settings.patience or self.state["worse"] < self.settings.patience:
            return False
        log.info(
            "stopping: %s validations in a row did not better the %s",
            self.state["worse"],
            self.settings.metric,
        )
        return True

    def _validate(self, step):
        with self.step.averaged():
            totals = [self.step.evaluate(batch) for batch in self.valid]
            found = bleu = None
            if self.workers.chief:
                found = self.samples.translate()
                embeddings = self.model.output_embeddings()[0]
                embeddings = keras.ops.convert_to_numpy(embeddings)
                bleu = found.bleu
            bleu = self.workers.chiefs(bleu)
        tokens = sum(each.tokens for each in totals)
        entropy = sum(each.entropy for each in totals) / tokens
        values = {
            "loss": entropy,
            "perplexity": math.exp(min(entropy, 700.0)),
            "masked_accuracy": sum(each.correct for each in totals) / tokens,
        }
        if bleu is not None:
            values["bleu"] = bleu
        if self.workers.chief:
            self.reporter.scalars(step, "validation", values)
            self.reporter.texts(step, found.rows)
            self.reporter.attention(step, *found.looked_at)
            self.reporter.embeddings(embeddings)
        by_bleu = self.settings.metric == "bleu"
        score = values["bleu"] if by_bleu else -values["perplexity"]
        best = self.state["best_score"]
        better = math.isfinite(score) and (best is None or score > best)
        self.state["score"] = score if math.isfinite(score) else None
        if better:
            self.state |= {
                "best_step": step,
                "best_score": score,
                "best_perplexity": values["perplexity"],
                "worse": 0,
            }
        else:
            self.state["worse"] += 1
        line = f"step {step:,}: validation perplexity {values['perplexity']:.2f}"
        line += f", accuracy {values['masked_accuracy']:.3f}"
        if bleu is not None:
            line += f", BLEU {bleu:.2f}"
        say(line + ("" if better or best is None else f" (best {abs(best):.2f})"))

    def _save(self):
        self.workers.together(self._write if self.workers.chief else lambda: None)
        self.saved = self.state["step"]

    def _write(self):
        settings, state = self.settings, self.state
        state["metrics_size"] = self.reporter.metrics_size()
        writers = {
            checkpoints.WEIGHTS: self.model.save_weights,
            checkpoints.ARRAYS: checkpoints.arrays_writer(self.step.state()),
        }
        if settings.ema_decay:
            writers[checkpoints.AVERAGED] = self._save_averaged
        checkpoints.save(
            self.run,
            state["step"],
            state,
            writers,
            settings.keep_last,
            settings.keep_best,
        )

    def _save_averaged(self, path):
        with self.step.averaged():
            self.model.save_weights(path)

    def _stop(self, step, caught):
        if step != self.saved:
            self._save()
        self.workers.agreed = True
        raise _stopped(
            caught,
            f"step {step:,} is saved; the same command goes on from there",
        )


class _Seen:
    """What went through since the last record."""

    def __init__(self, state=None):
        state = state or {"steps": 0, "sums": [0.0] * 4, "norms": 0.0, "positions": 0}
        self.steps, self.sums = state["steps"], state["sums"]
        self.norms, self.positions = state["norms"], state["positions"]
        self.restart()

    def restart(self):
        """Begins to measure the time anew."""
        self.started = time.perf_counter()
        self.timed = 0

    def state(self):
        """What a checkpoint keeps of it: all but the time."""
        names = "steps", "sums", "norms", "positions"
        return {name: getattr(self, name) for name in names}

    def add(self, totals, norm, batches):
        """Adds a step."""
        self.steps += 1
        self.norms += norm
        for found in totals:
            self.sums = [a + b for a, b in zip(self.sums, found[:4], strict=True)]
            self.timed += found.tokens
        self.positions += sum(target_out.size for _, target_out in batches)

    def values(self):
        """Means over the real tokens."""
        loss, entropy, correct, tokens = self.sums
        return {
            "loss": loss / tokens,
            "masked_accuracy": correct / tokens,
            "perplexity": math.exp(min(entropy / tokens, 700.0)),
            "gradient_norm": self.norms / self.steps,
            "target_tokens_per_second": self.timed
            / (time.perf_counter() - self.started),
            "padding": 1 - tokens / self.positions,
        }
