"""Inference: potentials in, beliefs of the same shape out."""

from undirected.inference.belief_propagation import BeliefPropagation, MaxProduct, SumProduct
from undirected.inference.exact import Exact, Transfer
from undirected.inference.mean_field import MeanField
from undirected.inference.mixed_product import MixedProduct
from undirected.inference.predict import predict

__all__ = [
    "BeliefPropagation",
    "Exact",
    "MaxProduct",
    "MeanField",
    "MixedProduct",
    "SumProduct",
    "Transfer",
    "predict",
]
