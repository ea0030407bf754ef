"""Couplings of a family by the mean-field inverse: minus the inverse of the correlations."""

import numpy as np

from undirected.alignment.weights import Frequencies
from undirected.core.errors import UndirectedError
from undirected.models import Potts


def mean_field_potts(found: Frequencies) -> Potts:
    """J = -C^-1 of the connected correlations of all letters but the first, whose couplings are 0.

    Frequencies need a pseudocount (0.5 is common) so that C has an inverse.
    """
    length, q = found.single.shape
    matrix = found.connected[:, 1:, :, 1:].reshape(length * (q - 1), -1)
    try:
        inverse = -np.linalg.inv(matrix)
    except np.linalg.LinAlgError as error:
        raise UndirectedError(
            "mean_field_potts: the correlations have no inverse; use frequencies with a larger "
            "pseudocount, such as 0.5"
        ) from error
    couplings = np.pad(inverse.reshape(length, q - 1, length, q - 1), ((0, 0), (1, 0)) * 2)
    couplings[np.arange(length), :, np.arange(length)] = 0
    ratio = np.log(found.single / found.single[:, :1])
    fields = ratio - np.einsum("iajb,jb->ia", couplings, found.single)
    return Potts.dense(fields, couplings).zero_sum()
