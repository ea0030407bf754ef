"""What energies, free energies and conditionals say to states of another width, and take."""

import re

import jax.numpy as jnp
import numpy as np
import pytest

import undirected as un
from undirected.core.errors import UndirectedError
from undirected.models import GridMRF, SpinForm

MODELS = {
    "DeepBM": lambda: un.DeepBM.create([4, 3, 2], seed=0),
    "FactorGraph": lambda: un.markov_network([2, 3], {(0, 1): np.ones((2, 3))}),
    "GaussianRBM": lambda: un.GaussianRBM.create(4, 1, seed=0),
    "GridMRF": lambda: GridMRF.create((2, 3), (2,), seed=0),
    "Ising": lambda: un.Ising.create(4),
    "MixtureRBM": lambda: un.MixtureRBM(*(jnp.zeros(s) for s in ((4, 2), (4, 3), 4, 2, 3))),
    "MixedRBM": lambda: un.MixedRBM.create(["binary", 3, "real"], 2, seed=0),
    "NonnegativeBM": lambda: un.NonnegativeBM.from_matrix(jnp.eye(4), jnp.zeros(4)),
    "Potts": lambda: un.Potts.create(3, 4),
    "RBM": lambda: un.RBM.create(4, 2, seed=0),
    "SemiRestrictedBM": lambda: un.SemiRestrictedBM.create(4, 2, seed=0),
    "SpinForm": lambda: SpinForm(un.RBM.create(4, 2, seed=0)),
}


@pytest.mark.parametrize("name", MODELS)
def test_states_of_another_width_are_refused(name):
    model = MODELS[name]()
    n, visible = model.layout.n, model.layout.n_visible
    for width in {n + 1, n - 1, visible} - {n}:  # visible: the hidden units were left out
        with pytest.raises(UndirectedError, match=rf"\(5, {width}\).*{re.escape(f'*batch, {n}')}"):
            model.energy(np.zeros((5, width)))
    for method in ("free_energy", "log_odds", "log_conditionals"):
        for width in (visible + 1, visible - 1):
            if hasattr(model, method):
                with pytest.raises(UndirectedError, match=rf"\({width},\).*\*batch, {visible}"):
                    getattr(model, method)(np.zeros(width))


@pytest.mark.parametrize("name", MODELS)
def test_lists_and_whole_numbers_are_states(name):
    """Small whole numbers do not overflow."""
    model = MODELS[name]()
    states = np.zeros((2, model.layout.n), np.int8)
    wanted = model.energy(states.astype(np.float32))
    np.testing.assert_array_equal(model.energy(states), wanted)
    np.testing.assert_array_equal(model.energy(states.tolist()), wanted)


def test_words_are_no_states():
    with pytest.raises(UndirectedError, match=r"RBM.energy.*'abc'.*pass an array of numbers"):
        un.RBM.create(2, 1, seed=0).energy("abc")
