"""`python -m benchmarks.lattices --out DIR`: spins drawn per nanosecond, 32 replicas to a word.

Gibbs sweeps of the Ising model on a square torus and of +-J glasses on a cubic one, by array
operations and by the fused kernel of an NVIDIA GPU, with 32 and with 24 binary digits of a uniform
number. The mean energy of the Ising model is held against Onsager's. Writes
DIR/lattices-full.json; `--quick` is a small run for any machine.
"""

import argparse
import time
from functools import partial
from itertools import product
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ellipk

from benchmarks.gpu import Run
from benchmarks.saving import make_record, save
from undirected.core import graph
from undirected.experiments import record as records
from undirected.ops import multispin as ms

TITLE = "Spins drawn per nanosecond"
FULL = {"square": [[256, 32], [512, 32]], "cube": [[32, 64]], "sweeps": 100}
QUICK = {"square": [[16, 2]], "cube": [[6, 2]], "sweeps": 5}
BETA = {"square": 0.40, "cube": 0.5}
"""Above the critical temperatures, where a lattice forgets within the sweeps of a run."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.lattices", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    config, began, run = QUICK if arguments.quick else FULL, time.perf_counter(), Run()
    profile = "quick" if arguments.quick else "full"
    print(records.device(), records.versions(), flush=True)
    for kind in ("square", "cube"):
        for side, groups in config[kind]:
            run.attempt(f"{kind} {side}", partial(lattice, run, kind, side, groups, config))
            seconds = time.perf_counter() - began
            record = make_record("lattices", profile, config, seconds, run.rows, TITLE, run.notes)
            save(record, arguments.out / f"lattices-{profile}.json")


def cube(side: int) -> graph.Graph:
    """The periodic cubic lattice of an even side."""
    site = np.arange(side**3).reshape(side, side, side)
    ends = [np.stack([site.ravel(), np.roll(site, -1, a).ravel()], 1) for a in range(3)]
    return graph.from_edges(side**3, np.concatenate(ends))


def lattice(run: Run, kind: str, side: int, groups: int, config: dict) -> None:
    """All forms of the sweep on one lattice."""
    if kind == "square":
        wiring, signs = graph.torus(side, side), np.ones(2 * side**2, int)
    else:
        wiring = cube(side)
        signs = np.random.default_rng(0).choice([-1, 1], wiring.n_edges)
    glass = ms.glass(wiring, signs)
    sides = "x".join([str(side)] * (2 if kind == "square" else 3))
    case = f"{'Ising torus' if kind == 'square' else '+-J glass'} {sides}, {32 * groups} replicas"
    forms = product([False, True] if jax.default_backend() == "gpu" else [False], [32, 24])
    for fused, digits in forms:
        name = f"{'fused kernel' if fused else 'array operations'}, {digits} digits"
        work = partial(one_form, run, case, name, glass, groups, kind, config["sweeps"])
        run.attempt(f"{case}, {name}", partial(work, fused=fused, digits=digits))


def one_form(
    run: Run, case: str, name: str, glass: ms.Glass, groups: int, kind: str, sweeps: int, **how
) -> None:
    """Spins per nanosecond after a first run, and the mean energy of a bond at its end."""
    words = ms.random_spins(glass, groups, jax.random.key(0))
    betas = jnp.asarray([BETA[kind]])
    begun = time.perf_counter()
    words = jax.block_until_ready(
        ms.glass_sweeps(glass, words, betas, jax.random.key(1), sweeps, **how)
    )
    run.add(case, name, "first run (s)", time.perf_counter() - begun)
    times = []
    for repeat in range(3):
        begun = time.perf_counter()
        words = ms.glass_sweeps(glass, words, betas, jax.random.key(2 + repeat), sweeps, **how)
        jax.block_until_ready(words)
        times.append(time.perf_counter() - begun)
    spins = 32 * words.size * sweeps
    run.add(case, name, "spins drawn a nanosecond", spins / min(times) / 1e9, "higher")
    energy = np.asarray(ms.energies(glass, words)).reshape(-1) / len(glass.turn)
    run.add(case, name, "mean energy of a bond", float(energy.mean()))
    if kind == "square":
        error = energy.std() / np.sqrt(energy.size)
        gap = (energy.mean() - onsager(BETA[kind])) / error
        run.add(case, name, "standard errors from Onsager's energy", float(gap))


def onsager(beta: float) -> float:
    """Energy of a bond of the infinite square lattice, J = 1."""
    k = 2 * np.sinh(2 * beta) / np.cosh(2 * beta) ** 2
    term = 2 / np.pi * (2 * np.tanh(2 * beta) ** 2 - 1) * ellipk(k**2)
    return float(-0.5 / np.tanh(2 * beta) * (1 + term))


if __name__ == "__main__":
    main()
