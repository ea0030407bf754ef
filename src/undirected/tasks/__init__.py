"""The verbs: what users do with a model, whatever its class; routines are chosen by capability."""

from undirected.tasks.files import load, read_network, save
from undirected.tasks.learn import fit
from undirected.tasks.query import Answers, answer_rows, query
from undirected.tasks.sample import sample
from undirected.tasks.train_table import Settings, Trained, train_table

__all__ = [
    "Answers",
    "Settings",
    "Trained",
    "answer_rows",
    "fit",
    "load",
    "query",
    "read_network",
    "sample",
    "save",
    "train_table",
]
