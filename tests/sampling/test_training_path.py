"""Parallel trajectory tempering: replicas at the checkpoints of a training."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import oracle
from undirected.core.errors import UndirectedError
from undirected.evaluation import ais
from undirected.models import RBM, Ising, TrainingPath, markov_network, tempered
from undirected.sampling import BlockGibbs, ParallelTempering
from undirected.sampling.tempering import offer_swaps

pytestmark = pytest.mark.usefixtures("x64")

VISIBLE, HIDDEN = 2, 1


def checkpoints(visible=VISIBLE, hidden=HIDDEN, count=2, scale=1.0):
    """Models that walk away from where they were, as those of a training."""
    rng = np.random.default_rng(7)
    w, b, c = (
        jnp.asarray(scale * rng.normal(size=(count, *shape)).cumsum(0))
        for shape in ((visible, hidden), (visible,), (hidden,))
    )
    return [RBM(w[k], b[k], c[k]) for k in range(count)]


def truth(model):
    return oracle.rbm(model.weights, model.visible_bias, model.hidden_bias)


def test_zeros_of_tables_come_gradually_along_a_training():
    """Proper colours of a ring of six: the way back would find states of no chance at any beta."""
    ring = markov_network([3] * 6, {(i, (i + 1) % 6): 1 - np.eye(3) for i in range(6)})
    path = TrainingPath.through([ring, ring])
    middle = path(0.25).energy(jnp.zeros((1, 18)).at[:, ::3].set(1))
    np.testing.assert_allclose(middle, 6 * 5.0, rtol=1e-4)


def test_the_path_goes_through_all_models_in_straight_lines():
    models = checkpoints(count=3)
    path = TrainingPath.through(models)
    assert path.betas == pytest.approx((1.0, 2 / 3, 1 / 3, 0.0))
    for beta, model in zip(path.betas, [*models[::-1], models[0].independent()], strict=True):
        np.testing.assert_allclose(path(beta).weights, model.weights, atol=1e-12)
        np.testing.assert_allclose(path(beta).visible_bias, model.visible_bias, atol=1e-12)
    middle = 0.5 * (models[0].hidden_bias + models[1].hidden_bias)
    np.testing.assert_allclose(path(0.5).hidden_bias, middle, atol=1e-12)
    np.testing.assert_array_equal(path.target.weights, models[-1].weights)
    np.testing.assert_array_equal(path.base.weights, 0 * models[-1].weights)
    assert path.layout == models[0].layout


def test_swaps_between_checkpoints_leave_their_product_invariant():
    """All states of three models: the swaps' matrix from their chances, in either turn."""
    models = checkpoints()
    path = TrainingPath.through(models)
    known = [truth(model) for model in (*models[::-1], models[0].independent())]
    joint = np.einsum("a,b,c->abc", *(t.probabilities for t in known)).reshape(-1)
    states, count = known[0].states, len(known[0].states)
    ways = np.array(list(product(range(count), repeat=3)))
    rungs = jnp.asarray(np.moveaxis(states[ways], 1, 0))

    def moved(path, odd):
        offers = offer_swaps(
            path, jnp.asarray([1.0, 0.5, 0.0]), rungs, jnp.asarray(odd), jax.random.key(0)
        )
        other = ways.copy()
        other[:, [odd, odd + 1]] = other[:, [odd + 1, odd]]
        chance = np.asarray(offers.chance)[odd]
        after = joint * (1 - chance)
        np.add.at(after, np.ravel_multi_index(tuple(other.T), (count,) * 3), joint * chance)
        return np.abs(after - joint).max()

    for odd in (0, 1):
        assert moved(path, odd) < 1e-12
        assert moved(tempered(models[-1]), odd) > 1e-4  # swaps of other models than those it has


def test_a_step_leaves_the_product_of_the_checkpoints_invariant():
    """Chains from the product of three models: states of all rungs after three steps.

    40,000 chains a rung, chi-squared of all states at 1e-4: with three rungs once in 3,000 runs.
    """
    from scipy.stats import chisquare

    models, chains = checkpoints(), 40_000
    path = TrainingPath.through(models)
    rungs = [truth(model) for model in (*models[::-1], models[0].independent())]
    rng = np.random.default_rng(0)
    drawn = [t.states[rng.choice(len(t.states), chains, p=t.probabilities)] for t in rungs]

    def chances(along, model):
        pt = ParallelTempering(BlockGibbs(), along, (1.0, 0.5, 0.0))
        state = pt.init(model, jnp.asarray(drawn[0]), jax.random.key(0))
        state = type(state)(jnp.asarray(np.stack(drawn)), state.odd, state.last_end)
        step = jax.jit(lambda s, key: pt.step(model, s, jnp.ones(3, bool), key)[0])
        for k in range(3):
            state = step(state, jax.random.key(k))
        codes = np.asarray(state.rungs).astype(int) @ [4, 2, 1]
        found = [np.bincount(c, minlength=8) for c in codes]
        right = [np.bincount(t.states.astype(int) @ [4, 2, 1], t.probabilities) for t in rungs]
        return [chisquare(f, chains * r).pvalue for f, r in zip(found, right, strict=True)]

    assert min(chances(TrainingPath.along, path)) > 1e-4
    assert min(chances(tempered, models[-1])) < 1e-4  # another path than that of the training


@pytest.mark.slow
def test_log_z_of_all_checkpoints_is_that_of_enumeration():
    """16 chains, 5 standard errors at each of 4 models (t of 15: once in 1,500); AIS along it."""
    models = checkpoints(5, 4, 4, 0.7)
    path = TrainingPath.through(models)
    exact = np.array([truth(model).log_z for model in models[::-1]])
    pt = ParallelTempering(BlockGibbs(), path.along, path.betas)
    state = pt.init(path, jnp.zeros((16, 9)), jax.random.key(0))
    values, errors = pt.log_partitions(path, state, jax.random.key(1), samples=2000)
    assert (np.abs(values[:-1] - exact) < 5 * errors[:-1]).all()
    assert values[-1] == pytest.approx(9 * np.log(2)) and errors[-1] == 0
    assert (errors < 0.05).all()
    assert (np.abs(values[1:-1] - exact[:-1]) > 5 * errors[1:-1]).all()  # of the wrong checkpoint
    even, state = pt.adapted(path, jnp.zeros((16, 9)), jax.random.key(2), rounds=3)
    value, error = even.log_partition(path, state, jax.random.key(3), samples=2000)
    assert abs(value - exact[0]) < 5 * error
    annealed = ais(path, BlockGibbs(), seed=0, chains=200, betas=200)
    assert abs(annealed.log_z - exact[0]) < 0.2


def test_what_is_no_training_is_refused():
    models = checkpoints()
    with pytest.raises(UndirectedError, match="no models; pass the checkpoints, earliest first"):
        TrainingPath.through([])
    for one, told in [(models[0], "a RBM"), (np.zeros(3), "a ndarray"), (RBM, "the class RBM")]:
        with pytest.raises(UndirectedError, match=f"got {told}; pass a list of checkpoints"):
            TrainingPath.through(one)
    with pytest.raises(UndirectedError, match="model 1 differs in class or shape from the base"):
        TrainingPath.through([models[0], checkpoints(3)[0]])
    spins = Ising(jnp.zeros((3, 3)), jnp.zeros(3))
    with pytest.raises(UndirectedError, match="model 2 differs in class or shape"):
        TrainingPath.through([*models, spins])
    coupled = TrainingPath.through(models[1:], base=models[0])
    pt = ParallelTempering(BlockGibbs(), coupled.along, coupled.betas)
    state = pt.init(coupled, jnp.zeros((4, 3)), jax.random.key(0))
    with pytest.raises(UndirectedError, match=r"down to 0.0, where there are couplings; pass"):
        pt.log_partition(coupled, state, jax.random.key(1), samples=5)
