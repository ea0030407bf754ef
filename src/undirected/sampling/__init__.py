"""Sampling: kernels that move a state, and the one driver that runs chains of them."""

from undirected.sampling.chain import ChainResult, init_state, run_chains
from undirected.sampling.gibbs import BlockGibbs, Gibbs, GibbsState

__all__ = ["BlockGibbs", "ChainResult", "Gibbs", "GibbsState", "init_state", "run_chains"]
