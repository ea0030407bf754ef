/**
 * The inner loops over a matrix of weights, four at a time: a WebAssembly module that is put together
 * here, instruction by instruction, so that there is nothing in the page that cannot be read.
 *
 * Where WebAssembly or its vectors are refused, `kernelsOf` is null, and the caller has loops of its own.
 */

// ---------------------------------------------------------------- an assembler

const I32 = 0x7f,
  F32 = 0x7d,
  V128 = 0x7b;
const PAGE = 65536;

/** Unsigned LEB128. */
function leb(n) {
  const out = [];
  do out.push((n & 127) | (n > 127 ? 128 : 0));
  while ((n >>>= 7));
  return out;
}

/** Signed LEB128. */
function sleb(n) {
  const out = [];
  for (;;) {
    const low = n & 127;
    n >>= 7;
    if ((n === 0 && !(low & 64)) || (n === -1 && low & 64)) return [...out, low];
    out.push(low | 128);
  }
}

const vector = (parts) => [...leb(parts.length), ...parts.flat()];
const section = (id, bytes) => [id, ...leb(bytes.length), ...bytes];
const simd = (code, ...terms) => [...terms.flat(), 0xfd, ...leb(code)];

const get = (x) => [0x20, x];
const set = (x, value) => [...value, 0x21, x];
const constant = (n) => [0x41, ...sleb(n)];
const plus = (a, b) => [...a, ...b, 0x6a];
const below = (a, b) => [...a, ...b, 0x49];
const choose = (yes, no, test) => [...yes, ...no, ...test, 0x1b];
/** The body again for as long as the test holds after it. */
const again = (body, test) => [0x03, 0x40, ...body, ...test, 0x0d, 0, 0x0b];

const load = (at, offset = 0) => [...at, 0xfd, 0x00, 4, ...leb(offset)];
const store = (at, value, offset = 0) => [...at, ...value, 0xfd, 0x0b, 4, ...leb(offset)];
const spread = (x) => simd(0x13, x); // one number in all four places
const add = (a, b) => simd(0xe4, a, b);
const mul = (a, b) => simd(0xe6, a, b);
const div = (a, b) => simd(0xe7, a, b);
const bits = (n) => simd(0x11, constant(n));
const addInt = (a, b) => simd(0xae, a, b);
const shiftRight = (a, n) => simd(0xad, a, constant(n));
const and = (a, b) => simd(0x4e, a, b);
const or = (a, b) => simd(0x50, a, b);

const ONE = bits(0x3f800000); // the float 1

/** The logarithm to base 2 of p, rounded down, onto x; p is left between 1 and 2. */
const takeExponent = (p, x) => [
  ...set(x, addInt(get(x), addInt(shiftRight(get(p), 23), bits(-127)))),
  ...set(p, or(and(get(p), bits(0x7fffff)), ONE)),
];
const advance = (pointers) => pointers.flatMap((p) => set(p, plus(get(p), constant(16))));

/** y += x · term(row). */
function adding(term) {
  const [row, y, stop, x, v] = Array(5).keys();
  const body = () => [
    ...set(v, spread(get(x))),
    ...again(
      [...store(get(y), add(load(get(y)), mul(get(v), term(get(row))))), ...advance([row, y])],
      below(get(row), get(stop)),
    ),
  ];
  return { takes: [I32, I32, I32, F32], locals: [V128], body };
}

/** Four partial sums of term(row) · h, to `out`. */
function dotting(term) {
  const [row, h, stop, out, v] = Array(5).keys();
  const body = () => [
    ...again(
      [...set(v, add(get(v), mul(term(get(row)), load(get(h))))), ...advance([row, h])],
      below(get(row), get(stop)),
    ),
    ...store(get(out), get(v)),
  ];
  return { takes: [I32, I32, I32, I32], locals: [V128], body };
}

/**
 * A function: kinds of parameters, kinds of locals after them, instructions of the two together.
 * All work on arrays of float32 from a place in memory up to `stop`, in steps of 16 bytes.
 */
const FUNCTIONS = {
  /** N *= s·down + e·up and D *= s·down + up: one sender's messages, as fractions of products. */
  tell: {
    takes: [I32, I32, I32, I32, I32, F32, F32],
    locals: [V128, V128, V128],
    body: () => {
      const [s, e, N, D, stop, up, down, u, d, m] = Array(10).keys();
      return [
        ...set(u, spread(get(up))),
        ...set(d, spread(get(down))),
        ...again(
          [
            ...set(m, mul(load(get(s)), get(d))),
            ...store(get(N), mul(load(get(N)), add(get(m), mul(get(u), load(get(e)))))),
            ...store(get(D), mul(load(get(D)), add(get(m), get(u)))),
            ...advance([s, e, N, D]),
          ],
          below(get(s), get(stop)),
        ),
      ];
    },
  },
  /** Exponents of the floats of P onto the integers of E. */
  settle: {
    takes: [I32, I32, I32],
    locals: [V128, V128],
    body: () => {
      const [P, E, stop, p, x] = Array(5).keys();
      return again(
        [
          ...set(p, load(get(P))),
          ...set(x, load(get(E))),
          ...takeExponent(p, x),
          ...store(get(P), get(p)),
          ...store(get(E), get(x)),
          ...advance([P, E]),
        ],
        below(get(P), get(stop)),
      );
    },
  },
  /**
   * What the other layer answers one unit: with a = s·down + e·up and d = s·down + up the message
   * that unit sent is a / d, and the answer (a·q + c·e·d) / (a·q + c·d) takes the place of s. At
   * `out` four products of answers, and their exponents; `chunk` bytes are multiplied before those
   * are taken.
   */
  answer: {
    takes: [I32, I32, I32, I32, I32, I32, I32, F32, F32],
    locals: [V128, V128, V128, V128, V128, V128, V128, I32],
    body: () => {
      const [s, e, c, q, stop, out, chunk, up, down, u, w, a, d, t, p, x, next] = Array(17).keys();
      return [
        ...set(u, spread(get(up))),
        ...set(w, spread(get(down))),
        ...set(p, ONE),
        ...set(x, bits(0)),
        ...again(
          [
            ...set(next, plus(get(s), get(chunk))),
            ...set(next, choose(get(next), get(stop), below(get(next), get(stop)))),
            ...again(
              [
                ...set(t, mul(load(get(s)), get(w))),
                ...set(a, mul(add(get(t), mul(get(u), load(get(e)))), load(get(q)))),
                ...set(d, mul(add(get(t), get(u)), load(get(c)))),
                ...set(t, div(add(get(a), mul(load(get(e)), get(d))), add(get(a), get(d)))),
                ...store(get(s), get(t)),
                ...set(p, mul(get(p), get(t))),
                ...advance([s, e, c, q]),
              ],
              below(get(s), get(next)),
            ),
            ...takeExponent(p, x),
          ],
          below(get(s), get(stop)),
        ),
        ...store(get(out), get(p)),
        ...store(get(out), get(x), 16),
      ];
    },
  },
  /** to = the square roots of from. */
  roots: {
    takes: [I32, I32, I32],
    locals: [],
    body: () => {
      const [from, to, stop] = Array(3).keys();
      return again(
        [...store(get(to), simd(0xe3, load(get(from)))), ...advance([from, to])],
        below(get(from), get(stop)),
      );
    },
  },
  addRow: adding((row) => load(row)),
  dotRow: dotting((row) => load(row)),
  addSquares: adding((row) => mul(load(row), load(row))),
  dotSquares: dotting((row) => mul(load(row), load(row))),
};

const text = (word) => [word.length, ...Array.from(word, (letter) => letter.charCodeAt(0))];

/** The bytes of the module: it takes a memory, and gives the functions. */
export function assembled() {
  const all = Object.entries(FUNCTIONS);
  const types = all.map(([, f]) => [0x60, ...vector(f.takes.map((kind) => [kind])), 0]);
  const memory = [[...text("page"), ...text("memory"), 2, 0, 1]];
  const exports = all.map(([name], k) => [...text(name), 0, k]);
  const codes = all.map(([, f]) => {
    const code = [...vector(f.locals.map((kind) => [1, kind])), ...f.body(), 0x0b];
    return [...leb(code.length), ...code];
  });
  return new Uint8Array([
    ...[0, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
    ...section(1, vector(types)),
    ...section(2, vector(memory)),
    ...section(3, vector(all.map((_, k) => [k]))),
    ...section(7, vector(exports)),
    ...section(10, vector(codes)),
  ]);
}

let compiled; // undefined until it was tried, null where it is refused

function moduleOf() {
  if (compiled === undefined) {
    try {
      compiled = new WebAssembly.Module(assembled());
    } catch {
      compiled = null;
    }
  }
  return compiled;
}

// ---------------------------------------------------------------- a matrix and its loops

/** The loops over a matrix of rows x cols weights; null where there are none. */
export function kernelsOf(weights, rows, cols) {
  return moduleOf() ? new Kernels(weights, rows, cols) : null;
}

/** Rows are filled up to whole vectors, with weights of 0. */
export class Kernels {
  constructor(weights, rows, cols) {
    Object.assign(this, { rows, cols, wide: (cols + 3) & ~3 });
    const matrix = rows * this.wide,
      line = this.wide;
    const sizes = { W: matrix, e: matrix, s: matrix, N: line, D: line, c: line, q: line };
    Object.assign(sizes, { x: line, expN: line, expD: line, out: 8 });
    let total = 0;
    this.at = {};
    for (const [name, size] of Object.entries(sizes)) {
      this.at[name] = total;
      total += 4 * size;
    }
    this.memory = new WebAssembly.Memory({ initial: Math.ceil(total / PAGE) });
    const { buffer } = this.memory;
    for (const [name, size] of Object.entries(sizes)) {
      const kind = name.startsWith("exp") ? Int32Array : Float32Array;
      this[name] = new kind(buffer, this.at[name], size);
    }
    this.outExponents = new Int32Array(buffer, this.at.out + 16, 4);
    const instance = new WebAssembly.Instance(compiled, { page: { memory: this.memory } });
    this.run = instance.exports;
    for (let i = 0; i < rows; i++) {
      this.W.set(weights.subarray(i * cols, (i + 1) * cols), i * this.wide);
    }
    this.holder = null;
  }

  /** exp(W), computed when it is first wanted. */
  fillOdds() {
    if (this.filled) return;
    for (let i = 0; i < this.W.length; i++) this.e[i] = Math.exp(this.W[i]);
    this.filled = true;
  }

  /** Give the messages to a run; those of the run that had them are put aside with it. */
  take(run) {
    if (this.holder === run) return;
    if (this.holder) this.holder.kept = this.s.slice();
    if (run.kept) this.s.set(run.kept);
    run.kept = null;
    this.holder = run;
  }

  /** Neutral messages: the square roots of exp(W). */
  neutral() {
    const { at, run } = this;
    this.fillOdds();
    run.roots(at.e, at.s, at.e + 4 * this.e.length);
  }

  /** out = W' x + bias, or with the squares of W. */
  across(x, bias, out, squares = false) {
    const { at, wide } = this,
      add = squares ? this.run.addSquares : this.run.addRow;
    this.x.fill(0).set(bias);
    for (let i = 0; i < this.rows; i++) {
      const row = at.W + 4 * wide * i;
      if (x[i] !== 0) add(row, at.x, row + 4 * wide, x[i]);
    }
    for (let j = 0; j < this.cols; j++) out[j] = this.x[j];
    return out;
  }

  /** out = W h + bias, or with the squares of W. */
  down(h, bias, out, squares = false) {
    const { at, wide, out: sums } = this,
      dot = squares ? this.run.dotSquares : this.run.dotRow;
    this.x.fill(0).set(h);
    for (let i = 0; i < this.rows; i++) {
      const row = at.W + 4 * wide * i;
      dot(row, at.x, row + 4 * wide, at.out);
      out[i] = bias[i] + (sums[0] + sums[1] + (sums[2] + sums[3]));
    }
    return out;
  }

  /** Σ log of what `rows` with odds up / down tell the columns, to `sums`; `group` rows at a time. */
  tellAll(rows, up, down, group, sums) {
    const { at, run, N, D, expN, expD } = this,
      line = 4 * this.wide;
    N.fill(1);
    D.fill(1);
    expN.fill(0);
    expD.fill(0);
    rows.forEach((u, i) => {
      const row = line * u;
      run.tell(at.s + row, at.e + row, at.N, at.D, at.s + row + line, up[i], down[i]);
      if ((i + 1) % group && i + 1 < rows.length) return;
      run.settle(at.N, at.expN, at.N + line);
      run.settle(at.D, at.expD, at.D + line);
    });
    for (let j = 0; j < this.cols; j++)
      sums[j] = Math.log(N[j] / D[j]) + Math.LN2 * (expN[j] - expD[j]);
  }

  /** The answers of columns with odds c / q to `rows`, in place, and Σ log of them to `sums`. */
  answerAll(rows, up, down, group, sums) {
    const { at, run, out, outExponents: x } = this,
      line = 4 * this.wide;
    rows.forEach((u, i) => {
      const s = at.s + line * u,
        e = at.e + line * u;
      run.answer(s, e, at.c, at.q, s + line, at.out, 16 * group, up[i], down[i]);
      sums[i] =
        Math.log(out[0] * out[1] * (out[2] * out[3])) + Math.LN2 * (x[0] + x[1] + x[2] + x[3]);
    });
  }
}
