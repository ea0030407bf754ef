"""Learning: scalars to differentiate, and the one loop that follows their gradients."""

from undirected.learning.batches import Batches
from undirected.learning.conditional import Conditional, Scheduled
from undirected.learning.contrastive import ContrastiveDivergence
from undirected.learning.fit import Diverged, FitResult, Progress, fit
from undirected.learning.max_margin import MaxMargin, PerceptronLoss, hamming
from undirected.learning.persistent import Persistent
from undirected.learning.pseudo_likelihood import PseudoLikelihood
from undirected.learning.two_phase import TwoPhase

__all__ = [
    "Batches",
    "Conditional",
    "ContrastiveDivergence",
    "Diverged",
    "FitResult",
    "MaxMargin",
    "PerceptronLoss",
    "Persistent",
    "Progress",
    "PseudoLikelihood",
    "Scheduled",
    "TwoPhase",
    "fit",
    "hamming",
]
