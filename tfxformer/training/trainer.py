"""A training run: settings in, a run folder out."""

import contextlib
import logging
import shutil
import signal
from pathlib import Path
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfxformer import corpora
from tfxformer.batches import TrainingBatches
from tfxformer.console import console, quiet_stderr, say
from tfxformer.errors import Stopped, UserError
from tfxformer.training import fine_tuning
from tfxformer.training.callbacks import RunCallback, State
from tfxformer.training.data import load_data, open_data
from tfxformer.training.run import Run, build_model, load_weights
from tfxformer.training.step import TrainingTransformer

log = logging.getLogger("tfxformer")

# Settings that may change when a run resumes.
_MAY_CHANGE = ["steps", "validate_every", "patience", "checkpoint_every", "keep_last"]
_MAY_CHANGE += ["bleu_pairs", "data_dir"]


def train(config, out):
    """Trains a translator, or resumes the run in the folder.

    A run that stops, at any moment and for any reason, resumes and ends with exactly
    the weights of an uninterrupted run. (The exception is subword regularisation:
    SentencePiece's samples differ.)

    Training uses all devices that TensorFlow lists, and all processes in the
    environment variable ``TF_CONFIG``, if each of them calls this function.

    Args:
        config: a `Config`.
        out: the path of the run folder, which need not exist. If it holds a run, the
            run resumes; only a few settings may differ, such as ``training.steps``.

    Returns:
        The `Run`.

    Raises:
        UserError: a setting, a source or the folder cannot be used, a loss is not
            finite, the results cannot be saved, or another worker is lost.
        OSError: the folder cannot be written to.
        Stopped: after SIGTERM or SIGINT, once the state is saved.
    """
    cluster, run, settings = join(), Run(Path(out)), config.training
    devices = cluster.describe()
    with contextlib.ExitStack() as stack:
        stack.enter_context(cluster.watched())
        several = cluster.strategy.num_replicas_in_sync > 1
        if several and (settings.accumulate > 1 or settings.xla):
            raise UserError(
                "training.accumulate and training.xla work on one device only, not on "
                f"{devices}: leave them out"
            )
        signals = stack.enter_context(_Signals())
        if cluster.chief:
            is_new = not run.path.exists()
            _check(config, run)
            stack.enter_context(run.locked())
            try:
                data = load_data(config, run)
            except UserError:
                if is_new:
                    shutil.rmtree(run.path)
                raise
            config.save(run.config_file)
        cluster.wait()
        if not cluster.chief:
            if not run.config_file.exists():
                raise UserError(f"{out}: all workers must share one run folder")
            _check_same(config, run, may_change=())
            data = open_data(run)
        keras.utils.set_random_seed(settings.seed)
        with cluster.strategy.scope():
            transformer = build_model(config, data.tokenizer, settings.precision)
            model = TrainingTransformer(transformer, settings)
        parameters = transformer.count_params()
        tokens = data.tokenizer.target.vocab_size
        log.info(f"model: {parameters:,} parameters, {tokens:,} tokens, on {devices}")
        state = _resume(config, run, data, model, cluster)
        if state.step >= settings.steps or state.out_of_patience(settings):
            log.info("the run has already ended, in step %s", f"{state.step:,}")
        else:
            _fit(config, run, data, model, state, cluster, signals)
    return run


def _check(config, run):
    """Checks the settings and the folder before any work; makes the folder."""
    out, begun = run.path, {"tokenizer.model", "tokenizer.target.model", "tokens"}
    if not config.data.sources:
        raise UserError("data.sources is empty: give sentence pairs with --data")
    corpora.input_files([*config.data.sources, *filter(None, [config.data.valid])])
    if run.config_file.exists():
        _check_same(config, run, _MAY_CHANGE)
    # Names with a dot are locks, and files that a kill left behind.
    elif out.is_dir() and {path.name for path in out.glob("[!.]*")} - begun:
        raise UserError(f"{out}: neither a run folder nor an empty one; use another")
    if not run.checkpoints():
        if run.weights_file("last").exists():
            raise UserError(
                f"{run.checkpoints_folder}: no checkpoint to resume from: restore one, "
                f"or use another folder (training.init_from = {out} starts with these "
                "weights)"
            )
        if config.training.init_from is not None:
            fine_tuning.check(config)
    out.mkdir(parents=True, exist_ok=True)


def _check_same(config, run, may_change):
    """Checks that the settings are the run's; logs changes that are allowed."""
    refused, old = [], run.config().model_dump()
    for section, values in config.model_dump().items():
        for name, value in values.items():
            before = old[section][name]
            change = f"{section}.{name} was {before!r} and is {value!r}"
            if before != value and name in may_change:
                log.info("%s: resuming with another setting: %s", run.path, change)
            elif before != value:
                refused.append(change)
    if refused:
        raise UserError(
            f"{run.path}: has a run with other settings ({'; '.join(refused)}): "
            "use the same settings, or another folder"
        )


def _resume(config, run, data, model, cluster):
    """Loads the newest checkpoint, if any, into the model; returns its `State`."""
    checkpoint, begun_with = run.newest_checkpoint(), config.training.init_from
    digests = data.digests(config.data.sources)
    if checkpoint is None:
        if begun_with is not None:
            theirs = fine_tuning.load(begun_with)[1].get_weights()
            model.transformer.set_weights(theirs)
            log.info("starting with the weights of %s", begun_with)
        return State(data=digests)
    state = State(**checkpoint.state())
    for name, digest in state.data.items():
        if digests[name] != digest:  # the batches would differ
            raise UserError(
                f"{name}: has changed since this run started: restore it, or start a "
                f"run in another folder (training.init_from = {run.path} starts with "
                "these weights)"
            )
    load_weights(model.transformer, checkpoint.weights_file)
    model.restore(checkpoint.arrays())
    if cluster.chief:  # a kill may have come before the weights were published
        run.publish(checkpoint)
    log.info("resuming from step %s", f"{checkpoint.step:,}")
    return state


def _fit(config, run, data, model, state, cluster, signals):
    """Trains from a state to the end."""
    settings = config.training
    batches = TrainingBatches(
        data.tokens,
        tokens_per_batch=settings.tokens_per_batch,
        max_length=config.model.max_length,
        weights=config.data.weights,
        tokenizer=data.tokenizer,
        alpha=settings.subword_alpha,
        seed=settings.seed,
        fixed_shapes=settings.xla,
    )
    signals.wait = True
    model.fit(
        batches.dataset(state.position),
        steps_per_epoch=(settings.steps - state.step) * settings.accumulate,
        shuffle=False,  # the batches are shuffled already
        verbose=0,
        callbacks=[RunCallback(run, settings, data, batches, state, cluster, signals)],
    )
    if state.out_of_patience(settings):
        text = "stopping: %s validations in a row did not improve the %s"
        log.info(text, state.worse, settings.metric)
    best = "no validation had a finite score"
    if state.best_step:
        best = f"best {settings.metric} {abs(state.best_score):.2f}"
        best += f" in step {state.best_step:,}"
    log.info("done: step %s, %s", f"{state.step:,}", best)


class _Signals:
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


# --- Several devices, and several processes on several machines ---


class Cluster(NamedTuple):
    """The processes that train together; usually one.

    Every process reads the same batches, and `tf.distribute` gives each device its
    share of the rows. Only the first process, the chief, writes files.
    """

    strategy: Any  # a `tf.distribute.Strategy`
    number: int = 0  # this process's number
    count: int = 1  # the number of processes

    chief = property(lambda self: self.number == 0)

    def describe(self):
        """The devices of all processes, as text."""
        count = self.strategy.num_replicas_in_sync
        kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
        where = f"{count} {kind}" + ("s" if count > 1 else "")
        return where + (f" of {self.count} processes" if self.count > 1 else "")

    def wait(self):
        """Waits for the other processes."""
        if self.count > 1:
            everyone = tf.function(lambda: self.strategy.run(tf.ones, args=([],)))
            self.strategy.reduce("SUM", everyone(), axis=None)

    @contextlib.contextmanager
    def watched(self):
        """A context in which only the chief logs, and a lost process is one error."""
        was_quiet, console.quiet = console.quiet, not self.chief
        try:
            yield
        except tf.errors.OpError as error:
            if self.count == 1:
                raise
            raise UserError(
                f"worker {self.number} of {self.count}: another worker was lost "
                f"({error.message.splitlines()[0]}): see its error, or start all "
                "workers again to resume from the last checkpoint"
            ) from None
        finally:
            console.quiet = was_quiet


def join():
    """Connects to the other processes, if any, and finds the devices: a `Cluster`.

    Raises:
        UserError: ``TF_CONFIG`` is wrong, or the other processes cannot be reached.
    """
    try:
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        jobs = resolver.cluster_spec().as_dict()
        chiefs, workers = jobs.get("chief", []), jobs.get("worker", [])
        count = len(chiefs) + len(workers)
        if count > 1:
            number = int(resolver.task_id)
            number += len(chiefs) if resolver.task_type == "worker" else 0
            say(f"worker {number} of {count}: waiting for the others")
            with quiet_stderr():
                strategy = tf.distribute.MultiWorkerMirroredStrategy(resolver)
            return Cluster(strategy, number, count)
    except (ValueError, TypeError, AttributeError, tf.errors.OpError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"TF_CONFIG: the workers cannot connect: {reason}") from None
    kind = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
    devices = tf.config.list_logical_devices(kind)
    if len(devices) > 1:
        return Cluster(tf.distribute.MirroredStrategy([each.name for each in devices]))
    return Cluster(tf.distribute.get_strategy())
