"""The component drawn with the visibles summed out: invariant, and across clusters at once."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import oracle, zoo
from undirected.core.errors import UndirectedError, UnsupportedFactor
from undirected.models import RBM, MixtureRBM
from undirected.sampling import MixtureGibbs


def wrong(x: np.ndarray, truth: oracle.Truth) -> bool:
    """Whether the shares of joint states are further off than 6 standard errors anywhere.

    For independent samples of the truth a state is so with probability 2e-9.
    """
    index = {tuple(s): i for i, s in enumerate(truth.states.astype(int).tolist())}
    counts = np.zeros(len(index))
    for state in x.astype(int).tolist():
        counts[index[tuple(state)]] += 1
    p, n = truth.probabilities, len(x)
    return bool((np.abs(counts / n - p) > 6 * np.sqrt(p * (1 - p) / n) + 1e-9).any())


@eqx.filter_jit
def moved(kernel, model, x, free, key):
    return kernel.step(model, kernel.init(model, x, key), free, key)[0].x


def exact_draws(truth: oracle.Truth, count: int) -> jax.Array:
    rng = np.random.default_rng(0)
    return jnp.asarray(truth.states[rng.choice(len(truth.states), count, p=truth.probabilities)])


class Stale(MixtureGibbs):
    """Broken: the visibles stay where they were after the component has jumped."""

    def _move(self, model, index, fields, x, free, key):
        return x if index == 0 else super()._move(model, index, fields, x, free, key)


@pytest.mark.parametrize("jumps", [0.0, 1.0])
def test_a_step_leaves_the_model_invariant(jumps):
    """Fixed seed; fresh ones would fail less than once in a million."""
    model, truth = zoo.mixture_rbm(1)
    start, free = exact_draws(truth, 20_000), jnp.ones(model.layout.n, bool)
    x = moved(MixtureGibbs(jumps), model, start, free, jax.random.key(1))
    assert not wrong(np.asarray(x), truth)
    if jumps:
        assert wrong(np.asarray(moved(Stale(1.0), model, start, free, jax.random.key(1))), truth)


def test_held_units_stay_and_the_others_follow_them():
    """Fixed seed; fresh ones would fail less than once in a million."""
    model, truth = zoo.mixture_rbm(2)
    held = np.zeros(model.layout.n, bool)
    held[[0, 2]] = True
    given = truth.given(held, np.ones(model.layout.n))
    start = exact_draws(given, 20_000)
    x = moved(MixtureGibbs(1.0), model, start, jnp.asarray(~held), jax.random.key(1))
    assert (np.asarray(x)[:, held] == 1).all()
    assert not wrong(np.asarray(x), given)


def test_jumps_cross_between_clusters_that_blocks_never_leave():
    """200 columns, two opposite clusters: between them lies a state of probability e^-400."""
    means = np.stack([np.full(200, 0.02), np.full(200, 0.98)])
    model = MixtureRBM.from_mixture(np.log([0.5, 0.5]), means, 4, seed=0)
    x = jnp.zeros((400, model.layout.n)).at[:, -2].set(1)
    free = jnp.ones(model.layout.n, bool)
    share = {}
    for jumps in (0.0, 1.0):
        v = np.asarray(moved(MixtureGibbs(jumps), model, x, free, jax.random.key(0)))[:, :200]
        share[jumps] = (v.mean(1) > 0.5).mean()
    assert share[0.0] == 0.0
    assert 0.3 < share[1.0] < 0.7  # 8 standard errors


def test_bad_settings_and_models_without_a_component_are_refused():
    with pytest.raises(UndirectedError, match="jumps is 2; pass a share"):
        MixtureGibbs(2)
    rbm = RBM.create(3, 2, seed=0)
    with pytest.raises(UnsupportedFactor, match="RBM has no component; use BlockGibbs"):
        moved(MixtureGibbs(), rbm, jnp.zeros((2, 5)), jnp.ones(5, bool), jax.random.key(0))
