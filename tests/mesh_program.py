"""What every mesh must give the same answers to; run in a process with 8 devices.

`python -m tests.mesh_program` compares a mesh of 8 virtual CPU devices with one device and writes
what it found as JSON: the largest difference of each quantity.
"""

import json
import re
import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax

import undirected as un
from undirected.core.mesh import check_mesh, use_mesh
from undirected.learning import fit
from undirected.learning.trainer import Trainer

ROWS = (np.random.default_rng(0).random((83, 16)) < 0.4).astype(np.uint8)  # 83: no multiple of 8
KEY = jax.random.key(3)


def as_float(batch: Any, key: Any) -> Any:
    return batch.astype("float32")


def rbm() -> un.RBM:
    return un.RBM.create(16, 8, seed=1, scale=0.3)


def trained(mesh: Any, objective: Any, model: Any, steps: int = 4, **options: Any) -> Any:
    batches = un.Batches(ROWS, 24, transform=as_float)
    return fit(model, objective, optax.sgd(0.25), batches, KEY, steps=steps, mesh=mesh, **options)


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


def difference(a: Any, b: Any) -> float:
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return max(
        float(np.abs(np.asarray(x, float) - np.asarray(y, float)).max())
        for x, y in pairs
        if isinstance(x, jax.Array | np.ndarray)
    )


def both(function: Callable[[Any], Any], mesh: Any) -> float:
    return difference(function(None), function(mesh))


def learning(mesh: Any) -> dict[str, float]:
    found = {}
    for name, (objective, model) in objectives().items():
        one, many = (trained(where, objective, model) for where in (None, mesh))
        found[name] = difference(one.model, many.model)
        if one.carry is not None:
            found[f"chains of {name}"] = difference(one.carry, many.carry)
    return found


def sampling(mesh: Any) -> dict[str, float]:
    model = rbm()
    path = un.ModelPath(model.independent(), model)
    sampler = un.PerturbAndMap(un.MaxProduct(20, None, 0.5, parallel=True), samples=16)
    holes = np.where(np.random.default_rng(1).random((16, 16)) < 0.3, np.nan, ROWS[:16])
    bp = un.SumProduct(iterations=20, tolerance=None)

    def chains(mesh: Any) -> Any:
        found = un.run_chains(
            un.BlockGibbs(), model, chains=16, samples=3, burn_in=2, seed=0, mesh=mesh
        )
        return found.x, found.state.x

    return {
        "chains": both(chains, mesh),
        "ais": both(
            lambda mesh: (
                un.ais(path, un.BlockGibbs(), seed=0, chains=16, betas=20, mesh=mesh).samples
            ),
            mesh,
        ),
        "ais, log weights": both(
            lambda mesh: (
                un.ais(path, un.BlockGibbs(), seed=0, chains=16, betas=20, mesh=mesh).log_weights
            ),
            mesh,
        ),
        "perturbed maxima": both(lambda mesh: sampler.draw(model, KEY, mesh).x, mesh),
        "query": both(lambda mesh: un.query(model, holes, method=bp, mesh=mesh), mesh),
    }


def step_program(mesh: Any) -> str:
    """The compiled program of one step of PCD."""
    mesh = check_mesh("test", mesh)
    model = rbm()
    batches = un.Batches(ROWS, 24, transform=as_float)
    mask = jax.tree.map(lambda _: True, model)
    optimiser = optax.sgd(0.25)
    trainer = Trainer(persistent(), optimiser, batches, mask, KEY, mesh)
    state = trainer.start(model, optimiser.init(model), KEY)
    rows = batches.indices(0, 1)
    with use_mesh(mesh):
        step = trainer.steps.go.lower(
            False, None, state, trainer.data, rows, (np.int32(0), np.int32(1)), trainer.key
        )
        return step.compile().compiled.as_text()


def main() -> None:
    mesh = jax.make_mesh((8,), ("devices",))  # of JAX's own making: explicit, another name
    program = step_program(mesh)
    reduced = [
        re.findall(r"[a-z]+\d*\[[\d,]*\]", line.split(" all-reduce(")[0].split(" = ")[1])
        for line in program.splitlines()
        if " all-reduce(" in line
    ]
    found = {
        "devices": jax.device_count(),
        "learning": learning(mesh),
        "sampling": sampling(mesh),
        "reduced": reduced,
        "shapes": sorted(set(re.findall(r"[a-z]+\d+\[[\d,]+\]", program))),
    }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
