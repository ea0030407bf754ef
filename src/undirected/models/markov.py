"""Markov networks: tables over named variables, as a factor graph that answers by those names."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from undirected.core.errors import UndirectedError
from undirected.core.layout import Labels, Layout
from undirected.core.memory import MOST_UNITS
from undirected.core.numerics import NEG_INF
from undirected.factors import Factor, mixed_tables, tables
from undirected.factors.mixed_tables import size_classes
from undirected.models.factor_graph import FactorGraph, discrete

Scope = Sequence[Hashable]


def markov_network(
    variables: Mapping[Hashable, int | Sequence[Hashable]] | Sequence[int],
    factors: Mapping[Any, ArrayLike] | Iterable[tuple[Scope, ArrayLike]],
) -> FactorGraph:
    """p(x) ∝ ∏ table[x[scope]] as a factor graph whose variables keep their names.

    Args:
        variables: `{name: number of states}` or `{name: [state, ...]}`, or a list of numbers of
            states, whose variables are then called 0, 1, ...
        factors: `{scope: table}` or pairs (scope, table). A scope is a tuple of names, or one name.
            A table has one axis for each name of its scope, and holds weights, not logarithms; a
            weight of 0 forbids a state.

    Returns:
        A `FactorGraph`. Variables with the same number of states stand together in one block, so
        that their numbers may differ from the order given; `layout.names` is in the order given.

    Example:
        >>> import undirected as un
        >>> net = un.markov_network({"rain": 2, "sky": ["clear", "dark"]},
        ...                         {("rain", "sky"): [[8, 2], [1, 3]]})
        >>> un.query(net, given={"sky": "dark"})["rain"]
        {0: 0.4, 1: 0.6}
    """
    words, states = _declared(variables)
    layout, number = _layout(words, states)
    first = layout.variables.first
    unary, offset = np.zeros(layout.n), 0.0
    unary[first[number[states == 1]]] = NEG_INF
    groups: dict[tuple[int, ...], tuple[list, list]] = {}
    listed = _listed(factors)
    place = {name: i for i, name in enumerate(words)}
    sizes, numbers = states.tolist(), number.tolist()
    for k, (scope, table) in enumerate(listed):
        own = _places(k, place, scope)
        logs, top = _logs(k, own, sizes, table)
        offset += top
        several = [v for v in own if sizes[v] > 1]
        logs = logs.reshape([sizes[v] for v in several])
        axes = sorted(range(len(several)), key=lambda i: sizes[several[i]])
        several, logs = [several[i] for i in axes], logs.transpose(axes)
        if len(several) == 1 and np.isfinite(logs).all():
            at = first[number[several[0]]]
            if len(logs) == 2:
                unary[at] += logs[1] - logs[0]
                offset += logs[0]
            else:
                unary[at : at + len(logs)] += logs
        elif several:
            joined = groups.setdefault(logs.shape, ([], []))
            joined[0].append([numbers[v] for v in several])
            joined[1].append(logs)
    found = _grouped(layout, groups)
    graph = FactorGraph.create(layout, found, jnp.asarray(unary))
    return eqx.tree_at(lambda g: g.offset, graph, jnp.asarray(offset, graph.unary.dtype))


def _listed(factors: Any) -> list[tuple[Any, ArrayLike]]:
    """The scopes and tables as pairs."""
    found = factors.items() if isinstance(factors, Mapping) else factors
    listed = list(found) if isinstance(found, Iterable) else [found]
    for pair in listed:
        if not (isinstance(pair, Sequence) and len(pair) == 2):
            raise UndirectedError(
                f"markov_network: factors have the entry {pair!r:.60}; pass {{scope: table}}, or "
                "pairs (scope, table)"
            )
    return listed


def _grouped(layout: Layout, groups: dict[tuple[int, ...], tuple[list, list]]) -> list[Factor]:
    """The scopes and tables of every shape as few groups: a program is compiled for each."""
    found: list[Factor] = []
    for arity in sorted({len(shape) for shape in groups}):
        counts = {shape: len(own[0]) for shape, own in groups.items() if len(shape) == arity}
        for shapes in size_classes(counts):
            scopes = np.concatenate([np.array(groups[shape][0]) for shape in shapes])
            if len(shapes) == 1:
                found.append(tables(layout, scopes, np.stack(groups[shapes[0]][1])))
            else:
                each = [table for shape in shapes for table in groups[shape][1]]
                found.append(mixed_tables(layout, scopes, each))
    return found


def _declared(variables: Any) -> tuple[dict[Hashable, Any], Int[np.ndarray, " m"]]:
    """Names with what was said of their states, and the number of states of each."""
    if isinstance(variables, str) or not isinstance(variables, Iterable):
        raise UndirectedError(
            f"markov_network: variables are {variables!r:.40}; pass {{name: number of states}}, "
            "{name: [state, ...]}, or a list of numbers of states"
        )
    pairs = variables.items() if isinstance(variables, Mapping) else enumerate(variables)
    # Numbers of NumPy compare with tuples entry by entry: those of Python are as good as names.
    words: dict[Hashable, Any] = {}
    for name, said in pairs:
        words[name.item() if isinstance(name, np.generic) else name] = said
    if not words:
        raise UndirectedError("markov_network: there are no variables; pass at least one")
    states = []
    for name, said in words.items():
        count = said if isinstance(said, Integral) else None
        if count is None and isinstance(said, Sequence) and not isinstance(said, str):
            # None and NaN say elsewhere that a state is not known.
            proper = all(isinstance(word, Hashable) and word == word is not None for word in said)
            different = set(said) if proper else ()
            count = len(said) if len(different) == len(said) else None
        if count is None or isinstance(said, bool) or not 1 <= int(count) <= MOST_UNITS:
            raise UndirectedError(
                f"markov_network: variable {name!r} has states {said!r:.60}; pass a whole number "
                f"from 1 to {MOST_UNITS:,}, or a list of different states, none of them None or NaN"
            )
        states.append(int(count))
    if sum(states) > MOST_UNITS:
        raise UndirectedError(
            f"markov_network: the variables have {sum(states):,} states together; at most "
            f"{MOST_UNITS:,} fit"
        )
    return words, np.asarray(states)


def _layout(
    words: dict[Hashable, Any], states: Int[np.ndarray, " m"]
) -> tuple[Layout, Int[np.ndarray, " m"]]:
    """A block for every number of states, and the number in it of each variable as declared."""
    kept = np.maximum(states, 2)  # a variable of one state has another that is forbidden
    order = np.argsort(kept, kind="stable")
    number = np.argsort(order, kind="stable")
    sizes, counts = np.unique(kept, return_counts=True)
    blocks = {f"states{k}": (int(m), int(k)) for k, m in zip(sizes, counts, strict=True)}
    names = list(words)
    said = [None if isinstance(words[name], Integral) else tuple(words[name]) for name in names]
    # A variable of one state has one word; its second, forbidden state gets none of its own.
    ones = [(0,) if said[i] is None and states[i] == 1 else said[i] for i in range(len(said))]
    said = [(*s, None) if s is not None and len(s) == 1 else s for s in ones]
    labels = Labels(
        tuple(names[i] for i in order), tuple(said[i] for i in order), tuple(number.tolist())
    )
    return Layout(discrete(**blocks).blocks, labels), number


def _places(k: int, place: dict[Hashable, int], scope: Any) -> list[int]:
    """The variables of a scope, as numbers in the order declared."""
    own = [scope] if isinstance(scope, Hashable) and scope in place else scope
    if isinstance(own, str) or not isinstance(own, Sequence | np.ndarray):
        own = [own]
    unknown = [name for name in own if name not in place]
    if unknown or len(set(own)) < len(own):
        what = f"names {unknown[0]!r}, which is no variable" if unknown else "has a variable twice"
        raise UndirectedError(f"markov_network: factor {k} {what}; pass different, declared names")
    return [place[name] for name in own]


def _logs(
    k: int, own: list[int], sizes: list[int], table: ArrayLike
) -> tuple[Float[np.ndarray, "*states"], float]:
    """The logarithm of table k, which must fit its scope and leave a state.

    It comes less its largest entry, and with that.
    """
    if len(own) > 64:  # no array has as many axes
        raise UndirectedError(
            f"markov_network: factor {k} joins {len(own):,} variables; a table of so many axes "
            "cannot be held: use logical_or, count or another group of the factor graph"
        )
    try:
        weights = np.asarray(table, float)
    except (TypeError, ValueError, OverflowError) as error:
        raise UndirectedError(
            f"markov_network: table {k} is no array of numbers ({error}); pass one weight for each "
            "joint state of its scope"
        ) from error
    wanted = tuple([sizes[v] for v in own])
    if weights.shape != wanted:
        raise UndirectedError(
            f"markov_network: table {k} has shape {weights.shape}; its variables ask for {wanted}"
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(weights)
    top = float(logs.max())
    if not -np.inf < top < np.inf:  # NaN where one entry is NaN or negative
        raise UndirectedError(
            f"markov_network: table {k} has entries that are negative, NaN or infinite, or only "
            "zeros; pass weights of which one is above 0"
        )
    return logs - top, top
