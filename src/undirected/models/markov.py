"""Markov networks: a list of tables over named variables, as a factor graph."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from undirected.core import factors
from undirected.core.errors import UndirectedError
from undirected.core.numerics import NEG_INF
from undirected.core.wiring import Variables
from undirected.models.factor_graph import FactorGraph, discrete


def markov_network(
    cardinalities: Sequence[int], scopes: Sequence[Sequence[int]], tables: Sequence[ArrayLike]
) -> tuple[FactorGraph, Int[np.ndarray, " variables"]]:
    """p(x) ∝ ∏_k tables[k][x[scopes[k]]] as a factor graph, and the numbers of its variables.

    A table has one axis for each variable of its scope, and weights, not logarithms; 0 forbids a
    state. Variables of as many states are joined to a block: what is variable i of the network is
    variable `number[i]` of the graph. Tables of like shapes become one factor group, those of
    single variables fields.
    """
    states = np.asarray(cardinalities, int)
    if states.ndim != 1 or not len(states) or (states < 1).any():
        raise UndirectedError(
            f"markov_network: cardinalities are {cardinalities}; pass the number of states of "
            "each variable, at least one variable of at least 1"
        )
    kept = np.maximum(states, 2)  # a variable of one state has another that is forbidden
    number = np.argsort(np.argsort(kept, kind="stable"), kind="stable")
    sizes, counts = np.unique(kept, return_counts=True)
    layout = discrete(
        **{f"states{k}": (int(m), int(k)) for k, m in zip(sizes, counts, strict=True)}
    )
    first = Variables.of(layout).first[number]
    unary, offset = np.zeros(layout.n), 0.0
    unary[first[states == 1]] = NEG_INF
    groups: dict[tuple[int, ...], tuple[list, list]] = {}
    for k, (scope, table) in enumerate(zip(scopes, tables, strict=True)):
        logs = _logs(k, states, scope, table)
        offset, logs = offset + logs.max(), logs - logs.max()
        several = [v for v in scope if states[v] > 1]
        logs = logs.reshape([states[v] for v in several])
        axes = sorted(range(len(several)), key=lambda i: states[several[i]])
        several, logs = [several[i] for i in axes], logs.transpose(axes)
        if len(several) == 1 and np.isfinite(logs).all():
            at = first[several[0]]
            if len(logs) == 2:
                unary[at] += logs[1] - logs[0]
                offset += logs[0]
            else:
                unary[at : at + len(logs)] += logs
        elif several:
            joined = groups.setdefault(logs.shape, ([], []))
            joined[0].append(number[several])
            joined[1].append(logs)
    found = [factors.tables(layout, np.stack(s), np.stack(w)) for s, w in groups.values()]
    graph = FactorGraph.create(layout, found, jnp.asarray(unary))
    return eqx.tree_at(lambda g: g.offset, graph, jnp.asarray(offset, graph.unary.dtype)), number


def _logs(
    k: int, states: Int[np.ndarray, " variables"], scope: Sequence[int], table: ArrayLike
) -> Float[np.ndarray, "*states"]:
    """The logarithm of table k, which must fit its scope and leave a state."""
    weights = np.asarray(table, float)
    if len(set(scope)) < len(scope) or any(not 0 <= v < len(states) for v in scope):
        raise UndirectedError(
            f"markov_network: table {k} is on variables {tuple(scope)}; pass different ones of "
            f"0 to {len(states) - 1}"
        )
    wanted = tuple(int(states[v]) for v in scope)
    if weights.shape != wanted:
        raise UndirectedError(
            f"markov_network: table {k} has shape {weights.shape}; its variables "
            f"{tuple(scope)} ask for {wanted}"
        )
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        raise UndirectedError(
            f"markov_network: table {k} has entries that are negative, NaN or infinite, or only "
            "zeros; pass weights of which one is above 0"
        )
    with np.errstate(divide="ignore"):
        return np.log(weights)
