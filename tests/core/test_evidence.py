"""Evidence is checked before it is taken: values that are no states, and states that cannot be."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.marks import mostly_slow
from undirected.core.errors import NotFinite, UndirectedError
from undirected.core.layout import Block, Domain, Layout
from undirected.core.potentials import Status, clamp, observe, potentials
from undirected.core.units import means
from undirected.factors import at_most, logical_and, logical_or, pool, tables
from undirected.inference import (
    MPLP,
    Elimination,
    Exact,
    LinearProgram,
    MaxProduct,
    MeanField,
    SumProduct,
)
from undirected.models import FactorGraph, Ising, discrete, markov_network

LAYOUT = Layout((Block("a", 0, 2), Block("b", 2, 8, Domain.CATEGORICAL, 3)))
P = potentials(LAYOUT, jnp.zeros(8))
FIRST = np.arange(8) < 1


@pytest.mark.parametrize("value", [np.nan, 0.3, 3.0, -1.0, np.inf, 1e-9])
def test_a_value_under_the_mask_is_0_or_1(value):
    x = np.where(FIRST, value, 0.0)
    with pytest.raises(
        UndirectedError, match=rf"clamp: the value at \(0,\) is {value:g}; pass 0 or"
    ):
        clamp(P, jnp.asarray(FIRST), jnp.asarray(x))
    rows = np.stack([np.zeros(8), x])
    with pytest.raises(UndirectedError, match=r"clamp: the value at \(1, 0\) is"):
        clamp(P, jnp.asarray(FIRST), jnp.asarray(rows))
    elsewhere = clamp(P, jnp.asarray(~FIRST & (np.arange(8) < 2)), jnp.asarray(x))
    assert np.allclose(means(LAYOUT, elsewhere.fields)[:2], [0.5, 0.0])


@pytest.mark.parametrize(
    ("states", "words"),
    [
        ([1, 1, 0], "has 2 states at 1; pass exactly one of its 3"),
        ([0, 0, 0], "has 0 states at 1; pass exactly one of its 3"),
        ([1, 1, 1], "has 3 states at 1"),
    ],
)
def test_a_categorical_variable_has_one_state(states, words):
    mask = (np.arange(8) >= 5).astype(bool)
    x = np.array([0, 0, 0, 0, 0, *states], float)
    for given in (x, np.stack([np.eye(8)[5], x])):
        with pytest.raises(UndirectedError, match=f"clamp: a variable of block 'b' {words}"):
            clamp(P, jnp.asarray(mask), jnp.asarray(given))


def test_whole_numbers_and_truth_values_are_states():
    for kind in (int, bool, np.float32):
        held = clamp(P, np.arange(8) < 2, np.array([1, 0, 0, 0, 0, 0, 0, 0], kind))
        assert np.allclose(means(LAYOUT, held.fields)[:2], [1, 0])


def test_under_jit_values_are_taken_as_they_are():
    """There they are not known; the same program takes other ones."""
    fields = jax.jit(lambda x: clamp(P, jnp.asarray(FIRST), x).fields)
    assert np.allclose(means(LAYOUT, fields(jnp.ones(8)))[0], 1)


NET = markov_network(
    {"rain": 2, "sky": ["clear", "grey", "dark"]}, {("rain", "sky"): [[4, 2, 1], [1, 2, 4]]}
)


@pytest.mark.parametrize(
    "state", [1.5, "dark ", None, np.nan, (0, 1), [0], np.array([1, 0]), -1, 2, {}, "1"]
)
def test_what_is_no_state_is_refused(state):
    with pytest.raises(UndirectedError, match="observe: variable 'rain' has no state .* one of 0"):
        observe(NET.lower(), {"rain": state})
    with pytest.raises(UndirectedError, match=r"no state .*; pass one of 'clear', 'grey', 'dark'"):
        observe(NET.lower(), {"sky": state})
    with pytest.raises(UndirectedError, match="observe: variable 0 has no state"):
        observe(Ising.create(3).lower(), {0: state})


@pytest.mark.parametrize("state", [1, True, np.int64(1), np.uint8(1), np.True_, np.float32(1)])
def test_numbers_of_any_kind_are_states(state):
    found = observe(NET.lower(), {"rain": state})
    assert np.array_equal(found.evidence, observe(NET.lower(), {"rain": 1}).evidence)


@pytest.mark.parametrize("name", ["snow", None, 7, 0, ("rain",), ["rain"], 1.0, np.nan])
def test_unknown_names_are_refused(name):
    given = {name: 1} if not isinstance(name, list) else {tuple(name): 1}
    with pytest.raises(UndirectedError, match=r"no variable is called .*; got 'rain', 'sky'"):
        observe(NET.lower(), given)


@pytest.mark.parametrize("name", [-1, 3, True, 0.0, "0", None, np.nan])
def test_numbers_that_are_no_variables_are_refused(name):
    with pytest.raises(UndirectedError, match=r"observe: there is no variable .*, 0 to 2"):
        observe(Ising.create(3).lower(), {name: 1})


@pytest.mark.parametrize("given", [[("rain", 1)], "rain", None, 3, np.zeros(2)])
def test_evidence_is_a_dictionary(given):
    with pytest.raises(UndirectedError, match=r"observe: got a .*; pass a dictionary"):
        observe(NET.lower(), given)


def hard_models():
    """Models of three binary variables, and evidence that their hard factor forbids."""
    layout = discrete(x=3)
    forbidding = np.array([[0.0, 0.0], [0.0, -np.inf]])
    groups = {
        "table": (tables(layout, [[0, 1]], forbidding), {0: 1, 1: 1}),
        "or": (logical_or(layout, [[0, 1]], [2]), {0: 1, 2: 0}),
        "and": (logical_and(layout, [[0, 1]], [2]), {0: 0, 2: 1}),
        "pool": (pool(layout, [[0, 1]], [2]), {0: 1, 1: 1}),
        "count": (at_most(layout, [[0, 1, 2]], 1), {0: 1, 2: 1}),
    }
    unary = jnp.asarray([0.3, -0.2, 0.5])
    return {
        name: (FactorGraph.create(layout, [group], unary), given)
        for name, (group, given) in groups.items()
    }


INFER = {
    "sum": SumProduct(),
    "max": MaxProduct(),
    "exact": Exact(),
    "best": Exact(0.0),
    "mplp": MPLP(),
    "mean field": MeanField(),
}


@pytest.mark.parametrize("routine", mostly_slow(INFER, ["sum", "exact", "mean field"]))
@pytest.mark.parametrize("name", hard_models())
def test_evidence_that_a_hard_factor_forbids_is_said_to_be_infeasible(name, routine):
    (model, given), infer = hard_models()[name], INFER[routine]
    assert int(infer(model).status) == Status.CONVERGED
    p = observe(model.lower(), given)
    found = infer(p)
    assert int(found.status) == Status.INFEASIBLE and not found.converged
    if infer.finds_best_state:
        assert int(infer.decode(model).status) == Status.CONVERGED
        assert int(infer.decode(p).status) == Status.INFEASIBLE


@pytest.mark.parametrize("infer", [Elimination(), Elimination(0.0), LinearProgram()])
@pytest.mark.parametrize("name", hard_models())
def test_routines_on_the_host_refuse_such_evidence(name, infer):
    model, given = hard_models()[name]
    infer(model)
    with pytest.raises(NotFinite, match=r"every state is forbidden|without an optimum"):
        infer(observe(model.lower(), given))
