"""worker.js: what it answers, apart from the model's own numbers."""

import base64

import node
import numpy as np
import pytest

from tfxformer.decoding import DecodingOptions
from tfxformer.page import model_parts
from tfxformer.special_tokens import END_ID
from tfxformer.translator import Translator

TEXT = " O gato bebe.  A casa é azul!\n"


@pytest.fixture(scope="module")
def tiny():
    tiny = node.tiny(max_length=24)
    return Translator(tiny.tokenizer, tiny.transformer, DecodingOptions(max_length=24))


def test_a_text_of_several_sentences(tiny):
    tokenized, answer = node.ask(
        tiny, {"type": "tokenize", "text": TEXT}, {"type": "translate", "text": TEXT}
    )
    pieces = tiny.parts(TEXT)
    parts, space = tokenized["result"]["parts"], tokenized["result"]["space"]
    assert [piece for x in parts for piece in (x["space"], x["text"])] == pieces[:-1]
    assert space == pieces[-1]
    for part in parts:
        assert part["source"] == [*tiny.tokenizer.encode([part["text"]])[0], END_ID]
        assert part["sourceTokens"] == tiny.tokenizer.tokens(part["source"])
    found = answer["result"]
    translations = pieces[:]
    translations[1::2] = [part["translation"] for part in found["parts"]]
    assert found["translation"] == "".join(translations)
    assert found["ids"] == [id for part in found["parts"] for id in part["ids"]]
    assert len(found["ids"]) == len(found["tokens"]) == len(found["scores"])
    assert [x["source"] for x in found["parts"]] == [x["source"] for x in parts]
    steps = [step for part in found["parts"] for step in part["steps"]]
    assert [event["step"] for event in answer["events"]] == steps
    assert [event["part"] for event in answer["events"]] == [
        number for number, part in enumerate(found["parts"]) for _ in part["ids"]
    ]
    for step, score in zip(steps, found["scores"], strict=True):
        likely = step["candidates"]
        assert len(likely) == 10 and likely[0]["id"] == step["id"]
        logits = [token["logit"] for token in likely]
        assert logits == sorted(logits, reverse=True)
        assert step["probability"] == pytest.approx(np.exp(score), rel=1e-4)


def test_another_token_is_chosen_and_the_translation_goes_on(tiny):
    asked = {"type": "translate", "text": "O gato bebe."}
    (found,) = node.results(tiny, asked)
    step = found["parts"][0]["steps"][2]
    forced = [*found["ids"][:2], step["candidates"][4]["id"]]
    (other,) = node.results(tiny, asked | {"forced": forced})
    steps = other["parts"][0]["steps"]
    assert other["ids"][:3] == forced and other["ids"] != found["ids"]
    assert steps[2]["probability"] == step["candidates"][4]["probability"]
    # The rest is the model's own choice after these tokens.
    source = found["parts"][0]["source"]
    (values,) = node.results(
        tiny,
        {"type": "inspect", "source": source, "target": forced, "names": ["output"]},
    )
    logits = node.array(values["output/logits"])
    assert other["ids"][3] == END_ID + logits[END_ID:].argmax()


def test_later_tokens_do_not_change_the_values_of_earlier_ones(tiny):
    (found,) = node.results(tiny, {"type": "translate", "text": "O gato bebe."})
    source, target = found["parts"][0]["source"], found["ids"]
    asked = {"type": "inspect", "source": source, "names": ["decoder"]}
    *answers, whole = node.results(
        tiny, *(asked | {"target": target[:step]} for step in (4, 0, 1, 6))
    )
    for step, values in zip((4, 0, 1), answers, strict=True):
        for name in ("output", "layer_1/ffn/hidden", "layer_0/self_attention/key"):
            rows = node.array(whole[f"decoder/{name}"])[: step + 1]
            found = node.array(values[f"decoder/{name}"])
            np.testing.assert_allclose(found, rows, atol=1e-5)
        weights = node.array(values["decoder/layer_0/self_attention/weights"])
        assert weights.shape == (4, step + 1, step + 1)


def test_every_value_has_a_name(tiny):
    asked = {"type": "inspect", "source": [7, 8, END_ID], "target": [5], "names": [""]}
    (values,) = node.results(tiny, asked)
    shapes = {name: tensor["shape"] for name, tensor in values.items()}
    attention = {name: [3, 16] for name in ("query", "key", "value", "concatenation")}
    attention |= {"output": [3, 16], "scores": [4, 3, 3], "weights": [4, 3, 3]}
    around = {name: [3, 16] for name in ("x", "input", "sum", "result")}
    feed_forward = {"hidden": [3, 32], "output": [3, 16]}
    expected = {"encoder/stream": [3, 16], "encoder/output": [3, 16]}
    for name in ("embedding", "positions", "output"):
        expected[f"encoder/embedding/{name}"] = [3, 16]
    for layer in range(2):
        for part, own in (("self_attention", attention), ("ffn", feed_forward)):
            for name, shape in (around | own).items():
                expected[f"encoder/layer_{layer}/{part}/{name}"] = shape
    assert {x: y for x, y in shapes.items() if x.startswith("encoder")} == expected
    cross = "decoder/layer_1/cross_attention"
    assert shapes[f"{cross}/weights"] == [4, 2, 3] and shapes[f"{cross}/key"] == [3, 16]
    assert shapes["output/logits"] == [tiny.tokenizer.vocab_size]


def test_the_model_s_own_numbers_have_the_names_of_python(tiny):
    model, _ = model_parts(tiny, "tiny")
    names = [weight["name"] for weight in model["weights"]]
    (found,) = node.results(tiny, {"type": "weights", "names": [*names, "encoder/no"]})
    assert list(found) == names
    for weight in tiny.transformer.weights:
        name = weight.path.partition("/")[2]
        value = np.array(weight)
        if name.endswith("kernel"):
            value = value.T
        np.testing.assert_array_equal(node.array(found[name]), value)


def test_an_empty_text_is_empty(tiny):
    for text in ("", "  ", "\u200b"):
        (found,) = node.results(tiny, {"type": "translate", "text": text})
        assert found["translation"] == text.replace("\u200b", "") and not found["ids"]


def test_what_is_wrong_is_told(tiny):
    long, unknown = node.ask(
        tiny,
        {"type": "translate", "text": "a" * 2001},
        {"type": "beam", "source": None},
    )
    assert long["error"] == "That is 2001 characters, and this page takes 2000."
    assert unknown["error"]


@pytest.mark.parametrize("missing", [1000, 1001, 1002, 1003])  # base64 has groups of 4
def test_missing_weights_are_told(tiny, missing):
    model, weights = model_parts(tiny, "tiny")
    weights = base64.b64encode(weights).decode()[:-missing]
    load = {"type": "load", "model": model, "weights": weights}
    ((answer),) = node.run(node.WORKER, [load])
    assert answer["error"].startswith("This file is incomplete")
