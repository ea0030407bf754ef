"""The semi-restricted Boltzmann machine: its parameters, its label, its refusals."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import oracle, zoo
from undirected.core.errors import UndirectedError, UnsupportedFactor
from undirected.io.model_files import load_model, save_model
from undirected.models import RBM, SemiRestrictedBM
from undirected.sampling import BlockGibbs


def test_number_of_parameters():
    """The paper's 705,622 takes half of all 784 x 784 lateral weights, its diagonal included."""
    model = eqx.filter_eval_shape(
        SemiRestrictedBM.create, 794, 500, jax.random.key(0), label_states=10
    )
    restricted = sum(leaf.size for leaf in jax.tree.leaves(model.rbm))
    assert restricted + model.lateral.size // 2 == 705_622
    assert restricted + 784 * 783 // 2 == 705_230  # one for every pair


def test_only_pairs_have_a_gradient(x64):
    """One parameter a pair: its gradient is the difference of <v_i v_k>, not half of it."""
    model, truth = zoo.semi_restricted(2)
    v = jnp.asarray(truth.states[40:45, :6])
    gradient = eqx.filter_grad(lambda m: m.free_energy(v).mean())(model)
    pairs = np.asarray(v)[:, :3].T @ np.asarray(v)[:, :3] / len(v)
    np.testing.assert_allclose(gradient.lateral, -np.triu(pairs, 1), atol=1e-12)


@pytest.mark.parametrize("case", [zoo.label_rbm, zoo.semi_restricted])
def test_posterior_of_the_label(x64, case):
    """p(y | pixels) from the enumerated joint, whatever the label units of v say."""
    model, truth = case(3)
    for pixels in oracle.binary_states(3):
        held = np.r_[pixels, np.zeros(model.layout.n - 3)]
        mask = np.arange(model.layout.n) < 3
        wanted = truth.given(mask, held).means[3:6]
        for label in (jnp.zeros(3), jnp.eye(3)[1], jnp.full(3, jnp.nan)):
            v = jnp.concatenate([jnp.asarray(pixels), label])
            np.testing.assert_allclose(jax.nn.softmax(model.label_fields(v)), wanted, atol=1e-10)


def test_model_file(tmp_path):
    model, truth = zoo.semi_restricted(4)
    save_model(tmp_path / "model", model)
    back = load_model(tmp_path / "model")
    assert back.layout == model.layout
    x = jnp.asarray(truth.states[:5])
    np.testing.assert_array_equal(back.energy(x), model.energy(x))


def test_what_it_refuses():
    model = SemiRestrictedBM.create(5, 3, jax.random.key(0), label_states=2)
    state = BlockGibbs().init(model, jnp.zeros((2, 8)), jax.random.key(0))
    with pytest.raises(UnsupportedFactor, match="sample with Gibbs"):
        BlockGibbs().step(model, state, jnp.ones(8, bool), jax.random.key(0))
    with pytest.raises(UndirectedError, match=r"pass \(3, 3\)"):
        SemiRestrictedBM(model.rbm, jnp.zeros((5, 5)))
    with pytest.raises(UndirectedError, match="at least"):
        SemiRestrictedBM(RBM.create(3, 2, jax.random.key(0), label_states=3), jnp.zeros((0, 0)))
