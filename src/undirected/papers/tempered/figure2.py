"""Figure 2: particles of a learner before and after a tempered run, and samples of its model."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from undirected.core.protocols import Info, Kernel
from undirected.core.units import random_units
from undirected.experiments.record import Outcome, Row, curve
from undirected.experiments.stages import Context, restore
from undirected.models import SemiRestrictedBM, tempered
from undirected.papers.tempered import _common
from undirected.report.images import image_grid
from undirected.sampling import Gibbs, TemperedTransitions, ladder

TITLE = "Particles before and after a tempered run (Figure 2)"
_FULL: dict[str, Any] = {
    "images": "mnist",
    "train": 50_000,
    "valid": 10_000,
    "test": 10_000,
    "hidden": 500,
    "batch": 100,
    "chains": 100,
    "gibbs": 100_000,
    "fair": True,
    "rate": 0.05,
    "decay": 0.0,
    "hold": 50_000,
    "offset": 2000.0,
    "tempered": {"betas": 500, "lowest": 0.9},
    "points": 10,
    "chunk": 500,
    "sweeps": 500_000,
    "pieces": 10,
}
_QUICK = {
    **_FULL,
    "images": "mnist5k",
    "train": 3500,
    "valid": 500,
    "test": 1000,
    "hidden": 100,
    "gibbs": 1500,
    "hold": 1000,
    "offset": 500.0,
    "tempered": {"betas": 100, "lowest": 0.9},
    "chunk": 150,
    "sweeps": 4000,
    "pieces": 2,
}
CONFIG: dict[str, dict[str, Any]] = {
    "smoke": {
        **_QUICK,
        "train": 100,
        "test": 20,
        "hidden": 4,
        "batch": 20,
        "chains": 10,
        "gibbs": 4,
        "hold": 2,
        "tempered": {"betas": 3, "lowest": 0.9},
        "points": 2,
        "sweeps": 4,
    },
    "quick": _QUICK,
    "full": _FULL,
}
BEFORE, AFTER, SAMPLES = "before the run", "after the run", "samples of the model"


def run(config: dict[str, Any], seed: int, context: Context) -> Outcome:
    """The three sheets of particles, and how their classes are shared out."""
    with jax.default_matmul_precision("highest"):
        return _run(config, seed, context)


def _run(config: dict[str, Any], seed: int, context: Context) -> Outcome:
    digits = _common.load_digits(config, seed)
    learning = _common.joint_learning(digits, config, seed, context, lambda model: 0.0)
    objective, steps = _common.learner("SAP", config, Gibbs())
    found = learning.run("SAP", objective, steps)
    model = restore(learning.start, found)
    refreshed = context.stage("tempered run", partial(_refresh, model, found, config, seed))
    sheets = {BEFORE: found["particles"], AFTER: refreshed["x"]}
    sheets[SAMPLES] = _sample(model, config, seed, context)
    shares = {name: _classes(model, x) for name, x in sheets.items()}
    for name, x in sheets.items():
        pixels = _common.seen_pixels(model, jnp.asarray(x))
        image_grid(pixels, (28, 28), context.out / f"{name.replace(' ', '-')}.png")
    case, n = "classes of the particles", config["chains"]
    metric = "distance of their shares to those of the model's samples"
    rows = [
        Row(
            case,
            name,
            metric,
            0.5 * np.abs(shares[name] - shares[SAMPLES]).sum(),
            n=n,
            better="lower",
        )
        for name in (BEFORE, AFTER)
    ]
    accepted, moved = (float(refreshed[k].mean()) for k in ("accepted", "distance"))
    rows += [
        Row("tempered run", "SAP", "share accepted", accepted, n=n, paper=0.7, better="higher"),
        Row("tempered run", "SAP", "share of units moved", moved, n=n, better="higher"),
    ]
    lines = {name: (range(_common.CLASSES), share.tolist()) for name, share in shares.items()}
    return Outcome(
        rows=rows,
        curves=[curve("classes", "class", "share of the particles", lines)],
        images=[
            {
                "name": name,
                "caption": f"{name.capitalize()}",
                "file": f"{name.replace(' ', '-')}.png",
            }
            for name in sheets
        ],
        notes=[
            f"{steps} parameter updates by SAP; samples of the model after {config['sweeps']} "
            "Gibbs updates from random units. Shown are the probabilities of the pixels given the "
            "hidden units and the other pixels; the class of a particle is its own label unit. The "
            "distance is the total variation between two histograms, each of "
            f"{n} particles, so that it is above zero even between samples of one model."
        ],
    )


def _refresh(
    model: SemiRestrictedBM, found: _common.Arrays, config: dict[str, Any], seed: int
) -> _common.Arrays:
    """The particles after one tempered run, and whether each was accepted."""
    how = config["tempered"]
    kernel = TemperedTransitions(Gibbs(), tempered, ladder(how["lowest"], how["betas"]))
    start = jnp.asarray(found["particles"])
    x, info = _move(kernel, 1, model, start, jax.random.key(seed + 2))
    return {"x": np.asarray(x), **{name: np.asarray(info[name][0]) for name in info}}


def _sample(
    model: SemiRestrictedBM, config: dict[str, Any], seed: int, context: Context
) -> Float[np.ndarray, "chains n"]:
    """Chains from random units, after so many sweeps; every piece is a stage of its own."""
    key = jax.random.key(seed + 3)
    x = np.asarray(random_units(model.layout, key, (config["chains"],)))
    size = max(1, config["sweeps"] // config["pieces"])
    for i in range(config["pieces"]):
        again = partial(_piece, model, x, size, jax.random.fold_in(key, i))
        x = context.stage(f"sample, piece {i + 1} of {config['pieces']}", again)["x"]
    return x


def _piece(
    model: SemiRestrictedBM, x: np.ndarray, sweeps: int, key: Key[Array, ""]
) -> _common.Arrays:
    moved, _ = _move(Gibbs(sweeps), 1, model, jnp.asarray(x), key)
    return {"x": np.asarray(moved)}


@eqx.filter_jit
def _move(
    kernel: Kernel, steps: int, model: Any, x: Float[Array, "chains n"], key: Key[Array, ""]
) -> tuple[Float[Array, "chains n"], Info]:
    """The chains after some steps of a kernel, and its reports."""
    free = jnp.ones(model.layout.n, bool)
    first, key = jax.random.split(key)

    def step(state: Any, key: Key[Array, ""]) -> tuple[Any, Info]:
        return kernel.step(model, state, free, key)

    state, info = jax.lax.scan(step, kernel.init(model, x, first), jax.random.split(key, steps))
    return state.x, info


def _classes(model: SemiRestrictedBM, x: np.ndarray) -> Float[np.ndarray, " classes"]:
    """Share of the particles in each class, by their label units."""
    return np.asarray(x)[:, model.n_pixels : model.n_visible].mean(0)
