/** Table models: a control for each column in its own words, answers as bars that move. */

import { Harmonium } from "./inference.js";
import {
  METHODS,
  Runs,
  choice,
  digits,
  el,
  layout,
  percent,
  statusOf,
  svgEl,
  unique,
} from "./dom.js";

const MANY = 8; // states beyond which a column has a list

/** Columns on top of a model: a harmonium's variables, or those of a factor graph. */
class Columns {
  constructor(model, payload) {
    Object.assign(this, { model, list: payload.columns });
    this.harmonium = model instanceof Harmonium;
  }

  /** Evidence from values by column: a state's number, or a standardised number; null is unknown. */
  evidence(values) {
    if (!this.harmonium) {
      return Object.fromEntries(
        this.list.flatMap((c, i) => (values[i] === null ? [] : [[c.variable, values[i]]])),
      );
    }
    const visible = new Array(this.model.kinds.length).fill(null);
    this.list.forEach((column, i) => (visible[column.variable] = values[i]));
    return { visible };
  }

  /** Probabilities of the states, or mean and standard deviation, of every column. */
  answers(beliefs) {
    return this.list.map((column) => {
      if (!this.harmonium)
        return { p: shareOf(beliefs.marginals[column.variable].slice(0, column.states.length)) };
      const at = this.model.first[column.variable],
        kind = this.model.kinds[column.variable];
      if (kind === "binary") return { p: [1 - beliefs.mean[at], beliefs.mean[at]] };
      if (kind === "category") return { p: beliefs.mean.slice(at, at + column.states.length) };
      return { mean: beliefs.mean[at], sd: Math.sqrt(beliefs.variance[at]) };
    });
  }

  exactIsCheap(values) {
    if (this.harmonium) return this.model.exactStates(this.evidence(values)) <= 4096;
    try {
      return this.model.run("exact", this.evidence(values)).entries <= 2 ** 18;
    } catch {
      return false;
    }
  }
}

/** Probabilities of the states that a column has; the model may have more. */
function shareOf(p) {
  const total = p.reduce((a, b) => a + b, 0);
  return p.map((x) => x / total);
}

export class TableView {
  constructor(root, model, payload) {
    Object.assign(this, { root, model, payload });
    this.columns = new Columns(model, payload);
    this.values = payload.columns.map(() => null);
    this.target = Math.max(
      0,
      payload.columns.findIndex((column) => column.name === payload.label),
    );
    const exact = this.columns.exactIsCheap(this.values) ? ["exact"] : [];
    this.methods = [...exact, "bp", "mf", "tap", "gibbs"].filter(
      (method) => !model.refusal(method),
    );
    this.primary = this.methods[0];
    this.answers = {};
    this.runs = new Runs(model, this.methods, (moved) => this._progress(moved), {
      gibbs: { iterations: 2000 },
    });
    this._build();
    this._restore(this.root.keep.read());
  }

  // ------------------------------------------------------------ the page

  _build() {
    const names = Object.fromEntries(this.methods.map((method) => [method, METHODS[method]]));
    const methods = choice("method", "Answers by", names, this.primary, (value) => {
      this.primary = value;
      this._drawAll();
      this._explain();
    });
    this.status = el("p", { class: "small", role: "status" });
    const clear = el("button", { type: "button", text: "Forget all", onclick: () => this.clear() });
    this.parts = this.columns.list.map((column, i) =>
      column.states.length ? new StatesPart(this, column, i) : new LinePart(this, column, i),
    );
    this.list = el("div", { class: "columns" }, ...this.parts.map((part) => part.node));
    const ticks = this.methods
      .filter((m) => m !== "gibbs")
      .map((method) => {
        const box = el("i", {});
        box.style.background = `var(--${method})`;
        return el("span", {}, box, METHODS[method]);
      });
    this.legend = el("div", { class: "legend" }, "Bars: the chosen method. Marks: ", ...ticks);
    const first = el(
      "section",
      { "aria-labelledby": "columns-title" },
      el("h2", { id: "columns-title", text: "Columns" }),
      el("p", {
        class: "small",
        text: "Choose what is known; the other bars are what the model expects then.",
      }),
      el("div", { class: "bar" }, methods, ...this._rowTools(), clear),
      this.legend,
      this.list,
      this.status,
    );
    this.view = el(
      "main",
      { class: "table-view" },
      first,
      el("aside", {}, this._changesPart(), this._couplings()),
    );
  }

  _rowTools() {
    const count = (this.payload.rows || []).length;
    if (!count) return [];
    this.row = -1;
    const name = el("span", { class: "small", text: `${count} rows` });
    const load = (step) => {
      this.row = this.row < 0 ? 0 : (this.row + step + count) % count;
      this.values = this.payload.rows[this.row].slice();
      name.textContent = `row ${this.row + 1} of ${count}`;
      this.ask();
    };
    return [
      el("button", {
        type: "button",
        text: "‹",
        "aria-label": "The row before",
        onclick: () => load(-1),
      }),
      el("button", {
        type: "button",
        text: "›",
        "aria-label": "The next row",
        onclick: () => load(1),
      }),
      name,
    ];
  }

  _changesPart() {
    this.changeTitle = el("h2", { id: "changes-title", text: "What would change this most?" });
    this.changeNote = el("p", { class: "small" });
    this.changes = el("ol", { class: "changes" });
    this.changesNode = el(
      "section",
      { "aria-labelledby": "changes-title" },
      this.changeTitle,
      this.changeNote,
      this.changes,
    );
    this.changesNode.hidden = Boolean(this.model.remote);
    return this.changesNode;
  }

  _couplings() {
    const pairs = this.payload.couplings || [];
    if (!pairs.length) return null;
    this.graph = new PullGraph(
      pairs,
      this.columns.list.map((c) => c.name),
    );
    this.couplingsNode = el(
      "section",
      { "aria-labelledby": "couplings-title" },
      el("h2", { id: "couplings-title", text: "What hangs together" }),
      el("p", {
        class: "small",
        text: "Columns that tell of each other where all others are known, thick where much. Pull a name, or move it by arrow keys.",
      }),
      this.graph.node,
      el(
        "div",
        { class: "legend" },
        this._line("together", "var(--bp)", ""),
        this._line("apart", "var(--mf)", "5 3"),
        this._line("without a sign", "var(--exact)", ""),
      ),
    );
    return this.couplingsNode;
  }

  _line(text, colour, dash) {
    return el(
      "span",
      {},
      svgEl(
        "svg",
        { width: "28", height: "8", "aria-hidden": "true" },
        svgEl("line", {
          x1: 0,
          x2: 28,
          y1: 4,
          y2: 4,
          stroke: colour,
          "stroke-width": 3,
          "stroke-dasharray": dash,
        }),
      ),
      text,
    );
  }

  // ------------------------------------------------------------ questions

  set(i, value) {
    this.values[i] = value;
    this.ask();
  }

  clear() {
    this.values.fill(null);
    this.ask();
  }

  ask() {
    this.runs.first = this.primary;
    this.runs.ask(this.columns.evidence(this.values));
    this.explained = false;
    this.parts.forEach((part) => part.mark());
    clearTimeout(this.saving);
    this.saving = setTimeout(() => this.root.keep.write(this.state()), 300);
  }

  _progress(moved) {
    for (const method of moved) {
      const run = this.runs.runs[method];
      if (!run.refused) this.answers[method] = this.columns.answers(run.beliefs());
    }
    this._drawAll();
    if (this.runs.runs[this.primary]?.done && !this.explained) this._explain();
  }

  _drawAll() {
    const own = this.answers[this.primary];
    if (!own) return;
    const others = this.methods.filter(
      (m) => m !== "gibbs" && m !== this.primary && this.answers[m] && !this.runs.runs[m]?.refused,
    );
    this.parts.forEach((part, i) =>
      part.draw(
        own[i],
        others.map((m) => [m, this.answers[m][i]]),
      ),
    );
    const run = this.runs.runs[this.primary];
    if (!run) return;
    if (run.done && run.logZ) run.value ??= run.logZ();
    const logZ = run.value ?? NaN;
    this.status.textContent = `${METHODS[this.primary]}: ${statusOf(run)}${Number.isFinite(logZ) ? `; log weight of what is known ${digits(logZ)}` : ""}`;
  }

  // ------------------------------------------------------------ what would change this most

  aim(i) {
    this.target = i;
    this.parts.forEach((part) => part.mark());
    this._explain();
  }

  /** The answer about the target column with one more cell known. */
  _answerWith(method, i, value) {
    const values = this.values.slice();
    values[i] = value;
    values[this.target] = null;
    try {
      const run = this.model
        .run(method, this.columns.evidence(values), { iterations: 60 })
        .settle(40);
      return this.columns.answers(run.beliefs())[this.target];
    } catch {
      return null;
    }
  }

  /** Values that a column could be set to: other states, or its expected spread up and down. */
  _alternatives(i) {
    const column = this.columns.list[i];
    if (column.states.length) {
      return column.states
        .map((word, s) => [s, word])
        .filter(([s]) => s !== this.values[i])
        .slice(0, 12);
    }
    const { mean, sd } = this.answers[this.primary][i],
      [at, step] = this.values[i] === null ? [mean, sd] : [this.values[i], 1];
    return [at - step, at + step]
      .filter((x) => column.kind !== "nonnegative" || x >= 0)
      .map((x) => [x, column.text(x)]);
  }

  /** One column after the other, between frames, so that the page stays quick. */
  _explain() {
    if (this.model.remote) return;
    this.explained = true;
    const method = this.primary === "gibbs" ? "bp" : this.primary,
      target = this.columns.list[this.target];
    this.changeTitle.textContent = `What would change “${target.name}” most?`;
    const token = (this.token = {}),
      found = [];
    const before = this._answerWith(method, this.target, null);
    if (!before) return;
    const queue = this.columns.list.map((_, i) => i).filter((i) => i !== this.target);
    const next = () => {
      if (this.token !== token || !this.root.isConnected) return;
      const until = performance.now() + 10;
      while (queue.length && performance.now() < until)
        this._tryColumn(method, queue.shift(), before, found);
      found.sort((a, b) => b.size - a.size);
      if (!queue.length) this._showChanges(target, before, found.slice(0, 8));
      else requestAnimationFrame(next);
    };
    next();
  }

  _tryColumn(method, i, before, found) {
    let best = null;
    for (const [value, word] of this._alternatives(i)) {
      const after = this._answerWith(method, i, value);
      if (!after) continue;
      const size = before.p
        ? before.p.reduce((sum, p, s) => sum + Math.abs(after.p[s] - p), 0) / 2
        : Math.abs(after.mean - before.mean);
      if (!best || size > best.size) best = { i, word, after, size };
    }
    if (best) found.push(best);
  }

  _showChanges(target, before, found) {
    const state = before.p ? this._focusState(before.p) : 0;
    this.changeNote.textContent = before.p
      ? `Probability of “${target.states[state]}”, now ${percent(before.p[state])} without its own cell.`
      : `Expected ${target.text(before.mean)} now, without its own cell.`;
    const rows = found.map(({ i, word, after }) => {
      const name = this.columns.list[i].name,
        own = this.values[i] === null ? "were" : "were instead";
      const said = before.p ? percent(after.p[state]) : target.text(after.mean);
      const [a, b] = before.p
        ? [before.p[state], after.p[state]]
        : [before.mean, after.mean].map((x) => 0.5 + x / 6);
      const fill = el("i", {}),
        [low, high] = [Math.min(a, b), Math.max(a, b)].map((x) => Math.min(Math.max(x, 0), 1));
      Object.assign(fill.style, {
        left: `${100 * low}%`,
        width: `${Math.max(100 * (high - low), 0.6)}%`,
        background: b > a ? "var(--bp)" : "var(--mf)",
      });
      return el(
        "li",
        {},
        el("span", {}, "if ", el("b", { text: name }), ` ${own} ${word}`),
        el("span", { text: `${b > a ? "▲" : "▼"} ${said}` }),
        el("span", { class: "track", "aria-hidden": "true" }, fill),
      );
    });
    this.changes.replaceChildren(...rows);
  }

  /** The state whose probability is followed: the known one, else "true", else the most probable. */
  _focusState(p) {
    if (this.values[this.target] !== null) return this.values[this.target];
    if (p.length === 2) return 1;
    return p.indexOf(Math.max(...p));
  }

  // ------------------------------------------------------------ state and tour

  state() {
    return { values: this.values, method: this.primary, target: this.target };
  }

  _restore(state) {
    const fits = (value, i) => {
      const { states, kind } = this.columns.list[i];
      if (value === null) return true;
      if (states.length) return Number.isInteger(value) && value >= 0 && value < states.length;
      return Number.isFinite(value) && (kind !== "nonnegative" || value >= 0);
    };
    if (
      state &&
      Array.isArray(state.values) &&
      state.values.length === this.values.length &&
      state.values.every(fits)
    ) {
      this.values = state.values;
      if (this.methods.includes(state.method)) {
        this.primary = state.method;
        this.view.querySelector(`input[data-choice="method"][value="${state.method}"]`).checked =
          true;
      }
      if (this.values[state.target] !== undefined) this.target = state.target;
    }
    this.ask();
  }

  tour() {
    const steps = [
      {
        title: "A model of a table",
        target: this.parts[0].node,
        text: "Every column of the table stands here with its own words. The bars say how probable the model takes each of them to be.",
      },
      {
        title: "Tell it something",
        target: this.list,
        text: "Choose a word and it becomes known, in blue. All other bars move: that is what the model expects of a row with this cell. “Forget” makes a cell unknown again.",
      },
      {
        title: "How sure is the method?",
        target: this.legend,
        text: "The coloured marks are other methods. Where they stand together, the answer does not depend on the method; where they are apart, take the exact one if it is there.",
      },
      {
        title: "What would change this most?",
        target: this.changesNode,
        text: "Press “Why?” at a column. The model tries every other cell, one at a time, and lists those that would change its answer most.",
      },
    ];
    if (this.couplingsNode)
      steps.push({
        title: "What hangs together",
        target: this.couplingsNode,
        text: "The strongest direct couplings. A line says that two columns move together, or apart, when all the others are held.",
      });
    return steps;
  }
}

/** What controls of all kinds share: the name of the column and its two buttons. */
class Part {
  constructor(view, column, index, body) {
    Object.assign(this, { view, column, index });
    this.forget = el("button", {
      type: "button",
      class: "quiet",
      text: "Forget",
      "aria-label": `Forget ${column.name}`,
      onclick: () => view.set(index, null),
    });
    this.why = el("button", {
      type: "button",
      class: "quiet",
      text: "Why?",
      "aria-label": `Why? What would change ${column.name} most?`,
      onclick: () => view.aim(index),
    });
    this.why.hidden = Boolean(view.model.remote);
    this.node = el(
      "fieldset",
      { class: "column" },
      el("legend", { text: column.name }),
      el("span", { class: "actions" }, this.forget, this.why),
      body,
    );
  }

  mark() {
    const known = this.view.values[this.index] !== null;
    this.node.classList.toggle("known", known);
    this.forget.disabled = !known;
    this.why.setAttribute("aria-pressed", String(this.view.target === this.index));
    this.why.style.fontWeight = this.view.target === this.index ? "700" : "";
  }
}

/** A column of states: radio buttons with a bar behind each; a list beside the top ones if many. */
class StatesPart extends Part {
  constructor(view, column, index) {
    const body = el("div", { class: "states" });
    super(view, column, index, body);
    this.body = body;
    this.name = unique("column");
    this.many = column.states.length > MANY;
    this.rows = [];
    if (this.many) {
      const options = column.states.map((word, s) =>
        el("option", { value: String(s), text: word }),
      );
      this.select = el(
        "select",
        {
          "aria-label": column.name,
          onchange: (event) =>
            view.set(index, event.target.value === "" ? null : Number(event.target.value)),
        },
        el("option", { value: "", text: "unknown" }),
        ...options,
      );
      body.append(this.select);
    }
    const shown = this.many ? 5 : column.states.length;
    for (let k = 0; k < shown; k++) this._row(k);
  }

  _row(k) {
    const row = {
      state: k,
      fill: el("span", { class: "fill" }),
      word: el("span", { class: "word", text: this.column.states[k] }),
      share: el("span", { class: "share" }),
      ticks: {},
    };
    row.input = this.many
      ? null
      : el("input", {
          type: "radio",
          name: this.name,
          value: String(k),
          onchange: () => this.view.set(this.index, k),
        });
    row.node = el(
      this.many ? "div" : "label",
      { class: "state" },
      row.fill,
      row.input,
      row.word,
      row.share,
    );
    this.rows.push(row);
    this.body.append(row.node);
  }

  mark() {
    super.mark();
    const value = this.view.values[this.index];
    if (this.many) this.select.value = value === null ? "" : String(value);
    else this.rows.forEach((row) => (row.input.checked = row.state === value));
  }

  draw(answer, others) {
    if (this.many) {
      const top = [...answer.p.keys()].sort((a, b) => answer.p[b] - answer.p[a]);
      this.rows.forEach((row, k) => {
        row.state = top[k];
        row.word.textContent = this.column.states[top[k]];
      });
    }
    for (const row of this.rows) {
      row.fill.style.transform = `scaleX(${answer.p[row.state]})`;
      row.share.textContent = percent(answer.p[row.state]);
      for (const tick of Object.values(row.ticks)) tick.hidden = true;
      if (this.view.values[this.index] !== null) continue;
      for (const [method, other] of others) this._tick(row, method, other.p[row.state]);
    }
  }

  _tick(row, method, p) {
    if (!row.ticks[method]) {
      row.ticks[method] = el("span", { class: "tick", "aria-hidden": "true" });
      row.ticks[method].style.background = `var(--${method})`;
      row.node.append(row.ticks[method]);
    }
    row.ticks[method].hidden = false;
    row.ticks[method].style.left = `min(${100 * p}%, calc(100% - 2px))`;
  }
}

/** A column of numbers: a slider, and the expected value with its spread. */
class LinePart extends Part {
  constructor(view, column, index) {
    const body = el("div", { class: "line-answer" });
    super(view, column, index, body);
    this.low = column.kind === "nonnegative" ? 0 : -3.5;
    this.high = column.kind === "nonnegative" ? 4 : 3.5;
    this.slider = el("input", {
      type: "range",
      min: String(this.low),
      max: String(this.high),
      step: "0.01",
      "aria-label": column.name,
      oninput: (event) => view.set(index, Number(event.target.value)),
    });
    this.said = el("span", { class: "said" });
    this.band = svgEl("rect", { y: 10, height: 12, fill: "var(--soft)" });
    this.mean = svgEl("rect", { y: 4, height: 24, width: 3, fill: "var(--accent)" });
    this.marks = svgEl("g", {});
    this.svg = svgEl(
      "svg",
      { viewBox: "0 0 300 32", preserveAspectRatio: "none", "aria-hidden": "true" },
      svgEl("rect", { x: 0, y: 15, width: 300, height: 2, fill: "var(--rule)" }),
      this.band,
      this.marks,
      this.mean,
    );
    body.append(this.said, this.svg, this.slider);
  }

  _at(x) {
    return Math.min(Math.max((300 * (x - this.low)) / (this.high - this.low), 0), 297);
  }

  draw({ mean, sd }, others) {
    const value = this.view.values[this.index],
      known = value !== null,
      text = this.column.text;
    const [a, b] = known
      ? [value, value]
      : [mean - sd, mean + sd].map((x) => Math.max(x, this.low));
    this.band.setAttribute("x", this._at(a));
    this.band.setAttribute("width", Math.max(this._at(b) - this._at(a), 0));
    this.mean.setAttribute("x", this._at(known ? value : mean));
    this.said.textContent = known
      ? `${text(value)} (known)`
      : `${text(mean)} ± ${digits(sd * this.column.scale, 3)}`;
    this.slider.setAttribute("aria-valuetext", this.said.textContent);
    if (this.slider.getRootNode().activeElement !== this.slider || !known)
      this.slider.value = String(known ? value : mean);
    this.marks.replaceChildren(
      ...(known
        ? []
        : others.map(([method, o]) =>
            svgEl("rect", {
              x: this._at(o.mean),
              y: 8,
              width: 2,
              height: 16,
              fill: `var(--${method})`,
            }),
          )),
    );
  }
}

/** A graph of names that springs hold together and that can be pulled. */
class PullGraph {
  constructor(pairs, names) {
    const used = [...new Set(pairs.flatMap(([a, b]) => [a, b]))];
    const place = new Map(used.map((v, k) => [v, k]));
    const places = layout(
      used.length,
      pairs.map(([a, b]) => [place.get(a), place.get(b)]),
      440,
      384,
      48,
    );
    this.nodes = used.map((v, k) => ({ name: names[v], ...places[k] }));
    const most = Math.max(...pairs.map(([, , size]) => Math.abs(size)));
    this.edges = pairs.map(([a, b, size, signed]) => ({
      a: place.get(a),
      b: place.get(b),
      size: Math.abs(size) / most,
      sign: signed ? Math.sign(size) : 0,
      value: size,
    }));
    this._build();
  }

  /** Move a node; what it tells of follows, the more the more it tells. */
  _pull(i, dx, dy) {
    const shift = (node, x, y) => {
      node.x = Math.min(Math.max(node.x + x, 24), 416);
      node.y = Math.min(Math.max(node.y + y, 18), 370);
    };
    shift(this.nodes[i], dx, dy);
    for (const { a, b, size } of this.edges) {
      if (a === i || b === i) shift(this.nodes[a === i ? b : a], 0.4 * size * dx, 0.4 * size * dy);
    }
    this._place();
  }

  _build() {
    this.lines = this.edges.map((edge) => {
      const colour = edge.sign > 0 ? "var(--bp)" : edge.sign < 0 ? "var(--mf)" : "var(--exact)";
      return svgEl(
        "line",
        {
          stroke: colour,
          "stroke-width": 0.8 + 5 * edge.size,
          "stroke-dasharray": edge.sign < 0 ? "6 4" : null,
          "stroke-opacity": 0.35 + 0.55 * edge.size,
        },
        svgEl("title", {
          text: `${this.nodes[edge.a].name} – ${this.nodes[edge.b].name}: ${digits(Math.abs(edge.value), 3)} bits`,
        }),
      );
    });
    this.groups = this.nodes.map((node, i) => {
      const short = node.name.length > 18 ? `${node.name.slice(0, 17)}…` : node.name;
      return svgEl(
        "g",
        {
          class: "node",
          tabindex: "0",
          role: "button",
          "aria-label": `${node.name}: ${this._near(i)}`,
          onpointerdown: (event) => this._grab(event, i),
          onkeydown: (event) => this._key(event, i),
        },
        svgEl("circle", { r: 5, fill: "var(--ink)" }),
        svgEl("text", { class: "halo", y: -9, "text-anchor": "middle", text: short }),
      );
    });
    this.svg = svgEl(
      "svg",
      { viewBox: "0 0 440 384", role: "group", "aria-label": "Graph of the columns that tell of each other" },
      ...this.lines,
      ...this.groups,
    );
    this.node = el("div", { class: "graph" }, this.svg);
    this._place();
  }

  /** What a node tells most of, in words. */
  _near(i) {
    const own = this.edges
      .filter((e) => e.a === i || e.b === i)
      .sort((x, y) => y.size - x.size)
      .slice(0, 3);
    return own
      .map((e) => `${e.sign < 0 ? "apart from" : "with"} ${this.nodes[e.a === i ? e.b : e.a].name}`)
      .join(", ");
  }

  _place() {
    this.edges.forEach(({ a, b }, k) => {
      const [from, to] = [this.nodes[a], this.nodes[b]];
      for (const [name, value] of Object.entries({ x1: from.x, y1: from.y, x2: to.x, y2: to.y }))
        this.lines[k].setAttribute(name, value.toFixed(1));
    });
    this.nodes.forEach((node, i) =>
      this.groups[i].setAttribute(
        "transform",
        `translate(${node.x.toFixed(1)} ${node.y.toFixed(1)})`,
      ),
    );
  }

  _grab(event, i) {
    event.preventDefault();
    const group = this.groups[i],
      scale = 440 / this.svg.getBoundingClientRect().width;
    group.focus();
    group.setPointerCapture(event.pointerId);
    let last = event;
    const move = (e) => {
      this._pull(i, scale * (e.clientX - last.clientX), scale * (e.clientY - last.clientY));
      last = e;
    };
    const drop = () => group.removeEventListener("pointermove", move);
    group.addEventListener("pointermove", move);
    group.addEventListener("pointerup", drop, { once: true });
    group.addEventListener("pointercancel", drop, { once: true });
  }

  _key(event, i) {
    const moves = {
      ArrowLeft: [-12, 0],
      ArrowRight: [12, 0],
      ArrowUp: [0, -12],
      ArrowDown: [0, 12],
    };
    if (!moves[event.key]) return;
    event.preventDefault();
    this._pull(i, ...moves[event.key]);
  }
}
