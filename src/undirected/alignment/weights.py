"""Weights of the sequences of a family, and frequencies of one and two letters."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt64

from undirected.alignment.sequences import Alignment
from undirected.core.cells import unmasked
from undirected.core.errors import UndirectedError
from undirected.learning.pairwise import check_weights, one_hot

BLOCK = 256
"""Sequences compared at a time with all later ones; their words stay in the cache."""


def sequence_weights(
    alignment: Alignment | Int[np.ndarray, "N L"], identity: float = 0.8
) -> Float[np.ndarray, " N"]:
    """1 / the number of sequences that agree in at least this share of the positions.

    A sequence counts itself, so a weight is at most 1; their sum is the effective number of
    sequences. Gaps agree with gaps.

    Args:
        alignment: an `Alignment`, or integer states (sequences, positions).
        identity: the share, from 0 to 1; 1 merges copies only.

    Returns:
        A weight for each sequence.

    Example:
        >>> import undirected as un
        >>> family = un.Alignment.of(["ACGUA", "ACGUC", "GGGGG"], "rna")
        >>> un.sequence_weights(family).tolist()
        [0.5, 0.5, 1.0]
    """
    if not 0 < identity <= 1:
        raise UndirectedError(f"sequence_weights: identity {identity}; pass a share from 0 to 1")
    states = np.asarray(unmasked(getattr(alignment, "states", alignment)))
    _check_states("sequence_weights", states, 256)
    planes, length = _bit_planes(states), states.shape[1]
    # A hair is added so that 0.2 x 5 allows one difference, though 1 - 0.8 is below 0.2 in floats.
    allowed = int((1 - identity) * length + 1e-9)
    starts = range(0, len(states), BLOCK)
    with ThreadPoolExecutor() as pool:
        counts = sum(pool.map(lambda start: _neighbours(planes, start, allowed), starts))
    return 1 / np.asarray(counts, float)


def _bit_planes(states: Int[np.ndarray, "N L"]) -> UInt64[np.ndarray, "bits words N"]:
    """Bit b of the states of 64 positions in a word, for every b."""
    bits = max(int(states.max()).bit_length(), 1)
    wide = np.zeros((len(states), -(-states.shape[1] // 64) * 64), np.uint8)
    wide[:, : states.shape[1]] = states
    planes = [np.packbits(wide >> b & 1, axis=1).view(np.uint64).T for b in range(bits)]
    return np.ascontiguousarray(np.stack(planes))


def _neighbours(planes: np.ndarray, start: int, allowed: int) -> Int[np.ndarray, " N"]:
    """For a block of sequences against itself and all later ones: how many are near to each."""
    counts = np.zeros(planes.shape[2], np.int64)
    for i in range(start, min(start + BLOCK, planes.shape[2])):
        different = np.zeros(planes.shape[2] - i, np.uint16)
        for words in planes[:, :, i:].swapaxes(0, 1):
            unlike = words[0] ^ words[0, 0]
            for plane in words[1:]:
                unlike |= plane ^ plane[0]
            different += np.bitwise_count(unlike)
        near = different <= allowed
        counts[i:] += near
        counts[i] += near[1:].sum()
    return counts


class Frequencies(NamedTuple):
    """Weighted frequencies of letters: at each position, and at each pair of positions.

    `pairs[i, a, j, b]` is how often a stands at i and b at j; its block i, i is diagonal.
    `effective` is the sum of the weights.
    """

    single: Float[np.ndarray, "L q"]
    pairs: Float[np.ndarray, "L q L q"]
    effective: float

    @property
    def connected(self) -> Float[np.ndarray, "L q L q"]:
        """pairs - single x single: the connected two-point correlations."""
        return self.pairs - np.multiply.outer(self.single, self.single)


def frequencies(
    states: Int[np.ndarray, "N L"],
    q: int,
    weights: Float[np.ndarray, " N"] | None = None,
    pseudocount: float = 0.0,
) -> Frequencies:
    """Frequencies of one and two letters, mixed with those of uniform independent letters.

    Args:
        states: integer states (sequences, positions).
        q: the number of letters.
        weights: of the sequences; all equal without them.
        pseudocount: the share of the uniform distribution, from 0 to 1.

    Returns:
        `single` (L, q), `pairs` (L, q, L, q) and the `effective` number of sequences.

    Example:
        >>> import numpy as np
        >>> from undirected.alignment import frequencies
        >>> found = frequencies(np.array([[0, 1], [0, 0]]), 2, pseudocount=0.5)
        >>> found.single.tolist()
        [[0.75, 0.25], [0.5, 0.5]]
    """
    if not 0 <= pseudocount <= 1:
        raise UndirectedError(f"frequencies: pseudocount {pseudocount}; pass a share from 0 to 1")
    states = np.asarray(unmasked(states))
    w = np.ones(len(states)) if weights is None else np.asarray(weights, float)
    check_weights("frequencies", w, len(states))
    _check_states("frequencies", states, q)
    length, share = states.shape[1], (w / w.sum()).astype(np.float32)
    pairs = _weighted_pairs(states, q, share).reshape(length, q, length, q)
    single = np.einsum("iaia->ia", pairs)
    single = (1 - pseudocount) * single + pseudocount / q
    pairs = (1 - pseudocount) * pairs + np.float32(pseudocount / q**2)
    pairs[np.arange(length), :, np.arange(length)] = single[:, :, None] * np.eye(q)
    return Frequencies(single, pairs, float(w.sum()))


def _weighted_pairs(states: np.ndarray, q: int, share: np.ndarray) -> Float[np.ndarray, "Lq Lq"]:
    """sum_n w_n x_n x_n' over one-hot rows, block after block."""
    width = states.shape[1] * q
    total, rows = np.zeros((width, width), np.float32), max(1, 2**26 // width)
    for start in range(0, len(states), rows):
        part = slice(start, start + rows)
        units = one_hot(states[part], q)
        total += (units * share[part, None]).T @ units
    return total


def _check_states(caller: str, states: np.ndarray, q: int) -> None:
    """Refuse what are no rows of states from 0 to q - 1."""
    good = states.ndim == 2 and states.size and np.issubdtype(states.dtype, np.integer)
    if not good or states.min() < 0 or states.max() >= q:
        raise UndirectedError(
            f"{caller}: got {states.dtype} of shape {states.shape}; pass whole numbers from 0 to "
            f"{q - 1}, (sequences, positions)"
        )


def check_family(what: str, states: Sequence | np.ndarray) -> None:
    """Refuse to learn from fewer than two different sequences or positions."""
    array = np.asarray(states)
    if len(array) < 2 or (array == array[:1]).all():
        raise UndirectedError(
            f"{what}: {len(array)} sequence{'s' * (len(array) != 1)}, all the same; couplings are "
            "learned from how sequences differ: pass an alignment of many"
        )
    if array.shape[1] < 2:
        raise UndirectedError(f"{what}: one position; couplings need at least two")
