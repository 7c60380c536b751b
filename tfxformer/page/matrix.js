// Matrices and rows of numbers: how the page stores, rounds and multiplies them.

export class Matrix {
  constructor(shape, data) {
    this.shape = shape;
    this.data = data; // row after row
  }

  row(number) {
    const depth = this.shape[1];
    return this.data.subarray(number * depth, (number + 1) * depth);
  }

  // The product of each row of x with each row of this matrix: (rows, units), for x
  // (rows, depth) and a matrix (units, depth). Most of the model's time goes here. Each
  // number that is read serves several products: two rows of x and four of the matrix
  // at once are twice as fast as one and one.
  times(x) {
    const result = x.map(() => new Float32Array(this.shape[0]));
    for (let row = 0; row < x.length; row += 2) {
      if (row + 1 < x.length) timesTwo(this, x[row], x[row + 1], result[row], result[row + 1]);
      else timesOne(this, x[row], result[row]);
    }
    return result;
  }

  // Each row rounded to 2 ** bits - 1 levels around 0.
  rounded(bits) {
    const rounded = new Matrix(this.shape, this.data.slice());
    for (let number = 0; number < this.shape[0]; number++) {
      const row = rounded.row(number);
      const largest = row.reduce((most, v) => Math.max(most, Math.abs(v)), 0);
      const step = largest / (2 ** (bits - 1) - 1) || 1;
      row.set(row.map((v) => Math.round(v / step) * step));
    }
    return rounded;
  }
}

function timesOne({ shape: [units, depth], data }, x, y) {
  for (let block = 0; block < units; block += 4) {
    const unit = Math.min(block, units - 4); // the last block may overlap
    const a = unit * depth;
    const b = a + depth;
    const c = b + depth;
    const d = c + depth;
    let [ya, yb, yc, yd] = [0, 0, 0, 0];
    for (let i = 0; i < depth; i++) {
      const v = x[i];
      ya += v * data[a + i];
      yb += v * data[b + i];
      yc += v * data[c + i];
      yd += v * data[d + i];
    }
    y[unit] = ya;
    y[unit + 1] = yb;
    y[unit + 2] = yc;
    y[unit + 3] = yd;
  }
}

function timesTwo({ shape: [units, depth], data }, x, z, xs, zs) {
  for (let block = 0; block < units; block += 4) {
    const unit = Math.min(block, units - 4);
    const a = unit * depth;
    const b = a + depth;
    const c = b + depth;
    const d = c + depth;
    let [xa, xb, xc, xd] = [0, 0, 0, 0];
    let [za, zb, zc, zd] = [0, 0, 0, 0];
    for (let i = 0; i < depth; i++) {
      const u = x[i];
      const v = z[i];
      const wa = data[a + i];
      const wb = data[b + i];
      const wc = data[c + i];
      const wd = data[d + i];
      xa += u * wa;
      xb += u * wb;
      xc += u * wc;
      xd += u * wd;
      za += v * wa;
      zb += v * wb;
      zc += v * wc;
      zd += v * wd;
    }
    xs[unit] = xa;
    xs[unit + 1] = xb;
    xs[unit + 2] = xc;
    xs[unit + 3] = xd;
    zs[unit] = za;
    zs[unit + 1] = zb;
    zs[unit + 2] = zc;
    zs[unit + 3] = zd;
  }
}

// A matrix as its rows; of several heads (heads, rows, units), those of one.
export function rowsOf({ shape, data }, head = 0) {
  const [units, rows] = [shape.at(-1), shape.at(-2) ?? 1];
  const first = shape.length === 3 ? head * rows : 0;
  const from = (row) => (first + row) * units;
  return Array.from({ length: rows }, (_, row) => data.subarray(from(row), from(row) + units));
}

// The units of one of `count` heads, in rows that have all heads side by side.
export function headOf(rows, head, count) {
  const size = rows[0].length / count;
  return rows.map((row) => row.subarray(head * size, (head + 1) * size));
}

export function dot(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

export function add(x, y) {
  return x.map((row, i) => row.map((v, unit) => v + y[i][unit]));
}

export function weightedSum(weights, rows) {
  const sum = new Float32Array(rows[0].length);
  for (let s = 0; s < rows.length; s++)
    for (let unit = 0; unit < sum.length; unit++) sum[unit] += weights[s] * rows[s][unit];
  return sum;
}

// The weights that __init__.py packs, as a tree of the names in Python:
// encoder/layer_0/ffn/hidden/kernel is weights.encoder.layers[0].ffn.hidden.kernel.
// Matrices are float16 in the buffer; `bits` rounds them further.
export function readWeights(manifest, buffer, bits = null) {
  const weights = {};
  const half = halfPrecision();
  for (const { name, shape, at } of manifest) {
    const parts = name.split("/");
    const last = parts.pop();
    let group = weights;
    parts.forEach((part, depth) => {
      group = group[part] ??= { path: parts.slice(0, depth + 1).join("/") };
    });
    if (shape.length === 1) {
      group[last] = new Float32Array(buffer, at, shape[0]);
      continue;
    }
    const halves = new Uint16Array(buffer, at, shape[0] * shape[1]);
    const data = new Float32Array(halves.length);
    for (let i = 0; i < halves.length; i++) data[i] = half[halves[i]];
    group[last] = new Matrix(shape, data);
    if (bits) group[last] = group[last].rounded(bits);
  }
  for (const stack of [weights.encoder, weights.decoder]) {
    stack.embedding ??= { path: `${stack.path}/embedding` };
    stack.embedding.pieces ??= weights.encoder.embedding.pieces; // tied embeddings
    const count = Object.keys(stack).filter((name) => name.startsWith("layer_")).length;
    stack.layers = Array.from({ length: count }, (_, number) => stack[`layer_${number}`]);
  }
  return weights;
}

// The values of the 65,536 numbers in float16.
function halfPrecision() {
  return Float32Array.from({ length: 65536 }, (_, bits) => {
    const exponent = (bits >> 10) & 31;
    const fraction = (bits & 1023) / 1024;
    const size = exponent ? 2 ** (exponent - 15) * (1 + fraction) : 2 ** -14 * fraction;
    return bits >> 15 ? -size : size;
  });
}

export function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}
