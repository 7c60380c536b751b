// What a layer of the encoder makes of a token: the heads together, Add & Norm, the
// feed-forward network; and how the stream changes from layer to layer.

import { element, heatmap, line, number, percent, picture } from "./drawing.js";
import { refill, sequential, strip } from "./drawing.js";
import { rowsOf } from "./panel.js";

const WIDTH = 64; // hidden units in a row of the picture

export function makeSublayers(page) {
  const joined = picture("All heads, side by side, and the output matrix", "output");
  const first = picture("Add & Norm around the heads", "add-and-norm");
  const hidden = picture("The hidden units of the feed-forward network", "hidden");
  const second = picture("Add & Norm around the feed-forward network", "add-and-norm-2");
  const stream = picture("The residual stream, from layer to layer", "stream");
  const notes = {
    joined: "The results of all heads stand side by side. A matrix mixes them into one row.",
    added:
      "Each part adds its output to the row that comes in. This detour around the part is the " +
      "residual connection. The normalisation brings the numbers of a row to about the same " +
      "mean and deviation at every place.",
    hidden:
      "Each hidden unit looks for a pattern in the token’s row. It fires if it finds the " +
      "pattern; otherwise it gives 0. Units that fire add their own rows to the output.",
    stream:
      "Each row is the token after a layer, in its own colours. The number says how far the " +
      "layer moved it: the length of the change, as a share of the row’s length.",
  };
  const note = (text) => element("p", { class: "note" }, text);
  const nodes = [joined.node, note(notes.joined), first.node, note(notes.added)];
  nodes.push(hidden.node, note(notes.hidden), second.node, stream.node, note(notes.stream));

  function show(values, { layer, token }, name) {
    const about = { page, values, token, name, path: `encoder/layer_${layer}` };
    refill(joined.body, drawJoined(about));
    refill(first.body, drawAddAndNorm(about, "self_attention", "output of the heads"));
    refill(hidden.body, drawHidden(about));
    refill(second.body, drawAddAndNorm(about, "ffn", "output of the network"));
    refill(stream.body, drawStream(about, layer));
  }
  return { nodes, show };
}

const rowOf = ({ values, token }, name) => rowsOf(values[name])[token];

// A strip with its name, which opens.
function lineOf(about, name, label, note) {
  const onOpen = () => about.page.open({ name, row: about.token });
  return line(label, strip(rowOf(about, name), { label, onOpen, scale: scaleOf(about, name) }), note);
}

// Twice the usual size of a number has the full colour.
function scaleOf(about, name) {
  const row = rowOf(about, name);
  return 2 * (length(row) / Math.sqrt(row.length)) || 1;
}

const length = (row) => Math.sqrt(row.reduce((sum, v) => sum + v * v, 0));

function drawJoined(about) {
  const path = `${about.path}/self_attention`;
  return [
    lineOf(about, `${path}/concatenation`, "Heads, side by side"),
    lineOf(about, `${path}/output`, "× the output matrix"),
  ];
}

// In the order of the computation, with the mean and the deviation around the layer norm.
function drawAddAndNorm(about, part, output) {
  const path = `${about.path}/${part}`;
  const moments = (when) => {
    const [mean, deviation] = rowOf(about, `${path}/${when}`);
    return `mean ${number(mean)}, deviation ${number(deviation)}`;
  };
  const shown = (last, label, note) => lineOf(about, `${path}/${last}`, label, note);
  const { name, page } = about;
  if (page.settings.norm === "pre")
    return [
      shown("x", `${name} comes in`, moments("before")),
      shown("input", "normalised", moments("after")),
      shown("output", `${output}`),
      shown("sum", "comes in + output"),
    ];
  return [
    shown("x", `${name} comes in`),
    shown("output", `${output}`),
    shown("sum", "comes in + output", moments("before")),
    shown("result", "normalised", moments("after")),
  ];
}

// The hidden units as a field of cells.
function drawHidden(about) {
  const name = `${about.path}/ffn/hidden`;
  const hidden = rowOf(about, name);
  const count = Math.ceil(hidden.length / WIDTH);
  const rows = Array.from({ length: count }, (_, i) => hidden.subarray(i * WIDTH, (i + 1) * WIDTH));
  const firing = hidden.filter((v) => v > 0).length;
  const text = `${firing} of ${hidden.length} hidden units fire for ${about.name}`;
  const field = heatmap(rows, { label: text, colour: sequential(), className: "field" });
  const onclick = () => about.page.open({ name, row: about.token, unit: strongest(hidden) });
  const button = element("button", { class: "field", onclick, "aria-label": `${text}: open` }, field);
  return [element("p", {}, element("b", {}, text), "."), button];
}

const strongest = (values) => values.indexOf(Math.max(...values));

function drawStream(about, chosen) {
  const { page, values } = about;
  const names = ["encoder/embedding/output"];
  for (let i = 0; i < page.settings.num_layers; i++) names.push(`encoder/layer_${i}/ffn/result`);
  return names.map((name, place) => {
    if (!place) return lineOf(about, name, "enters the encoder");
    const [before, after] = [names[place - 1], name].map((name) => rowOf({ ...about, values }, name));
    const change = length(after.map((v, unit) => v - before[unit])) / length(before);
    const row = lineOf(about, name, `after layer ${place}`, `moved by ${percent(change)}`);
    if (place - 1 === chosen) row.classList.add("chosen");
    return row;
  });
}
