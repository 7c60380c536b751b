// What the reader sees: the state, the address that keeps it, and the views that show it.
//
// What a view and this file promise each other:
//
// - A view's file exports `mountX(section, page)`. It builds its elements once, inside its
//   section of page.html (which already has the question and the introduction), and
//   returns `{ uses, show(state, walk) }`. `uses` names the fields of the state that it
//   shows.
// - `show` is called when the walk or one of these fields has changed, or the theme (so
//   that colours are drawn again). It is called only while the section is near the
//   window, and only with a walk: views need not ask.
// - `state` has the fields of INITIAL. `page.update({ layer: 2 })` changes some, keeps the
//   address, and shows. Numbers stay within their limits. Layers, heads, steps and tokens
//   count from 0 here, and from 1 in the address and for the reader.
// - `walk` is the translation of the sentence that the reader walks through: one of
//   `parts` in worker.js's `translate`. With `state.forced`, it begins with these ids.
//   `walk.values` are all its values, as of worker.js's `inspect`.
// - `page.settings` has the model's settings, and `decoderLayers`.
// - `page.open({ name, row, unit, head })` opens a value by its name in worker.js; the row is
//   a token of the source, or a step of the decoder.
// - `latest` in client.js makes requests that follow a slider.

import { tfxformer } from "./client.js";
import { spell } from "./drawing.js";
import { mountType, EXAMPLES } from "./type.js";
import { mountEmbedding } from "./embedding.js";
import { mountEncoder } from "./encoder.js";
import { mountDecoder } from "./decoder.js";
import { mountBeam } from "./beam.js";
import { mountBreak } from "./break.js";
import { mountDetails } from "./details.js";

const MOUNTS = {
  type: mountType,
  embedding: mountEmbedding,
  encoder: mountEncoder,
  decoder: mountDecoder,
  beam: mountBeam,
  break: mountBreak,
  details: mountDetails,
};

const INITIAL = {
  text: EXAMPLES[0],
  part: 0, // the sentence of the walk
  forced: [], // ids that the reader chose for the beginning of its translation
  token: 0, // of the source, in the sections on embedding and encoder
  column: -1, // the token that it reads in the large map; -1 is the one that it reads most
  position: 0, // that the reader drags
  layer: 1, // of the encoder: in the shipped model, the first head there reads the next token
  head: 0,
  step: 0, // of the decoder
  decoderLayer: 0,
  decoderHead: 0,
  beams: 4,
  penalty: null, // of length; null ranks by the mean
  broken: {}, // switches of model.js
  section: "", // that the address leads to
  value: {}, // that the panel shows: what `open` gets
};
// What begins anew with another text or sentence.
const OF_SENTENCE = { forced: [], token: 0, column: -1, position: 0, step: 0, value: {} };
const OF_TEXT = { part: 0, ...OF_SENTENCE };

// Names in the address, where they differ.
const NAMES = { part: "sentence", decoderLayer: "decoder-layer", decoderHead: "decoder-head" };
const COUNTED = ["part", "token", "column", "layer", "head", "step"];
COUNTED.push("decoderLayer", "decoderHead");

const status = document.getElementById("status");
const main = document.querySelector("main");
const page = { tfxformer, update, open };
const views = {};
let state = { ...INITIAL };
let walk = null;
let parts = []; // of the text: its sentences, translated or not yet
let stop = new AbortController();

const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

// ---- The address

function write() {
  const fields = new URLSearchParams();
  for (const [name, initial] of Object.entries(INITIAL)) {
    const value = state[name];
    if (name !== "text" && same(value, initial)) continue;
    const counted = COUNTED.includes(name) ? value + 1 : value;
    const text =
      Array.isArray(value) || typeof value !== "object" ? counted : JSON.stringify(value);
    fields.set(NAMES[name] ?? name, text);
  }
  history.replaceState(null, "", `#${fields}`);
}

// The state in an address. One without a text, as that of a link on this page, changes
// only what it names.
function read(address) {
  const fields = new URLSearchParams(new URL(address).hash.slice(1));
  const found = fields.has("text") ? { ...INITIAL } : {};
  for (const [name, initial] of Object.entries(INITIAL)) {
    const text = fields.get(NAMES[name] ?? name);
    const value = text === null ? undefined : parsed(text, initial);
    if (value !== undefined) found[name] = COUNTED.includes(name) ? value - 1 : value;
  }
  return found;
}

// A text as a value like `initial`, or undefined.
function parsed(text, initial) {
  if (typeof initial === "string") return text;
  if (Array.isArray(initial)) return text.split(",").map(Number).filter(Number.isInteger);
  try {
    const value = JSON.parse(text);
    const same = typeof value === (initial === null ? "number" : typeof initial);
    return same && value !== null && !Array.isArray(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

// ---- The state

let writing = null;

async function update(changes) {
  const before = state;
  const differs = (name) => name in changes && !same(changes[name], before[name]);
  const anew = differs("text") ? OF_TEXT : differs("part") ? OF_SENTENCE : {};
  const translated = ["text", "part", "forced"].some(differs);
  // Until the new translation is there, views show the old one.
  if (differs("text")) parts = [];
  if (translated) walk = null;
  state = withinLimits({ ...state, ...anew, ...changes });
  clearTimeout(writing); // browsers limit how often an address may change
  writing = setTimeout(write, 200);
  const ready = translated && translate();
  refresh((view) => view.uses.some((name) => !same(state[name], before[name])));
  await ready;
  if (changes.section) lead(changes.section);
}

// Leads the reader to a section. Those above it are drawn first: they change its place.
async function lead(id) {
  const place = Object.keys(views).indexOf(id);
  if (place < 0) return;
  const drawn = Object.values(views).slice(0, place + 1).map(showOne);
  const { section } = views[id];
  section.scrollIntoView();
  const heading = section.querySelector("h2");
  heading.tabIndex = -1;
  heading.focus({ preventScroll: true });
  const { scrollY } = window;
  await Promise.all(drawn);
  if (scrollY === window.scrollY) section.scrollIntoView(); // the reader has not left
}

function withinLimits(state) {
  const { num_layers, decoderLayers, num_heads, max_length, target_vocab_size } = page.settings;
  const counts = {
    layer: num_layers,
    head: num_heads,
    decoderLayer: decoderLayers,
    decoderHead: num_heads,
    position: max_length,
    part: parts.length || Infinity,
    token: walk?.source.length ?? Infinity,
    step: walk?.steps.length ?? Infinity,
  };
  const limited = { ...state };
  const within = (value, least, most) => Math.max(least, Math.min(most, Math.round(value)));
  for (const [name, count] of Object.entries(counts))
    limited[name] = within(state[name], 0, count - 1);
  limited.column = within(state.column, -1, counts.token - 1);
  limited.beams = within(state.beams, 1, 5);
  limited.forced = state.forced.filter((id) => id > 2 && id < target_vocab_size);
  return limited;
}

function open(value) {
  update({ value });
  openValue();
}

// Opens the value of the state. An address may have one that the model does not have.
function openValue() {
  const { name, ...at } = state.value;
  const known = walk && (name in walk.values || /^output\/(logits|probabilities)$/.test(name));
  const isPlace = (place) => Number.isInteger(place) && place >= 0;
  if (known && Object.values(at).every(isPlace)) views.details.open(state.value, walk);
  else state = { ...state, value: {} };
}

async function copyLink({ target }) {
  write();
  try {
    await navigator.clipboard.writeText(location.href);
    target.textContent = "Copied";
  } catch {
    target.textContent = "Copy the address above";
  }
  setTimeout(() => (target.textContent = "Copy link"), 3000);
}

// ---- The views

// Shows those views that `concerns` picks, and that the reader can see; others later.
function refresh(concerns = () => true) {
  for (const view of Object.values(views)) {
    view.stale ||= concerns(view);
    if (view.near) showOne(view);
  }
}

function showOne(view) {
  if (!view.stale || !walk) return;
  view.stale = false;
  view.section.classList.add("shown");
  view.section.dataset.facts = factsOf(view.section.id).join(", ");
  return view.show(state, walk);
}

// What the pictures of a section show, for the saved ones.
function factsOf(section) {
  const { token, column, position, layer, head, step, decoderLayer, decoderHead, beams } = state;
  const facts = {
    embedding: { token, position: position - 1 },
    encoder: { layer, head, token, ...(column >= 0 && { column }) },
    decoder: { step, layer: decoderLayer, head: decoderHead },
    beam: { width: beams - 1 },
  }[section];
  const word = (name, place) =>
    /^(token|column)$/.test(name) ? ` ${spell(walk.sourceTokens[place]).replace("▁", "")}` : "";
  return Object.entries(facts ?? {}).map(
    ([name, place]) => `${name} ${place + 1}${word(name, place)}`,
  );
}

async function mount() {
  const observer = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) {
        views[target.id].near = isIntersecting;
        if (isIntersecting) showOne(views[target.id]);
      }
    },
    { rootMargin: "300px" },
  );
  for (const [id, mountView] of Object.entries(MOUNTS)) {
    const section = document.getElementById(id);
    const view = await mountView(section, page);
    views[id] = { section, stale: true, near: false, ...view };
    observer.observe(section);
  }
  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", () => refresh());
}

// ---- The translation

// Translates the text, sentence by sentence. A new call stops the one before.
async function translate() {
  stop.abort();
  stop = new AbortController();
  const { signal } = stop;
  try {
    if (!parts.length) await cut(signal);
    if (signal.aborted) return;
    if (!parts.length) walkThrough(null);
    for (const [place, part] of parts.entries()) {
      const forced = place === state.part ? state.forced : [];
      if (!part.ids || !same(part.forced, forced)) await translatePart(part, forced, signal);
      if (place === state.part) await walkThrough(part.steps.length ? part : null, signal);
    }
    status.textContent = "";
  } catch (error) {
    if (signal.aborted) return;
    parts = [];
    views.type.begin(parts, "", state);
    walkThrough(null);
    status.textContent = error.message;
  }
}

// Cuts the text into sentences, and shows their tokens.
async function cut(signal) {
  const found = await tfxformer.tokenize({ text: state.text });
  if (signal.aborted) return;
  parts = found.parts;
  state = withinLimits(state);
  views.type.begin(parts, found.space, state);
}

async function translatePart(part, forced, signal) {
  const show = (changes) => {
    Object.assign(part, changes);
    views.type.grow(parts.indexOf(part));
  };
  const steps = [];
  show({ forced, steps, ids: null });
  const onEvent = ({ step, translation }) => {
    if (signal.aborted) return;
    steps.push(step);
    show({ translation });
  };
  const found = await tfxformer.translate("", { source: part.source, forced, signal, onEvent });
  show({ ...found.parts[0], text: part.text });
}

// Shows a translated part, or that there is none.
async function walkThrough(part, signal) {
  if (part) {
    const { source, ids } = part;
    const request = { source, target: ids.slice(0, -1), names: ["encoder", "decoder"] };
    part = { ...part, values: await tfxformer.inspect(request) };
    if (signal.aborted) return;
  }
  walk = part;
  main.dataset.sentence = walk?.text;
  main.classList.toggle("waiting", !walk);
  if (walk) state = withinLimits(state);
  refresh();
}

// The model in a sentence.
function about(name, settings) {
  const { num_layers, decoderLayers, num_heads, d_model, target_vocab_size } = settings;
  const layers = (count) => `${count} layer${count > 1 ? "s" : ""}`;
  return (
    `The model “${name}” has an encoder of ${layers(num_layers)}, each with ${num_heads} heads, and ` +
    `a decoder of ${layers(decoderLayers)}, each with ${num_heads} heads that read its own tokens ` +
    `and ${num_heads} that read the encoder’s. It holds each token as ${d_model} numbers, and can ` +
    `write ${target_vocab_size.toLocaleString("en")} different tokens.`
  );
}

async function start() {
  const { name, settings, notebooks } = await tfxformer.ready;
  const decoderLayers = settings.num_decoder_layers ?? settings.num_layers;
  page.settings = { ...settings, decoderLayers };
  page.notebooks = notebooks;
  document.getElementById("about").textContent = about(name, page.settings);
  await mount();
  document.getElementById("copy").addEventListener("click", copyLink);
  state = withinLimits({ ...INITIAL, ...read(location.href) });
  addEventListener("hashchange", ({ newURL }) => update(read(newURL)).then(openValue));
  await translate();
  await lead(state.section);
  openValue();
}

start().catch((error) => (status.textContent = error.message));
