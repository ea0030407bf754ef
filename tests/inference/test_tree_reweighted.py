"""Tree-reweighted belief propagation: spanning trees by enumeration, bounds against the oracle."""

from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import oracle
from undirected.core import graph
from undirected.core.errors import UndirectedError
from undirected.core.potentials import clamp
from undirected.inference import TreeReweighted
from undirected.inference.tree_reweighted import appearance
from undirected.models import Ising

pytestmark = pytest.mark.usefixtures("x64")
N = 6


def spanning_trees(n, edges):
    """How often each edge is in a spanning tree, all trees counted one by one."""
    counts, trees = np.zeros(len(edges)), 0
    for chosen in combinations(range(len(edges)), n - 1):
        part = np.arange(n)
        for e in chosen:
            a, b = part[list(edges[e])]
            part[part == b] = a
        if (part == part[0]).all():
            counts[list(chosen)] += 1
            trees += 1
    return counts / trees


@pytest.mark.parametrize(
    "edges",
    [
        [(0, 1), (1, 2), (2, 3)],
        [(0, 1), (1, 2), (0, 2), (2, 3)],
        [(0, 1), (1, 2), (2, 3), (0, 3), (1, 3)],
        [(0, 1), (0, 1), (1, 2), (2, 3), (1, 3)],  # two factors on one pair
    ],
)
def test_appearance_counts_spanning_trees(edges):
    (got,) = appearance([np.array(edges)], 4)
    np.testing.assert_allclose(got, spanning_trees(4, edges), atol=1e-12)


def test_appearance_of_two_components_and_of_fields():
    pairs, fields = appearance([np.array([(0, 1), (2, 3), (3, 4), (2, 4)]), np.array([[0]])], 5)
    np.testing.assert_allclose(pairs, [1, 2 / 3, 2 / 3, 2 / 3], atol=1e-12)
    np.testing.assert_allclose(fields, [1])


def dense(seed):
    """Couplings of both signs, from weak to so strong that frustration rules."""
    rng = np.random.default_rng(seed)
    scale = rng.choice([0.2, 0.5, 1.0])
    couplings = np.triu(scale * rng.normal(size=(N, N)), 1)
    couplings = np.abs(couplings) if seed % 5 == 0 else couplings
    couplings = -np.abs(couplings) if seed % 5 == 1 else couplings
    fields = 0.5 * rng.normal(size=N)
    model = Ising.from_spins(jnp.asarray(couplings + couplings.T), jnp.asarray(fields))
    return model, oracle.spins(couplings, fields)


def gaps(routine):
    """log Z of the routine less the truth, of fifty models of one shape; all must converge."""
    found = []
    for seed in range(50):
        model, truth = dense(seed)
        beliefs = routine(model)
        assert bool(beliefs.converged), seed
        assert ((beliefs.unary >= 0) & (beliefs.unary <= 1)).all()
        found.append(float(beliefs.log_z) - truth.log_z)
    return np.array(found)


def test_log_z_is_an_upper_bound():
    plan = TreeReweighted.plan(dense(0)[0], 20_000, 1e-6)
    np.testing.assert_allclose(plan.appearance[0], 2 / N, atol=1e-12)
    found = gaps(plan)
    assert (found >= -1e-6).all()
    assert found.min() > 0.01 and np.median(found) < 2  # above the truth, and not out of reach


def test_belief_propagation_is_no_bound():
    """The broken twin: with every edge in every tree the same models are underestimated."""
    ones = TreeReweighted((jnp.ones(N * (N - 1) // 2),), 5000, None, 0.8)
    found = [float(ones(model).log_z) - truth.log_z for model, truth in map(dense, range(50))]
    assert min(found) < -0.1


def test_evidence_is_honoured():
    model, truth = dense(3)
    mask, x = np.arange(N) < 3, np.array([1.0, 0, 1, 0, 0, 0])
    p = clamp(model.lower(), jnp.asarray(mask), jnp.asarray(x))
    beliefs = TreeReweighted(None, 20_000, 1e-6)(p)
    given = truth.given(mask, x)
    np.testing.assert_allclose(beliefs.unary[:3], x[:3])
    assert given.log_z - 1e-6 <= float(beliefs.log_z) <= given.log_z + 3


def test_refusals_say_what_to_do():
    model = Ising(jnp.ones(4), jnp.zeros(4), graph.grid(2, 2))
    with pytest.raises(UndirectedError, match=r"\[3\] factors.*\[4\].*plan"):
        TreeReweighted((jnp.ones(3),))(model)
    with pytest.raises(UndirectedError, match="inside of jit.*plan"):
        jax.jit(lambda b: TreeReweighted()(Ising(model.weights, b, model.graph)).log_z)(model.bias)
    with pytest.raises(UndirectedError, match="damping 1"):
        TreeReweighted(damping=1.0)
