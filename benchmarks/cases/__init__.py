"""The cases, a file for each group."""

from benchmarks.cases import belief_propagation, factor_graphs, learning, sampling
from benchmarks.harness import Case


def all_cases(quick: bool) -> list[Case]:
    """In the order of the page; `quick` leaves out what takes long."""
    groups = (belief_propagation, factor_graphs, sampling, learning)
    return [case for group in groups for case in group.cases(quick)]
