"""What the units of a model are: blocks of binary, categorical, real or nonnegative variables."""

import enum
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from undirected.core.cells import unmasked
from undirected.core.errors import UndirectedError, UnsupportedFactor


class Domain(enum.Enum):
    """The values a unit takes; a categorical variable of K states is K one-hot units."""

    BINARY = "binary"
    CATEGORICAL = "categorical"
    REAL = "real"
    NONNEGATIVE = "nonnegative"


CONTINUOUS = Domain.REAL, Domain.NONNEGATIVE


@dataclass(frozen=True)
class Block:
    """A run of units of one domain, [start, stop); `states` is K for categorical variables."""

    name: str
    start: int
    stop: int
    domain: Domain = Domain.BINARY
    states: int = 2
    visible: bool = True

    @property
    def size(self) -> int:
        return self.stop - self.start

    @property
    def slice(self) -> slice:
        return slice(self.start, self.stop)

    @property
    def width(self) -> int:
        """Units per variable: K one-hot units for a categorical one, otherwise one."""
        return self.states if self.domain is Domain.CATEGORICAL else 1

    @property
    def variables(self) -> int:
        """Number of variables."""
        return self.size // self.width


ROOM = 2**16
"""Padding that is always allowed, in numbers: less than a program more would cost."""


@dataclass(frozen=True)
class MixedBlock(Block):
    """Categorical blocks that follow each other, seen as one, so that one program serves them all.

    `states` is the largest of their numbers of states.
    """

    blocks: tuple[Block, ...] = ()

    @property
    def variables(self) -> int:
        return sum(block.variables for block in self.blocks)

    @cached_property
    def place(self) -> Int[np.ndarray, "variables states"]:
        """Where in the block the unit of each state is; its size where there is no such state."""
        counts = [block.variables for block in self.blocks]
        widths = np.repeat([block.states for block in self.blocks], counts)
        state = np.arange(self.states)[None]
        first = (np.cumsum(widths) - widths)[:, None]
        return np.where(state < widths[:, None], first + state, self.size).astype(np.int32)

    @cached_property
    def flat(self) -> Int[np.ndarray, " size"]:
        """Where every unit of the block is among the entries of `place`."""
        return np.flatnonzero(self.place.ravel() < self.size).astype(np.int32)


@dataclass(frozen=True)
class Labels:
    """The words users have for variables and for their states.

    `names` and `states` follow the numbers of the variables (block after block); where a variable
    has no words for its states (None) they are 0, 1, ... `order` lists the variables as their user
    declared them, which is the order of answers.
    """

    names: tuple[Hashable, ...]
    states: tuple[tuple[Hashable, ...] | None, ...]
    order: tuple[int, ...]

    @cached_property
    def number(self) -> dict[Hashable, int]:
        """The variable of every name."""
        return {name: i for i, name in enumerate(self.names)}


@dataclass(frozen=True)
class Layout:
    """The units of a model, block after block, visible ones first. Hashable: static under jit."""

    blocks: tuple[Block, ...]
    labels: Labels | None = None

    def __post_init__(self) -> None:
        position, hidden_seen = 0, False
        for block in self.blocks:
            if block.start != position or block.stop < block.start:
                raise UndirectedError(
                    f"layout: block '{block.name}' covers [{block.start}, {block.stop}), but must "
                    f"start at {position}; blocks follow each other without gaps"
                )
            if block.visible and hidden_seen:
                raise UndirectedError(
                    f"layout: visible block '{block.name}' comes after a hidden one; "
                    "put all visible blocks first"
                )
            if block.states < 2:
                raise UndirectedError(
                    f"layout: block '{block.name}' has variables of {block.states} states; pass at "
                    "least 2"
                )
            if block.domain is Domain.CATEGORICAL and block.size % block.states:
                raise UndirectedError(
                    f"layout: categorical block '{block.name}' has {block.size} units, not a "
                    f"multiple of its {block.states} states"
                )
            position, hidden_seen = block.stop, hidden_seen or not block.visible
        if self.labels is not None:
            _check_labels(self.blocks, self.labels)

    @property
    def n(self) -> int:
        """Number of units."""
        return self.blocks[-1].stop if self.blocks else 0

    @property
    def n_visible(self) -> int:
        """Number of visible units; they are x[..., :n_visible]."""
        return sum(block.size for block in self.blocks if block.visible)

    @property
    def visible(self) -> np.ndarray:
        """Indices of the visible units."""
        return np.arange(self.n_visible)

    @property
    def hidden(self) -> np.ndarray:
        """Indices of the hidden units."""
        return np.arange(self.n_visible, self.n)

    @cached_property
    def runs(self) -> tuple[Block, ...]:
        """The blocks, categorical ones that follow each other as one where padding allows it."""
        found: list[Block] = []
        for block in self.blocks:
            joined = _joined(found[-1], block) if found else None
            if joined is None:
                found.append(block)
            else:
                found[-1] = joined
        return tuple(found)

    @cached_property
    def is_binary(self) -> bool:
        """Whether every unit is binary."""
        return all(block.domain is Domain.BINARY for block in self.blocks)

    @cached_property
    def is_continuous(self) -> Bool[np.ndarray, " n"]:
        """Which units are real or nonnegative."""
        return np.repeat(
            [block.domain in CONTINUOUS for block in self.blocks],
            [block.size for block in self.blocks],
        ).astype(bool)

    @cached_property
    def variables(self) -> "Variables":
        """First unit, width and states of every discrete variable."""
        return Variables.of(self)

    @property
    def names(self) -> tuple[Hashable, ...]:
        """The name of every variable in the order of answers; numbers where there are no names."""
        if self.labels is None:
            return self.order
        return tuple(self.labels.names[i] for i in self.order)

    @property
    def order(self) -> tuple[int, ...]:
        """The numbers of the variables in the order of answers."""
        if self.labels is None:
            return tuple(range(sum(block.variables for block in self.blocks)))
        return self.labels.order

    def variable(self, caller: str, name: Any) -> int:
        """The number of the variable of that name."""
        count = len(self.variables)
        if self.labels is not None:
            if isinstance(name, Hashable) and name in self.labels.number:
                return self.labels.number[name]
            some = ", ".join(repr(known) for known in self.names[:6])
            more = ", ..." if count > 6 else ""
            raise UndirectedError(f"{caller}: no variable is called {name!r:.40}; got {some}{more}")
        if isinstance(name, bool) or not isinstance(name, Integral) or not 0 <= int(name) < count:
            raise UndirectedError(
                f"{caller}: there is no variable {name!r:.40}; pass a whole number, 0 to "
                f"{count - 1}"
            )
        return int(name)

    def states_of(self, variable: int) -> tuple[Hashable, ...]:
        """The words for the states of a variable; 0, 1, ... where there are none."""
        words = None if self.labels is None else self.labels.states[variable]
        return tuple(range(int(self.variables.states[variable]))) if words is None else words

    def state(self, caller: str, variable: int, state: Any) -> int:
        """The number of a state of a variable, from its word or number."""
        words = self.states_of(variable)
        if isinstance(state, Hashable) and state in words:  # True is 1, and 1.0 too
            return words.index(state)
        name = variable if self.labels is None else self.labels.names[variable]
        some = ", ".join(repr(word) for word in words[:6]) + (", ..." if len(words) > 6 else "")
        raise UndirectedError(
            f"{caller}: variable {name!r} has no state {state!r:.40}; pass one of {some}"
        )

    def block(self, name: str) -> Block:
        """The block of that name."""
        for block in self.blocks:
            if block.name == name:
                return block
        raise UndirectedError(
            f"layout: no block '{name}'; there are {', '.join(b.name for b in self.blocks)}"
        )


def _joined(before: Block, block: Block) -> MixedBlock | None:
    """Two categorical blocks as one, if at most half of it, or little, is padding."""
    alike = before.visible == block.visible and before.domain is block.domain
    if not alike or block.domain is not Domain.CATEGORICAL:
        return None
    blocks = (*(before.blocks if isinstance(before, MixedBlock) else (before,)), block)
    most, size = max(b.states for b in blocks), block.stop - before.start
    if sum(b.variables for b in blocks) * most > max(2 * size, size + ROOM):
        return None
    name = f"{blocks[0].name} to {block.name}"
    return MixedBlock(name, before.start, block.stop, block.domain, most, block.visible, blocks)


def check_discrete(caller: str, *blocks: Block) -> None:
    """Refuse units that are neither binary nor categorical."""
    for block in blocks:
        if block.domain not in (Domain.BINARY, Domain.CATEGORICAL):
            raise UnsupportedFactor(
                f"{caller}: block '{block.name}' is {block.domain.value}; wanted binary or "
                "categorical units"
            )


def check_binary(caller: str, *blocks: Block) -> None:
    """Refuse units that are not binary."""
    for block in blocks:
        if block.domain is not Domain.BINARY:
            raise UnsupportedFactor(
                f"{caller} needs binary units, block '{block.name}' is {block.domain.value}"
            )


def _check_labels(blocks: tuple[Block, ...], labels: Labels) -> None:
    """Words for all variables and, where there are any, for all their states."""
    sizes = [block.states for block in blocks for _ in range(block.variables)]
    lengths = {len(labels.names), len(labels.states), len(labels.order)}
    if (
        lengths != {len(sizes)}
        or sorted(labels.order) != list(range(len(sizes)))
        or any(w is not None and len(w) != k for w, k in zip(labels.states, sizes, strict=True))
    ):
        raise UndirectedError(
            f"layout: {len(labels.names)} names, {len(labels.states)} lists of states and an order "
            f"of {len(labels.order)} for {len(sizes)} variables; pass one of each a variable, as "
            "many words as it has states, and every variable once in the order"
        )


@dataclass(frozen=True)
class Variables:
    """First unit, number of units and number of states of every variable of a layout."""

    first: Int[np.ndarray, " m"]
    width: Int[np.ndarray, " m"]
    states: Int[np.ndarray, " m"]

    @classmethod
    def of(cls, layout: Layout) -> "Variables":
        """Variables are numbered block after block."""
        check_discrete("factor graph", *layout.blocks)
        counts = [block.variables for block in layout.blocks]
        width = np.repeat([block.width for block in layout.blocks], counts).astype(np.int64)
        states = [b.states if b.domain is Domain.CATEGORICAL else 2 for b in layout.blocks]
        return cls(np.cumsum(width) - width, width, np.repeat(states, counts).astype(np.int64))

    def __len__(self) -> int:
        return len(self.first)

    @property
    def owner(self) -> Int[np.ndarray, " n"]:
        """The variable of every unit."""
        return np.repeat(np.arange(len(self)), self.width)


def to_units(
    layout: Layout, states: Int[np.ndarray, "*batch variables"]
) -> Float[Array, "*batch n"]:
    """The units of joint states: 0 or 1, and one of several for a variable of many states."""
    variables, found = layout.variables, np.asarray(states)
    if found.shape[-1:] != (len(variables),) or not np.issubdtype(found.dtype, np.integer):
        raise UndirectedError(
            f"to_units: states of shape {found.shape} and type {found.dtype}; pass a whole number "
            f"for each of {len(variables)} variables"
        )
    for variable in np.unique(np.nonzero((found < 0) | (found >= variables.states))[-1]):
        own = found[..., variable]
        bad = own[(own < 0) | (own >= variables.states[variable])]
        raise UndirectedError(
            f"to_units: variable {variable} has no state {bad.flat[0]}; pass one of 0 to "
            f"{variables.states[variable] - 1}"
        )
    owner = variables.owner
    step = np.arange(len(owner)) - variables.first[owner]
    state = np.where(variables.width[owner] == 1, 1, step)
    return jnp.asarray(found[..., owner] == state, float)


def joint_states(caller: str, layout: Layout, x: Any) -> Float[Array, "*batch n"]:
    """States of all units, hidden ones included, as floating point numbers."""
    x = _floats(caller, x)
    if x.shape[-1:] != (layout.n,):
        raise UndirectedError(
            f"{caller}: the states have shape {x.shape}, the model has {layout.n} units of which "
            f"{layout.n_visible} are visible; pass joint states (*batch, {layout.n})"
            f"{one_hot_hint(layout, x.shape)}"
        )
    return x


def visible_states(caller: str, layout: Layout, v: Any) -> Float[Array, "*batch v"]:
    """States of the visible units as floating point numbers."""
    v = _floats(caller, v)
    if v.shape[-1:] != (layout.n_visible,):
        raise UndirectedError(
            f"{caller}: the rows have shape {v.shape}; pass (*batch, {layout.n_visible}), one "
            f"entry for each visible unit{one_hot_hint(layout, v.shape)}"
        )
    return v


def _floats(caller: str, states: Any) -> Float[Array, "..."]:
    try:
        found = jnp.asarray(unmasked(states))
    except (TypeError, ValueError, OverflowError) as error:
        what = f"the states are {states!r:.40}"
        raise UndirectedError(f"{caller}: {what}; pass an array of numbers") from error
    return found if jnp.issubdtype(found.dtype, jnp.inexact) else found.astype(float)


def one_hot_hint(layout: Layout, shape: tuple[int, ...]) -> str:
    """What an error about the shape of units adds where there is one number for each variable."""
    if layout.is_binary or layout.is_continuous.any() or shape[-1:] != (len(layout.variables),):
        return ""
    return (
        "; undirected.core.layout.to_units(model.layout, rows) makes one-hot rows of numbers of "
        "states"
    )


def marginals(
    layout: Layout, unary: Float[Array, "*batch n"] | Float[np.ndarray, "*batch n"]
) -> Float[Array, "*batch variables most"]:
    """Probability of every state of every variable; 0 beyond the last state of a variable.

    `unary` are means of units, as beliefs have them, or joint states; `.argmax(-1)` gives states.
    Of a NumPy array they are found in NumPy, which compiles nothing.
    """
    xp: Any = np if isinstance(unary, np.ndarray) else jnp
    variables = layout.variables
    state = np.arange(int(variables.states.max()))
    exists = state < variables.states[:, None]
    binary = variables.width[:, None] == 1
    place = variables.first[:, None] + np.where(binary | ~exists, 0, state)
    found = xp.asarray(unary)[..., place]
    found = xp.where(binary & (state == 0), 1 - found, found)
    return xp.where(exists, found, 0)
