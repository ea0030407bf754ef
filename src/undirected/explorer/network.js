/** Factor graphs: the graph drawn, evidence by click, messages round by round, Bethe beside exact. */

import { parseUai } from "./inference.js";
import { Frames, choice, digits, el, layout, percent, statusOf, svgEl } from "./dom.js";

const WIDE = 720,
  HIGH = 480,
  MARGIN = 36;
const MOST_BYTES = 8 * 2 ** 20;
const MOST_SQUARES = 2000; // tables that are drawn, each a square; beyond that they would hide all else
const SPEEDS = { slow: "Slow", normal: "Normal", fast: "Fast" };
const AT_ONCE = 50, // milliseconds of work before a frame is drawn in between
  SLICE = 12; // and then in every frame
const MILLISECONDS = { slow: 1600, normal: 700, fast: 180 };

export class NetworkView {
  constructor(root, model, payload) {
    Object.assign(this, { root, model, payload, file: null });
    this.evidence = {};
    this.damping = 0;
    this.speed = "normal";
    this.method = "bp";
    this.view = el("main", { class: "network-view" });
    this._frames = new Frames(() => this._animate());
    this._slices = new Frames(() => this.root.isConnected && this._work(SLICE));
    this._open(model, payload.columns);
    const state = this.root.keep.read();
    if (state?.evidence) this._restore(state);
  }

  name(v) {
    return this.columns?.[v]?.name ?? String(v);
  }

  word(v, s) {
    return this.columns?.[v]?.states?.[s] ?? String(s);
  }

  // ------------------------------------------------------------ the page

  /** Show a network from the beginning. */
  _open(model, columns) {
    Object.assign(this, { model, columns, evidence: {} });
    this.places = layOut(model);
    this.view.replaceChildren(
      el("section", { "aria-labelledby": "graph-title" }, ...this._graphPart()),
      el("aside", {}, this._residuals(), this._answers()),
    );
    this._begin(true);
  }

  _graphPart() {
    this.title = el("h2", { id: "graph-title", text: "The graph" });
    this.summary = el("p", {
      class: "small",
      text: `${this.model.cards.length} variables, ${this.model.scopes.length} tables. A click, or Enter, makes a variable known: the next of its states, then unknown again. Its slices are its probabilities.`,
    });
    this.playButton = el("button", {
      type: "button",
      class: "primary",
      text: "Play",
      "aria-pressed": "false",
      onclick: () => this._toggle(),
    });
    const step = el("button", { type: "button", text: "Step", onclick: () => this.step() });
    const reset = el("button", {
      type: "button",
      text: "Start again",
      onclick: () => this.reset(),
    });
    const forget = el("button", {
      type: "button",
      text: "Forget all",
      onclick: () => this.know({}),
    });
    const speeds = choice("speed", "Speed", SPEEDS, this.speed, (value) => (this.speed = value));
    const damping = el("input", {
      type: "range",
      min: "0",
      max: "0.9",
      step: "0.1",
      value: String(this.damping),
      "aria-label": "Damping: the share of the old message that is kept",
      oninput: (event) => this._damp(Number(event.target.value)),
    });
    this.dampingSaid = el("span", { class: "small", text: digits(this.damping) });
    const bar = el(
      "div",
      { class: "bar" },
      this.playButton,
      step,
      reset,
      forget,
      speeds,
      el(
        "label",
        { class: "group" },
        el("span", { class: "name", text: "Damping" }),
        damping,
        this.dampingSaid,
      ),
    );
    this.drawing = this._draw();
    return [
      this.title,
      this.summary,
      bar,
      el("div", { class: this.model.cards.length > 40 ? "graph many" : "graph" }, this.drawing),
      this._legend(),
      this._drop(),
    ];
  }

  _legend() {
    const dot = (colour, text) =>
      el(
        "span",
        {},
        svgEl(
          "svg",
          { width: 14, height: 14, "aria-hidden": "true" },
          svgEl("circle", { cx: 7, cy: 7, r: 5, fill: colour }),
        ),
        text,
      );
    const states = ["first", "second", "third", "fourth"].slice(0, Math.max(...this.model.cards));
    return el(
      "div",
      { class: "legend" },
      ...states.map((word, s) => dot(HUES[s], `${word} state`)),
      dot("var(--bp)", "message from a table"),
      dot("var(--mf)", "message from a variable"),
      "Large where it has just changed.",
    );
  }

  _drop() {
    const input = el("input", {
      type: "file",
      accept: ".uai,text/plain",
      class: "unseen",
      tabindex: "-1",
      "aria-hidden": "true",
      onchange: () => input.files[0] && this._read(input.files[0]),
    });
    const button = el("button", {
      type: "button",
      text: "Open a file",
      onclick: () => input.click(),
    });
    this.complaint = el("p", { class: "complaint", role: "alert" });
    this.dropZone = el("div", { class: "drop" }, "Drop a .uai file here, or", button, input);
    for (const name of ["dragover", "dragenter"])
      this.dropZone.addEventListener(name, (event) => this._over(event, true));
    this.dropZone.addEventListener("dragleave", (event) => this._over(event, false));
    this.dropZone.addEventListener("drop", (event) => {
      this._over(event, false);
      if (event.dataTransfer.files[0]) this._read(event.dataTransfer.files[0]);
    });
    return el("div", {}, this.dropZone, this.complaint);
  }

  _over(event, on) {
    event.preventDefault();
    this.dropZone.classList.toggle("over", on);
  }

  /** A dropped file: a network to show, or a sentence that says why not. */
  async _read(file) {
    try {
      if (file.size > MOST_BYTES)
        throw new Error(
          `it has ${digits(file.size / 2 ** 20, 3)} MB; a page takes up to ${MOST_BYTES / 2 ** 20} MB. Use “undirected solve” for it.`,
        );
      const bytes = new Uint8Array(await file.arrayBuffer());
      if ((bytes[0] === 0x1f && bytes[1] === 0x8b) || bytes[0] === 0xfd)
        throw new Error("it is compressed; unpack it first.");
      const model = parseUai(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
      if (model.cards.length === 0) throw new Error("it has no variables.");
      this.file = file.name;
      this._open(model, null);
      this.title.textContent = file.name;
    } catch (error) {
      const why = error instanceof TypeError ? "it is not UTF-8 text." : error.message;
      this.complaint.textContent = `${file.name}: ${why}`;
    }
  }

  _residuals() {
    this.curve = svgEl("svg", {
      class: "curve",
      viewBox: "0 0 360 140",
      role: "img",
      "aria-label": "Largest change of a message, round by round",
    });
    this.standing = el("p", { class: "small", role: "status" });
    return el(
      "section",
      { "aria-labelledby": "residual-title" },
      el("h2", { id: "residual-title", text: "Largest change of a message" }),
      this.curve,
      this.standing,
    );
  }

  _answers() {
    const methods = choice(
      "method",
      "Answers by",
      { bp: "Belief propagation", mf: "Mean field", gibbs: "Gibbs" },
      this.method,
      (value) => {
        this.method = value;
        this._answerAll();
      },
    );
    this.logs = el("table", { class: "numbers" });
    this.table = el("table", { class: "numbers" });
    this.answersNode = el(
      "section",
      { "aria-labelledby": "answers-title" },
      el("h2", { id: "answers-title", text: "Beside the exact answer" }),
      el("div", { class: "bar" }, methods),
      this.logs,
      el(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": "Marginals" },
        this.table,
      ),
    );
    return this.answersNode;
  }

  // ------------------------------------------------------------ the drawing

  _draw() {
    const { model, places } = this,
      lines = [],
      squares = svgEl("g", {});
    this.links = [];
    model.scopes.forEach((scope, k) => {
      if (scope.length < 2) return;
      const centre =
        scope.length === 2 ? middle(scope.map((v) => places[v])) : places[model.cards.length + k];
      scope.forEach((v, i) => {
        lines.push(`M${centre.x} ${centre.y}L${places[v].x} ${places[v].y}`);
        this.links.push({ k, i, v, centre });
      });
      if (model.scopes.length > MOST_SQUARES) return;
      const size = scope.length === 2 ? 5 : 9;
      squares.append(
        svgEl(
          "rect",
          {
            x: centre.x - size / 2,
            y: centre.y - size / 2,
            width: size,
            height: size,
            fill: "var(--muted)",
          },
          svgEl("title", { text: `table of ${scope.map((u) => this.name(u)).join(", ")}` }),
        ),
      );
    });
    this.dots = svgEl("g", { "aria-hidden": "true" });
    this.nodes = model.cards.map((_, v) => this._node(v));
    return svgEl(
      "svg",
      { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "group", "aria-label": "Factor graph" },
      svgEl("path", { d: lines.join(""), stroke: "var(--rule)", "stroke-width": 1.5, fill: "none" }),
      squares,
      this.dots,
      ...this.nodes.map((node) => node.group),
    );
  }

  _node(v) {
    const small = this.model.cards.length > 60,
      r = small ? 7 : 13,
      place = this.places[v];
    const ring = svgEl("g", {}),
      label = svgEl("text", {
        class: "halo",
        y: r + 13,
        "text-anchor": "middle",
        text: this.name(v).slice(0, 14),
      });
    const state = svgEl("text", { y: 4, "text-anchor": "middle" });
    const group = svgEl(
      "g",
      {
        class: "node",
        tabindex: "0",
        role: "button",
        transform: `translate(${place.x} ${place.y})`,
        onclick: () => this.cycle(v),
        onkeydown: (event) => this._nodeKey(event, v),
      },
      svgEl("circle", { class: "reach", r: small ? 14 : 24, fill: "transparent" }), // for fingers
      svgEl("circle", { r, fill: "var(--page)", stroke: "var(--ink)", "stroke-width": 1 }),
      ring,
      state,
      this.model.cards.length > 120 ? svgEl("title", { text: this.name(v) }) : label,
    );
    return { group, ring, state, r };
  }

  _nodeKey(event, v) {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    this.cycle(v);
  }

  _paintNodes(marginals) {
    marginals.forEach((p, v) => {
      const { ring, state, group, r } = this.nodes[v],
        known = this.evidence[v] !== undefined;
      ring.replaceChildren(
        ...(known ? [svgEl("circle", { r, fill: "var(--accent)" })] : pie(p, r)),
      );
      state.textContent = known && r > 8 ? this.word(v, this.evidence[v]).slice(0, 3) : "";
      state.style.fill = "var(--accent-ink)";
      const best = p.indexOf(Math.max(...p));
      const said = known
        ? `known to be ${this.word(v, this.evidence[v])}`
        : `${this.word(v, best)} with ${percent(p[best])}`;
      group.setAttribute("aria-label", `${this.name(v)}: ${said}`);
    });
  }

  // ------------------------------------------------------------ questions

  cycle(v) {
    const next = { ...this.evidence },
      now = next[v];
    if (now === undefined) next[v] = 0;
    else if (now + 1 < this.model.cards[v]) next[v] = now + 1;
    else delete next[v];
    this.know(next);
  }

  know(evidence) {
    this.evidence = evidence;
    this._begin(!this.playing);
    this.root.keep.write(this.state());
  }

  _damp(value) {
    this.damping = value;
    this.dampingSaid.textContent = digits(value);
    this._begin(!this.playing);
  }

  /** Back to before the first message. */
  reset() {
    this._pause();
    this._begin();
  }

  _pause() {
    this.playing = false;
    this.playButton.textContent = "Play";
    this.playButton.setAttribute("aria-pressed", "false");
    this.dots.replaceChildren();
  }

  /** Before the first message, or, to `finish`, after the last one. */
  _begin(finish = false) {
    this.run = this.model.run("bp", this.evidence, { damping: this.damping });
    this.history = [];
    this.finishing = finish;
    try {
      this.exact = this.model.run("exact", this.evidence);
    } catch {
      this.exact = null; // it would need tables that are too large
    }
    if (this._work(AT_ONCE)) this._slices.wake();
  }

  /** One round of messages. */
  step() {
    if (!this.run.done) {
      this.history.push(this.run.step());
      this._show();
      if (this.method === "bp") this._answerAll();
    }
    return this.run.change;
  }

  /** Whether nothing is left to work out by itself. */
  get settled() {
    return (this.run.done || !this.finishing) && (this.exact?.done ?? true);
  }

  /** So many milliseconds of rounds, then of the exact answer; returns whether there is more. */
  _work(milliseconds) {
    const until = performance.now() + milliseconds,
      wasDone = this.run.done;
    while (!this.settled && performance.now() < until) {
      if (this.finishing && !this.run.done) this.history.push(this.run.step());
      else this.exact.step();
    }
    if (this.settled || this.run.done !== wasDone || milliseconds === AT_ONCE) {
      this._show();
      this._answerAll();
    }
    return !this.settled;
  }

  _toggle() {
    if (this.playing) {
      this._pause();
      return;
    }
    if (this.run.done) this._begin();
    this.finishing = false;
    this.playing = true;
    this.playButton.textContent = "Pause";
    this.playButton.setAttribute("aria-pressed", "true");
    this.began = performance.now();
    this._frames.wake();
  }

  /** Dots travel from variables to tables and back; at the end of the way a round is made. */
  _animate() {
    if (!this.playing || !this.root.isConnected) return false;
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const t = (performance.now() - this.began) / MILLISECONDS[this.speed];
    if (t >= 1) {
      this.step();
      this.began = performance.now();
      if (this.run.done) {
        this._pause();
        return false;
      }
    }
    if (!still && this.links.length < 2000) this._moveDots(Math.min(t, 1));
    return true;
  }

  _moveDots(t) {
    const out = t < 0.5,
      along = out ? 2 * t : 2 * t - 1;
    while (this.dots.childNodes.length < this.links.length) this.dots.append(svgEl("circle", {}));
    this.links.forEach(({ k, i, v, centre }, n) => {
      const dot = this.dots.childNodes[n],
        place = this.places[v];
      const silent = this.evidence[v] !== undefined;
      const [from, to] = out ? [place, centre] : [centre, place];
      const position = silent ? -1 : this.run.graph.scopes[k].indexOf(v);
      const moved = position >= 0 ? this.run.moved[k][position] : 0;
      dot.setAttribute("cx", (from.x + along * (to.x - from.x)).toFixed(1));
      dot.setAttribute("cy", (from.y + along * (to.y - from.y)).toFixed(1));
      dot.setAttribute("r", silent ? 0 : (2 + 5 * Math.min(Math.sqrt(moved) * 1.5, 1)).toFixed(1));
      dot.setAttribute("fill", out ? "var(--mf)" : "var(--bp)");
    });
  }

  _show() {
    this._paintNodes(this.run.beliefs().marginals);
    drawCurve(this.curve, this.history, this.run.tolerance);
    const last = this.history.at(-1);
    this.standing.textContent = this.history.length
      ? `Belief propagation: ${statusOf(this.run)}, largest change ${digits(last, 3)}.`
      : "No message has been sent yet: press Play or Step.";
  }

  // ------------------------------------------------------------ answers

  _answerAll() {
    let run = this.run;
    if (this.method !== "bp")
      run = this.model
        .run(this.method, this.evidence, { iterations: this.method === "gibbs" ? 1500 : 500 })
        .settle(400);
    const own = run.beliefs().marginals,
      exact = this.exact?.done ? this.exact.beliefs().marginals : undefined;
    const logZ = run.rounds || this.method !== "bp" ? run.logZ() : NaN,
      right = exact ? this.exact.logZ() : NaN;
    const name = { bp: "Bethe", mf: "mean field, a lower bound", gibbs: "Gibbs gives none" }[
      this.method
    ];
    const row = (label, value) =>
      el("tr", {}, el("th", { scope: "row", text: label }), el("td", { text: value }));
    this.logs.replaceChildren(
      el("caption", { class: "unseen", text: "log Z" }),
      el(
        "tbody",
        {},
        row(`log Z, ${name}`, digits(rounded(logZ), 7)),
        row("log Z, exact", this._exactWords(right)),
        row("difference", digits(rounded(logZ - right), 3)),
      ),
    );
    this._table(own, exact);
  }

  _exactWords(logZ) {
    if (!this.exact) return "not affordable in a page";
    if (!this.exact.done) return "being worked out";
    return logZ === -Infinity ? "no state agrees with what is known" : digits(rounded(logZ), 7);
  }

  _table(own, exact) {
    const head = ["variable", "state", "p", ...(exact ? ["exact", "error"] : []), ""];
    const order = own
      .map((p, v) => [v, exact ? Math.max(...p.map((x, s) => Math.abs(x - exact[v][s]))) : 0])
      .sort((a, b) => b[1] - a[1]);
    const rows = order.map(([v]) => {
      const p = own[v],
        s = exact ? exact[v].indexOf(Math.max(...exact[v])) : p.indexOf(Math.max(...p));
      const more = exact ? [digits(exact[v][s]), digits(p[s] - exact[v][s], 2)] : [];
      return el(
        "tr",
        {},
        el("th", { scope: "row", text: this.name(v) }),
        ...[this.word(v, s), digits(p[s]), ...more].map((text) => el("td", { text })),
        el("td", {}, errorBar(p[s], exact ? exact[v][s] : null)),
      );
    });
    this.table.replaceChildren(
      el("caption", {
        class: "unseen",
        text: "Probability of the most probable state of every variable, the worst first",
      }),
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          ...head.map((text) => el("th", { scope: "col", text: text || "p and exact" })),
        ),
      ),
      el("tbody", {}, ...rows),
    );
  }

  // ------------------------------------------------------------ state and tour

  state() {
    const { evidence, damping, file } = this;
    return file ? { file } : { evidence, damping }; // whoever has the link has not the file
  }

  _restore(state) {
    const found = {};
    for (const [v, s] of Object.entries(state.evidence)) {
      if (Number.isInteger(s) && s >= 0 && s < (this.model.cards[v] ?? 0)) found[v] = s;
    }
    if (state.damping >= 0 && state.damping < 1) this.damping = state.damping;
    this.know(found);
  }

  tour() {
    return [
      {
        title: "A graph of variables",
        target: this.drawing,
        text: "Every circle is a variable, every square a table that says which states go together. Its slices are how probable each state is.",
      },
      {
        title: "Messages",
        target: this.playButton,
        text: "Press Play. Variables tell tables what they believe, tables answer what that means for their other variables. A round is all messages once.",
      },
      {
        title: "Until nothing changes",
        target: this.curve,
        text: "The curve is the largest change of a round. On trees it falls to nothing at once; on loops it may take long, or never settle. Damping helps.",
      },
      {
        title: "How wrong is it?",
        target: this.answersNode,
        text: "Where the exact answer can be afforded, it stands beside. The worst variables come first.",
      },
      {
        title: "Your own",
        target: this.dropZone,
        text: "Drop a network of your own on the page. It is read here, and goes nowhere.",
      },
    ];
  }
}

/** Without what the tables' own rounding leaves. */
function rounded(x) {
  return Math.round(x * 1e6) / 1e6;
}

function middle(points) {
  return { x: (points[0].x + points[1].x) / 2, y: (points[0].y + points[1].y) / 2 };
}

const HUES = [
  "var(--soft)",
  "var(--ink)",
  "var(--bp)",
  "var(--mf)",
  "var(--tap)",
  "var(--gibbs)",
  "var(--tempered)",
];

/** Shares as slices of a circle, beginning at the top. */
function pie(p, r) {
  let from = 0;
  return Array.from(p).map((share, s) => {
    const [a, b] = [from, (from += share)],
      fill = HUES[s % HUES.length];
    if (share > 0.9999) return svgEl("circle", { r, fill });
    const at = (t) =>
      `${(r * Math.sin(2 * Math.PI * t)).toFixed(2)} ${(-r * Math.cos(2 * Math.PI * t)).toFixed(2)}`;
    return svgEl("path", {
      d: `M0 0L${at(a)}A${r} ${r} 0 ${share > 0.5 ? 1 : 0} 1 ${at(b)}Z`,
      fill,
    });
  });
}

/** The probability as a bar and the exact one as a line across it. */
function errorBar(p, exact) {
  const parts = [
    svgEl("rect", { x: 0, y: 3, width: 60, height: 8, fill: "var(--panel)" }),
    svgEl("rect", { x: 0, y: 3, width: 60 * p, height: 8, fill: "var(--soft)" }),
  ];
  if (exact !== null) {
    parts.push(
      svgEl("rect", {
        x: 60 * Math.min(p, exact),
        y: 5,
        width: Math.max(60 * Math.abs(p - exact), 0.01),
        height: 4,
        fill: "var(--mf)",
      }),
    );
    parts.push(
      svgEl("rect", {
        x: Math.min(60 * exact, 58.5),
        y: 1,
        width: 1.5,
        height: 12,
        fill: "var(--exact)",
      }),
    );
  }
  return svgEl("svg", { width: 60, height: 14, "aria-hidden": "true" }, ...parts);
}

/** Largest changes by round, the vertical axis in powers of ten. */
function drawCurve(svg, history, tolerance) {
  const x = (k) => 34 + (318 * k) / Math.max(history.length - 1, 10),
    y = (v) => 8 + (-Math.log10(Math.max(v, 1e-9)) / 9) * 108;
  const lines = [0, 3, 6, 9].map((power) =>
    svgEl(
      "g",
      {},
      svgEl("line", {
        x1: 34,
        x2: 352,
        y1: y(10 ** -power),
        y2: y(10 ** -power),
        stroke: "var(--rule)",
      }),
      svgEl("text", {
        x: 30,
        y: y(10 ** -power) + 4,
        "text-anchor": "end",
        text: power ? `10⁻${"⁰¹²³⁴⁵⁶⁷⁸⁹"[power]}` : "1",
      }),
    ),
  );
  const path = history
    .map((v, k) => `${k ? "L" : "M"}${x(k).toFixed(1)} ${y(v).toFixed(1)}`)
    .join("");
  const parts = [
    ...lines,
    svgEl("text", { x: 352, y: 134, "text-anchor": "end", text: `round ${history.length}` }),
  ];
  if (path)
    parts.push(
      svgEl("path", { d: path, fill: "none", stroke: "var(--bp)", "stroke-width": 2 }),
      svgEl("circle", {
        cx: x(history.length - 1),
        cy: y(history.at(-1)),
        r: 3,
        fill: "var(--bp)",
      }),
    );
  svg.replaceChildren(...parts);
}

/** Places of variables, and of tables with three or more of them. */
function layOut(model) {
  const n = model.cards.length,
    own = new Map(),
    links = [];
  model.scopes.forEach((scope, k) => scope.length > 2 && own.set(k, n + own.size));
  model.scopes.forEach((scope, k) => {
    if (scope.length === 2) links.push(scope);
    else if (own.has(k)) for (const v of scope) links.push([v, own.get(k)]);
  });
  const found = layout(n + own.size, links, WIDE, HIGH, MARGIN),
    places = found.slice(0, n);
  for (const [k, i] of own) places[n + k] = found[i];
  return places;
}
