"""Learning of discrete networks: the tables of a given graph by exact likelihood, and the graph."""

from dataclasses import dataclass
from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from undirected.core.errors import UndirectedError
from undirected.core.numerics import HARD
from undirected.factors import MixedTables, Tables
from undirected.inference.elimination import table_list
from undirected.inference.networks.likelihood import Forbidden, Likelihood
from undirected.learning import FitResult
from undirected.learning.edges import chow_liu_edges, greedy_edges
from undirected.models import FactorGraph, markov_network
from undirected.tasks.network_data import Rows, declared, row_in_words

ITERATIONS = 500
"""Steps of L-BFGS at most."""
PENALTY = 0.01
"""Of the squares of all parameters, for all rows together: it keeps what was never met finite."""
NOISE = 0.1
"""Standard deviation that tells the states of hidden variables apart at the start."""

Vector = Float[np.ndarray, " p"]


@dataclass(frozen=True, eq=False)
class Parameters:
    """The unary terms and tables of a factor graph as one vector.

    Args:
        graph: the factor graph.
        scopes: the variables of each table: of single variables first, then of all factors.
        start: the parameters of the graph.
        free: which of them are learned; entries that forbid a state are not.
    """

    graph: FactorGraph
    scopes: list[tuple[int, ...]]
    start: Vector
    free: Bool[np.ndarray, " p"]

    @classmethod
    def of(cls, graph: FactorGraph) -> "Parameters":
        layout = graph.layout
        scopes: list[tuple[int, ...]] = [(v,) for v in range(len(layout.variables))]
        parts = [np.asarray(graph.unary, float)]
        for factor in graph.factors:
            if not isinstance(factor, Tables | MixedTables):
                raise UndirectedError(
                    f"fit: a group of {type(factor).__name__}; the exact likelihood takes tables"
                )
            scopes += [scope for scope, _ in table_list(factor, layout, 2**62)]
            parts.append(np.asarray(factor.weight, float).ravel())
        start = np.concatenate(parts)
        return cls(graph, scopes, start, start > -HARD)

    def tables(self, theta: Vector) -> list[Float[np.ndarray, "*states"]]:
        """The log table of every scope."""
        theta = np.where(self.free, theta, -np.inf)
        variables = self.graph.layout.variables
        found = []
        for first, width in zip(variables.first, variables.width, strict=True):
            own = theta[first : first + width]
            found.append(np.concatenate([[0.0], own]) if width == 1 else own)
        at = self.graph.layout.n
        for factor in self._groups():
            weight = theta[at : at + factor.weight.size].reshape(factor.weight.shape)
            at += factor.weight.size
            found += factor.each(weight)
        return found

    def gradient(self, tables: list[Float[np.ndarray, "*states"]]) -> Vector:
        """Derivatives by the parameters from those by the tables' entries."""
        variables = self.graph.layout.variables
        m = len(variables)
        parts = [own[-w:] for own, w in zip(tables[:m], variables.width, strict=True)]
        at = m
        for factor in self._groups():
            count = factor.wires.n_factors
            parts.append(factor.joined(tables[at : at + count]).ravel())
            at += count
        return np.where(self.free, np.concatenate(parts), 0.0)

    def graph_of(self, theta: Vector) -> FactorGraph:
        """The graph with these parameters."""
        theta = np.where(self.free, theta, self.start)
        dtype, at = self.graph.unary.dtype, self.graph.layout.n
        unary, factors = jnp.asarray(theta[:at], dtype), []
        for factor in self._groups():
            weight = theta[at : at + factor.weight.size].reshape(factor.weight.shape)
            at += factor.weight.size
            factors.append(eqx.tree_at(lambda f: f.weight, factor, jnp.asarray(weight, dtype)))
        return eqx.tree_at(lambda g: (g.unary, g.factors), self.graph, (unary, tuple(factors)))

    def _groups(self) -> list[Tables | MixedTables]:
        """The groups of tables."""
        return [f for f in self.graph.factors if isinstance(f, Tables | MixedTables)]


def is_network(model: Any) -> bool:
    """Whether a model is a factor graph of explicit tables alone."""
    return isinstance(model, FactorGraph) and all(
        isinstance(factor, Tables | MixedTables) for factor in model.factors
    )


def exact_likelihood(graph: FactorGraph, rows: Rows) -> Likelihood | None:
    """The likelihood of rows of states under a network; None where its tree does not fit."""
    sizes = graph.layout.variables.states.tolist()
    try:
        return Likelihood.of(sizes, Parameters.of(graph).scopes, rows)
    except UndirectedError:
        return None


def fit_exactly(
    graph: FactorGraph,
    likelihood: Likelihood,
    seed: int | None = None,
    iterations: int = ITERATIONS,
    penalty: float = PENALTY,
) -> FitResult:
    """Tables of largest likelihood by L-BFGS, whose gradient two passes over a tree give.

    Entries that forbid a state stay as they are. Where no row shows some variable the start gets a
    little noise: without it the states of that variable would stay alike.
    """
    from scipy.optimize import minimize

    own, rows = Parameters.of(graph), likelihood.count
    history: list[dict[str, float]] = []

    def loss(theta: Vector) -> tuple[float, Vector]:
        value, tables = likelihood(own.tables(theta))
        kept = np.where(own.free, theta, 0.0)
        history.append({"log_likelihood": value})
        return (
            0.5 * penalty / rows * float(kept @ kept) - value,
            penalty / rows * kept - own.gradient(tables),
        )

    hidden = np.all([(part.rows < 0).all(0) for part in likelihood.patterns], 0)
    noise = np.random.default_rng(seed).normal(0, NOISE, len(own.start)) if hidden.any() else 0.0
    settings = {"maxiter": iterations, "maxcor": 20, "ftol": 1e-13, "gtol": 1e-7}
    start = np.where(own.free, own.start + noise, 0.0)
    try:
        found = minimize(loss, start, jac=True, method="L-BFGS-B", options=settings)
    except Forbidden as error:
        raise Forbidden(error.row, row_in_words(graph.layout, error.row)) from None
    last = [{"step": float(i), **row} for i, row in enumerate(history)]
    model = own.graph_of(found.x)
    stopped = "converged" if found.status == 0 else "steps"
    return FitResult(model, model, int(found.nit), stopped, last, None, None, None)


def learn_network(
    data: Any,
    method: Literal["chow-liu", "pseudo-likelihood"] = "pseudo-likelihood",
    *,
    penalty: float | None = None,
    seed: int | None = None,
) -> FactorGraph:
    """A network over the columns of a table: its edges by a search, its tables by a fit.

    Args:
        data: `{name: column}` or a data frame; the entries of a column are the states of its
            variable, None or NaN where one is missing.
        method: "chow-liu" gives the tree of largest likelihood (with holes, of the pairs of entries
            that are there). "pseudo-likelihood" adds edges, those with the largest derivative
            first, as long as the pseudo-likelihood of the complete rows grows by more than the
            penalty.
        penalty: what a parameter of an edge costs; half the logarithm of rows times columns, an
            extended BIC, where it is None. Of a tree, edges that do not gain it are left out.
        seed: of the fit of tables that no exact one is possible for.

    Returns:
        A `FactorGraph` with a table for each edge, fitted by `fit`.

    Example:
        >>> import undirected as un
        >>> a = [0, 1] * 40
        >>> data = {"a": a, "b": ["yes" if x else "no" for x in a], "c": [0, 0, 1, 1] * 20}
        >>> net = un.learn_network(data)
        >>> round(un.query(net, given={"a": 1})["b"]["yes"], 1)
        1.0
    """
    from undirected.tasks.learn import fit

    words, rows = declared("learn_network", data)
    sizes = [len(own) for own in words.values()]
    cost = 0.5 * float(np.log(len(rows) * len(sizes))) if penalty is None else float(penalty)
    match method:
        case "chow-liu":
            edges = chow_liu_edges(rows, sizes, cost)
        case "pseudo-likelihood":
            edges = greedy_edges(rows, sizes, cost)
        case _:
            raise UndirectedError(
                f'learn_network: method {method!r:.40}; pass "chow-liu" or "pseudo-likelihood"'
            )
    names = list(words)
    tables = [((names[i], names[j]), np.ones((sizes[i], sizes[j]))) for i, j in edges]
    return fit(markov_network(words, tables), data, seed=seed).model
