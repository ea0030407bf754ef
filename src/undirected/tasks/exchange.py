"""Models of other libraries in, and models out to them, with names and weights.

None of those libraries is imported to read: their objects are known by what they offer. To write,
networkx or dimod is imported where it is used.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from undirected.core.errors import UndirectedError, kind_told
from undirected.core.potentials import lowered
from undirected.factors import Edges, Symmetric
from undirected.models import FactorGraph, markov_network, quadratic_model


class Pairwise(NamedTuple):
    """-E = sum_i bias_i x_i + sum_ij weight_ij x_i x_j + offset over named 0/1 variables."""

    bias: dict[Hashable, float]
    weight: dict[tuple[Hashable, Hashable], float]
    offset: float


def from_networkx(graph: Any, weight: str = "weight", bias: str = "bias") -> FactorGraph:
    """A model of 0/1 variables from a networkx graph: edges couple, nodes have biases.

    Args:
        graph: an undirected networkx graph.
        weight: the attribute of an edge that holds w of w x_i x_j; 1 where it is absent.
        bias: the attribute of a node that holds b of b x_i; 0 where it is absent.

    Returns:
        A `FactorGraph` whose variables answer to the names of the nodes; what raises -E is
        probable.

    Example:
        >>> import networkx, undirected as un
        >>> graph = networkx.Graph()
        >>> graph.add_edge("rain", "umbrella", weight=2.0)
        >>> un.query(un.from_networkx(graph), given={"rain": 1})
        {'umbrella': {0: 0.1192029, 1: 0.8807971}}
    """
    wanted = "an undirected networkx.Graph"
    _check_kind("from_networkx", graph, wanted, "is_directed", "is_multigraph", "nodes", "edges")
    if graph.is_directed() or graph.is_multigraph():
        raise UndirectedError(
            "from_networkx: the graph is directed or has parallel edges; pass an undirected, "
            "simple one, as networkx.Graph(graph) makes it"
        )
    linear = {
        node: -_number(f"from_networkx: the {bias} of {node!r:.40}", data.get(bias, 0.0))
        for node, data in graph.nodes(data=True)
    }
    pairs = {
        (a, b): -_number(f"from_networkx: the {weight} of {(a, b)!r:.40}", data.get(weight, 1.0))
        for a, b, data in graph.edges(data=True)
    }
    loops = [a for a, b in pairs if a == b]
    if loops:
        raise UndirectedError(
            f"from_networkx: {loops[0]!r} has an edge to itself; put it into its {bias}"
        )
    return quadratic_model(linear, pairs)


def to_networkx(model: Any, names: Sequence[Hashable] | None = None) -> Any:
    """The couplings and biases of a model of pairs as a networkx graph.

    Args:
        model: of 0/1 variables without hidden ones and with couplings of pairs alone, such as an
            `Ising` model or a `quadratic_model`.
        names: of the nodes; by default the names of the variables, or their numbers.

    Returns:
        A `networkx.Graph` with `bias` on nodes, `weight` on edges and `offset` on itself.

    Example:
        >>> import undirected as un
        >>> graph = un.to_networkx(un.Ising.from_spins([0.5], [0, 0], un.graph.chain(2)), "ab")
        >>> dict(graph.edges)["a", "b"]["weight"]
        2.0
    """
    import networkx

    found = as_pairwise("to_networkx", model, names)
    graph = networkx.Graph(offset=found.offset)
    graph.add_nodes_from((name, {"bias": value}) for name, value in found.bias.items())
    graph.add_edges_from((a, b, {"weight": value}) for (a, b), value in found.weight.items())
    return graph


def from_bqm(bqm: Any) -> FactorGraph:
    """The model whose energy is that of a dimod binary quadratic model, at temperature 1.

    Args:
        bqm: a `dimod.BinaryQuadraticModel`, or anything with its linear, quadratic, offset and
            vartype.

    Returns:
        A `FactorGraph` whose variables answer to their names: 0 and 1, or -1 and 1 for spins.

    Example:
        >>> import types, undirected as un
        >>> spin = types.SimpleNamespace(name="SPIN")
        >>> bqm = types.SimpleNamespace(linear={"a": -1.0}, quadratic={}, offset=0.0, vartype=spin)
        >>> un.query(un.from_bqm(bqm))
        {'a': {-1: 0.1192029, 1: 0.8807971}}
    """
    wanted = "a dimod.BinaryQuadraticModel"
    _check_kind("from_bqm", bqm, wanted, "linear", "quadratic", "offset", "vartype")
    vartype = getattr(bqm.vartype, "name", str(bqm.vartype))
    if vartype not in ("SPIN", "BINARY"):
        raise UndirectedError(f"from_bqm: the vartype is {vartype!r}; wanted SPIN or BINARY")
    linear = {name: float(value) for name, value in bqm.linear.items()}
    pairs = {tuple(pair): float(value) for pair, value in bqm.quadratic.items()}
    return quadratic_model(linear, pairs, float(bqm.offset), spins=vartype == "SPIN")


def to_bqm(model: Any, names: Sequence[Hashable] | None = None) -> Any:
    """The energy of a model of pairs as a dimod binary quadratic model of 0/1 variables.

    Args:
        model: of 0/1 variables without hidden ones and with couplings of pairs alone.
        names: of the variables; by default those of the model, or their numbers.

    Returns:
        A `dimod.BinaryQuadraticModel`; dimod must be installed.

    Example:
        >>> import importlib.util, undirected as un
        >>> found = importlib.util.find_spec("dimod")
        >>> bqm = un.to_bqm(un.Ising.create(2), "ab") if found else None
        >>> found is None or bqm.num_variables == 2
        True
    """
    found = as_pairwise("to_bqm", model, names)
    try:
        import dimod  # type: ignore[import-not-found]
    except ImportError as error:
        raise ImportError("to_bqm: dimod is not installed; pip install dimod") from error
    linear = {name: -value for name, value in found.bias.items()}
    pairs = {pair: -value for pair, value in found.weight.items()}
    return dimod.BinaryQuadraticModel(linear, pairs, -found.offset, dimod.BINARY)


def from_pgmpy(network: Any) -> FactorGraph:
    """The same distribution as a discrete Bayesian or Markov network of pgmpy.

    Args:
        network: with `get_cpds` or `get_factors`, whose tables have `variables`, `values` and
            perhaps `state_names`.

    Returns:
        A `FactorGraph` whose variables answer to their names and states.

    Example:
        >>> import types, numpy as np, undirected as un
        >>> table = types.SimpleNamespace(
        ...     variables=["coin"],
        ...     values=np.array([0.3, 0.7]),
        ...     state_names={"coin": ["heads", "tails"]},
        ... )
        >>> un.query(un.from_pgmpy(types.SimpleNamespace(get_factors=lambda: [table])))
        {'coin': {'heads': 0.3, 'tails': 0.7}}
    """
    if not hasattr(network, "get_cpds"):
        wanted = "a discrete Bayesian or Markov network of pgmpy"
        _check_kind("from_pgmpy", network, wanted, "get_factors")
    cpds = network.get_cpds() if hasattr(network, "get_cpds") else None
    tables = cpds if cpds is not None else network.get_factors()
    tables = [table.to_factor() if hasattr(table, "to_factor") else table for table in tables]
    if not tables:
        raise UndirectedError("from_pgmpy: the network has no tables; add its CPDs or factors")
    states: dict[Hashable, Any] = {}
    factors = []
    for table in tables:
        values, names = np.asarray(table.values, float), list(table.variables)
        said: Mapping[Hashable, Any] = getattr(table, "state_names", None) or {}
        for axis, name in enumerate(names):
            words = list(said.get(name, range(values.shape[axis])))
            if states.setdefault(name, words) != words:
                raise UndirectedError(
                    f"from_pgmpy: {name!r} has the states {states[name]} in one table and {words} "
                    "in another; give them one order"
                )
        factors.append((tuple(names), values))
    return markov_network(states, factors)


def _check_kind(caller: str, model: Any, wanted: str, *offered: str) -> None:
    """Refuse what lacks something that such models offer."""
    lacks = [name for name in offered if not hasattr(model, name)]
    if isinstance(model, type) or lacks:
        raise UndirectedError(f"{caller}: got {kind_told(model)}; pass {wanted}")


def _number(what: str, value: Any) -> float:
    """A finite number."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = np.nan
    if not np.isfinite(found):
        raise UndirectedError(f"{what} is {value!r:.40}; wanted a finite number")
    return found


def as_pairwise(caller: str, model: Any, names: Sequence[Hashable] | None = None) -> Pairwise:
    """The biases and couplings of a model of pairs by name."""
    p = lowered(caller, model)
    if not p.layout.is_binary or p.layout.n_visible != p.layout.n:
        raise UndirectedError(f"{caller}: wanted 0/1 variables, and none that are hidden")
    if np.asarray(p.evidence).any():
        raise UndirectedError(
            f"{caller}: some variables are held by evidence, which biases cannot say; pass the "
            "model without it"
        )
    own = _names(p.layout) if names is None else list(names)
    if len(own) != p.layout.n or len(set(own)) < len(own):
        raise UndirectedError(
            f"{caller}: {len(own)} names for {p.layout.n} variables; pass one for each, all "
            "different"
        )
    weight: dict[tuple[Hashable, Hashable], float] = {}
    for group in p.factors:
        for i, j, value in _couplings(caller, group):
            weight[own[i], own[j]] = weight.get((own[i], own[j]), 0.0) + value
    bias = dict(zip(own, np.asarray(p.unary, float).tolist(), strict=True))
    return Pairwise(bias, weight, float(p.offset))


def _names(layout: Any) -> list[Hashable]:
    """The names of the variables in the order of their units."""
    return list(range(layout.n)) if layout.labels is None else list(layout.labels.names)


def _couplings(caller: str, group: Any) -> list[tuple[int, int, float]]:
    if isinstance(group, Edges):
        edges, values = np.asarray(group.graph.edges), np.asarray(group.weight, float)
        return [(int(i), int(j), float(w)) for (i, j), w in zip(edges, values, strict=True)]
    if isinstance(group, Symmetric):
        matrix = np.asarray(group.weight, float)
        rows, columns = np.nonzero(np.triu(matrix + matrix.T, 1))
        values = (matrix + matrix.T)[rows, columns] / 2
        return list(zip(rows.tolist(), columns.tolist(), values.tolist(), strict=True))
    raise UndirectedError(
        f"{caller}: the model has a {type(group).__name__} group, which is not of pairs of "
        "variables"
    )
