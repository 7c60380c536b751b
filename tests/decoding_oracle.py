"""Reference searches in NumPy, with full forward passes over full sequences."""

import functools
import itertools
from typing import NamedTuple

import numpy as np
import numpy_transformer as numpy_version
import oracle

from tfxformer.decoding import DecodingOptions, decode
from tfxformer.special_tokens import END_ID, PAD_ID, START_ID

# Only three letters, so that the tests can list all sequences.
SMALL = {"num_layers": 2, "d_model": 8, "num_heads": 2, "dff": 16, "max_length": 24}
VOCAB, LETTERS = 7, (4, 5, 6)
SPECIAL = (0, 1, 2)
VARIANTS = [
    {"norm": "post"},
    {"norm": "pre", "learned_positions": True},
    {"norm": "pre", "tie_embeddings": True},
]


@functools.cache
def small_model(variant=0, end_bias=-1.5, **options):
    """One model for each variant; no test changes its weights."""
    vocabularies = {"input_vocab_size": VOCAB, "target_vocab_size": VOCAB}
    model = oracle.tiny_transformer(
        seed=variant, **{**SMALL, **vocabularies, **VARIANTS[variant], **options}
    )
    if model.final_layer is not None:
        # Some translations end early, some late, some never. Forbidden tokens are
        # often the most probable.
        bias = np.array(model.final_layer.bias)
        bias[END_ID] += end_bias
        bias[list(SPECIAL)] += 0.7
        model.final_layer.bias.assign(bias)
    return model


def pad(sentences, width=None):
    source = np.zeros((len(sentences), width or max(map(len, sentences))), np.int32)
    for row, sentence in zip(source, sentences, strict=True):
        row[: len(sentence)] = sentence
    return source


def written(ids):
    """The ids without padding, which may only follow them."""
    ids = np.asarray(ids)
    count = np.count_nonzero(ids)
    assert (ids[count:] == PAD_ID).all()
    return tuple(ids[:count].tolist())


class Scored(NamedTuple):
    """A sequence with its log-probability and attention."""

    ids: tuple
    total: float  # log-probability
    attention: np.ndarray  # (layers, heads, target, source)

    @property
    def score(self):
        return self.total / max(len(self.ids), 1)


def forward(model, source, targets):
    """Log-probabilities ``(batch, target, vocab)`` and each layer's attention."""
    weights, heads = oracle.transformer_weights(model), model.config["num_heads"]
    logits, attention = numpy_version.transformer(
        source, targets, weights, heads, model.config["norm"]
    )
    return numpy_version.log_softmax(logits), np.stack(attention, axis=1)


def score_all(model, sentence, sequences):
    """Scores each sequence of ids with one full forward pass."""
    if not sequences:
        return []
    labels = pad(sequences, max(1, *map(len, sequences)))
    start = np.full((len(sequences), 1), START_ID)
    targets = np.concatenate([start, labels], axis=1)[:, :-1]
    source = np.repeat([sentence], len(sequences), axis=0)
    log_p, attention = forward(model, source, targets)
    gain = np.take_along_axis(log_p, labels[..., None], axis=-1)[..., 0]
    total = np.sum(gain * (labels != PAD_ID), axis=1)
    return [
        Scored(tuple(ids), float(t), a[:, :, : len(ids)])
        for ids, t, a in zip(sequences, total, attention, strict=True)
    ]


@functools.cache
def every_sequence(limit):
    """All possible sequences: those that end, and those cut off at the limit."""
    ended = [
        (*letters, END_ID)
        for length in range(limit)
        for letters in itertools.product(LETTERS, repeat=length)
    ]
    return [*ended, *itertools.product(LETTERS, repeat=limit)]


@functools.cache
def score_every_sequence(variant, sentence, limit):
    return score_all(small_model(variant), sentence, every_sequence(limit))


def repeats(ids, n, prefix=()):
    """Whether an n-gram occurs twice, except where the prefix itself repeats it."""
    grams = [ids[i : i + n] for i in range(len(ids) - n + 1)]
    first = max(0, len(prefix) - n + 1)
    return any(gram in grams[:i] for i, gram in enumerate(grams) if i >= first)


def is_allowed(ids, options, prefix=()):
    if ids[: len(prefix)] != tuple(prefix):
        return False
    free = ids[len(prefix) :]
    if set(free) & {*SPECIAL}:
        return False
    n = options.no_repeat_ngram
    return not (n and repeats(ids, n, prefix))


def rank(scored, options):
    """GNMT's equation 14 (Wu et al. 2016), or the mean log-probability."""
    length, alpha = len(scored.ids), options.length_penalty
    if alpha is None:
        return scored.total / length
    return scored.total / ((5 + length) ** alpha / (5 + 1) ** alpha)


def best(scored, options, prefix=()):
    """The best of the allowed sequences."""
    allowed = [x for x in scored if is_allowed(x.ids, options, prefix)]
    return sorted(allowed, key=lambda x: -rank(x, options))[: options.n_best]


def greedy_search(model, sentence, limit):
    """Appends the most probable token, with a full forward pass each time."""
    found = Scored((), 0.0, None)
    while len(found.ids) < limit and END_ID not in found.ids:
        longer = [(*found.ids, token) for token in (END_ID, *LETTERS)]
        found = max(score_all(model, sentence, longer), key=lambda x: x.total)
    return found


def beam_search(model, sentence, limit, options):
    """Textbook beam search, with lists of hypotheses and no cache."""
    beams = options.beam_size
    going, found, greedy = [Scored((), 0.0, None)], [], True
    for position in range(limit):
        longer = [
            (*hypothesis.ids, token)
            for hypothesis in going
            for token in (END_ID, *LETTERS)
        ]
        longer = [ids for ids in longer if is_allowed(ids, options)]
        longer = score_all(model, sentence, longer)
        # Greedy search's choice comes first, then the most probable.
        longer = sorted(longer, key=lambda x: -x.total)
        if greedy:
            first = next(x for x in longer if x.ids[:-1] == going[0].ids)
            longer = [first, *(x for x in longer if x is not first)]
            greedy = first.ids[-1] != END_ID
        last = position == limit - 1
        found += [x for x in longer[:beams] if last or x.ids[-1] == END_ID]
        found = sorted(found, key=lambda x: -rank(x, options))[:beams]
        going = [x for x in longer if x.ids[-1] != END_ID][:beams]
        if not going:
            break
        if len(found) >= options.n_best:
            # No later hypothesis is more probable, or longer than the limit.
            most = max(going, key=lambda x: x.total)
            most = most._replace(ids=(1,) * limit, attention=np.ones((1, 1, 1, 1)))
            if rank(most, options) <= rank(found[options.n_best - 1], options):
                break
    return found[: options.n_best]


def decode_with(model, sentences, prefix=None, attention=False, **options):
    """Runs `decode` eagerly, with NumPy arrays in and out."""
    decoded = decode(
        model, pad(sentences), DecodingOptions(**options), prefix, attention
    )
    return decoded._replace(
        **{k: np.asarray(v) for k, v in decoded._asdict().items() if v is not None}
    )
