"""Learning: scalars to differentiate, and the one loop that follows their gradients.

Names are imported when they are first used, so that a question to a model does not wait for the
learners and samplers that it does without.
"""

from typing import TYPE_CHECKING

from undirected.core.lazy import lazily

if TYPE_CHECKING:
    from undirected.learning.batches import Batches
    from undirected.learning.conditional import Conditional, Scheduled
    from undirected.learning.contrastive import ContrastiveDivergence
    from undirected.learning.ensemble import Ensemble, member, model_axes, stack
    from undirected.learning.fit import Diverged, FitResult, Progress, fit
    from undirected.learning.importance import ImportanceSampled
    from undirected.learning.max_margin import MaxMargin, PerceptronLoss, hamming
    from undirected.learning.persistent import Persistent
    from undirected.learning.pseudo_likelihood import PseudoLikelihood
    from undirected.learning.queries import (
        ExactQueries,
        MaskQueries,
        PatchQueries,
        Queries,
        UniformQueries,
    )
    from undirected.learning.query_training import QueryTraining, answers, query_losses
    from undirected.learning.schedules import hold_then_decay
    from undirected.learning.streams import StreamedBatches
    from undirected.learning.two_phase import TwoPhase

__all__ = [
    "Batches",
    "Conditional",
    "ContrastiveDivergence",
    "Diverged",
    "Ensemble",
    "ExactQueries",
    "FitResult",
    "ImportanceSampled",
    "MaskQueries",
    "MaxMargin",
    "PatchQueries",
    "PerceptronLoss",
    "Persistent",
    "Progress",
    "PseudoLikelihood",
    "Queries",
    "QueryTraining",
    "Scheduled",
    "StreamedBatches",
    "TwoPhase",
    "UniformQueries",
    "answers",
    "fit",
    "hamming",
    "hold_then_decay",
    "member",
    "model_axes",
    "query_losses",
    "stack",
]

lazily(
    __name__,
    {
        "batches": "Batches",
        "conditional": "Conditional Scheduled",
        "contrastive": "ContrastiveDivergence",
        "ensemble": "Ensemble member model_axes stack",
        "fit": "Diverged FitResult Progress fit",
        "importance": "ImportanceSampled",
        "max_margin": "MaxMargin PerceptronLoss hamming",
        "persistent": "Persistent",
        "pseudo_likelihood": "PseudoLikelihood",
        "queries": "ExactQueries MaskQueries PatchQueries Queries UniformQueries",
        "query_training": "QueryTraining answers query_losses",
        "schedules": "hold_then_decay",
        "streams": "StreamedBatches",
        "two_phase": "TwoPhase",
    },
)
