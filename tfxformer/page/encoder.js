// Section 3: a layer of the encoder, opened: its heads, one of them in numbers, and what
// the layer makes of what they read.

import { chips, chooser, element, heatmap, picture } from "./drawing.js";
import { refill, SHARES, spell } from "./drawing.js";
import { makeHead } from "./attention.js";
import { rowsOf } from "./matrix.js";
import { makeSublayers } from "./sublayers.js";

const MAPS =
  "Each small map has a row for each token, and a column for each token that it reads. A " +
  "diagonal right of the middle: each token reads the next one; left of the middle: the one " +
  "before. A full last column: the tokens read the end, often because the head finds nothing " +
  "for them.";

export function mountEncoder(section, page) {
  const { num_layers, num_heads } = page.settings;
  const layers = chooser("Layer", num_layers, (layer) => page.update({ layer }));
  const heads = chooser("Head", num_heads, (head) => page.update({ head }));
  const overview = picture("All heads: a column for each layer", "heads", MAPS);
  const tokens = element("div");
  const head = makeHead(page);
  const sublayers = makeSublayers(page.settings);
  const controls = element("div", { class: "controls" }, layers.node, heads.node, tokens);
  section.append(overview.node, controls, head.node, sublayers.node);
  return {
    uses: ["layer", "head", "token", "column"],
    show(state, { values, sourceTokens }) {
      layers.set(state.layer);
      heads.set(state.head);
      const shown = { values, ...state, page, tokens: sourceTokens.map(spell) };
      refill(overview.body, maps(shown));
      const onPick = (token) => page.update({ token, column: -1, position: token });
      refill(tokens, chips(sourceTokens, { chosen: state.token, onPick }));
      head.show(shown);
      sublayers.show(shown);
    },
  };
}

// A table of small maps, each of which chooses its layer and head.
function maps({ values, layer, head, page }) {
  const { num_layers, num_heads } = page.settings;
  const places = (count) => [...Array(count).keys()];
  const header = (text, scope, changes) =>
    element("th", { scope, onclick: () => page.update(changes) }, text);
  const map = (h) => (l) => {
    const rows = rowsOf(values[`encoder/layer_${l}/self_attention/weights`], h);
    const label = `Layer ${l + 1}, head ${h + 1}`;
    const small = heatmap(rows, { label, ...SHARES });
    const pressed = String(l === layer && h === head);
    const onclick = () => page.update({ layer: l, head: h });
    const attributes = { class: "small-map", "aria-pressed": pressed, onclick };
    return element("td", {}, element("button", attributes, small));
  };
  const row = (h) =>
    element("tr", {}, header(`Head ${h + 1}`, "row", { head: h }), places(num_layers).map(map(h)));
  const numbers = places(num_layers).map((l) => header(l + 1, "col", { layer: l }));
  const first = element("tr", {}, element("th", {}, "Layer"), numbers);
  return element("table", { class: "heads" }, first, places(num_heads).map(row));
}
