"""`python -m benchmarks spin_glass`: ground states of three-dimensional glasses.

Couplings are +1 and -1; 10 instances each of 8^3, 10^3 and 12^3 spins have putative energies.
`un.anneal` cools replicas 32 to a word and combines them; the annealers of dwave-samplers and
OpenJij get the CPU seconds that it took. And parallel tempering with and without cluster moves
between replicas, at equal sweeps: the energy above the ground state that its coldest replicas have.
"""

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

import undirected as un
from benchmarks.environments import prepare
from benchmarks.saving import make_record, others, save
from undirected.core.errors import DataNotFound
from undirected.data.cache import find
from undirected.experiments.record import Row
from undirected.sampling import ladder

TITLE = "Ground states of spin glasses"
OURS, PEERS = "un.anneal", {"dwave": "dwave-samplers", "openjij": "OpenJij"}
FOUND, SECONDS = "ground states found (%)", "CPU seconds, those of failures included"
ABOVE = "energy above the ground state, per spin"
PLAIN, MOVED = "parallel tempering", "parallel tempering, cluster moves"
GOAL = 95.0
COLDEST, HOTTEST, RUNGS, CHAINS = 3.0, 0.3, 16, 8
"""Inverse temperatures at the ends of the ladder of parallel tempering, its rungs and chains."""


class Glass(NamedTuple):
    """E = -sum_ij J_ij s_i s_j, and the lowest energy known."""

    edges: np.ndarray
    J: np.ndarray
    ground: float

    @property
    def spins(self) -> int:
        return int(self.edges.max()) + 1

    def model(self, beta: float = 1.0) -> un.Ising:
        graph = un.graph.from_edges(self.spins, self.edges)
        return un.Ising.from_spins(
            jnp.asarray(beta * self.J, jnp.float32), jnp.zeros(self.spins), graph
        )

    def energy(self, s: np.ndarray) -> np.ndarray:
        """Of states of spins -1 and 1."""
        i, j = self.edges.T
        return -(s[..., i] * s[..., j]) @ self.J


def glasses(side: int, count: int) -> list[Glass]:
    """The first instances of a size."""
    file = find("spin_glass_3d.npz")
    if file is None:
        raise DataNotFound(
            "spin_glass_3d.npz: not found; put it into the folder that UNDIRECTED_DATA names"
        )
    with np.load(file) as found:
        parts = found[f"J_{side}"][:count], found[f"ground_{side}"][:count]
        edges = found[f"edges_{side}"]
    return [Glass(edges, J, float(ground)) for J, ground in zip(*parts, strict=True)]


def main(quick: bool, only: str, out: Path) -> None:
    """Run the parts whose name contains a word (`10x10x10, annealing`), and renew their rows."""
    profile = "quick" if quick else "full"
    count, limit, steps = (2, 10.0, 100) if quick else (10, 60.0, 2000)
    config = {"seconds": limit, "steps": steps, "rungs": RUNGS, "chains": CHAINS}
    file = out / f"spin_glass-{profile}.json"
    for side in (8,) if quick else (8, 10, 12):
        case, some = f"{side}x{side}x{side}", glasses(side, count)
        parts = {
            "annealing": partial(ground_rows, limit=limit),
            "tempering": partial(tempering_rows, steps=steps),
        }
        for part, work in parts.items():
            if only not in f"{case}, {part}":
                continue
            began = time.perf_counter()
            found = work(case, some)
            kept = others(file, [case], {row.method for row in found})
            rows = sorted([*kept.rows, *found], key=lambda row: int(row.case.split("x")[0]))
            seconds = time.perf_counter() - began + kept.seconds
            notes = list(goals(rows))
            save(make_record("spin_glass", profile, config, seconds, rows, TITLE, notes), file)
            print("\n".join(notes), flush=True)


def ground_rows(case: str, some: list[Glass], limit: float) -> list[Row]:
    """Who finds the ground states; others get the time that ours took, or a second."""
    contestants: dict[str, Any] = {OURS: by_us}
    for peer, name in PEERS.items():
        home = prepare(peer, Path("build/peers").absolute())
        if home.python is None:
            print(f"{name}: no result: {home.problem}")
        else:
            contestants[name] = partial(by_peer, peer, home.python)
    rows, limits = [], [limit] * len(some)
    for name, work in contestants.items():
        found = [work(glass, most) for glass, most in zip(some, limits, strict=True)]
        if name == OURS:
            limits = [max(1.0, seconds) for _, seconds in found]
        energies, seconds = (np.array(part) for part in zip(*found, strict=True))
        above = energies - [glass.ground for glass in some]
        told = {
            FOUND: (100 * float((above <= 1e-3).mean()), "higher"),
            ABOVE: (float(above.mean()) / some[0].spins, "lower"),
            SECONDS: (float(seconds.mean()), "lower"),
        }
        for metric, (value, better) in told.items():
            rows.append(Row(case, name, metric, value, n=len(some), better=better))
        print(f"{case}, {name}: {told[FOUND][0]:.0f} % found, {seconds.mean():.1f} s", flush=True)
    return rows


def by_us(glass: Glass, limit: float) -> tuple[float, float]:
    """The lowest energy found and the CPU seconds taken, compilation included."""
    began = time.process_time()
    how: dict[str, Any] = {"rounds": 10_000, "seconds": limit, "target": glass.ground + 1e-3}
    found = un.anneal(glass.model(), seed=0, **how)
    return float(glass.energy(2 * found.x - 1)), time.process_time() - began


def by_peer(peer: str, python: Path, glass: Glass, limit: float) -> tuple[float, float]:
    """The same by the annealer of another program, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "glass.npz"
        np.savez(file, edges=glass.edges, J=glass.J)
        script = Path(__file__).parent / "peers" / "annealers.py"
        command = [python, script, peer, file, limit, glass.ground]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{peer}: {done.stderr.strip()[-300:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    return found["energy"], found["seconds"]


def tempering_rows(case: str, some: list[Glass], steps: int) -> list[Row]:
    """The lowest energies that replicas at the coldest rung reach in so many sweeps."""
    rows = []
    kernels = {PLAIN: un.Gibbs(), MOVED: un.Houdayer(un.Gibbs())}
    for name, kernel in kernels.items():
        lowest = np.array([coldest(kernel, glass, steps) for glass in some])
        above = (lowest - [glass.ground for glass in some]) / some[0].spins
        error = float(above.std(ddof=1) / np.sqrt(len(above))) if len(above) > 1 else None
        mean = float(above.mean())
        rows.append(Row(case, name, ABOVE, mean, stderr=error, n=len(some), better="lower"))
        print(f"{case}, {name}: {mean:.5f} above the ground state per spin", flush=True)
    return rows


def coldest(kernel: Any, glass: Glass, steps: int) -> float:
    """The lowest energy of the chains at the coldest rung, over twenty looks."""
    model, looks = glass.model(COLDEST), 20
    betas = ladder(HOTTEST / COLDEST, RUNGS)
    pt = un.ParallelTempering(kernel, un.tempered, betas)
    found = un.run_chains(
        pt, model, chains=CHAINS, samples=looks, thin=max(1, steps // looks), seed=0
    )
    return float(glass.energy(2 * np.asarray(found.x) - 1).min())


def goals(rows: list[Row]) -> Iterator[str]:
    """What was reached."""
    values = {(row.case, row.method, row.metric): row.ours or 0.0 for row in rows}
    all_found = [row for row in rows if row.method == OURS and row.metric == FOUND]
    count = sum(row.n or 0 for row in all_found)
    if count:
        share = sum((row.ours or 0.0) * (row.n or 0) for row in all_found) / count
        word = "reached" if share >= GOAL else "not reached"
        yield f"{share:.0f} % of {count} ground states found; goal {GOAL:g}: {word}."
    for case in dict.fromkeys(row.case for row in rows):
        found = [
            f"{name} {values[case, name, FOUND]:.0f} %"
            for name in (OURS, *PEERS.values())
            if (case, name, FOUND) in values
        ]
        if found:
            yield f"{case}, ground states found: {', '.join(found)}."
        if (case, MOVED, ABOVE) in values:
            plain, moved = (values[case, name, ABOVE] for name in (PLAIN, MOVED))
            word = "lower" if moved < plain else "not lower"
            yield (
                f"{case}: with cluster moves tempering ends {word}: {moved:.5f} above, {plain:.5f}."
            )
