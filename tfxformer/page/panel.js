// The panel that opens a value of the model: its numbers, its formula with these numbers
// filled in, and where the Python package and the notebooks have it.

import { chooser, element, formula, grid, refill, SHARES, spell } from "./drawing.js";
import { describe } from "./catalogue.js";
import { rowsOf } from "./matrix.js";

const WIDTH = 200; // of the row of logits, cut into shorter ones
const ROOM = 800; // pixels for the columns

export function makePanel(page) {
  const heading = element("h2", { id: "panel-title" });
  const content = element("div");
  const close = element("button", { class: "close", "aria-label": "Close" }, "×");
  const bar = element("form", { method: "dialog" }, close);
  const node = element("dialog", { "aria-labelledby": "panel-title" }, bar, heading, content);
  // A click beside the panel closes it.
  node.addEventListener("click", (event) => event.target === node && node.close());
  node.addEventListener("close", () => page.update({ value: {} }));
  let newest = 0;

  async function open({ name, row = 0, unit = 0, head = 0 }, walk) {
    const mine = ++newest;
    const [folder, last] = name.split(/\/(?=[^/]*$)/);
    const about = describe(folder, page.settings)[last];
    heading.replaceChildren(...formula(about.title));
    content.replaceChildren(element("p", {}, `In the model: ${about.location}.`));
    if (!node.open) node.showModal();
    const { source, ids } = walk;
    const request = { source, target: ids.slice(0, row), names: ["output"] };
    const logits = folder === "output" ? await page.tfxformer.inspect(request) : {};
    const weights = await page.tfxformer.weights({ names: about.weights });
    if (mine !== newest) return;
    const known = { name, about, values: { ...walk.values, ...logits }, weights, walk, step: row };
    content.append(shape(known), element("p", { class: "formula" }, formula(about.formula)));
    content.append(...numbers(known, { row, unit, head }), whereabouts(about, page.notebooks));
  }
  return { node, open };
}

function shape({ values, name }) {
  const { shape } = values[name];
  const [units, rows, heads] = [...shape].reverse();
  const ofHeads = heads ? `for each of ${heads} heads, ` : "";
  const text = rows ? `${rows} rows of ${units} numbers` : "a number for each token of the table";
  return element("p", {}, `Shape: ${shape.join(" × ")}: ${ofHeads}${text}.`);
}

// A page on the site of the documentation links to the notebooks there.
function whereabouts({ where: [python, notebook, section] }, notebooks) {
  const code = (text) => element("code", {}, text);
  const anchor = section.toLowerCase().replace(/[^a-z0-9]+/g, "-");
  const href = notebooks !== null && `${notebooks}/${notebook}.html#${anchor}`;
  const link = element("a", { href }, code(`${notebook}.ipynb`), `, “${section}”`);
  const text = ["In Python: ", code(python), ". In the notebooks: ", link, "."];
  return element("p", { class: "where" }, text);
}

// Its numbers, of which the reader picks one.
function numbers(known, { row, unit, head }) {
  const { name, values, walk, step } = known;
  const { shape, data } = values[name];
  const wrapped = shape.length === 1; // logits, probabilities
  const filled = element("p", { class: "filled", "aria-live": "polite" });
  const box = element("div", { class: "box" });
  const within = (place, axis) => Math.min(place, shape.at(axis) - 1);
  let at = wrapped
    ? { row: step, unit: unit || walk.ids[step] }
    : { row: within(row, -2), unit: within(unit, -1), head: shape.length === 3 && within(head, 0) };
  function draw(changes) {
    at = { ...at, ...changes };
    const whole = { shape: [Math.ceil(data.length / WIDTH), WIDTH], data };
    const rows = wrapped ? rowsOf(whole) : rowsOf(values[name], at.head);
    const [width, height] = [ROOM / rows[0].length, rows.length > 30 ? 12 : 22];
    const cells = grid({
      values: rows,
      rows: wrapped ? [] : rowTokens(known).map(spell),
      cell: [Math.max(1, Math.min(22, width)), height],
      label: "The numbers. The arrow keys move.",
      chosen: wrapped ? cellOf(at.unit) : { row: at.row, column: at.unit },
      columns: /(scores|weights)$/.test(name) ? columnTokens(known).map(spell) : [],
      ...(/(weights|probabilities)$/.test(name) && SHARES),
      onPoint(row, column) {
        if (wrapped) at.unit = row * WIDTH + column;
        else Object.assign(at, { row, unit: column });
        cells.mark({ row, column });
        tell();
      },
    });
    refill(box, cells.node);
    tell();
  }
  function tell() {
    const text = formula(known.about.fill(reader(known, at)));
    filled.replaceChildren(element("b", {}, `${naming(known, at)}: `), ...text);
  }
  const heads = chooser("Head", shape[0], (head) => draw({ head }));
  heads.set(at.head);
  draw();
  return [...(shape.length === 3 ? [heads.node] : []), filled, box];
}

const cellOf = (unit) => ({ row: Math.floor(unit / WIDTH), column: unit % WIDTH });

// What a rule of the catalogue fills in.
function reader({ name, about, values, weights }, at) {
  const rowOf = (last, row = at.row, head = at.head) => {
    const rows = rowsOf(values[`${about.folder}/${last}`] ?? values[last], head);
    return rows[Math.min(row, rows.length - 1)];
  };
  const weight = (name, row = 0) => weights[name] && rowsOf(weights[name])[row];
  return { ...at, rowOf, weight, value: rowOf(name)[at.unit] };
}

const shifted = ({ tokens }) => ["<s>", ...tokens.slice(0, -1)];

function rowTokens({ name, about, walk }) {
  const ofSource = about.cross && /(key|value)$/.test(name);
  return about.stack === "encoder" || ofSource ? walk.sourceTokens : shifted(walk);
}

// The tokens that scores and weights are about.
const columnTokens = ({ about, walk }) =>
  about.cross || about.stack === "encoder" ? walk.sourceTokens : shifted(walk);

// Which number it is, for the reader.
function naming(known, { row, unit }) {
  const { name, about, walk, step } = known;
  if (about.stack === "output") {
    const candidate = walk.steps[step].candidates.find(({ id }) => id === unit);
    return candidate ? spell(candidate.token) : `The token with id ${unit}`;
  }
  const token = spell(rowTokens(known)[row]);
  if (!/(scores|weights)$/.test(name)) return `${token}, number ${unit + 1}`;
  return `${token} reads ${spell(columnTokens(known)[unit])}`;
}
