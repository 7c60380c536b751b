// Section 2: a token's embedding, its position, and their sum, which enters the encoder.

import { chips, css, diverging, element, line, number, picture } from "./drawing.js";
import { refill, slider, spell, usual } from "./drawing.js";
import { END_ID } from "./tokenizer.js";
import { rowsOf } from "./panel.js";

const PLACE = "encoder/embedding";
const WAVES = [0, 1 / 8, 1 / 4, 3 / 8]; // which numbers of a position to draw: shares of d_model
const SHOWN = 100; // positions of a wave

export function mountEmbedding(section, page) {
  const { max_length, use_positions } = page.settings;
  const tokens = element("div");
  const strips = picture("From the token to what enters the encoder", "embedding");
  const waves = picture("Four of the position’s numbers, at each position", "waves");
  const drag = slider({
    label: "Position",
    max: max_length - 1,
    onInput: (position) => page.update({ position }),
  });
  section.append(tokens, element("p", { class: "controls" }, drag.node), strips.node, waves.node);
  if (!use_positions) [drag, waves].forEach(({ node }) => node.remove());

  const found = { walk: null, values: null, table: null };
  let newest = null;
  return {
    uses: ["token", "position"],
    async show(state, walk) {
      newest = state;
      drag.set(state.position);
      const onPick = (token) => page.update({ token, position: token });
      refill(tokens, chips(walk.sourceTokens, { chosen: state.token, onPick }));
      found.table ??= await allPositions(page);
      if (found.walk !== walk) {
        const request = { source: walk.source, step: 0, names: [`${PLACE}/embedding`] };
        Object.assign(found, { walk, values: await page.tfxformer.inspect(request) });
      }
      if (newest !== state) return; // another show has come meanwhile
      const embedding = rowsOf(found.values[`${PLACE}/embedding`])[state.token];
      const position = found.table[state.position];
      refill(strips.body, drawSum({ embedding, position, state, walk, page }));
      refill(waves.body, drawWaves(found.table, state.position));
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
  const lines = [
    shown(`Embedding of ${spell(walk.sourceTokens[state.token])}`, raw),
    shown(`× √${d_model}`, embedding, "embedding"),
    ...(use_positions ? [shown(`+ position ${state.position}`, position, "positions")] : []),
    shown("= enters the encoder", sum, "output"),
  ];
  const note =
    `Each strip has ${d_model} numbers. Orange is above 0, blue below; ` +
    `±${number(scale)} has the full colour.`;
  return [...lines, element("p", { class: "note" }, note)];
}

// The vectors of all positions: those of a sentence as long as the model reads, through no
// layer at all.
async function allPositions({ tfxformer, settings }) {
  const { num_layers, num_decoder_layers, max_length } = settings;
  const layers = (stack, count) => Array.from({ length: count }, (_, i) => `${stack}/layer_${i}`);
  const decoder = layers("decoder", num_decoder_layers ?? num_layers);
  const names = [`${PLACE}/positions`];
  const switches = { silenced: [...layers("encoder", num_layers), ...decoder] };
  const source = Array(max_length).fill(END_ID);
  const found = await tfxformer.inspect({ source, step: 0, names, switches });
  return rowsOf(found[names[0]]);
}

// Each wave in a lane of its own, with a dot at the position that the reader has chosen,
// in the colour of its number.
function drawWaves(table, position) {
  const [width, lane, left] = [720, 56, 96];
  const height = lane * WAVES.length;
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, class: "waves", role: "img" });
  svg.setAttribute("aria-label", `Waves of four numbers; the mark is at position ${position}`);
  const count = Math.min(table.length, Math.max(SHOWN, position + 1));
  const x = (place) => left + ((width - left - 12) * place) / Math.max(1, count - 1);
  const cursor = { x1: x(position), x2: x(position), y1: 0, y2: height, class: "cursor" };
  svg.append(element("line", cursor));
  const colour = diverging();
  WAVES.forEach((share, i) => {
    const unit = 2 * Math.floor((share * table[0].length) / 2);
    const y = (value) => lane * (i + 0.5) - value * lane * 0.38;
    const points = table.slice(0, count).map((row, place) => `${x(place)} ${y(row[unit])}`);
    const value = table[position][unit];
    const dot = { cx: x(position), cy: y(value), r: 6, fill: css(colour(value)), class: "dot" };
    svg.append(
      element("text", { x: 0, y: lane * (i + 0.5) + 5 }, `number ${unit + 1}`),
      element("path", { d: `M ${points.join(" L ")}`, class: "wave" }),
      element("circle", dot),
    );
  });
  return svg;
}
