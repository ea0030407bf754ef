/** Frames of a fit: samples and filters at one of its steps, as pictures or as rows of a table. */

import { unpack } from "./inference.js";
import { drawPixels, el, scaleLegend } from "./dom.js";

const WORDS = { samples: "Samples", filters: "Filters" };
const NOTES = {
  samples: "where chains of the learner stood",
  filters: "weights of the first hidden units",
};
const ROWS_OF_STRIP = 2; // samples and filters that the strip follows
const BETWEEN = 450; // milliseconds from one frame to the next

export class Film {
  constructor(film, model, payload, palette) {
    Object.assign(this, { film, palette, steps: film.steps, at: film.steps.length - 1 });
    this.parts = ["samples", "filters"].filter((name) => film[name]);
    this.values = {};
    for (const name of this.parts) {
      const { values } = film[name],
        found = unpack(values);
      this.values[name] =
        values.dtype === "int8" ? Float32Array.from(found, (x) => x / 127) : found;
    }
    this.image = payload.image;
    this.rows = this.image ? null : unitsByName(model, payload.columns);
    this.canvases = {};
  }

  /** What stands beside the curve, and what stands below both. */
  get nodes() {
    return this.image ? this._pictures() : this._heatMap();
  }

  /** Value of unit u of picture k in a frame. */
  _value(name, frame, k, u) {
    return this.values[name][(frame * this.film[name].count + k) * this.film.units + u];
  }

  _colour(name, frame, k, u, signed) {
    const x = this._value(name, frame, k, u);
    return signed ? this.palette.signed(x) : this.palette.probability(x);
  }

  // ------------------------------------------------------------ pictures

  _pictures() {
    const [rows, cols] = this.image;
    const figures = this.parts.map((name) => {
      const { count } = this.film[name],
        across = Math.ceil(Math.sqrt(count));
      const canvas = el("canvas", { role: "img" });
      canvas.style.aspectRatio = `${across * (cols + 1) - 1} / ${Math.ceil(count / across) * (rows + 1) - 1}`;
      this.canvases[name] = canvas;
      return figure(name, canvas);
    });
    const present = el("div", {}, el("div", { class: "frames" }, ...figures), this._legend());
    return [present, this._strip()];
  }

  _legend() {
    if (!this.film.filters) return null;
    const most = this.film.filters.scale.toPrecision(2);
    this.scale = scaleLegend(`−${most}`, `+${most} weight`, (t) => this.palette.signed(2 * t - 1));
    return el("div", { class: "legend" }, this.scale);
  }

  /** A few of the pictures in all frames, side by side; a click goes to a frame. */
  _strip() {
    this.strip = el("canvas", { "aria-hidden": "true", onclick: (event) => this._click(event) });
    const [rows, cols] = this.image,
      frames = this.steps.length;
    this.stripRows = this.parts.flatMap((name) =>
      Array.from({ length: Math.min(ROWS_OF_STRIP, this.film[name].count) }, (_, k) => [name, k]),
    );
    this.strip.style.aspectRatio = `${frames * (cols + 1) - 1} / ${this.stripRows.length * (rows + 1) - 1}`;
    this.here = el("div", { class: "here", "aria-hidden": "true" });
    return el("div", { class: "strip" }, this.strip, this.here);
  }

  _click(event) {
    const box = this.strip.getBoundingClientRect();
    this.onpick?.(
      Math.floor(((event.clientX - box.left) / box.width) * this.steps.length * 0.999999),
    );
  }

  _drawStrip() {
    const [rows, cols] = this.image,
      frames = this.steps.length;
    drawTiles(
      this.strip,
      { count: frames * this.stripRows.length, across: frames, rows, cols, gap: this.palette.rule },
      (tile, u) => {
        const [name, k] = this.stripRows[Math.floor(tile / frames)];
        return this._colour(name, tile % frames, k, u, name === "filters");
      },
    );
  }

  // ------------------------------------------------------------ rows of a table

  /** A line for every unit by its name: its value in the samples, its weights to hidden units. */
  _heatMap() {
    const names = el(
      "ol",
      { class: "names" },
      ...this.rows.map(({ name }) => el("li", { text: name, title: name })),
    );
    const maps = this.parts.map((name) => {
      const canvas = el("canvas", { role: "img" });
      canvas.style.height = `calc(${this.rows.length} * var(--line))`;
      this.canvases[name] = canvas;
      return canvas;
    });
    const heads = this.parts.map((name) =>
      el("span", { class: "head" }, el("b", { text: WORDS[name] }), ` ${NOTES[name]}`),
    );
    const map = el("div", { class: "heat" }, el("span", {}), ...heads, names, ...maps);
    map.style.setProperty("--maps", String(maps.length));
    const scroll = { class: "scroll", tabindex: "0", role: "region", "aria-label": "Frame" };
    const note = "Samples: every line by its own largest value, orange below zero.";
    return [
      el(
        "div",
        {},
        el("div", scroll, map),
        this._legend(),
        el("p", { class: "small", text: note }),
      ),
    ];
  }

  // ------------------------------------------------------------ frames

  show(at) {
    this.at = at;
    for (const name of this.parts) {
      const canvas = this.canvases[name];
      canvas.setAttribute("aria-label", `${WORDS[name]} at step ${this.steps[at]}: ${NOTES[name]}`);
      if (this.image) this._drawPictures(name, canvas);
      else this._drawMap(name, canvas);
    }
    if (this.here)
      Object.assign(this.here.style, {
        left: `${(100 * at) / this.steps.length}%`,
        width: `${100 / this.steps.length}%`,
      });
  }

  _drawPictures(name, canvas) {
    const [rows, cols] = this.image,
      { count } = this.film[name],
      across = Math.ceil(Math.sqrt(count));
    drawTiles(canvas, { count, across, rows, cols, gap: this.palette.rule }, (k, u) =>
      this._colour(name, this.at, k, u, name === "filters"),
    );
  }

  _drawMap(name, canvas) {
    const { count } = this.film[name];
    drawPixels(canvas, this.rows.length, count, (i) => {
      const { unit, real } = this.rows[Math.floor(i / count)];
      return this._colour(name, this.at, i % count, unit, name === "filters" || real);
    });
  }

  /** All again, in the colours of the present theme. */
  redraw() {
    this.scale?.redraw();
    if (this.strip) this._drawStrip();
    this.show(this.at);
  }
}

/** A button that goes from frame to frame; `step()` says whether there are more. */
export function player(step, began) {
  let timer = null;
  const button = el("button", { type: "button", class: "primary", text: "Play" });
  const stop = () => {
    clearInterval(timer);
    timer = null;
    button.textContent = "Play";
    button.setAttribute("aria-pressed", "false");
    began(false);
  };
  button.addEventListener("click", () => {
    if (timer !== null) return stop();
    button.textContent = "Pause";
    button.setAttribute("aria-pressed", "true");
    began(true);
    timer = setInterval(() => (button.isConnected && step() ? null : stop()), BETWEEN);
  });
  return { button, stop: () => timer !== null && stop() };
}

function figure(name, canvas) {
  const words = el("figcaption", {}, el("b", { text: WORDS[name] }), ` ${NOTES[name]}`);
  return el("figure", { class: "card" }, canvas, words);
}

/** Several pictures in one canvas, a pixel apart. */
function drawTiles(canvas, { count, across, rows, cols, gap }, colour) {
  const wide = across * (cols + 1) - 1,
    high = Math.ceil(count / across) * (rows + 1) - 1;
  drawPixels(canvas, high, wide, (i) => {
    const y = Math.floor(i / wide),
      x = i % wide,
      r = y % (rows + 1),
      c = x % (cols + 1),
      k = Math.floor(y / (rows + 1)) * across + Math.floor(x / (cols + 1));
    return r === rows || c === cols || k >= count ? gap : colour(k, r * cols + c);
  });
}

/** Units in the order of the columns, by the words of the table. */
function unitsByName(model, columns) {
  return columns.flatMap(({ name, kind, states, variable }) =>
    Array.from({ length: model.widths[variable] }, (_, s) => ({
      unit: model.first[variable] + s,
      name: kind === "category" ? `${name}: ${states[s]}` : name,
      real: kind === "real",
    })),
  );
}
