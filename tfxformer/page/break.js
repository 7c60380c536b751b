// Section 6: switches that change the computation, and what comes of it.

import { checkbox, chips, choice, element, percent, picture } from "./drawing.js";
import { refill, slider } from "./drawing.js";
import { latest } from "./client.js";
import { INTACT } from "./model.js";

const BITS = [null, 8, 4, 2];

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
      "Add padding, and look at the probabilities: they now depend on empty tokens, as in " +
      "TensorFlow’s tutorial, which loses this mask.",
  },
  scale: {
    label: "No division by √dₖ",
    look: "Look for other words and less sure ones: each head reads little else than one token.",
  },
  residual: {
    label: "No residual connections",
    look: "Look for nonsense: each part passes on its own output alone, and the word is lost.",
  },
  layerNorm: {
    label: "No layer normalisation",
    look: "Look for a token that repeats: the numbers grow beyond what the layers have learned.",
  },
  bits: {
    label: "Weights rounded to",
    options: ["all their bits", "8 bits", "4 bits", "2 bits"],
    look: "Look for where it breaks: 8 bits leave each weight 255 levels, 4 bits 15, and 2 bits 3.",
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
  const change = (name, value) => page.update({ broken: without(broken, name, value) });
  const controls = Object.entries(SWITCHES).map(([name, about]) => {
    const control = controlOf(name, about, (value) => change(name, value));
    const look = element("small", {}, about.look);
    return { ...control, node: element("li", {}, control.node, look) };
  });
  const silence = makeSilence(page.settings, (value) => change("silenced", value));
  const mend = element("button", { onclick: () => page.update({ broken: {} }) }, "Mend everything");
  const result = picture("What changes", "broken");
  const list = element(
    "ul",
    { class: "switches" },
    controls.map(({ node }) => node),
  );
  const bench = element("div", {}, list, silence.node, mend);
  section.append(element("div", { class: "workbench" }, bench, result.node));
  result.body.setAttribute("aria-live", "polite");

  const compare = latest(async (walk, forced, switches, intact) => {
    if (intact) return { walk, found: walk, same: walk.steps };
    const { source, ids } = walk;
    const options = { source, switches, count: 1 };
    const found = await page.tfxformer.translate("", { ...options, forced });
    const same = await page.tfxformer.translate("", { ...options, forced: ids });
    return { walk, found: found.parts[0], same: same.parts[0].steps.slice(0, ids.length) };
  });
  return {
    uses: ["broken"],
    async show(state, walk) {
      broken = known(state.broken);
      controls.forEach(({ set }) => set(broken));
      silence.set(broken.silenced ?? []);
      const intact = !Object.keys(broken).length;
      mend.disabled = intact;
      result.body.setAttribute("aria-busy", "true");
      const compared = await compare(walk, state.forced, broken, intact);
      if (!compared) return; // a newer one is under way
      result.body.setAttribute("aria-busy", "false");
      refill(result.body, drawResult(compared));
    },
  };
}

// The switches with another value of one; those that are as in the intact model are left
// out.
function without(broken, name, value) {
  const { [name]: _, ...rest } = broken;
  const intact = JSON.stringify(value) === JSON.stringify(INTACT[name]);
  return intact ? rest : { ...rest, [name]: value };
}

// Of an address's switches, those that there are.
function known(broken) {
  const right = ([name, value]) => {
    if (name === "bits") return BITS.includes(value);
    if (name === "silenced") return Array.isArray(value);
    if (name === "pads") return Number.isInteger(value);
    return typeof value === typeof INTACT[name] && (value === false || value > 0);
  };
  return Object.fromEntries(Object.entries(broken).filter(right));
}

function controlOf(name, { label, most, options }, onInput) {
  const intact = INTACT[name];
  if (options) {
    const made = choice({ label, options, onInput: (place) => onInput(BITS[place]) });
    return { node: made.node, set: (broken) => made.set(BITS.indexOf(broken[name] ?? null)) };
  }
  if (most) {
    const whole = name === "pads";
    const step = whole ? 1 : 0.25;
    const made = slider({ label, min: whole ? 0 : step, max: most, step, onInput });
    return { node: made.node, set: (broken) => made.set(broken[name] ?? intact) };
  }
  const made = checkbox({ label, onInput: (off) => onInput(!off) });
  return { node: made.node, set: (broken) => made.set(!(broken[name] ?? intact)) };
}

// ---- Layers and heads to silence

function makeSilence({ num_layers, num_decoder_layers, num_heads }, onChange) {
  let silenced = [];
  const buttons = new Map();
  const toggle = (path, text, label) => {
    const has = () => silenced.includes(path);
    const onclick = () =>
      onChange(has() ? silenced.filter((other) => other !== path) : [...silenced, path].sort());
    const button = element("button", { onclick, "aria-label": `Silence ${label}` }, text);
    buttons.set(path, button);
    return button;
  };
  const heads = (path, name) =>
    Array.from({ length: num_heads }, (_, i) =>
      toggle(`${path}/head_${i}`, i + 1, `${name}, head ${i + 1}`),
    );
  const row = (stack) => (_, i) => {
    const [path, name] = [`${stack}/layer_${i}`, `${stack} layer ${i + 1}`];
    const cells = [toggle(path, "all", `all of ${name}`), ...heads(`${path}/self_attention`, name)];
    if (stack === "decoder") {
      const cross = heads(`${path}/cross_attention`, `${name}, reading the encoder`);
      cells.push(element("span", {}, "reading the encoder"), ...cross);
    }
    return element("div", { class: "controls" }, element("span", {}, name), cells);
  };
  const rows = Array.from({ length: num_layers }, row("encoder"));
  rows.push(...Array.from({ length: num_decoder_layers ?? num_layers }, row("decoder")));
  const summary = element("summary", {}, "Silence layers or heads");
  const look = "Look for heads that nobody misses, and for layers without which nothing works.";
  const node = element("details", { class: "silence" }, summary, element("small", {}, look), rows);
  const set = (paths) => {
    silenced = paths;
    for (const [path, button] of buttons)
      button.setAttribute("aria-pressed", String(paths.includes(path)));
  };
  return { node, set };
}

// ---- The result

const perToken = (scores) => Math.exp(scores.reduce((sum, v) => sum + v, 0) / scores.length);

function drawResult({ walk, found, same }) {
  const agreement = perToken(same.map(({ score }) => score));
  const text = (title, translation, share) => [
    element("h4", {}, title),
    element("p", { class: "translation", lang: "en" }, translation),
    element("p", { class: "note" }, `The model gives these tokens ${percent(share)} on average.`),
  ];
  const notes = same.map(({ probability }, i) => {
    const [before, after] = [percent(walk.steps[i].probability), percent(probability)];
    return before === after ? before : `${before} → ${after}`;
  });
  const shades = same.map(({ probability }) => probability);
  const intact = perToken(walk.scores);
  return [
    ...text("Intact", walk.translation, intact),
    ...text("Changed", found.translation, perToken(found.scores)),
    element("p", {}, element("b", {}, `Agreement: ${percent(intact)} → ${percent(agreement)}`)),
    element("p", { class: "note" }, "The intact translation’s tokens, each with its probability:"),
    chips(walk.tokens, { notes, shades }),
  ];
}
