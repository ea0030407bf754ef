"""Annealing tells how far it is."""

import numpy as np

from undirected.evaluation import ais, bracket
from undirected.models import RBM, ModelPath
from undirected.sampling import BlockGibbs


def test_betas_are_counted_through_to_the_end():
    model = RBM.create(4, 2, seed=0)
    path = ModelPath(model.independent(), model)
    told = []
    options = {"seed": 0, "chains": 4, "betas": 30}
    found = ais(path, BlockGibbs(), progress=lambda *now: told.append(now), **options)
    done, total = zip(*told, strict=True)
    assert done[-1] == 29 and set(total) == {29}
    assert list(done) == sorted(set(done))
    without = ais(path, BlockGibbs(), **options)
    np.testing.assert_array_equal(found.log_weights, without.log_weights)


def test_both_directions_count_as_one():
    model = RBM.create(4, 2, seed=0)
    path, told = ModelPath(model.independent(), model), []
    bracket(path, BlockGibbs(), seed=0, chains=4, betas=30, progress=lambda *now: told.append(now))
    done, total = zip(*told, strict=True)
    assert 29 in done and done[-1] == 58 and set(total) == {58}
    assert list(done) == sorted(set(done))
