// What the views draw with: elements, controls, tokens, numbers as colours, and pictures
// that the reader can save.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = ["svg", "g", "path", "line", "rect", "circle", "text", "image"];

// An element of HTML or SVG. Attributes that are functions listen to an event ("onclick"),
// and those that are undefined or false are left out. Texts among the children stay texts.
export function element(tag, attributes = {}, ...children) {
  const drawn = SVG_TAGS.includes(tag);
  const made = drawn ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.flat());
  return made;
}

// ---- Numbers

// Three significant digits at most, with a real minus sign.
export function number(value) {
  const size = Math.abs(value);
  if (size < 0.0005) return "0.00"; // not "−0.000"
  const digits = size >= 100 ? 0 : size >= 10 ? 1 : size >= 0.1 ? 2 : 3;
  return value.toFixed(digits).replace("-", "−");
}

// Enough digits for the powers of a softmax.
export const precise = (value) => value.toFixed(3).replace("-", "−");

export function percent(share) {
  if (share < 0.001) return share > 0 ? "<0.1%" : "0%";
  return `${(100 * share).toFixed(share < 0.1 || (share > 0.99 && share < 1) ? 1 : 0)}%`;
}

// ---- Colours: those of page.css, so that they follow the reader's theme

const parts = (name) => {
  const text = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16)); // "#rrggbb"
};
const between = (from, to, share) => from.map((v, i) => Math.round(v + share * (to[i] - v)));

// Blue for negative numbers, orange for positive ones; and how to paint shares.
const NUMBERS = ["--negative", "--zero", "--positive"];
export const SHARES = { scale: 1, palette: ["--none", "--none", "--full"] };

export const largest = (values) => values.reduce((most, v) => Math.max(most, Math.abs(v)), 0);

// Rows of numbers as colours, a pixel each, as the address of an image. `scale` is the
// number that has the full colour; a mask hides what is not a number. One canvas draws
// all: a page with many canvases is slow at each change.
const canvas = document.createElement("canvas");

function painted(rows, { scale, palette = NUMBERS }) {
  const [height, width] = [rows.length, rows[0].length];
  const most = scale ?? (Math.max(...rows.map(largest)) || 1);
  const [negative, zero, positive, hidden] = [...palette, "--line"].map(parts);
  const pixels = new ImageData(width, height);
  const paint = (v) => {
    if (Number.isNaN(v)) return hidden;
    return between(zero, v < 0 ? negative : positive, Math.min(1, Math.abs(v) / most));
  };
  rows.forEach((row, y) =>
    row.forEach((v, x) => pixels.data.set([...paint(v), 255], 4 * (y * width + x))),
  );
  Object.assign(canvas, { width, height });
  canvas.getContext("2d").putImageData(pixels, 0, 0);
  return canvas.toDataURL();
}

// An image of numbers; the style gives its size. With `onOpen` it is a button that opens
// its details.
export function heatmap(rows, { label, className, onOpen, ...colours }) {
  const src = painted(rows, colours);
  const map = element("img", { class: className, alt: label, src, draggable: "false" });
  if (!onOpen) return map;
  return element("button", { "aria-label": `${label}: open`, onclick: onOpen }, map);
}

// A line of a table of strips: a name, a vector as a strip, which may open, and a note.
export function line(label, values, { scale, note = "", onOpen } = {}) {
  const strip = heatmap([values], { label, scale, className: "strip", onOpen });
  const [name, told] = [element("span", {}, label), element("small", {}, note)];
  return element("div", { class: "line" }, name, strip, told);
}

// ---- Tokens

// A token as the reader sees it: "▁" marks a space, and special tokens have names.
const SPECIAL = { "<pad>": "pad", "<unk>": "unknown", "<s>": "start", "</s>": "end" };
export const spell = (token) => (SPECIAL[token] ? `⟨${SPECIAL[token]}⟩` : token);

// Tokens in a row. `notes` are small texts under them, `shades` shares that bars show;
// `onPick` makes them buttons and gets the place of the one that the reader clicks;
// `pickLabel` then says what a click does. `chosen` is marked.
export function chips(tokens, { notes = [], shades, chosen, onPick, pickLabel, classes = [] }) {
  const chip = (token, place) => {
    const shown = [element("span", {}, spell(token))];
    if (notes[place] !== undefined) shown.push(element("small", {}, notes[place]));
    const attributes = { class: `chip ${classes[place] ?? ""}` };
    if (shades) attributes.style = `--share: ${shades[place]}`;
    if (!onPick) return element("span", attributes, shown);
    if (chosen !== undefined) attributes["aria-pressed"] = String(place === chosen);
    if (pickLabel) attributes.title = pickLabel(place);
    return element("button", { ...attributes, onclick: () => onPick(place) }, shown);
  };
  const items = tokens.map((token, place) => element("li", {}, chip(token, place)));
  return element("ol", { class: "chips" }, items);
}

// ---- Controls: each is { node, set(value, …) }, made once, so that it keeps the focus

export function slider({ label, min = 0, max = 0, step = 1, onInput }) {
  const input = element("input", { type: "range", "aria-label": label, min, max, step });
  const output = element("output");
  const node = element("label", { class: "control" }, `${label} `, input, " ", output);
  input.addEventListener("input", () => onInput(Number(input.value)));
  const set = (value, most = max) => {
    input.max = most;
    input.value = value;
    output.value = value;
    input.setAttribute("aria-valuetext", output.value);
  };
  return { node, input, set };
}

// `options` are texts; the value is the place of the chosen one.
export function choice({ label, options, onInput }) {
  const made = options.map((option, place) => element("option", { value: place }, option));
  const oninput = () => onInput(Number(input.value));
  const input = element("select", { "aria-label": label, oninput }, made);
  const node = element("label", { class: "control" }, `${label} `, input);
  return { node, input, set: (value) => (input.value = value) };
}

export function checkbox({ label, onInput }) {
  const input = element("input", { type: "checkbox", oninput: () => onInput(input.checked) });
  const node = element("label", { class: "control" }, input, ` ${label}`);
  return { node, input, set: (value) => (input.checked = value) };
}

// A choice of a layer or a head.
export const chooser = (label, count, onInput) =>
  choice({ label, options: Array.from({ length: count }, (_, i) => i + 1), onInput });

// ---- Pictures

// A picture with a title, in a box that scrolls by itself, and a button that saves it:
// { node, body }. The view fills the body. What introduces it is not saved.
export function picture(title, name, ...introduction) {
  const body = element("div", { class: "box", tabindex: 0, role: "group", "aria-label": title });
  const label = `Save as SVG: ${title}`;
  const attributes = { class: "save", "aria-label": label, onclick: () => save(body, name, title) };
  const button = element("button", attributes, "Save as SVG");
  const caption = element("figcaption", {}, element("h3", {}, title), button);
  const texts = introduction.map((one) => (one.nodeType ? one : element("p", {}, one)));
  return { node: element("figure", {}, caption, texts, body), body };
}

const longest = (texts) => Math.max(0, ...texts.map((text) => [...text].length));

// A matrix as colours, with a name at each row, and at each column if there are some.
// `onPoint(row, column)` follows the mouse and the arrow keys; `onPick` a click and the
// enter key. `chosen` has the row and the column to mark: one may be missing. With
// `numbered`, a cell of 5% or more has its share in percent.
export function grid({ values, rows = [], columns = [], cell = [22, 22], chosen, ...options }) {
  const { numbered } = options;
  const [left, top] = [8 * longest(rows) + 10, 6 * longest(columns) + 18];
  const [width, height] = [cell[0] * values[0].length, cell[1] * values.length];
  const size = { width: left + width + 4 * longest(columns), height: top + height + 2 };
  const about = { class: "grid", tabindex: 0, role: "img", "aria-label": options.label };
  const place = { x: left, y: top, width, height };
  const image = element("image", { ...place, href: painted(values, options), ...PIXELS });
  const svg = element("svg", { ...size, ...about }, image);
  svg.append(element("rect", { ...place, class: "ground" }));
  rows.forEach((text, row) => {
    const at = { x: left - 6, y: top + (row + 0.68) * cell[1], "text-anchor": "end" };
    const style = `font-size: ${Math.min(13.6, cell[1])}px`;
    svg.append(element("text", { ...at, style, class: row === chosen.row && "chosen" }, text));
  });
  columns.forEach((text, column) => {
    const transform = `translate(${left + (column + 0.6) * cell[0]} ${top - 6}) rotate(-60)`;
    svg.append(element("text", { transform, class: column === chosen.column && "chosen" }, text));
  });
  const write = (share, row, column) => {
    const at = { x: left + (column + 0.5) * cell[0], y: top + (row + 0.68) * cell[1] };
    const class_ = `number ${share > 0.5 ? "dark" : ""}`;
    svg.append(element("text", { ...at, class: class_ }, Math.round(100 * share)));
  };
  if (numbered)
    values.forEach((shares, row) =>
      shares.forEach((share, column) => share >= 0.05 && write(share, row, column)),
    );
  const marker = element("rect", { class: "mark" });
  svg.append(marker);
  function mark({ row, column }) {
    const box = { ...place };
    if (row !== undefined) Object.assign(box, { y: top + row * cell[1], height: cell[1] });
    if (column !== undefined) Object.assign(box, { x: left + column * cell[0], width: cell[0] });
    for (const [name, at] of Object.entries(box)) marker.setAttribute(name, at);
  }
  mark(chosen);
  const cellAt = ({ offsetX, offsetY }) => ({
    row: Math.floor((offsetY - top) / cell[1]),
    column: Math.floor((offsetX - left) / cell[0]),
  });
  const point = { row: 0, column: 0, ...chosen };
  follow(svg, { values, cellAt, point, chosen, ...options });
  return { node: svg, mark };
}

const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

// Lets the mouse and the arrow keys move a point over a grid.
function follow(svg, { values, cellAt, point, chosen, onPoint, onPick }) {
  const move = ({ row, column }) => {
    if (values[row]?.[column] === undefined) return false;
    const moved = row !== point.row || column !== point.column;
    Object.assign(point, { row, column });
    if (moved) onPoint?.(row, column);
    return true;
  };
  svg.addEventListener("pointermove", (event) => move(cellAt(event)));
  svg.addEventListener("click", (event) => {
    const { row, column } = cellAt(event);
    // A click on a row's name picks the row.
    if (move({ row, column: column < 0 ? point.column : column })) onPick?.(row, point.column);
  });
  // Where the reader has picked a cell, the mouse only visits others.
  if (onPick && chosen.column !== undefined)
    svg.addEventListener("pointerleave", () => move(chosen));
  svg.addEventListener("keydown", (event) => {
    if (event.key === "Enter") onPick?.(point.row, point.column);
    const step = ARROWS[event.key];
    if (!step) return;
    event.preventDefault();
    move({ row: point.row + step[0], column: point.column + step[1] });
    svg.querySelector(".mark").scrollIntoView({ block: "nearest", inline: "nearest" });
  });
}

// A grid with a text below it that says what `tell` says of the cell that the reader
// points at.
export function toldGrid({ tell, ...options }) {
  const told = element("p", { class: "note", "aria-live": "polite" }, "\u00a0");
  const onPoint = (row, column) => (told.textContent = tell(row, column));
  return element("div", {}, grid({ ...options, onPoint }).node, told);
}

// Two columns of tokens, and lines from the chosen one at the left to those that it reads
// at the right: the thicker, the more. `weights` are the shares of that token.
export function links({ left, right, weights, chosen, label }) {
  const [row, gap] = [24, 100];
  const from = 8 * longest(left) + 16;
  const to = from + gap;
  const [width, height] = [to + 8 * longest(right) + 76, row * Math.max(left.length, right.length)];
  const size = { width, height, viewBox: `0 0 ${width} ${height}` };
  const svg = element("svg", { ...size, class: "links", role: "img", "aria-label": label });
  const middle = (place) => (place + 0.5) * row;
  right.forEach((text, place) => {
    const ends = { x1: from, y1: middle(chosen), x2: to - 6, y2: middle(place) };
    const share = weights[place];
    if (share > 0.01) {
      const drawn = { "stroke-width": 1 + 9 * share, "stroke-opacity": 0.25 + 0.75 * share };
      svg.append(element("line", { ...ends, ...drawn }));
    }
    const style = share > 0.2 && "chosen";
    const label = `${text}  ${share < 0.005 ? "" : percent(share)}`;
    svg.append(element("text", { x: to, y: middle(place) + 5, class: style }, label));
  });
  left.forEach((text, place) => {
    const style = place === chosen && "chosen";
    const at = { x: from - 8, y: middle(place) + 5, "text-anchor": "end", class: style };
    svg.append(element("text", at, text));
  });
  return svg;
}

// ---- Saving

// What a box shows, as an SVG file: texts, colours of backgrounds, canvases and drawings
// at the places where the browser has put them.
// A caption above says what they show.
function save(box, name, title) {
  const { facts } = box.closest("section").dataset;
  const { sentence } = box.closest("main").dataset;
  const file = [name, facts].filter(Boolean).join("-").replace(/[ ,]+/g, "-");
  const link = element("a", { download: `${file}.svg` });
  const caption = [title, `“${sentence}”${facts && `: ${facts}`}`];
  const text = new XMLSerializer().serializeToString(asSvg(box, caption));
  link.href = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

const PIXELS = { preserveAspectRatio: "none", style: "image-rendering: pixelated" };

const LINE = 20; // of the caption, in pixels

function asSvg(box, caption) {
  const { left, top } = box.getBoundingClientRect();
  const room = LINE * (caption.length + 0.5);
  const [x, y] = [left - box.scrollLeft, top - box.scrollTop - room];
  const [width, height] = [Math.max(box.scrollWidth, 640), box.scrollHeight + room];
  const svg = element("svg", { width, height, viewBox: `${x} ${y} ${width} ${height}` });
  const fill = getComputedStyle(document.body).backgroundColor;
  svg.append(element("rect", { x, y, width, height, fill }));
  const { color, fontFamily } = getComputedStyle(document.body);
  const style = `fill: ${color}; font-family: ${fontFamily}; font-size: 14px`;
  caption.forEach((text, line) => {
    svg.append(element("text", { x: x + 4, y: y + LINE * (line + 0.8), style }, text));
  });
  const copy = (node) => {
    if (node.nodeType === Node.TEXT_NODE) return svg.append(...words(node));
    if (!node.getClientRects().length) return;
    const { x, y, width, height } = node.getBoundingClientRect();
    const at = { x, y, width, height };
    if (node.tagName === "svg") return svg.append(styled(node, at));
    if (node.tagName === "IMG")
      return svg.append(element("image", { ...at, href: node.src, ...PIXELS }));
    svg.append(ground(node, at));
    node.childNodes.forEach(copy);
  };
  box.childNodes.forEach(copy);
  return svg;
}

// Each word of a text at its own place, since a browser may break lines.
function words(node) {
  const { color, fontFamily, fontSize, fontWeight } = getComputedStyle(node.parentElement);
  const font = `font-family: ${fontFamily}; font-size: ${fontSize}; font-weight: ${fontWeight}`;
  const style = `fill: ${color}; ${font}`;
  return [...node.data.matchAll(/\S+/g)].map(({ 0: word, index }) => {
    const range = new Range();
    range.setStart(node, index);
    range.setEnd(node, index + word.length);
    const { x, y, height } = range.getBoundingClientRect();
    return element("text", { x, y: y + 0.78 * height, style }, word);
  });
}

function ground(node, at) {
  const { backgroundColor, borderRadius, borderTopColor, borderTopWidth } = getComputedStyle(node);
  const fill = backgroundColor === "rgba(0, 0, 0, 0)" ? "none" : backgroundColor;
  const line = { stroke: borderTopColor, "stroke-width": parseFloat(borderTopWidth) };
  return element("rect", { ...at, rx: parseFloat(borderRadius) || 0, fill, ...line });
}

// A copy of a drawing that needs no style sheet.
const STYLES = ["fill", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "opacity"];
STYLES.push("font-size", "font-family", "font-weight", "text-anchor");

function styled(drawing, at) {
  const copy = drawing.cloneNode(true);
  const originals = [drawing, ...drawing.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((node, place) => {
    const style = getComputedStyle(originals[place]);
    for (const name of STYLES) node.style.setProperty(name, style.getPropertyValue(name));
  });
  for (const [name, value] of Object.entries(at)) copy.setAttribute(name, value);
  return copy;
}

// Other children for a box. What had the focus in it keeps it, by its place.
export function refill(box, ...children) {
  const inside = () => [...box.querySelectorAll("button, input, [tabindex]")];
  const place = inside().indexOf(document.activeElement);
  box.replaceChildren(...children.flat());
  if (place >= 0) inside()[place]?.focus({ preventScroll: true });
}

// "W_Q" and "e^(−1.2)" with real subscripts and superscripts.
export function formula(text) {
  const lowered = (part) => {
    const tag = { _: "sub", "^": "sup" }[part[0]];
    return tag ? element(tag, {}, part.replace(/^.\(?|\)$/g, "")) : part;
  };
  return text.split(/([_^](?:\([^)]*\)|[\w.−]+))/).map(lowered);
}

// Twice the usual size of a vector's numbers: what has the full colour.
export const usual = (values) => (2 * length(values)) / Math.sqrt(values.length) || 1;

export const length = (values) => Math.sqrt(values.reduce((sum, v) => sum + v * v, 0));
