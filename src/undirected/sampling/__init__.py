"""Sampling: kernels that move a state, and the one driver that runs chains of them."""

from undirected.sampling.chain import ChainResult, init_state, run_chains
from undirected.sampling.gibbs import BlockGibbs, Gibbs, GibbsState
from undirected.sampling.hamiltonian import ExactHamiltonian, ReflectiveHamiltonian
from undirected.sampling.rectified import RectifiedGibbs, RectifiedState

__all__ = [
    "BlockGibbs",
    "ChainResult",
    "ExactHamiltonian",
    "Gibbs",
    "GibbsState",
    "RectifiedGibbs",
    "RectifiedState",
    "ReflectiveHamiltonian",
    "init_state",
    "run_chains",
]
