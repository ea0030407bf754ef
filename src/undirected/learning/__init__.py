"""Learning: scalars to differentiate, and the one loop that follows their gradients."""

from undirected.learning.batches import Batches
from undirected.learning.conditional import Conditional, Scheduled
from undirected.learning.contrastive import ContrastiveDivergence
from undirected.learning.fit import Diverged, FitResult, Progress, fit
from undirected.learning.max_margin import MaxMargin, PerceptronLoss, hamming
from undirected.learning.persistent import Persistent
from undirected.learning.pseudo_likelihood import PseudoLikelihood
from undirected.learning.queries import ExactQueries, MaskQueries, PatchQueries, UniformQueries
from undirected.learning.query_training import QueryTraining, answers, query_losses
from undirected.learning.two_phase import TwoPhase

__all__ = [
    "Batches",
    "Conditional",
    "ContrastiveDivergence",
    "Diverged",
    "ExactQueries",
    "FitResult",
    "MaskQueries",
    "MaxMargin",
    "PatchQueries",
    "PerceptronLoss",
    "Persistent",
    "Progress",
    "PseudoLikelihood",
    "QueryTraining",
    "Scheduled",
    "TwoPhase",
    "UniformQueries",
    "answers",
    "fit",
    "hamming",
    "query_losses",
]
