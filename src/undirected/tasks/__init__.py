"""The verbs: what users do with a model, whatever its class; routines are chosen by capability.

Names are imported when they are first used: `solve` of a network in a file does without JAX.
"""

from typing import TYPE_CHECKING

from undirected.core.lazy import lazily

if TYPE_CHECKING:
    from undirected.tasks.anneal import Annealed, anneal
    from undirected.tasks.choose import kernel_for, path_to
    from undirected.tasks.evaluate import Evaluation, LogPartition, evaluate, log_partition
    from undirected.tasks.files import load, read_network, save, write_network
    from undirected.tasks.fit_table import fit_table
    from undirected.tasks.learn import fit
    from undirected.tasks.network_learning import learn_network
    from undirected.tasks.query import Answers, answer_rows, query
    from undirected.tasks.sample import sample
    from undirected.tasks.sampler import Sampler, choose_sampler
    from undirected.tasks.screening import interaction_screening
    from undirected.tasks.solve import Solution, solve
    from undirected.tasks.table_model import TableModel, load_table
    from undirected.tasks.train_table import Settings, Trained, train_table

__all__ = [
    "Annealed",
    "Answers",
    "Evaluation",
    "LogPartition",
    "Sampler",
    "Settings",
    "Solution",
    "TableModel",
    "Trained",
    "anneal",
    "answer_rows",
    "choose_sampler",
    "evaluate",
    "fit",
    "fit_table",
    "interaction_screening",
    "kernel_for",
    "learn_network",
    "load",
    "load_table",
    "log_partition",
    "path_to",
    "query",
    "read_network",
    "sample",
    "save",
    "solve",
    "train_table",
    "write_network",
]

lazily(
    __name__,
    {
        "anneal": "Annealed anneal",
        "choose": "kernel_for path_to",
        "evaluate": "Evaluation LogPartition evaluate log_partition",
        "files": "load read_network save write_network",
        "fit_table": "fit_table",
        "learn": "fit",
        "network_learning": "learn_network",
        "query": "Answers answer_rows query",
        "sample": "sample",
        "sampler": "Sampler choose_sampler",
        "screening": "interaction_screening",
        "solve": "Solution solve",
        "table_model": "TableModel load_table",
        "train_table": "Settings Trained train_table",
    },
)
