// Section 3: a layer of the encoder, opened: its heads, one of them in numbers, and what
// the layer makes of what they read.

import { chips, choice, counted, element, heatmap, picture } from "./drawing.js";
import { refill, sequential, spell } from "./drawing.js";
import { makeHead } from "./attention.js";
import { makeSublayers } from "./sublayers.js";
import { rowsOf } from "./panel.js";

export function mountEncoder(section, page) {
  const { num_layers, num_heads } = page.settings;
  const layers = choice({
    label: "Layer",
    options: counted(num_layers),
    onInput: (layer) => page.update({ layer }),
  });
  const heads = choice({
    label: "Head",
    options: counted(num_heads),
    onInput: (head) => page.update({ head }),
  });
  const overview = picture("All heads of the encoder: a column for each layer", "heads");
  const head = makeHead(page);
  const sublayers = makeSublayers(page);
  const tokens = element("div");
  const note =
    "Each small map has a row for each token and a column for each token that it reads. A " +
    "diagonal right of the middle means that each token reads the next one; left of the middle, " +
    "the one before. A full last column means that the tokens read the end: often a sign that " +
    "the head finds nothing for them.";
  section.append(
    element("div", { class: "controls" }, layers.node, heads.node),
    overview.node,
    element("p", { class: "note" }, note),
    tokens,
    ...head.nodes,
    ...sublayers.nodes,
  );

  let [known, key] = [null, ""];
  return {
    uses: ["layer", "head", "token"],
    async show(state, walk) {
      layers.set(state.layer);
      heads.set(state.head);
      const wanted = JSON.stringify([walk.source, state.layer]);
      if (key !== wanted) {
        key = wanted;
        known = null;
        const found = await valuesOf(page, walk.source, state.layer);
        if (key !== wanted) return; // another show has come
        known = found;
      }
      if (!known) return;
      refill(overview.body, maps(known, state, page));
      const onPick = (token) => page.update({ token, position: token });
      refill(tokens, chips(walk.sourceTokens, { chosen: state.token, onPick }));
      head.show(known, state, walk.sourceTokens.map(spell));
      sublayers.show(known, state, spell(walk.sourceTokens[state.token]));
    },
  };
}

// One layer's values; and of all layers the weights, and the stream after them.
function valuesOf({ tfxformer, settings }, source, layer) {
  const every = Array.from({ length: settings.num_layers }, (_, i) => `encoder/layer_${i}`);
  const some = every.flatMap((path) => [`${path}/self_attention/weights`, `${path}/ffn/result`]);
  const names = [`encoder/layer_${layer}/`, "encoder/embedding/output", ...some];
  return tfxformer.inspect({ source, step: 0, names });
}

// A table of small maps, each of which chooses its layer and head.
function maps(values, state, page) {
  const { num_layers, num_heads } = page.settings;
  const places = (count) => [...Array(count).keys()];
  const header = (text, scope) => element("th", { scope }, text);
  const map = (head) => (layer) => {
    const rows = rowsOf(values[`encoder/layer_${layer}/self_attention/weights`], head);
    const label = `Layer ${layer + 1}, head ${head + 1}`;
    const canvas = heatmap(rows, { label, scale: 1, colour: sequential() });
    const pressed = String(layer === state.layer && head === state.head);
    const attributes = { class: "small-map", "aria-pressed": pressed, title: label };
    const choose = () => page.update({ layer, head });
    return element("td", {}, element("button", { ...attributes, onclick: choose }, canvas));
  };
  const row = (head) =>
    element("tr", {}, header(`Head ${head + 1}`, "row"), places(num_layers).map(map(head)));
  const top = counted(num_layers).map((text) => header(text, "col"));
  const first = element("tr", {}, element("td"), top);
  return element("table", { class: "heads" }, first, places(num_heads).map(row));
}
