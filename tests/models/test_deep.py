"""Deep Boltzmann machines: energies, lowering, conditionals, files, and queries on them."""

from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import oracle
from undirected.core.potentials import inner, potentials, statistics
from undirected.core.units import means
from undirected.inference import BeliefPropagation, MeanField, QueryNetwork
from undirected.inference.unrolled import two_sides
from undirected.io.model_files import load_model, save_model
from undirected.learning import Persistent
from undirected.models import RBM, DeepBM, SpinForm
from undirected.sampling import BlockGibbs

SIZES = [[4, 3], [3, 3, 2], [3, 2, 2, 2]]


def make(sizes, seed=0):
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=pair) for pair in pairwise(sizes)]
    biases = [rng.normal(size=size) for size in sizes]
    starts = np.cumsum([0, *sizes])
    matrix = np.zeros((starts[-1], starts[-1]))
    for l, weight in enumerate(weights):
        matrix[starts[l] : starts[l + 1], starts[l + 1] : starts[l + 2]] = weight
    model = DeepBM(tuple(map(jnp.asarray, weights)), tuple(map(jnp.asarray, biases)))
    return model, oracle.pairwise(matrix, np.concatenate(biases))


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_energy_and_lowering_equal_the_oracle(x64, sizes):
    model, truth = make(sizes)
    states = jnp.asarray(truth.states)
    np.testing.assert_allclose(-model.energy(states), truth.log_weights, atol=1e-10)
    p = model.lower()
    values = jax.vmap(lambda x: inner(p, statistics(p, x)))(states)
    np.testing.assert_allclose(values, truth.log_weights, atol=1e-10)
    assert model.layout.n_visible == sizes[0]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_conditionals_equal_the_oracle(x64, sizes):
    model, truth = make(sizes)
    layout = model.layout
    x = truth.states[37 % len(truth.states)]
    for i, block in enumerate(layout.blocks):
        mask = np.ones(layout.n, bool)
        mask[block.slice] = False
        wanted = truth.given(mask, x).means[block.slice]
        fields = model.conditional(i, jnp.asarray(x))
        np.testing.assert_allclose(jax.nn.sigmoid(fields), wanted, atol=1e-10)
        many = model.conditional(i, jnp.tile(jnp.asarray(x), (2, 3, 1)))
        np.testing.assert_allclose(many[1, 2], fields, atol=1e-12)


def test_queries_treat_odd_and_even_layers_as_the_sides_of_one_rbm(x64):
    """The beliefs are those of parallel messages on the layers themselves."""
    model, _ = make([3, 2, 2, 2])
    sides = two_sides(model.lower())
    assert sides is not None
    np.testing.assert_array_equal(sides[0], [0, 1, 2, 5, 6])
    np.testing.assert_array_equal(sides[1], [3, 4, 7, 8])
    evidence = jnp.array([[1000.0, 0.0, -0.5]])
    p = model.lower()
    infer = BeliefPropagation(6, None, parallel=True)
    wanted = infer(potentials(p.layout, p.unary.at[:3].add(evidence[0]), p.factors)).unary[:3]
    network = QueryNetwork(model, 1.0, 6, symmetric_start=True)  # neutral messages, too
    got = jax.jit(lambda e: network.probabilities(e))(evidence)[0]
    np.testing.assert_allclose(got, wanted, atol=1e-8)


def test_one_hidden_layer_is_an_rbm(x64):
    model, truth = make([4, 3])
    rbm = RBM(model.weights[0], *model.biases)
    np.testing.assert_allclose(model.energy(truth.states), rbm.energy(truth.states), atol=1e-12)


def test_spin_form_is_the_energy_of_spins(x64):
    """-E = 1/2 sum u s s + 1/2 sum c s up to a constant (query-training, D.1)."""
    model, truth = make([3, 3, 2])
    p = SpinForm(model).lower()
    x = jnp.asarray(truth.states)
    values = np.asarray(jax.vmap(lambda x: inner(p, statistics(p, x)))(x))
    s = 2 * truth.states - 1
    matrix = np.zeros((8, 8))
    matrix[:3, 3:6], matrix[3:6, 6:] = model.weights
    bias = np.concatenate(model.biases)
    wanted = 0.5 * np.einsum("si,ij,sj->s", s, matrix, s) + 0.5 * s @ bias
    np.testing.assert_allclose(values - values[0], wanted - wanted[0], atol=1e-10)
    assert means(p.layout, p.unary).shape == (8,)


def test_model_files(tmp_path, key):
    model = DeepBM.create([5, 4, 3], key, scale=1.0)
    save_model(tmp_path / "deep", model)
    back = load_model(tmp_path / "deep")
    x = jnp.ones(12)
    assert isinstance(back, DeepBM) and float(back.energy(x)) == float(model.energy(x))


def test_layers_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"weights are \[\(2, 3\)\], but biases of \[2, 4\]"):
        DeepBM((jnp.zeros((2, 3)),), (jnp.zeros(2), jnp.zeros(4)))


def _mean_field(model, v, sweeps=200):
    """Means of the hidden layers given one row, one layer after the other."""
    W, b = (
        [np.asarray(w, float) for w in model.weights],
        [np.asarray(a, float) for a in model.biases],
    )
    m = [v, *(np.full(len(a), 0.5) for a in b[1:])]
    for _ in range(sweeps):
        for layer in range(1, len(m)):
            field = b[layer] + m[layer - 1] @ W[layer - 1]
            if layer + 1 < len(m):
                field = field + W[layer] @ m[layer + 1]
            m[layer] = 1 / (1 + np.exp(-field))
    return m


@pytest.mark.slow
def test_persistent_chains_with_a_mean_field_posterior(key):
    """The gradient is that of mean field given the rows, against the states of the chains."""
    model = DeepBM.create([4, 3, 2], key, scale=1.0)
    rows = np.random.default_rng(0).integers(0, 2, (5, 4)).astype(np.float32)
    objective = Persistent(BlockGibbs(), chains=6, posterior=MeanField(200, 1e-7))
    carry = objective.init(model, rows, key)
    loss = eqx.filter_grad(lambda m: objective(m, rows, carry, key), has_aux=True)
    gradient, (chains, _) = loss(model)
    given = [_mean_field(model, v.astype(float)) for v in rows]
    x = np.asarray(chains.x)
    states = [x[:, block.slice] for block in model.layout.blocks]
    for l in range(2):
        data = np.mean([np.outer(m[l], m[l + 1]) for m in given], 0)
        wanted = states[l].T @ states[l + 1] / len(x) - data
        np.testing.assert_allclose(gradient.weights[l], wanted, atol=1e-5)
    for l in range(3):
        wanted = states[l].mean(0) - np.mean([m[l] for m in given], 0)
        np.testing.assert_allclose(gradient.biases[l], wanted, atol=1e-5)
