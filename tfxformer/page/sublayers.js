// What a layer of the encoder makes of a token: step by step, with Add & Norm, and the
// hidden units of its feed-forward network; and the token from layer to layer.

import { element, heatmap, length, line, number, percent } from "./drawing.js";
import { picture, refill, SHARES, usual } from "./drawing.js";
import { rowsOf } from "./matrix.js";
import { moments } from "./model.js";

const WIDTH = 64; // hidden units in a row of their picture
const LITTLE = 0.05; // of a row's length: a change that does little

const STEPS =
  "The layer puts the results of all heads side by side, and the output matrix mixes them into " +
  "one row. Then the feed-forward network works on each token alone. The layer adds the output of " +
  "both to what came in (a residual connection). It also normalizes: it brings the numbers of a row " +
  "to a mean of 0 and a deviation of 1 (how far they are from the mean), and then multiplies and " +
  "shifts each by what training has chosen. ";
const WHERE = {
  pre: "This model normalizes what a part reads. The paper normalizes the sum: Add & Norm.",
  post: "It normalizes the sum, as the paper does: Add & Norm.",
};
const HIDDEN =
  "Each hidden unit looks for a pattern in the token’s row. If it finds the pattern, it fires: " +
  "it adds a row of its own to the output.";
const STREAM =
  "Each layer adds to the row of the layer before: the residual stream. The numbers say how " +
  "long the change is, compared with the row. Section 6 shows what happens without a layer.";

// The values of a layer in the order of their computation; some only where the layer norm
// comes before the part, or after it.
const ORDER = [
  ["self_attention/x", "comes in"],
  ["self_attention/input", "normalized", "pre"],
  ["self_attention/concatenation", "all heads, side by side"],
  ["self_attention/output", "× the output matrix"],
  ["self_attention/sum", "added to what came in"],
  ["self_attention/result", "normalized", "post"],
  ["ffn/input", "normalized", "pre"],
  ["ffn/output", "feed-forward network"],
  ["ffn/sum", "added to what came in"],
  ["ffn/result", "normalized", "post"],
];

export function makeSublayers({ norm }) {
  const question = "What does the layer make of the token, step by step?";
  const steps = picture(question, "layer", STEPS + WHERE[norm]);
  const hidden = picture("Which hidden units of the feed-forward network fire?", "hidden", HIDDEN);
  const stream = picture("How does the token change from layer to layer?", "stream", STREAM);
  const node = element("div", {}, steps.node, hidden.node, stream.node);
  function show(shown) {
    refill(steps.body, drawSteps(shown));
    refill(hidden.body, drawHidden(shown));
    refill(stream.body, drawStream(shown));
  }
  return { node, show };
}

const rowOf = ({ values, token }, name) => rowsOf(values[name])[token];

// A value of the token as a strip in its own colours, which opens.
function lineOf(shown, name, label, note) {
  const row = rowOf(shown, name);
  const onOpen = () => shown.page.open({ name, row: shown.token });
  return line(label, row, { scale: usual(row), note, onOpen });
}

function drawSteps(shown) {
  const used = ORDER.filter(([, , norm = ""]) => shown.page.settings.norm.startsWith(norm));
  return used.map(([last, label]) => {
    const name = `encoder/layer_${shown.layer}/${last}`;
    const [mean, deviation] = moments(rowOf(shown, name));
    return lineOf(shown, name, label, `mean ${number(mean)}, deviation ${number(deviation)}`);
  });
}

// The hidden units as a field of cells.
function drawHidden(shown) {
  const name = `encoder/layer_${shown.layer}/ffn/hidden`;
  const hidden = rowOf(shown, name);
  const rows = rowsOf({ shape: [Math.ceil(hidden.length / WIDTH), WIDTH], data: hidden });
  const firing = hidden.filter((v) => v > 0).length;
  const label = `${firing} of ${hidden.length} hidden units fire for ${shown.tokens[shown.token]}`;
  const unit = hidden.indexOf(Math.max(...hidden));
  const onOpen = () => shown.page.open({ name, row: shown.token, unit });
  const field = heatmap(rows, { label, palette: SHARES.palette, className: "field", onOpen });
  return [element("p", {}, `${label}.`), field];
}

function drawStream(shown) {
  const layers = Array.from(Array(shown.page.settings.num_layers).keys());
  const names = ["encoder/embedding/output", ...layers.map((i) => `encoder/layer_${i}/ffn/result`)];
  const little = [];
  const lines = names.map((name, place) => {
    if (!place) return lineOf(shown, name, "enters the encoder");
    const [before, after] = [rowOf(shown, names[place - 1]), rowOf(shown, name)];
    const change = length(after.map((v, unit) => v - before[unit])) / length(before);
    const size = change < 1 ? percent(change) : `${number(change)} times its length`;
    const row = lineOf(shown, name, `after layer ${place}`, `changed by ${size}`);
    if (place - 1 === shown.layer) row.classList.add("chosen");
    if (change < LITTLE) little.push(place);
    return row;
  });
  const note =
    `Layers that do little for this token: ${little.join(", ")}. ` +
    `They change it by less than ${100 * LITTLE}%.`;
  return little.length ? [...lines, element("p", { class: "note" }, note)] : lines;
}
