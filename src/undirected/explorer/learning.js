/** How learning went: one measure of the run at a time, samples and filters of its frames, a slider. */

import { Film, player } from "./film.js";
import { Palette, choice, digits, el, svgEl } from "./dom.js";

const MEASURES = {
  validation: "Held-out score",
  surrogate: "Surrogate",
  flips: "Flips of units",
  loss: "Loss",
  log_z: "log Z",
};

/** The section of a payload with a history {name: [[step, value], ...]} or a film; else null. */
export function learningPart(root, model, payload) {
  const history = payload.history || {};
  if (!Object.keys(history).length && !payload.film) return null;
  return new Learning(root, history, payload.film && { film: payload.film, model, payload }).node;
}

class Learning {
  constructor(root, history, told) {
    this.history = history;
    const names = Object.keys(history);
    this.name = names.includes("validation") ? "validation" : names[0];
    this.told = el("p", { class: "small", role: "status" });
    if (names.length)
      this.curve = svgEl("svg", { class: "curve", viewBox: "0 0 360 140", role: "img" });
    this.slider = el("input", {
      type: "range",
      min: "0",
      "aria-label": "Step of learning",
      oninput: () => this._go(Number(this.slider.value)),
    });
    if (told) this._film(root, told);
    this.node = this._build(names);
    this._measure(this.name);
  }

  _film(root, { film, model, payload }) {
    const palette = new Palette(root);
    this.film = new Film(film, model, payload, palette);
    this.film.onpick = (at) => this._go(at);
    this.player = player(
      () => this._next(),
      (playing) => {
        // Screen readers hear where a film was stopped, not every frame.
        this.told.setAttribute("aria-live", playing ? "off" : "polite");
        if (playing && this.at === this._last()) this._show(0);
      },
    );
    root.addEventListener("theme", () => {
      palette.read();
      this.film.redraw();
    });
  }

  _build(names) {
    const title = el("h2", { id: "learning-title", text: "How it learned" });
    const words = Object.fromEntries(names.map((key) => [key, MEASURES[key] || key]));
    const pick = (chosen) => this._measure(chosen);
    const bar = el(
      "div",
      { class: "bar" },
      this.player?.button,
      names.length ? choice("measure", "Measure", words, this.name, pick) : null,
    );
    const run = el("div", { class: "run" }, bar, this.curve, this.slider, this.told);
    const [beside, ...below] = this.film ? this.film.nodes : [];
    const attributes = { class: "learning", "aria-labelledby": "learning-title" };
    const node = el(
      "section",
      attributes,
      title,
      el("div", { class: "reel" }, run, beside),
      ...below,
    );
    node.tour = {
      title: "How it learned",
      target: node,
      text: this.film
        ? "Press Play: from noise to what you see above. Samples are what the model dreamt at that step, filters what its hidden units looked for."
        : "The curve is how well the model did while it learned, step by step.",
    };
    return node;
  }

  get points() {
    return this.history[this.name] || [];
  }

  _last() {
    return (this.film ? this.film.steps.length : this.points.length) - 1;
  }

  /** Another measure; without a film the slider goes along its points. */
  _measure(name) {
    this.name = name;
    const words = MEASURES[name] || name;
    this.curve?.setAttribute("aria-label", `${words} over the steps of learning`);
    this.slider.max = String(this._last());
    this._show(this.film && this.at !== undefined ? this.at : this._last());
  }

  /** Where the user wants to be. */
  _go(at) {
    this.player?.stop();
    this._show(at);
  }

  _next() {
    this._show(this.at + 1);
    return this.at < this._last();
  }

  _show(at) {
    this.at = at;
    this.slider.value = String(at);
    const { points, film } = this;
    const step = film ? film.steps[at] : points[at][0];
    const near = points.findLast((point) => point[0] <= step);
    const words = MEASURES[this.name] || this.name;
    const text =
      `Step ${step}` + (near ? `. ${words}: ${digits(near[1])}` : "") + (film ? this._of() : "");
    this.told.textContent = text;
    this.slider.setAttribute("aria-valuetext", text);
    if (points.length) drawLearning(this.curve, points, step, near, film?.steps.at(-1) || 0);
    film?.show(at);
  }

  _of() {
    return `. Frame ${this.at + 1} of ${this._last() + 1}`;
  }
}

/** The points as a line over their range, the present step as a rule, its value as a dot. */
function drawLearning(svg, points, step, near, end) {
  const values = points.map(([, value]) => value),
    [low, high] = [Math.min(...values), Math.max(...values)];
  const last = Math.max(points.at(-1)[0], end, 1),
    range = high - low || 1;
  const x = (at) => 8 + (344 * at) / last,
    y = (value) => 116 - (100 * (value - low)) / range;
  const line = points.map(([s, v], k) => `${k ? "L" : "M"}${x(s).toFixed(1)} ${y(v).toFixed(1)}`);
  const rule = { x1: 8, x2: 352, stroke: "var(--rule)" };
  svg.replaceChildren(
    svgEl("line", { ...rule, y1: 16, y2: 16 }),
    svgEl("line", { ...rule, y1: 116, y2: 116 }),
    svgEl("text", { class: "halo", x: 8, y: 12, text: digits(high) }),
    svgEl("text", { x: 8, y: 132, text: digits(low) }),
    svgEl("text", { x: 352, y: 132, "text-anchor": "end", text: `step ${last}` }),
    svgEl("line", { x1: x(step), x2: x(step), y1: 16, y2: 116, stroke: "var(--mf)" }),
    svgEl("path", { d: line.join(""), fill: "none", stroke: "var(--bp)", "stroke-width": 2 }),
    ...(near ? [svgEl("circle", { cx: x(near[0]), cy: y(near[1]), r: 4, fill: "var(--mf)" })] : []),
  );
}
