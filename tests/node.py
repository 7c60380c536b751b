"""Runs the page's JavaScript in Node, and models for it."""

import base64
import functools
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import oracle
import pytest
from numpy.testing import assert_allclose

from tfxformer import Tokenizer, Translator
from tfxformer.page.packing import model_parts
from tfxformer.special_tokens import START_ID

PAGE = Path(__file__).parent.parent / "tfxformer" / "page"
# worker.js with a page that posts one request after the other.
WORKER = """
let answer;
globalThis.self = { postMessage: (message) => answer(message) };
await import(page + "worker.js");
const plain = (_, value) => (value instanceof Float32Array ? [...value] : value);
for (const [id, request] of given.entries()) {
  const events = [];
  const message = await new Promise((resolve) => {
    answer = (message) => {
      if (message.event) events.push(message.event);
      else resolve(message);
    };
    self.onmessage({ data: { id, ...request } });
  });
  print(JSON.stringify({ ...message, events }, plain));
}
"""


def run(script, given):
    """Runs a module with `given` from JSON; it prints lines of JSON by `print`."""
    program = shutil.which("node") or pytest.skip("node is missing")
    head = f"""
        import {{ readFileSync }} from "node:fs";
        const page = {json.dumps(PAGE.as_uri() + "/")};
        const print = (line) => process.stdout.write(line + "\\n");
        const given = JSON.parse(readFileSync(0, "utf-8"));
    """
    command = [program, "--input-type=module", "-e", head + script]
    ended = subprocess.run(
        command, input=json.dumps(given), capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.split("\n") if line]


def ask(translator, *requests):
    """The worker's answers to some requests about a model."""
    model, weights = model_parts(translator, "tiny")
    weights = base64.b64encode(weights).decode()
    load = {"type": "load", "model": model, "weights": weights}
    loaded, *answers = run(WORKER, [load, *requests])
    assert "error" not in loaded, loaded
    return answers


def results(translator, *requests):
    """As `ask`: the results alone."""
    answers = ask(translator, *requests)
    assert not [answer for answer in answers if "error" in answer]
    return [answer["result"] for answer in answers]


def array(tensor):
    """A tensor of the worker as an array."""
    return np.array(tensor["data"], "float32").reshape(tensor["shape"])


@functools.cache
def tokenizer(**options):
    lines = ["O gato bebe leite.", "A Casa é azul", "ação e coração"] * 50
    return Tokenizer.train(lines, vocab_size=320, **options)


def tiny(target=None, seed=0, **options):
    """A translator with random weights, rounded to what a page holds."""
    source = tokenizer()
    both = source if target is None else Tokenizer(source.model, target)
    sizes = {"input_vocab_size": source.vocab_size, "max_length": 8}
    sizes |= {"target_vocab_size": both.target.vocab_size}
    transformer = oracle.tiny_transformer(seed, **{**sizes, **options})
    for weight in transformer.weights:
        if len(weight.shape) > 1:
            weight.assign(np.array(weight, "float16").astype("float32"))
    return Translator(both, transformer)


def values_of(model, source, target):
    """What Python's layers compute for a sentence, under the names of the page."""
    source, target_in = np.array([source]), np.array([[START_ID, *target]])
    values, context = {"output/logits": model((source, target_in))[0, -1]}, None
    x = model.encoder.pos_embedding(source)
    for stack, layers in (("encoder", "enc_layers"), ("decoder", "dec_layers")):
        for number, layer in enumerate(getattr(getattr(model, stack), layers)):
            if stack == "encoder":
                x = layer(x)
                parts = {"self_attention": layer.self_attention}
            else:
                x = layer(x, context)
                parts = {"self_attention": layer.causal_self_attention}
                parts |= {"cross_attention": layer.cross_attention}
            values[f"{stack}/layer_{number}/ffn/result"] = x[0]
            for name, part in parts.items():
                weights = part.last_attn_scores[0]
                values[f"{stack}/layer_{number}/{name}/weights"] = weights
        context = getattr(model, stack).final_norm(x)
        values[f"{stack}/output"] = context[0]
        x = model.decoder.pos_embedding(target_in)
    return values


def assert_close(found, values, rtol=1e-4):
    for name, value in values.items():
        value, theirs = np.asarray(value), array(found[name])
        if "weights" in name:
            assert_allclose(theirs, value, atol=1e-4, err_msg=name)
        else:  # the size of a difference is that of a row's largest value
            most = np.abs(value).max()
            assert_allclose(theirs, value, atol=rtol * most, rtol=0, err_msg=name)
