import numpy as np
import pytest

from undirected.core.errors import UndirectedError
from undirected.evaluation import (
    binary_cross_entropy,
    calibration,
    calibration_error,
    categorical_cross_entropy,
    error_rate,
    intersection_over_union,
)


def test_bits_and_nats_per_target():
    p = np.array([[0.5, 0.25], [0.5, 1.0]])
    target = np.array([[1, 0], [0, 1]])
    bits = binary_cross_entropy(p, target, epsilon=1e-15)
    assert bits.mean == pytest.approx((1 - np.log2(0.75) + 1 + 0) / 4)
    nats = binary_cross_entropy(p, target, unit="nats", epsilon=1e-15)
    assert nats.mean == pytest.approx(bits.mean * np.log(2))
    assert nats.stderr == pytest.approx(bits.stderr * np.log(2))


def test_only_targets_under_the_mask_count():
    p = np.array([[0.5, 0.1], [0.9, 0.25]])
    target = np.ones((2, 2))
    mask = np.array([[True, False], [False, True]])
    assert binary_cross_entropy(p, target, mask).mean == pytest.approx((1 + 2) / 2)


def test_soft_targets():
    p, t = np.array([[0.3]]), np.array([[0.8]])
    wanted = -(0.8 * np.log(0.3) + 0.2 * np.log(0.7))
    assert binary_cross_entropy(p, t, unit="nats").mean == pytest.approx(wanted)


def test_certain_and_wrong_is_finite():
    found = binary_cross_entropy([[1.0, 0.0]], [[0, 1]], unit="nats", epsilon=1e-10)
    assert found.mean == pytest.approx(-np.log(1e-10), rel=1e-6)
    assert binary_cross_entropy([[1.0, 0.0]], [[1, 0]]).mean == pytest.approx(0, abs=1e-6)


def test_categorical_targets_are_state_numbers():
    p = np.array([[[0.5, 0.25, 0.25], [0.0, 0.0, 1.0]]])
    target = np.array([[1, 2]])
    assert categorical_cross_entropy(p, target).mean == pytest.approx(1.0)
    mask = np.array([[True, False]])
    assert categorical_cross_entropy(p, target, mask).mean == pytest.approx(2.0)
    two = np.array([[0.3, 0.9], [0.6, 0.2]])
    labels = np.array([[1, 1], [0, 1]])
    wanted = binary_cross_entropy(two, labels)
    found = categorical_cross_entropy(np.stack([1 - two, two], -1), labels)
    assert found.mean == pytest.approx(wanted.mean)


def test_calibration_table():
    p = np.array([[0.05, 0.05, 0.95, 1.0]])
    target = np.array([[0, 1, 1, 1]])
    low, high = calibration(p, target)
    assert low == pytest.approx((0.0, 0.1, 2, 0.05, 0.5))
    assert high == pytest.approx((0.9, 1.0, 2, 0.975, 1.0))
    assert calibration_error([low, high]) == pytest.approx((2 * 0.45 + 2 * 0.025) / 4)
    mask = np.array([[True, False, False, False]])
    assert calibration(p, target, mask, bins=2) == [pytest.approx((0.0, 0.5, 1, 0.05, 0.0))]


def test_calibrated_predictions_have_no_calibration_error():
    """And overconfident ones do: 20,000 draws, an error of 0.02 or more once in 1e5 runs."""
    rng = np.random.default_rng(0)
    p = rng.random((200, 100))
    target = rng.random((200, 100)) < p
    assert calibration_error(calibration(p, target)) < 0.02
    bold = np.where(p > 0.5, 1 - (1 - p) / 3, p / 3)
    assert calibration_error(calibration(bold, target)) > 0.1


def test_bad_input_is_refused():
    with pytest.raises(UndirectedError, match=r"got 1\.5; wanted probabilities"):
        binary_cross_entropy([[1.5]], [[1]])
    with pytest.raises(UndirectedError, match="got nan"):
        binary_cross_entropy([[np.nan]], [[1]])
    with pytest.raises(UndirectedError, match=r"for \(1, 2\) variables, targets are \(1, 1\)"):
        binary_cross_entropy([[0.5, 0.5]], [[1]])
    with pytest.raises(UndirectedError, match="unit is 'dits'"):
        binary_cross_entropy([[0.5]], [[1]], unit="dits")
    with pytest.raises(UndirectedError, match=r"mask is bool \(1, 1\); wanted bool \(1, 2\)"):
        binary_cross_entropy([[0.5, 0.5]], [[1, 0]], np.array([[True]]))
    for outside in (3, -1):
        with pytest.raises(UndirectedError, match=r"wanted state numbers 0\.\.2"):
            categorical_cross_entropy([[0.2, 0.3, 0.5]], np.array([outside]))
    for measure, targets in (
        (binary_cross_entropy, np.zeros((0, 3))),
        (categorical_cross_entropy, np.zeros(0, int)),
        (error_rate, np.zeros((0, 3))),
        (intersection_over_union, np.zeros((0, 3))),
    ):
        with pytest.raises(UndirectedError, match="no rows"):
            measure(np.zeros((0, 3)), targets)
    with pytest.raises(UndirectedError, match="no rows"):
        calibration(np.zeros((1, 1)), np.zeros((1, 1)), np.array([[False]]))
