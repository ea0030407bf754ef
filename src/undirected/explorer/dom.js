/** Small helpers of the page: elements, colours, the frame around a view, the link that keeps a state. */

/** An element; `props` are attributes, `on*` listeners and `text`. */
export function el(tag, props = {}, ...children) {
  return filled(document.createElement(tag), props, children);
}

export function svgEl(tag, props = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);
}

function filled(node, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "text") node.textContent = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export const METHODS = {
  exact: "Exact",
  bp: "Belief propagation",
  mf: "Mean field",
  tap: "TAP",
  gibbs: "Gibbs chains",
  tempered: "Tempered chains",
};

let serial = 0;
const SEED = Math.random().toString(36).slice(2, 8);

/** A name of its own, also where several pages share a document. */
export function unique(name) {
  serial += 1;
  return `${name}-${SEED}-${serial}`;
}

/** A group of radio buttons drawn as one control. */
export function choice(kind, label, options, chosen, onchange) {
  const name = unique(kind);
  const inputs = Object.entries(options).map(([value, text]) =>
    el(
      "label",
      {},
      el("input", {
        type: "radio",
        name,
        value,
        "data-choice": kind,
        checked: value === chosen,
        onchange: () => onchange(value),
      }),
      text,
    ),
  );
  return el(
    "fieldset",
    { class: "group" },
    el("legend", { class: "unseen", text: label }),
    el("span", { class: "name", text: label, "aria-hidden": "true" }),
    el("div", { class: "choice" }, ...inputs),
  );
}

export function percent(p) {
  if (p > 0 && p < 0.001) return "<0.1 %";
  if (p < 1 && p > 0.999) return ">99.9 %";
  return `${(100 * p).toFixed(p < 0.1 || p > 0.9 ? 1 : 0)} %`;
}

/** A number with four digits that count and a true minus. */
export function digits(x, count = 4) {
  if (!Number.isFinite(x)) return "–";
  if (Math.abs(x) < 1e-12) return "0"; // rounding
  const text =
    Math.abs(x) >= 1e5 || (x !== 0 && Math.abs(x) < 1e-3)
      ? x.toExponential(2)
      : String(Number(x.toPrecision(count)));
  return text.replaceAll("-", "−");
}

// ---------------------------------------------------------------- colours

/** Colours of the present theme as [r, g, b]. */
export class Palette {
  constructor(root) {
    this.root = root;
    this.read();
  }

  read() {
    const style = getComputedStyle(this.root);
    for (const name of ["page", "panel", "ink", "accent", "soft", "rule"])
      this[name] = rgb(style.getPropertyValue(`--${name}`));
    this.dark = this.root.dataset.theme === "dark";
  }

  /** Ink on the page: how probable a pixel is. */
  probability(p) {
    return between(this.page, this.ink, p);
  }

  /** Dark blue over grey to yellow, even in lightness: safe for all kinds of colour sight. */
  amount(x) {
    return along(AMOUNT, Math.min(Math.max(x, 0), 1));
  }

  /** Orange below zero, blue above, the page between. */
  signed(x) {
    const end = x < 0 ? [217, 95, 14] : [8, 88, 158];
    return between(
      this.page,
      this.dark ? end.map((c) => Math.min(c + 60, 255)) : end,
      Math.min(Math.abs(x), 1),
    );
  }
}

const AMOUNT = [
  [0, 32, 77],
  [57, 72, 107],
  [112, 113, 115],
  [168, 157, 117],
  [222, 204, 92],
  [255, 234, 70],
];

function rgb(text) {
  const hex = text.trim().slice(1);
  return [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

function between(a, b, t) {
  return [a[0] + t * (b[0] - a[0]), a[1] + t * (b[1] - a[1]), a[2] + t * (b[2] - a[2])];
}

function along(stops, t) {
  const at = t * (stops.length - 1),
    k = Math.min(Math.floor(at), stops.length - 2);
  return between(stops[k], stops[k + 1], at - k);
}

/** 256 colours along a scale from 0 to 1, each packed as a pixel of a picture. */
export function ramp(colour) {
  const bytes = new Uint8ClampedArray(4 * 256).fill(255);
  for (let k = 0; k < 256; k++) bytes.set(colour(k / 255), 4 * k);
  return new Uint32Array(bytes.buffer);
}

/** Draw one pixel a value; `colour(i)` gives [r, g, b]. */
export function drawPixels(canvas, rows, cols, colour) {
  if (canvas.width !== cols || canvas.height !== rows) [canvas.width, canvas.height] = [cols, rows];
  const context = canvas.getContext("2d"),
    image = context.createImageData(cols, rows),
    data = image.data;
  for (let i = 0; i < rows * cols; i++) {
    const c = colour(i);
    data[4 * i] = c[0];
    data[4 * i + 1] = c[1];
    data[4 * i + 2] = c[2];
    data[4 * i + 3] = 255;
  }
  context.putImageData(image, 0, 0);
}

/** A strip of a colour scale with words at its ends. */
export function scaleLegend(low, high, colour) {
  const canvas = el("canvas", { "aria-hidden": "true" });
  const draw = () => drawPixels(canvas, 1, 64, (i) => colour(i / 63));
  draw();
  const node = el("span", {}, low, canvas, high);
  node.redraw = draw;
  return node;
}

// ---------------------------------------------------------------- the frame

/** What is kept in the link: a JSON value, written as base64 after the #. */
export const link = {
  read() {
    try {
      const text = location.hash.slice(1).replace(/-/g, "+").replace(/_/g, "/");
      return text ? JSON.parse(decodeURIComponent(escape(atob(text)))) : null;
    } catch {
      return null;
    }
  },
  text(state) {
    return btoa(unescape(encodeURIComponent(JSON.stringify(state))))
      .replace(/\+/g, "-")
      .replace(/\//g, "_")
      .replace(/=/g, "");
  },
  write(state) {
    try {
      history.replaceState(null, "", `#${link.text(state)}`);
    } catch {
      // A page inside another may not change its address; the state is then not kept.
    }
  },
};

/** Runs work in slices of a frame, for as long as some of it is left, and counts the frames. */
export class Frames {
  constructor(work, now = () => performance.now()) {
    Object.assign(this, { work, now, waiting: false, meter: new Meter() });
  }

  wake() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame((time) => {
      this.waiting = false;
      const start = this.now(),
        more = this.work(time - (this.meter.frames.at(-1)?.time ?? time));
      this.meter.add(time, this.now() - start);
      if (more) this.wake();
    });
  }
}

/** How often the page was drawn, and how long its own work held a frame up, over the last second. */
export class Meter {
  constructor() {
    this.frames = [];
  }

  add(time, work) {
    const last = this.frames.at(-1);
    // After a pause the count begins anew: nothing was to be drawn.
    if (last && time - last.time > 500) this.frames = [];
    this.frames.push({ time, work });
    while (time - this.frames[0].time > 1000) this.frames.shift();
  }

  /** Frames a second; null until half a second was seen. */
  get rate() {
    const { frames } = this,
      span = frames.length ? frames.at(-1).time - frames[0].time : 0;
    return span < 500 ? null : (1000 * (frames.length - 1)) / span;
  }

  get longest() {
    return Math.max(0, ...this.frames.map((frame) => frame.work));
  }

  get text() {
    return this.rate === null
      ? ""
      : `${Math.round(this.rate)} frames a second, work of up to ${this.longest.toFixed(0)} ms in each.`;
  }
}

const BUDGET = 6; // milliseconds of rounds in a frame of 16.7: drawing and the browser need the rest

/**
 * Several runs of a model under one set of evidence, advanced a little in every frame: single rounds
 * until `budget` milliseconds have passed, so that a frame is late by one round at most.
 */
export class Runs {
  constructor(model, methods, show, options = {}, now = () => performance.now()) {
    Object.assign(this, { model, methods, show, options, now, budget: BUDGET, turn: 0, runs: {} });
    this.later = {}; // by name: what runs when the methods of `after` are done, {after, make}
    this.frames = new Frames((gap) => this._advance(gap), now);
  }

  /** Begin anew with this evidence; a run is made when its turn comes. */
  ask(evidence) {
    this.evidence = evidence;
    for (const run of Object.values(this.runs)) run.release?.();
    this.runs = {};
    this.frames.wake();
  }

  _new(method) {
    if (this.later[method]) return this.later[method].make(this.evidence);
    try {
      return this.model.run(method, this.evidence, this.options[method] || {});
    } catch (error) {
      return { refused: error.message, done: true };
    }
  }

  get settled() {
    return this._names().every((name) => this.runs[name]?.done);
  }

  _names() {
    return [...this.methods, ...Object.keys(this.later)];
  }

  _open(name) {
    const run = this.runs[name];
    if (run) return !run.done && !run.waiting;
    return (this.later[name]?.after || []).every((other) => this.runs[other]?.done);
  }

  /** The method whose turn it is: the one in view every other time; null when none has work. */
  _next() {
    const open = this._names().filter((name) => this._open(name));
    if (!open.length) return null;
    this.turn += 1;
    if (open.includes(this.first) && this.turn % 2) return this.first;
    const rest = open.filter((method) => method !== this.first);
    return rest.length ? rest[(this.turn >> 1) % rest.length] : this.first;
  }

  /** A frame's worth of rounds; less of them where frames come late, `gap` milliseconds apart. */
  _advance(gap = 0) {
    this.budget = gap > 20 ? Math.max(2, this.budget / 2) : Math.min(BUDGET, this.budget + 1);
    const until = this.now() + this.budget,
      moved = new Set();
    this.turn = 2 * (this.turn >> 1); // the method in view goes first
    do {
      const method = this._next();
      if (method === null) break;
      if (this.runs[method]) this.runs[method].step();
      else this.runs[method] = this._new(method);
      moved.add(method);
    } while (this.now() < until);
    this.show([...moved]);
    return !this.settled;
  }

  /** All rounds at once: for tests and for answers that something else waits for. */
  finish() {
    for (const method of this.methods) {
      this.runs[method] ??= this._new(method);
      if (!this.runs[method].done) this.runs[method].settle();
    }
    this.show(this.methods);
  }
}

/** How a run stands, in words. */
export function statusOf(run) {
  if (!run) return "";
  if (run.refused) return run.refused;
  if (run.told) return run.told;
  if (run.burnIn !== undefined)
    return run.weight ? `${run.rounds} sweeps averaged` : `${run.rounds} sweeps, warming up`;
  if (run.tolerance === 0) return "summed over all states";
  if (run.converged) return `settled in ${run.rounds} rounds`;
  return run.done ? `not settled after ${run.rounds} rounds` : `round ${run.rounds}`;
}

// ---------------------------------------------------------------- where nodes stand

/** Places of nodes in a box, as far apart as their distances in the graph: stress majorisation. */
export function layout(count, links, wide, high, margin) {
  const distance = distances(count, links),
    place = firstPlaces(count, distance);
  for (let round = 0; round < 80; round++) {
    for (let i = 0; i < count; i++) {
      let x = 0,
        y = 0,
        sum = 0;
      for (let j = 0; j < count; j++) {
        if (i === j) continue;
        const d = distance[i * count + j],
          dx = place[i].x - place[j].x,
          dy = place[i].y - place[j].y;
        const now = Math.max(Math.hypot(dx, dy), 1e-6),
          w = 1 / (d * d);
        x += w * (place[j].x + (d * dx) / now);
        y += w * (place[j].y + (d * dy) / now);
        sum += w;
      }
      if (sum > 0) place[i] = { x: x / sum, y: y / sum };
    }
  }
  return stretched(place, wide, high, margin);
}

/** Steps between any two nodes; parts that are not joined stand a little apart. */
function distances(count, links) {
  const near = Array.from({ length: count }, () => []),
    out = new Float64Array(count * count).fill(Infinity);
  for (const [a, b] of links) (near[a].push(b), near[b].push(a));
  let most = 1;
  for (let start = 0; start < count; start++) {
    const queue = [start],
      base = start * count;
    out[base + start] = 0;
    for (const i of queue) {
      for (const j of near[i]) {
        if (out[base + j] < Infinity) continue;
        out[base + j] = out[base + i] + 1;
        most = Math.max(most, out[base + j]);
        queue.push(j);
      }
    }
  }
  return out.map((d) => (d === Infinity ? Math.min(most, 4) + 1 : d));
}

/** Two axes: between nodes far apart, and across them. */
function firstPlaces(count, distance) {
  const row = (i) => distance.subarray(i * count, (i + 1) * count),
    far = (d) => d.indexOf(Math.max(...d));
  const a = far(row(0)),
    c = far(row(a)),
    across = row(a).map((d, i) => Math.min(d, row(c)[i]) - 0.5 * Math.abs(d - row(c)[i]));
  const b = far(across),
    d = far(row(b));
  return Array.from({ length: count }, (_, i) => ({
    x: row(a)[i] - row(c)[i] + 0.01 * Math.cos(7 * i),
    y: row(b)[i] - row(d)[i] + 0.01 * Math.sin(7 * i),
  }));
}

function stretched(place, wide, high, margin) {
  const ends = (name) => [
    Math.min(...place.map((p) => p[name])),
    Math.max(...place.map((p) => p[name])),
  ];
  const [left, right] = ends("x"),
    [top, bottom] = ends("y");
  const at = (value, low, high_, size) =>
    high_ - low > 1e-9 ? margin + ((size - 2 * margin) * (value - low)) / (high_ - low) : size / 2;
  return place.map((p) => ({
    x: Math.round(10 * at(p.x, left, right, wide)) / 10,
    y: Math.round(10 * at(p.y, top, bottom, high)) / 10,
  }));
}

/** Header, theme, tour and footer around a view. */
export function frame(root, page) {
  const preferred = matchMedia("(prefers-color-scheme: dark)");
  const theme = (name) => {
    root.dataset.theme = name;
    toggle.textContent = name === "dark" ? "Light" : "Dark";
    root.dispatchEvent(new CustomEvent("theme"));
  };
  const toggle = el("button", {
    type: "button",
    text: "Dark",
    "aria-label": "Change between light and dark",
    onclick: () => theme(root.dataset.theme === "dark" ? "light" : "dark"),
  });
  const said = el("span", { class: "unseen", role: "status" });
  const share = el("button", {
    type: "button",
    text: "Copy link",
    onclick: async () => {
      root.keep.write(page.state());
      const copied = await navigator.clipboard?.writeText(location.href).then(
        () => true,
        () => false,
      );
      share.textContent = copied ? "Copied" : "In the address bar";
      said.textContent = "The link in the address bar has what is shown here.";
      setTimeout(() => (share.textContent = "Copy link"), 2000);
    },
  });
  const tour = el("button", {
    type: "button",
    class: "primary",
    text: "Take the tour",
    onclick: () =>
      startTour(
        root,
        page.tour().filter((step) => step.target && !step.target.hidden),
        tour,
      ),
  });
  const head = el(
    "header",
    {},
    el("div", {}, el("h1", { text: page.title }), el("p", { class: "lede", text: page.lede })),
    el("div", { class: "bar" }, tour, share, toggle),
  );
  const pace = el("p", { class: "small pace" });
  const foot = el("footer", {}, el("p", { class: "small", text: page.small }), pace, said);
  if (page.meter) setInterval(() => root.isConnected && tellPace(pace, page.meter), 500);
  root.classList.add("explore");
  theme(preferred.matches ? "dark" : "light");
  preferred.addEventListener("change", (event) => theme(event.matches ? "dark" : "light"));
  root.replaceChildren(
    el("div", { class: "frame" }, head, ...[page.view, page.more].filter(Boolean), foot),
  );
}

/** The pace of the page, where it is known. */
function tellPace(node, meter) {
  if (meter.text) node.textContent = meter.text;
}

function startTour(root, steps, opener) {
  root.querySelector(".tour")?.remove();
  let at = 0;
  const text = el("p", {}),
    count = el("span", { class: "small" });
  const close = () => {
    point(null);
    card.remove();
    opener.focus();
  };
  const next = el("button", {
    type: "button",
    class: "primary",
    onclick: () => (at + 1 < steps.length ? show(at + 1) : close()),
  });
  const back = el("button", { type: "button", text: "Back", onclick: () => show(at - 1) });
  const end = el("button", { type: "button", class: "quiet", text: "Close", onclick: close });
  const title = el("h2", { id: "tour-title" });
  const card = el(
    "section",
    {
      class: "tour",
      role: "dialog",
      "aria-labelledby": "tour-title",
      onkeydown: (event) => event.key === "Escape" && close(),
    },
    title,
    text,
    el("div", { class: "bar" }, count, el("span", { class: "bar" }, end, back, next)),
  );
  const point = (target) => {
    for (const node of root.querySelectorAll(".pointed")) node.classList.remove("pointed");
    if (!target) return;
    target.classList.add("pointed");
    // Above the card, which would hide it; from its top where it is taller than the room above.
    const below = card.offsetHeight + 28,
      fits = target.getBoundingClientRect().height + 16 < innerHeight - below;
    target.style.scrollMargin = `16px 0 ${below}px`;
    target.scrollIntoView({ block: fits ? "nearest" : "start" });
  };
  const show = (k) => {
    at = k;
    title.textContent = steps[k].title;
    text.textContent = steps[k].text;
    count.textContent = `${k + 1} of ${steps.length}`;
    back.disabled = k === 0;
    next.textContent = k + 1 < steps.length ? "Next" : "Done";
    point(steps[k].target);
  };
  root.append(card);
  show(0);
  next.focus();
}
