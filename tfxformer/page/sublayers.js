// What a layer of the encoder makes of a token: the heads together, Add & Norm, the
// feed-forward network; and how the stream changes from layer to layer.

import { element, heatmap, length, line, number, percent } from "./drawing.js";
import { picture, refill, sequential, usual } from "./drawing.js";
import { rowsOf } from "./panel.js";

const WIDTH = 64; // hidden units in a row of their picture

// Each picture: its title, its file's name, its introduction, and what draws it.
const PICTURES = [
  [
    "What do all heads of the layer give together?",
    "output",
    "The results of all heads stand side by side. The output matrix mixes them into one row.",
    drawJoined,
  ],
  [
    "Add & Norm, around the heads",
    "add-and-norm",
    "The layer adds the output to the row that came in: a residual connection. Normalisation " +
      "gives each row about the same mean and deviation (how far numbers are from the mean).",
    (shown) => drawAddAndNorm(shown, "self_attention", "output of the heads"),
  ],
  [
    "Which hidden units of the feed-forward network fire?",
    "hidden",
    "Each hidden unit looks for a pattern in the token’s row. If it finds the pattern, it fires: " +
      "it adds a row of its own to the output.",
    drawHidden,
  ],
  [
    "Add & Norm, around the feed-forward network",
    "add-and-norm-2",
    "The same again: add, and normalise.",
    (shown) => drawAddAndNorm(shown, "ffn", "output of the network"),
  ],
  [
    "How does the token change from layer to layer?",
    "stream",
    "Each layer adds to the row of the layer before: the residual stream. The numbers say how " +
      "long the change is, compared with the row. Section 6 shows what happens without a layer.",
    drawStream,
  ],
];

export function makeSublayers() {
  const made = PICTURES.map(([title, name, text, draw]) => ({
    ...picture(title, name, element("p", {}, text)),
    draw,
  }));
  const node = element(
    "div",
    {},
    made.map(({ node }) => node),
  );
  return { node, show: (shown) => made.forEach(({ body, draw }) => refill(body, draw(shown))) };
}

const rowOf = ({ values, token }, name) => rowsOf(values[name])[token];

// A value of the token as a strip in its own colours, which opens.
function lineOf(shown, name, label, note) {
  const row = rowOf(shown, name);
  const onOpen = () => shown.page.open({ name, row: shown.token });
  return line(label, row, { scale: usual(row), note, onOpen });
}

function drawJoined(shown) {
  const path = `encoder/layer_${shown.layer}/self_attention`;
  return [
    lineOf(shown, `${path}/concatenation`, "heads, side by side"),
    lineOf(shown, `${path}/output`, "× the output matrix"),
  ];
}

// In the order of the computation, with the mean and the deviation around the layer norm.
function drawAddAndNorm(shown, part, output) {
  const path = `encoder/layer_${shown.layer}/${part}`;
  const moments = (when) => {
    const [mean, deviation] = rowOf(shown, `${path}/${when}`);
    return `mean ${number(mean)}, deviation ${number(deviation)}`;
  };
  const [before, after] = [moments("before"), moments("after")];
  const name = `${shown.tokens[shown.token]} comes in`;
  const pre = [
    ["x", name, before],
    ["input", "normalised", after],
    ["output", output],
    ["sum", "comes in + output"],
  ];
  const post = [
    ["x", name],
    ["output", output],
    ["sum", "comes in + output", before],
    ["result", "normalised", after],
  ];
  const lines = shown.page.settings.norm === "pre" ? pre : post;
  return lines.map(([last, label, note]) => lineOf(shown, `${path}/${last}`, label, note));
}

// The hidden units as a field of cells.
function drawHidden(shown) {
  const name = `encoder/layer_${shown.layer}/ffn/hidden`;
  const hidden = rowOf(shown, name);
  const rows = rowsOf({ shape: [Math.ceil(hidden.length / WIDTH), WIDTH], data: hidden });
  const firing = hidden.filter((v) => v > 0).length;
  const label = `${firing} of ${hidden.length} hidden units fire for ${shown.tokens[shown.token]}`;
  const unit = hidden.indexOf(Math.max(...hidden));
  const onclick = () => shown.page.open({ name, row: shown.token, unit });
  const field = heatmap(rows, { label, colour: sequential(), className: "field" });
  const button = element(
    "button",
    { class: "field", "aria-label": `${label}: open`, onclick },
    field,
  );
  return [element("p", {}, `${label}.`), button];
}

function drawStream(shown) {
  const names = ["encoder/embedding/output"];
  for (let i = 0; i < shown.page.settings.num_layers; i++)
    names.push(`encoder/layer_${i}/ffn/result`);
  return names.map((name, place) => {
    if (!place) return lineOf(shown, name, "enters the encoder");
    const [before, after] = [rowOf(shown, names[place - 1]), rowOf(shown, name)];
    const change = length(after.map((v, unit) => v - before[unit])) / length(before);
    const row = lineOf(shown, name, `after layer ${place}`, `changed by ${percent(change)}`);
    if (place - 1 === shown.layer) row.classList.add("chosen");
    return row;
  });
}
