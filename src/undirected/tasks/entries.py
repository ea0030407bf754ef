"""Single entries that are held out: how well a model finds them from the rest of their row."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from numpy.typing import ArrayLike

from undirected.core.chunks import map_rows, potential_bytes
from undirected.core.layout import Domain, Layout
from undirected.core.potentials import Potentials, clamp
from undirected.evaluation import Estimate, log_likelihood
from undirected.evaluation.estimate import ratio
from undirected.inference import SumProduct
from undirected.inference.mixed_messages import log_beliefs
from undirected.inference.mixed_messages import suits as takes_lines
from undirected.tasks.choose import asks_entries
from undirected.tasks.enumerated import is_enumerable
from undirected.tasks.enumerated_coupled import enumerated

SHARE = 0.2
"""Share of the observed entries of a row that are hidden and asked for."""
ROUNDS = 20
"""Sweeps of belief propagation that answer."""
MOST_MESSAGES = 2**31
"""Messages sent in all to answer for held-out entries: half a minute on a slow machine."""
MOST_ASKED = 1000
"""Rows that are asked for some of their entries, a row counted once for every turn."""
MOST_SUMMED = 200
"""Held-out rows with holes whose likelihood is looked at during learning."""
EPSILON = 1e-7


def observed_mean(model: Any, rows: Float[np.ndarray, "rows v"], log_z: float) -> float:
    """Mean log-likelihood of rows; where they have holes, of the observed part of some of them.

    The missing entries are then summed out by belief propagation: the Bethe value of the sum over
    them, near where most of a row is known, and not a bound.
    """
    if not np.isnan(rows).any():
        return float(log_likelihood(model, rows, log_z).mean)
    p = model.lower()
    some = np.asarray(rows[:MOST_SUMMED], np.float32)
    sums = map_rows(lambda part, _: _bethe_sums(p, part), some, potential_bytes(p))
    return float(np.mean(sums, dtype=np.float64) - log_z)


@eqx.filter_jit
def _bethe_sums(p: Potentials, rows: Float[Array, "rows v"]) -> Float[Array, " rows"]:
    seen = ~jnp.isnan(rows)
    found = SumProduct(iterations=ROUNDS, tolerance=1e-3)
    return found(clamp(p, seen, jnp.where(seen, rows, 0.0))).log_z


def hide(
    layout: Layout, rows: ArrayLike, seed: int, *, share: float = SHARE, turns: int = 1
) -> Bool[np.ndarray, "turns rows v"]:
    """Which observed entries are asked for in each turn: whole variables, each at most once.

    A variable has the probability `share` to be asked for in a turn; in `1 / share` turns all are.
    """
    seen, rng = ~np.isnan(np.asarray(rows)), np.random.default_rng(seed)
    turn = np.zeros(seen.shape)
    for block in layout.blocks:
        if block.visible:
            drawn = np.floor(rng.random((len(seen), block.variables)) / share)
            turn[:, block.slice] = np.repeat(drawn, block.width, 1)
            whole = seen[:, block.slice].reshape(len(seen), block.variables, block.width).all(-1)
            seen[:, block.slice] = np.repeat(whole, block.width, 1)
    return (turn == np.arange(turns)[:, None, None]) & seen


def turns_for(rows: int, most: int, share: float = SHARE) -> int:
    """In how many turns entries are asked for: of few rows all, of many those of one turn."""
    return int(np.clip(most // max(rows, 1), 1, round(1 / share)))


def in_turns(
    layout: Layout, rows: Float[np.ndarray, "rows v"], seed: int, most: int, share: float = SHARE
) -> tuple[Float[np.ndarray, "asked v"], Bool[np.ndarray, "asked v"]]:
    """Rows, once for every turn, and which of their entries are asked for in it."""
    turns = turns_for(len(rows), most, share)
    asked = hide(layout, rows, seed, share=share, turns=turns)
    return np.tile(rows, (turns, 1)), asked.reshape(-1, rows.shape[1])


def scores_entries(model: Any) -> bool:
    """Whether `entry_bits` takes a model: hidden states are few, or messages reach its entries."""
    return is_enumerable(model) or asks_entries(model)


def entry_bits(
    model: Any, rows: Float[np.ndarray, "rows v"], *, share: float = SHARE, seed: int = 0
) -> Estimate:
    """Bits of an entry that is hidden, given the others of its row.

    By belief propagation; exactly where the hidden states are few.

    Args:
        model: one that `scores_entries` takes.
        rows: rows over the visible units, NaN where an entry is missing; of very many, the first,
            of few, every observed entry in its turn.
        share: of the observed entries that are hidden at once.
        seed: of their choice.

    Returns:
        The mean over entries in bits; a continuous entry counts its log-density, which may be
        below 0 bits.
    """
    most = _affordable(model)
    rows = rows[:most]
    each, asked = in_turns(model.layout, rows, seed, most, share)
    found = entry_losses(model, each, asked if asked.any() else ~np.isnan(each))
    totals, counts = (part.reshape(-1, len(rows)).sum(0) for part in found)
    return ratio(totals / np.log(2), counts)


def _affordable(model: Any) -> int:
    """How many rows may be asked: `MOST_ASKED`, fewer where a row has very many messages."""
    lowered = eqx.filter_eval_shape(type(model).lower, model)  # shapes alone: nothing is computed
    sizes = (leaf.size for f in lowered.factors for leaf in jax.tree.leaves(f.weight))
    return int(np.clip(MOST_MESSAGES // (ROUNDS * max(1, sum(sizes))), 50, MOST_ASKED))


def entry_losses(
    model: Any, rows: Float[np.ndarray, "rows v"], asked: Bool[np.ndarray, "rows v"]
) -> tuple[Float[np.ndarray, " rows"], Float[np.ndarray, " rows"]]:
    """Nats of the asked entries of each row given the others, and how many variables they are."""
    if is_enumerable(model):
        return enumerated(model).entry_losses(rows, asked)
    p = model.lower()
    both = np.stack([np.asarray(rows, np.float32), asked.astype(np.float32)], 1)
    return map_rows(
        lambda part, _: _losses(p, part[:, 0], part[:, 1] > 0), both, potential_bytes(p)
    )


@eqx.filter_jit
def _losses(
    p: Potentials, rows: Float[Array, "rows v"], asked: Bool[Array, "rows v"]
) -> tuple[Float[Array, " rows"], Float[Array, " rows"]]:
    seen = ~jnp.isnan(rows)
    values, known = jnp.where(seen, rows, 0.0), seen & ~asked
    if takes_lines(p):

        def one(v: Array, known: Array) -> Array:
            return log_beliefs(clamp(p, known, v), ROUNDS, v)

        logs = jax.vmap(one)(values, known)
    else:
        found = SumProduct(iterations=ROUNDS, tolerance=1e-3)(clamp(p, known, values))
        logs = _log_probability(p.layout, values, found.unary)
    loss = -jnp.where(asked, logs, 0.0).sum(1)
    return loss, jnp.where(asked, jnp.asarray(_shares(p.layout))[None], 0.0).sum(1)


def _log_probability(layout: Layout, values: Array, means: Array) -> Float[Array, "rows v"]:
    """Log-probability of discrete values under means; 0 at the states that are off."""
    parts = []
    for block in layout.blocks:
        if block.visible:
            x, m = values[:, block.slice], jnp.clip(means[:, block.slice], EPSILON, 1 - EPSILON)
            off = jnp.log1p(-m) if block.domain is Domain.BINARY else 0.0
            parts.append(x * jnp.log(m) + (1 - x) * off)
    return jnp.concatenate(parts, 1)


def _shares(layout: Layout) -> np.ndarray:
    """What a visible unit counts for its variable: 1 / K for one of K states."""
    parts = [np.full(b.size, 1 / b.width, np.float32) for b in layout.blocks if b.visible]
    return np.concatenate(parts)
