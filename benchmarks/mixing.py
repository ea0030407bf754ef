"""`python -m benchmarks mixing`: how fast chains forget, in effective draws per second.

The Ising model on a 64 x 64 torus at its critical temperature: the magnetisation and its size, by
single-spin Gibbs sampling and by cluster moves, from the same equilibrated starts. Seconds are CPU
seconds of the process after compilation, so that other work on the machine counts for little.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import undirected as un
from benchmarks.saving import make_record, save
from undirected.core.diagnostics import ess
from undirected.experiments.record import Row
from undirected.sampling import Trace

TITLE = "How fast chains forget"
CRITICAL = 0.5 * float(np.log1p(np.sqrt(2)))
"""The coupling J / T of the square lattice where it orders."""
RATE, DRAW = "effective draws per CPU second", "CPU seconds per sweep of a chain"
STEPS = "sweeps per effective draw"
GOAL = 100.0


class Plan(NamedTuple):
    """A sampler, the sweeps of one of its steps, and how many steps to make."""

    kernel: Any
    sweeps: int
    samples: int


def plans(quick: bool) -> dict[str, Plan]:
    """Chains of Gibbs must be longer by the square of the side."""
    draws, sweeps = (100, 20) if quick else (800, 200)
    return {
        "Gibbs": Plan(un.Gibbs(sweeps), sweeps, draws),
        "Swendsen-Wang": Plan(un.SwendsenWang(), 1, draws),
        "Wolff": Plan(un.Wolff(), 1, draws),
    }


def main(quick: bool, only: str, out: Path) -> None:
    began, side, chains = time.perf_counter(), 16 if quick else 64, 32
    rows, notes = lattice(side, chains, {k: v for k, v in plans(quick).items() if only in k})
    profile = "quick" if quick else "full"
    config = {"side": side, "chains": chains}
    seconds = time.perf_counter() - began
    record = make_record("mixing", profile, config, seconds, rows, TITLE, notes)
    save(record, out / f"mixing-{profile}.json")
    print("\n".join(notes))


def lattice(side: int, chains: int, chosen: dict[str, Plan]) -> tuple[list[Row], list[str]]:
    """Effective draws of the magnetisation and of its size."""
    grid = un.graph.torus(side, side)
    couplings = jnp.full(grid.n_edges, CRITICAL)
    model = un.Ising.from_spins(couplings, jnp.zeros(grid.n), grid)
    warm = un.run_chains(un.SwendsenWang(), model, chains=chains, samples=200, keep=False, seed=1)
    case, rows, rates = f"Ising {side}x{side} at its critical temperature", [], {}
    for name, plan in chosen.items():
        traces, seconds = measure(model, plan, warm.state.x)
        cost = seconds / (plan.samples * plan.sweeps * chains)
        rows.append(Row(case, name, DRAW, cost, better="lower"))
        for what, trace in (("magnetisation", traces), ("its size", np.abs(traces))):
            effective = float(ess(trace[..., None])[0])
            rates[name, what] = effective / seconds
            each = plan.samples * plan.sweeps * chains / effective
            rows.append(Row(case, name, f"{RATE}: {what}", rates[name, what], better="higher"))
            rows.append(Row(case, name, f"{STEPS}: {what}", each, better="lower"))
            print(f"{name}, {what}: {rates[name, what]:.3g} a CPU second, {each:.3g} sweeps each")
    return rows, compare(case, rates)


def compare(case: str, rates: dict[tuple[str, str], float]) -> list[str]:
    """How many times as fast as Gibbs every other sampler forgets."""
    notes = []
    for (name, what), rate in rates.items():
        if name == "Gibbs" or ("Gibbs", what) not in rates:
            continue
        ratio = rate / rates["Gibbs", what]
        goal = ""
        if what == "magnetisation":
            goal = f"; goal {GOAL:g}: {'reached' if ratio >= GOAL else 'not reached'}"
        notes.append(f"{case}, {what}: {name} forgets {ratio:,.3g} times as fast as Gibbs{goal}.")
    return notes


def measure(model: Any, plan: Plan, start: jax.Array) -> tuple[np.ndarray, float]:
    """The magnetisation at every draw (samples, chains), and CPU seconds."""

    def magnetisation(x: jax.Array) -> jax.Array:
        return 2 * x.mean() - 1

    look = Trace(magnetisation)

    def run(seed: int) -> Any:
        found = un.run_chains(
            plan.kernel, model, start, samples=plan.samples, seed=seed, observe=look
        )
        return jax.block_until_ready(found)

    run(2)
    found, seconds = cpu_seconds(lambda: run(3))
    return np.asarray(found.observed["magnetisation"]), seconds


def cpu_seconds(work: Callable[[], Any]) -> tuple[Any, float]:
    begun = time.process_time()
    return work(), time.process_time() - begun
