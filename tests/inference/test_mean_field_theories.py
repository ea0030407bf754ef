"""Mean-field theories against quadrature, finite differences and the printed equations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import undirected as un
from tests import oracle as binary_oracle
from tests import rectified_oracle as oracle
from tests.compiled import compilations
from tests.marks import mostly_slow
from undirected.core.errors import UndirectedError, UnsupportedFactor
from undirected.core.graph import from_edges, grid
from undirected.core.layout import Block, Domain, Layout
from undirected.core.potentials import clamp, potentials, shift
from undirected.factors import Edges, Squares, Symmetric
from undirected.inference.high_temperature import Downs
from undirected.inference.mean_field import MeanField
from undirected.inference.quadrature import Quadrature
from undirected.inference.susceptibility import ImprovedSusceptibility, Susceptibility
from undirected.inference.tap import TAP, free_energy, in_field
from undirected.models import RBM, Ising
from undirected.models.nonnegative import NonnegativeBM

BIAS = np.array([0.3, -0.5, 0.8])
MATRIX = np.array([[1.0, 0.3, -0.2], [0.3, 1.4, 0.25], [-0.2, 0.25, 0.9]])
FINE = 1e-13
NAIVE = TAP(order=1, tolerance=FINE)
SECOND = TAP(tolerance=FINE)
NAIVE_RESPONSE = Susceptibility(NAIVE, tolerance=FINE)
SUSP = Susceptibility(SECOND, tolerance=FINE)
IMPROVED = ImprovedSusceptibility(tolerance=FINE)
IMPROVED_ON_GRID = ImprovedSusceptibility(tolerance=1e-11)


def model(scale: float = 1.0, bias=BIAS, matrix=MATRIX) -> NonnegativeBM:
    matrix = np.diag(np.diag(matrix)) + scale * (matrix - np.diag(np.diag(matrix)))
    return NonnegativeBM.from_matrix(jnp.asarray(matrix), jnp.asarray(bias))


def random_grid(seed: int, rows: int = 3, cols: int = 3, strength: float = 0.5) -> NonnegativeBM:
    rng = np.random.default_rng(seed)
    g = grid(rows, cols)
    weights = jnp.asarray(rng.uniform(-0.1, strength, g.n_edges))
    diagonal = jnp.asarray(rng.uniform(0.8, 1.5, g.n))
    return NonnegativeBM.on_graph(g, weights, diagonal, jnp.asarray(rng.uniform(-0.5, 0.5, g.n)))


@pytest.mark.slow
def test_the_free_energy_is_stationary_where_reactions_are_shifted(x64):
    """(nnbm, 15): with Lambda added to the reactions, at its own fixed point, in m and in v.

    Without the last term, 1/2 v' Lambda, the slope in v is off by Lambda / 2.
    """
    p, shift_by = model().lower(), jnp.array([0.05, -0.1, 0.2])
    squares = (MATRIX - np.diag(np.diag(MATRIX))) ** 2
    mean, reaction = jnp.ones(3), shift_by
    for _ in range(300):
        site = in_field(p, mean, reaction)
        mean = 0.5 * (mean + site.mean)
        reaction = 0.5 * (reaction + squares @ site.variance + shift_by)

    def energy(mean, variance):
        moved = site._replace(mean=mean, variance=variance)
        return free_energy(p, moved, squares @ variance + shift_by)

    slopes = jax.grad(energy, argnums=(0, 1))(site.mean, site.variance)
    np.testing.assert_allclose(slopes[0], 0, atol=1e-9)
    np.testing.assert_allclose(slopes[1], 0, atol=1e-9)


@pytest.mark.parametrize("n", mostly_slow([1, 2, 3], [3]))
def test_quadrature_matches_the_oracle(x64, n):
    m = model(bias=BIAS[:n], matrix=MATRIX[:n, :n])
    b = Quadrature()(m.lower())
    truth = oracle.integrate(BIAS[:n], MATRIX[:n, :n])
    assert float(b.log_z) == pytest.approx(truth.log_z, abs=1e-9)
    np.testing.assert_allclose(b.unary, truth.means, atol=1e-9)
    np.testing.assert_allclose(b.factors[0].weight, np.diag(truth.moments), atol=1e-9)
    off = truth.moments - np.diag(np.diag(truth.moments))
    np.testing.assert_allclose(b.factors[1].weight, off, atol=1e-9)
    np.testing.assert_allclose(b.covariance, truth.covariance, atol=1e-9)


def test_quadrature_sees_both_modes(x64):
    matrix = np.array([[1.0, 2.0], [2.0, 1.0]])
    b = Quadrature()(model(bias=np.array([3.0, 3.0]), matrix=matrix).lower())
    truth = oracle.integrate([3.0, 3.0], matrix, panels=16)
    assert truth.covariance[0, 1] < -1.0
    np.testing.assert_allclose(b.covariance, truth.covariance, atol=1e-8)


def test_quadrature_refuses_four_units(x64):
    with pytest.raises(UndirectedError, match="up to 3"):
        Quadrature()(model(bias=np.zeros(4), matrix=np.eye(4)).lower())


def errors_at(infer, scale: float) -> dict[str, float]:
    m = model(scale)
    truth = oracle.integrate(m.bias, m.matrix)
    b = infer(m.lower())
    assert bool(b.converged)
    result = {
        "mean": np.abs(b.unary - truth.means).max(),
        "second": np.abs(b.factors[0].weight - np.diag(truth.moments)).max(),
    }
    if hasattr(b, "covariance"):
        result["covariance"] = np.abs(b.covariance - truth.covariance).max()
    return result


@pytest.mark.parametrize(
    ("infer", "order"),
    [
        pytest.param(NAIVE, 2, marks=pytest.mark.slow),
        pytest.param(NAIVE_RESPONSE, 2, marks=pytest.mark.slow),
        pytest.param(SECOND, 3, marks=pytest.mark.slow),
        pytest.param(SUSP, 3, marks=pytest.mark.slow),
        (IMPROVED, 3),
    ],
    ids=["naive", "naive response", "tap", "susp", "improved"],
)
def test_errors_vanish_at_the_right_order(x64, infer, order):
    wide, narrow = errors_at(infer, 0.25), errors_at(infer, 0.0625)
    for name in wide:
        slope = np.log(wide[name] / narrow[name]) / np.log(4)
        assert slope == pytest.approx(order, abs=0.2), name


def test_downs_errors_vanish_at_third_order_in_all_of_the_matrix(x64):
    bias = np.array([-1.0, -1.5])
    slopes, last = [], None
    for scale in (0.004, 0.001):
        matrix = scale * np.array([[1.0, 0.4], [0.4, 1.3]])
        truth = oracle.integrate(bias, matrix, top=[45.0, 30.0], panels=30)
        b = Downs(tolerance=FINE)(model(bias=bias, matrix=matrix).lower())
        assert bool(b.converged)
        error = np.array(
            [
                np.abs(b.unary - truth.means).max(),
                np.abs(b.covariance - truth.covariance).max(),
                abs(float(b.log_z) - truth.log_z),
            ]
        )
        if last is not None:
            slopes = np.log(last / error) / np.log(4)
        last = error
    np.testing.assert_allclose(slopes, 3, atol=0.2)


@pytest.mark.parametrize("infer", [MeanField(), NAIVE, SECOND], ids=["mean field", "naive", "tap"])
@pytest.mark.parametrize("domain", [Domain.REAL, Domain.NONNEGATIVE])
def test_units_without_couplings_are_exact(x64, infer, domain):
    """log Z and moments of two units against a fine grid."""
    l, r = np.array([0.7, -0.4]), np.array([2.5, 0.6])
    layout = Layout((Block("x", 0, 2, domain),))
    found = infer(potentials(layout, jnp.asarray(l), (Squares(jnp.asarray(-0.5 * r), 0),)))
    x = np.linspace(0 if domain is Domain.NONNEGATIVE else -25, 25, 500_001)[:, None]
    weight = np.exp(l * x - r * x**2 / 2) * (x[1] - x[0])
    weight[0] /= 2
    total = weight.sum(0)
    assert float(found.log_z) == pytest.approx(np.log(total).sum(), abs=1e-6)
    np.testing.assert_allclose(found.unary, (weight * x).sum(0) / total, rtol=1e-6)
    second = (weight * x**2).sum(0) / total
    np.testing.assert_allclose(found.factors[0].weight, second, rtol=1e-6)


def test_downs_second_moments_are_covariances_and_products_of_means(x64):
    b = Downs(tolerance=FINE)(model(0.1, bias=BIAS - 2).lower())
    (pairs,) = [factor for factor in b.factors if isinstance(factor, Symmetric)]
    means, covariance = np.asarray(b.unary), np.asarray(b.covariance)
    for i in range(3):
        for j in range(i):
            wanted = covariance[i, j] + means[i] * means[j]
            assert float(pairs.weight[i, j]) == pytest.approx(wanted, rel=1e-12)


def test_downs_refuses_other_units():
    with pytest.raises(UnsupportedFactor, match="nonnegative"):
        Downs()(Ising.create(3).lower())


@pytest.mark.parametrize("infer", [NAIVE_RESPONSE, SUSP, Downs(tolerance=FINE)])
def test_susceptibilities_are_finite_differences_of_the_means(x64, infer):
    bias = BIAS if not isinstance(infer, Downs) else BIAS - 2.5
    m = model(1.0 if not isinstance(infer, Downs) else 0.2, bias=bias)
    run = infer
    b, step = run(m.lower()), 1e-5
    for j in range(3):
        shift = step * np.eye(3)[j]
        up = run(model(m.matrix[0, 1] / MATRIX[0, 1], bias=bias + shift).lower()).unary
        down = run(model(m.matrix[0, 1] / MATRIX[0, 1], bias=bias - shift).lower()).unary
        np.testing.assert_allclose(b.covariance[:, j], (up - down) / (2 * step), atol=1e-6)


def test_susceptibilities_on_a_graph_are_finite_differences(x64):
    m, step = random_grid(0), 1e-5
    run = SUSP
    covariance = run(m.lower()).covariance
    for j in (0, 4):
        moved = (step * jnp.eye(9)[j], -step * jnp.eye(9)[j])
        up, down = (run(shift(m.lower(), d)).unary for d in moved)
        np.testing.assert_allclose(covariance[:, j], (up - down) / (2 * step), atol=1e-6)


@pytest.mark.parametrize("infer", [SUSP, IMPROVED])
def test_response_solves_the_printed_equations(x64, infer):
    """(11)-(14) and (18), with m, v and Lambda read off our answer."""
    m = model()
    b = infer(m.lower())
    mean, v = np.asarray(b.unary), np.asarray(b.factors[0].weight)
    s = v - mean**2
    off = MATRIX - np.diag(np.diag(MATRIX))
    # l and r of (6), (7): moments determine them; Lambda then follows from (17).
    from undirected.core.rectified import from_moments

    l, r = (np.asarray(a) for a in from_moments(b.unary, b.factors[0].weight))
    Lambda = np.diag(MATRIX) - off**2 @ s - r
    np.testing.assert_allclose(
        l, BIAS - off @ mean - mean * (off**2 @ s) - mean * Lambda, atol=1e-8
    )
    if infer is SUSP:
        np.testing.assert_allclose(Lambda, 0, atol=1e-8)
    M, _ = oracle.propagate_literally(MATRIX, mean, v, l, r, Lambda)
    np.testing.assert_allclose(b.covariance, M, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("dense", [True, False])
def test_improved_is_diagonally_consistent(x64, dense):
    sparse = random_grid(1)
    m = NonnegativeBM.from_matrix(sparse.matrix, sparse.bias) if dense else sparse
    b = IMPROVED_ON_GRID(m.lower())
    assert bool(b.converged)
    variance = b.factors[0].weight - b.unary**2
    assert float(jnp.abs(jnp.diagonal(b.covariance) - variance).max()) < 1e-8
    plain = SUSP(m.lower())
    variance = plain.factors[0].weight - plain.unary**2
    assert float(jnp.abs(jnp.diagonal(plain.covariance) - variance).max()) > 1e-4


@pytest.mark.parametrize(
    "infer", mostly_slow([NAIVE, SECOND, SUSP, IMPROVED_ON_GRID], [IMPROVED_ON_GRID])
)
def test_graph_and_matrix_agree(x64, infer):
    sparse = random_grid(2)
    full = NonnegativeBM.from_matrix(sparse.matrix, sparse.bias)
    a, b = infer(sparse.lower()), infer(full.lower())
    i, j = np.asarray(sparse.graph.edges).T
    np.testing.assert_allclose(a.unary, b.unary, atol=1e-9)
    np.testing.assert_allclose(a.factors[0].weight, b.factors[0].weight, atol=1e-9)
    np.testing.assert_allclose(a.factors[1].weight, b.factors[1].weight[i, j], atol=1e-9)
    assert float(a.log_z) == pytest.approx(float(b.log_z), abs=1e-9)


def test_disconnected_units_are_exact(x64):
    """Two pairs and one unit alone: each part is as if it were by itself."""
    g = from_edges(5, [(0, 1), (2, 3)])
    m = NonnegativeBM.on_graph(
        g, jnp.asarray([0.3, -0.2]), jnp.ones(5), jnp.asarray([0.1, 0.2, 0.3, 0.4, 0.5])
    )
    b = IMPROVED(m.lower())
    alone = oracle.integrate([0.5], [[1.0]])
    assert float(b.unary[4]) == pytest.approx(alone.means[0], abs=1e-9)
    assert float(b.factors[0].weight[4]) == pytest.approx(alone.moments[0, 0], abs=1e-9)
    np.testing.assert_allclose(b.covariance[:2, 2:], 0, atol=1e-12)
    matrix = np.array([[1.0, 0.3, 0.0], [0.3, 1.0, 0.0], [0.0, 0.0, 1.0]])
    pair = model(bias=np.array([0.1, 0.2, 0.9]), matrix=matrix)
    np.testing.assert_allclose(b.unary[:2], IMPROVED(pair.lower()).unary[:2], atol=1e-9)


@pytest.mark.parametrize("sparse", [True, False])
def test_gaussian_models_are_exact(x64, sparse):
    """For real units linear response is exact, and diagonal consistency makes variances so."""
    rng = np.random.default_rng(3)
    g = grid(2, 3)
    W = np.diag(rng.uniform(2, 3, 6))
    i, j = np.asarray(g.edges).T
    W[i, j] = W[j, i] = rng.uniform(-0.7, 0.7, g.n_edges)
    b = rng.normal(size=6)
    pair = (
        Edges(jnp.asarray(-W[i, j]), g)
        if sparse
        else Symmetric(jnp.asarray(np.diag(np.diag(W)) - W), 0)
    )
    p = potentials(
        Layout((Block("x", 0, 6, Domain.REAL),)),
        jnp.asarray(b),
        (Squares(-0.5 * jnp.asarray(np.diag(W)), 0), pair),
    )
    beliefs = IMPROVED(p)
    C = np.linalg.inv(W)
    np.testing.assert_allclose(beliefs.unary, C @ b, atol=1e-9)
    np.testing.assert_allclose(beliefs.covariance, C, atol=1e-9)
    np.testing.assert_allclose(beliefs.factors[0].weight, np.diag(C) + (C @ b) ** 2, atol=1e-9)


def test_naive_bound_is_below_log_z(x64):
    truth = oracle.integrate(BIAS, MATRIX)
    assert float(NAIVE(model().lower()).log_z) < truth.log_z
    second = float(SECOND(model().lower()).log_z)
    assert abs(second - truth.log_z) < 2e-3


def ising(seed: int, scale: float) -> Ising:
    rng = np.random.default_rng(seed)
    n = 6
    J = np.triu(rng.normal(size=(n, n)) * scale, 1)
    return Ising(jnp.asarray(J + J.T), jnp.asarray(rng.normal(size=n) * 0.5))


@pytest.mark.parametrize(
    ("infer", "order"),
    [(NAIVE_RESPONSE, 2), (SUSP, 3), (IMPROVED, 3)],
    ids=["naive", "susp", "imp"],
)
def test_binary_errors_vanish_at_the_right_order(x64, infer, order):
    errors = []
    for scale in (0.1, 0.025):
        m = ising(4, scale)
        truth = binary_oracle.pairwise(m.weights, m.bias)
        b = infer(m.lower())
        covariance = truth.moments - np.outer(truth.means, truth.means)
        errors.append(
            [np.abs(b.unary - truth.means).max(), np.abs(b.covariance - covariance).max()]
        )
    slopes = np.log(np.array(errors[0]) / np.array(errors[1])) / np.log(4)
    np.testing.assert_allclose(slopes, order, atol=0.25)


def test_binary_diagonal_consistency_improves_covariances(x64):
    m = ising(5, 1.2)
    truth = binary_oracle.pairwise(m.weights, m.bias)
    covariance = truth.moments - np.outer(truth.means, truth.means)
    plain, better = SUSP(m.lower()), IMPROVED(m.lower())
    assert bool(better.converged)
    np.testing.assert_allclose(
        np.diagonal(better.covariance), better.unary * (1 - better.unary), atol=1e-9
    )
    error = [np.abs(b.covariance - covariance).mean() for b in (plain, better)]
    assert error[1] < error[0]


@pytest.mark.parametrize("infer", [NAIVE, SECOND, SUSP, IMPROVED])
def test_binary_evidence_is_honoured(x64, infer):
    m = ising(6, 0.2)
    mask = jnp.asarray([True, False, True, False, False, False])
    x = jnp.asarray([1.0, np.nan, 0.0, np.nan, np.nan, np.nan])
    b = infer(clamp(m.lower(), mask, x))
    truth = binary_oracle.pairwise(m.weights, m.bias).given(np.asarray(mask), np.asarray(x))
    np.testing.assert_allclose(b.unary[jnp.asarray([0, 2])], [1, 0], atol=1e-12)
    np.testing.assert_allclose(b.unary, truth.means, atol=0.01)
    assert float(b.log_z) == pytest.approx(truth.log_z, abs=0.02)


@pytest.mark.parametrize("infer", [Susceptibility(), ImprovedSusceptibility()])
def test_evidence_where_no_unit_is_coupled(infer):
    model = Ising(jnp.zeros(0), jnp.asarray([1.0, -1.0, 0.5]), from_edges(3, []))
    found = infer(clamp(model.lower(), jnp.asarray([True, False, True]), jnp.asarray([1, 0, 0])))
    assert bool(found.converged)
    np.testing.assert_allclose(found.unary, [1, 1 / (1 + np.e), 0], atol=1e-6)
    np.testing.assert_allclose(found.log_z, 1 + np.log1p(np.exp(-1)), atol=1e-5)


def test_an_rbm_has_tap_beliefs_too(x64, key):
    rbm = RBM.create(4, 3, key, scale=0.3)
    truth = binary_oracle.rbm(rbm.weights, rbm.visible_bias, rbm.hidden_bias)
    b = IMPROVED(rbm.lower())
    np.testing.assert_allclose(b.unary, truth.means, atol=1e-3)
    np.testing.assert_allclose(b.factors[0].weight, truth.moments[:4, 4:], atol=1e-3)


def test_categorical_units_are_refused(key):
    with pytest.raises(UnsupportedFactor, match="categorical"):
        TAP()(RBM.create(5, 2, key, label_states=3).lower())


def test_no_convergence_is_reported():
    b = TAP(iterations=2)(model().lower())
    assert not bool(b.converged)
    assert int(b.iterations) == 2


@pytest.mark.parametrize("bad", [{"iterations": 0}, {"damping": 1.0}])
def test_bad_schedules_are_refused(bad):
    for kind in (TAP, Susceptibility, ImprovedSusceptibility, Downs):
        with pytest.raises(UndirectedError):
            kind(**bad)


def test_new_weights_on_a_graph_compile_nothing(x64):
    IMPROVED_ON_GRID(random_grid(3).lower())
    with compilations() as made:
        for seed in (4, 5):
            IMPROVED_ON_GRID(random_grid(seed).lower())
    assert made == []


@pytest.mark.parametrize("unlike", [1.0, 1.5])
def test_hard_factors_do_not_outweigh_evidence(unlike):
    """Two counts allow one unit, and two are held: there is no state, and both stay held."""
    layout = un.discrete(x=3)
    group = un.count(layout, [[0, 1, 2], [0, 1, 2], [1, 0, -1]], jnp.asarray([0.0, unlike]))
    graph = un.FactorGraph.create(layout, [group], jnp.asarray([0.1, 0.2, 0.3]))
    found = MeanField()(un.observe(graph.lower(), {0: 1, 1: 1}))
    assert found.unary[:2].tolist() == [1, 1]
    assert un.Status(int(found.status)) == un.Status.INFEASIBLE
    one = MeanField()(un.observe(graph.lower(), {0: 1}))
    assert one.unary.tolist() == [1, 0, 0]
    assert float(one.log_z) == pytest.approx(0.1 + 3 * unlike)
