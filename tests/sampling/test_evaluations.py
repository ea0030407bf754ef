"""What kernels say that a step computes, against counters inside of the models."""

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from undirected.core import graph
from undirected.core.errors import UndirectedError
from undirected.factors import Factor, Symmetric
from undirected.factors.base import Pairs
from undirected.inference import Exact, MaxProduct
from undirected.models import RBM, FactorGraph, Ising, discrete, tempered
from undirected.sampling import (
    Alternating,
    AnyScale,
    BlockGibbs,
    DiscreteLangevin,
    Gibbs,
    GibbsWithGradients,
    HammingBall,
    Houdayer,
    MultipleTry,
    ParallelTempering,
    PathAuxiliary,
    PerturbAndMap,
    SwendsenWang,
    TemperedTransitions,
    Wolff,
    gibbs,
    gibbs_with_gradients,
    scans,
)

CHAINS, N = 4, 5
SEEN: Counter[str] = Counter()


def tell(what, x, share=1.0):
    """Count the states of x, on the host, whenever a program comes by."""

    def add(x):
        SEEN[what] += share * np.prod(x.shape[:-1])

    jax.debug.callback(add, x)


class Counted(Factor):
    """Couplings of five units in a ring, which tell when they are asked."""

    weight: jax.Array
    pairwise: ClassVar[bool] = False

    @property
    def matrix(self):
        i = np.arange(N)
        half = jnp.zeros((N, N)).at[i, (i + 1) % N].set(self.weight)
        return half + half.T

    def statistic(self, layout, x):
        return type(self)(x * jnp.roll(x, -1))

    def value(self, layout, x):
        tell("energies", x)
        return 0.5 * (x * (x @ self.matrix)).sum(-1)

    def local_field(self, layout, x):
        tell("gradients", x)
        return x @ self.matrix

    def scopes(self, layout):
        return [np.stack([np.arange(N), (np.arange(N) + 1) % N], 1)]

    def pairs(self, layout):
        zero = jnp.zeros(layout.n)
        return Pairs(jnp.asarray(self.scopes(layout)[0]), self.weight, zero, zero.sum())


class CountedPairs(Counted):
    """The same, known to be quadratic."""

    pairwise = True


class CountedSymmetric(Symmetric):
    """Dense couplings that tell when they are asked."""

    def local_field(self, layout, x):
        tell("gradients", x)
        return super().local_field(layout, x)


class CountedRBM(RBM):
    """Conditionals that tell how many units they are of."""

    def conditional(self, block, x):
        tell("gradients", x, self.layout.blocks[block].size / self.layout.n)
        return super().conditional(block, x)


def ring(group):
    return FactorGraph.create(discrete(x=N), [group(jnp.linspace(-1.0, 1.0, N))], jnp.ones(N))


def dense():
    weight = np.random.default_rng(0).normal(size=(N, N))
    weight = jnp.asarray(np.triu(weight, 1) + np.triu(weight, 1).T, jnp.float32)
    return FactorGraph(jnp.ones(N), (CountedSymmetric(weight, 0),), jnp.zeros(()), discrete(x=N))


def counted(kernel, model):
    """Energies and gradients of one step of one chain."""
    x = jnp.zeros((CHAINS, model.layout.n))
    state, key = kernel.init(model, x, jax.random.key(0)), jax.random.key(1)
    jax.effects_barrier()
    SEEN.clear()
    found = eqx.filter_jit(kernel.step)(model, state, jnp.ones(model.layout.n, bool), key)
    jax.block_until_ready(found[0].x)
    jax.effects_barrier()
    return SEEN["energies"] / CHAINS, SEEN["gradients"] / CHAINS


LADDER = 1.0, 0.7, 0.3
KERNELS = [
    Gibbs(2),
    Gibbs(colours=(0, 1, 2, 3, 4)),
    GibbsWithGradients(3),
    DiscreteLangevin(updates=3),
    AnyScale(),
    PathAuxiliary(2, updates=2),
    MultipleTry(tries=3, updates=2),
    MultipleTry(tries=1),
    HammingBall(3, updates=2),
    HammingBall(3, radius=2),
    SwendsenWang(2),
    Wolff(),
    Houdayer(Gibbs()),
    ParallelTempering(Gibbs(), tempered, LADDER),
    TemperedTransitions(DiscreteLangevin(updates=2), tempered, LADDER),
    ParallelTempering(Houdayer(DiscreteLangevin()), tempered, LADDER),
]


@pytest.mark.parametrize("group", [Counted, CountedPairs])
@pytest.mark.parametrize(
    "kernel", KERNELS, ids=[f"{i}-{type(k).__name__}" for i, k in enumerate(KERNELS)]
)
def test_kernels_compute_what_they_say(kernel, group):
    model = ring(group)
    assert counted(kernel, model) == kernel.evaluations(model)


@dataclass(frozen=True)
class NoStart(DiscreteLangevin):
    """Broken: forgets what is computed before the first proposal."""

    def evaluations(self, model):
        return super().evaluations(model)._replace(gradients=self.updates)


@dataclass(frozen=True)
class OneWay(MultipleTry):
    """Broken: forgets the proposals of the way back."""

    def evaluations(self, model):
        return super().evaluations(model)._replace(gradients=1 + self.updates * self.tries)


@dataclass(frozen=True)
class OneColour(Gibbs):
    """Broken: counts a sweep of several colours as one gradient."""

    def evaluations(self, model):
        return super().evaluations(model)._replace(gradients=self.sweeps)


@pytest.mark.parametrize("kernel", [NoStart(), OneWay(), OneColour()], ids=str)
def test_the_counters_notice(kernel):
    model = ring(CountedPairs)
    assert counted(kernel, model) != kernel.evaluations(model)


def test_flips_of_dense_models_take_rows(monkeypatch):
    plain = gibbs_with_gradients.flip_sites

    def flip_sites(weight, slope, x, free, uniform):
        tell("gradients", x, uniform.shape[1] / N)
        return plain(weight, slope, x, free, uniform)

    monkeypatch.setattr(gibbs_with_gradients, "flip_sites", flip_sites)
    kernel, model = GibbsWithGradients(300), dense()
    np.testing.assert_allclose(counted(kernel, model), kernel.evaluations(model), rtol=1e-12)


def test_sites_of_sparse_graphs_ask_once(monkeypatch):
    plain = scans._neighbour_sum

    def neighbour_sum(graph, weight):
        pull = plain(graph, weight)

        def told(sites, x):
            jax.debug.callback(lambda s: SEEN.update(gradients=CHAINS * (s < N).sum() / N), sites)
            return pull(sites, x)

        return told

    monkeypatch.setattr(scans, "_neighbour_sum", neighbour_sum)
    model, kernel = Ising(jnp.ones(4), jnp.zeros(N), graph.chain(N)), Gibbs(2)
    np.testing.assert_allclose(counted(kernel, model), kernel.evaluations(model), rtol=1e-12)


def test_blocks_ask_once(monkeypatch):
    plain = gibbs._pull_between

    def pull_between(p, block, x):
        tell("gradients", x, block.size / p.layout.n)
        return plain(p, block, x)

    monkeypatch.setattr(gibbs, "_pull_between", pull_between)
    for model in (RBM.create(3, 2, seed=0), dense()):
        np.testing.assert_allclose(counted(Gibbs(3), model), Gibbs(3).evaluations(model))


@pytest.mark.parametrize("kernel", [BlockGibbs(2), BlockGibbs(order=("hidden",))], ids=str)
def test_conditionals_of_blocks_are_parts_of_a_gradient(kernel):
    model = CountedRBM(jnp.ones((3, 2)), jnp.zeros(3), jnp.zeros(2))
    np.testing.assert_allclose(counted(kernel, model), kernel.evaluations(model), rtol=1e-12)


def test_a_jump_counts_by_how_often_it_is_made():
    model = ring(Counted)
    kernel = Alternating(Gibbs(), DiscreteLangevin(updates=2), every=4)
    colours = Gibbs().evaluations(model).gradients
    assert kernel.evaluations(model) == (3 / 4, colours + 3 / 4)


def test_rounds_of_messages_count_as_gradients():
    model = Ising(jnp.ones(4), jnp.zeros(N), graph.chain(N))
    assert PerturbAndMap(MaxProduct(7)).evaluations(model) == (1, 7)
    with pytest.raises(UndirectedError, match="Exact makes no rounds"):
        PerturbAndMap(Exact(0.0)).evaluations(model)
