// Section 2: a token's embedding, its position, and their sum, which enters the encoder.

import { chips, element, line, number, picture } from "./drawing.js";
import { refill, slider, spell, usual } from "./drawing.js";
import { rowsOf } from "./matrix.js";
import { positionalEncoding } from "./model.js";

const PLACE = "encoder/embedding";
const WAVES = [0, 1 / 8, 1 / 4, 3 / 8]; // which numbers of a position to draw: shares of d_model

export async function mountEmbedding(section, page) {
  const { max_length, use_positions } = page.settings;
  const tokens = element("div");
  const strips = picture("From the token to what enters the encoder", "embedding");
  const waves = picture("Four of the position’s numbers, at each position", "waves");
  const onInput = (position) => page.update({ position });
  const drag = slider({ label: "Position", max: max_length - 1, onInput });
  section.append(tokens, element("p", { class: "controls" }, drag.node), strips.node, waves.node);
  const ofPositions = [drag.node, waves.node, document.getElementById("positions")];
  if (!use_positions) ofPositions.forEach((node) => node.remove());
  const table = await allPositions(page);
  return {
    uses: ["token", "position"],
    show(state, walk) {
      drag.set(state.position);
      const onPick = (token) => page.update({ token, column: -1, position: token });
      refill(tokens, chips(walk.sourceTokens, { chosen: state.token, onPick }));
      const embedding = rowsOf(walk.values[`${PLACE}/embedding`])[state.token];
      const position = table[state.position];
      refill(strips.body, drawSum({ embedding, position, state, walk, page }));
      refill(waves.body, drawWaves(table, state.position));
    },
  };
}

function drawSum({ embedding, position, state, walk, page }) {
  const { d_model, use_positions } = page.settings;
  const raw = embedding.map((v) => v / Math.sqrt(d_model));
  const sum = embedding.map((v, unit) => v + (use_positions ? position[unit] : 0));
  const scale = usual(embedding);
  const shown = (label, values, last) => {
    const note = `${number(Math.min(...values))} to ${number(Math.max(...values))}`;
    const onOpen = last && (() => page.open({ name: `${PLACE}/${last}`, row: state.token }));
    return line(label, values, { scale, note, onOpen });
  };
  const note =
    `Each strip has ${d_model} numbers. Orange is above 0, blue below; ` +
    `±${number(scale)} has the full colour.`;
  return [
    shown(`Embedding of ${spell(walk.sourceTokens[state.token])}`, raw),
    shown(`× √${d_model}`, embedding, "embedding"),
    use_positions ? shown(`+ position ${state.position}`, position, "positions") : [],
    shown("= enters the encoder", sum, "output"),
    element("p", { class: "note" }, note),
  ].flat();
}

// The vectors of all positions.
async function allPositions({ tfxformer, settings }) {
  const name = `${PLACE}/positions`;
  const { [name]: learned } = await tfxformer.weights({ names: [name] });
  if (learned) return rowsOf(learned);
  const encode = (_, position) => positionalEncoding(position, settings.d_model);
  return Array.from({ length: settings.max_length }, encode);
}

// Each wave in a lane of its own, with a dot at the position that the reader has chosen.
function drawWaves(table, position) {
  const [width, lane, left] = [720, 56, 96];
  const height = lane * WAVES.length;
  const label = `Four numbers at each position; the mark is at position ${position}`;
  const about = { class: "waves", role: "img", "aria-label": label };
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, ...about });
  const x = (place) => left + ((width - left - 12) * place) / (table.length - 1);
  const cursor = { x1: x(position), x2: x(position), y1: 0, y2: height, class: "cursor" };
  svg.append(element("line", cursor));
  WAVES.forEach((share, i) => {
    const unit = 2 * Math.floor((share * table[0].length) / 2);
    const y = (value) => lane * (i + 0.5) - value * lane * 0.38;
    const points = table.map((row, place) => `${x(place)} ${y(row[unit])}`);
    const dot = { cx: x(position), cy: y(table[position][unit]), r: 6, class: "dot" };
    svg.append(
      element("text", { x: 0, y: lane * (i + 0.5) + 5 }, `number ${unit + 1}`),
      element("path", { d: `M ${points.join(" L ")}`, class: "wave" }),
      element("circle", dot),
    );
  });
  return svg;
}
