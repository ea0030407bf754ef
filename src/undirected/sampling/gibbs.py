"""Gibbs sampling: every variable is drawn in turn from its conditional given all the others.

One key moves any number of chains. A sweep is a deterministic function of its noise: a binary unit
is 1 where field + logistic noise > 0, a categorical variable is the argmax of field + Gumbel noise.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from undirected.core.errors import UnsupportedFactor
from undirected.core.graph import Graph
from undirected.core.layout import Block, Domain, Layout, check_discrete, joint_states
from undirected.core.numerics import is_traced, row
from undirected.core.potentials import Potentials, local_fields
from undirected.core.protocols import Blocked, Info, Lowerable
from undirected.core.units import best, free_variables, perturbation
from undirected.factors import Bilinear, Edges, Symmetric, require
from undirected.factors.colouring import check_colours, units_by_colour
from undirected.ops.lattice import packs, torus_sweeps
from undirected.ops.sequential import scan_sites
from undirected.sampling.base import (
    ChainState,
    Evaluations,
    check_lowerable,
    check_sweeps,
)
from undirected.sampling.scans import by_columns, scan_colours

Sweep = Callable[[Array, Array, Array], Array]


@dataclass(frozen=True)
class BlockGibbs:
    """Whole blocks in turn, by the model's own conditionals: for models without lateral couplings.

    Args:
        sweeps: sweeps of one step.
        order: names of the blocks of a sweep. By default the hidden ones come first, in the order
            of the layout, then the visible ones, so that a chain that starts from data needs no
            hidden state. A block that is left out never moves.
        backward: take the blocks in the opposite order.

    Example:
        >>> import undirected as un
        >>> model = un.RBM.create(3, 2, seed=0)
        >>> un.run_chains(un.BlockGibbs(), model, chains=2, samples=4, seed=0).x.shape
        (4, 2, 5)
    """

    sweeps: int = 1
    order: tuple[str, ...] | None = None
    backward: bool = False

    def __post_init__(self) -> None:
        check_sweeps("BlockGibbs", self.sweeps)
        if self.order is not None:
            object.__setattr__(self, "order", tuple(self.order))

    def reversed(self) -> "BlockGibbs":
        """The time reversal of this kernel."""
        return replace(self, backward=not self.backward)

    def init(self, model: Blocked, x: Float[Array, "*chains n"], key: Key[Array, ""]) -> ChainState:
        """Chains that start at x."""
        return ChainState(joint_states("BlockGibbs", model.layout, x))

    def step(
        self,
        model: Blocked,
        state: ChainState,
        free: Bool[Array, "*#chains n"],
        key: Key[Array, ""],
    ) -> tuple[ChainState, Info]:
        """`sweeps` sweeps of every chain; `info["flips"]` is the share of free units that moved."""
        if not isinstance(model, Blocked):
            raise UnsupportedFactor(
                f"BlockGibbs: {type(model).__name__} has no block conditionals; use Gibbs"
            )
        return _repeat(partial(self.sweep, model), model.layout, self.sweeps, state, free, key)

    def evaluations(self, model: Blocked) -> Evaluations:
        """A gradient a sweep: every unit of the blocks that move asks for its field once."""
        layout = model.layout
        moved = [b.size for b in layout.blocks if self.order is None or b.name in self.order]
        return Evaluations(0, self.sweeps * sum(moved) / layout.n)

    def sweep(
        self,
        model: Blocked,
        x: Float[Array, "*chains n"],
        free: Bool[Array, "*chains n"],
        noise: Float[Array, "*chains n"],
    ) -> Float[Array, "*chains n"]:
        """One sweep with this noise (`core.units.perturbation`): shared noise couples chains."""
        layout = model.layout
        names = [b.name for b in _hidden_first(layout)] if self.order is None else self.order
        for name in reversed(names) if self.backward else names:
            block = layout.block(name)
            fields = model.conditional(layout.blocks.index(block), x)
            x = _draw_block(block, fields, x, free, noise)
        return x


@dataclass(frozen=True)
class Gibbs:
    """Single variables in turn, on every factor group with a local field.

    Where a colouring is known all variables of one colour move at once, colour after colour: that
    of a sparse `Edges` group (32 spins to a word on a `graph.torus` with equal weights and biases),
    that of a factor graph, or the user's. Dense models go block after block, hidden ones first: a
    block with a `Symmetric` group site by site, any other at once. What is left goes variable by
    variable.

    Args:
        sweeps: sweeps of one step.
        backward: take the moves of a sweep in the opposite order.
        colours: a colour, 0 or more, for every variable; those that share a factor must differ.

    Example:
        >>> import undirected as un
        >>> model = un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
        >>> un.run_chains(un.Gibbs(), model, chains=2, samples=4, seed=0).x.shape
        (4, 2, 3)
    """

    sweeps: int = 1
    backward: bool = False
    colours: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        check_sweeps("Gibbs", self.sweeps)
        if self.colours is not None:
            object.__setattr__(self, "colours", tuple(np.asarray(self.colours).tolist()))

    def reversed(self) -> "Gibbs":
        """The time reversal of this kernel."""
        return replace(self, backward=not self.backward)

    def init(
        self, model: Lowerable, x: Float[Array, "*chains n"], key: Key[Array, ""]
    ) -> ChainState:
        """Chains that start at x."""
        if self.colours is not None and isinstance(model, Lowerable) and not is_traced(model):
            check_colours("Gibbs", model.layout, model.lower().factors, self.colours)
        return ChainState(joint_states("Gibbs", model.layout, x))

    def step(
        self,
        model: Lowerable,
        state: ChainState,
        free: Bool[Array, "*#chains n"],
        key: Key[Array, ""],
    ) -> tuple[ChainState, Info]:
        """`sweeps` sweeps of every chain; `info["flips"]` is the share of free units that moved."""
        check_lowerable("Gibbs", model, "BlockGibbs")
        p = model.lower()

        def by_noise() -> tuple[ChainState, Info]:
            return _repeat(partial(self.sweep, p), p.layout, self.sweeps, state, free, key)

        weight = _torus_weight(p, state.x)
        if weight is None:
            return by_noise()
        uniform = (weight == weight[0]).all() & (p.fields == p.fields[0]).all()
        return lax.cond(uniform, lambda: self._by_words(p, weight, state, free, key), by_noise)

    def evaluations(self, model: Lowerable) -> Evaluations:
        """A gradient a sweep: every unit asks for its field once.

        Factor graphs compute all fields for every colour, and count so many gradients a sweep.
        """
        p = model.lower()
        colours = len(_colours(p, self.colours)) if self._goes_by_colour(p) else 1
        return Evaluations(0, self.sweeps * colours)

    def _goes_by_colour(self, p: Potentials) -> bool:
        """Whether sweeps take the fields of all units for every colour."""
        return self.colours is not None or (_only_edges(p) is None and not _dense(p))

    def _by_words(
        self, p: Potentials, weight: Array, state: ChainState, free: Array, key: Key[Array, ""]
    ) -> tuple[ChainState, Info]:
        """All sweeps of a homogeneous Ising model on a torus, 32 spins at a time."""
        before = state.x
        free = jnp.broadcast_to(free_variables("Gibbs", p.layout, free), before.shape)
        shape = (-1, *p.factors[0].graph.sides)
        uniform = weight[0], p.fields[0]
        after = torus_sweeps(
            before.reshape(shape), free.reshape(shape), *uniform, key, self.sweeps, self.backward
        )
        return _moved(before, after.reshape(before.shape), free)

    def sweep(
        self,
        p: Potentials,
        x: Float[Array, "*chains n"],
        free: Bool[Array, "*chains n"],
        noise: Float[Array, "*chains n"],
    ) -> Float[Array, "*chains n"]:
        """One sweep with this noise (`core.units.perturbation`): shared noise couples chains."""
        check_discrete("Gibbs", *p.layout.blocks)
        require("Gibbs", p, "statistic", "use BlockGibbs")
        for factor in p.factors:
            factor.check(p.layout)
        unary = jnp.broadcast_to(p.fields, x.shape)
        if self._goes_by_colour(p):
            return self._by_colour(p, unary, x, free, noise)
        edges = _only_edges(p)
        if edges is not None:
            scan = partial(scan_colours, edges, self.backward)
            return by_columns(scan, unary, x, free, noise)
        blocks = _hidden_first(p.layout)
        for block in reversed(blocks) if self.backward else blocks:
            fields = unary[..., block.slice] + _pull_between(p, block, x)
            inside = _matrix_inside(p, block)
            if inside is None:
                x = _draw_block(block, fields, x, free, noise)
            else:
                parts = (a[..., block.slice] for a in (x, free, noise))
                rows = (a.reshape(-1, a.shape[-1]) for a in (fields, *parts))
                new = scan_sites(inside, *rows, backward=self.backward)
                x = x.at[..., block.slice].set(new.reshape(fields.shape))
        return x

    def _by_colour(
        self, p: Potentials, unary: Array, x: Array, free: Array, noise: Array
    ) -> Float[Array, "*chains n"]:
        """All variables of a colour at once, colour after colour, from their local fields."""
        order = _colours(p, self.colours)
        if self.backward:
            order = order[::-1]

        def visit(x: Array, units: Array) -> tuple[Array, None]:
            new = best(p.layout, unary + local_fields(p, x) + noise)
            chosen = jnp.zeros(x.shape[-1], bool).at[units].set(True, mode="drop")
            return jnp.where(row(chosen, x) & free, new, x), None

        return lax.scan(visit, x, order)[0]


def _repeat(
    sweep: Sweep, layout: Layout, sweeps: int, state: ChainState, free: Array, key: Key[Array, ""]
) -> tuple[ChainState, Info]:
    """Run a noise-driven sweep a number of times on fresh noise.

    Blocks travel as arrays of their own: XLA then draws each of them in one loop, whereas a write
    into a part of x would be computed number by number.
    """
    before = state.x
    free = jnp.broadcast_to(free_variables("Gibbs", layout, free), before.shape)
    ends = [block.stop for block in layout.blocks[:-1]]

    def once(i: Int[Array, ""], parts: list[Array]) -> list[Array]:
        x = jnp.concatenate(parts, -1)
        noise = perturbation(layout, jax.random.fold_in(key, i), x.shape[:-1]).astype(x.dtype)
        return jnp.split(sweep(x, free, noise), ends, -1)

    parts = lax.fori_loop(0, sweeps, once, jnp.split(before, ends, -1))
    return _moved(before, jnp.concatenate(parts, -1), free)


def _moved(before: Array, after: Array, free: Array) -> tuple[ChainState, Info]:
    moved = (after != before).sum(-1) / jnp.maximum(free.sum(-1), 1)
    return ChainState(after), {"flips": moved.astype(before.dtype)}


def _draw_block(block: Block, fields: Array, x: Array, free: Array, noise: Array) -> Array:
    """Draw the free variables of one block from their fields."""
    noisy = fields + noise[..., block.slice]
    if block.domain is Domain.BINARY:
        new = (noisy > 0).astype(x.dtype)
    else:
        best = noisy.reshape(*noisy.shape[:-1], -1, block.states).argmax(-1)
        new = jax.nn.one_hot(best, block.states, dtype=x.dtype).reshape(noisy.shape)
    new = jnp.where(free[..., block.slice], new, x[..., block.slice])
    return jnp.concatenate([x[..., : block.start], new, x[..., block.stop :]], -1)


def _torus_weight(p: Potentials, x: Float[Array, "*chains n"]) -> Float[Array, " E"] | None:
    """The weights of a torus whose chains fill words; None where there is no such thing."""
    match p.factors:
        case (Edges(weight=weight, graph=Graph(sides=(int(), int()) as sides)),):
            fits = p.layout.is_binary and p.fields.ndim == 1
            return weight if fits and packs(sides, math.prod(x.shape[:-1])) else None
    return None


def _pull_between(p: Potentials, block: Block, x: Float[Array, "*chains n"]) -> Array:
    """What the bilinear groups add to the fields of one block."""
    index, blocks = p.layout.blocks.index(block), p.layout.blocks
    total = jnp.zeros((*x.shape[:-1], block.size), x.dtype)
    for factor in p.factors:
        if isinstance(factor, Bilinear) and factor.rows == index:
            total = total + x[..., blocks[factor.cols].slice] @ factor.weight.T
        elif isinstance(factor, Bilinear) and factor.cols == index:
            total = total + x[..., blocks[factor.rows].slice] @ factor.weight
    return total


def _matrix_inside(p: Potentials, block: Block) -> Float[Array, "m m"] | None:
    """The dense couplings inside one block, if it has any."""
    index = p.layout.blocks.index(block)
    found = [f.weight for f in p.factors if isinstance(f, Symmetric) and f.block == index]
    return sum(found[1:], found[0]) if found else None


def _hidden_first(layout: Layout) -> list[Block]:
    return sorted(layout.blocks, key=lambda block: block.visible)


def _only_edges(p: Potentials) -> Edges | None:
    """The couplings of a binary model that has none but those of a sparse graph."""
    match p.factors:
        case (Edges() as edges,) if p.layout.is_binary:
            return edges
    return None


def _dense(p: Potentials) -> bool:
    """Whether blocks can be drawn at once, or site by site by a matrix of their own."""
    return p.colours is None and all(
        isinstance(factor, Bilinear)
        or (isinstance(factor, Symmetric) and p.layout.blocks[factor.block].width == 1)
        for factor in p.factors
    )


def _colours(p: Potentials, given: tuple[int, ...] | None) -> Int[Array, "C m"]:
    """The units of every colour: the user's, the potentials', or each variable for itself."""
    if given is None and p.colours is not None:
        return p.colours
    each = np.arange(len(p.layout.variables)) if given is None else np.asarray(given)
    return jnp.asarray(units_by_colour(p.layout, each))
