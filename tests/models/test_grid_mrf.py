"""The 8-connected grid: energies, messages as shifted products, labels of clones."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from undirected.io.model_files import load_model, save_model
from undirected.models import GridMRF
from undirected.ops.grid import grid_fields

OFFSETS = ((1, 0), (0, 1), (1, 1), (1, -1))
CLONES = (2, 1)


def neighbours(rows, cols):
    """(d, pixel, pixel) of every pair."""
    for r, c in product(range(rows), range(cols)):
        for d, (down, right) in enumerate(OFFSETS):
            if 0 <= r + down < rows and 0 <= c + right < cols:
                yield d, (r, c), (r + down, c + right)


def value(potentials, states):
    """-E of a grid of state numbers."""
    return sum(potentials[d][states[i], states[j]] for d, i, j in neighbours(*states.shape))


def plain_messages(potentials, unary, layers):
    """Parallel sum-product, message by message: the product of those into each pixel."""
    rows, cols, K = unary.shape
    pairs = list(neighbours(rows, cols))
    factor = {(i, j): np.exp(potentials[d]) for d, i, j in pairs}
    factor |= {(j, i): np.exp(potentials[d]).T for d, i, j in pairs}
    messages = {edge: np.ones(K) / K for edge in factor}
    for _ in range(layers):
        renewed = {}
        for i, j in factor:
            belief = np.exp(unary[i])
            for (k, to), m in messages.items():
                if to == i and k != j:
                    belief = belief * m
            m = belief @ factor[i, j]
            renewed[i, j] = m / m.sum()
        messages = renewed
    incoming = np.ones(unary.shape)
    for (_, j), m in messages.items():
        incoming[j] *= m
    return incoming


def problem(shape, seed=0):
    rng = np.random.default_rng(seed)
    K = sum(CLONES)
    potentials, unary = rng.normal(size=(4, K, K)), rng.normal(size=(*shape, K))
    return GridMRF(jnp.asarray(potentials), CLONES, shape), potentials, unary


def test_energy(x64):
    model, potentials, _ = problem((3, 3))
    for seed in range(3):
        states = np.random.default_rng(seed).integers(0, 3, (3, 3))
        x = jnp.asarray(np.eye(3)[states].reshape(-1))
        np.testing.assert_allclose(-model.energy(x), value(potentials, states), atol=1e-12)
        np.testing.assert_allclose(model.energy(jnp.tile(x, (2, 1)))[1], model.energy(x))


def test_messages_equal_those_sent_one_by_one(x64):
    model, potentials, unary = problem((3, 4))
    got = jax.jit(lambda u: model.log_beliefs(u, 3))(jnp.asarray(unary)[None])[0]
    wanted = plain_messages(potentials, unary, 3)
    np.testing.assert_allclose(np.exp(got), wanted / wanted.sum(-1, keepdims=True), atol=1e-9)
    with_own = jax.jit(lambda u: model.log_beliefs(u, 3, own_evidence=True))
    own = wanted * np.exp(unary)
    own = own / own.sum(-1, keepdims=True)
    np.testing.assert_allclose(np.exp(with_own(jnp.asarray(unary)[None])[0]), own, atol=1e-9)


def test_gradients_equal_differences_of_messages_sent_one_by_one(x64):
    _, potentials, unary = problem((3, 4), 2)
    rng = np.random.default_rng(0)
    probe = rng.normal(size=unary.shape)

    def wanted(potentials, unary):
        return (probe * np.log(plain_messages(potentials, unary, 3))).sum()

    def ours(potentials, unary):
        return (probe * grid_fields(potentials, unary[None], 3)[0]).sum()

    slopes = jax.jit(jax.grad(ours, (0, 1)))(jnp.asarray(potentials), jnp.asarray(unary))
    for _ in range(4):
        along = [rng.normal(size=a.shape) for a in (potentials, unary)]
        ahead, behind = (
            wanted(potentials + h * along[0], unary + h * along[1]) for h in (1e-5, -1e-5)
        )
        found = sum((a * np.asarray(b)).sum() for a, b in zip(along, slopes, strict=True))
        np.testing.assert_allclose(found, (ahead - behind) / 2e-5, rtol=1e-6)


def test_a_single_row_is_a_chain_and_exact(x64):
    model, potentials, unary = problem((1, 4), 1)
    weights, marginals = [], np.zeros((4, 3))
    for states in product(range(3), repeat=4):
        log_weight = value(potentials, np.array([states])) + sum(
            unary[0, i, s] for i, s in enumerate(states)
        )
        weights.append(np.exp(log_weight))
        for i, s in enumerate(states):
            marginals[i, s] += weights[-1]
    ask = jax.jit(lambda u: model.log_beliefs(u, 4, own_evidence=True))
    got = np.exp(ask(jnp.asarray(unary)[None])[0, 0])
    np.testing.assert_allclose(got, marginals / np.sum(weights), atol=1e-9)


def test_labels_sum_their_clones_and_evidence_repeats_for_them():
    model, _, _ = problem((2, 2))
    beliefs = jnp.log(jnp.array([0.2, 0.5, 0.3]))
    np.testing.assert_allclose(
        np.exp(model.label_log_probabilities(beliefs)), [0.7, 0.3], rtol=1e-5
    )
    seen = jnp.array([[[1.0, 0.0], [0.0, 1.0]]])
    evidence = np.exp(model.evidence(seen, [0.8, 0.1]))
    np.testing.assert_allclose(evidence[0, 0], [[0.8, 0.8, 0.1], [0.2, 0.2, 0.9]], rtol=1e-5)


def test_gradients_are_finite_with_impossible_evidence(key):
    model = GridMRF.create((4, 4), CLONES, key)
    seen = jnp.asarray(np.random.default_rng(0).integers(0, 2, (2, 4, 4)).astype(np.float32))

    def loss(potentials):
        grid = GridMRF(potentials, CLONES, (4, 4))
        beliefs = grid.log_beliefs(grid.evidence(seen, [1.0, 0.0]), 4)
        return grid.label_log_probabilities(beliefs)[..., 0].sum()

    assert bool(jnp.isfinite(jax.jit(jax.grad(loss))(30 * model.potentials)).all())


def test_model_files(tmp_path, key):
    model = GridMRF.create((4, 5), (2, 1, 1), key)
    save_model(tmp_path / "grid", model)
    back = load_model(tmp_path / "grid")
    assert back.clones == (2, 1, 1) and back.shape == (4, 5)
    np.testing.assert_array_equal(back.potentials, model.potentials)


def test_wrong_shapes_are_refused():
    with pytest.raises(ValueError, match="clones"):
        GridMRF(jnp.zeros((4, 2, 2)), CLONES, (2, 2))
