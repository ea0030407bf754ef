"""Small models with their enumerated truth: one row here puts a model into every matrix of tests.

A row is a function of a seed that gives (model, truth); the truth is computed by the oracle from
plain NumPy copies of the parameters.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests import oracle
from undirected.core import graph
from undirected.models import RBM, Ising, MixtureRBM, Potts, SemiRestrictedBM

Case = tuple[Any, oracle.Truth]


def _normal(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> jax.Array:
    return jnp.asarray(scale * rng.normal(size=shape))


def rbm(seed: int) -> Case:
    rng = np.random.default_rng(seed)
    parts = _normal(rng, 5, 3), _normal(rng, 5), _normal(rng, 3)
    return RBM(*parts), oracle.rbm(*parts)


def wide_rbm(seed: int) -> Case:
    """More hidden than visible units."""
    rng = np.random.default_rng(seed)
    parts = _normal(rng, 3, 6), _normal(rng, 3), _normal(rng, 6)
    return RBM(*parts), oracle.rbm(*parts)


def label_rbm(seed: int) -> Case:
    """Three binary visibles and a softmax label of three states."""
    rng = np.random.default_rng(seed)
    parts = _normal(rng, 6, 4), _normal(rng, 6), _normal(rng, 4)
    return RBM(*parts, label_states=3), oracle.rbm(*parts, label_states=3)


def only_label_rbm(seed: int) -> Case:
    """A softmax label and hiddens, nothing else."""
    rng = np.random.default_rng(seed)
    parts = _normal(rng, 4, 3), _normal(rng, 4), _normal(rng, 3)
    return RBM(*parts, label_states=4), oracle.rbm(*parts, label_states=4)


def semi_restricted(seed: int) -> Case:
    """Three coupled pixels, and a softmax label of three states that only the hiddens see.

    What lies on and below the diagonal of the lateral weights must not count.
    """
    rng = np.random.default_rng(seed)
    parts = _normal(rng, 6, 2), _normal(rng, 6), _normal(rng, 2)
    lateral = _normal(rng, 3, 3)
    truth = oracle.semi_restricted(*parts, lateral, label_states=3)
    return SemiRestrictedBM(RBM(*parts, label_states=3), lateral), truth


def mixture_rbm(seed: int) -> Case:
    """Binary hiddens and a component of three states."""
    rng = np.random.default_rng(seed)
    parts = (_normal(rng, *shape) for shape in ((4, 2), (4, 3), (4,), (2,), (3,)))
    weights, components, *biases = parts
    truth = oracle.mixture_rbm(weights, components, *biases)
    return MixtureRBM(weights, components, *biases), truth


def dense_ising(seed: int) -> Case:
    """A full matrix, given unsymmetric and with a diagonal that must not count."""
    rng = np.random.default_rng(seed)
    weights, bias = _normal(rng, 7, 7), _normal(rng, 7)
    matrix = np.asarray(weights)
    truth = oracle.pairwise(0.5 * (matrix + matrix.T), bias, 0.3)
    return Ising(weights, bias, None, jnp.asarray(0.3)), truth


def torus_ising(seed: int) -> Case:
    """An odd torus: three colours, many loops."""
    return _sparse(graph.torus(3, 3), seed)


def tree_ising(seed: int) -> Case:
    edges = [(0, 1), (0, 2), (2, 3), (2, 4), (4, 5), (1, 6)]
    return _sparse(graph.from_edges(8, edges), seed)


def star_ising(seed: int) -> Case:
    """A hub and isolated units: degrees too uneven for a table."""
    return _sparse(graph.from_edges(12, [(0, i) for i in range(1, 4)]), seed)


def spin_ising(seed: int) -> Case:
    """Given in the {-1, 1} convention."""
    rng = np.random.default_rng(seed)
    where = graph.grid(2, 4)
    couplings, fields = _normal(rng, where.n_edges), _normal(rng, 8)
    truth = oracle.spins(oracle.edge_matrix(8, where.edges, couplings), fields)
    return Ising.from_spins(couplings, fields, where), truth


def potts(seed: int) -> Case:
    """Four variables of three states, three of them in a triangle."""
    rng = np.random.default_rng(seed)
    where = graph.from_edges(4, [(0, 1), (1, 2), (0, 2), (2, 3)])
    couplings, fields = _normal(rng, 4, 3, 3), _normal(rng, 4, 3)
    return Potts(couplings, fields, where, 0.3), oracle.potts(couplings, fields, where.edges, 0.3)


def _sparse(where: graph.Graph, seed: int) -> Case:
    rng = np.random.default_rng(seed)
    weights, bias = _normal(rng, where.n_edges), _normal(rng, where.n)
    truth = oracle.pairwise(oracle.edge_matrix(where.n, where.edges, weights), bias)
    return Ising(weights, bias, where), truth


CASES: dict[str, Callable[[int], Case]] = {
    f.__name__: f
    for f in (
        rbm,
        wide_rbm,
        label_rbm,
        only_label_rbm,
        semi_restricted,
        mixture_rbm,
        dense_ising,
        torus_ising,
        tree_ising,
        star_ising,
        spin_ising,
        potts,
    )
}
SOME = [
    "rbm",
    "label_rbm",
    "semi_restricted",
    "dense_ising",
    "torus_ising",
    "potts",
    "mixture_rbm",
]
"""A case of every kind; the others are variations."""
