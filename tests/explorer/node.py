"""Ask the page's inference module by node: one process for many questions."""

import json
import shutil
import subprocess
from importlib import resources

import numpy as np
import pytest

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed")

ASK = """
import { readFileSync } from "node:fs";
import * as inference from "./inference.mjs";
const { modelOf, parseUai, completion } = inference;

function told(question) {
  if (question.uai !== undefined) {
    try {
      const { cards, scopes, tables } = parseUai(question.uai, question.limits);
      return { cards, scopes, tables: tables.map((t) => Array.from(t)) };
    } catch (error) {
      return { error: error.message };
    }
  }
  const model = modelOf(question.model);
  if (question.vectors !== undefined) model.vectors = question.vectors;
  if (question.rectified) return question.rectified.map(([l, r]) => inference.rectified(l, r));
  const evidence = question.evidence || {};
  if (question.refusal) return model.refusal(question.refusal);
  if (question.completion) {
    const found = completion(model, evidence, question.completion);
    return { x: Array.from(found.x), value: found.value };
  }
  const options = question.options || {};
  let run;
  try {
    run = model.run(question.method, evidence, options);
  } catch (error) {
    if (question.refused) return { refused: error.message };
    throw error;
  }
  // Another run on the same model, advanced in turn with the first, which must not notice.
  const other = question.beside && model.run(question.method, question.beside, options);
  if (question.best) return run.best();
  if (question.rounds) {
    for (let i = 0; i < question.rounds; i++) {
      other?.step();
      run.step();
    }
  }
  else run.settle();
  other?.step();
  const beliefs = run.beliefs();
  const list = (v) => (ArrayBuffer.isView(v) ? Array.from(v) : v.map((p) => Array.from(p)));
  const plain = Object.fromEntries(Object.entries(beliefs).map(([k, v]) => [k, list(v)]));
  return { ...plain, logZ: run.logZ(), rounds: run.rounds, converged: run.converged };
}

const questions = JSON.parse(readFileSync(0, "utf-8"));
process.stdout.write(JSON.stringify(questions.map(told)));
"""


def ask(folder, questions):
    """The answers of the module to many questions."""
    return run_node(folder, ASK, questions)


def run_node(folder, script, told):
    """What a script with the page's modules beside it prints, given `told` on its input."""
    for name in ("kernels", "inference", "dom"):
        source = resources.files("undirected.explorer").joinpath(f"{name}.js").read_text("utf-8")
        source = source.replace('.js";', '.mjs";')
        (folder / f"{name}.mjs").write_text(source, encoding="utf-8")
    (folder / "ask.mjs").write_text(script, encoding="utf-8")
    assert NODE is not None
    done = subprocess.run(
        [NODE, str(folder / "ask.mjs")],
        input=json.dumps(told),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def evidence_of(row):
    """The evidence of a row, NaN where a variable is not known."""
    return {"visible": [None if np.isnan(x) else float(x) for x in row]}
