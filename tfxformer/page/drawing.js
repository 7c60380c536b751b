// What the views draw with: elements, controls, tokens, numbers as colours, and pictures
// that the reader can save.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "g", "path", "line", "rect", "circle", "text", "tspan"]);

// An element of HTML or SVG. Attributes that are functions listen to an event ("onclick"),
// and those that are null or false are left out. Texts among the children stay texts.
export function element(tag, attributes = {}, ...children) {
  const made = SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false)
      made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat());
  return made;
}

// ---- Numbers

// Three significant digits at most, with a real minus sign.
export function number(value) {
  const size = Math.abs(value);
  const digits = size >= 100 ? 0 : size >= 10 ? 1 : size >= 0.1 || size === 0 ? 2 : 3;
  return value.toFixed(digits).replace("-", "−");
}

export function percent(share) {
  if (share > 0 && share < 0.001) return "<0.1%";
  return `${(100 * share).toFixed(share < 0.1 || (share > 0.99 && share < 1) ? 1 : 0)}%`;
}

// ---- Colours: those of page.css, so that they follow the reader's theme

const parts = (name) => {
  const text = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16)); // "#rrggbb"
};
const between = (from, to, share) => from.map((v, i) => Math.round(v + share * (to[i] - v)));

// Blue for negative numbers, orange for positive ones: [red, green, blue] for a number
// from −1 to 1.
export function diverging() {
  const [negative, zero, positive] = ["--negative", "--zero", "--positive"].map(parts);
  return (share) => between(zero, share < 0 ? negative : positive, Math.min(1, Math.abs(share)));
}

// From the paper's colour to a full one, for a number from 0 to 1.
export function sequential() {
  const [none, full] = ["--none", "--full"].map(parts);
  return (share) => between(none, full, Math.max(0, Math.min(1, share)));
}

export const css = ([red, green, blue]) => `rgb(${red} ${green} ${blue})`;

export const largest = (values) => values.reduce((most, v) => Math.max(most, Math.abs(v)), 0);

// Rows of numbers as colours, a pixel each; the style gives the size. `scale` is the
// number that has the full colour. The label says what it is; where the mouse is, the
// number is told.
export function heatmap(rows, { label, scale, colour = diverging(), className = "map" }) {
  const [height, width] = [rows.length, rows[0]?.length ?? 0];
  const canvas = element("canvas", { class: className, role: "img", "aria-label": label });
  Object.assign(canvas, { width, height });
  if (!width) return canvas;
  const most = scale ?? Math.max(...rows.map(largest));
  const pixels = new ImageData(width, height);
  rows.forEach((row, y) =>
    row.forEach((v, x) => pixels.data.set([...colour(v / (most || 1)), 255], 4 * (y * width + x))),
  );
  canvas.getContext("2d").putImageData(pixels, 0, 0);
  canvas.addEventListener("mousemove", ({ offsetX, offsetY }) => {
    const place = (offset, size, count) => Math.min(count - 1, Math.floor((offset / size) * count));
    const x = Math.max(0, place(offsetX, canvas.clientWidth, width));
    const y = Math.max(0, place(offsetY, canvas.clientHeight, height));
    canvas.title = `${height > 1 ? `row ${y + 1}, ` : ""}number ${x + 1}: ${number(rows[y][x])}`;
  });
  return canvas;
}

// A vector as a strip of colours. With `onOpen` it is a button that opens its details.
export function strip(values, { label, scale, colour, onOpen }) {
  const canvas = heatmap([values], { label, scale, colour, className: "strip" });
  if (!onOpen) return canvas;
  const name = `${label}: open`;
  return element("button", { class: "strip", "aria-label": name, onclick: onOpen }, canvas);
}

// ---- Tokens

// A token as the reader sees it: "▁" marks a space, and special tokens have names.
const SPECIAL = { "<pad>": "pad", "<unk>": "unknown", "<s>": "start", "</s>": "end" };
export const spell = (token) => (SPECIAL[token] ? `⟨${SPECIAL[token]}⟩` : token);

// Tokens in a row. `notes` are small texts under them, `shades` shares that colour them;
// `onPick` makes them buttons and gets the place of the one that the reader clicks;
// `pickLabel` then says what a click does. `chosen` is marked.
export function chips(tokens, { notes = [], shades, chosen, onPick, pickLabel, classes = [] } = {}) {
  const colour = shades && sequential();
  const chip = (token, place) => {
    const shown = [element("span", { class: "token" }, spell(token))];
    if (notes[place] !== undefined) shown.push(element("small", {}, notes[place]));
    const attributes = { class: `chip ${classes[place] ?? ""}`, "data-place": place };
    if (shades) {
      attributes.style = `--shade: ${css(colour(shades[place]))}`;
      if (shades[place] > 0.55) attributes.class += " full";
    }
    if (!onPick) return element("span", attributes, shown);
    attributes["aria-pressed"] = String(place === chosen);
    if (pickLabel) attributes.title = pickLabel(place);
    return element("button", { ...attributes, onclick: () => onPick(place) }, shown);
  };
  const items = tokens.map((token, place) => element("li", {}, chip(token, place)));
  return element("ol", { class: "chips" }, items);
}

// ---- Controls: each is { node, set(value, …) }, made once, so that it keeps the focus

export function slider({ label, min = 0, max = 0, step = 1, format = String, onInput }) {
  const input = element("input", { type: "range", min, max, step });
  const output = element("output");
  const node = element("label", { class: "control" }, `${label} `, input, " ", output);
  input.addEventListener("input", () => onInput(Number(input.value)));
  const set = (value, most = max) => {
    input.max = most;
    input.value = value;
    output.value = format(value);
    input.setAttribute("aria-valuetext", output.value);
  };
  return { node, input, set };
}

// `options` are texts; the value is the place of the chosen one.
export function choice({ label, options, onInput }) {
  const made = options.map((option, place) => element("option", { value: place }, option));
  const input = element("select", { oninput: () => onInput(Number(input.value)) }, made);
  const node = element("label", { class: "control" }, `${label} `, input);
  return { node, input, set: (value) => (input.value = value) };
}

export function checkbox({ label, onInput }) {
  const input = element("input", { type: "checkbox", oninput: () => onInput(input.checked) });
  const node = element("label", { class: "control" }, input, ` ${label}`);
  return { node, input, set: (value) => (input.checked = value) };
}

// "Layer 1" to "Layer 12": options for `choice`.
export const counted = (count, name = "") =>
  Array.from({ length: count }, (_, i) => `${name} ${i + 1}`.trim());
