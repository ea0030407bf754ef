"""A fixed number of parallel belief-propagation sweeps as a layer to train through.

(query-training, "Unrolling BP into a QT-NN" and Appendix D.)
"""

import math
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from undirected.core.errors import UndirectedError, UnsupportedFactor
from undirected.core.layout import Layout
from undirected.core.potentials import Potentials, batch_axes, clamp, shift
from undirected.core.units import means
from undirected.factors import Bilinear, Schedule
from undirected.inference import mixed_messages
from undirected.ops.unrolled import unrolled_fields

Sides = tuple[Int[np.ndarray, " a"], Int[np.ndarray, " b"]]


class QueryNetwork(eqx.Module):
    """A model together with a number of sweeps that answer queries about its visible units.

    The sweeps are differentiable, so that `QueryTraining` can learn the model through them.
    Messages start empty.

    Args:
        model: a model that lowers to potentials.
        strength: 1 / T, a parameter like any other (freeze it by the `trainable` of `fit`).
        layers: number of sweeps.
        temperature: "belief" runs sum-product and multiplies the final log-odds by the strength, as
            the authors' program does; "message" puts T inside the message function, as the paper
            writes.
        symmetric_start: an empty message is that of the spin form of a factor, as in the paper; by
            default it is that of exp(w x y).

    Example:
        >>> import undirected as un
        >>> from undirected.learning import answers
        >>> model = un.RBM.create(3, 2, means=[0.9, 0.9, 0.1], seed=0)
        >>> network = un.QueryNetwork(model, layers=5)
        >>> print(answers(network, [[1, float("nan"), float("nan")]]).round(1))
        [[1.  0.9 0.1]]
    """

    model: Any
    strength: float | Float[Array, ""] = 1.0
    layers: int = eqx.field(static=True, default=10)
    temperature: Literal["belief", "message"] = eqx.field(static=True, default="belief")
    symmetric_start: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        if self.layers < 1:
            raise UndirectedError(f"query network: layers is {self.layers}; pass 1 or more")
        if self.temperature not in ("belief", "message"):
            raise UndirectedError(
                f"query network: temperature is {self.temperature!r}; pass 'belief' or 'message'"
            )
        if isinstance(self.strength, int | float) and self.strength <= 0:
            raise UndirectedError(f"query network: strength is {self.strength}; pass 1 / T > 0")

    @property
    def layout(self) -> Layout:
        return self.model.layout

    def logits(self, evidence: Float[Array, "rows v"]) -> Float[Array, "rows v"]:
        """Log-odds (logits) of the visible units, given evidence as log-odds, 0 for none."""
        p = shift(self.model.lower(), evidence)
        if self.temperature == "belief":
            return self.strength * self._fields(p, 1.0)
        return self._fields(p, 1 / self.strength)

    def probabilities(self, evidence: Float[Array, "rows v"]) -> Float[Array, "rows v"]:
        """Beliefs of the visible units given evidence as log-odds, 0 for none."""
        visible = Layout(tuple(block for block in self.layout.blocks if block.visible))
        return means(visible, self.logits(evidence))

    def log_beliefs(
        self, x: Float[Array, "rows v"], known: Bool[Array, "rows v"]
    ) -> Float[Array, "rows v"]:
        """Log-probability of the visible values x under the beliefs given those that are known.

        For models with real or nonnegative units; of a category at the unit that is on. The
        strength multiplies the log-odds of discrete units.
        """
        p = self.model.lower()
        if not mixed_messages.suits(p):
            raise UnsupportedFactor(
                "query network: continuous units need a model of visible units over one layer of "
                "binary hidden ones, such as MixedRBM"
            )

        def one(x: Array, known: Array) -> Array:
            return mixed_messages.log_beliefs(clamp(p, known, x), self.layers, x, self.strength)

        return jax.vmap(one)(x, known)

    def _fields(self, p: Potentials, temperature: float | Array) -> Float[Array, "rows v"]:
        sides = two_sides(p)
        if sides is None:
            return _any_fields(p, self.layers, temperature, self.symmetric_start)
        fields = p.fields / temperature
        a, b = sides
        weight = dense_weight(p, sides) / temperature
        total = unrolled_fields(
            weight, fields[:, a], fields[:, b], self.layers, self.symmetric_start
        )
        return temperature * total[:, : p.layout.n_visible]


def two_sides(p: Potentials) -> Sides | None:
    """Units of the visible side and of the other, where all couplings are dense between them.

    None unless all units are binary, all groups bilinear, and the blocks fall into two sides of
    which the first has all visible units: odd and even layers (query-training, D.2).
    """
    bilinear = p.factors and all(isinstance(factor, Bilinear) for factor in p.factors)
    if not (bilinear and p.layout.is_binary):
        return None
    blocks = p.layout.blocks
    side = {i: 0 for i, block in enumerate(blocks) if block.visible}
    pairs = [(factor.rows, factor.cols) for factor in p.factors]
    for _ in blocks:
        for i, j in (*pairs, *((j, i) for i, j in pairs)):
            if i in side:
                side.setdefault(j, 1 - side[i])
    if len(side) < len(blocks) or any(side[i] == side[j] for i, j in pairs):
        return None
    which = np.concatenate([np.full(block.size, side[i]) for i, block in enumerate(blocks)])
    return np.flatnonzero(which == 0), np.flatnonzero(which == 1)


def dense_weight(p: Potentials, sides: Sides) -> Float[Array, "a b"]:
    """Couplings between the two sides as one matrix."""
    n = p.layout.n
    weight = jnp.zeros((n, n), p.unary.dtype)
    for factor in p.factors:
        rows, cols = (p.layout.blocks[i].slice for i in (factor.rows, factor.cols))
        weight = weight.at[rows, cols].add(factor.weight).at[cols, rows].add(factor.weight.T)
    return weight[np.ix_(*sides)]


def _any_fields(
    p: Potentials, layers: int, temperature: float | Array, symmetric_start: bool
) -> Float[Array, "rows v"]:
    """Fields of the visible units of any pairwise model, by the messages of its factor groups.

    Stretches of sqrt(layers) sweeps are computed again in the reverse pass instead of stored.
    """
    schedule = Schedule(temperature, 0.0, parallel=True)
    stride = math.isqrt(layers - 1) + 1

    def one(p: Potentials) -> Float[Array, " v"]:
        def sweep(state: tuple, _: None) -> tuple[tuple, None]:
            messages, incoming = state
            total = p.fields + incoming
            messages = tuple(
                factor.update_messages(p.layout, total, old, schedule)
                for factor, old in zip(p.factors, messages, strict=True)
            )
            return (messages, sum(new.incoming for new in messages)), None

        @jax.checkpoint
        def stretch(state: tuple, _: None = None) -> tuple[tuple, None]:
            return jax.lax.scan(sweep, state, None, stride)

        start = tuple(factor.init_messages(p.layout) for factor in p.factors)
        state: tuple = start, sum((own.incoming for own in start), jnp.zeros_like(p.unary))
        if not symmetric_start:
            state = jax.tree.map(jnp.zeros_like, state)
        state, _ = jax.lax.scan(stretch, state, None, layers // stride)
        state, _ = jax.lax.scan(sweep, state, None, layers % stride)
        return (p.fields + state[1])[: p.layout.n_visible]

    return jax.vmap(one, in_axes=(batch_axes(p),))(p)
