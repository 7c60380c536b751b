"""One step of training: gradients, updates, averages."""

import functools

import autodiff
import keras
import numpy as np
import oracle
import pytest
from keras import ops
from numpy.testing import assert_allclose, assert_array_equal

from tfxformer.config import load_config
from tfxformer.decoding import decode
from tfxformer.layers.dropout import drawn_from
from tfxformer.training.loss import token_loss
from tfxformer.training.step import TrainingStep

VOCAB = oracle.SOURCE_VOCAB
# A step's seed; with this one, dropout drops something of everything.
SEED = 5


def a_batch(rows=(3, 5, 2), seed=0, padding_rows=0):
    """As `TrainingBatches` makes them, with rows of padding as static shapes have."""
    rng = np.random.default_rng(seed)
    target = [n + 1 for n in rows]
    ids = [oracle.random_ids(rng, n, VOCAB, width=8) for n in (rows, target, target)]
    ids = [np.pad(x, ((0, padding_rows), (0, 0))) for x in ids]
    return (ids[0], ids[1]), ids[2]


def joined(*batches):
    (sources, targets), labels = (
        zip(*[b[0] for b in batches], strict=True),
        [b[1] for b in batches],
    )
    return (np.concatenate(sources), np.concatenate(targets)), np.concatenate(labels)


def a_step(*settings, dropout=0.0, policy="float32", **options):
    """A model with random weights, always the same ones, and what trains it."""
    keras.utils.set_random_seed(3)
    options = {"num_layers": 1, "tie_embeddings": True, "max_length": 64} | options
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        model = oracle.tiny_transformer(dropout_rate=dropout, **options)
    finally:
        keras.config.set_dtype_policy(before)
    settings = [f"training.{setting}" for setting in settings]
    return TrainingStep(model, load_config("tiny", overrides=settings).training)


@functools.cache
def shared(dropout=0.0):
    """A step whose weights no test moves."""
    return a_step(dropout=dropout)


def arrays(tensors):
    return [ops.convert_to_numpy(tensor) for tensor in tensors]


def weights(step):
    return arrays(step.model.trainable_variables)


def close(actual, expected, tolerance=1e-5):
    """Relative to the largest number of all: a key's bias has a gradient of 0."""
    largest = max(np.abs(array).max() for array in expected)
    for a, b in zip(actual, expected, strict=True):
        assert_allclose(a, b, rtol=1e-4, atol=tolerance * largest)


def unlike(actual, expected):
    assert (
        max(np.abs(a - b).max() for a, b in zip(actual, expected, strict=True)) > 1e-3
    )


# --- Gradients ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "smoothing", "dropout"),
    [
        ({}, 0.1, 0.0),
        ({"tie_embeddings": False, "target_vocab_size": VOCAB}, 0.1, 0.3),
        pytest.param({"norm": "pre"}, 0.0, 0.3, marks=pytest.mark.slow),
        pytest.param(
            {"learned_positions": True, "activation_dropout": 0.2},
            0.1,
            0.1,
            marks=pytest.mark.slow,
        ),
    ],
    ids=["tied", "untied", "pre-norm", "learned positions"],
)
def test_gradients_are_those_of_the_model_and_its_loss(options, smoothing, dropout):
    """By autodiff, with the same dropout: the logits all exist here."""
    step = a_step(f"label_smoothing={smoothing}", dropout=dropout, **options)
    batch = a_batch(padding_rows=2)
    inputs, labels = batch
    variables, real = step.model.trainable_variables, labels != 0

    def loss():
        with drawn_from(SEED):
            logits = step.model(inputs, training=True)
        each = token_loss(labels, logits, smoothing)
        return ops.sum(each * ops.cast(real, "float32"))

    value, expected = autodiff.gradients(loss, variables)
    totals, found = step.gradients(batch, SEED)
    assert_allclose(totals.loss, value, rtol=1e-5)
    close(arrays(found), expected)
    assert all(slope.any() for slope in expected)
    assert_allclose(
        totals.square_norm, sum((slope**2).sum() for slope in expected), rtol=1e-4
    )
    with drawn_from(SEED):
        logits = ops.convert_to_numpy(step.model(inputs, training=True))
    assert totals.tokens == real.sum()
    assert totals.correct == (logits.argmax(-1) == labels)[real].sum()
    entropy = ops.convert_to_numpy(token_loss(labels, logits))[real].sum()
    assert_allclose(totals.entropy, entropy, rtol=1e-5)


def test_two_batches_add_up_to_one():
    first, second = a_batch((3, 5, 2)), a_batch((7, 1), seed=1)
    step = shared()
    one, carried = step.gradients(first, SEED, last=False)
    two, found = step.gradients(second, SEED, 1.0, carried)
    whole, expected = step.gradients(joined(first, second), SEED)
    close(arrays(found), arrays(expected))
    for name in ("loss", "entropy", "correct", "tokens"):
        total = getattr(one, name) + getattr(two, name)
        assert_allclose(total, getattr(whole, name), rtol=1e-5)
    assert_allclose(two.square_norm, whole.square_norm, rtol=1e-4)


def test_rows_of_padding_change_nothing():
    step = shared()
    totals, expected = step.gradients(a_batch(), SEED)
    padded, found = step.gradients(a_batch(padding_rows=3), SEED)
    close(arrays(found), arrays(expected))
    assert_allclose(padded, totals, rtol=1e-5)


def test_a_batch_of_padding_alone_has_no_gradient():
    nothing = np.zeros((2, 8), np.int32)
    totals, slopes = shared().gradients(((nothing, nothing), nothing), SEED)
    assert totals == (0, 0, 0, 0, 0)
    assert not any(slope.any() for slope in arrays(slopes))


def test_a_scale_is_one_of_the_gradients_alone():
    totals, slopes = shared().gradients(a_batch(), SEED)
    scaled, larger = shared().gradients(a_batch(), SEED, 1024.0)
    close(arrays(larger), [1024 * slope for slope in arrays(slopes)])
    assert_allclose(scaled.loss, totals.loss, rtol=1e-6)
    assert_allclose(scaled.square_norm, 1024**2 * totals.square_norm, rtol=1e-4)


def test_the_seed_decides_what_is_dropped():
    step, batch = shared(dropout=0.3), a_batch()
    totals, slopes = step.gradients(batch, SEED)
    again, same = step.gradients(batch, SEED)
    assert totals == again
    for a, b in zip(arrays(slopes), arrays(same), strict=True):
        assert_array_equal(a, b)
    for seed in (SEED + 1, 0, 2**31 - 1):
        other, differ = step.gradients(batch, seed)
        assert abs(other.loss - totals.loss) > 1e-3
        unlike(arrays(slopes), arrays(differ))


def test_a_model_made_anew_from_the_same_seed_drops_the_same():
    """So a resumed run does: no random state is kept."""
    totals, _ = shared(dropout=0.3).gradients(a_batch(), SEED)
    again, _ = a_step(dropout=0.3).gradients(a_batch(), SEED)
    assert totals == again


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy", ["mixed_bfloat16", pytest.param("mixed_float16", marks=pytest.mark.slow)]
)
def test_mixed_precision_is_close(policy):
    batch = a_batch(padding_rows=1)
    _, expected = a_step(dropout=0.1).gradients(batch, SEED)
    step = a_step(dropout=0.1, policy=policy)
    totals, found = step.gradients(batch, SEED, 256.0)
    assert np.isfinite(totals).all()
    for slope, exact in zip(arrays(found), arrays(expected), strict=True):
        assert slope.dtype == exact.dtype == np.float32
        product = (slope * exact).sum()
        if (size := np.linalg.norm(slope) * np.linalg.norm(exact)) > 1:
            assert product / size > 0.97  # about the same direction
    step.apply(found, 1 / 256 / totals.tokens)
    assert {x.dtype for x in weights(step)} == {np.dtype("float32")}
    assert all(np.isfinite(x).all() for x in weights(step))


@pytest.mark.slow
def test_xla_changes_nothing_but_speed():
    batch = a_batch(padding_rows=1)
    plain = a_step("ema_decay=0.9")
    xla = a_step("xla=true", "ema_decay=0.9")
    for _ in range(2):
        totals, slopes = plain.gradients(batch, SEED)
        found, by_xla = xla.gradients(batch, SEED)
        assert_allclose(found, totals, rtol=1e-5)
        close(arrays(by_xla), arrays(slopes))
        plain.apply(slopes, 0.1)
        # Of the same gradients: of what is nearly 0 Adam sees the sign alone.
        xla.apply(slopes, 0.1)
    close(weights(xla), weights(plain))
    with plain.averaged(), xla.averaged():
        close(weights(xla), weights(plain))
    assert_allclose(xla.evaluate(batch), plain.evaluate(batch), rtol=1e-5)


# --- Updates ------------------------------------------------------------------------


def test_the_weights_move_as_adam_says():
    settings = "learning_rate=0.01", "warmup_steps=2", "ema_decay=0.3"
    step, batch = a_step(*settings), a_batch()
    expected = weights(step)
    averages, m, v = expected, *([np.zeros_like(w) for w in expected] for _ in "mv")
    for n in (1, 2, 3):
        # The paper's shape, with its peak in the second step.
        rate = 0.01 * min(n / 2, (2 / n) ** 0.5)
        assert_allclose(step.learning_rate(), rate, rtol=1e-5)
        _, slopes = step.gradients(batch, SEED)
        step.apply(slopes, 0.125)
        g = [0.125 * slope for slope in arrays(slopes)]
        m = [0.9 * a + 0.1 * b for a, b in zip(m, g, strict=True)]
        v = [0.98 * a + 0.02 * b**2 for a, b in zip(v, g, strict=True)]
        scale = rate * (1 - 0.98**n) ** 0.5 / (1 - 0.9**n)
        expected = [
            w - scale * a / (b**0.5 + 1e-9)
            for w, a, b in zip(expected, m, v, strict=True)
        ]
        close(weights(step), expected, 1e-4)
        # It may not look further back than there was anything.
        kept = min(0.3, (1 + n) / (10 + n))
        averages = [
            kept * a + (1 - kept) * w for a, w in zip(averages, expected, strict=True)
        ]
    assert kept == 0.3 and 2 / 11 < 0.3  # both were there
    with step.averaged():
        close(weights(step), averages, 1e-4)
        unlike(averages, expected)
    close(weights(step), expected, 1e-4)


def test_matrices_move_as_muon_says():
    """Jordan et al. 2024: along the singular vectors of the momentum, all alike."""
    step = a_step("optimizer=muon", "learning_rate=0.01", "warmup_steps=1")
    batch, before = a_batch(), weights(step)
    names = [variable.path for variable in step.model.trainable_variables]
    momentum = [np.zeros_like(w) for w in before]
    expected = before
    for n in (1, 2):
        _, slopes = step.gradients(batch, SEED)
        step.apply(slopes, 0.125)
        g = [0.125 * slope for slope in arrays(slopes)]
        momentum = [0.95 * m + b for m, b in zip(momentum, g, strict=True)]
        rate = 0.01 * n**-0.5
        expected = [
            w - rate * 0.2 * max(w.shape) ** 0.5 * orthogonal(b + 0.95 * m)
            if name.endswith("/kernel")
            else None
            for name, w, m, b in zip(names, expected, momentum, g, strict=True)
        ]
        pairs = [
            (ours, theirs)
            for ours, theirs in zip(weights(step), expected, strict=True)
            if theirs is not None
        ]
        assert len(pairs) == 16  # of one encoder layer and one decoder layer
        close(*map(list, zip(*pairs, strict=True)), 1e-4)
        expected = weights(step)


def orthogonal(x):
    """Five steps of Newton and Schulz, on the singular values themselves."""
    u, s, v = np.linalg.svd(x, full_matrices=False)
    s = s / np.linalg.norm(s)
    for _ in range(5):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    return (u * s) @ v


def test_all_but_matrices_move_as_adam_says_with_muon_too():
    settings = "learning_rate=0.01", "warmup_steps=1"
    steps = a_step(*settings), a_step("optimizer=muon", *settings)
    batch = a_batch()
    moved = []
    for step in steps:
        before = weights(step)
        _, slopes = step.gradients(batch, SEED)
        step.apply(slopes, 0.125)
        after = zip(step.model.trainable_variables, before, weights(step), strict=True)
        moved.append([new - old for v, old, new in after if "kernel" not in v.path])
    close(*moved, 1e-4)


def test_without_averages_the_weights_are_their_own():
    step = shared()
    before = weights(step)
    with step.averaged():
        for a, b in zip(weights(step), before, strict=True):
            assert_array_equal(a, b)


@pytest.mark.slow
def test_evaluation_is_of_the_averages_within_them():
    step = a_step("ema_decay=0.9", "learning_rate=0.01", "warmup_steps=1", dropout=0.3)
    batch = a_batch()
    _, slopes = step.gradients(batch, SEED)
    step.apply(slopes, 0.1)
    now = step.evaluate(batch)
    with step.averaged():
        averaged = step.evaluate(batch)
        inputs, labels = batch
        logits = step.model(inputs)  # the model has them too
        loss = ops.convert_to_numpy(token_loss(labels, logits))[labels != 0].sum()
        assert_allclose(averaged.loss, loss, rtol=1e-5)
    assert abs(averaged.loss - now.loss) > 1e-3
    assert step.evaluate(batch) == now
    # Neither dropout nor label smoothing.
    loss = ops.convert_to_numpy(token_loss(labels, step.model(inputs)))
    assert_allclose(now.loss, loss[labels != 0].sum(), rtol=1e-5)
    assert now.loss == now.entropy and now.square_norm == 0


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_a_step_goes_on_from_its_state(optimizer):
    settings = "ema_decay=0.9", "learning_rate=0.01", "warmup_steps=2"
    settings += (f"optimizer={optimizer}",)
    step, batch = a_step(*settings, dropout=0.3), a_batch()

    def go_on(step, numbers):
        for number in numbers:
            _, slopes = step.gradients(batch, number)
            step.apply(slopes, 0.1)

    go_on(step, [1, 2])
    kept, state = weights(step), step.state()
    go_on(step, [3, 4])
    other = a_step(*settings, dropout=0.3)
    for variable, array in zip(other.model.trainable_variables, kept, strict=True):
        variable.assign(array)
    other.restore(state)
    assert other.learning_rate() == pytest.approx(0.01 * (2 / 3) ** 0.5)
    go_on(other, [3, 4])
    for a, b in zip(weights(other), weights(step), strict=True):
        assert_array_equal(a, b)
    for name, found in other.state().items():
        for a, b in zip(found, step.state()[name], strict=True):
            assert_array_equal(a, b)


@pytest.mark.parametrize("name", ["optimizer", "averages"])
def test_a_state_of_another_model_is_refused(name):
    step = a_step("ema_decay=0.9")
    state = step.state()
    state[name] = state[name][:-1]
    with pytest.raises(ValueError, match="another model"):
        step.restore(state)


# --- What else is compiled ----------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy",
    [
        "float32",
        *(
            pytest.param(p, marks=pytest.mark.slow)
            for p in ("mixed_bfloat16", "mixed_float16")
        ),
    ],
)
def test_decoding_in_the_midst_of_training(policy):
    """Of the weights as they are then, in the precision of the training."""
    step = a_step("learning_rate=0.05", "warmup_steps=1", policy=policy)
    (source, _), _ = batch = a_batch()
    translate = step.compiled(
        lambda ids: decode(step.model, ids, attention=True)._asdict()
    )
    before = translate(source)
    _, slopes = step.gradients(batch, SEED)
    step.apply(slopes, 0.1)
    now = translate(source)
    assert (before["score"] != now["score"]).any()
    assert np.isfinite(now["score"]).all()
    assert_allclose(now["attention"].astype("float32").sum(-1).max(), 1, atol=0.02)
    expected = decode(step.model, source, attention=True)
    if policy == "float32":  # else the last digits decide between tokens
        assert_array_equal(now["ids"], ops.convert_to_numpy(expected.ids))
        assert_allclose(now["score"], expected.score, rtol=1e-4)
