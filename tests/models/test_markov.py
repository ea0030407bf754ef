"""Markov networks against sums over all states in NumPy."""

from itertools import product

import jax.numpy as jnp
import numpy as np
import pytest

import undirected as un
from tests.marks import mostly_slow
from undirected.core.errors import UndirectedError
from undirected.core.layout import marginals, to_units
from undirected.core.potentials import observe
from undirected.inference import Exact, MaxProduct, SumProduct
from undirected.io.uai import UaiModel, read_uai, write_uai
from undirected.models import FactorGraph, markov_network

STATES = (3, 2, 1, 2, 4, 2, 3)
TREE = [(0, 1), (1, 3, 2), (4, 3), (5, 4), (6, 4), (0,), (5,), (2,), (), (6,)]
LOOPS = [*TREE, (0, 6), (1, 0, 5), (5, 3), (1, 0)]


def network(scopes: list[tuple[int, ...]], seed: int, zeros: float) -> UaiModel:
    """Tables with some zeros; state 0 of everything is always allowed."""
    rng = np.random.default_rng(seed)
    tables = []
    for scope in scopes:
        shape = tuple(STATES[v] for v in scope)
        table = np.asarray(rng.gamma(0.7, size=shape) * (rng.random(shape) >= zeros))
        table[(0,) * len(scope)] += 0.3
        tables.append(table)
    return UaiModel(STATES, tuple(scopes), tuple(tables))


def built(model: UaiModel) -> FactorGraph:
    return markov_network(model.cardinalities, zip(model.scopes, model.tables, strict=True))


def enumerated(model: UaiModel, given: dict[int, int]) -> tuple[float, np.ndarray, dict]:
    """log Z, marginals (variable, state) and the weight of every state, given the evidence."""
    weights = {}
    for x in product(*map(range, model.cardinalities)):
        fits = all(x[i] == s for i, s in given.items())
        pairs = zip(model.scopes, model.tables, strict=True)
        weights[x] = fits * np.prod([t[tuple(x[v] for v in scope)] for scope, t in pairs])
    total = np.zeros((len(STATES), max(STATES)))
    for x, weight in weights.items():
        total[np.arange(len(x)), x] += weight
    z = sum(weights.values())
    return np.log(z), total / z, weights


@pytest.mark.parametrize("zeros", [0.0, 0.3])
@pytest.mark.parametrize("seed", mostly_slow(range(2), [0]))
def test_sums_and_marginals_are_those_of_enumeration(seed: int, zeros: float) -> None:
    for scopes, infer in ((LOOPS, Exact()), (TREE, SumProduct(100, 1e-6))):
        model = network(scopes, seed, zeros)
        graph = built(model)
        for given in ({}, {4: 0, 1: 0}):
            log_z, wanted, _ = enumerated(model, given)
            p = observe(graph.lower(), given)
            beliefs = infer(p)
            found = marginals(graph.layout, beliefs.unary)[np.asarray(graph.layout.order)]
            np.testing.assert_allclose(found, wanted, atol=2e-5)
            assert float(beliefs.log_z) == pytest.approx(log_z, abs=2e-4)


def test_energies_are_those_of_the_tables() -> None:
    model = network(LOOPS, 7, 0.2)
    graph = built(model)
    _, _, weights = enumerated(model, {})
    states = np.array(list(weights))[:, np.argsort(graph.layout.order)]
    energies = np.asarray(graph.energy(to_units(graph.layout, states)))
    for energy, weight in zip(energies, weights.values(), strict=True):
        if weight > 0:
            assert energy == pytest.approx(-np.log(weight), abs=1e-4)
        else:
            assert energy > 1e8


def test_the_best_state_of_a_tree_is_found() -> None:
    model = network(TREE, 3, 0.2)
    graph = built(model)
    _, _, weights = enumerated(model, {})
    unary = MaxProduct(100, 1e-6, 0.0)(graph.lower()).unary
    found = marginals(graph.layout, unary)[np.asarray(graph.layout.order)].argmax(-1)
    assert tuple(found.tolist()) == max(weights, key=lambda x: weights[x])


def test_a_file_becomes_a_graph_with_few_groups(tmp_path) -> None:
    write_uai(tmp_path / "model.uai", network(LOOPS, 0, 0.0))
    model = read_uai(tmp_path / "model.uai")
    graph = built(model)
    shapes = sorted(f.states for f in graph.factors)
    assert shapes == [(2, 2, 3), (3, 4)]  # all pairs are padded to one shape
    assert len(graph.layout.blocks) == 3


def test_names_of_variables_and_states_are_kept() -> None:
    variables = {"sky": ["clear", "grey", "dark"], "rain": 2, "wind": ["calm", "strong"]}
    rng = np.random.default_rng(0)
    sky_rain, wind_sky = rng.random((3, 2)), rng.random((2, 3))
    net = markov_network(variables, {("sky", "rain"): sky_rain, ("wind", "sky"): wind_sky})
    assert net.layout.names == ("sky", "rain", "wind")
    joint = np.einsum("sr,ws->srw", sky_rain, wind_sky)
    given = joint[2] / joint[2].sum()
    beliefs = Exact()(observe(net.lower(), {"sky": "dark"}))
    sky, rain, wind = marginals(net.layout, beliefs.unary)[np.asarray(net.layout.order)]
    np.testing.assert_allclose(sky, [0, 0, 1], atol=1e-6)
    np.testing.assert_allclose(rain[:2], given.sum(1), atol=1e-5)
    np.testing.assert_allclose(wind[:2], given.sum(0), atol=1e-5)
    for states, wanted in (
        ({"sea": 1}, "no variable is called 'sea'"),
        ({"sky": "red"}, "'sky' has no state 'red'.*'clear', 'grey', 'dark'"),
        ({"rain": 1.5}, "'rain' has no state 1.5"),
        ({"rain": float("nan")}, "has no state nan"),
        ({"rain": None}, "has no state None"),
        ([("rain", 1)], "got a list; pass a dictionary"),
    ):
        with pytest.raises(UndirectedError, match=wanted):
            observe(net.lower(), states)


def test_bad_networks_are_refused() -> None:
    two = np.ones((2, 2))
    with pytest.raises(UndirectedError, match="at least one"):
        markov_network([], [])
    with pytest.raises(UndirectedError, match="factor 0 names 2, which is no variable"):
        markov_network([2, 2], [((0, 2), two)])
    with pytest.raises(UndirectedError, match="has a variable twice"):
        markov_network([2, 2], [((0, 0), two)])
    with pytest.raises(UndirectedError, match=r"shape \(3, 2\).*ask for \(2, 3\)"):
        markov_network([2, 3], [((0, 1), np.ones((3, 2)))])
    for bad in ([-1.0, 1.0], [np.nan, 1.0], [0.0, 0.0]):
        with pytest.raises(UndirectedError, match="table 0 has entries"):
            markov_network([2], [((0,), bad)])
    for states in (10**9, 0, -1, 2.5, True, "ab", ["a", "a"]):
        with pytest.raises(UndirectedError, match="variable 'x' has states"):
            markov_network({"x": states}, {})
    with pytest.raises(UndirectedError, match=r"joins 2,000 variables") as refusal:
        markov_network([2] * 2000, [(tuple(range(2000)), np.ones(2))])
    assert len(str(refusal.value)) < 300
    assert jnp.isfinite(Exact()(markov_network([1, 1], [])).log_z)


def test_a_variable_of_one_state_is_answered_with_that_state_alone() -> None:
    """Its second, forbidden state is an affair of the layout."""
    for said, word in ((1, 0), (["on"], "on")):
        net = markov_network({"a": said, "b": ["u", "v"]}, {("a", "b"): [[1, 3]]})
        wanted = {"a": {word: 1.0}, "b": {"u": 0.25, "v": 0.75}}
        assert un.query(net) == wanted
        found = un.solve(net)
        assert found.marginals["a"] == wanted["a"]
        assert [len(table) for table in found.tables] == [1, 2]
        assert un.solve(net, "map").state == {"a": word, "b": "v"}
        assert un.query(net, given={"a": word})["b"] == wanted["b"]
