// Section 5: beam search as a tree.

import { latest } from "./client.js";
import { checkbox, element, number, picture, precise } from "./drawing.js";
import { refill, slider, spell } from "./drawing.js";

// A candidate's box and its column, in pixels.
const [COLUMN, ROW, WIDTH, HEIGHT] = [132, 40, 96, 32];

const LEGEND =
  "Each box is a token that continues a hypothesis. The number is the log-probability of the " +
  "tokens so far. Kept boxes have a solid frame, dropped ones a dashed frame, and finished ones " +
  "round ends. The orange path leads to the best translation. Greedy decoding writes the shaded " +
  "boxes.";

// For these, the shipped model's beam finds another translation than greedy decoding.
const EXAMPLES = [
  "Está a chover a cântaros.",
  "Os livros foram-lhe entregues ontem.",
];

export function mountBeam(section, page) {
  const onWidth = (beams) => page.update({ beams });
  const beams = slider({ label: "Width", min: 1, max: 5, onInput: onWidth });
  const onPenalty = (penalty) => page.update({ penalty });
  const penalty = slider({ label: "Length penalty", max: 2, step: 0.1, onInput: onPenalty });
  penalty.set(1);
  const mean = checkbox({
    label: "Score by the mean of the tokens instead",
    onInput: (checked) => onPenalty(checked ? null : Number(penalty.input.value)),
  });
  const about = { tabindex: 0, role: "group", "aria-label": "Finished translations" };
  const ranks = element("div", { class: "box", "aria-live": "polite", ...about });
  const legend = element("p", { class: "note" }, LEGEND);
  const tree = picture("The tree of hypotheses", "beam-search", legend);
  const controls = [beams.node, penalty.node, mean.node];
  const examples = EXAMPLES.map((text) =>
    element("button", { onclick: () => page.update({ text }), lang: "pt" }, text),
  );
  section.append(element("p", { class: "examples" }, "Try ", examples));
  section.append(element("p", { class: "controls" }, controls), ranks, tree.node);
  const ask = latest(page.tfxformer.beam);
  return {
    uses: ["beams", "penalty"],
    async show(state, { source }) {
      const areBusy = (busy) => [ranks, tree.body].forEach((box) => (box.ariaBusy = busy));
      const { beams: width } = state;
      beams.set(width);
      penalty.set(state.penalty ?? penalty.input.value);
      mean.set(state.penalty === null);
      penalty.input.disabled = state.penalty === null;
      const alpha = state.penalty === null ? null : Number(penalty.input.value);
      const request = { source, beams: width, nBest: width, lengthPenalty: alpha };
      areBusy(true);
      const found = await ask(request);
      if (!found) return; // a newer one is under way
      areBusy(false);
      refill(ranks, ranking(found, alpha));
      refill(tree.body, draw(found.steps, found.hypotheses[0]));
    },
  };
}

// The finished hypotheses, best first, with what ranks them.
function ranking({ hypotheses, steps }, alpha) {
  const greedy = greedyOf(steps).join(" ");
  const isGreedy = (tokens) => tokens.join(" ") === greedy;
  const row = (tag, texts) => {
    const cells = texts.map((text) => element(tag, {}, text));
    return element("tr", {}, cells);
  };
  const names = ["", "finished translation", "log-probability", "tokens", "score"];
  const rows = hypotheses.map(({ translation, tokens, total, rank }, place) => {
    const text = isGreedy(tokens) ? `${translation} (greedy)` : translation;
    return row("td", [place + 1, text, precise(total), tokens.length, precise(rank)]);
  });
  const head = element("thead", {}, row("th", names));
  const table = element("table", {}, head, element("tbody", {}, rows));
  const formula =
    alpha === null
      ? "The score is the log-probability divided by the number of tokens."
      : `The score is the log-probability divided by ((5 + tokens) ÷ 6) to the power of ` +
        `${alpha}. A higher power favours longer translations.`;
  const found = isGreedy(hypotheses[0].tokens)
    ? "The best is greedy decoding’s translation."
    : "The best is not greedy decoding’s translation.";
  return [table, element("p", { class: "note" }, `${found} ${formula}`)];
}

// The tree: a column for each step, and in it the candidates, the likeliest at the top.
function draw(steps, best) {
  const path = pathTo(best, steps);
  const greedy = greedyOf(steps);
  const tallest = Math.max(...steps.map((step) => step.length));
  const size = { width: COLUMN * (steps.length + 1), height: ROW * tallest + 24 };
  const label = `Tree of ${steps.length} steps; the best translation is ${best.translation}`;
  const svg = element("svg", { ...size, class: "tree", role: "img", "aria-label": label });
  svg.append(box({ token: "<s>", total: 0 }, 0, 0, "kept best"));
  steps.forEach((step, number) => {
    const column = number + 1;
    svg.append(element("text", { x: column * COLUMN + 4, y: 14, class: "step" }, `step ${column}`));
    step.forEach((candidate, row) => {
      const isGreedy = row === 0 && number < greedy.length;
      const marks = [path[number] === row && "best", isGreedy && "greedy"].filter(Boolean);
      const group = [candidate.state, ...marks].join(" ");
      const end = (row) => 24 + row * ROW + HEIGHT / 2;
      const ends = {
        x1: number * COLUMN + 4 + WIDTH,
        y1: end(parentOf(candidate, steps[number - 1])),
        x2: column * COLUMN + 4,
        y2: end(row),
      };
      svg.append(element("line", { ...ends, class: group }), box(candidate, column, row, group));
    });
  });
  return svg;
}

// The tokens of greedy decoding: the first candidates, until one ends it.
function greedyOf(steps) {
  const tokens = steps.map(([{ token }]) => token);
  const end = tokens.indexOf("</s>");
  return end < 0 ? tokens : tokens.slice(0, end + 1);
}

// The row of a candidate's parent in the step before.
const parentOf = ({ parent }, before) => before?.findIndex(({ place }) => place === parent) ?? 0;

// The rows of the candidates that a hypothesis consists of, one for each step.
function pathTo({ ids, total }, steps) {
  const path = [];
  const ends = (one) => one.state === "finished" && one.total === total;
  let row = steps[ids.length - 1].findIndex(ends);
  for (let step = ids.length - 1; step >= 0; step--) {
    path[step] = row;
    row = parentOf(steps[step][row], steps[step - 1]);
  }
  return path;
}

function box({ token, total, state }, column, row, group) {
  const [x, y] = [column * COLUMN + 4, 24 + row * ROW];
  const frame = { x, y, width: WIDTH, height: HEIGHT, rx: state === "finished" ? 16 : 5 };
  const name = element("text", { x: x + 8, y: y + 14 }, shortened([...spell(token)]));
  const score = element("text", { x: x + 8, y: y + 27, class: "score" }, number(total));
  return element("g", { class: group }, element("rect", frame), name, score);
}

const shortened = (letters) =>
  (letters.length > 11 ? [...letters.slice(0, 10), "…"] : letters).join("");
