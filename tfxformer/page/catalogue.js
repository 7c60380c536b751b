// What each value of the model is: a name for the reader, its formula, how one of its
// numbers comes about, and where the Python package and the notebooks explain it.

import { number } from "./drawing.js";

const signed = (value) => (value < 0 ? `(${number(value)})` : number(value));

// "0.31 × 0.84 + (−0.12) × 0.55 + … (62 more) = 1.20": the sum of a's numbers times b's,
// and of a bias, if there is one.
export function sumOfProducts(a, b, bias) {
  const products = Array.from(a, (v, i) => [v, b[i]]).filter(([v]) => v !== 0);
  const terms = products.slice(0, 3).map(([v, w]) => `${signed(v)} × ${signed(w)}`);
  const rest = products.length - terms.length;
  if (rest > 0) terms.push(`… (${rest} more)`);
  if (bias !== undefined) terms.push(signed(bias));
  const total = products.reduce((sum, [v, w]) => sum + v * w, bias ?? 0);
  return `${terms.join(" + ") || 0} = ${number(total)}`;
}

// "e^1.54 ÷ (e^1.54 + e^0.31 + … (5 more)) = 0.21"
export function shareOfPowers(scores, place, share) {
  const terms = Array.from(scores.slice(0, 3), (v) => `e^${signed(v)}`);
  if (scores.length > 3) terms.push(`… (${scores.length - 3} more)`);
  return `e^${signed(scores[place])} ÷ (${terms.join(" + ")}) = ${number(share)}`;
}

// ---- Rules: `fill` writes the formula with the numbers of one place. It gets `at`: the
// number's `row`, `unit` (its column), `head` and `value`; `rowOf` gives a row of another
// value, by its name in the same part of the model or by its whole name; `weight` and
// `weightRow` give the model's own numbers, which `weights` names.

const given = (formula) => ({ formula, fill: ({ value }) => number(value) });

const unchanged = (from, formula) => ({
  formula: `${formula}, unchanged`,
  fill: ({ rowOf, unit }) => `${number(rowOf(from)[unit])}, unchanged`,
});

const addition = (one, other, formula) => ({
  formula,
  fill: ({ rowOf, unit, value }) =>
    `${signed(rowOf(one)[unit])} + ${signed(rowOf(other)[unit])} = ${number(value)}`,
});

// A row times a matrix, plus a vector.
const projection = (from, name, formula) => ({
  formula,
  weights: [`${name}/kernel`, `${name}/bias`],
  fill: ({ rowOf, weight, weightRow, unit }) =>
    sumOfProducts(rowOf(from), weightRow(`${name}/kernel`, unit), weight(`${name}/bias`)?.[unit]),
});

const normalization = (from, name, what) => ({
  formula: `(${what} − mean) ÷ deviation × γ + β`,
  weights: [`${name}/gamma`, `${name}/beta`],
  fill({ rowOf, weight, unit, value }) {
    const x = rowOf(from);
    const mean = x.reduce((sum, v) => sum + v, 0) / x.length;
    const deviation = Math.sqrt(x.reduce((sum, v) => sum + (v - mean) ** 2, 0) / x.length);
    const [gamma, beta] = ["gamma", "beta"].map((last) => weight(`${name}/${last}`)[unit]);
    const normal = `(${signed(x[unit])} − ${signed(mean)}) ÷ ${number(deviation)}`;
    return `${normal} × ${signed(gamma)} + ${signed(beta)} = ${number(value)}`;
  },
});

// ---- The values: title, place in Python and in the notebooks, rule

const NORM = ["AddAndNorm", "transformer", "Residual connections and layer normalisation"];
const MAPS = ["MultiHeadAttention", "attention_step_by_step", "Three linear maps of the same rows"];
const HEADS = "Heads side by side, and the output projection";
const JOINED = ["MultiHeadAttention", "attention_step_by_step", HEADS];
const SCALED = "scaled_dot_product_attention";
const SCORES = [SCALED, "attention_step_by_step", "Scaling by the root of d_k"];
const SHARES = [SCALED, "attention_step_by_step", "Softmax: shares that sum to 1"];
const NETWORK = ["FeedForward", "transformer", "Feed-forward network"];
const EMBEDDED = ["PositionalEmbedding", "transformer", "Embeddings and positions"];
const POSITIONS = ["positional_encoding", "positions", "The formula"];

// The values of a part, and those of Add & Norm around it.
const around = ({ pre }, own) => ({
  x: ["What comes in: x", NORM, given("what the part before gave")],
  input: [
    pre ? "Normalised: what the part reads" : "What the part reads",
    NORM,
    pre ? normalization("x", "add_norm/norm", "x") : unchanged("x", "x"),
  ],
  ...own,
  sum: ["Sum: x + output", NORM, addition("x", "output", "x + output")],
  result: [
    pre ? "What goes out" : "Normalised: what goes out",
    NORM,
    pre ? unchanged("sum", "the sum") : normalization("sum", "add_norm/norm", "sum"),
  ],
});

function attention(about) {
  const read = about.cross ? "encoder/output" : "input";
  const what = about.cross ? "the encoder’s output" : "what the part reads";
  return around(about, {
    query: ["Q: queries", MAPS, projection("input", "mha/query", "what the part reads × W_Q + b")],
    key: ["K: keys", MAPS, projection(read, "mha/key", `${what} × W_K + b`)],
    value: ["V: values", MAPS, projection(read, "mha/value", `${what} × W_V + b`)],
    scores: ["Scores", SCORES, scoring(about)],
    weights: ["Weights", SHARES, sharing(about)],
    concatenation: ["The heads, side by side", JOINED, reading(about)],
    output: [
      "Output of the attention",
      JOINED,
      projection("concatenation", "mha/output", "the heads, side by side × W_O + b"),
    ],
  });
}

const scoring = ({ size }) => ({
  formula: `q · k ÷ √${size}`,
  fill({ rowOf, row, unit, head, value }) {
    const part = (whole) => whole.subarray(head * size, (head + 1) * size);
    const product = sumOfProducts(part(rowOf("query", row)), part(rowOf("key", unit)));
    return `${product}; ÷ √${size} = ${number(value)}`;
  },
});

const sharing = ({ causal }) => ({
  formula: "softmax of a row of scores: e^score ÷ the sum of all e^score",
  fill({ rowOf, row, unit, value }) {
    if (causal && unit > row) return "the mask hides this token: 0";
    return shareOfPowers(rowOf("scores").slice(0, causal ? row + 1 : undefined), unit, value);
  },
});

const reading = ({ size }) => ({
  formula: "each head’s weights × its V",
  fill({ rowOf, row, unit }) {
    const weights = rowOf("weights", row, Math.floor(unit / size));
    return sumOfProducts(
      weights,
      weights.map((_, s) => rowOf("value", s)[unit]),
    );
  },
});

const feedForward = (about) =>
  around(about, {
    hidden: ["Hidden units", NETWORK, firing(about)],
    output: [
      "Output of the feed-forward network",
      NETWORK,
      projection("hidden", "output", "hidden units × W₂ + b₂"),
    ],
  });

function firing({ activation }) {
  const applied = (text) => (activation === "relu" ? `max(0, ${text})` : `${activation}(${text})`);
  const line = projection("input", "hidden", applied("what the part reads × W₁ + b₁"));
  const fill = (at) => `${line.fill(at)}; ${applied("…")} = ${number(at.value)}`;
  return { ...line, fill };
}

const embedding = (about) => ({
  embedding: ["Embedding times √d_model", EMBEDDED, scaling(about)],
  positions: ["Position", POSITIONS, waving(about)],
  output: [
    "Embedding plus position",
    EMBEDDED,
    about.use_positions
      ? addition("embedding", "positions", "embedding + position")
      : unchanged("embedding", "the embedding"),
  ],
});

const scaling = ({ d_model }) => ({
  formula: `the token’s row of the table × √${d_model}`,
  fill: ({ value }) => `${signed(value / Math.sqrt(d_model))} × √${d_model} = ${number(value)}`,
});

function waving({ d_model, learned_positions }) {
  if (learned_positions) return given("the position’s row of a learned table");
  return {
    formula: `sin(position ÷ 10000^(i ÷ ${d_model})) at each even i; after it, the cosine`,
    fill({ row, unit, value }) {
      const angle = `${row} ÷ 10000^(${unit - (unit % 2)} ÷ ${d_model})`;
      return `${unit % 2 ? "cos" : "sin"}(${angle}) = ${number(value)}`;
    },
  };
}

function ofStack({ stack, python, pre }) {
  const where = [python, "transformer", `The ${stack}`];
  const normal = normalization("stream", "final_norm", "stream");
  return {
    stream: ["The stream after the last layer", where, given("what the last layer gave")],
    output: [`Output of the ${stack}`, where, pre ? normal : unchanged("stream", "the stream")],
  };
}

function ofOutput({ tie_embeddings: tied }) {
  const kernel = tied ? "decoder/embedding/pieces/embeddings" : "final_layer/kernel";
  const bias = tied ? "output_bias" : "final_layer/bias";
  const formula = `the decoder’s output · the token’s ${tied ? "embedding" : "row of a matrix"}`;
  const fill = ({ rowOf, weight, weightRow, unit }) =>
    sumOfProducts(rowOf("decoder/output"), weightRow(kernel, unit), weight(bias)?.[unit]);
  const where = ["Transformer", "transformer", "The Transformer"];
  return { logits: ["Logits", where, { formula, weights: [kernel, bias], fill }] };
}

const VALUES = {
  embedding,
  self_attention: attention,
  cross_attention: attention,
  ffn: feedForward,
  encoder: ofStack,
  decoder: ofStack,
  output: ofOutput,
};
const SPELT = {
  embedding: "embedding",
  self_attention: "self-attention",
  cross_attention: "cross-attention",
  ffn: "feed-forward network",
};

// The values of a part of the model, such as "encoder/layer_2/self_attention", by name.
export function describe(folder, settings) {
  const [stack, part] = [folder.split("/")[0], folder.split("/").at(-1)];
  const layer = /layer_(\d+)/.exec(folder)?.[1];
  const location = [stack === "output" ? "after the decoder" : stack];
  if (layer) location.push(`layer ${Number(layer) + 1}`);
  if (SPELT[part]) location.push(SPELT[part]);
  const about = {
    ...settings,
    stack,
    folder,
    location: location.join(", "),
    python: stack === "encoder" ? "Encoder" : "Decoder",
    cross: part === "cross_attention",
    causal: stack === "decoder" && part === "self_attention",
    pre: settings.norm === "pre",
    size: settings.d_model / settings.num_heads,
  };
  const described = ([name, [title, where, rule]]) => [
    name,
    { ...about, title, where, weights: [], ...rule },
  ];
  return Object.fromEntries(Object.entries(VALUES[part](about)).map(described));
}
