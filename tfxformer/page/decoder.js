// Section 4: the decoder, a step at a time.

import { chips, chooser, element, grid, links, percent } from "./drawing.js";
import { picture, precise, refill, SHARES, slider, spell, toldGrid } from "./drawing.js";
import { headOf, rowsOf } from "./matrix.js";
import { choiceNote, isChosen } from "./type.js";

const CACHED = [4, 22]; // the size of a number in the KV cache, in pixels

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
  const { num_heads, decoderLayers } = page.settings;
  const onInput = (step) => page.update({ step: step - 1 });
  const steps = slider({ label: "Step", min: 1, onInput });
  const layers = chooser("Layer of the decoder", decoderLayers, (decoderLayer) =>
    page.update({ decoderLayer }),
  );
  const heads = chooser("Head", num_heads, (decoderHead) => page.update({ decoderHead }));
  const choosers = element("p", { class: "controls" }, layers.node, heads.node);
  const result = element("p", { class: "result", "aria-live": "polite" });
  const written = element("div");
  const likely = picture("The ten likeliest next tokens", "next-tokens");
  const question = "Which source tokens does this step read?";
  const reads = picture(question, "cross-attention", ATTENTION, choosers);
  const mask = picture("Which of its own tokens does it read?", "causal-mask", MASK);
  const cache = picture("What does the model keep for the next step?", "kv-cache", CACHE);
  const pictures = [likely, reads, mask, cache].map(({ node }) => node);
  section.append(element("p", { class: "controls sticky" }, steps.node), result, written);
  section.append(element("div", { class: "decoder-pictures" }, pictures));
  return {
    uses: ["step", "decoderLayer", "decoderHead"],
    show(state, walk) {
      steps.set(state.step + 1, walk.steps.length);
      layers.set(state.decoderLayer);
      heads.set(state.decoderHead);
      result.textContent = walk.translation;
      refill(written, writtenSoFar(state, walk, page));
      refill(likely.body, candidates(state, walk, page));
      refill(reads.body, crossAttention(state, walk, page));
      refill(mask.body, causalMask(state, walk));
      refill(cache.body, keyValueCache(state, walk, page));
    },
  };
}

// What the decoder reads: at each step the token that it wrote before.
const read = (walk) => ["<s>", ...walk.tokens.slice(0, -1)].map(spell);

// ---- The tokens

function writtenSoFar({ step }, walk, page) {
  const place = (token) => (token > step ? "later" : "");
  const row = chips(walk.tokens, {
    chosen: step,
    classes: walk.steps.map((one, token) => `${place(token)} ${isChosen(one) ? "forced" : ""}`),
    onPick: (step) => page.update({ step }),
    pickLabel: (token) => `Step ${token + 1}`,
  });
  return [row, choiceNote(walk, page)];
}

function candidates({ step }, walk, page) {
  const { id: written, candidates } = walk.steps[step];
  const choose = (id) => page.update({ forced: [...walk.ids.slice(0, step), id] });
  const row = ({ id, token, logit, probability }) => {
    const attributes = {
      class: "candidate",
      "aria-pressed": String(id === written),
      "aria-label": `${spell(token)}, probability ${percent(probability)}, logit ${precise(logit)}`,
      // The second click of two on a token above may come here.
      onclick: ({ detail }) => id !== written && detail < 2 && choose(id),
    };
    const bar = element("span", { class: "bar", style: `width: ${100 * probability}%` });
    return element(
      "button",
      attributes,
      element("span", { class: "token" }, spell(token)),
      element("span", { class: "track" }, bar),
      element("span", {}, percent(probability)),
      element("span", {}, precise(logit)),
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
  const round = (v) => v.toLocaleString("en", { maximumSignificantDigits: 5 });
  const [own, sum] = [power, power / probability].map(round);
  const text =
    `The softmax for ${spell(token)}: e to the power of its logit is ${own}. The sum of such ` +
    `powers over all ${page.settings.target_vocab_size.toLocaleString("en")} tokens is ${sum}. ` +
    `The probability is ${own} ÷ ${sum} = ${percent(probability)}.`;
  return element("p", { class: "note" }, text);
}

// ---- Attention

function crossAttention({ step, decoderLayer, decoderHead }, walk, page) {
  const { num_heads, decoderLayers } = page.settings;
  const places = Array.from({ length: decoderLayers * num_heads }, (_, row) => ({
    decoderLayer: Math.floor(row / num_heads),
    decoderHead: row % num_heads,
  }));
  const values = places.map(
    ({ decoderLayer: layer, decoderHead: head }) =>
      rowsOf(walk.values[`decoder/layer_${layer}/cross_attention/weights`], head)[step],
  );
  const rows = places.map((at) => `layer ${at.decoderLayer + 1}, head ${at.decoderHead + 1}`);
  const source = walk.sourceTokens.map(spell);
  const chosen = decoderLayer * num_heads + decoderHead;
  const map = toldGrid({
    rows,
    columns: source,
    values,
    ...SHARES,
    label: "Weights of each head for each source token",
    chosen: { row: chosen },
    tell: (row, column) => `${rows[row]} reads ${source[column]}: ${percent(values[row][column])}`,
    onPick: (row) => page.update(places[row]),
  });
  const [own, written] = [read(walk), walk.tokens.map(spell)];
  const most = source[values[chosen].indexOf(Math.max(...values[chosen]))];
  const now = `after ${own[step]} → writes ${written[step]}`;
  const label = `${now}: head ${decoderHead + 1} of layer ${decoderLayer + 1} reads ${most} most.`;
  const left = own.slice(0, step + 1).map((token, place) => `${token} → ${written[place]}`);
  const lines = links({ left, right: source, weights: values[chosen], chosen: step, label });
  const sentence = element("p", {}, `Step ${step + 1}, ${label}`);
  return [sentence, element("div", { class: "beside" }, map, lines)];
}

function causalMask({ step, decoderLayer, decoderHead }, walk) {
  const name = `decoder/layer_${decoderLayer}/self_attention/weights`;
  const tokens = read(walk);
  const weights = rowsOf(walk.values[name], decoderHead);
  const written = (row) => (v, column) => (row > step ? 0 : v) + (column > row ? NaN : 0);
  return toldGrid({
    rows: tokens,
    columns: tokens,
    values: weights.map((shares, row) => shares.map(written(row))),
    ...SHARES,
    label: "Weights of this head for the tokens written so far",
    chosen: { row: step },
    tell(row, column) {
      const [reader, other] = [tokens[row], tokens[column]];
      if (column > row) return `${reader} may not read ${other}: it comes later`;
      return `${reader} reads ${other}: ${percent(weights[row][column])}`;
    },
  });
}

// ---- The KV cache

function keyValueCache({ step, decoderLayer, decoderHead }, walk, page) {
  const rows = read(walk).slice(0, step + 1);
  const map = (last) => {
    const name = `decoder/layer_${decoderLayer}/self_attention/${last}`;
    const kept = rowsOf(walk.values[name]).slice(0, step + 1);
    const values = headOf(kept, decoderHead, page.settings.num_heads);
    const label = `The ${last}s of ${rows.length} tokens, ${values[0].length} numbers each`;
    const onPick = (row) => page.open({ name, row });
    const { node } = grid({ rows, values, label, cell: CACHED, chosen: { row: step }, onPick });
    return element("div", {}, `${last}s`, node);
  };
  return element("div", { class: "beside" }, map("key"), map("value"));
}
