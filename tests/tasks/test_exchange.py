"""Models to and from other libraries: the energies of all states agree, and so do the names."""

import itertools
import types

import jax.numpy as jnp
import numpy as np
import pytest

import undirected as un

networkx = pytest.importorskip("networkx")


def states(n):
    return np.array(list(itertools.product([0, 1], repeat=n)), float)


def energies(model, n):
    return np.asarray(model.energy(jnp.asarray(states(n))), float)


def bqm(linear, quadratic, offset, vartype):
    """What a dimod model offers."""
    kind = types.SimpleNamespace(name=vartype)
    return types.SimpleNamespace(linear=linear, quadratic=quadratic, offset=offset, vartype=kind)


LINEAR = {"a": 0.5, "b": -1.0, "c": 0.0}
PAIRS = {("a", "b"): 2.0, ("c", "b"): -0.75}


@pytest.mark.parametrize("vartype", ["SPIN", "BINARY"])
def test_a_bqm_has_the_same_energies(vartype):
    model = un.from_bqm(bqm(LINEAR, PAIRS, 0.25, vartype))
    x = states(3) if vartype == "BINARY" else 2 * states(3) - 1
    wanted = 0.25 + x @ [0.5, -1.0, 0.0] + 2 * x[:, 0] * x[:, 1] - 0.75 * x[:, 2] * x[:, 1]
    np.testing.assert_allclose(energies(model, 3), wanted, atol=1e-5)
    with pytest.raises(un.UndirectedError, match="vartype is 'REAL'"):
        un.from_bqm(bqm(LINEAR, PAIRS, 0.0, "REAL"))


@pytest.mark.parametrize("graph", [None, un.graph.chain(3)])
def test_networkx_both_ways(graph):
    rng = np.random.default_rng(0)
    couplings = rng.normal(size=2 if graph else (3, 3)).astype(np.float32)
    model = un.Ising(jnp.asarray(couplings), jnp.asarray(rng.normal(size=3), jnp.float32), graph)
    found = un.to_networkx(model, ["a", "b", "c"])
    assert list(found.nodes) == ["a", "b", "c"]
    back = un.from_networkx(found)
    assert back.layout.names == ("a", "b", "c")
    np.testing.assert_allclose(energies(back, 3), energies(model, 3), atol=1e-5)
    again = un.to_networkx(back)
    assert {frozenset(e) for e in again.edges} == {frozenset(e) for e in found.edges}


def test_graphs_that_are_no_model_of_pairs_are_refused():
    with pytest.raises(un.UndirectedError, match="directed"):
        un.from_networkx(networkx.DiGraph([(0, 1)]))
    with pytest.raises(un.UndirectedError, match="edge to itself"):
        un.from_networkx(networkx.Graph([("a", "a")]))
    with pytest.raises(un.UndirectedError, match="hidden"):
        un.to_networkx(un.RBM.create(2, 2))
    with pytest.raises(un.UndirectedError, match="2 names for 3 variables"):
        un.to_networkx(un.Ising.create(3), "ab")
    with pytest.raises(un.UndirectedError, match="held by evidence"):
        un.to_networkx(un.observe(un.Ising.create(3).lower(), {0: 1}))


def test_dimod_both_ways():
    dimod = pytest.importorskip("dimod")
    own = dimod.BinaryQuadraticModel(LINEAR, PAIRS, 0.25, "SPIN")
    made = un.to_bqm(un.from_bqm(own))
    for x in states(3):
        spins = dict(zip(own.variables, 2 * x - 1, strict=True))
        bits = dict(zip(own.variables, x, strict=True))
        assert made.energy(bits) == pytest.approx(own.energy(spins), abs=1e-5)


def table(names, values, words=None):
    return types.SimpleNamespace(variables=names, values=np.array(values), state_names=words)


def test_pgmpy_networks_give_the_same_answers():
    rain = table(["rain"], [0.8, 0.2], {"rain": ["no", "yes"]})
    both = {"grass": ["dry", "wet"], "rain": ["no", "yes"]}
    wet = table(["grass", "rain"], [[0.9, 0.1], [0.1, 0.9]], both)
    cpd = types.SimpleNamespace(to_factor=lambda: wet)
    network = types.SimpleNamespace(get_cpds=lambda: [rain, cpd])
    found = un.query(un.from_pgmpy(network), given={"grass": "wet"})
    assert found["rain"]["yes"] == pytest.approx(0.18 / (0.18 + 0.08), abs=1e-5)
    other = table(["rain"], [1.0, 1.0], {"rain": ["yes", "no"]})
    with pytest.raises(un.UndirectedError, match="in another"):
        un.from_pgmpy(types.SimpleNamespace(get_factors=lambda: [rain, other]))


@pytest.mark.parametrize("given", [None, 5, "net.bif", np.eye(2), {"a": 1}, networkx.Graph])
@pytest.mark.parametrize("read", [un.from_networkx, un.from_bqm, un.from_pgmpy])
def test_what_is_no_model_of_the_library_is_told(read, given):
    kind = given.__name__ if isinstance(given, type) else type(given).__name__
    with pytest.raises(un.UndirectedError, match=rf"{read.__name__}: got .* {kind}; pass a"):
        read(given)


@pytest.mark.parametrize("value", ["strong", None, float("nan")])
def test_weights_that_are_no_numbers_are_told(value):
    graph = networkx.Graph()
    graph.add_edge("a", "b", weight=value)
    with pytest.raises(un.UndirectedError, match=r"the weight of \('a', 'b'\) is .*a finite"):
        un.from_networkx(graph)
    graph.add_edge("a", "b", weight=1.0)
    graph.add_node("a", bias=value)
    with pytest.raises(un.UndirectedError, match="the bias of 'a' is .*wanted a finite"):
        un.from_networkx(graph)


def test_draws_for_arviz():
    pytest.importorskip("arviz")
    model = un.Ising.create(3)
    result = un.run_chains(un.Gibbs(), model, chains=2, samples=5, seed=0)
    found = result.to_arviz(["a", "b", "c"]).posterior["x"]
    assert found.dims == ("chain", "draw", "unit") and found.shape == (2, 5, 3)
    np.testing.assert_array_equal(found.sel(unit="b").values, np.asarray(result.x)[:, :, 1].T)
    with pytest.raises(un.UndirectedError, match="2 names for 3 units"):
        result.to_arviz(["a", "b"])
