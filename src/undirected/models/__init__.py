"""Models: data that knows its parameters and lowers to potentials."""

from undirected.models.conditional_rbm import ConditionalRBM
from undirected.models.deep import DeepBM
from undirected.models.factor_graph import FactorGraph, discrete
from undirected.models.gaussian_rbm import GaussianRBM
from undirected.models.grid_mrf import GridMRF
from undirected.models.ising import Ising
from undirected.models.markov import markov_network
from undirected.models.mixed_rbm import MixedRBM
from undirected.models.mixture_rbm import MixtureRBM
from undirected.models.model_path import ModelPath, TrainingPath, tempered
from undirected.models.nonnegative import NonnegativeBM
from undirected.models.potts import Potts
from undirected.models.quadratic import quadratic_model
from undirected.models.rbm import RBM
from undirected.models.semi_restricted import SemiRestrictedBM
from undirected.models.spin_form import SpinForm
from undirected.models.stack import Stack, draw_features

REGISTRY: dict[str, type] = {
    model.__name__: model
    for model in (
        RBM,
        SemiRestrictedBM,
        Ising,
        ConditionalRBM,
        NonnegativeBM,
        FactorGraph,
        DeepBM,
        GridMRF,
        GaussianRBM,
        Potts,
        MixedRBM,
        MixtureRBM,
    )
}
"""The models by name; saving and loading do without this table."""

__all__ = [
    "RBM",
    "REGISTRY",
    "ConditionalRBM",
    "DeepBM",
    "FactorGraph",
    "GaussianRBM",
    "GridMRF",
    "Ising",
    "MixedRBM",
    "MixtureRBM",
    "ModelPath",
    "NonnegativeBM",
    "Potts",
    "SemiRestrictedBM",
    "SpinForm",
    "Stack",
    "TrainingPath",
    "discrete",
    "draw_features",
    "markov_network",
    "quadratic_model",
    "tempered",
]
