"""Undirected graphical models: learn them, query them, sample from them.

`import undirected as un` has everything that most work needs by one name; the rooms behind it
(`undirected.models`, `.factors`, `.inference`, `.sampling`, `.learning`, `.evaluation`, `.io`,
`.data`) have the rest. Names are imported when they are first used, so that starting is quick.
"""

from importlib import import_module
from typing import Any

__version__ = "0.2.0"

# Where each name lives; `__init__.pyi` lists the same names for type checkers and editors.
_ROOMS = {
    "undirected.alignment": "Alignment FamilyModel contact_scores fit_family load_family "
    "potts_log_z read_fasta sequence_weights write_fasta",
    "undirected.core.columns": "Column Schema",
    "undirected.core.errors": "UndirectedError",
    "undirected.core.graph": "Graph",
    "undirected.core.mesh": "device_mesh",
    "undirected.core.potentials": "Beliefs Potentials Status clamp observe shift",
    "undirected.models": "ConditionalRBM DeepBM FactorGraph GaussianRBM GridMRF Ising MixedRBM "
    "MixtureRBM "
    "ModelPath NonnegativeBM Potts RBM SemiRestrictedBM TrainingPath discrete markov_network "
    "quadratic_model tempered",
    "undirected.factors": "Bilinear Edges Factor Symmetric at_most count logical_and logical_or "
    "pool potts sparse_tables tables third_order",
    "undirected.inference": "BeliefPropagation Elimination Exact ImprovedSusceptibility Inference "
    "LinearProgram MPLP MaxProduct MeanField MixedProduct QueryNetwork SumProduct Susceptibility "
    "TAP Transfer TreeReweighted",
    "undirected.sampling": "AnyScale BlockGibbs DiscreteLangevin Gibbs GibbsWithGradients "
    "HammingBall Houdayer MixedGibbs MixtureGibbs MultipleTry ParallelTempering PathAuxiliary "
    "PerturbAndMap SwendsenWang TemperedTransitions Wolff run_chains",
    "undirected.learning": "Batches Conditional ContrastiveDivergence Ensemble MaxMargin "
    "Persistent PseudoLikelihood QueryTraining StreamedBatches TwoPhase",
    "undirected.evaluation": "ais bracket ess log_likelihood log_mmd population_annealing "
    "pseudo_log_likelihood rhat torus_log_z",
    "undirected.io.infer": "infer_schema",
    "undirected.io.tables": "read_table write_table",
    "undirected.explorer.page": "explore",
    "undirected.tasks.exchange": "from_bqm from_networkx from_pgmpy to_bqm to_networkx",
    "undirected.tasks": "Settings Solution TableModel anneal choose_sampler evaluate fit fit_table "
    "interaction_screening learn_network load load_table log_partition query read_network sample "
    "save solve train_table write_network",
}
_PLACE = {name: room for room, names in _ROOMS.items() for name in names.split()}
_MODULES = {
    "alignment": "undirected.alignment",
    "graph": "undirected.core.graph",
    "sklearn": "undirected.sklearn",
}

__all__ = sorted([*_PLACE, "__version__"])  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name in _PLACE:
        found = getattr(import_module(_PLACE[name]), name)
        globals()[name] = found
        return found
    from difflib import get_close_matches

    near = get_close_matches(name, [*_PLACE, *_MODULES], n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise AttributeError(f"module 'undirected' has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    return sorted({*_PLACE, *_MODULES, *(name for name in globals() if name.startswith("__"))})
