"""Which routine suits a model: by what the model can do, never by its class."""

from typing import Any

from undirected.core.errors import UndirectedError, UnsupportedFactor
from undirected.core.layout import Domain
from undirected.core.protocols import Blocked, Kernel, Lowerable
from undirected.sampling import BlockGibbs, GaussianGibbs, Gibbs, RectifiedGibbs


def kernel_for(model: Any) -> Kernel:
    """The Gibbs kernel that suits the units of a model.

    Args:
        model: any model with a layout.

    Returns:
        Gibbs sampling of real or nonnegative units where there are any; otherwise whole blocks
        where the model has block conditionals, and single variables by its potentials else.
    """
    if not hasattr(model, "layout"):
        raise UndirectedError(
            f"got a {type(model).__name__}, which has no units of its own; a conditional model "
            "gets them with its features: model.at(x)"
        )
    domains = {block.domain for block in model.layout.blocks}
    if Domain.REAL in domains:
        return GaussianGibbs()
    if Domain.NONNEGATIVE in domains:
        return RectifiedGibbs()
    if isinstance(model, Blocked):
        return BlockGibbs()
    if isinstance(model, Lowerable):
        return Gibbs()
    raise UnsupportedFactor(
        f"{type(model).__name__} has neither block conditionals nor potentials to sample from"
    )
