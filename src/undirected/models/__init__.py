"""Models: data that knows its parameters and lowers to potentials."""

from undirected.models.conditional_rbm import ConditionalRBM
from undirected.models.ising import Ising
from undirected.models.nonnegative import NonnegativeBM
from undirected.models.paths import Path, tempered
from undirected.models.rbm import RBM

REGISTRY: dict[str, type] = {
    model.__name__: model for model in (RBM, Ising, ConditionalRBM, NonnegativeBM)
}
"""Model classes by the name a model file gives."""

__all__ = ["RBM", "REGISTRY", "ConditionalRBM", "Ising", "NonnegativeBM", "Path", "tempered"]
