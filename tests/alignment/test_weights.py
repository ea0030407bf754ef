"""Weights and frequencies against loops in NumPy."""

import numpy as np
import pytest

import undirected as un
from undirected.alignment.weights import check_family, frequencies
from undirected.core.errors import UndirectedError


def family(n, length, q, seed=0):
    """Rows in clusters, so that many are near to each other."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, q, (n // 10 + 1, length))[rng.integers(0, n // 10 + 1, n)]
    changed = rng.random((n, length)) < 0.15
    return np.where(changed, rng.integers(0, q, (n, length)), rows).astype(np.uint8)


@pytest.mark.parametrize(("n", "length", "q"), [(300, 53, 21), (600, 130, 5), (40, 64, 2)])
@pytest.mark.parametrize("identity", [0.8, 0.62, 1.0])
def test_weights_are_inverse_numbers_of_near_sequences(n, length, q, identity):
    states = family(n, length, q)
    same = (states[:, None] == states[None]).sum(2)
    wanted = 1 / (same >= identity * length - 1e-9).sum(1)
    np.testing.assert_allclose(un.sequence_weights(states, identity), wanted)


def test_a_share_that_is_met_exactly_counts():
    states = np.zeros((2, 10), np.uint8)
    states[1, :2] = 1
    assert un.sequence_weights(states, 0.8).tolist() == [0.5, 0.5]
    states[1, 2] = 1
    assert un.sequence_weights(states, 0.8).tolist() == [1, 1]
    with pytest.raises(UndirectedError, match="identity 80; pass a share"):
        un.sequence_weights(states, 80)


@pytest.mark.parametrize("pseudocount", [0.0, 0.3])
def test_frequencies_of_one_and_two_letters(pseudocount):
    states, q = family(70, 6, 4), 4
    weights = np.random.default_rng(1).random(70)
    found = frequencies(states, q, weights, pseudocount)
    share = weights / weights.sum()
    for i in range(6):
        for a in range(q):
            one = (1 - pseudocount) * share[states[:, i] == a].sum() + pseudocount / q
            np.testing.assert_allclose(found.single[i, a], one, rtol=1e-5)
            for j in range(6):
                for b in range(q):
                    both = share[(states[:, i] == a) & (states[:, j] == b)].sum()
                    two = (1 - pseudocount) * both + pseudocount / q**2
                    two = one * (a == b) if i == j else two
                    np.testing.assert_allclose(found.pairs[i, a, j, b], two, atol=1e-6)
    np.testing.assert_allclose(found.effective, weights.sum())
    np.testing.assert_allclose(found.connected.sum(1), 0, atol=1e-5)


def test_refusals():
    states = family(20, 4, 3)
    with pytest.raises(UndirectedError, match="pseudocount 2"):
        frequencies(states, 3, pseudocount=2)
    for bad in (np.array([[300, 1]]), np.array([[-1, 0]]), np.array([[0.5, 1]]), np.zeros(3, int)):
        with pytest.raises(UndirectedError, match="pass whole numbers from 0 to 255"):
            un.sequence_weights(bad)
        with pytest.raises(UndirectedError, match="pass whole numbers from 0 to 2"):
            frequencies(bad, 3)
    with pytest.raises(UndirectedError, match=r"weights of shape \(3,\) for 20 rows"):
        frequencies(states, 3, np.ones(3))
    with pytest.raises(UndirectedError, match="fit: 1 sequence, all the same"):
        check_family("fit", states[:1])
    with pytest.raises(UndirectedError, match="fit: 5 sequences, all the same"):
        check_family("fit", states[[0] * 5])
    with pytest.raises(UndirectedError, match="one position"):
        check_family("fit", np.arange(3)[:, None])
