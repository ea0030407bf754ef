"""Factor groups: one file each, with all that concerns the group."""

from undirected.factors.base import Factor, Messages, Pairs, Schedule, TableGroup, require
from undirected.factors.bilinear import Bilinear
from undirected.factors.convolutional_or import ConvolutionalOr
from undirected.factors.count import Count, at_most, count
from undirected.factors.edges import Edges
from undirected.factors.incidence import Incidence
from undirected.factors.logical import Logic, logical_and, logical_or
from undirected.factors.mixed_tables import MixedTables, mixed_tables
from undirected.factors.pool import Pool, pool
from undirected.factors.potts import PottsPairs, potts
from undirected.factors.sparse_tables import SparseTables, sparse_tables
from undirected.factors.squares import Squares
from undirected.factors.symmetric import Symmetric
from undirected.factors.tables import Tables, tables
from undirected.factors.third_order import ThirdOrder, third_order
from undirected.factors.wired import Wired

__all__ = [
    "Bilinear",
    "ConvolutionalOr",
    "Count",
    "Edges",
    "Factor",
    "Incidence",
    "Logic",
    "Messages",
    "MixedTables",
    "Pairs",
    "Pool",
    "PottsPairs",
    "Schedule",
    "SparseTables",
    "Squares",
    "Symmetric",
    "TableGroup",
    "Tables",
    "ThirdOrder",
    "Wired",
    "at_most",
    "count",
    "logical_and",
    "logical_or",
    "mixed_tables",
    "pool",
    "potts",
    "require",
    "sparse_tables",
    "tables",
    "third_order",
]
