"""A nonnegative Boltzmann machine of handwritten digits: samples, completion of hidden halves."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Key

from undirected.core import rectified
from undirected.data import digits8x8
from undirected.experiments.fitting import fit
from undirected.experiments.record import Outcome, Row
from undirected.experiments.stages import Context
from undirected.learning import Batches
from undirected.models.copositivity import judge
from undirected.models.nonnegative import NonnegativeBM
from undirected.papers.nnbm._common import RectifiedPseudoLikelihood
from undirected.report.images import image_grid
from undirected.sampling.chain import run_chains
from undirected.sampling.rectified import RectifiedGibbs

TITLE = "Grey values of 8 x 8 digits: samples and completion"

_FULL = {
    "steps": 1500,
    "rate": 0.05,
    "rows": 500,
    "ridge": 0.01,
    "floor": 0.5,
    "test_rows": 360,
    "chains": 20,
    "sweeps": 200,
    "samples": 40,
}

CONFIG: dict[str, dict[str, Any]] = {
    "smoke": {
        **_FULL,
        "steps": 10,
        "test_rows": 5,
        "chains": 2,
        "sweeps": 5,
        "samples": 4,
    },
    "quick": {**_FULL, "test_rows": 60},
    "full": _FULL,
}


def run(config: dict[str, Any], seed: int, context: Context) -> Outcome:
    """Root mean square error of the hidden lower halves of test digits, and a sheet of samples."""
    data = digits8x8()
    train, test = (np.asarray(part.x, np.float32) / 16 for part in (data.train, data.test))
    alive = (train > 0).mean(0) > 0.05
    train, test = train[:, alive], test[: config["test_rows"], alive]
    learn_key, complete_key, sample_key = jax.random.split(jax.random.key(seed), 3)
    learned = context.stage("learn", lambda: _learn(train, config, learn_key))
    weights, diagonal, bias = (jnp.asarray(learned[k]) for k in ("weights", "diagonal", "bias"))
    model = NonnegativeBM(weights, diagonal, bias)
    lower = np.flatnonzero(alive) // 8 >= 4
    guesses = {
        "nonnegative Boltzmann machine": _complete(model, test, lower, config, complete_key),
        "Gaussian": _gaussian(train, test, lower, config["ridge"]),
        "independent rectified normals": _independent(train, test, lower),
    }
    rows = []
    for method, guess in guesses.items():
        error = np.sqrt(((guess - test[:, lower]) ** 2).mean(1))
        case = "lower half of test digits"
        rows.append(Row.average(case, method, "RMSE", error, better="lower"))
        below = float((guess < 0).mean())
        rows.append(Row(case, method, "share below zero", below, n=len(error), better="lower"))
    alone = NonnegativeBM.from_data(jnp.asarray(train))
    densities = {
        "nonnegative Boltzmann machine": model.log_conditionals(jnp.asarray(test)),
        "Gaussian": _gaussian_densities(train, test, config["ridge"]),
        "independent rectified normals": alone.log_conditionals(jnp.asarray(test)),
    }
    for method, density in densities.items():
        each = np.asarray(density).mean(1)
        case = "a pixel given all others"
        rows.append(Row.average(case, method, "log density (nats)", each, better="higher"))
    start = jnp.zeros((config["samples"], model.n))
    drawn = run_chains(
        RectifiedGibbs(sweeps=10), model, start, sample_key, samples=1, burn_in=config["sweeps"]
    )
    assert drawn.x is not None
    sheet = np.zeros((config["samples"], 64), np.float32)
    sheet[:, alive] = np.clip(np.asarray(drawn.x[0]), 0, 1)
    image_grid(sheet, (8, 8), context.out / "samples.png", scale=6)
    images = [{"name": "samples", "caption": "Samples by Gibbs", "file": "samples.png"}]
    proved = {True: "proved copositive", False: "not copositive", None: "not proved copositive"}
    notes = [
        f"{int(alive.sum())} of 64 pixels are ever on; the learned matrix is "
        f"{proved[judge(model).proved]}."
    ]
    return Outcome(rows=rows, images=images, notes=notes)


def _learn(
    train: Float[np.ndarray, "rows n"], config: dict[str, Any], key: Key[Array, ""]
) -> dict[str, np.ndarray]:
    """Pseudo-likelihood from the Gaussian's parameters on, kept among positive definite matrices.

    Grey values have more zeros than the moments of any rectified normal allow, so that mean-field
    moment matching has no solution here; and without the constraint samples run away.
    """
    mean, covariance = _moments(train, config["ridge"])
    precision = np.linalg.inv(covariance).astype(np.float32)
    start = NonnegativeBM.from_matrix(jnp.asarray(precision), jnp.asarray(precision @ mean))
    schedule = optax.cosine_decay_schedule(config["rate"], config["steps"], 0.01)
    optimiser = optax.chain(optax.adam(schedule), _keep_positive(config["floor"]))
    batches = Batches(train, config["rows"])
    model = fit(
        start, RectifiedPseudoLikelihood(), optimiser, batches, key, steps=config["steps"]
    ).model
    parts = model.weights, model.diagonal, model.bias
    return dict(zip(("weights", "diagonal", "bias"), map(np.asarray, parts), strict=True))


def _keep_positive(floor: float) -> optax.GradientTransformation:
    """Change steps so that no eigenvalue of the matrix falls below the floor."""

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        eye = jnp.eye(len(params.diagonal))
        weights = params.weights + updates.weights
        couplings = 0.5 * (weights + weights.T) * (1 - eye)
        values, vectors = jnp.linalg.eigh(couplings + jnp.diag(params.diagonal + updates.diagonal))
        matrix = (vectors * jnp.maximum(values, floor)[None]) @ vectors.T
        diagonal = jnp.diag(matrix)
        changed = matrix * (1 - eye) - params.weights, diagonal - params.diagonal
        return eqx.tree_at(lambda u: (u.weights, u.diagonal), updates, changed), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def _complete(
    model: NonnegativeBM,
    test: Float[np.ndarray, "rows n"],
    hidden: np.ndarray,
    config: dict[str, Any],
    key: Key[Array, ""],
) -> Float[np.ndarray, "rows h"]:
    """Means of the hidden units given the others, by Gibbs chains with the others held."""
    start = jnp.repeat(jnp.asarray(np.where(hidden, 0, test)), config["chains"], 0)
    result = run_chains(
        RectifiedGibbs(),
        model,
        start,
        key,
        samples=config["sweeps"],
        burn_in=config["sweeps"] // 4,
        free=jnp.asarray(hidden),
        keep=False,
    )
    means = result.chain_means.reshape(len(test), config["chains"], -1).mean(1)
    return np.asarray(means)[:, hidden]


def _moments(train: np.ndarray, ridge: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the training rows, with a little on its diagonal."""
    return train.mean(0), np.cov(train.T) + ridge * np.eye(train.shape[1])


def _gaussian(train: np.ndarray, test: np.ndarray, hidden: np.ndarray, ridge: float) -> np.ndarray:
    """Conditional means of the Gaussian with the moments of the training rows."""
    mean, covariance = _moments(train, ridge)
    gain = np.linalg.solve(
        covariance[np.ix_(~hidden, ~hidden)], covariance[np.ix_(~hidden, hidden)]
    )
    return mean[hidden] + (test[:, ~hidden] - mean[~hidden]) @ gain


def _gaussian_densities(train: np.ndarray, test: np.ndarray, ridge: float) -> np.ndarray:
    """Log density of every entry given the others, by the same Gaussian."""
    mean, covariance = _moments(train, ridge)
    precision = np.linalg.inv(covariance)
    variance = 1 / np.diag(precision)
    gap = (test - mean) @ precision * variance
    return -0.5 * (gap**2 / variance + np.log(2 * np.pi * variance))


def _independent(train: np.ndarray, test: np.ndarray, hidden: np.ndarray) -> np.ndarray:
    """Means of rectified normals fitted to every pixel alone."""
    x = jnp.asarray(train)
    mean = rectified.cumulants(*rectified.from_moments(x.mean(0), (x * x).mean(0))).mean
    return np.broadcast_to(np.asarray(mean)[hidden], (len(test), int(hidden.sum())))
