"""Which routine suits a model: by what the model can do, never by its class."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from undirected.core.errors import UndirectedError, instead_of, kind_told
from undirected.core.numerics import check_finite
from undirected.core.protocols import Annealable, Kernel, Lowerable, Model, Separable
from undirected.inference.mixed_messages import suits as takes_lines
from undirected.models import ModelPath, tempered


def kernel_for(model: Any) -> Kernel:
    """The first Gibbs kernel that takes a model: one step is traced, nothing is computed."""
    from undirected.sampling import (  # whoever does without chains does not wait for these
        BlockGibbs,
        GaussianGibbs,
        Gibbs,
        MixedGibbs,
        MixtureGibbs,
        RectifiedGibbs,
    )

    check_model("sampling", model)

    refusals = []
    kernels = MixtureGibbs(), BlockGibbs(), Gibbs(), RectifiedGibbs(), GaussianGibbs(), MixedGibbs()
    for kernel in kernels:
        try:
            _trace(kernel, model)
        except UndirectedError as error:
            refusals.append(str(error))
        else:
            return kernel
    raise UndirectedError(
        f"no Gibbs sampler takes this {type(model).__name__} ({refusals[2]}); "
        "GibbsWithGradients or PerturbAndMap may"
    )


def takes(kernel: Any, model: Any) -> bool:
    """Whether a kernel moves chains of this model."""
    try:
        _trace(kernel, model)
    except UndirectedError:
        return False
    return True


def _trace(kernel: Any, model: Any) -> None:
    """A step of two chains, of which nothing is computed; raises where the kernel refuses."""

    def step(model: Any, x: Array, key: Key[Array, ""]) -> Array:
        free = jnp.ones(model.layout.n, bool)
        return kernel.step(model, kernel.init(model, x, key), free, key)[0].x

    x = jax.ShapeDtypeStruct((2, model.layout.n), jnp.zeros(()).dtype)
    eqx.filter_eval_shape(step, model, x, jax.random.key(0))


def asks_entries(model: Any) -> bool:
    """Whether belief propagation answers for single entries of this model."""
    if not isinstance(model, Lowerable):
        return False
    p = model.lower()
    return takes_lines(p) or (
        bool(p.factors)
        and not p.layout.is_continuous.any()
        and all(factor.offers("update_messages") for factor in p.factors)
    )


def path_to(model: Any, means: Any = None) -> ModelPath:
    """To a model from a tractable one that it knows, else from independent units or from none."""
    if isinstance(model, Annealable):
        return ModelPath(model.tractable(), model)
    if isinstance(model, Separable):
        return ModelPath(model.independent(means), model)
    return tempered(model)


def check_model(caller: str, model: Any) -> None:
    """Refuse what has no units of its own, and a model whose parameters are not finite."""
    if isinstance(model, type) or not isinstance(model, Model):
        wanted = "a model with a layout and an energy, or for a conditional one model.at(features)"
        raise UndirectedError(
            f"{caller}: got {kind_told(model)}; {instead_of(caller, model, wanted)}"
        )
    check_finite(caller, model)
