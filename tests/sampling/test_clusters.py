"""Cluster moves: their transition matrix from spins and bonds, goodness of fit, broken twins."""

from dataclasses import dataclass
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from tests import oracle
from tests.sampling import cases
from tests.sampling.kernels import step
from undirected.core import graph
from undirected.core.errors import UndirectedError, UnsupportedFactor
from undirected.factors.third_order import third_order
from undirected.models import FactorGraph, Ising, Potts
from undirected.models.markov import discrete
from undirected.sampling import ChainState, Gibbs, Houdayer, SwendsenWang, Wolff
from undirected.sampling.clusters import choose

DRAWS = 20_000


@dataclass(frozen=True)
class TooFewBonds(SwendsenWang):
    """Broken: bonds with probability 1 - exp(-K / 4)."""

    def bonds(self, both, key):
        return super().bonds(0.5 * both, key)


@dataclass(frozen=True)
class NoFields(SwendsenWang):
    """Broken: clusters change with even odds whatever their fields."""

    def cluster_gain(self, choice):
        return 0 * choice.gain


@dataclass(frozen=True)
class Eager(Wolff):
    """Broken: the cluster changes whatever its fields."""

    def changes(self, label, gain, key):
        return super().changes(label, 0 * gain, key)


@dataclass(frozen=True)
class ForgottenBoundary(Wolff):
    """Broken: only what a variable alone would gain counts, not the couplings inside."""

    def cluster_gain(self, choice):
        return choice.gain


def potts(wiring, states=3):
    """A Potts model with any couplings and fields, and its truth."""
    rng = np.random.default_rng(8)
    tables, fields = (
        rng.normal(size=(wiring.n_edges, states, states)),
        rng.normal(size=(wiring.n, states)),
    )
    edges = np.asarray(wiring.edges)

    def energy(x):
        one = x.reshape(wiring.n, states)
        pairs = sum(one[i] @ w @ one[j] for (i, j), w in zip(edges, tables, strict=True))
        return -pairs - (one * fields).sum()

    truth = oracle.enumerate_energy(energy, oracle.grouped_states([states] * wiring.n))
    order = [slice(states * i, states * (i + 1)) for i in range(wiring.n)]
    return cases.Case(Potts(jnp.asarray(tables), jnp.asarray(fields), wiring), truth, order)


def make(name):
    if name == "potts":
        return potts(graph.complete(3))
    if name == "potts of four":
        return potts(graph.chain(3), states=4)
    return cases.make(name)


def one_step_p_value(kernel, case):
    """Draws from the truth must still be draws from it after one step."""
    x = cases.exact_draws(case.truth, DRAWS, seed=5).astype(np.float32)
    state, info = step(kernel, case.model, x, np.ones(x.shape[1], bool), jax.random.key(6))
    assert 0.01 < float(info["flips"].mean()) < 0.9
    return cases.p_value(case.truth, state.x)


slow = pytest.mark.slow
NAMES = ["path", "dense", "rbm", "labelled rbm", "potts of four"]
VARIATIONS = [(SwendsenWang(), name) for name in NAMES] + [(Wolff(), "potts")]
KERNELS = [(SwendsenWang(), "odd torus"), (SwendsenWang(), "potts"), (Wolff(), "odd torus")]


@pytest.mark.parametrize(
    ("kernel", "name"), KERNELS + [pytest.param(*row, marks=slow) for row in VARIATIONS], ids=str
)
def test_one_step_keeps_draws_from_the_truth(kernel, name):
    assert one_step_p_value(kernel, make(name)) > cases.RATE


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        (TooFewBonds(), "odd torus"),
        (NoFields(), "path"),
        pytest.param(TooFewBonds(), "potts", marks=slow),
        pytest.param(Eager(), "odd torus", marks=slow),
        pytest.param(ForgottenBoundary(), "potts", marks=slow),
    ],
    ids=str,
)
def test_one_step_of_broken_kernels_is_caught(kernel, name):
    assert one_step_p_value(kernel, make(name)) < cases.RATE


def textbook_matrix(edges, couplings, fields, single=False):
    """P[s, s'] of Swendsen-Wang (or of Wolff, `single`) over spins, all bonds enumerated.

    Aligned spins (J s s' > 0) are bonded with probability 1 - exp(-2 |J|); a cluster keeps its
    spins with weight exp(sum h s) and turns them with exp(-sum h s).
    """
    n = len(fields)
    states = 2 * oracle.binary_states(n) - 1
    matrix = np.zeros((len(states), len(states)))
    for a, s in enumerate(states):
        aligned = couplings * s[edges[:, 0]] * s[edges[:, 1]] > 0
        chance = np.where(aligned, 1 - np.exp(-2 * np.abs(couplings)), 0)
        for bonds in product([False, True], repeat=len(edges)):
            weight = np.prod(np.where(bonds, chance, 1 - chance))
            if weight == 0:
                continue
            i, j = edges[np.array(bonds)].T
            count, part = connected_components(
                coo_array((np.ones(len(i)), (i, j)), (n, n)), directed=False
            )
            pull = np.array([(fields * s)[part == k].sum() for k in range(count)])
            if single:
                for site in range(n):
                    turned = np.where(part == part[site], -s, s)
                    taken = min(1.0, np.exp(-2 * pull[part[site]])) / n
                    matrix[a, code(turned)] += weight * taken
                    matrix[a, a] += weight * (1 / n - taken)
                continue
            for turn in product([False, True], repeat=count):
                share = np.prod(1 / (1 + np.exp(np.where(turn, 2 * pull, -2 * pull))))
                matrix[a, code(np.where(np.array(turn)[part], -s, s))] += weight * share
    return states, matrix


def code(spins):
    return int("".join("1" if s > 0 else "0" for s in spins), 2)


@pytest.mark.parametrize("kernel", [SwendsenWang(), Wolff()], ids=str)
def test_transition_matrix_is_the_textbook_one(kernel):
    """Every row of the matrix by a chi-square fit of 20,000 steps; rows together at rate 1e-5."""
    edges = np.array([(0, 1), (1, 2), (0, 2)])
    couplings, fields = np.array([0.6, -0.4, 0.9]), np.array([0.3, -0.5, 0.1])
    states, matrix = textbook_matrix(edges, couplings, fields, single=isinstance(kernel, Wolff))
    pi = np.exp(states @ fields + (states[:, edges[:, 0]] * states[:, edges[:, 1]]) @ couplings)
    flow = pi[:, None] * matrix
    np.testing.assert_allclose(flow, flow.T, atol=1e-12)  # the oracle is reversible
    wiring = graph.from_edges(3, edges)
    order = [np.flatnonzero((edges == e).all(1))[0] for e in np.asarray(wiring.edges)]
    model = Ising.from_spins(jnp.asarray(couplings[order]), jnp.asarray(fields), wiring)
    starts = np.repeat((states + 1) / 2, 20_000, 0).astype(np.float32)
    after = np.asarray(step(kernel, model, starts, np.ones(3, bool), jax.random.key(1))[0].x)
    ends = (after @ np.array([4, 2, 1])).astype(int).reshape(8, -1)
    scores, freedom = 0.0, 0
    for found, wanted in zip(ends, matrix, strict=True):
        counts = np.bincount(found, minlength=8)
        assert counts[wanted < 1e-12].sum() == 0
        seen, expected = counts[wanted > 0], 20_000 * wanted[wanted > 0]
        scores += ((seen - expected) ** 2 / expected).sum()
        freedom += len(seen) - 1
    assert stats.chi2.sf(scores, freedom) > cases.RATE
    assert stats.chi2.sf(scores + 60, freedom) < 0.1  # small enough to see a wrong row


@slow
@pytest.mark.parametrize(
    ("kernel", "name"), [(Wolff(80), "odd torus"), (SwendsenWang(40), "potts")], ids=str
)
def test_clamped_chains_reach_the_conditional(kernel, name):
    case = make(name)
    clamped = np.zeros(case.model.layout.n, bool)
    clamped[case.order[1]] = True
    evidence = case.truth.states[len(case.truth.states) // 3]
    x = cases.random_states(case.order, (3000,), np.random.default_rng(10)).astype(np.float32)
    x[:, clamped] = evidence[clamped]
    state, _ = step(kernel, case.model, x, ~clamped, jax.random.key(11))
    assert (np.asarray(state.x)[:, clamped] == evidence[clamped]).all()
    assert cases.p_value(case.truth.given(clamped, evidence), state.x) > cases.RATE


@pytest.mark.parametrize("name", ["dense", "labelled rbm"])
def test_what_other_states_gain_is_what_the_truth_says(x64, name):
    """Of one variable changed by itself, and of two beyond what each of them gains."""
    case = make(name)
    p, x = case.model.lower(), case.truth.states[2::7]
    found = choose(p, jnp.asarray(x), jax.random.key(3))
    weight = {tuple(s): w for s, w in zip(case.truth.states, case.truth.log_weights, strict=True)}
    begin, width = p.layout.variables.first, p.layout.variables.width
    place = [slice(a, a + k) for a, k in zip(begin.tolist(), width.tolist(), strict=True)]

    def value(c, *changed):
        state = x[c].copy()
        for v in changed:
            state[place[v]] = np.asarray(found.other)[c, place[v]]
        return weight[tuple(state)]

    for c in range(len(x)):
        gain = np.array([value(c, v) - value(c) for v in range(len(place))])
        np.testing.assert_allclose(found.gain[:, c], gain, atol=1e-10)
        both = [value(c, i, j) - value(c) - gain[i] - gain[j] for i, j in np.asarray(found.ends)]
        np.testing.assert_allclose(found.both[:, c], both, atol=1e-10)


def test_what_is_not_pairwise_is_refused():
    layout = discrete(x=3)
    group = third_order(layout, [[0, 1, 2]], 0.5)
    model = FactorGraph(jnp.zeros(3), (group,), jnp.zeros(()), layout)
    with pytest.raises(UnsupportedFactor, match="joins 3 variables"):
        step(SwendsenWang(), model, jnp.zeros((2, 3)), np.ones(3, bool), jax.random.key(0))


@dataclass(frozen=True)
class Still:
    """Moves nothing."""

    def init(self, model, x, key):
        return ChainState(jnp.asarray(x))

    def step(self, model, state, free, key):
        return state, {}


@dataclass(frozen=True)
class Splinter(Houdayer):
    """Broken: only the first half of the variables of a cluster are exchanged."""

    def clusters(self, p, differs, key):
        chosen = super().clusters(p, differs, key)
        return chosen & (np.arange(len(chosen)) < len(chosen) // 2)[:, None]


@pytest.mark.parametrize("name", ["odd torus", pytest.param("potts of four", marks=slow)])
def test_exchanged_clusters_keep_energies_and_draws(name):
    case = make(name)
    x = cases.exact_draws(case.truth, 3 * DRAWS, seed=5).astype(np.float32)
    free = np.ones(x.shape[1], bool)
    state, info = step(Houdayer(Still()), case.model, x, free, jax.random.key(6))
    assert cases.p_value(case.truth, state.x) > cases.RATE
    assert 0.05 < float(info["exchanged"].mean()) < 0.9
    before, after = (float(case.model.energy(jnp.asarray(a)).sum()) for a in (x, state.x))
    assert after == pytest.approx(before, rel=1e-5)
    one = np.asarray(case.model.energy(state.x) - case.model.energy(jnp.asarray(x)))
    assert np.abs(one).mean() > 0.1  # of each chain alone it changes
    broken, _ = step(Splinter(Still()), case.model, x, free, jax.random.key(6))
    assert cases.p_value(case.truth, broken.x) < cases.RATE


@slow
def test_held_variables_are_not_exchanged():
    case = make("odd torus")
    x = cases.random_states(case.order, (3001,), np.random.default_rng(1)).astype(np.float32)
    free = np.random.default_rng(2).random(x.shape) < 0.8
    state, _ = step(Houdayer(Gibbs()), case.model, x, free, jax.random.key(3))
    assert (np.asarray(state.x)[~free] == x[~free]).all()
    assert (np.asarray(state.x) != x).mean() > 0.2
    with pytest.raises(UndirectedError, match="two or more"):
        Houdayer(Gibbs()).init(case.model, jnp.zeros((1, 9)), jax.random.key(0))
