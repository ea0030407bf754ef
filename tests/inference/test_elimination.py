"""Elimination against sums over all states in NumPy, and against tables carried along a strip."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.trees import tree
from undirected.core.errors import NotFinite, UndirectedError, UnsupportedFactor
from undirected.core.graph import grid, torus
from undirected.core.potentials import clamp, observe, potentials, shift
from undirected.factors import ConvolutionalOr, Edges, at_most, count, logical_or, tables
from undirected.inference import Elimination, Transfer, elimination
from undirected.models import RBM, FactorGraph, Ising, discrete
from undirected.sampling import PerturbAndMap


@pytest.mark.parametrize("temperature", [1.0, 0.5])
@pytest.mark.parametrize("seed", range(3))
def test_mixed_factors_with_evidence(seed: int, temperature: float) -> None:
    graph, world = tree.__wrapped__(seed)  # the kept one may be of another precision
    p = graph.lower()
    rng = np.random.default_rng(seed)
    some = world.units[rng.choice(np.flatnonzero(world.log_weights > -1e8))]
    mask = np.zeros(len(some), bool)
    mask[rng.choice(11, 3, replace=False)] = True
    mask[-3:] = True  # a ternary variable
    cases = ((p, world), (clamp(p, mask, jnp.asarray(some)), world.given(mask, some)))
    for given, states in cases:
        beliefs = Elimination(temperature)(given)
        share = states.probabilities(temperature)
        np.testing.assert_allclose(beliefs.unary, share @ states.units, atol=1e-6)
        assert float(beliefs.log_z) == pytest.approx(states.log_z(temperature), abs=1e-5)
        best = Elimination(0.0)(given)
        top = states.units[states.log_weights.argmax()]
        np.testing.assert_array_equal(best.unary, top)
        assert float(best.log_z) == pytest.approx(states.log_z(0), abs=1e-5)


def test_pairs_and_tables_of_loops() -> None:
    """An Ising torus, and tables of three variables on top: unary, pair and table beliefs."""
    rng = np.random.default_rng(0)
    net, layout = torus(3, 4), discrete(x=12)
    w, field = rng.normal(size=net.n_edges), rng.normal(size=12)
    scopes, triples = np.array([[0, 5, 11], [7, 2, 3]]), rng.normal(size=(2, 2, 2, 2))
    shared = rng.normal(size=(2, 2))
    pairs, numbers = np.array([[1, 0], [10, 4], [8, 9]]), rng.normal(size=3)
    groups = [
        Edges(jnp.asarray(w, jnp.float32), net),
        tables(layout, scopes, triples),
        tables(layout, pairs, shared),
        count(layout, [[1, 6, 9], [2, 4, 8]], np.append(numbers, -np.inf)),
    ]
    x = np.array(list(product((0, 1), repeat=12)))
    edges = np.asarray(net.edges)
    numbered = [x[:, [1, 6, 9]].sum(1), x[:, [2, 4, 8]].sum(1)]
    value = x @ field + (x[:, edges[:, 0]] * x[:, edges[:, 1]]) @ w
    value = value + sum(t[tuple(x[:, s].T)] for s, t in zip(scopes, triples, strict=True))
    value = value + sum(shared[x[:, i], x[:, j]] for i, j in pairs)
    value = value + sum(np.append(numbers, -np.inf)[k] for k in numbered)
    z = np.exp(value).sum()
    share = np.exp(value) / z

    p = potentials(layout, jnp.asarray(field, jnp.float32), tuple(groups), 1.25)
    beliefs = Elimination()(p)
    assert float(beliefs.log_z) == pytest.approx(np.log(z) + 1.25, abs=1e-5)
    np.testing.assert_allclose(beliefs.unary, share @ x, atol=1e-6)
    both = share @ (x[:, edges[:, 0]] * x[:, edges[:, 1]])
    np.testing.assert_allclose(beliefs.factors[0].weight, both, atol=1e-6)
    for found, scope in zip(beliefs.factors[1].weight, scopes, strict=True):
        wanted = np.zeros((2, 2, 2))
        np.add.at(wanted, tuple(x[:, scope].T), share)
        np.testing.assert_allclose(found, wanted, atol=1e-6)
    wanted = np.zeros((2, 2))
    for i, j in pairs:
        np.add.at(wanted, (x[:, i], x[:, j]), share)
    np.testing.assert_allclose(beliefs.factors[2].weight, wanted, atol=1e-6)
    wanted = np.zeros(4)
    for k in numbered:
        np.add.at(wanted, k, share)
    np.testing.assert_allclose(beliefs.factors[3].weight, wanted, atol=1e-6)


def test_a_strip_of_a_lattice() -> None:
    net = grid(60, 7)
    rng = np.random.default_rng(1)
    model = Ising(
        jnp.asarray(rng.normal(size=net.n_edges)), jnp.asarray(rng.normal(size=net.n)), net
    )
    ours, carried = Elimination()(model.lower()), Transfer.plan(net)(model.lower())
    np.testing.assert_allclose(ours.unary, carried.unary, atol=1e-4)
    np.testing.assert_allclose(ours.factors[0].weight, carried.factors[0].weight, atol=1e-4)
    assert float(ours.log_z) == pytest.approx(float(carried.log_z), rel=1e-5)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_many_variables_of_few_neighbours_go_together(temperature: float, monkeypatch) -> None:
    """A ring with a tail, shared tables, excluded states and evidence: all beliefs."""
    monkeypatch.setattr(elimination, "MANY", 1)
    monkeypatch.setattr(elimination, "find_order", None)  # so that none is looked for
    rng = np.random.default_rng(5)
    layout = discrete(x=4, y=(3, 3))
    scopes, shared = np.array([[0, 1], [1, 2], [2, 3], [3, 0]]), rng.normal(size=(2, 2))
    tail, logs = np.array([[3, 4], [5, 4]]), rng.normal(size=(2, 3, 3))
    logs[1, 2] = -np.inf
    field = rng.normal(size=13)
    groups = [tables(layout, scopes, shared), tables(layout, tail[:1], logs[:1, :2])]
    groups.append(tables(layout, tail[1:], logs[1:]))
    graph = FactorGraph.create(layout, groups, jnp.asarray(field))
    p = observe(graph.lower(), {1: 0, 6: 2})
    x = np.array(list(product((0, 1), (0,), (0, 1), (0, 1), (0, 1, 2), (0, 1, 2), (2,))))
    units = np.concatenate([x[:, :4], np.eye(3)[x[:, 4:]].reshape(len(x), 9)], 1)
    value = units @ field + sum(shared[x[:, a], x[:, b]] for a, b in scopes)
    value = value + logs[0][x[:, 3], x[:, 4]] + logs[1][x[:, 5], x[:, 4]]
    weights = np.exp(value / temperature)
    share = weights / weights.sum()
    beliefs = Elimination(temperature)(p)
    np.testing.assert_allclose(beliefs.unary, share @ units, atol=1e-6)
    assert float(beliefs.log_z) == pytest.approx(temperature * np.log(weights.sum()), abs=1e-5)
    wanted = np.zeros((2, 2)), np.zeros((2, 3)), np.zeros((3, 3))
    for a, b in scopes:
        np.add.at(wanted[0], (x[:, a], x[:, b]), share)
    np.add.at(wanted[1], (x[:, 3], x[:, 4]), share)
    np.add.at(wanted[2], (x[:, 5], x[:, 4]), share)
    for group, joint in zip(beliefs.factors, wanted, strict=True):
        np.testing.assert_allclose(group.weight.reshape(joint.shape), joint, atol=1e-6)
    with pytest.raises(NotFinite, match="every state is forbidden"):
        Elimination(temperature)(observe(p, {5: 2}))


def test_a_long_chain_of_many_states_and_a_lone_variable() -> None:
    """The forward recursion of a hidden Markov model, in NumPy."""
    n, k = 2000, 5
    rng = np.random.default_rng(2)
    layout = discrete(x=(n, k), lone=1)
    step, emit = rng.normal(size=(k, k)), rng.normal(size=(n, k))
    scopes = np.stack([np.arange(n - 1), np.arange(1, n)], 1)
    unary = jnp.asarray(np.append(emit.ravel(), 0.7))
    graph = FactorGraph.create(layout, [tables(layout, scopes, step)], unary)
    level = emit[0]
    for t in range(1, n):
        joint = level[:, None] + step + emit[t][None]
        top = joint.max(0)
        level = top + np.log(np.exp(joint - top).sum(0))
    log_z = level.max() + np.log(np.exp(level - level.max()).sum()) + np.log1p(np.exp(0.7))
    beliefs = Elimination()(graph.lower())
    assert float(beliefs.log_z) == pytest.approx(log_z, rel=1e-6)
    last = np.exp(level - level.max())
    np.testing.assert_allclose(beliefs.unary[-1 - k : -1], last / last.sum(), atol=1e-5)
    assert float(beliefs.unary[-1]) == pytest.approx(1 / (1 + np.exp(-0.7)), abs=1e-6)


def test_perturbed_best_states_are_those_of_enumeration() -> None:
    graph, world = tree.__wrapped__(1)
    p = graph.lower()
    noise = np.random.default_rng(3).gumbel(size=(20, p.layout.n)).astype(np.float32)
    x, _, _ = Elimination().decode(shift(p, jnp.asarray(noise)))
    allowed = world.log_weights > -1e8
    best = (world.log_weights + noise @ world.units.T)[:, allowed].argmax(1)
    np.testing.assert_array_equal(x, world.units[allowed][best])
    draws = PerturbAndMap(Elimination(), samples=50).draw(p, jax.random.key(0))
    assert {tuple(row) for row in np.asarray(draws.x)} <= {tuple(u) for u in world.units[allowed]}


def test_observed_variables_cost_nothing() -> None:
    """A wide lattice with every second column seen falls apart into chains."""
    net, rng = grid(30, 30), np.random.default_rng(4)
    w = rng.normal(size=net.n_edges)
    p = Ising(jnp.asarray(w), jnp.zeros(net.n), net).lower()
    seen = {30 * i + j: int(rng.integers(2)) for i in range(30) for j in range(0, 30, 2)}
    beliefs = Elimination(most=4 * net.n)(observe(p, seen))
    place, value = np.array(list(seen)), np.array(list(seen.values()))
    np.testing.assert_array_equal(np.asarray(beliefs.unary)[place], value)
    i, j = np.asarray(net.edges).T
    both = np.asarray(beliefs.factors[0].weight)
    x = np.zeros(net.n)
    x[place] = value
    known = np.isin(i, place) & np.isin(j, place)
    np.testing.assert_array_equal(both[known], (x[i] * x[j])[known])
    column = [30 * k + 1 for k in range(30)]  # one chain, by a forward recursion
    field = np.array(
        [
            w[(i == v) & np.isin(j, place)] @ x[j[(i == v) & np.isin(j, place)]]
            + w[(j == v) & np.isin(i, place)] @ x[i[(j == v) & np.isin(i, place)]]
            for v in column
        ]
    )
    odds = field[0]
    for t in range(1, 30):
        edge = w[(i == column[t - 1]) & (j == column[t])].item()
        odds = field[t] + np.log1p(np.exp(odds + edge)) - np.log1p(np.exp(odds))
    assert float(beliefs.unary[column[-1]]) == pytest.approx(1 / (1 + np.exp(-odds)), abs=1e-5)


def test_what_cannot_be_done_is_said() -> None:
    wide = Ising(jnp.zeros(1012), jnp.zeros(529), grid(23, 23)).lower()
    with pytest.raises(UndirectedError, match="more than 4,096 entries"):
        Elimination(most=4096)(wide)
    layout = discrete(x=30)
    many = FactorGraph.create(layout, [logical_or(layout, [list(range(29))], [29])])
    with pytest.raises(UndirectedError, match="Logic factor has 30 variables"):
        Elimination()(many.lower())
    stamped = ConvolutionalOr(None, 1, (1, 2, 2), (2, 2))
    with pytest.raises(UnsupportedFactor, match="ConvolutionalOr group offers no tables; use Ex"):
        Elimination()(FactorGraph.create(stamped.layout, [stamped]))
    rbm = RBM(jnp.zeros((3, 2)), jnp.zeros(3), jnp.zeros(2))
    assert float(Elimination()(rbm).log_z) == pytest.approx(5 * np.log(2), abs=1e-5)
    for ask in (Elimination().best, Elimination().sample):
        for many in (0, 1.5):
            with pytest.raises(UndirectedError, match=f"count is {many}; pass a whole number"):
                ask(rbm, many)
    two = FactorGraph.create(discrete(x=2), [at_most(discrete(x=2), [[0, 1]], 1)])
    with pytest.raises(NotFinite, match="every state is forbidden"):
        Elimination()(observe(two.lower(), {0: 1, 1: 1}))
