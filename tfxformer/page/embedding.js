// Section 2: a token's embedding, its position, and their sum, which enters the encoder.

import { chips, diverging, css, element, line, number, picture } from "./drawing.js";
import { board, refill, slider, spell, strip } from "./drawing.js";
import { END_ID } from "./tokenizer.js";
import { rowsOf } from "./panel.js";

const PLACE = "encoder/embedding";
const WAVES = [0, 1 / 8, 1 / 4, 3 / 8]; // which numbers of a position's vector to draw as waves
const SHOWN = 100; // positions of a wave

export function mountEmbedding(section, page) {
  const { settings } = page;
  const tokens = element("div");
  const strips = picture("From the token to what enters the encoder", "embedding");
  const waves = picture("Four of the position’s numbers, at each position", "waves");
  const sentence = picture("What enters the encoder: a row for each token", "input");
  const drag = slider({
    label: "Position",
    max: settings.max_length - 1,
    onInput: (position) => page.update({ position }),
  });
  const rows = board({
    label: "What enters the encoder. The arrow keys choose a token.",
    onPick: (token) => page.update({ token, position: token }),
  });
  sentence.body.append(rows.node);
  const positioned = [element("div", { class: "controls" }, drag.node), strips.node, waves.node];
  section.append(tokens, ...(settings.use_positions ? positioned : [strips.node]), sentence.node);

  let [table, known, source] = [null, null, null]; // positions, and the sentence's values
  return {
    uses: ["token", "position"],
    async show(state, walk) {
      drag.set(state.position);
      const choose = (token) => page.update({ token, position: token });
      refill(tokens, chips(walk.sourceTokens, { chosen: state.token, onPick: choose }));
      table ??= await allPositions(page);
      if (source !== walk.source) {
        source = walk.source;
        known = await page.tfxformer.inspect({ source, step: 0, names: [`${PLACE}/`] });
      }
      draw(state, walk);
    },
  };

  function draw({ token, position }, { sourceTokens }) {
    const name = spell(sourceTokens[token]);
    const embedding = rowsOf(known[`${PLACE}/embedding`])[token];
    const scale = 2 * rootMeanSquare(embedding);
    const colours = { scale };
    const open = (last) => () => page.open({ name: `${PLACE}/${last}`, row: token });
    const root = Math.sqrt(settings.d_model);
    const raw = embedding.map((v) => v / root);
    const added = settings.use_positions ? table[position] : embedding.map(() => 0);
    const sum = embedding.map((v, unit) => v + added[unit]);
    const label = `Embedding of ${name}`;
    const lines = [
      line(label, strip(raw, { label, ...colours }), range(raw)),
      line(`× √${settings.d_model}`, shown(embedding, "embedding", "Embedding times the root"), range(embedding)),
      line(`+ position ${position}`, shown(added, "positions", "Position"), range(added)),
      line("= enters the encoder", shown(sum, "output", "What enters the encoder"), range(sum)),
    ];
    function shown(values, last, label) {
      return strip(values, { label, ...colours, onOpen: open(last) });
    }
    if (!settings.use_positions) lines.splice(2, 1);
    const note = `Each strip has ${settings.d_model} numbers. Orange is above 0, blue below; ±${number(scale)} has the full colour.`;
    refill(strips.body, lines, element("p", { class: "note" }, note));
    refill(waves.body, drawWaves(table, position));
    rows.set(rowsOf(known[`${PLACE}/output`]), { labels: sourceTokens.map(spell), scale });
    rows.mark(token);
  }
}

// The vectors of all positions: those of a sentence as long as the model reads, through no
// layer at all.
async function allPositions({ tfxformer, settings }) {
  const { num_layers, num_decoder_layers, max_length } = settings;
  const layers = (stack, count) => Array.from({ length: count }, (_, i) => `${stack}/layer_${i}`);
  const decoder = layers("decoder", num_decoder_layers ?? num_layers);
  const silenced = [...layers("encoder", num_layers), ...decoder];
  const found = await tfxformer.inspect({
    source: Array(max_length).fill(END_ID),
    step: 0,
    switches: { silenced },
    names: [`${PLACE}/positions`],
  });
  return rowsOf(found[`${PLACE}/positions`]);
}

const rootMeanSquare = (values) =>
  Math.sqrt(values.reduce((sum, v) => sum + v * v, 0) / values.length);

const range = (values) => `${number(Math.min(...values))} to ${number(Math.max(...values))}`;

// Each wave in a lane of its own, with a dot at the position that the reader has chosen,
// in the colour of its number.
function drawWaves(table, position) {
  const [width, lane, left] = [720, 56, 96];
  const height = lane * WAVES.length;
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, class: "waves", role: "img" });
  svg.setAttribute("aria-label", `Waves of four numbers; the mark is at position ${position}`);
  const count = Math.min(table.length, Math.max(SHOWN, position + 1));
  const x = (place) => left + ((width - left - 12) * place) / Math.max(1, count - 1);
  svg.append(element("line", { x1: x(position), x2: x(position), y1: 0, y2: height, class: "cursor" }));
  const colour = diverging();
  WAVES.forEach((share, i) => {
    const unit = 2 * Math.floor((share * table[0].length) / 2);
    const y = (value) => lane * (i + 0.5) - value * lane * 0.38;
    const points = table.slice(0, count).map((row, place) => `${x(place)} ${y(row[unit])}`);
    svg.append(element("text", { x: 0, y: lane * (i + 0.5) + 5 }, `number ${unit + 1}`));
    svg.append(element("path", { d: `M ${points.join(" L ")}`, class: "wave" }));
    const value = table[position][unit];
    const dot = { cx: x(position), cy: y(value), r: 6, fill: css(colour(value)) };
    svg.append(element("circle", { ...dot, class: "dot" }));
  });
  return svg;
}
