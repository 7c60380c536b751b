// The panel that opens a value of the model: its numbers, its formula with these numbers
// filled in, and where the Python package and the notebooks have it.

import { board, choice, counted, element, formula, sequential, spell } from "./drawing.js";
import { describe } from "./catalogue.js";

const WIDTH = 200; // of a single row with thousands of numbers, cut into shorter ones

export function makePanel(page) {
  const heading = element("h2", { id: "panel-title" });
  const content = element("div");
  const close = element("button", { class: "close", "aria-label": "Close" }, "×");
  const bar = element("form", { method: "dialog" }, close);
  const node = element("dialog", { "aria-labelledby": "panel-title" }, bar, heading, content);
  // A click beside the panel closes it.
  node.addEventListener("click", (event) => event.target === node && node.close());
  let newest = 0;

  async function open({ name, row = 0, unit, head = 0 }, walk) {
    const mine = ++newest;
    const [folder, last] = name.split(/\/(?=[^/]*$)/);
    const about = describe(folder, page.settings)[last];
    heading.replaceChildren(...formula(about.title));
    content.replaceChildren(element("p", {}, `In the model: ${about.location}.`));
    if (!node.open) node.showModal();
    const values = await valuesOf(page.tfxformer, { name, about, row, walk });
    const weights = await page.tfxformer.weights({ names: about.weights.flatMap(both(about)) });
    if (mine !== newest) return;
    const known = { name, about, values, weights, walk, step: row };
    content.append(shape(known), element("p", { class: "formula" }, formula(about.formula)));
    content.append(...numbers(known, { row, unit, head }), whereabouts(about));
  }
  return { node, open };
}

// The names of a weight: inside the value's own part of the model, and whole.
const both =
  ({ folder }) =>
  (name) => [`${folder}/${name}`, name];

// The value, those beside it, and what the stacks give. The decoder's are those of all
// its steps at once; only the logits are those of one step.
function valuesOf(tfxformer, { name, about, row, walk }) {
  const { folder, stack } = about;
  const beside = folder === stack ? [] : [`${folder}/`];
  const names = [name, ...beside, `${stack}/stream`, "encoder/output", "decoder/output"];
  const step = stack === "output" ? row : undefined;
  return tfxformer.inspect({ source: walk.source, target: walk.ids.slice(0, -1), step, names });
}

function shape({ values, name }) {
  const { shape } = values[name];
  const [units, rows, heads] = [...shape].reverse();
  const texts = [`${shape.join(" × ")}: `];
  if (heads) texts.push(`for each of ${heads} heads, `);
  texts.push(rows ? `${rows} rows of ${units} numbers` : "a number for each token of the table");
  return element("p", {}, "Shape: ", texts.join(""), ".");
}

function whereabouts({ where: [python, notebook, section] }) {
  const code = (text) => element("code", {}, text);
  const notebooks = [" In the notebooks: ", code(`${notebook}.ipynb`), `, “${section}”.`];
  return element("p", { class: "where" }, "In Python: ", code(python), ".", notebooks);
}

// ---- Its numbers, of which the reader picks one

function numbers(known, { row, unit, head }) {
  const { name, values, walk, step } = known;
  const { shape } = values[name];
  const wrapped = shape.length === 1;
  const line = element("p", { class: "filled", "aria-live": "polite" });
  const cells = board({
    label: "The numbers. The arrow keys move.",
    onPick: (row, unit) => show(wrapped ? { unit: row * WIDTH + unit } : { row, unit }),
  });
  let at = wrapped ? { row: 0, unit: unit ?? walk.ids[step] } : { row, unit: unit ?? 0, head };
  function show(changes) {
    at = { ...at, ...changes };
    at.unit = Math.min(at.unit, shape.at(-1) - 1);
    const place = wrapped ? [Math.floor(at.unit / WIDTH), at.unit % WIDTH] : [at.row, at.unit];
    cells.mark(...place);
    const filled = formula(known.about.fill(reader(known, at)));
    line.replaceChildren(element("b", {}, `${naming(known, at)}: `), ...filled);
  }
  function draw(changes) {
    at = { ...at, ...changes };
    const rows = rowsOf(values[name], at.head);
    const labels = wrapped ? [] : rowTokens(known).map(spell);
    const shares = name.endsWith("/weights") && { scale: 1, colour: sequential() };
    cells.set(wrapped ? cut(rows[0]) : rows, { labels, ...shares });
    show({});
  }
  const heads = choice({
    label: "Head",
    options: counted(shape[0]),
    onInput: (head) => draw({ head }),
  });
  heads.set(head);
  draw();
  return [...(shape.length === 3 ? [heads.node] : []), line, cells.node];
}

function cut(values) {
  const count = Math.ceil(values.length / WIDTH);
  return Array.from({ length: count }, (_, i) => values.subarray(i * WIDTH, (i + 1) * WIDTH));
}

// A matrix as its rows; of several heads, those of one.
export function rowsOf({ shape, data }, head = 0) {
  const [units, rows] = [shape.at(-1), shape.at(-2) ?? 1];
  const first = shape.length === 3 ? head * rows : 0;
  const from = (row) => (first + row) * units;
  return Array.from({ length: rows }, (_, row) => data.subarray(from(row), from(row) + units));
}

const SPLIT = ["scores", "weights"]; // of heads, and with tokens as columns

// What a rule of the catalogue fills in.
function reader({ name, about, values, weights, step }, at) {
  const find = (from, last) => from[`${about.folder}/${last}`] ?? from[last];
  const rowOf = (last, row = at.row, head = at.head) => {
    const rows = rowsOf(find(values, last), head);
    return rows[Math.min(row, rows.length - 1)];
  };
  const weightRow = (last, unit) => {
    const { shape, data } = find(weights, last);
    return data.subarray(unit * shape[1], (unit + 1) * shape[1]);
  };
  const weight = (last) => find(weights, last)?.data;
  return { ...at, value: rowsOf(values[name], at.head)[at.row][at.unit], rowOf, weight, weightRow };
}

const shifted = ({ tokens }) => ["<s>", ...tokens.slice(0, -1)];

function rowTokens({ name, about, walk }) {
  const ofSource = about.cross && /(key|value)$/.test(name);
  return about.stack === "encoder" || ofSource ? walk.sourceTokens : shifted(walk);
}

// Which number it is, for the reader.
function naming(known, { row, unit }) {
  const { name, about, walk, step } = known;
  if (about.stack === "output") {
    const candidate = walk.steps[step].candidates.find(({ id }) => id === unit);
    return candidate ? spell(candidate.token) : `The token with id ${unit}`;
  }
  const token = spell(rowTokens(known)[row]);
  if (!SPLIT.includes(name.split("/").at(-1))) return `${token}, number ${unit + 1}`;
  const columns = about.cross || about.stack === "encoder" ? walk.sourceTokens : shifted(walk);
  return `${token} reads ${spell(columns[unit])}`;
}
