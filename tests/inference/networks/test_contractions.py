"""Cliques as products of matrices, against sums of the whole product."""

from itertools import permutations
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


def only(monkeypatch, rate: str) -> None:
    """One of the rates is 1 and the others are 0."""
    for name in ("GEMM_RATE", "WRITE_RATE", "FACTOR_RATE", "CALL"):
        monkeypatch.setattr(contractions, name, float(name == rate))


def test_the_seconds_of_a_split_count_what_is_made(monkeypatch) -> None:
    own, joint, (_, *separator) = factors(0)
    split = find_split(SIZES, separator, INPUTS)
    assert split is not None
    left, _ = own.summed()
    made = {
        "GEMM_RATE": joint.size,
        "WRITE_RATE": own.message().size,
        "FACTOR_RATE": own.left.size + own.right.size,
        "CALL": len(left),
    }
    assert len(set(made.values())) == 4
    for rate, count in made.items():
        only(monkeypatch, rate)
        assert split.seconds(SIZES, separator) == count


def test_inputs_move_to_the_other_group_where_that_pays(monkeypatch) -> None:
    """Of all groups of four pairs those with the fewest entries are found from any start."""
    only(monkeypatch, "FACTOR_RATE")
    monkeypatch.setattr(contractions, "STARTS", 1)
    sizes = dict.fromkeys(range(6), 3)
    for inputs in permutations([(0, 1), (1, 2), (2, 3), (4, 5)]):
        split = find_split(sizes, (1, 2, 3, 4, 5), inputs)
        assert split is not None
        assert sum(3 ** len(own) for own in split.knows) == 3**4 + 3**2  # the chain, and the pair


def test_products_that_plain_numbers_lose_are_not_safe() -> None:
    own, _, _ = factors(0)
    assert own.safe
    own.left.flat[0] = 1e-200
    assert own.safe
    own.right.flat[0] = 1e-150
    assert not own.safe
