"""Kaufman's formula against enumeration."""

import numpy as np
import pytest

from undirected.core.errors import UndirectedError
from undirected.evaluation import torus_log_z


def enumerated(rows, cols, coupling):
    states = np.arange(2 ** (rows * cols), dtype=np.int64)
    spins = (2 * (states[:, None] >> np.arange(rows * cols) & 1) - 1).astype(np.int8)
    spins = spins.reshape(-1, rows, cols)
    bonds = sum((spins * np.roll(spins, -1, a)).sum((1, 2), dtype=np.int64) for a in (1, 2))
    values = coupling * bonds
    return float(values.max() + np.log(np.exp(values - values.max()).sum()))


@pytest.mark.parametrize(("rows", "cols"), [(4, 4), (3, 4), (4, 3), (3, 5)])
@pytest.mark.parametrize("coupling", [0.1, 0.3, 0.4406867935, 0.5, 1.5])
def test_formula_is_the_sum_over_all_states(rows, cols, coupling):
    wanted = enumerated(rows, cols, coupling)
    assert torus_log_z(rows, cols, coupling) == pytest.approx(wanted, rel=1e-10)


@pytest.mark.parametrize("coupling", [-1.5, -0.3, 0.0])
def test_antiferromagnets_of_even_sides(coupling):
    assert torus_log_z(4, 4, coupling) == pytest.approx(enumerated(4, 4, coupling), rel=1e-10)


def test_large_lattices_have_the_free_energy_of_the_infinite_one():
    """Onsager's integral, by a fine sum; far from the critical point sizes hardly matter."""
    coupling, n = 0.3, 400
    angle = (np.arange(n) + 0.5) * np.pi / n
    a, b = np.meshgrid(angle, angle)
    inside = np.cosh(2 * coupling) ** 2 - np.sinh(2 * coupling) * (np.cos(a) + np.cos(b))
    wanted = np.log(2) + 0.5 * np.log(inside).mean()
    assert torus_log_z(64, 64, coupling) / 64**2 == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("coupling", [20.0, 400.0, 1e4])
def test_near_zero_temperature_two_states_are_left(coupling):
    wanted = 2 * 4 * 5 * coupling + np.log(2)
    assert torus_log_z(4, 5, coupling) == pytest.approx(wanted, rel=1e-12)


def test_what_is_no_torus_is_refused():
    with pytest.raises(UndirectedError, match="rows is 2.*from 3"):
        torus_log_z(2, 4, 0.3)
    with pytest.raises(UndirectedError, match="finite"):
        torus_log_z(4, 4, np.nan)
    with pytest.raises(UndirectedError, match="odd rings are frustrated"):
        torus_log_z(4, 5, -0.3)
