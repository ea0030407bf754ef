"""What a factor group says of itself, so that no algorithm has to know its class.

A group holds all factors of one kind as arrays. It answers for its *statistic* (what its weight
multiplies), and offers *views*: `local_field` (what each unit feels), `pairs` (as couplings of two
units), `tables` (as explicit tables) and messages. A view that a group lacks is refused by name.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from undirected.core.errors import UnsupportedFactor
from undirected.core.layout import Layout

if TYPE_CHECKING:
    from undirected.core.potentials import Potentials

Temperature = float | Array


class Messages(eqx.Module):
    """Messages of one group on their way, and their sum at every unit.

    What `forward` and `backward` hold is the group's own affair; `backward` may be empty.
    """

    forward: Array
    backward: Array
    incoming: Float[Array, " n"]


class Schedule(eqx.Module):
    """How messages are updated: temperature, share of the old one kept, in turn or all at once."""

    temperature: Temperature
    damping: float = eqx.field(static=True)
    parallel: bool = eqx.field(static=True)

    def mix(self, new: Array, old: Array) -> Array:
        """The new messages with this schedule's share of the old ones."""
        return new if self.damping == 0 else (1 - self.damping) * new + self.damping * old


class Pairs(NamedTuple):
    """A group as couplings of two units: sum_e weight_e x_i x_j + field' x + constant."""

    edges: Int[Array, "E 2"]
    weight: Float[Array, " E"]
    field: Float[Array, " n"]
    constant: Float[Array, ""]


class TableGroup(NamedTuple):
    """Factors of one shape as explicit log-potentials (F, *states) on variables (F, d).

    Variables are numbered block after block. A variable of -1 is a slot that is not used: there
    only the state `idle` counts. What is forbidden is -1e9 or less.
    """

    scopes: Int[Array, "F d"]
    logs: Float[Array, "F *states"]
    idle: int = 0

    def place(self, scope: Iterable[int]) -> tuple[int | slice, ...]:
        """Where the table of a factor is in that of its shape: slots not used are idle."""
        return tuple(slice(None) if v >= 0 else self.idle for v in scope)


class Factor(eqx.Module):
    """One factor group: all factors of one kind, as arrays. The base class of every group.

    A group has a `weight`, which its statistic multiplies. `statistic` is multilinear: at the means
    of independent units it is the expected statistic. Beliefs about a group are a group of the same
    class whose weight is the expected statistic. Algorithms ask a group for views (`pairs`,
    `tables`, `local_field`, messages); `offers` says which it has.

    Args:
        weight: an array, or what else the group multiplies its statistic by.

    Example:
        >>> import undirected as un
        >>> layout = un.discrete(x=3)
        >>> group = un.third_order(layout, [[0, 1, 2]], 0.5)
        >>> isinstance(group, un.Factor), group.offers("tables"), group.offers("pairs")
        (True, True, False)
    """

    weight: eqx.AbstractVar[Any]

    pairwise: ClassVar[bool] = False
    """Whether the group is sum_ij J_ij x_i x_j over pairs of units of any domain."""

    def offers(self, view: str) -> bool:
        """Whether this class of groups has its own version of a view."""
        return getattr(type(self), view) is not getattr(Factor, view)

    def check(self, layout: Layout) -> None:
        """Raise where the group cannot stand on the units of this layout."""

    @property
    def forbids(self) -> bool:
        """Whether the group forbids states whatever its weight is, so that no path weakens it."""
        return self.weight is None

    # What the group adds to the negative energy.

    def statistic(self, layout: Layout, x: Float[Array, " n"]) -> Self:
        """The sufficient statistic at one state, as a group of the same class."""
        raise self._refusal("statistic")

    def pairing(self, mean: Self) -> Float[Array, ""]:
        """The inner product of this group with an expected statistic."""
        return jnp.sum(self.weight * mean.weight)

    def value(self, layout: Layout, x: Float[Array, "batch n"]) -> Float[Array, " batch"]:
        """What the group adds to the negative energy of every state."""
        one = lambda state: self.pairing(self.statistic(layout, state))  # noqa: E731
        return jax.lax.map(one, x, batch_size=64)

    def mean_statistic(self, layout: Layout, x: Float[Array, "samples n"]) -> Self:
        """The mean of the statistic over many states, one state after the other."""

        def add(total: Self, state: Array) -> tuple[Self, None]:
            found = eqx.filter(self.statistic(layout, state), eqx.is_inexact_array)
            return jax.tree.map(lambda a, b: a + b / len(x), total, found), None

        # Whole numbers, such as the edges of a graph, stay as they are.
        first = self.statistic(layout, x[0])
        zero = jax.tree.map(jnp.zeros_like, eqx.filter(first, eqx.is_inexact_array))
        return eqx.combine(jax.lax.scan(add, zero, x)[0], first)

    def from_gradient(self, slope: Self) -> Self:
        """The expected statistic, read off the gradient of log Z in this group."""
        return eqx.tree_at(lambda f: f.weight, self, slope.weight)

    # Views.

    def local_field(self, layout: Layout, x: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
        """The field of each unit given all others: the slope of the group's value.

        For a binary unit the value with it on minus that with it off; for the units of a
        categorical variable the value of each state, up to a constant.
        """
        flat = x.reshape(-1, layout.n)
        return jax.grad(lambda y: self.value(layout, y).sum())(flat).reshape(x.shape)

    def pairs(self, layout: Layout) -> Pairs:
        """The group as couplings of two units."""
        raise self._refusal("pairs")

    def tables(self, layout: Layout, most: int) -> list[TableGroup]:
        """The group as explicit tables of at most `most` entries each."""
        raise self._refusal("tables")

    def from_tables(self, layout: Layout, shares: Sequence[Array]) -> Self:
        """The expected statistic from the joint probabilities (F, *states) of `tables`."""
        raise self._refusal("tables")

    def scopes(self, layout: Layout) -> list[Int[np.ndarray, "F d"]]:
        """Which variables each factor joins, -1 for a slot that is not used; on the host."""
        raise self._refusal("scopes")

    def separated_by(self, blocks: tuple[int, ...]) -> bool:
        """Whether all other blocks are independent units once these blocks are known."""
        return False

    def covariances(self, layout: Layout, matrix: Float[Array, "n n"]) -> Array:
        """The entries of a matrix over all units that belong to this pairwise group's weights."""
        raise self._refusal("covariances")

    # Belief propagation. Messages are log-odds: one number per binary unit, one per state of a
    # categorical variable. `total` is the field of every unit with all messages added.

    def prepare(self) -> "Factor":
        """The group in the form in which its messages are cheapest: done once, not every round."""
        return self

    def init_messages(self, layout: Layout) -> Messages:
        """Neutral messages: relabelling the states of all units relabels them too."""
        raise self._refusal("messages")

    def update_messages(
        self, layout: Layout, total: Float[Array, " n"], messages: Messages, schedule: Schedule
    ) -> Messages:
        """Send every message of the group once."""
        raise self._refusal("messages")

    def beliefs(
        self,
        layout: Layout,
        total: Float[Array, " n"],
        unary: Float[Array, " n"],
        messages: Messages,
        temperature: Temperature,
    ) -> tuple[Self, Float[Array, ""]]:
        """Expected statistic of the group, and its correction to the Bethe log Z.

        The correction is added to the log normalisers of the units in their total fields: the log
        normaliser of every factor with its cavities, minus that of its units with its messages.
        """
        raise self._refusal("messages")

    def _refusal(self, view: str) -> UnsupportedFactor:
        return UnsupportedFactor(f"factor group {type(self).__name__} offers no {view}")


def require(algorithm: str, p: "Potentials", view: str, instead: str) -> None:
    """Refuse potentials with a group that lacks a view, naming algorithm, group and remedy."""
    for factor in p.factors:
        if not factor.offers(view):
            raise UnsupportedFactor(
                f"{algorithm}: a {type(factor).__name__} group offers no {view}; {instead}"
            )
