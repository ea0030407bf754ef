"""Sizes that are none are refused at the door, by name."""

import numpy as np
import pytest

import undirected as un

BAD = {
    "RBM.create: n_visible is -1": lambda: un.RBM.create(-1, 3, seed=0),
    "RBM.create: n_hidden is 2.5": lambda: un.RBM.create(4, 2.5, seed=0),
    "GaussianRBM.create: n_hidden is -2": lambda: un.GaussianRBM.create(4, -2, seed=0),
    "ConditionalRBM.create: n_features is 0": lambda: un.ConditionalRBM.create(4, 2, 0, seed=0),
    "SemiRestrictedBM.create: n_visible is 0": lambda: un.SemiRestrictedBM.create(0, 2, seed=0),
    "DeepBM.create: layer 1 is 0": lambda: un.DeepBM.create([4, 0, 2], seed=0),
    "MixedRBM.create: n_hidden is -1": lambda: un.MixedRBM.create(["binary"], -1, seed=0),
    "Ising.create: n is 0": lambda: un.Ising.create(0),
    "complete: n is -3": lambda: un.Potts.create(-3, 2),
    "bipartite: left is [0, 1]": lambda: un.graph.bipartite([0, 1], [2, 3], [(0, 2)]),
    "grid: cols is 0": lambda: un.graph.grid(4, 0),
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
