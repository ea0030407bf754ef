"""Hard choice: exactly one of several variables is on where an indicator is, otherwise none."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from undirected.core.layout import Layout
from undirected.core.numerics import NEG_INF, is_zero, logsumexp, softplus
from undirected.factors.base import TableGroup, Temperature
from undirected.factors.incidence import Incidence
from undirected.factors.sums import leader, log_others
from undirected.factors.wired import Wired, check_size, family


class Pool(Wired):
    """Hard constraints: exactly one of the choices is 1 where the last slot is 1, else none.

    In beliefs, `weight` is the probability that each factor is violated.
    """

    weight: Float[Array, " F"] | None
    incidence: Incidence | None

    def statistic(self, layout: Layout, x: Float[Array, " n"]) -> "Pool":
        *choices, indicator = self.wires.spread(x)
        none, one = jnp.ones_like(indicator), jnp.zeros_like(indicator)
        for choice in choices:  # probability that none, and that one, of the choices so far is on
            none, one = none * (1 - choice), one * (1 - choice) + none * choice
        return Pool(1 - (1 - indicator) * none - indicator * one, None)

    def pairing(self, mean: "Pool") -> Float[Array, ""]:
        return NEG_INF * jnp.sum(jnp.asarray(mean.weight))

    def from_gradient(self, slope: "Pool") -> "Pool":
        return self._kept()

    def tables(self, layout: Layout, most: int) -> list[TableGroup]:
        slots, count = self.wires.units.shape
        check_size("Pool", slots, most)
        x = np.indices((2,) * slots)
        logs = jnp.asarray(np.where(x[:-1].sum(0) == x[-1], 0.0, NEG_INF), float)
        logs = jnp.broadcast_to(logs[None], (count, *logs.shape))
        return [TableGroup(self.binary_scopes(layout), logs)]

    def from_tables(self, layout: Layout, shares: Sequence[Array]) -> "Pool":
        return self._kept()

    def factor_messages(
        self, cavity: Float[Array, "W F"], temperature: Temperature
    ) -> Float[Array, "W F"]:
        choices, indicator = cavity[:-1], cavity[-1:]
        others, everyone = log_others(choices, temperature)
        up = jnp.minimum(indicator, -others)
        if not is_zero(temperature):
            up = up - softplus(-jnp.abs(indicator + others), temperature)
        return jnp.concatenate([up, everyone[None]])

    def factor_beliefs(
        self, cavity: Float[Array, "W F"], temperature: Temperature
    ) -> tuple["Pool", Float[Array, " F"]]:
        choices, indicator = cavity[:-1], cavity[-1]
        positive = jnp.maximum(choices, 0.0)
        _, lead = leader(positive)
        rest = jnp.where(lead, 0.0, positive).sum(0)
        top = jnp.where(lead, positive, 0.0).sum(0)
        without = jnp.where(lead, rest[None], top[None] + rest[None] - positive)
        on = logsumexp(jnp.minimum(choices, 0.0) - without, temperature, 0)
        on = on + jnp.minimum(indicator, 0.0)
        off = -(top + rest) - jnp.maximum(indicator, 0.0)
        log_z = logsumexp(jnp.stack([on, off]), temperature, 0)
        return Pool(jnp.zeros_like(log_z), None), log_z

    def _kept(self) -> "Pool":
        """Beliefs where the constraint holds."""
        return Pool(jnp.zeros(self.wires.n_factors), None)


def pool(layout: Layout, choices: ArrayLike, indicator: ArrayLike) -> Pool:
    """Factors that switch on exactly one choice where the indicator is on, otherwise none.

    Args:
        layout: the layout of the model.
        choices: (F, d), the binary variables of each factor; -1 fills rows with fewer.
        indicator: (F,), the binary variable that says whether one of them is on.

    Returns:
        A group for `FactorGraph.create`.

    Example:
        >>> import undirected as un
        >>> layout = un.discrete(x=3)
        >>> graph = un.FactorGraph.create(layout, [un.pool(layout, [[0, 1]], [2])])
        >>> un.query(graph, given={0: 0, 2: 1})
        {1: {0: 0.0, 1: 1.0}}
    """
    return Pool(None, family("pool", layout, choices, indicator))
