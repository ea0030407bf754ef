/** A model whose engine is elsewhere: every run is one question to the server of the page. */

import { Harmonium } from "./inference.js";

/** The answer of the server to a question; an error says why there is none. */
export async function askEngine(question, signal) {
  const token = new URLSearchParams(location.search).get("token") || "";
  const reply = await fetch("/answer", {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Token": token },
    body: JSON.stringify(question),
    signal,
  });
  if (!reply.ok) throw new Error(await reply.text());
  return reply.json();
}

export class RemoteModel extends Harmonium {
  constructor(payload) {
    const none = new Float32Array(0);
    super({
      ...payload,
      hidden: 0,
      weights: none,
      fields: none,
      precision: none,
      hiddenBias: none,
    });
    this.remote = true;
    this.methods = payload.methods;
    this.asked = {};
  }

  refusal(method) {
    return this.methods.includes(method) ? null : "The engine is not asked for this method here.";
  }

  exactStates() {
    return Infinity;
  }

  /** A question; an older one by the same method is given up. */
  run(method, evidence) {
    this.asked[method]?.abort();
    this.asked[method] = new AbortController();
    const visible = this.kinds.map((_, g) => evidence.visible[g] ?? null);
    return new RemoteRun(this, { method, visible }, this.asked[method].signal);
  }
}

class RemoteRun {
  constructor(model, question, signal) {
    this.answer = { mean: this._neutral(model, question), variance: new Float64Array(model.n) };
    this.arrived = false;
    this.seen = false;
    this.rounds = 0;
    this._ask(question, signal);
  }

  /** Until the answer comes: what is known, and the middle elsewhere. */
  _neutral(model, { visible }) {
    const mean = new Float64Array(model.n).fill(0.5);
    visible.forEach((value, g) => {
      const at = model.first[g];
      if (model.kinds[g] === "category") mean.fill(1 / model.widths[g], at, at + model.widths[g]);
      else if (value !== null) mean[at] = value;
    });
    return mean;
  }

  async _ask(question, signal) {
    try {
      this.answer = await askEngine(question, signal);
      this.settled = this.answer.settled;
    } catch (error) {
      this.refused = error.name === "AbortError" ? "" : `No answer: ${error.message}`;
    }
    this.arrived = true;
  }

  get done() {
    return this.seen;
  }

  get waiting() {
    return !this.arrived;
  }

  /** The answer counts from the frame on that shows it. */
  step() {
    this.seen = this.arrived;
    this.rounds += 1;
  }

  settle() {
    this.step();
    return this;
  }

  get told() {
    if (!this.arrived) return "the engine is at work";
    return this.settled ? "answered by the engine" : "the engine did not settle";
  }

  beliefs() {
    return { ...this.answer, hidden: new Float64Array(0) };
  }

  logZ() {
    return NaN;
  }
}
