"""Evaluation: numbers to report, each with its error."""

from undirected.core.diagnostics import ess, rhat
from undirected.evaluation.ais import (
    AISResult,
    Bracket,
    ais,
    ais_rows,
    bracket,
    brackets,
    reverse_ais,
)
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
