"""Section 4.2: small NORB, stereo pairs of toys, by Gaussian RBM features and an RBM of them."""

from typing import Any

import numpy as np
from jaxtyping import Float, Int

from undirected import data
from undirected.core.errors import DataNotFound
from undirected.experiments.record import Outcome
from undirected.experiments.stages import Context
from undirected.papers.tempered._images import (
    FULL,
    QUICK,
    SMOKE,
    Task,
    run_task,
    standardise,
)

TITLE = "Gaussian RBM features and an RBM on small NORB (Section 4.2)"
SIDE, CENTRE, BLOCK = 96, 64, 4
EDGE = (SIDE - CENTRE) // 2
_LOG_P, _ERROR = "test log-probability of the features (nats)", "classification error (%)"
PAPER = {
    ("SAP", _LOG_P): -611.08,
    ("Trans-SAP", _LOG_P): -598.58,
    ("SAP", _ERROR): 8.7,
    ("Trans-SAP", _ERROR): 8.4,
    ("logistic regression on pixels", _ERROR): 22.5,
}
_SIZES = {"valid": 4300, "shifts": 4, "largest_shift": 3, "required": True}
_SMALL = _SIZES | {"shifts": 1, "required": False}
CONFIG: dict[str, dict[str, Any]] = {
    "smoke": SMOKE | _SMALL,
    "quick": QUICK | _SMALL | {"train": 3000},
    "full": FULL
    | _SIZES
    | {
        "train": 20_000,
        "test": 24_300,
        "features": 4000,
        "hidden": 4000,
        "gibbs": 400_000,
        "hold": 100_000,
        "tempered": {"betas": 1000, "lowest": 0.9, "every": 1000, "after": 200_000},
    },
}


def run(config: dict[str, Any], seed: int, context: Context) -> Outcome:
    """Test log-probability of the features and classification error of every learner."""
    try:
        found = data.hold_out(data.small_norb(), config["valid"], seed)
    except DataNotFound as error:
        if config["required"]:
            raise
        return Outcome(notes=[f"Not run, for want of the data: {error}"])
    train, test = found.train.take(np.arange(config["train"])), found.test
    assert train.y is not None
    assert test.y is not None
    rng = np.random.default_rng([seed, 2])
    pairs, tests = (_pairs(part.x) for part in (train, test.take(np.arange(config["test"]))))
    shifted = [
        pairs,
        *(_shift(pairs, config["largest_shift"], rng) for _ in range(config["shifts"])),
    ]
    grey = np.concatenate([fovea(part) for part in shifted])
    x, test_x = standardise(grey, fovea(tests))
    mean, scale = grey.mean(0), grey.std(0) + 0.05
    task = Task(
        "small NORB",
        x,
        train.y,
        test_x,
        test.y[: len(test_x)],
        (SIDE, SIDE),
        lambda v: np.clip(unfold(v * scale + mean)[:, 0], 0, 1),
        PAPER,
    )
    (outcome,) = run_task(task, config, [seed], context)
    note = (
        f"A pair has {x.shape[1]} pixels: the {CENTRE} x {CENTRE} in the middle of each image, and "
        f"means over {BLOCK} x {BLOCK} around it (the paper has 8976, by a scheme it does not "
        f"give). {config['shifts']} shifted copies of every training pair (the paper has 47). The "
        "rate falls as 10 / (1000 + t), which goes on from the constant 0.01; printed is 100."
    )
    return Outcome(outcome.rows, images=outcome.images, notes=[*outcome.notes, note])


def _pairs(x: Int[np.ndarray, "rows n"]) -> Float[np.ndarray, "rows 2 96 96"]:
    return x.reshape(-1, 2, SIDE, SIDE).astype(np.float32) / 255


def _shift(
    pairs: Float[np.ndarray, "rows 2 96 96"], largest: int, rng: np.random.Generator
) -> Float[np.ndarray, "rows 2 96 96"]:
    """Every pair moved by up to `largest` pixels, the edge repeated."""
    padded = np.pad(pairs, ((0, 0), (0, 0), (largest, largest), (largest, largest)), "edge")
    out = np.empty_like(pairs)
    for i, (down, right) in enumerate(rng.integers(0, 2 * largest + 1, (len(pairs), 2))):
        out[i] = padded[i, :, down : down + SIDE, right : right + SIDE]
    return out


def fovea(pairs: Float[np.ndarray, "rows 2 96 96"]) -> Float[np.ndarray, "rows 8832"]:
    """The middle of each image as it is, and means over blocks around it."""
    middle = pairs[:, :, EDGE:-EDGE, EDGE:-EDGE].reshape(len(pairs), -1)
    count = SIDE // BLOCK
    blocks = pairs.reshape(len(pairs), 2, count, BLOCK, count, BLOCK).mean((3, 5))
    return np.concatenate([middle, blocks[:, :, _around()].reshape(len(pairs), -1)], 1)


def unfold(v: Float[np.ndarray, "rows 8832"]) -> Float[np.ndarray, "rows 2 96 96"]:
    """Images again, blocks spread over their pixels."""
    count, rows = SIDE // BLOCK, len(v)
    blocks = np.zeros((rows, 2, count, count), v.dtype)
    blocks[:, :, _around()] = v[:, 2 * CENTRE**2 :].reshape(rows, 2, -1)
    images = blocks.repeat(BLOCK, 2).repeat(BLOCK, 3)
    middle = v[:, : 2 * CENTRE**2].reshape(rows, 2, CENTRE, CENTRE)
    images[:, :, EDGE:-EDGE, EDGE:-EDGE] = middle
    return images


def _around() -> np.ndarray:
    """Which blocks lie outside the middle."""
    count, edge = SIDE // BLOCK, EDGE // BLOCK
    outside = np.ones((count, count), bool)
    outside[edge:-edge, edge:-edge] = False
    return outside
