"""Random orders of any number of things without a list of them: a Feistel network."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

ROUNDS = 6


def bijection(index: Int[np.ndarray, " k"], n: int, seed: Sequence[int]) -> Int[np.ndarray, " k"]:
    """Where a random order of 0..n-1 puts these indices: each index has a place of its own.

    An index is cut into a high and a low part of its bits; in every round one of them is changed
    by a hash of the other, which can be undone. What lands beyond n, less than half of it, goes
    through again until it does not.

    Args:
        index: numbers from 0 to n - 1.
        n: how many there are.
        seed: numbers that name the order.
    """
    bits = max(2, int(n - 1).bit_length())
    low = bits // 2
    keys = np.random.default_rng(list(seed)).integers(0, 2**63, ROUNDS, np.uint64)
    found = np.asarray(index, np.uint64)
    found = _mixed(found, low, bits - low, keys)
    while (beyond := found >= n).any():
        found[beyond] = _mixed(found[beyond], low, bits - low, keys)
    return found.astype(np.int64)


def _mixed(x: np.ndarray, low: int, high: int, keys: np.ndarray) -> np.ndarray:
    """All rounds; the widths of the two parts change places in each."""
    for key in keys:
        left, right = x >> np.uint64(low), x & np.uint64((1 << low) - 1)
        changed = left ^ (_hash(right, key) >> np.uint64(64 - high))
        x = right << np.uint64(high) | changed
        low, high = high, low
    return x


def _hash(x: np.ndarray, key: np.uint64) -> np.ndarray:
    """A multiplicative hash whose high bits depend on all bits of x and of the key."""
    with np.errstate(over="ignore"):
        x = (x ^ key) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        return (x ^ (x >> np.uint64(32))) * np.uint64(0x94D049BB133111EB)
