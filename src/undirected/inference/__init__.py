"""Inference: potentials in, beliefs of the same shape out."""

from undirected.inference.belief_propagation import BeliefPropagation, MaxProduct, SumProduct
from undirected.inference.downs import Downs
from undirected.inference.exact import Exact, Transfer
from undirected.inference.mean_field import MeanField
from undirected.inference.mixed_product import MixedProduct
from undirected.inference.predict import predict
from undirected.inference.quadrature import Quadrature
from undirected.inference.susceptibility import (
    Covariances,
    ImprovedSusceptibility,
    Susceptibility,
)
from undirected.inference.tap import TAP

__all__ = [
    "TAP",
    "BeliefPropagation",
    "Covariances",
    "Downs",
    "Exact",
    "ImprovedSusceptibility",
    "MaxProduct",
    "MeanField",
    "MixedProduct",
    "Quadrature",
    "SumProduct",
    "Susceptibility",
    "Transfer",
    "predict",
]
