from dataclasses import FrozenInstanceError

import jax.numpy as jnp
import numpy as np
import pytest

from undirected.core.errors import NotFinite, UndirectedError
from undirected.evaluation import error_rate, intersection_over_union


def test_error_rate_counts_wrong_bits():
    target = np.array([[0, 1, 1, 0], [1, 1, 0, 0]])
    predicted = np.array([[0.1, 0.9, 0.2, 0.7], [1, 1, 0, 0]])
    found = error_rate(predicted, target)
    assert found.mean == 0.25
    assert found.stderr == pytest.approx(np.std([0.5, 0.0], ddof=1) / np.sqrt(2))
    assert found.n == 2


def test_a_half_is_half_wrong():
    assert error_rate([[0.5, 0.5]], [[0, 1]]).mean == 0.5


@pytest.mark.parametrize("kind", [bool, np.uint8, np.int32, np.float16, jnp.bfloat16])
def test_numbers_of_any_type_are_counted_alike(kind):
    """Against a loop over the entries."""
    rng = np.random.default_rng(0)
    p, t, mask = rng.integers(0, 2, (3, 5, 8))
    rows = zip(p, t, mask, strict=True)
    wrong = sum(int(a != b) for row in rows for a, b, c in zip(*row, strict=True) if c)
    for predicted, target in ((p.astype(kind), t), (p, t.astype(kind)), (jnp.asarray(p, kind), t)):
        found = error_rate(predicted, target, mask.astype(bool))
        assert found.mean == pytest.approx(wrong / mask.sum())


def test_mask_selects_changed_entries():
    clean = np.array([[0, 1, 1, 0], [1, 1, 0, 0]])
    noisy = np.array([[1, 1, 1, 0], [0, 0, 1, 0]])
    restored = np.array([[1, 1, 1, 0], [1, 1, 0, 1]])
    assert error_rate(restored, clean, noisy != clean).mean == 0.25
    assert error_rate(restored, clean).mean == 0.25
    assert error_rate(clean, clean, noisy != clean).mean == 0


def test_standard_error_is_that_of_a_ratio():
    """Against the spread of the ratio over many sets of rows; off by 4 % in 1e5 runs."""
    rng = np.random.default_rng(0)

    def one():
        mask = rng.random((40, 30)) < rng.random((40, 1))
        wrong = rng.random((40, 30)) < rng.random((40, 1))
        return error_rate(wrong, np.zeros((40, 30)), mask)

    found = [one() for _ in range(6000)]
    spread = np.std([e.mean for e in found])
    assert np.mean([e.stderr for e in found]) == pytest.approx(spread, rel=0.06)


def test_images_of_any_rank():
    target = np.zeros((3, 2, 2))
    assert error_rate(target + 1, target).mean == 1


def test_intersection_over_union():
    predicted = np.array([[1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0.9, 0]])
    target = np.array([[0, 1, 1, 0], [0, 0, 0, 0], [1, 1, 0, 0]])
    found = intersection_over_union(predicted, target)
    assert found.mean == pytest.approx((1 / 3 + 1 + 0) / 3)


def test_an_estimate_is_a_value_that_does_not_change():
    one, same = (error_rate([[1, 0], [1, 1]], [[1, 1], [1, 1]]) for _ in range(2))
    assert {one, same} == {one}
    with pytest.raises(FrozenInstanceError):
        one.mean = 0.0  # pyright: ignore[reportAttributeAccessIssue]


def test_bad_input_is_refused():
    with pytest.raises(UndirectedError, match=r"shape \(1, 2\), targets \(1, 3\)"):
        error_rate([[0, 1]], [[0, 1, 1]])
    with pytest.raises(UndirectedError, match=r"value 0\.2; wanted 0 or 1"):
        error_rate([[0, 1]], [[0, 0.2]])
    with pytest.raises(NotFinite, match="predictions: 1 of 2"):
        error_rate([[0, np.nan]], [[0, 1]])
    with pytest.raises(UndirectedError, match="mask is int64"):
        error_rate([[0, 1]], [[0, 1]], np.array([[0, 1]]))
    with pytest.raises(UndirectedError, match="mask selects no entry"):
        error_rate([[0, 1]], [[0, 1]], np.array([[False, False]]))
