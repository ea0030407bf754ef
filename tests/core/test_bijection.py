"""Orders that are computed: each index once, and none favoured."""

import numpy as np
import pytest

from undirected.core.bijection import bijection


@pytest.mark.parametrize("n", [1, 2, 3, 7, 64, 65, 1000, 4097])
def test_every_index_has_a_place_of_its_own(n):
    assert sorted(bijection(np.arange(n), n, (0, 1))) == list(range(n))


def test_a_part_of_an_order_needs_no_more_than_that_part():
    whole = bijection(np.arange(1000), 1000, (5, 2))
    assert (bijection(np.array([3, 999, 17]), 1000, (5, 2)) == whole[[3, 999, 17]]).all()
    assert (whole != bijection(np.arange(1000), 1000, (5, 3))).any()
    far = bijection(np.array([10**12 - 1]), 10**12, (0,))
    assert 0 <= far[0] < 10**12


def test_every_index_goes_everywhere():
    """Chi-squared of the places of each index over 1500 orders; it fails once in 10^6 seeds."""
    n, orders = 12, 1500
    counts = np.zeros((n, n))
    for seed in range(orders):
        counts[np.arange(n), bijection(np.arange(n), n, (seed,))] += 1
    expected = orders / n
    chi = ((counts - expected) ** 2 / expected).sum()
    assert chi < 121 + 5.5 * np.sqrt(2 * 121)
    shifted = np.zeros((n, n))  # a broken twin: orders that are rotations by one of three numbers
    for seed in range(orders):
        shifted[np.arange(n), (np.arange(n) + seed % 3) % n] += 1
    assert ((shifted - expected) ** 2 / expected).sum() > 121 + 5.5 * np.sqrt(2 * 121)
