"""A training run: settings in, a run folder out."""

import contextlib
import logging
import shutil
from pathlib import Path

import keras

from tfxformer import corpora
from tfxformer.batches import TrainingBatches
from tfxformer.errors import UserError
from tfxformer.training import cluster, fine_tuning
from tfxformer.training.callbacks import RunCallback, Signals, State
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
    run = Run(Path(out))
    workers = cluster.join()
    with contextlib.ExitStack() as stack:
        stack.enter_context(workers.watched())
        signals = stack.enter_context(Signals())
        _check_devices(config, workers)
        is_new = not run.path.exists()
        if workers.chief:
            _check(config, run)
            stack.enter_context(run.locked())
        data = _read_data(config, run, workers, is_new=is_new)
        model = _build(config, data, workers)
        state = _resume(config, run, data=data, model=model, workers=workers)
        training = config.training
        if state.step >= training.steps or state.out_of_patience(training):
            log.info("the run has already ended, in step %s", f"{state.step:,}")
            return run
        batches = _batches(config, data)
        callback = RunCallback(
            run,
            training,
            data=data,
            batches=batches,
            state=state,
            cluster=workers,
            signals=signals,
        )
        signals.wait = True
        model.fit(
            batches.dataset(state.position),
            steps_per_epoch=(training.steps - state.step) * training.accumulate,
            shuffle=False,  # the batches are shuffled already
            verbose=0,
            callbacks=[callback],
        )
        _log_the_end(state, training)
    return run


def _check_devices(config, workers):
    """Checks that the settings work on all devices."""
    settings = config.training
    several = workers.strategy.num_replicas_in_sync > 1
    if several and (settings.accumulate > 1 or settings.xla):
        raise UserError(
            "training.accumulate and training.xla work on one device only, not on "
            f"{workers.describe()}: leave them out"
        )


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


def _read_data(config, run, workers, is_new):
    """The run's data. The chief makes the token ids, and the others read them."""
    if workers.chief:
        try:
            data = load_data(config, run)
        except UserError:
            if is_new:
                shutil.rmtree(run.path)
            raise
        config.save(run.config_file)
    workers.wait()
    if not workers.chief:
        if not run.config_file.exists():
            raise UserError(f"{run.path}: all workers must share one run folder")
        _check_same(config, run, may_change=())
        data = open_data(run)
    return data


def _build(config, data, workers):
    """A compiled model with new weights."""
    keras.utils.set_random_seed(config.training.seed)
    with workers.strategy.scope():
        transformer = build_model(config, data.tokenizer, config.training.precision)
        model = TrainingTransformer(transformer, config.training)
    parameters = transformer.count_params()
    tokens = data.tokenizer.target.vocab_size
    log.info(
        "model: %s parameters, %s tokens, on %s",
        f"{parameters:,}",
        f"{tokens:,}",
        workers.describe(),
    )
    return model


def _resume(config, run, data, model, workers):
    """Loads the newest checkpoint, if any, into the model; returns its `State`."""
    checkpoint = run.newest_checkpoint()
    digests = data.digests(config.data.sources)
    if checkpoint is None:
        begun_with = config.training.init_from
        if begun_with is not None:
            _, transformer = fine_tuning.load(begun_with)
            model.transformer.set_weights(transformer.get_weights())
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
    if workers.chief:  # a kill may have come before the weights were published
        run.publish(checkpoint)
    log.info("resuming from step %s", f"{checkpoint.step:,}")
    return state


def _batches(config, data):
    """The batches of the training pairs."""
    settings = config.training
    return TrainingBatches(
        data.tokens,
        tokens_per_batch=settings.tokens_per_batch,
        max_length=config.model.max_length,
        weights=config.data.weights,
        tokenizer=data.tokenizer,
        alpha=settings.subword_alpha,
        seed=settings.seed,
        fixed_shapes=settings.xla,
    )


def _log_the_end(state, settings):
    """Logs why the training ended, and the best step."""
    if state.out_of_patience(settings):
        text = "stopping: %s validations in a row did not improve the %s"
        log.info(text, state.worse, settings.metric)
    best = "no validation had a finite score"
    if state.best_step:
        best = f"best {settings.metric} {abs(state.best_score):.2f}"
        best += f" in step {state.best_step:,}"
    log.info("done: step %s, %s", f"{state.step:,}", best)
