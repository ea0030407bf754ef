"""`python -m benchmarks discs`: tasks of DISCS, by all kernels here and by DISCS's own.

Ising and Potts lattices, a factorial hidden Markov model and an RBM that is trained here. Every
kernel starts from the same equilibrated states, finds its settings, and runs for so many CPU
seconds. Effective draws are those of DISCS's statistic, the distance to a fixed random state, by
`un.ess` for all. Seconds are CPU seconds of the process after compilation and adaptation.
"""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import undirected as un
from benchmarks import rbm_kernels
from benchmarks.environments import prepare
from benchmarks.saving import docs_page, make_record, others, save
from undirected.core.layout import to_units
from undirected.experiments.record import Row
from undirected.sampling import Trace

TITLE = "Kernels on the tasks of DISCS"
RATE, WORK = "effective draws per CPU second", "evaluations per effective draw"
GRADIENTS, OURS_BEST = "Gibbs with gradients", ("any-scale", "discrete Langevin")
PEER = {
    "gibbs": "Gibbs",
    "blockgibbs": "block Gibbs",
    "gwg": GRADIENTS,
    "dmala": "discrete Langevin",
    "path_auxiliary": "path-auxiliary",
    "dlmc": "discrete Langevin Monte Carlo",
    "hammingball": "Hamming ball",
}
"""Samplers of DISCS, and the kernels here that are of the same kind."""
GOAL = 3.0
CHAINS, SETTLE, ADAPT, DRAWS = 32, 500, 300, 50
"""Chains, sweeps before them, proposals of adaptation, and draws of a run between two looks."""


class Task(NamedTuple):
    """A model, and the same one as DISCS has it: its settings and parameters."""

    name: str
    model: Any
    settings: dict[str, Any]
    params: dict[str, np.ndarray]

    def states(self, x: np.ndarray) -> np.ndarray:
        """Units (..., n) as DISCS has states: whole numbers, visible variables alone."""
        v = np.asarray(x)[..., : self.model.layout.n_visible]
        q = self.settings["num_categories"]
        if q > 2:
            v = v.reshape(*v.shape[:-1], -1, q).argmax(-1)
        return v.reshape(*v.shape[:-1], *self.settings["shape"]).astype(np.int32)


def ring(side: int, mu: float) -> np.ndarray:
    """The fields of DISCS's lattices: mu inside of a disk, -mu outside."""
    i, j = np.indices((side, side)) / side - 0.5
    return mu * np.where(i**2 + j**2 < 0.5 / np.pi, 1.0, -1.0)


def ising(side: int) -> Task:
    """An open lattice of coupling 1/2 in random fields."""
    b = 1.5 * np.random.default_rng(0).uniform(-1, 1, (side, side)) + ring(side, 0.5)
    grid = un.graph.grid(side, side)
    fields = jnp.asarray(-b.ravel(), jnp.float32)
    model = un.Ising.from_spins(jnp.full(grid.n_edges, 0.5), fields, grid)
    settings = {"kind": "ising", "shape": [side, side], "num_categories": 2}
    weight = np.full((side, side), -0.5)
    return Task(f"Ising {side}x{side}", model, settings, {"params": np.stack([weight, weight, b])})


def potts(side: int, q: int = 4) -> Task:
    """An open lattice of coupling 1 in random fields."""
    shape = side, side, q
    b = 1.5 * np.random.default_rng(1).uniform(-1, 1, shape) + ring(side, 0.5)[..., None]
    grid = un.graph.grid(side, side)
    model = un.Potts(jnp.eye(q), jnp.asarray(-b.reshape(-1, q), jnp.float32), grid)
    settings = {"kind": "potts", "shape": [side, side], "num_categories": q}
    weight = np.full(shape, -1.0)
    name = f"Potts {side}x{side}, {q} states"
    return Task(name, model, settings, {"params": np.stack([weight, weight, b])})


def fhmm(
    length: int, chains: int, sigma: float = 2.0, alpha: float = 0.1, beta: float = 0.8
) -> Task:
    """Binary hidden chains that stay with probability beta, seen as y = x w + b + sigma noise.

    The square of the noise couples all pairs of one time.
    """
    rng, (sigma, alpha, beta) = np.random.default_rng(2), (2.0, 0.1, 0.8)
    w, b, x = rng.normal(size=chains), rng.normal(), np.zeros((length, chains))
    x[0] = rng.random(chains) < alpha
    for t in range(1, length):
        x[t] = np.where(rng.random(chains) < beta, x[t - 1], 1 - x[t - 1])
    y = sigma * rng.normal(size=length) + x @ w + b
    model = fhmm_model(w, b, y, sigma, alpha, beta)
    settings = {"kind": "fhmm", "shape": [length, chains], "num_categories": 2}
    settings |= {"sigma": sigma, "alpha": alpha, "beta": beta}
    params = {"w": w[:, None], "b": np.array([[b]]), "y": y[:, None]}
    return Task(f"FHMM {length}x{chains}", model, settings, params)


def fhmm_model(
    w: np.ndarray, b: float, y: np.ndarray, sigma: float, alpha: float, beta: float
) -> un.Ising:
    """log p(x | y) of hidden units (times, chains) as couplings and fields of units 0 and 1."""
    site, change = np.arange(len(y) * len(w)).reshape(len(y), len(w)), np.log((1 - beta) / beta)
    i, j = np.triu_indices(len(w), 1)
    matrix = {}
    for row in site:
        matrix |= dict(zip(zip(row[i], row[j], strict=True), -w[i] * w[j] / sigma**2, strict=True))
    for now, later in pairwise(site):
        matrix |= dict.fromkeys(zip(now, later, strict=True), -2 * change)
    fields = ((y - b)[:, None] * w - 0.5 * w**2) / sigma**2
    fields[0] += np.log(alpha / (1 - alpha))
    fields[:-1] += change
    fields[1:] += change
    graph = un.graph.from_edges(site.size, np.array(list(matrix), int))
    weights = [matrix[i, j] for i, j in np.asarray(graph.edges).tolist()]
    return un.Ising(
        jnp.asarray(weights, jnp.float32), jnp.asarray(fields.ravel(), jnp.float32), graph
    )


def rbm(hidden: int, steps: int) -> Task:
    """An RBM of 8x8 digits, trained here."""
    from undirected.data import digits8x8

    data = (np.asarray(digits8x8().train.x) > 0.5).astype(np.float32)
    model = un.fit(un.RBM.create(data.shape[1], hidden), data, steps=steps, seed=0).model
    settings = {"kind": "rbm", "shape": [64], "num_categories": 2}
    settings |= {"num_visible": 64, "num_hidden": hidden}
    arrays = {"w": model.weights, "b_v": model.visible_bias, "b_h": model.hidden_bias}
    params = {name: np.asarray(value) for name, value in arrays.items()}
    return Task(f"RBM of digits, {hidden} hidden units", model, settings, params)


def tasks(quick: bool) -> Iterator[Any]:
    """What makes them, so that only those asked for are made."""
    if quick:
        return iter((lambda: ising(6), lambda: potts(4), lambda: fhmm(10, 4), lambda: rbm(8, 50)))
    return iter(
        (lambda: ising(25), lambda: potts(10), lambda: fhmm(100, 10), lambda: rbm(50, 2000))
    )


def kernels(model: Any) -> dict[str, Any]:
    """All kernels of discrete models; several updates a draw where one does little."""
    found = {
        "Gibbs": un.Gibbs(),
        GRADIENTS: un.GibbsWithGradients(20),
        "discrete Langevin": un.DiscreteLangevin(updates=5),
        "any-scale": un.AnyScale(updates=5),
        "path-auxiliary": un.PathAuxiliary(updates=5),
        "multiple-try": un.MultipleTry(updates=2),
        "Hamming ball": un.HammingBall(updates=5),
    }
    return found | ({"block Gibbs": un.BlockGibbs()} if isinstance(model, un.RBM) else {})


def main(quick: bool, only: str, out: Path) -> None:
    """Run the tasks whose name contains a word, and renew them in the record."""
    profile, seconds = ("quick", 1.0) if quick else ("full", 4.0)
    config = {"seconds": seconds, "chains": CHAINS, "settle": SETTLE, "adapt": ADAPT}
    file = out / f"discs-{profile}.json"
    for make in tasks(quick):
        began, task = time.perf_counter(), make()
        if only not in task.name:
            continue
        found, kept = measure(task, seconds), others(file, [task.name])
        rows = [*kept.rows, *found]
        spent = time.perf_counter() - began + kept.seconds
        notes = list(goals(rows))
        save(make_record("discs", profile, config, spent, rows, TITLE, notes), file)
        print("\n".join(notes), flush=True)


def measure(task: Task, seconds: float) -> list[Row]:
    """Ours and theirs from the same starts."""
    model, rows = task.model, []
    settle = un.BlockGibbs(SETTLE) if isinstance(model, un.RBM) else un.Gibbs(SETTLE)
    start = un.run_chains(settle, model, chains=CHAINS, samples=1, seed=0).state.x
    states = np.random.default_rng(3).integers(
        model.layout.variables.states[None], size=(1, len(model.layout.variables))
    )
    far = to_units(model.layout, states)[0]
    for name, kernel in kernels(model).items():
        effective, spent, steps, kernel = run(task, kernel, start, far, seconds)
        work = steps * CHAINS * sum(kernel.evaluations(model)) / effective
        rows.append(Row(task.name, name, RATE, effective / spent, better="higher"))
        rows.append(Row(task.name, name, WORK, work, better="lower"))
        print(f"{task.name}, {name}: {effective / spent:,.3g} a CPU second", flush=True)
    home = prepare("discs", Path("build/peers").absolute())
    if home.python is None or not os.environ.get("DISCS_HOME"):
        print(f"DISCS: no result: {home.problem or 'set DISCS_HOME to a checkout of it'}")
        return rows
    for sampler in PEER:
        rate = by_peer(task, sampler, home.python, np.asarray(start), np.asarray(far), seconds)
        if rate is not None:
            rows.append(Row(task.name, peer_name(sampler), RATE, rate, better="higher"))
            print(f"{task.name}, {peer_name(sampler)}: {rate:,.3g} a CPU second", flush=True)
    return rows


def peer_name(sampler: str) -> str:
    return f"DISCS, {PEER[sampler]}"


def run(
    task: Task, kernel: Any, start: jax.Array, far: jax.Array, seconds: float
) -> tuple[float, float, int, Any]:
    """Effective draws, CPU seconds, steps, and the kernel with the settings it found."""
    visible, q = task.model.layout.n_visible, task.settings["num_categories"]

    def distance(x: jax.Array) -> jax.Array:
        """Of whole numbers, as DISCS has it."""
        v, w = x[:visible], far[:visible]
        if q > 2:
            v, w = (a.reshape(-1, q).argmax(-1) for a in (v, w))
        return jnp.abs(v - w).sum().astype(jnp.float32)

    x = start
    if hasattr(kernel, "adapted"):
        kernel, state = kernel.adapted(task.model, x, jax.random.key(1), steps=ADAPT)
        x = state.x

    def go_on(state: Any, seed: int) -> Any:
        how = {"samples": DRAWS, "seed": seed, "observe": Trace(distance)}
        return jax.block_until_ready(un.run_chains(kernel, task.model, state, **how))

    state, traces, spent = go_on(go_on(x, 0).state, 1).state, [], 0.0  # these two compile
    while spent < seconds or len(traces) < 4:
        began = time.process_time()
        found = go_on(state, 2 + len(traces))
        spent += time.process_time() - began
        state = found.state
        traces.append(np.asarray(found.observed["distance"]))
    trace = np.concatenate(traces)
    return effective_draws(trace), spent, len(trace), kernel


def effective_draws(trace: np.ndarray) -> float:
    """Of all chains (samples, chains); one where nothing moves."""
    found = float(un.ess(trace[..., None], draw_axis=0, chain_axis=1)[0])
    return found if np.isfinite(found) else 1.0


def by_peer(
    task: Task, sampler: str, python: Path, start: np.ndarray, far: np.ndarray, seconds: float
) -> float | None:
    """Effective draws per CPU second of a sampler of DISCS, None where it does not run."""
    energies = np.asarray(jax.vmap(_visible_energy(task.model))(jnp.asarray(start)))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "task.npz"
        states = {"start": task.states(start), "far": task.states(far)}
        np.savez(file, settings=json.dumps(task.settings), **states, **task.params)
        script = Path(__file__).parent / "peers" / "discs.py"
        command = [str(python), str(script), str(file), sampler, str(seconds)]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        print(f"{task.name}, {peer_name(sampler)}: no result: {done.stderr.strip()[-300:]}")
        return None
    found = json.loads(done.stdout.splitlines()[-1])
    check_same(task.name, -energies, np.array(found["start"]))
    return effective_draws(np.array(found["trace"])) / found["seconds"]


def _visible_energy(model: Any) -> Any:
    """Of one state, hidden units summed out."""
    return lambda x: model.free_energy(x[: model.layout.n_visible])


def check_same(name: str, ours: np.ndarray, theirs: np.ndarray) -> None:
    """Log-likelihoods of the starts must differ by a constant."""
    gap = ours - theirs
    if not np.ptp(gap) < 1e-3 * max(1.0, np.ptp(ours)):
        raise RuntimeError(f"{name}: the model of DISCS is another one, by {np.ptp(gap):.3g}")


def goals(rows: list[Row]) -> Iterator[str]:
    """What was reached."""
    rates = {(r.case, r.method): r.ours or 0.0 for r in rows if r.metric == RATE}
    for case in dict.fromkeys(row.case for row in rows):
        mine = {m: v for (c, m), v in rates.items() if c == case and not m.startswith("DISCS")}
        theirs = {m: v for (c, m), v in rates.items() if c == case and m.startswith("DISCS")}
        name = max(OURS_BEST, key=lambda method: mine[method])
        ratio = mine[name] / mine[GRADIENTS]
        word = "reached" if ratio >= 1 else "not reached"
        yield f"{case}: {name} has {ratio:.3g} times the draws of {GRADIENTS}; goal 1: {word}."
        for method, rate in theirs.items():
            kind = method.removeprefix("DISCS, ")
            if kind in mine:
                yield f"{case}: {kind} has {mine[kind] / rate:.3g} times the draws of DISCS's own."
        if theirs:
            best, peer = max(mine, key=lambda m: mine[m]), max(theirs, key=lambda m: theirs[m])
            ratio = mine[best] / theirs[peer]
            word = "reached" if ratio >= GOAL else "not reached"
            yield (
                f"{case}: the best here, {best}, has {ratio:.3g} times the draws of the best of "
                f"{peer}; goal {GOAL:g}: {word}."
            )


INTRODUCTION = """\
`make bench ARGS=discs` runs the tasks of DISCS (Goshvadi et al. 2023) that need no download: Ising
and Potts lattices in random fields, a factorial hidden Markov model, and an RBM of 8x8 digits that
is trained first. All kernels start from the same states; step sizes, balances and path lengths are
found before the clock starts. An effective draw is one of the distance to a fixed random state,
which is what DISCS measures, by the estimator of `un.ess` for all, over 32 chains. With DISCS_HOME
set to a checkout of its repository, its own samplers run on the same models with their own
settings, in a process of their own; that the energies agree is checked. An evaluation is one of all
local fields, or of the energy, as `kernel.evaluations(model)` counts them: a sweep of Gibbs
sampling is one, on the Potts lattice one for each of its two colours. A step of DISCS's Gibbs
sampler draws one variable, one of its block Gibbs sampler two. Chains of an RBM move hidden units
too, those of DISCS have summed them out. DISCS runs on jax 0.4.25, and is given binary states as
floating point numbers: of whole numbers it computes energies of lattices that are cut down to
whole ones. Other programs ran on the machine. The numbers are those of the committed records; this
page is written from them by

```text
python -m benchmarks.page results/benchmarks/{discs,rbm_kernels}-full.json --docs docs/discs.md
```
"""


def markdown(record: Mapping[str, Any], training: Mapping[str, Any]) -> str:
    """The page of the documentation, written from two records: of draws, and of training."""
    return f"{docs_page(TITLE, INTRODUCTION, record)}\n{rbm_kernels.part(training)}"
