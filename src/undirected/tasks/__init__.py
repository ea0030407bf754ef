"""The verbs: what users do with a model, whatever its class; routines are chosen by capability."""

from undirected.tasks.learn import fit
from undirected.tasks.query import Answers, answer_rows, query
from undirected.tasks.sample import sample

__all__ = ["Answers", "answer_rows", "fit", "query", "sample"]
