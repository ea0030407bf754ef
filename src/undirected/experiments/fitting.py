"""Learning inside an experiment: one model, or the models of several seeds side by side."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from undirected import learning
from undirected.core.protocols import Info, Kernel
from undirected.learning import Batches, Ensemble, Persistent, model_axes
from undirected.learning.chain_phases import detach, mean_energy
from undirected.learning.ensemble import size


@wraps(learning.fit)
def fit(*args: Any, **kwargs: Any) -> learning.FitResult:
    """As `learning.fit`, but Ctrl-C ends the experiment: a half-learned model is not a result."""
    result = learning.fit(*args, **kwargs)
    if result.stopped == "interrupted":
        raise KeyboardInterrupt
    return result


@dataclass(frozen=True, eq=False)
class SeedBatches(Batches):
    """The batches of several seeds beside each other, of `size` rows each.

    Every seed has the rows in its own order, that of `Batches` with this seed, and of the rows
    `subsets[i]` alone where they are given (as many for each). A batch leads with an axis over the
    seeds; its transform works on the batch of one of them.
    """

    seeds: Sequence[int] = ()
    subsets: Sequence[Int[np.ndarray, " rows"]] | None = None
    each: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        count, each = len(self.seeds), min(self.size, self.rows)
        object.__setattr__(self, "each", each)
        object.__setattr__(self, "size", each * count)
        object.__setattr__(self, "transform", _ApartBySeed(count, each, self.transform))

    @property
    def rows(self) -> int:
        """Number of rows of each seed."""
        return super().rows if self.subsets is None else len(self.subsets[0])

    def steps(self, epochs: float) -> int:
        """Number of batches that cover the data of each seed so many times."""
        return int(np.ceil(epochs * self.rows / self.each))

    def indices(self, start: int, stop: int) -> Int[np.ndarray, "steps size"]:
        """Row numbers of steps [start, stop), seed after seed."""
        places = np.zeros((self.rows, 1), np.int8)
        found = [
            Batches(places, self.each, seed, self.shuffle).indices(start, stop)
            for seed in self.seeds
        ]
        if self.subsets is not None:
            found = [rows[i] for rows, i in zip(self.subsets, found, strict=True)]
        return np.concatenate(found, 1).astype(np.int32)


@dataclass(frozen=True)
class _ApartBySeed:
    """Rows of all seeds, one seed after the other, as a batch that leads with the seeds."""

    seeds: int
    each: int
    transform: Callable[[PyTree, Key[Array, ""]], PyTree] | None

    def __call__(self, batch: PyTree, key: Key[Array, ""]) -> PyTree:
        batch = jax.tree.map(
            lambda leaf: leaf.reshape(self.seeds, self.each, *leaf.shape[1:]), batch
        )
        if self.transform is None:
            return batch
        return jax.vmap(self.transform)(batch, jax.random.split(key, self.seeds))


class EachState(eqx.Module):
    """The states of the chains of every model, as the kernel keeps them."""

    inside: Any

    @property
    def x(self) -> Float[Array, "m *chains n"]:
        """Where the chains of every model are."""
        return eqx.filter_vmap(lambda state: state.x, in_axes=eqx.if_array(0))(self.inside)


@dataclass(frozen=True)
class EachModel:
    """A kernel that moves the chains (models, *chains, n) of a stack, each by its own model.

    What stands above it, such as `Alternating`, then decides once for all models: under vmap both
    of its branches would run at every step.
    """

    kernel: Kernel

    def init(self, model: Any, x: Float[Array, "m *chains n"], key: Key[Array, ""]) -> EachState:
        """Chains of every model that start at x."""
        start = eqx.filter_vmap(self.kernel.init, in_axes=(model_axes(model), 0, 0))
        return EachState(start(model, x, jax.random.split(key, size(model))))

    def step(
        self, model: Any, state: EachState, free: Bool[Array, "*#chains n"], key: Key[Array, ""]
    ) -> tuple[EachState, Info]:
        """One step of the kernel on the chains of every model; reports lead with the models."""
        axes = model_axes(model), eqx.if_array(0), None, 0
        move = eqx.filter_vmap(self.kernel.step, in_axes=axes)
        inside, info = move(model, state.inside, free, jax.random.split(key, size(model)))
        return EachState(inside), info


@dataclass(frozen=True)
class PersistentSeeds(Ensemble):
    """`Persistent` on all models of a stack, each with the batch of its own seed.

    `objective` is that of one model, `kernel` moves the chains of all of them: `EachModel(...)`, or
    `Alternating` of two such. The data are complete, and the models have a free energy. What the
    kernel reports of every model is there under its number too: "flips.0".
    """

    objective: Persistent
    own_data: bool = True
    kernel: Kernel = field(kw_only=True)

    def init(self, model: Any, batch: PyTree, key: Key[Array, ""]) -> Any:
        """The state of the chains, which start at rows of the first batch of their seed."""
        start_key, init_key = jax.random.split(key)
        begun = super().init(model, batch, start_key)
        return self.kernel.init(model, begun.x, init_key)

    def __call__(
        self, model: Any, batch: PyTree, carry: Any, key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], tuple[Any, Info]]:
        """The sum of the surrogates of all models, the moved chains, and reports."""
        everything = jnp.ones(carry.x.shape[-1], bool)
        chains, info = self.kernel.step(detach(model), carry, everything, key)

        def surrogate(model: Any, v: Array, x: Array) -> Array:
            return mean_energy(model, v.astype(x.dtype)) - mean_energy(model, x)

        losses = eqx.filter_vmap(surrogate, in_axes=(model_axes(model), 0, 0))
        reports = {name: jnp.mean(value) for name, value in info.items()}
        for name, value in info.items():
            if jnp.ndim(value):
                reports |= {f"{name}.{i}": jnp.mean(value[i]) for i in range(len(value))}
        return losses(model, batch, chains.x).sum(), (chains, reports)
