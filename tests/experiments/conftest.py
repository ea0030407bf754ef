"""A small paper of its own for the tests, found beside the real ones."""

import sys
from pathlib import Path

import pytest

from undirected import papers

TABLE1 = '''
"""Table 1 of a paper that does not exist."""
import json, pathlib
import numpy as np
from undirected.experiments.record import Outcome, Row, curve

TITLE = "Toy table 1"
CONFIG = {
    "smoke": {"steps": 2, "rate": 0.1, "name": "toy", "fast": True, "sizes": [3, 4],
              "model": {"hidden": 5, "bias": None}},
    "full": {"steps": 200, "rate": 0.1, "name": "toy", "fast": True, "sizes": [300, 400],
             "model": {"hidden": 500, "bias": None}},
}
CALLS = []
FAIL = {"at": None}


def train(config, seed):
    CALLS.append("train")
    rng = np.random.default_rng(seed)
    return {"file": rng.normal(size=(config["steps"], 2)), "mean": np.float64(0.5)}


def score(config, model):
    CALLS.append("score")
    if FAIL["at"] == "score":
        raise KeyboardInterrupt
    return [Row("toy", "ours", "error", model["file"].sum(), better="lower"),
            Row("toy", "theirs", "error", float("nan"), paper=2.0, better="lower")]


def run(config, seed, context):
    config["steps"] += 0
    model = context.stage("train / a", lambda: train(config, seed))
    context.progress("half-way", 0.5)
    rows = context.stage("score", lambda: score(config, model))
    extra = context.stage("extra", lambda: {"numbers": [1, 2], "kept": None})
    (context.out / "grid.png").write_bytes(b"PNG")
    config["steps"] = -1
    return Outcome(
        rows,
        curves=[curve("loss", "step", "nats", {"toy": ([0, 1], [1.0, 0.5])})],
        images=[{"name": "grid", "caption": "A grid", "file": "grid.png"}],
        notes=[json.dumps(extra)],
    )
'''

TOGETHER = """
from undirected.experiments.record import Outcome, Row
TITLE = "Seeds learned side by side"
CONFIG = {"smoke": {"offset": 10}}
CALLS = []
COUNT = {"more": 0}
def run(config, seed, context):
    CALLS.append(seed)
    return [Row("a", "b", "c", config["offset"] + seed, better="higher")]
def run_seeds(config, seeds, context):
    CALLS.append(tuple(seeds))
    found = context.stage("learn", lambda: [config["offset"] + seed for seed in seeds])
    rows = [[Row("a", "b", "c", value, better="higher")] for value in found]
    return [*rows, *[rows[0]] * COUNT["more"]]
"""

REPEATED = """
from undirected.experiments.record import Row
TITLE = "Averages over runs by itself"
CONFIG = {"smoke": {"data": {"runs": 2}}}
REPEATS = "data.runs"
CALLS = []
def run(config, seed, context):
    CALLS.append(seed)
    values = [seed + 0.5 * i for i in range(config["data"]["runs"])]
    return [Row.over_runs("a", "b", "c", values, better="higher")]
"""

PARTED = """
from undirected.experiments.record import Outcome, Row, curve
TITLE = "Cases and methods that may be run apart"
CONFIG = {"smoke": {"cases": ["x", "y"], "methods": ["a", "b", "c"], "offset": 0}}
PARTS = ("cases", "methods")
CALLS, WAIT, SAME = [], [], {"row": False}
def learn(method):
    CALLS.append(method)
    for wait in WAIT:
        wait()
    return [ord(method)]
def run(config, seed, context):
    values = {m: context.stage("learn " + m, lambda: learn(m))[0] for m in config["methods"]}
    rows = [Row(c, m, "v", ord(c) * values[m] + config["offset"], better="higher")
            for c in config["cases"] for m in config["methods"]]
    rows += [Row("x", "same", "v", 0.0, better="higher")] * SAME["row"]
    (context.out / "one.png").write_bytes(b"PNG")
    lines = {m: ([0, 1], [0, values[m]]) for m in config["methods"]}
    caption = "of " + ", ".join(config["methods"])
    return Outcome(rows, curves=[curve("loss", "step", "nats", lines)],
                   images=[{"name": "one", "caption": caption, "file": "one.png"}])
"""

TABLE2 = """
from undirected.experiments.record import Row
TITLE = "Toy table 2"
CONFIG = {"smoke": {}}
def run(config, seed, context):
    return [Row("a", "b", "c", seed, better="higher")]
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Adds the papers `toy-paper`, `toy-seeds` and `toy-broken` to the registry."""
    root = tmp_path / "papers"
    files = {
        "toy_paper/__init__.py": "",
        "toy_paper/_common.py": "",
        "toy_paper/table1.py": TABLE1,
        "toy_paper/table2.py": TABLE2,
        "toy_seeds/__init__.py": "",
        "toy_seeds/together.py": TOGETHER,
        "toy_seeds/repeated.py": REPEATED,
        "toy_seeds/parted.py": PARTED,
        "toy_paper/figure_3.py": "raise RuntimeError('finding must not import')",
        "toy_broken/__init__.py": "",
        "toy_broken/bare.py": "TITLE = 'no run'",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    monkeypatch.setattr(papers, "__path__", [*papers.__path__, str(root)])
    yield root
    for name in [name for name in sys.modules if name.startswith("undirected.papers.toy_")]:
        del sys.modules[name]
    for paper in ("toy_paper", "toy_seeds", "toy_broken"):
        if hasattr(papers, paper):
            delattr(papers, paper)
