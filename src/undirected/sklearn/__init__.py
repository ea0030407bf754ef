"""Estimators in the manner of scikit-learn."""

from undirected.sklearn.classifier import StructuredClassifier
from undirected.sklearn.features import RBMFeatures
from undirected.sklearn.tables import TableDensity, TableImputer

__all__ = ["RBMFeatures", "StructuredClassifier", "TableDensity", "TableImputer"]
