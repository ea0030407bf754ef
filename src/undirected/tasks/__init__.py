"""The verbs: what users do with a model, whatever its class; routines are chosen by capability."""

from undirected.tasks.choose import kernel_for, path_to
from undirected.tasks.evaluate import Evaluation, LogPartition, evaluate, log_partition
from undirected.tasks.files import load, read_network, save, write_network
from undirected.tasks.learn import fit
from undirected.tasks.query import Answers, answer_rows, query
from undirected.tasks.sample import sample
from undirected.tasks.table_model import TableModel, fit_table, load_table
from undirected.tasks.train_table import Settings, Trained, train_table

__all__ = [
    "Answers",
    "Evaluation",
    "LogPartition",
    "Settings",
    "TableModel",
    "Trained",
    "answer_rows",
    "evaluate",
    "fit",
    "fit_table",
    "kernel_for",
    "load",
    "load_table",
    "log_partition",
    "path_to",
    "query",
    "read_network",
    "sample",
    "save",
    "train_table",
    "write_network",
]
