"""Quadratic models by name against sums over all states in NumPy."""

from itertools import product

import jax.numpy as jnp
import numpy as np
import pytest

import undirected as un

LINEAR = {"a": -1.0, "b": 0.5, 7: 0.25, "d": 0.0}
PAIRS = {("b", "a"): 2.0, ("a", 7): -0.75, ("d", 7): 1.5}


def enumerated(values: tuple[int, int]) -> dict[tuple[int, ...], float]:
    """The energy of every state."""
    names, energies = list(LINEAR), {}
    for state in product(values, repeat=len(names)):
        x = dict(zip(names, state, strict=True))
        total = sum(a * x[i] for i, a in LINEAR.items()) + 0.3
        energies[state] = total + sum(b * x[i] * x[j] for (i, j), b in PAIRS.items())
    return energies


@pytest.mark.parametrize("spins", [False, True])
def test_energies_log_z_and_probabilities_are_those_of_the_terms(spins):
    model = un.quadratic_model(LINEAR, PAIRS, 0.3, spins=spins)
    wanted = enumerated((-1, 1) if spins else (0, 1))
    states = np.array(list(wanted))
    energies = model.energy(jnp.asarray(states > 0, float))
    np.testing.assert_allclose(energies, [*wanted.values()], rtol=1e-5)  # of float32
    weight = np.exp(-np.array([*wanted.values()]))
    np.testing.assert_allclose(float(un.log_partition(model)), np.log(weight.sum()), rtol=1e-6)
    found = un.query(model)
    for i, name in enumerate(LINEAR):
        assert list(found[name]) == ([-1, 1] if spins else [0, 1])
        np.testing.assert_allclose(
            found[name][1], weight[states[:, i] == 1].sum() / weight.sum(), atol=1e-6
        )
    best = states[weight.argmax()]
    map_states = un.query(model, method="map")
    assert [max(map_states[name], key=map_states[name].get) for name in LINEAR] == best.tolist()


def test_without_pairs_variables_are_independent():
    assert un.query(un.quadratic_model({"a": 0.0, "b": 0.0}))["a"] == {0: 0.5, 1: 0.5}


@pytest.mark.parametrize(
    ("linear", "pairs", "message"),
    [
        ({"a": 1.0}, {("a", "b"): 1.0}, "does not join two variables"),
        ({"a": 1.0, "b": 0.0}, {"ab": 1.0}, "does not join two variables"),
        ({"a": 1.0}, {("a", "a"): 1.0}, "edge to itself"),
        ({"a": 1.0, "b": 0.0}, {("a", "b"): 1.0, ("b", "a"): 1.0}, "2 times"),
        ({}, {}, "at least one variable"),
        ({"a": np.nan}, {}, "not finite"),
    ],
)
def test_wrong_terms_are_refused(linear, pairs, message):
    with pytest.raises(un.UndirectedError, match=message):
        un.quadratic_model(linear, pairs)
