"""Sum-product on RBMs, max-product on a dense Ising model, linear response on a grid."""

import numpy as np

from benchmarks.checks import mostly_same, same
from benchmarks.harness import OURS, Arrays, Case, Entry

NUMPY = "NumPy"


def cases(quick: bool) -> list[Case]:
    ours = Entry(OURS, "ours", "sum_product")
    numpy = Entry(NUMPY, "plain", "sum_product")
    pgmax = Entry("PGMax", "pgmax", "sum_product", "pgmax")
    exact = Entry("pyAgrum, exact", "pyagrum", "sum_product", "pyagrum")
    goals = {NUMPY: 15.0, "PGMax": 2000.0}
    found = [
        _sum_product(40, 20, 0, (ours, numpy, pgmax, exact), tolerance=0.02),
        _sum_product(200, 100, 0, (ours, numpy, pgmax)),
        _sum_product(200, 100, 100, (ours, numpy)),
        _sum_product(1000, 500, 0, (ours, numpy) if quick else (ours, numpy, pgmax), goals),
    ]
    if not quick:
        found.append(_sum_product(1000, 500, 100, (ours, numpy)))
        found.append(_sum_product(10_000, 2_000, 0, (ours, numpy)))
    found += [_max_product(100 if quick else 784, 100), _linear_response(20 if quick else 50)]
    return found


def _sum_product(
    V: int,
    H: int,
    batch: int,
    entries: tuple[Entry, ...],
    goals: dict[str, float] | None = None,
    tolerance: float = 1e-3,
) -> Case:
    def inputs() -> Arrays:
        rng = np.random.default_rng(0)
        scale = 1.5 / np.sqrt(max(V, H))
        given = {
            "w": rng.normal(scale=scale, size=(V, H)),
            "b": rng.normal(size=V),
            "c": rng.normal(size=H),
        }
        if batch:
            given["shifts"] = rng.normal(size=(batch, V + H))
        given = {name: a.astype(np.float32) for name, a in given.items()}
        return {**given, "iterations": np.asarray(10)}

    many = f", {batch} at once" if batch else ""
    name = f"sum-product, RBM {V}×{H}{many}, 10 iterations"
    return Case(name, inputs, entries, same(tolerance), goals=goals or {})


def _max_product(n: int, samples: int) -> Case:
    def inputs() -> Arrays:
        rng = np.random.default_rng(0)
        w = rng.normal(scale=1 / np.sqrt(n), size=(n, n))
        noise = rng.logistic(size=(samples, n))
        given = {"w": 0.5 * (w + w.T), "b": rng.normal(size=n), "noise": noise}
        given = {name: a.astype(np.float32) for name, a in given.items()}
        return {**given, "iterations": np.asarray(20)}

    entries = (
        Entry(OURS, "ours", "max_product"),
        Entry("PGMax", "pgmax", "max_product", "pgmax"),
    )
    name = f"max-product, dense Ising model of {n} spins, {samples} samples, 20 sweeps"
    return Case(name, inputs, entries, mostly_same(0.01), samples, {"PGMax": 100.0})


def _linear_response(side: int) -> Case:
    def inputs() -> Arrays:
        rng = np.random.default_rng(0)
        edges = 2 * side * (side - 1)
        given = {"w": rng.normal(scale=0.5, size=edges), "b": rng.normal(size=side * side)}
        given = {name: a.astype(np.float32) for name, a in given.items()}
        return {**given, "sides": np.array([side, side])}

    entries = (Entry(OURS, "ours", "susceptibility"), Entry(NUMPY, "plain", "susceptibility"))
    name = f"TAP and linear response, Ising grid {side}×{side}"
    return Case(name, inputs, entries, same(1e-4))
