"""Hard logical constraints: one variable is the OR, or the AND, of others."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from undirected.core.layout import Layout
from undirected.core.numerics import NEG_INF, is_zero
from undirected.factors.base import TableGroup, Temperature
from undirected.factors.incidence import Incidence
from undirected.factors.sums import hard_others, log_expm1, log_one_minus_exp, soft_others
from undirected.factors.wired import Wired, check_size, family


class Logic(Wired):
    """Hard constraints: the last slot is the OR (or, where `conjunction`, the AND) of the others.

    In beliefs, `weight` is the probability that each factor is violated. An AND is an OR of what
    is false, so one set of messages serves both.
    """

    weight: Float[Array, " F"] | None
    incidence: Incidence | None
    conjunction: bool = eqx.field(static=True, default=False)

    @property
    def idle(self) -> float:
        """The value of a parent that changes nothing."""
        return 1.0 if self.conjunction else 0.0

    def statistic(self, layout: Layout, x: Float[Array, " n"]) -> "Logic":
        *parents, child = self.wires.spread(x, self.idle)
        sides = jnp.stack(parents)
        value = sides.prod(0) if self.conjunction else 1 - (1 - sides).prod(0)
        violated = value * (1 - child) + (1 - value) * child
        return Logic(violated, None, self.conjunction)

    def pairing(self, mean: "Logic") -> Float[Array, ""]:
        return NEG_INF * jnp.sum(jnp.asarray(mean.weight))

    def from_gradient(self, slope: "Logic") -> "Logic":
        return self._kept()

    def tables(self, layout: Layout, most: int) -> list[TableGroup]:
        slots, count = self.wires.units.shape
        check_size("Logic", slots, most)
        x = np.indices((2,) * slots)
        one = x[:-1].min(0) if self.conjunction else x[:-1].max(0)
        logs = jnp.asarray(np.where(one == x[-1], 0.0, NEG_INF), float)
        logs = jnp.broadcast_to(logs[None], (count, *logs.shape))
        return [TableGroup(self.binary_scopes(layout), logs, int(self.idle))]

    def from_tables(self, layout: Layout, shares: Sequence[Array]) -> "Logic":
        return self._kept()

    def factor_messages(
        self, cavity: Float[Array, "W F"], temperature: Temperature
    ) -> Float[Array, "W F"]:
        sign = -1.0 if self.conjunction else 1.0
        parents, child = sign * cavity[:-1], sign * cavity[-1:]
        if is_zero(temperature):
            others, most, everyone = hard_others(parents)
            some = others + jnp.minimum(most, 0.0)
            up = jnp.where(child + some < 0, child + others, jnp.maximum(-most, 0.0))
        else:
            T = temperature
            parents, child = parents / T, child / T
            rest, log_rest, whole, log_whole = soft_others(parents)
            some = log_expm1(rest, log_rest)  # log-odds of "another parent is on"
            gap = log_one_minus_exp(rest, log_rest)
            up = jnp.where(child + some < 0, child + rest, gap)
            up = T * (up - jnp.log1p(jnp.exp(-jnp.abs(child + some))))
            everyone = T * log_expm1(whole, log_whole)
        return sign * jnp.concatenate([up, everyone[None]])

    def factor_beliefs(
        self, cavity: Float[Array, "W F"], temperature: Temperature
    ) -> tuple["Logic", Float[Array, " F"]]:
        sign, T = -1.0 if self.conjunction else 1.0, temperature
        parents, child = sign * cavity[:-1] / T, sign * cavity[-1] / T
        _, _, whole, log_whole = soft_others(parents)
        none = -jnp.maximum(parents, 0.0).sum(0) - jnp.maximum(child, 0.0)
        rest = jax.nn.softplus(-jnp.abs(parents)).sum(0) - log_one_minus_exp(whole, log_whole)
        log_z = T * jnp.logaddexp(none, jnp.minimum(child, 0.0) + rest)
        return Logic(jnp.zeros_like(log_z), None, self.conjunction), log_z

    def _kept(self) -> "Logic":
        """Beliefs where the constraint holds."""
        return Logic(jnp.zeros(self.wires.n_factors), None, self.conjunction)


def logical_or(layout: Layout, parents: ArrayLike, child: ArrayLike) -> Logic:
    """Factors that make a child the OR of its parents.

    Args:
        layout: the layout of the model.
        parents: (F, d), the binary variables of each factor; -1 fills rows with fewer.
        child: (F,), the binary variable that is on where at least one parent is.

    Returns:
        A group for `FactorGraph.create`.

    Example:
        >>> import undirected as un
        >>> layout = un.discrete(x=3)
        >>> graph = un.FactorGraph.create(layout, [un.logical_or(layout, [[0, 1]], [2])])
        >>> un.query(graph, given={0: 1, 1: 0})
        {2: {0: 0.0, 1: 1.0}}
    """
    return Logic(None, family("logical_or", layout, parents, child))


def logical_and(layout: Layout, parents: ArrayLike, child: ArrayLike) -> Logic:
    """Factors that make a child the AND of its parents.

    Args:
        layout: the layout of the model.
        parents: (F, d), the binary variables of each factor; -1 fills rows with fewer.
        child: (F,), the binary variable that is on where all parents are.

    Returns:
        A group for `FactorGraph.create`.

    Example:
        >>> import undirected as un
        >>> layout = un.discrete(x=3)
        >>> graph = un.FactorGraph.create(layout, [un.logical_and(layout, [[0, 1]], [2])])
        >>> un.query(graph, given={0: 1, 1: 0})
        {2: {0: 1.0, 1: 0.0}}
    """
    return Logic(None, family("logical_and", layout, parents, child), conjunction=True)
