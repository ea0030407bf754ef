"""Sampling: kernels that move a state, and the one driver that runs chains of them."""

from undirected.sampling.alternating import Alternating, AlternatingState
from undirected.sampling.base import ChainState
from undirected.sampling.chain import ChainResult, init_state, run_chains
from undirected.sampling.clusters import Houdayer, SwendsenWang, Wolff
from undirected.sampling.dmala import DiscreteLangevin
from undirected.sampling.gaussian import GaussianGibbs
from undirected.sampling.gibbs import BlockGibbs, Gibbs
from undirected.sampling.gibbs_with_gradients import GibbsWithGradients
from undirected.sampling.hamiltonian import ExactHamiltonian, ReflectiveHamiltonian
from undirected.sampling.mixed import MixedGibbs
from undirected.sampling.mixture_gibbs import MixtureGibbs
from undirected.sampling.observers import Energies, Mean, Moments, States, Trace
from undirected.sampling.perturb import PerturbAndMap
from undirected.sampling.rectified import RectifiedGibbs
from undirected.sampling.tempering import (
    ParallelTempering,
    TemperedTransitions,
    ladder,
    respace,
)

__all__ = [
    "Alternating",
    "AlternatingState",
    "BlockGibbs",
    "ChainResult",
    "ChainState",
    "DiscreteLangevin",
    "Energies",
    "ExactHamiltonian",
    "GaussianGibbs",
    "Gibbs",
    "GibbsWithGradients",
    "Houdayer",
    "Mean",
    "MixedGibbs",
    "MixtureGibbs",
    "Moments",
    "ParallelTempering",
    "PerturbAndMap",
    "RectifiedGibbs",
    "ReflectiveHamiltonian",
    "States",
    "SwendsenWang",
    "TemperedTransitions",
    "Trace",
    "Wolff",
    "init_state",
    "ladder",
    "respace",
    "run_chains",
]
