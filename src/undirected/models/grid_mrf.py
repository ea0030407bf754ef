"""The cloned grid: an 8-connected Markov random field of hidden states that emit labels."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key
from numpy.typing import ArrayLike

from undirected.core.errors import UndirectedError
from undirected.core.layout import Block, Domain, Layout, joint_states
from undirected.core.random import make_key
from undirected.ops.grid import OFFSETS, grid_fields


class GridMRF(eqx.Module):
    """-E = sum over neighbouring pixels of P_d[x_i, x_j], whose states are clones of a few labels.

    Each pixel of a grid has one hidden state, and the state decides the label that is seen
    (query-training, Appendix B).

    Args:
        potentials: P (4, states, states), one matrix for each direction: down, right and the two
            diagonals. The whole grid shares them, whatever its size.
        clones: how many states emit each label; the states of label 0 come first.
        shape: rows and columns.

    Example:
        >>> import undirected as un
        >>> model = un.GridMRF.create((4, 5), clones=(2, 1), seed=0)
        >>> model.states, model.layout.n
        (3, 60)
    """

    potentials: Float[Array, "4 states states"]
    clones: tuple[int, ...] = eqx.field(static=True)
    shape: tuple[int, int] = eqx.field(static=True)

    def __check_init__(self) -> None:
        wanted = (len(OFFSETS), self.states, self.states)
        if tuple(jnp.shape(self.potentials)[-3:]) != wanted:
            raise UndirectedError(
                f"GridMRF: potentials are {jnp.shape(self.potentials)}; clones {self.clones} ask "
                f"for {wanted}"
            )
        if min(*self.shape, *self.clones) < 1:
            raise UndirectedError(
                f"GridMRF: shape {self.shape} and clones {self.clones}; pass numbers of at least 1"
            )

    @classmethod
    def create(
        cls,
        shape: tuple[int, int],
        clones: tuple[int, ...],
        key: Key[Array, ""] | None = None,
        *,
        seed: int | None = None,
        scale: float = 1.0,
    ) -> "GridMRF":
        """A model to start learning from: Gaussian log-potentials.

        Args:
            shape: rows and columns of the grid.
            clones: for each label, how many states emit it.
            key: of the draws.
            seed: the same as a number; pass one of the two.
            scale: standard deviation of the log-potentials.

        Returns:
            The model.
        """
        pairs = isinstance(shape, Sequence) and len(shape) == 2
        if not (pairs and isinstance(clones, Sequence)):
            raise UndirectedError(
                f"GridMRF.create: shape is {shape!r:.40} and clones {clones!r:.40}; pass (rows, "
                "columns) and a number of states for each label, as in (3, 4), (2, 2)"
            )
        states = sum(clones)
        own = make_key("GridMRF.create", key, seed)
        potentials = scale * jax.random.normal(own, (len(OFFSETS), states, states))
        return cls(potentials, tuple(clones), (shape[0], shape[1]))

    @property
    def states(self) -> int:
        """Hidden states of a pixel."""
        return sum(self.clones)

    @property
    def layout(self) -> Layout:
        units = self.shape[0] * self.shape[1] * self.states
        return Layout((Block("pixels", 0, units, Domain.CATEGORICAL, self.states),))

    def energy(self, x: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
        """E of one-hot states, pixel after pixel."""
        x = joint_states("GridMRF.energy", self.layout, x)
        rows, cols = self.shape
        x = x.reshape(*x.shape[:-1], rows, cols, self.states)
        value = jnp.zeros(x.shape[:-3], x.dtype)
        for potential, (down, right) in zip(self.potentials, OFFSETS, strict=True):
            first = x[..., : rows - down, max(0, -right) : cols - max(0, right), :]
            second = x[..., down:, max(0, right) : cols - max(0, -right), :]
            value = value + ((first @ potential) * second).sum((-3, -2, -1))
        return -value

    def evidence(
        self, seen: Float[Array, "images rows cols"], rates: ArrayLike
    ) -> Float[Array, "images rows cols states"]:
        """Log-likelihood of every state given a noisy binary image; rates[l] = P(1 | label l)."""
        p = jnp.asarray(np.repeat(np.clip(np.asarray(rates), 1e-10, 1 - 1e-7), self.clones))
        p = p.astype(seen.dtype)[None, None, None]
        return jnp.where(seen[..., None] > 0.5, jnp.log(p), jnp.log1p(-p))

    def log_beliefs(
        self,
        evidence: Float[Array, "images rows cols states"],
        layers: int,
        *,
        own_evidence: bool = False,
    ) -> Float[Array, "images rows cols states"]:
        """Log marginals of the states after `layers` sweeps of belief propagation.

        Without `own_evidence` a pixel's own evidence is left out of its belief, as in the authors'
        program: what its neighbours say.
        """
        fields = grid_fields(self.potentials, evidence, layers)
        return jax.nn.log_softmax(fields + evidence if own_evidence else fields, -1)

    def label_log_probabilities(
        self, log_beliefs: Float[Array, "*batch states"]
    ) -> Float[Array, "*batch labels"]:
        """Log probability of each label: its clones summed."""
        ends = np.cumsum(self.clones)[:-1]
        parts = jnp.split(log_beliefs, ends, axis=-1)
        return jnp.stack([jax.nn.logsumexp(part, -1) for part in parts], -1)
