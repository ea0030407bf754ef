"""How fast belief propagation is: against the paper's equations in NumPy, and against PGMax.

PGMax needs an old JAX and so an environment of its own: name its Python in the environment variable
`UNDIRECTED_PGMAX`, or the rows are left out and the record says so.
"""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from undirected.core.errors import UndirectedError
from undirected.core.potentials import batch_axes, shift
from undirected.experiments.record import Outcome, Row
from undirected.experiments.stages import Context
from undirected.inference import SumProduct
from undirected.models import RBM

TITLE = "Speed of belief propagation"
_FULL = {
    "shape": [1000, 500],
    "iterations": 10,
    "repeats": 7,
    "large": [10_000, 2_000],
    "batch": 128,
    "batch_shape": [784, 256],
    "batch_iterations": 20,
}
CONFIG: dict[str, dict[str, Any]] = {
    "smoke": _FULL
    | {"shape": [40, 20], "repeats": 1, "large": [60, 30], "batch": 4, "batch_shape": [30, 20]},
    "quick": _FULL | {"batch": 16, "large": [4_000, 1_000]},
    "full": _FULL,
}
VARIABLE = "UNDIRECTED_PGMAX"
_GATHERED = 4
"""Calls that are timed together, so that starting one on an accelerator costs little."""
PAPER_SECONDS, LIBDAI_SECONDS = 0.5, 297.0
_PGMAX = """
import sys, time, json
import numpy as np
from pgmax import fgraph, fgroup, infer, vgroup
given = np.load(sys.argv[1])
W, b, c, T = given["w"], given["b"], given["c"], int(given["t"])
V, H = W.shape
v, h = (vgroup.NDVarArray(num_states=2, shape=(n,)) for n in (V, H))
began = time.perf_counter()
graph = fgraph.FactorGraph([v, h])
tables = np.zeros((V * H, 2, 2))
tables[:, 1, 1] = W.reshape(-1)
pairs = [[v[i], h[j]] for i in range(V) for j in range(H)]
graph.add_factors(fgroup.PairwiseFactorGroup(pairs, tables))
engine = infer.build_inferer(graph.bp_state, backend="bp")
fields = [np.stack([0 * a, a], 1) for a in (b, c)]
start = engine.init(evidence_updates={v: fields[0], h: fields[1]})
built = time.perf_counter() - began
def run():
    end = engine.run(start, num_iters=T, damping=0.0, temperature=1.0)
    found = infer.get_marginals(engine.get_beliefs(end))
    return np.concatenate([np.asarray(found[v])[:, 1], np.asarray(found[h])[:, 1]])
began = time.perf_counter(); means = run(); first = time.perf_counter() - began
times = []
for _ in range(int(given["repeats"])):
    began = time.perf_counter(); run(); times.append(time.perf_counter() - began)
print(json.dumps({"build": built, "first": first, "times": times, "means": means.tolist()}))
"""


def run(config: dict[str, Any], seed: int, context: Context) -> Outcome:
    """Medians of interleaved repetitions; compilation is timed apart; answers must agree."""
    rows, notes = _against_peers(config, seed, context)
    context.progress("a large model until it converges")
    rows += _large(config, seed)
    context.progress("a batch of models against the memory's bandwidth")
    rows += _bandwidth(config, seed)
    return Outcome(rows, notes=notes)


def _against_peers(
    config: dict[str, Any], seed: int, context: Context
) -> tuple[list[Row], list[str]]:
    V, H = config["shape"]
    T, repeats = config["iterations"], config["repeats"]
    weights, b, c = random_rbm(V, H, seed)
    potentials = RBM(jnp.asarray(weights), jnp.asarray(b), jnp.asarray(c)).lower()
    infer = jax.jit(lambda p: SumProduct(T, None)(p).unary)
    compiling, ours = timed(lambda: infer(potentials).block_until_ready())
    _agree("the paper's equations", ours, paper_equations(weights, b, c, T))
    context.progress("ours and NumPy in turn")
    times = interleaved(
        {
            "ours": lambda: infer(potentials).block_until_ready(),
            "the paper's equations, NumPy": lambda: paper_equations(weights, b, c, T),
        },
        repeats,
    )
    seconds = medians(times)
    case = f"{V}x{H}, {T} iterations"
    notes = [
        f"{case}: ours compiled in {compiling:.2f} s. The paper gives {PAPER_SECONDS} s for its "
        f"program and {LIBDAI_SECONDS:.0f} s for libDAI at 1000x500, on its own machine."
    ]
    if os.environ.get(VARIABLE):
        context.progress("PGMax")
        found = _pgmax(weights, b, c, T, repeats)
        _agree("PGMax", ours, np.asarray(found["means"]))
        seconds["PGMax"] = median(found["times"])
        notes.append(
            f"PGMax: graph built in {found['build']:.1f} s and compiled in "
            f"{found['first'] - seconds['PGMax']:.1f} s, both left out of its time."
        )
    else:
        notes.append(f"PGMax was not run: {VARIABLE} names no Python that has it.")
    rows = []
    for method, value in seconds.items():
        paper = PAPER_SECONDS if (method, [V, H]) == ("ours", [1000, 500]) else None
        rows.append(Row(case, method, "seconds", value, None, repeats, paper, better="lower"))
    for method, value in seconds.items():
        rows.append(
            Row(
                case,
                method,
                "times as long as ours",
                value / seconds["ours"],
                n=repeats,
                better="lower",
            )
        )
    return rows, notes


def _large(config: dict[str, Any], seed: int) -> list[Row]:
    """One large model until its messages settle."""
    V, H = config["large"]
    weights, b, c = map(jnp.asarray, random_rbm(V, H, seed))
    potentials = RBM(weights, b, c).lower()
    infer = jax.jit(lambda p: SumProduct(100, 1e-3)(p))
    infer(potentials).unary.block_until_ready()
    seconds, beliefs = timed(lambda: jax.block_until_ready(infer(potentials)))
    case = f"{V}x{H} until no field moves by 0.001"
    return [
        Row(case, "ours", "seconds", seconds, n=1, better="lower"),
        Row(case, "ours", "iterations", float(beliefs.iterations), n=1, better="lower"),
        Row(case, "ours", "converged", float(beliefs.converged), n=1, better="higher"),
    ]


def _bandwidth(config: dict[str, Any], seed: int) -> list[Row]:
    """The least traffic of a batch, each message read and written once per half-sweep, in time."""
    (V, H), B, T = config["batch_shape"], config["batch"], config["batch_iterations"]
    weights, b, c = map(jnp.asarray, random_rbm(V, H, seed))
    p = shift(RBM(weights, b, c).lower(), jax.random.normal(jax.random.key(seed), (B, V + H)))
    infer = jax.jit(
        lambda p: jax.vmap(lambda q: SumProduct(T, None)(q).unary, in_axes=(batch_axes(p),))(p)
    )
    array = jnp.ones((B, V, H))
    copy = jax.jit(lambda a: a + 1)

    def copies() -> None:
        a = array
        for _ in range(2 * T * _GATHERED):
            a = copy(a)
        a.block_until_ready()

    def ours() -> None:
        jax.block_until_ready([infer(p) for _ in range(_GATHERED)])

    for compiled in (ours, copies):
        compiled()
    seconds = medians(interleaved({"ours": ours, "copies": copies}, config["repeats"]))
    share = 100 * seconds["copies"] / seconds["ours"]
    case = f"{B} models of {V}x{H}, {T} iterations"
    return [
        Row(
            case,
            "ours",
            "seconds",
            seconds["ours"] / _GATHERED,
            n=config["repeats"],
            better="lower",
        ),
        Row(case, "ours", "share of copy bandwidth (%)", share, better="higher"),
    ]


def random_rbm(V: int, H: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights small enough that messages settle, biases of size one."""
    rng = np.random.default_rng(seed)
    scale = 1.5 / np.sqrt(max(V, H))
    parts = rng.normal(scale=scale, size=(V, H)), rng.normal(size=V), rng.normal(size=H)
    weights, b, c = (a.astype(np.float32) for a in parts)
    return weights, b, c


def paper_equations(
    weights: np.ndarray, b: np.ndarray, c: np.ndarray, iterations: int
) -> np.ndarray:
    """Equations 13, 14, 16 and 17 as printed, messages to the hiddens first."""

    def sigmoid(a: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-a))

    to_visible = np.full(weights.shape, 0.5, weights.dtype)
    strength = np.exp(weights)
    tau_v, tau_h = sigmoid(b), sigmoid(c)
    for _ in range(iterations):
        on, off = (1 - to_visible) * tau_v[:, None], to_visible * (1 - tau_v)[:, None]
        to_hidden = sigmoid(np.log((strength * on + off) / (on + off)))
        tau_h = sigmoid(c + np.log(to_hidden / (1 - to_hidden)).sum(0))
        on, off = (1 - to_hidden) * tau_h, to_hidden * (1 - tau_h)
        to_visible = sigmoid(np.log((strength * on + off) / (on + off)))
        tau_v = sigmoid(b + np.log(to_visible / (1 - to_visible)).sum(1))
    return np.concatenate([tau_v, tau_h])


def interleaved(runs: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Seconds of every repetition of each, run in turn."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, one in runs.items():
            times[name].append(timed(one)[0])
    return times


def medians(times: dict[str, list[float]]) -> dict[str, float]:
    """The median of each."""
    return {name: median(values) for name, values in times.items()}


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds and result of one call."""
    began = time.perf_counter()
    answer = run()
    return time.perf_counter() - began, answer


def _agree(name: str, ours: Any, theirs: np.ndarray) -> None:
    gap = float(np.abs(np.asarray(ours) - theirs).max())
    if gap > 1e-3:
        raise UndirectedError(f"speed: our beliefs and those of {name} differ by {gap:.2g}")


def _pgmax(
    weights: np.ndarray, b: np.ndarray, c: np.ndarray, iterations: int, repeats: int
) -> dict[str, Any]:
    """Run PGMax in its own Python on the same model."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.npz"
        np.savez(file, w=weights, b=b, c=c, t=iterations, repeats=min(repeats, 2))
        settings = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "PYTHON"))}
        done = subprocess.run(
            [os.environ[VARIABLE], "-c", _PGMAX, str(file)],
            capture_output=True,
            text=True,
            env=settings | {"JAX_PLATFORMS": "cpu"},
        )
    if done.returncode:
        raise UndirectedError(f"speed: PGMax failed: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout.splitlines()[-1])
