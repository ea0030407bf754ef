"""Sizes, arrays, graphs and tables that are none are refused at the door, by name."""

import numpy as np
import pytest

import undirected as un

BAD = {
    "RBM.create: n_visible is -1": lambda: un.RBM.create(-1, 3, seed=0),
    "RBM.create: n_hidden is 2.5": lambda: un.RBM.create(4, 2.5, seed=0),
    "GaussianRBM.create: n_hidden is -2": lambda: un.GaussianRBM.create(4, -2, seed=0),
    "ConditionalRBM.create: n_features is 0": lambda: un.ConditionalRBM.create(4, 2, 0, seed=0),
    "SemiRestrictedBM.create: n_visible is 0": lambda: un.SemiRestrictedBM.create(0, 2, seed=0),
    "MixtureRBM.from_mixture: n_hidden is -2": lambda: un.MixtureRBM.from_mixture(
        [-0.7, -0.7], [[0.5], [0.4]], -2
    ),
    "RBM: label_states is 2.0": lambda: un.RBM.create(3, 2, label_states=2.0),
    "Potts.create: states is 3.0": lambda: un.Potts.create(3, 3.0),
    "DeepBM.create: layer 1 is 0": lambda: un.DeepBM.create([4, 0, 2], seed=0),
    "MixedRBM.create: n_hidden is -1": lambda: un.MixedRBM.create(["binary"], -1, seed=0),
    "Ising.create: n is 0": lambda: un.Ising.create(0),
    "complete: n is -3": lambda: un.Potts.create(-3, 2),
    "bipartite: left is [0, 1]": lambda: un.graph.bipartite([0, 1], [2, 3], [(0, 2)]),
    "grid: side is 0": lambda: un.graph.grid(4, 0),
    "from_edges: n is -1": lambda: un.graph.from_edges(-1, []),
    "erdos_renyi: n is 2.0": lambda: un.graph.erdos_renyi(2.0, 0.5, 0),
}


@pytest.mark.parametrize("said", BAD)
def test_a_size_that_is_none(said):
    with pytest.raises(un.UndirectedError) as error:
        BAD[said]()
    assert str(error.value).startswith(f"{said}; pass a whole number from ")


def test_sizes_of_numpy_and_no_hidden_units_are_fine():
    assert un.RBM.create(np.int64(4), 0, seed=0).n_hidden == 0
    assert un.graph.bipartite(2, np.int32(2)).n_edges == 4


W, B, C = np.ones((3, 2)), np.zeros(3), np.zeros(2)
LAYOUT = un.discrete(x=2)
MADE_OF = {
    "RBM: visible_bias is 0.0; pass an array": lambda: un.RBM(W, 0.0, C),
    "RBM: weights is [[1.0, 1.0]": lambda: un.RBM(W.tolist(), B, C),
    "RBM: visible_bias has shape (1, 3); it must be 1-dim": lambda: un.RBM(W, B[None], C),
    "GaussianRBM: hidden_bias is None": lambda: un.GaussianRBM(W, B, None),
    "ConditionalRBM: weights is 'w'": lambda: un.ConditionalRBM("w", W, W[:2], B, C),
    "MixtureRBM: components is [1]": lambda: un.MixtureRBM(W, [1], B, C, C),
    "Ising: bias has shape ()": lambda: un.Ising(np.zeros((3, 3)), np.zeros(())),
    "Ising: graph is [(0, 1)]; pass one": lambda: un.Ising(np.zeros(1), C, [(0, 1)]),
    "Ising: weights are (3, 2)": lambda: un.Ising.from_spins(W, B),
    "Ising: weights are (2,)": lambda: un.Ising.from_spins(C, np.zeros(4), un.graph.chain(4)),
    "NonnegativeBM: graph is 3": lambda: un.NonnegativeBM.on_graph(3, B, B + 1, B),
    "Potts: couplings is [[1, 0]": lambda: un.Potts([[1, 0], [0, 1]], np.zeros((2, 2))),
    "Potts: fields has shape (2,); it must be 2-d": lambda: un.Potts(np.eye(2), C),
    "Potts: graph is [(0, 1)]": lambda: un.Potts(np.eye(2), np.zeros((2, 2)), [(0, 1)]),
    "Potts.standard: graph is 4": lambda: un.Potts.standard(4, 3, 1.0),
    "Potts.dense: fields are (3, 2) and couplings (3, 2)": lambda: un.Potts.dense(W, W),
    "DeepBM.create: sizes is 3; pass": lambda: un.DeepBM.create(3),
    "GridMRF.create: shape is 2 and clones 2": lambda: un.GridMRF.create(2, 2),
    "discrete: block 'x' is 3.5; pass": lambda: un.discrete(x=3.5),
    "discrete: block 'x' is (3,)": lambda: un.discrete(x=(3,)),
    "discrete: block 'x' is [1, 3]": lambda: un.discrete(x=[1, 3]),
    "FactorGraph.create: layout is 3": lambda: un.FactorGraph.create(3),
    "FactorGraph.create: factors are [3]": lambda: un.FactorGraph.create(LAYOUT, [3]),
    "FactorGraph.create: factors are Tables": lambda: un.FactorGraph.create(
        LAYOUT, un.tables(LAYOUT, [[0, 1]], np.zeros((2, 2)))
    ),
    "markov_network: table 0 is no array of numbers": lambda: un.markov_network(
        [2, 2], {(0, 1): [[1], [2, 3]]}
    ),
    "markov_network: factors have the entry 1": lambda: un.markov_network([2], [1, 2]),
    "markov_network: factors have the entry None": lambda: un.markov_network([2], None),
    "markov_network: variables are 3": lambda: un.markov_network(3, {}),
    "markov_network: variable 'a' has states": lambda: un.markov_network({"a": [1, [2]]}, {}),
    "markov_network: variable 'a' has states [None, 'x']": lambda: un.markov_network(
        {"a": [None, "x"]}, {}
    ),
    "markov_network: variable 'a' has states [nan, 1]": lambda: un.markov_network(
        {"a": [float("nan"), 1]}, {}
    ),
    "markov_network: table 0 is no array of numbers (int too large": lambda: un.markov_network(
        [2], {0: [10**400, 1]}
    ),
    "quadratic_model: 1000": lambda: un.quadratic_model({"a": 10**400}),
    "quadratic_model: got [1, 2]": lambda: un.quadratic_model([1, 2]),
    "quadratic_model: 'a' is no number that a double holds": lambda: un.quadratic_model({0: "a"}),
}


@pytest.mark.parametrize("said", MADE_OF)
def test_what_no_model_is_made_of(said):
    with pytest.raises(un.UndirectedError) as error:
        MADE_OF[said]()
    assert str(error.value).startswith(said)


def test_whole_numbers_become_floats_where_a_model_is_made_of_them():
    model = un.NonnegativeBM.from_matrix([[1, 0], [0, 1]], [0, 0])
    assert {a.dtype.kind for a in (model.weights, model.diagonal, model.bias)} == {"f"}
    rbm = un.ConditionalRBM.create(3, 2, 4, seed=0).at([1, 0, 1, 1])
    assert rbm.n_visible == 3


@pytest.mark.parametrize("graph", [None, un.graph.chain(3)])
def test_parameters_in_double_precision_give_no_warnings(graph, recwarn):
    model = un.Ising(np.zeros((3, 3) if graph is None else 2), np.zeros(3), graph)
    for routine in (un.Elimination(), un.SumProduct(), un.LinearProgram(), un.Exact()):
        assert routine(model).unary.dtype == np.float32
    assert not [str(w.message) for w in recwarn]


MEANS = {
    "nan": ([0.5, np.nan, 0.5], "the mean of unit 1 is nan; pass numbers from 0 to 1"),
    "above": ([0.5, 0.5, 2.0], "the mean of unit 2 is 2; "),
    "below": ([-1, 0.5, 0.5], "the mean of unit 0 is -1; "),
    "long": ([0.5] * 5, r"means have shape \(5,\); pass \(3,\)"),
    "scalar": (0.5, r"means have shape \(\); pass \(3,\)"),
    "axes": ([[[0.5] * 3]], r"means have shape \(1, 1, 3\)"),
    "words": ("abc", "means are 'abc'; pass numbers"),
}
WITH_MEANS = {
    "RBM": lambda means: un.RBM.create(3, 2, seed=0, means=means),
    "SemiRestrictedBM": lambda means: un.SemiRestrictedBM.create(3, 2, seed=0, means=means),
    "Ising": un.Ising.create(3).independent,
    "DeepBM": un.DeepBM.create([3, 2, 2], seed=0).independent,
    "Potts": un.Potts.create(1, 3).independent,
}


@pytest.mark.parametrize("model", WITH_MEANS)
@pytest.mark.parametrize("kind", MEANS)
def test_means_that_are_none(model, kind):
    """NaN gave biases of NaN, and 2 was taken for 0.995."""
    means, said = MEANS[kind]
    with pytest.raises(un.UndirectedError, match=said):
        WITH_MEANS[model](means)


def test_means_of_zeros_and_ones_may_be_rounded():
    assert np.isfinite(un.RBM.create(3, 2, seed=0, means=[0, 1 + 1e-6, 1]).visible_bias).all()
