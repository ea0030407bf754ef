"""What every mesh must give the same answers to: `python -m tests.mesh_program FOLDER [units]`.

Each process writes the answers of the mesh of all devices as `process-NUMBER.npz`. A process alone
also writes those of one device, `one.npz`, and what a step compiles to, `step.json`. With `units`
the mesh splits weights by hidden units too, and the questions are those about an RBM.
"""

import json
import re
import sys
import threading
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

import undirected as un
from undirected.core.mesh import check_mesh, use_mesh
from undirected.core.processes import join_processes
from undirected.learning import fit
from undirected.learning.trainer import Trainer

ROWS = (np.random.default_rng(0).random((83, 16)) < 0.4).astype(np.uint8)  # 83: no multiple of 8
SEED = 3
HIDDEN = 20
"""Hidden units of the model of `step_program`, whose shapes tell what they are of."""


def as_float(batch: Any, key: Any) -> Any:
    return batch.astype("float32")


def rbm(hidden: int = 8) -> un.RBM:
    return un.RBM.create(16, hidden, seed=1, scale=0.3)


def trained(mesh: Any, objective: Any, model: Any, steps: int = 4, **options: Any) -> Any:
    batches = un.Batches(ROWS, 24, transform=as_float)
    return fit(
        model,
        objective,
        optax.sgd(0.25),
        batches,
        jax.random.key(SEED),
        steps=steps,
        mesh=mesh,
        **options,
    )


def persistent(chains: int = 16) -> un.Persistent:
    return un.Persistent(un.BlockGibbs(), chains=chains)


def objectives() -> dict[str, tuple[Any, Any]]:
    bp = un.SumProduct(iterations=5, tolerance=None)
    return {
        "pcd": (persistent(), rbm()),
        "pcd, chains that 8 does not divide": (persistent(10), rbm()),
        "two-phase bp": (un.TwoPhase(bp, bp), rbm()),
        "query training": (un.QueryTraining(reduction="mean"), un.QueryNetwork(rbm(), layers=3)),
        "pseudo-likelihood": (un.PseudoLikelihood(), un.Ising.create(16)),
        "max-margin": (un.MaxMargin(un.MixedProduct(iterations=5)), rbm()),
    }


def objectives_by_units() -> dict[str, tuple[Any, Any]]:
    names = "pcd", "pcd, chains that 8 does not divide"
    own = {"pseudo-likelihood": (un.PseudoLikelihood(), rbm())}
    return {name: objectives()[name] for name in names} | own


class Source:
    """Rows that are read in slices; which of them the thread that reads ahead has asked for."""

    def __init__(self) -> None:
        self.rows = (np.random.default_rng(1).random((1920, 16)) < 0.4).astype(np.uint8)
        self.shape, self.dtype, self.asked = self.rows.shape, self.rows.dtype, set()

    def __getitem__(self, where: slice) -> np.ndarray:
        if threading.current_thread().name.startswith("undirected-reader"):
            self.asked |= set(range(*where.indices(len(self.rows))))
        return self.rows[where]


def streamed(mesh: Any) -> Any:
    """Half an epoch of a stream, the other half of which is read ahead: its own rows alone."""
    source, size = Source(), 24
    batches = un.StreamedBatches(source, size, block=16, buffer=480, transform=as_float)
    how = optax.sgd(0.25), batches, jax.random.key(SEED)
    result = fit(rbm(), persistent(), *how, steps=40, log_every=10, mesh=mesh)
    count = jax.process_count()
    own = np.arange(size) * count // size == jax.process_index()
    allowed = set(batches.indices(0, 80)[:, own].ravel().tolist())
    assert len(allowed) == len(source.rows) // count
    assert len(source.asked) > len(allowed) // 4
    assert source.asked <= allowed, f"{len(source.asked - allowed)} rows of other processes"
    return result.model


def learned(mesh: Any, asked: dict[str, tuple[Any, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, (objective, model) in asked.items():
        result = trained(mesh, objective, model)
        found[name] = result.model
        if result.carry is not None:
            found[f"chains of {name}"] = result.carry
    return found


HOLES = np.where(np.random.default_rng(1).random((16, 16)) < 0.3, np.nan, ROWS[:16])


def sampled(mesh: Any) -> dict[str, Any]:
    model = rbm()
    bp = un.SumProduct(iterations=20, tolerance=None)
    options = {"chains": 16, "samples": 3, "burn_in": 2, "seed": 0, "mesh": mesh}
    chains = un.run_chains(un.BlockGibbs(), model, **options)
    options = {"chains": 16, "betas": 20, "seed": 0, "mesh": mesh}
    sides = un.log_partition(model, method="ais", **options).sides
    assert sides is not None
    return {
        "chains": (chains.x, chains.state.x),
        "ais": (sides.lower.samples, sides.lower.log_weights),
        "reverse ais": (sides.upper.samples, sides.upper.log_weights),
        "query": un.query(model, HOLES, method=bp, mesh=mesh),
    }


def others(mesh: Any) -> dict[str, Any]:
    """What has no weights to split, and what needs no second look at them."""
    model = rbm()
    five = un.Ising.from_spins(np.full(10, 0.1), np.ones(5) / 8, un.graph.complete(5))
    sampler = un.PerturbAndMap(un.MaxProduct(20, None, 0.5, parallel=True), samples=16)
    few = np.where(HOLES[:7, :5] == 1, np.nan, HOLES[:7, :5])  # 7: no multiple of 2 or 4
    found = {
        "streamed pcd": streamed(mesh),
        "query in numpy": un.query(five, few, method=un.Elimination(), mesh=mesh),
    }
    if jax.process_count() == 1:  # these add nothing to what processes have to agree on
        found["samples"] = un.sample(model, 16, sweeps=4, seed=0, mesh=mesh)
        found["perturbed maxima"] = sampler.draw(model, jax.random.key(SEED), mesh).x
    return found


def answers(mesh: Any, units: bool) -> dict[str, np.ndarray]:
    """Every array of every answer, by the name of the question and a number."""
    asked = objectives_by_units() if units else objectives()
    found = learned(mesh, asked) | sampled(mesh) | ({} if units else others(mesh))
    return {
        f"{name}/{i}": np.asarray(leaf)
        for name, tree in found.items()
        for i, leaf in enumerate(jax.tree.leaves(tree))
        if isinstance(leaf, jax.Array | np.ndarray)
    }


def step_program(mesh: Any) -> str:
    """The compiled program of one step of PCD."""
    model, key = rbm(HIDDEN), jax.random.key(SEED)
    mesh = check_mesh("test", mesh, model)
    batches = un.Batches(ROWS, 24, transform=as_float)
    mask = jax.tree.map(lambda _: True, model)
    optimiser = optax.sgd(0.25)
    trainer = Trainer(persistent(), optimiser, batches, mask, key, mesh)
    state = trainer.start(model, optimiser.init(model), key)
    rows = batches.indices(0, 1)
    with use_mesh(mesh):
        step = trainer.steps.go.lower(
            False, None, state, trainer.data, rows, (np.int32(0), np.int32(1)), trainer.key
        )
        return step.compile().compiled.as_text()


def shapes_and_sums(mesh: Any) -> dict[str, Any]:
    """Shapes of the program of a step, and those of each sum over devices."""
    program = step_program(mesh)
    reduced = [
        re.findall(r"[a-z]+\d*\[[\d,]*\]", line.split(" all-reduce(")[0].split(" = ")[1])
        for line in program.splitlines()
        if " all-reduce(" in line
    ]
    return {
        "reduced": reduced,
        "shapes": sorted(set(re.findall(r"[a-z]+\d+\[[\d,]+\]", program))),
    }


def main(folder: Path, units: bool) -> None:
    together = join_processes()
    mesh = jax.make_mesh((jax.device_count(),), ("devices",))  # JAX's own: explicit, another name
    mesh = un.device_mesh(units=2) if units else mesh
    np.savez(folder / f"process-{jax.process_index()}.npz", **answers(mesh, units))
    if not together:
        np.savez(folder / "one.npz", **answers(None, units))
        (folder / "step.json").write_text(json.dumps(shapes_and_sums(mesh)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), units="units" in sys.argv[2:])
