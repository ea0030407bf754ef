"""Beyond the paper: networks trained on one kind of query and asked another, and a perceptron."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Key

from undirected import data
from undirected.experiments.record import Outcome, Row
from undirected.experiments.stages import Context
from undirected.inference import QueryNetwork
from undirected.learning import MaskQueries, PatchQueries, Queries, UniformQueries, stack
from undirected.models import RBM, SpinForm
from undirected.papers.query_training._common import Perceptron, query_train, scores

TITLE = "Training on one kind of query, asking another"
REPEATS = "runs"
PARTS = ("networks",)
SIDE = 8
_FULL: dict[str, Any] = {
    "images": "digits",
    "networks": ["RBM", "perceptron"],
    "trained": [],
    "hidden": 50,
    "epochs": 500,
    "rate": {"RBM": 0.003, "perceptron": 0.001},
    "decay": 0.1,
    "batch": 500,
    "layers": 10,
    "strength": 5.0,
    "validate_every": 5,
    "runs": 3,
    "rows": {"train": 100_000, "valid": 4000, "test": 100_000},
}
_QUICK = {
    **_FULL,
    "epochs": 12,
    "rate": {"RBM": 0.01, "perceptron": 0.003},
    "batch": 100,
    "runs": 1,
    "rows": {"train": 100_000, "valid": 1000, "test": 1800},
}
CONFIG: dict[str, dict[str, Any]] = {
    "smoke": {
        **_QUICK,
        "trained": ["every kind"],
        "hidden": 4,
        "layers": 3,
        "epochs": 1,
        "validate_every": 1,
        "rows": {"train": 200, "valid": 50, "test": 50},
    },
    "quick": _QUICK,
    "full": _FULL,
}
_RIGHT = np.tile(np.arange(SIDE) >= SIDE // 2, SIDE)
ASKED: dict[str, Queries] = {
    "a tenth": UniformQueries(0.1),
    "a half": UniformQueries(0.5),
    "nine tenths": UniformQueries(0.9),
    "3x3 patches": PatchQueries((SIDE, SIDE), (3, 3)),
    "the right side": MaskQueries(_RIGHT),
}


def every_kind(key: Key[Array, ""], rows: int, n: int) -> Bool[Array, "rows n"]:
    """For each row, a query of one of the kinds that are asked."""
    pick, *keys = jax.random.split(key, len(ASKED) + 1)
    masks = jnp.stack(
        [queries(k, rows, n) for queries, k in zip(ASKED.values(), keys, strict=True)]
    )
    return masks[jax.random.randint(pick, (rows,), 0, len(ASKED)), jnp.arange(rows)]


TRAINED: dict[str, Queries] = {**ASKED, "every kind": every_kind}


def run(config: dict[str, Any], seed: int, context: Context) -> Outcome:
    """Bits per target of every network under every kind of query, on the same test questions."""
    found = data.rescale(data.load(config["images"]))
    x = {part: getattr(found, part).x[:rows] for part, rows in config["rows"].items()}
    rows: list[Row] = []
    for kind in config["networks"]:
        for trained in config["trained"] or TRAINED:
            context.progress(f"{kind} trained on {trained}")
            scored = context.stage(
                f"{kind}, {trained}", partial(_learn, kind, trained, x, config, seed)
            )
            rows += [
                Row.over_runs(
                    f"asked {asked}",
                    f"{kind}, trained on {trained}",
                    "NCE (bits)",
                    values,
                    better="lower",
                )
                for asked, values in scored.items()
            ]
    note = "The perceptron has as many parameters as the RBM, or a few less."
    return Outcome(rows, notes=[note])


def _learn(
    kind: str, trained: str, x: dict[str, np.ndarray], config: dict[str, Any], seed: int
) -> dict[str, np.ndarray]:
    """All runs of one network; validated on its own kind of query, tested on each."""
    queries, n = TRAINED[trained], x["train"].shape[1]
    keys = jax.random.split(jax.random.key(seed), config["runs"])
    start = stack([_network(kind, n, config, key) for key in keys])
    how = {"rate": config["rate"][kind], "epochs": config["epochs"]}
    targets = queries(jax.random.key(seed + 1), *x["valid"].shape)
    best = query_train(start, queries, x["train"], x["valid"], targets, how, config, seed).models
    return {
        asked: scores(best, x["test"], kind_of(jax.random.key(seed + 2), *x["test"].shape))
        for asked, kind_of in ASKED.items()
    }


def _network(kind: str, n: int, config: dict[str, Any], key: Key[Array, ""]) -> Any:
    if kind == "perceptron":
        return Perceptron.like(n, config["hidden"], key)
    model = SpinForm(RBM.create(n, config["hidden"], key))
    strength = jnp.asarray(config["strength"])
    return QueryNetwork(model, strength, config["layers"], symmetric_start=True)
