"""`python -m benchmarks.parts --out DIR`: what the hot loops spend their time on, on this machine.

Each loop is timed whole and with parts of its work left out, in turn, in one process that has the
machine to itself. Writes DIR/parts-full.json; `--quick` is a small run for any machine.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import jax
import jax.numpy as jnp

from benchmarks.cases import learning
from benchmarks.peers import ours
from benchmarks.saving import make_record, save
from undirected.core.random import logistic
from undirected.experiments.record import Row
from undirected.models import RBM
from undirected.ops import bipartite
from undirected.papers.crbm_bp.speed import random_rbm
from undirected.sampling import BlockGibbs

FULL = {"bp": [1000, 500], "iterations": 10, "chains": [100, 1000], "repeats": 15}
QUICK = {"bp": [20, 10], "iterations": 2, "chains": [10], "repeats": 2}
Work = Callable[[], object]


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.parts", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    began, config = time.perf_counter(), QUICK if arguments.quick else FULL
    (V, H), T = config["bp"], config["iterations"]
    rows = timed(f"sum-product, {V}×{H}, {T} iterations", 1, belief_propagation(V, H, T), config)
    for chains in config["chains"]:
        sweeps = max(1, 5000 // chains)
        case = f"block Gibbs, 784×500, {chains:,} chains, one sweep"
        rows += timed(case, sweeps, block_gibbs(chains, sweeps), config)
    steps, work = persistent_chains(arguments.quick)
    rows += timed("persistent chains, 784×500, a step on 100 rows", steps, work, config)
    seconds, profile = time.perf_counter() - began, "quick" if arguments.quick else "full"
    notes = ["One process, alone on the machine; the loops take turns."]
    record = make_record("parts", profile, config, seconds, rows, "Where the time goes", notes)
    save(record, arguments.out / f"parts-{profile}.json")


def timed(case: str, steps: int, work: dict[str, Work], config: dict) -> list[Row]:
    """Median milliseconds of one step of every loop."""
    times: dict[str, list[float]] = {name: [] for name in work}
    for run in work.values():
        jax.block_until_ready(run())
    for _ in range(config["repeats"]):
        for name, run in work.items():
            began = time.perf_counter()
            jax.block_until_ready(run())
            times[name].append(1e3 * (time.perf_counter() - began) / steps)
    rows = [
        Row(case, name, "milliseconds", median(spent), n=len(spent), better="lower")
        for name, spent in times.items()
    ]
    for row in rows:
        print(f"{case} | {row.method}: {row.ours:.3f} ms", flush=True)
    return rows


def belief_propagation(V: int, H: int, iterations: int) -> dict[str, Work]:
    w, b, c = (jnp.asarray(a) for a in random_rbm(V, H, 0))
    odds = jnp.exp(w)

    def loop(renew: Callable) -> Work:
        run = jax.jit(lambda s: jax.lax.fori_loop(0, 2 * iterations, lambda _, s: renew(s), s))
        return lambda: run(odds)

    whole = jax.jit(lambda w: bipartite.sum_product(w, b, c, iterations, None, 0.0, True)[1:3])
    return {
        "all": lambda: whole(w),
        "without sums": loop(lambda s: (0.5 * s + 0.7 * odds) / (0.5 * s + 0.7)),
        "messages read and written": loop(lambda s: 0.5 * s + 0.7 * odds),
    }


def block_gibbs(chains: int, sweeps: int) -> dict[str, Work]:
    V, H = 784, 500
    model = RBM.create(V, H, jax.random.key(0), scale=0.1)
    kernel, free = BlockGibbs(sweeps), jnp.ones(V + H, bool)
    state = kernel.init(model, jnp.zeros((chains, V + H)), jax.random.key(1))
    whole = jax.jit(lambda m, s: kernel.step(m, s, free, jax.random.key(2))[0].x)

    alone = jax.jit(partial(ours.products, sweeps))

    def loop(noise: Callable) -> Work:
        def once(i: jax.Array, v: jax.Array) -> jax.Array:
            keys = jax.random.split(jax.random.fold_in(jax.random.key(2), i))
            h = (v @ model.weights + noise(keys[0], (chains, H)) > 0).astype(v.dtype)
            return (h @ model.weights.T + noise(keys[1], (chains, V)) > 0).astype(v.dtype)

        run = jax.jit(lambda v: jax.lax.fori_loop(0, sweeps, once, v))
        return lambda: run(state.x[:, :V])

    return {
        "all": lambda: whole(model, state),
        "without fixed units and joining": loop(logistic),
        "without random numbers": loop(lambda key, shape: jnp.zeros(shape)),
        "products alone": lambda: alone(model.weights, state.x[:, :V]),
    }


def persistent_chains(quick: bool) -> tuple[int, dict[str, Work]]:
    given = learning.cases(quick)[0].inputs()
    steps = len(given["data"]) // int(given["batch"])
    return steps, {"all": ours.pcd_epoch(given), "products alone": ours.pcd_products(given)}


if __name__ == "__main__":
    main()
