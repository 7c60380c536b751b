// What each value of the model is: a name for the reader, its formula, how one of its
// numbers comes about, and where the Python package and the notebooks explain it.

import { number } from "./drawing.js";

const signed = (value) => (value < 0 ? `(${number(value)})` : number(value));

// "0.31 × 0.84 + (−0.12) × 0.55 + … (62 more) = 1.20", for the sum of a's numbers times
// b's, and what is added to it.
export function sumOfProducts(a, b, bias) {
  const products = Array.from(a, (v, i) => [v, b[i]]).filter(([v]) => v !== 0);
  const terms = products.slice(0, 3).map(([v, w]) => `${signed(v)} × ${signed(w)}`);
  const rest = products.length - terms.length;
  if (rest > 0) terms.push(`… (${rest} more)`);
  if (bias !== undefined) terms.push(signed(bias));
  const total = products.reduce((sum, [v, w]) => sum + v * w, bias ?? 0);
  return `${terms.join(" + ") || 0} = ${number(total)}`;
}

// "e^1.54 ÷ (e^1.54 + e^0.31 + … (5 more)) = 0.21"; a score of −∞ is masked.
export function shareOfPowers(scores, place, share) {
  const terms = Array.from(scores.slice(0, 3), (v) => `e^${signed(v)}`);
  if (scores.length > 3) terms.push(`… (${scores.length - 3} more)`);
  return `e^${signed(scores[place])} ÷ (${terms.join(" + ")}) = ${number(share)}`;
}

// Around a number: what its formula needs. `row` gives a row of a value beside it (or of
// one with a whole name), `weights` one of the model's own matrices or vectors, as rows.
const normalized = (from) => (at) => {
  const x = at.row(from);
  const [mean, deviation] = at.row("before");
  const [gamma, beta] = ["gamma", "beta"].map((name) => at.weight(`add_norm/norm/${name}`)[at.unit]);
  const line = `(${signed(x[at.unit])} − ${signed(mean)}) ÷ ${number(deviation)}`;
  return `${line} × ${signed(gamma)} + ${signed(beta)} = ${at.value}`;
};
const same = (from) => (at) => `${signed(at.row(from)[at.unit])}, unchanged`;
const sum = (one, other) => (at) =>
  `${signed(at.row(one)[at.unit])} + ${signed(at.row(other)[at.unit])} = ${at.value}`;
const projected = (name) => (at) => {
  const keyOrValue = at.cross && name !== "query" && name !== "output";
  const from = keyOrValue ? "encoder/output" : name === "output" ? "concatenation" : "input";
  const kernel = at.weightRow(`mha/${name}/kernel`, at.unit);
  return sumOfProducts(at.row(from), kernel, at.weight(`mha/${name}/bias`)?.[at.unit]);
};
const NORM = ["AddAndNorm", "transformer", "Residual connections and layer normalisation"];
const THREE = ["MultiHeadAttention", "attention_step_by_step", "Three linear maps of the same rows"];
const JOINED = [
  "MultiHeadAttention",
  "attention_step_by_step",
  "Heads side by side, and the output projection",
];
const SCORED = "scaled_dot_product_attention";
const NETWORK = ["FeedForward", "transformer", "Feed-forward network"];
const EMBEDDED = ["PositionalEmbedding", "transformer", "Embeddings and positions"];

const AROUND = {
  x: {
    title: "What comes in",
    formula: () => "the result of the part before",
    where: NORM,
    fill: (at) => at.value,
  },
  input: {
    title: "What the part reads",
    formula: ({ pre }) => (pre ? "(x − mean) ÷ deviation × γ + β" : "x, as it comes in"),
    where: NORM,
    fill: (at) => (at.pre ? normalized("x") : same("x"))(at),
  },
  sum: {
    title: "Add: the residual connection",
    formula: () => "x + output",
    where: NORM,
    fill: sum("x", "output"),
  },
  result: {
    title: "What goes out",
    formula: ({ pre }) => (pre ? "the sum, unchanged" : "(sum − mean) ÷ deviation × γ + β"),
    where: NORM,
    fill: (at) => (at.pre ? same("sum") : normalized("sum"))(at),
  },
};

const projection = (title, formula) => (name) => ({
  title,
  formula,
  where: THREE,
  fill: projected(name),
});

const KINDS = {
  embedding: {
    embedding: {
      title: "Embedding times √d_model",
      formula: ({ d_model }) => `the token's row of the table × √${d_model}`,
      where: EMBEDDED,
      fill: (at) => {
        const root = Math.sqrt(at.settings.d_model);
        return `${signed(at.number / root)} × ${number(root)} = ${at.value}`;
      },
    },
    positions: {
      title: "Position",
      formula: ({ learned_positions: learned }) =>
        learned
          ? "the position's row of a learned table"
          : "sin or cos of (position ÷ 10000^(i ÷ d_model)), i even",
      where: ["positional_encoding", "positions", "The formula"],
      fill: (at) => {
        if (at.settings.learned_positions) return at.value;
        const { unit } = at;
        const power = `10000^(${unit - (unit % 2)} ÷ ${at.settings.d_model})`;
        return `${unit % 2 ? "cos" : "sin"}(${at.place} ÷ ${power}) = ${at.value}`;
      },
    },
    output: {
      title: "Embedding plus position",
      formula: () => "embedding + position",
      where: EMBEDDED,
      fill: (at) =>
        at.settings.use_positions ? sum("embedding", "positions")(at) : same("embedding")(at),
    },
  },
  attention: {
    ...AROUND,
    query: projection("Q: queries", () => "the row that is read × W_Q + b")("query"),
    key: projection("K: keys", () => "the row that is read × W_K + b")("key"),
    value: projection("V: values", () => "the row that is read × W_V + b")("value"),
    scores: {
      title: "Scores",
      formula: ({ size }) => `q · k ÷ √${size}`,
      where: [SCORED, "attention_step_by_step", "Scaling by the root of d_k"],
      fill: (at) => {
        const part = (row) => row.subarray(at.head * at.size, (at.head + 1) * at.size);
        const product = sumOfProducts(part(at.row("query")), part(at.row("key", at.unit)));
        return `${product}; ÷ ${number(Math.sqrt(at.size))} = ${at.value}`;
      },
    },
    weights: {
      title: "Weights",
      formula: () => "softmax of the scores: e^score ÷ the sum of the row's e^score",
      where: [SCORED, "attention_step_by_step", "Softmax: shares that sum to 1"],
      fill: (at) => {
        const { number: share, unit } = at;
        if (share === 0) return "hidden by the mask: 0";
        const visible = at.causal ? at.place + 1 : undefined;
        return shareOfPowers(at.row("scores").slice(0, visible), unit, share);
      },
    },
    concatenation: {
      title: "The heads, side by side",
      formula: () => "each head's weights × V",
      where: JOINED,
      fill: (at) => {
        const head = Math.floor(at.unit / at.size);
        const weights = at.row("weights", at.place, head);
        return sumOfProducts(weights, Array.from(weights, (_, s) => at.row("value", s)[at.unit]));
      },
    },
    output: {
      title: "Output of the attention",
      formula: () => "the heads, side by side × W_O + b",
      where: JOINED,
      fill: projected("output"),
    },
  },
  ffn: {
    ...AROUND,
    hidden: {
      title: "Hidden units",
      formula: ({ activation }) =>
        activation === "swish" ? "swish(x W₁ + b₁)" : "max(0, x W₁ + b₁)",
      where: NETWORK,
      fill: (at) => {
        const kernel = at.weightRow("hidden/kernel", at.unit);
        const before = sumOfProducts(at.row("input"), kernel, at.weight("hidden/bias")?.[at.unit]);
        return `${before}; ${at.settings.activation === "swish" ? "swish" : "max(0, …)"} = ${at.value}`;
      },
    },
    output: {
      title: "Output of the feed-forward network",
      formula: () => "hidden units × W₂ + b₂",
      where: NETWORK,
      fill: (at) => {
        const hidden = at.row("hidden");
        const column = Array.from(hidden, (_, unit) => at.weightRow("output/kernel", unit)[at.unit]);
        return sumOfProducts(hidden, column, at.weight("output/bias")?.[at.unit]);
      },
    },
  },
};
