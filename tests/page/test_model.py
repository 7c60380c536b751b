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
    "post_norm": {"num_layers": 2},
    "pre_norm": {"norm": "pre", "num_layers": 2},
    "tied": {"tie_embeddings": True, "norm": "pre", "output_bias": True},
    "target_tied": {"tie_embeddings": "target"},
    "learned_positions": {"learned_positions": True, "tie_embeddings": True},
    "no_positions": {"use_positions": False, "learned_positions": True},
    "swish": {"activation": "swish"},
    "deep_encoder": {"num_layers": 3, "num_decoder_layers": 1, "norm": "pre"},
    "deep_decoder": {"num_decoder_layers": 2, "d_model": 12},
    "separate_vocabularies": {"tie_embeddings": "target", "output_bias": True},
}
SOURCES = [[7, 8, 9, 10, 4, END_ID], [270, 271, END_ID]]
TARGET = [5, 9, 266, 11]


@pytest.fixture(scope="module")
def switched():
    return node.tiny(norm="pre")


def translator(name):
    target = node.tokenizer(casing="lower").model if name.startswith("sep") else None
    options = {"num_layers": 1, **VARIANTS[name]}
    return node.tiny(target and node.Tokenizer(target), **options)


def lists(decoded, row):
    """The hypotheses of a sentence as lists of ids, and their scores and ranks."""
    ids = [[int(i) for i in ids if i] for ids in np.asarray(decoded.ids[row])]
    return ids, np.asarray(decoded.score[row]), np.asarray(decoded.rank[row])


@pytest.mark.parametrize("name", VARIANTS)
def test_ids_and_values_are_python_s(name):
    tiny = translator(name)
    asked = [{"type": "translate", "source": source} for source in SOURCES]
    looked = {"type": "inspect", "source": SOURCES[0], "target": TARGET}
    looked |= {"names": ["encoder", "decoder", "output"]}
    *found, values = node.results(tiny, *asked, looked)
    node.assert_greedy(tiny, SOURCES, found)
    node.assert_close(values, node.values_of(tiny.transformer, SOURCES[0], TARGET))


@pytest.fixture(scope="module")
def soon_ending():
    """A translator whose end token is often the likeliest."""
    tiny = node.new_tiny(norm="pre", num_layers=1)
    bias = tiny.transformer.final_layer.bias
    bias.assign(np.array(bias) + 2 * (np.arange(bias.shape[0]) == END_ID))
    return tiny


def test_one_beam_is_greedy(soon_ending):
    asked = [{"type": name, "source": SOURCES[0]} for name in ("translate", "beam")]
    greedy, beam = node.results(soon_ending, *(x | {"beams": 1} for x in asked))
    assert greedy["ids"][-1] == END_ID and len(greedy["ids"]) < 8
    (hypothesis,) = beam["hypotheses"]
    assert hypothesis["ids"] == greedy["ids"]
    assert_allclose(hypothesis["score"], np.mean(greedy["scores"]))


def test_an_empty_source_has_an_empty_translation(switched):
    asked = [{"type": name, "source": [END_ID]} for name in ("translate", "beam")]
    greedy, beam = node.results(switched, *asked)
    assert greedy["ids"] == greedy["scores"] == [] and greedy["translation"] == ""
    assert [(x["ids"], x["rank"]) for x in beam["hypotheses"]] == [([], 0)]


@pytest.mark.parametrize(("penalty", "n_best"), [(None, 4), (0.0, 1), (1.5, 2)])
def test_beams_are_python_s(penalty, n_best, soon_ending):
    options = DecodingOptions(beam_size=4, n_best=n_best, length_penalty=penalty)
    found = decode(soon_ending.transformer, node.padded(SOURCES), options)
    asked = {"type": "beam", "beams": 4, "nBest": n_best, "lengthPenalty": penalty}
    # What is kept of a search with other options changes nothing.
    other = asked | {"source": SOURCES[0], "beams": 5, "lengthPenalty": 0.7}
    asked = [asked | {"source": source} for source in SOURCES]
    _, *answers, again = node.results(soon_ending, other, *asked, asked[0])
    assert again == answers[0]
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


def rounded(matrix, bits):
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
            part["embedding"] = rounded(part["embedding"].T, bits).T
        groups = [*every_attention(weights)]
        for stack in ("encoder", "decoder"):
            groups += [layer["feed_forward"] for layer in weights[stack]["layers"]]
        for group in [*groups, weights["output"]]:
            for name, value in group.items():
                if value.ndim > 1:
                    group[name] = rounded(value, bits)

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
def test_each_switch_breaks_what_it_says(name, switched, monkeypatch):
    switches, change = BROKEN[name]
    source = {"source": SOURCES[0], "switches": switches}
    steps = {"type": "translate", **source, "forced": TARGET}
    whole = {"type": "inspect", **source, "target": TARGET, "names": ["output"]}
    intact = whole | {"switches": {}}
    found, whole, intact = node.results(switched, steps, whole, intact)
    weights = copy.deepcopy(oracle.transformer_weights(switched.transformer))
    change(weights, monkeypatch)
    inputs = np.array([SOURCES[0]]), np.array([[START_ID, *TARGET]])
    logits, _ = numpy_version.transformer(*inputs, weights, 4, "pre")
    expected = logits[0, -1]
    node.assert_close(whole, {"output/logits": expected})
    # Steps with the cache give the same as one pass over all positions.
    written = found["parts"][0]["steps"][len(TARGET)]
    assert written["id"] == END_ID + expected[END_ID:].argmax()
    assert_allclose(written["logit"], expected[END_ID:].max(), rtol=1e-4)
    score = numpy_version.log_softmax(expected)[written["id"]]
    assert_allclose(written["score"], score, rtol=1e-4)
    difference = np.abs(node.array(intact["output/logits"]) - expected).max()
    assert difference > 1e-3 * np.abs(expected).max()


def test_padding_is_hidden_until_the_switch_shows_it(switched):
    asked = {"type": "translate", "source": SOURCES[0]}
    intact, hidden, shown = node.results(
        switched,
        asked,
        asked | {"switches": {"pads": 2}},
        asked | {"switches": {"pads": 2, "paddingMask": False}},
    )
    assert hidden["ids"] == intact["ids"]
    assert_allclose(hidden["scores"], intact["scores"], rtol=1e-6)
    source = np.array([[*SOURCES[0], *[0] * 2]])
    written = np.array([[START_ID, *shown["ids"][:-1]]])
    logits = switched.transformer(
        (source, written), source_mask=np.ones_like(source, "bool")
    )
    log_p = numpy_version.log_softmax(logits)[0]
    scores = log_p[np.arange(len(log_p)), shown["ids"]]
    assert_allclose(shown["scores"], scores, atol=1e-5)


def test_the_temperature_of_the_next_token_changes_its_probability_alone(switched):
    asked = {"type": "translate", "source": SOURCES[0]}
    intact, flat = node.results(
        switched, asked, asked | {"switches": {"outputTemperature": 2}}
    )
    assert flat["ids"] == intact["ids"] and flat["scores"] < intact["scores"]
