"""Conditional RBMs with enumerated hidden states against sums of the energy and differences."""

import itertools

import numpy as np

from tests.tasks.differences import slopes_by_differences
from undirected.core.table_units import TableUnits
from undirected.tasks.enumerated import Visible
from undirected.tasks.enumerated_conditional import EnumeratedConditionalRBM


def test_probabilities_and_slopes_are_those_of_the_energy():
    """A binary output and one of 3 states, 3 features, 2 hidden units."""
    rng = np.random.default_rng(2)
    visible = Visible(TableUnits.of(["binary", 3]))
    parts = [rng.normal(size=shape) for shape in [(4, 2), (4, 3), (2, 3), (4,), (2,)]]
    W, A, C, b, c = parts
    x = rng.normal(size=(4, 3))
    p = np.zeros((4, 2, 3))
    for on, state, *h in itertools.product(range(2), range(3), (0, 1), (0, 1)):
        v, h = np.array([on, *np.eye(3)[state]]), np.array(h)
        p[:, on, state] += np.exp(v @ W @ h + (x @ A.T + b) @ v + (x @ C.T + c) @ h)
    p /= p.sum((1, 2), keepdims=True)
    model = EnumeratedConditionalRBM(visible, *parts)
    np.testing.assert_allclose(model.predict(x)[:, 0], p[:, 1].sum(1), rtol=1e-9)
    np.testing.assert_allclose(model.predict(x)[:, 1:], p.sum(1), rtol=1e-9)
    codes = np.array([[0, 1], [1, 0], [1, 2], [0, 0]])
    v = visible.table.to_units(codes).astype(float)
    wanted = np.log([row[tuple(code)] for row, code in zip(p, codes, strict=True)]).sum()
    np.testing.assert_allclose(model.slope(x, v)[0], wanted, rtol=1e-9)
    slopes = slopes_by_differences(
        parts, lambda own: EnumeratedConditionalRBM(visible, *own).slope(x, v)[0]
    )
    for got, want in zip(model.slope(x, v)[1], slopes, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7)
