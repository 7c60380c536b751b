// The whole Transformer of "Attention Is All You Need" (Vaswani et al. 2017) in plain
// JavaScript. Its functions have the names of the Python classes in layers/, and the
// numbers in parentheses are sections of the paper.
//
// The hidden states of a sequence are an array of rows, one Float32Array for each token:
// x[position][unit]. A comment such as (length, d_model) gives the shape of a result.
// `model` is a `Transformer`: its settings, its weights, and the switches that break it.
// If `model.note` is a function, it gets every value on the way, each with a name.

import { add, dot, weightedSum } from "./matrix.js";
import { END_ID, PAD_ID, START_ID } from "./tokenizer.js";

const EPSILON = 1e-6; // what layer normalization adds to the variance

// The switches that change the computation ("Break it"). This is the intact model.
export const INTACT = {
  positions: true, // add positions to the embeddings
  causalMask: true, // hide later tokens from the decoder
  paddingMask: true, // hide padding
  pads: 0, // padding tokens after the source
  scale: true, // divide scores by the square root of d_k
  residual: true, // add a sublayer's input to its output
  layerNorm: true, // normalize
  silenced: [], // such as "encoder/layer_0", "decoder/layer_1/cross_attention/head_3"
  bits: null, // 8, 4 or 2: round weights; see readWeights
  temperature: 1, // of the softmax in attention
  outputTemperature: 1, // of the softmax over the next token
};

// Sines at even units, cosines at odd ones (3.5): (depth)
export function positionalEncoding(position, depth) {
  return Float32Array.from({ length: depth }, (_, unit) => {
    const angle = position * 10000 ** (-(unit - (unit % 2)) / depth);
    return unit % 2 ? Math.cos(angle) : Math.sin(angle);
  });
}

// Embeddings times the square root of d_model, plus positions (3.4, 3.5).
function PositionalEmbedding(model, weights, ids, start) {
  const { d_model, use_positions } = model.settings;
  const scale = Math.sqrt(d_model);
  const { embeddings } = weights.pieces;
  const embedding = ids.map((id) => embeddings.row(id).map((v) => v * scale)); // (length, d_model)
  const learned = weights.positions; // or the fixed sines and cosines
  const encode = (position) => learned?.row(position) ?? positionalEncoding(position, d_model);
  const positions = ids.map((_, i) => encode(start + i)); // (length, d_model)
  const positioned = use_positions && model.switches.positions;
  const output = positioned ? add(embedding, positions) : embedding; // (length, d_model)
  model.note?.(weights.path, { embedding, positions, output });
  return output;
}

// softmax(Q K^T / sqrt(d_k)) V, for one head (3.2.1). `visible(t, s)` says whether
// position t may read position s.
function scaledDotProductAttention(query, key, value, visible, switches) {
  const { scale, temperature } = switches;
  const factor = scale ? query[0].length ** -0.5 : 1;
  // (target, source)
  const scores = query.map((q) => Float32Array.from(key, (k) => dot(q, k) * factor));
  // (target, source)
  const weights = scores.map((row, t) => softmax(row, temperature, (s) => visible(t, s)));
  const output = weights.map((row) => weightedSum(row, value)); // (target, key_dim)
  return { scores, weights, output };
}

// All heads, each on its own part of the units, joined (3.2.2).
function MultiHeadAttention(model, weights, x, { key, value }, visible) {
  const { d_model, num_heads } = model.settings;
  const size = d_model / num_heads; // key_dim
  const query = Projection(x, weights.mha.query); // (target, d_model): head beside head
  const concatenation = x.map(() => new Float32Array(d_model)); // (target, d_model)
  const heads = Array.from({ length: num_heads }, (_, head) => {
    const units = [head * size, (head + 1) * size];
    // (length, key_dim) each
    const [q, k, v] = [query, key, value].map((x) => x.map((row) => row.subarray(...units)));
    const found = scaledDotProductAttention(q, k, v, visible, model.switches);
    if (!model.silences(`${weights.path}/head_${head}`))
      found.output.forEach((row, t) => concatenation[t].set(row, units[0]));
    return found;
  });
  const output = Projection(concatenation, weights.mha.output); // (target, d_model)
  model.note?.(weights.path, {
    query,
    key: [...key],
    value: [...value],
    scores: heads.map((head) => head.scores), // (heads, target, source)
    weights: heads.map((head) => head.weights), // (heads, target, source)
    concatenation,
    output,
  });
  return output;
}

// The keys and the values of a sequence, for all heads.
function project(weights, x) {
  const { key, value } = weights.mha;
  return { key: Projection(x, key), value: Projection(x, value) }; // (length, d_model) each
}

// The encoder's attention: every position reads its whole sequence.
function GlobalSelfAttention(model, weights, x, visible) {
  return AddAndNorm(model, weights, x, (y) =>
    MultiHeadAttention(model, weights, y, project(weights, y), visible),
  );
}

// The decoder's: each position reads itself and earlier ones. Their keys and values are
// in the cache, which gets those of x.
function CausalSelfAttention(model, weights, x, cache) {
  const start = cache.key.length;
  return AddAndNorm(model, weights, x, (y) => {
    const { key, value } = project(weights, y);
    cache.key.push(...key); // (positions, d_model)
    cache.value.push(...value); // (positions, d_model)
    const visible = (t, s) => !model.switches.causalMask || s <= start + t;
    return MultiHeadAttention(model, weights, y, cache, visible);
  });
}

// The decoder reads the source: keys and values are the encoder's.
function CrossAttention(model, weights, x, keyValue, visible) {
  return AddAndNorm(model, weights, x, (y) =>
    MultiHeadAttention(model, weights, y, keyValue, visible),
  );
}

// max(0, x W1 + b1) W2 + b2, at each position alone (3.3).
function FeedForward(model, weights, x) {
  const swish = model.settings.activation === "swish";
  const activate = swish ? (v) => v / (1 + Math.exp(-v)) : (v) => Math.max(0, v);
  return AddAndNorm(model, weights, x, (y) => {
    const hidden = Projection(y, weights.hidden).map((row) => row.map(activate)); // (length, dff)
    const output = Projection(hidden, weights.output); // (length, d_model)
    model.note?.(weights.path, { hidden, output });
    return output;
  });
}

// A residual connection and layer normalization around a sublayer (3.1). Post-norm is
// the paper's LayerNorm(x + Sublayer(x)); pre-norm is x + Sublayer(LayerNorm(x)).
function AddAndNorm(model, weights, x, sublayer) {
  const pre = model.settings.norm === "pre";
  const normalize = (rows) => rows.map((row) => LayerNorm(model, weights.add_norm.norm, row));
  const input = pre ? normalize(x) : x; // (length, d_model)
  const y = sublayer(input); // (length, d_model)
  const sum = model.switches.residual ? add(x, y) : y; // (length, d_model)
  const result = pre ? sum : normalize(sum); // (length, d_model)
  model.note?.(weights.path, { x, input, sum, result });
  return result;
}

function LayerNorm(model, { gamma, beta }, row) {
  if (!model.switches.layerNorm) return row;
  const [mean, deviation] = moments(row);
  return row.map((v, unit) => ((v - mean) / deviation) * gamma[unit] + beta[unit]); // (d_model)
}

// The mean and the standard deviation of a row.
export function moments(row) {
  const mean = row.reduce((sum, v) => sum + v, 0) / row.length;
  const variance = row.reduce((sum, v) => sum + (v - mean) ** 2, 0) / row.length;
  return [mean, Math.sqrt(variance + EPSILON)];
}

function EncoderLayer(model, weights, x, visible) {
  if (model.silences(weights.path)) return x;
  x = GlobalSelfAttention(model, weights.self_attention, x, visible);
  return FeedForward(model, weights.ffn, x); // (source, d_model)
}

function Encoder(model, weights, ids, visible) {
  let x = PositionalEmbedding(model, weights.embedding, ids, 0); // (source, d_model)
  for (const layer of weights.layers) x = EncoderLayer(model, layer, x, visible);
  return finalNorm(model, weights, x); // (source, d_model)
}

function DecoderLayer(model, weights, x, source, cache) {
  if (model.silences(weights.path)) return x;
  x = CausalSelfAttention(model, weights.self_attention, x, cache);
  x = CrossAttention(model, weights.cross_attention, x, source.keyValue, source.visible);
  return FeedForward(model, weights.ffn, x); // (target, d_model)
}

function Decoder(model, weights, ids, encoded, cache, start) {
  let x = PositionalEmbedding(model, weights.embedding, ids, start); // (target, d_model)
  weights.layers.forEach((layer, number) => {
    const source = { keyValue: encoded.keyValues[number], visible: encoded.visible };
    x = DecoderLayer(model, layer, x, source, cache[number]);
  });
  return finalNorm(model, weights, x); // (target, d_model)
}

// Pre-norm layers do not normalize their result; so the stack does it at its end.
function finalNorm(model, weights, x) {
  const output = weights.final_norm ? x.map((row) => LayerNorm(model, weights.final_norm, row)) : x;
  model.note?.(weights.path, { stream: x, output });
  return output;
}

export class Transformer {
  // `settings` has the arguments of Python's Transformer; `weights` come from readWeights.
  constructor(settings, weights, switches = {}) {
    this.settings = settings;
    this.weights = weights;
    this.switches = { ...INTACT, ...switches };
    this.note = null;
  }

  silences(path) {
    return this.switches.silenced.includes(path);
  }

  // The encoder's output, and the keys and values that each decoder layer makes of it.
  encode(ids) {
    const pads = Math.max(0, Math.min(this.switches.pads, this.settings.max_length - ids.length));
    ids = [...ids, ...Array(pads).fill(PAD_ID)];
    const visible = (_, s) => !this.switches.paddingMask || ids[s] !== PAD_ID;
    const context = Encoder(this, this.weights.encoder, ids, visible); // (source, d_model)
    const { layers } = this.weights.decoder;
    const keyValues = layers.map((layer) => project(layer.cross_attention, context));
    return { ids, keyValues, visible };
  }

  // The keys and values of no tokens yet, for each layer of the decoder.
  emptyCache() {
    return this.weights.decoder.layers.map(() => ({ key: [], value: [] }));
  }

  // The logits of the token after `ids`, which begin with the start token: (vocab). The
  // cache has the first tokens, all but the last one, and gets the others. Without the
  // causal mask, earlier tokens read the newest one; so all are computed again.
  decodeStep(ids, encoded, cache, known = this.switches.causalMask ? ids.length - 1 : 0) {
    if (!known) Object.assign(cache, this.emptyCache());
    const { decoder, final_layer, output_bias: bias } = this.weights;
    const x = Decoder(this, decoder, ids.slice(known), encoded, cache, known); // (target, d_model)
    // With tied embeddings, a logit is the product with the token's embedding (3.4).
    const tied = { kernel: decoder.embedding.pieces.embeddings, bias };
    const [logits] = Projection(x.slice(-1), final_layer ?? tied); // (vocab)
    this.note?.("output", { logits, probabilities: softmax(logits) });
    const { outputTemperature } = this.switches;
    return outputTemperature === 1 ? logits : logits.map((v) => v / outputTemperature);
  }

  // The most tokens in a translation; none for a source that has only the end token.
  lengthLimit(source) {
    return source.length > 1 ? Math.min(2 * source.length + 10, this.settings.max_length) : 0;
  }

  // Greedy decoding, one token a step: `begin` gives its state, `step` writes a token,
  // the likeliest or a given one. `state.going` is false once the translation has ended.
  begin(source) {
    const limit = this.lengthLimit(source);
    const encoded = this.encode(source);
    return { encoded, cache: this.emptyCache(), ids: [START_ID], limit, going: limit > 0 };
  }

  step(state, given) {
    const logits = this.decodeStep(state.ids, state.encoded, state.cache);
    const id = given ?? likeliest(logits, 1)[0];
    state.ids.push(id);
    state.going = id !== END_ID && state.ids.length <= state.limit;
    return { id, score: logits[id] - logSumExp(logits), logits };
  }

  // Beam search over one sentence, as decoding/beam.py does it; one beam is greedy.
  // Returns the finished hypotheses, best first, and for each step its candidates: kept,
  // finished or dropped. `known` has what earlier searches of this sentence have computed.
  beamSearch(source, { beams = 4, nBest = 1, lengthPenalty, known = new Map() }) {
    const alpha = lengthPenalty ?? null; // GNMT's (Wu et al. 2016); null ranks by the mean
    const rank = (total, length) => total / (alpha === null ? length : ((5 + length) / 6) ** alpha);
    const recall = (key, compute) => {
      if (!known.has(key)) known.set(key, compute());
      return known.get(key);
    };
    const encoded = recall("source", () => this.encode(source));
    const copied = ({ key, value }) => ({ key: [...key], value: [...value] });
    const advance = ({ ids, cache }) => {
      const longer = cache.map(copied);
      return { logits: this.decodeStep(ids, encoded, longer), cache: longer };
    };
    const limit = this.lengthLimit(source);
    let going = [{ ids: [START_ID], total: 0, cache: this.emptyCache() }];
    let finished = limit ? [] : [{ ids: [], total: 0, score: 0, rank: 0 }];
    let greedy = true; // whether the first hypothesis is greedy decoding's
    const steps = [];
    for (let length = 1; length <= limit; length++) {
      const next = going.map((one) => recall(one.ids.join(), () => advance(one)));
      const all = next.flatMap(({ logits }, parent) => {
        const before = going[parent].total - logSumExp(logits);
        const continued = (id) => ({ parent, id, total: before + logits[id], state: "dropped" });
        return likeliest(logits, 2 * beams).map(continued);
      });
      const first = all.splice(0, greedy ? 1 : 0); // greedy's choice keeps its place
      all.sort((a, b) => b.total - a.total);
      const candidates = [...first, ...all].slice(0, 2 * beams);
      greedy = greedy && candidates[0].id !== END_ID;
      const extended = ({ parent, id }) => [...going[parent].ids, id];
      for (const candidate of candidates.slice(0, beams)) {
        if (candidate.id !== END_ID && length < limit) continue;
        candidate.state = "finished";
        const { total } = candidate;
        const ids = extended(candidate).slice(1);
        finished.push({ ids, total, score: total / length, rank: rank(total, length) });
      }
      finished = finished.sort((a, b) => b.rank - a.rank).slice(0, beams);
      const kept = candidates.filter(({ id }) => id !== END_ID).slice(0, beams);
      going = kept.map((candidate, place) => {
        if (length < limit) Object.assign(candidate, { state: "kept", place });
        const { cache } = next[candidate.parent];
        return { ids: extended(candidate), total: candidate.total, cache };
      });
      steps.push(candidates);
      // Log-probabilities only fall; so no hypothesis can end above this bound.
      const bound = rank(Math.max(...going.map(({ total }) => total)), limit);
      const decided = beams === 1 || bound <= finished[nBest - 1]?.rank;
      if (finished.length >= nBest && decided) break;
    }
    return { hypotheses: finished.slice(0, nBest), steps };
  }
}

// x W + b for each row: (rows, units). The kernel is W with a row for each unit.
function Projection(x, { kernel, bias }) {
  const product = kernel.times(x);
  return bias ? product.map((row) => row.map((v, unit) => v + bias[unit])) : product;
}

// Shares that sum to 1; what is not visible has none, and if nothing is, all are 0.
function softmax(scores, temperature = 1, visible = null) {
  const seen = visible ? scores.map((v, i) => (visible(i) ? v : -Infinity)) : scores;
  const most = largest(seen); // subtracted, so that no power overflows
  const shares = new Float32Array(scores.length);
  if (most === -Infinity) return shares;
  let total = 0;
  for (let i = 0; i < seen.length; i++) {
    shares[i] = Math.exp((seen[i] - most) / temperature);
    total += shares[i];
  }
  return shares.map((v) => v / total);
}

function logSumExp(logits) {
  const most = largest(logits);
  let sum = 0;
  for (let id = 0; id < logits.length; id++) sum += Math.exp(logits[id] - most);
  return most + Math.log(sum);
}

function largest(values) {
  let most = -Infinity;
  for (let i = 0; i < values.length; i++) if (values[i] > most) most = values[i];
  return most;
}

// The ids of the highest logits, best first. Padding, unknown and start never come next:
// they are the ids below the end token.
export function likeliest(logits, count) {
  const best = [];
  for (let id = END_ID; id < logits.length; id++) {
    if (best.length === count && logits[id] <= logits[best[count - 1]]) continue;
    let place = best.length;
    while (place && logits[best[place - 1]] < logits[id]) place--;
    best.splice(place, 0, id);
    best.length = Math.min(best.length, count);
  }
  return best;
}
