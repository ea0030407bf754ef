import numpy as np
import pytest

from undirected import data
from undirected.core.errors import UndirectedError
from undirected.data.dataset import Dataset, Split, hold_out, no_rows, rescale


def make(train, valid=None, test=None) -> Dataset:
    train = Split(np.asarray(train, np.uint8))
    none = no_rows(train)
    return Dataset(
        "toy",
        train,
        none if valid is None else Split(np.asarray(valid, np.uint8)),
        none if test is None else Split(np.asarray(test, np.uint8)),
        "",
        "",
    )


def test_split_checks_its_rows() -> None:
    with pytest.raises(UndirectedError, match=r"shape \(2, 2, 2\); pass flat rows"):
        Split(np.zeros((2, 2, 2)))
    with pytest.raises(UndirectedError, match="3 rows but 2 labels"):
        Split(np.zeros((3, 2)), np.zeros(2))


def test_no_rows_keeps_the_width() -> None:
    split = no_rows(Split(np.zeros((3, 5), np.uint8), np.zeros(3)))
    assert (split.x.shape, len(split)) == ((0, 5), 0)
    assert split.x.dtype == np.uint8


def test_hold_out_is_a_partition() -> None:
    rows = np.arange(20, dtype=np.uint8)[:, None]
    whole = Dataset("toy", Split(rows, rows[:, 0]), no_rows(Split(rows)), Split(rows), "", "")
    cut = hold_out(whole, 6, seed=1)
    assert (len(cut.train), len(cut.valid), len(cut.test)) == (14, 6, 20)
    assert sorted([*cut.train.x[:, 0], *cut.valid.x[:, 0]]) == list(range(20))
    assert np.array_equal(cut.valid.x[:, 0], cut.valid.y)
    assert np.array_equal(hold_out(whole, 6, seed=1).valid.x, cut.valid.x)
    assert not np.array_equal(hold_out(whole, 6, seed=2).valid.x, cut.valid.x)
    with pytest.raises(UndirectedError, match="already has 6 validation rows"):
        hold_out(cut, 1)
    with pytest.raises(UndirectedError, match="cannot move 20 of 20"):
        hold_out(whole, 20)


def test_rescale_uses_the_columns_of_all_splits() -> None:
    scaled = rescale(make([[0, 2, 1, 0]], [[0, 4, 1, 1]], [[0, 8, 1, 0], [0, 6, 1, 1]]))
    wanted = [0 / 8.0001, 2 / 8.0001, 6 / 8.0001, 4 / 8.0001]
    got = np.concatenate([scaled.train.x, scaled.valid.x, scaled.test.x])
    assert got.dtype == np.float32
    np.testing.assert_allclose(got[:, 1], np.float32(wanted)[[0, 1, 2, 3]])
    np.testing.assert_allclose(got[:, 3], np.float32([0, 1 / 1.0001, 0, 1 / 1.0001]))
    assert (got[:, [0, 2]] == 0).all()  # constant columns


def test_rescale_without_validation_rows() -> None:
    scaled = rescale(make([[0, 1]], test=[[1, 0]]))
    assert scaled.valid.x.shape == (0, 2)
    np.testing.assert_allclose(scaled.train.x, np.float32([[0, 1 / 1.0001]]))


def test_names_and_close_names() -> None:
    assert {"mnist", "digits", "rcv1", "small_norb", "ocr_words"} <= set(data.names())
    assert list(data.names()) == sorted(data.names())
    with pytest.raises(UndirectedError, match="'mnits'; did you mean mnist"):
        data.load("mnits")
    with pytest.raises(UndirectedError, match="'zzz'; pass one of adult, "):
        data.load("zzz")
    with pytest.raises(UndirectedError, match="nade: 'mnist' is unknown; pass one of adult"):
        data.nade("mnist")
