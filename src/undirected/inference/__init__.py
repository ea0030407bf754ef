"""Inference: potentials in, beliefs of the same shape out.

Names are imported when they are first used: `inference.networks` does without JAX, and whoever
asks for it alone does not wait for the rest.
"""

from typing import TYPE_CHECKING

from undirected.core.lazy import lazily

if TYPE_CHECKING:
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

lazily(
    __name__,
    {
        "base": "Decoded Inference",
        "belief_propagation": "BeliefPropagation MaxProduct SumProduct",
        "elimination": "Elimination",
        "exact": "Exact Transfer",
        "high_temperature": "Downs",
        "linear_program": "LinearProgram",
        "mean_field": "MeanField",
        "mixed_product": "MixedProduct",
        "mplp": "MPLP",
        "predict": "predict",
        "quadrature": "Quadrature",
        "susceptibility": "Covariances ImprovedSusceptibility Susceptibility",
        "tap": "TAP",
        "tree_reweighted": "TreeReweighted",
        "unrolled": "QueryNetwork",
    },
)
