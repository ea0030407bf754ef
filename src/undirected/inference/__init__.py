"""Inference: potentials in, beliefs of the same shape out."""

from undirected.inference.base import Decoded, Inference
from undirected.inference.belief_propagation import BeliefPropagation, MaxProduct, SumProduct
from undirected.inference.elimination import Elimination
from undirected.inference.exact import Exact, Transfer
from undirected.inference.high_temperature import Downs
from undirected.inference.linear_program import LinearProgram
from undirected.inference.mean_field import MeanField
from undirected.inference.mixed_product import MixedProduct
from undirected.inference.mplp import MPLP
from undirected.inference.predict import predict
from undirected.inference.quadrature import Quadrature
from undirected.inference.susceptibility import (
    Covariances,
    ImprovedSusceptibility,
    Susceptibility,
)
from undirected.inference.tap import TAP
from undirected.inference.tree_reweighted import TreeReweighted
from undirected.inference.unrolled import QueryNetwork

__all__ = [
    "MPLP",
    "TAP",
    "BeliefPropagation",
    "Covariances",
    "Decoded",
    "Downs",
    "Elimination",
    "Exact",
    "ImprovedSusceptibility",
    "Inference",
    "LinearProgram",
    "MaxProduct",
    "MeanField",
    "MixedProduct",
    "Quadrature",
    "QueryNetwork",
    "SumProduct",
    "Susceptibility",
    "Transfer",
    "TreeReweighted",
    "predict",
]
