"""The training run: corpora and settings in, a run folder out."""

import logging
import math
import time
from pathlib import Path

import keras
import tensorflow as tf

from tfxformer import corpora
from tfxformer.batches import evaluation_batches, fit_length, training_batches
from tfxformer.console import Progress, say
from tfxformer.corpora.splitting import hold_out
from tfxformer.errors import UserError
from tfxformer.run import Run, build_model, load_weights
from tfxformer.special_ids import END_ID
from tfxformer.tokenizer import Tokenizer
from tfxformer.training.loss import MaskedAccuracy, MaskedLoss, Perplexity
from tfxformer.training.schedule import CustomSchedule

log = logging.getLogger("tfxformer")

# Steps between two lines of metrics.
RECORD_EVERY = 50


def train(config, out):
    """Trains a translator, or goes on where the run folder stands.

    Args:
        config: a `Config`.
        out: the path of the run folder; it is made where it is missing. A folder
            with a run in it is continued, and its settings must be the same, but
            for the number of steps and what is only about reporting.

    Returns:
        The `Run`.

    Raises:
        UserError: before any work, when a setting or a source cannot be; or when
            the folder holds a run with other settings.
    """
    config.check()
    if not config.data.sources:
        raise UserError("data.sources is empty: name where sentence pairs come from")
    for source in [*config.data.sources, config.data.valid]:
        if source is not None:
            corpora.check_source(source)
    run = _open(config, Path(out))
    keras.utils.set_random_seed(config.training.seed)
    train_sources, valid = read_pairs(config)
    # Not before: a folder whose pairs could not be read is not yet a run.
    config.save(run.config_file)
    tokenizer = _tokenizer(run, config, train_sources)
    train_sources, valid = _fit(config, tokenizer, train_sources, valid)
    model = build_model(config, tokenizer.vocab_size)
    compile_model(model, config)
    log.info(
        "model: %s parameters, %s pieces, %s",
        f"{model.count_params():,}",
        f"{tokenizer.vocab_size:,}",
        _devices(),
    )
    _Trainer(run, config, tokenizer, model, train_sources, valid).train()
    return run


def compile_model(model, config):
    """Gives the model the paper's optimiser (section 5.3), loss and metrics.

    Args:
        model: a `Transformer`.
        config: a `Config`.
    """
    schedule = CustomSchedule(model.config["d_model"], config.training.warmup_steps)
    model.compile(
        optimizer=keras.optimizers.Adam(
            schedule,
            beta_1=0.9,
            beta_2=0.98,
            epsilon=1e-9,
            global_clipnorm=config.training.clip_norm,
        ),
        loss=MaskedLoss(config.training.label_smoothing),
        metrics=[MaskedAccuracy(), Perplexity()],
        # Batches come in many shapes, and XLA would compile for each.
        jit_compile=False,
    )


def read_pairs(config):
    """Reads, cleans and splits the corpora that the settings name.

    Args:
        config: a `Config`.

    Returns:
        A list of `Pair`s for each source, and the pairs to validate on.

    Raises:
        UserError: when a source cannot be read or nothing is left of it.
    """
    data = config.data
    options = {
        "data_dir": data.data_dir,
        "reverse": data.reverse,
        "strict": data.strict,
    }
    loaded = corpora.load_mixture(
        data.sources,
        max_characters=data.max_characters,
        max_length_ratio=data.max_length_ratio,
        **options,
    )
    for source, (_, counts) in zip(data.sources, loaded, strict=True):
        log.info("%s: %s", source, counts.describe())
    sources = [pairs for pairs, _ in loaded]
    if data.valid is not None:
        valid, counts = corpora.load(data.valid, "validation", cleaned=False, **options)
        log.info("%s: %s", data.valid, counts.describe())
        return sources, valid
    if data.sources == ["phrasebook"] or data.sources == ["ted"]:
        valid, _ = corpora.load(data.sources[0], "validation", cleaned=False, **options)
        return sources, valid
    return _hold_out(config, sources)


def _hold_out(config, sources):
    """Takes validation pairs out of the sources, of each as its share is."""
    total = sum(map(len, sources))
    # Never more than a twentieth: a small corpus needs its pairs for training.
    wanted = min(config.data.valid_pairs, total // 20)
    if wanted < 1:
        raise UserError(
            f"{total} pairs are too few to hold some out: name pairs to validate on "
            "with --valid"
        )
    held, valid = [], []
    for pairs in sources:
        share = math.ceil(wanted * len(pairs) / total)
        splits = hold_out(pairs, {"validation": share}, config.training.seed)
        held.append(splits["train"])
        valid += splits["validation"]
    log.info("held out for validation: %s pairs", f"{len(valid):,}")
    # What one source holds out may stand in another one.
    seen_source, seen_target = ({pair[side] for pair in valid} for side in (0, 1))
    sources = [
        [p for p in pairs if p[0] not in seen_source and p[1] not in seen_target]
        for pairs in held
    ]
    return sources, valid


def _tokenizer(run, config, sources):
    if run.tokenizer_file.exists():
        return run.tokenizer()
    started = time.monotonic()
    log.info("learning a vocabulary of %s pieces", f"{config.tokenizer.vocab_size:,}")
    tokenizer = Tokenizer.train(
        [side for pairs in sources for pair in pairs for side in pair],
        config.tokenizer.vocab_size,
        config.tokenizer.casing,
        config.training.seed,
    )
    tokenizer.save(run.tokenizer_file)
    log.info("vocabulary learnt in %.0f s", time.monotonic() - started)
    return tokenizer


def _fit(config, tokenizer, sources, valid):
    """Leaves out what is too long for the model, and says how much."""
    longest = config.model.max_length
    fitting = []
    for name, pairs in zip(
        [*config.data.sources, "validation"], [*sources, valid], strict=True
    ):
        kept, too_long = fit_length(pairs, tokenizer, longest)
        if too_long:
            log.info(
                "%s: %s of %s pairs have more than %s tokens and are left out",
                name,
                f"{too_long:,}",
                f"{len(pairs):,}",
                longest - 1,
            )
        if not kept:
            raise UserError(
                f"{name}: no pair has at most {longest - 1} tokens; raise "
                f"model.max_length = {longest}"
            )
        fitting.append(kept)
    return fitting[:-1], fitting[-1]


def _open(config, out):
    run = Run(out)
    if run.config_file.exists():
        _check_same(config, run)
    elif out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(
            f"{out}: is neither a run folder nor an empty folder; name another"
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{out}: {error.strerror}") from None
    return run


# What may differ when a run goes on.
_MAY_CHANGE = {"training": {"steps", "validate_every", "patience"}}


def _check_same(config, run):
    old, new = run.config().to_dict(), config.to_dict()
    changed = [
        f"{section}.{name} was {old[section][name]!r} and is {value!r}"
        for section, settings in new.items()
        for name, value in settings.items()
        if old[section][name] != value and name not in _MAY_CHANGE.get(section, ())
    ]
    if changed:
        raise UserError(
            f"{run.path}: holds a run with other settings ({'; '.join(changed)}): "
            "use its own, or another folder"
        )


def _devices():
    gpus = tf.config.list_physical_devices("GPU")
    return f"on {len(gpus)} GPU" if gpus else "on the CPU"


class _Trainer:
    """The loop, and what it keeps between steps."""

    def __init__(self, run, config, tokenizer, model, sources, valid):
        self.run = run
        self.settings = config.training
        self.model = model
        self.batches = training_batches(
            sources,
            tokenizer,
            tokens_per_batch=self.settings.tokens_per_batch,
            max_length=config.model.max_length,
            weights=config.data.weights,
            alpha=self.settings.subword_alpha,
            seed=self.settings.seed,
        )
        self.valid = evaluation_batches(
            valid,
            tokenizer,
            tokens_per_batch=self.settings.tokens_per_batch,
            max_length=config.model.max_length,
        )
        self.train_step, self.test_step = make_steps(model)
        self.state = {"step": 0, "best_step": 0, "best_perplexity": None, "worse": 0}
        self.board = tf.summary.create_file_writer(str(run.tensorboard_folder))

    def train(self):
        self._resume()
        steps, step = self.settings.steps, self.state["step"]
        if step >= steps:
            log.info("the run has its %s steps already", f"{steps:,}")
            return
        self.model.reset_metrics()
        seen = _Seen()
        # Skipping is cheap beside training, and what follows is what would have.
        batches = iter(self.batches.skip(step) if step else self.batches)
        with Progress("training", steps, step) as progress:
            while step < steps and not self._out_of_patience():
                inputs, target_out = next(batches)
                logs = self.train_step((inputs, target_out))
                step += 1
                seen.add(target_out)
                progress.update(step, **{k: float(v) for k, v in logs.items()})
                if step % RECORD_EVERY == 0 or step == steps:
                    self._record(step, "train", logs, **seen.speed())
                    self.model.reset_metrics()
                    seen = _Seen()
                if step % self.settings.validate_every == 0 or step == steps:
                    self._validate(step)
                    seen = _Seen()
        best = self.state["best_perplexity"]
        log.info(
            "done: step %s, best perplexity %.2f in step %s",
            f"{step:,}",
            best,
            f"{self.state['best_step']:,}",
        )

    def _resume(self):
        state = self.run.load_state()
        if state is None:
            return
        load_weights(self.model, self.run.weights_file("last"))
        self.state = state
        # Dropout goes on with other numbers than it began with.
        keras.utils.set_random_seed(self.settings.seed + state["step"])
        log.info("going on from step %s", f"{state['step']:,}")

    def _out_of_patience(self):
        if not self.settings.patience or self.state["worse"] < self.settings.patience:
            return False
        log.info(
            "stopping: %s validations in a row did not better the perplexity",
            self.state["worse"],
        )
        return True

    def _validate(self, step):
        self.model.reset_metrics()
        for batch in self.valid:
            logs = self.test_step(batch)
        perplexity = float(logs["perplexity"])
        self._record(step, "validation", logs)
        self.model.reset_metrics()
        best = self.state["best_perplexity"]
        better = best is None or perplexity < best
        self.state["step"] = step
        if better:
            self.state |= {"best_step": step, "best_perplexity": perplexity, "worse": 0}
        else:
            self.state["worse"] += 1
        names = ["last", "best"] if better else ["last"]
        self.run.save_checkpoint(self.model, self.state, names)
        say(
            f"step {step:,}: validation perplexity {perplexity:.2f}, "
            f"accuracy {float(logs['masked_accuracy']):.3f}"
            + ("" if better else f" (best {best:.2f})")
        )

    def _record(self, step, split, logs, **more):
        values = {name: float(value) for name, value in logs.items()} | more
        if split == "train":
            values["learning_rate"] = float(self.model.optimizer.learning_rate)
        self.run.record(step=step, split=split, **values)
        with self.board.as_default(step):
            for name, value in values.items():
                tf.summary.scalar(f"{split}/{name}", value)
        self.board.flush()


class _Seen:
    """What went through since the last record."""

    def __init__(self):
        self.started = time.perf_counter()
        self.tokens = self.positions = 0

    def add(self, target_out):
        self.tokens += int(tf.math.count_nonzero(target_out))
        self.positions += int(tf.size(target_out))

    def speed(self):
        seconds = time.perf_counter() - self.started
        return {
            "target_tokens_per_second": self.tokens / seconds,
            "padding": 1 - self.tokens / self.positions,
        }


def make_steps(model):
    """A training and a test step that take batches of any shape in one graph each.

    Args:
        model: a compiled model that is called on ``(source, target_in)``.

    Returns:
        Two functions of ``((source, target_in), target_out)`` that give the loss and
        the metrics by name.
    """
    # What would make variables in the graph is built before: tracing happens once.
    model.optimizer.build(model.trainable_variables)
    ids = tf.constant([[END_ID, END_ID]])
    model.test_step(((ids, ids), ids))
    ids = tf.TensorSpec([None, None], tf.int32)
    signature = [((ids, ids), ids)]
    return (
        tf.function(model.train_step, input_signature=signature),
        tf.function(model.test_step, input_signature=signature),
    )
