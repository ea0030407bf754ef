"""What the groups of any order share: messages along an incidence of slots and units."""

from typing import Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy.typing import ArrayLike

from undirected.core.errors import UndirectedError
from undirected.core.layout import Layout, Variables
from undirected.core.numerics import CERTAIN, NEG_INF
from undirected.factors.base import Factor, Messages, Schedule, Temperature
from undirected.factors.incidence import (
    UNUSED,
    Incidence,
    binary_units,
    check_scopes,
    connect,
    even_rows,
)
from undirected.factors.sums import binary_share, sum_axes


class Wired(Factor):
    """A group whose factors send messages along an incidence; beliefs about it carry none.

    An author writes `statistic`, `factor_messages` and `factor_beliefs`.
    """

    weight: eqx.AbstractVar[Array | None]
    incidence: eqx.AbstractVar[Incidence | None]

    @property
    def wires(self) -> Incidence:
        """The incidence of a group of potentials."""
        if self.incidence is None:
            raise UndirectedError(
                f"{type(self).__name__}: this group holds beliefs; pass the potentials"
            )
        return self.incidence

    @property
    def idle(self) -> float:
        """The value of a slot that is not used."""
        return 0.0

    def check(self, layout: Layout) -> None:
        """The group must have been made for as many units."""
        if self.wires.n != layout.n:
            raise UndirectedError(
                f"{type(self).__name__}: a group made for {self.wires.n} units, on a layout of "
                f"{layout.n}"
            )

    def factor_messages(
        self, cavity: Float[Array, "W F"], temperature: Temperature
    ) -> Float[Array, "W F"]:
        """The message of every factor to each of its slots, from the cavity fields."""
        raise self._refusal("messages")

    def factor_beliefs(
        self, cavity: Float[Array, "W F"], temperature: Temperature
    ) -> tuple[Self, Float[Array, " F"]]:
        """Expected statistics of the factors, and T log of the sum over their states.

        The sum is measured from the best state of each variable alone.
        """
        raise self._refusal("beliefs")

    def slot_normalisers(
        self, cavity: Float[Array, "W F"], sent: Float[Array, "W F"], temperature: Temperature
    ) -> Float[Array, " F"]:
        """Log normalisers of every factor's variables with its messages, measured likewise."""
        return binary_share(cavity, sent, temperature).sum(0)

    def as_beliefs(self, weight: Array | None) -> Self:
        """Beliefs about this group from its expected statistic: without the incidence."""
        none = lambda leaf: leaf is None  # noqa: E731
        return eqx.tree_at(lambda f: (f.weight, f.incidence), self, (weight, None), is_leaf=none)

    def from_gradient(self, slope: Self) -> Self:
        return self.as_beliefs(slope.weight)

    def init_messages(self, layout: Layout) -> Messages:
        """No message: a table or a constraint that has said nothing prefers no state."""
        zeros = jnp.zeros(self.wires.units.shape, jnp.result_type(float))
        return Messages(zeros, zeros[:0], jnp.zeros(layout.n, zeros.dtype))

    def update_messages(
        self, layout: Layout, total: Float[Array, " n"], messages: Messages, schedule: Schedule
    ) -> Messages:
        """Messages are at most certain: around a loop, sums of certainties would grow forever."""
        fresh = self.factor_messages(self._cavity(total, messages), schedule.temperature)
        forward = schedule.mix(jnp.clip(fresh, NEG_INF, CERTAIN), messages.forward)
        return Messages(forward, messages.backward, self.wires.gather(forward))

    def beliefs(
        self,
        layout: Layout,
        total: Float[Array, " n"],
        unary: Float[Array, " n"],
        messages: Messages,
        temperature: Temperature,
    ) -> tuple[Self, Float[Array, ""]]:
        cavity, sent = self._cavity(total, messages), messages.forward
        mean, log_z = self.factor_beliefs(cavity, temperature)
        return mean, (log_z - self.slot_normalisers(cavity, sent, temperature)).sum()

    def without_decided(self, messages: Messages, decided: Bool[Array, " n"]) -> Messages:
        """The messages to units that are not decided; an unused slot counts as decided."""
        deaf = self.wires.spread(decided, True)
        forward = jnp.where(deaf, 0.0, messages.forward)
        return Messages(forward, messages.backward, self.wires.gather(forward))

    def _cavity(self, total: Float[Array, " n"], messages: Messages) -> Float[Array, "W F"]:
        """The fields of the units without this factor's messages; an unused slot is certain."""
        idle = CERTAIN if self.idle else NEG_INF
        return self.wires.spread(total, idle) - messages.forward

    def scopes(self, layout: Layout) -> list[Int[np.ndarray, "F d"]]:
        owner = np.append(Variables.of(layout).owner, UNUSED)
        return [owner[np.asarray(self.wires.units)].T]

    def binary_scopes(self, layout: Layout) -> Int[Array, "F d"]:
        """The variable of every slot of a group of binary variables, -1 where it is not used."""
        owner = jnp.append(jnp.asarray(Variables.of(layout).owner), UNUSED)
        return owner[self.wires.units].T


class WiredStates(Wired):
    """A wired group on variables of any number of states.

    A binary variable takes one slot of the incidence, a categorical one as many as it has states;
    `widths` says how many slots each variable of a factor takes.
    """

    widths: eqx.AbstractVar[tuple[int, ...]]

    def scopes(self, layout: Layout) -> list[Int[np.ndarray, "F d"]]:
        first = np.cumsum((0, *self.widths[:-1]))
        return [Variables.of(layout).owner[np.asarray(self.wires.units)[first]].T]

    def slot_normalisers(
        self, cavity: Float[Array, "W F"], sent: Float[Array, "W F"], temperature: Temperature
    ) -> Float[Array, " F"]:
        total, start = jnp.zeros(cavity.shape[1], cavity.dtype), 0
        for width in self.widths:
            own, new = cavity[start : start + width], sent[start : start + width]
            start += width
            if width == 1:
                total = total + binary_share(own, new, temperature)[0]
            else:
                total = total + sum_axes(own - own.max(0, keepdims=True) + new, (0,), temperature)
        return total

    def owners(self, layout: Layout) -> Int[Array, "F d"]:
        """The variables of every factor: the owners of the first slots of each."""
        first = np.cumsum((0, *self.widths[:-1]))
        return jnp.asarray(Variables.of(layout).owner)[self.wires.units[first]].T

    def one_hot(self, slots: Float[Array, "W F"]) -> list[Float[Array, "k F"]]:
        """Indicators of the states of every variable of the factors, from their slots."""
        parts, start = [], 0
        for width in self.widths:
            part = slots[start : start + width]
            parts.append(part if width > 1 else jnp.concatenate([1 - part, part]))
            start += width
        return parts

    def levels(self, cavity: Float[Array, "W F"]) -> list[Float[Array, "k F"]]:
        """The cavity of every variable as one number per state, the largest 0."""
        parts, start = [], 0
        for width in self.widths:
            part = cavity[start : start + width]
            if width == 1:
                parts.append(jnp.concatenate([-jnp.maximum(part, 0.0), jnp.minimum(part, 0.0)]))
            else:
                parts.append(part - part.max(0, keepdims=True))
            start += width
        return parts


def state_units(
    caller: str, layout: Layout, scopes: Int[np.ndarray, "F d"], states: tuple[int, ...]
) -> tuple[Incidence, tuple[int, ...]]:
    """The incidence of factors on variables of these numbers of states, and their widths."""
    variables = Variables.of(layout)
    widths = np.asarray([k if k > 2 else 1 for k in states])
    if len(scopes):
        widths = variables.width[scopes[0]]
    if (variables.width[scopes] != widths[None]).any():
        raise UndirectedError(f"{caller}: binary and two-state categorical variables in one column")
    units = [
        variables.first[scopes[:, slot]] + step
        for slot, width in enumerate(widths)
        for step in range(width)
    ]
    incidence = connect(layout, np.stack(units) if units else np.zeros((0, len(scopes)), np.int64))
    return incidence, tuple(int(w) for w in widths)


def family(caller: str, layout: Layout, many: ArrayLike, one: ArrayLike) -> Incidence:
    """The incidence of factors with many slots of one kind and one of another at the end."""
    many, one = even_rows(caller, many), np.asarray(one)
    if many.ndim != 2 or many.shape[1] < 1 or one.shape != many.shape[:1]:
        raise UndirectedError(
            f"{caller}: got variables of shape {many.shape} and {one.shape}; pass (factors, at "
            "least one) and (factors,)"
        )
    both: Int[np.ndarray, "F d"] = np.concatenate([many, one[:, None]], 1)
    found = check_scopes(caller, Variables.of(layout), both)
    empty = (found[:, :-1] == UNUSED).all(1) | (found[:, -1] == UNUSED)
    if empty.any():
        raise UndirectedError(
            f"{caller}: factor {np.flatnonzero(empty)[0]} lacks its last variable or all others"
        )
    return connect(layout, binary_units(caller, layout, found))


def check_size(group: str, slots: int, most: int) -> None:
    """Refuse explicit tables of binary variables that would be too large."""
    if 2**slots > most:
        raise UndirectedError(
            f"tables: a {group} factor has {slots} variables, a table of 2^{slots} entries "
            f"(limit {most:,}); use belief propagation"
        )
