"""Which sampler is chosen, and that its draws are those of the model."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import undirected as un
from undirected.factors import tables
from undirected.sampling import Alternating, BlockGibbs, Gibbs, MixedGibbs, SwendsenWang
from undirected.tasks.sampler import (
    Couplings,
    Sampler,
    couplings,
    is_unfrustrated,
    largest_influence,
    tree_work,
)

STRONG = 3.0


def magnet(coupling: float | np.ndarray, graph: un.Graph, fields: float | np.ndarray = 0.0):
    """Spins with one coupling, or one for every edge."""
    J = np.broadcast_to(coupling, len(graph.edges))
    return un.Ising.from_spins(J, np.broadcast_to(fields, graph.n), graph)


def chain_moments(fields: np.ndarray, coupling: float) -> tuple[np.ndarray, np.ndarray]:
    """Means of the spins and of neighbours' products, by enumeration."""
    spins = np.array(list(itertools.product([-1, 1], repeat=len(fields))))
    weights = np.exp(spins @ fields + coupling * (spins[:, 1:] * spins[:, :-1]).sum(1))
    weights /= weights.sum()
    return weights @ spins, weights @ (spins[:, 1:] * spins[:, :-1])


def strong_chain() -> tuple[un.Ising, np.ndarray]:
    fields = np.linspace(-0.2, 0.1, 8)
    return magnet(STRONG, un.graph.chain(8), fields), fields


def test_a_narrow_graph_is_drawn_from_exactly():
    """4,000 draws, a fixed seed, 5 standard errors: Gibbs from random states in one sweep fails."""
    model, fields = strong_chain()
    assert un.choose_sampler(model).kernel is None
    want, want_pairs = chain_moments(fields, STRONG)
    near = 5 / np.sqrt(4000)

    def misses(kernel=None) -> bool:
        s = 2.0 * un.sample(model, 4000, sweeps=1, kernel=kernel, seed=0) - 1
        pairs = (s[:, 1:] * s[:, :-1]).mean(0)
        return bool(
            np.abs(s.mean(0) - want).max() > near or np.abs(pairs - want_pairs).max() > 0.02
        )

    assert not misses()
    assert misses(Gibbs())


def test_what_is_given_is_kept_and_narrows_the_graph():
    torus = magnet(0.44, un.graph.torus(12, 12))
    given = np.full(144, np.nan)
    given[::2] = 1
    given[:12] = 0
    assert un.choose_sampler(torus).kernel is not None
    assert un.choose_sampler(torus, given).kernel is None
    drawn = un.sample(torus, 20, given=given, seed=0)
    seen = ~np.isnan(given)
    assert (drawn[:, seen] == given[seen]).all()
    free = drawn[:, ~seen]
    assert 0 < free.mean() < 1


def test_a_strong_magnet_moves_by_clusters_and_a_weak_one_does_not():
    def chosen(coupling, side=16) -> Sampler:
        return un.choose_sampler(magnet(coupling, un.graph.torus(side, side)))

    strong, weak = chosen(0.44), chosen(0.2)
    assert isinstance(strong.kernel, Alternating)
    assert isinstance(strong.kernel.jump, SwendsenWang)
    assert isinstance(weak.kernel, Gibbs)
    assert "0.79" in weak.why  # 4 tanh(0.2)
    against = chosen(-0.44)  # neighbours differ, and sides are even: no cycle is frustrated
    assert isinstance(against.kernel, Alternating)
    assert isinstance(chosen(-0.44, side=15).kernel, Gibbs)


def test_frustrated_couplings_are_told():
    graph = un.graph.torus(16, 16)
    signs = np.random.default_rng(0).choice([-1.0, 1.0], len(graph.edges))
    glass = un.choose_sampler(magnet(signs, graph))
    assert isinstance(glass.kernel, Gibbs)
    assert "frustrated" in glass.why


@pytest.mark.parametrize(("coupling", "kernel"), [(1.1, Alternating), (0.3, Gibbs), (-1.1, Gibbs)])
def test_potts_models(coupling, kernel):
    potts = un.Potts.standard(un.graph.torus(16, 16), states=3, coupling=coupling)
    assert isinstance(un.choose_sampler(potts).kernel, kernel)


def test_blocks_stay_blocks_and_small_ones_are_exact():
    assert isinstance(un.choose_sampler(un.RBM.create(60, 50, seed=0)).kernel, BlockGibbs)
    assert un.choose_sampler(un.RBM.create(20, 4, seed=0)).kernel is None
    assert isinstance(un.choose_sampler(un.RBM.create(784, 500, seed=0)).kernel, BlockGibbs)
    real = un.MixedRBM.create(["real", "binary"], 40, seed=0)
    assert isinstance(un.choose_sampler(real).kernel, MixedGibbs)


def test_an_exact_draw_has_hidden_units_too():
    """The joint states of a small RBM: frequencies of 20,000 draws, 5 standard errors."""
    model = un.RBM.create(3, 2, seed=0, scale=2.0)
    x = np.asarray(un.choose_sampler(model).draw(20_000, jax.random.key(0)))
    states = np.array(list(itertools.product([0.0, 1.0], repeat=5)))
    want = np.exp(-np.asarray(model.energy(jnp.asarray(states)), float))
    want /= want.sum()
    got = np.array([(x == state).all(1).mean() for state in states])
    assert (np.abs(got - want) < 5 * np.sqrt(want / 20_000) + 1e-3).all()


def test_influence_bounds_what_a_neighbour_changes():
    """Total variation by enumeration, over fields that were drawn, never exceeds tanh(K / 4)."""
    rng, closest = np.random.default_rng(0), 0.0
    for _ in range(30):
        table = 2 * rng.normal(size=(3, 3))
        layout = un.discrete(x=(2, 3))
        graph = un.FactorGraph.create(layout, [tables(layout, [[0, 1]], table[None])])
        found = couplings(graph.lower())
        bound = largest_influence(found, 2)
        for fields in 3 * rng.normal(size=(200, 3)):
            p = np.exp(table + fields[:, None])
            p /= p.sum(0)
            change = max(0.5 * np.abs(p[:, a] - p[:, b]).sum() for a in range(3) for b in range(3))
            assert change <= bound + 1e-6
            closest = max(closest, change / bound)
    assert closest > 0.9, "the bound is nearly met"


def test_frustration_is_that_of_the_best_state():
    """By enumeration on small random graphs: some state satisfies all couplings, or none does."""
    rng, seen = np.random.default_rng(0), set()
    for _ in range(60):
        ends = np.array([e for e in itertools.combinations(range(5), 2) if rng.random() < 0.5])
        if not len(ends):
            continue
        sign = rng.choice([-1, 1], len(ends))
        spins = np.array(list(itertools.product([-1, 1], repeat=5)))
        satisfied = (sign * spins[:, ends[:, 0]] * spins[:, ends[:, 1]] > 0).all(1).any()
        assert is_unfrustrated(Couplings(ends, np.ones(len(ends)), sign), 5) == satisfied
        seen.add(bool(satisfied))
    assert seen == {True, False}


def test_the_work_of_a_tree_is_counted():
    chain = magnet(1.0, un.graph.chain(100)).lower()
    work = tree_work(chain)
    assert work is not None
    assert np.log2(99 * 4) <= work <= np.log2(100 * 4) + 0.1
    assert tree_work(un.RBM.create(100, 80, seed=0).lower()) is None


@pytest.mark.parametrize("field", [-3000.0, 3000.0])
def test_large_fields_exclude_no_state(field):
    """A field that all states of a variable share changes no draw, nor does that of a held one."""
    layout = un.discrete(y=(3, 3))
    far = un.FactorGraph.create(layout, [un.potts(layout, np.eye(3))], np.full(9, field))
    near = un.FactorGraph.create(layout, [un.potts(layout, np.eye(3))])
    assert tree_work(far.lower()) == tree_work(near.lower()) > 0
    np.testing.assert_array_equal(un.sample(far, 20, seed=0), un.sample(near, 20, seed=0))
    ising = un.Ising(jnp.zeros((3, 3)), jnp.array([field, 0.0, 1.0]))
    assert (un.sample(ising, 5, given={0: 1}, seed=0)[:, 0] == 1).all()


@pytest.mark.parametrize("model", [un.Ising.create(3), un.RBM.create(40, 40)], ids=["few", "many"])
@pytest.mark.parametrize("count", [10**13, 10**20])
def test_samples_that_fit_nowhere_are_refused(model, count):
    with pytest.raises(un.UndirectedError, match=r"samples of .* GiB.*pass a count of"):
        un.sample(model, count)
