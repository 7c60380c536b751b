// Section 7: the model as a map of all its values, each of which opens in the panel.

import { chooser, element, formula, refill } from "./drawing.js";
import { describe } from "./catalogue.js";
import { makePanel } from "./panel.js";

// Figure 1 of the paper from its inputs to its output, box by box; N stands for the layer.
const FIGURE = {
  "encoder/embedding": "Embedding and position",
  "encoder/layer_N/self_attention": "Multi-head attention, Add & Norm",
  "encoder/layer_N/ffn": "Feed forward, Add & Norm",
  encoder: "After all layers",
  "decoder/embedding": "Embedding and position",
  "decoder/layer_N/self_attention": "Masked multi-head attention, Add & Norm",
  "decoder/layer_N/cross_attention": "Multi-head attention to the encoder, Add & Norm",
  "decoder/layer_N/ffn": "Feed forward, Add & Norm",
  decoder: "After all layers",
  output: "Linear, softmax",
};

export function mountDetails(section, page) {
  const { num_layers, decoderLayers } = page.settings;
  const panel = makePanel(page);
  const layers = chooser("Encoder layer", num_layers, (layer) => page.update({ layer }));
  const others = chooser("Decoder layer", decoderLayers, (decoderLayer) =>
    page.update({ decoderLayer }),
  );
  const controls = element("p", { class: "controls" }, layers.node, others.node);
  const figure = element("div", { class: "figure-1" });
  section.append(controls, figure, panel.node);
  return {
    uses: ["layer", "head", "token", "decoderLayer", "decoderHead", "step"],
    show(state) {
      layers.set(state.layer);
      others.set(state.decoderLayer);
      refill(figure, column("Encoder", state, page), column("Decoder", state, page));
    },
    open: panel.open,
  };
}

function column(title, state, page) {
  const { layer, head, token, decoderLayer, decoderHead, step } = state;
  const ofEncoder = title === "Encoder";
  const place = ofEncoder ? { head, row: token } : { head: decoderHead, row: step };
  const box = ([folder, title]) => {
    const path = folder.replace("N", ofEncoder ? layer : decoderLayer);
    const buttons = Object.entries(describe(path, page.settings)).map(([last, { title }]) => {
      const name = `${path}/${last}`;
      const onclick = () => page.open({ name, ...place });
      return element("li", {}, element("button", { onclick, "data-name": name }, formula(title)));
    });
    return element("div", { class: "part" }, element("h4", {}, title), element("ul", {}, buttons));
  };
  const folders = Object.entries(FIGURE);
  const mine = folders.filter(([folder]) => folder.startsWith("encoder") === ofEncoder);
  return element("div", {}, element("h3", {}, title), mine.map(box));
}
