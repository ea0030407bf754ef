"""Paths between models: a tempered model is just another model."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from undirected.core.errors import UndirectedError, kind_told
from undirected.core.layout import Layout
from undirected.core.numerics import between, is_traced
from undirected.core.protocols import Separable
from undirected.models.rbm import RBM
from undirected.models.scaled_rbm import ScaledRBM


class ModelPath(eqx.Module):
    """path(beta): parameters on the straight line from `base` (beta = 0) to `target` (beta = 1).

    For an exponential family this is the geometric path p_0^(1 - beta) p_1^beta between the joint
    distributions. Annealed importance sampling and tempering walk along it. What the target alone
    forbids costs 5 beta / (1 - beta) nats on the way: at any beta below 1 all states of the base
    have a probability, as both need.

    Args:
        base: the model at beta = 0, of the same class and shape as `target`.
        target: the model at beta = 1.
        uncoupled: whether the base has no weights. Steps along the path of an RBM then share their
            products at all temperatures. By default the path looks at the base.

    Returns:
        A call with a number beta gives the model there.

    Example:
        >>> import undirected as un
        >>> model = un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
        >>> path = un.ModelPath(model.independent(), model)
        >>> print(path(0.5).weights)
        [1. 1.]
    """

    base: Any
    target: Any
    uncoupled: bool = eqx.field(static=True)

    def __init__(self, base: Any, target: Any, uncoupled: bool | None = None):
        self.base, self.target = base, target
        self.uncoupled = _has_no_weights(base) if uncoupled is None else uncoupled

    def __call__(self, beta: float | Float[Array, ""]) -> Any:
        if self.uncoupled and type(self.target) is RBM and is_traced(beta):
            return ScaledRBM.between(self.base, self.target, jnp.asarray(beta))
        base, _ = eqx.partition(self.base, eqx.is_inexact_array)
        target, rest = eqx.partition(self.target, eqx.is_inexact_array)
        return eqx.combine(jax.tree.map(partial(between, beta), base, target), rest)


def _has_no_weights(base: Any) -> bool:
    """Whether a model is known to be an RBM of independent units; subclasses may differ."""
    return type(base) is RBM and not is_traced(base) and not bool(jnp.any(base.weights))


def tempered(model: Any) -> ModelPath:
    """The path from no energy at all (beta = 0) to the model (beta = 1): exp(-beta E).

    Args:
        model: any model.

    Returns:
        A `ModelPath`; a call of it with an inverse temperature gives the model at that temperature.

    Example:
        >>> import undirected as un
        >>> model = un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
        >>> print(un.tempered(model)(0.25).weights)
        [0.5 0.5]
    """
    zero = jax.tree.map(lambda a: a * 0 if eqx.is_inexact_array(a) else a, model)
    return ModelPath(zero, model, uncoupled=True)


class TrainingPath(eqx.Module):
    """path(beta): from independent units (beta = 0) through checkpoints of a training to its end.

    Checkpoints are evenly spaced in beta, with straight lines between them. A trained model is near
    to the one it was a while ago, also where a model at another temperature is far from it: first
    order transitions that stop tempering are absent from the way the model was learned. Give the
    path in place of the model to `ParallelTempering(kernel, TrainingPath.along, betas)` (parallel
    trajectory tempering, Béreux, Decelle, Furtlehner and Seoane 2025); `ais` and
    `population_annealing` take it too.

    Args:
        stations: one model, whose arrays have the checkpoints as their first axis; `through` makes
            it.

    Returns:
        A call with a number beta gives the model there.

    Example:
        >>> import undirected as un
        >>> models = [un.RBM.create(4, 2, seed=k) for k in range(3)]
        >>> path = un.TrainingPath.through(models)
        >>> bool((path(1.0).weights == models[2].weights).all())
        True
        >>> kernel = un.ParallelTempering(un.BlockGibbs(), path.along, path.betas)
        >>> un.run_chains(kernel, path, chains=2, samples=4, seed=0).x.shape
        (4, 2, 6)
    """

    stations: Any

    @classmethod
    def through(cls, models: Sequence[Any], base: Any = None) -> "TrainingPath":
        """The path through all models from `base`: by default independent units, or no energy."""
        if not isinstance(models, Sequence):
            raise UndirectedError(
                f"TrainingPath: got {kind_told(models)}; pass a list of checkpoints, earliest "
                "first; un.tempered makes a path of one model"
            )
        if not models:
            raise UndirectedError("TrainingPath: no models; pass the checkpoints, earliest first")
        if base is None and isinstance(models[0], Separable):
            base = models[0].independent()
        every = [tempered(models[0]).base if base is None else base, *models]
        arrays, rest = zip(*(eqx.partition(m, eqx.is_inexact_array) for m in every), strict=True)
        shapes = [[jnp.shape(leaf) for leaf in jax.tree.leaves(one)] for one in arrays]
        for k, model in enumerate(models):
            if type(model) is not type(every[0]) or shapes[k + 1] != shapes[0]:
                raise UndirectedError(
                    f"TrainingPath: model {k} differs in class or shape from the base; pass "
                    "checkpoints of one training"
                )
        return cls(eqx.combine(jax.tree.map(lambda *a: jnp.stack(a), *arrays), rest[-1]))

    @staticmethod
    def along(path: "TrainingPath") -> "TrainingPath":
        """The path itself, which `ParallelTempering` is given in place of a model."""
        return path

    def __call__(self, beta: float | Float[Array, ""]) -> Any:
        arrays, rest = eqx.partition(self.stations, eqx.is_inexact_array)
        at = jnp.asarray(beta) * (self._count - 1)
        low = jnp.clip(jnp.floor(at), 0, self._count - 2).astype(int)
        share = at - low
        mixed = jax.tree.map(lambda a: between(share, a[low], a[low + 1]), arrays)
        return eqx.combine(mixed, rest)

    @property
    def betas(self) -> tuple[float, ...]:
        """Where the checkpoints are, from 1 down to the base at 0."""
        return tuple(1 - k / (self._count - 1) for k in range(self._count))

    @property
    def base(self) -> Any:
        """The model at beta = 0."""
        return self(0.0)

    @property
    def target(self) -> Any:
        """The model at beta = 1."""
        return self(1.0)

    @property
    def layout(self) -> Layout:
        """That of all its models."""
        return self.target.layout

    @property
    def _count(self) -> int:
        return jax.tree.leaves(eqx.filter(self.stations, eqx.is_inexact_array))[0].shape[0]
