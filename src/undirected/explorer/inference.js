/**
 * Inference in a page: harmoniums (RBMs with columns of every kind) and factor graphs.
 *
 * No dependencies, typed arrays only. Every method is a run that is advanced by `step()`, one round
 * at a time, and read by `beliefs()`, so that a page can show a model while it settles.
 */

import { kernelsOf } from "./kernels.js";

export const FAR = 1e9; // the logarithm of 0: beyond any sum of fields, and finite

// ---------------------------------------------------------------- numbers

/** log(1 + e^x). */
export function softplus(x) {
  return Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));
}

export function sigmoid(x) {
  return x >= 0 ? 1 / (1 + Math.exp(-x)) : 1 - 1 / (1 + Math.exp(x));
}

/** Log-odds message of exp(w x y) from a binary unit of cavity log-odds `field`. */
export function message(field, weight) {
  const half = 0.5 * weight;
  const inside = Math.min(Math.max(field + half, -Math.abs(half)), Math.abs(half));
  const up = Math.log1p(Math.exp(-Math.abs(field + weight)));
  return half + (half > 0 ? inside : -inside) + up - Math.log1p(Math.exp(-Math.abs(field)));
}

export function logSumExp(values) {
  let top = -Infinity;
  for (const value of values) if (value > top) top = value;
  if (!Number.isFinite(top)) return top;
  let sum = 0;
  for (const value of values) sum += Math.exp(value - top);
  return top + Math.log(sum);
}

/** exp(values - log sum exp) in place; returns that logarithm. */
function normalise(values) {
  const total = logSumExp(values);
  for (let k = 0; k < values.length; k++) values[k] = Math.exp(values[k] - total);
  return total;
}

function entropy(p) {
  return p > 0 ? -p * Math.log(p) : 0;
}

/** A small generator of random numbers with a seed (sfc32). */
export class Random {
  constructor(seed = 0) {
    this.state = new Uint32Array([seed >>> 0, 0x9e3779b9, 0x243f6a88, 1]);
    for (let i = 0; i < 16; i++) this.uniform();
  }

  uniform() {
    const s = this.state;
    const sum = (s[0] + s[1] + s[3]) >>> 0;
    s[3] += 1;
    s[0] = s[1] ^ (s[1] >>> 9);
    s[1] = s[2] + (s[2] << 3);
    s[2] = ((s[2] << 21) | (s[2] >>> 11)) + sum;
    return (sum + 0.5) / 4294967296;
  }

  normal() {
    return Math.sqrt(-2 * Math.log(this.uniform())) * Math.cos(2 * Math.PI * this.uniform());
  }

  /** A state from weights that need not sum to one. */
  state_of(weights) {
    let total = 0;
    for (const w of weights) total += w;
    let left = this.uniform() * total;
    for (let k = 0; k < weights.length; k++) {
      left -= weights[k];
      if (left < 0) return k;
    }
    return weights.length - 1;
  }

  /** From the density exp(l x - r x^2 / 2) on x >= 0: Robert's (1995) two rejections. */
  rectified(l, r) {
    const scale = 1 / Math.sqrt(r),
      a = l * scale;
    if (a > -0.5) {
      for (;;) {
        const y = a + this.normal();
        if (y >= 0) return y * scale;
      }
    }
    const rate = 0.5 * (-a + Math.sqrt(a * a + 4));
    for (;;) {
      const y = -Math.log(this.uniform()) / rate;
      if (Math.log(this.uniform()) <= -0.5 * (y - a - rate) ** 2) return y * scale;
    }
  }
}

// ---------------------------------------------------------------- one unit in a field

const ROOT = Math.sqrt(2 * Math.PI);

/** The normal distribution function, of a > -4 to full relative precision. */
function normalMass(a) {
  if (a > 9) return 1;
  let term = a,
    sum = a;
  for (let k = 1; Math.abs(term) > 1e-17 * Math.abs(sum) && k < 300; k++) {
    term *= (a * a) / (2 * k + 1);
    sum += term;
  }
  return 0.5 + (sum * Math.exp(-0.5 * a * a)) / ROOT;
}

/** Ratios I_1 / I_0 and I_2 / I_1 of moments I_k = ∫ y^k / k! exp(-t y - y^2 / 2), t >= 3. */
function tailRatios(t) {
  let ratio = 2 / (t + Math.sqrt(t * t + 168)),
    second = 0;
  for (let k = 40; k > 0; k--) {
    second = ratio;
    ratio = 1 / (t + (k + 1) * ratio);
  }
  return [ratio, second];
}

/** Log normaliser, mean and variance of exp(l x - r x^2 / 2) on x >= 0. */
export function rectified(l, r) {
  const scale = 1 / Math.sqrt(r),
    a = l * scale;
  if (a < -3) {
    const [one, two] = tailRatios(-a);
    return {
      logZ: -Math.log(-a + one) + Math.log(scale),
      mean: one * scale,
      variance: one * (2 * two - one) * scale * scale,
    };
  }
  const mass = normalMass(a),
    hazard = Math.exp(-0.5 * a * a) / (ROOT * mass),
    mean = a + hazard;
  return {
    logZ: 0.5 * a * a + Math.log(mass * ROOT * scale),
    mean: mean * scale,
    variance: (1 - hazard * mean) * scale * scale,
  };
}

/** The same on the line, or from 0 on. */
export function lineUnit(kind, l, r) {
  if (kind === "nonnegative") return rectified(l, r);
  return { logZ: 0.5 * ((l * l) / r + Math.log((2 * Math.PI) / r)), mean: l / r, variance: 1 / r };
}

const NODES = 64;
let legendre = null;

/** Gauss-Legendre nodes and weights on [-1, 1], by Newton's steps. */
function gaussLegendre() {
  if (legendre) return legendre;
  const x = new Float64Array(NODES),
    w = new Float64Array(NODES);
  for (let i = 0; i < NODES; i++) {
    let z = -Math.cos((Math.PI * (i + 0.75)) / (NODES + 0.5)),
      slope = 1;
    for (let pass = 0; pass < 50; pass++) {
      let p = 1,
        before = 0;
      for (let k = 1; k <= NODES; k++)
        [p, before] = [((2 * k - 1) * z * p - (k - 1) * before) / k, p];
      slope = (NODES * (z * p - before)) / (z * z - 1);
      z -= p / slope;
      if (Math.abs(p / slope) < 1e-15) break;
    }
    x[i] = z;
    w[i] = 2 / ((1 - z * z) * slope * slope);
  }
  return (legendre = { x, w });
}

/**
 * Places that hold the mass of exp(l x - r x^2 / 2) Π_j (1 + exp(o_j + w_j x)) / (1 + exp(o_j)), and
 * the logarithm of that density there with the weights of the rule.
 */
function lineNodes(kind, l, r, odds, weight) {
  const density = (x) => {
    let total = l * x - 0.5 * r * x * x;
    for (let j = 0; j < odds.length; j++) total += message(odds[j], weight[j] * x);
    return total;
  };
  let down = l,
    up = l;
  for (const w of weight) w > 0 ? (up += w) : (down += w);
  const reach = 7 / Math.sqrt(r);
  let low = down / r - reach,
    high = up / r + reach;
  if (kind === "nonnegative") [low, high] = [0, Math.max(high, reach)];
  const step = (high - low) / (NODES - 1),
    logs = new Float64Array(NODES);
  let top = -Infinity;
  for (let k = 0; k < NODES; k++) top = Math.max(top, (logs[k] = density(low + k * step)));
  const least = top - 20 - 0.125 * r * step * step;
  let first = NODES,
    last = 0;
  for (let k = 0; k < NODES; k++) {
    if (logs[k] > least) [first, last] = [Math.min(first, k), Math.max(last, k)];
  }
  [low, high] = [Math.max(low, low + (first - 1) * step), Math.min(high, low + (last + 1) * step)];
  const rule = gaussLegendre(),
    half = 0.5 * (high - low),
    x = new Float64Array(NODES);
  for (let k = 0; k < NODES; k++) {
    x[k] = low + half * (rule.x[k] + 1);
    logs[k] = density(x[k]) + Math.log(half * rule.w[k]);
  }
  return { x, logs };
}

// ---------------------------------------------------------------- harmoniums

/**
 * Visible variables of every kind and a layer of binary hidden units, perhaps with one softmax unit.
 *
 * -E(v, h, z) = Σ_u v_u (b_u + Σ_j W_uj h_j) - r_u v_u² / 2 + c' h, where z is a softmax unit whose
 * states are the last `components` of the hidden units.
 *
 * @param {object} spec variables [{kind, states}], hidden, components, weights (V x (H + K)), fields b,
 *   precision r, hiddenBias c, offset; perhaps couplings J (R x R) of the real units, symmetric with
 *   a zero diagonal, which add v' J v / 2.
 */
export class Harmonium {
  static LARGE = 20000; // weights from which on single precision and vectors pay
  static STEEPEST = 40; // largest weight for which products of odds are safe in single precision

  constructor(spec) {
    this.kinds = spec.variables.map((v) => v.kind);
    this.widths = spec.variables.map((v) => (v.kind === "category" ? v.states : 1));
    this.first = [];
    let units = 0;
    for (const width of this.widths) {
      this.first.push(units);
      units += width;
    }
    this.n = units;
    this.H = spec.hidden;
    this.K = spec.components || 0;
    this.J = this.H + this.K;
    this.weights = spec.weights;
    this.fields = spec.fields;
    this.precision = spec.precision || new Float64Array(units);
    this.hiddenBias = spec.hiddenBias;
    this.offset = spec.offset || 0;
    this.couplings = spec.couplings || null;
    this.reals = this.kinds.flatMap((kind, g) => (kind === "real" ? [this.first[g]] : []));
    this.owner = new Int32Array(units);
    this.first.forEach((at, g) => this.owner.fill(g, at, at + this.widths[g]));
    this.hasLines = this.kinds.some((kind) => kind === "real" || kind === "nonnegative");
    this.hasCategories = this.kinds.includes("category");
    let steepest = 0;
    for (const w of this.weights) steepest = Math.max(steepest, Math.abs(w));
    this.steepest = steepest;
    this.vectors = this.weights.length >= Harmonium.LARGE;
  }

  /** Loops over the weights in single precision, for models that are large enough; or null. */
  get kernels() {
    if (!this.vectors) return null;
    if (this._kernels === undefined) this._kernels = kernelsOf(this.weights, this.n, this.J);
    return this._kernels;
  }

  /** exp(W) and exp(W / 2), computed once. */
  get odds() {
    if (!this._odds) {
      this._half = Float64Array.from(this.weights, (w) => Math.exp(0.5 * w));
      this._odds = this._half.map((x) => x * x);
    }
    return { odds: this._odds, half: this._half };
  }

  /** Why a method cannot be asked of this model; null where it can. */
  refusal(method) {
    if (this.couplings && ["bp", "mf", "tap"].includes(method)) {
      return "This model couples its real columns; ask for exact answers, or for chains.";
    }
    if (method === "tap" && (this.hasCategories || this.K)) {
      return "TAP takes binary and continuous units; this model has units of several states.";
    }
    if (method === "bp" && this.K && (this.hasCategories || this.hasLines)) {
      return "Belief propagation here takes a softmax hidden unit with binary columns only.";
    }
    return null;
  }

  /** A run of "bp", "mf", "tap", "gibbs", "tempered" or "exact" under evidence. */
  run(method, evidence = {}, options = {}) {
    const why = this.refusal(method);
    if (why) throw new Error(why);
    const known = new Known(this, evidence);
    if (method === "bp") {
      const quick = !options.damping && this.quickBP;
      return quick ? new QuickBP(this, known, options) : new HarmoniumBP(this, known, options);
    }
    if (method === "mf") return new HarmoniumMF(this, known, options);
    if (method === "tap") return new HarmoniumTAP(this, known, options);
    if (method === "exact") return new HarmoniumExact(this, known);
    if (method === "gibbs" || method === "tempered") {
      return new Chains(this, known, { ...options, tempered: method === "tempered" });
    }
    throw new Error(`no method ${method}`);
  }

  /** Whether belief propagation has only odds of binary units, which the kernels take. */
  get quickBP() {
    const plain = !this.K && !this.hasLines && !this.hasCategories;
    return plain && this.steepest <= Harmonium.STEEPEST && this.kernels !== null;
  }

  /** Σ_j hidden unit's field from visible units x: W' x + c. */
  hiddenFields(x, out = new Float64Array(this.J)) {
    const { J, weights, kernels } = this;
    if (kernels) return kernels.across(x, this.hiddenBias, out);
    out.set(this.hiddenBias);
    for (let u = 0; u < this.n; u++) {
      const value = x[u];
      if (value === 0) continue;
      const at = u * J;
      for (let j = 0; j < J; j++) out[j] += value * weights[at + j];
    }
    return out;
  }

  /** W h + b from hidden units h. */
  visibleFields(h, out = new Float64Array(this.n)) {
    const { J, weights, kernels } = this,
      on = [];
    if (kernels) return kernels.down(h, this.fields, out);
    for (let j = 0; j < J; j++) if (h[j] !== 0) on.push(j);
    for (let u = 0; u < this.n; u++) {
      const at = u * J;
      let total = this.fields[u];
      for (const j of on) total += h[j] * weights[at + j];
      out[u] = total;
    }
    return out;
  }

  /** log of the sum over hidden states of exp(-E(v, h)), the unnormalised log p(v). */
  logWeight(x, known = null) {
    let total = this.offset;
    for (let u = 0; u < this.n; u++)
      total += x[u] * (this.fields[u] - 0.5 * this.precision[u] * x[u]);
    return total + this.coupled(x) + this.hiddenLogSum(this.hiddenFields(x), known);
  }

  /** v' J v / 2 of the real units. */
  coupled(x) {
    if (!this.couplings) return 0;
    let total = 0;
    this.reals.forEach((u, i) => {
      this.reals.forEach((w, k) => {
        total += 0.5 * x[u] * x[w] * this.couplings[i * this.reals.length + k];
      });
    });
    return total;
  }

  /** Log normaliser of the hidden units in these fields, over the states that agree with evidence. */
  hiddenLogSum(f, known = null) {
    let total = 0;
    for (let j = 0; j < this.H; j++) {
      const held = known ? known.hidden[j] : NaN;
      total += Number.isNaN(held) ? softplus(f[j]) : held * f[j];
    }
    if (!this.K) return total;
    if (known && known.component >= 0) return total + f[this.H + known.component];
    return total + logSumExp(f.subarray(this.H));
  }

  /** Means of the hidden units in these fields. */
  hiddenMeans(f, known, out = new Float64Array(this.J)) {
    for (let j = 0; j < this.H; j++) {
      out[j] = Number.isNaN(known.hidden[j]) ? sigmoid(f[j]) : known.hidden[j];
    }
    if (this.K) {
      const part = out.subarray(this.H);
      part.set(f.subarray(this.H));
      if (known.component >= 0) part.fill(0)[known.component] = 1;
      else normalise(part);
    }
    return out;
  }

  /** Means (and variances) of visible units in these fields; known ones stay. */
  visibleMeans(f, known, mean = new Float64Array(this.n), variance = null) {
    for (let g = 0; g < this.kinds.length; g++) {
      const at = this.first[g],
        width = this.widths[g],
        kind = this.kinds[g];
      if (known.has[g]) {
        for (let u = at; u < at + width; u++) mean[u] = known.units[u];
        if (variance) variance.fill(0, at, at + width);
      } else if (kind === "binary") {
        mean[at] = sigmoid(f[at]);
        if (variance) variance[at] = mean[at] * (1 - mean[at]);
      } else if (kind === "category") {
        const part = mean.subarray(at, at + width);
        part.set(f.subarray(at, at + width));
        normalise(part);
        if (variance) for (let u = at; u < at + width; u++) variance[u] = mean[u] * (1 - mean[u]);
      } else {
        const unit = lineUnit(kind, f[at], this.precision[at]);
        mean[at] = unit.mean;
        if (variance) variance[at] = unit.variance;
      }
    }
    if (this.couplings) {
      const { free, root, spread } = known.normal;
      root.solve(known.realFields(f)).forEach((x, i) => (mean[free[i]] = x));
      if (variance) free.forEach((u, i) => (variance[u] = spread[i]));
    }
    return mean;
  }

  /** Log normaliser of the visible variables that are not known, in these fields. */
  visibleLogSum(f, known) {
    let total = 0;
    for (let g = 0; g < this.kinds.length; g++) {
      const at = this.first[g],
        kind = this.kinds[g];
      if (known.has[g]) {
        for (let u = at; u < at + this.widths[g]; u++) {
          const x = known.units[u];
          if (x !== 0) total += x * (f[u] - 0.5 * this.precision[u] * x);
        }
      } else if (kind === "binary") total += softplus(f[at]);
      else if (kind === "category") total += logSumExp(f.subarray(at, at + this.widths[g]));
      else if (kind === "nonnegative" || !this.couplings)
        total += lineUnit(kind, f[at], this.precision[at]).logZ;
    }
    if (!this.couplings) return total;
    const { free, root } = known.normal,
      l = known.realFields(f);
    root.solve(l).forEach((x, i) => (total += 0.5 * x * l[i]));
    return total + this.coupled(known.units) + 0.5 * free.length * Math.log(2 * Math.PI) - root.log;
  }

  /** How many states an exact answer has to sum over, of the cheaper layer. */
  exactStates(evidence = {}) {
    const known = new Known(this, evidence);
    return Math.min(known.hiddenStates(), known.visibleStates());
  }
}

/** The lower triangular L of a positive matrix L L', and log det L. */
class Cholesky {
  constructor(matrix) {
    this.rows = matrix.map((row) => row.slice());
    this.log = 0;
    const { rows } = this;
    for (let i = 0; i < rows.length; i++) {
      for (let k = 0; k <= i; k++) {
        let total = matrix[i][k];
        for (let m = 0; m < k; m++) total -= rows[i][m] * rows[k][m];
        rows[i][k] = i === k ? Math.sqrt(total) : total / rows[k][k];
      }
      this.log += Math.log(rows[i][i]);
    }
  }

  /** x with L' x = y. */
  upper(y) {
    const x = y.slice();
    for (let i = x.length - 1; i >= 0; i--) {
      for (let k = i + 1; k < x.length; k++) x[i] -= this.rows[k][i] * x[k];
      x[i] /= this.rows[i][i];
    }
    return x;
  }

  /** y with L y = b. */
  lower(b) {
    const y = b.slice();
    for (let i = 0; i < y.length; i++) {
      for (let k = 0; k < i; k++) y[i] -= this.rows[i][k] * y[k];
      y[i] /= this.rows[i][i];
    }
    return y;
  }

  /** x with L L' x = b. */
  solve(b) {
    return this.upper(this.lower(b));
  }
}

/** Evidence on a harmonium: values of visible variables, of hidden units and of the softmax unit. */
class Known {
  constructor(model, evidence) {
    this.model = model;
    this.has = new Uint8Array(model.kinds.length);
    this.units = new Float64Array(model.n);
    const values = evidence.visible || [];
    for (let g = 0; g < model.kinds.length; g++) {
      const value = values[g];
      if (value === undefined || value === null || Number.isNaN(value)) continue;
      this.has[g] = 1;
      if (model.kinds[g] === "category") this.units[model.first[g] + value] = 1;
      else this.units[model.first[g]] = value;
    }
    this.hidden = new Float64Array(model.H).fill(NaN);
    for (const [j, value] of Object.entries(evidence.hidden || {})) this.hidden[j] = value;
    this.component = evidence.component ?? -1;
  }

  /** Units with evidence in their place and a neutral value elsewhere. */
  neutral(discrete = true) {
    const { model } = this,
      x = Float64Array.from(this.units);
    for (let g = 0; g < model.kinds.length; g++) {
      const kind = model.kinds[g],
        at = model.first[g],
        width = model.widths[g];
      const line = kind === "real" || kind === "nonnegative";
      if (line && !this.has[g]) x[at] = lineUnit(kind, model.fields[at], model.precision[at]).mean;
      // Discrete units start neutral even where they are known, as the first messages do.
      if (!line && discrete) x.fill(kind === "category" ? 1 / width : 0.5, at, at + width);
    }
    return x;
  }

  /** The real units that are not known, where they are coupled, and their precision matrix. */
  get normal() {
    if (!this._normal) {
      const { reals, couplings, precision, owner } = this.model,
        R = reals.length;
      const places = reals.map((_, i) => i).filter((i) => !this.has[owner[reals[i]]]);
      const matrix = places.map((i) =>
        places.map((k) => (i === k ? precision[reals[i]] : -couplings[i * R + k])),
      );
      const root = new Cholesky(matrix),
        spread = places.map((_, i) => root.solve(places.map((__, k) => +(i === k)))[i]);
      this._normal = { places, free: places.map((i) => reals[i]), root, spread };
    }
    return this._normal;
  }

  /** Fields of the real units that are not known, with what the known ones add. */
  realFields(f) {
    const { reals, couplings } = this.model;
    return this.normal.places.map((i) => {
      let total = f[reals[i]];
      reals.forEach((u, k) => (total += couplings[i * reals.length + k] * this.units[u]));
      return total;
    });
  }

  hiddenStates() {
    let free = 0;
    for (const value of this.hidden) free += Number.isNaN(value);
    return 2 ** free * (this.model.K && this.component < 0 ? this.model.K : 1);
  }

  visibleStates() {
    let count = 1;
    this.model.kinds.forEach((kind, g) => {
      if (this.has[g]) return;
      if (kind === "binary") count *= 2;
      else count *= kind === "category" ? this.model.widths[g] : Infinity;
    });
    return count;
  }
}

/** Shared by all runs: rounds, the last change, and whether that is small enough. */
class Run {
  constructor(tolerance, limit) {
    this.rounds = 0;
    this.change = Infinity;
    this.tolerance = tolerance;
    this.limit = limit;
  }

  get converged() {
    return this.change <= this.tolerance;
  }

  get done() {
    return this.converged || this.rounds >= this.limit || Number.isNaN(this.change);
  }

  /** Rounds until it settles, until `limit`, or until so many milliseconds have passed. */
  settle(milliseconds = Infinity) {
    const until = milliseconds === Infinity ? Infinity : performance.now() + milliseconds;
    while (!this.done) {
      this.step();
      if (until !== Infinity && performance.now() > until) break;
    }
    return this;
  }
}

/**
 * Belief propagation. Messages of discrete variables are odds ratios s = exp(m): with the odds O of
 * the sender, (s + O exp(w)) / (s + O), so that a round needs a division for each message and no
 * exponential. Products are taken a few at a time, and then their logarithm. What a hidden unit tells a
 * continuous one is a function of its value, which is kept as it is and integrated along the line.
 */
class HarmoniumBP extends Run {
  constructor(model, known, { damping = 0, tolerance = 1e-4, iterations = 100 } = {}) {
    super(tolerance, iterations);
    Object.assign(this, { model, known, damping });
    this.group = Math.max(1, Math.min(16, Math.floor(600 / Math.max(model.steepest, 1))));
    this.most = 690 - Math.min(model.steepest, 600);
    this._reduce();
    this._start();
  }

  /** Fold what is known into the fields of the rest; compact weights of free units. */
  _reduce() {
    const { model, known } = this,
      { J } = model;
    this.cols = [];
    for (let j = 0; j < model.H; j++) if (Number.isNaN(known.hidden[j])) this.cols.push(j);
    this.H = this.cols.length;
    this.K = model.K && known.component < 0 ? model.K : 0;
    for (let k = 0; k < this.K; k++) this.cols.push(model.H + k);
    const on = new Float64Array(J);
    for (let j = 0; j < model.H; j++) on[j] = known.hidden[j] === 1 ? 1 : 0;
    if (known.component >= 0) on[model.H + known.component] = 1;
    const fields = model.visibleFields(on);
    this.free = [];
    for (let g = 0; g < model.kinds.length; g++) if (!known.has[g]) this.free.push(g);
    this.offset = model.offset;
    for (let j = 0; j < J; j++) this.offset += on[j] * model.hiddenBias[j];
    const x = Float64Array.from(known.units);
    for (let u = 0; u < model.n; u++) {
      if (known.has[model.owner[u]])
        this.offset += x[u] * (fields[u] - 0.5 * model.precision[u] * x[u]);
    }
    const all = model.hiddenFields(x);
    this.hiddenBias = Float64Array.from(this.cols, (j) => all[j]);
    const rows = [];
    for (const g of this.free)
      for (let s = 0; s < model.widths[g]; s++) rows.push(model.first[g] + s);
    this.rows = rows;
    this.fields = Float64Array.from(rows, (u) => fields[u]);
    this.weight = this._compact(model.weights, this.cols);
    this.odds = this._compact(model.odds.odds, this.cols);
  }

  /** The rows and columns of a matrix that belong to free units. */
  _compact(matrix, cols) {
    const { J } = this.model,
      n = cols.length,
      out = new Float64Array(this.rows.length * n);
    const whole = cols.every((j, k) => j === k);
    this.rows.forEach((u, i) => {
      if (whole) out.set(matrix.subarray(u * J, u * J + n), i * n);
      else for (let k = 0; k < n; k++) out[i * n + k] = matrix[u * J + cols[k]];
    });
    return out;
  }

  /** Neutral messages: what a sender that prefers no state says. */
  _start() {
    const { H, K, model } = this,
      n = this.cols.length;
    this.back = this._compact(model.odds.half, this.cols.slice(0, H)); // hidden unit to visible unit
    // Binary units without damping need one array for both directions, as each answers the other.
    this.shared = !K && !this.damping && !model.hasLines && !model.hasCategories;
    this.fromZ = new Float64Array(this.rows.length).fill(1);
    this.sent = this.shared ? this.back : new Float64Array(this.free.length * n); // variable to hidden
    this.atRows = new Float64Array(this.rows.length);
    this.atCols = new Float64Array(n);
    this.rows.forEach((_, i) => {
      let sum = 0,
        mean = 0;
      for (let j = 0; j < H; j++) sum += this.weight[i * n + j];
      for (let k = 0; k < K; k++) mean += this.weight[i * n + H + k] / K;
      this.fromZ[i] = Math.exp(mean);
      this.atRows[i] = 0.5 * sum + mean;
    });
    this._neutralColumns(n);
    this.firstCols = this.model.hasLines ? this._firstColumns(n) : null;
  }

  _neutralColumns(n) {
    const { model } = this;
    let row = 0;
    this.free.forEach((g, f) => {
      const width = model.widths[g],
        kind = model.kinds[g],
        u = model.first[g];
      let mean = 1 / (kind === "category" ? width : 2);
      if (kind === "real") mean = model.fields[u] / model.precision[u];
      if (kind === "nonnegative") {
        mean = Math.max(model.fields[u] / model.precision[u], 1 / Math.sqrt(model.precision[u]));
      }
      for (let j = 0; j < n; j++) {
        let total = 0;
        for (let s = 0; s < width; s++) total += this.weight[(row + s) * n + j];
        if (!this.shared) this.sent[f * n + j] = Math.exp(mean * total);
        this.atCols[j] += mean * total;
      }
      row += width;
    });
  }

  /** Sums at the hidden units before the first round: known discrete units speak neutrally too. */
  _firstColumns(n) {
    const x = this.known.neutral(),
      { model } = this;
    for (const g of this.free) x.fill(0, model.first[g], model.first[g] + model.widths[g]);
    const all = model.hiddenFields(x);
    return Float64Array.from({ length: n }, (_, j) => all[this.cols[j]] - this.hiddenBias[j]);
  }

  step() {
    const beforeRows = Float64Array.from(this.atRows),
      before = Float64Array.from(this.atCols);
    if (this.model.hasLines) {
      this._answer(this.rounds === 0 ? this.firstCols : null);
      this._tell();
      this.change = largest(this.atCols, before);
    } else {
      this._tell();
      this._answer();
      this.change = Math.max(largest(this.atCols, before), largest(this.atRows, beforeRows));
    }
    this.rounds += 1;
    return this.change;
  }

  _clip(field) {
    return Math.exp(Math.min(Math.max(field, -this.most), this.most));
  }

  /** Visible variables to hidden units. */
  _tell() {
    const { model } = this,
      n = this.cols.length,
      sums = this.atCols.fill(0);
    const product = new Float64Array(n).fill(1);
    let row = 0,
      waiting = 0;
    this.free.forEach((g, f) => {
      const kind = model.kinds[g];
      if (kind === "binary") this._tellBinary(row, f, n, product);
      else if (kind === "category") this._tellCategory(row, f, n, model.widths[g], product);
      else this._tellLine(row, f, n, kind, product);
      row += model.widths[g];
      if (++waiting === this.group) {
        flush(product, sums);
        waiting = 0;
      }
    });
    flush(product, sums);
  }

  _tellBinary(row, f, n, product) {
    const { H, K, sent, damping } = this;
    const O = this._clip(this.fields[row] + this.atRows[row]);
    if (damping) this._tellDamped(row, f, n, O, product);
    else {
      tellAll(this.back, row * H, this.odds, row * n, sent, f * n, H, O, product);
      const s = this.fromZ[row];
      for (let j = H; j < H + K; j++) {
        const r = (s + O * this.odds[row * n + j]) / (s + O);
        sent[f * n + j] = r;
        product[j] *= r;
      }
    }
  }

  _tellDamped(row, f, n, O, product) {
    for (let j = 0; j < n; j++) {
      const s = j < this.H ? this.back[row * this.H + j] : this.fromZ[row];
      const fresh = (s + O * this.odds[row * n + j]) / (s + O);
      const r = mix(fresh, this.sent[f * n + j], this.damping);
      this.sent[f * n + j] = r;
      product[j] *= r;
    }
  }

  _tellCategory(row, f, n, width, product) {
    const { H, back, odds, sent, damping } = this,
      own = new Float64Array(width);
    for (let s = 0; s < width; s++) own[s] = this.fields[row + s] + this.atRows[row + s];
    const top = Math.max(...own);
    for (let s = 0; s < width; s++) own[s] = Math.exp(Math.max(own[s] - top, -this.most));
    for (let j = 0; j < H; j++) {
      let up = 0,
        down = 0;
      for (let s = 0; s < width; s++) {
        const cavity = own[s] / back[(row + s) * H + j];
        up += cavity * odds[(row + s) * n + j];
        down += cavity;
      }
      let r = up / down;
      if (damping) r = mix(r, sent[f * n + j], damping);
      sent[f * n + j] = r;
      product[j] *= r;
    }
  }

  /** log of the mean of exp(w x), without the hidden unit's own say. */
  _tellLine(row, f, n, kind, product) {
    const odds = this.lineOdds[f],
      weight = this.weight.subarray(row * n, row * n + n);
    const u = this.rows[row];
    const { x, logs } = lineNodes(kind, this.fields[row], this.model.precision[u], odds, weight);
    const up = new Float64Array(NODES),
      down = new Float64Array(NODES);
    for (let j = 0; j < n; j++) {
      for (let k = 0; k < NODES; k++) {
        down[k] = logs[k] - message(odds[j], weight[j] * x[k]);
        up[k] = down[k] + weight[j] * x[k];
      }
      let r = Math.exp(logSumExp(up) - logSumExp(down));
      if (this.damping) r = mix(r, this.sent[f * n + j], this.damping);
      this.sent[f * n + j] = r;
      product[j] *= r;
    }
  }

  /** Hidden units to visible ones, given the messages that were sent (or the first sums). */
  _answer(extra = null) {
    const { model, H, K } = this,
      n = this.cols.length;
    const totals = Float64Array.from(
      this.atCols,
      (v, j) => v + this.hiddenBias[j] + (extra ? extra[j] : 0),
    );
    const C = totals.map((v) => this._clip(v));
    const z = K ? totals.slice(H) : null;
    if (z) normalise(z);
    let row = 0;
    this.lineOdds = [];
    this.free.forEach((g, f) => {
      const kind = model.kinds[g],
        width = model.widths[g];
      if (kind === "binary" || kind === "category") {
        for (let s = 0; s < width; s++) this._answerUnit(row + s, f, n, C, z);
      } else this.lineOdds[f] = totals.map((v, j) => v - Math.log(this.sent[f * n + j]));
      row += width;
    });
  }

  _answerUnit(row, f, n, C, z) {
    const { H, K, back, odds, sent, damping, group } = this,
      at = row * n,
      from = f * n;
    let sum = 0;
    if (damping) {
      for (let j = 0; j < H; j++) {
        const fresh = (sent[from + j] + C[j] * odds[at + j]) / (sent[from + j] + C[j]);
        back[row * H + j] = mix(fresh, back[row * H + j], damping);
        sum += Math.log(back[row * H + j]);
      }
    } else sum = answerAll(sent, from, odds, at, back, row * H, H, C, group);
    if (K) {
      let up = 0,
        down = 0;
      for (let k = 0; k < K; k++) {
        const cavity = z[k] / sent[from + H + k];
        up += cavity * odds[at + H + k];
        down += cavity;
      }
      let s = up / down;
      if (damping) s = mix(s, this.fromZ[row], damping);
      this.fromZ[row] = s;
      sum += Math.log(s);
    }
    this.atRows[row] = sum;
  }

  beliefs() {
    const { model, known } = this;
    if (model.hasLines) this._answer(this.rounds === 0 ? this.firstCols : null);
    const mean = Float64Array.from(known.units),
      variance = new Float64Array(model.n);
    let row = 0;
    this.free.forEach((g, f) => {
      const width = model.widths[g],
        at = model.first[g],
        kind = model.kinds[g];
      if (kind === "binary") mean[at] = sigmoid(this.fields[row] + this.atRows[row]);
      else if (kind === "category") {
        const part = mean.subarray(at, at + width);
        for (let s = 0; s < width; s++) part[s] = this.fields[row + s] + this.atRows[row + s];
        normalise(part);
      } else this._lineBelief(row, f, at, kind, mean, variance);
      if (kind === "binary" || kind === "category") {
        for (let u = at; u < at + width; u++) variance[u] = mean[u] * (1 - mean[u]);
      }
      row += width;
    });
    return { mean, variance, hidden: this._hidden() };
  }

  _lineBelief(row, f, at, kind, mean, variance) {
    const n = this.cols.length,
      weight = this.weight.subarray(row * n, row * n + n);
    const setting = [kind, this.fields[row], this.model.precision[at], this.lineOdds[f], weight];
    const { x, logs } = lineNodes(...setting),
      whole = logSumExp(logs);
    let first = 0,
      second = 0;
    for (let k = 0; k < NODES; k++) {
      const share = Math.exp(logs[k] - whole);
      first += share * x[k];
      second += share * x[k] * x[k];
    }
    mean[at] = first;
    variance[at] = Math.max(second - first * first, 0);
    return whole;
  }

  _hidden() {
    const { model, known } = this,
      f = new Float64Array(model.J);
    this.cols.forEach((j, i) => (f[j] = this.hiddenBias[i] + this.atCols[i]));
    return model.hiddenMeans(f, known);
  }

  /**
   * The Bethe value: Σ_i log Z_i + Σ_j log Z_j - Σ_ij log Z_ij, exact at rest on trees.
   *
   * Without continuous units the hidden ones are taken with what visible ones would send now.
   */
  logZ() {
    const { model, H, K } = this,
      kept = [this.sent.slice(), this.atCols.slice(), this.damping];
    if (model.hasLines) this._answer(this.rounds === 0 ? this.firstCols : null);
    let total = this.offset - (model.hasLines ? this._pairsAtHidden() : this._pairsAtVisible());
    let row = 0;
    this.free.forEach((g, f) => {
      total += this._variableLogZ(row, f, model.kinds[g], model.widths[g]);
      row += model.widths[g];
    });
    if (!model.hasLines) {
      this.damping = 0;
      this._tell();
    }
    for (let j = 0; j < H; j++) total += softplus(this.hiddenBias[j] + this.atCols[j]);
    if (K) total += logSumExp(this.atCols.slice(H).map((v, k) => v + this.hiddenBias[H + k]));
    [this.sent, this.atCols, this.damping] = kept;
    if (this.shared) this.back = this.sent;
    return total;
  }

  _variableLogZ(row, f, kind, width) {
    if (kind === "binary") return softplus(this.fields[row] + this.atRows[row]);
    if (kind === "category") return logSumExp(this._totals(row, width));
    const unused = new Float64Array(this.model.n);
    return this._lineBelief(row, f, this.rows[row], kind, unused, unused);
  }

  _totals(row, width) {
    return Float64Array.from(
      { length: width },
      (_, s) => this.fields[row + s] + this.atRows[row + s],
    );
  }

  /** Σ_ij log Σ_h n_j(h) m_ij(h): the cavity of the hidden unit and the message into it. */
  _pairsAtHidden() {
    const { H, sent } = this,
      n = this.cols.length;
    let total = 0;
    for (let f = 0; f < this.free.length; f++) {
      for (let j = 0; j < H; j++) {
        const m = Math.log(sent[f * n + j]);
        total += message(this.atCols[j] + this.hiddenBias[j] - m, m);
      }
    }
    return total;
  }

  /** Σ_ij log Σ_v n_i(v) m_ji(v): the cavity of the visible variable and the message into it. */
  _pairsAtVisible() {
    const { model, H, K, back } = this;
    let total = 0,
      row = 0;
    for (const g of this.free) {
      const width = model.widths[g],
        own = this._totals(row, width);
      if (model.kinds[g] === "binary") {
        for (let j = 0; j < H; j++) {
          const m = Math.log(back[row * H + j]);
          total += message(own[0] - m, m);
        }
        if (K) total += message(own[0] - Math.log(this.fromZ[row]), Math.log(this.fromZ[row]));
      } else {
        const whole = logSumExp(own);
        for (let j = 0; j < H; j++)
          total += whole - logSumExp(own.map((v, s) => v - Math.log(back[(row + s) * H + j])));
      }
      row += width;
    }
    return total;
  }
}

/**
 * Belief propagation among binary units, in single precision, by the kernels. One array has the
 * messages to visible units; those to hidden units are never written down, as a / d with
 * a = s + O e and d = s + O they go straight into the products and into the answers, so that a
 * round costs one division a pair. Odds O are kept as up / down, the larger of which is 1.
 */
class QuickBP extends Run {
  constructor(model, known, { tolerance = 1e-4, iterations = 100 } = {}) {
    super(tolerance, iterations);
    Object.assign(this, { model, known, kernels: model.kernels });
    this.group = Math.max(1, Math.min(16, Math.floor(80 / (model.steepest + 0.7))));
    this._reduce();
    this._start();
  }

  /** What is known goes into the fields of the rest. */
  _reduce() {
    const { model, known } = this;
    const on = Float64Array.from(known.hidden, (value) => (value === 1 ? 1 : 0));
    const fields = model.visibleFields(on);
    this.rows = [];
    this.offset = model.offset;
    for (let j = 0; j < model.J; j++) this.offset += on[j] * model.hiddenBias[j];
    for (let u = 0; u < model.n; u++) {
      if (known.has[u]) this.offset += known.units[u] * fields[u];
      else this.rows.push(u);
    }
    this.fields = Float64Array.from(this.rows, (u) => fields[u]);
    this.hiddenBias = model.hiddenFields(known.units);
  }

  /** Neutral messages; a hidden unit that is held has spoken already, and says 1 from now on. */
  _start() {
    const { model, known, kernels, rows } = this;
    kernels.take(this);
    kernels.neutral();
    const held = [];
    known.hidden.forEach((value, j) => !Number.isNaN(value) && held.push(j));
    for (const j of held) for (const u of rows) kernels.s[u * kernels.wide + j] = 1;
    const half = Float64Array.from(known.hidden, (value) => (Number.isNaN(value) ? 0.5 : 0));
    const all = kernels.down(half, new Float64Array(model.n), new Float64Array(model.n));
    this.atRows = Float64Array.from(rows, (u) => all[u]);
    const open = Float64Array.from(known.has, (value) => (value ? 0 : 0.5));
    this.atCols = kernels.across(open, new Float64Array(model.J), new Float64Array(model.J));
    this.up = new Float64Array(rows.length);
    this.down = new Float64Array(rows.length);
  }

  /** The messages are not wanted any more. */
  release() {
    if (this.kernels.holder === this) this.kernels.holder = null;
  }

  /** Visible units to hidden ones. */
  _tell(sums) {
    this.kernels.take(this);
    this.rows.forEach((_, i) => {
      const field = this.fields[i] + this.atRows[i];
      this.up[i] = Math.exp(Math.min(field, 0));
      this.down[i] = Math.exp(-Math.max(field, 0));
    });
    this.kernels.tellAll(this.rows, this.up, this.down, this.group, sums);
  }

  step() {
    const { kernels, known } = this,
      beforeRows = Float64Array.from(this.atRows),
      before = Float64Array.from(this.atCols);
    this._tell(this.atCols);
    kernels.c.fill(0);
    kernels.q.fill(1);
    for (let j = 0; j < this.model.J; j++) {
      if (!Number.isNaN(known.hidden[j])) continue;
      const field = this.hiddenBias[j] + this.atCols[j];
      kernels.c[j] = Math.exp(Math.min(field, 0));
      kernels.q[j] = Math.exp(-Math.max(field, 0));
    }
    kernels.answerAll(this.rows, this.up, this.down, this.group, this.atRows);
    this.change = Math.max(largest(this.atCols, before), largest(this.atRows, beforeRows));
    this.rounds += 1;
    return this.change;
  }

  beliefs() {
    const { model, known } = this,
      mean = Float64Array.from(known.units);
    this.rows.forEach((u, i) => (mean[u] = sigmoid(this.fields[i] + this.atRows[i])));
    const f = this.hiddenBias.map((bias, j) => bias + this.atCols[j]);
    return {
      mean,
      variance: mean.map((m, u) => (known.has[u] ? 0 : m * (1 - m))),
      hidden: model.hiddenMeans(f, known),
    };
  }

  /** The Bethe value, the hidden units with what visible ones would send now. */
  logZ() {
    const { model, known, kernels } = this,
      sums = new Float64Array(model.J);
    this._tell(sums);
    let total = this.offset;
    for (let j = 0; j < model.J; j++)
      if (Number.isNaN(known.hidden[j])) total += softplus(this.hiddenBias[j] + sums[j]);
    this.rows.forEach((u, i) => {
      const own = this.fields[i] + this.atRows[i];
      total += softplus(own);
      for (let j = 0; j < model.J; j++) {
        const m = Math.log(kernels.s[u * kernels.wide + j]);
        total -= message(own - m, m);
      }
    });
    return total;
  }
}

// The two inner loops: plain functions of arrays, which a browser compiles best.

/** (s + O e) / (s + O) for messages s of one unit with odds O, multiplied into `product`. */
function tellAll(back, from, odds, at, sent, to, n, O, product) {
  for (let j = 0; j < n; j++) {
    const s = back[from + j];
    const r = (s + O * odds[at + j]) / (s + O);
    sent[to + j] = r;
    product[j] *= r;
  }
}

/** (r + C e) / (r + C) for messages r to hidden units with odds C; returns the sum of the logs. */
function answerAll(sent, from, odds, at, back, to, n, C, group) {
  let sum = 0;
  for (let first = 0; first < n; first += group) {
    const stop = Math.min(first + group, n);
    let product = 1;
    for (let j = first; j < stop; j++) {
      const r = sent[from + j],
        c = C[j];
      const s = (r + c * odds[at + j]) / (r + c);
      back[to + j] = s;
      product *= s;
    }
    sum += Math.log(product);
  }
  return sum;
}

function mix(fresh, old, damping) {
  return fresh ** (1 - damping) * old ** damping;
}

function flush(product, sums) {
  for (let j = 0; j < sums.length; j++) {
    sums[j] += Math.log(product[j]);
    product[j] = 1;
  }
}

function largest(a, b) {
  let most = 0;
  for (let i = 0; i < a.length; i++) {
    const gap = Math.abs(a[i] - b[i]);
    if (!(gap <= most)) most = gap;
  }
  return most;
}

/** Naive mean field: layer after layer, so that the bound on log Z never falls. */
class HarmoniumMF extends Run {
  constructor(model, known, { tolerance = 1e-5, iterations = 100 } = {}) {
    super(tolerance, iterations);
    Object.assign(this, { model, known });
    this.hidden = model.hiddenMeans(model.hiddenFields(known.neutral()), known);
    const half = new Float64Array(model.J).fill(0.5, 0, model.H);
    if (model.K) half.fill(1 / model.K, model.H);
    this.mean = model.visibleMeans(model.visibleFields(half), known);
    this.fields = new Float64Array(model.n);
    this.hiddenFields = new Float64Array(model.J);
  }

  step() {
    const { model, known } = this,
      mean = Float64Array.from(this.mean);
    const hidden = Float64Array.from(this.hidden);
    model.visibleMeans(model.visibleFields(hidden, this.fields), known, this.mean);
    model.hiddenMeans(model.hiddenFields(this.mean, this.hiddenFields), known, this.hidden);
    this.change = Math.max(largest(this.mean, mean), largest(this.hidden, hidden));
    this.rounds += 1;
    return this.change;
  }

  beliefs() {
    const { model, known } = this,
      mean = Float64Array.from(this.mean);
    const variance = new Float64Array(model.n),
      fresh = new Float64Array(model.n);
    model.visibleMeans(model.visibleFields(this.hidden), known, fresh, variance);
    model.kinds.forEach((kind, g) => {
      const at = model.first[g];
      if (kind === "real" || kind === "nonnegative") mean[at] = fresh[at];
      else for (let u = at; u < at + model.widths[g]; u++) variance[u] = mean[u] * (1 - mean[u]);
    });
    return { mean, variance, hidden: Float64Array.from(this.hidden) };
  }

  /** The lower bound: what the means give, and the entropies. */
  logZ() {
    const { model, known } = this,
      { mean, hidden } = this.beliefs();
    const f = model.visibleFields(hidden);
    let total = model.offset;
    for (let j = 0; j < model.J; j++) total += model.hiddenBias[j] * hidden[j];
    for (let j = 0; j < model.H; j++) total += entropy(hidden[j]) + entropy(1 - hidden[j]);
    for (let j = model.H; j < model.J; j++) total += entropy(hidden[j]);
    model.kinds.forEach((kind, g) => {
      const at = model.first[g];
      for (let u = at; u < at + model.widths[g]; u++) {
        if ((kind === "real" || kind === "nonnegative") && !known.has[g]) {
          total += lineUnit(kind, f[u], model.precision[u]).logZ;
        } else {
          total +=
            mean[u] * (f[u] - 0.5 * model.precision[u] * mean[u]) +
            entropy(mean[u]) * !known.has[g];
          if (kind === "binary" && !known.has[g]) total += entropy(1 - mean[u]);
        }
      }
    });
    return total;
  }
}

/** TAP: mean field with the reaction s_i = Σ_j W_ij² var_j of the others, by damped iteration. */
class HarmoniumTAP extends Run {
  constructor(model, known, { tolerance = 1e-6, iterations = 2000, damping = 0.5 } = {}) {
    super(tolerance, iterations);
    Object.assign(this, { model, known, damping });
    const size = model.n + model.J;
    this.mean = new Float64Array(size).fill(0.5);
    this.mean.set(known.neutral());
    this.reaction = new Float64Array(size);
    this.precision = new Float64Array(size);
    this.precision.set(model.precision);
    this.kind = Array.from({ length: size }, (_, i) =>
      i < model.n ? model.kinds[model.owner[i]] : "binary",
    );
    this.held = new Float64Array(size).fill(NaN);
    for (let u = 0; u < model.n; u++) if (known.has[model.owner[u]]) this.held[u] = known.units[u];
    this.held.set(known.hidden, model.n);
  }

  /** Natural parameters of every unit in the field of the others: l = b + W m - s m, r = w - s. */
  _natural(mean) {
    const { model } = this,
      size = mean.length,
      l = new Float64Array(size),
      r = new Float64Array(size);
    model.visibleFields(mean.subarray(model.n), l.subarray(0, model.n));
    model.hiddenFields(mean.subarray(0, model.n), l.subarray(model.n));
    for (let i = 0; i < size; i++) {
      const w = this.precision[i];
      r[i] = w - this.reaction[i];
      if (this.kind[i] !== "binary") r[i] = Math.max(r[i], 1e-3 * w);
      l[i] -= (w - r[i]) * mean[i];
    }
    return { l, r };
  }

  /** Log normaliser, mean and variance of unit i with density exp(l x - r x² / 2). */
  _unit(i, l, r) {
    const held = this.held[i];
    if (!Number.isNaN(held))
      return { logZ: l * held - 0.5 * r * held * held, mean: held, variance: 0 };
    if (this.kind[i] !== "binary") return lineUnit(this.kind[i], l, r);
    const mean = sigmoid(l - 0.5 * r);
    return { logZ: softplus(l - 0.5 * r), mean, variance: mean * (1 - mean) };
  }

  _site() {
    const { l, r } = this._natural(this.mean),
      mean = new Float64Array(l.length),
      variance = new Float64Array(l.length);
    for (let i = 0; i < l.length; i++) {
      const unit = this._unit(i, l[i], r[i]);
      mean[i] = unit.mean;
      variance[i] = unit.variance;
    }
    return { mean, variance };
  }

  /** Σ W² var at every unit. */
  _reactions(variance) {
    const { n, J, weights, kernels } = this.model,
      out = new Float64Array(n + J);
    if (kernels) {
      kernels.down(variance.subarray(n), new Float64Array(n), out.subarray(0, n), true);
      kernels.across(variance.subarray(0, n), new Float64Array(J), out.subarray(n), true);
      return out;
    }
    for (let u = 0; u < n; u++) {
      const v = variance[u],
        at = u * J;
      let total = 0;
      for (let j = 0; j < J; j++) {
        const square = weights[at + j] * weights[at + j];
        total += square * variance[n + j];
        out[n + j] += square * v;
      }
      out[u] = total;
    }
    return out;
  }

  step() {
    const site = this._site();
    const first = this._move(this.mean, site.mean);
    this.change = Math.max(first, this._move(this.reaction, this._reactions(site.variance)));
    this.rounds += 1;
    return this.change;
  }

  /** Moves old values towards new ones; returns the largest change, relative above 1. */
  _move(old, fresh) {
    let change = 0;
    for (let i = 0; i < old.length; i++) {
      const gap = Math.abs(fresh[i] - old[i]) / Math.max(Math.abs(old[i]), 1);
      if (!(gap <= change)) change = Number.isNaN(gap) ? Infinity : gap;
      old[i] += (1 - this.damping) * (fresh[i] - old[i]);
    }
    return change;
  }

  beliefs() {
    const { mean, variance } = this._site(),
      { n } = this.model;
    return { mean: mean.slice(0, n), variance: variance.slice(0, n), hidden: mean.slice(n) };
  }

  /** Minus the free energy to second order. */
  logZ() {
    const { model } = this,
      { mean, variance } = this._site(),
      { l, r } = this._natural(mean);
    const direct = this._reactions(variance),
      f = model.visibleFields(mean.subarray(model.n));
    let total = model.offset;
    for (let i = 0; i < mean.length; i++) {
      const second = variance[i] + mean[i] * mean[i];
      total +=
        this._unit(i, l[i], r[i]).logZ - l[i] * mean[i] + 0.5 * (r[i] - this.precision[i]) * second;
      total += (i < model.n ? f[i] : model.hiddenBias[i - model.n]) * mean[i];
      total += variance[i] * (0.5 * this.reaction[i] - 0.25 * direct[i]);
    }
    return total;
  }
}

/** Exact answers: the states of the cheaper layer are enumerated. */
class HarmoniumExact extends Run {
  static MOST = 2 ** 14;

  constructor(model, known) {
    super(0, 1);
    Object.assign(this, { model, known });
    const hidden = known.hiddenStates(),
      visible = known.visibleStates();
    if (Math.min(hidden, visible) > HarmoniumExact.MOST) {
      throw new Error(
        `Exact answers need ${Math.min(hidden, visible)} states; at most ${HarmoniumExact.MOST} here.`,
      );
    }
    this.byHidden = hidden <= visible;
  }

  step() {
    const { model } = this;
    this.sums = {
      mean: new Float64Array(model.n),
      second: new Float64Array(model.n),
      hidden: new Float64Array(model.J),
    };
    this.top = -Infinity;
    this.total = 0;
    const visit = this.byHidden ? this._atHidden.bind(this) : this._atVisible.bind(this);
    enumerate(this._freeVariables(), visit);
    this.rounds = 1;
    this.change = 0;
    return 0;
  }

  /** Numbers of states of what is enumerated, and where each stands. */
  _freeVariables() {
    const { model, known } = this;
    if (!this.byHidden) {
      const all = model.kinds.map((kind, g) => ({ at: model.first[g], width: model.widths[g], g }));
      return all.filter(({ g }) => !known.has[g]);
    }
    const found = [];
    for (let j = 0; j < model.H; j++)
      if (Number.isNaN(known.hidden[j])) found.push({ at: j, width: 1 });
    if (model.K && known.component < 0) found.push({ at: model.H, width: model.K });
    return found;
  }

  _atHidden(state) {
    const { model, known } = this,
      h = new Float64Array(model.J);
    known.hidden.forEach((value, j) => (h[j] = value === 1 ? 1 : 0));
    if (known.component >= 0) h[model.H + known.component] = 1;
    for (const [at, value] of state) h[at] = value;
    const f = model.visibleFields(h);
    let log = model.offset + model.visibleLogSum(f, known);
    for (let j = 0; j < model.J; j++) log += h[j] * model.hiddenBias[j];
    const mean = new Float64Array(model.n),
      variance = new Float64Array(model.n);
    model.visibleMeans(f, known, mean, variance);
    this._add(log, mean, variance, h);
  }

  _atVisible(state) {
    const { model, known } = this,
      x = Float64Array.from(known.units);
    for (const [at, value] of state) x[at] = value;
    const hidden = model.hiddenMeans(model.hiddenFields(x), known);
    this._add(model.logWeight(x, known), x, new Float64Array(model.n), hidden);
  }

  _add(log, mean, variance, hidden) {
    if (log > this.top) {
      const shrink = Math.exp(this.top - log);
      for (const sum of Object.values(this.sums))
        for (let i = 0; i < sum.length; i++) sum[i] *= shrink;
      this.total *= shrink;
      this.top = log;
    }
    const weight = Math.exp(log - this.top),
      { sums } = this;
    this.total += weight;
    for (let u = 0; u < mean.length; u++) {
      sums.mean[u] += weight * mean[u];
      sums.second[u] += weight * (variance[u] + mean[u] * mean[u]);
    }
    for (let j = 0; j < hidden.length; j++) sums.hidden[j] += weight * hidden[j];
  }

  beliefs() {
    if (!this.rounds) this.step();
    const mean = this.sums.mean.map((v) => v / this.total);
    const variance = this.sums.second.map((v, u) => Math.max(v / this.total - mean[u] ** 2, 0));
    return { mean, variance, hidden: this.sums.hidden.map((v) => v / this.total) };
  }

  logZ() {
    if (!this.rounds) this.step();
    return this.top + Math.log(this.total);
  }
}

/** Call `visit` with [[unit, value], ...] for all states of variables {at, width}. */
function enumerate(variables, visit, state = []) {
  if (state.length === 0 && variables.length === 0) return visit([]);
  const digits = variables.map(() => 0),
    sizes = variables.map((v) => Math.max(v.width, 2));
  for (;;) {
    visit(variables.map((v, i) => (v.width === 1 ? [v.at, digits[i]] : [v.at + digits[i], 1])));
    let i = 0;
    while (i < digits.length && ++digits[i] === sizes[i]) digits[i++] = 0;
    if (i === digits.length) return undefined;
  }
}

/**
 * Block Gibbs chains, with the conditional means averaged; tempered, chains at several temperatures
 * that exchange their states, of which the coldest counts.
 */
class Chains extends Run {
  constructor(
    model,
    known,
    { chains = 4, seed = 0, burnIn = 50, tempered = false, iterations = 2000 } = {},
  ) {
    super(-1, iterations);
    Object.assign(this, { model, known, burnIn, tempered });
    this.random = new Random(seed);
    this.betas = Array.from({ length: chains }, (_, k) =>
      tempered ? 1 - (0.7 * k) / Math.max(chains - 1, 1) : 1,
    );
    this.chains = this.betas.map(() => ({
      v: this._draw(null, 1),
      f: null, // fields of the hidden units given v, where they are known
      h: new Float64Array(model.J),
    }));
    this.sums = {
      mean: new Float64Array(model.n),
      second: new Float64Array(model.n),
      hidden: new Float64Array(model.J),
    };
    this.weight = 0;
    this.swaps = 0;
  }

  /** The visible state of a chain that counts. */
  state(number = 0) {
    return this.chains[number].v;
  }

  _fields(chain) {
    return (chain.f ??= this.model.hiddenFields(chain.v));
  }

  _draw(f, beta) {
    const { model, known, random } = this,
      x = Float64Array.from(known.units);
    for (let g = 0; g < model.kinds.length; g++) {
      if (known.has[g]) continue;
      const at = model.first[g],
        kind = model.kinds[g];
      if (kind === "binary") x[at] = random.uniform() < (f ? sigmoid(beta * f[at]) : 0.5) ? 1 : 0;
      else if (kind === "category") {
        const part = f
          ? f.slice(at, at + model.widths[g]).map((v) => beta * v)
          : new Float64Array(model.widths[g]);
        normalise(part);
        x[at + random.state_of(part)] = 1;
      } else {
        const l = beta * (f ? f[at] : model.fields[at]),
          r = beta * model.precision[at];
        x[at] = kind === "real" ? l / r + random.normal() / Math.sqrt(r) : random.rectified(l, r);
      }
    }
    if (model.couplings) {
      // At beta the precision is beta L L' and the fields beta l.
      const { free, root } = known.normal,
        y = root.lower(known.realFields(f || model.fields));
      const noisy = y.map((value) => value + random.normal() / Math.sqrt(beta));
      root.upper(noisy).forEach((value, i) => (x[free[i]] = value));
    }
    return x;
  }

  _drawHidden(f, beta, out) {
    const { model, known, random } = this;
    for (let j = 0; j < model.H; j++) {
      out[j] = Number.isNaN(known.hidden[j])
        ? +(random.uniform() < sigmoid(beta * f[j]))
        : known.hidden[j];
    }
    if (model.K) {
      const part = f.slice(model.H).map((v) => beta * v);
      normalise(part);
      const state = known.component >= 0 ? known.component : random.state_of(part);
      out.fill(0, model.H)[model.H + state] = 1;
    }
  }

  step() {
    this.rounds += 1;
    this.chains.forEach((chain, k) => {
      const beta = this.betas[k],
        fields = this._fields(chain);
      this._drawHidden(fields, beta, chain.h);
      const f = this.model.visibleFields(chain.h);
      if (beta === 1 && this.rounds > this.burnIn) this._collect(f, fields);
      [chain.v, chain.f] = [this._draw(f, beta), null];
    });
    if (this.tempered) this._exchange();
    return (this.change = 1 / Math.sqrt(Math.max(this.weight, 1)));
  }

  _collect(f, hiddenFields) {
    const { model, known, sums } = this;
    const mean = new Float64Array(model.n),
      variance = new Float64Array(model.n);
    model.visibleMeans(f, known, mean, variance);
    const hidden = model.hiddenMeans(hiddenFields, known);
    for (let u = 0; u < mean.length; u++) {
      sums.mean[u] += mean[u];
      sums.second[u] += variance[u] + mean[u] * mean[u];
    }
    for (let j = 0; j < hidden.length; j++) sums.hidden[j] += hidden[j];
    this.weight += 1;
  }

  _value(chain) {
    const { v, h } = chain,
      f = this._fields(chain);
    let total = 0;
    for (let j = 0; j < f.length; j++) total += h[j] * f[j];
    for (let u = 0; u < v.length; u++)
      total += v[u] * (this.model.fields[u] - 0.5 * this.model.precision[u] * v[u]);
    return total + this.model.coupled(v);
  }

  _exchange() {
    this.chains.forEach((chain, k) =>
      this._drawHidden(this._fields(chain), this.betas[k], chain.h),
    );
    for (let k = this.rounds % 2; k + 1 < this.chains.length; k += 2) {
      const [a, b] = [this.chains[k], this.chains[k + 1]];
      const log = (this.betas[k] - this.betas[k + 1]) * (this._value(b) - this._value(a));
      if (Math.log(this.random.uniform()) < log) {
        [this.chains[k], this.chains[k + 1]] = [b, a];
        this.swaps += 1;
      }
    }
  }

  beliefs() {
    const { model, known } = this;
    if (!this.weight) {
      const h = new Float64Array(model.J),
        mean = new Float64Array(model.n),
        variance = new Float64Array(model.n);
      const count = this.tempered ? 1 : this.chains.length;
      for (let k = 0; k < count; k++) {
        this.chains[k].v.forEach((x, u) => (mean[u] += x / count));
        model
          .hiddenMeans(this._fields(this.chains[k]), known)
          .forEach((x, j) => (h[j] += x / count));
      }
      mean.forEach((m, u) => (variance[u] = Math.max(m * (1 - m), 0)));
      return { mean, variance, hidden: h };
    }
    const mean = this.sums.mean.map((v) => v / this.weight);
    const variance = this.sums.second.map((v, u) => Math.max(v / this.weight - mean[u] ** 2, 0));
    return { mean, variance, hidden: this.sums.hidden.map((v) => v / this.weight) };
  }

  logZ() {
    return NaN;
  }
}

/**
 * A good joint completion, by steps of a run: greedy ascent in turn of both layers from every start,
 * then of single binary units with the hidden ones summed out, from the best start by log p(v), or
 * from each of them where the model is small. `x` and `value` are the best so far.
 */
export class Completion extends Run {
  constructor(model, evidence, starts) {
    super(0, Infinity);
    Object.assign(this, { model, known: new Known(model, evidence), value: -Infinity, x: null });
    this.small = model.n * model.J < 50000;
    this.todo = starts.map((start) => () => this._ascend(start));
  }

  step() {
    this.rounds += 1;
    this.todo.shift()?.();
    if (!this.todo.length) this.change = 0;
    return this.change;
  }

  _keep(x, value) {
    if (value > this.value) [this.x, this.value] = [x, value];
  }

  _ascend(start) {
    const { model, known } = this;
    let x = sharpen(model, known, Float64Array.from(start));
    for (let pass = 0; pass < 30; pass++) {
      const h = model.hiddenMeans(model.hiddenFields(x), known);
      const next = sharpen(model, known, model.visibleFields(h), true);
      if (largest(next, x) === 0) break;
      x = next;
    }
    this._keep(x, model.logWeight(x, known));
    if (this.small) this.todo.push(...this._climb(Float64Array.from(x), 3));
    else if (!this.todo.length) this.todo.push(...this._climb(this.x, 1));
  }

  /** Jobs that flip single units while log p(v) grows, a few units each. */
  _climb(x, passes) {
    const { model, known } = this,
      now = { x, f: model.hiddenFields(x), moved: new Float64Array(model.J) };
    now.value = model.logWeight(x, known);
    now.log = model.hiddenLogSum(now.f, known);
    const free = [];
    for (let g = 0; g < model.kinds.length; g++)
      if (!known.has[g] && model.kinds[g] === "binary") free.push(model.first[g]);
    const jobs = [],
      size = Math.ceil(10000 / model.J);
    for (let pass = 0; pass < passes; pass++)
      for (let at = 0; at < free.length; at += size)
        jobs.push(() => this._flip(now, free.slice(at, at + size)));
    return jobs;
  }

  _flip(now, units) {
    const { model, known } = this,
      { x, f, moved } = now;
    for (const u of units) {
      const sign = 1 - 2 * x[u],
        at = u * model.J;
      for (let j = 0; j < model.J; j++) moved[j] = f[j] + sign * model.weights[at + j];
      const log = model.hiddenLogSum(moved, known),
        gain = sign * model.fields[u] + log - now.log;
      if (gain <= 1e-12) continue;
      x[u] = 1 - x[u];
      f.set(moved);
      now.log = log;
      now.value += gain;
    }
    this._keep(x, now.value);
  }
}

/** A completion and its log p(v), all steps at once. */
export function completion(model, evidence, starts) {
  return new Completion(model, evidence, starts).settle();
}

/** The best state of every free variable alone: of means, or of fields. */
function sharpen(model, known, values, fields = false) {
  const x = Float64Array.from(known.units);
  for (let g = 0; g < model.kinds.length; g++) {
    if (known.has[g]) continue;
    const at = model.first[g],
      kind = model.kinds[g];
    if (kind === "binary") x[at] = values[at] > (fields ? 0 : 0.5) ? 1 : 0;
    else if (kind === "category") {
      let top = at;
      for (let u = at; u < at + model.widths[g]; u++) if (values[u] > values[top]) top = u;
      x[top] = 1;
    } else {
      const mode = fields ? values[at] / model.precision[at] : values[at];
      x[at] = kind === "real" ? mode : Math.max(mode, 0);
    }
  }
  if (fields && model.couplings) {
    const { free, root } = known.normal;
    root.solve(known.realFields(values)).forEach((mode, i) => (x[free[i]] = mode));
  }
  return x;
}

// ---------------------------------------------------------------- factor graphs

/**
 * p(x) ∝ Π_k tables[k][x[scopes[k]]]: variables with numbers of states, and a table for each scope,
 * its last variable the fastest.
 */
export class FactorGraph {
  static MOST_ENTRIES = 2 ** 23; // of all buckets of an exact answer, 64 MB

  constructor(cards, scopes, tables) {
    Object.assign(this, { cards, scopes, tables });
    this.around = cards.map(() => []);
    scopes.forEach((scope, k) => scope.forEach((v) => this.around[v].push(k)));
  }

  refusal(method) {
    if (method === "tap" || method === "tempered")
      return "Factor graphs are not asked by this method here.";
    return null;
  }

  run(method, evidence = {}, options = {}) {
    if (method === "bp") return new GraphBP(this, evidence, options);
    if (method === "mf") return new GraphMF(this, evidence, options);
    if (method === "gibbs") return new GraphGibbs(this, evidence, options);
    if (method === "exact") return new GraphExact(this, evidence);
    throw new Error(`no method ${method}`);
  }

  /** The graph given evidence {variable: state}: tables cut, known variables alone. */
  given(evidence) {
    const scopes = [],
      tables = [];
    this.scopes.forEach((scope, k) => {
      const kept = scope.filter((v) => evidence[v] === undefined);
      scopes.push(kept);
      tables.push(kept.length === scope.length ? this.tables[k] : this._cut(k, kept, evidence));
    });
    return new FactorGraph(this.cards, scopes, tables);
  }

  _cut(k, kept, evidence) {
    const steps = strides(this.scopes[k], this.cards),
      table = this.tables[k];
    let base = 0;
    this.scopes[k].forEach(
      (v, i) => (base += evidence[v] === undefined ? 0 : evidence[v] * steps[i]),
    );
    const own = kept.map((v) => steps[this.scopes[k].indexOf(v)]);
    const out = new Float64Array(kept.reduce((size, v) => size * this.cards[v], 1));
    walk(
      kept.map((v) => this.cards[v]),
      [own],
      (i, [at]) => (out[i] = table[base + at]),
    );
    return out;
  }

  /** The product of all tables at a state, in logs. */
  logWeight(x) {
    let total = 0;
    this.scopes.forEach((scope, k) => {
      const steps = strides(scope, this.cards);
      total += Math.log(this.tables[k][scope.reduce((at, v, i) => at + x[v] * steps[i], 0)]);
    });
    return total;
  }
}

function strides(scope, cards) {
  const steps = new Array(scope.length);
  let step = 1;
  for (let i = scope.length - 1; i >= 0; i--) {
    steps[i] = step;
    step *= cards[scope[i]];
  }
  return steps;
}

/** Visit all states of a shape with the places that some strides give them. */
function walk(shape, steps, visit) {
  const digits = new Int32Array(shape.length),
    at = steps.map(() => 0);
  const size = shape.reduce((a, b) => a * b, 1);
  for (let i = 0; i < size; i++) {
    visit(i, at, digits);
    for (let d = shape.length - 1; d >= 0; d--) {
      digits[d] += 1;
      for (let k = 0; k < steps.length; k++) at[k] += steps[k][d];
      if (digits[d] < shape[d]) break;
      for (let k = 0; k < steps.length; k++) at[k] -= steps[k][d] * shape[d];
      digits[d] = 0;
    }
  }
}

/** Scale to a sum of one; returns the sum. */
function scale(values) {
  let sum = 0;
  for (const v of values) sum += v;
  if (sum > 0) for (let k = 0; k < values.length; k++) values[k] /= sum;
  return sum;
}

function known(graph, evidence) {
  return graph.cards.map((states, v) => {
    if (evidence[v] === undefined) return null;
    const p = new Float64Array(states);
    p[evidence[v]] = 1;
    return p;
  });
}

/** Sum-product on tables, all messages of a round at once. */
class GraphBP extends Run {
  constructor(graph, evidence, { damping = 0, tolerance = 1e-8, iterations = 500 } = {}) {
    super(tolerance, iterations);
    Object.assign(this, { whole: graph, graph: graph.given(evidence), evidence, damping });
    const { cards, scopes } = this.graph;
    this.known = known(graph, evidence);
    this.toVariable = scopes.map((scope) =>
      scope.map((v) => new Float64Array(cards[v]).fill(1 / cards[v])),
    );
    this.toFactor = scopes.map((scope) =>
      scope.map((v) => new Float64Array(cards[v]).fill(1 / cards[v])),
    );
    this.moved = scopes.map((scope) => scope.map(() => 0));
  }

  /** One round: variables to factors, then factors to variables. */
  step() {
    this._variables();
    let change = 0;
    this.graph.scopes.forEach((scope, k) => {
      const fresh = this._send(k);
      scope.forEach((_, i) => {
        const old = this.toVariable[k][i],
          next = fresh[i];
        if (this.damping) {
          for (let s = 0; s < next.length; s++) next[s] = mix(next[s], old[s], this.damping);
          scale(next);
        }
        this.moved[k][i] = largest(next, old);
        change = Math.max(change, this.moved[k][i]);
        this.toVariable[k][i] = next;
      });
    });
    this.rounds += 1;
    return (this.change = change);
  }

  /** To each table the product of what all others say: of those before it, then of those after it. */
  _variables() {
    this.graph.around.forEach((tables, v) => {
      const product = new Float64Array(this.graph.cards[v]).fill(1);
      const pass = (k, first) => {
        const i = this.graph.scopes[k].indexOf(v),
          out = this.toFactor[k][i],
          from = this.toVariable[k][i];
        for (let s = 0; s < product.length; s++) {
          out[s] = first ? product[s] : out[s] * product[s];
          product[s] *= from[s];
        }
        scale(out);
        scale(product);
      };
      for (let n = 0; n < tables.length; n++) pass(tables[n], true);
      product.fill(1);
      for (let n = tables.length - 1; n >= 0; n--) pass(tables[n], false);
    });
  }

  /** Messages of factor k to all of its variables: products before and after each of them. */
  _send(k) {
    const { cards, scopes, tables } = this.graph,
      scope = scopes[k],
      into = this.toFactor[k],
      before = new Float64Array(scope.length);
    const out = scope.map((v) => new Float64Array(cards[v]));
    walk(
      scope.map((v) => cards[v]),
      [],
      (at, _, digits) => {
        let product = tables[k][at];
        if (product === 0) return;
        for (let i = 0; i < scope.length; i++) {
          before[i] = product;
          product *= into[i][digits[i]];
        }
        let after = 1;
        for (let i = scope.length - 1; i >= 0; i--) {
          out[i][digits[i]] += before[i] * after;
          after *= into[i][digits[i]];
        }
      },
    );
    out.forEach(scale);
    return out;
  }

  _belief(v) {
    if (this.known[v]) return { p: this.known[v], log: 0 };
    const p = new Float64Array(this.graph.cards[v]).fill(1);
    let log = 0;
    for (const k of this.graph.around[v]) {
      const from = this.toVariable[k][this.graph.scopes[k].indexOf(v)];
      for (let s = 0; s < p.length; s++) p[s] *= from[s];
      log += Math.log(scale(p));
    }
    if (this.graph.around[v].length === 0) log += Math.log(scale(p));
    return { p, log };
  }

  beliefs() {
    return { marginals: this.graph.cards.map((_, v) => this._belief(v).p) };
  }

  /** Bethe: Σ_v log Z_v + Σ_k log Z_k - Σ_(k, v) log Z_kv, with all messages scaled to sum 1. */
  logZ() {
    this._variables();
    let total = 0;
    const { graph } = this;
    graph.cards.forEach((_, v) => (total += this._belief(v).log));
    graph.scopes.forEach((scope, k) => {
      let sum = 0;
      walk(
        scope.map((v) => graph.cards[v]),
        [],
        (at, _, digits) => {
          let product = graph.tables[k][at];
          for (let i = 0; i < scope.length; i++) product *= this.toFactor[k][i][digits[i]];
          sum += product;
        },
      );
      total += Math.log(sum);
      scope.forEach((_, i) => {
        let pair = 0;
        const [a, b] = [this.toVariable[k][i], this.toFactor[k][i]];
        for (let s = 0; s < a.length; s++) pair += a[s] * b[s];
        total -= Math.log(pair);
      });
    });
    return total;
  }
}

/** Naive mean field on tables, one variable after the other. */
class GraphMF extends Run {
  constructor(graph, evidence, { tolerance = 1e-6, iterations = 500 } = {}) {
    super(tolerance, iterations);
    this.graph = graph.given(evidence);
    this.known = known(graph, evidence);
    this.p = graph.cards.map((n, v) => this.known[v] || new Float64Array(n).fill(1 / n));
    this.logs = this.graph.tables.map((t) => t.map((x) => (x > 0 ? Math.log(x) : -FAR)));
  }

  step() {
    let change = 0;
    const { graph } = this;
    graph.cards.forEach((states, v) => {
      if (this.known[v]) return;
      const field = new Float64Array(states);
      for (const k of graph.around[v]) this._expected(k, v, field);
      normalise(field);
      change = Math.max(change, largest(field, this.p[v]));
      this.p[v] = field;
    });
    this.rounds += 1;
    return (this.change = change);
  }

  /** Adds to `field` the expected logs of factor k for each state of v. */
  _expected(k, v, field) {
    const { scopes, cards } = this.graph,
      scope = scopes[k],
      own = scope.indexOf(v);
    walk(
      scope.map((u) => cards[u]),
      [],
      (at, _, digits) => {
        let share = 1;
        for (let i = 0; i < scope.length; i++) if (i !== own) share *= this.p[scope[i]][digits[i]];
        if (share > 0) field[digits[own]] += share * this.logs[k][at];
      },
    );
  }

  beliefs() {
    return { marginals: this.p.map((p) => Float64Array.from(p)) };
  }

  logZ() {
    const { graph } = this;
    let total = 0;
    graph.scopes.forEach((scope, k) =>
      walk(
        scope.map((v) => graph.cards[v]),
        [],
        (at, _, digits) => {
          let share = 1;
          for (let i = 0; i < scope.length; i++) share *= this.p[scope[i]][digits[i]];
          if (share > 0) total += share * this.logs[k][at];
        },
      ),
    );
    for (const p of this.p) for (const x of p) total += entropy(x);
    return total;
  }
}

/** Single-site Gibbs on tables, with the conditional probabilities averaged. */
class GraphGibbs extends Run {
  constructor(graph, evidence, { seed = 0, burnIn = 100, iterations = 5000 } = {}) {
    super(-1, iterations);
    this.graph = graph.given(evidence);
    this.known = known(graph, evidence);
    this.random = new Random(seed);
    this.burnIn = burnIn;
    this.x = graph.cards.map((n, v) => evidence[v] ?? Math.floor(this.random.uniform() * n));
    this.sums = graph.cards.map((n) => new Float64Array(n));
    this.weight = 0;
    this.steps = this.graph.scopes.map((scope) => strides(scope, graph.cards));
  }

  step() {
    const { graph, x } = this;
    this.rounds += 1;
    const counts = this.rounds > this.burnIn;
    graph.cards.forEach((states, v) => {
      if (this.known[v]) return;
      const p = new Float64Array(states).fill(1);
      for (const k of graph.around[v]) {
        const scope = graph.scopes[k],
          steps = this.steps[k];
        let base = 0,
          own = 0;
        scope.forEach((u, i) => (u === v ? (own = steps[i]) : (base += x[u] * steps[i])));
        for (let s = 0; s < states; s++) p[s] *= graph.tables[k][base + s * own];
        scale(p);
      }
      if (graph.around[v].length === 0) scale(p);
      if (counts) for (let s = 0; s < states; s++) this.sums[v][s] += p[s];
      x[v] = this.random.state_of(p);
    });
    this.weight += counts ? 1 : 0;
    return (this.change = 1 / Math.sqrt(Math.max(this.weight, 1)));
  }

  beliefs() {
    const marginals = this.graph.cards.map((n, v) => {
      if (this.known[v]) return this.known[v];
      if (!this.weight) return Float64Array.from({ length: n }, (_, s) => +(s === this.x[v]));
      return this.sums[v].map((total) => total / this.weight);
    });
    return { marginals };
  }

  logZ() {
    return NaN;
  }
}

/**
 * Exact marginals, log Z and best state by elimination: every variable has a bucket, the product of the
 * tables in which it is the first of the order, summed over it into the bucket of the next. A step is one
 * bucket, first all upwards, which gives log Z, then all downwards, which gives the marginals.
 */
class GraphExact extends Run {
  constructor(graph, evidence, most = FactorGraph.MOST_ENTRIES) {
    super(0, Infinity);
    this.graph = graph.given(evidence);
    this.known = known(graph, evidence);
    this.evidence = evidence;
    const { order, entries } = eliminationOrder(this.graph, this.known, most);
    if (!order) throw new Error(`Exact answers would need tables of more than ${most} entries.`);
    Object.assign(this, { order, entries, marginals: this.known.slice() });
    this._fill();
  }

  step() {
    const count = this.order.length,
      at = this.rounds;
    if (at < count) this._up(at, false);
    else if (at < 2 * count) this._down(2 * count - 1 - at);
    this.rounds += 1;
    if (this.rounds >= 2 * count) this.change = 0;
    return this.change;
  }

  /** The buckets with the tables of the network, each table scaled to a largest entry of 1. */
  _fill() {
    const { graph } = this,
      place = new Map(this.order.map((v, i) => [v, i]));
    this.place = place;
    this.buckets = this.order.map((v) => ({ v, parts: [] }));
    this.total = 0;
    graph.scopes.forEach((scope, k) => {
      const table = Float64Array.from(graph.tables[k]);
      this.total += Math.log(scaleToOne(table));
      if (scope.length) this._bucketOf(scope).parts.push({ scope, table });
    });
  }

  _bucketOf(scope) {
    return this.buckets[Math.min(...scope.map((v) => this.place.get(v)))];
  }

  /** The product of a bucket, and its variable summed (or maximised) out into the next bucket. */
  _up(i, best) {
    const bucket = this.buckets[i],
      { cards } = this.graph;
    bucket.scope = unionScope(bucket.v, bucket.parts);
    bucket.table = multiply(bucket.scope, bucket.parts, cards);
    bucket.parts = null;
    const scope = bucket.scope.slice(1),
      table = reduceFirst(bucket, cards, best);
    this.total += Math.log(scaleToOne(table));
    bucket.up = { scope, table };
    if (scope.length === 0) return;
    bucket.parent = this._bucketOf(scope);
    bucket.parent.parts.push(bucket.up);
  }

  /** The belief of a bucket: its product times what its parent says without it. */
  _down(i) {
    const { cards } = this.graph,
      bucket = this.buckets[i],
      { up, parent } = bucket;
    if (parent) {
      const down = marginal(parent, up.scope, cards);
      for (let s = 0; s < down.length; s++) down[s] = up.table[s] > 0 ? down[s] / up.table[s] : 0;
      multiplyBy(bucket, { scope: up.scope, table: down }, cards);
    }
    scale(bucket.table);
    this.marginals[bucket.v] = marginal(bucket, [bucket.v], cards);
  }

  beliefs() {
    this.settle();
    return { marginals: this.marginals };
  }

  logZ() {
    this.settle();
    return this.total;
  }

  /** The most probable state given the evidence, and the log of its weight. */
  best() {
    const { cards } = this.graph;
    this._fill();
    this.order.forEach((_, i) => this._up(i, true));
    const x = cards.map((_, v) => this.evidence[v] ?? 0);
    for (const bucket of [...this.buckets].reverse()) {
      const steps = strides(bucket.scope, cards);
      let base = 0,
        top = -1;
      bucket.scope.forEach((v, i) => (base += i ? x[v] * steps[i] : 0));
      for (let s = 0; s < cards[bucket.v]; s++) {
        const value = bucket.table[base + s * steps[0]];
        if (value > top) [x[bucket.v], top] = [s, value];
      }
    }
    return { x, value: this.total };
  }
}

/** Divide by the largest entry, which is returned. */
function scaleToOne(table) {
  let top = 0;
  for (const x of table) if (x > top) top = x;
  if (top > 0) for (let i = 0; i < table.length; i++) table[i] /= top;
  return top;
}

function unionScope(v, parts) {
  const found = new Set([v]);
  for (const { scope } of parts) for (const u of scope) found.add(u);
  return [...found];
}

function multiply(scope, parts, cards) {
  const size = scope.reduce((n, v) => n * cards[v], 1),
    out = { scope, table: new Float64Array(size).fill(1) };
  for (const part of parts) multiplyBy(out, part, cards);
  return out.table;
}

/** Multiply a table by one over some of its variables, in place. */
function multiplyBy({ scope, table }, part, cards) {
  const [high, low] = offsets(scope, part.scope, cards);
  for (let a = 0, i = 0; a < high.length; a++)
    for (let b = 0; b < low.length; b++, i++) table[i] *= part.table[high[a] + low[b]];
}

/** The sums of a bucket's table over all but some of its variables. */
function marginal({ scope, table }, kept, cards) {
  const out = new Float64Array(kept.reduce((size, v) => size * cards[v], 1)),
    [high, low] = offsets(scope, kept, cards);
  for (let a = 0, i = 0; a < high.length; a++)
    for (let b = 0; b < low.length; b++, i++) out[high[a] + low[b]] += table[i];
  return out;
}

/**
 * Where the states of `scope` are in a table over `part`, which is some of its variables: those of the
 * first variables, and, to be added, those of the last ones.
 */
function offsets(scope, part, cards) {
  const own = strides(part, cards),
    step = new Map(part.map((v, i) => [v, own[i]])),
    ends = [Int32Array.of(0), Int32Array.of(0)];
  for (const v of [...scope].reverse()) {
    const end = ends[1].length * cards[v] <= 1024 && ends[0].length === 1 ? 1 : 0,
      old = ends[end],
      next = new Int32Array(old.length * cards[v]);
    for (let s = 0; s < cards[v]; s++)
      for (let i = 0; i < old.length; i++)
        next[s * old.length + i] = old[i] + s * (step.get(v) ?? 0);
    ends[end] = next;
  }
  return ends;
}

/** The first variable of a bucket summed or maximised out. */
function reduceFirst(bucket, cards, best) {
  const states = cards[bucket.v],
    size = bucket.table.length / states,
    out = new Float64Array(size);
  for (let s = 0; s < states; s++) {
    for (let i = 0; i < size; i++) {
      const value = bucket.table[s * size + i];
      out[i] = best ? Math.max(out[i], value) : out[i] + value;
    }
  }
  return out;
}

/**
 * The cheapest of three orders, by the entries of all its buckets: next the variable whose bucket is
 * smallest; next the one that adds fewest links; or all by their distance from one at the rim.
 */
export function eliminationOrder(graph, fixed, most) {
  const near = graph.cards.map(() => new Set());
  for (const scope of graph.scopes)
    for (const a of scope) for (const b of scope) if (a !== b) near[a].add(b);
  const ranks = fromTheRim(near);
  const scores = [(v, size) => size, (v, size, now) => fill(now, v) + 1 - 1 / size, (v) => ranks[v]];
  let found = { order: null, entries: most };
  for (const score of scores) {
    const now = near.map((set) => new Set(set)),
      next = greedyOrder(graph.cards, now, fixed, found.entries, score);
    if (next) found = next;
  }
  return found;
}

/** An order that eliminates the least score first; null where its buckets exceed `most` entries. */
function greedyOrder(cards, near, fixed, most, score) {
  const left = new Set(cards.map((_, v) => v).filter((v) => !fixed[v])),
    sizes = new Float64Array(cards.length),
    scores = new Float64Array(cards.length),
    order = [];
  const update = (v) => {
    sizes[v] = cards[v];
    for (const u of near[v]) sizes[v] *= cards[u];
    scores[v] = sizes[v] > most ? Infinity : score(v, sizes[v], near);
  };
  left.forEach(update);
  let entries = 0;
  while (left.size) {
    let next = -1;
    for (const v of left) if (next < 0 || scores[v] < scores[next]) next = v;
    entries += sizes[next];
    if (entries > most) return null;
    const ends = [...near[next]],
      touched = new Set(ends);
    left.delete(next);
    for (const a of ends) near[a].delete(next);
    for (const a of ends) for (const b of ends) if (a !== b) near[a].add(b);
    for (const a of ends) for (const b of near[a]) touched.add(b);
    touched.forEach(update);
    order.push(next);
  }
  return { order, entries };
}

/** Links that are missing among the neighbours of a variable. */
function fill(near, v) {
  const ends = [...near[v]];
  let missing = 0;
  for (let i = 0; i < ends.length; i++)
    for (let j = 0; j < i; j++) missing += !near[ends[i]].has(ends[j]);
  return missing;
}

/** Ranks by breadth first from a variable far from another, part by part of the graph. */
function fromTheRim(near) {
  const spread = (start) => {
    const found = new Set([start]);
    for (const v of found) for (const u of near[v]) found.add(u);
    return [...found];
  };
  const ranks = new Array(near.length).fill(-1);
  let count = 0;
  near.forEach((_, v) => {
    if (ranks[v] < 0) for (const u of spread(spread(v).at(-1))) ranks[u] = count++;
  });
  return ranks;
}

// ---------------------------------------------------------------- files

const ARRAYS = {
  float32: Float32Array,
  float64: Float64Array,
  float16: Uint16Array,
  int8: Int8Array,
  bits: Uint8Array,
};

/** An array from {dtype, data}; halves become singles, bits 0 and 1, the lowest of a byte first. */
export function unpack({ dtype, data }) {
  const text = atob(data),
    bytes = new Uint8Array(text.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i);
  const found = new ARRAYS[dtype](bytes.buffer);
  if (dtype === "bits")
    return Uint8Array.from({ length: 8 * found.length }, (_, i) => (found[i >> 3] >> (i & 7)) & 1);
  return dtype === "float16" ? Float32Array.from(found, fromHalf) : found;
}

function fromHalf(bits) {
  const sign = bits & 0x8000 ? -1 : 1,
    exponent = (bits >> 10) & 31,
    rest = bits & 1023;
  if (exponent === 0) return sign * rest * 2 ** -24;
  return sign * (1 + rest / 1024) * 2 ** (exponent - 15);
}

/** The model of a page's payload. */
export function modelOf(payload) {
  if (payload.form === "network") {
    const all = unpack(payload.tables);
    let at = 0;
    const tables = payload.scopes.map((scope) => {
      const size = scope.reduce((total, v) => total * payload.cards[v], 1);
      return all.slice(at, (at += size));
    });
    return new FactorGraph(payload.cards, payload.scopes, tables);
  }
  const arrays = ["weights", "fields", "precision", "hiddenBias"];
  if (payload.couplings) arrays.push("couplings");
  return new Harmonium({
    ...payload,
    ...Object.fromEntries(arrays.map((name) => [name, unpack(payload[name])])),
  });
}

const LIMITS = { bytes: 8 * 2 ** 20, variables: 300, entries: 2 ** 20 };

/** A network of the UAI format as a FactorGraph; an error says what is wrong and on which line. */
export function parseUai(text, limits = LIMITS) {
  const words = new Words(text);
  const kind = words.next("MARKOV or BAYES");
  if (kind !== "MARKOV" && kind !== "BAYES")
    words.fail(`the file starts with “${kind.slice(0, 40)}”; wanted MARKOV or BAYES`);
  const n = words.whole("the number of variables");
  if (n > limits.variables) {
    words.fail(
      `the network has ${n} variables; a page shows up to ${limits.variables}. Use “undirected solve” for it`,
    );
  }
  const cards = words.wholes(n, "a number of states");
  if (cards.some((states) => states < 1)) words.fail("a variable has 0 states; wanted 1 or more");
  const count = words.whole("the number of tables"),
    scopes = [];
  if (count > limits.entries)
    words.fail(`the network has ${count} tables; a page takes up to ${limits.entries}`);
  for (let k = 0; k < count; k++) {
    const scope = words.wholes(words.whole(`the size of scope ${k}`), `a variable of scope ${k}`);
    if (scope.some((v) => v >= n))
      words.fail(`scope ${k} is (${scope}); variables are 0 to ${n - 1}`);
    if (new Set(scope).size < scope.length)
      words.fail(`scope ${k} names a variable twice: (${scope})`);
    scopes.push(scope);
  }
  return new FactorGraph(cards, scopes, readTables(words, cards, scopes, limits));
}

function readTables(words, cards, scopes, limits) {
  let entries = 0;
  const tables = scopes.map((scope, k) => {
    const size = words.whole(`the size of table ${k}`),
      wanted = scope.reduce((a, v) => a * cards[v], 1);
    if (size !== wanted) words.fail(`table ${k} has ${size} entries; its scope asks for ${wanted}`);
    entries += size;
    if (entries > limits.entries)
      words.fail(
        `the tables have more than ${limits.entries} entries together; use “undirected solve” for them`,
      );
    return Float64Array.from({ length: size }, () => words.number(k));
  });
  words.end();
  return tables;
}

class Words {
  constructor(text) {
    this.text = text;
    this.pattern = /\S+/g;
  }

  _match() {
    const found = this.pattern.exec(this.text);
    if (found) this.at = found.index;
    return found ? found[0] : null;
  }

  next(wanted) {
    const word = this._match();
    if (word === null) {
      this.at = this.text.length;
      this.fail(`the file ends where ${wanted} should be`);
    }
    return word;
  }

  whole(wanted) {
    const word = this.next(wanted);
    if (!/^\d{1,15}$/.test(word))
      this.fail(`“${word.slice(0, 40)}” should be ${wanted}, a whole number`);
    return Number(word);
  }

  wholes(size, wanted) {
    if (size > this.text.length)
      this.fail(`${size} numbers are announced, more than the file holds`);
    return Array.from({ length: size }, () => this.whole(wanted));
  }

  number(table) {
    const word = this.next(`an entry of table ${table}`),
      value = Number(word);
    if (!Number.isFinite(value) || value < 0)
      this.fail(`“${word.slice(0, 40)}” in table ${table} is not a number of 0 or more`);
    return value;
  }

  end() {
    const word = this._match();
    if (word !== null)
      this.fail(`“${word.slice(0, 40)}” comes after the last table, where the file should end`);
  }

  fail(what) {
    const line = this.text.slice(0, this.at || 0).split("\n").length;
    throw new Error(`line ${line}: ${what}.`);
  }
}
