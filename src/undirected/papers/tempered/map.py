"""When tempering pays: one thing changed at a time, by the exact likelihood of a small RBM."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from undirected import data
from undirected.data import corruption
from undirected.experiments.claims import Ahead, Claim
from undirected.experiments.record import Outcome, Row
from undirected.experiments.stages import Context, restore
from undirected.learning.ensemble import member
from undirected.papers.tempered import _common
from undirected.sampling import BlockGibbs

TITLE = "When tempering pays: chains, rates, data and size (exact likelihoods)"
BASE = "as in Figure 1"
_VARIANTS: dict[str, dict[str, Any]] = {
    BASE: {},
    "10 chains": {"chains": 10},
    "20 chains": {"chains": 20},
    "50 chains": {"chains": 50},
    "500 chains": {"chains": 500},
    "rate 0.002": {"rate": 0.002},
    "rate 0.05": {"rate": 0.05},
    "rate 0.05, 10 chains": {"rate": 0.05, "chains": 10},
    "pixels drawn afresh": {"afresh": True},
    "5 hidden units": {"hidden": 5},
    "15 hidden units": {"hidden": 15},
    "silhouettes": {"images": "caltech101_silhouettes"},
    "silhouettes, 10 chains": {"images": "caltech101_silhouettes", "chains": 10},
}
_FULL: dict[str, Any] = {
    "images": "mnist",
    "train": 50_000,
    "test": 10_000,
    "hidden": 10,
    "batch": 100,
    "chains": 100,
    "gibbs": 20_000,
    "fair": True,
    "rate": 0.01,
    "decay": 0.0,
    "hold": 2000,
    "offset": 1000.0,
    "afresh": False,
    "tempered": {"betas": 50, "lowest": 0.9, "every": 200, "after": 5000},
    "rungs": 5,
    "points": 20,
    "chunk": 1000,
    "methods": ["SAP", "Trans-SAP", "PT-SAP"],
    "variants": list(_VARIANTS),
}
_QUICK = _FULL | {
    "images": "mnist5k",
    "train": 4000,
    "test": 1000,
    "gibbs": 8000,
    "hold": 800,
    "tempered": {"betas": 50, "lowest": 0.9, "every": 200, "after": 2000},
    "variants": [BASE, "10 chains", "rate 0.05, 10 chains"],
}
CONFIG: dict[str, dict[str, Any]] = {
    "smoke": _QUICK
    | {
        "train": 200,
        "test": 50,
        "hidden": 3,
        "batch": 20,
        "gibbs": 40,
        "tempered": {"betas": 3, "lowest": 0.9, "every": 5, "after": 10},
        "rungs": 2,
        "points": 4,
        "variants": [BASE, "10 chains"],
    },
    "quick": _QUICK,
    "full": _FULL,
}
METRIC = "test log-probability (nats)"
CLAIMS = [
    Claim(
        "At equal Gibbs updates tempered transitions give a better model than plain chains, "
        "whatever the number of chains, the rate, the data and the size.",
        "shown in one setting",
        [Ahead(case, METRIC, "Trans-SAP", "SAP") for case in _VARIANTS],
    ),
]


def run(config: dict[str, Any], seed: int, context: Context) -> Outcome:
    """Test log-probability of every learner in every variant."""
    return run_seeds(config, [seed], context)[0]


def run_seeds(config: dict[str, Any], seeds: list[int], context: Context) -> list[Outcome]:
    """The same for several seeds side by side: of start, order of the rows, and chains."""
    rows: list[list[Row]] = [[] for _ in seeds]
    for case in config["variants"]:
        changed = config | _VARIANTS[case]
        train, test = _images(changed)
        learning = _learning(case, train, changed, seeds, context)
        for method, _, found in learning.run_all(changed["methods"], BlockGibbs()):
            models = restore(learning.start, found)
            for i, own in enumerate(rows):
                value = float(_common.mean_log_p(member(models, i), jnp.asarray(test)))
                own.append(Row(case, method, METRIC, value, n=len(test), better="higher"))
                accepted = _common.acceptance(found, i)
                if accepted is not None:
                    metric = "acceptance of tempered runs"
                    own.append(Row(case, method, metric, accepted, better="higher"))
    note = (
        "Every learner makes as many Gibbs updates of its particles, tempered runs and rungs "
        "included, and so fewer parameter updates where it has those. log Z is exact."
    )
    return [Outcome(own, notes=[note] if i == 0 else ()) for i, own in enumerate(rows)]


def _images(config: dict[str, Any]) -> tuple[np.ndarray, Float[np.ndarray, "test v"]]:
    """Training images, grey where they are drawn afresh, and binary test images."""
    found = data.load(config["images"])
    train, test = found.train.x[: config["train"]], found.test.x[: config["test"]]
    if found.train.x.max() <= 1:
        return train.astype(np.uint8), test.astype(np.float32)
    kept = train if config["afresh"] else _common.binarise(train, 1).astype(np.uint8)
    return kept, _common.binarise(test, 0)


def _draw(batch: Array, key: Key[Array, ""]) -> Array:
    return corruption.binarise(batch, key)


def _learning(
    case: str, train: np.ndarray, config: dict[str, Any], seeds: list[int], context: Context
) -> _common.Learning:
    """Learners of all seeds of one variant, from base rates."""
    grey = train.max() > 1
    means, transform = train.mean(0) / (255 if grey else 1), _draw if grey else None
    return _common.rbm_learning_of_seeds(
        train, means, config, seeds, context, transform, f"{case}, "
    )
