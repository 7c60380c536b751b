// Runs the model beside the page, so that the page never freezes.
//
// The page talks to it through client.js, which posts `{ id, type, ...request }` and gets
// `{ id, result }`, `{ id, error }` (a sentence for the reader), or, while a
// translation grows, `{ id, event }`. No request depends on an earlier one: each names
// its source, what is written so far, and the switches (INTACT in model.js) that it
// breaks.
//
//   load { model, weights }: what __init__.py writes; weights in base64
//     -> { name, settings, notebooks }: the last is their address, if there is one
//   tokenize { text }
//     -> { parts: [{ space, text, source, sourceTokens }], space }: sentences as Translator
//        splits them, each with the white space before it; ids end with the end token
//   translate { text | source, forced, switches }: a text, or one sentence's ids; `forced`
//     has the first ids of the translation (of its first sentence)
//     -> { translation, ids, tokens, scores, parts: [the same for each sentence, and
//        text, source, sourceTokens, steps] }; ids end with the end token, scores are
//        log-probabilities
//     event: { part, step, translation }, for each token as it is written; a step is
//        { id, token, score, probability, logit, candidates: [{ id, token, logit,
//        probability }] }, the ten likeliest first
//   cancel { request }: stops the translation with this id, which ends with an error
//   inspect { source, target, names, switches }: the values whose names begin with one of
//     `names`; `target` has the ids written so far
//     -> { name: { shape, data } }, row after row. Under encoder/ and decoder/:
//        embedding/{embedding,positions,output}, stream and output (of the stack);
//        layer_N/{self_attention,cross_attention,ffn}/: x, input, sum, result (length,
//        d_model); of attention: query, key, value, concatenation, output (length, d_model; head
//        beside head), scores (q·k, scaled, before the mask) and weights (heads, target,
//        source); of ffn: hidden (length, dff), output. And output/logits and
//        output/probabilities (vocab), of the token after target.
//        The decoder's self_attention/key and value are the KV cache.
//   weights { names } -> { name: { shape, data } }: the model's own numbers, by their names
//     in Python, such as encoder/layer_0/ffn/hidden/kernel; what a model lacks is left out.
//     Each row of a projection's matrix makes one unit
//   beam { source, beams, nBest, lengthPenalty }
//     -> { hypotheses: [{ ids, tokens, translation, total, score, rank }], steps: [[{ parent,
//        id, token, total, state: "kept" | "finished" | "dropped", place }]] }; `parent`
//        and `place` number the hypotheses before and after the step

import { INTACT, Transformer, likeliest } from "./model.js";
import { fromBase64, readWeights } from "./matrix.js";
import { partsOf } from "./sentences.js";
import { END_ID, START_ID, Tokenizer } from "./tokenizer.js";

const MOST_CHARACTERS = 2000; // a page is for sentences

let loaded = null; // what `load` read
const cancelled = new Set();
let searched = { key: "", known: new Map() }; // the last sentence of beam search

const requests = { load, tokenize, translate, inspect, weights, beam };

self.onmessage = async ({ data: { id, type, ...request } }) => {
  if (type === "cancel") return cancelled.add(request.request);
  try {
    const tell = (event) => self.postMessage({ id, event });
    const result = await requests[type](request, { tell, stopped: () => cancelled.has(id) });
    self.postMessage({ id, result });
  } catch (error) {
    self.postMessage({ id, error: error.message });
  }
  cancelled.delete(id);
};

function load({ model, weights }) {
  const groups = weights.length - (weights.length % 4); // the text may end early
  const bytes = fromBase64(weights.slice(0, groups));
  const needed = Math.max(...model.weights.map(({ shape, at }) => at + bytesOf(shape)));
  if (bytes.length < needed)
    throw Error("This file is incomplete: weights of the model are missing. Please get it again.");
  const source = new Tokenizer(model.tokenizer);
  const target = model.target ? new Tokenizer(model.target) : source;
  loaded = { ...model, buffer: bytes.buffer, source, target, byBits: new Map() };
  modelFor({});
  return { name: model.name, settings: model.settings, notebooks: model.notebooks };
}

const bytesOf = (shape) => (shape.length === 1 ? 4 * shape[0] : 2 * shape[0] * shape[1]);

function tokenize({ text }) {
  const parts = cut(text);
  const sentences = [];
  for (let place = 1; place < parts.length; place += 2) {
    const [space, text] = parts.slice(place - 1, place + 1);
    const source = sourceOf(text);
    sentences.push({ space, text, source, sourceTokens: loaded.source.tokens(source) });
  }
  return { parts: sentences, space: parts.at(-1) };
}

function cut(text) {
  const length = [...text].length;
  if (length > MOST_CHARACTERS)
    throw Error(`That is ${length} characters, and this page takes ${MOST_CHARACTERS}.`);
  const count = (part) => loaded.source.encode(part).length;
  return partsOf(text.replace(/\p{Cs}/gu, " "), count, loaded.settings.max_length - 1);
}

// A sentence's ids for the encoder.
function sourceOf(text) {
  const ids = loaded.source.encode(text);
  return [...ids.slice(0, loaded.settings.max_length - 1), END_ID];
}

async function translate({ text, source, forced = [], switches }, { tell, stopped }) {
  const pieces = source ? ["", "", ""] : cut(text);
  const parts = [];
  let translation = pieces[0];
  for (let place = 1; place < pieces.length; place += 2) {
    const ids = source ?? sourceOf(pieces[place]);
    const steps = [];
    const written = () => loaded.target.decode(steps.map(({ id }) => id));
    for (const step of stepsOf(ids, place === 1 ? forced : [], switches)) {
      steps.push(step);
      // A character of several tokens stays hidden until it is complete.
      const shown = translation + written().replace(/\ufffd+$/, "");
      tell({ part: parts.length, step, translation: shown });
      await turn();
      if (stopped()) throw Error("The translation was stopped.");
    }
    parts.push({
      text: pieces[place],
      source: ids,
      sourceTokens: loaded.source.tokens(ids),
      translation: written(),
      ...gather(steps),
      steps,
    });
    translation += written() + pieces[place + 1];
  }
  return { translation, ...gather(parts.flatMap(({ steps }) => steps)), parts };
}

const gather = (steps) => ({
  ids: steps.map(({ id }) => id),
  tokens: steps.map(({ token }) => token),
  scores: steps.map(({ score }) => score),
});

// Lets the worker read its messages.
function turn() {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });
}

function* stepsOf(source, forced, switches) {
  const model = modelFor(switches);
  const state = model.begin(source);
  // What is forced always gets one more token.
  const needed = Math.min(forced.length + 1, model.settings.max_length);
  if (state.limit) state.limit = Math.max(state.limit, needed);
  while (state.going) {
    const given = forced[state.ids.length - 1];
    const { id, score, logits } = model.step(state, given);
    const about = (other) => ({
      id: other,
      token: loaded.target.tokens([other])[0],
      logit: logits[other],
      probability: Math.exp(score + logits[other] - logits[id]),
    });
    yield { ...about(id), score, candidates: likeliest(logits, 10).map(about) };
  }
}

// The values by name, as the model notes them.
function inspect({ source, target = [], names, switches }) {
  const model = modelFor(switches);
  const found = {};
  model.note = (path, values) => {
    for (const [name, value] of Object.entries(values)) found[`${path}/${name}`] = value;
  };
  model.decodeStep([START_ID, ...target], model.encode(source), model.emptyCache(), 0);
  const asked = Object.keys(found).filter((name) => names.some((start) => name.startsWith(start)));
  return Object.fromEntries(asked.map((name) => [name, flat(found[name])]));
}

function weights({ names }) {
  const all = modelFor({}).weights;
  const found = names.map((name) => [name, name.split("/").reduce((x, part) => x?.[part], all)]);
  const known = found.filter(([, value]) => value);
  const plain = (value) => ({ shape: value.shape ?? [value.length], data: value.data ?? value });
  return Object.fromEntries(known.map(([name, value]) => [name, plain(value)]));
}

// Rows in rows as one array, and its shape.
function flat(value) {
  if (value instanceof Float32Array) return { shape: [value.length], data: value };
  const parts = value.map(flat);
  const size = parts[0]?.data.length ?? 0;
  const data = new Float32Array(parts.length * size);
  parts.forEach((part, i) => data.set(part.data, i * size));
  return { shape: [parts.length, ...(parts[0]?.shape ?? [])], data };
}

function beam({ source, beams, nBest, lengthPenalty }) {
  const model = modelFor({});
  const key = source.join();
  if (searched.key !== key) searched = { key, known: new Map() };
  const token = (id) => loaded.target.tokens([id])[0];
  const options = { beams, nBest, lengthPenalty, known: searched.known };
  const { hypotheses, steps } = model.beamSearch(source, options);
  const finished = hypotheses.map((hypothesis) => ({
    ...hypothesis,
    tokens: hypothesis.ids.map(token),
    translation: loaded.target.decode(hypothesis.ids),
  }));
  const spelt = (step) => step.map((one) => ({ ...one, token: token(one.id) }));
  return { hypotheses: finished, steps: steps.map(spelt) };
}

function modelFor(switches) {
  const { bits } = { ...INTACT, ...switches };
  const { byBits, settings } = loaded;
  if (!byBits.has(bits)) {
    if (byBits.size > 1) byBits.delete([...byBits.keys()].at(-1)); // besides the intact ones
    byBits.set(bits, readWeights(loaded.weights, loaded.buffer, bits));
  }
  return new Transformer(settings, byBits.get(bits), switches);
}
