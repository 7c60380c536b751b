// Section 3: a layer of the encoder, opened: its heads, one of them in numbers, and what
// the layer makes of what they read.

import { latest } from "./client.js";
import { chips, choice, counted, element, heatmap, picture } from "./drawing.js";
import { refill, sequential, spell } from "./drawing.js";
import { makeHead } from "./attention.js";
import { makeSublayers } from "./sublayers.js";
import { rowsOf } from "./panel.js";

const MAPS =
  "Each small map has a row for each token, and a column for each token that it reads. A " +
  "diagonal right of the middle: each token reads the next one; left of the middle: the one " +
  "before. A full last column: the tokens read the end, often because the head finds nothing " +
  "for them.";

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
  const introduction = element("p", {}, MAPS);
  const overview = picture("All heads: a column for each layer", "heads", introduction);
  const tokens = element("div");
  const head = makeHead(page);
  const sublayers = makeSublayers();
  const controls = element("div", { class: "controls" }, layers.node, heads.node, tokens);
  section.append(overview.node, controls, head.node, sublayers.node);

  const ask = latest(page.tfxformer.inspect);
  let found = {}; // what the model has computed for a walk and a layer
  let newest = null;
  return {
    uses: ["layer", "head", "token"],
    async show(state, walk) {
      newest = state;
      layers.set(state.layer);
      heads.set(state.head);
      if (found.walk !== walk || found.layer !== state.layer) {
        const values = await ask(request(walk, state.layer, num_layers));
        if (!values || newest !== state) return; // another show has come meanwhile
        found = { walk, values, layer: state.layer };
      }
      const shown = { ...found, ...state, page, tokens: walk.sourceTokens.map(spell) };
      refill(overview.body, maps(shown));
      const onPick = (token) => page.update({ token, position: token });
      refill(tokens, chips(walk.sourceTokens, { chosen: state.token, onPick }));
      head.show(shown);
      sublayers.show(shown);
    },
  };
}

// One layer's values; and of all layers the weights, and the stream after them.
function request({ source }, layer, count) {
  const names = [`encoder/layer_${layer}/`, "encoder/embedding/output"];
  for (let i = 0; i < count; i++)
    names.push(`encoder/layer_${i}/self_attention/weights`, `encoder/layer_${i}/ffn/result`);
  return { source, step: 0, names };
}

// A table of small maps, each of which chooses its layer and head.
function maps({ values, layer, head, page }) {
  const { num_layers, num_heads } = page.settings;
  const places = (count) => [...Array(count).keys()];
  const header = (text, scope) => element("th", { scope }, text);
  const map = (h) => (l) => {
    const rows = rowsOf(values[`encoder/layer_${l}/self_attention/weights`], h);
    const label = `Layer ${l + 1}, head ${h + 1}`;
    const small = heatmap(rows, { label, scale: 1, colour: sequential() });
    const pressed = String(l === layer && h === head);
    const onclick = () => page.update({ layer: l, head: h });
    const attributes = { class: "small-map", "aria-pressed": pressed, onclick };
    return element("td", {}, element("button", attributes, small));
  };
  const row = (h) =>
    element("tr", {}, header(`Head ${h + 1}`, "row"), places(num_layers).map(map(h)));
  const top = counted(num_layers).map((text) => header(text, "col"));
  const first = element("tr", {}, header("Layer", "col"), top);
  return element("table", { class: "heads" }, first, places(num_heads).map(row));
}
