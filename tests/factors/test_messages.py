"""Messages of every factor group against the enumeration of the factor's own states."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import factor_oracle as oracle
from undirected.core.errors import UndirectedError
from undirected.factors import at_most, count, logical_and, logical_or, pool, tables
from undirected.models import discrete

SEEDS = 16
TEMPERATURES = (0.0, 0.5, 1.0)
hard = jax.jit(lambda group, cavity: group.factor_messages(cavity, 0.0))
soft = jax.jit(lambda group, cavity, T: group.factor_messages(cavity, T))
explained = jax.jit(lambda group, cavity, T: group.factor_beliefs(cavity, T))


def answers(group, cavity, T):
    """One program for every temperature above 0."""
    return hard(group, cavity) if T == 0 else soft(group, cavity, jnp.asarray(T, cavity.dtype))


def binary_case(build, value, arity):
    """SEEDS factors on disjoint binary variables."""
    layout = discrete(x=SEEDS * arity)
    scopes = np.arange(SEEDS * arity).reshape(SEEDS, arity)
    return build(layout, scopes), [value] * SEEDS, [2] * arity


def family(function):
    return lambda layout, scopes: function(layout, scopes[:, :-1], scopes[:, -1])


def count_case(arity, limit, shared):
    rng = np.random.default_rng(arity)
    weight = rng.normal(size=(SEEDS, limit + 1))
    if shared:
        weight[:] = weight[0]
    group, _, states = binary_case(
        lambda layout, scopes: count(layout, scopes, weight[0] if shared else weight), None, arity
    )
    return group, [oracle.log_count(w) for w in weight], states


def table_case(states, shared):
    rng = np.random.default_rng(len(states))
    weight = 2 * rng.normal(size=(SEEDS, *states))
    if shared:
        weight[:] = weight[0]
    layout = discrete(**{f"v{i}": (SEEDS, k) for i, k in enumerate(states)})
    scopes = np.arange(len(states) * SEEDS).reshape(len(states), SEEDS).T
    group = tables(layout, scopes, weight[0] if shared else weight)
    return group, [oracle.log_table(w) for w in weight], list(states)


CASES = {
    "or": lambda: binary_case(family(logical_or), oracle.log_or, 6),
    "or of one": lambda: binary_case(family(logical_or), oracle.log_or, 2),
    "and": lambda: binary_case(family(logical_and), oracle.log_and, 6),
    "pool": lambda: binary_case(family(pool), oracle.log_pool, 6),
    "pool of one": lambda: binary_case(family(pool), oracle.log_pool, 2),
    "count": lambda: count_case(6, 6, shared=False),
    "shared count": lambda: count_case(6, 3, shared=True),
    "at most two": lambda: binary_case(
        lambda layout, scopes: at_most(layout, scopes, 2), oracle.log_count(np.zeros(3)), 6
    ),
    "unary table": lambda: table_case((3,), shared=False),
    "pairwise table": lambda: table_case((2, 2), shared=False),
    "mixed pairwise table": lambda: table_case((2, 4), shared=True),
    "table of three": lambda: table_case((3, 2, 4), shared=False),
    "shared table of four": lambda: table_case((2, 3, 2, 2), shared=True),
}


def split(states, column):
    """The slots of one factor as one array per variable."""
    ends = np.cumsum([1 if k == 2 else k for k in states])
    return np.split(np.asarray(column, float), ends[:-1])


def compare(name, scale, T, atol):
    group, values, states = CASES[name]()
    slots = sum(1 if k == 2 else k for k in states)
    rng = np.random.default_rng(7)
    cavity = np.asarray(scale * rng.normal(size=(slots, SEEDS)), np.float32)
    got = np.asarray(answers(group, jnp.asarray(cavity), T))
    for seed in range(SEEDS):
        want = oracle.messages(states, values[seed], split(states, cavity[:, seed]), T)
        assert np.allclose(got[:, seed], np.concatenate(want), atol=atol, rtol=1e-6), seed


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("T", TEMPERATURES)
def test_messages_equal_those_of_the_enumerated_table(name, T):
    compare(name, 2.0, T, 1e-5)


@pytest.mark.parametrize("name", ["or", "and", "pool", "count", "pairwise table"])
@pytest.mark.parametrize("T", [0.0, 1.0])
def test_messages_of_steep_fields_in_single_precision(name, T):
    """Fields of tens and hundreds: what is left out of a sum is not subtracted from it."""
    compare(name, 40.0, T, 2e-4)


@pytest.mark.parametrize("T", [0.0, 1.0])
def test_evidence_goes_through_logic_unharmed(T):
    """A parent that is certainly on, one that is certainly off, and small numbers beside them."""
    group, _, _ = binary_case(family(logical_or), oracle.log_or, 4)
    small = np.array([-0.7, 0.4, -1.2, 0.9])

    def answer(*changes):
        cavity = small.copy()
        for slot, value in changes:
            cavity[slot] = value
        columns = np.repeat(cavity[:, None], SEEDS, 1)
        return np.asarray(answers(group, jnp.asarray(columns, jnp.float32), T))[:, 0]

    def truth(*changes):
        cavity = small.copy()
        for slot, value in changes:
            cavity[slot] = value
        return np.concatenate(oracle.messages([2] * 4, oracle.log_or, list(cavity[:, None]), T))

    off = answer((0, -1e9), (1, -1e9))
    assert np.allclose(off[[2, 3]], truth((0, -50), (1, -50))[[2, 3]], atol=1e-5)
    on = answer((0, 1e9))
    assert np.allclose(on[[1, 2]], truth((0, 50))[[1, 2]], atol=1e-5)
    assert on[0] == pytest.approx(truth((0, 50))[0], abs=1e-5)
    never = answer((3, -1e9))
    assert (never[:3] < -1e8).all()


@pytest.mark.parametrize("name", CASES)
def test_log_normaliser_of_every_factor(name):
    group, values, states = CASES[name]()
    slots = sum(1 if k == 2 else k for k in states)
    cavity = np.random.default_rng(3).normal(size=(slots, SEEDS))
    mean, got = explained(group, jnp.asarray(cavity), jnp.asarray(0.5))
    for seed in range(SEEDS):
        fields = split(states, cavity[:, seed])
        factor = oracle.Factor(tuple(range(len(states))), values[seed])
        world = oracle.enumerate_world(states, [factor], np.concatenate(fields))
        pairs = zip(fields, states, strict=True)
        best = sum(max(f[0], 0.0) if k == 2 else f.max() for f, k in pairs)
        assert float(got[seed]) == pytest.approx(world.log_z(0.5) - best, abs=1e-5)
    if name == "pairwise table":
        assert np.allclose(mean.weight.sum((1, 2)), 1, atol=1e-5)


def test_unequal_numbers_of_parents():
    """-1 fills a row; the factor acts as the smaller one."""
    layout = discrete(x=8)
    whole = logical_or(layout, [[0, 1, -1], [4, 5, 6]], [3, 7])
    small = logical_or(layout, [[0, 1]], [3])
    rng = np.random.default_rng(0)
    fields = jnp.asarray(rng.normal(size=8), jnp.float32)
    for T in TEMPERATURES:
        padded = answers(whole, whole.wires.spread(fields, -1e9), T)
        alone = answers(small, small.wires.spread(fields), T)
        assert np.allclose(padded[jnp.asarray([0, 1, 3]), 0], alone[:, 0], atol=1e-6)
    x = jnp.asarray([0, 1, 0, 1, 0, 0, 0, 1.0])

    assert whole.statistic(layout, x).weight.tolist() == [0, 1]


def test_refusals_say_what_is_wrong():
    layout = discrete(x=4, label=(2, 3))
    with pytest.raises(UndirectedError, match=r"factor 1 names variable 9.*0\.\.5"):
        tables(layout, [[0, 1], [2, 9]], np.zeros((2, 2)))
    with pytest.raises(UndirectedError, match="factor 0 names variable 1 more than once"):
        tables(layout, [[1, 1]], np.zeros((2, 2)))
    with pytest.raises(UndirectedError, match="variable 4 of factor 1 has 3 states.* has 2"):
        tables(layout, [[0, 1], [0, 4]], np.zeros((2, 2)))
    with pytest.raises(UndirectedError, match=r"2 factors of 2 variables, .*\(3, 2, 2\)"):
        tables(layout, [[0, 1], [1, 2]], np.zeros((3, 2, 2)))
    with pytest.raises(UndirectedError, match=r"scopes have shape \(2,\)"):
        tables(layout, [0, 1], np.zeros((2, 2)))
    for make, rest in ((tables, [0]), (logical_or, [3, 4]), (count, [0]), (at_most, 1)):
        with pytest.raises(UndirectedError, match=f"{make.__name__}: the factors have different n"):
            make(layout, [[0, 1], [2]], rest)
    with pytest.raises(UndirectedError, match="pass integer"):
        tables(layout, [[0.5, 1.0]], np.zeros((2, 2)))
    with pytest.raises(UndirectedError, match="variable 5 of factor 0 is categorical"):
        logical_or(layout, [[0, 5]], [1])
    with pytest.raises(UndirectedError, match="lacks its last variable"):
        logical_and(layout, [[0, 2]], [-1])
    with pytest.raises(UndirectedError, match=r"shape \(1, 2\) and \(2,\)"):
        pool(layout, [[0, 1]], [2, 3])
    with pytest.raises(UndirectedError, match="6 log-potentials for 4 members"):
        count(layout, [[0, 1, 2, 3]], np.zeros(6))
    with pytest.raises(UndirectedError, match="limit is -1"):
        at_most(layout, [[0, 1, 2, 3]], -1)
    with pytest.raises(UndirectedError, match="limit is 1.5; pass a whole number"):
        at_most(layout, [[0, 1, 2, 3]], 1.5)
    with pytest.raises(UndirectedError, match="factors of no variables"):
        tables(layout, np.zeros((1, 0), int), np.ones(1))
    with pytest.raises(UndirectedError, match=r"block 'y' is \(3, 1\); pass .* at least 2"):
        discrete(y=(3, 1))
