"""The instruments of the page on scaling."""

import numpy as np
import pytest
from benchmarks.growth import MS, Bits, notes_of, slope

from benchmarks import on_paper
from undirected.experiments.record import Row


def rows(name: str, power: float) -> list[Row]:
    return [Row(name, f"{n:,}", MS, 3e-4 * n**power, better="lower") for n in (10**5, 10**6, 10**7)]


def test_a_slope_is_the_power() -> None:
    both = [*rows("edges of an Ising lattice", 1.2), *rows("columns", 1.0)]
    assert slope(both, "edges of an Ising lattice", MS) == pytest.approx(1.2)
    told = notes_of(both)
    assert "power 1.20 (at most 1.05 wanted: not reached)" in told[0]
    assert told[1].endswith("power 1.00.")


def test_computed_rows_are_the_same_in_any_slices() -> None:
    source = Bits(1000)
    whole = source[0:1000]
    assert whole.shape == (1000, 64)
    assert (np.concatenate([source[0:7], source[7:990], source[990:2000]]) == whole).all()
    assert abs(whole.mean() - 0.5) < 0.02
    assert len(np.unique(whole, axis=0)) == 1000


def test_bytes_on_paper_by_hand() -> None:
    """10^10 weights are 40 GB; a ring of 64 sends twice 63/64 of them."""
    rbm, potts = on_paper.CASES
    assert rbm.weights == 4e10
    assert on_paper.all_reduce(rbm.weights, 64) == pytest.approx(2 * 4e10 * 63 / 64)
    assert potts.parameters == 10_000 * 9_999 // 2 * 441
    assert potts.weights == 4 * 210_000**2
    lines = on_paper.markdown().splitlines()
    assert any("SGD | 82 | fits" in line for line in lines)
    assert any("weights split | 4.1 | 6.45" in line for line in lines)
