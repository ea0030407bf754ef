"""RBMs with enumerated hidden states against sums of the energy and differences."""

import itertools

import numpy as np
import pytest

import undirected as un
from tests.tasks.differences import slopes_by_differences
from undirected.core.table_units import TableUnits
from undirected.tasks import enumerated_learning
from undirected.tasks.enumerated import EnumeratedRBM, Visible, hidden_states
from undirected.tasks.enumerated_learning import fit_enumerated

COLUMNS = ["real", 3, "binary", "nonnegative"]
LINE, HALF = np.linspace(-12, 12, 481), np.linspace(0, 10, 401)
STEP = (LINE[1] - LINE[0], HALF[1] - HALF[0])
SIMPSON = np.array([1, *[4, 2] * 199, 4, 1]) / 3
"""Weights of the points of the half line."""


def random_rbm() -> EnumeratedRBM:
    """Units: a binary column, a category of 3 states, a real and a nonnegative one; 2 hidden."""
    rng = np.random.default_rng(0)
    shapes = (6, 2), (6,), (2,), (2,)
    parts = [rng.normal(size=shape) for shape in shapes]
    parts[2] = np.array([0.3, 0.8])
    return EnumeratedRBM(Visible(TableUnits.of(COLUMNS)), *parts)


def density(model: EnumeratedRBM) -> np.ndarray:
    """p(binary, category, real, nonnegative) times the width of a cell, by the energy alone.

    Simpson's rule on the half line, which begins with a jump; sums on the whole line.
    """
    found = np.zeros((2, 3, len(LINE), len(HALF)))
    precision = np.exp(model.log_precision)
    for h in itertools.product((0, 1), repeat=2):
        own = model.bias + model.weights @ np.array(h)
        real = np.exp(own[4] * LINE - 0.5 * precision[0] * LINE**2)
        positive = np.exp(own[5] * HALF - 0.5 * precision[1] * HALF**2) * SIMPSON
        parts = np.exp([0.0, own[0]]), np.exp(own[1:4]), real, positive
        found += np.exp(model.hidden_bias @ np.array(h)) * np.einsum("a,b,c,d->abcd", *parts)
    return found / found.sum()


def test_likelihoods_and_answers_are_those_of_the_energy():
    model, nan = random_rbm(), np.nan
    p = density(model)
    at, up = int(np.argmin(abs(LINE - 0.5))), 40
    real, high = LINE[at], HALF[up]
    cell = STEP[0] * STEP[1] * SIMPSON[up]
    rows = model.visible.table.to_units(
        [[real, 1, 0, high], [nan, nan, 1, nan], [real, 2, nan, nan], [nan] * 4]
    )
    wanted = [p[0, 1, at, up] / cell, p[1].sum(), p[:, 2, at].sum() / STEP[0], 1.0]
    np.testing.assert_allclose(np.exp(model.log_likelihood(rows)), wanted, rtol=1e-5)
    found, std = model.answers(rows)
    given = p[1] / p[1].sum()
    np.testing.assert_allclose(found[1, 1:4], given.sum((1, 2)), rtol=1e-5)
    assert found[1, 0] == 1 and found[2, 4] == np.float32(real)
    for unit, line, share in (4, LINE, given.sum((0, 2))), (5, HALF, given.sum((0, 1))):
        mean = share @ line
        np.testing.assert_allclose(found[1, unit], mean, rtol=1e-5)
        np.testing.assert_allclose(std[1, unit] ** 2, share @ (line - mean) ** 2, rtol=1e-5)
    assert std[0].tolist() == [0] * 6 and (std[:, :4] == 0).all()
    np.testing.assert_allclose(found[2, 0], p[1, 2, at].sum() / p[:, 2, at].sum(), rtol=1e-5)


def test_losses_of_entries_are_those_of_the_energy():
    """Two columns are asked for at once, each given the two others alone."""
    model = random_rbm()
    p = density(model)
    at, up = int(np.argmin(abs(LINE - 0.5))), 40
    rows = model.visible.table.to_units([[LINE[at], 1, 1, HALF[up]]] * 2)
    asked = model.visible.table.to_units([[1.0, 0, 1, 0], [0, 0, 0, 1.0]]).astype(bool)
    asked[:, 1:4] = [[False] * 3, [True] * 3]  # row 0: binary and real; row 1: the others
    losses, counts = model.entry_losses(rows, asked)
    given = p[:, 1, :, up] / p[:, 1, :, up].sum()
    first = -np.log(given[1].sum()) - np.log(given[:, at].sum() / STEP[0])
    given = p[1, :, at] / p[1, :, at].sum()
    second = -np.log(given[1].sum()) - np.log(given[:, up].sum() / (STEP[1] * SIMPSON[up]))
    np.testing.assert_allclose(losses, [first, second], rtol=1e-4)
    assert counts.tolist() == [2, 2]


def test_log_z_is_that_of_the_model():
    """log Z = -F(v) - log p(v), with F from the energies of the hidden states of one row."""
    ours = random_rbm()
    at, up = int(np.argmin(abs(LINE - 0.5))), 40
    v = ours.visible.table.to_units([[LINE[at], 1, 0, HALF[up]]])[0]
    model = ours.model()
    states = [np.concatenate([v, h]) for h in itertools.product((0, 1), repeat=2)]
    sums = np.exp([-float(model.energy(x)) for x in states]).sum()
    p = density(ours)[0, 1, at, up] / (STEP[0] * STEP[1] * SIMPSON[up])
    np.testing.assert_allclose(ours.log_z, np.log(sums / p), rtol=1e-4)


def test_pseudo_likelihoods_ask_for_every_column_given_the_others():
    model = random_rbm()
    table = [[0.2, 1, 0, 0.7], [-1.0, 2, 1, 2.0]]
    rows, wanted = model.visible.table.to_units(table), np.zeros(2)
    for column in range(4):
        cells = np.array(table)
        cells[:, column] = np.nan
        rest = model.log_likelihood(model.visible.table.to_units(cells))
        wanted += model.log_likelihood(rows) - rest
    np.testing.assert_allclose(model.pseudo_log_likelihood(rows), wanted, rtol=1e-10)


@pytest.mark.parametrize("broken", [False, True])
def test_draws_are_those_of_the_density(broken):
    """Means over 20,000 draws given the real column: each of 6 within 4 standard errors.

    All of them hold with probability 0.999; draws that forget what is given fail.
    """
    model, count, at = random_rbm(), 20_000, int(np.argmin(abs(LINE - 2.0)))
    row = model.visible.table.to_units([[LINE[at], np.nan, np.nan, np.nan]])[0]
    known = np.full(6, np.nan) if broken else row
    drawn = model.draw(known, count, np.random.default_rng(3))
    assert drawn.shape == (count, 8)
    given = density(model)[:, :, at] / density(model)[:, :, at].sum()
    high = given.sum((0, 1))
    tests = [(drawn[:, 0], given[1].sum())]
    tests += [(drawn[:, 1 + k], share) for k, share in enumerate(given.sum((0, 2)))]
    tests += [(drawn[:, 5], high @ HALF), (drawn[:, 5] ** 2, high @ HALF**2)]
    scores = [(x.mean() - want) / (x.std() / np.sqrt(count)) for x, want in tests]
    assert (np.abs(scores).max() < 4) != broken
    assert (drawn[:, 5] > 0).all() and (drawn[:, 1:4].sum(1) == 1).all()
    assert set(np.unique(drawn[:, 6:])) == {0, 1}
    if not broken:
        assert (drawn[:, 4] == row[4]).all()


def test_the_verbs_are_exact_where_hidden_states_are_few():
    """query, evaluate and sample of a model agree with the enumeration, which nothing compiles."""
    ours, nan = random_rbm(), np.nan
    model = ours.model()
    table = [[0.2, 1, 0, 0.7], [nan, nan, 1, nan]]
    rows = ours.visible.table.to_units(table)
    found = un.evaluate(model, table)
    np.testing.assert_allclose(found.log_likelihood.rows, ours.log_likelihood(rows), rtol=1e-4)
    assert found.hidden_sums == found.log_z.method == "exact"
    answers = un.query(model, table)
    np.testing.assert_allclose(answers.mean[0], ours.answers(rows)[0][:, 4], rtol=1e-3)
    drawn = un.sample(model, 4000, given={2: 1}, seed=0)
    mean = ours.answers(rows)[0][1, 4]
    assert abs(drawn[:, 0].mean() - mean) < 4 * drawn[:, 0].std() / np.sqrt(4000)
    np.testing.assert_array_equal(drawn, un.sample(model, 4000, given={2: 1}, seed=0))


def test_slopes_are_those_of_the_likelihood():
    model, nan = random_rbm(), np.nan
    table = [[0.2, 1, 0, 0.7], [nan, nan, 1, nan], [-1.0, 2, nan, 2.0]]
    rows = model.visible.table.to_units(table)
    parts = [model.weights, model.bias, model.log_precision, model.hidden_bias]
    wanted = slopes_by_differences(
        parts, lambda own: EnumeratedRBM(model.visible, *own).log_likelihood(rows).sum()
    )
    total, slopes = model.slope(*model.visible.observed(rows))
    np.testing.assert_allclose(total, model.log_likelihood(rows).sum())
    for got, want in zip(slopes, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7)


def test_it_is_a_mixed_rbm_and_back():
    ours = random_rbm()
    model = ours.model()
    rng = np.random.default_rng(1)
    v, h = ours.visible.table.to_units([[0.4, 2, 1, 1.5]] * 4)[0], rng.integers(0, 2, (4, 2))
    precision = np.concatenate([np.zeros(4), np.exp(ours.log_precision)])
    fields = ours.bias + h @ ours.weights.T
    wanted = -(h @ ours.hidden_bias + fields @ v - 0.5 * precision @ v**2)
    energy = np.array([float(model.energy(np.concatenate([v, own]))) for own in h])
    np.testing.assert_allclose(np.diff(energy), np.diff(wanted), rtol=1e-4, atol=1e-4)
    again = EnumeratedRBM.of(model)
    for name in ("weights", "bias", "log_precision", "hidden_bias"):
        np.testing.assert_allclose(getattr(again, name), getattr(ours, name), rtol=2e-3, atol=1e-5)


def test_learning_finds_what_goes_together():
    """Two binary columns that agree in 9 rows of 10: the exact answer is the share of the rows."""
    first = np.repeat([0.0, 1.0], 200)
    rows = np.stack([first, np.where(np.arange(400) % 10 == 0, 1 - first, first)], 1)
    model, steps = fit_enumerated(
        ["binary"] * 2, rows, 1, np.random.RandomState(0), alpha=0.01, max_iter=300
    )
    answers, _ = EnumeratedRBM.of(model).answers(np.array([[1, np.nan], [0, np.nan]]))
    assert steps > 1 and isinstance(model, un.MixedRBM)
    np.testing.assert_allclose(answers[:, 1], [0.9, 0.1], atol=0.01)


@pytest.mark.parametrize("broken", [False, True])
def test_cells_that_are_zero_get_a_spike(broken, monkeypatch):
    """Where 1s go with 0.0: at least what an exponential of mean 0.02 would make of these rows.

    A penalty as large as that of other columns keeps the spike flat.
    """
    if broken:
        monkeypatch.setattr(enumerated_learning, "SPIKE", 1.0)
    rng = np.random.default_rng(0)
    first = rng.random(1300) < 0.5
    second = np.where(first, 0.0, np.abs(rng.normal(1.3, 0.4, 1300)))
    rows = np.stack([first.astype(float), second], 1)
    model, _ = fit_enumerated(["binary", "nonnegative"], rows[:300], 2, np.random.RandomState(0))
    test = rows[300:]
    normal = -0.5 * ((test[:, 1] - 1.3) / 0.4) ** 2 - np.log(0.4 * np.sqrt(2 * np.pi))
    by_hand = np.log(0.5) + np.where(test[:, 0] > 0.5, np.log(50) - 50 * test[:, 1], normal)
    found = EnumeratedRBM.of(model).log_likelihood(test).mean()
    assert (found > by_hand.mean()) != broken


def test_too_many_hidden_units_are_refused():
    with pytest.raises(un.UndirectedError, match="wanted 0 to 10"):
        hidden_states(11)


@pytest.mark.parametrize("a", [-0.5, -3.0, -40.0, -99.0, -101.0, -1000.0, -2e4, -1e7, 3.0, 60.0])
def test_moments_of_nonnegative_units_however_far_out(a):
    """Columns that are often 0 lead far out, where the terms of the moments cancelled."""
    visible, variance = Visible(TableUnits(("nonnegative",))), 0.25
    first, second = visible.moments(np.array([[a / 0.5]]), np.array([variance]))
    y, weights = np.polynomial.legendre.leggauss(200)
    top = a + 12 if a > 0 else 40 / (1 - a) if a < -3 else 12.0
    y, weights = top * (y + 1) / 2, weights * top / 2
    weights = weights * np.exp(a * y - 0.5 * y**2 - max(a, 0) ** 2 / 2)
    wanted = 0.5 * (weights @ y) / weights.sum(), 0.25 * (weights @ y**2) / weights.sum()
    np.testing.assert_allclose((first.item(), second.item()), wanted, rtol=1e-7)


def test_a_column_that_is_constant_gives_no_warning():
    """A real one in standard units is at most some; what no unit has was an overflow."""
    visible = Visible(TableUnits(("real", "binary")))
    first, second = visible.moments(np.array([[0.0, 1e5]]), np.array([0.01]))
    np.testing.assert_allclose((first[0, 1], second[0, 0]), (1e3, 1e6 + 0.01))
