"""Real units whose means are far from 0: answers are those of the same model near 0."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit, logsumexp
from scipy.stats import multivariate_normal

import undirected as un
from tests import oracle
from undirected.core.errors import UndirectedError
from undirected.models.mixed_rbm import LEAST_VARIANCE
from undirected.tasks import answer_rows

FAR = (0, 300, 3000)
REAL = 3


class Mixture:
    """A normal vector and binary units for every hidden state, in double precision.

    -E = -(v - b)' P (v - b) / 2 + v' K h + u' (a + B h) + c' h, with v real and u binary.
    """

    def __init__(self, K, b, P, c, B=None, a=None):
        h = oracle.binary_states(len(c))
        self.cov, self.means = np.linalg.inv(P), b + h @ np.linalg.solve(P, K).T
        pull = h @ K.T
        logs = h @ c + pull @ b + 0.5 * ((pull @ self.cov) * pull).sum(1)
        logs += 0.5 * (len(b) * np.log(2 * np.pi) - np.linalg.slogdet(P)[1])
        self.fields = np.zeros((len(h), 0)) if a is None else a + h @ B.T
        logs += np.logaddexp(0, self.fields).sum(1)
        self.log_z = logsumexp(logs)
        self.logs = logs - self.log_z

    def joint(self, u, v):
        """log p of what is known, with every hidden state."""
        some, on = ~np.isnan(v), ~np.isnan(u)
        found = self.logs + (u * self.fields - np.logaddexp(0, self.fields))[:, on].sum(1)
        if not some.any():
            return found
        normal = multivariate_normal(np.zeros(some.sum()), self.cov[np.ix_(some, some)])
        return found + normal.logpdf((v - self.means)[:, some])

    def answer(self, u, v):
        """Mean and deviation of every real unit, and the probability of every binary one."""
        share = np.exp(self.joint(u, v) - logsumexp(self.joint(u, v)))
        some, holes = ~np.isnan(v), np.isnan(v)
        gain = np.linalg.solve(self.cov[np.ix_(some, some)], self.cov[np.ix_(some, holes)])
        means = self.means[:, holes] + (v - self.means)[:, some] @ gain
        own = self.cov[np.ix_(holes, holes)] - self.cov[np.ix_(holes, some)] @ gain
        mean, std = np.array(v), np.zeros(len(v))
        mean[holes] = share @ means
        std[holes] = np.sqrt(np.diag(own) + share @ (means - mean[holes]) ** 2)
        return mean, std, share @ expit(self.fields)


def single(*arrays):
    """In single precision: as the model has them, and the same numbers in double precision."""
    rounded = [np.asarray(a, np.float32) for a in arrays]
    return map(jnp.asarray, rounded), (a.astype(float) for a in rounded)


def gaussian(far, n_hidden):
    rng = np.random.default_rng(n_hidden)
    W, b = rng.normal(0, 1.5 / np.sqrt(n_hidden), (REAL, n_hidden)), far + rng.normal(size=REAL)
    logs, c = 0.3 * rng.normal(size=REAL), rng.normal(size=n_hidden)
    ours, (W, b, c, logs) = single(W, b, c - (b * np.exp(-0.5 * logs)) @ W, logs)
    s = np.exp(0.5 * logs)
    return un.GaussianRBM(*ours), Mixture(W / s[:, None], b, np.diag(s**-2), c)


def mixed(far, n, lateral=False):
    """Two binary and three real columns; more than ten hidden units are not enumerated."""
    rng = np.random.default_rng(5)
    W, b = rng.normal(0, 0.4, (2 + REAL, n)), rng.normal(size=2 + REAL)
    b[2:] += far
    logs, c = 0.3 * rng.normal(size=REAL), rng.normal(size=n)
    L = np.tril(rng.normal(size=(REAL, REAL)), -1) * 0.5 * lateral

    def root(logs, L):
        return (np.eye(REAL) + L) / np.sqrt(np.exp(logs) + LEAST_VARIANCE)[:, None]

    ours, (W, b, c, logs, L) = single(W, b, c - b[2:] @ root(logs, L) @ W[2:], logs, L)
    W_, b_, c_, logs_, L_ = ours
    T = root(logs, L)
    table = un.MixedRBM.create(["binary", "binary", *["real"] * REAL], n, seed=0).table
    model = un.MixedRBM(W_, b_, c_, logs_, table, L_ if lateral else None)
    return model, Mixture(T @ W[2:], b[2:], T @ T.T, c, W[:2], b[:2])


EXACT = {
    "gaussian, 2 hidden": lambda far: gaussian(far, 2),
    "gaussian, 12 hidden": lambda far: gaussian(far, 12),
    "mixed, 12 hidden": lambda far: mixed(far, 12),
    "coupled, 4 hidden": lambda far: mixed(far, 4, lateral=True),
}
COUPLED = "coupled, 12 hidden"
CASES = EXACT | {COUPLED: lambda far: mixed(far, 12, lateral=True)}


def rows_at(model, far):
    """Rows of binary and real units, the second with a real unit missing."""
    u = np.array([[1.0, 0.0], [0.0, 1.0]])[:, : model.n_visible - REAL]
    v = far + np.array([[0.537, -0.291, 1.113], [1.373, np.nan, -0.719]])
    return u, v


@pytest.mark.parametrize("name", EXACT)
def test_answers_are_those_of_enumeration(name):
    for far in FAR:
        model, truth = EXACT[name](far)
        u, v = (part[1:] for part in rows_at(model, far))
        mean, std, _ = truth.answer(u[0], v[0])
        known = ~np.isnan(v[0])
        # With one unit missing the rest is a tree, on which belief propagation is exact.
        for method in "auto", "exact":
            found = answer_rows(model, np.hstack([u, v]), method=method)
            assert found.converged == 1
            np.testing.assert_allclose(found.values[0, -REAL:], mean, rtol=0, atol=1e-4)
            np.testing.assert_allclose(found.std[0, -REAL:], std, rtol=0, atol=1e-4)
            assert (found.values[0, -REAL:][known] == v[0][known]).all()


@pytest.mark.parametrize("name", ["mixed, 12 hidden", "coupled, 4 hidden"])
def test_a_binary_unit_hears_of_far_real_ones(name):
    for far in FAR:
        model, truth = EXACT[name](far)
        u, v = (part[0] for part in rows_at(model, far))
        u[0] = np.nan
        found = un.query(model, [[*u, *v]])
        share = truth.answer(u, v)[2][0]
        np.testing.assert_allclose(found.probabilities[0][0, 1], share, atol=1e-4)


def test_chains_answer_where_real_units_are_coupled():
    model, truth = CASES[COUPLED](3000)
    u, v = (part[1] for part in rows_at(model, 3000))
    mean, std, _ = truth.answer(u, v)
    found = answer_rows(model, [[*u, *v]], seed=0)
    np.testing.assert_allclose(found.values[0, -REAL:], mean, rtol=0, atol=0.2)
    np.testing.assert_allclose(found.std[0, -REAL:], std, rtol=0.15, atol=0.0)


@pytest.mark.parametrize("name", EXACT)
def test_log_z_and_likelihoods_are_those_of_enumeration(name):
    bits = []
    for far in FAR:
        model, truth = EXACT[name](far)
        u, v = rows_at(model, far)
        wanted = [logsumexp(truth.joint(*row)) for row in zip(u, v, strict=True)]
        found = un.evaluate(model, np.hstack([u, v]))
        np.testing.assert_allclose(found.log_z.value, truth.log_z, atol=1e-4)
        np.testing.assert_allclose(found.log_likelihood.rows, wanted, atol=1e-4)
        assert found.hidden_sums == "exact"
        bits.append(found.held_out.mean)
    np.testing.assert_allclose(bits, bits[0], atol=1e-3)


@pytest.mark.parametrize("name", ["gaussian, 12 hidden", "mixed, 12 hidden", COUPLED])
def test_annealing_covers_log_z(name):
    for far in FAR:
        model, truth = CASES[name](far)
        means = np.full(model.n_visible, far + 0.5)
        means[:-REAL] = 0.5
        options = {"means": means if far == 300 else None, "seed": 1}
        found = un.log_partition(model, method="ais", **options, chains=100, betas=200)
        low, high = found.interval
        assert low < truth.log_z < high
        assert high - low < 1


@pytest.mark.parametrize("name", CASES)
def test_energies_do_not_cancel(name):
    """Without a task around them, but for the rounding of values and hidden biases."""
    for far in FAR:
        model, truth = CASES[name](far)
        u, v = (part[0] for part in rows_at(model, far))
        v = v.astype(np.float32).astype(float)
        wanted = -logsumexp(truth.joint(u, v)) - truth.log_z
        np.testing.assert_allclose(model.free_energy(np.concatenate([u, v])), wanted, atol=1e-2)


def test_means_of_another_shape_are_refused():
    model, _ = EXACT["gaussian, 2 hidden"](0)
    with pytest.raises(UndirectedError, match=r"means have shape \(2,\); pass \(3,\)"):
        un.log_partition(model, method="ais", means=[0.0, 0.0])


@pytest.mark.parametrize("verb", [un.query, un.evaluate])
@pytest.mark.parametrize("name", EXACT)
def test_numbers_too_large_for_single_precision_are_refused(name, verb):
    model, _ = EXACT[name](0)
    row = np.zeros(model.n_visible)
    row[-1] = -1e300
    with pytest.raises(UndirectedError, match=f"column {len(row) - 1} is -inf; wanted a? ?finite"):
        verb(model, row[None])
