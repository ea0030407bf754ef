"""Tables given as the list of the configurations that are allowed."""

from collections.abc import Sequence
from math import prod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import ArrayLike

from undirected.core.errors import UndirectedError
from undirected.core.layout import Layout, Variables
from undirected.core.numerics import NEG_INF, is_zero
from undirected.factors.base import TableGroup, Temperature
from undirected.factors.incidence import UNUSED, Incidence, check_scopes
from undirected.factors.sums import sum_axes
from undirected.factors.wired import WiredStates, state_units


class SparseTables(WiredStates):
    """A log-potential for each of K listed configurations of a few variables; others are forbidden.

    Messages cost O(K) for each variable of a factor: the full table is never made.

    Args:
        weight: (F, K), or (K,) where all factors share it. In beliefs the probability of each
            listed configuration (summed over the factors that share).
        incidence: the units of every factor; None in beliefs.
        configurations: (F, K, d) or (K, d), the states of the variables in each; None in beliefs.
        states: the number of states of each of the d variables.
        widths: the number of units of each.
        excess: in beliefs the expected number of factors in a configuration that is not listed.
    """

    weight: Float[Array, "*factors K"]
    incidence: Incidence | None
    configurations: Int[Array, "*factors K d"] | None
    states: tuple[int, ...] = eqx.field(static=True)
    widths: tuple[int, ...] = eqx.field(static=True)
    excess: Float[Array, ""] | None = None

    def check(self, layout: Layout) -> None:
        """Configurations, states and slots must be of the same variables."""
        super().check(layout)
        listed, slots = self.configurations, self.wires.units.shape[0]
        order = 0 if listed is None else listed.shape[-1]
        widths = tuple(
            1 if k == 2 and w == 1 else k for k, w in zip(self.states, self.widths, strict=False)
        )
        if not order == len(self.states) == len(self.widths) or (
            self.widths != widths or sum(self.widths) != slots
        ):
            raise UndirectedError(
                f"SparseTables: configurations of {order} variables of {self.states} states on "
                f"{slots} slots, of widths {self.widths}; make the group by sparse_tables"
            )

    @property
    def forbids(self) -> bool:
        return self.weight.shape[-1] < prod(self.states)

    @property
    def shared(self) -> bool:
        """Whether all factors have the same log-potentials."""
        return self.weight.ndim == 1

    def statistic(self, layout: Layout, x: Float[Array, " n"]) -> "SparseTables":
        parts = self.one_hot(self.wires.spread(x))
        both = zip(parts, self._chosen(), strict=True)
        share = jnp.stack([_pick(part, chosen) for part, chosen in both]).prod(0)
        # The states of a variable sum to 1. Written out, so that the slope along a state that is
        # not listed is -1e9 and along one that is 0, where soft numbers keep their digits.
        whole = jnp.stack([part.sum(0) for part in parts]).prod(0)
        return self._expected(share, (whole - share.sum(0)).sum())

    def pairing(self, mean: "SparseTables") -> Float[Array, ""]:
        forbidden = jnp.zeros(()) if mean.excess is None else NEG_INF * mean.excess
        return jnp.sum(self.weight * mean.weight) + forbidden

    def as_beliefs(self, weight: Array | None) -> "SparseTables":
        """Beliefs where every factor is in a configuration that is listed."""
        assert weight is not None
        return self._with(weight, jnp.zeros(()))

    def tables(self, layout: Layout, most: int) -> list[TableGroup]:
        size, count = prod(self.states), self.wires.n_factors
        if size > most:
            raise UndirectedError(
                f"tables: a SparseTables factor as a full table has {size:,} entries (limit "
                f"{most:,}); use belief propagation"
            )
        logs = jnp.full((count, size), NEG_INF, self.weight.dtype)
        logs = logs.at[jnp.arange(count)[:, None], self._places().T].set(self._logs().T)
        return [TableGroup(self.owners(layout), logs.reshape(count, *self.states))]

    def from_tables(self, layout: Layout, shares: Sequence[Array]) -> "SparseTables":
        flat = jnp.asarray(shares[0], self.weight.dtype).reshape(self.wires.n_factors, -1)
        share = jnp.take_along_axis(flat, self._places().T, 1)
        return self.as_beliefs(share.sum(0) if self.shared else share)

    def factor_messages(
        self, cavity: Float[Array, "W F"], temperature: Temperature
    ) -> Float[Array, "W F"]:
        chosen = self._chosen()
        parts = [_pick(a, b) for a, b in zip(self.levels(cavity), chosen, strict=True)]
        # Sums over the variables before and after each one: nothing is taken off again.
        before, after = [self._logs()], [jnp.zeros_like(parts[0])]
        for part in parts[:-1]:
            before.append(before[-1] + part)
        for part in parts[:0:-1]:
            after.append(after[-1] + part)
        messages = []
        for i, (k, width) in enumerate(zip(self.states, self.widths, strict=True)):
            rest = before[i] + after[len(parts) - 1 - i]
            to_states = _sum_by_state(rest, chosen[i], k, temperature)
            base = to_states[:1] if width == 1 else to_states.max(0, keepdims=True)
            messages.append((to_states - base)[-width:])
        return jnp.concatenate(messages)

    def factor_beliefs(
        self, cavity: Float[Array, "W F"], temperature: Temperature
    ) -> tuple["SparseTables", Float[Array, " F"]]:
        parts = zip(self.levels(cavity), self._chosen(), strict=True)
        logs = sum((_pick(part, chosen) for part, chosen in parts), self._logs())
        log_z = sum_axes(logs, (0,), temperature)
        share = jnp.exp((logs - log_z[None]) / temperature)
        return self._expected(share, jnp.zeros((), share.dtype)), log_z

    def _expected(self, share: Float[Array, "K F"], excess: Array) -> "SparseTables":
        return self._with(share.sum(1) if self.shared else share.T, excess)

    def _with(self, weight: Array, excess: Array) -> "SparseTables":
        """Beliefs of this shape."""
        return SparseTables(
            weight=weight,
            incidence=None,
            configurations=None,
            states=self.states,
            widths=self.widths,
            excess=excess,
        )

    def _logs(self) -> Float[Array, "K F"]:
        """The log-potentials, factors last."""
        weight = self.weight[:, None] if self.shared else self.weight.T
        return jnp.broadcast_to(weight, (len(weight), self.wires.n_factors))

    def _chosen(self) -> list[Int[Array, "K F"]]:
        """For every variable of a factor its state in each configuration, factors last."""
        assert self.configurations is not None
        size = self.weight.shape[-1], self.wires.n_factors
        both = (self.configurations[..., i].T for i in range(len(self.states)))
        return [jnp.broadcast_to(a if a.ndim == 2 else a[:, None], size) for a in both]

    def _places(self) -> Int[Array, "K F"]:
        """Where each configuration stands in the full table, entries counted row-major."""
        place = jnp.zeros_like(self._chosen()[0])
        for k, chosen in zip(self.states, self._chosen(), strict=True):
            place = place * k + chosen
        return place


def sparse_tables(
    layout: Layout, scopes: ArrayLike, configurations: ArrayLike, weight: ArrayLike
) -> SparseTables:
    """Factors that allow a list of configurations only.

    Args:
        layout: the layout of the model.
        scopes: (F, d), the variables of each factor, numbered block after block of the layout.
        configurations: the allowed states of these variables, (K, d) for all factors or (F, K, d).
        weight: their log-potentials, (K,) or (F, K).

    Returns:
        A group for `FactorGraph.create`.

    Example:
        >>> import undirected as un
        >>> layout = un.discrete(x=3)
        >>> group = un.sparse_tables(layout, [[0, 1, 2]], [[0, 0, 1], [1, 1, 0]], [0.0, 0.0])
        >>> un.query(un.FactorGraph.create(layout, [group]), given={0: 1})
        {1: {0: 0.0, 1: 1.0}, 2: {0: 1.0, 1: 0.0}}
    """
    variables = Variables.of(layout)
    found = check_scopes("sparse_tables", variables, scopes)
    if (found == UNUSED).any() or not len(found):
        raise UndirectedError("sparse_tables: every factor needs all its variables, and one factor")
    allowed, logs = np.asarray(configurations), jnp.maximum(jnp.asarray(weight, float), NEG_INF)
    count, order = found.shape
    K = logs.shape[-1] if logs.ndim else 0
    fits = allowed.shape in ((K, order), (count, K, order)) and logs.shape in ((K,), (count, K))
    if not fits or K == 0 or not np.issubdtype(allowed.dtype, np.integer):
        raise UndirectedError(
            f"sparse_tables: {count} factors of {order} variables, configurations of shape "
            f"{allowed.shape} and type {allowed.dtype}, weight {logs.shape}; pass whole numbers "
            f"(K, {order}) or ({count}, K, {order}), and (K,) or ({count}, K), with K at least 1"
        )
    states = variables.states[found[0]]
    if (variables.states[found] != states[None]).any() or (allowed >= states).any():
        raise UndirectedError(
            f"sparse_tables: the variables of factor 0 have {states.tolist()} states; those of all "
            "factors must have as many, and every configuration must lie within them"
        )
    _check_different(allowed.reshape(-1, K, order))
    sizes = tuple(int(k) for k in states)
    incidence, widths = state_units("sparse_tables", layout, found, sizes)
    return SparseTables(
        weight=logs,
        incidence=incidence,
        configurations=jnp.asarray(allowed, jnp.int32),
        states=sizes,
        widths=widths,
    )


def _check_different(allowed: Int[np.ndarray, "F K d"]) -> None:
    """Refuse states below 0, and a configuration that is listed twice."""
    for f, own in enumerate(allowed):
        if own.min() < 0 or len(np.unique(own, axis=0)) < len(own):
            raise UndirectedError(
                f"sparse_tables: factor {f} lists a configuration twice, or a state below 0; add "
                "the weights of equal configurations"
            )


def _pick(levels: Float[Array, "k F"], chosen: Int[Array, "K F"]) -> Float[Array, "K F"]:
    return jnp.take_along_axis(levels, chosen, 0)


def _sum_by_state(
    values: Float[Array, "K F"], chosen: Int[Array, "K F"], states: int, temperature: Temperature
) -> Float[Array, "k F"]:
    """T log sum exp(values / T) over the configurations with each state; none gives -1e9."""
    column = jnp.broadcast_to(jnp.arange(values.shape[1])[None], values.shape)
    none = jnp.full((states, values.shape[1]), NEG_INF, values.dtype)
    top = none.at[chosen, column].max(values)
    if is_zero(temperature):
        return top
    top = jax.lax.stop_gradient(top)
    near = jnp.exp((values - _pick(top, chosen)) / temperature)
    sums = jnp.zeros_like(none).at[chosen, column].add(near)
    return top + temperature * jnp.log(jnp.where(sums > 0, sums, 1.0))
