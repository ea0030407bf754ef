"""Figure 1, bottom: a semi-restricted Boltzmann machine of MNIST digits and their classes."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from undirected.evaluation import Bracket, log_likelihood
from undirected.evaluation.estimate import mean
from undirected.experiments.claims import Ahead, Claim, Meets
from undirected.experiments.record import Outcome, Row, curve
from undirected.experiments.stages import Context, restore
from undirected.learning import member
from undirected.models import SemiRestrictedBM
from undirected.papers.tempered import _common
from undirected.report.images import image_grid
from undirected.sampling import Gibbs

TITLE = "A semi-restricted Boltzmann machine on MNIST (Figure 1, bottom)"
PAPER = {"SAP": -87.12, _common.FAIR: -85.91, "Trans-SAP": -85.91}
_FULL: dict[str, Any] = {
    "images": "mnist",
    "train": 50_000,
    "valid": 10_000,
    "test": 10_000,
    "hidden": 500,
    "batch": 100,
    "chains": 100,
    "gibbs": 200_000,
    "fair": False,
    "rate": 0.05,
    "decay": 0.0,
    "hold": 50_000,
    "offset": 2000.0,
    "tempered": {"betas": 500, "lowest": 0.9, "every": 1000, "after": 100_000},
    "rungs": 5,
    "methods": ["SAP", _common.FAIR, "Trans-SAP"],
    "points": 100,
    "chunk": 500,
    "ais": {"chains": 500, "betas": 20_000},
}
_QUICK = {
    **_FULL,
    "images": "mnist5k",
    "train": 3500,
    "valid": 500,
    "test": 1000,
    "hidden": 100,
    "gibbs": 4000,
    "hold": 1500,
    "offset": 200.0,
    "tempered": {"betas": 100, "lowest": 0.9, "every": 200, "after": 2000},
    "points": 10,
    "chunk": 100,
    "ais": {"chains": 50, "betas": 1000},
}
CONFIG: dict[str, dict[str, Any]] = {
    "smoke": {
        **_QUICK,
        "train": 100,
        "test": 20,
        "hidden": 4,
        "batch": 20,
        "chains": 5,
        "gibbs": 12,
        "hold": 4,
        "tempered": {"betas": 2, "lowest": 0.9, "every": 2, "after": 4},
        "methods": ["SAP", _common.FAIR, "Trans-SAP"],
        "points": 2,
        "ais": {"chains": 5, "betas": 5},
    },
    "quick": _QUICK,
    "full": _FULL,
}
PIXELS = 784
TEST, TRAIN = "test log-probability (nats)", "training log-probability (nats)"
ALONE = "test log-probability of the image alone (nats)"
CLAIMS = [
    Claim(
        "Tempered transitions raise the test log-probability, at equal Gibbs updates.",
        "−85.91 against −87.12",
        [Ahead("MNIST", TEST, _common.FAIR, "SAP")],
        caveat="At full size it is scored 50 updates after a tempered run and at a rate half as "
        "high again as that of SAP at its end, so that a deficit need not be due to fewer updates",
    ),
    Claim(
        "Tempered transitions raise the test log-probability, at equal parameter updates.",
        "not compared",
        [Ahead("MNIST", TEST, "Trans-SAP", "SAP")],
    ),
    Claim(
        "The log-probabilities are as high as printed.",
        "−87.12 (SAP), −85.91 (Trans-SAP)",
        [Meets("MNIST", TEST, method) for method in ("SAP", "Trans-SAP")],
    ),
    Claim(
        "Both learners are above the paper's better one.",
        "−85.91",
        [Meets("MNIST", TEST, method, PAPER["Trans-SAP"]) for method in ("SAP", "Trans-SAP")],
    ),
]


def run(config: dict[str, Any], seed: int, context: Context) -> Outcome:
    """Test log-probability by AIS and classification error of every learner."""
    with jax.default_matmul_precision("highest"):
        return _run(config, seed, context)


def _run(config: dict[str, Any], seed: int, context: Context) -> Outcome:
    digits = _common.load_digits(config, seed)
    learning = _common.joint_learning(
        digits, config, seed, context, lambda model: _wrong(model, digits.valid).mean()
    )
    report = _Report(config, context)
    for method, steps, found in learning.run_all(config["methods"], Gibbs()):
        model = restore(learning.start, found)
        score = context.stage(f"AIS, {method}", partial(_score, model, digits, config, seed))
        accepted = _common.acceptance(found)
        report.add(method, steps, found, model, digits, score, accepted, found["particles"])
    return report.outcome()


def run_seeds(config: dict[str, Any], seeds: list[int], context: Context) -> list[Outcome]:
    """The same for several seeds, whose models are learned and scored side by side."""
    with jax.default_matmul_precision("highest"):
        return _run_seeds(config, seeds, context)


def _run_seeds(config: dict[str, Any], seeds: list[int], context: Context) -> list[Outcome]:
    digits = [_common.load_digits(config, seed) for seed in seeds]

    def wrong(models: SemiRestrictedBM) -> float:
        each = [_wrong(member(models, i), d.valid).mean() for i, d in enumerate(digits)]
        return float(np.mean(each))

    learning = _common.joint_learning_of_seeds(digits, config, seeds, context, wrong)
    reports = [_Report(config, context) for _ in seeds]
    for method, steps, found in learning.run_all(config["methods"], Gibbs()):
        models = restore(learning.start, found)
        each = [member(models, i) for i in range(len(seeds))]
        scores = context.stage(f"AIS, {method}", partial(_score_all, each, digits, config, seeds))
        for i, report in enumerate(reports):
            accepted, particles = _common.acceptance(found, i), found["particles"][i]
            mine = each[i], digits[i], scores[i], accepted, particles
            report.add(method, steps, found, *mine)
    together = (
        f"{len(seeds)} seeds were learned side by side: the curves are means over them, seconds "
        "are those of all."
    )
    return [report.outcome(together, shown=i == 0) for i, report in enumerate(reports)]


class _Report:
    """Rows, curves, particles and notes of one seed, learner after learner."""

    def __init__(self, config: dict[str, Any], context: Context):
        self.config, self.context = config, context
        self.rows: list[Row] = []
        self.lines: dict[str, tuple[list[float], list[float]]] = {}
        self.sheet: list[Array] = []
        self.notes: list[str] = []

    def add(
        self,
        method: str,
        steps: int,
        found: dict[str, np.ndarray],
        model: SemiRestrictedBM,
        digits: _common.Digits,
        score: dict[str, Any],
        accepted: float | None,
        particles: Float[np.ndarray, "chains n"],
    ) -> None:
        """What one learner gave."""
        self.rows += _rows(method, model, digits.test, score, accepted)
        seen = np.isfinite(found["curve.validation"])
        updates = _common.gibbs_updates(found, self.config, method)[seen]
        self.lines[method] = updates.tolist(), (100 * found["curve.validation"][seen]).tolist()
        self.sheet.append(_common.seen_pixels(model, jnp.asarray(particles[:20])))
        middle = score["values"][TEST][0] + score["log_z"]
        low, high = (middle - end for end in score["interval"][::-1])
        self.notes.append(
            f"{method}: {steps} parameter updates in {_common.seconds(self.context, method):.0f} "
            f"s; the 99 % interval of log Z puts the test log-probability between {low:.2f} and "
            f"{high:.2f}."
        )

    def outcome(self, *more: str, shown: bool = True) -> Outcome:
        """All of it, with the sheet of particles where it is shown."""
        file, methods = "particles.png", ", ".join(self.config["methods"])
        images = [
            {"name": "particles", "caption": f"Particles at the end, a row each: {methods}"}
            | {"file": file}
        ]
        if shown:
            image_grid(np.concatenate(self.sheet), (28, 28), self.context.out / file, columns=20)
        return Outcome(
            rows=self.rows,
            curves=[curve("classification", "Gibbs updates", "validation error (%)", self.lines)],
            images=images if shown else (),
            notes=[*self.notes, *more, _NOTE],
        )


_NOTE = (
    f"Trans-SAP makes as many parameter updates as SAP, and its tempered runs come on top; "
    f"'{_common.FAIR}' makes as many Gibbs updates as SAP, those of the tempered runs counted, and "
    "so fewer parameter updates; fair=true counts them for Trans-SAP too. Pixels are 1 with "
    "probability grey / 255, drawn afresh whenever a training image is shown, once for the others. "
    "The log-probability of the paper is set beside that of image and class together, the smaller "
    "of the two."
)


def _score(
    model: SemiRestrictedBM, digits: _common.Digits, config: dict[str, Any], seed: int
) -> dict[str, Any]:
    """log Z from both sides, and mean log-probabilities of the images with it."""
    found = _common.estimate(model, digits.joint_means, Gibbs(), config, seed)
    return _scored(model, digits, found, seed)


def _score_all(
    models: list[SemiRestrictedBM],
    digits: list[_common.Digits],
    config: dict[str, Any],
    seeds: list[int],
) -> list[dict[str, Any]]:
    """The same for several models."""
    means = [one.joint_means for one in digits]
    found = _common.estimate_all(models, means, Gibbs(), config, seeds[0])
    return [_scored(*mine) for mine in zip(models, digits, found, seeds, strict=True)]


def _scored(
    model: SemiRestrictedBM, digits: _common.Digits, found: Bracket, seed: int
) -> dict[str, Any]:
    log_z = found.lower.log_z
    pixels = jnp.asarray(digits.test[:, :PIXELS])
    values = {
        TEST: log_likelihood(model, digits.test, log_z),
        ALONE: mean(-np.asarray(_image_free_energy(model, pixels), np.float64) - log_z),
        TRAIN: log_likelihood(model, digits.training_sample(len(digits.test), seed), log_z),
    }
    return {
        "log_z": log_z,
        "reverse": found.upper.log_z,
        "interval": list(found.interval),
        "ess": found.lower.ess,
        "values": {name: list(value) for name, value in values.items()},
    }


def _rows(
    method: str,
    model: SemiRestrictedBM,
    test: Float[np.ndarray, "rows v"],
    score: dict[str, Any],
    accepted: float | None,
) -> list[Row]:
    case, paper = "MNIST", {TEST: PAPER.get(method)}
    rows = [
        Row(case, method, metric, *value, paper=paper.get(metric), better="higher")
        for metric, value in score["values"].items()
    ]
    gap, wrong = score["reverse"] - score["log_z"], 100 * _wrong(model, test)
    rows += [
        Row.average(case, method, "classification error (%)", wrong, better="lower"),
        Row(case, method, "log Z, reverse minus forward (nats)", gap, better="lower"),
        Row(case, method, "AIS effective sample size", score["ess"], better="higher"),
    ]
    if accepted is not None:
        metric = "acceptance of tempered runs"
        rows.append(Row(case, method, metric, accepted, paper=0.7, better="higher"))
    return rows


def _wrong(
    model: SemiRestrictedBM, test: Float[np.ndarray, "rows v"]
) -> Float[np.ndarray, " rows"]:
    """1 where the most probable class given the pixels, by the exact posterior, is not the true."""
    found = np.asarray(_classes(model, jnp.asarray(test[:, :PIXELS])))
    return (found != test[:, PIXELS:].argmax(1)).astype(float)


@eqx.filter_jit
def _classes(model: SemiRestrictedBM, pixels: Float[Array, "rows p"]) -> Array:
    return jax.lax.map(lambda row: model.label_fields(row).argmax(-1), pixels, batch_size=1000)


@eqx.filter_jit
def _image_free_energy(
    model: SemiRestrictedBM, pixels: Float[Array, "rows p"]
) -> Float[Array, " rows"]:
    """-log sum_y exp(-F(pixels, y))."""
    labels = jnp.eye(_common.CLASSES)

    def one(row: Array) -> Array:
        pixels = jnp.broadcast_to(row, (_common.CLASSES, PIXELS))
        return -jax.nn.logsumexp(-model.free_energy(jnp.concatenate([pixels, labels], 1)))

    return jax.lax.map(one, pixels, batch_size=100)
