"""Tiny models with their enumerated truth, and the instruments every Gibbs kernel is held against.

`reference_sweep` redoes a sweep variable by variable from energy differences; `transition_matrix`
reads a noise-driven sweep as a black box, and finds the probability of every move by bisection on
the noise of one variable while the noise of all others forces them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy import stats

from tests import oracle
from undirected.core import graph
from undirected.models import RBM, Ising, SemiRestrictedBM

RATE = 1e-5
"""Chance that a statistical test of a right kernel fails."""


@dataclass(frozen=True)
class Case:
    """A model, its truth, its variables as slices of units in the order a sweep visits them."""

    model: Any
    truth: oracle.Truth
    order: list[slice]


def make(name: str) -> Case:
    return {
        "rbm": rbm,
        "labelled rbm": lambda: rbm(pixels=2, labels=3),
        "dense": lambda: dense(5),
        "path": lambda: sparse(graph.chain(5)),
        "cycle of three colours": lambda: sparse(
            graph.from_edges(5, [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)])
        ),
        "odd torus": lambda: sparse(graph.torus(3, 3), scale=0.5),
        "isolated units": lambda: sparse(graph.from_edges(3, [])),
        "lateral": lateral,
        "labelled lateral": lambda: lateral(pixels=2, labels=3),
    }[name]()


def rbm(pixels: int = 3, labels: int = 0, hidden: int = 2) -> Case:
    rng = np.random.default_rng(1)
    visible = pixels + labels
    w, b, c = (rng.normal(size=s) for s in ((visible, hidden), visible, hidden))
    model = RBM(jnp.asarray(w), jnp.asarray(b), jnp.asarray(c), labels)
    order = [slice(visible + j, visible + j + 1) for j in range(hidden)]
    order += [slice(i, i + 1) for i in range(pixels)]
    order += [slice(pixels, visible)] if labels else []
    return Case(model, oracle.rbm(w, b, c, labels), order)


def dense(n: int) -> Case:
    rng = np.random.default_rng(2)
    w, b = rng.normal(size=(n, n)), rng.normal(size=n)
    model = Ising(jnp.asarray(w), jnp.asarray(b))
    truth = oracle.pairwise(0.5 * (w + w.T), b)
    return Case(model, truth, [slice(i, i + 1) for i in range(n)])


def sparse(wiring: graph.Graph, scale: float = 1.0) -> Case:
    rng = np.random.default_rng(3)
    w, b = scale * rng.normal(size=wiring.n_edges), rng.normal(size=wiring.n)
    matrix = oracle.edge_matrix(wiring.n, wiring.edges, w)
    sites = [int(i) for i in np.asarray(wiring.colours).ravel() if i < wiring.n]
    model = Ising(jnp.asarray(w), jnp.asarray(b), wiring)
    return Case(model, oracle.pairwise(matrix, b), [slice(i, i + 1) for i in sites])


def lateral(pixels: int = 3, hidden: int = 2, labels: int = 0) -> Case:
    """A semi-restricted Boltzmann machine: visibles coupled with each other and with hiddens."""
    rng = np.random.default_rng(4)
    inside, visible = rng.normal(size=(pixels, pixels)), pixels + labels
    w, b, c = (rng.normal(size=s) for s in ((visible, hidden), visible, hidden))
    rbm = RBM(jnp.asarray(w), jnp.asarray(b), jnp.asarray(c), labels)
    truth = oracle.semi_restricted(w, b, c, inside, labels)
    order = [slice(visible + j, visible + j + 1) for j in range(hidden)]
    order += [slice(i, i + 1) for i in range(pixels)]
    order += [slice(pixels, visible)] if labels else []
    return Case(SemiRestrictedBM(rbm, jnp.asarray(inside)), truth, order)


def forced(units: np.ndarray) -> np.ndarray:
    """Noise that makes each of these units what it is."""
    return np.where(units > 0.5, 1e4, -1e4)


def reference_sweep(
    log_weight: Callable[[np.ndarray], float],
    order: list[slice],
    x: np.ndarray,
    free: np.ndarray,
    noise: np.ndarray,
) -> np.ndarray:
    """One sweep of one chain: every free variable takes its best log weight plus noise in turn."""
    x = x.copy()
    for where in order:
        if not free[where].all():
            continue
        width = where.stop - where.start
        options = np.eye(width) if width > 1 else np.array([[0.0], [1.0]])
        scores = []
        for option in options:
            x[where] = option
            scores.append(log_weight(x) + option @ noise[where])
        x[where] = options[int(np.argmax(scores))]
    return x


def transition_matrix(
    sweep: Callable[[np.ndarray, np.ndarray], np.ndarray],
    starts: np.ndarray,
    ends: np.ndarray,
    variables: list[slice],
) -> np.ndarray:
    """P[start, end] of a sweep(x, noise) that draws each variable once (others are forced)."""
    x, y = np.repeat(starts, len(ends), 0), np.tile(ends, (len(starts), 1))
    probability = np.ones(len(x))
    for where in variables:
        width = where.stop - where.start
        if width == 1:
            field = -_threshold(sweep, x, forced(y), where.start)
            logits = np.stack([np.zeros_like(field), field], 1)
            chosen = y[:, where.start].astype(int)
        else:
            logits = np.zeros((len(x), width))
            for state in range(1, width):
                noise = forced(y)
                noise[:, where] = -1e4
                noise[:, where.start] = 0.0
                logits[:, state] = -_threshold(sweep, x, noise, where.start + state)
            chosen = y[:, where].argmax(1)
        odds = np.exp(logits - logits.max(1, keepdims=True))
        probability *= (odds / odds.sum(1, keepdims=True))[np.arange(len(x)), chosen]
    return probability.reshape(len(starts), len(ends))


def _threshold(sweep, x: np.ndarray, noise: np.ndarray, unit: int) -> np.ndarray:
    """The noise at which this unit of each chain turns on."""
    low, high = np.full(len(x), -40.0), np.full(len(x), 40.0)
    for _ in range(60):
        noise[:, unit] = 0.5 * (low + high)
        on = np.asarray(sweep(x, noise))[:, unit] > 0.5
        low, high = np.where(on, low, noise[:, unit]), np.where(on, noise[:, unit], high)
    return high


def p_value(truth: oracle.Truth, x: np.ndarray) -> float:
    """Chi-square fit of independent draws; states expected less than 10 times are pooled."""
    bits = 2 ** np.arange(truth.states.shape[1])
    codes, seen = (np.rint(np.asarray(a) @ bits).astype(int) for a in (truth.states, x))
    assert np.isin(seen, codes).all(), "a state outside the model's space"
    counts = np.bincount(seen, minlength=codes.max() + 1)[codes]
    expected = truth.probabilities * len(x)
    rare = expected < 10
    pooled = [np.append(a[~rare], a[rare].sum()) for a in (counts, expected)]
    keep = pooled[1] > 0
    return float(stats.chisquare(pooled[0][keep], pooled[1][keep]).pvalue)


def exact_draws(truth: oracle.Truth, n: int, seed: int) -> np.ndarray:
    """Independent draws from the enumerated distribution."""
    rng = np.random.default_rng(seed)
    return truth.states[rng.choice(len(truth.states), n, p=truth.probabilities)]


def random_states(
    order: list[slice], shape: tuple[int, ...], rng: np.random.Generator
) -> np.ndarray:
    """Uniform states of these variables, one-hot where a variable has several units."""
    x = np.zeros((*shape, max(where.stop for where in order)))
    for where in order:
        width = where.stop - where.start
        if width == 1:
            x[..., where.start] = rng.integers(2, size=shape)
        else:
            x[..., where] = np.eye(width)[rng.integers(width, size=shape)]
    return x
