// Section 5: beam search as a tree.

import { latest } from "./client.js";
import { checkbox, element, number, picture, refill, slider, spell } from "./drawing.js";

// A candidate's box and its column, in pixels.
const [COLUMN, ROW, WIDTH, HEIGHT] = [132, 40, 96, 32];

const LEGEND =
  "Each box is a token that continues a hypothesis. The number is the log-probability of the " +
  "tokens so far. Kept boxes have a solid frame, dropped ones a dashed frame, and finished ones " +
  "a double frame. The coloured path leads to the best translation.";

export function mountBeam(section, page) {
  const beams = slider({
    label: "Width",
    min: 1,
    max: 5,
    onInput: (beams) => page.update({ beams }),
  });
  const penalty = slider({
    label: "Length penalty",
    max: 2,
    step: 0.1,
    format: (value) => Number(value).toFixed(1),
    onInput: (penalty) => page.update({ penalty }),
  });
  penalty.set(1);
  const mean = checkbox({
    label: "Score by the mean of the tokens instead",
    onInput: (checked) => page.update({ penalty: checked ? null : Number(penalty.input.value) }),
  });
  const ranks = element("div", { "aria-live": "polite" });
  const tree = picture(
    "The tree of hypotheses",
    "beam-search",
    element("p", { class: "note" }, LEGEND),
  );
  section.append(
    element("p", { class: "controls" }, beams.node, penalty.node, mean.node),
    ranks,
    tree.node,
  );
  const ask = latest(page.tfxformer.beam);
  return {
    uses: ["beams", "penalty"],
    async show({ beams: width, penalty: alpha }, { source }) {
      beams.set(width);
      penalty.set(alpha ?? penalty.input.value);
      mean.set(alpha === null);
      const request = { source, beams: width, nBest: width, lengthPenalty: alpha };
      const found = await ask(request);
      if (!found) return;
      refill(ranks, ranking(found.hypotheses, alpha));
      refill(tree.body, draw(found));
    },
  };
}

// The finished hypotheses, best first, with what ranks them.
function ranking(hypotheses, alpha) {
  const names = ["", "finished translation", "log-probability", "tokens", "score"];
  const row = ({ translation, ids, score, rank }, place) => {
    const cells = [
      place + 1,
      translation,
      number(score * ids.length),
      ids.length,
      rank.toFixed(3).replace("-", "−"),
    ];
    return element(
      "tr",
      {},
      cells.map((cell) => element("td", {}, String(cell))),
    );
  };
  const head = element(
    "tr",
    {},
    names.map((name) => element("th", { scope: "col" }, name)),
  );
  const formula =
    alpha === null
      ? "The score is the log-probability divided by the number of tokens."
      : `The score is the log-probability divided by ((5 + tokens) ÷ 6) to the power of ` +
        `${alpha}. A higher power favours longer translations.`;
  const table = element(
    "table",
    {},
    element("thead", {}, head),
    element("tbody", {}, hypotheses.map(row)),
  );
  const box = { class: "box", tabindex: 0, role: "group", "aria-label": "Finished translations" };
  return element("div", {}, element("div", box, table), element("p", { class: "note" }, formula));
}

// The tree: a column for each step, and in it the candidates, the likeliest at the top.
function draw({ steps, hypotheses }) {
  const best = pathTo(hypotheses[0], steps);
  const tallest = Math.max(...steps.map((step) => step.length));
  const size = { width: COLUMN * (steps.length + 1), height: ROW * tallest + 24 };
  const label = `Tree of ${steps.length} steps; the best translation is ${hypotheses[0].translation}`;
  const svg = element("svg", { ...size, class: "tree", role: "img", "aria-label": label });
  svg.append(box({ token: "<s>", total: 0, state: "kept" }, 0, 0, true));
  let parents = [0]; // the rows of the hypotheses that the last step kept
  const lines = element("g");
  svg.append(lines);
  steps.forEach((step, number) => {
    const column = number + 1;
    svg.append(element("text", { x: column * COLUMN + 4, y: 14, class: "step" }, `step ${column}`));
    const kept = [];
    step.forEach((candidate, row) => {
      const onPath = best[number] === row;
      lines.append(line(column, parents[candidate.parent], row, candidate.state, onPath));
      svg.append(box(candidate, column, row, onPath));
      if (candidate.state === "kept") kept[candidate.place] = row;
    });
    parents = kept;
  });
  return svg;
}

// The rows of the candidates that a hypothesis consists of, one for each step.
function pathTo({ ids }, steps) {
  let going = [[]]; // the ids of each hypothesis, and the rows on its path
  let rows = [[]];
  for (const step of steps.slice(0, ids.length)) {
    const [nextGoing, nextRows] = [[], []];
    for (const [row, { parent, id, state, place }] of step.entries()) {
      const path = [...rows[parent], row];
      const written = [...going[parent], id];
      if (state === "finished" && written.join() === ids.join()) return path;
      if (state === "kept") [nextGoing[place], nextRows[place]] = [written, path];
    }
    [going, rows] = [nextGoing, nextRows];
  }
  return [];
}

function box({ token, total, state }, column, row, best) {
  const [x, y] = [column * COLUMN + 4, 24 + row * ROW];
  const frame = { x, y, width: WIDTH, height: HEIGHT, rx: 5 };
  const inner = { x: x + 3, y: y + 3, width: WIDTH - 6, height: HEIGHT - 6, rx: 3 };
  return element(
    "g",
    { class: `${state} ${best ? "best" : ""}` },
    element("rect", frame),
    state === "finished" ? [element("rect", inner)] : [],
    element("text", { x: x + 8, y: y + 14 }, shortened(spell(token))),
    element("text", { x: x + 8, y: y + 27, class: "score" }, number(total)),
  );
}

const shortened = (text) => ([...text].length > 11 ? `${[...text].slice(0, 10).join("")}…` : text);

function line(column, from, to, state, best) {
  const middle = (row) => 24 + row * ROW + HEIGHT / 2;
  const [x, end] = [(column - 1) * COLUMN + 4 + WIDTH, column * COLUMN + 4];
  const half = (x + end) / 2;
  const path = `M${x} ${middle(from)} C${half} ${middle(from)} ${half} ${middle(to)} ${end} ${middle(to)}`;
  return element("path", { d: path, class: `${state} ${best ? "best" : ""}` });
}
