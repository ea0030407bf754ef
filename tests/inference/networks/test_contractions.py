"""Cliques as products of matrices, against sums of the whole product."""

from math import inf

import numpy as np
import pytest

from undirected.inference.networks import contractions
from undirected.inference.networks.contractions import Factors, find_split

SIZES = {0: 4, 1: 3, 2: 5, 3: 2, 4: 6}
INPUTS = [(0, 1), (0, 2), (0, 1, 3), (0, 4), (1, 2), (0,)]


@pytest.fixture(autouse=True)
def always(monkeypatch) -> None:
    """Splits are found however small the clique is, and worked on in chunks."""
    monkeypatch.setattr(contractions, "BLOCK_RATE", inf)
    monkeypatch.setattr(contractions, "CHUNK", 50)


def factors(seed: int) -> tuple[Factors, np.ndarray, tuple[int, ...]]:
    """The factors of a clique that eliminates variable 0, and the product of all inputs."""
    split = find_split(SIZES, (1, 2, 3, 4), INPUTS)
    assert split is not None
    scope = (0, *split.separator((1, 2, 3, 4)))
    rng = np.random.default_rng(seed)
    shape = tuple(SIZES[v] for v in scope)
    inputs = [rng.random([SIZES[v] if v in own else 1 for v in scope]) for own in INPUTS]
    return (
        Factors.of(scope, shape, 1, split, inputs, inf),
        np.prod(np.broadcast_arrays(*inputs), axis=0),
        scope,
    )


def test_messages_and_beliefs_are_those_of_the_product() -> None:
    for seed in range(5):
        own, joint, _ = factors(seed)
        np.testing.assert_allclose(own.message(), joint.sum(0), rtol=1e-12)
        weights = np.random.default_rng(seed).random(joint.shape[1:])
        for found in own.beliefs(weights):
            gone = tuple(i for i, k in enumerate(found.shape) if k == 1)
            wanted = (joint * weights).sum(gone, keepdims=True)
            np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_every_input_is_in_one_group() -> None:
    split = find_split(SIZES, (1, 2, 3, 4), INPUTS)
    assert split is not None
    assert sorted(split.left + split.right) == list(range(len(INPUTS)))
    for group, knows in zip((split.left, split.right), split.knows, strict=True):
        assert knows == {v for i in group for v in INPUTS[i]}


def test_no_split_without_gain(monkeypatch) -> None:
    assert find_split(SIZES, (1, 2, 3, 4), [(0, 1, 2, 3, 4), (0, 1)]) is None
    assert find_split(SIZES, (1, 2, 3, 4), [(0, 1, 2), (0, 3)]) is None  # none knows 4
    monkeypatch.setattr(contractions, "BLOCK_RATE", 0.0)
    assert find_split(SIZES, (1, 2, 3, 4), INPUTS) is None


def test_products_that_plain_numbers_lose_are_not_safe() -> None:
    own, _, _ = factors(0)
    assert own.safe
    own.left.flat[0] = 1e-200
    assert own.safe
    own.right.flat[0] = 1e-150
    assert not own.safe
