"""Annealing: best states against enumeration, combinations of states against all of them."""

from itertools import pairwise, product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from tests.compiled import compilations
from tests.sampling import cases
from undirected.core import graph
from undirected.core.errors import UndirectedError
from undirected.models import Ising, markov_network
from undirected.sampling import Gibbs
from undirected.tasks.anneal import PATIENCE, _replicas, anneal, combine, glass_of


def glass(seed=0):
    wiring = graph.torus(4, 4)
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], wiring.n_edges)
    return wiring, signs, Ising.from_spins(jnp.asarray(signs), jnp.zeros(16), wiring)


def energy(edges, signs, spins):
    return -(signs * spins[..., edges[:, 0]] * spins[..., edges[:, 1]]).sum(-1)


def test_the_best_state_of_a_glass_is_found():
    wiring, signs, model = glass()
    all_spins = 2 * (np.arange(2**16)[:, None] >> np.arange(16) & 1) - 1
    wanted = energy(np.asarray(wiring.edges), signs, all_spins).min()
    found = anneal(model, restarts=64, sweeps=48, rounds=3, target=wanted, seed=0)
    assert found.energy == pytest.approx(wanted, abs=1e-3)
    assert energy(np.asarray(wiring.edges), signs, 2 * found.x - 1) == pytest.approx(wanted)
    assert found.energies.shape == (64,) and found.energies.min() >= wanted - 1e-3


@pytest.mark.slow
def test_other_models_are_cooled_by_their_kernel():
    case = cases.make("dense")
    assert glass_of(case.model) is None
    for kernel in (None, Gibbs(sweeps=2)):
        found = anneal(case.model, restarts=20, sweeps=30, kernel=kernel, seed=1)
        np.testing.assert_array_equal(found.x, case.truth.best)
    assert found.rounds == 1


def test_annealing_again_compiles_nothing():
    def once(seed):
        fields = jnp.asarray(np.random.default_rng(seed).normal(size=4), jnp.float32)
        model = Ising.from_spins(jnp.ones(3), fields, graph.chain(4))
        return anneal(model, restarts=4, sweeps=10, seed=seed)

    once(0)
    with compilations() as made:
        once(1)
    assert made == []


def test_only_glasses_are_taken_for_glasses():
    wiring, signs, model = glass()
    found = glass_of(model)
    assert found is not None
    np.testing.assert_array_equal(found[1], signs)
    uneven = Ising.from_spins(jnp.asarray(signs).at[3].set(0.5), jnp.zeros(16), wiring)
    field = Ising.from_spins(jnp.asarray(signs), jnp.zeros(16).at[2].set(0.1), wiring)
    assert glass_of(uneven) is None and glass_of(field) is None


def test_pairs_take_the_better_version_of_every_cluster():
    """All choices of clusters by enumeration, for ten pairs."""
    wiring, signs, _ = glass(3)
    edges = np.asarray(wiring.edges)
    spins = np.random.default_rng(4).choice([-1, 1], (20, 16))
    key = jax.random.key(5)
    after = np.asarray(combine(wiring, jnp.asarray(signs), jnp.asarray(spins), key))
    order = np.asarray(jax.random.permutation(jax.random.split(key)[0], 20))
    gained = 0
    for a, b in zip(order[:10], order[10:], strict=True):
        if spins[a] @ spins[b] < 0:
            spins[b] *= -1  # its reverse is as good and nearer
        differs = spins[a] != spins[b]
        i, j = edges[differs[edges].all(1)].T
        _, part = connected_components(
            coo_array((np.ones(len(i)), (i, j)), (16, 16)), directed=False
        )
        clusters = [differs & (part == k) for k in np.unique(part[differs])]
        best = np.inf
        for take in product([False, True], repeat=len(clusters)):
            taken = (np.array(clusters) & np.array(take)[:, None]).any(0)
            best = min(best, energy(edges, signs, np.where(taken, spins[b], spins[a])))
        for child in (after[a], after[b]):
            assert energy(edges, signs, child) == best
            assert ((child == spins[a]) | (child == spins[b])).all()
        gained += min(energy(edges, signs, spins[[a, b]])) - best
    assert gained > 0


@pytest.mark.slow
def test_a_round_of_a_glass_never_loses():
    """Every restart keeps the better version of what it was and what cooling made of it."""
    wiring = graph.torus(12, 12)
    signs = np.random.default_rng(1).choice([-1.0, 1.0], wiring.n_edges)
    cooling = _replicas(wiring, signs, 64, 24)
    population, means = None, []
    for k in range(4):
        population, x = cooling(population, jax.random.key(k))
        means.append(energy(np.asarray(wiring.edges), signs, 2 * np.asarray(x) - 1))
    lowest = [mean.min() for mean in means]
    assert lowest == sorted(lowest, reverse=True)
    for before, after in pairwise(means[:2]):  # no pairs yet: each is compared with itself
        assert (after <= before).all() and (after < before).any()


@pytest.mark.slow
def test_restarts_that_no_longer_gain_begin_again():
    wiring, signs, _ = glass()
    cooling = _replicas(wiring, signs, 64, 24)
    population, rounds = None, []
    for k in range(2 * PATIENCE + 6):
        population, _ = cooling(population, jax.random.key(k))
        rounds.append(population.rounds)
    assert rounds.count(1) > 1 and max(rounds) > PATIENCE


def test_what_cannot_be_annealed_is_refused():
    model = glass()[2]
    with pytest.raises(UndirectedError, match="sweeps is 0"):
        anneal(model, sweeps=0)
    with pytest.raises(UndirectedError, match="anneal: got a int"):
        anneal(3)


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_temperatures_follow_the_size_of_the_energies(scale):
    """All 16 restarts missed the best state at 1e-4; a field of 1000 beside it must not hide it."""
    rng = np.random.default_rng(0)
    wiring = graph.complete(10)
    weights, fields = rng.normal(size=wiring.n_edges), rng.normal(size=10)
    states = np.arange(2**10)[:, None] >> np.arange(10) & 1
    for first in (fields[0], 1000.0):
        fields[0] = first
        i, j = np.asarray(wiring.edges).T
        energies = -(states @ fields + (states[:, i] * states[:, j]) @ weights)
        model = Ising(jnp.asarray(scale * weights), jnp.asarray(scale * fields), wiring)
        found = anneal(model, restarts=16, sweeps=60, seed=0)
        np.testing.assert_array_equal(found.x, states[energies.argmin()])


def test_states_that_are_forbidden_have_no_part_in_the_temperatures():
    """Colours of a ring of 16 where one is worth 1e-3: at most every other unit may have it."""
    tables = {(i, (i + 1) % 16): 1 - np.eye(3) for i in range(16)}
    tables |= {(i,): np.exp([1e-3, 0, 0]) for i in range(16)}
    found = anneal(markov_network([3] * 16, tables), restarts=64, sweeps=300, seed=0)
    assert found.energy == pytest.approx(-8e-3, abs=2e-4)
