"""Evaluation: numbers to report, each with its error.

Names are imported when they are first used, so that a question to a model does not wait for the
learners and samplers that it does without.
"""

from typing import TYPE_CHECKING

from undirected.core.diagnostics import ess, rhat
from undirected.core.lazy import lazily

if TYPE_CHECKING:
    from undirected.evaluation.ais import ais, reverse_ais
    from undirected.evaluation.both_sides import bracket, brackets
    from undirected.evaluation.cross_entropy import (
        CalibrationBin,
        binary_cross_entropy,
        calibration,
        calibration_error,
        categorical_cross_entropy,
    )
    from undirected.evaluation.errors import error_rate, intersection_over_union
    from undirected.evaluation.estimate import Estimate
    from undirected.evaluation.likelihood import (
        log_likelihood,
        pseudo_log_likelihood,
        reconstruction_error,
    )
    from undirected.evaluation.mmd import log_mmd
    from undirected.evaluation.onsager import torus_log_z
    from undirected.evaluation.population import PopulationResult, population_annealing
    from undirected.evaluation.rows_by_ais import ais_rows
    from undirected.evaluation.weights import AISResult, Bracket

__all__ = [
    "AISResult",
    "Bracket",
    "CalibrationBin",
    "Estimate",
    "PopulationResult",
    "ais",
    "ais_rows",
    "binary_cross_entropy",
    "bracket",
    "brackets",
    "calibration",
    "calibration_error",
    "categorical_cross_entropy",
    "error_rate",
    "ess",
    "intersection_over_union",
    "log_likelihood",
    "log_mmd",
    "population_annealing",
    "pseudo_log_likelihood",
    "reconstruction_error",
    "reverse_ais",
    "rhat",
    "torus_log_z",
]

lazily(
    __name__,
    {
        "ais": "ais reverse_ais",
        "both_sides": "bracket brackets",
        "cross_entropy": "CalibrationBin binary_cross_entropy "
        "calibration calibration_error categorical_cross_entropy",
        "errors": "error_rate intersection_over_union",
        "estimate": "Estimate",
        "likelihood": "log_likelihood pseudo_log_likelihood reconstruction_error",
        "mmd": "log_mmd",
        "onsager": "torus_log_z",
        "population": "PopulationResult population_annealing",
        "rows_by_ais": "ais_rows",
        "weights": "AISResult Bracket",
    },
)
