"""Families of proteins and RNA: alignments, Potts models of them, contacts, new sequences.

Names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from undirected.core.lazy import lazily

if TYPE_CHECKING:
    from undirected.alignment.boltzmann import (
        BoltzmannSettings,
        Learned,
        boltzmann_potts,
        pearson_of,
    )
    from undirected.alignment.contacts import (
        Contacts,
        contact_scores,
        draw_contacts,
        predictive_value,
        rank_contacts,
        write_contacts,
    )
    from undirected.alignment.family import FamilyModel, family_notes, fit_family, load_family
    from undirected.alignment.mean_field import mean_field_potts
    from undirected.alignment.partition import LogZ, potts_log_z
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
    "BoltzmannSettings",
    "Contacts",
    "FamilyModel",
    "Frequencies",
    "Learned",
    "LogZ",
    "boltzmann_potts",
    "contact_scores",
    "draw_contacts",
    "family_notes",
    "fit_family",
    "frequencies",
    "is_fasta",
    "load_family",
    "mean_field_potts",
    "pearson_of",
    "potts_log_z",
    "predictive_value",
    "rank_contacts",
    "read_fasta",
    "sequence_weights",
    "write_contacts",
    "write_fasta",
]

lazily(
    __name__,
    {
        "boltzmann": "BoltzmannSettings Learned boltzmann_potts pearson_of",
        "contacts": "Contacts contact_scores draw_contacts predictive_value rank_contacts "
        "write_contacts",
        "family": "FamilyModel family_notes fit_family load_family",
        "mean_field": "mean_field_potts",
        "partition": "LogZ potts_log_z",
        "sequences": "ALPHABETS Alignment is_fasta read_fasta write_fasta",
        "weights": "Frequencies frequencies sequence_weights",
    },
)
