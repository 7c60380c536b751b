// What each value of the model is: a name for the reader, its formula, how one of its
// numbers comes about, and where the Python package and the notebooks explain it.

import { number, precise } from "./drawing.js";
import { moments } from "./model.js";

const signed = (value) => (value < 0 ? `(${number(value)})` : number(value));

// "0.31 × 0.84 + (−0.12) × 0.55 + … (62 more) = 1.204": the sum of a's numbers times b's,
// and of a bias, if there is one.
export function sumOfProducts(a, b, bias) {
  const products = Array.from(a, (v, i) => [v, b[i]]).filter(([v]) => v !== 0);
  const terms = products.slice(0, 3).map(([v, w]) => `${signed(v)} × ${signed(w)}`);
  const rest = products.length - terms.length;
  if (rest > 0) terms.push(`… (${rest} more)`);
  if (bias !== undefined) terms.push(signed(bias));
  const total = products.reduce((sum, [v, w]) => sum + v * w, bias ?? 0);
  return `${terms.join(" + ") || 0} = ${precise(total)}`;
}

// "e^1.540 ÷ (e^1.540 + e^0.312 + … (5 more)) = 0.214"
export function shareOfPowers(scores, place, share) {
  const power = (v) => `e^${precise(v)}`;
  const terms = Array.from(scores.slice(0, 3), power);
  if (scores.length > 3) terms.push(`… (${scores.length - 3} more)`);
  return `${power(scores[place])} ÷ (${terms.join(" + ")}) = ${precise(share)}`;
}

// ---- Rules: `fill` writes the formula with the numbers of one place. It gets `at`: the
// number's `row`, `unit` (its column), `head` and `value`; `rowOf` gives a row of another
// value, by its name in the same part of the model or by its whole name; `weight` a row of
// the model's own numbers, which `weights` names.

const given = (formula) => ({ formula, fill: ({ value }) => number(value) });

const unchanged = (from) => given(`${from}, unchanged`);

const addition = (one, other) => ({
  formula: `${one} + ${other}`,
  fill: ({ rowOf, unit, value }) =>
    `${signed(rowOf(one)[unit])} + ${signed(rowOf(other)[unit])} = ${number(value)}`,
});

// A row times a matrix, plus a vector.
const projection = (from, kernel, bias, formula) => ({
  formula,
  weights: [kernel, bias],
  fill: ({ rowOf, weight, unit }) =>
    sumOfProducts(rowOf(from), weight(kernel, unit), weight(bias)?.[unit]),
});

const layer = (from, name, formula) => projection(from, `${name}/kernel`, `${name}/bias`, formula);

const normalization = (from, name) => ({
  formula: `(${from} − mean) ÷ deviation × γ + β, where training has chosen γ and β`,
  weights: [`${name}/gamma`, `${name}/beta`],
  fill({ rowOf, weight, unit, value }) {
    const [mean, deviation] = moments(rowOf(from));
    const [gamma, beta] = ["gamma", "beta"].map((last) => weight(`${name}/${last}`)[unit]);
    const normal = `(${signed(rowOf(from)[unit])} − ${signed(mean)}) ÷ ${number(deviation)}`;
    return `${normal} × ${signed(gamma)} + ${signed(beta)} = ${number(value)}`;
  },
});

// ---- The values: title, place in Python and in the notebooks, rule

const NORM = ["AddAndNorm", "transformer", "Residual connections and layer normalization"];
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
function around({ pre, folder }, own) {
  const normalized = (from) => normalization(from, `${folder}/add_norm/norm`);
  return {
    x: ["What comes in: x", NORM, given("what the part before gave")],
    input: ["What the part reads", NORM, pre ? normalized("x") : unchanged("x")],
    ...own,
    sum: ["Sum: x + output", NORM, addition("x", "output")],
    result: ["What goes out", NORM, pre ? unchanged("sum") : normalized("sum")],
  };
}

function attention(about) {
  const { folder, cross, size, causal } = about;
  const read = cross ? "encoder/output" : "input";
  const what = cross ? "the encoder’s output" : "what the part reads";
  const map = (from, name, formula) => layer(from, `${folder}/mha/${name}`, formula);
  return around(about, {
    query: ["Q: queries", MAPS, map("input", "query", "what the part reads × W_Q + b")],
    key: ["K: keys", MAPS, map(read, "key", `${what} × W_K + b`)],
    value: ["V: values", MAPS, map(read, "value", `${what} × W_V + b`)],
    scores: ["Scores", SCORES, scoring(size)],
    weights: ["Weights", SHARES, sharing("score", causal)],
    concatenation: ["The heads, side by side", JOINED, reading(size)],
    output: [
      "Output of the attention",
      JOINED,
      map("concatenation", "output", "the heads, side by side × W_O + b"),
    ],
  });
}

const scoring = (size) => ({
  formula: `q · k ÷ √${size}`,
  fill({ rowOf, row, unit, head, value }) {
    const part = (whole) => whole.subarray(head * size, (head + 1) * size);
    const product = sumOfProducts(part(rowOf("query", row)), part(rowOf("key", unit)));
    return `${product}; ÷ √${size} = ${precise(value)}`;
  },
});

const sharing = (one, causal) => ({
  formula: `softmax of all ${one}s: e^${one} ÷ the sum of all e^${one}`,
  fill({ rowOf, row, unit, value }) {
    if (causal && unit > row) return "the mask hides this token: 0";
    return shareOfPowers(rowOf(`${one}s`).slice(0, causal ? row + 1 : undefined), unit, value);
  },
});

const reading = (size) => ({
  formula: "each head’s weights × its V",
  fill({ rowOf, row, unit }) {
    const weights = rowOf("weights", row, Math.floor(unit / size));
    const values = weights.map((_, s) => rowOf("value", s)[unit]);
    return sumOfProducts(weights, values);
  },
});

function feedForward(about) {
  const { folder, activation } = about;
  const applied = (text) => (activation === "relu" ? `max(0, ${text})` : `${activation}(${text})`);
  const line = layer("input", `${folder}/hidden`, applied("what the part reads × W₁ + b₁"));
  const fill = (at) => `${line.fill(at)}; ${applied("…")} = ${number(at.value)}`;
  const output = layer("hidden", `${folder}/output`, "hidden units × W₂ + b₂");
  return around(about, {
    hidden: ["Hidden units", NETWORK, { ...line, fill }],
    output: ["Output of the feed-forward network", NETWORK, output],
  });
}

function embedding({ d_model, use_positions, learned_positions }) {
  const scaled = {
    formula: `the token’s row of the table × √${d_model}`,
    fill: ({ value }) => `${signed(value / Math.sqrt(d_model))} × √${d_model} = ${number(value)}`,
  };
  const learned = given("the position’s row of a learned table");
  const sum = use_positions ? addition("embedding", "positions") : unchanged("embedding");
  return {
    embedding: ["Embedding times √d_model", EMBEDDED, scaled],
    positions: ["Position", POSITIONS, learned_positions ? learned : waving(d_model)],
    output: ["Embedding plus position", EMBEDDED, sum],
  };
}

const waving = (d_model) => ({
  formula: `sin(position ÷ 10000^(i ÷ ${d_model})) at each even i; after it, the cosine`,
  fill({ row, unit, value }) {
    const angle = `${row} ÷ 10000^(${unit - (unit % 2)} ÷ ${d_model})`;
    return `${unit % 2 ? "cos" : "sin"}(${angle}) = ${number(value)}`;
  },
});

function ofStack({ stack, pre }) {
  const where = [stack === "encoder" ? "Encoder" : "Decoder", "transformer", `The ${stack}`];
  const output = pre ? normalization("stream", `${stack}/final_norm`) : unchanged("stream");
  return {
    stream: ["The stream after the last layer", where, given("what the last layer gave")],
    output: [`Output of the ${stack}`, where, output],
  };
}

function ofOutput({ tie_embeddings: tied }) {
  const kernel = tied ? "decoder/embedding/pieces/embeddings" : "final_layer/kernel";
  const bias = tied ? "output_bias" : "final_layer/bias";
  const formula = `the decoder’s output · the token’s ${tied ? "embedding" : "row of a matrix"}`;
  const where = ["Transformer", "transformer", "The Transformer"];
  return {
    logits: ["Logits", where, projection("decoder/output", kernel, bias, formula)],
    probabilities: ["Probabilities", where, sharing("logit")],
  };
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
const SPELT = { ffn: "feed-forward network", output: "after the decoder" };

// The values of a part of the model, such as "encoder/layer_2/self_attention", by name.
export function describe(folder, settings) {
  const [stack, part] = [folder.split("/")[0], folder.split("/").at(-1)];
  const location = folder
    .split("/")
    .map((name) => SPELT[name] ?? name.replace(/layer_(\d+)/, (_, layer) => `layer ${+layer + 1}`))
    .join(", ")
    .replace("_", "-");
  const about = {
    ...settings,
    stack,
    folder,
    location,
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
