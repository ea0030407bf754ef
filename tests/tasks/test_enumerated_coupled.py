"""RBMs with coupled real units against sums of the energy on a grid, and differences."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import undirected as un
from tests.tasks.differences import slopes_by_differences
from undirected.core.potentials import values
from undirected.core.table_units import TableUnits
from undirected.tasks import enumerated_learning
from undirected.tasks.dependences import column_couplings
from undirected.tasks.enumerated import Visible
from undirected.tasks.enumerated_coupled import CoupledRBM, enumerated
from undirected.tasks.enumerated_learning import fit_enumerated

COLUMNS = ["real", "binary", "real"]
LINE = np.linspace(-9, 9, 361)
STEP = LINE[1] - LINE[0]
NAN = np.nan


def random_rbm() -> CoupledRBM:
    """Units: a binary column and two real ones that are strongly coupled; 2 hidden units."""
    rng = np.random.default_rng(0)
    weights, bias, hidden = rng.normal(size=(3, 2)), rng.normal(size=3), rng.normal(size=2)
    precision = np.array([[1.5, -1.2], [-1.2, 2.0]])
    return CoupledRBM(
        Visible(TableUnits.of(COLUMNS)), weights, bias, np.zeros(2), hidden, precision
    )


def density(model: CoupledRBM) -> np.ndarray:
    """p(binary, real, real) times the area of a cell, by the energy alone."""
    found = np.zeros((2, len(LINE), len(LINE)))
    x, y = LINE[:, None], LINE[None]
    p = model.precision
    for h in itertools.product((0, 1), repeat=2):
        own = model.bias + model.weights @ np.array(h)
        squares = p[0, 0] * x * x + 2 * p[0, 1] * x * y + p[1, 1] * y * y
        real = np.exp(own[1] * x + own[2] * y - 0.5 * squares)
        found += (
            np.exp(model.hidden_bias @ np.array(h)) * np.exp([0.0, own[0]])[:, None, None] * real
        )
    return found / found.sum()


AT, UP = 200, 150
"""Places on the line: 1.0 and -1.5."""


def test_likelihoods_and_answers_are_those_of_the_energy():
    model = random_rbm()
    p = density(model)
    x, y = LINE[AT], LINE[UP]
    table = [[x, 1, y], [x, NAN, NAN], [NAN, 0, y], [NAN, 1, NAN], [NAN, NAN, NAN]]
    rows = model.visible.table.to_units(table)
    wanted = [
        p[1, AT, UP] / STEP**2,
        p[:, AT].sum() / STEP,
        p[0, :, UP].sum() / STEP,
        p[1].sum(),
        1.0,
    ]
    np.testing.assert_allclose(np.exp(model.log_likelihood(rows)), wanted, rtol=1e-5)
    found, std = model.answers(rows)
    for row, share in (1, p[:, AT].sum(0)), (3, p[1].sum(0)), (4, p.sum((0, 1))):
        mean = share @ LINE / share.sum()
        np.testing.assert_allclose(found[row, 2], mean, rtol=1e-5)
        np.testing.assert_allclose(
            std[row, 2] ** 2, share @ (LINE - mean) ** 2 / share.sum(), rtol=1e-5
        )
    np.testing.assert_allclose(found[1, 0], p[1, AT].sum() / p[:, AT].sum(), rtol=1e-5)
    assert (std[0] == 0).all() and found[0].tolist() == rows[0].tolist()


def test_an_error_bar_is_as_wide_far_out_as_near():
    """One hidden state is left there, and given it the spread of a normal does not depend on x."""
    model = random_rbm()
    _, std = model.answers(np.array([[NAN, 100.0, NAN], [NAN, 1e9, NAN], [NAN, -1e15, NAN]]))
    np.testing.assert_allclose(std[:, 2], 1 / np.sqrt(model.precision[1, 1]), rtol=1e-6)


def test_losses_of_entries_are_those_of_the_energy():
    """Two columns are asked for at once, each given the third alone; then one given two."""
    model = random_rbm()
    p, x, y = density(model), LINE[AT], LINE[UP]
    rows = model.visible.table.to_units([[x, 1, y], [x, 1, y]])
    asked = np.array([[True, True, False], [False, True, False]])
    losses, counts = model.entry_losses(rows, asked)
    given = p[:, :, UP] / p[:, :, UP].sum()
    first = -np.log(given[1].sum()) - np.log(given[:, AT].sum() / STEP)
    second = -np.log(p[1, AT, UP] / p[1, :, UP].sum() / STEP)
    np.testing.assert_allclose(losses, [first, second], rtol=1e-5)
    assert counts.tolist() == [2, 1]


def test_pseudo_likelihoods_ask_for_every_column_given_the_others():
    model = random_rbm()
    table = [[0.2, 1, 0.7], [-1.0, 0, 2.0]]
    rows, wanted = model.visible.table.to_units(table), np.zeros(2)
    for column in range(3):
        cells = np.array(table)
        cells[:, column] = NAN
        rest = model.log_likelihood(model.visible.table.to_units(cells))
        wanted += model.log_likelihood(rows) - rest
    np.testing.assert_allclose(model.pseudo_log_likelihood(rows), wanted, rtol=1e-10)


@pytest.mark.parametrize("broken", [False, True], ids=["right", "broken"])
def test_draws_are_those_of_the_density(broken):
    """Means over 20,000 draws given a real column: each of 4 within 4 standard errors.

    All of them hold with probability 0.999; draws that forget what is given fail.
    """
    model, count = random_rbm(), 20_000
    row = model.visible.table.to_units([[LINE[AT], NAN, NAN]])[0]
    known = np.full(3, NAN) if broken else row
    drawn = model.draw(known, count, np.random.default_rng(3))
    given = density(model)[:, AT] / density(model)[:, AT].sum()
    share = given.sum(0)
    both = drawn[:, 0] * drawn[:, 2], given[1] @ LINE
    tests = [(drawn[:, 0], given[1].sum()), (drawn[:, 2], share @ LINE), both]
    tests += [(drawn[:, 2] ** 2, share @ LINE**2)]
    scores = [(x.mean() - want) / (x.std() / np.sqrt(count)) for x, want in tests]
    assert (np.abs(scores).max() < 4) != broken
    if not broken:
        assert (drawn[:, 1] == row[1]).all()


def test_two_reals_are_drawn_together():
    """The correlation of 20,000 free draws within 4 standard errors (fails once in 15,000)."""
    model, count = random_rbm(), 20_000
    drawn = model.draw(np.full(3, NAN), count, np.random.default_rng(3))
    wanted = np.einsum("axy,x,y->", density(model), LINE, LINE)
    product = drawn[:, 1] * drawn[:, 2]
    assert abs(product.mean() - wanted) < 4 * product.std() / np.sqrt(count)


def test_it_is_a_mixed_rbm_and_back():
    ours = random_rbm()
    model = ours.model()
    rng = np.random.default_rng(1)
    v, h = rng.normal(size=(5, 3)), rng.integers(0, 2, (5, 2))
    fields = ours.bias + h @ ours.weights.T
    squares = np.einsum("ni,ij,nj->n", v[:, 1:], ours.precision, v[:, 1:])
    wanted = -(h @ ours.hidden_bias + (fields * v).sum(1) - 0.5 * squares)
    energy = np.asarray(model.energy(jnp.asarray(np.concatenate([v, h], 1), jnp.float32)))
    np.testing.assert_allclose(np.diff(energy), np.diff(wanted), rtol=1e-3, atol=1e-3)
    x = jnp.asarray(np.concatenate([v, h], 1), jnp.float32)
    lowered = -np.asarray(values(model.lower(), x))
    np.testing.assert_allclose(lowered, energy, rtol=1e-4, atol=1e-4)
    again = enumerated(model)
    assert isinstance(again, CoupledRBM)
    for name in ("weights", "bias", "precision", "hidden_bias"):
        np.testing.assert_allclose(getattr(again, name), getattr(ours, name), rtol=2e-3, atol=1e-4)
    row = model.to_units([[LINE[AT], 1, LINE[UP]]])[0]
    states = [np.concatenate([row, own]) for own in itertools.product((0, 1), repeat=2)]
    sums = np.logaddexp.reduce([-float(model.energy(jnp.asarray(x))) for x in states])
    p = density(ours)[1, AT, UP] / STEP**2
    np.testing.assert_allclose(ours.log_z, sums - np.log(p), rtol=1e-4)


def test_slopes_are_those_of_the_likelihood():
    """By every part that is learned, couplings included, with all patterns of holes."""
    rng = np.random.default_rng(2)
    visible = Visible(TableUnits.of(["real", "binary", "real", "nonnegative", "real"]))
    parts = [rng.normal(size=(5, 2)), rng.normal(size=5), 0.3 * rng.normal(size=4)]
    parts += [rng.normal(size=2), np.tril(0.7 * rng.normal(size=(3, 3)), -1)]
    table = rng.normal(size=(6, 5))
    table[:, 1], table[:, 3] = rng.integers(0, 2, 6), np.abs(table[:, 3])
    table[0, 0] = table[1, 1] = table[2, [0, 4]] = table[3, [0, 2, 4]] = table[4, 3] = NAN
    v, seen = visible.observed(visible.table.to_units(table))

    def value(own):
        return enumerated_learning._coupled_slope(visible, own, v, seen)[0]

    wanted = slopes_by_differences(parts, value)
    wanted[-1] = np.tril(wanted[-1], -1)
    _, slopes = enumerated_learning._coupled_slope(visible, parts, v, seen)
    for got, want in zip(slopes, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


def test_learning_finds_correlations_with_holes_anywhere():
    """Normal columns of correlation 0.9, a fifth of the cells missing: the answer is 0.9 x."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=800)
    rows = np.stack([x, 0.9 * x + np.sqrt(1 - 0.81) * rng.normal(size=800)], 1)
    rows[rng.random(rows.shape) < 0.2] = NAN
    model, _ = fit_enumerated(["real"] * 2, rows, 1, np.random.RandomState(0))
    found, std = enumerated(model).answers(np.array([[1.0, NAN], [-2.0, NAN]]))
    np.testing.assert_allclose(found[:, 1], [0.9, -1.8], atol=0.12)
    np.testing.assert_allclose(std[:, 1], np.sqrt(1 - 0.81), atol=0.06)


def test_a_column_that_is_nearly_a_copy_of_another_is_told_by_it():
    """Least squares leave 0.01; the prior of couplings, as of five rows, allows 0.04 here.

    Columns that were held to a variance of 0.01 given the others had an error bar of 0.1.
    """
    rng = np.random.default_rng(0)
    x = rng.normal(size=3000)
    rows = np.stack([x, x + 0.01 * rng.normal(size=3000)], 1)
    model, _ = fit_enumerated(["real", "real"], rows, 2, np.random.RandomState(0))
    for asked in (0, 1):
        holes = rows[:500].copy()
        holes[:, asked] = NAN
        found, std = enumerated(model).answers(holes)
        assert (std[:, asked] < 0.04).all()
        assert np.sqrt(np.mean((found[:, asked] - rows[:500, asked]) ** 2)) < 0.02


def test_conditionals_and_free_energies_are_those_of_the_energy():
    """Of one row: each column given the others on the grid; the free energy by hidden states."""
    ours = random_rbm()
    model, p = ours.model(), density(ours)
    v = jnp.asarray([1.0, LINE[AT], LINE[UP]], jnp.float32)
    wanted = [
        np.log(p[1, AT, UP] / p[:, AT, UP].sum()),
        np.log(p[1, AT, UP] / p[1, :, UP].sum() / STEP),
        np.log(p[1, AT, UP] / p[1, AT].sum() / STEP),
    ]
    np.testing.assert_allclose(model.log_conditionals(v), wanted, rtol=1e-3, atol=1e-3)
    other = jnp.asarray([0.0, LINE[UP], LINE[AT]], jnp.float32)
    gap = np.log(p[1, AT, UP] / p[0, UP, AT])
    found = float(model.free_energy(other) - model.free_energy(v))
    np.testing.assert_allclose(found, gap, rtol=1e-4, atol=1e-4)


def test_columns_that_are_coupled_are_named():
    model = random_rbm().model()
    still = un.MixedRBM(
        jnp.zeros_like(model.weights),
        model.visible_bias,
        model.hidden_bias,
        model.log_variance,
        model.table,
        model.lateral,
    )
    found = column_couplings(still, 3)
    assert found is not None
    np.testing.assert_allclose(found, [[0, 0, 1.2], [0, 0, 0], [1.2, 0, 0]], atol=1e-4)


def test_couplings_of_another_size_are_refused():
    model = random_rbm().model()
    parts = model.weights, model.visible_bias, model.hidden_bias, model.log_variance, model.table
    with pytest.raises(un.UndirectedError, match=r"lateral has shape \(3, 3\)"):
        un.MixedRBM(*parts, jnp.zeros((3, 3)))


@pytest.mark.parametrize("broken", [False, True], ids=["right", "broken"])
def test_gibbs_draws_coupled_units_together(broken):
    """Long chains given a real column agree with the energy; without couplings they do not.

    4,000 chains of 60 sweeps: each of 3 means within 5 standard errors (fails once in 10^5).
    """
    ours = random_rbm()
    model, p = ours.model(), density(ours)
    if broken:
        model = un.MixedRBM(
            model.weights, model.visible_bias, model.hidden_bias, model.log_variance, model.table
        )
    x = jnp.zeros((4000, 5)).at[:, 1].set(LINE[AT])
    free = jnp.ones(5, bool).at[1].set(False)
    kernel = un.MixedGibbs(sweeps=60)
    state = kernel.init(model, x, jax.random.key(0))
    drawn = np.asarray(jax.jit(kernel.step)(model, state, free, jax.random.key(1))[0].x, float)
    given = p[:, AT] / p[:, AT].sum()
    share = given.sum(0)
    tests = [(drawn[:, 0], given[1].sum()), (drawn[:, 2], share @ LINE)]
    tests += [(drawn[:, 2] ** 2, share @ LINE**2)]
    scores = [abs(a.mean() - want) / (a.std() / np.sqrt(len(a))) for a, want in tests]
    assert (max(scores) < 5) != broken
    assert (drawn[:, 1] == np.float32(LINE[AT])).all()


@pytest.mark.slow
def test_annealing_estimates_the_same_log_z():
    """By AIS over 500 steps from independent units: within 0.1, and its own error is below that."""
    model = random_rbm().model()
    found = un.ais(
        un.ModelPath(model.independent(), model), un.MixedGibbs(), chains=200, betas=500, seed=0
    )
    assert abs(float(found.log_z) - random_rbm().log_z) < 0.1


def test_the_verbs_are_exact_and_score_entries():
    """query and evaluate agree with the enumeration; a fit is judged by bits of entries."""
    ours = random_rbm()
    model, table = ours.model(), [[0.2, 1, 0.7], [NAN, 1, 2.0], [NAN, NAN, NAN]]
    rows = ours.visible.table.to_units(table)
    found = un.evaluate(model, table)
    got, wanted = np.asarray(found.log_likelihood.rows), ours.log_likelihood(rows)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-6)
    assert found.log_z.method == "exact" and found.held_out is not None
    np.testing.assert_allclose(
        un.query(model, table).mean[0], ours.answers(rows)[0][:, 1], rtol=1e-3
    )
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    two = {"a": x, "b": x + 0.1 * rng.normal(size=200)}
    scores = un.fit_table(two).notes["scores"]
    assert scores["validation_bits_per_held_out_entry"] < 0.5  # independent columns have 2.05
