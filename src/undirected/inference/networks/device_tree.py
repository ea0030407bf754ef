"""The junction tree with its large cliques on an accelerator.

A clique's message is a sum over products of entries of its inputs. One compiled program does it for
cliques of any structure: where an entry of an input lies is a sum of offsets, one for each part of
the joint state, and these are data. Lengths are rounded up to a few sizes, so that a few programs
serve a network. Small cliques are done by NumPy. Weights are plain double-precision numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import exp, log, prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from undirected.core.errors import UndirectedError
from undirected.inference.networks.accelerator import HOST
from undirected.inference.networks.beliefs import reduced, sources
from undirected.inference.networks.cliques import Clique
from undirected.inference.networks.clock import check_time
from undirected.inference.networks.junction_tree import JunctionTree
from undirected.inference.networks.messages import TINY, Message, normalised
from undirected.inference.networks.simplify import Inconsistent

Scope = tuple[int, ...]
Table = Float[np.ndarray, "*states"]
Offsets = Int[np.ndarray, " m"]

ROW, AT_ONCE = 2**10, 2**26
"""Entries of the result along its last axis, and entries of the clique that are summed at once."""
STEPS = 4
"""Sizes within a factor of two that lengths are rounded up to: at most 19 % of work in vain."""


class Held(NamedTuple):
    """A table on the device: flat, with entries of no meaning after the first `size`."""

    values: Float[Array, " m"]
    size: int


class Operand(NamedTuple):
    """One of the tables that are multiplied, over variables in this order."""

    scope: Scope
    table: Table | Held


@dataclass
class DeviceTree(JunctionTree):
    """A `JunctionTree` that sums; cliques of more than `host` entries go to the device.

    Its clique tree is best made with `clique_tree(..., sums=False)`.

    Args:
        host: entries of a clique that is done by NumPy.
    """

    host: int = HOST

    def collect(self) -> float:
        with jax.enable_x64(True):
            return super().collect()

    def _send(self, c: int, clique: Clique) -> Message:
        if clique.size <= self.host:
            return super()._send(c, clique)
        sums = contract(clique.sizes, self._operands(clique), clique.separator, self.host)
        if isinstance(sums, Held):
            top = float(sums.values.max())  # what is behind the end repeats entries before it
            if top > 0:
                sums = Held(sums.values / top, sums.size)
        else:
            top = float(sums.max())
            sums = sums / top if top > 0 else sums
        if top == 0:
            raise Inconsistent
        return Message(sums, log(top))  # type: ignore[arg-type]

    def _operands(self, clique: Clique) -> list[Operand]:
        found = []
        for k in clique.tables:
            plain = self.weights[k]
            if plain is None:
                raise _too_wide()
            found.append(Operand(self.network.scopes[k], plain))
        for c in clique.children:
            if self.messages[c].logs:
                raise _too_wide()
            found.append(Operand(self.tree.cliques[c].separator, self.messages[c].values))
        return found

    def distribute(self, scopes: Sequence[Scope]) -> list[Table]:
        """The probabilities of the states of each scope, which a clique must hold.

        Call `collect` before.
        """
        with jax.enable_x64(True), np.errstate(under="ignore"):
            return self._distribute(scopes)

    def _distribute(self, scopes: Sequence[Scope]) -> list[Table]:
        asked, read = sources(self.tree, scopes)
        beliefs: dict[int, Any] = {}
        found: list[Table] = [np.ones(())] * len(scopes)
        for c in reversed(range(len(self.tree.cliques))):
            clique = self.tree.cliques[c]
            if c % 64 == 0 or clique.size > self.host:
                check_time(self.deadline)
            own = beliefs.pop(c, np.ones(()))
            for i in read.get(c, ()):
                found[i] = _onto(own, clique.separator, clique.sizes, scopes[i])
            outs = [self.tree.cliques[child].separator for child in clique.children]
            wanted = [*outs, *(scopes[i] for i in asked.get(c, ()))]
            if clique.size <= self.host:
                sums = self._beliefs(c, own, wanted) if wanted else []
            else:
                sums = self._large_beliefs(c, own, wanted)
            self.messages[c] = Message(np.ones(()), 0.0)  # not needed again
            beliefs.update(zip(clique.children, sums, strict=False))
            for i, value in zip(asked.get(c, ()), sums[len(outs) :], strict=True):
                found[i] = np.asarray(value)
        return normalised(found)

    def _large_beliefs(
        self, c: int, separator: Table | Held, wanted: Sequence[Scope]
    ) -> list[Table | Held]:
        """Sums of p(clique) = ∏ inputs · p(separator) / message onto parts of it."""
        clique, message = self.tree.cliques[c], self.messages[c]
        ratio = _ratio(separator, message)
        operands = [*self._operands(clique), Operand(clique.separator, ratio)]
        return [contract(clique.sizes, operands, scope, self.host) for scope in wanted]


def _too_wide() -> UndirectedError:
    return UndirectedError(
        "device tree: a table has a wider range than double-precision numbers; use solve, which "
        "works in logarithms there"
    )


def _ratio(separator: Any, message: Message) -> Table | Held:
    """p(separator) / message, 0 where both are."""
    if isinstance(separator, Held):  # then the message is held too, at the same length
        return Held(
            _divide(separator.values, message.values[0], exp(-message.scale)), separator.size
        )
    return np.asarray(separator) / np.maximum(message.values, TINY) * exp(-message.scale)


@jax.jit
def _divide(a: Float[Array, " m"], b: Float[Array, " m"], scale: float) -> Float[Array, " m"]:
    return a / jnp.maximum(b, TINY) * scale


def _onto(own: Any, scope: Scope, sizes: dict[int, int], wanted: Scope) -> Table:
    """The sum of a table onto one variable or more."""
    if not isinstance(own, Held):
        return reduced(own, scope, wanted)
    if len(wanted) == 1:
        post = prod([sizes[v] for v in scope[scope.index(wanted[0]) + 1 :]])
        return np.asarray(_single(own.values, own.size, post, sizes[wanted[0]]))
    return np.asarray(contract({v: sizes[v] for v in scope}, [Operand(scope, own)], wanted, 2**62))


@partial(jax.jit, static_argnames="states")
def _single(
    values: Float[Array, " m"], size: int, post: int, states: int
) -> Float[Array, " states"]:
    """The sum onto one variable, whose state changes every `post` entries."""
    place = jax.lax.iota(jnp.int64, len(values))
    state = jnp.where(place < size, place // post % states, -1)
    return jax.lax.map(lambda x: jnp.where(state == x, values, 0.0).sum(), jnp.arange(states))


def contract(
    sizes: dict[int, int], operands: Sequence[Operand], wanted: Scope, host: int = HOST
) -> Table | Held:
    """The product of tables summed onto some variables, in their order.

    Args:
        sizes: the number of states of all variables.
        operands: the tables.
        wanted: variables of the result.
        host: a result of at most so many entries comes as a NumPy array.
    """
    last, first = _tail(wanted, sizes, ROW)
    gone = tuple(v for v in sizes if v not in wanted)
    rows, columns = prod([sizes[v] for v in first]), prod([sizes[v] for v in last])
    inner, outer = _tail(gone, sizes, max(AT_ONCE // (_rounded(rows) * columns), 1))
    large = [one for one in operands if isinstance(one.table, Held)]
    small = [one for one in operands if not isinstance(one.table, Held)]
    pool, starts = _pool([np.asarray(one.table) for one in small])
    every = [*large, *small]
    count = len(large) + _rounded(len(small), 1)
    base = np.zeros((count, 1), np.int32)
    base[len(large) : len(every), 0] = starts
    base[len(every) :, 0] = len(pool) - 1  # an entry of 1
    summed = prod([sizes[v] for v in inner])
    parts = [_offsets(every, part, sizes, count) for part in (first, last, inner, outer)]
    parts[0] = _padded(parts[0] + base, _rounded(rows))
    weight = np.zeros(_rounded(summed))
    weight[:summed] = 1.0
    parts[2] = _padded(parts[2], len(weight))
    loops = parts[3].shape[1]
    parts[3] = _padded(parts[3], _rounded(loops, 1))
    arrays = tuple(one.table.values for one in large if isinstance(one.table, Held))
    sums = _sum_products(arrays, pool, *parts, weight, loops)
    if rows * columns > host:
        return Held(sums.ravel(), rows * columns)
    return np.asarray(sums[:rows]).reshape([sizes[v] for v in wanted])


@jax.jit
def _sum_products(
    large: tuple[Float[Array, " _"], ...],
    pool: Float[Array, " p"],
    rows: Int[Array, "k r"],
    columns: Int[Array, "k c"],
    inner: Int[Array, "k i"],
    outer: Int[Array, "k o"],
    weight: Float[Array, " i"],
    loops: int,
) -> Float[Array, "r c"]:
    """Σ over inner and outer states of the product of one entry of each table."""

    def add(o: Int[Array, ""], total: Float[Array, "r c"]) -> Float[Array, "r c"]:
        product = weight[None, None]
        for k in range(len(rows)):
            source = large[k] if k < len(large) else pool
            place = rows[k][:, None, None] + columns[k][None, :, None] + inner[k][None, None]
            place = place + outer[k, o]
            product = product * source.at[place].get(mode="promise_in_bounds")
        return total + product.sum(2)

    start = jnp.zeros((rows.shape[1], columns.shape[1]))
    return jax.lax.fori_loop(0, loops, add, start)


def _tail(scope: Scope, sizes: dict[int, int], most: int) -> tuple[Scope, Scope]:
    """The last variables with at most so many joint states, and those before them."""
    at, states = len(scope), 1
    while at and states * sizes[scope[at - 1]] <= most:
        at, states = at - 1, states * sizes[scope[at - 1]]
    return scope[at:], scope[:at]


def _offsets(
    operands: Sequence[Operand], part: Scope, sizes: dict[int, int], count: int
) -> Int[np.ndarray, "count m"]:
    """For each operand how much each joint state of these variables moves the place of an entry."""
    found = np.zeros((count, prod([sizes[v] for v in part])), np.int32)
    for k, (scope, _) in enumerate(operands):
        strides, stride = {}, 1
        for v in reversed(scope):
            strides[v], stride = stride, stride * sizes[v]
        if stride > np.iinfo(np.int32).max:
            raise UndirectedError(f"device tree: a table of {stride:,} entries; at most 2^31 fit")
        own = np.zeros(1, np.int32)
        for v in part:
            steps = np.arange(sizes[v], dtype=np.int32) * np.int32(strides.get(v, 0))
            own = (own[:, None] + steps).ravel()
        found[k] = own
    return found


def _pool(tables: Sequence[Table]) -> tuple[Float[np.ndarray, " p"], list[int]]:
    """Small tables one after the other in a rounded length that ends with 1; where each begins."""
    sizes = [table.size for table in tables]
    starts = np.cumsum([0, *sizes])
    pool = np.ones(_rounded(int(starts[-1]) + 1, 1))
    for start, table in zip(starts, tables, strict=False):
        pool[start : start + table.size] = table.ravel()
    return pool, starts[:-1].tolist()


def _padded(offsets: Int[np.ndarray, "k m"], length: int) -> Int[np.ndarray, "k length"]:
    """Offsets continued by their first: entries behind the end are computed in vain."""
    rest = np.repeat(offsets[:, :1], length - offsets.shape[1], 1)
    return np.concatenate([offsets, rest], 1)


def _rounded(length: int, steps: int = STEPS) -> int:
    """A length rounded up to one of `steps` sizes within each factor of two."""
    unit = max(2 ** (max(length - 1, 0).bit_length() - 1) // steps, 1)
    return -(-length // unit) * unit
