"""The training run: settings in, a run folder out."""

import contextlib
import logging
import shutil
import signal
import threading
from pathlib import Path
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfxformer import corpora
from tfxformer.batches import TrainingBatches
from tfxformer.console import Progress, console, quiet_stderr, say
from tfxformer.errors import UserError
from tfxformer.training import fine_tuning
from tfxformer.training.callbacks import RunCallback, State, stopped
from tfxformer.training.data import load_data, open_data
from tfxformer.training.run import Run, build_model, load_weights
from tfxformer.training.step import TrainingTransformer

log = logging.getLogger("tfxformer")

# What may differ when a run resumes: how long it trains, how it is watched and kept.
_MAY_CHANGE = ["steps", "validate_every", "patience", "checkpoint_every", "keep_last"]
_MAY_CHANGE += ["bleu_pairs", "data_dir"]


def train(config, out):
    """Trains a translator, or resumes the run that is in the folder.

    A run that was stopped, at any moment and in any way, ends with the weights that it
    would have had. (With subword regularisation, SentencePiece draws other tokens.)

    All devices that TensorFlow shows train together. So do several processes that the
    environment's ``TF_CONFIG`` names, where each calls this function.

    Args:
        config: a `Config`.
        out: the path of the run folder, which need not exist. A run in it is resumed:
            the log names the settings that have changed, and those that cannot change
            are refused.

    Returns:
        The `Run`.

    Raises:
        UserError: a setting or a source is wrong; the folder holds a run with other
            settings, or another process trains in it; a loss is not finite; nothing
            can be saved; or another worker is lost.
        OSError: the folder cannot be written to.
        Stopped: after SIGTERM or SIGINT, once the state is saved.

    Example:
        >>> from tfxformer.config import load_config
        >>> train(load_config("tiny", overrides=["data.sources=[nowhere.tsv]"]), "run")
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: 'nowhere.tsv' not found: expected phrasebook, ...
    """
    cluster, run, settings = join(), Run(Path(out)), config.training
    devices = cluster.describe()
    with contextlib.ExitStack() as stack:
        stack.enter_context(cluster.watched())
        for name, off in (("accumulate", 1), ("xla", False)):
            value = getattr(settings, name)
            if value != off and cluster.strategy.num_replicas_in_sync > 1:
                raise UserError(
                    f"training.{name} = {value}: works on one device alone, and "
                    f"{devices} train: leave it out"
                )
        signals = stack.enter_context(_signals())
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
                raise UserError(f"{out}: all workers must see the same run folder")
            _check_same(config, run, may_change=())
            data = open_data(run)
        keras.utils.set_random_seed(settings.seed)
        with cluster.strategy.scope():
            size = data.tokenizer.vocab_size
            model = build_model(config, size, settings.precision, TrainingTransformer)
            model.prepare(settings)
        text = "model: %s parameters, %s tokens, on %s"
        log.info(text, f"{model.count_params():,}", f"{size:,}", devices)
        state = _resume(config, run, data, model, cluster)
        if state.step >= settings.steps:
            log.info("the run has its %s steps already", f"{state.step:,}")
        else:
            _fit(config, run, data, model, state, cluster, signals)
    return run


def _check(config, run):
    """Refuses, before any work, what cannot be trained; makes the run folder."""
    out, begun = run.path, {"tokenizer.model", "tokens", ".lock"}
    if not config.data.sources:
        raise UserError("data.sources is empty: name where sentence pairs come from")
    corpora.input_files([*config.data.sources, *filter(None, [config.data.valid])])
    if run.config_file.exists():
        _check_same(config, run, _MAY_CHANGE)
    elif out.is_dir() and {path.name for path in out.iterdir()} - begun:
        raise UserError(
            f"{out}: is neither a run folder nor an empty folder; name another"
        )
    if not run.checkpoints():
        if run.weights_file("last").exists():
            raise UserError(
                f"{run.checkpoints_folder}: has no checkpoint, and without one the "
                "run cannot resume: bring one back, or use another folder (with "
                f"training.init_from = {out} it begins with these weights)"
            )
        if config.training.init_from is not None:
            fine_tuning.check(config)
    out.mkdir(parents=True, exist_ok=True)


def _check_same(config, run, may_change):
    """Refuses other settings than the run's; the log names those that may change."""
    refused, old = [], run.config().model_dump()
    for section, values in config.model_dump().items():
        for name, value in values.items():
            text = f"{section}.{name} was {old[section][name]!r} and is {value!r}"
            if old[section][name] == value:
                continue
            if name in may_change:
                log.info("%s: resuming with another setting: %s", run.path, text)
            else:
                refused.append(text)
    if refused:
        raise UserError(
            f"{run.path}: holds a run with other settings ({'; '.join(refused)}): "
            "use its own, or another folder"
        )


def _resume(config, run, data, model, cluster):
    """Gives the model what the newest checkpoint holds; the `State` to go on from."""
    checkpoint, begun_with = run.newest_checkpoint(), config.training.init_from
    digests = data.digests(config.data.sources)
    if checkpoint is None:
        if begun_with is not None:
            model.set_weights(fine_tuning.load(begun_with)[1].get_weights())
            log.info("beginning with the weights of %s", begun_with)
        return State(data=digests)
    state = State(**checkpoint.state())
    for name, digest in state.data.items():
        if digests[name] != digest:  # a whole run would have had other batches
            raise UserError(
                f"{name}: is not what it was when this run began: bring it back, or "
                "begin another run in another folder (with training.init_from = "
                f"{run.path} it begins with these weights)"
            )
    load_weights(model, checkpoint.weights_file)
    model.restore(checkpoint.arrays())
    if cluster.chief:  # a kill may have come before the weights had their names
        run.publish(checkpoint)
    log.info("resuming from step %s", f"{checkpoint.step:,}")
    return state


def _fit(config, run, data, model, state, cluster, signals):
    """Trains from a state to the end."""
    settings = config.training
    if not state.out_of_patience(settings):
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
        watched = run, settings, data, batches, state, cluster, signals
        with Progress("training", settings.steps, state.step) as progress:
            model.fit(
                batches.dataset(state.position),
                steps_per_epoch=(settings.steps - state.step) * settings.accumulate,
                shuffle=False,  # the batches are
                verbose=0,
                callbacks=[RunCallback(*watched, progress)],
            )
    if state.out_of_patience(settings):
        text = "stopping: %s validations in a row did not better the %s"
        log.info(text, state.worse, settings.metric)
    best = "no validation gave a sound score"
    if state.best_step:
        best = f"best {settings.metric} {abs(state.best_score):.2f}"
        best += f" in step {state.best_step:,}"
    log.info("done: step %s, %s", f"{state.step:,}", best)


class _Signals:
    """SIGTERM and SIGINT; where they wait, until the step is done and saved."""

    caught, wait = None, False

    def catch(self, number, _):
        if self.wait and self.caught is None:
            self.caught = number
        # Some schedulers send SIGTERM twice; who presses Ctrl-C again means it.
        elif not (self.wait and number == signal.SIGTERM):
            raise stopped(number, "the same command resumes from the last checkpoint")


@contextlib.contextmanager
def _signals():
    """Within it, signals end the run in one line."""
    signals = _Signals()
    # Python lets only the main thread handle signals.
    main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGTERM, signal.SIGINT) if main else ()
    before = {number: signal.signal(number, signals.catch) for number in numbers}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# --- Several devices, and several processes on several machines ---


class Cluster(NamedTuple):
    """The processes that train together; often it is this one alone.

    Every process reads the same batches, and `tf.distribute` gives each device its
    share of the rows. The first process, the chief, is the only one that writes.
    """

    strategy: Any  # a `tf.distribute.Strategy`
    number: int = 0  # of this process; 0 is the chief
    count: int = 1  # of processes

    # Whether this process writes down what all do.
    chief = property(lambda self: self.number == 0)

    def describe(self):
        """The devices of all processes, in words."""
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
        """Within it, only the chief speaks, and the loss of a process is one error."""
        was_quiet, console.quiet = console.quiet, not self.chief
        try:
            yield
        except tf.errors.OpError as error:
            if self.count == 1:
                raise
            raise UserError(
                f"worker {self.number} of {self.count}: another worker was lost "
                f"({error.message.splitlines()[0]}): if it gave no reason, start all "
                "of them again, and they resume from the last checkpoint"
            ) from None
        finally:
            console.quiet = was_quiet


def join():
    """Meets the other processes, if there are any, and finds this one's devices.

    Returns:
        A `Cluster`.

    Raises:
        UserError: ``TF_CONFIG`` is wrong, or the others cannot be met.
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
        raise UserError(f"TF_CONFIG: the workers cannot meet: {reason}") from None
    kind = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
    devices = tf.config.list_logical_devices(kind)
    if len(devices) > 1:
        return Cluster(tf.distribute.MirroredStrategy([each.name for each in devices]))
    return Cluster(tf.distribute.get_strategy())
