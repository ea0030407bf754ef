"""The nonnegative Boltzmann machine: energy, conditionals, refusals, data summaries."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate

from tests import rectified_oracle as oracle
from undirected.core.errors import NotFinite, UndirectedError
from undirected.core.graph import from_edges, grid
from undirected.core.potentials import inner, statistics
from undirected.core.protocols import Lowerable, Marginal
from undirected.models.copositivity import judge
from undirected.models.nonnegative import NonnegativeBM, check_data, sigma_points


def models() -> dict[str, NonnegativeBM]:
    rng = np.random.default_rng(0)
    g = grid(2, 3)
    matrix = rng.uniform(-0.1, 0.4, (6, 6))
    matrix = 0.5 * (matrix + matrix.T) + np.eye(6)
    bias = jnp.asarray(rng.normal(size=6))
    weights = jnp.asarray(rng.uniform(0, 0.8, g.n_edges))
    return {
        "dense": NonnegativeBM.from_matrix(jnp.asarray(matrix), bias),
        "graph": NonnegativeBM.on_graph(g, weights, jnp.asarray(rng.uniform(1, 2, 6)), bias),
    }


@pytest.mark.parametrize("kind", ["dense", "graph"])
def test_energy_is_minus_the_inner_product(x64, kind):
    m = models()[kind]
    assert isinstance(m, Lowerable)
    assert isinstance(m, Marginal)
    x = jnp.asarray(np.random.default_rng(1).exponential(size=(4, 6)))
    W, b = np.asarray(m.matrix), np.asarray(m.bias)
    truth = 0.5 * np.einsum("si,ij,sj->s", x, W, x) - np.asarray(x) @ b
    np.testing.assert_allclose(m.energy(x), truth, rtol=1e-12)
    p = m.lower()
    ours = jax.vmap(lambda row: -inner(p, statistics(p, row)))(x)
    np.testing.assert_allclose(ours, truth, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dense", "graph"])
def test_conditionals_match_quadrature_of_the_energy(x64, kind):
    m = models()[kind]
    x = jnp.asarray(np.random.default_rng(2).exponential(size=6))
    for i in range(6):

        def density(value, i=i):
            return float(jnp.exp(-m.energy(x.at[i].set(value)) + m.energy(x)))

        total = integrate.quad(density, 0, 30, epsabs=1e-12)[0]
        wanted = np.log(density(float(x[i])) / total)
        assert float(m.log_conditionals(x)[i]) == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("kind", ["dense", "graph"])
def test_gradient_of_the_energy_is_the_statistic(x64, kind):
    """One vmap, one grad: derivative by the parameters is what moment matching compares."""
    m = models()[kind]
    x = jnp.asarray(np.random.default_rng(3).exponential(size=(3, 6)))
    slope = eqx.filter_grad(lambda m: jax.vmap(m.energy)(x).sum())(m)
    np.testing.assert_allclose(slope.bias, -x.sum(0), rtol=1e-12)
    np.testing.assert_allclose(slope.diagonal, 0.5 * (x**2).sum(0), rtol=1e-12)


def test_given_is_the_conditional_distribution(x64):
    for m in models().values():
        seen = np.array([True, False, False, True, False, True])
        x = jnp.asarray(np.random.default_rng(4).exponential(size=6))
        rest = m.given(seen, x)
        y = jnp.asarray([[0.1, 0.2, 0.3], [1.0, 0.4, 0.0]])
        full = jnp.tile(x, (2, 1)).at[:, ~seen].set(y)
        difference = m.energy(full) - rest.energy(y)
        assert float(difference[0]) == pytest.approx(float(difference[1]), abs=1e-10)


def test_given_refuses_a_short_mask():
    with pytest.raises(UndirectedError, match=r"6 units"):
        models()["dense"].given(np.ones(3, bool), jnp.ones(6))


def test_non_symmetric_couplings_are_refused():
    with pytest.raises(UndirectedError, match=r"not symmetric: w\[0, 1\] is 0.5"):
        NonnegativeBM.from_matrix(jnp.asarray([[1.0, 0.5], [0.1, 1.0]]), jnp.zeros(2))


def test_nonpositive_diagonal_is_refused():
    with pytest.raises(UndirectedError, match=r"w\[1, 1\] is 0"):
        NonnegativeBM.from_matrix(jnp.diag(jnp.asarray([1.0, 0.0])), jnp.zeros(2))


def test_nan_parameters_are_refused():
    with pytest.raises(NotFinite, match="bias"):
        NonnegativeBM.from_matrix(jnp.eye(2), jnp.asarray([0.0, jnp.nan]))


def test_wrong_shapes_are_refused():
    with pytest.raises(UndirectedError, match=r"weights must be \(7,\)"):
        NonnegativeBM(jnp.zeros(3), jnp.ones(6), jnp.zeros(6), grid(2, 3))
    with pytest.raises(UndirectedError, match="diagonal"):
        NonnegativeBM(jnp.zeros((6, 6)), jnp.ones(5), jnp.zeros(6))


def test_a_direction_without_end_is_refused():
    matrix = jnp.asarray([[1.0, -2.0], [-2.0, 1.0]])
    with pytest.raises(UndirectedError, match=r"not copositive: along x\[0\] = 0.7071, x\[1\]"):
        NonnegativeBM.from_matrix(matrix, jnp.zeros(2))


def test_a_direction_of_many_units_is_found():
    """No pair alone is at fault: x' W x < 0 only where several units are on."""
    n = 12
    matrix = jnp.asarray(1.1 * np.eye(n) - 0.2 * (1 - np.eye(n)))
    verdict = judge(NonnegativeBM(matrix * (1 - jnp.eye(n)), jnp.diagonal(matrix), jnp.zeros(n)))
    x = verdict.direction
    assert verdict.proved is False
    assert x is not None
    assert (x >= 0).all()
    assert x @ np.asarray(matrix) @ x < 0


def test_copositive_but_not_positive_definite_is_proved():
    g = grid(6, 6)
    m = NonnegativeBM(jnp.full(g.n_edges, 0.8), jnp.ones(36), jnp.zeros(36), g)
    assert np.linalg.eigvalsh(np.asarray(m.matrix))[0] < -1
    assert judge(m).proved is True


def test_the_orientation_ring_is_proved():
    n = 36
    angle = 2 * np.pi * np.subtract.outer(np.arange(n), np.arange(n)) / n
    matrix = 10 * (np.eye(n) + 1 / n - 2 / n * np.cos(angle))
    assert np.linalg.eigvalsh(matrix)[0] < 1e-9
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        NonnegativeBM.from_matrix(jnp.asarray(matrix), jnp.zeros(n))


def test_doubt_is_a_warning():
    """The Horn matrix is copositive, yet no sum of positive semidefinite and nonnegative ones."""
    signs = np.array([1, -1, 1, 1, -1])
    horn = np.array([np.roll(signs, k) for k in range(5)], float)
    with pytest.warns(UserWarning, match="could not prove"):
        NonnegativeBM.from_matrix(jnp.asarray(horn), jnp.zeros(5))


def test_disconnected_graphs_are_taken():
    g = from_edges(5, [(0, 1), (2, 3)])
    m = NonnegativeBM.on_graph(g, jnp.asarray([0.3, 0.1]), jnp.ones(5), jnp.zeros(5))
    assert float(m.log_odds(jnp.ones(5))[4]) == 0.0


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.array([[1.0, -0.1], [1.0, 2.0]]), "1 entries are negative, the first at row 0, unit 1"),
        (np.array([[1.0, np.nan], [1.0, 2.0]]), "NaN or infinite, the first at row 0, unit 1"),
        (np.array([[1.0, 0.0], [1.0, 0.0]]), "always 0, the first is unit 1"),
        (np.array([1.0, 2.0]), "pass \\(rows, units\\)"),
    ],
)
def test_bad_data_are_refused_with_their_place(data, message):
    with pytest.raises(UndirectedError, match=message):
        check_data(data)


def test_from_data_matches_single_moments(x64):
    x = np.random.default_rng(5).gamma(2.0, size=(500, 3))
    m = NonnegativeBM.from_data(x)
    for i in range(3):
        truth = oracle.integrate([float(m.bias[i])], [[float(m.diagonal[i])]], top=40.0, panels=60)
        assert truth.means[0] == pytest.approx(x[:, i].mean(), rel=1e-6)
        assert truth.moments[0, 0] == pytest.approx((x[:, i] ** 2).mean(), rel=1e-6)


def test_sigma_points_weigh_what_the_data_do(x64):
    x = np.random.default_rng(6).gamma(2.0, size=(300, 6))
    points = sigma_points(x)
    for m in models().values():
        assert float(m.energy(points).mean()) == pytest.approx(
            float(m.energy(jnp.asarray(x)).mean()), rel=1e-10
        )
