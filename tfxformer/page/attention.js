// One head of the encoder: the map of its weights, what a token reads, and the arithmetic
// of a weight from the query and the key to the softmax.

import { element, grid, largest, line, links, number, percent, picture } from "./drawing.js";
import { formula, refill, strip } from "./drawing.js";
import { shareOfPowers, sumOfProducts } from "./catalogue.js";
import { rowsOf } from "./panel.js";

export function makeHead(page) {
  const map = picture("How much each token (row) reads of each token (column)", "weights");
  const lines = picture("What the token reads", "reads");
  const arithmetic = picture("The arithmetic of this cell", "arithmetic");
  const steps = element("div", { "aria-live": "polite" });
  arithmetic.body.append(steps);
  const reading = picture("What the head makes of it", "head");
  const introduction =
    "Three matrices turn each token’s row into a query (what it looks for), a key (what it is " +
    "found by) and a value (what it passes on). The more a query and a key agree, the higher the " +
    "score. The softmax turns a row of scores into shares.";
  const nodes = [
    element("div", { class: "side-by-side" }, map.node, lines.node),
    element("p", { class: "note" }, introduction),
    element("div", { class: "side-by-side" }, arithmetic.node, reading.node),
  ];

  function show(values, { layer, head, token }, tokens) {
    const path = `encoder/layer_${layer}/self_attention`;
    const size = page.settings.d_model / page.settings.num_heads;
    const part = (name) =>
      rowsOf(values[`${path}/${name}`]).map((row) => row.subarray(head * size, (head + 1) * size));
    const whole = (name) => rowsOf(values[`${path}/${name}`], head);
    const parts = { query: part("query"), key: part("key"), value: part("value") };
    Object.assign(parts, { scores: whole("scores"), weights: whole("weights") });
    parts.output = part("concatenation");
    const about = { path, head, size, tokens, page };
    const most = parts.weights[token].indexOf(Math.max(...parts.weights[token]));
    const cells = grid({
      rows: tokens,
      columns: tokens,
      value: (row, column) => parts.weights[row][column],
      label: `Weights of layer ${layer + 1}, head ${head + 1}. The arrow keys move.`,
      chosen: { row: token, column: most },
      onPoint: point,
      onPick: (row) => page.update({ token: row }),
    });
    function point(row, column) {
      cells.mark({ row, column });
      refill(lines.body, drawLinks(parts, row, about));
      refill(steps, drawArithmetic(parts, { row, column }, about));
      refill(reading.body, drawReading(parts, row, about));
    }
    refill(map.body, cells.node);
    point(token, most);
  }
  return { nodes, show };
}

function drawLinks({ weights }, row, { tokens, page }) {
  return links({
    left: tokens,
    right: tokens,
    weights: weights[row],
    chosen: row,
    label: `What ${tokens[row]} reads`,
    onPick: (token) => page.update({ token }),
  });
}

// From the query and the key to the weight.
function drawArithmetic({ query, key, scores, weights }, { row, column }, about) {
  const { path, head, size, tokens, page } = about;
  const [q, k] = [query[row], key[column]];
  const products = q.map((v, unit) => v * k[unit]);
  const scale = Math.max(largest(q), largest(k));
  const open = (name, row) => () => page.open({ name: `${path}/${name}`, row, unit: head * size });
  const shown = (label, values, onOpen) => line(label, strip(values, { label, scale, onOpen }));
  const [score, root] = [scores[row][column], Math.sqrt(size)];
  const steps = [
    ["Query · key", sumOfProducts(q, k)],
    [`÷ √${size}`, `${number(score * root)} ÷ ${+root.toFixed(2)} = ${number(score)}`],
    ["Mask", "hides nothing: in the encoder, every token may read every token"],
    ["Softmax", formula(shareOfPowers(scores[row], column, weights[row][column]))],
    ["Weight", `${tokens[row]} reads ${percent(weights[row][column])} of ${tokens[column]}`],
  ];
  return [
    shown(`Query of ${tokens[row]}`, q, open("query", row)),
    shown(`Key of ${tokens[column]}`, k, open("key", column)),
    line("Query × key", strip(products, { label: "Query times key, number by number" })),
    element("dl", { class: "steps" }, steps.flatMap(term)),
  ];
}

const term = ([name, text]) => [element("dt", {}, name), element("dd", {}, text)];

// The values, each as much as it is read, and their sum.
function drawReading({ weights, value, output }, row, { path, head, size, tokens, page }) {
  const scale = Math.max(...value.map(largest));
  const open = (name, row) => () => page.open({ name: `${path}/${name}`, row, unit: head * size });
  const rows = tokens.map((token, place) => {
    const label = `Value of ${token}`;
    const values = strip(value[place], { label, scale, onOpen: open("value", place) });
    return line(label, values, `× ${percent(weights[row][place])}`);
  });
  const label = `Sum for ${tokens[row]}`;
  const sum = strip(output[row], { label, scale, onOpen: open("concatenation", row) });
  return [...rows, line(`= ${label}`, sum)];
}
