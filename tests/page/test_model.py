"""model.js against Python on tiny models with random weights."""

import copy

import node
import numpy as np
import numpy_transformer as numpy_version
import oracle
import pytest
from numpy.testing import assert_allclose

from tfxformer.decoding import DecodingOptions, decode
from tfxformer.special_tokens import END_ID, START_ID

# Each setting that a page knows, with a value that is not the default.
VARIANTS = {
    "post_norm": {},
    "pre_norm": {"norm": "pre"},
    "tied": {"tie_embeddings": True, "norm": "pre", "output_bias": True},
    "target_tied": {"tie_embeddings": "target"},
    "learned_positions": {"learned_positions": True, "tie_embeddings": True},
    "no_positions": {"use_positions": False},
    "swish": {"activation": "swish"},
    "deep_encoder": {"num_layers": 3, "num_decoder_layers": 1, "norm": "pre"},
    "deep_decoder": {"num_layers": 1, "num_decoder_layers": 2, "d_model": 12},
    "separate_vocabularies": {"tie_embeddings": "target", "output_bias": True},
}
SOURCES = [[7, 8, 9, 10, 4, END_ID], [270, 271, END_ID], [END_ID]]
TARGET = [5, 9, 266, 11]
SWITCHED = {"norm": "pre", "num_layers": 2}


def translator(name):
    target = node.tokenizer(casing="lower").model if name.startswith("sep") else None
    return node.tiny(target and node.Tokenizer(target), **VARIANTS[name])


def padded(sources):
    width = max(map(len, sources))
    return np.array([row + [0] * (width - len(row)) for row in sources], "int32")


def lists(decoded, row):
    """The hypotheses of a sentence as lists of ids, and their scores and ranks."""
    ids = [[int(i) for i in ids if i] for ids in np.asarray(decoded.ids[row])]
    return ids, np.asarray(decoded.score[row]), np.asarray(decoded.rank[row])


@pytest.mark.parametrize("name", VARIANTS)
def test_ids_and_values_are_python_s(name):
    tiny = translator(name)
    greedy = decode(tiny.transformer, padded(SOURCES))
    options = DecodingOptions(beam_size=3, n_best=3)
    beam = decode(tiny.transformer, padded(SOURCES), options)
    asked = [{"type": "translate", "source": source} for source in SOURCES]
    asked += [
        {"type": "beam", "source": source, "beams": 3, "nBest": 3} for source in SOURCES
    ]
    looked = {"type": "inspect", "source": SOURCES[0], "target": TARGET}
    looked |= {"names": ["encoder", "decoder", "output"]}
    *found, values = node.results(tiny, *asked, looked)
    for row in range(len(SOURCES)):
        (ids,), (score,), _ = lists(greedy, row)
        assert found[row]["ids"] == ids
        assert_allclose(np.mean(found[row]["scores"] or 0), score, atol=1e-5)
        assert found[row]["tokens"] == tiny.tokenizer.target.tokens(ids)
        assert found[row]["translation"] == tiny.tokenizer.target.decode([ids])[0]
        hypotheses, (ids, scores, ranks) = (
            found[3 + row]["hypotheses"],
            lists(beam, row),
        )
        assert [x["ids"] for x in hypotheses] == ids[: len(hypotheses)]
        count = len(hypotheses)
        assert_allclose([x["score"] for x in hypotheses], scores[:count], atol=1e-5)
        assert_allclose([x["rank"] for x in hypotheses], ranks[:count], atol=1e-5)
        assert count == 3 or SOURCES[row] == [END_ID]
    node.assert_close(values, node.values_of(tiny.transformer, SOURCES[0], TARGET))


@pytest.mark.parametrize("n_best", [1, 2])
@pytest.mark.parametrize("penalty", [None, 0.0, 1.5])
def test_beam_search_with_a_length_penalty(penalty, n_best):
    tiny = translator("pre_norm")
    bias = tiny.transformer.final_layer.bias
    bias.assign(np.array(bias) + 2 * (np.arange(bias.shape[0]) == END_ID))
    options = {"beam_size": 4, "n_best": n_best, "length_penalty": penalty}
    found = decode(tiny.transformer, padded(SOURCES), DecodingOptions(**options))
    asked = {"type": "beam", "beams": 4, "nBest": n_best, "lengthPenalty": penalty}
    answers = node.results(
        tiny, *[asked | {"source": source} for source in SOURCES[:2]]
    )
    for row, answer in enumerate(answers):
        ids, _, ranks = lists(found, row)
        assert [x["ids"] for x in answer["hypotheses"]] == ids
        assert_allclose([x["rank"] for x in answer["hypotheses"]], ranks, atol=1e-5)
        assert_is_a_tree(answer, beams=4)


def assert_is_a_tree(answer, beams):
    """Each step's candidates continue the hypotheses that the step before kept."""
    going = [[]]
    ended = []
    for step in answer["steps"]:
        longer = {}
        assert len(step) <= 2 * beams
        for candidate in step:
            ids = [*going[candidate["parent"]], candidate["id"]]
            if candidate["state"] == "kept":
                longer[candidate["place"]] = ids
            if candidate["state"] == "finished":
                ended.append(ids)
        going = [longer[place] for place in range(len(longer))]
    assert [x for x in answer["hypotheses"] if x["ids"] not in ended] == []


def rows_rounded(matrix, bits):
    """Each column of a kernel, which makes one unit, at 2 ** bits - 1 levels."""
    matrix = matrix.astype(float)
    step = np.abs(matrix).max(axis=0) / (2 ** (bits - 1) - 1)
    return np.floor(matrix / step + 0.5) * step


def every_attention(weights):
    for stack in ("encoder", "decoder"):
        for layer in weights[stack]["layers"]:
            yield layer["self_attention"]
            if "cross_attention" in layer:
                yield layer["cross_attention"]


def no_positions(weights, patch):
    for stack in ("encoder", "decoder"):
        weights[stack]["positions"] = np.zeros((99, 1))


def no_causal_mask(weights, patch):
    patch.setattr(numpy_version, "causal_mask", lambda n: np.ones((1, 1, n, n), bool))


def scores_times(factor):
    def change(weights, patch):
        for attention in every_attention(weights):
            for name in ("query_kernel", "query_bias"):
                attention[name] = attention[name] * factor

    return change


def no_residual(weights, patch):
    def residual(x, sublayer, norm_weights, norm):
        return sublayer(numpy_version.layer_norm(x, **norm_weights))

    patch.setattr(numpy_version, "residual", residual)


def no_norm(weights, patch):
    patch.setattr(numpy_version, "layer_norm", lambda x, gamma, beta: x)


def silent_head(weights, patch):
    kernel = weights["decoder"]["layers"][1]["cross_attention"]["output_kernel"].copy()
    kernel[8:12] = 0  # head 2 of 4, of 4 units each
    weights["decoder"]["layers"][1]["cross_attention"]["output_kernel"] = kernel


def silent_layer(weights, patch):
    del weights["encoder"]["layers"][0]


def rounded_to(bits):
    def change(weights, patch):
        for part in (weights["encoder"], weights["decoder"]):
            part["embedding"] = rows_rounded(part["embedding"].T, bits).T
        groups = [*every_attention(weights)]
        for stack in ("encoder", "decoder"):
            groups += [layer["feed_forward"] for layer in weights[stack]["layers"]]
        for group in [*groups, weights["output"]]:
            for name, value in group.items():
                if value.ndim > 1:
                    group[name] = rows_rounded(value, bits)

    return change


BROKEN = {
    "positions": ({"positions": False}, no_positions),
    "causal_mask": ({"causalMask": False}, no_causal_mask),
    "scale": ({"scale": False}, scores_times(2.0)),  # d_k is 4
    "temperature": ({"temperature": 0.5}, scores_times(2.0)),
    "residual": ({"residual": False}, no_residual),
    "norm": ({"layerNorm": False}, no_norm),
    "head": ({"silenced": ["decoder/layer_1/cross_attention/head_2"]}, silent_head),
    "layer": ({"silenced": ["encoder/layer_0"]}, silent_layer),
    "bits_8": ({"bits": 8}, rounded_to(8)),
    "bits_4": ({"bits": 4}, rounded_to(4)),
    "bits_2": ({"bits": 2}, rounded_to(2)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_each_switch_breaks_what_it_says(name, monkeypatch):
    tiny = node.tiny(**SWITCHED)
    switches, change = BROKEN[name]
    source = {"source": SOURCES[0], "switches": switches}
    steps = {"type": "translate", **source, "forced": TARGET}
    whole = {"type": "inspect", **source, "target": TARGET, "names": ["output"]}
    step = whole | {"step": len(TARGET)}
    intact = whole | {"switches": {}}
    found, whole, step, intact = node.results(tiny, steps, whole, step, intact)
    weights = copy.deepcopy(oracle.transformer_weights(tiny.transformer))
    change(weights, monkeypatch)
    inputs = np.array([SOURCES[0]]), np.array([[START_ID, *TARGET]])
    logits, _ = numpy_version.transformer(*inputs, weights, 4, "pre")
    expected = logits[0, -1]
    for values in (whole, step):
        node.assert_close(values, {"output/logits": expected})
    # Steps with the cache give the same as one pass over all positions.
    written = found["parts"][0]["steps"][len(TARGET)]
    assert written["id"] == END_ID + expected[END_ID:].argmax()
    assert_allclose(written["logit"], expected[END_ID:].max(), rtol=1e-4)
    score = numpy_version.log_softmax(expected)[written["id"]]
    assert_allclose(written["score"], score, rtol=1e-4)
    difference = np.abs(node.array(intact["output/logits"]) - expected).max()
    assert difference > 1e-3 * np.abs(expected).max()


def test_padding_is_hidden_until_the_switch_shows_it():
    tiny = node.tiny(**SWITCHED)
    asked = {"type": "translate", "source": SOURCES[0]}
    intact, hidden, shown = node.results(
        tiny,
        asked,
        asked | {"switches": {"pads": 2}},
        asked | {"switches": {"pads": 2, "paddingMask": False}},
    )
    assert hidden["ids"] == intact["ids"]
    assert_allclose(hidden["scores"], intact["scores"], rtol=1e-6)
    source = np.array([[*SOURCES[0], *[0] * 2]])
    written = np.array([[START_ID, *shown["ids"][:-1]]])
    logits = tiny.transformer(
        (source, written), source_mask=np.ones_like(source, "bool")
    )
    log_p = numpy_version.log_softmax(logits)[0]
    scores = log_p[np.arange(len(log_p)), shown["ids"]]
    assert_allclose(shown["scores"], scores, atol=1e-5)


def test_the_temperature_of_the_next_token_changes_its_probability_alone():
    tiny = node.tiny(**SWITCHED)
    asked = {"type": "translate", "source": SOURCES[0]}
    intact, flat = node.results(
        tiny, asked, asked | {"switches": {"outputTemperature": 2}}
    )
    assert flat["ids"] == intact["ids"] and flat["scores"] < intact["scores"]
