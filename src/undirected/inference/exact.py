"""Exact inference: enumeration with one layer summed out, and transfer along narrow graphs.

Beliefs are the gradient of log Z with respect to the potentials, so every factor group is covered.
"""

from itertools import product
from math import inf, log2, prod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from undirected.core.errors import UndirectedError
from undirected.core.graph import Graph
from undirected.core.layout import CONTINUOUS, Block, Domain, Layout, check_discrete
from undirected.core.numerics import NEG_INF, is_zero, logsumexp
from undirected.core.potentials import Beliefs, Potentials, local_fields, values
from undirected.core.units import log_normaliser
from undirected.factors import Edges, Squares
from undirected.inference.base import Inference, check_lines, finished

MOST_STATES = 2**26


class Exact(Inference):
    """Sums over all states; blocks that are independent given the rest are summed out.

    An RBM costs 2^min(V, H) states. At temperature 0 the beliefs are those of the best state; where
    several are best, a mean of them.

    Args:
        temperature: 1 for marginals, 0 for a best state.
        chunk: states that are worked on at a time.
        most: models with more states to sum over than this are refused.

    Returns:
        A call gives `Beliefs`; at temperature 0 `decode` gives best states.

    Example:
        >>> import numpy as np
        >>> import undirected as un
        >>> model = un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
        >>> print(np.asarray(un.Exact()(model).unary).round(2))
        [0.88 0.68 0.58]
    """

    temperature: float | Array = 1.0
    chunk: int = 2**12
    most: int = MOST_STATES

    @property
    def finds_best_state(self) -> bool:
        return is_zero(self.temperature)

    def infer(self, p: Potentials, key: Key[Array, ""] | None) -> Beliefs:
        """Nothing here is random: the key is not used."""
        listed = _listed_blocks(p)
        states = prod(_states(p.layout.blocks[i]) for i in listed)
        if states > self.most:
            raise UndirectedError(
                f"exact: about 2^{log2(states):.0f} states to sum over (limit {self.most}); use "
                "Transfer or Elimination on a narrow graph, belief propagation, or AIS for log Z"
            )
        size = min(self.chunk, states)
        starts = jnp.arange(0, states, size, dtype=jnp.int32)

        def part(q: Potentials, start: Array) -> Array:
            index = start + jnp.arange(size, dtype=jnp.int32)
            weights = _log_weights(q, listed, index, self.temperature)
            inside = index < states
            return logsumexp(jnp.where(inside, weights, 2 * NEG_INF), self.temperature)

        parts = jax.lax.map(lambda start: part(p, start), starts)
        log_z = logsumexp(parts, self.temperature)
        if is_zero(self.temperature):
            shares = jax.nn.one_hot(jnp.argmax(parts), parts.shape[0], dtype=parts.dtype)
        else:
            shares = jnp.exp((parts - log_z) / self.temperature)

        def add(total: Potentials, item: tuple[Array, Array]) -> tuple[Potentials, None]:
            start, share = item
            slope = eqx.filter_grad(part)(p, start)
            return jax.tree.map(lambda a, b: a + share * b, total, slope), None

        zero = jax.tree.map(jnp.zeros_like, eqx.filter(p, eqx.is_inexact_array))
        means, _ = jax.lax.scan(add, zero, (starts, shares))
        return _as_beliefs(p, means, log_z)


class Transfer(Inference):
    """Exact inference on a sparse graph with a narrow ordering: chains, strips, small tori.

    Make one with `Transfer.plan(graph)`. Units enter one at a time; a table over the last `width`
    of them is carried along, at a cost of n 2^width.

    Args:
        order: the units in the order in which they enter.
        slots: (n, width), for each unit its edges to those that entered before it.
        width: units that the table covers.
        n_edges: edges of the graph that the plan was made for.
        temperature: 1 for marginals, 0 for a best state.

    Returns:
        A call gives `Beliefs`; at temperature 0 `decode` gives best states.

    Example:
        >>> import undirected as un
        >>> model = un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
        >>> routine = un.Transfer.plan(model.graph)
        >>> print(routine.width, round(float(routine(model).log_z), 3))
        1 2.753
    """

    order: Int[Array, " n"]
    slots: Int[Array, "n w"]
    width: int = eqx.field(static=True)
    n_edges: int = eqx.field(static=True)
    temperature: float | Array = 1.0

    @classmethod
    def plan(cls, graph: Graph, temperature: float | Array = 1.0) -> "Transfer":
        """An ordering of small bandwidth (reverse Cuthill-McKee, or the one given, if narrower)."""
        edges = np.asarray(graph.edges)
        order = narrow_order(graph.n, edges)
        place = np.argsort(order)
        ends = np.sort(place[edges], 1)
        width = int((ends[:, 1] - ends[:, 0]).max(initial=1))
        if width > 22 or graph.n * 2**width > 2**30:
            raise UndirectedError(
                f"Transfer: the best ordering found has bandwidth {width} on {graph.n} units, a "
                f"table of 2^{width}; use Exact up to 25 units, belief propagation or AIS"
            )
        slots = np.full((graph.n, width), graph.n_edges, np.int32)
        slots[ends[:, 1], ends[:, 1] - ends[:, 0] - 1] = np.arange(graph.n_edges)
        places = jnp.asarray(order, jnp.int32), jnp.asarray(slots)
        return cls(*places, width, graph.n_edges, temperature)

    @property
    def finds_best_state(self) -> bool:
        return is_zero(self.temperature)

    def infer(self, p: Potentials, key: Key[Array, ""] | None) -> Beliefs:
        """Nothing here is random: the key is not used."""
        if not (len(p.factors) == 1 and isinstance(p.factors[0], Edges) and p.layout.is_binary):
            names = ", ".join(type(f).__name__ for f in p.factors)
            raise UndirectedError(f"Transfer: needs one Edges group on binary units, got {names}")
        planned, got = (len(self.order), self.n_edges), (p.layout.n, p.factors[0].graph.n_edges)
        if planned != got:
            raise UndirectedError(
                f"Transfer: planned for {planned[0]} units and {planned[1]} edges, this model has "
                f"{got[0]} and {got[1]}; use Transfer.plan(model.graph)"
            )
        log_z, slope = eqx.filter_value_and_grad(self._log_z)(p)
        return _as_beliefs(p, slope, log_z)

    def _log_z(self, p: Potentials) -> Float[Array, ""]:
        w = self.width
        weight = jnp.append(p.factors[0].weight, 0.0)[self.slots]
        on = (p.unary + jnp.minimum(p.evidence, 0.0))[self.order]
        off = jnp.where(p.evidence > 0, NEG_INF, 0.0).astype(on.dtype)[self.order]
        bits = (jnp.arange(2**w)[:, None] >> jnp.arange(w)[None]) & 1

        @jax.checkpoint
        def enter(table: Array, unit: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            """table[s]: bit d of s is the unit that entered d + 1 steps ago.

            The peak is taken out: beside a log Z of thousands it would lose its last digits.
            """
            on_i, off_i, weight_i = unit
            pull = bits.astype(table.dtype) @ weight_i
            both = jnp.stack([table + off_i, table + on_i + pull], 0)
            both = both.reshape(2, 2, 2 ** (w - 1))
            summed = logsumexp(both, self.temperature, axis=1)
            peak = jax.lax.stop_gradient(summed.max())
            return summed.T.reshape(-1) - peak, peak

        start = jnp.where(jnp.arange(2**w) == 0, 0.0, NEG_INF).astype(on.dtype)
        table, peaks = jax.lax.scan(enter, start, (on, off, weight))
        return p.offset + (peaks.sum() + logsumexp(table, self.temperature))


def _listed_blocks(p: Potentials) -> tuple[int, ...]:
    """The cheapest set of blocks to enumerate such that the others are independent given them."""
    blocks = range(len(p.layout.blocks))
    check_lines("exact", p)
    best = tuple(blocks)
    for keep in product((False, True), repeat=len(p.layout.blocks)):
        listed = tuple(i for i in blocks if keep[i])
        if all(f.separated_by(listed) for f in p.factors) and _cost(p, listed) < _cost(p, best):
            best = listed
    check_discrete(
        "exact, with blocks that are coupled inside", *(p.layout.blocks[i] for i in best)
    )
    return best


def _cost(p: Potentials, listed: tuple[int, ...]) -> float:
    if any(p.layout.blocks[i].domain in CONTINUOUS for i in listed):
        return inf
    return prod(_states(p.layout.blocks[i]) for i in listed)


def _states(block: Block) -> int:
    return (block.states if block.domain is Domain.CATEGORICAL else 2) ** block.variables


def _log_weights(
    p: Potentials, listed: tuple[int, ...], index: Int[Array, " c"], temperature: float | Array
) -> Float[Array, " c"]:
    """Log weight of each listed state, the other blocks summed out."""
    x, layout = _decode(p, listed, index), p.layout
    value, e = values(p, x), p.evidence[None]
    value = value + jnp.where(e > 0, NEG_INF * (1 - x), e * x)[:, _units(layout, listed)].sum(-1)
    rest = tuple(i for i in range(len(layout.blocks)) if i not in listed)
    if not rest:
        return value
    fields = p.unary[None] + local_fields(p, x)
    units = _units(layout, rest)
    blocks, start = [], 0
    for i in rest:
        old = layout.blocks[i]
        blocks.append(Block(old.name, start, start + old.size, old.domain, old.states))
        start += old.size
    evidence = jnp.broadcast_to(e[:, units], (x.shape[0], start))
    squares = [f.precision(layout) for f in p.factors if isinstance(f, Squares)]
    lines = {} if not squares else {"precision": jnp.stack(squares).sum(0)[units]}
    if p.held is not None:
        lines["held"] = jnp.broadcast_to(p.held[None][:, units], evidence.shape)
    return value + log_normaliser(
        Layout(tuple(blocks)), fields[:, units], temperature, evidence, **lines
    )


def _decode(p: Potentials, listed: tuple[int, ...], index: Int[Array, " c"]) -> Float[Array, "c n"]:
    """The states with these numbers (mixed radix), units of other blocks at zero."""
    x = jnp.zeros((index.shape[0], p.layout.n), p.unary.dtype)
    for i in listed:
        block = p.layout.blocks[i]
        base = block.states if block.domain is Domain.CATEGORICAL else 2
        powers = jnp.asarray([base**k for k in range(block.variables)], jnp.int32)
        digits = (index[:, None] // powers[None]) % base
        index = index // _states(block)
        if block.domain is Domain.CATEGORICAL:
            units = jax.nn.one_hot(digits, base, dtype=x.dtype).reshape(x.shape[0], -1)
        else:
            units = digits.astype(x.dtype)
        x = x.at[:, block.slice].set(units)
    return x


def _units(layout: Layout, blocks: tuple[int, ...]) -> np.ndarray:
    if not blocks:
        return np.zeros(0, int)
    return np.concatenate([np.arange(b.start, b.stop) for b in (layout.blocks[i] for i in blocks)])


def _as_beliefs(p: Potentials, slope: Potentials, log_z: Array) -> Beliefs:
    """Read the gradient of log Z as expected statistics."""
    pairs = zip(p.factors, slope.factors, strict=True)
    factors = tuple(factor.from_gradient(d) for factor, d in pairs)
    return Beliefs(slope.unary, factors, log_z, *finished())


def narrow_order(n: int, edges: np.ndarray) -> np.ndarray:
    """The narrower of the given order and the reverse Cuthill-McKee order."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    def bandwidth(order: np.ndarray) -> int:
        place = np.argsort(order)
        return int(np.abs(np.diff(place[edges], axis=1)).max(initial=0))

    ones = np.ones(2 * len(edges), np.int8)
    both = np.concatenate([edges, edges[:, ::-1]])
    matrix = coo_array((ones, (both[:, 0], both[:, 1])), (n, n)).tocsr()
    orders = [np.arange(n), np.asarray(reverse_cuthill_mckee(matrix, symmetric_mode=True))]
    return min(orders, key=bandwidth)
