"""Log Z, its gradient and the marginals where hard factors decide units, in single precision.

Trees, where belief propagation is exact, against the enumeration of all states in plain NumPy.
"""

from collections import namedtuple
from functools import partial

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from tests import factor_oracle as oracle
from tests.marks import mostly_slow
from undirected.core.potentials import clamp
from undirected.factors import (
    Bilinear,
    Count,
    Tables,
    at_most,
    count,
    logical_and,
    logical_or,
    pool,
    tables,
)
from undirected.inference import BeliefPropagation, MeanField, SumProduct
from undirected.models import FactorGraph, discrete

SEEDS = 16
ROUNDS = 12
NO = -np.inf
EQUAL = np.array([[0.0, NO], [NO, 0.0]])
IMPLIES = np.array([[0.0, 0.0], [NO, 0.0]])
Case = namedtuple("Case", "cardinalities groups factors")
_infer = eqx.filter_jit(lambda infer, p: infer(p))


@eqx.filter_jit
@partial(eqx.filter_value_and_grad, has_aux=True)
def _with_slope(p, infer):
    beliefs = infer(p)
    return beliefs.log_z, beliefs


def finite(table):
    return np.maximum(table, oracle.FORBIDDEN)


def pairs(x, table):
    """A chain of one table along the variables."""
    layout = discrete(x=len(x))
    scopes = np.stack([x[:-1], x[1:]], 1)
    value = oracle.log_table(finite(table))
    return Case(
        [2] * len(x),
        [tables(layout, scopes, table)],
        [oracle.Factor(tuple(scope), value) for scope in scopes],
    )


def families(x, build, value):
    """Factors on three levels: what one decides, the next is told. -1 fills rows of fewer."""
    layout = discrete(x=len(x))
    many = [[x[0], x[1], x[2]], [x[3], -1, -1], [x[5], x[4], -1], [x[7], x[6], -1]]
    one = x[[3, 4, 6, 8]]
    scopes = [(*(i for i in m if i >= 0), o) for m, o in zip(many, one, strict=True)]
    factors = [oracle.Factor(scope, value) for scope in scopes]
    return Case([2] * len(x), [build(layout, many, one)], factors)


def numbers(x, weight):
    """Counts that share a member, each with the same log-potentials."""
    layout = discrete(x=len(x))
    scopes = np.stack([x[[0, 1, 2]], x[[2, 3, 4]], x[[4, 5, 6]]])
    value = oracle.log_count(finite(weight))
    return Case(
        [2] * len(x),
        [count(layout, scopes, weight)],
        [oracle.Factor(tuple(scope), value) for scope in scopes],
    )


def limits(x, limit):
    """At most `limit`, in rows of three, two and three."""
    layout = discrete(x=len(x))
    group = at_most(layout, [[x[0], x[1], x[2]], [x[2], x[3], -1], [x[3], x[4], x[5]]], limit)
    scopes = [tuple(x[[0, 1, 2]]), tuple(x[[2, 3]]), tuple(x[[3, 4, 5]])]
    value = oracle.log_count(np.zeros(limit + 1))
    return Case([2] * len(x), [group], [oracle.Factor(scope, value) for scope in scopes])


def every_kind(x):
    """All groups in one tree, with couplings that are soft and a variable of three states."""
    layout = discrete(x=len(x), z=1, y=(1, 3))
    z, y = len(x), len(x) + 1
    mixed = np.array([[0.0, NO, 1.0], [NO, 2.0, NO]])
    coupling = np.zeros((len(x), 1))
    coupling[x[4]] = 3.0
    groups = [
        tables(layout, [[x[0], x[1]]], EQUAL),
        logical_or(layout, [[x[1], x[2]]], [x[3]]),
        logical_and(layout, [[x[3], x[4]]], [x[5]]),
        pool(layout, [[x[5], x[6]]], [x[7]]),
        count(layout, [[x[7], x[8]]], [NO, 0.5, 0.0]),
        tables(layout, [[x[8], y]], mixed),
        Bilinear(jnp.asarray(coupling), 0, 1),
    ]
    factors = [
        oracle.Factor((x[0], x[1]), oracle.log_table(finite(EQUAL))),
        oracle.Factor((x[1], x[2], x[3]), oracle.log_or),
        oracle.Factor((x[3], x[4], x[5]), oracle.log_and),
        oracle.Factor((x[5], x[6], x[7]), oracle.log_pool),
        oracle.Factor((x[7], x[8]), oracle.log_count(finite(np.array([NO, 0.5, 0.0])))),
        oracle.Factor((x[8], y), oracle.log_table(finite(mixed))),
        oracle.Factor((x[4], z), lambda a, b: 3.0 * a * b),
    ]
    return Case([2] * len(x) + [2, 3], groups, factors)


CASES = {
    "equal": (6, lambda x: pairs(x, EQUAL)),
    "implies": (6, lambda x: pairs(x, IMPLIES)),
    "differs": (6, lambda x: pairs(x, EQUAL[::-1])),
    "or": (9, lambda x: families(x, logical_or, oracle.log_or)),
    "and": (9, lambda x: families(x, logical_and, oracle.log_and)),
    "pool": (9, lambda x: families(x, pool, oracle.log_pool)),
    "one of three": (7, lambda x: numbers(x, np.array([NO, 0.3]))),
    "two or three": (7, lambda x: numbers(x, np.array([NO, NO, 1.0, -0.5]))),
    "at most one": (6, lambda x: limits(x, 1)),
    "every kind": (9, every_kind),
}


def question(name, seed):
    """Potentials with fields up to 10 and some units held, and the states that agree."""
    n, build = CASES[name]
    rng = np.random.default_rng(seed)
    case = build(rng.permutation(n))
    layout = discrete(x=n) if len(case.cardinalities) == n else discrete(x=n, z=1, y=(1, 3))
    unary = rng.uniform(-10, 10, layout.n).astype(np.float32)
    world = oracle.enumerate_world(case.cardinalities, case.factors, unary.astype(float))
    x = world.units[rng.choice(np.flatnonzero(world.log_weights > -1e8))]
    mask = rng.random(layout.n) < rng.choice([0.0, 0.2, 0.5])
    mask[n + 1 :] = mask[-1]
    p = FactorGraph.create(layout, case.groups, jnp.asarray(unary)).lower()
    return clamp(p, mask, jnp.where(mask, x, jnp.nan)), mask, world.given(mask, x)


@pytest.mark.parametrize("T", [0.5, 1.0])
@pytest.mark.parametrize("name", mostly_slow(CASES, ["equal", "or", "one of three"]))
def test_beliefs_log_z_and_its_gradient_equal_enumeration(name, T):
    infer = BeliefPropagation(ROUNDS, None, temperature=jnp.asarray(T))
    forced = 0
    for seed in range(SEEDS):
        p, mask, world = question(name, seed)
        want = world.probabilities(T) @ world.units
        (log_z, beliefs), slope = _with_slope(p, infer)
        assert log_z.dtype == jnp.float32
        assert float(log_z) == pytest.approx(world.log_z(T), rel=1e-5, abs=1e-4), seed
        assert np.allclose(beliefs.unary, want, atol=1e-4), seed
        assert np.allclose(slope.unary, want, atol=1e-4), seed
        for natural, d, mean in zip(p.factors, slope.factors, beliefs.factors, strict=True):
            if isinstance(natural, Tables | Count):
                assert np.allclose(d.weight, mean.weight, atol=1e-4), seed
        forced += (world.units[world.log_weights > -1e8][:, ~mask].min(0) == 1).sum()
    assert forced > 0 or name == "at most one"


def test_a_field_counts_beside_a_unit_that_is_forced_on():
    """One unit held at 1, another equal to it with a field of 5: log Z is 5."""
    p = pair_of_equals()
    beliefs = _infer(SumProduct(), clamp(p, jnp.array([True, False]), jnp.array([1.0, 0.0])))
    assert float(beliefs.log_z) == 5.0 and bool(beliefs.converged)


@pytest.mark.parametrize("x", [[1.0, 0.0], [0.0, 1.0]])
def test_evidence_that_no_state_agrees_with(x):
    beliefs = _infer(SumProduct(), clamp(pair_of_equals(), jnp.ones(2, bool), jnp.array(x)))
    assert float(beliefs.log_z) < -1e8
    assert beliefs.unary.tolist() == x


def pair_of_equals():
    layout = discrete(x=2)
    group = tables(layout, [[0, 1]], EQUAL)
    return FactorGraph.create(layout, [group], jnp.array([0.0, 5.0])).lower()


def test_a_message_as_large_as_certainty_loses_nothing_of_many_fields():
    """An AND forced on through another factor: all of its hundred parents are."""
    n = 100
    layout = discrete(x=n + 2)
    unary = np.random.default_rng(0).uniform(-10, 0, n + 2).astype(np.float32)
    groups = [
        logical_and(layout, [np.arange(n)], [n]),
        tables(layout, [[n, n + 1]], EQUAL),
    ]
    p = FactorGraph.create(layout, groups, jnp.asarray(unary)).lower()
    p = clamp(p, jnp.arange(n + 2) == n + 1, jnp.ones(n + 2))
    assert float(_infer(SumProduct(), p).log_z) == pytest.approx(float(unary.sum()), rel=1e-5)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_certainties_do_not_grow_around_loops(temperature):
    """Two ORs bring the child of a third back to both of its parents: sums double every round."""
    layout = discrete(x=5)
    unary = jnp.array([0.3, 0.2, -0.1, 0.5, 0.7])
    group = logical_or(layout, [[0, 1], [2, 3], [2, 4]], [2, 0, 1])
    p = FactorGraph.create(layout, [group], unary).lower()
    p = clamp(p, jnp.arange(5) > 2, jnp.ones(5))
    beliefs = _infer(BeliefPropagation(200, 1e-4, 0.0, temperature), p)
    assert bool(beliefs.converged)
    assert beliefs.unary.tolist() == [1.0] * 5
    assert float(beliefs.log_z) == pytest.approx(1.6)


def test_mean_field_of_counts_is_not_lost_to_rounding_in_single_precision():
    """What is missing to 1 by rounding is no excess: beside it fields of order 1 would drown."""
    rng = np.random.default_rng(4)
    layout, levels = discrete(x=6), rng.normal(size=7)
    group = count(layout, [range(6)], levels)
    unary = rng.normal(size=6)
    found = MeanField(30, None)(FactorGraph.create(layout, [group], jnp.asarray(unary)))
    means = np.full(6, 0.5)
    for _ in range(30):
        for i in range(6):
            shares = np.ones(1)
            for m in np.delete(means, i):
                shares = np.convolve(shares, [1 - m, m])
            means[i] = 1 / (1 + np.exp(-unary[i] - shares @ np.diff(levels)))
    assert found.unary.dtype == jnp.float32
    np.testing.assert_allclose(found.unary, means, atol=1e-5)
