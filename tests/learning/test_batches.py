"""Batches: every row once an epoch, a function of the step alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from undirected.core.errors import UndirectedError
from undirected.learning import Batches


def rows(n: int) -> np.ndarray:
    return np.arange(n, dtype=np.float32)[:, None]


@pytest.mark.parametrize(("n", "size"), [(12, 4), (10, 4), (7, 3), (5, 5), (3, 1)])
def test_every_row_comes_once_an_epoch(n, size):
    batches = Batches(rows(n), size, seed=3)
    stream = batches.indices(0, 6 * n).ravel()
    for epoch in range(6 * size):
        assert sorted(stream[epoch * n : (epoch + 1) * n]) == list(range(n))


def test_any_part_of_the_stream_is_the_same_as_the_whole():
    batches = Batches(rows(10), 4, seed=1)
    whole = batches.indices(0, 30)
    for start, stop in [(0, 1), (3, 4), (2, 9), (17, 30), (29, 30)]:
        np.testing.assert_array_equal(batches.indices(start, stop), whole[start:stop])
    assert batches.indices(5, 5).shape == (0, 4)


def test_epochs_and_seeds_differ_and_repeat():
    one, same, other = (Batches(rows(50), 50, seed=s).indices(0, 2) for s in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert (one[0] != one[1]).any()
    assert (one != other).any()


def test_without_shuffling_rows_come_in_order():
    batches = Batches(rows(5), 2, shuffle=False)
    np.testing.assert_array_equal(batches.indices(0, 3), [[0, 1], [2, 3], [4, 0]])


def test_a_size_above_the_rows_means_all_rows():
    batches = Batches(rows(5), 100)
    assert batches.size == 5
    assert sorted(batches.indices(0, 1)[0]) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("epochs", "steps"), [(1, 3), (2, 5), (0.5, 2), (0, 0)])
def test_steps_cover_the_epochs(epochs, steps):
    assert Batches(rows(10), 4).steps(epochs) == steps


def test_batches_of_trees_are_gathered_and_transformed(key):
    data = {"x": rows(6), "y": np.arange(6)}

    def transform(batch, key):
        return {**batch, "noise": jax.random.uniform(key, (len(batch["y"]),))}

    batches = Batches(data, 3, transform=transform)
    index = jnp.asarray(batches.indices(1, 2)[0])
    batch = batches.take(batches.data, index, key)
    np.testing.assert_array_equal(batch["x"][:, 0], index)
    np.testing.assert_array_equal(batch["y"], index)
    again = batches.take(batches.data, index, jax.random.key(1))
    assert (batch["noise"] != again["noise"]).all()


@pytest.mark.parametrize(
    ("data", "size", "message"),
    [
        (np.zeros((0, 3)), 4, "no rows"),
        ({}, 4, "no rows"),
        ({"x": rows(3), "y": rows(4)}, 2, "3 and 4 rows"),
        (rows(3), 0, "size is 0"),
        (rows(3), 2.5, "size is 2.5; pass a whole number from 1"),
        ([[0.0, 1.0], [1.0, 0.0]], 1, "np.array"),
    ],
)
def test_bad_data_are_refused(data, size, message):
    with pytest.raises(UndirectedError, match=message):
        Batches(data, size)
