"""The two spin conventions, and refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import oracle
from undirected.core import graph
from undirected.core.errors import UndirectedError
from undirected.models import RBM, Ising

pytestmark = pytest.mark.usefixtures("x64")


@pytest.mark.parametrize("dense", [True, False])
def test_conventions_convert_both_ways(dense):
    rng = np.random.default_rng(3)
    where = None if dense else graph.torus(3, 3)
    n = 6 if dense else 9
    couplings = jnp.asarray(rng.normal(size=(n, n) if dense else where.n_edges))
    if dense:
        couplings = jnp.triu(couplings, 1) + jnp.triu(couplings, 1).T
    fields = jnp.asarray(rng.normal(size=n))
    matrix = couplings if dense else oracle.edge_matrix(n, where.edges, couplings)
    truth = oracle.spins(matrix, fields)
    model = Ising.from_spins(couplings, fields, where)
    log_weights = -np.asarray(model.energy(jnp.asarray(truth.states)))
    again = oracle.from_log_weights(truth.states, log_weights)
    assert again.log_z == pytest.approx(truth.log_z, abs=1e-10)
    assert np.allclose(again.log_weights, truth.log_weights, atol=1e-10)
    back, back_fields, constant = model.to_spins()
    assert np.allclose(back, couplings) and np.allclose(back_fields, fields)
    assert constant == pytest.approx(0, abs=1e-12)


def test_numpy_arrays_and_whole_numbers_become_parameters():
    model = Ising.from_spins(np.ones((3, 3), np.float32), np.array([1, 0, 2]))
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(model))
    assert jnp.issubdtype(model.bias.dtype, jnp.floating)
    assert model.weights.dtype == jnp.float32


def test_offset_shifts_log_z_and_nothing_else():
    model = Ising(jnp.ones((3, 3)), jnp.ones(3), None, jnp.asarray(2.5))
    plain = Ising(jnp.ones((3, 3)), jnp.ones(3))
    x = jnp.asarray(oracle.binary_states(3))
    assert np.allclose(plain.energy(x) - model.energy(x), 2.5)


def test_wrong_shapes_are_refused():
    with pytest.raises(UndirectedError, match=r"weights are \(3, 4\).*must be \(4, 4\)"):
        Ising(jnp.zeros((3, 4)), jnp.zeros(4))
    with pytest.raises(UndirectedError, match=r"graph of 9 units"):
        Ising(jnp.zeros(18), jnp.zeros(8), graph.torus(3, 3))
    with pytest.raises(UndirectedError, match=r"got \[\(0, 1\)\]; pass a number .*from_edges"):
        Ising.create([(0, 1)])
    with pytest.raises(UndirectedError, match=r"weights are \(3, 2\).*\(3, 4\)"):
        RBM(jnp.zeros((3, 2)), jnp.zeros(3), jnp.zeros(4))
    with pytest.raises(UndirectedError, match="label_states is 7"):
        RBM.create(5, 2, jax.random.key(0), label_states=7)
    with pytest.raises(UndirectedError, match=r"weights holds int32.*jnp.asarray\(weights, float"):
        Ising(jnp.ones((3, 3), jnp.int32), jnp.zeros(3))
    with pytest.raises(UndirectedError, match="RBM: hidden_bias holds bool"):
        RBM(jnp.zeros((3, 2)), jnp.zeros(3), jnp.zeros(2, bool))


def test_doubles_of_numpy_are_taken_without_a_warning():
    model = Ising(np.zeros((3, 3)), np.array([0.0, 0.5, -1.0]))
    assert model.lower().unary.shape == (3,)  # a warning would be an error here


@pytest.mark.parametrize("dense", [True, False])
def test_couplings_of_spins_that_would_read_as_certainty_are_refused(dense):
    """Of both signs, since they could outweigh each other; a field that holds a unit is not."""
    where = None if dense else graph.chain(3)
    couplings = np.array([[0.0, 3e7, 0.0], [3e7, 0.0, -3e7], [0.0, -3e7, 0.0]])
    couplings = couplings if dense else np.array([3e7, -3e7])
    with pytest.raises(UndirectedError, match=r"unit 1 add up to 6e\+07.*Divide"):
        Ising.from_spins(couplings, np.zeros(3), where)
    held = Ising.from_spins(couplings / 1e7, np.array([-1e9, 0.0, 0.0]), where)
    assert held.bias[0] < -1e9
    jax.jit(lambda scale: Ising.from_spins(scale * couplings, jnp.zeros(3), where))(2.0)
