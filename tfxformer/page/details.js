// Section 7: the model as a map of all its values, each of which opens in the panel.

import { choice, counted, element, formula } from "./drawing.js";
import { describe } from "./catalogue.js";
import { makePanel } from "./panel.js";

// The map: Figure 1 of the paper from its inputs to its output, box by box. A box has
// values of one folder; N stands for the layer.
const READ = ["query", "key", "value", "scores", "weights", "concatenation", "output"];
const ADDED = { pre: ["x", "input", "sum"], post: ["x", "sum", "result"] };
const NETWORK = ["hidden", "output"];
const EMBEDDED = ["embedding", "positions", "output"];
const MAP = {
  Encoder: [
    ["Embedding and position", "encoder/embedding", EMBEDDED],
    ["Multi-head attention", "encoder/layer_N/self_attention", READ],
    ["Add & Norm", "encoder/layer_N/self_attention", ADDED],
    ["Feed forward", "encoder/layer_N/ffn", NETWORK],
    ["Add & Norm", "encoder/layer_N/ffn", ADDED],
    ["After all layers", "encoder", ["stream", "output"]],
  ],
  Decoder: [
    ["Embedding and position", "decoder/embedding", EMBEDDED],
    ["Masked multi-head attention", "decoder/layer_N/self_attention", READ],
    ["Add & Norm", "decoder/layer_N/self_attention", ADDED],
    ["Multi-head attention to the encoder", "decoder/layer_N/cross_attention", READ],
    ["Add & Norm", "decoder/layer_N/cross_attention", ADDED],
    ["Feed forward", "decoder/layer_N/ffn", NETWORK],
    ["Add & Norm", "decoder/layer_N/ffn", ADDED],
    ["After all layers", "decoder", ["stream", "output"]],
    ["Linear", "output", ["logits"]],
  ],
};

export function mountDetails(section, page) {
  const { num_layers, num_decoder_layers } = page.settings;
  const panel = makePanel(page);
  const layers = choice({
    label: "Encoder layer",
    options: counted(num_layers),
    onInput: (layer) => page.update({ layer }),
  });
  const decoderLayers = choice({
    label: "Decoder layer",
    options: counted(num_decoder_layers ?? num_layers),
    onInput: (decoderLayer) => page.update({ decoderLayer }),
  });
  let shown = {};
  const column = ([title, boxes]) => element("div", {}, element("h3", {}, title), boxes.map(box));
  const box = ([title, folder, names]) => {
    const items = (names[page.settings.norm] ?? names).map((name) => {
      const { title } = describe(`${folder}/${name}`, page.settings);
      const onclick = () => page.open({ name: `${inLayer(folder)}/${name}`, ...placeIn(folder) });
      return element("li", {}, element("button", { onclick }, formula(title)));
    });
    return element("div", { class: "part" }, element("h4", {}, title), element("ul", {}, items));
  };
  const inEncoder = (folder) => folder.startsWith("encoder");
  const inLayer = (folder) =>
    folder.replace("N", inEncoder(folder) ? shown.layer : shown.decoderLayer);
  const placeIn = (folder) =>
    inEncoder(folder)
      ? { row: shown.token, head: shown.head }
      : { row: shown.step, head: shown.decoderHead };
  section.append(
    element("p", { class: "controls" }, layers.node, decoderLayers.node),
    element("div", { class: "figure-1" }, Object.entries(MAP).map(column)),
    panel.node,
  );
  return {
    uses: ["layer", "head", "token", "decoderLayer", "decoderHead", "step"],
    show(state) {
      shown = state;
      layers.set(state.layer);
      decoderLayers.set(state.decoderLayer);
    },
    open: panel.open,
  };
}
