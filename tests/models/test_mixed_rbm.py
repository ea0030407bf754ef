"""The mixed RBM against enumeration of the hidden units and SciPy's integrals over the visibles."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate

import undirected as un
from undirected.core.errors import UndirectedError
from undirected.core.potentials import clamp, inner, statistics
from undirected.core.protocols import Conditionals, Lowerable, Summable

KINDS = ["real", 3, "binary", "nonnegative", "real", "binary"]
# Units by kind: the two binary columns, the three states, the two reals, the nonnegative one.
COLUMNS = [2, 5, 1, 0, 4, 3]
H = 3
NAN = np.nan


def make(seed=0):
    rng = np.random.default_rng(seed)
    model = un.MixedRBM.create(KINDS, H, seed=0)
    return eqx.tree_at(
        lambda m: (m.weights, m.visible_bias, m.hidden_bias, m.log_variance),
        model,
        (
            jnp.asarray(rng.normal(size=(8, H))),
            jnp.asarray(0.5 * rng.normal(size=8)),
            jnp.asarray(rng.normal(size=H)),
            jnp.asarray([-0.5, 0.3, -0.2]),
        ),
    )


class Truth:
    """Everything by the definition of the energy, with loops over hidden states."""

    def __init__(self, model):
        found = model.weights, model.visible_bias, model.hidden_bias
        self.W, self.b, self.c = (np.asarray(a, float) for a in found)
        self.integrals = {}
        self.s2 = np.exp(np.asarray(model.log_variance, float)) + 1e-4
        self.hidden = np.array(list(itertools.product((0, 1), repeat=H)), float)

    def log_weight(self, v, h):
        """-E(v, h)."""
        pull = self.W @ h
        total = self.c @ h + v[:5] @ (self.b[:5] + pull[:5])
        for i in (5, 6):
            s2 = self.s2[i - 5]
            total += -((v[i] - self.b[i]) ** 2) / (2 * s2) + v[i] * pull[i] / np.sqrt(s2)
        return total + v[7] * (self.b[7] + pull[7]) - v[7] ** 2 / (2 * self.s2[2])

    def column(self, h, unit):
        """log of the sum or integral over one column given the hidden units, by SciPy."""
        pull = self.W @ h
        if unit < 2:
            return np.log1p(np.exp(self.b[unit] + pull[unit]))
        if unit < 5:
            return np.log(np.exp(self.b[2:5] + pull[2:5]).sum())
        return np.log(self.integral(h, unit, 0))

    def integral(self, h, unit, power):
        known = (*h, unit, power)
        if known not in self.integrals:
            low, high = (0, 40) if unit == 7 else (-30, 30)
            value = integrate.quad(
                lambda x: x**power * self.line(h, unit, x), low, high, epsabs=1e-13, points=[0.0]
            )
            self.integrals[known] = value[0]
        return self.integrals[known]

    def line(self, h, unit, x):
        pull, s2 = (self.W @ h)[unit], self.s2[unit - 5]
        if unit == 7:
            return np.exp(x * (self.b[7] + pull) - x**2 / (2 * s2))
        return np.exp(-((x - self.b[unit]) ** 2) / (2 * s2) + x * pull / np.sqrt(s2))

    def log_z(self, v=None):
        """log of the sum over everything that is NaN in v (over all without it)."""
        v = np.full(8, NAN) if v is None else v
        total = []
        for h in self.hidden:
            seen = ~np.isnan(v)
            zero = np.where(seen, v, 0.0)
            value = self.log_weight(zero, h)
            for i in (5, 6):  # a real unit at 0 has the energy of its mean
                value += 0.0 if seen[i] else self.b[i] ** 2 / (2 * self.s2[i - 5])
            value += sum(self.column(h, u) for u in (0, 1, 2, 5, 6, 7) if not seen[u])
            total.append(value)
        return np.logaddexp.reduce(total)

    def hidden_given(self, v):
        """Probabilities of the hidden states given what is not NaN in v."""
        values = [Given(self, h).log_z(v) for h in self.hidden]
        return np.exp(values - np.logaddexp.reduce(values))

    def moments(self, v):
        """Mean and second moment of every visible unit that is NaN in v."""
        first, second = np.array(v, float), np.array(v, float) ** 2
        for unit in np.flatnonzero(np.isnan(v)):
            m = q = 0.0
            for p, h in zip(self.hidden_given(v), self.hidden, strict=True):
                pull = self.W @ h
                if unit < 2:
                    own = 1 / (1 + np.exp(-self.b[unit] - pull[unit]))
                    pair = own, own
                elif unit < 5:
                    share = np.exp(self.b[2:5] + pull[2:5])
                    own = share[unit - 2] / share.sum()
                    pair = own, own
                else:
                    z, a, b = (self.integral(h, unit, k) for k in range(3))
                    pair = a / z, b / z
                m, q = m + p * pair[0], q + p * pair[1]
            first[unit], second[unit] = m, q
        return first, second


class Given(Truth):
    """The same with one hidden state only."""

    def __init__(self, truth, h):
        self.__dict__ |= truth.__dict__
        self.hidden = h[None]


ROWS = np.array(
    [
        [1, 0, 0, 1, 0, 0.3, -0.7, 0.9],
        [0, 0, 1, 0, 0, -1.2, 0.4, 0.1],
        [1, 1, 0, 0, 1, 0.0, 1.5, 2.2],
    ]
)
HOLES = np.array(
    [
        [1, NAN, NAN, NAN, NAN, 0.3, NAN, 0.9],
        [NAN, 0, 0, 1, 0, NAN, 0.4, NAN],
        [NAN] * 8,
    ]
)


@pytest.fixture
def case(x64):
    model = make()
    return model, Truth(model)


def test_units_and_columns(x64):
    model = make()
    table = [[0.3, 1, 1, 0.9, -0.7, 0], [NAN, NAN, 0, NAN, 0.4, NAN]]
    units = model.to_units(table)
    np.testing.assert_allclose(units[0], ROWS[0], atol=1e-6)
    wanted = [0, NAN, NAN, NAN, NAN, NAN, 0.4, NAN]
    np.testing.assert_allclose(units[1], wanted, atol=1e-6)
    np.testing.assert_allclose(model.to_table(units), table, atol=1e-6)
    for cell, column in ((2, 2), (3, 1), (0.5, 1), (-1, 3), (np.inf, 0)):
        bad = np.array(table)
        bad[0, column] = cell
        with pytest.raises(UndirectedError, match=f"row 0, column {column} is"):
            model.to_units(bad)
    for kinds in ([], ["text"], [1], ["real", True], "real"):
        with pytest.raises(UndirectedError, match="columns"):
            un.MixedRBM.create(kinds, 2)


def test_energy_lowering_and_free_energy(case):
    model, truth = case
    assert isinstance(model, Lowerable | Summable) and isinstance(model, Conditionals)
    p = model.lower()
    for v in ROWS:
        sums = []
        for h in truth.hidden:
            x = jnp.asarray(np.concatenate([v, h]))
            wanted = truth.log_weight(v, h)
            assert float(-model.energy(x)) == pytest.approx(wanted, abs=1e-10)
            assert float(inner(p, statistics(p, x))) == pytest.approx(wanted, abs=1e-10)
            sums.append(wanted)
        found = float(-model.free_energy(jnp.asarray(v)))
        assert found == pytest.approx(np.logaddexp.reduce(sums), abs=1e-10)


@pytest.mark.slow
def test_single_columns_given_all_others(case):
    """Against sums of the free energy over the states of one column, and SciPy's integrals."""
    model, truth = case
    found = np.asarray(jax.jit(lambda v: model.log_conditionals(v))(jnp.asarray(ROWS)))
    for v, got in zip(ROWS, found, strict=True):
        whole = truth.log_z(v)
        wanted = []
        for units in ([0], [1], [2, 3, 4], [5], [6], [7]):
            holes = v.copy()
            holes[units] = NAN
            wanted.append(whole - truth.log_z(holes))
        sums = [got[0], got[1], got[2:5].sum(), *got[5:]]
        np.testing.assert_allclose(sums, wanted, atol=1e-8)
    score = un.pseudo_log_likelihood(model, ROWS)
    assert score.rows[0] == pytest.approx(found[0].sum(), abs=1e-5)


def test_exact_log_z_and_moments_with_and_without_evidence(case):
    model, truth = case
    assert float(un.log_partition(model, method="exact")) == pytest.approx(truth.log_z(), abs=1e-8)
    p = model.lower()
    found = un.Exact()(clamp(p, ~np.isnan(HOLES), HOLES))
    for i, v in enumerate(HOLES):
        assert float(found.log_z[i]) == pytest.approx(truth.log_z(v), abs=1e-8)
        first, second = truth.moments(v)
        np.testing.assert_allclose(found.unary[i, :8], first, atol=1e-7)
        squares = np.concatenate([f.weight[i] for f in found.factors if hasattr(f, "block")])
        np.testing.assert_allclose(squares, second[5:], atol=1e-7)


def star():
    """With one hidden unit the graph is a tree, on which messages are exact."""
    model = make()
    first = jnp.asarray([1.0, 0.0, 0.0])
    parts = (1.5 * model.weights * first[None], model.hidden_bias * first)
    return eqx.tree_at(lambda m: (m.weights, m.hidden_bias), model, parts)


def test_belief_propagation_is_exact_on_a_star(x64):
    """Beliefs and log Z, given evidence too."""
    model = star()
    truth, p = Truth(model), model.lower()
    found = un.SumProduct()(clamp(p, ~np.isnan(HOLES), HOLES))
    assert bool(found.converged.all())
    exact = un.Exact()(clamp(p, ~np.isnan(HOLES), HOLES))
    for i, v in enumerate(HOLES):
        assert float(found.log_z[i]) == pytest.approx(truth.log_z(v), abs=1e-6)
        np.testing.assert_allclose(found.unary[i, :8], truth.moments(v)[0], atol=1e-6)
    for got, wanted in zip(found.factors, exact.factors, strict=True):
        np.testing.assert_allclose(got.weight, wanted.weight, atol=1e-6)


def test_answers_of_a_query_network_are_exact_on_a_star(x64):
    """Log-probability or density of every column that is asked for, given the others."""
    model, known = star(), ~np.isnan(HOLES)
    truth, network = Truth(model), un.QueryNetwork(model, 1.0, layers=4)
    found = jax.jit(lambda x: network.log_beliefs(x, jnp.asarray(known)))(jnp.asarray(ROWS))
    for v, seen, got in zip(ROWS, known, np.asarray(found), strict=True):
        holes = np.where(seen, v, NAN)
        for units in ([0], [1], [2, 3, 4], [5], [6], [7]):
            if not seen[units].any():
                filled = holes.copy()
                filled[units] = v[units]
                wanted = truth.log_z(filled) - truth.log_z(holes)
                assert got[units].sum() == pytest.approx(wanted, abs=1e-6), units


@pytest.mark.slow
def test_loopy_beliefs_and_mean_field_are_near(case):
    """Belief propagation within 0.05 of the truth here; mean field bounds log Z from below."""
    model, truth = case
    p = clamp(model.lower(), ~np.isnan(HOLES), HOLES)
    loopy, naive = un.SumProduct()(p), un.MeanField()(p)
    for i, v in enumerate(HOLES):
        np.testing.assert_allclose(loopy.unary[i, :8], truth.moments(v)[0], atol=0.05)
        assert float(naive.log_z[i]) <= truth.log_z(v)
        seen = ~np.isnan(v)
        np.testing.assert_array_equal(naive.unary[i, :8][seen], v[seen])
    # A model without couplings has nothing to approximate.
    alone = model.independent()
    bound = un.MeanField()(clamp(alone.lower(), ~np.isnan(HOLES), HOLES))
    for i, v in enumerate(HOLES):
        assert float(bound.log_z[i]) == pytest.approx(Truth(alone).log_z(v), abs=1e-8)


def test_independent_units_have_the_asked_means(x64):
    model = make()
    means = np.array([0.2, 0.7, 0.5, 0.3, 0.2, 0.4, -0.3, 1.3])
    base = Truth(model.independent(jnp.asarray(means)))
    assert not base.W.any()
    np.testing.assert_allclose(base.moments(np.full(8, NAN))[0], means, atol=1e-6)
    again = Truth(model.independent())
    np.testing.assert_allclose(
        again.moments(np.full(8, NAN))[0][:5], [0.5, 0.5] + [1 / 3] * 3, atol=1e-8
    )


def test_a_start_from_data_has_its_moments(x64):
    rng = np.random.default_rng(0)
    rows = np.stack(
        [
            rng.normal(2.0, 0.5, 4000),
            rng.choice(3, 4000, p=[0.5, 0.3, 0.2]),
            rng.random(4000) < 0.25,
            np.abs(rng.normal(0.5, 1.0, 4000)),
            rng.normal(size=4000),
            rng.random(4000) < 0.9,
        ],
        1,
    )
    rows[rng.random(rows.shape) < 0.1] = NAN
    model = un.MixedRBM.create(KINDS, H, seed=0, scale=0.0, data=rows)
    first, second = Truth(model).moments(np.full(8, NAN))
    units = model.to_units(rows)
    np.testing.assert_allclose(first, np.nanmean(units, 0), atol=1e-3)
    np.testing.assert_allclose(second, np.nanmean(units**2, 0), atol=2e-3)


@pytest.fixture(scope="module")
def draws():
    model = make()
    return model, un.run_chains(
        un.MixedGibbs(), model, chains=500, burn_in=50, samples=60, thin=3, seed=3
    )


@pytest.mark.slow
def test_gibbs_samples_have_the_right_moments(draws):
    """Means and second moments within 5 standard errors of chains; a false alarm in 10^5 runs.

    A kernel that forgets the couplings of the visible units must be seen.
    """
    model, chains = draws
    truth = Truth(model)
    x = np.asarray(chains.x, float)

    def far(first, second):
        worst = 0.0
        for power, wanted in ((1, first), (2, second)):
            means = (x[..., :8] ** power).mean(0)
            error = means.std(0, ddof=1) / np.sqrt(len(means))
            worst = max(worst, (np.abs(means.mean(0) - wanted) / error).max())
        return worst

    assert far(*truth.moments(np.full(8, NAN))) < 5
    loose = eqx.tree_at(lambda m: m.weights, model, 0.5 * model.weights)
    assert far(*Truth(loose).moments(np.full(8, NAN))) > 5


@pytest.mark.slow
def test_ais_brackets_log_z(draws):
    model, _ = draws
    wanted = Truth(model).log_z()
    found = un.log_partition(model, method="ais", chains=200, betas=300, seed=1)
    assert found.agree
    assert found.interval[0] < wanted < found.interval[1]


def test_saved_by_fields(tmp_path):
    model = make()
    un.save(tmp_path, model)
    again = un.load(tmp_path)
    assert again.table == model.table
    np.testing.assert_array_equal(again.weights, model.weights)
