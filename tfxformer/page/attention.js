// One head of the encoder: the map of its weights, what a token reads, and the arithmetic
// of a weight from the query and the key to the softmax.

import { element, formula, grid, largest, line, links } from "./drawing.js";
import { number, percent, picture, refill } from "./drawing.js";
import { shareOfPowers, sumOfProducts } from "./catalogue.js";
import { rowsOf } from "./panel.js";

const MOST = 10; // values in a sum
const ROOM = 200; // above the token that the lines begin at

const ARITHMETIC =
  "Three matrices turn each token’s row into a query (what it looks for), a key (what it is " +
  "found by) and a value (what it passes on). The more a query agrees with a key, the higher " +
  "the score. The softmax turns a row of scores into shares.";
const READING = "The head adds the values of all tokens, each as much as it is read.";

export function makeHead(page) {
  const map = picture("How much does each token (row) read of each token (column)?", "weights");
  const lines = picture("What does the token read?", "reads");
  const how = element("p", {}, ARITHMETIC);
  const arithmetic = picture("Where does this share come from?", "arithmetic", how);
  const sum = picture("What does the token get?", "head", element("p", {}, READING));
  const pictures = [map, lines, arithmetic, sum].map(({ node }) => node);
  const said = element("p", { "aria-live": "polite" });
  const steps = element("div");
  arithmetic.body.append(said, steps);
  const openers = element("p", { class: "controls" });
  arithmetic.node.append(openers);

  function show({ values, layer, head, token, tokens }) {
    const path = `encoder/layer_${layer}/self_attention`;
    const size = page.settings.d_model / page.settings.num_heads;
    const whole = (name) => rowsOf(values[`${path}/${name}`], head);
    const part = (name) => whole(name).map((row) => row.subarray(head * size, (head + 1) * size));
    const open =
      (name, row, unit = head * size) =>
      () =>
        page.open({ name: `${path}/${name}`, row, unit, head });
    const shown = { whole, part, open, size, tokens };
    const weights = whole("weights");
    const column = weights[token].indexOf(Math.max(...weights[token]));
    const cells = grid({
      rows: tokens,
      columns: tokens,
      value: (row, column) => weights[row][column],
      label: `Weights of layer ${layer + 1}, head ${head + 1}. The arrow keys move.`,
      chosen: { row: token, column },
      onPoint: point,
      onPick: (token) => page.update({ token }),
    });
    refill(map.body, cells.node);
    point(token, column);

    function point(row, column) {
      cells.mark({ row, column });
      const label = `What ${tokens[row]} reads`;
      const reads = { left: tokens, right: tokens, weights: weights[row], chosen: row, label };
      refill(lines.body, links(reads));
      lines.body.scrollTop = (row / tokens.length) * lines.body.scrollHeight - ROOM;
      said.textContent = `${tokens[row]} reads ${percent(weights[row][column])} of ${tokens[column]}.`;
      refill(steps, drawArithmetic(shown, row, column));
      const opener = (name) =>
        element("button", { onclick: open(name, row, column) }, `Open the ${name}`);
      refill(openers, opener("scores"), opener("weights"));
      refill(sum.body, drawSum(shown, row));
    }
  }
  return { node: element("div", { class: "side-by-side" }, pictures), show };
}

// From the query and the key to the weight.
function drawArithmetic({ whole, part, open, size, tokens }, row, column) {
  const [q, k] = [part("query")[row], part("key")[column]];
  const [scores, weights] = [whole("scores")[row], whole("weights")[row]];
  const scale = Math.max(largest(q), largest(k));
  const root = Math.sqrt(size);
  const score = number(scores[column]);
  const steps = {
    "Query · key": sumOfProducts(q, k),
    [`÷ √${size}`]: `${number(scores[column] * root)} ÷ ${+root.toFixed(2)} = ${score}`,
    Mask: "hides nothing: in the encoder, every token may read every token",
    Softmax: shareOfPowers(scores, column, weights[column]),
  };
  const term = ([name, text]) => [element("dt", {}, name), element("dd", {}, formula(text))];
  return [
    line(`Query of ${tokens[row]}`, q, { scale, onOpen: open("query", row) }),
    line(`Key of ${tokens[column]}`, k, { scale, onOpen: open("key", column) }),
    line(
      "Query × key",
      q.map((v, unit) => v * k[unit]),
    ),
    element("dl", { class: "steps" }, Object.entries(steps).flatMap(term)),
  ];
}

// The places of the tokens that are read most, in the order of the sentence.
function mostRead(weights) {
  const places = [...weights.keys()].sort((a, b) => weights[b] - weights[a]);
  return places.slice(0, MOST).sort((a, b) => a - b);
}

// The values that are read most, each as much as it is read, and the sum of all.
function drawSum({ whole, part, open, tokens }, row) {
  const [value, weights] = [part("value"), whole("weights")[row]];
  const scale = Math.max(...value.map(largest));
  const places = mostRead(weights);
  const lines = places.map((place) => {
    const about = { scale, note: `× ${percent(weights[place])}`, onOpen: open("value", place) };
    return line(`Value of ${tokens[place]}`, value[place], about);
  });
  if (tokens.length > MOST) lines.push(element("p", {}, `and ${tokens.length - MOST} more`));
  const onOpen = open("concatenation", row);
  return [...lines, line(`= for ${tokens[row]}`, part("concatenation")[row], { scale, onOpen })];
}
