"""Table 1: RBMs and deep Boltzmann machines on eight data sets, asked random queries."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from undirected import data
from undirected.core.errors import UndirectedError
from undirected.experiments.claims import Ahead, Claim, Either, Meets
from undirected.experiments.record import Outcome, Row, curve
from undirected.experiments.stages import Context
from undirected.inference import QueryNetwork
from undirected.learning import stack
from undirected.learning.query_training import marginal_losses
from undirected.models import SpinForm
from undirected.papers.query_training._baselines import (
    QUERIES,
    Splits,
    create,
    pcd,
    pl,
    targets_of,
)
from undirected.papers.query_training._common import BITS, query_train, scores

TITLE = "Random queries on eight data sets"
REPEATS = "runs"
PARTS = ("cases",)

NAMES = ["adult", "connect4", "digits", "dna", "mushrooms", "nips", "ocr_letters", "web"]
_PAPER = {
    ("AdVIL-BP", "RBM"): [0.224, 0.248, 0.530, 0.778, 0.192, 0.795, 0.470, 0.142],
    ("AdVIL-Gibbs", "RBM"): [0.229, 0.238, 0.493, 0.782, 0.218, 0.797, 0.471, 0.163],
    ("PCD-BP", "RBM"): [0.215, 0.285, 0.530, 0.763, 0.159, 0.801, 0.428, 0.140],
    ("PCD-Gibbs", "RBM"): [0.218, 0.288, 0.516, 0.765, 0.159, 0.804, 0.427, 0.144],
    ("QT", "RBM"): [0.167, 0.148, 0.472, 0.766, 0.124, 0.787, 0.377, 0.133],
    ("AdVIL-BP", "DBM"): [0.242, 0.364, 0.578, 0.805, 0.224, 0.816, 0.490, 0.146],
    ("AdVIL-Gibbs", "DBM"): [0.244, 0.299, 0.529, 0.560, 0.690, 0.934, 0.923, 0.195],
    ("QT", "DBM"): [0.169, 0.146, 0.471, 0.765, 0.124, 0.787, 0.379, 0.133],
}
PAPER = {
    (name, method, model): value
    for (method, model), values in _PAPER.items()
    for name, value in zip(NAMES, values, strict=True)
}
SHIFTS = 5
"""Copies of every digit: as it is, and moved by one pixel in four directions."""
_FAST = {"rate": 0.03, "decay": 0.02}
_SETS = {
    "adult": {"hidden": 50, "epochs": 1000, **_FAST},
    "connect4": {"hidden": 50, "rate": 0.003, "epochs": 1000},
    "digits": {"hidden": 50, "epochs": 1000, **_FAST},
    "dna": {"hidden": 50, "rate": 0.01, "epochs": 1000, "weight_decay": 0.5},
    "mushrooms": {"hidden": 50, "epochs": 500, **_FAST},
    "nips": {"hidden": 200, "rate": 0.003, "epochs": 100, "weight_decay": 5.0},
    "ocr_letters": {"hidden": 50, "epochs": 400, **_FAST},
    "web": {"hidden": 100, "rate": 0.003, "epochs": 400},
    "rcv1_valid_only": {"hidden": 50, "epochs": 400, **_FAST},
}
_FULL: dict[str, Any] = {
    "sets": _SETS,
    "cases": list(_SETS),
    "models": ["RBM", "DBM"],
    "runs": 3,
    "batch": 500,
    "layers": 10,
    "strength": 5.0,
    "decay": 0.1,
    "valid_queries": 4000,
    "validate_every": 1,
    "rows": {"train": 100_000, "valid": 100_000, "test": 100_000},
    "pcd": {
        "rates": [0.03, 0.1, 0.3, 1.0, 3.0],
        "steps": 1000,
        "chains": 2000,
        "mean_field": 10,
        "validate": 20,
    },
    "pl": {"rate": 0.003, "epochs": 200, "validate": 50},
    "gibbs": {"steps": 5000, "burn_in": 20, "thin": 10},
}
_QUICK = {
    **_FULL,
    "sets": {
        "dna": {"hidden": 50, "rate": 0.01, "epochs": 60, "weight_decay": 0.5},
        "mushrooms": {"hidden": 50, "rate": 0.01, "epochs": 100},
        "digits": {"hidden": 50, "rate": 0.01, "epochs": 30},
    },
    "cases": ["dna", "mushrooms", "digits"],
    "models": ["RBM"],
    "runs": 1,
    "batch": 100,
    "validate_every": 5,
    "valid_queries": 2000,
    "rows": {"train": 100_000, "valid": 1000, "test": 1000},
    "pcd": {
        "rates": [0.1, 0.3, 1.0],
        "steps": 600,
        "chains": 500,
        "mean_field": 10,
        "validate": 60,
    },
    "pl": {"rate": 0.003, "epochs": 30, "validate": 10},
    "gibbs": {"steps": 500, "burn_in": 20, "thin": 10},
}
CONFIG: dict[str, dict[str, Any]] = {
    "smoke": {
        **_QUICK,
        "sets": {"digits": {"hidden": 4, "rate": 0.01, "epochs": 1}},
        "cases": ["digits"],
        "layers": 4,
        "valid_queries": 50,
        "rows": {"train": 200, "valid": 50, "test": 50},
        "pcd": {"rates": [0.3], "steps": 4, "chains": 20, "mean_field": 10, "validate": 2},
        "pl": {"rate": 0.003, "epochs": 1, "validate": 1},
        "gibbs": {"steps": 30, "burn_in": 10, "thin": 10},
    },
    "quick": _QUICK,
    "full": _FULL,
}
_PCD, _MODELS = ("PCD-BP", "PCD-Gibbs"), ("RBM", "DBM")
CLAIMS = [
    Claim(
        "A network trained by queries answers them better than an RBM learned by persistent "
        "contrastive divergence, asked by belief propagation or by Gibbs sampling.",
        "in 14 of 16 comparisons",
        [Ahead(name, "NCE (bits)", "QT, RBM", f"{by}, RBM") for name in NAMES for by in _PCD],
    ),
    Claim(
        "Query training of an RBM or of a deep Boltzmann machine is as good as printed, to the "
        "three decimals of the table.",
        ", ".join(str(min(PAPER[n, "QT", m] for m in _MODELS)) for n in NAMES),
        [
            Either(
                [
                    Meets(n, "NCE (bits)", f"QT, {m}", min(PAPER[n, "QT", k] for k in _MODELS), 3)
                    for m in _MODELS
                ]
            )
            for n in NAMES
        ],
    ),
]


def run(config: dict[str, Any], seed: int, context: Context) -> Outcome:
    """Normalised cross-entropy in bits of every method on every set; the test rows are seen once.

    `cases` names the sets to run. All runs of a set are one ensemble. Query training
    keeps, for each run, the model that was best on the validation rows; PCD chooses its learning
    rate and its stopping time by them.
    """
    rows: list[Row] = []
    curves: dict[str, dict[str, tuple]] = {model: {} for model in config["models"]}
    if unknown := set(config["cases"]) - set(config["sets"]):
        raise UndirectedError(
            f"query-training: no set {', '.join(sorted(unknown))}; pass some of "
            f"{', '.join(config['sets'])}"
        )
    for name in config["cases"]:
        how = config["sets"][name]
        splits = _splits(name, config)
        targets = np.asarray(targets_of(splits["test"], seed))
        trivial = marginal_losses(splits["train"], splits["test"], targets)
        trivial_nce = trivial[0].sum() / trivial[1].sum() / BITS
        rows.append(
            Row(name, "independent marginals", "NCE (bits)", trivial_nce, n=1, better="lower")
        )
        for model in config["models"]:
            work = model, splits, how, config, seed
            learners = {"PCD": partial(pcd, *work), "QT": partial(_train, *work)}
            if model == "RBM":
                learners["PL"] = partial(pl, *work[1:])
            found = context.map({f"{name}, {model}: {by}": fn for by, fn in learners.items()})
            pcd_found = found[f"{name}, {model}: PCD"]
            rows += [_row(name, f"PCD-{by}", model, pcd_found[by]) for by in ("BP", "Gibbs")]
            if model == "RBM":
                rows.append(_row(name, "PL-BP", model, found[f"{name}, {model}: PL"]["test"]))
            trained = found[f"{name}, {model}: QT"]
            rows.append(_row(name, "QT", model, trained["test"]))
            curves[model][name] = trained["epoch"], trained["validation"]
            if name in NAMES:
                rows += [_quoted(name, method, model) for method in ("AdVIL-BP", "AdVIL-Gibbs")]
    plots = [
        curve(f"QT, {model}: validation", "epoch", "NCE (bits)", series)
        for model, series in curves.items()
    ]
    notes = [
        "The learning rate falls along a cosine, and validation asks the same queries every time; "
        "the authors' program keeps the rate and draws new queries. Rates were chosen by "
        "validation: five sets begin at 0.03, where the authors' program has 0.01 (adult) and "
        "0.003, and end at a fiftieth of it, the others end at a tenth. So mushrooms is given 500 "
        "epochs, ocr_letters and web, the sets with the most work, 400 for the authors' 1000.",
        "Weights decay on dna and nips, which have the fewest rows for their columns, by "
        "validation; nips is given 100 epochs for the authors' 200.",
        "rcv1_valid_only: the 10,000 validation rows of rcv1, cut 60 : 20 : 20 in their order, "
        "where the whole set cannot be had; not to be compared with the paper's column.",
        "digits: a sixth of the training images, with all shifts, is held out for validation; "
        "the authors' program validates on the training rows.",
        "AdVIL rows have no figure of ours: the paper's are quoted.",
        "Gibbs answers average p(v | h) over the samples; the paper averages binary samples.",
        "In the DBM the second hidden layer is never a target; the authors' program trains it "
        "towards 0.5 on half of its units.",
    ]
    return Outcome(rows, curves=plots, notes=notes)


def _row(name: str, method: str, model: str, values: np.ndarray) -> Row:
    paper = PAPER.get((name, method, model))
    return Row.over_runs(name, f"{method}, {model}", "NCE (bits)", values, paper, better="lower")


def _quoted(name: str, method: str, model: str) -> Row:
    paper = PAPER[name, method, model]
    label = f"{method}, {model} (quoted)"
    return Row(name, label, "NCE (bits)", None, paper=paper, better="lower")


def _splits(name: str, config: dict[str, Any]) -> Splits:
    """Rows scaled as in the authors' program: a binary 1 is 0.9999, so its evidence is soft.

    Few validation rows are repeated, each time with other queries, so that the choice of a model
    is not one of lucky queries. A set that has validation rows alone is cut 60 : 20 : 20.
    """
    rows = config["rows"]
    found = data.rescale(data.load(name))
    parts = {part: getattr(found, part).x for part in ("train", "valid", "test")}
    if name == "digits":
        parts |= dict(zip(("train", "valid"), _split_digits(parts["train"]), strict=True))
    if not len(parts["train"]):
        x = parts["valid"]
        cuts = np.split(x, [len(x) * 6 // 10, len(x) * 8 // 10])
        parts = dict(zip(parts, cuts, strict=True))
    splits = {part: x[: rows[part]] for part, x in parts.items()}
    repeats = max(1, config["valid_queries"] // len(splits["valid"]))
    return splits | {"valid": np.tile(splits["valid"], (repeats, 1))}


def _split_digits(x: Float[np.ndarray, "rows 64"]) -> tuple[np.ndarray, np.ndarray]:
    """Training and validation rows: a sixth of the images, with all their shifts, is held out.

    The set has five blocks: the images as they are, and moved in four directions. Its own
    validation rows are its training rows, as in the authors' program.
    """
    blocks = x.reshape(SHIFTS, -1, x.shape[1])
    held = np.random.default_rng(0).permutation(blocks.shape[1]) % 6 == 0
    train, valid = blocks[:, ~held], blocks[:, held]
    return train.reshape(-1, x.shape[1]), valid.reshape(-1, x.shape[1])


def _train(
    kind: str, splits: Splits, how: dict[str, Any], config: dict[str, Any], seed: int
) -> dict[str, Any]:
    """Query training of all runs at once; the best model of each run is tested."""
    keys = jax.random.split(jax.random.key(seed), config["runs"])
    valid, n = splits["valid"], splits["train"].shape[1]
    strength, layers = jnp.asarray(config["strength"]), config["layers"]
    models = [SpinForm(create(kind, n, how["hidden"], key)) for key in keys]
    start = stack([QueryNetwork(m, strength, layers, symmetric_start=True) for m in models])
    targets = targets_of(valid, seed + 1)
    best = query_train(start, QUERIES, splits["train"], valid, targets, how, config, seed)
    validation = np.mean(best.history, axis=1)
    return {
        "test": scores(best.models, splits["test"], targets_of(splits["test"], seed)),
        "validation": validation,
        "epoch": config["validate_every"] * np.arange(1, len(validation) + 1),
        "strength": np.asarray(best.models.strength),
    }
