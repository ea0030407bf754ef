"""Sampling: kernels that move a state, and the one driver that runs chains of them.

Names are imported when they are first used, so that a question to a model does not wait for the
learners and samplers that it does without.
"""

from typing import TYPE_CHECKING

from undirected.core.lazy import lazily

if TYPE_CHECKING:
    from undirected.sampling.alternating import Alternating, AlternatingState
    from undirected.sampling.base import ChainState
    from undirected.sampling.chain import ChainResult, run_chains
    from undirected.sampling.clusters import Houdayer, SwendsenWang, Wolff
    from undirected.sampling.dmala import AnyScale, DiscreteLangevin, MultipleTry
    from undirected.sampling.gaussian import GaussianGibbs
    from undirected.sampling.gibbs import BlockGibbs, Gibbs
    from undirected.sampling.gibbs_with_gradients import GibbsWithGradients
    from undirected.sampling.hamiltonian import ExactHamiltonian, ReflectiveHamiltonian
    from undirected.sampling.hamming_ball import HammingBall
    from undirected.sampling.mixed import MixedGibbs
    from undirected.sampling.mixture_gibbs import MixtureGibbs
    from undirected.sampling.observers import Energies, Mean, Moments, States, Trace
    from undirected.sampling.path_auxiliary import PathAuxiliary
    from undirected.sampling.perturb import PerturbAndMap
    from undirected.sampling.rectified import RectifiedGibbs
    from undirected.sampling.starts import init_state
    from undirected.sampling.tempering import (
        ParallelTempering,
        TemperedTransitions,
        ladder,
        respace,
    )

__all__ = [
    "Alternating",
    "AlternatingState",
    "AnyScale",
    "BlockGibbs",
    "ChainResult",
    "ChainState",
    "DiscreteLangevin",
    "Energies",
    "ExactHamiltonian",
    "GaussianGibbs",
    "Gibbs",
    "GibbsWithGradients",
    "HammingBall",
    "Houdayer",
    "Mean",
    "MixedGibbs",
    "MixtureGibbs",
    "Moments",
    "MultipleTry",
    "ParallelTempering",
    "PathAuxiliary",
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

lazily(
    __name__,
    {
        "alternating": "Alternating AlternatingState",
        "base": "ChainState",
        "chain": "ChainResult run_chains",
        "clusters": "Houdayer SwendsenWang Wolff",
        "dmala": "AnyScale DiscreteLangevin MultipleTry",
        "gaussian": "GaussianGibbs",
        "gibbs": "BlockGibbs Gibbs",
        "gibbs_with_gradients": "GibbsWithGradients",
        "hamming_ball": "HammingBall",
        "hamiltonian": "ExactHamiltonian ReflectiveHamiltonian",
        "mixed": "MixedGibbs",
        "mixture_gibbs": "MixtureGibbs",
        "observers": "Energies Mean Moments States Trace",
        "path_auxiliary": "PathAuxiliary",
        "perturb": "PerturbAndMap",
        "rectified": "RectifiedGibbs",
        "starts": "init_state",
        "tempering": "ParallelTempering TemperedTransitions ladder respace",
    },
)
