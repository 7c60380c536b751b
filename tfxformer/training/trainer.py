"""The training run: settings in, a run folder out."""

import contextlib
import logging
import shutil
import signal
import threading
from pathlib import Path

import keras

from tfxformer.batches import TrainingBatches
from tfxformer.console import Progress
from tfxformer.errors import UserError
from tfxformer.training import checkpoints, fine_tuning
from tfxformer.training.callbacks import Journal, RunCallback, State, stopped
from tfxformer.training.data import check_sources, load_data, open_data
from tfxformer.training.distribution import join
from tfxformer.training.run import Run, build_model, load_weights
from tfxformer.training.step import TrainingTransformer

log = logging.getLogger("tfxformer")


def train(config, out):
    """Trains a translator, or resumes the run that is in the folder.

    A run that was stopped, at any moment and in any way, ends with the weights that it
    would have had. (With subword regularisation, SentencePiece draws other tokens.)

    All devices that TensorFlow shows train together. So do several processes that the
    environment names, where each calls this function: see `distribution.join`.

    Args:
        config: a `Config`.
        out: the path of the run folder; it is made where it is missing. A folder
            with a run in it is resumed: the log names the settings that have changed,
            and those that cannot change are refused.

    Returns:
        The `Run`.

    Raises:
        UserError: a setting or a source is wrong; the folder holds a run with other
            settings, or another process trains in it; a loss is not finite; nothing
            can be saved; or another worker is lost.
        Stopped: after SIGTERM or SIGINT, once the state is saved.

    Example:
        >>> from tfxformer.config import load_config
        >>> train(load_config("tiny", overrides=["data.sources=[nowhere.tsv]"]), "run")
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: 'nowhere.tsv' is no pair source and no file; ...
    """
    cluster, run = join(), Run(Path(out))
    with contextlib.ExitStack() as stack:
        stack.enter_context(cluster.watched())
        _check_devices(config, cluster)
        signals = stack.enter_context(_Signals())
        data = cluster.in_turn(lambda: _prepare(config, run, cluster, stack))
        keras.utils.set_random_seed(config.training.seed)
        with cluster.strategy.scope():
            vocab_size, precision = data.tokenizer.vocab_size, config.training.precision
            model = build_model(config, vocab_size, precision, TrainingTransformer)
            model.prepare(config.training)
        log.info(
            "model: %s parameters, %s tokens, on %s",
            f"{model.count_params():,}",
            f"{vocab_size:,}",
            cluster.describe(),
        )
        state = cluster.in_turn(lambda: _resume(config, run, data, model, cluster))
        _fit(config, run, data, model, state, cluster, signals)
    return run


def _check_devices(config, cluster):
    """Refuses what works on a single device alone."""
    for name, off in (("accumulate", 1), ("xla", False)):
        value = getattr(config.training, name)
        if value != off and cluster.strategy.num_replicas_in_sync > 1:
            raise UserError(
                f"training.{name} = {value}: works on one device alone, and "
                f"{cluster.describe()} train: leave it out"
            )


def _prepare(config, run, cluster, stack):
    """Readies the run folder and all data; what it holds is released by the stack."""
    if not cluster.chief:
        if not run.config_file.exists():
            raise UserError(f"{run.path}: all workers must see the same run folder")
        _check_same(config, run, may_change={})
        return open_data(run)
    check_sources(config)
    made = _make_folder(config, run)
    stack.enter_context(run.locked())

    def forget(failure, *_):
        # Without metrics no step was begun.
        if failure and issubclass(failure, Exception) and not run.metrics_file.exists():
            if made:
                shutil.rmtree(made[0], ignore_errors=True)
            for folder in made[1:]:
                with contextlib.suppress(OSError):  # one that is no longer empty
                    folder.rmdir()

    stack.push(forget)
    if run.config_file.exists():
        _check_same(config, run, _MAY_CHANGE)
    data = load_data(config, run, begun=checkpoints.are_in(run))
    # Not before: a folder whose pairs could not be read is not yet a run.
    config.save(run.config_file)
    return data


def _make_folder(config, run):
    """Makes the run folder; returns what was not there before, the innermost first."""
    out = run.path
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
                    "run cannot resume: bring one back, or use another folder (with "
                    f"training.init_from = {out} it begins with these weights)"
                )
            if config.training.init_from is not None:
                fine_tuning.check(config)
        made = [folder for folder in (out, *out.parents) if not folder.exists()]
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{out}: {error.strerror}") from None
    return made


# What may differ when a run resumes: how long it trains, how it is watched and kept.
_MAY_CHANGE = {
    "training": {
        "steps",
        "validate_every",
        "patience",
        "checkpoint_every",
        "keep_last",
        "bleu_pairs",
    },
    "data": {"data_dir"},
}


def _check_same(config, run, may_change):
    """Refuses other settings than the run's; the log names those that may change."""
    old, new = run.config().model_dump(), config.model_dump()
    refused, changed = [], []
    for section, settings in new.items():
        for name, value in settings.items():
            if old[section][name] != value:
                text = f"{section}.{name} was {old[section][name]!r} and is {value!r}"
                allowed = name in may_change.get(section, ())
                (changed if allowed else refused).append(text)
    if refused:
        raise UserError(
            f"{run.path}: holds a run with other settings ({'; '.join(refused)}): "
            "use its own, or another folder"
        )
    for text in changed:
        log.info("%s: resuming with another setting: %s", run.path, text)


def _resume(config, run, data, model, cluster):
    """Gives the model what the newest checkpoint holds; the `State` to go on from."""
    checkpoint = checkpoints.newest(run)
    if checkpoint is None:
        name = config.training.init_from
        if name is not None:
            path = fine_tuning.set_weights(model, name)
            log.info("beginning with the best weights of %s", path)
        return State(data=data.digests())
    known = checkpoint.state.items()
    state = State(**{name: x for name, x in known if name in State.__annotations__})
    _check_data(config, run, data.digests(), state.data)
    load_weights(model, checkpoint.weights_file)
    try:
        model.restore(checkpoint.arrays())
        if cluster.chief:
            # A kill may have come before the weights had their names.
            checkpoints.remove_parts(run)
            checkpoints.publish(run, checkpoint)
    except (ValueError, KeyError, OSError) as error:
        raise UserError(f"{checkpoint.path}: {error}") from None
    log.info("resuming from step %s", f"{checkpoint.step:,}")
    return state


def _check_data(config, run, ours, theirs):
    """Refuses to resume with other pairs: they would not be those of a whole run."""
    for name, digest in theirs.items():
        if ours.get(name) != digest:
            if name.isdecimal():
                name = config.data.sources[int(name)]
            raise UserError(
                f"{name}: is not what it was when this run began: bring it back, or "
                "begin another run in another folder (with training.init_from = "
                f"{run.path} it begins with these weights)"
            )


def _fit(config, run, data, model, state, cluster, signals):
    """Trains from a state to the end."""
    settings = config.training
    if state.step >= settings.steps:
        log.info("the run has its %s steps already", f"{state.step:,}")
        return
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
        journal = Journal(run if cluster.chief else None, state.metrics_size)
        watched = run, settings, data, batches, state, cluster, signals, journal
        with (
            contextlib.closing(journal),
            Progress("training", settings.steps, state.step) as progress,
            signals.held(),
        ):
            model.fit(
                batches.dataset(state.position),
                steps_per_epoch=(settings.steps - state.step) * settings.accumulate,
                shuffle=False,  # the batches are
                verbose=0,
                callbacks=[RunCallback(*watched, progress)],
            )
    if state.out_of_patience(settings):
        log.info(
            "stopping: %s validations in a row did not better the %s",
            state.worse,
            settings.metric,
        )
    best = "no validation gave a sound score"
    if state.best_step:
        found = state.best_perplexity
        best = f"best perplexity {found:.2f} in step {state.best_step:,}"
    log.info("done: step %s, %s", f"{state.step:,}", best)


class _Signals:
    """SIGTERM and SIGINT wait until the step is done and the state is saved."""

    def __init__(self):
        self.caught = None
        self.waits = False

    def __enter__(self):
        # Python lets only the main thread handle signals.
        main = threading.current_thread() is threading.main_thread()
        numbers = (signal.SIGTERM, signal.SIGINT) if main else ()
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
