"""Couplings of three binary units."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from undirected.core.errors import UndirectedError
from undirected.core.layout import Layout, Variables
from undirected.core.numerics import message
from undirected.factors.base import Messages, TableGroup, Temperature
from undirected.factors.incidence import UNUSED, Incidence, binary_units, check_scopes, connect
from undirected.factors.sums import sum_axes
from undirected.factors.wired import Wired, check_size


class ThirdOrder(Wired):
    """Couplings sum_f w_f x_i x_j x_k of binary units.

    Args:
        weight: one number for each triple; in beliefs, the probability that all three are on.
        incidence: the units of the triples; None in beliefs.
    """

    weight: Float[Array, " F"]
    incidence: Incidence | None

    def statistic(self, layout: Layout, x: Float[Array, " n"]) -> "ThirdOrder":
        return ThirdOrder(self.wires.spread(x).prod(0), None)

    def local_field(self, layout: Layout, x: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
        """For each unit the weights of its triples whose other two units are on."""
        a, b, c = (x[..., units] for units in self.wires.units)
        weight = self.weight.reshape((1,) * (x.ndim - 1) + self.weight.shape)
        fields = jnp.zeros_like(x)
        for units, others in zip(self.wires.units, (b * c, a * c, a * b), strict=True):
            fields = fields.at[..., units].add(weight * others)
        return fields

    def tables(self, layout: Layout, most: int) -> list[TableGroup]:
        check_size("ThirdOrder", 3, most)
        logs = jnp.zeros((len(self.weight), 2, 2, 2), self.weight.dtype)
        return [TableGroup(self.binary_scopes(layout), logs.at[:, 1, 1, 1].set(self.weight))]

    def from_tables(self, layout: Layout, shares: Sequence[Array]) -> "ThirdOrder":
        return self.as_beliefs(jnp.asarray(shares[0][:, 1, 1, 1], self.weight.dtype))

    def init_messages(self, layout: Layout) -> Messages:
        """A quarter of the weight: the other two units are on together one time in four."""
        forward = jnp.broadcast_to(0.25 * self.weight, self.wires.units.shape)
        return Messages(forward, forward[:0], self.wires.gather(forward))

    def factor_messages(
        self, cavity: Float[Array, "3 F"], temperature: Temperature
    ) -> Float[Array, "3 F"]:
        """The message of a unit that stands for "both others are on".

        Its odds are ab / (1 + a + b), where a and b are the odds of the two.
        """
        a, b = cavity[np.array([1, 0, 0])], cavity[np.array([2, 2, 1])]
        both = -sum_axes(jnp.stack([-a, -b, -a - b]), (0,), temperature)
        return message(both, self.weight[None], temperature)

    def factor_beliefs(
        self, cavity: Float[Array, "3 F"], temperature: Temperature
    ) -> tuple["ThirdOrder", Float[Array, " F"]]:
        on = np.indices((2, 2, 2)).reshape(3, 8, 1)
        best = jnp.minimum(cavity, 0.0)[:, None], -jnp.maximum(cavity, 0.0)[:, None]
        logs = jnp.where(on == 1, *best).sum(0).at[7].add(self.weight)
        log_z = sum_axes(logs, (0,), temperature)
        return ThirdOrder(jnp.exp((logs[7] - log_z) / temperature), None), log_z


def third_order(layout: Layout, triples: ArrayLike, weight: ArrayLike) -> ThirdOrder:
    """Couplings w x_i x_j x_k of three binary variables.

    Args:
        layout: the layout of the model.
        triples: (F, 3), the binary variables of each coupling.
        weight: (F,), or one number for all.

    Returns:
        A group for `FactorGraph.create`.

    Example:
        >>> import numpy as np
        >>> import undirected as un
        >>> layout = un.discrete(x=3)
        >>> graph = un.FactorGraph.create(layout, [un.third_order(layout, [[0, 1, 2]], np.log(3))])
        >>> un.query(graph, given={0: 1, 1: 1})
        {2: {0: 0.25, 1: 0.75}}
    """
    found = check_scopes("third_order", Variables.of(layout), triples, arity=3)
    if (found == UNUSED).any():
        raise UndirectedError("third_order: a variable is -1; use Edges for pairs")
    strength = jnp.asarray(weight, float)
    if strength.shape not in ((), (len(found),)):
        raise UndirectedError(
            f"third_order: {len(found)} triples, but a weight of shape {strength.shape}; pass one "
            f"number or ({len(found)},)"
        )
    units = binary_units("third_order", layout, found)
    return ThirdOrder(jnp.broadcast_to(strength, (len(found),)), connect(layout, units))
