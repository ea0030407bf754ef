"""Factor graphs: discrete variables of any number of states, factor groups of any order."""

from collections.abc import Sequence
from numbers import Integral

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from undirected.core.errors import UndirectedError, UnsupportedFactor
from undirected.core.layout import Block, Domain, Layout, joint_states, visible_states
from undirected.core.numerics import NEG_INF, is_traced, row
from undirected.core.potentials import Potentials, local_fields, potentials, values
from undirected.factors import Factor, Tables, tables
from undirected.factors.colouring import colour_variables


def discrete(**blocks: int | tuple[int, int]) -> Layout:
    """A layout of named blocks of discrete variables, which are numbered block after block.

    Args:
        blocks: for each name a number of binary variables, or a pair (number, states). Binary
            variables have one unit, others one unit for each state.

    Returns:
        The layout, which `FactorGraph.create` and all factor groups take.

    Example:
        >>> import undirected as un
        >>> layout = un.discrete(pixels=784, digit=(1, 10))
        >>> layout.n, len(layout.variables)
        (794, 785)
    """
    found, start = [], 0
    for name, size in blocks.items():
        pair = size if isinstance(size, tuple) and len(size) == 2 else (size, 2)
        count, states = (n if isinstance(n, Integral) else 0 for n in pair)
        if count < 1 or states < 2 or isinstance(size, bool):
            raise UndirectedError(
                f"discrete: block '{name}' is {size!r:.40}; pass a number of binary variables, or "
                "(number, states): at least 1 variable of at least 2"
            )
        binary = states == 2
        stop = start + count * (1 if binary else states)
        domain = Domain.BINARY if binary else Domain.CATEGORICAL
        found.append(Block(name, start, stop, domain, states))
        start = stop
    return Layout(tuple(found))


class FactorGraph(eqx.Module):
    """-E(x) = unary' x + sum over factor groups + offset, on the units of a discrete layout.

    Make one with `FactorGraph.create(layout, factors, unary)`, which finds the colours. A state
    that breaks a hard constraint has an energy of at least CERTAIN.

    Args:
        unary: one log-odds for every binary variable, one log-potential for every state of the
            others.
        factors: factor groups, from `tables`, `logical_or`, `logical_and`, `pool`, `count`,
            `at_most`, `Bilinear`, `Symmetric`, `Edges` and others.
        offset: a constant that is added to -E.
        layout: what the units are; `discrete` makes one.
        colours: for each colour the units of it, which share no factor: samplers and mean field
            move them together.

    Example:
        >>> import undirected as un
        >>> layout = un.discrete(x=3)
        >>> graph = un.FactorGraph.create(layout, [un.logical_or(layout, [[0, 1]], [2])])
        >>> un.query(graph, given={2: 0})
        {0: {0: 1.0, 1: 0.0}, 1: {0: 1.0, 1: 0.0}}
    """

    unary: Float[Array, " n"]
    factors: tuple[Factor, ...]
    offset: Float[Array, ""]
    layout: Layout = eqx.field(static=True)
    colours: Int[Array, "C m"] | None = None

    def __check_init__(self) -> None:
        if jnp.shape(self.unary) != (self.layout.n,):
            raise UndirectedError(
                f"FactorGraph: unary has shape {jnp.shape(self.unary)}, the layout has "
                f"{self.layout.n} units; pass one log-odds per binary variable and one "
                "log-potential per state of the others"
            )
        for factor in self.factors:
            factor.check(self.layout)

    @classmethod
    def create(
        cls,
        layout: Layout,
        factors: Sequence[Factor] = (),
        unary: Float[Array, " n"] | None = None,
    ) -> "FactorGraph":
        """A factor graph; without `unary` no single variable prefers a state, and -inf forbids."""
        if not isinstance(layout, Layout):
            raise UndirectedError(
                f"FactorGraph.create: layout is {layout!r:.40}; pass one such as un.discrete(x=3)"
            )
        if isinstance(factors, Factor) or not all(isinstance(f, Factor) for f in factors):
            raise UndirectedError(
                f"FactorGraph.create: factors are {factors!r:.60}; pass a list of groups, such as "
                "[un.tables(layout, scopes, logs)]"
            )
        if unary is None:
            unary = jnp.zeros(layout.n)
        elif is_traced(unary):
            unary = jnp.maximum(unary, NEG_INF)
        else:  # NumPy compiles nothing
            unary = jnp.asarray(np.maximum(np.asarray(unary, jnp.result_type(float)), NEG_INF))
        for factor in factors:
            factor.check(layout)
        colours = colour_variables(layout, factors)
        return cls(unary, tuple(factors), jnp.zeros((), unary.dtype), layout, colours)

    def tabulated(self, most: int = 2**12) -> "FactorGraph":
        """The same distribution, with the groups that forbid states written out as tables.

        Zeros of tables come gradually along a path, those of such groups do not: annealed
        importance sampling, tempering and annealed populations need this form.

        Args:
            most: entries that the table of one factor may have.

        Returns:
            A factor graph; this one where nothing is to be written out.

        Example:
            >>> import undirected as un
            >>> layout = un.discrete(x=3)
            >>> graph = un.FactorGraph.create(layout, [un.at_most(layout, [[0, 1, 2]], 1)])
            >>> graph.tabulated().factors[0].weight.shape
            (1, 2, 2, 2)
        """
        if not any(factor.forbids for factor in self.factors):
            return self
        factors: list[Factor] = []
        for factor in self.factors:
            factors += _as_tables(factor, self.layout, most) if factor.forbids else [factor]
        found = FactorGraph.create(self.layout, factors, self.unary)
        return eqx.tree_at(lambda graph: graph.offset, found, self.offset)

    def energy(self, x: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
        """E(x) of joint states."""
        x = joint_states("FactorGraph.energy", self.layout, x)
        flat = x.reshape(-1, x.shape[-1])
        return -values(self.lower(), flat).reshape(x.shape[:-1])

    def free_energy(self, v: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
        """E(v) of graphs whose variables are all visible: nothing is summed out."""
        self._check_visible("free energy")
        return self.energy(v)

    def log_odds(self, v: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
        """The field of every unit given all others, of graphs whose variables are all visible."""
        self._check_visible("log odds")
        v = visible_states("FactorGraph.log_odds", self.layout, v)
        fields = local_fields(self.lower(), v)
        return fields + row(self.unary, fields)

    def _check_visible(self, asked: str) -> None:
        """Hidden variables would have to be summed out, which no group can do in general."""
        hidden = [block.name for block in self.layout.blocks if not block.visible]
        if hidden:
            groups = ", ".join(sorted({type(factor).__name__ for factor in self.factors}))
            raise UnsupportedFactor(
                f"FactorGraph: {asked}: block '{hidden[0]}' of a graph of {groups} is hidden, and "
                "factor graphs do not sum hidden variables out; use inference on lower()"
            )

    def lower(self) -> Potentials:
        """The groups as they are."""
        return potentials(self.layout, self.unary, self.factors, self.offset, self.colours)


def _as_tables(factor: Factor, layout: Layout, most: int) -> list[Tables]:
    """Tables of the factors of a group, those with the same slots in use together."""
    found = []
    for group in factor.tables(layout, most):
        scopes = np.asarray(group.scopes)
        for used in np.unique(scopes >= 0, axis=0):
            rows = np.flatnonzero(((scopes >= 0) == used[None]).all(1))
            place = group.place(scopes[rows[0]])
            found.append(tables(layout, scopes[rows][:, used], group.logs[rows][:, *place]))
    return found
