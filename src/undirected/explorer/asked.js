/** A network that stays with its engine: its variables as a list, what is known, what follows. */

import { askEngine } from "./remote.js";
import { choice, digits, el, percent } from "./dom.js";

const SHOWN = 60; // lines of the list
const ORDERS = { file: "As declared", unsure: "Least certain", moved: "Changed most" };

export class AskedView {
  constructor(root, _, payload) {
    Object.assign(this, { root, variables: payload.variables, order: "file", sought: "" });
    this.known = new Array(this.variables.length).fill(null);
    this._build();
    this._restore(root.keep.read());
    this.ask();
  }

  name(v) {
    return this.variables[v][0];
  }

  // ------------------------------------------------------------ the page

  _build() {
    const search = el("input", {
      type: "search",
      "aria-label": "Find variables by name",
      placeholder: "Find a variable",
      oninput: (event) => {
        this.sought = event.target.value.trim().toLowerCase();
        this._list();
      },
    });
    this.tools = el(
      "div",
      { class: "bar" },
      search,
      choice("order", "Order", ORDERS, this.order, (value) => {
        this.order = value;
        this._list();
      }),
      el("button", { type: "button", text: "Forget all", onclick: () => this.know({}) }),
    );
    this.count = el("p", { class: "small" });
    this.table = el("table", { class: "numbers asked" });
    const scroll = { class: "scroll", tabindex: "0", role: "region", "aria-label": "Variables" };
    this.list = el("div", scroll, this.table);
    const left = el(
      "section",
      { "aria-labelledby": "variables-title" },
      el("h2", { id: "variables-title", text: "Variables" }),
      this.tools,
      this.count,
      this.list,
    );
    this.view = el("main", { class: "network-view" }, left, this._answerPart());
  }

  _answerPart() {
    this.standing = el("p", { class: "small", role: "status" });
    this.complaint = el("p", { class: "complaint", role: "alert" });
    this.logs = el("table", { class: "numbers" });
    this.answerNode = el(
      "section",
      { "aria-labelledby": "answer-title" },
      el("h2", { id: "answer-title", text: "The answer" }),
      this.standing,
      this.complaint,
      this.logs,
    );
    return el("aside", {}, this.answerNode);
  }

  // ------------------------------------------------------------ questions

  /** Make some variables known, {number: state}, and all others unknown. */
  know(evidence) {
    this.known.fill(null);
    for (const [v, state] of Object.entries(evidence)) this.known[v] = state;
    this._list();
    this.ask();
  }

  _set(v, text) {
    this.known[v] = text === "" ? null : Number(text);
    this.ask();
  }

  /** A question; an older one that waits is given up. */
  async ask() {
    this.asking?.abort();
    const own = (this.asking = new AbortController());
    this.root.keep.write(this.state());
    this.settled = false;
    this.standing.textContent = "The engine is at work.";
    try {
      const found = await askEngine({ method: "solve", visible: this.known }, own.signal);
      this.answer = found;
      this.first ??= this.known.every((x) => x === null) ? found.marginals : undefined;
      this.complaint.textContent = "";
      this._tell();
      this._list();
    } catch (error) {
      if (own.signal.aborted) return;
      this.standing.textContent = "";
      this.complaint.textContent = `No answer: ${error.message}`;
    }
    this.settled = true;
  }

  _tell() {
    const { exact, method, seconds, logZ, lower, upper } = this.answer;
    const how = exact ? "Exact" : "Approximate";
    this.standing.textContent = `${how}, by ${method}, in ${digits(seconds, 2)} s.`;
    const rows = [["log Z, with what is known", logZ]];
    if (!exact) rows.push(["not below", lower], ["not above", upper]);
    this.logs.replaceChildren(
      el("caption", { class: "unseen", text: "log Z" }),
      el(
        "tbody",
        {},
        ...rows.map(([label, x]) =>
          el(
            "tr",
            {},
            el("th", { scope: "row", text: label }),
            el("td", { text: digits(x ?? NaN, 7) }),
          ),
        ),
      ),
    );
  }

  // ------------------------------------------------------------ the list

  /** Numbers of the variables to show: those that are known, then the others in the order chosen. */
  _numbers() {
    const found = [],
      marginals = this.answer?.marginals;
    for (let v = 0; v < this.variables.length; v++)
      if (String(this.name(v)).toLowerCase().includes(this.sought)) found.push(v);
    const score = {
      file: () => 0,
      unsure: (v) => (marginals ? Math.max(...marginals[v]) : 0),
      moved: (v) => -this._moved(v),
    }[this.order];
    const free = (v) => (this.known[v] === null ? 1 : 0);
    const keys = new Map(found.map((v) => [v, score(v)]));
    return found.sort((a, b) => free(a) - free(b) || keys.get(a) - keys.get(b) || a - b);
  }

  /** How far the marginal is from what it was before anything was known. */
  _moved(v) {
    if (!this.first || !this.answer) return 0;
    return Math.max(...this.answer.marginals[v].map((p, s) => Math.abs(p - this.first[v][s])));
  }

  _list() {
    const numbers = this._numbers(),
      shown = numbers.slice(0, SHOWN);
    this.count.textContent =
      numbers.length > shown.length
        ? `${shown.length} of ${numbers.length} variables; search for others.`
        : `${numbers.length} of ${this.variables.length} variables.`;
    const heads = ["variable", "known", "most probable", "p", "before"];
    const focused = this.table.contains(document.activeElement) ? document.activeElement : null;
    this.table.replaceChildren(
      el("caption", { class: "unseen", text: "Variables, what is known of them, what follows" }),
      el("thead", {}, el("tr", {}, ...heads.map((text) => el("th", { scope: "col", text })))),
      el("tbody", {}, ...shown.map((v) => this._row(v))),
    );
    if (focused) this.table.querySelector(`[data-variable="${focused.dataset.variable}"]`)?.focus();
  }

  _row(v) {
    const [name, states] = this.variables[v],
      p = this.answer?.marginals[v];
    const known = el(
      "select",
      {
        "aria-label": `What is known of ${name}`,
        "data-variable": v,
        onchange: (event) => this._set(v, event.target.value),
      },
      el("option", { value: "", text: "unknown" }),
      ...states.map((text, s) =>
        el("option", { value: String(s), text, selected: this.known[v] === s }),
      ),
    );
    const best = p ? p.indexOf(Math.max(...p)) : -1;
    const cells = p
      ? [states[best], percent(p[best]), this.first ? percent(this.first[v][best]) : "–"]
      : ["–", "–", "–"];
    return el(
      "tr",
      {},
      el("th", { scope: "row", text: name }),
      el("td", {}, known),
      ...cells.map((text) => el("td", { text })),
    );
  }

  // ------------------------------------------------------------ state and tour

  state() {
    const pairs = this.known.map((state, v) => [v, state]).filter(([, state]) => state !== null);
    return { evidence: Object.fromEntries(pairs) };
  }

  _restore(state) {
    for (const [v, s] of Object.entries(state?.evidence || {}))
      if (Number.isInteger(s) && s >= 0 && s < (this.variables[v]?.[1].length ?? 0))
        this.known[v] = s;
    this._list();
  }

  tour() {
    return [
      {
        title: "Variables",
        target: this.list,
        text: "Every line is a variable of the network. Say what is known of one, and what follows for the others is asked at once.",
      },
      {
        title: "Find and order",
        target: this.tools,
        text: "Search by name, or put those first that are least certain, or that your evidence has changed most.",
      },
      {
        title: "The answer",
        target: this.answerNode,
        text: "Where the network allows it, the answer is exact. Otherwise it is as good as two seconds allow, and says so.",
      },
    ];
  }
}
