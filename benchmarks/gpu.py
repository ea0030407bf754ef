"""`python -m benchmarks.gpu --out DIR`: message passing and block Gibbs on an accelerator.

Belief propagation on a batch of models, in the plain form and with messages kept on chip, and
max-product, plain and fused, against the bandwidth of a copy; block Gibbs against its matrix
products. A variant that does not compile is reported and does not stop the rest. Writes
DIR/gpu-full.json after each part; `--only PART` makes one part, `--quick` a small run for any
machine.
"""

import argparse
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.peers.ours import products
from benchmarks.saving import make_record, save
from undirected.core.potentials import batch_axes, shift
from undirected.experiments import record as records
from undirected.experiments.record import Row
from undirected.inference import SumProduct
from undirected.models import RBM
from undirected.ops import bipartite, lattice, max_product_gpu, on_chip
from undirected.ops.max_product import bipartite_plain, symmetric_plain
from undirected.papers.crbm_bp.speed import random_rbm
from undirected.sampling import BlockGibbs

FULL = {"batch": 128, "shape": [784, 256], "iterations": 20, "chains": 10_000, "copy": 2**29}
QUICK = {"batch": 4, "shape": [60, 20], "iterations": 5, "chains": 100, "copy": 2**20}
GATHERED = 10
"""Calls that are timed together, so that starting one costs little."""
MAXIMA = [((200,), 500, 40), ((625,), 225, 10), ((900,), 100, 50), ((784, 500), 100, 100)]
SMALL_MAXIMA = [((20,), 3, 4), ((20, 10), 3, 4)]
"""Units of one layer or of two, samples, rounds."""
ON_CHIP = [(on_chip.STRIPE, on_chip.SPLIT, on_chip.WARPS), (16, (4, 4), 4)]
"""Rows of a stripe, tiles along rows and columns, warps: each takes some ten seconds to compile."""


@dataclass
class Run:
    """What is found, as it is found."""

    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, case: str, method: str, metric: str, value: float, better: str = "lower") -> None:
        self.rows.append(Row(case, method, metric, value, better=better))
        print(f"{case} | {method} | {metric}: {value:.6g}", flush=True)

    def attempt(self, what: str, work: Callable[[], Any]) -> Any:
        """The result of `work`, or None with a note of why there is none."""
        try:
            return work()
        except Exception as error:
            print(f"FAILED {what}\n{traceback.format_exc()[-6000:]}", flush=True)
            self.notes.append(f"{what} failed: {str(error)[:400]}")
            return None


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.gpu", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=[part.__name__ for part in PARTS])
    arguments = parser.parse_args()
    config, began, run = QUICK if arguments.quick else FULL, time.perf_counter(), Run()
    print(records.device(), records.versions(), flush=True)
    bandwidth = copy_bandwidth(run, config)
    for part in PARTS:
        if arguments.only in (None, part.__name__):
            run.attempt(part.__name__, partial(part, run, config, bandwidth))
            write(run, config, time.perf_counter() - began, arguments.out)


def write(run: Run, config: dict, seconds: float, folder: Path) -> None:
    profile, title = "full" if config is FULL else "quick", "Speed on an accelerator"
    record = make_record("gpu", profile, config, seconds, run.rows, title, run.notes)
    save(record, folder / f"gpu-{profile}.json")


def copy_bandwidth(run: Run, config: dict) -> float:
    """Bytes read and written per second by `a + 1`."""
    array = jnp.ones(config["copy"], jnp.float32)
    seconds, _ = timed(jax.jit(lambda a: a + 1), array)
    bandwidth = 2 * array.nbytes / seconds
    run.add("copy", "XLA", "bandwidth (TB/s)", bandwidth / 1e12, "higher")
    return bandwidth


def belief_propagation(run: Run, config: dict, bandwidth: float) -> None:
    (V, H), B, T = config["shape"], config["batch"], config["iterations"]
    w, fields = models(config)
    exact = reference(w, fields[[0, -1]], T)
    floor = 2 * T * 2 * B * V * H * 4 / bandwidth
    case = f"{B} models of {V}x{H}, {T} iterations"
    run.add(case, "one read and write per half-sweep", "milliseconds", 1e3 * floor)
    inputs = jnp.asarray(w), jnp.asarray(fields[:, :V]), jnp.asarray(fields[:, V:])
    for name, make in bp_variants(T, B).items():
        outcome = run.attempt(name, lambda make=make: timed(jax.jit(make()), *inputs))
        if outcome is None:
            continue
        seconds, found = outcome
        sums = np.concatenate([np.asarray(a) for a in found], 1)
        gap = np.abs(sums[[0, -1]] - exact).max() if np.isfinite(sums).all() else np.inf
        run.add(case, name, "milliseconds", 1e3 * seconds)
        run.add(case, name, "share of copy bandwidth (%)", 100 * floor / seconds, "higher")
        run.add(case, name, "largest error of a field", float(gap))


def models(config: dict) -> tuple[np.ndarray, np.ndarray]:
    """Weights that a batch of models shares, and the fields of each."""
    (V, H), B = config["shape"], config["batch"]
    w, b, c = random_rbm(V, H, 0)
    extra = np.random.default_rng(1).normal(size=(B, V + H)).astype(np.float32)
    return w, np.concatenate([b, c]) + extra


def bp_variants(T: int, B: int) -> dict[str, Callable[[], Callable]]:
    """Functions of (weights, row fields, column fields) that give the sums of the messages."""

    def plain(w: jax.Array, rows: jax.Array, cols: jax.Array) -> tuple:
        def one(r: jax.Array, c: jax.Array) -> tuple:
            return bipartite.sum_product(w, r, c, T, None, 0.0, False)[1:3]

        return jax.vmap(one)(rows, cols)

    def library(w: jax.Array, rows: jax.Array, cols: jax.Array) -> tuple:
        zero = RBM(w, jnp.zeros(len(w)), jnp.zeros(w.shape[1])).lower()
        p = shift(zero, jnp.concatenate([rows, cols], 1))
        infer = jax.vmap(lambda q: SumProduct(T, None)(q).unary, in_axes=(batch_axes(p),))
        unary = infer(p)
        odds = jnp.log(unary) - jnp.log1p(-unary)
        return odds[:, : len(w)] - rows, odds[:, len(w) :] - cols

    def on_the_chip(options: dict, w: jax.Array, rows: jax.Array, cols: jax.Array) -> tuple:
        bounds = jnp.full((1, B), T, jnp.int32)
        found = on_chip.run(w[None], rows[None], cols[None], bounds, None, **options)
        return found[1][0], found[2][0]

    def settled(w: jax.Array, rows: jax.Array, cols: jax.Array) -> tuple:
        return jax.vmap(lambda r, c: on_chip.sum_product(w, r, c, T, 1e-3)[1:3])(rows, cols)

    on_gpu = jax.default_backend() == "gpu"
    variants: dict[str, Callable[[], Callable]] = {
        "SumProduct under vmap": lambda: library,
        "array operations": lambda: plain,
    }
    for stripe, split, warps in ON_CHIP if on_gpu else []:
        name = f"on chip, {stripe} rows in {split[0]}x{split[1]} tiles, {warps} warps"
        options = {"stripe": stripe, "split": split, "warps": warps}
        variants[name] = lambda o=options: partial(on_the_chip, o)
    if on_gpu:
        variants["on chip, until settled"] = lambda: settled
    return variants


def reference(w: np.ndarray, fields: np.ndarray, iterations: int) -> np.ndarray:
    """Sums of the messages at rows and columns in float64 NumPy, on logarithms."""
    w, fields = w.astype(np.float64), fields.astype(np.float64)
    rows, cols = fields[:, : len(w), None], fields[:, None, len(w) :]
    to_rows = np.zeros((len(fields), *w.shape))
    to_cols = to_rows
    for _ in range(iterations):
        cavity = rows + to_rows.sum(2, keepdims=True) - to_rows
        to_cols = np.logaddexp(0, cavity + w) - np.logaddexp(0, cavity)
        cavity = cols + to_cols.sum(1, keepdims=True) - to_cols
        to_rows = np.logaddexp(0, cavity + w) - np.logaddexp(0, cavity)
    return np.concatenate([to_rows.sum(2), to_cols.sum(1)], 1)


def max_product(run: Run, config: dict, bandwidth: float) -> None:
    """Rounds on one layer and on two, against one read and one write of every message."""
    for layers, samples, rounds in MAXIMA if config is FULL else SMALL_MAXIMA:
        sides = (*layers, *layers)[:2]
        floor = rounds * 2 * 4 * samples * len(layers) * np.prod(sides) / bandwidth
        case = f"max-product, {'x'.join(map(str, layers))}, {samples} samples, {rounds} rounds"
        run.add(case, "one read and write per round", "milliseconds", 1e3 * floor)
        rng = np.random.default_rng(0)
        w = rng.normal(scale=0.03, size=sides).astype(np.float32)
        fields = [rng.logistic(size=(samples, n)).astype(np.float32) for n in layers]
        plain, fused = bipartite_plain, max_product_gpu.bipartite_fused
        if len(layers) == 1:
            w = np.triu(w, 1) + np.triu(w, 1).T
            plain, fused = symmetric_plain, max_product_gpu.symmetric_fused
        forms: dict[str, Callable] = {"array operations": plain}
        if jax.default_backend() == "gpu":
            forms["fused"] = fused
        states = []
        for name, form in forms.items():
            how = {"iterations": rounds, "tolerance": None, "damping": 0.5}
            work = jax.jit(jax.vmap(partial(form, jnp.asarray(w), **how)))
            outcome = run.attempt(f"{case}, {name}", partial(timed, work, *fields))
            if outcome is None:
                continue
            seconds, (totals, _, _) = outcome
            states.append(np.asarray(totals) > 0)
            otherwise = 100 * float(np.mean(states[0] != states[-1]))
            run.add(case, name, "milliseconds", 1e3 * seconds)
            run.add(case, name, "share of copy bandwidth (%)", 100 * floor / seconds, "higher")
            run.add(case, name, "units decoded otherwise (%)", otherwise)


def block_gibbs(run: Run, config: dict, _: float) -> None:
    """Sweeps of many chains against the same matrix products alone."""
    V, H, chains, sweeps = 784, 500, config["chains"], 10
    model = RBM.create(V, H, jax.random.key(0), scale=0.1)
    kernel = BlockGibbs(sweeps)
    state = kernel.init(model, jnp.zeros((chains, V + H)), jax.random.key(1))
    free = jnp.ones(V + H, bool)
    step = jax.jit(lambda m, s, key: kernel.step(m, s, free, key)[0].x)
    ours, x = timed(step, model, state, jax.random.key(2))

    alone, _ = timed(jax.jit(partial(products, sweeps)), model.weights, x[:, :V])
    case = f"block Gibbs, {V}x{H}, {chains} chains, one sweep"
    run.add(case, "BlockGibbs", "milliseconds", 1e3 * ours / sweeps)
    run.add(case, "its two matrix products alone", "milliseconds", 1e3 * alone / sweeps)
    run.add(case, "BlockGibbs", "times as long as its products", ours / alone)
    flops = 4 * chains * V * H * sweeps
    run.add(case, "its two matrix products alone", "TFLOP/s", flops / alone / 1e12, "higher")


def lattice_gibbs(run: Run, config: dict, _: float) -> None:
    """Sweeps of an Ising torus, 32 spins to a word."""
    side, chains, sweeps = (2048, 32, 20) if config is FULL else (64, 1, 2)
    x = jax.random.bernoulli(jax.random.key(0), 0.5, (chains, side, side)).astype(jnp.float32)
    weight, bias = jnp.float32(1.6), jnp.float32(-3.2)
    step = jax.jit(partial(lattice.torus_sweeps, sweeps=sweeps))
    seconds, _ = timed(step, x, jnp.ones(x.shape, bool), weight, bias, jax.random.key(1))
    case = f"Ising torus, {side}x{side}, {chains} chains, {sweeps} sweeps"
    run.add(case, "ours", "draws a nanosecond", x.size * sweeps / seconds / 1e9, "higher")


PARTS = (belief_propagation, max_product, block_gibbs, lattice_gibbs)


def timed(function: Callable, *inputs: Any, repeats: int = 7) -> tuple[float, Any]:
    """Median seconds of a call after the first one, and its result."""
    began = time.perf_counter()
    result = jax.block_until_ready(function(*inputs))
    print(f"  (compiled in {time.perf_counter() - began:.1f} s)", file=sys.stderr, flush=True)
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready([function(*inputs) for _ in range(GATHERED)])
        times.append((time.perf_counter() - began) / GATHERED)
    return median(times), result


if __name__ == "__main__":
    main()
