"""Dense couplings between two blocks: the weight matrix of a restricted Boltzmann machine."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from undirected.core.errors import UndirectedError, UnsupportedFactor
from undirected.core.layout import Block, Domain, Layout, Variables
from undirected.core.numerics import logsumexp, message
from undirected.factors.base import Factor, Messages, Pairs, Schedule, TableGroup, Temperature


class Bilinear(Factor):
    """Dense couplings x_a' W x_b between two blocks of the layout.

    Messages: `forward` holds those to the columns (row variables x column units), `backward` those
    to the rows (row units x column variables).

    Args:
        weight: W, a row for each unit of the first block and a column for each of the second.
        rows: the number of the first block in the layout.
        cols: the number of the second.

    Example:
        >>> import jax.numpy as jnp
        >>> import undirected as un
        >>> layout = un.discrete(a=2, b=1)
        >>> graph = un.FactorGraph.create(layout, [un.Bilinear(jnp.ones((2, 1)), 0, 1)])
        >>> print(graph.energy(jnp.ones(3)))
        -2.0
    """

    weight: Float[Array, "a b"]
    rows: int = eqx.field(static=True)
    cols: int = eqx.field(static=True)

    pairwise = True
    split_by_units = ("weight",)

    def check(self, layout: Layout) -> None:
        """Two different blocks of the layout are wanted, and a matrix of their sizes."""
        if self.rows == self.cols:
            raise UndirectedError(
                f"Bilinear: a group joins block {self.rows} with itself; use Symmetric for "
                "couplings within a block"
            )
        if not 0 <= min(self.rows, self.cols) <= max(self.rows, self.cols) < len(layout.blocks):
            raise UndirectedError(
                f"Bilinear: a group on blocks {self.rows} and {self.cols}; the layout has blocks "
                f"0..{len(layout.blocks) - 1}"
            )
        wanted = tuple(block.size for block in self._ends(layout))
        if self.weight.shape != wanted:
            raise UndirectedError(
                f"Bilinear: a matrix {self.weight.shape} between blocks of {wanted[0]} and "
                f"{wanted[1]} units; pass {wanted}"
            )

    def _ends(self, layout: Layout) -> tuple[Block, Block]:
        return layout.blocks[self.rows], layout.blocks[self.cols]

    def statistic(self, layout: Layout, x: Float[Array, " n"]) -> "Bilinear":
        rows, cols = self._ends(layout)
        return Bilinear(jnp.outer(x[rows.slice], x[cols.slice]), self.rows, self.cols)

    def value(self, layout: Layout, x: Float[Array, "batch n"]) -> Float[Array, " batch"]:
        rows, cols = self._ends(layout)
        return ((x[..., rows.slice] @ self.weight) * x[..., cols.slice]).sum(-1)

    def mean_statistic(self, layout: Layout, x: Float[Array, "samples n"]) -> "Bilinear":
        rows, cols = (x[:, block.slice] for block in self._ends(layout))
        return Bilinear(rows.T @ cols / len(x), self.rows, self.cols)

    def local_field(self, layout: Layout, x: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
        rows, cols = self._ends(layout)
        fields = jnp.zeros_like(x).at[..., rows.slice].set(x[..., cols.slice] @ self.weight.T)
        return fields.at[..., cols.slice].set(x[..., rows.slice] @ self.weight)

    def pairs(self, layout: Layout) -> Pairs:
        rows, cols = self._ends(layout)
        places = np.indices(self.weight.shape).reshape(2, -1).T
        places = places + np.array([rows.start, cols.start])
        zero = jnp.zeros(layout.n, self.weight.dtype)
        return Pairs(jnp.asarray(places), self.weight.reshape(-1), zero, zero.sum())

    def tables(self, layout: Layout, most: int) -> list[TableGroup]:
        rows, cols = self._ends(layout)
        split = self.weight.reshape(rows.variables, rows.width, cols.variables, cols.width)
        logs = split.transpose(0, 2, 1, 3).reshape(-1, rows.width, cols.width)
        if rows.domain is Domain.BINARY:
            logs = jnp.pad(logs, ((0, 0), (1, 0), (0, 0)))
        if cols.domain is Domain.BINARY:
            logs = jnp.pad(logs, ((0, 0), (0, 0), (1, 0)))
        return [TableGroup(jnp.asarray(self.scopes(layout)[0]), logs)]

    def from_tables(self, layout: Layout, shares: Sequence[Array]) -> "Bilinear":
        rows, cols = self._ends(layout)
        kept = shares[0][:, -rows.width :, -cols.width :]
        split = kept.reshape(rows.variables, cols.variables, rows.width, cols.width)
        both = split.transpose(0, 2, 1, 3).reshape(self.weight.shape)
        return Bilinear(jnp.asarray(both, self.weight.dtype), self.rows, self.cols)

    def scopes(self, layout: Layout) -> list[Int[np.ndarray, "F d"]]:
        rows, cols = self._ends(layout)
        owner = Variables.of(layout).owner
        ends = (owner[block.start : block.stop : block.width] for block in (rows, cols))
        return [np.stack(np.meshgrid(*ends, indexing="ij"), -1).reshape(-1, 2)]

    def separated_by(self, blocks: tuple[int, ...]) -> bool:
        return self.rows in blocks or self.cols in blocks

    def covariances(self, layout: Layout, matrix: Float[Array, "n n"]) -> Array:
        rows, cols = self._ends(layout)
        return matrix[rows.slice, cols.slice]

    def init_messages(self, layout: Layout) -> Messages:
        """The mean weight over the states of the sender: half the weight from a binary unit."""
        rows, cols = self._ends(layout)
        forward = _mean_over_states(rows, self.weight)
        backward = _mean_over_states(cols, self.weight.T).T
        incoming = jnp.zeros(layout.n, forward.dtype).at[rows.slice].set(backward.sum(1))
        return Messages(forward, backward, incoming.at[cols.slice].set(forward.sum(0)))

    def update_messages(
        self, layout: Layout, total: Float[Array, " n"], messages: Messages, schedule: Schedule
    ) -> Messages:
        rows, cols = self._ends(layout)
        T = schedule.temperature
        row_cavity = total[rows.slice][:, None] - messages.backward
        forward = schedule.mix(_send(rows, cols, row_cavity, self.weight, T), messages.forward)
        col_total = total[cols.slice]
        answered = messages.forward
        if not schedule.parallel:
            # The columns answer what the rows have just sent.
            answered = forward
            col_total = col_total - messages.incoming[cols.slice] + forward.sum(0)
        col_cavity = col_total[:, None] - answered.T
        backward = _send(cols, rows, col_cavity, self.weight.T, T).T
        backward = schedule.mix(backward, messages.backward)
        incoming = jnp.zeros_like(total).at[rows.slice].set(backward.sum(1))
        return Messages(forward, backward, incoming.at[cols.slice].set(forward.sum(0)))

    def beliefs(
        self,
        layout: Layout,
        total: Float[Array, " n"],
        unary: Float[Array, " n"],
        messages: Messages,
        temperature: Temperature,
    ) -> tuple["Bilinear", Float[Array, ""]]:
        rows, cols = self._ends(layout)
        cavity = total[cols.slice][None, :] - messages.forward
        given = jnp.repeat(cavity, rows.width, 0) + self.weight
        if cols.domain is Domain.BINARY:
            conditional = jax.nn.sigmoid(given / temperature)
            correction = -message(cavity, messages.forward, temperature).sum()
        else:
            conditional = _per_variable(cols, jax.nn.softmax, given / temperature)
            before = _normalisers(cols, cavity, temperature)
            after = _normalisers(cols, total[cols.slice][None, :], temperature)
            correction = (before - after).sum()
        # What the answers would add to those on their way: 0 once messages are at rest.
        answers = _send(cols, rows, cavity.T, self.weight.T, temperature).T
        news, at_rows = answers - messages.backward, total[rows.slice][:, None]
        if rows.domain is Domain.BINARY:
            correction = correction + message(at_rows, news, temperature).sum()
        else:
            after = _normalisers(rows, (at_rows + news).T, temperature)
            correction = correction + (after - _normalisers(rows, at_rows.T, temperature)).sum()
        both = unary[rows.slice][:, None] * conditional
        return Bilinear(both, self.rows, self.cols), correction


def _mean_over_states(source: Block, weight: Float[Array, "a b"]) -> Float[Array, "A b"]:
    """What a source that prefers no state says: the mean of its rows, 0 for a binary unit off."""
    states = source.states if source.domain is Domain.CATEGORICAL else 2
    return weight.reshape(source.variables, source.width, weight.shape[1]).sum(1) / states


def _send(
    source: Block, target: Block, cavity: Array, weight: Array, temperature: Temperature
) -> Array:
    """Messages (source variables, target units) from cavities (source units, target variables)."""
    spread = jnp.repeat(cavity, target.width, 1) if target.width > 1 else cavity
    if source.domain is Domain.BINARY:
        return message(spread, weight, temperature)
    if source.domain is not Domain.CATEGORICAL:
        raise UnsupportedFactor(
            f"belief propagation: block '{source.name}' is {source.domain.value}; messages are "
            "known for binary and categorical units"
        )
    shape = (source.variables, source.states, target.size)
    up = logsumexp((spread + weight).reshape(shape), temperature, axis=1)
    return up - logsumexp(spread.reshape(shape), temperature, axis=1)


def _per_variable(block: Block, function: Callable[..., Array], x: Array) -> Array:
    shape = (*x.shape[:-1], block.variables, block.width)
    return function(x.reshape(shape), -1).reshape(x.shape)


def _normalisers(block: Block, x: Array, temperature: Temperature) -> Array:
    return logsumexp(x.reshape(*x.shape[:-1], block.variables, block.width), temperature)
