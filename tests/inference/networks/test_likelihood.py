"""The likelihood of rows with missing entries, and its gradient, against enumeration."""

import numpy as np
import pytest

from tests.inference.networks.random_networks import joint_logs, log_sum
from undirected.core.errors import NotFinite, UndirectedError
from undirected.inference.networks import likelihood
from undirected.inference.networks.likelihood import Likelihood
from undirected.inference.networks.network import Network

SIZES = (2, 3, 2, 2, 3)
SCOPES = ((0, 1), (2, 1), (3, 4, 2), (0, 3), (4,), (1,))


def tables(seed: int, zero: bool = False) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    found = [rng.normal(size=[SIZES[v] for v in scope]) for scope in SCOPES]
    if zero:
        found[1][0, 2] = -np.inf
    return found


def incomplete_rows(seed: int, count: int, missing: float, hidden: tuple[int, ...] = ()):
    rng = np.random.default_rng(seed)
    rows = np.stack([rng.integers(0, k, count) for k in SIZES], 1)
    rows[(rows[:, 1] == 2) & (rows[:, 2] == 0), 2] = 1  # what the zero allows
    rows[rng.random(rows.shape) < missing] = -1
    rows[:, list(hidden)] = -1
    return rows


def wanted(logs: list[np.ndarray], rows: np.ndarray) -> float:
    """The mean log-likelihood by enumeration."""
    whole = joint_logs(Network(SIZES, SCOPES, tuple(logs)))
    own = [log_sum(whole[tuple(slice(None) if x < 0 else x for x in row)]) for row in rows]
    return float(np.mean(own) - log_sum(whole))


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("hidden", [(), (2,), (0, 4)])
def test_value_and_gradient(missing: float, hidden: tuple[int, ...], monkeypatch) -> None:
    monkeypatch.setattr(likelihood, "CHUNK", 40)
    rows, logs = incomplete_rows(1, 30, missing, hidden), tables(2, zero=True)
    found = Likelihood.of(SIZES, SCOPES, rows)
    value, gradient = found(logs)
    assert value == pytest.approx(wanted(logs, rows), rel=1e-12)
    rng = np.random.default_rng(3)
    for k, table in enumerate(logs):
        for _ in range(2):
            at = tuple(int(rng.integers(s)) for s in table.shape)
            if table[at] == -np.inf:
                continue
            ends = []
            for step in (1e-5, -1e-5):
                moved = [own.copy() for own in logs]
                moved[k][at] += step
                ends.append(wanted(moved, rows))
            assert gradient[k][at] == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-8)
        assert gradient[k].sum() == pytest.approx(0, abs=1e-12)


def test_a_row_that_a_zero_forbids_is_named() -> None:
    rows = np.array([[0, 1, 0, 0, 0], [0, 2, 0, 0, 0]])
    with pytest.raises(NotFinite, match=r"\[0, 2, 0, 0, 0\] has probability 0"):
        Likelihood.of(SIZES, SCOPES, rows)(tables(0, zero=True))


def test_a_hidden_state_that_zeros_forbid_counts_for_nothing() -> None:
    """A chain whose middle is hidden and must be 0: its ends know nothing of each other."""
    first = np.array([[0.3, -np.inf], [-0.2, -np.inf]])
    second = np.array([[0.1, -0.4], [0.7, 0.5]])
    rows = np.array([[-1, -1, 1], [-1, -1, 1], [-1, -1, 0], [-1, -1, 1]])
    value, gradient = Likelihood.of((2, 2, 2), ((0, 1), (1, 2)), rows)([first, second])
    p = np.exp(second[0]) / np.exp(second[0]).sum()
    assert value == pytest.approx((np.log(p[0]) + 3 * np.log(p[1])) / 4)
    np.testing.assert_allclose(gradient[0], np.zeros((2, 2)), atol=1e-12)
    np.testing.assert_allclose(gradient[1], [[1 / 4 - p[0], 3 / 4 - p[1]], [0, 0]], atol=1e-12)


def test_too_many_hidden_variables_are_refused() -> None:
    n = 30
    pairs = tuple((i, j) for i in range(n) for j in range(i))
    with pytest.raises(UndirectedError, match="30 variables that are not shown"):
        Likelihood.of((2,) * n, pairs, np.zeros((1, n), int))
