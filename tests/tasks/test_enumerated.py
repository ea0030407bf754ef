"""Harmoniums with enumerated hidden states against sums of the energy and differences."""

import itertools

import numpy as np

from undirected.tasks.enumerated import ConditionalHarmonium, Groups, Harmonium, Rows, hidden_states


def random_harmonium(rng: np.random.Generator) -> Harmonium:
    """A category of 3 states, a binary column and a real one, with 2 hidden units."""
    parts = rng.normal(size=(6, 2)), rng.normal(size=6), np.array([0.3]), rng.normal(size=2)
    return Harmonium(Groups((3, 2)), *parts, hidden_states(2))


def table_of_densities(model: Harmonium, line: np.ndarray) -> np.ndarray:
    """p(category, binary, real on a line) by the energy alone, summed over hidden states."""
    found = np.zeros((3, 2, len(line)))
    for a, b, h1, h2 in itertools.product(range(3), range(2), (0, 1), (0, 1)):
        h = np.array([h1, h2])
        own = model.bias + model.weights @ h
        energy = own[a] + own[3 + b] + own[5] * line - 0.5 * np.exp(model.log_precision) * line**2
        found[a, b] += np.exp(energy + model.hidden_bias @ h)
    return found / (found.sum() * (line[1] - line[0]))


def test_likelihoods_and_answers_are_those_of_the_energy():
    model, line = random_harmonium(np.random.default_rng(0)), np.linspace(-15, 15, 3001)
    p, step, nan = table_of_densities(model, line), line[1] - line[0], np.nan
    at = int(np.argmin(abs(line - 0.5)))
    codes = np.array([[1, 0], [nan, 1], [2, nan], [nan, nan]])
    real = np.array([[line[at]], [nan], [line[at]], [nan]])
    rows = Rows.of(model.groups, codes, real)
    wanted = [p[1, 0, at], p[:, 1].sum() * step, p[2, :, at].sum(), 1.0]
    np.testing.assert_allclose(np.exp(model.log_likelihood(rows)), wanted, rtol=1e-6)
    found, variance = model.answers(rows)
    given = p[:, 1].sum(0) / p[:, 1].sum()
    np.testing.assert_allclose(found[1, :3], p[:, 1].sum(1) / p[:, 1].sum(), rtol=1e-6)
    np.testing.assert_allclose(found[1, 5], given @ line, rtol=1e-6)
    np.testing.assert_allclose(variance[1, 0], given @ line**2 - (given @ line) ** 2, rtol=1e-6)
    np.testing.assert_allclose(found[2, 3:5], p[2, :, at] / p[2, :, at].sum(), rtol=1e-6)


def test_draws_have_the_probabilities_of_the_energy():
    # 40,000 draws: a share is off by 5 standard errors with probability below 1e-6 a cell.
    model, line = random_harmonium(np.random.default_rng(0)), np.linspace(-15, 15, 3001)
    p, count = table_of_densities(model, line), 40_000
    codes, real = model.sample(count, np.random.RandomState(0))
    shares = np.zeros((3, 2))
    np.add.at(shares, tuple(codes.astype(int).T), 1 / count)
    wanted = p.sum(2) * (line[1] - line[0])
    assert (abs(shares - wanted) < 5 * np.sqrt(wanted * (1 - wanted) / count)).all()
    mean = p.sum((0, 1)) @ line * (line[1] - line[0])
    assert abs(real.mean() - mean) < 5 * real.std() / np.sqrt(count)


def slopes_by_differences(make, parts, value):
    """Central differences of a value by every parameter."""
    found = []
    for k, part in enumerate(parts):
        slope = np.zeros_like(part)
        for place in np.ndindex(part.shape):
            ends = []
            for sign in (1, -1):
                moved = [own.copy() for own in parts]
                moved[k][place] += sign * 1e-5
                ends.append(value(make(moved)))
            slope[place] = (ends[0] - ends[1]) / 2e-5
        found.append(slope)
    return found


def test_slopes_are_those_of_the_likelihood():
    rng = np.random.default_rng(1)
    model = random_harmonium(rng)
    codes = np.array([[1.0, 0.0], [np.nan, 1.0], [2.0, np.nan]])
    rows = Rows.of(model.groups, codes, np.array([[0.2], [np.nan], [-1.0]]))
    parts = [model.weights, model.bias, model.log_precision, model.hidden_bias]
    wanted = slopes_by_differences(
        lambda own: Harmonium(model.groups, *own, model.states),
        parts,
        lambda m: m.log_likelihood(rows).sum(),
    )
    for got, want in zip(model.slope(rows)[1], wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7)


def conditional(rng: np.random.Generator) -> ConditionalHarmonium:
    shapes = [(5, 2), (5, 3), (2, 3), (5,), (2,)]
    return ConditionalHarmonium(
        Groups((3, 2)), *(rng.normal(size=shape) for shape in shapes), hidden_states(2)
    )


def test_conditional_probabilities_and_slopes_are_those_of_the_energy():
    rng = np.random.default_rng(2)
    model, x = conditional(rng), rng.normal(size=(4, 3))
    p = np.zeros((4, 3, 2))
    for a, b, h1, h2 in itertools.product(range(3), range(2), (0, 1), (0, 1)):
        v, h = np.eye(5)[a] + np.eye(5)[3 + b], np.array([h1, h2])
        outputs, hidden = model.fields(x)
        p[:, a, b] += np.exp(v @ model.weights @ h + outputs @ v + hidden @ h)
    p /= p.sum((1, 2), keepdims=True)
    np.testing.assert_allclose(model.predict(x)[:, :3], p.sum(2), rtol=1e-9)
    np.testing.assert_allclose(model.predict(x)[:, 3:], p.sum(1), rtol=1e-9)
    codes = np.array([[0, 1], [2, 0], [1, 1], [0, 0]])
    v = model.groups.one_hot(codes)
    wanted = np.log([row[tuple(code)] for row, code in zip(p, codes, strict=True)])
    np.testing.assert_allclose(model.log_likelihood(x, v), wanted, rtol=1e-9)
    names = ("weights", "output_features", "hidden_features", "bias", "hidden_bias")
    slopes = slopes_by_differences(
        lambda own: ConditionalHarmonium(model.groups, *own, model.states),
        [getattr(model, name) for name in names],
        lambda m: m.log_likelihood(x, v).sum(),
    )
    for got, want in zip(model.slope(x, v)[1], slopes, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7)
