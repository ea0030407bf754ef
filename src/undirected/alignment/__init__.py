"""Families of proteins and RNA: alignments, Potts models of them, contacts, new sequences.

Names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from undirected.core.lazy import lazily

if TYPE_CHECKING:
    from undirected.alignment.sequences import (
        ALPHABETS,
        Alignment,
        is_fasta,
        read_fasta,
        write_fasta,
    )
    from undirected.alignment.weights import Frequencies, frequencies, sequence_weights

__all__ = [
    "ALPHABETS",
    "Alignment",
    "Frequencies",
    "frequencies",
    "is_fasta",
    "read_fasta",
    "sequence_weights",
    "write_fasta",
]

lazily(
    __name__,
    {
        "sequences": "ALPHABETS Alignment is_fasta read_fasta write_fasta",
        "weights": "Frequencies frequencies sequence_weights",
    },
)
