"""Runs the page's JavaScript in Node, and models for it."""

import base64
import functools
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import numpy_transformer as numpy_version
import oracle
import pytest
from numpy.testing import assert_allclose

from tfxformer import Tokenizer, Translator
from tfxformer.decoding import DecodingOptions, length_limit
from tfxformer.page import model_parts
from tfxformer.special_tokens import END_ID, START_ID

PAGE = Path(__file__).parent.parent / "tfxformer" / "page"
# Runs one script after the other: a line of JSON has a script and what it is given. The
# last line of an answer says how it ended.
SERVER = """
import { createInterface } from "node:readline";
const print = (line) => process.stdout.write(line + "\\n");
const AsyncFunction = (async () => {}).constructor;
let number = 0;
for await (const line of createInterface({ input: process.stdin })) {
  const [page, script, given] = JSON.parse(line);
  const names = ["page", "number", "given", "print"];
  try {
    await new AsyncFunction(...names, script)(page, number++, given, print);
    print("ended");
  } catch (error) {
    print("ended: " + error.stack.replaceAll("\\n", " "));
  }
}
"""
# worker.js, which has kept nothing, with a page that posts one request after the other.
WORKER = """
let answer;
globalThis.self = { postMessage: (message) => answer(message) };
await import(page + "worker.js?" + number);
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


@functools.cache
def server():
    """A process of Node, which ends when its input does: with the tests."""
    program = shutil.which("node") or pytest.skip("node is missing")
    return subprocess.Popen(
        [program, "--input-type=module", "-e", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )


def run(script, given):
    """Runs a script with `given` from JSON; it prints lines of JSON by `print`."""
    node, lines = server(), []
    node.stdin.write(json.dumps([PAGE.as_uri() + "/", script, given]) + "\n")
    node.stdin.flush()
    for line in node.stdout:
        if line.startswith("ended"):
            assert line == "ended\n"
            return lines
        lines.append(json.loads(line))
    raise AssertionError("node has ended")


def ask(translator, *requests):
    """The worker's answers to some requests about a model."""
    model, weights = model_parts(translator, "tiny")
    return ask_worker(model, base64.b64encode(weights).decode(), requests)


def ask_worker(model, weights, requests):
    load = {"type": "load", "model": model, "weights": weights}
    loaded, *answers = run(WORKER, [load, *requests])
    assert "error" not in loaded, loaded
    return answers


def ask_page(html, *requests):
    """The answers of a page's own worker, with what is in its file."""
    parts = dict(re.findall(r'<script id="(model|weights)"[^>]*>([^<]*)<', html))
    return ask_worker(json.loads(parts["model"]), parts["weights"].strip(), requests)


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


def new_tiny(target=None, seed=0, **options):
    """A translator with random weights, rounded to what a page holds."""
    source = tokenizer()
    both = source if target is None else Tokenizer(source.model, target)
    sizes = {"input_vocab_size": source.vocab_size, "max_length": 8}
    sizes |= {"target_vocab_size": both.target.vocab_size}
    transformer = oracle.tiny_transformer(seed, **{**sizes, **options})
    return rounded(Translator(both, transformer))


tiny = functools.cache(new_tiny)  # for tests that leave it as it is


def rounded(translator):
    """The translator, its matrices rounded to float16, as a page has them."""
    for weight in translator.transformer.weights:
        if len(weight.shape) > 1:
            weight.assign(np.array(weight, "float16").astype("float32"))
    translator.fold_weights()
    return translator


def assert_greedy(translator, sources, answers):
    """Each token of a translation is the likeliest after those before it."""
    options, longest = DecodingOptions(), translator.max_length
    limits = np.asarray(length_limit(padded(sources), options, longest))
    starts = padded([[START_ID, *answer["ids"][:-1]] for answer in answers])
    logits = np.asarray(translator.transformer((padded(sources), starts)))
    log_p = numpy_version.log_softmax(logits)  # (batch, target, vocabulary)
    for answer, row, limit in zip(answers, log_p, limits, strict=True):
        ids, places = answer["ids"], np.arange(len(answer["ids"]))
        best = END_ID + row[: len(ids), END_ID:].argmax(-1)
        assert ids == best.tolist()
        assert END_ID not in ids[:-1]
        assert len(ids) == limit or (ids[-1] == END_ID and len(ids) < limit)
        assert_allclose(answer["scores"], row[places, ids], atol=1e-4)
        assert answer["tokens"] == translator.tokenizer.target.tokens(ids)
        assert answer["translation"] == translator.tokenizer.target.decode([ids])[0]


def padded(rows):
    width = max(map(len, rows))
    return np.array([row + [0] * (width - len(row)) for row in rows], "int32")


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
