/** How learning went: one measure of the run at a time, and a slider along its steps. */

import { choice, digits, el, svgEl } from "./dom.js";

const WORDS = {
  validation: "Held-out score",
  surrogate: "Surrogate",
  loss: "Loss",
  log_z: "log Z",
};

/** The section of a history {name: [[step, value], ...]}. */
export function learningPart(history) {
  const names = Object.keys(history);
  let name = names.includes("validation") ? "validation" : names[0];
  const told = el("p", { class: "small", role: "status" });
  const curve = svgEl("svg", { class: "curve", viewBox: "0 0 360 140", role: "img" });
  const slider = el("input", {
    type: "range",
    min: "0",
    "aria-label": "Step of learning",
    oninput: () => mark(Number(slider.value)),
  });
  const mark = (at) => {
    const points = history[name],
      [step, value] = points[at];
    const text = `${WORDS[name] || name} at step ${step}: ${digits(value)}`;
    told.textContent = text;
    slider.setAttribute("aria-valuetext", text);
    drawLearning(curve, points, at);
  };
  const show = (chosen) => {
    name = chosen;
    curve.setAttribute("aria-label", `${WORDS[name] || name} over the steps of learning`);
    slider.max = String(history[name].length - 1);
    slider.value = slider.max;
    mark(history[name].length - 1);
  };
  const words = Object.fromEntries(names.map((key) => [key, WORDS[key] || key]));
  const title = el("h2", { id: "learning-title", text: "How it learned" });
  const bar = el("div", { class: "bar" }, choice("measure", "Measure", words, name, show));
  show(name);
  const attributes = { class: "learning", "aria-labelledby": "learning-title" };
  return el("section", attributes, title, bar, curve, slider, told);
}

/** The points as a line over their range, the chosen one as a dot. */
function drawLearning(svg, points, at) {
  const values = points.map(([, value]) => value),
    [low, high] = [Math.min(...values), Math.max(...values)];
  const last = Math.max(points.at(-1)[0], 1),
    range = high - low || 1;
  const x = (step) => 8 + (344 * step) / last,
    y = (value) => 116 - (100 * (value - low)) / range;
  const line = points.map(([s, v], k) => `${k ? "L" : "M"}${x(s).toFixed(1)} ${y(v).toFixed(1)}`);
  const rule = { x1: 8, x2: 352, stroke: "var(--rule)" };
  svg.replaceChildren(
    svgEl("line", { ...rule, y1: 16, y2: 16 }),
    svgEl("line", { ...rule, y1: 116, y2: 116 }),
    svgEl("text", { class: "halo", x: 8, y: 12, text: digits(high) }),
    svgEl("text", { x: 8, y: 132, text: digits(low) }),
    svgEl("text", { x: 352, y: 132, "text-anchor": "end", text: `step ${last}` }),
    svgEl("path", { d: line.join(""), fill: "none", stroke: "var(--bp)", "stroke-width": 2 }),
    svgEl("circle", { cx: x(points[at][0]), cy: y(points[at][1]), r: 4, fill: "var(--mf)" }),
  );
}
