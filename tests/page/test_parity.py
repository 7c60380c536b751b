"""The page against Python on the shipped model: `pytest -m slow tests/page`."""

from pathlib import Path

import node
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from tfxformer.decoding import DecodingOptions, decode
from tfxformer.special_tokens import END_ID, START_ID
from tfxformer.translator import Translator

DATA = Path(__file__).parents[3] / "shared" / "data" / "pt_en" / "tatoeba.test.tsv"
BATCH = 50
IDS = tf.TensorSpec([None, None], tf.int32)
CLOSE = 1e-3  # logits that differ by less may change places

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shipped():
    return Translator.load()


@pytest.fixture(scope="module")
def sources(shipped):
    if not DATA.exists():
        pytest.skip("no ../shared/data beside this checkout")
    lines = DATA.read_text("utf-8").splitlines()
    texts = [line.partition("\t")[0] for line in lines]
    found = [[*ids, END_ID] for ids in shipped.tokenizer.encode(texts)]
    return [ids for ids in found if len(ids) <= shipped.max_length]


def by_python(shipped, sources, **options):
    """The hypotheses of each sentence: ids and rank, best first; and logits' gaps."""
    model, options = shipped.transformer, DecodingOptions(**options)

    @tf.function(
        input_signature=[tf.TensorSpec([None, None], tf.int32)], autograph=False
    )
    def run(source):
        decoded = decode(model, source, options)
        best = decoded.ids[:, 0]
        start = tf.fill([tf.shape(best)[0], 1], START_ID)
        target_in = tf.concat([start, best], axis=1)[:, :-1]
        logits = model((source, target_in), training=False)[..., END_ID:]
        two = tf.math.top_k(logits, 2).values  # (batch, target, 2)
        return decoded.ids, decoded.rank, two[..., 0] - two[..., 1]

    answers = [None] * len(sources)
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    for first in range(0, len(order), BATCH):
        rows = order[first : first + BATCH]
        batch = tf.ragged.constant([sources[i] for i in rows], tf.int32).to_tensor()
        for i, ids, rank, gaps in zip(rows, *run(batch), strict=True):
            ids = [[int(x) for x in row if x] for row in ids.numpy()]
            answers[i] = ids, rank.numpy(), gaps.numpy()
    return answers


def test_greedy_ids_of_1000_sentences(shipped, sources):
    asked = [{"type": "translate", "source": ids, "count": 1} for ids in sources]
    found = node.results(shipped, *asked)
    expected, same = by_python(shipped, sources), 0
    for answer, ((ids,), rank, gaps) in zip(found, expected, strict=True):
        if answer["ids"] == ids:
            same += 1
            assert_allclose(np.mean(answer["scores"] or 0), rank[0], atol=1e-4)
            continue
        pairs = zip(answer["ids"], ids, strict=False)
        place = next(i for i, (a, b) in enumerate(pairs) if a != b)
        assert gaps[place] < CLOSE, (shipped.tokenizer.decode([ids]), gaps[place])
    print(f"{same} of {len(sources)} translations are the same")
    assert same >= 0.99 * len(sources)


def test_values_of_20_sentences(shipped, sources):
    sources = sources[::50]
    targets = [ids[0] for ids, *_ in by_python(shipped, sources)]
    asked, expected = [], []
    for source, target in zip(sources, targets, strict=True):
        expected.append(node.values_of(shipped.transformer, source, target))
        asked.append({"type": "inspect", "source": source, "target": target})
        asked[-1]["names"] = [*expected[-1]]
    for values, ours in zip(node.results(shipped, *asked), expected, strict=True):
        node.assert_close(values, ours)


def test_beams_of_100_sentences(shipped, sources):
    sources = sources[::10]
    options = {"beams": 4, "nBest": 4}
    asked = [{"type": "beam", "source": ids, **options} for ids in sources]
    found = node.results(shipped, *asked)
    expected = by_python(shipped, sources, beam_size=4, n_best=4)
    for answer, (ids, ranks, _) in zip(found, expected, strict=True):
        assert [x["ids"] for x in answer["hypotheses"]] == ids
        assert_allclose([x["rank"] for x in answer["hypotheses"]], ranks, atol=1e-4)
