// Section 4: the decoder, a step at a time.

import { latest } from "./client.js";
import { chips, choice, counted, element, grid, heatmap, links } from "./drawing.js";
import { number, percent, picture, refill, slider, spell } from "./drawing.js";
import { rowsOf } from "./panel.js";
import { isChosen } from "./type.js";

// What each layer is asked for.
const NAMES = ["cross_attention/weights", "self_attention/weights"];
NAMES.push("self_attention/key", "self_attention/value");

const ATTENTION =
  "To choose, the decoder looks back at the source. Its heads are small readers. At each step, a " +
  "head gives each source token a weight, and the weights sum to 100%. Click a row to choose a " +
  "head.";
const MASK =
  "Each layer has other heads that read the translation so far. The causal mask hides later tokens " +
  "(grey), which are not written yet. Each step adds a row.";
const CACHE =
  "In these heads, each token has a key, by which others find it, and a value, which they take from " +
  "it. Both stay the same in later steps. So the model keeps them in the KV cache, and each step " +
  "computes one new row: the last one.";

export function mountDecoder(section, page) {
  const { num_heads, num_layers, num_decoder_layers: decoderLayers } = page.settings;
  const layers = decoderLayers ?? num_layers;
  const controls = makeControls(page, layers, num_heads);
  const result = element("p", { class: "result", "aria-live": "polite" });
  const written = element("div");
  const likely = picture("The ten likeliest next tokens", "next-tokens");
  const reads = picture(
    "Which source tokens does this step read?",
    "cross-attention",
    element("p", {}, ATTENTION),
    element("p", { class: "controls" }, controls.layer.node, controls.head.node),
  );
  const own = "Which of its own tokens does it read?";
  const mask = picture(own, "causal-mask", element("p", {}, MASK));
  const kept = "What does the model keep for the next step?";
  const cache = picture(kept, "kv-cache", element("p", {}, CACHE));
  const pictures = [likely, reads, mask, cache].map(({ node }) => node);
  section.append(
    element("p", { class: "controls sticky" }, controls.step.node),
    result,
    written,
    element("div", { class: "decoder-pictures" }, pictures),
  );
  const ask = latest(page.tfxformer.inspect);
  let found = {}; // what the model has computed for a walk
  return {
    uses: ["step", "decoderLayer", "decoderHead"],
    async show(state, walk) {
      controls.step.set(state.step + 1, walk.steps.length);
      controls.layer.set(state.decoderLayer);
      controls.head.set(state.decoderHead);
      result.textContent = walk.translation;
      refill(written, writtenSoFar(state, walk, page));
      refill(likely.body, candidates(state, walk, page));
      if (found.walk !== walk) {
        const values = await ask(request(walk, layers));
        if (!values) return;
        found = { walk, values };
      }
      const { values } = found;
      const shown = { state, walk, values, page, layers };
      refill(reads.body, crossAttention(shown));
      refill(mask.body, causalMask(shown));
      refill(cache.body, keyValueCache(shown));
    },
  };
}

function makeControls(page, layers, heads) {
  const step = slider({
    label: "Step",
    min: 1,
    onInput: (step) => page.update({ step: step - 1 }),
  });
  const layer = choice({
    label: "Layer of the decoder",
    options: counted(layers),
    onInput: (decoderLayer) => page.update({ decoderLayer }),
  });
  const head = choice({
    label: "Head",
    options: counted(heads),
    onInput: (decoderHead) => page.update({ decoderHead }),
  });
  return { step, layer, head };
}

// All steps at once: what the model reads at step t are the tokens before it.
function request(walk, layers) {
  const parts = Array.from({ length: layers }, (_, layer) => `decoder/layer_${layer}`);
  const names = parts.flatMap((part) => NAMES.map((name) => `${part}/${name}`));
  return { source: walk.source, target: walk.ids.slice(0, -1), names };
}

const read = (walk) => ["<s>", ...walk.tokens.slice(0, -1)].map(spell);

// ---- The tokens

function writtenSoFar({ step, forced }, walk, page) {
  const place = (token) => (token > step ? "later" : "");
  const row = chips(walk.tokens, {
    chosen: step,
    classes: walk.steps.map((one, token) => `${place(token)} ${isChosen(one) ? "forced" : ""}`),
    onPick: (step) => page.update({ step }),
    pickLabel: (token) => `Step ${token + 1}`,
  });
  return [row, ...(forced.length ? [yourChoice(walk, page)] : [])];
}

// What the reader has chosen, and the way back.
function yourChoice({ steps }, page) {
  const texts = steps.flatMap((step, place) => {
    const own = spell(step.candidates[0].token);
    return isChosen(step)
      ? [`In step ${place + 1} you chose ${spell(step.token)} instead of ${own}. `]
      : [];
  });
  const button = element("button", { onclick: () => page.update({ forced: [] }) }, "Undo");
  return element("p", { class: "note" }, texts.join(""), button);
}

function candidates({ step }, walk, page) {
  const { id: written, candidates } = walk.steps[step];
  const choose = (id) => page.update({ forced: [...walk.ids.slice(0, step), id] });
  const most = candidates[0].probability;
  const row = ({ id, token, logit, probability }) => {
    const bar = element("span", { class: "bar", style: `width: ${(100 * probability) / most}%` });
    const attributes = { class: "candidate", "aria-pressed": String(id === written) };
    const label = `${spell(token)}, probability ${percent(probability)}, logit ${number(logit)}`;
    return element(
      "button",
      { ...attributes, "aria-label": label, onclick: () => id !== written && choose(id) },
      element("span", { class: "token" }, spell(token)),
      element("span", { class: "track" }, bar),
      element("span", { class: "number" }, percent(probability)),
      element("span", { class: "number" }, number(logit)),
    );
  };
  const titles = ["token", "", "probability", "logit"].map((text) => element("span", {}, text));
  const head = element("div", { class: "candidate head" }, titles);
  return [
    element("div", { class: "candidates" }, head, candidates.map(row)),
    arithmetic(walk.steps[step], page),
  ];
}

// The softmax of the written token with its numbers.
function arithmetic({ token, logit, probability }, page) {
  const power = Math.exp(logit);
  const round = (v) => v.toLocaleString("en", { maximumSignificantDigits: 3 });
  const [own, sum] = [power, power / probability].map(round);
  const text =
    `The softmax for ${spell(token)}: e to the power of its logit is ${own}. The sum of such ` +
    `powers over all ${page.settings.target_vocab_size.toLocaleString("en")} tokens is ${sum}. ` +
    `The probability is ${own} ÷ ${sum} = ${percent(probability)}.`;
  return element("p", { class: "note" }, text);
}

// ---- Attention

function crossAttention({ state, walk, values, page, layers }) {
  const { step, decoderLayer, decoderHead } = state;
  const heads = page.settings.num_heads;
  const weights = (layer, head) =>
    rowsOf(values[`decoder/layer_${layer}/cross_attention/weights`], head)[step];
  const all = Array.from({ length: layers * heads }, (_, row) =>
    weights(Math.floor(row / heads), row % heads),
  );
  const rows = all.map(
    (_, row) => `layer ${Math.floor(row / heads) + 1}, head ${(row % heads) + 1}`,
  );
  const source = walk.sourceTokens.map(spell);
  const tell = element("p", { class: "note", "aria-live": "polite" }, "\u00a0");
  const map = grid({
    rows,
    columns: source,
    value: (row, column) => all[row][column],
    label: "Weights of each head for each source token",
    chosen: { row: decoderLayer * heads + decoderHead },
    onPoint(row, column) {
      tell.textContent = `${rows[row]} reads ${source[column]}: ${percent(all[row][column])}`;
    },
    onPick: (row) =>
      page.update({ decoderLayer: Math.floor(row / heads), decoderHead: row % heads }),
  });
  const written = spell(walk.tokens[step]);
  const chosen = weights(decoderLayer, decoderHead);
  const most = chosen.indexOf(Math.max(...chosen));
  const lines = links({
    left: read(walk).slice(0, step + 1),
    right: source,
    weights: chosen,
    chosen: step,
    label: `To write ${written}, this head reads mostly ${source[most]}`,
  });
  const sentence =
    `In step ${step + 1} the decoder has read ${read(walk)[step]} and writes ${written}. ` +
    `Head ${decoderHead + 1} of layer ${decoderLayer + 1} reads ${source[most]} most.`;
  return [
    element("p", {}, sentence),
    element("div", { class: "beside" }, element("div", {}, map.node, tell), lines),
  ];
}

function causalMask({ state, walk, values }) {
  const { step, decoderLayer, decoderHead } = state;
  const name = `decoder/layer_${decoderLayer}/self_attention/weights`;
  const weights = rowsOf(values[name], decoderHead);
  const tokens = read(walk);
  const tell = element("p", { class: "note", "aria-live": "polite" }, "\u00a0");
  const map = grid({
    rows: tokens,
    columns: tokens,
    value: (row, column) => (column > row ? null : row > step ? 0 : weights[row][column]),
    label: "Weights of this head for the tokens written so far",
    chosen: { row: step },
    onPoint(row, column) {
      const share = percent(weights[row][column]);
      tell.textContent =
        column > row
          ? `${tokens[row]} may not read ${tokens[column]}: it comes later`
          : `${tokens[row]} reads ${tokens[column]}: ${share}`;
    },
  });
  return [map.node, tell];
}

// ---- The KV cache

function keyValueCache({ state, walk, values, page }) {
  const { step, decoderLayer, decoderHead } = state;
  const size = page.settings.d_model / page.settings.num_heads;
  const kept = (name) => {
    const rows = rowsOf(values[`decoder/layer_${decoderLayer}/self_attention/${name}`]);
    const units = [decoderHead * size, (decoderHead + 1) * size];
    return rows.slice(0, step + 1).map((row) => row.subarray(...units));
  };
  const columns = ["key", "value"].map((name) => {
    const label = `The ${name}s of ${step + 1} tokens, ${size} numbers each`;
    const map = heatmap(kept(name), { label, className: "cache" });
    map.style.height = `${20 * (step + 1)}px`;
    const open = () =>
      page.open({ name: `decoder/layer_${decoderLayer}/self_attention/${name}`, row: step });
    const button = element(
      "button",
      { class: "open", "aria-label": `${label}: open`, onclick: open },
      map,
    );
    return element("div", {}, element("div", { class: "title" }, `${name}s`), button);
  });
  const token = (text, place) =>
    element("div", { class: place > step ? "later" : place === step ? "now" : null }, text);
  const names = element("div", { class: "names" }, read(walk).map(token));
  return [element("div", { class: "key-value" }, names, columns)];
}
