import numpy as np
import pytest

from tests.marks import mostly_slow
from undirected.core.errors import UndirectedError
from undirected.evaluation import log_mmd


def double_loop(x, y, diagonal: bool = True) -> float:
    """MMD^2 pair by pair in float64."""

    def mean_kernel(a, b, same):
        values = [
            np.exp(-np.mean(a[i] != b[j]))
            for i in range(len(a))
            for j in range(len(b))
            if diagonal or not (same and i == j)
        ]
        return np.mean(values, dtype=np.float64)

    return mean_kernel(x, x, True) + mean_kernel(y, y, True) - 2 * mean_kernel(x, y, False)


def sample(rows, columns, probability, seed=0):
    return (np.random.default_rng(seed).random((rows, columns)) < probability).astype(float)


@pytest.mark.parametrize(("n", "m", "d"), [(40, 40, 30), (37, 53, 30), (8, 16, 1), (1, 3, 5)])
@pytest.mark.parametrize("tile", mostly_slow([8, 2048], [8]))
def test_log_mmd_is_that_of_the_double_loop(n, m, d, tile):
    x, y = sample(n, d, 0.5), sample(m, d, 0.3, 1)
    assert log_mmd(x, y, tile=tile) == pytest.approx(np.log(double_loop(x, y)), rel=1e-9)
    assert log_mmd(y, x, tile=tile) == pytest.approx(log_mmd(x, y), rel=1e-9)


def test_unbiased_leaves_out_the_diagonal():
    x, y = sample(20, 30, 0.5), sample(30, 30, 0.2, 1)
    wanted = np.log(double_loop(x, y, diagonal=False))
    assert log_mmd(x, y, unbiased=True, tile=8) == pytest.approx(wanted, rel=1e-9)
    assert log_mmd(x, y, unbiased=True) < log_mmd(x, y)


def test_small_differences_survive():
    """One flipped bit in 600 x 784: float32 means of the kernel lose it, the counts do not."""
    x = sample(600, 784, 0.13)
    y = x.copy()
    y[0, 0] = 1 - y[0, 0]
    x_ones, y_ones = x.sum(1), y.sum(1)

    def mean_kernel(a, b, a_ones, b_ones, dtype):
        hamming = a_ones[:, None] + b_ones[None] - 2 * a @ b.T
        return np.exp(-(hamming / 784).astype(dtype)).mean(dtype=dtype)

    def squared(dtype):
        return (
            mean_kernel(x, x, x_ones, x_ones, dtype)
            + mean_kernel(y, y, y_ones, y_ones, dtype)
            - 2 * mean_kernel(x, y, x_ones, y_ones, dtype)
        )

    wanted = 2 * (1 - np.exp(-1 / 784)) / 600**2  # only the flipped row differs, to leading order
    assert np.exp(log_mmd(x, y)) == pytest.approx(wanted, rel=0.01)
    assert squared(np.float32) != pytest.approx(wanted, rel=0.5)


def test_equal_sets_have_no_distance():
    x = sample(50, 12, 0.4)
    assert log_mmd(x, x[::-1]) == -np.inf


def test_integers_and_booleans_are_the_same_data():
    x, y = sample(20, 10, 0.5), sample(20, 10, 0.3, 1)
    assert log_mmd(x.astype(bool), y.astype(np.uint8)) == log_mmd(x, y)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.zeros((3, 4)), np.zeros((3, 5)), "x has 4 columns, y has 5"),
        (np.zeros(4), np.zeros((3, 4)), r"x has shape \(4,\)"),
        (np.zeros((3, 4)), np.zeros((0, 4)), r"y has shape \(0, 4\)"),
        (np.full((3, 4), 0.5), np.zeros((3, 4)), r"x: got the value 0\.5; wanted 0 or 1"),
        (np.full((3, 4), np.nan), np.zeros((3, 4)), "x: got the value nan"),
    ],
)
def test_bad_input_is_refused(x, y, message):
    with pytest.raises(UndirectedError, match=message):
        log_mmd(x, y)


def test_unbiased_needs_two_rows():
    with pytest.raises(UndirectedError, match="two rows"):
        log_mmd(np.zeros((1, 4)), np.ones((3, 4)), unbiased=True)
