/** Image models: paint what is known, see what the model makes of the rest. */

import { Completion } from "./inference.js";
import {
  METHODS,
  Palette,
  Runs,
  choice,
  digits,
  drawPixels,
  el,
  percent,
  ramp,
  scaleLegend,
  statusOf,
} from "./dom.js";

const UNKNOWN = -1;
const VIEWS = {
  probability: "Probability",
  uncertainty: "Uncertainty",
  disagreement: "Disagreement",
};
const BRUSHES = { 1: "On", 0: "Off", [UNKNOWN]: "Unknown" };

export class ImageView {
  constructor(root, model, payload) {
    Object.assign(this, { root, model, payload });
    [this.rows, this.cols] = payload.image;
    this.size = this.rows * this.cols;
    this.known = new Int8Array(this.size).fill(UNKNOWN);
    this.hidden = new Map();
    this.component = -1;
    this.brush = 1;
    this.reach = this.rows > 12 ? 1 : 0;
    this.shown = "probability";
    this.primary = "bp";
    this.row = -1;
    this.cursor = Math.floor(this.rows / 2) * this.cols + Math.floor(this.cols / 2);
    this.palette = new Palette(root);
    const all = ["bp", "mf", "tap", "gibbs", "tempered"];
    this.methods = all.filter((method) => !model.refusal(method));
    const heavy = model.n * model.J > 2e5;
    const limits = {
      bp: { iterations: 500 },
      mf: { iterations: 500 },
      gibbs: { chains: heavy ? 2 : 4, iterations: heavy ? 600 : 1500 },
      tempered: { chains: 6, iterations: heavy ? 300 : 1000 },
    };
    this.runs = new Runs(model, this.methods, (moved) => this._progress(moved), limits);
    const after = ["bp", "mf"].filter((method) => this.methods.includes(method));
    if (!model.remote) this.runs.later.best = { after, make: (e) => this._complete(e) };
    this._build();
    this._restore(this.root.keep.read());
    root.addEventListener("theme", () => {
      this.palette.read();
      for (const legend of this.legends) legend.redraw();
      this._filterTiles();
      this.draw();
    });
  }

  // ------------------------------------------------------------ the page

  _build() {
    this.view = el(
      "main",
      { class: "image-view" },
      this._easel(),
      el("div", { class: "side" }, this._methods(), ...this._inside()),
    );
  }

  _easel() {
    this.canvas = el("canvas", {
      tabindex: "0",
      role: "application",
      "aria-label": `Picture of ${this.rows} by ${this.cols} pixels to paint`,
      "aria-describedby": "easel-keys",
      onkeydown: (event) => this._key(event),
      onpointerdown: (event) => this._pointer(event, true),
      onpointermove: (event) => event.buttons && this._pointer(event, false),
      onfocus: () => this._tell(),
    });
    this.frame = el("div", { class: "cursor", "aria-hidden": "true" });
    this.easel = el("div", { class: "easel" }, this.canvas, this.frame);
    this.easel.style.aspectRatio = `${this.cols} / ${this.rows}`;
    this.told = el("p", { class: "small", role: "status" });
    this.legends = [
      scaleLegend("0", "1 probability", (t) => this.palette.probability(t)),
      scaleLegend("none", "most", (t) => this.palette.amount(t)),
    ];
    this.legend = el(
      "div",
      { class: "legend" },
      this._swatch("known on", "accent"),
      this._swatch("known off", "soft"),
      ...this.legends,
    );
    const keys = el(
      "p",
      { class: "small", id: "easel-keys" },
      "Keys: arrows move, ",
      el("kbd", { text: "1" }),
      " on, ",
      el("kbd", { text: "0" }),
      " off, ",
      el("kbd", { text: "." }),
      " unknown, ",
      el("kbd", { text: "Space" }),
      " paints.",
    );
    return el(
      "section",
      { "aria-labelledby": "easel-title" },
      el("h2", { id: "easel-title", text: "What you know" }),
      this.easel,
      this._tools(),
      this.legend,
      this.told,
      keys,
    );
  }

  _swatch(text, name) {
    const box = el("i", {});
    box.style.background = `var(--${name})`;
    return el("span", {}, box, text);
  }

  _tools() {
    const cover = (name, inside) =>
      el("button", {
        type: "button",
        text: name,
        "aria-label": `Cover the ${name.toLowerCase()} half`,
        onclick: () => this._cover(inside),
      });
    const size = el("input", {
      type: "range",
      min: "0",
      max: "3",
      value: String(this.reach),
      "aria-label": "Width of the brush",
      oninput: (event) => (this.reach = Number(event.target.value)),
    });
    const brushes = choice(
      "brush",
      "Brush",
      { on: "On", off: "Off", unknown: "Unknown" },
      "on",
      (value) => (this.brush = { on: 1, off: 0, unknown: UNKNOWN }[value]),
    );
    const covers = el(
      "div",
      { class: "group" },
      el("span", { class: "name", text: "Cover" }),
      cover("Top", (r) => r < this.rows / 2),
      cover("Bottom", (r) => r >= this.rows / 2),
      cover("Left", (r, c) => c < this.cols / 2),
      cover("Right", (r, c) => c >= this.cols / 2),
    );
    const clear = el("button", { type: "button", text: "Clear", onclick: () => this.clear() });
    return el(
      "div",
      { class: "tools" },
      el(
        "div",
        { class: "bar" },
        brushes,
        el("label", { class: "group" }, el("span", { class: "name", text: "width" }), size),
      ),
      el("div", { class: "bar" }, ...this._rowTools(), clear),
      el("div", { class: "bar" }, covers),
    );
  }

  _rowTools() {
    const count = (this.payload.rows || []).length;
    if (!count) return [];
    this.rowName = el("span", { class: "small", text: `${count} rows` });
    const button = (text, label, step) =>
      el("button", {
        type: "button",
        text,
        "aria-label": label,
        onclick: () => this.load((this.row + step + count) % count),
      });
    return [
      el("span", { class: "name small", text: "Row of the table" }),
      button("‹", "The row before", this.row < 0 ? 0 : -1),
      button("›", "The next row", 1),
      this.rowName,
    ];
  }

  _methods() {
    this.cards = {};
    const faces = this.methods.map((method) => {
      const canvas = el("canvas", { "aria-hidden": "true" }),
        status = el("span", { class: "status" });
      canvas.style.aspectRatio = `${this.cols} / ${this.rows}`;
      const face = el(
        "button",
        {
          type: "button",
          class: "face",
          "aria-label": `${METHODS[method]}: show it on the picture`,
          "aria-pressed": String(method === this.primary),
          onclick: () => this._choose(method),
        },
        canvas,
      );
      this.cards[method] = { canvas, status, face };
      return el(
        "figure",
        { class: "card" },
        face,
        el("figcaption", {}, el("b", { text: METHODS[method] }), status),
      );
    });
    const views = choice("view", "Show", VIEWS, this.shown, (value) => {
      this.shown = value;
      this.draw();
    });
    this.methodsPart = el(
      "section",
      { "aria-labelledby": "methods-title" },
      el(
        "div",
        { class: "bar" },
        el("h2", { id: "methods-title", text: "What the model thinks" }),
        views,
      ),
      el("div", { class: "cards methods" }, ...faces),
      el("p", {
        class: "small",
        text: "Uncertainty is the variance of a pixel, at most a quarter. Disagreement is how far apart the methods are.",
      }),
    );
    return this.methodsPart;
  }

  /** What is there of a model that is on the page itself. */
  _inside() {
    return this.model.remote ? [] : [this._outcomes(), this._units()];
  }

  _outcomes() {
    this.best = this._card("Most probable completion", "of those found");
    this.walk = this._card("A sample", "that walks on");
    this.walkButton = el("button", {
      type: "button",
      text: "Walk",
      "aria-pressed": "false",
      onclick: () => this._toggleWalk(),
    });
    this.outcomes = el(
      "section",
      { "aria-labelledby": "outcomes-title" },
      el("h2", { id: "outcomes-title", text: "One picture at a time" }),
      el(
        "div",
        { class: "cards" },
        this.best.node,
        this.walk.node,
        el(
          "div",
          { class: "card" },
          this.walkButton,
          el("p", {
            class: "small",
            text: "A Gibbs chain with what is known held fixed: every frame is a draw, not an average.",
          }),
        ),
      ),
    );
    return this.outcomes;
  }

  _card(name, note) {
    const canvas = el("canvas", { role: "img", "aria-label": `${name}, ${note}` }),
      status = el("span", { class: "status", text: note });
    canvas.style.aspectRatio = `${this.cols} / ${this.rows}`;
    return {
      canvas,
      status,
      node: el(
        "figure",
        { class: "card" },
        canvas,
        el("figcaption", {}, el("b", { text: name }), status),
      ),
    };
  }

  _units() {
    const { model } = this;
    this.unitCanvas = el("canvas", {
      tabindex: "0",
      role: "application",
      "aria-label": `${model.J} hidden units and their filters`,
      "aria-describedby": "units-keys",
      onkeydown: (event) => this._unitKey(event),
      onclick: (event) => this._unitClick(event),
      onfocus: () => this._tellUnit(),
    });
    this.shade = el("canvas", { class: "shade", "aria-hidden": "true" });
    this.marks = el("div", { "aria-hidden": "true" });
    this.unitTold = el("p", { class: "small", role: "status" });
    this.unit = 0;
    const wanted = Math.max(8, Math.ceil(Math.sqrt(model.J * 1.8)));
    const room = Math.max(6, Math.floor((this.root.clientWidth || 1000) / 32));
    this.across = Math.min(model.J, wanted, room);
    this._filterTiles();
    const legend = scaleLegend("−", "+ weight", (t) => this.palette.signed(2 * t - 1));
    this.legends.push(legend);
    const what = model.K ? ` The last ${model.K} are the components of its mixture.` : "";
    this.unitsPart = el(
      "section",
      { "aria-labelledby": "units-title" },
      el("h2", { id: "units-title", text: "Hidden units" }),
      el("p", {
        class: "small",
        id: "units-keys",
        text: `What each unit looks for; the paler, the less it is on. A click, or arrows and Enter, holds a unit on, then off, then lets it go.${what}`,
      }),
      el(
        "div",
        { class: "filters" },
        el("div", { class: "units" }, this.unitCanvas, this.shade, this.marks),
      ),
      el("div", { class: "legend" }, legend),
      this.unitTold,
    );
    return this.unitsPart;
  }

  // ------------------------------------------------------------ what is known

  evidence() {
    const visible = Array.from(this.known, (value) => (value === UNKNOWN ? null : value));
    return { visible, hidden: Object.fromEntries(this.hidden), component: this.component };
  }

  /** Ask all methods again. */
  ask() {
    this.runs.first = this.primary;
    this.runs.ask(this.evidence());
    if (this.chain) this._startWalk();
    this.draw();
    clearTimeout(this.saving);
    this.saving = setTimeout(() => this.root.keep.write(this.state()), 300);
  }

  paint(pixel, value, reach = this.reach) {
    const r = Math.floor(pixel / this.cols),
      c = pixel % this.cols;
    for (let i = Math.max(0, r - reach); i <= Math.min(this.rows - 1, r + reach); i++) {
      for (let j = Math.max(0, c - reach); j <= Math.min(this.cols - 1, c + reach); j++) {
        if ((i - r) ** 2 + (j - c) ** 2 <= reach * reach + 0.5)
          this.known[i * this.cols + j] = value;
      }
    }
  }

  load(number) {
    this.row = number;
    this.payload.rows[number].forEach(
      (value, i) => (this.known[i] = value === null ? UNKNOWN : value),
    );
    if (this.rowName) this.rowName.textContent = `${number + 1} of ${this.payload.rows.length}`;
    this.ask();
  }

  clear() {
    this.known.fill(UNKNOWN);
    this.hidden.clear();
    this.component = -1;
    this._markUnits();
    this.ask();
  }

  _cover(inside) {
    for (let i = 0; i < this.size; i++)
      if (inside(Math.floor(i / this.cols), i % this.cols)) this.known[i] = UNKNOWN;
    this.ask();
  }

  _pointer(event, down) {
    const box = this.canvas.getBoundingClientRect();
    const r = Math.floor(((event.clientY - box.top) / box.height) * this.rows),
      c = Math.floor(((event.clientX - box.left) / box.width) * this.cols);
    if (down) {
      event.preventDefault();
      this.canvas.focus({ preventScroll: true });
      this.canvas.setPointerCapture(event.pointerId);
      this.last = null;
    }
    if (r < 0 || c < 0 || r >= this.rows || c >= this.cols) return;
    const value = event.buttons & 2 ? UNKNOWN : this.brush,
      from = this.last || [r, c];
    const steps = Math.max(Math.abs(r - from[0]), Math.abs(c - from[1]), 1);
    for (let k = 0; k <= steps; k++) {
      const at = [0, 1].map((d) => Math.round(from[d] + ((d ? c : r) - from[d]) * (k / steps)));
      this.paint(at[0] * this.cols + at[1], value);
    }
    this.last = [r, c];
    this.cursor = r * this.cols + c;
    this._tell();
    this.ask();
  }

  _key(event) {
    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    const values = {
      1: 1,
      0: 0,
      ".": UNKNOWN,
      Backspace: UNKNOWN,
      Delete: UNKNOWN,
      " ": this.brush,
      Enter: this.brush,
    };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (moves[event.key]) {
      const [dr, dc] = moves[event.key],
        r = Math.floor(this.cursor / this.cols) + dr,
        c = (this.cursor % this.cols) + dc;
      if (r >= 0 && c >= 0 && r < this.rows && c < this.cols) this.cursor = r * this.cols + c;
    } else if (values[event.key] !== undefined) {
      this.paint(
        this.cursor,
        values[event.key],
        event.key === " " || event.key === "Enter" ? this.reach : 0,
      );
      this.ask();
    } else return;
    event.preventDefault();
    this._tell();
  }

  /** Where the cursor is and what is known there, for the eye and for screen readers. */
  _tell() {
    const r = Math.floor(this.cursor / this.cols),
      c = this.cursor % this.cols,
      value = this.known[this.cursor];
    Object.assign(this.frame.style, {
      left: `${(100 * c) / this.cols}%`,
      top: `${(100 * r) / this.rows}%`,
      width: `${100 / this.cols}%`,
      height: `${100 / this.rows}%`,
    });
    const beliefs = this.beliefs?.[this.primary];
    const p = beliefs && value === UNKNOWN ? `, on with ${percent(beliefs.mean[this.cursor])}` : "";
    this.told.textContent = `Row ${r + 1}, column ${c + 1}: ${BRUSHES[value].toLowerCase()}${p}`;
  }

  // ------------------------------------------------------------ hidden units

  /** All filters as one picture, drawn once for a theme. */
  _filterTiles() {
    const { model, rows, cols, across, unitCanvas } = this,
      { J, weights } = model;
    if (!unitCanvas) return;
    const wide = across * (cols + 2),
      down = Math.ceil(J / across);
    [unitCanvas.width, unitCanvas.height] = [wide, down * (rows + 2)];
    const context = unitCanvas.getContext("2d"),
      image = context.createImageData(unitCanvas.width, unitCanvas.height),
      pixels = new Uint32Array(image.data.buffer),
      colours = ramp((t) => this.palette.signed(2 * t - 1)),
      { middle, top } = this._weightScales();
    for (let u = 0; u < this.size; u++) {
      const at = (1 + Math.floor(u / cols)) * wide + 1 + (u % cols);
      for (let j = 0; j < J; j++) {
        const t = 0.5 + (0.5 * (weights[u * J + j] - middle[j])) / top[j];
        const corner = Math.floor(j / across) * (rows + 2) * wide + (j % across) * (cols + 2);
        pixels[corner + at] = colours[Math.round(255 * t)];
      }
    }
    context.putImageData(image, 0, 0);
    [this.shade.width, this.shade.height] = [across, down];
    this.shades = this.shade.getContext("2d").createImageData(across, down);
  }

  /** Of each unit: the mean weight where it is a state of the softmax unit, and the largest beside that. */
  _weightScales() {
    const { H, J, weights } = this.model,
      middle = new Float64Array(J),
      top = new Float64Array(J).fill(1e-9);
    for (let u = 0; u < this.size; u++)
      for (let j = H; j < J; j++) middle[j] += weights[u * J + j] / this.size;
    for (let u = 0; u < this.size; u++)
      for (let j = 0; j < J; j++)
        top[j] = Math.max(top[j], Math.abs(weights[u * J + j] - middle[j]));
    return { middle, top };
  }

  /** How much each unit is on: a veil over the filters, of one pixel a unit. */
  _drawUnits(hidden) {
    if (!this.unitCanvas) return;
    const { data } = this.shades,
      { panel } = this.palette;
    for (let j = 0; j < this.model.J; j++) {
      data.set(panel, 4 * j);
      data[4 * j + 3] = hidden ? 255 * 0.88 * (1 - hidden[j]) : 0;
    }
    this.shade.getContext("2d").putImageData(this.shades, 0, 0);
  }

  /** Frames around the units that are held, and around the one that keys would hold. */
  _markUnits() {
    if (!this.unitCanvas) return;
    const { across } = this,
      down = Math.ceil(this.model.J / across);
    const mark = (j, how) => {
      const node = el("div", { class: `mark ${how}` });
      Object.assign(node.style, {
        left: `${(100 * (j % across)) / across}%`,
        top: `${(100 * Math.floor(j / across)) / down}%`,
        width: `${100 / across}%`,
        height: `${100 / down}%`,
      });
      return node;
    };
    const held = [...this.hidden].map(([j, value]) => mark(j, value ? "on" : "off"));
    if (this.component >= 0) held.push(mark(this.model.H + this.component, "on"));
    this.here = mark(this.unit, "here");
    this.marks.replaceChildren(...held, this.here);
  }

  /** 1 where unit j is held on, 0 where off; undefined where it is free. */
  _held(j) {
    const { H } = this.model;
    if (j < H) return this.hidden.get(j);
    return this.component === j - H ? 1 : undefined;
  }

  _tellUnit() {
    const j = this.unit,
      p = this.beliefs?.[this.primary]?.hidden[j],
      held = this._held(j);
    const how =
      held === undefined
        ? `on with ${p === undefined ? "–" : percent(p)}`
        : held
          ? "held on"
          : "held off";
    this.unitTold.textContent = `${j < this.model.H ? `Unit ${j + 1}` : `Component ${j - this.model.H + 1}`}: ${how}`;
    this._markUnits();
  }

  _toggleUnit(j) {
    const { H } = this.model;
    this.unit = j;
    if (j >= H) this.component = this.component === j - H ? -1 : j - H;
    else if (!this.hidden.has(j)) this.hidden.set(j, 1);
    else if (this.hidden.get(j) === 1) this.hidden.set(j, 0);
    else this.hidden.delete(j);
    this.ask();
    this._tellUnit();
  }

  _unitClick(event) {
    const box = this.unitCanvas.getBoundingClientRect();
    const c = Math.floor(((event.clientX - box.left) / box.width) * this.across),
      r = Math.floor(
        ((event.clientY - box.top) / box.height) * Math.ceil(this.model.J / this.across),
      );
    if (r * this.across + c < this.model.J) this._toggleUnit(r * this.across + c);
  }

  _unitKey(event) {
    const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.across, ArrowDown: this.across };
    if (moves[event.key])
      this.unit = Math.min(Math.max(this.unit + moves[event.key], 0), this.model.J - 1);
    else if (event.key === "Enter" || event.key === " ") this._toggleUnit(this.unit);
    else return;
    event.preventDefault();
    this._tellUnit();
    this.here.scrollIntoView({ block: "nearest" });
  }

  // ------------------------------------------------------------ answers

  _choose(method) {
    this.primary = this.runs.first = method;
    for (const [name, { face }] of Object.entries(this.cards))
      face.setAttribute("aria-pressed", String(name === method));
    this.draw();
    this._tell();
  }

  _progress(moved) {
    this.beliefs = this.beliefs || {};
    const { runs } = this.runs;
    for (const method of moved)
      if (method !== "best" && !runs[method].refused) this.beliefs[method] = runs[method].beliefs();
    this.draw(moved.filter((method) => method !== "best"));
    if (!this.chain && !this.model.remote && moved.includes("gibbs"))
      this._drawState(this.walk.canvas, runs.gibbs.state());
    if (moved.includes("best")) this._showBest(runs.best);
  }

  /** A good completion, from the methods that have settled. */
  _complete(evidence) {
    const starts = ["bp", "mf"].map((method) => this.beliefs[method]?.mean).filter(Boolean);
    return new Completion(this.model, evidence, starts);
  }

  _showBest({ x, value }) {
    if (!x) return;
    this.bestState = x;
    this.best.status.textContent = `log weight ${digits(value)}`;
    this._drawState(this.best.canvas, x);
  }

  _startWalk() {
    this.chain = this.model.run("gibbs", this.evidence(), {
      chains: 1,
      seed: Date.now() % 1e6,
      iterations: Infinity,
    });
  }

  _toggleWalk() {
    const on = this.walkButton.getAttribute("aria-pressed") !== "true";
    this.walkButton.setAttribute("aria-pressed", String(on));
    this.walkButton.textContent = on ? "Stop" : "Walk";
    this.chain = null;
    if (!on) return;
    this._startWalk();
    const go = () => {
      if (!this.chain || !this.root.isConnected) return;
      this.chain.step();
      this._drawState(this.walk.canvas, this.chain.state());
      this.walk.status.textContent = `sweep ${this.chain.rounds}`;
      requestAnimationFrame(go);
    };
    go();
  }

  /** The colour of pixel i: what is known in blue, the rest by the chosen view. */
  _colour(mean, i, view, spread) {
    const { palette } = this;
    if (this.known[i] === 1) return palette.accent;
    if (this.known[i] === 0) return palette.soft;
    if (view === "uncertainty") return palette.amount(4 * mean[i] * (1 - mean[i]));
    return view === "disagreement" ? palette.amount(spread[i]) : palette.probability(mean[i]);
  }

  _drawState(canvas, x) {
    drawPixels(canvas, this.rows, this.cols, (i) => this._colour(x, i, "probability"));
  }

  /** How far apart the methods are, pixel by pixel. */
  disagreement() {
    const all = Object.values(this.beliefs || {}).map((b) => b.mean);
    return Float64Array.from(
      { length: this.size },
      (_, i) => Math.max(...all.map((m) => m[i])) - Math.min(...all.map((m) => m[i])),
    );
  }

  draw(moved = this.methods) {
    const all = this.beliefs || {},
      view = this.shown,
      spread = view === "disagreement" ? this.disagreement() : null;
    for (const method of moved) {
      const beliefs = all[method],
        card = this.cards[method];
      card.status.textContent = statusOf(this.runs.runs[method]);
      if (beliefs)
        drawPixels(card.canvas, this.rows, this.cols, (i) =>
          this._colour(beliefs.mean, i, view === "disagreement" ? "probability" : view),
        );
    }
    const main = all[this.primary]?.mean || new Float64Array(this.size).fill(0.5);
    if (moved.includes(this.primary) || spread) {
      drawPixels(this.canvas, this.rows, this.cols, (i) => this._colour(main, i, view, spread));
      this._drawUnits(all[this.primary]?.hidden);
    }
    [this.legends[0].hidden, this.legends[1].hidden] = [
      view !== "probability",
      view === "probability",
    ];
  }

  // ------------------------------------------------------------ state and tour

  state() {
    const packed = Array.from(this.known, (v) => (v === UNKNOWN ? "." : v))
      .join("")
      .replace(/(.)\1{2,}/g, (run, c) => `${c}(${run.length})`);
    return {
      known: packed,
      hidden: [...this.hidden],
      component: this.component,
      view: this.shown,
      method: this.primary,
    };
  }

  _restore(state) {
    if (state && typeof state.known === "string") {
      const text = state.known.replace(/(.)\((\d{1,7})\)/g, (_, c, n) =>
        c.repeat(Math.min(Number(n), this.size)),
      );
      if (text.length === this.size && /^[.01]*$/.test(text))
        [...text].forEach((c, i) => (this.known[i] = c === "." ? UNKNOWN : Number(c)));
      this.hidden = new Map(
        (state.hidden || []).filter(([j, v]) => j >= 0 && j < this.model.H && (v === 0 || v === 1)),
      );
      if (Number.isInteger(state.component) && state.component < this.model.K)
        this.component = state.component;
      if (this.methods.includes(state.method)) this._choose(state.method);
      if (VIEWS[state.view]) {
        this.shown = state.view;
        this.view.querySelector(`input[data-choice="view"][value="${state.view}"]`).checked = true;
      }
      this.ask();
    } else if ((this.payload.rows || []).length) {
      this.row = 0;
      this.payload.rows[0].forEach(
        (value, i) => (this.known[i] = value === null ? UNKNOWN : value),
      );
      this._cover((r) => r >= this.rows / 2);
    } else this.ask();
    this._markUnits();
    this._tell();
  }

  tour() {
    const steps = [
      {
        title: "A model of pictures",
        target: this.easel,
        text: "This model has seen many pictures, and knows which pixels go together. Blue is what you tell it. Everything grey is its own opinion: the darker the ink, the more probable the pixel is on.",
      },
      {
        title: "Paint",
        target: this.easel,
        text: "Draw a stroke. The rest of the picture changes while you draw, because every pixel is asked again given what you have drawn.",
      },
      {
        title: "Several ways to think",
        target: this.methodsPart,
        text: "Adding up all pictures is impossible, so there are methods. Belief propagation and mean field pass numbers around until they agree. Chains try pictures at random and average. Where they disagree, do not trust a single one.",
      },
      {
        title: "One picture at a time",
        target: this.outcomes,
        text: "Probabilities blur what belongs together. Here is one whole picture that the model finds best, and a chain that walks from one picture to the next.",
      },
      {
        title: "Inside",
        target: this.unitsPart,
        text: "Hidden units are what the model has learned to look for. Click one to hold it on, and see what it asks of the picture.",
      },
    ];
    return steps.filter((step) => step.target);
  }
}
