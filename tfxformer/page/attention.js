// One head of the encoder: the map of its weights, what a token reads, and the arithmetic
// of a weight from the query and the key to the softmax.

import { element, formula, grid, largest, line, links } from "./drawing.js";
import { number, percent, picture, precise, refill, SHARES } from "./drawing.js";
import { shareOfPowers, sumOfProducts } from "./catalogue.js";
import { headOf, rowsOf } from "./matrix.js";

const MOST = 10; // values in a sum
const ROOM = 200; // above the token that the lines begin at

const ARITHMETIC =
  "Three matrices turn each token’s row into a query (what it looks for), a key (what it is " +
  "found by) and a value (what it passes on). The more a query agrees with a key, the higher " +
  "the score. The softmax turns a row of scores into weights.";
const READING = "The head adds the values of all tokens, each as much as it is read.";

export function makeHead(page) {
  const map = picture("How much does each token (row) read of each token (column)?", "weights");
  const lines = picture("What does the token read?", "reads");
  const arithmetic = picture("Where does this weight come from?", "arithmetic", ARITHMETIC);
  const sum = picture("What does the token get?", "head", READING);
  const pictures = [map, lines, arithmetic, sum].map(({ node }) => node);
  const said = element("p", { "aria-live": "polite" });
  const steps = element("div");
  arithmetic.body.append(said, steps);
  const openers = element("p", { class: "controls" });
  arithmetic.node.append(openers);

  function show({ values, layer, head, token, tokens, ...state }) {
    const { num_heads } = page.settings;
    const path = `encoder/layer_${layer}/self_attention`;
    const whole = (name) => rowsOf(values[`${path}/${name}`], head);
    const part = (name) => headOf(whole(name), head, num_heads);
    const open =
      (name, row, unit = part("query")[0].length * head) =>
      () =>
        page.open({ name: `${path}/${name}`, row, unit, head });
    const weights = whole("weights");
    const shown = { part, open, tokens, weights, scores: whole("scores") };
    const strongest = weights[token].indexOf(Math.max(...weights[token]));
    const column = state.column < 0 ? strongest : state.column;
    const cells = grid({
      rows: tokens,
      columns: tokens,
      values: weights,
      ...SHARES,
      numbered: true,
      label: `Weights of layer ${layer + 1}, head ${head + 1}. The arrow keys move.`,
      chosen: { row: token, column },
      onPoint: point,
      onPick: (token, column) => page.update({ token, column, position: token }),
    });
    refill(map.body, cells.node);
    point(token, column);

    function point(row, column) {
      cells.mark({ row, column });
      const label = `What ${tokens[row]} reads`;
      const reads = { left: tokens, right: tokens, weights: weights[row], chosen: row, label };
      refill(lines.body, links(reads));
      lines.body.scrollTop = (row / tokens.length) * lines.body.scrollHeight - ROOM;
      const weight = percent(weights[row][column]);
      said.textContent = `${tokens[row]} reads ${tokens[column]} with a weight of ${weight}.`;
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
function drawArithmetic({ part, open, tokens, scores, weights }, row, column) {
  const [q, k] = [part("query")[row], part("key")[column]];
  const scale = Math.max(largest(q), largest(k));
  const root = Math.sqrt(q.length);
  const score = scores[row][column];
  const steps = {
    "Query · key": sumOfProducts(q, k),
    [`÷ √${q.length}`]: `${precise(score * root)} ÷ ${+root.toFixed(2)} = ${precise(score)}`,
    Mask: "hides nothing: in the encoder, every token may read every token",
    Softmax: shareOfPowers(scores[row], column, weights[row][column]),
  };
  const term = ([name, text]) => [element("dt", {}, name), element("dd", {}, formula(text))];
  const products = q.map((v, unit) => v * k[unit]);
  return [
    line(`Query of ${tokens[row]}`, q, { scale, onOpen: open("query", row) }),
    line(`Key of ${tokens[column]}`, k, { scale, onOpen: open("key", column) }),
    line("Query × key", products),
    element("p", { class: "note" }, `In the first two, ±${number(scale)} has the full colour.`),
    element("dl", { class: "steps" }, Object.entries(steps).flatMap(term)),
  ];
}

// The values that are read most, each as much as it is read, in the order of the sentence,
// and the sum of all.
function drawSum({ part, open, tokens, weights }, row) {
  const value = part("value");
  const scale = Math.max(...value.map(largest));
  const places = [...tokens.keys()].sort((a, b) => weights[row][b] - weights[row][a]);
  const most = places.slice(0, MOST).sort((a, b) => a - b);
  const lines = most.map((place) => {
    const note = `× ${percent(weights[row][place])}`;
    return line(`Value of ${tokens[place]}`, value[place], {
      scale,
      note,
      onOpen: open("value", place),
    });
  });
  if (tokens.length > MOST) lines.push(element("p", {}, `and ${tokens.length - MOST} more`));
  const onOpen = open("concatenation", row);
  return [...lines, line(`= for ${tokens[row]}`, part("concatenation")[row], { scale, onOpen })];
}
