"""The benchmark of glasses, on one whose states can be counted."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from benchmarks.spin_glass import ABOVE, FOUND, MOVED, OURS, PLAIN, Glass

from benchmarks import spin_glass
from undirected.core.errors import DataNotFound


def small() -> Glass:
    """12 spins on a ring with chords, and the lowest energy of all 4,096 states."""
    rng = np.random.default_rng(0)
    edges = np.array([(i, (i + k) % 12) for i in range(12) for k in (1, 5)])
    J = rng.choice([-1, 1], len(edges))
    states = np.array(list(itertools.product([-1, 1], repeat=12)))
    lowest = min(-sum(w * s[i] * s[j] for (i, j), w in zip(edges, J, strict=True)) for s in states)
    return Glass(edges, J, float(lowest))


def test_energies_are_those_of_the_model():
    glass, rng = small(), np.random.default_rng(1)
    s = rng.choice([-1, 1], (5, 12))
    found = np.asarray(glass.model().energy(jnp.asarray((s + 1) / 2.0)))
    np.testing.assert_allclose(found, glass.energy(s), atol=1e-4)
    assert np.diff(
        np.asarray(glass.model(2.0).energy(jnp.asarray((s + 1) / 2.0)))
    ) == pytest.approx(2 * np.diff(glass.energy(s)), abs=1e-3)


@pytest.mark.slow
def test_ground_states_are_found_and_told(monkeypatch):
    """Annealing finds the ground state; a target below it is missed, and said so."""
    monkeypatch.setattr(spin_glass, "PEERS", {})
    rows = spin_glass.ground_rows("small", [small()], 5.0)
    assert {row.metric: row.ours for row in rows if row.metric in (FOUND, ABOVE)} == {
        FOUND: 100.0,
        ABOVE: 0.0,
    }
    below = small()._replace(ground=small().ground - 2)
    missed = spin_glass.ground_rows("small", [below], 0.1)
    assert missed[0].ours == 0.0 and missed[1].ours == pytest.approx(2 / 12)


@pytest.mark.slow
def test_tempering_never_ends_below_the_ground_state(monkeypatch):
    monkeypatch.setattr(spin_glass, "PEERS", {})
    rows = spin_glass.tempering_rows("small", [small()], 100)
    assert [row.method for row in rows] == [PLAIN, MOVED]
    assert all(row.ours is not None and row.ours >= 0 for row in rows)
    told = [*spin_glass.ground_rows("small", [small()], 5.0), *rows]
    notes = list(spin_glass.goals(told))
    assert notes[0] == "100 % of 1 ground states found; goal 95: reached."
    assert notes[1] == f"small, ground states found: {OURS} 100 %."


def test_without_the_file_it_says_what_to_do(monkeypatch):
    monkeypatch.setattr(spin_glass, "find", lambda name: None)
    with pytest.raises(DataNotFound, match="UNDIRECTED_DATA"):
        spin_glass.glasses(8, 1)
