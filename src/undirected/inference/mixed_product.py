"""Marginal MAP on dense bipartite models: the best visibles with the hiddens summed out."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from undirected.core.errors import UndirectedError, UnsupportedFactor
from undirected.core.iterate import iterate, status_of
from undirected.core.numerics import message
from undirected.core.potentials import Beliefs, Potentials
from undirected.factors import Bilinear
from undirected.inference.base import Inference
from undirected.ops import bipartite


class MixedProduct(Inference):
    """Mixed-product belief propagation (crbm-bp, eqs 12, 13, 15; Algorithm 1), for RBMs.

    It looks for the best visible state with the hidden units summed out. Visible units send W v*
    with v* their current best value, hidden units send sum-product messages.

    Args:
        iterations: rounds at most.

    Returns:
        A call gives `Beliefs`: the best visible state met, the exact means of the hidden units
        given it, and minus its free energy as `log_z`.

    Example:
        >>> import undirected as un
        >>> model = un.RBM.create(3, 2, means=[0.9, 0.9, 0.1], seed=0)
        >>> print(un.MixedProduct()(model).unary[:3])
        [1. 1. 0.]
    """

    iterations: int | Array = 20

    def __check_init__(self) -> None:
        if isinstance(self.iterations, int) and self.iterations < 1:
            raise UndirectedError(f"mixed-product: iterations is {self.iterations}, not >= 1")

    def infer(self, p: Potentials, key: Key[Array, ""] | None) -> Beliefs:
        """Nothing here is random: the key is not used."""
        factor = _only_group(p)
        rows, cols = (p.layout.blocks[b] for b in (factor.rows, factor.cols))
        weight = factor.weight

        def hidden_fields(v: Array) -> Array:
            return p.fields[cols.slice] + v @ weight

        def value(v: Array) -> Array:
            """-free energy; a hidden unit that is held at 1 adds its field without the evidence."""
            held = p.unary[cols.slice] + v @ weight
            free = jax.nn.softplus(hidden_fields(v))
            return p.unary[rows.slice] @ v + jnp.where(p.evidence[cols.slice] > 0, held, free).sum()

        gentle = bipartite.steepest(weight) <= bipartite.GENTLE
        odds = jnp.exp(jnp.clip(weight, -bipartite.GENTLE, bipartite.GENTLE))

        def by_logs(v: Array) -> Array:
            cavity = hidden_fields(v)[None, :] - weight * v[:, None]
            return message(cavity, weight).sum(1)

        def by_odds(v: Array) -> Array:
            ratios = _ratios(hidden_fields(v), odds, v)
            return bipartite.log_product(ratios, 1, gentle=jax.default_backend() == "cpu")

        def step(state: tuple[Array, ...]) -> tuple[tuple[Array, ...], Array]:
            v, best, best_value = state
            total = p.fields[rows.slice] + jax.lax.cond(gentle, by_odds, by_logs, v)
            new = (total > 0).astype(v.dtype)
            level = value(new)
            better = level > best_value
            best = jnp.where(better, new, best)
            moved = jnp.abs(new - v).max()  # 0 where no visible unit has changed its mind
            return (new, best, jnp.maximum(level, best_value)), moved

        start = (p.fields[rows.slice] > 0).astype(p.unary.dtype)
        first = start, start, value(start)
        (_, best, _), moved, count = iterate(step, first, self.iterations, 0.0)
        hidden = jax.nn.sigmoid(hidden_fields(best))
        unary = jnp.zeros_like(p.unary).at[rows.slice].set(best).at[cols.slice].set(hidden)
        pairs = (Bilinear(best[:, None] * hidden[None, :], factor.rows, factor.cols),)
        return Beliefs(unary, pairs, p.offset + value(best), status_of(moved, 0.0), count)


def _ratios(field: Float[Array, " b"], odds: Float[Array, "a b"], v: Float[Array, " a"]) -> Array:
    """exp of the messages into the rows: (1 + e^{f + w}) / (1 + e^f), f the cavity field.

    A row at 1 has put w into `field`. Both terms are scaled, so that no field overflows.
    """
    down, up = jnp.exp(-jnp.maximum(field, 0.0)), jnp.exp(jnp.minimum(field, 0.0))
    on = (v > 0)[:, None]
    own = jnp.where(on, 1 / odds, odds) * up[None, :] + down[None, :]
    shared = (up + down)[None, :]
    return jnp.where(on, shared / own, own / shared)


def _only_group(p: Potentials) -> Bilinear:
    blocks = p.layout.blocks
    if len(p.factors) == 1 and isinstance(p.factors[0], Bilinear) and p.layout.is_binary:
        factor = p.factors[0]
        if blocks[factor.rows].visible and not blocks[factor.cols].visible and len(blocks) == 2:
            return factor
    names = ", ".join(type(factor).__name__ for factor in p.factors)
    raise UnsupportedFactor(
        f"mixed-product: needs one Bilinear group between binary visible and hidden units, "
        f"got {names or 'no factors'}"
    )
