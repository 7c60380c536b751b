// Section 6: switches that change the computation, and what comes of it.

import { checkbox, chips, choice, element, percent, picture } from "./drawing.js";
import { refill, slider } from "./drawing.js";
import { latest } from "./client.js";
import { INTACT } from "./model.js";

const BITS = [null, 8, 4, 2];
const SILENCE = "Look for heads that nobody misses, and for layers without which nothing works.";

// Each switch of model.js: its control, and what to look for.
const SWITCHES = {
  positions: {
    label: "No positions",
    look: "Look at who does what: the model knows the words, but no longer their order.",
  },
  causalMask: {
    label: "No causal mask",
    look:
      "Look at how little changes: later tokens are not written yet, so the mask matters in " +
      "training, where the model could copy the answer from them.",
  },
  pads: {
    label: "Padding tokens",
    most: 12,
    look:
      "Look at how nothing changes: a mask hides the empty tokens that fill up a short sentence " +
      "beside longer ones.",
  },
  paddingMask: {
    label: "Padding unmasked",
    look:
      "Look at the probabilities: they now depend on empty tokens, as in TensorFlow’s tutorial, " +
      "which loses this mask.",
  },
  scale: {
    label: "No division by √dₖ",
    look:
      "Look at the agreement, and try other sentences: each head reads little else than one token, " +
      "and only some translations keep their words.",
  },
  residual: {
    label: "No residual connections",
    look: "Look for nonsense: each part passes on its own output alone, and the word is lost.",
  },
  layerNorm: {
    label: "No layer normalization",
    look: "Look for a token that repeats: the numbers grow beyond what the layers have learned.",
  },
  bits: {
    label: "Weights rounded to",
    options: ["all their bits", "8 bits", "4 bits", "2 bits"],
    look: "Look at the agreement: 8 bits leave each weight 255 levels, 4 bits 15, and 2 bits 3.",
  },
  temperature: {
    label: "Temperature of attention",
    most: 4,
    look: "Look for lost words: it divides the scores, so above 1 a head spreads what it reads.",
  },
  outputTemperature: {
    label: "Temperature of the next token",
    most: 4,
    look: "Look at the probabilities: it divides the logits, so the order of the tokens stays.",
  },
};

export function mountBreak(section, page) {
  let broken = {};
  const change = (name, value) => {
    const changed = { ...broken, [name]: value };
    // Without padding, there is nothing to unmask.
    if (name === "paddingMask" && !value) changed.pads ||= 4;
    page.update({ broken: known(changed) });
  };
  const controls = Object.entries(SWITCHES).map(([name, about]) => {
    const { node, set } = controlOf(name, about, (value) => change(name, value));
    return { name, set, node: element("li", {}, node, element("small", {}, about.look)) };
  });
  const silence = element("div");
  const summary = element("summary", {}, "Silence layers or heads");
  const look = element("small", {}, SILENCE);
  const details = element("details", { class: "silence" }, summary, look, silence);
  const mend = element("button", { onclick: () => page.update({ broken: {} }) }, "Mend everything");
  const result = picture("What changes", "broken");
  const nodes = controls.map(({ node }) => node);
  const bench = element("div", {}, element("ul", { class: "switches" }, nodes), details, mend);
  section.append(element("div", { class: "workbench" }, bench, result.node));
  result.body.setAttribute("aria-live", "polite");

  // The reader's own tokens are no part of the experiment: the intact model writes anew.
  const compare = latest(async (walk, forced, switches) => {
    const { source } = walk;
    const translate = async (options) =>
      (await page.tfxformer.translate("", { source, ...options })).parts[0];
    const intact = forced.length ? await translate({}) : walk;
    if (!Object.keys(switches).length) return { intact, changed: intact, same: intact.steps };
    const changed = await translate({ switches });
    const same = await translate({ switches, forced: intact.ids });
    return { intact, changed, same: same.steps.slice(0, intact.ids.length) };
  });
  return {
    uses: ["broken"],
    async show(state, walk) {
      broken = known(state.broken);
      const switches = { ...INTACT, ...broken };
      controls.forEach(({ name, set }) => set(switches[name]));
      const toggle = (silenced) => change("silenced", silenced);
      details.open ||= switches.silenced.length > 0;
      refill(silence, silencers(page.settings, switches.silenced, toggle));
      mend.disabled = !Object.keys(broken).length;
      result.body.setAttribute("aria-busy", "true");
      const compared = await compare(walk, state.forced, broken);
      if (!compared) return; // a newer one is under way
      result.body.setAttribute("aria-busy", "false");
      refill(result.body, drawResult(compared));
    },
  };
}

// Of some switches, those that there are and that change the intact model.
function known(switches) {
  const right = ([name, value]) => {
    if (JSON.stringify(value) === JSON.stringify(INTACT[name])) return false;
    if (name === "bits") return BITS.includes(value);
    if (name === "silenced") return Array.isArray(value);
    if (name === "pads") return Number.isInteger(value);
    return typeof value === typeof INTACT[name] && (value === false || value > 0);
  };
  return Object.fromEntries(Object.entries(switches).filter(right));
}

function controlOf(name, { label, most, options }, onInput) {
  if (options) {
    const { node, set } = choice({ label, options, onInput: (place) => onInput(BITS[place]) });
    return { node, set: (value) => set(BITS.indexOf(value)) };
  }
  if (most) {
    const least = name === "pads" ? 0 : 0.25;
    return slider({ label, min: least, max: most, step: least || 1, onInput });
  }
  const { node, set } = checkbox({ label, onInput: (off) => onInput(!off) });
  return { node, set: (value) => set(!value) };
}

// ---- Layers and heads to silence: a row of buttons for each layer

function silencers({ num_layers, decoderLayers, num_heads }, silenced, onChange) {
  const toggle = (path, text, label) => {
    const pressed = silenced.includes(path);
    const others = silenced.filter((other) => other !== path);
    const onclick = () => onChange(pressed ? others : [...silenced, path].sort());
    const attributes = { "aria-pressed": String(pressed), "aria-label": `Silence ${label}` };
    return element("button", { ...attributes, onclick }, text);
  };
  const heads = (path, name) =>
    Array.from({ length: num_heads }, (_, i) =>
      toggle(`${path}/head_${i}`, i + 1, `${name}, head ${i + 1}`),
    );
  const row = (stack, i) => {
    const [path, name] = [`${stack}/layer_${i}`, `${stack} layer ${i + 1}`];
    const cells = [toggle(path, "all", `all of ${name}`), ...heads(`${path}/self_attention`, name)];
    const reading = heads(`${path}/cross_attention`, `${name}, reading the encoder`);
    if (stack === "decoder") cells.push(element("span", {}, "reading the encoder"), ...reading);
    return element("div", { class: "controls" }, element("span", {}, name), cells);
  };
  const rows = (stack, count) => Array.from({ length: count }, (_, i) => row(stack, i));
  return [...rows("encoder", num_layers), ...rows("decoder", decoderLayers)];
}

// ---- The result

const perToken = (scores) => Math.exp(scores.reduce((sum, v) => sum + v, 0) / scores.length);

function drawResult({ intact, changed, same }) {
  const [before, after] = [intact.scores, same.map(({ score }) => score)].map(perToken);
  const text = (title, translation, share) => [
    element("h4", {}, title),
    element("p", { class: "translation", lang: "en" }, translation),
    element("p", { class: "note" }, `How sure the model is of its own tokens: ${percent(share)}`),
  ];
  const notes = same.map(({ probability }, i) => {
    const [old, now] = [percent(intact.steps[i].probability), percent(probability)];
    return old === now ? old : `${old} → ${now}`;
  });
  const shades = same.map(({ probability }) => probability);
  return [
    ...text("Intact", intact.translation, before),
    ...text("Changed", changed.translation, perToken(changed.scores)),
    element("p", {}, element("b", {}, `Agreement: ${percent(before)} → ${percent(after)}`)),
    element("p", { class: "note" }, "The intact translation’s tokens, each with its probability:"),
    chips(intact.tokens, { notes, shades }),
  ];
}
