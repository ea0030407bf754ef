"""Categorical blocks that are seen as one answer as each of them would alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from undirected.core.layout import Domain, Layout, MixedBlock
from undirected.core.units import (
    best,
    draw,
    excluded_states,
    free_variables,
    log_normaliser,
    means,
)
from undirected.models import discrete

BLOCKS = {"x": 3, "y": (4, 3), "z": (2, 7), "w": (3, 4)}


def groups(layout: Layout, units: np.ndarray) -> list[np.ndarray]:
    """The units of every categorical variable, in plain NumPy."""
    found = []
    for block in layout.blocks:
        if block.domain is Domain.CATEGORICAL:
            found += np.split(units[..., block.slice], block.variables, -1)
    return found


def test_blocks_that_follow_each_other_are_one_run() -> None:
    runs = discrete(**BLOCKS).runs
    assert [block.name for block in runs] == ["x", "y to w"]
    assert isinstance(runs[1], MixedBlock)
    assert (runs[1].variables, runs[1].states, runs[1].size) == (9, 7, 38)
    assert len(discrete(x=3, y=(4, 3)).runs) == 2
    large = discrete(y=(100_000, 3), z=(1, 500))
    assert large.runs == large.blocks  # padding would take 170 times the memory


@pytest.mark.parametrize("temperature", [1.0, 0.5, 0.0])
def test_answers_are_those_of_every_variable(temperature: float) -> None:
    layout = discrete(**BLOCKS)
    fields = np.random.default_rng(0).normal(size=(2, layout.n))
    fields[0, 3:5], fields[1, -4:] = -3e9, -2e9
    found = np.asarray(means(layout, jnp.asarray(fields), temperature))
    total = 0.0
    for own, given in zip(groups(layout, found), groups(layout, fields), strict=True):
        shifted = given - given.max(-1, keepdims=True)
        if temperature:
            wanted = np.exp(shifted / temperature)
            top = given.max(-1) / temperature
            total = total + temperature * (top + np.log(wanted.sum(-1)))
        else:
            wanted = (shifted == 0).astype(float)
            total = total + given.max(-1)
        np.testing.assert_allclose(own, wanted / wanted.sum(-1, keepdims=True), atol=1e-6)
    binary = fields[:, :3]
    if temperature:
        total = total + temperature * np.logaddexp(0, binary / temperature).sum(-1)
    else:
        total = total + np.maximum(binary, 0).sum(-1)
    sums = log_normaliser(layout, jnp.asarray(fields), temperature)
    np.testing.assert_allclose(sums, total, rtol=1e-6)


def test_states_are_one_of_each_variable() -> None:
    layout = discrete(**BLOCKS)
    fields = jnp.asarray(np.random.default_rng(1).normal(size=(50, layout.n)))
    chosen = np.asarray(best(layout, fields))
    for own, given in zip(groups(layout, chosen), groups(layout, np.asarray(fields)), strict=True):
        assert (own.argmax(-1) == given.argmax(-1)).all()
        assert (own.sum(-1) == 1).all()
    drawn = np.asarray(draw(layout, 20 * fields, jax.random.key(0)))
    assert all((own.sum(-1) == 1).all() for own in groups(layout, drawn))
    others = np.asarray(excluded_states(layout, jnp.asarray(chosen) > 0))
    for own, on in zip(groups(layout, others), groups(layout, chosen), strict=True):
        assert (own == (on == 0)).all()


def test_a_variable_is_free_if_all_its_units_are() -> None:
    layout = discrete(**BLOCKS)
    free = np.ones(layout.n, bool)
    free[[0, 4, layout.n - 1]] = False
    found = np.asarray(free_variables("test", layout, jnp.asarray(free)))
    assert found[:3].tolist() == [False, True, True]
    held = [not own.any() for own in groups(layout, found)]
    assert held == [True] + [False] * 7 + [True]
    assert all(own.all() or not own.any() for own in groups(layout, found))


def test_draws_have_the_frequencies_of_the_fields() -> None:
    """20,000 draws: all nine means within five standard errors but once in 40,000 such tests."""
    layout = discrete(**BLOCKS)
    fields = np.random.default_rng(2).normal(size=layout.n)
    many = jnp.broadcast_to(jnp.asarray(fields), (20_000, layout.n))
    found = np.asarray(draw(layout, many, jax.random.key(3))).mean(0)

    def off(wanted: np.ndarray) -> float:
        return float(np.max(np.abs(found - wanted) / np.sqrt(wanted * (1 - wanted) / 20_000)))

    assert off(np.asarray(means(layout, jnp.asarray(fields)))) < 5
    assert off(np.asarray(means(layout, jnp.asarray(fields + 0.2 * (fields > 0))))) > 5
